"""What is shown of a new patient's marker: a calibrated probability, and the call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import expit

from mri_vit.finished import out_of_fold
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.of_kind import Shown, Strip
from mri_vit.finished.out_of_fold import Line, OutOfFold
from mri_vit.finished.predicted_endpoints import EVEN_PROBABILITY, per_cent, shared
from mri_vit.finished.prediction_document import Binary, BinaryValue, Calibrated
from mri_vit.metrics.calibration import calibration_line, drawn_lines, log_odds
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, counts, percentile_interval
from mri_vit.report.schema.kinds import Result
from mri_vit.settings.schema import Endpoint

Side = Literal["positive", "negative"]
MIN_PATIENTS_FOR_A_LINE = (
    10  # of the rarer class: two coefficients at five events each (Vittinghoff & McCulloch 2007, doi:10.1093/aje/kwk052)
)
UNRELIABLE = "unreliable scores are not calibrated"
PROBABILITY = "calibrated probability"  # a scale of `OutOfFold.groups`
CALIBRATION_SENTENCE = (
    "The share of positive patients among the run's patients with such an out-of-fold score: a logistic line through the"
    " out-of-fold scores of {n} patients, applied to each fold's model, mean of {f}. The interval covers the line only, by a"
    " bootstrap of patients. It assumes that the marker is as frequent as in the run ({share:.0%})."
)


class BinaryShown(Shown):
    """A probability, where the run's out-of-fold scores can be calibrated."""

    def found(
        self, endpoint: Endpoint, rows: pd.DataFrame, result: Result | None, withheld: str | None, seed: int
    ) -> dict[str, Any]:
        """The line of calibration, and the scores on its scale."""
        if withheld:
            return {"uncalibrated": UNRELIABLE}
        line, reason = calibrated_line(rows, np.random.default_rng(seed))
        if line is None:
            return {"uncalibrated": reason}
        on_scale = rows.assign(score=on_line(line.slope, line.intercept, rows.score.to_numpy(float)))
        drawn = out_of_fold.groups(endpoint, rows) | {PROBABILITY: out_of_fold.groups(endpoint, on_scale)["score"]}
        return {"line": line, "groups": drawn}

    def shown(
        self,
        endpoint: Endpoint,
        outputs: Sequence[FoldOutputs] | None,
        run: OutOfFold,
        untrusted: str | None,
        about: dict[str, Any],
    ) -> Binary:
        return Binary(kind="binary", value=None if outputs is None else _value(endpoint, outputs, run, untrusted), **about)

    def score_cells(self, result: Binary) -> Iterable[dict[str, Any]]:
        value = result.value
        probability = value.probability if value else None
        return [
            {
                "score": value.score if value else math.nan,
                "probability": probability.value if probability else math.nan,
                "call": (value.side if value else None) or "",
            }
        ]

    def on_strip(self, result: Binary) -> Strip:
        """On the scale of the call, so that the patient lies on the called side of the dashed line."""
        assert result.value is not None
        if line := result.value.probability:
            return Strip(line.value, EVEN_PROBABILITY, PROBABILITY, PROBABILITY)
        return super().on_strip(result)

    def question(self, value: BinaryValue) -> int | None:
        return {"positive": 1, "negative": -1}.get(value.side or "")

    def called_otherwise(self, endpoint: str, fold: FoldOutputs, value: BinaryValue) -> bool:
        return value.side is not None and network_side(fold, endpoint, value) != value.side


def _value(endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: OutOfFold, untrusted: str | None) -> BinaryValue:
    scores = np.array([float(fold.mean(endpoint.name)[0]) for fold in outputs])
    calibrated = calibrated_probability(run.line, scores) if run.line and untrusted is None else None
    reason = None if calibrated else UNRELIABLE if untrusted else run.uncalibrated
    fields = shared(endpoint, outputs, run)
    side, call = _called(calibrated, fields["score"], fields["threshold"])
    return BinaryValue(side=side, call=call, probability=calibrated, uncalibrated=reason, **fields)


def _called(calibrated: Calibrated | None, score: float, threshold: float) -> tuple[Side | None, str]:
    """The one call of a marker, and its reason in words.

    The run's threshold was chosen for uncalibrated scores, so a call by it could contradict the probability beside it.
    """
    if calibrated:
        side = _side(calibrated.value, EVEN_PROBABILITY)
        compared = "at least" if side == "positive" else "less than"
        own = "" if math.isnan(calibrated.threshold) else f"; the run's own threshold is {per_cent(calibrated.threshold)}"
        return side, f"Called {side}: {per_cent(calibrated.value)} is {compared} 50 %{own}."
    if math.isnan(threshold):
        return None, f"Not called: score {score:.3f}, and the run has no threshold."
    side = _side(score, threshold)
    return side, f"Called {side}: score {score:.3f}, threshold {threshold:.3f}."


def network_side(fold: FoldOutputs, endpoint: str, value: BinaryValue) -> Side | None:
    """The call of a fold's first network alone, on the scale of the patient's call."""
    score, calibrated = float(fold.scores[0][endpoint][0]), value.probability
    if calibrated:
        return _side(float(on_line(calibrated.slope, calibrated.intercept, np.array([score]))[0]), EVEN_PROBABILITY)
    return None if math.isnan(value.threshold) else _side(score, value.threshold)


def _side(value: float, limit: float) -> Side:
    return "positive" if value >= limit else "negative"


def on_line(slope: float, intercept: float, scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Scores on the scale of calibrated probabilities."""
    return expit(intercept + slope * log_odds(scores))


def calibrated_line(rows: pd.DataFrame, generator: np.random.Generator) -> tuple[Line | None, str | None]:
    """The line by which scores become probabilities, or None and why there is none.

    Definition: logit P(y = 1) = intercept + slope logit s is fitted to out-of-fold scores s, each by one fold's model.
    Source: Cox 1958, doi:10.1093/biomet/45.3-4.562; Steyerberg et al. 2004, doi:10.1002/sim.1844.

    Parameters
    ----------
    rows : the run's own model's rows of `predictions.csv` for one binary endpoint: patient, score, truth (NaN: not known),
        threshold.
    generator : of the bootstrap, which draws patients with all their rows.
    """
    known = rows[rows.truth.notna()]
    truth, score = known.truth.to_numpy(bool), known.score.to_numpy(float)
    patient, names = pd.factorize(known.patient)
    n = len(names)
    positive = int(known.groupby("patient").truth.first().sum())
    if min(positive, n - positive) < MIN_PATIENTS_FOR_A_LINE:
        return (
            None,
            f"{positive} of {n} patients with a known label are positive; {MIN_PATIENTS_FOR_A_LINE} of either kind are needed",
        )
    if score.min() < 0 or score.max() > 1:
        return None, "the scores are not probabilities"
    slope, intercept = calibration_line(truth, score)
    if math.isnan(slope):
        return None, "the out-of-fold scores separate the two classes perfectly, so no line can be fitted"
    drawn = counts(np.zeros(n), generator, RESAMPLES)[:, patient]  # (b, r)
    slopes, intercepts = drawn_lines(truth, score, drawn, (slope, intercept))
    if np.isnan(slopes).mean() > (1 - CONFIDENCE) / 2:  # a quantile may lie among them
        return (
            None,
            "in too many resamples the out-of-fold scores separate the two classes perfectly, so the line has no interval",
        )
    if float(percentile_interval(slopes)[0]) <= 0:
        return None, "the line through the out-of-fold scores has no slope significantly above 0"
    return (
        Line(
            slope=slope,
            intercept=intercept,
            slopes=tuple(slopes.tolist()),
            intercepts=tuple(intercepts.tolist()),
            threshold=float(on_line(slope, intercept, rows.threshold.to_numpy(float)).mean()),
            n=n,
            positive=positive,
        ),
        None,
    )


def calibrated_probability(line: Line, scores: Float[np.ndarray, " f"]) -> Calibrated:
    """The calibrated probability of a new patient: the mean over the folds of each fold's score on the line.

    Each fold's score of the new patient is exchangeable with those that the line was fitted to. Applied to the mean of the
    folds' scores, which vary less than one fold's, the same line would claim less than it may; averaged afterwards, each part is
    what was calibrated. A mean of calibrated probabilities is itself too cautious, if anything (Ranjan & Gneiting 2010,
    doi:10.1111/j.1467-9868.2009.00726.x).
    Assumption: the patient comes from the run's population, with its prevalence.

    Parameters
    ----------
    line : of `calibrated_line`.
    scores : float [f], of the new patient by each fold's model, a mean over its seeds.
    """
    at, each = log_odds(scores), on_line(line.slope, line.intercept, scores)  # (f,)
    slopes, intercepts = np.array(line.slopes), np.array(line.intercepts)
    low, high = percentile_interval(expit(intercepts[:, None] + slopes[:, None] * at).mean(axis=1))
    folds = "one" if len(scores) == 1 else f"the {len(scores)}"
    return Calibrated(
        value=float(each.mean()),
        low=float(low),
        high=float(high),
        least=float(each.min()),
        most=float(each.max()),
        threshold=line.threshold,
        slope=line.slope,
        intercept=line.intercept,
        n=line.n,
        positive=line.positive,
        sentence=CALIBRATION_SENTENCE.format(n=line.n, f=folds, share=line.positive / line.n),
    )


PART = BinaryShown()
