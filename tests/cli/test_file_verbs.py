"""What `mri-vit settings` lists: every key once, aligned for a reader and in lines for a program."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from mri_vit.cli import file_verbs
from mri_vit.errors import UsageError
from mri_vit.settings import file as study_file
from mri_vit.settings.file import keys
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Endpoint, Study


def shown(*names: str, width: int = 80) -> list[str]:
    """The lines that a terminal shows of what is asked about, without colours and blanks at their ends."""
    console = Console(file=io.StringIO(), width=width)
    console.print(file_verbs.key_table(file_verbs.find_keys(*names)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_every_key_is_listed_once_with_all_that_the_schema_says_of_it():
    names = [key.name for key in file_verbs.find_keys()]
    assert len(set(names)) == len(names) == sum(len(list(keys(section))) for section in (Study, Endpoint, Comparator))
    text = shown(width=1000)
    for key in file_verbs.find_keys():
        at = next(n for n, line in enumerate(text) if line.split(" ")[0] == key.name)
        default = "must be given" if key.default is None else f"default {key.default}"
        assert text[at].split(maxsplit=1)[1] == f"{key.kind}, {default}"
        assert text[at + 1].strip() == key.description


def test_a_reader_gets_two_aligned_columns_within_80():
    text = shown()
    assert max(len(line) for line in text) <= 80
    names = {key.name for key in file_verbs.find_keys()}
    starts = {re.match(r"\S* +", line).end() for line in text if line.split(" ")[0] in names or line.startswith(" ")}  # pyright: ignore[reportOptionalMemberAccess]
    assert starts == {max(len(name) for name in names) + 2}


def test_a_program_gets_a_line_a_key():
    rows = [line.split("\t") for line in file_verbs.key_lines(file_verbs.find_keys())]
    assert [row[0] for row in rows] == [key.name for key in file_verbs.find_keys()]
    assert ["train.epochs", "integer ≥ 1", "default 160", "Passes over a training fold."] in rows
    assert {len(row) for row in rows} == {4}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("grid", ["grid.edge", "grid.spacing_mm", "grid.patch"]),
        ("[grid]", ["grid.edge", "grid.spacing_mm", "grid.patch"]),
        ("epochs", ["pretrain.epochs", "train.epochs"]),
        ("train.epochs", ["train.epochs"]),
        ("--train.epochs", ["train.epochs"]),
        ("seed", ["seed"]),
        ("channels", ["channels", "model.channels"]),
    ],
)
def test_a_section_a_key_or_its_last_part_is_found(name: str, found: list[str]):
    assert [key.name for key in file_verbs.find_keys(name)] == found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("epcohs", r"unknown key epcohs; did you mean train\.epochs or pretrain\.epochs\?"),
        ("slrum", r"unknown key slrum; did you mean slurm\?"),
        ("train.epoch", r"unknown key train\.epoch; did you mean train\.epochs\?"),
        ("train.rate", r"unknown key train\.rate: it is now train\.learning_rate"),
        ("guide_tokens", r"unknown key guide_tokens: it is now train\.tumour_tokens_first"),
        ("rate", r"unknown key rate; did you mean train\.learning_rate or pretrain\.learning_rate\?"),
        (".", r"unknown key \.; `mri-vit settings` lists all"),
        ("zzz", "unknown key zzz; `mri-vit settings` lists all"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_meant(name: str, message: str):
    with pytest.raises(UsageError, match=message):
        file_verbs.find_keys(name)


def test_of_a_study_file_every_setting_is_shown_as_it_is_resolved(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "study.toml"
    file.write_text('name = "s"\ncohort = "c.csv"\nprepared = "p"\noutput = "o"\n[train]\nepochs = 7\n')
    file_verbs.settings(str(file))
    (tmp_path / "shown.toml").write_text(capsys.readouterr().out)
    assert study_file.load(tmp_path / "shown.toml") == study_file.load(file)
    assert "epochs = 7\n" in (tmp_path / "shown.toml").read_text()
    assert "mask_supervision_attention = 1.0\n" in (tmp_path / "shown.toml").read_text()
