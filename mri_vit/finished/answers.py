"""A new patient's set of classes, or interval of a number, by the out-of-fold scores of each fold's patients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from pydantic import Field

from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.kinds.kind import labels
from mri_vit.metrics.conformal import cross_conformal_p, cv_plus, needed
from mri_vit.report.numbers.prediction_sets import CALLS, class_labels, class_scores, sets_of
from mri_vit.report.schema.instability import Answer
from mri_vit.report.schema.parts import Number, Part
from mri_vit.settings.schema import Endpoint


class FoldScores(Part):
    """What a fold's model gave to the patients of its test fold whose label is known, sorted."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    own: tuple[tuple[Number, ...], ...] = Field(
        description="by class how typical it is for its own patients; of a number the absolute errors, or those of its logarithm"
    )


def fold_scores(endpoint: Endpoint, rows: pd.DataFrame) -> tuple[FoldScores, ...]:
    """Of each fold of a run's own model; none of survival."""
    if labels(endpoint).of_visit or not len(rows):
        return ()
    known = labels(endpoint).known_rows(endpoint, rows)
    return tuple(
        FoldScores(repeat=int(repeat), fold=int(fold), own=tuple(tuple(np.sort(own).tolist()) for own in _own(endpoint, here)))
        for (repeat, fold), here in known.groupby(["repeat", "fold"])  # type: ignore[misc]  # of two columns
    )


def _own(endpoint: Endpoint, here: pd.DataFrame) -> list[np.ndarray]:
    if endpoint.kind == "continuous":
        value, score = here.truth.to_numpy(float), here.score.to_numpy(float)
        return [np.abs(np.log(value) - np.log(score) if endpoint.log else value - score)]
    score, label = class_scores(endpoint, here), class_labels(endpoint, here)
    return [score[label == y, y] for y in range(score.shape[1])]


def answer(endpoint: Endpoint, outputs: Sequence[FoldOutputs], of_run: Sequence[FoldScores]) -> Answer | None:
    """The patient's set, compared within each fold of every repeat; None where a class has too few patients."""
    by_place = {(fold.repeat, fold.fold): fold for fold in outputs}
    pairs = [(by_place[key], one) for one in of_run if (key := (one.repeat, one.fold)) in by_place]
    repeats = len({one.repeat for _, one in pairs})
    if not pairs or min(sum(map(len, own)) for own in zip(*(one.own for _, one in pairs), strict=True)) < repeats * needed():
        return None
    if endpoint.kind == "continuous":
        return _interval(endpoint, pairs)
    names = np.array(endpoint.classes or CALLS)
    return Answer(classes=tuple(names[sets_of(endpoint, _p(endpoint, pairs))[0]].tolist()), low=math.nan, high=math.nan)


def _p(endpoint: Endpoint, pairs: Sequence[tuple[FoldOutputs, FoldScores]]) -> np.ndarray:
    numbers = [fold.mean(endpoint.name) for fold, _ in pairs]
    columns = [f"p{y}" for y in range(len(numbers[0]))] if endpoint.classes else ["score"]
    score = class_scores(endpoint, pd.DataFrame(numbers, columns=pd.Index(columns)))
    return cross_conformal_p(score[:, None], [[np.array(own) for own in one.own] for _, one in pairs])


def _interval(endpoint: Endpoint, pairs: Sequence[tuple[FoldOutputs, FoldScores]]) -> Answer:
    predicted = np.array([float(fold.mean(endpoint.name)[0]) for fold, _ in pairs])
    low, high = cv_plus(np.log(predicted) if endpoint.log else predicted, [np.array(one.own[0]) for _, one in pairs])
    return Answer(classes=(), low=float(np.exp(low) if endpoint.log else low), high=float(np.exp(high) if endpoint.log else high))
