"""What each contender's networks cost, as every fold wrote it down: a run's folders in, a row per fold out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json

FIGURES = ["parameters", "flops", "patient_seconds", "training_seconds"]  # of a fold's cost.json
COLUMNS = ["model", "repeat", "fold", *FIGURES]


def read(homes: dict[str, Path], folds: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """The costs of each model's folds; a fold that has none written down has no row.

    `homes` are the folders of the models' folds, `folds` pairs of repeat and fold, counted from 0. Raises IntegrityError when a
    file is damaged.
    """
    rows = []
    for model, home in homes.items():
        for repeat, fold in folds:
            file = files.fold_folder(home, repeat, fold) / files.COST
            if file.is_file():
                found = read_json(file)
                with as_written(file):
                    figures = [float("nan" if found.get(figure) is None else found[figure]) for figure in FIGURES]
                rows.append([model, repeat, fold, *figures])
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS)).astype(dict.fromkeys(FIGURES, float))
