"""Cross-validation: every patient is predicted by a model that has never seen it.

Folds come in written and hashed; out come one table of predictions and one of survival, a fold at a time, so that a
run that was stopped goes on with the fold it was in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit import predictions
from mri_vit.cohort import Patient, tuning_split
from mri_vit.config import Endpoint, Study
from mri_vit.predictions import Predictor

Builder = Callable[[Path, int], Predictor]  # (folder of the fold, seed) -> an unfitted predictor


def fold_folder(run: Path, repeat: int, fold: int) -> Path:
    """`fold-1` … of the first repeat, `repeat-2-fold-1` … of the others."""
    return run / (f"fold-{fold + 1}" if repeat == 0 else f"repeat-{repeat + 1}-fold-{fold + 1}")


def cross_validate(
    patients: Sequence[Patient], folds: list[list[list[str]]], study: Study, run: Path, model: str, build: Builder
) -> None:
    """Fit and predict each fold, then write `predictions.csv` and `survival.csv` of all folds into `run`."""
    by_id = {patient.id: patient for patient in patients}
    scores, survivals = [], []
    for repeat, division in enumerate(folds):
        for fold, ids in enumerate(division):
            folder = fold_folder(run, repeat, fold)
            if not (folder / "predictions.csv").exists():  # written last: a fold that has it is done
                test = [by_id[i] for i in ids]
                rest = [p for p in patients if p.id not in set(ids)]
                folder.mkdir(parents=True, exist_ok=True)
                seed = int(np.random.SeedSequence([study.seed, repeat, fold]).generate_state(1)[0])  # apart for every fold
                train, tune = tuning_split(rest, study.endpoints, study.train.tune_fraction, seed)
                predictor = build(folder, seed)
                predictor.fit(train, tune)
                score, survival = predictor.predict([without_labels(p) for p in test])
                place = {"model": model, "repeat": repeat, "fold": fold}
                predictions.save(survival.assign(**place).reindex(columns=predictions.SURVIVAL_COLUMNS), folder / "survival.csv")
                predictions.save(with_truth(score.assign(**place), by_id, study.endpoints), folder / "predictions.csv")
            scores.append(pd.read_csv(folder / "predictions.csv", dtype=str, keep_default_na=False))
            survivals.append(pd.read_csv(folder / "survival.csv", dtype=str, keep_default_na=False))
    predictions.save(pd.concat(survivals), run / "survival.csv")
    predictions.save(pd.concat(scores), run / "predictions.csv")


def without_labels(patient: Patient) -> Patient:
    """What a predictor may see of a test patient: no label."""
    return replace(patient, labels=dict.fromkeys(patient.labels, math.nan))


def with_truth(scores: pd.DataFrame, by_id: dict[str, Patient], endpoints: Sequence[Endpoint]) -> pd.DataFrame:
    """Scores beside the labels, which are joined only after predicting."""
    columns = {endpoint.name: endpoint.columns for endpoint in endpoints}
    rows = []
    for name, patient in zip(scores["endpoint"], scores["patient"], strict=True):
        known = [by_id[patient].labels[column] for column in columns[name]]
        rows.append([math.nan, *known] if len(known) == 2 else [*known, math.nan, math.nan])
    labels = pd.DataFrame(rows, index=scores.index, columns=pd.Index(["truth", "time_days", "event"]))
    return pd.concat([scores, labels], axis=1).reindex(columns=predictions.COLUMNS)
