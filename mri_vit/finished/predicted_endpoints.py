"""Predicted endpoints: a patient's network outputs and the run's results in; what is shown of each endpoint, and tables, out.

A score becomes a probability by the run's out-of-fold scores and truths; an endpoint is withheld where the run's result is no
better than chance. Letters: f folds' models, t horizons, r rows (a patient's visits and repeats), n patients, b resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import expit

from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.prediction_document import (
    Binary,
    BinaryValue,
    Calibrated,
    Horizon,
    NetworkScore,
    OfRun,
    Prediction,
    Spread,
    Survival,
    SurvivalValue,
    is_trusted,
)
from mri_vit.metrics.calibration import calibration_line, drawn_lines, log_odds
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, counts, percentile_interval
from mri_vit.metrics.within_fold import leak_level
from mri_vit.report.schema.endpoints import BinaryResult, Result
from mri_vit.report.schema.metrics import Metrics
from mri_vit.settings.recipe import RESHUFFLED, SHUFFLED, VIT
from mri_vit.settings.schema import Endpoint

Side = Literal["positive", "negative"]
UNLEARNED = "no network learned it: no fold had enough labels"
EVEN_PROBABILITY = 0.5  # of a calibrated probability: on either side of it a call is right more often than wrong
MIN_PATIENTS_FOR_A_LINE = (
    10  # of the rarer class: two coefficients at five events each (Vittinghoff & McCulloch 2007, doi:10.1093/aje/kwk052)
)
CALIBRATION_SENTENCE = (
    "The share of positive patients among the run's patients with such an out-of-fold score: a logistic line through the"
    " out-of-fold scores of {n} patients, applied to each fold's model, mean of {f}. The interval covers the line only, by a"
    " bootstrap of patients. It assumes that the marker is as frequent as in the run ({share:.0%})."
)
NO_RESULT = "the run has no result of its own model for it"
SUSPICIOUS = (
    "labels may leak through the study's design: a network trained on permuted labels seems to predict them, and no second"
    " permutation has confirmed or refuted this"
)
CONFOUNDED = "the model may recognise the site instead: within single sites it is no better than chance"
OUTSIDE = {"within": "false", "outside": "true", "not known": ""}  # by placement


@dataclass(frozen=True)
class RunResults:
    """The run's results that a prediction rests on: its metrics, and its own model's out-of-fold rows."""

    metrics: Metrics
    rows: pd.DataFrame  # of predictions.csv, the own model's
    seed: int

    @classmethod
    def of(cls, metrics: Metrics, predictions: pd.DataFrame, seed: int) -> RunResults:
        return cls(metrics, predictions.loc[predictions.model == VIT], seed)

    def of_endpoint(self, name: str) -> pd.DataFrame:
        """The rows of one endpoint."""
        return self.rows.loc[self.rows.endpoint == name]


def of_endpoint(
    endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: RunResults, show_untrusted: bool, doubt: str | None = None
) -> Binary | Survival:
    """What is shown of one endpoint; `show_untrusted` shows also what the run predicts no better than chance, with the reason.

    `doubt` says why nothing of the run holds for this patient; a value that is shown then carries it.
    """
    own = _with_head(outputs, endpoint.name)
    reason = reason_withheld(run.metrics, endpoint.name) if own else UNLEARNED
    shown = reason is None or (show_untrusted and reason != UNLEARNED)
    untrusted = "; ".join(filter(None, (doubt, reason))) or None
    about = {
        "of_run": result_of_run(run.metrics, endpoint.name),
        "withheld": None if shown else reason,
        "untrusted": untrusted if shown else None,
    }
    if endpoint.kind == "binary":
        return Binary(kind="binary", value=_binary(endpoint.name, own, run, untrusted) if shown else None, **about)
    return Survival(kind="survival", value=_survival(endpoint.name, own, run) if shown else None, **about)


def _with_head(outputs: Sequence[FoldOutputs], endpoint: str) -> list[FoldOutputs]:
    return [fold for fold in outputs if endpoint in fold.scores[0]]


def _binary(name: str, outputs: Sequence[FoldOutputs], run: RunResults, untrusted: str | None) -> BinaryValue:
    rows = run.of_endpoint(name)
    scores = np.array([fold.score(name) for fold in outputs])
    calibrated, reason = None, "unreliable scores are not calibrated"
    if untrusted is None:
        calibrated, reason = calibrated_probability(rows, scores, np.random.default_rng(run.seed))
    shared = _shared(name, outputs, rows)
    side, call = _called(calibrated, shared["score"], shared["threshold"])
    return BinaryValue(side=side, call=call, probability=calibrated, uncalibrated=reason, **shared)


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
    score, calibrated = fold.scores[0][endpoint], value.probability
    if calibrated:
        return _side(float(on_line(calibrated.slope, calibrated.intercept, np.array([score]))[0]), EVEN_PROBABILITY)
    return None if math.isnan(value.threshold) else _side(score, value.threshold)


def _side(value: float, limit: float) -> Side:
    return "positive" if value >= limit else "negative"


def per_cent(share: float) -> str:
    """A probability in per cent; one just below one half is not rounded to 50 %."""
    return f"{min(100 * share, 49.9):.1f} %" if round(100 * share) == 50 and share < EVEN_PROBABILITY else f"{100 * share:.0f} %"


def _survival(name: str, outputs: Sequence[FoldOutputs], run: RunResults) -> SurvivalValue:
    each = np.array([seed[name] for fold in outputs for seed in fold.survival])  # (networks, t)
    means = np.mean([np.mean([seed[name] for seed in fold.survival], axis=0) for fold in outputs], axis=0)  # (t,)
    horizons = tuple(
        Horizon(
            days=days,
            survival=float(means[t]),
            deviation=_deviation(each[:, t]),
            minimum=float(each[:, t].min()),
            maximum=float(each[:, t].max()),
        )
        for t, days in enumerate(HORIZONS_DAYS)
    )
    shared = _shared(name, outputs, run.of_endpoint(name))
    side = None if math.isnan(shared["threshold"]) else "high risk" if shared["score"] >= shared["threshold"] else "low risk"
    return SurvivalValue(side=side, horizons=horizons, **shared)


def _shared(name: str, outputs: Sequence[FoldOutputs], rows: pd.DataFrame) -> dict[str, Any]:
    """The fields that a marker and survival have in common; the score is the mean over folds of each fold's mean over seeds."""
    networks = tuple(
        NetworkScore(repeat=fold.repeat, fold=fold.fold, seed=seed, score=scores[name])
        for fold in outputs
        for seed, scores in enumerate(fold.scores)
    )
    each = np.array([network.score for network in networks])
    mean = float(np.mean([fold.score(name) for fold in outputs]))
    others = rows.groupby("patient").score.mean().to_numpy(float)
    below = (others < mean).mean() + (others == mean).mean() / 2 if len(others) else math.nan
    return {
        "score": mean,
        "threshold": float(rows.threshold.mean()),
        "percentile": round(100 * float(below), 1),
        "percentile_n": len(others),
        "percentile_note": _note(len(networks), int(rows.groupby("patient").repeat.nunique().max()) if len(rows) else 1),
        "networks": networks,
        "spread": Spread(networks=len(each), deviation=_deviation(each), minimum=float(each.min()), maximum=float(each.max())),
    }


def _note(networks: int, repeats: int) -> str:
    own = "the fold that did not train on them" if repeats == 1 else f"the {repeats} folds that did not train on them"
    return (
        f"Compared with the run's patients, each scored by {own}. This patient's score is a mean over all {networks} networks,"
        " which varies less and so tends to lie nearer the middle."
    )


def _deviation(values: Float[np.ndarray, " n"]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def on_line(slope: float, intercept: float, scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Scores on the scale of calibrated probabilities."""
    return expit(intercept + slope * log_odds(scores))


def calibrated_probability(
    rows: pd.DataFrame, scores: Float[np.ndarray, " f"], generator: np.random.Generator
) -> tuple[Calibrated | None, str | None]:
    """The calibrated probability of a new patient, or None and why there is none.

    Definition: logit P(y = 1) = intercept + slope logit s is fitted to out-of-fold scores s, each by one fold's model, and
    applied to each fold's score of the new patient, which is exchangeable with them; the mean over the folds is given. Applied
    to the mean of the folds' scores, which vary less than one fold's, the same line would claim less than it may; averaged
    afterwards, each part is what was calibrated. A mean of calibrated probabilities is itself too cautious, if anything
    (Ranjan & Gneiting 2010, doi:10.1111/j.1467-9868.2009.00726.x).
    Assumption: the patient comes from the run's population, with its prevalence.
    Source: Cox 1958, doi:10.1093/biomet/45.3-4.562; Steyerberg et al. 2004, doi:10.1002/sim.1844.

    Parameters
    ----------
    rows : the run's own model's rows of `predictions.csv` for one binary endpoint: patient, score, truth (NaN: not known),
        threshold.
    scores : float [f], of the new patient by each fold's model, a mean over its seeds.
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
    at, each = log_odds(scores), on_line(slope, intercept, scores)  # (f,)
    low, high = percentile_interval(expit(intercepts[:, None] + slopes[:, None] * at).mean(axis=1))
    sentence = CALIBRATION_SENTENCE.format(n=n, f="one" if len(scores) == 1 else f"the {len(scores)}", share=positive / n)
    return (
        Calibrated(
            value=float(each.mean()),
            low=float(low),
            high=float(high),
            least=float(each.min()),
            most=float(each.max()),
            threshold=float(on_line(slope, intercept, rows.threshold.to_numpy(float)).mean()),
            slope=slope,
            intercept=intercept,
            n=n,
            positive=positive,
            sentence=sentence,
        ),
        None,
    )


def result_of_run(metrics: Metrics, endpoint: str) -> OfRun | None:
    """The run's result of its own model for an endpoint; None where it has none."""
    result = _own(metrics, endpoint)
    if result is None:
        return None
    binary = isinstance(result, BinaryResult)
    return OfRun(
        measure="auc" if binary else "harrell_c",
        estimate=result.judged,
        patients=result.n,
        marked=result.positive if binary else result.events,
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
    permuted = {name: of.models[SHUFFLED] for name, of in metrics.endpoints.items() if SHUFFLED in of.models}
    tested_again = RESHUFFLED in metrics.endpoints[endpoint].models
    if endpoint in permuted and not tested_again and permuted[endpoint].chance_test.p <= leak_level(len(permuted)):
        return SUSPICIOUS
    if result.within_sites and result.within_sites.confounded:
        return CONFOUNDED
    return None


def _own(metrics: Metrics, endpoint: str) -> Result | None:
    return metrics.endpoints[endpoint].models.get(VIT) if endpoint in metrics.endpoints else None


def tables(written: Mapping[str, Prediction], outputs: Mapping[str, Sequence[FoldOutputs]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and survival of all patients; a withheld endpoint has an empty score and the reason.

    `models` is the number of folds whose model has a head for the endpoint; `untrusted` why a value shown on request is
    unreliable; `outside` whether the patient is unlike the run's, empty where that is not known; `trusted` whether nothing casts
    doubt on the row; `synthetic` whether the run was trained on synthetic patients.
    """
    scores: list[dict[str, Any]] = []
    survival: list[dict[str, Any]] = []
    for name, made in written.items():
        for endpoint, result in made.endpoints.items():
            head, value = {"patient": name, "endpoint": endpoint}, result.value
            about = {
                "models": len(_with_head(outputs[name], endpoint)),
                "withheld": result.withheld or "",
                "untrusted": result.untrusted or "",
                "outside": OUTSIDE[made.distribution.placement],
                "trusted": str(is_trusted(made, endpoint)).lower(),
                "synthetic": str(made.run.synthetic is not None).lower(),
            }
            probability = value.probability if isinstance(value, BinaryValue) else None
            scores.append(
                {
                    **head,
                    "score": value.score if value else math.nan,
                    "probability": probability.value if probability else math.nan,
                    "call": (value.side if value else None) or "",
                    **about,
                }
            )
            if result.kind == "survival":
                alive = [at.survival for at in result.value.horizons] if result.value else [math.nan] * len(HORIZONS_DAYS)
                survival += [
                    {**head, "horizon_days": days, "survival": share, **about}
                    for days, share in zip(HORIZONS_DAYS, alive, strict=True)
                ]
    about = ["models", "withheld", "untrusted", "outside", "trusted", "synthetic"]
    columns = [["score", "probability", "call"], ["horizon_days", "survival"]]
    made_scores, made_survival = (
        pd.DataFrame(rows, columns=pd.Index(["patient", "endpoint", *own, *about]))
        for rows, own in zip((scores, survival), columns, strict=True)
    )
    return made_scores, made_survival
