"""Endpoints: what the networks say of a patient and what the run says of its model go in; what is shown of each comes out.

Letters: f folds' models, t horizons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.prediction import trust
from mri_vit.prediction.calibration import on_line, probability
from mri_vit.prediction.document import (
    Binary,
    BinaryValue,
    Calibrated,
    Horizon,
    NetworkScore,
    Spread,
    Survival,
    SurvivalValue,
)
from mri_vit.prediction.networks import Said
from mri_vit.report.schema.metrics import Metrics
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.recipe import VIT

Side = Literal["positive", "negative"]
UNLEARNED = "no network learned it: no fold had enough labels"
EVEN = 0.5  # of a calibrated probability: on either side of it a call is right more often than wrong


@dataclass(frozen=True)
class OfRun:
    """What of a run an endpoint's prediction rests on: the verdicts, and its own model's out-of-fold rows."""

    metrics: Metrics
    rows: pd.DataFrame  # of predictions.csv, the own model's
    seed: int

    @classmethod
    def of(cls, metrics: Metrics, predictions: pd.DataFrame, seed: int) -> OfRun:
        return cls(metrics, predictions.loc[predictions.model == VIT], seed)

    def of_endpoint(self, name: str) -> pd.DataFrame:
        """The rows of one endpoint."""
        return self.rows.loc[self.rows.endpoint == name]

    def reason(self, endpoint: Endpoint, said: Sequence[Said]) -> str | None:
        """Why nothing may be shown of an endpoint; None where something may."""
        return trust.reason(self.metrics, endpoint.name) if _with_head(said, endpoint.name) else UNLEARNED


def of_endpoint(
    endpoint: Endpoint, said: Sequence[Said], run: OfRun, show_untrusted: bool, doubt: str | None = None
) -> Binary | Survival:
    """What is shown of one endpoint; with `show_untrusted` also what the run did not tell from chance, and why.

    `doubt` says why nothing of the run holds for this patient; what is shown then is marked with it.
    """
    reason = run.reason(endpoint, said)
    shown = reason is None or (show_untrusted and reason != UNLEARNED)
    untrusted = "; ".join(filter(None, (doubt, reason))) or None
    about = {
        "of_run": trust.of_run(run.metrics, endpoint.name),
        "withheld": None if shown else reason,
        "untrusted": untrusted if shown else None,
    }
    own = _with_head(said, endpoint.name)
    if endpoint.kind == "binary":
        return Binary(kind="binary", value=_binary(endpoint.name, own, run, untrusted) if shown else None, **about)
    return Survival(kind="survival", value=_survival(endpoint.name, own, run) if shown else None, **about)


def score(said: Sequence[Said], endpoint: str) -> float:
    """The mean over folds of each fold's mean over its seeds, as `external.mean_of_folds` has it; NaN where nobody has a head."""
    own = _with_head(said, endpoint)
    return float(np.mean([one.score(endpoint) for one in own])) if own else math.nan


def models(said: Sequence[Said], endpoint: str) -> int:
    """Folds whose model has a head for an endpoint."""
    return len(_with_head(said, endpoint))


def survival(said: Sequence[Said], endpoint: str) -> Float[np.ndarray, " t"]:
    """The mean survival at the horizons, likewise."""
    return np.mean([np.mean([one[endpoint] for one in fold.survival], axis=0) for fold in _with_head(said, endpoint)], axis=0)


def _with_head(said: Sequence[Said], endpoint: str) -> list[Said]:
    return [one for one in said if endpoint in one.scores[0]]


def _binary(name: str, said: Sequence[Said], run: OfRun, untrusted: str | None) -> BinaryValue:
    rows = run.of_endpoint(name)
    each = np.array([one.score(name) for one in said])
    calibrated, why = None, "what is not to be trusted is not calibrated"
    if untrusted is None:
        calibrated, why = probability(rows, each, np.random.default_rng(run.seed))
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


def network_side(fold: Said, endpoint: str, value: BinaryValue) -> Side | None:
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


def _survival(name: str, said: Sequence[Said], run: OfRun) -> SurvivalValue:
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


def _shared(name: str, said: Sequence[Said], rows: pd.DataFrame) -> dict[str, Any]:
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
