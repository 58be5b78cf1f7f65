"""The ladder's numbers: predictions of several models at several sizes in; AUCs, what they are worth, and differences out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from mri_vit.metrics.comparison import holm, over_runs
from mri_vit.metrics.delong import wilson_of_auc
from mri_vit.metrics.within_fold import WithinFold, inflation, p_above_chance, within_fold_auc
from reproductions.learning_curve import curve

PREDICTED = [*curve.PREDICTED, "endpoint", "fold"]  # of the table that all is computed from
LEVEL = 0.05  # of a p after Holm's correction


def of_patients(table: pd.DataFrame) -> pd.DataFrame:
    """A table of predictions with a row for each patient, model, endpoint and fold whose label is known.

    Of several visits the score is the mean, and the label the first known one, as in the report (`judged.known_rows`).
    """
    key = ["endpoint", "model", "fold", "patient"]
    return table.groupby(key, sort=True).agg({"score": "mean", "truth": "first"}).reset_index().dropna(subset=["truth"])


def points(predicted: pd.DataFrame) -> pd.DataFrame:
    """Each model's AUC at each size: (endpoint, labelled, model, known, auc, low, high, p, p_adjusted, cohorts).

    `auc` is that of pairs within a fold, the mean over cohorts; `known` are the patients with the label, of all cohorts. The
    95 % interval is the wider of Wilson's for refitted models (`delong.wilson_of_auc`, of all cohorts' patients together)
    and of Student's t between cohorts (`comparison.over_runs`). p is that of so high an AUC without a signal
    (`within_fold.p_above_chance`), and corrected by Holm's method over all endpoints, models and sizes.
    """
    rows = []
    for _, here in predicted.groupby(["endpoint", "labelled"]):
        first = here.iloc[0]
        parts: dict[str, list[tuple[WithinFold, int, int]]] = {}
        folds = here.fold.nunique()
        for _, scores, truth, groups in curve.cohorts(here, "fold"):
            for name in scores:
                found = within_fold_auc(truth, scores[name].to_numpy(), groups)
                parts.setdefault(str(name), []).append((found, int(truth.sum()), int((~truth).sum())))
        head = {"endpoint": first.endpoint, "labelled": first.labelled}
        rows += [head | {"model": name} | _point(of_cohorts, folds) for name, of_cohorts in parts.items()]
    table = pd.DataFrame(rows)
    return table.assign(p_adjusted=holm(table.p.to_numpy(dtype=float)))


def _point(parts: Sequence[tuple[WithinFold, int, int]], folds: int) -> dict[str, float | int]:
    """A model at a size, from what each cohort says of it, with its positives and negatives."""
    founds, positives, negatives = zip(*parts, strict=True)
    values = np.array([found.value for found in founds])
    mean, cohorts = float(values.mean()), len(parts)
    variance = sum(found.variance for found in founds) / cohorts**2
    low, high = wilson_of_auc(mean, variance, sum(positives), sum(negatives), refits=True)
    between, _ = over_runs(values, 0.0)
    nothing = WithinFold(mean, math.hypot(*(found.error for found in founds)) / cohorts, np.empty(0))
    return {
        "known": sum(positives) + sum(negatives),
        "auc": mean,
        "low": max(0.0, min(low, mean - between)),
        "high": min(1.0, max(high, mean + between)),
        "p": p_above_chance(nothing, inflation(folds)),
        "cohorts": cohorts,
    }


def against(predicted: pd.DataFrame, own: str) -> pd.DataFrame:
    """Each model less the own one, as `learning_curve.against` of pairs within a fold; with `endpoint`, Holm over these too."""
    tables = [
        curve.against(pd.DataFrame(here), own, "fold").assign(endpoint=endpoint)
        for endpoint, here in predicted.groupby("endpoint")
    ]
    table = pd.concat(tables, ignore_index=True)
    table[["low", "high"]] = table[["low", "high"]].clip(-1.0, 1.0)
    return table.assign(p_adjusted=holm(table.p.to_numpy(dtype=float)))


def found_from(points: pd.DataFrame, model: str) -> int | None:
    """The size from which on a model is better than chance at every size; None where it is not at the largest.

    `points` are of one endpoint.
    """
    least = None
    for row in pd.DataFrame(points[points.model == model]).sort_values("labelled", ascending=False).to_dict("records"):
        if not row["p_adjusted"] < LEVEL:
            break
        least = int(row["labelled"])
    return least
