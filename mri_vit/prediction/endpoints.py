"""Endpoints: what the networks say of a patient and what the run says of its model go in; what is shown of each comes out.

Letters: f folds' models, t horizons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.prediction import trust
from mri_vit.prediction.calibration import probability
from mri_vit.prediction.document import Binary, BinaryValue, Horizon, NetworkScore, Spread, Survival, SurvivalValue
from mri_vit.prediction.networks import Said
from mri_vit.report.schema.metrics import Metrics
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.models import VIT

UNLEARNED = "no network learned it: no fold had enough labels"
HIGH = {"binary": ("negative", "positive"), "survival": ("low risk", "high risk")}


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


def of_endpoint(endpoint: Endpoint, said: Sequence[Said], run: OfRun, show_untrusted: bool) -> Binary | Survival:
    """What is shown of one endpoint; with `show_untrusted` also what the run did not tell from chance, and why."""
    reason = run.reason(endpoint, said)
    shown = reason is None or (show_untrusted and reason != UNLEARNED)
    about = {
        "of_run": trust.of_run(run.metrics, endpoint.name),
        "withheld": None if shown else reason,
        "untrusted": reason if shown else None,
    }
    own = _with_head(said, endpoint.name)
    if endpoint.kind == "binary":
        return Binary(kind="binary", value=_binary(endpoint.name, own, run, reason) if shown else None, **about)
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


def _binary(name: str, said: Sequence[Said], run: OfRun, reason: str | None) -> BinaryValue:
    rows = run.of_endpoint(name)
    each = np.array([one.score(name) for one in said])
    calibrated, why = None, "the run did not tell the endpoint from chance"
    if reason is None:
        calibrated, why = probability(rows, each, np.random.default_rng(run.seed))
    shared = _shared(name, said, rows)
    return BinaryValue(side=_side("binary", shared), probability=calibrated, uncalibrated=why, **shared)  # type: ignore[arg-type]


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
    return SurvivalValue(side=_side("survival", shared), horizons=horizons, **shared)  # type: ignore[arg-type]


def _shared(name: str, said: Sequence[Said], rows: pd.DataFrame) -> dict:
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


def _side(kind: str, shared: dict) -> str | None:
    if math.isnan(shared["threshold"]):
        return None
    return HIGH[kind][shared["score"] >= shared["threshold"]]


def _deviation(values: Float[np.ndarray, " n"]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan
