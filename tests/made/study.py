"""Studies small enough for a test: a tiny cohort that is prepared and trained in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mri_vit import style, synthetic
from mri_vit.data import tokens
from mri_vit.run import executors
from mri_vit.run.jobs import Workplace
from mri_vit.settings.schema import Endpoint, Model, Study, Train
from mri_vit.settings.sections import Grid

ENDPOINTS = (
    Endpoint(name="mgmt", kind="binary"),
    Endpoint(name="os", kind="survival", time="os_days", event="os_event"),
)


def made_here(patch: pytest.MonkeyPatch) -> None:
    """Built-in patients are made in this process, whose start and imports take longer than a few of them."""
    patch.setattr(synthetic, "ProcessPoolExecutor", lambda workers, *_: ThreadPoolExecutor(1))


def worked_here(patch: pytest.MonkeyPatch) -> None:
    """Likewise what a run does patient by patient."""

    def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Workplace) -> Iterator[tuple[str, Any]]:
        for name, arguments in jobs.items():
            yield name, function(*arguments)

    patch.setattr(executors, "each", each)


def sketch(patch: pytest.MonkeyPatch) -> None:
    """A report's figures are files without a picture: drawing them takes most of its time, and only words are looked at."""
    patch.setattr(style, "to_bytes", lambda figure, kind: f"<svg><!-- {kind} --></svg>".encode())


def make_tiny(tmp_path: Path) -> Study:
    """24 prepared patients of 4³ places whose first channel tells MGMT, and a network that trains in a second."""
    grid = Grid(edge=8, spacing_mm=20.0 / 2, patch=2)
    study = Study(
        name="tiny",
        cohort=tmp_path / "in" / "cohort.csv",
        prepared=tmp_path / "in" / "prepared",
        output=tmp_path / "run",
        grid=grid,
        model=Model(dim=16, depth=2, heads=2, mlp=32, tokens="foreground", drop_path=0.2),
        train=Train(folds=2, epochs=4, batch_size=4, token_budget=16, learning_rate=1e-3, threads=1),
        endpoints=ENDPOINTS,
    )
    rng = np.random.default_rng(0)
    rows = ["patient,t1,t1ce,t2,flair,age,mgmt,os_days,os_event"]
    for index in range(24):
        name = f"p{index:02d}"
        (study.prepared / name).mkdir(parents=True)
        brain = np.zeros((8, 8, 8), bool)
        brain[1:7, 1:7, 1 : 5 + index % 3] = True
        volume = rng.normal(size=(4, 8, 8, 8)).astype(np.float32)
        volume[0] += 2 * (index % 2)
        tokens.save(tokens.from_volume(volume, brain, grid, "-"), study.prepared / name / "tokens.safetensors")
        mgmt = "" if index % 7 == 6 else str(index % 2)
        rows.append(f"{name},a.nii.gz,b.nii.gz,c.nii.gz,d.nii.gz,60,{mgmt},{100 + 37 * index % 500},{int(index % 3 > 0)}")
    study.cohort.write_text("\n".join(rows) + "\n")
    return study
