"""Predicted endpoints: what networks say of a patient and what the run's report says of its models, in; what is shown, out.

A score becomes a probability by the run's out-of-fold scores and truths; an endpoint is withheld where the report found nothing.
Letters: f folds' models, t horizons, r rows (a patient's visits and repeats), n patients, b resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import ValidationError
from scipy.special import expit

from mri_vit.crossval.leakage import suspicion
from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.finished.prediction_document import (
    Binary,
    BinaryValue,
    Calibrated,
    Horizon,
    NetworkScore,
    OfRun,
    Spread,
    Survival,
    SurvivalValue,
)
from mri_vit.finished.trained_run import FoldOutputs
from mri_vit.metrics.calibration import calibration_line, drawn_lines, log_odds
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, counts, percentile_interval
from mri_vit.report.schema.endpoints import BinaryResult, Result
from mri_vit.report.schema.metrics import Metrics
from mri_vit.run import files, integrity
from mri_vit.settings.recipe import RESHUFFLED, SHUFFLED, VIT
from mri_vit.settings.schema import Endpoint

Side = Literal["positive", "negative"]
UNLEARNED = "no network learned it: no fold had enough labels"
EVEN = 0.5  # of a calibrated probability: on either side of it a call is right more often than wrong
LEAST_PATIENTS_FOR_A_LINE = (
    10  # of the rarer class: two coefficients at five events each (Vittinghoff & McCulloch 2007, doi:10.1093/aje/kwk052)
)
CALIBRATION_SENTENCE = (
    "The share of the marker among patients of the run's cohort whom a fold's model, not trained on them, gave such a score: a"
    " logistic line through {n} patients' out-of-fold scores, applied to each fold's model, mean of {f}. The interval is of the"
    " line alone, by a bootstrap of patients; it holds where the marker is as frequent as there ({share:.0%})."
)
Source = Literal["report", "computed"]
NO_RESULT = "the run has no result of its own model for it"
SUSPICIOUS = (
    "labels may leak through the design: a network trained on permuted labels looks as if it had found them, and no fresh"
    " permutation has settled it"
)
CONFOUNDED = "it may be the site that the model tells: among patients of one site it is not better than chance"


@dataclass(frozen=True)
class RunResults:
    """What of a run an endpoint's prediction rests on: the verdicts, and its own model's out-of-fold rows."""

    metrics: Metrics
    rows: pd.DataFrame  # of predictions.csv, the own model's
    seed: int

    @classmethod
    def of(cls, metrics: Metrics, predictions: pd.DataFrame, seed: int) -> RunResults:
        return cls(metrics, predictions.loc[predictions.model == VIT], seed)

    def of_endpoint(self, name: str) -> pd.DataFrame:
        """The rows of one endpoint."""
        return self.rows.loc[self.rows.endpoint == name]

    def reason(self, endpoint: Endpoint, said: Sequence[FoldOutputs]) -> str | None:
        """Why nothing may be shown of an endpoint; None where something may."""
        return reason_withheld(self.metrics, endpoint.name) if _with_head(said, endpoint.name) else UNLEARNED


def of_endpoint(
    endpoint: Endpoint, said: Sequence[FoldOutputs], run: RunResults, show_untrusted: bool, doubt: str | None = None
) -> Binary | Survival:
    """What is shown of one endpoint; with `show_untrusted` also what the run did not tell from chance, and why.

    `doubt` says why nothing of the run holds for this patient; what is shown then is marked with it.
    """
    reason = run.reason(endpoint, said)
    shown = reason is None or (show_untrusted and reason != UNLEARNED)
    untrusted = "; ".join(filter(None, (doubt, reason))) or None
    about = {
        "of_run": result_of_run(run.metrics, endpoint.name),
        "withheld": None if shown else reason,
        "untrusted": untrusted if shown else None,
    }
    own = _with_head(said, endpoint.name)
    if endpoint.kind == "binary":
        return Binary(kind="binary", value=_binary(endpoint.name, own, run, untrusted) if shown else None, **about)
    return Survival(kind="survival", value=_survival(endpoint.name, own, run) if shown else None, **about)


def score(said: Sequence[FoldOutputs], endpoint: str) -> float:
    """The mean over folds of each fold's mean over its seeds, as `external.mean_of_folds` has it; NaN where nobody has a head."""
    own = _with_head(said, endpoint)
    return float(np.mean([one.score(endpoint) for one in own])) if own else math.nan


def models(said: Sequence[FoldOutputs], endpoint: str) -> int:
    """Folds whose model has a head for an endpoint."""
    return len(_with_head(said, endpoint))


def survival(said: Sequence[FoldOutputs], endpoint: str) -> Float[np.ndarray, " t"]:
    """The mean survival at the horizons, likewise."""
    return np.mean([np.mean([one[endpoint] for one in fold.survival], axis=0) for fold in _with_head(said, endpoint)], axis=0)


def _with_head(said: Sequence[FoldOutputs], endpoint: str) -> list[FoldOutputs]:
    return [one for one in said if endpoint in one.scores[0]]


def _binary(name: str, said: Sequence[FoldOutputs], run: RunResults, untrusted: str | None) -> BinaryValue:
    rows = run.of_endpoint(name)
    each = np.array([one.score(name) for one in said])
    calibrated, why = None, "what is not to be trusted is not calibrated"
    if untrusted is None:
        calibrated, why = calibrated_probability(rows, each, np.random.default_rng(run.seed))
    shared = _shared(name, said, rows)
    side, call = _called(calibrated, shared["score"], shared["threshold"])
    return BinaryValue(side=side, call=call, probability=calibrated, uncalibrated=why, **shared)


def _called(calibrated: Calibrated | None, score: float, threshold: float) -> tuple[Side | None, str]:
    """The one call of a marker, and what it rests on, in words.

    The threshold of the run was chosen for the networks' own scores, and a call by it could contradict the probability beside it.
    """
    if calibrated:
        side = _side(calibrated.value, EVEN)
        at = (
            ""
            if math.isnan(calibrated.threshold)
            else f"; the threshold of the run's own scores lies at {per_cent(calibrated.threshold)}"
        )
        return (
            side,
            f"Called {side}: {per_cent(calibrated.value)} is {'at least' if side == 'positive' else 'less than'} 50 %{at}.",
        )
    if math.isnan(threshold):
        return None, f"Not called: score {score:.3f}, and the run has no threshold."
    side = _side(score, threshold)
    return side, f"Called {side}: score {score:.3f}, threshold {threshold:.3f}."


def network_side(fold: FoldOutputs, endpoint: str, value: BinaryValue) -> Side | None:
    """What the first network of a fold would call by itself, on the scale on which the call was made."""
    score, calibrated = fold.scores[0][endpoint], value.probability
    if calibrated:
        return _side(float(on_line(calibrated.slope, calibrated.intercept, np.array([score]))[0]), EVEN)
    return None if math.isnan(value.threshold) else _side(score, value.threshold)


def _side(value: float, limit: float) -> Side:
    return "positive" if value >= limit else "negative"


def per_cent(share: float) -> str:
    """A probability in per cent; one just below one half does not read as 50 %."""
    return f"{min(100 * share, 49.9):.1f} %" if round(100 * share) == 50 and share < EVEN else f"{100 * share:.0f} %"


def _survival(name: str, said: Sequence[FoldOutputs], run: RunResults) -> SurvivalValue:
    each = np.array([one[name] for fold in said for one in fold.survival])  # (networks, t)
    means = survival(said, name)
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
    shared = _shared(name, said, run.of_endpoint(name))
    side = None if math.isnan(shared["threshold"]) else "high risk" if shared["score"] >= shared["threshold"] else "low risk"
    return SurvivalValue(side=side, horizons=horizons, **shared)


def _shared(name: str, said: Sequence[FoldOutputs], rows: pd.DataFrame) -> dict[str, Any]:
    """What a marker and survival have in common."""
    networks = tuple(
        NetworkScore(repeat=fold.repeat, fold=fold.fold, seed=seed, score=one[name])
        for fold in said
        for seed, one in enumerate(fold.scores)
    )
    each = np.array([one.score for one in networks])
    mean = score(said, name)
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
    own = "by the one fold that had not seen them" if repeats == 1 else f"by the {repeats} folds that had not seen them"
    return (
        f"Among the scores of the run's patients, each {own}. The patient's own is a mean over all {networks} networks,"
        " which varies less: it lies nearer to the middle than theirs would."
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
    if min(positive, n - positive) < LEAST_PATIENTS_FOR_A_LINE:
        return (
            None,
            f"{positive} of {n} patients with a known label are positive; {LEAST_PATIENTS_FOR_A_LINE} of either kind are needed",
        )
    if score.min() < 0 or score.max() > 1:
        return None, "the scores are no probabilities"
    slope, intercept = calibration_line(truth, score)
    if math.isnan(slope):
        return None, "the out-of-fold scores separate the two classes without an error, through which no line can be laid"
    drawn = counts(np.zeros(n), generator, RESAMPLES)[:, patient]  # (b, r)
    slopes, intercepts = drawn_lines(truth, score, drawn, (slope, intercept))
    if np.isnan(slopes).mean() > (1 - CONFIDENCE) / 2:  # a quantile may lie among them
        return None, "in too many resamples the out-of-fold scores separate the two classes, so that the line has no interval"
    if float(percentile_interval(slopes)[0]) <= 0:
        return None, "the slope of the line through the out-of-fold scores cannot be told from 0"
    at, each = log_odds(scores), on_line(slope, intercept, scores)  # (f,)
    low, high = percentile_interval(expit(intercepts[:, None] + slopes[:, None] * at).mean(axis=1))
    said = CALIBRATION_SENTENCE.format(n=n, f="one" if len(scores) == 1 else f"the {len(scores)}", share=positive / n)
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
            sentence=said,
        ),
        None,
    )


def reported_verdicts(run: Path) -> tuple[Metrics, Source]:
    """What the report says of a finished run, from its `metrics.json` where that is of this run, else computed (seconds).

    It is of this run where it is whole, names the run's folds and is not older than the out-of-fold predictions. The run's
    tables are taken to be those that were written (`intact.refuse_changed`).
    """
    if found := _reported(run):
        return found, "report"
    from mri_vit.report import assembly  # here, because it imports what a report needs, for seconds
    from mri_vit.report.reading.run import read_run

    return assembly.metrics(read_run(run)), "computed"


def _reported(run: Path) -> Metrics | None:
    file, table = run / files.REPORT / files.METRICS, run / files.PREDICTIONS
    try:
        if file.stat().st_mtime_ns < table.stat().st_mtime_ns:
            return None
        found = Metrics.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):  # none, another version's, or damaged
        return None
    return found if found.folds_sha256 == integrity.sha256(run / files.FOLDS) else None


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
    """Why a prediction of an endpoint is withheld; None where the run told it from chance and nothing speaks against that."""
    result = _own(metrics, endpoint)
    if result is None:
        return NO_RESULT
    if result.verdict_kind != "better":
        return f"the run's result is: {result.verdict}"
    if result.too_good:
        return f"the run's result is {result.too_good}"
    if endpoint in _suspicious({name: one.models for name, one in metrics.endpoints.items()}):
        return SUSPICIOUS
    if result.within_sites and result.within_sites.confounded:
        return CONFOUNDED
    return None


def _own(metrics: Metrics, endpoint: str) -> Result | None:
    return metrics.endpoints[endpoint].models.get(VIT) if endpoint in metrics.endpoints else None


def _suspicious(endpoints: Mapping[str, Mapping[str, Result]]) -> set[str]:
    """The endpoints that a network of permuted labels seems to have found, while no second permutation says whether it did."""
    shuffled = {name: models[SHUFFLED] for name, models in endpoints.items() if SHUFFLED in models}
    limit = suspicion(len(shuffled))
    return {name for name, one in shuffled.items() if one.chance_test.p <= limit and RESHUFFLED not in endpoints[name]}
