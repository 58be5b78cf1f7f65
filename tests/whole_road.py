"""The command line as a user calls it, and a study taken through every verb, small enough for a test."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from made.study import worked_here
from matplotlib.figure import Figure

from mri_vit import cli, style
from mri_vit.explain.inspection import learned
from mri_vit.explain.inspection.learned import maximise
from mri_vit.settings.schema import CHANNELS

FILES = (*CHANNELS, "tumour_mask")
OTHERS = 4  # of the built-in patients make the other cohort, on which a run is evaluated
SHRUNKEN: dict[str, object] = {  # what makes any study small: the one set of overrides that is laid over all of them
    "grid.edge": 32,  # with patches of 8³ voxels 4³ places of 56 mm over the same 224 mm ...
    "grid.spacing_mm": 7.0,
    "grid.patch": 8,  # ... and a convolutional stem keeps two of its convolutions
    "model.dim": 16,
    "model.depth": 2,
    "model.heads": 2,
    "model.mlp": 32,
    "pretrain.epochs": 1,
    "pretrain.batch_size": 4,
    "train.folds": 2,
    "train.repeats": 1,
    "train.epochs": 2,
    "train.val_every": 1,
    "train.batch_size": 4,
    "train.token_budget": 16,
    "train.threads": 1,
    "prepare.workers": 2,
    "prepare.bias": False,  # the one step that takes a second a patient on any grid; prepare/test_bias.py has it
    "explain.patients": 1,
    "explain.scored": 2,
}


def mri_vit(*arguments: object) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Spare what no option changes and most of the time goes to: pictures are blank, and `inspect` takes few steps and points."""
    blank = {kind: style.to_bytes(Figure(), kind) for kind in ("svg", "png")}
    patch.setattr(style, "to_bytes", lambda figure, kind: blank[kind])
    patch.setattr(learned, "maximise", partial(maximise, steps=4))
    patch.setattr(learned, "LANDSCAPE_POINTS", 3)


def words(overrides: Mapping[str, object]) -> list[str]:
    """Overrides as they stand on a command line."""
    return [word for key, value in overrides.items() for word in (f"--{key}", str(value))]


def parted(scans: Path, folder: Path) -> tuple[Path, Path]:
    """The built-in cohort in two tables, the study's own and another hospital's, with paths that hold anywhere."""
    with scans.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows = [row | {name: str(scans.parent / row[name]) for name in FILES} for row in rows]
    tables = folder / "cohort.csv", folder / "others.csv"
    for table, some in zip(tables, (rows[:-OTHERS], rows[-OTHERS:]), strict=True):
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(some)
    return tables


FINISHED = """
name = "finished"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"

[explain]
methods = ["rollout", "gradient_attention"]

[controls]
models = []

[[endpoints]]
name = "mgmt"
kind = "binary"

[[endpoints]]
name = "os"
kind = "survival"
time = "os_days"
event = "os_event"
"""


def finish(scans: Path, folder: Path) -> None:
    """Make a run on twelve of the built-in patients, of whom nothing is told, with its report, and a table of four others."""
    parted(scans, folder)
    (folder / "study.toml").write_text(FINISHED)
    with pytest.MonkeyPatch.context() as patch:
        worked_here(patch)
        hurry(patch)
        for verb in ("prepare", "train", "report"):
            assert mri_vit(verb, folder / "study.toml", *words({**SHRUNKEN, "train.epochs": 1})) == 0


def every_verb(
    study: Path, overrides: Mapping[str, object], others: Path, output: Path, prepared: Path, skip: Sequence[str] = ()
) -> None:
    """Take a study through all verbs; each must end with 0.

    `others` is the table of another cohort with the study's endpoints; `prepared` may hold patients that are prepared already,
    the others' too; verbs in `skip` are left out.
    """
    options = words({**overrides, "output": output, "prepared": prepared})
    stages = ("check", "prepare", "pretrain", "train", "explain")
    for verb in (verb for verb in stages if verb not in skip):
        assert mri_vit(verb, study, *options) == 0, verb
    if "inspect" not in skip:
        assert mri_vit("inspect", output) == 0
    assert mri_vit("report", study, *options) == 0
    new = output.parent / f"{output.name}-new"
    if prepared.exists():
        shutil.copytree(prepared, new / "prepared", dirs_exist_ok=True)
    assert mri_vit("predict", output, others, "-o", new, "--show-untrusted") == 0  # of two patients nothing is told
    external = output.parent / f"{output.name}-external.toml"
    text = (output / "study.toml").read_text()
    head = f'name = "external"\ncohort = "{others}"\nprepared = "{prepared}"\noutput = "{output}-external"\n'
    external.write_text(head + text[text.index("[[endpoints]]") :].partition("[[comparators]]")[0])
    assert mri_vit("evaluate", output, "--study", external) == 0
