"""Whether maps can be believed, and which scan they come from: each patient's figures in, means with 95 % intervals out.

A fall of the evidence is in standard deviations of the evidence that the fold's model gives its test patients, so that
endpoints and folds can be put together. A patient counts once: of several scored visits, the first.

A network of randomised weights draws all patients' maps much alike, so that patients say little about how networks differ: the
network is the unit, and the interval is one over networks. Networks of different folds are different ones.

n is patients, m what is measured of each. NaN is a patient whose value is not known; such a patient is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.errors import UsageError
from mri_vit.kinds.kind import labels
from mri_vit.metrics import intervals
from mri_vit.report.numbers import measures
from mri_vit.report.reading.run import Map, Run
from mri_vit.report.schema.parts import Estimate, Mean
from mri_vit.report.schema.patients import (
    Agreement,
    MapCurves,
    MapFigures,
    MapSettings,
    MapShares,
    MeanCurve,
    Order,
    ScoreShares,
    SequenceShares,
    Stage,
)
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.sections import AnyMethod


def mean(values: Float[np.ndarray, " n"], seed: int) -> Mean:
    """The mean over the patients with a known value."""
    found = means(values[:, None], seed)
    return Mean(value=found.value[0], low=found.low[0], high=found.high[0], n=found.n)


def means(values: Float[np.ndarray, "n m"], seed: int) -> MeanCurve:
    """Means of several measures, over the patients with all of them known; value, low and high are of length m."""
    known = values[~np.isnan(values).any(axis=1)]
    if not len(known):
        nothing = (math.nan,) * values.shape[1]
        return MeanCurve(value=nothing, low=nothing, high=nothing, n=0)
    low, high = intervals.percentile_interval(_weights(len(known), seed) @ known)
    return MeanCurve(value=known.mean(axis=0).tolist(), low=low.tolist(), high=high.tolist(), n=len(known))


def ratio(above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"], seed: int) -> Mean:
    """The mean of `above` over the mean of `below`, over the patients with both known.

    A ratio of means, not a mean of ratios: a patient whose `below` is next to nothing would rule that mean.
    """
    known = ~(np.isnan(above) | np.isnan(below))
    above, below = above[known], below[known]
    if not below.sum() > 0:
        return Mean(value=math.nan, low=math.nan, high=math.nan, n=int(known.sum()))
    weights = _weights(len(below), seed)
    lower = weights @ below
    drawn = np.where(lower > 0, weights @ above, np.nan) / np.where(lower > 0, lower, 1)
    low, high = intervals.percentile_interval(drawn)
    return Mean(value=float(above.sum() / below.sum()), low=float(low), high=float(high), n=len(below))


@cache
def _weights(n: int, seed: int) -> Float[np.ndarray, "draws n"]:
    """Each resample's weight of each patient; equal for equal n, so that methods are compared on the same resamples."""
    return intervals.counts(np.zeros(n), np.random.default_rng(seed)) / n


@dataclass(frozen=True)
class Networks:
    """Fields of a method's result about networks of randomised weights; n is networks, and so intervals are."""

    hit_randomised: Mean
    energy_randomised: Mean


def networks(rows: pd.DataFrame, seed: int) -> Networks:
    """Means over networks of the share of peaks that hit the tumour, and of the energy over the tumour's share.

    Parameters
    ----------
    rows
        A row per patient with `fold`, `tumour_share`, and `hit_randomised` and `energy_randomised`: lists with a value for
        each network of the fold (None where undefined), or None without a tumour mask.

    Returns
    -------
    Networks
        Intervals are 95 %, by a bootstrap of networks. A network's hits are a mean over its fold's patients, its energy a
        ratio of their sums.
    """
    hits, energies = _by_network(rows, "hit_randomised"), _by_network(rows, "energy_randomised")
    hit = hits.groupby(["fold", "network"])["value"].mean()
    sums = energies.groupby(["fold", "network"])[["value", "tumour_share"]].sum()
    sums = sums.loc[sums["tumour_share"] > 0]
    ratio = sums["value"] / sums["tumour_share"]
    return Networks(
        hit_randomised=mean(hit.to_numpy(dtype=float), seed), energy_randomised=mean(ratio.to_numpy(dtype=float), seed)
    )


def _by_network(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """A row per patient and network where both the value and the tumour are known."""
    long = [
        {"fold": fold, "network": index, "value": value, "tumour_share": share}
        for fold, share, values in zip(rows.fold, rows.tumour_share, rows[key], strict=True)
        if isinstance(values, list)  # None, or in a table NaN, without a mask
        for index, value in enumerate(values)
    ]
    table = pd.DataFrame(long, columns=pd.Index(["fold", "network", "value", "tumour_share"]))
    return table.astype({"value": float, "tumour_share": float}).dropna()


def scan_shares(maps: Sequence[Map], channels: Sequence[str], seed: int) -> SequenceShares | None:
    """Mean share of each scan in every endpoint's score and in every map; None where no patient has either.

    Of a patient's visits the first counts. A score's share is the size of the scan's Shapley value, up or down, among those of
    the study's scans.
    """
    scores: dict[str, list[list[float]]] = {}
    shares: dict[tuple[AnyMethod, str], list[list[float]]] = {}
    for shown in {shown.subject: shown for shown in reversed(maps)}.values():
        for endpoint, parts in (shown.facts.get("score_by_scan") or {}).items():
            sizes = [abs(float(parts[scan])) for scan in channels]
            if sum(sizes) > 0:
                scores.setdefault(endpoint, []).append([size / sum(sizes) for size in sizes])
        for entry in shown.facts["maps"]:
            if entry.get("by_scan") and not entry.get("of_class"):
                own = [float(entry["by_scan"][scan]) for scan in channels]
                shares.setdefault((entry["method"], entry["endpoint"]), []).append(own)
    if not scores and not shares:
        return None
    return SequenceShares(
        scores={endpoint: _by_scan(rows, channels, seed) for endpoint, rows in scores.items()},
        maps=tuple(
            MapShares(method=method, endpoint=endpoint, **dict(_by_scan(rows, channels, seed)))
            for (method, endpoint), rows in shares.items()
        ),
    )


def _by_scan(rows: list[list[float]], channels: Sequence[str], seed: int) -> ScoreShares:
    found = means(np.array(rows, float), seed)
    ends = zip(channels, found.value, found.low, found.high, strict=True)
    return ScoreShares(n=found.n, scans={scan: Estimate(value=value, low=low, high=high) for scan, value, low, high in ends})


MODEL = VIT  # whose maps a run holds, beside comparators'
RANDOM = "random"  # the random order of deletion, beside the methods
SIMILARITIES = ("shuffled", "folds", "noise", "shift")  # rank correlations with another map of the same patient
OF_HITS = ("hit_chance", "hit_simulated")  # what chance gives beside the hits: exactly, and by simulation
NUMBERS = ("hit", *OF_HITS, "energy", "tumour_share", "energy_simulated", *SIMILARITIES)
OF_NETWORKS = ("hit_randomised", "energy_randomised")  # a value for each network of randomised weights
Curves = tuple[Float[np.ndarray, " f"], dict[str, Float[np.ndarray, "n f"]]]  # fractions; a row per patient by method


@dataclass(frozen=True)
class EndpointMapFigures:
    """The maps of one endpoint."""

    with_tumour: int  # patients with a tumour mask
    methods: dict[AnyMethod, MapFigures]
    curves: dict[Order, MapCurves]
    agreement: tuple[Agreement, ...]


@dataclass(frozen=True)
class MapEvaluationFigures:
    """The maps of one model."""

    patients: int
    settings: MapSettings
    endpoints: dict[str, EndpointMapFigures]


def measure(run: Run, model: str = MODEL) -> MapEvaluationFigures | None:
    """All figures of a model's maps; None where no patient was scored."""
    written = run.scores if model == MODEL else run.comparator_maps[model].scores
    scores = list({str(score["subject"]): score for score in reversed(written)}.values())[::-1]
    if not scores:
        return None
    found = {e.name: _endpoint(scores, e, spread(run.predictions, e, model), run.study.seed) for e in run.study.endpoints}
    return MapEvaluationFigures(
        patients=len(scores),
        settings=MapSettings.model_validate(scores[0]["settings"]),
        endpoints={name: scored for name, scored in found.items() if scored.methods},
    )


def spread(predictions: pd.DataFrame, endpoint: Endpoint, model: str = MODEL) -> dict[int, float]:
    """Standard deviation of the evidence over each fold's test patients, first repeat; folds where it is 0 or undefined lack.

    Of a patient's visits the first counts, here too.
    """
    rows = predictions.loc[(predictions.endpoint == endpoint.name) & (predictions.model == model) & (predictions.repeat == 0)]
    first = rows.groupby("patient").session.transform("first") == rows.session
    rows = rows.loc[first].dropna(subset=["score"]).astype({"score": float})
    people = labels(endpoint).scores_by(endpoint, rows, ["patient", "fold"])
    evidence = pd.Series(measures.of(endpoint).evidence(endpoint, people), people.index)
    found = pd.Series(evidence.groupby(level="fold").std())
    return {int(fold): float(value) for fold, value in zip(found.index, found, strict=True) if value > 0}


def _endpoint(
    scores: Sequence[Mapping[str, Any]], endpoint: Endpoint, deviations: Mapping[int, float], seed: int
) -> EndpointMapFigures:
    rows = _rows(scores, endpoint.name)
    curves: dict[Order, Curves] = {order: _curves(scores, endpoint.name, order, deviations) for order in get_args(Order)}
    cascade = pd.DataFrame(
        [part for score in scores for part in score["cascade"] if part["endpoint"] == endpoint.name],
        columns=pd.Index(["method", "stage", "similarity"]),
    )
    methods: list[AnyMethod] = [name for name in get_args(AnyMethod) if name in set(rows.method)]
    return EndpointMapFigures(
        with_tumour=int(rows.loc[rows.tumour_share.notna(), "patient"].nunique()),
        methods={
            name: _method(rows.loc[rows.method == name], cascade.loc[cascade.method == name], curves, name, seed)
            for name in methods
        },
        curves={order: _mean_curves(found, methods, seed) for order, found in curves.items()},
        agreement=_agreement(scores, endpoint.name, seed),
    )


def _rows(scores: Sequence[Mapping[str, Any]], endpoint: str) -> pd.DataFrame:
    rows = [
        {"patient": score["patient"], "fold": score["fold"], **row}
        for score in scores
        for row in score["rows"]
        if row["endpoint"] == endpoint
    ]
    table = pd.DataFrame(rows).reindex(columns=pd.Index(["patient", "fold", "method", *NUMBERS, *OF_NETWORKS]))
    return table.astype(dict.fromkeys(NUMBERS, float))


def _method(rows: pd.DataFrame, cascade: pd.DataFrame, curves: Mapping[Order, Curves], name: str, seed: int) -> MapFigures:
    """One method's figures."""
    found: dict[str, Mean] = {}
    for order, (fractions, values) in curves.items():
        # Left out from the full input on, or put in from nothing on: how far the evidence lies below the full input's.
        own = -_area(fractions, values.get(name))
        chance = -_area(fractions, values.get(RANDOM))
        better = own - chance if order == "deletion" else chance - own
        found |= {order: mean(own, seed), f"{order}_random": mean(chance, seed), f"{order}_gain": mean(better, seed)}
    column = {key: rows[key].to_numpy(dtype=float) for key in NUMBERS}
    judged = ~np.isnan(column["hit"])
    rate = intervals.rate(int(column["hit"][judged].sum()), int(judged.sum()))
    found |= {key: mean(np.where(judged, column[key], np.nan), seed) for key in OF_HITS}
    found |= {key: mean(column[key], seed) for key in SIMILARITIES}
    stages = _stages(cascade, seed)
    return MapFigures(
        n=len(rows),
        hits=Mean(value=rate.value, low=rate.low, high=rate.high, n=int(judged.sum())),
        energy_ratio=ratio(column["energy"], column["tumour_share"], seed),
        energy_simulated=ratio(column["energy_simulated"], column["tumour_share"], seed),
        **vars(networks(rows, seed)),
        label_gain=mean(column["folds"] - column["shuffled"], seed),  # networks of true labels agree more
        **found,
        cascade=stages,
        randomised=stages[-1] if stages else mean(np.full(1, np.nan), seed),  # at last every weight is
    )


def _curves(scores: Sequence[Mapping[str, Any]], endpoint: str, order: str, deviations: Mapping[int, float]) -> Curves:
    """Fractions, and by method a row per patient in standard deviations; NaN where a patient has no curve or no deviation."""
    found = [
        {part["method"]: part for part in score["curves"] if part["endpoint"] == endpoint and part["order"] == order}
        for score in scores
    ]
    fractions = next((part["fraction"] for own in found for part in own.values()), [0.0, 1.0])
    for score, own in zip(scores, found, strict=True):
        if any(part["fraction"] != fractions for part in own.values()):
            raise UsageError(
                f"scores of {score['patient']}: {order} at other fractions than {scores[0]['patient']}; explain again"
            )
    nothing = np.full(len(fractions), np.nan)
    values = {
        name: np.stack(
            [
                np.array(own[name]["value"], float) / deviations.get(score["fold"], math.nan) if name in own else nothing
                for score, own in zip(scores, found, strict=True)
            ]
        )
        for name in sorted({name for own in found for name in own})
    }
    return np.array(fractions, float), values


def _area(fractions: Float[np.ndarray, " f"], values: Float[np.ndarray, "n f"] | None) -> Float[np.ndarray, " n"]:
    """The area under each patient's curve: its mean over the fractions, straight between them."""
    return np.full(1, np.nan) if values is None else np.trapezoid(values, fractions, axis=1)


def _mean_curves(curves: Curves, methods: Sequence[str], seed: int) -> MapCurves:
    fractions, values = curves
    found = {name: means(values[name], seed) for name in [*methods, RANDOM] if name in values}
    return MapCurves(fraction=fractions.tolist(), orders=found)


def _stages(cascade: pd.DataFrame, seed: int) -> tuple[Stage, ...]:
    """Rank correlation with the trained map by what was randomised, from the top down, each with all before it."""
    return tuple(
        Stage(stage=stage, **dict(mean(cascade.loc[cascade.stage == stage, "similarity"].to_numpy(dtype=float), seed)))
        for stage in cascade.stage.unique()
    )


def _agreement(scores: Sequence[Mapping[str, Any]], endpoint: str, seed: int) -> tuple[Agreement, ...]:
    """Rank correlation of each pair of methods' maps of the same patient."""
    pairs: dict[tuple[AnyMethod, AnyMethod], list[float]] = {}
    for score in scores:
        for part in score["agreement"]:
            if part["endpoint"] == endpoint:
                value = math.nan if part["similarity"] is None else part["similarity"]
                pairs.setdefault((part["method"], part["other"]), []).append(value)
    return tuple(
        Agreement(method=method, other=other, **dict(mean(np.array(values, float), seed)))
        for (method, other), values in pairs.items()
    )
