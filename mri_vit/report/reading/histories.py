"""How each contender's networks learned, as every training wrote it down: a run's folders in, a row per evaluation out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from mri_vit.run import files
from mri_vit.run.integrity import as_written

COLUMNS = ["model", "repeat", "fold", "seed", "epoch", "tune"]


def read(homes: Mapping[str, Path], seeds: Mapping[str, int], folds: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """The evaluations on tuning patients; a training that has none written down has no row.

    `homes` are the folders of the models' folds, `seeds` how many networks each model has in a fold, `folds` pairs of repeat and
    fold; all count from 0. `tune` is the tuning loss as a share of that at the start. Raises IntegrityError when a file is
    damaged.
    """
    found = [pd.DataFrame(columns=pd.Index(COLUMNS))]
    for model, home in homes.items():
        for repeat, fold in folds:
            for seed in range(seeds[model]):
                file = files.seed_folder(files.fold_folder(home, repeat, fold), seed) / files.HISTORY
                if file.is_file():
                    with as_written(file):
                        rows = pd.read_csv(file).loc[:, ["epoch", "tune"]].astype(float)
                    found.append(rows.assign(model=model, repeat=repeat, fold=fold, seed=seed).loc[:, COLUMNS])
    return pd.concat(found[1:], ignore_index=True) if len(found) > 1 else found[0]
