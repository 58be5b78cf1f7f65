"""Tables and study files that were damaged at random: each is read or refused in a sentence, and nothing is written outside.

A variant is made by one to three mutations from a seed, which is in the message of a failure.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from made.inputs import STUDY, Desk, sound

from mri_vit.cli import exit_code
from mri_vit.crossval import folds
from mri_vit.data import cohort, run_cohort
from mri_vit.preflight import check, document
from mri_vit.run import folder as run_folder
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

TOKENS = (
    *(
        "",
        ",",
        ";",
        "\t",
        '"',
        "'",
        "\n",
        "\r",
        "\r\n",
        "\0",
        "\ufeff",
        "\ud7ff",
        "\u202e",
        "ｐ",
        "é",
        "🧠",
        "%s",
        "{}",
        "{seed}",
    ),
    *("nan", "NA", "inf", "-inf", "1e999", "-1", "0", "00", "1.0", "1_0", "0x1", "1e-320", "9" * 400, "١", "²", "True", "None"),
    *(
        "=1+1",
        "@x",
        "<script>",
        "../../x",
        "/etc/passwd",
        "/dev/zero",
        "~",
        ".",
        "..",
        "a" * 5000,
        "a/" * 300,
        "CON",
        "P00",
        "\\",
    ),
    *("patient", "session", "site", "cohort", "brain_mask", "tumour_mask", "age", "same_as", "mgmt", "os_days", "flair", "p00"),
    *("[", "]", "[[", "]]", "{", "}", "=", "#", '"""', "= [", "[train]", "[[endpoints]]", "[[comparators]]", "[a.b.c]", "[]"),
    *('leave_out = "site"', "folds = 3", "repeats = 2", 'method = "mae"', 'kind = "binary"', "seed = -1", "x = 1979-05-27"),
    *('name = "../x"', 'name = "\\u0000"', 'columns = ["age"]', "models = []", 'cohort = ""', 'cohort = "."', 'prepared = ""'),
)
VALUES = (  # of settings, as TOML has them
    *(
        "0",
        "1",
        "2",
        "3",
        "7",
        "-1",
        "10000000000",
        "0.5",
        "1e-300",
        "1e300",
        "nan",
        "inf",
        "true",
        '""',
        '"x"',
        '"cohort.csv"',
        '"run"',
    ),
    *('"site"', '"age"', '"mgmt"', '"mae"', '"dino"', '"cox"', '"resnet10"', '"none"', '"mask"', '"survival"', '"../x"', '"a/b"'),
    *("[]", "[1]", '["t1ce"]', '["t1", "t1ce"]', '["clinical"]', '["age"]', '["age", "age"]', "{ a = 1 }", '{ mgmt = "chance" }'),
)
READABLE = {0, 2, 3, 6}  # exit codes of a check; 1 would be a traceback


def mutated(text: str, seed: int) -> bytes:
    """The text after a few mutations; of every tenth the bytes are damaged too."""
    random = np.random.default_rng(seed)
    for _ in range(random.integers(1, 4)):
        text = MUTATIONS[int(random.integers(len(MUTATIONS)))](text, random)
    encoding = random.choice(["utf-8", "utf-8-sig", "utf-16", "latin-1"], p=[0.85, 0.05, 0.05, 0.05])
    content = bytearray(text.encode(encoding, errors="replace"))
    if content and random.random() < 0.1:
        content[random.integers(len(content))] ^= 1 << random.integers(8)
    return bytes(content)


def token(random: np.random.Generator) -> str:
    return TOKENS[int(random.integers(len(TOKENS)))]


def insert(text: str, random: np.random.Generator) -> str:
    at = random.integers(len(text) + 1)
    return text[:at] + token(random) + text[at:]


def delete(text: str, random: np.random.Generator) -> str:
    at, length = int(random.integers(len(text) + 1)), int(random.integers(1, 40))
    return text[:at] + text[at + length :]


def repeat(text: str, random: np.random.Generator) -> str:
    at, length = int(random.integers(len(text) + 1)), int(random.integers(1, 200))
    return text[:at] + text[at : at + length] * 2 + text[at + length :]


def truncate(text: str, random: np.random.Generator) -> str:
    return text[: int(random.integers(len(text) + 1))]


def replace_part(text: str, random: np.random.Generator) -> str:
    """A cell, a value or a name becomes a token."""
    ends = [0, *(at for at, letter in enumerate(text) if letter in ",=\n []"), len(text)]
    at = random.integers(len(ends) - 1)
    return text[: ends[at] + 1] + token(random) + text[ends[at + 1] :]


def swap_lines(text: str, random: np.random.Generator) -> str:
    lines = text.split("\n")
    a, b = random.integers(len(lines), size=2)
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def replace_column(text: str, random: np.random.Generator) -> str:
    """One token in a column of every row, or in the same place of every line."""
    lines = [line.split(",") for line in text.split("\n")]
    column, new = random.integers(max(map(len, lines))), token(random)
    return "\n".join(",".join([*line[:column], new, *line[column + 1 :]] if len(line) > column else line) for line in lines)


def replace_value(text: str, random: np.random.Generator) -> str:
    """The value of a setting becomes another one, or a setting that there is gets one."""
    lines = text.split("\n")
    at = int(random.integers(len(lines)))
    if " = " in lines[at]:
        lines[at] = f"{lines[at].partition(' = ')[0]} = {VALUES[random.integers(len(VALUES))]}"
    elif lines[at].startswith("["):
        section = Study.model_fields.get(lines[at].strip("[]"))
        names = list(getattr(section.annotation, "model_fields", {})) if section else []
        if names:
            lines.insert(at + 1, f"{names[random.integers(len(names))]} = {VALUES[random.integers(len(VALUES))]}")
    return "\n".join(lines)


MUTATIONS: Sequence[Callable[[str, np.random.Generator], str]] = (
    insert, delete, repeat, truncate, replace_part, replace_part, swap_lines, replace_column, *[replace_value] * 4,
)  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A sound study on which networks are not made, whose settings a schema holds."""
    monkeypatch.setattr(check, "_networks", lambda *arguments: (None, []))
    monkeypatch.setattr(folds, "FOLD_DRAWS", 20)
    monkeypatch.chdir(tmp_path)
    return Desk(sound(tmp_path / "study"))


def checked(desk: Desk) -> int:
    """The check as a command ends it, with its words and its document made."""

    def run() -> int:
        found = check.check(study_file.load(desk.study))
        assert list(document.lines(found))
        found.model_dump_json()
        return found.exit_code

    return exit_code.of(run)


def table_is_read_or_refused(desk: Desk, seeds: Sequence[int], capsys: pytest.CaptureFixture[str]) -> None:
    text = desk.table.read_text()
    study = study_file.load(desk.study)
    before = {path for path in desk.folder.parent.rglob("*")}
    for seed in seeds:
        desk.table.write_bytes(mutated(text, seed))
        code = checked(desk)
        said = capsys.readouterr().err
        assert code in READABLE, (seed, said)

        def freeze() -> None:
            with run_folder.claimed(study) as run:
                run_cohort.freeze(study, cohort.read(study.cohort, study.endpoints, study.prepare.needs), run)

        if seed % 5 == 0:  # it takes longer than the check
            assert exit_code.of(freeze) in READABLE, (seed, capsys.readouterr().err)
            shutil.rmtree(study.output, ignore_errors=True)
        assert {path for path in desk.folder.parent.rglob("*")} == before, seed


def study_is_read_or_refused(desk: Desk, seeds: Sequence[int], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path for path in desk.folder.parent.rglob("*")}
    for seed in seeds:
        desk.study.write_bytes(mutated(STUDY, seed))
        code = checked(desk)
        said = capsys.readouterr().err
        assert code in READABLE, (seed, said)
        assert {path for path in desk.folder.parent.rglob("*")} == before, seed


def test_a_damaged_table_is_read_or_refused_and_nothing_is_written_outside(desk: Desk, capsys):
    table_is_read_or_refused(desk, range(100), capsys)


def test_a_damaged_study_file_is_read_or_refused_and_nothing_is_written(desk: Desk, capsys):
    study_is_read_or_refused(desk, range(200), capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("read", [table_is_read_or_refused, study_is_read_or_refused])
def test_ten_thousand_damaged_files_are_read_or_refused(read: Callable[..., None], desk: Desk, capsys):
    read(desk, range(10_000), capsys)
