"""Out of fold: what a run's own model predicted of patients that it had not seen, as a prediction of a new patient rests on it.

It holds distributions and fitted lines, no row of a patient, so that it can leave the hospital that the run was made in.
Letters: n patients, r rows (their visits and repeats), b resamples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field

from mri_vit.finished import of_kind
from mri_vit.finished.answers import FoldScores, fold_scores
from mri_vit.finished.prediction_document import OfRun
from mri_vit.kinds.kind import labels, part
from mri_vit.metrics.within_fold import leak_level
from mri_vit.report.numbers import judged, measures
from mri_vit.report.schema.kinds import Result
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Number, Part
from mri_vit.settings.recipe import RESHUFFLED, SHUFFLED, VIT
from mri_vit.settings.schema import Endpoint, Study

NO_RESULT = "the run has no result of its own model for it"
SUSPICIOUS = (
    "labels may leak through the study's design: a network trained on permuted labels seems to predict them, and no second"
    " permutation has confirmed or refuted this"
)
CONFOUNDED = "the model may recognise the site instead: within single sites it is no better than chance"
MONTH_DAYS = 365 / 12  # a curve of the run's patients has no single patient's day
Groups = dict[str, tuple[Number, ...]]  # by group, in words: its patients' scores, the lowest first


class Line(Part):
    """The logistic line through out-of-fold scores, and those of bootstraps of patients."""

    slope: Number
    intercept: Number
    slopes: tuple[Number, ...] = Field(description="of each resample, b")
    intercepts: tuple[Number, ...] = Field(description="likewise")
    threshold: Number = Field(description="mean of the folds' thresholds on the line's scale")
    n: int = Field(description="patients with a label that it was fitted on")
    positive: int = Field(description="positive patients among them")


class OutOfFold(Part):
    """What the run's own model found of one endpoint, out of fold."""

    of_run: OfRun | None
    withheld: str | None = Field(description="why a prediction of it is withheld; null where none is")
    threshold: Number = Field(description="mean of the folds' thresholds")
    repeats: int = Field(description="repeats that a patient was scored in")
    scores: dict[str, tuple[Number, ...]] = Field(
        description="by score (of a class: p0, p1, …) its value for each patient, sorted"
    )
    groups: dict[str, Groups] = Field(description="by scale of the drawing the scores of patients with a known label, by outcome")
    line: Line | None = Field(default=None, description="of a marker whose scores can be calibrated")
    uncalibrated: str | None = Field(default=None, description="why there is no line")
    agreement: tuple[Number, Number] | None = Field(default=None, description="limits of agreement of a number, lower and upper")
    log: bool = Field(default=False, description="whether these are of logarithms")
    alive: tuple[Number, ...] = Field(
        default=(), description="share of the run's patients alive, or without the event, at the end of each month"
    )
    fold_scores: tuple[FoldScores, ...] = Field(
        default=(), description="that sets are made from; none of survival, or before 0.7"
    )


def of_study(study: Study, metrics: Metrics, predictions: pd.DataFrame) -> dict[str, OutOfFold]:
    """By endpoint what its rows in `predictions`, a run's table, and its result in `metrics` come to."""
    own = predictions.loc[predictions.model == VIT]
    return {one.name: of_endpoint(one, own.loc[own.endpoint == one.name], metrics, study.seed) for one in study.endpoints}


def of_endpoint(endpoint: Endpoint, rows: pd.DataFrame, metrics: Metrics, seed: int) -> OutOfFold:
    """What the rows of one endpoint, r of the run's own model, come to; `seed` is that of bootstraps."""
    rows, withheld, result = rows.astype({"score": float}), reason_withheld(metrics, endpoint.name), _own(metrics, endpoint.name)
    of_patients = labels(endpoint).scores_by(endpoint, rows, ["patient"]) if len(rows) else pd.DataFrame()
    found = {
        "of_run": result_of_run(metrics, endpoint.name),
        "withheld": withheld,
        "threshold": float(rows.threshold.mean()),
        "repeats": int(rows.groupby("patient").repeat.nunique().max()) if len(rows) else 1,
        "scores": {str(column): _sorted(of_patients[column].to_numpy(float)) for column in of_patients if _is_score(str(column))},
        "groups": groups(endpoint, rows),
        "fold_scores": fold_scores(endpoint, rows),
    }
    return OutOfFold(**found | of_kind.of(endpoint.kind).found(endpoint, rows, result, withheld, seed))


def groups(endpoint: Endpoint, rows: pd.DataFrame) -> dict[str, Groups]:
    """By score the scores of patients with a known label, by outcome; one of several repeats or visits is one, at the mean."""
    if not len(rows):
        return {}
    people = judged.averaged(labels(endpoint).known_rows(endpoint, rows))
    members = measures.of(endpoint).score_groups(endpoint, people)
    return {
        str(column): {name: _sorted(people[column].to_numpy(float)[chosen]) for name, chosen in members.items()}
        for column in people
        if _is_score(str(column))
    }


def _is_score(column: str) -> bool:
    return column == "score" or re.fullmatch(r"p\d+", column) is not None


def _sorted(scores: Float[np.ndarray, " n"]) -> tuple[float, ...]:
    return tuple(np.sort(scores).tolist())


def result_of_run(metrics: Metrics, endpoint: str) -> OfRun | None:
    """The run's result of its own model for an endpoint; None where it has none."""
    result = _own(metrics, endpoint)
    if result is None:
        return None
    return OfRun(
        measure=part(result.kind_of, "labels").measure,
        estimate=result.judged,
        patients=result.n,
        marked=getattr(result, "positive", getattr(result, "events", result.n)),
        kind=result.verdict_kind,
        verdict=result.verdict,
    )


def reason_withheld(metrics: Metrics, endpoint: str) -> str | None:
    """Why a prediction of an endpoint is withheld; None where the run predicts it better than chance and nothing casts doubt."""
    result = _own(metrics, endpoint)
    if result is None:
        return NO_RESULT
    if result.verdict_kind != "better":
        return f"the run's verdict is “{result.verdict}”"
    if result.too_good:
        return f"the run's result is {result.too_good}"
    permuted: Mapping[str, Result] = {
        name: of.models[SHUFFLED] for name, of in metrics.endpoints.items() if SHUFFLED in of.models
    }
    tested_again = RESHUFFLED in metrics.endpoints[endpoint].models
    if endpoint in permuted and not tested_again and permuted[endpoint].chance_test.p <= leak_level(len(permuted)):
        return SUSPICIOUS
    if result.within_sites and result.within_sites.confounded:
        return CONFOUNDED
    return None


def _own(metrics: Metrics, endpoint: str) -> Result | None:
    return metrics.endpoints[endpoint].models.get(VIT) if endpoint in metrics.endpoints else None
