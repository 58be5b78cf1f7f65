"""Rules: what a cell of somebody's table becomes in ours, and by which written rule. What no rule covers is missing, never
guessed.

A rule takes the raw cell and its column's name. The words of each are those that the named tables use, and their plain
variants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mri_vit.data.columns import OLDEST_YEARS, dicom_age
from mri_vit.data.spellings import MISSING as MISSING_HERE
from mri_vit.importers.found import NO_RULE

# UPENN-GBM: Not Available, Not Applicable, NA; TCGA: --, '--, not reported, [Not Available]; UCSF-PDGM: empty, unknown.
MISSING = MISSING_HERE | {"'--", "[not available]", "[not applicable]", "[unknown]", "null", ".", "not allowed to collect"}
SAME_AS = "same_as"  # column of a cohort table: `cohort:patient` of the same person elsewhere, several parted by blanks
DAYS_IN = {"day": 1.0, "week": 7.0, "month": 365.25 / 12, "year": 365.25}  # a month is a twelfth of a mean Julian year
NO_AGE = "an age of 0 is missing"
UNIT = re.compile(r"(?i)(?<![a-z])(day|week|month|year)s?(?![a-z])")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")


@dataclass(frozen=True)
class Given:
    """The cell of the cohort table, empty where missing, and the rule that gave it."""

    value: str
    rule: str
    give: float = 0.0  # how far above or below a finer reading of the same may lie, in the table's unit


Rule = Callable[[str, str], Given]  # of a raw cell and the name of its column
UNKNOWN = Given("", NO_RULE)


def missing(raw: str) -> bool:
    """Whether a cell says that nothing is known."""
    return raw.strip().lower() in MISSING


def words(to: Mapping[str, tuple[str, ...]], neither: tuple[str, ...] = ()) -> Rule:
    """A rule that knows words in any case; those of `neither` are read, and mean that the value is not known."""
    known = {word: value for value, its in to.items() for word in its}

    def rule(raw: str, column: str) -> Given:
        word = " ".join(raw.lower().split())
        if missing(raw):
            return Given("", f"{raw!r} is missing" if raw else "empty is missing")
        if word in neither:
            return Given("", f"{word} is neither, so missing")
        return Given(known[word], f"{word} is {known[word]}") if word in known else UNKNOWN

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


def named_mutation(raw: str, column: str) -> Given:
    """IDH as UCSF-PDGM has it: `wildtype`, or a mutation by its name in the long or the short form of amino acids."""
    if re.fullmatch(r"IDH[12] p\.[A-Z][a-z]{0,2}\d+[A-Z][a-z]{0,2}", raw):
        return Given("1", "a named IDH mutation is 1")
    return MUTATION(raw, column)


def text(raw: str, column: str) -> Given:
    """The cell as it is."""
    return Given("", f"{raw!r} is missing" if raw else "empty is missing") if missing(raw) else Given(raw, "as it is")


def same_brats(raw: str, column: str) -> Given:
    """A patient's id in BraTS 2021, whose two tasks number them alike, as the cohorts `brats2021` and `rsna_miccai` have it."""
    if missing(raw):
        return text(raw, column)
    digits = re.fullmatch(r"(?:BraTS2021_)?(\d{1,5})", raw)
    if not digits:
        return UNKNOWN
    number = digits[1].zfill(5)
    return Given(f"brats2021:BraTS2021_{number} rsna_miccai:{number}", "the patient of this number in BraTS 2021")


def number(raw: str, column: str) -> Given:
    """A number, with a point."""
    if missing(raw):
        return text(raw, column)
    return Given(_shortest(float(raw)), "a number") if NUMBER.fullmatch(raw) else UNKNOWN


def age(raw: str, column: str) -> Given:
    """Years. 0 stands for a missing age, as in the five rows of TCGA's mutations whose other cells are `--`; -1, 999: none."""
    in_years = dicom_age(raw)
    given = number(raw, column) if in_years is None else Given(f"{in_years:.4g}", "an age as DICOM writes it, in years")
    if not given.value:
        return given
    if float(given.value) == 0:
        return Given("", NO_AGE)
    return replace(given, give=0.0 if "." in given.value else 1.0) if 0 < float(given.value) <= OLDEST_YEARS else UNKNOWN


def karnofsky(raw: str, column: str) -> Given:
    """Karnofsky's performance status, 0 to 100."""
    given = number(raw, column)
    return given if not given.value or 0 <= float(given.value) <= 100 else UNKNOWN


def days(unit: str = "") -> Rule:
    """Days from a time in this unit, or in the one that its column's name has; a column without one has no rule."""

    def rule(raw: str, column: str) -> Given:
        if missing(raw):
            return text(raw, column)
        named = UNIT.findall(column.replace("_", " "))
        measure = named[-1].lower() if named else unit
        if not measure or not NUMBER.fullmatch(raw) or float(raw) < 0:
            return UNKNOWN
        if measure == "day":
            return Given(_shortest(float(raw)), "days")
        last_place = DAYS_IN[measure] / 10 ** len(raw.partition(".")[2])
        return Given(str(round(float(raw) * DAYS_IN[measure])), f"{measure}s of {DAYS_IN[measure]:.6g} days, rounded", last_place)

    return rule


CUT_OFF = re.compile(r"(?i).*cut[-_ ]?off[^0-9]*(\d+(?:\.\d+)?)[^0-9]*")  # as in `MGMT (%), cut-off 8`
SHARE = re.compile(r"([<>]?)\s*(\d+(?:\.\d+)?)\s*%?")


BY_CUT_OFF = "by the cut-off in the column's name"


def above_cut_off(raw: str, column: str) -> Given:
    """An assay's number, such as a share of methylated DNA, against the cut-off that its column's name has; none has no rule.

    `< 5` and `> 30` are below and above a detection limit, and say nothing where that lies on the other side of the cut-off.
    """
    if missing(raw):
        return text(raw, column)
    named, found = CUT_OFF.fullmatch(column), SHARE.fullmatch(raw)
    if not found:
        return METHYLATION(raw, column)
    if not named:
        return UNKNOWN
    sign, share, cut = found[1], float(found[2]), float(named[1])
    if (sign == "<" and share > cut) or (sign == ">" and share < cut):
        return UNKNOWN
    high = share >= cut if sign != "<" else False
    return Given(str(int(high)), f"{named[1]} and more is 1, {BY_CUT_OFF}")


ALIVE = re.compile(r"(?i)alive \((\d+) days later\)")  # BraTS 2020, survival_info.csv: alive when last seen, on that day


def days_or_alive(raw: str, column: str) -> Given:
    """`289` is 289 days; `ALIVE (361 days later)` is 361."""
    if seen := ALIVE.fullmatch(raw):
        return Given(seen[1], "ALIVE (n days later) is a censoring at n")
    return days("day")(raw, column)


def dead_or_alive(raw: str, column: str) -> Given:
    """The event that goes with `days_or_alive`: a number is a death, ALIVE a censoring."""
    if ALIVE.fullmatch(raw):
        return Given("0", "ALIVE (n days later) is a censoring at n")
    if missing(raw):
        return text(raw, column)
    return Given("1", "a number of days is a death") if NUMBER.fullmatch(raw) else UNKNOWN


def _shortest(value: float) -> str:
    """A number without needless digits: 60.0 is 60."""
    return repr(value).removesuffix(".0")
