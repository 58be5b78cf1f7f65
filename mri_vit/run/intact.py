"""Intact: what a stage rests on, held against the hashes that were written with it, once, before the stage begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from rich.console import Console

from mri_vit.run import files, hashes
from mri_vit.settings.models import SHUFFLED

OWN = (files.FOLD_GLOB,)  # globs of the folders of folds: of the run's own model,
MAP_EVALUATION = (*OWN, f"{files.CONTROLS}/{SHUFFLED}/{files.FOLD_GLOB}")  # with the networks that its maps are compared with,
ALL = (*OWN, f"{files.CONTROLS}/*/{files.FOLD_GLOB}", f"{files.COMPARATORS}/*/{files.FOLD_GLOB}")  # and of everybody
INTERNAL = (files.INTERNAL, files.INTERNAL_SURVIVAL)  # of an evaluation
# what a report reads: no weights
TABLES = (
    files.PREDICTIONS,
    files.SURVIVAL,
    files.NOTES,
    files.SITE_PROBE,
    files.NULLS,
    files.SEEDS,
    files.EVALUATION,
    *INTERNAL,
)


def refuse_changed(run: Path, console: Console, folds: Iterable[str] = ALL, names: Collection[str] | None = None) -> None:
    """Raise IntegrityError when a file of a run, or of its finished folds (globs), is gone or is not the one that was written.

    `names` are the files that the stage reads; None: all. A note says where a version before 0.5 left no hashes.
    """
    homes = [run, *sorted(home for pattern in folds for home in run.glob(pattern))]
    unknown = []
    for home in homes:
        if not (home / files.PREDICTIONS).is_file():  # not done yet
            continue
        remedy = f"delete {home} and run `mri-vit train` again, which makes it anew"
        if home == run:
            verb = "evaluate" if (run / files.EVALUATION).exists() else "train"
            remedy = f"delete {run / files.PREDICTIONS} and run `mri-vit {verb}` again, which puts it together from what is there"
        if not hashes.verify(home, remedy, names):
            unknown.append(home.name)
    if unknown:
        console.print(
            f"{run}: no {files.HASHES} of {', '.join(unknown)}; written by an older version, taken as it is",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
