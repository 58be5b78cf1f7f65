"""Sets of classes, or intervals of a number, that hold the right one nine times in ten; and how they do by class and by site.

Letters: n patients, k classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from mri_vit.kinds.kind import labels, part
from mri_vit.metrics import conformal
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.intervals import wilson_interval
from mri_vit.report.numbers.hospitals import hospital_of, unseen
from mri_vit.report.numbers.judged import averaged, first_repeat
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.instability import Answer, ClassCoverage, SiteCoverage
from mri_vit.report.schema.measured import ALPHA
from mri_vit.settings.schema import Endpoint

MIN_SITE = 10  # patients of a site: of fewer not one set in ten can miss
CALLS = ("negative", "positive")


@dataclass(frozen=True)
class TooFew:
    """Why there are no sets: patients of the rarest class, and how many are needed."""

    name: str  # of the rarest class; "" of a number
    n: int
    needed: int


Absent = TooFew | None  # None: of survival, whose times are censored


@dataclass(frozen=True)
class SetFigures:
    """A `PredictionSets` without words."""

    level: float
    calibrated_on: Literal["other patients", "other sites"]
    n: int
    answered: int
    none: int
    right: int
    answered_without_skill: float
    right_without_skill: float
    reach: float
    reach_without_skill: float
    times: bool
    column: str
    new_low: float
    new_high: float
    classes: tuple[ClassCoverage, ...]
    sites: tuple[SiteCoverage, ...]
    small_sites: int


@dataclass(frozen=True, eq=False)
class Sets:
    """The sets of all patients that a model predicted, with the figures of those whose label is known."""

    figures: SetFigures
    patients: Mapping[str, Answer]


def measure(run: Run, endpoint: Endpoint, model: str, known: pd.DataFrame) -> Sets | Absent:
    """The sets of a model's predictions; `known` are its rows of patients with a label, as `judged.known_rows` has them.

    Each patient is compared with the out-of-fold scores of all others, at the mean over repeats. Where sites are left out in turn
    a patient is compared with the other sites' alone: a new hospital has no patients of its own to compare with.
    """
    if labels(endpoint).of_visit:
        return None
    rows = run.predictions.loc[(run.predictions.endpoint == endpoint.name) & (run.predictions.model == model)]
    scores = labels(endpoint).scores_by(endpoint, rows.astype({"score": float}), ["patient"])
    thresholds = first_repeat(known).set_index("patient").threshold
    truth = averaged(known).set_index("patient").assign(threshold=thresholds).reindex(scores.index)
    column, hospital = hospital_of(run)
    site = np.array([hospital.get(patient, "") for patient in scores.index], dtype=str)
    group = site if unseen(run, rows) == "left out" else None
    if endpoint.kind == "continuous":
        return of_numbers(endpoint, scores, truth, group, site, column)
    return of_classes(endpoint, scores, truth, group, site, column)


def of_classes(
    endpoint: Endpoint,
    scores: pd.DataFrame,
    truth: pd.DataFrame,
    group: np.ndarray | None,
    site: np.ndarray,
    column: str = "site",
) -> Sets | TooFew:
    """`group`: who a patient is not compared with: the others of the `site`; None where it is the patient alone."""
    names = endpoint.classes or CALLS
    score, label = class_scores(endpoint, scores), class_labels(endpoint, truth)
    known = label != conformal.UNKNOWN
    counts = np.bincount(label[known], minlength=len(names))
    groups = [np.ones(len(label), bool)] if group is None else [group != name for name in np.unique(group)]
    fewest = np.min([np.bincount(label[known & others], minlength=len(names)) for others in groups], axis=0)
    if fewest.min() < conformal.needed():
        rarest = int(fewest.argmin())
        return TooFew(names[rarest], int(fewest[rarest]), conformal.needed())
    members = sets_of(endpoint, conformal.class_p(score, label, group))
    covered = members[np.arange(len(label)), label] & known  # no one looks at the last class of the unknown
    one, skill = members.sum(axis=1) == 1, sets_of(endpoint, conformal.p_without_skill(score[known]))
    guessed = skill.sum(axis=1) == 1
    figures = SetFigures(
        level=1 - conformal.ALPHA,
        calibrated_on="other patients" if group is None else "other sites",
        n=int(known.sum()),
        answered=int((one & known).sum()),
        none=int((known & ~members.any(axis=1)).sum()),
        right=int((one & covered).sum()),
        answered_without_skill=float(guessed.mean()),
        right_without_skill=float((counts / counts.sum())[skill[guessed].argmax(axis=1)].mean()) if guessed.any() else math.nan,
        reach=math.nan,
        reach_without_skill=math.nan,
        times=False,
        column=column,
        **_of_new(int(fewest.min()), group is None),
        classes=() if group is None else _by_class(names, counts, np.bincount(label[covered], minlength=len(names))),
        **_by_site(covered[known], label[known], site[known], mixed=group is None),
    )
    found = [tuple(np.array(names)[row].tolist()) for row in members]
    answers = {patient: Answer(classes=of, low=math.nan, high=math.nan) for patient, of in zip(scores.index, found, strict=True)}
    return Sets(figures, answers)


def of_numbers(
    endpoint: Endpoint,
    scores: pd.DataFrame,
    truth: pd.DataFrame,
    group: np.ndarray | None,
    site: np.ndarray,
    column: str = "site",
) -> Sets | TooFew:
    """Of a number whose logarithm is learned, errors are of logarithms, and the interval is a factor."""
    value, centre = scores.score.to_numpy(float), truth.threshold
    value = np.log(value) if endpoint.log else value
    observed = truth.truth.to_numpy(float)
    observed = np.log(observed) if endpoint.log else observed
    residual, known = observed - value, ~np.isnan(observed)
    fewest = int(known.sum()) if group is None else min(int((known & (group != name)).sum()) for name in np.unique(group))
    if fewest < conformal.needed():
        return TooFew("", fewest, conformal.needed())
    reach = conformal.reach(residual, group)
    covered = np.abs(np.where(known, residual, 0.0)) <= reach
    mean = centre.fillna(float(np.nanmean(truth.truth))).to_numpy(float)
    of_mean = conformal.reach(observed - (np.log(mean) if endpoint.log else mean), group)
    ends = np.stack([value - reach, value + reach])
    ends = np.exp(ends) if endpoint.log else ends
    factor = np.exp if endpoint.log else np.asarray
    figures = SetFigures(
        level=1 - conformal.ALPHA,
        calibrated_on="other patients" if group is None else "other sites",
        n=int(known.sum()),
        answered=0,
        none=0,
        right=0,
        answered_without_skill=math.nan,
        right_without_skill=math.nan,
        reach=float(factor(np.median(reach))),
        reach_without_skill=float(factor(np.median(of_mean))),
        times=bool(endpoint.log),
        column=column,
        **_of_new(fewest, group is None),
        classes=(),
        **_by_site(covered[known], np.zeros(int(known.sum()), int), site[known], mixed=group is None),
    )
    low, high = ends.tolist()
    answers = {patient: Answer(classes=(), low=low[i], high=high[i]) for i, patient in enumerate(scores.index.astype(str))}
    return Sets(figures, answers)


def class_scores(endpoint: Endpoint, scores: pd.DataFrame) -> Float[np.ndarray, "n k"]:
    """How typical each class is: its probability, or of a marker the score and its negative."""
    if endpoint.classes:
        return scores.filter(regex=r"^p\d+$").to_numpy(float)
    return np.outer(scores.score.to_numpy(float), [-1.0, 1.0])


def class_labels(endpoint: Endpoint, truth: pd.DataFrame) -> Int[np.ndarray, " n"]:
    """The class of each patient, from 0 on."""
    column = truth[part(endpoint.kind, "labels").label_columns[0]].astype(float)
    return column.fillna(conformal.UNKNOWN).to_numpy(int)


def sets_of(endpoint: Endpoint, p: Float[np.ndarray, "n k"]) -> Bool[np.ndarray, "n k"]:
    """The classes whose p is large enough; of grades with all between."""
    members = p > conformal.ALPHA
    return conformal.contiguous(members) if endpoint.kind == "ordinal" else members


def _of_new(fewest: int, mixed: bool) -> dict[str, float]:
    low, high = conformal.expected_range(fewest) if mixed else (math.nan, math.nan)
    return {"new_low": low, "new_high": high}


def _by_class(names: tuple[str, ...], counts: Int[np.ndarray, " k"], covered: Int[np.ndarray, " k"]) -> tuple[ClassCoverage, ...]:
    rows = zip(
        names, counts.tolist(), covered.tolist(), *(ends.tolist() for ends in wilson_interval(covered, counts)), strict=True
    )
    return tuple(ClassCoverage(name=name, n=n, covered=of, low=low, high=high) for name, n, of, low, high in rows)


def _by_site(covered: Bool[np.ndarray, " n"], label: Int[np.ndarray, " n"], site: np.ndarray, mixed: bool) -> dict[str, Any]:
    """Coverage by site, and which sites are shown to have less than the others.

    `mixed`: whether patients were put into folds without regard to their site; else the patients of a site share a model.
    """
    sizes = {str(name): int((site == name).sum()) for name in np.unique(site) if name}
    large = [name for name, n in sizes.items() if n >= MIN_SITE]
    if len(sizes) < 2:
        return {"sites": (), "small_sites": 0}
    count = np.array([int(covered[site == name].sum()) for name in large], dtype=int)
    low, high = wilson_interval(count, np.array([sizes[name] for name in large], dtype=int))
    if mixed:
        p = np.array([conformal.excess_p(~covered, label, site == name) for name in large], dtype=float)
    else:
        p = conformal.outlier_p(count, np.array([sizes[name] for name in large], dtype=int))
    adjusted = holm(p) if np.isfinite(p).any() else p
    sites = tuple(
        SiteCoverage(
            site=name,
            n=sizes[name],
            covered=int(count[i]),
            low=float(low[i]),
            high=float(high[i]),
            p=float(p[i]),
            p_adjusted=float(adjusted[i]),
            below=bool(adjusted[i] <= ALPHA),
        )
        for i, name in enumerate(large)
    )
    return {"sites": sites, "small_sites": len(sizes) - len(large)}
