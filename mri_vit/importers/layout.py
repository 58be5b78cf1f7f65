"""Layout: how one publisher names files and columns, as data, and the rules by which a cell becomes one of ours.

A rule takes the raw cell and its column's name. A cell that no rule covers is missing, never guessed. The words of each rule are
those of the named tables, and their plain variants.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from mri_vit.data import sheet
from mri_vit.data.columns import MISSING as MISSING_HERE
from mri_vit.data.columns import OLDEST_YEARS, dicom_age, key
from mri_vit.errors import UsageError
from mri_vit.settings import source as source_file

NO_RULE = "no rule"  # of a reading whose value no written rule covers: it stays missing, and is listed


@dataclass(frozen=True)
class Visit:
    """Scans of one patient on one day; `session` is empty where a patient has one."""

    patient: str
    session: str
    scans: Mapping[str, Path]  # by channel: t1, t1ce, t2, flair, and adc, swi or asl where asked for
    brain_mask: Path | None = None
    tumour_mask: Path | None = None


@dataclass(frozen=True)
class Reading:
    """One cell of a source, and its value in the cohort table.

    `session` is empty where the cell is about the patient and not a visit; the reading then applies to all their visits.
    """

    patient: str
    session: str
    column: str  # of the cohort table, such as mgmt or age
    value: str  # as the cohort table holds it; empty where it is missing
    file: Path
    row: int  # line of the file, the header being the first
    source_column: str
    raw: str
    rule: str  # in words, such as "positive is 1"; NO_RULE where none covers the raw value
    tolerance: float = 0.0  # of a number: how far a finer reading of the same may lie from it


@dataclass(frozen=True)
class LeftOut:
    """A patient, visit or file that is not in the cohort, and why."""

    patient: str
    file: Path | None
    reason: str


@dataclass(frozen=True)
class SourceContents:
    """The contents of a source; visits and readings need not be of the same patients."""

    visits: tuple[Visit, ...]
    readings: tuple[Reading, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()  # for the user, a sentence each
    strays: tuple[Visit, ...] = ()  # visits in the plain layout beside this one


TEXT_ENDING = ".txt"  # of a table, or of a README
TABLE_ENDINGS = (  # of tables; not all of them can be read
    *(".csv", ".tsv", ".tab", TEXT_ENDING, ".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"),
    *(".sav", ".dta", ".rds", ".sas7bdat", ".parquet"),  # of SPSS, Stata, R, SAS and Arrow
)
HEAD_BYTES = 65536  # of a file that may be a table: enough for its header


@dataclass(frozen=True)
class Row:
    """One line of a table; `cells` are by their column's name without case and signs."""

    file: Path
    line: int  # the header being the first
    cells: Mapping[str, str]
    names: Mapping[str, str]  # of columns, likewise, as the file spells them
    dates: frozenset[str] = frozenset()  # columns, likewise, in which a workbook has a date

    def first(self, sources: Sequence[str]) -> str | None:
        """The first of these columns that the table has, in its spelling."""
        return next((self.names[key(name)] for name in sources if key(name) in self.names), None)

    def cell(self, name: str) -> str:
        """The cell of a column; empty where there is no such column."""
        return self.cells.get(key(name), "")

    def fault(self, column: str, words: str) -> UsageError:
        """What is wrong with a cell, after file, row and column."""
        return UsageError(f"{self.file}, row {self.line}, column {column}: {words}")


def table_rows(path: Path) -> Iterator[Row]:
    """The rows of a table. Raises UsageError naming file and line."""
    content = sheet.examine(path)
    sheet.refuse(path, content.faults)
    names = {key(name): name for name in reversed(content.header)}
    dates: dict[int, frozenset[str]] = {}
    for line, name in content.dates:
        dates[line] = dates.get(line, frozenset()) | {key(name)}
    for line, cells in content.rows:
        by_key = {key(name): cell for name, cell in reversed(cells.items())}
        yield Row(path, line, by_key, names, dates.get(line, frozenset()))


def table_columns(path: Path) -> set[str]:
    """The names of a table's columns without case and signs, from the beginning of a text file; none if it cannot be read."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
    try:
        names = sheet.columns(path) if start[:2] == b"PK" else sheet.names(start)  # a workbook is a zip archive, read whole
    except UsageError:
        return set()
    return {key(name) for name in names if name}


# UPENN-GBM: Not Available, Not Applicable, NA; TCGA: --, '--, not reported, [Not Available]; UCSF-PDGM: empty, unknown.
MISSING = MISSING_HERE | {"'--", "[not available]", "[not applicable]", "[unknown]", "null", ".", "not allowed to collect"}
SAME_AS = "same_as"  # column of a cohort table: `cohort:patient` of the same person elsewhere, several parted by blanks
DAYS_IN = {"day": 1.0, "week": 7.0, "month": 365.25 / 12, "year": 365.25}  # a month is a twelfth of a mean Julian year
NO_AGE = "an age of 0 is missing"
UNIT = re.compile(r"(?i)(?<![a-z])(day|week|month|year)s?(?![a-z])")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")


@dataclass(frozen=True)
class CellValue:
    """The cell of the cohort table, empty where missing, and the rule that gave it."""

    value: str
    rule: str
    tolerance: float = 0.0  # how far above or below a finer reading of the same may lie, in the table's unit


Rule = Callable[[str, str], CellValue]  # of a raw cell and the name of its column
UNKNOWN = CellValue("", NO_RULE)


def missing(raw: str) -> bool:
    """Whether a cell states that the value is missing."""
    return raw.strip().lower() in MISSING


def words(to: Mapping[str, tuple[str, ...]], neither: tuple[str, ...] = ()) -> Rule:
    """A rule for words in any case; those of `neither` are valid, and mean that the value is unknown."""
    known = {word: value for value, synonyms in to.items() for word in synonyms}

    def rule(raw: str, column: str) -> CellValue:
        word = " ".join(raw.lower().split())
        if missing(raw):
            return CellValue("", f"{raw!r} is missing" if raw else "empty is missing")
        if word in neither:
            return CellValue("", f"{word} is neither, so missing")
        return CellValue(known[word], f"{word} is {known[word]}") if word in known else UNKNOWN

    return rule


YES, NO = ("1", "1.0", "yes", "y", "true"), ("0", "0.0", "no", "n", "false")
UNCLEAR = ("indeterminate", "equivocal", "inconclusive", "borderline", "not tested", "unsure")

METHYLATION = words({"1": ("positive", "methylated", *YES), "0": ("negative", "unmethylated", "not methylated", *NO)}, UNCLEAR)
MUTATION = words(
    {
        "1": ("mutated", "mutant", "mut", "mutated (nos)", "positive", *YES),
        "0": ("wildtype", "wild-type", "wild type", "wt", "not mutated", "not_mutated", "negative", *NO),
    },
    ("nos/nec", "nos", "nec", *UNCLEAR),  # IDH tested by an antibody against R132H alone, or not at all: WHO 2021
)
SEX = words({"M": ("m", "male"), "F": ("f", "female")})
# Lost to follow-up is a censoring: the patient lived when last seen. So is a death of uncertain date, at the last day that the
# patient is known to have lived, which is the time that UPENN-GBM gives for it under Survival_Censor.
EVENT = words(
    {
        "1": ("deceased", "dead", "died", "1:deceased", *YES),
        "0": ("alive", "living", "0:living", "lost to follow-up", "deceased - uncertain date of death", *NO),
    }
)
CENSORED = words({"0": YES, "1": NO})  # a flag of censoring, which is the inverse of ours


def named_mutation(raw: str, column: str) -> CellValue:
    """IDH as in UCSF-PDGM: `wildtype`, or a mutation by its name in the long or the short form of amino acids."""
    if re.fullmatch(r"IDH[12] p\.[A-Z][a-z]{0,2}\d+[A-Z][a-z]{0,2}", raw):
        return CellValue("1", "a named IDH mutation is 1")
    return MUTATION(raw, column)


def text(raw: str, column: str) -> CellValue:
    """The cell as it is."""
    return CellValue("", f"{raw!r} is missing" if raw else "empty is missing") if missing(raw) else CellValue(raw, "as it is")


def same_brats(raw: str, column: str) -> CellValue:
    """A patient's id in BraTS 2021, whose two tasks share numbers, in the form of the cohorts `brats2021` and `rsna_miccai`."""
    if missing(raw):
        return text(raw, column)
    digits = re.fullmatch(r"(?:BraTS2021_)?(\d{1,5})", raw)
    if not digits:
        return UNKNOWN
    number = digits[1].zfill(5)
    return CellValue(f"brats2021:BraTS2021_{number} rsna_miccai:{number}", "the patient of this number in BraTS 2021")


def number(raw: str, column: str) -> CellValue:
    """A number, with a point."""
    if missing(raw):
        return text(raw, column)
    return CellValue(_shortest(float(raw)), "a number") if NUMBER.fullmatch(raw) else UNKNOWN


def age(raw: str, column: str) -> CellValue:
    """Years. 0 stands for a missing age, as in the five rows of TCGA's mutations whose other cells are `--`; -1, 999: none."""
    in_years = dicom_age(raw)
    years = number(raw, column) if in_years is None else CellValue(f"{in_years:.4g}", "an age as DICOM writes it, in years")
    if not years.value:
        return years
    if float(years.value) == 0:
        return CellValue("", NO_AGE)
    return replace(years, tolerance=0.0 if "." in years.value else 1.0) if 0 < float(years.value) <= OLDEST_YEARS else UNKNOWN


def karnofsky(raw: str, column: str) -> CellValue:
    """Karnofsky's performance status, 0 to 100."""
    status = number(raw, column)
    return status if not status.value or 0 <= float(status.value) <= 100 else UNKNOWN


def days(unit: str = "") -> Rule:
    """Days from a time in this unit, or in that of the column's name; without a unit there is no rule."""

    def rule(raw: str, column: str) -> CellValue:
        if missing(raw):
            return text(raw, column)
        in_name = UNIT.findall(column.replace("_", " "))
        name = in_name[-1].lower() if in_name else unit
        if not name or not NUMBER.fullmatch(raw) or float(raw) < 0:
            return UNKNOWN
        if name == "day":
            return CellValue(_shortest(float(raw)), "days")
        last_place = DAYS_IN[name] / 10 ** len(raw.partition(".")[2])
        return CellValue(str(round(float(raw) * DAYS_IN[name])), f"{name}s of {DAYS_IN[name]:.6g} days, rounded", last_place)

    return rule


CUT_OFF = re.compile(r"(?i).*cut[-_ ]?off[^0-9]*(\d+(?:\.\d+)?)[^0-9]*")  # as in `MGMT (%), cut-off 8`
SHARE = re.compile(r"([<>]?)\s*(\d+(?:\.\d+)?)\s*%?")
BY_CUT_OFF = "by the cut-off in the column's name"


def above_cut_off(raw: str, column: str) -> CellValue:
    """An assay's number, such as a share of methylated DNA, against the cut-off in its column's name; no cut-off, no rule.

    `< 5` and `> 30` are below and above a detection limit, and are unknown where that lies on the other side of the cut-off.
    """
    if missing(raw):
        return text(raw, column)
    limit, result = CUT_OFF.fullmatch(column), SHARE.fullmatch(raw)
    if not result:
        return METHYLATION(raw, column)
    if not limit:
        return UNKNOWN
    sign, share, cut = result[1], float(result[2]), float(limit[1])
    if (sign == "<" and share > cut) or (sign == ">" and share < cut):
        return UNKNOWN
    return CellValue(str(int(sign != "<" and share >= cut)), f"{limit[1]} and more is 1, {BY_CUT_OFF}")


ALIVE = re.compile(r"(?i)alive \((\d+) days later\)")  # BraTS 2020, survival_info.csv: alive when last seen, on that day


def days_or_alive(raw: str, column: str) -> CellValue:
    """`289` is 289 days; `ALIVE (361 days later)` is 361."""
    if alive := ALIVE.fullmatch(raw):
        return CellValue(alive[1], "ALIVE (n days later) is a censoring at n")
    return days("day")(raw, column)


def dead_or_alive(raw: str, column: str) -> CellValue:
    """The event that goes with `days_or_alive`: a number is a death, ALIVE a censoring."""
    if ALIVE.fullmatch(raw):
        return CellValue("0", "ALIVE (n days later) is a censoring at n")
    if missing(raw):
        return text(raw, column)
    return CellValue("1", "a number of days is a death") if NUMBER.fullmatch(raw) else UNKNOWN


def _shortest(value: float) -> str:
    """A number without needless digits: 60.0 is 60."""
    return repr(value).removesuffix(".0")


ENDING = re.compile(rf"(?i)({'|'.join(map(re.escape, (*source_file.FORMATS, '.nii.gz', '.nii')))})$")
DICOM = (".dcm", ".ima")
OPEN_IN_EXCEL = "~$"  # prefix of the file that Excel writes beside an open workbook
UNDECIDED = "t1 or t1ce"  # what `Layout.sequence` returns where a name contradicts itself
ANY_ID = re.compile(r"(?P<patient>.+)")
BRATS = {  # the words for sequences of the BraTS challenges, until 2021 and since 2023, and of most collections
    **{"t1": "t1", "t1n": "t1", "t1ce": "t1ce", "t1c": "t1ce", "t1gd": "t1ce"},
    **{"t2": "t2", "t2w": "t2", "flair": "flair", "t2f": "flair", "seg": "tumour_mask"},
}


@dataclass(frozen=True)
class Column:
    """A column of the cohort table and its source."""

    name: str
    sources: tuple[str, ...]  # columns of the source; the first that is filled counts
    rule: Rule
    session: str | None = None  # the visit that a time counts from, where rows are of patients
    since: Callable[[Row, str], str] | None = None  # days from where a time counts to the visit, to be subtracted; "" is unknown
    like: re.Pattern[str] | None = None  # names of further columns of the source, as they are spelled
    unless: Callable[[Row], str] | None = None  # why the cell of a row is not used, "" where it is
    of_row: Callable[[Row], CellValue] | None = None  # instead of `rule`, where more columns of the row decide


@dataclass(frozen=True)
class Table:
    """A table of the source; it is recognised by an id and all columns of `marks`."""

    id: tuple[str, ...]
    marks: tuple[str, ...]
    columns: tuple[Column, ...]
    ids: re.Pattern[str] = ANY_ID  # with a group `patient`, and `session` where an id has one
    session: tuple[str, ...] = ()  # a column of visits, where there is one
    scans: Mapping[str, str] = field(default_factory=dict)  # our column by theirs, of columns that hold paths

    def fits(self, header: set[str]) -> bool:
        """Whether a header is this table's."""
        return any(key(name) in header for name in self.id) and all(key(mark) in header for mark in self.marks)


@dataclass(frozen=True)
class Layout:
    """A publisher's folder. `scans` matches paths within it: groups patient, session, sequence.

    The words of `sequences` are without case and signs.
    """

    name: str
    example: str
    scans: re.Pattern[str] | None = None
    sequences: Mapping[str, str] = field(default_factory=lambda: BRATS)  # t1, t1ce, …, or a mask, by their word
    sequence: Callable[[Mapping[str, str]], str] | None = None  # instead, from the groups of `scans`; "" is not read
    read_sequences: Callable[[Path], Mapping[str, str]] | None = None  # the same, from a file of the folder
    tables: tuple[Table, ...] = ()
    called: Callable[[str, str], tuple[str, str]] = lambda patient, session: (patient, session)  # as ids and visits are written
    owns_tables: bool = True  # False where its table is another layout's, and is read only beside its scans
    collection: bool = True  # whether it is one collection, which names the cohort table, or a general arrangement of files
    distinctive: re.Pattern[str] | None = None  # names of scans that no other layout has, where `scans` fits those of many
    bad: Mapping[str, str] = field(default_factory=dict)  # patients who are left out, and why


def what_it_is(path: Path) -> str:
    """A scan's format, by its name, and what reads it."""
    return source_file.other_format(path) or "DICOM, which `mri-vit import dicom` reads"


def as_nifti_name(path: Path) -> Path:
    """A scan's path as it would be if it were NIfTI."""
    return path.with_name(re.sub(ENDING, "", path.name) + ".nii")


class Files(NamedTuple):
    """The files in a folder, in the order of names."""

    scans: list[Path]  # NIfTI
    tables: list[Path]
    images: list[Path]  # scans in other formats, and DICOM


def files_below(source: Path) -> Files:
    """The scans and the tables in a folder; hidden folders are not entered. A file is a table by itself."""

    def fail(error: OSError) -> None:
        raise error  # a folder without permission to read is not empty

    def leads_back(folder: Path) -> bool:
        return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())  # would be entered for ever

    if not source.is_dir():
        if wrong := source_file.fault(source):
            raise UsageError(f"{source_file.shown(source)}: {wrong}")
        return Files([], [source], [])
    files = Files([], [], [])
    for home, folders, names in os.walk(source, onerror=fail, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not leads_back(Path(home, name)))
        for name in sorted(name for name in names if not name.startswith((".", OPEN_IN_EXCEL))):
            path = Path(home, name)
            if name.lower().endswith(source_file.NIFTI):
                files.scans.append(path)
            elif name.lower().endswith(TABLE_ENDINGS) and path.is_file():  # a pipe would wait for ever
                files.tables.append(path)
            elif name.lower().endswith((*source_file.FORMATS, *DICOM)):
                files.images.append(path)
    return files


def place_in_source(path: Path, source: Path) -> str:
    """The path of a scan within a source, with its ending in lower case.

    A folder that is named like a file, x_flair.nii/x_flair.nii, as unpackers make them, counts as the file.
    """
    scan = path.parent if path.parent != source and path.parent.name.lower().endswith(source_file.NIFTI) else path
    return re.sub(ENDING, lambda ending: ending[0].lower(), scan.relative_to(source).as_posix())
