"""Whether maps can be believed: scored patients' figures in, means with intervals and a verdict per method and endpoint out.

A fall of the evidence is in standard deviations of the evidence that the fold's model gives its test patients, so that
endpoints and folds can be put together. A patient counts once: of several scored visits, the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import logit

from mri_vit.errors import UsageError
from mri_vit.explain.methods.names import METHODS
from mri_vit.metrics import proportion
from mri_vit.report.numbers.means import mean, means, ratio
from mri_vit.report.numbers.randomised import networks
from mri_vit.report.reading.run import Map, Run
from mri_vit.report.verdicts import maps as map_verdict
from mri_vit.settings.models import VIT
from mri_vit.settings.schema import Endpoint

MODEL = VIT  # whose maps a run holds
RANDOM = "random"  # the random order of deletion, beside the methods
NEXT_TO = 1e-7  # of a probability to 0 and 1, about single precision's step: a score of exactly 1 has no log odds
SIMILAR = ("shuffled", "folds", "noise", "shift")  # rank correlations with another map of the same patient
OF_HITS = ("hit_chance", "hit_simulated")  # what chance gives beside the hits: exactly, and by simulation
NUMBERS = ("hit", *OF_HITS, "energy", "tumour_share", "energy_simulated", *SIMILAR)
OF_NETWORKS = ("hit_randomised", "energy_randomised")  # a value for each network of randomised weights


def measure(run: Run, kinds: Mapping[str, str]) -> dict[str, Any] | None:
    """All figures of the maps; None where no patient was scored.

    Parameters
    ----------
    kinds
        By endpoint, the kind of the verdict on the model whose maps these are; "undefined" where it has no result.
    """
    scores = list({str(score["subject"]): score for score in reversed(run.scores)}.values())[::-1]
    if not scores:
        return None
    found = {e.name: _endpoint(scores, e, spread(run.predictions, e), kinds[e.name], run.study.seed) for e in run.study.endpoints}
    return {
        "patients": len(scores),
        "settings": scores[0]["settings"],
        "rules": map_verdict.rules(),
        "endpoints": {name: scored for name, scored in found.items() if scored["methods"]},
    }


def spread(predictions: pd.DataFrame, endpoint: Endpoint) -> dict[int, float]:
    """Standard deviation of the evidence over each fold's test patients, first repeat; folds where it is 0 or undefined lack.

    Of a patient's visits the first counts, here too.
    """
    rows = predictions.loc[
        (predictions.endpoint == endpoint.name) & (predictions.model == MODEL) & (predictions.repeat == 0),
        ["patient", "fold", "score"],
    ]
    rows = rows.drop_duplicates("patient").dropna(subset=["score"])
    score = rows.score.astype(float)
    evidence = logit(score.clip(NEXT_TO, 1 - NEXT_TO)) if endpoint.kind == "binary" else score
    deviations = evidence.groupby(rows.fold).std()
    return {int(fold): float(value) for fold, value in deviations.items() if value > 0}


def best(scored: Mapping[str, Any], endpoint: str) -> str | None:
    """The method whose maps of an endpoint pass and lie most on the tumour, or, without masks, fall furthest beyond random."""
    methods = scored["endpoints"].get(endpoint, {"methods": {}})["methods"]
    passing = [name for name, result in methods.items() if result["verdict_kind"] == "passes"]

    def rank(name: str) -> tuple[float, float]:
        figures = (methods[name]["energy_ratio"]["value"], methods[name]["deletion_gain"]["value"])
        on_tumour, gain = (-math.inf if value is None or math.isnan(value) else float(value) for value in figures)
        return on_tumour, gain

    return max(passing, key=rank) if passing else None


def told(maps: Sequence[Map], scored: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What `metrics.json` says of each patient's maps, those that carry a finding first.

    Each map gets the verdict on its method: for an endpoint-free one, that on the endpoint where it does best.
    """
    return [_told(shown, scored or {"endpoints": {}}) for shown in maps]


def _told(shown: Map, scored: Mapping[str, Any]) -> dict[str, Any]:
    entries = []
    for index, entry in enumerate(shown.facts["maps"]):
        verdicts = _verdicts(entry, scored)
        kind = verdicts[0]["kind"] if verdicts else "undefined"
        keys = ("method", "endpoint", "title", "explains", "unit", "peak", "peak_mm", "by_scan")
        entries.append({key: entry.get(key) for key in keys} | {"index": index, "kind": kind, "verdicts": verdicts})
    entries.sort(key=lambda entry: (map_verdict.ORDER.index(entry["kind"]), not entry["endpoint"]))  # ties: the file's order
    head = {key: shown.facts.get(key) for key in ("model", "repeat", "fold", "tokens")}
    return {"patient": shown.patient, **head, "maps": entries}


def _verdicts(entry: Mapping[str, Any], scored: Mapping[str, Any]) -> list[dict[str, str]]:
    """The verdict on a map's method for its endpoint; an endpoint-free one is judged for each, the best first."""
    found = [
        {"endpoint": name, "kind": endpoint["methods"][entry["method"]]["verdict_kind"], "sentence": sentence}
        for name, endpoint in scored["endpoints"].items()
        if entry["method"] in endpoint["methods"] and entry["endpoint"] in ("", name)
        for sentence in [endpoint["methods"][entry["method"]]["verdict"]]
    ]
    return sorted(found, key=lambda verdict: map_verdict.ORDER.index(verdict["kind"]))


def _endpoint(
    scores: Sequence[Mapping[str, Any]], endpoint: Endpoint, deviations: Mapping[int, float], kind: str, seed: int
) -> dict[str, Any]:
    rows = _rows(scores, endpoint.name)
    curves = {order: _curves(scores, endpoint.name, order, deviations) for order in ("deletion", "insertion")}
    cascade = pd.DataFrame(
        [part for score in scores for part in score["cascade"] if part["endpoint"] == endpoint.name],
        columns=pd.Index(["method", "stage", "similarity"]),
    )
    methods = [name for name in METHODS if name in set(rows.method)]
    results = {}
    for name in methods:
        result = _method(rows.loc[rows.method == name], curves, name, seed)
        result["cascade"] = _stages(cascade.loc[cascade.method == name], seed)
        result["randomised"] = next(
            (stage for stage in result["cascade"] if stage["stage"] == map_verdict.ALL_WEIGHTS),
            mean(np.full(1, np.nan), seed),
        )
        verdict = map_verdict.of_method(result, endpoint.name, kind)
        results[name] = result | {"verdict": verdict.sentence, "checks": verdict.checks, "verdict_kind": verdict.kind}
    return {
        "predicted": kind,
        "no_finding": None if kind == "better" else map_verdict.no_finding(endpoint.name, kind),
        "with_tumour": int(rows.loc[rows.tumour_share.notna(), "patient"].nunique()),
        "methods": results,
        "curves": {order: _mean_curves(found, methods, seed) for order, found in curves.items()},
        "agreement": _agreement(scores, endpoint.name, seed),
    }


def _rows(scores: Sequence[Mapping[str, Any]], endpoint: str) -> pd.DataFrame:
    rows = [
        {"patient": score["patient"], "fold": score["fold"], **row}
        for score in scores
        for row in score["rows"]
        if row["endpoint"] == endpoint
    ]
    table = pd.DataFrame(rows).reindex(columns=pd.Index(["patient", "fold", "method", *NUMBERS, *OF_NETWORKS]))
    return table.astype(dict.fromkeys(NUMBERS, float))


def _method(rows: pd.DataFrame, curves: Mapping[str, Any], name: str, seed: int) -> dict[str, Any]:
    """One method's figures, but for the cascade."""
    result: dict[str, Any] = {"n": len(rows)}
    for order, (fractions, values) in curves.items():
        # Left out from the full input on, or put in from nothing on: how far the evidence lies below the full input's.
        own = -_area(fractions, values.get(name))
        chance = -_area(fractions, values.get(RANDOM))
        better = own - chance if order == "deletion" else chance - own
        result |= {order: mean(own, seed), f"{order}_random": mean(chance, seed), f"{order}_gain": mean(better, seed)}
    column = {key: rows[key].to_numpy(dtype=float) for key in NUMBERS}
    judged = ~np.isnan(column["hit"])
    rate = proportion.rate(int(column["hit"][judged].sum()), int(judged.sum()))
    result["hits"] = {"value": rate.value, "low": rate.low, "high": rate.high, "n": int(judged.sum())}
    result |= {key: mean(np.where(judged, column[key], np.nan), seed) for key in OF_HITS}
    result["energy_ratio"] = ratio(column["energy"], column["tumour_share"], seed)
    result["energy_simulated"] = ratio(column["energy_simulated"], column["tumour_share"], seed)
    result |= networks(rows, seed)
    result["label_gain"] = mean(column["folds"] - column["shuffled"], seed)  # networks of true labels agree more
    return result | {key: mean(column[key], seed) for key in SIMILAR}


def _curves(
    scores: Sequence[Mapping[str, Any]], endpoint: str, order: str, deviations: Mapping[int, float]
) -> tuple[Float[np.ndarray, " f"], dict[str, Float[np.ndarray, "n f"]]]:
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


def _mean_curves(
    curves: tuple[Float[np.ndarray, " f"], Mapping[str, Float[np.ndarray, "n f"]]], methods: Sequence[str], seed: int
) -> dict[str, Any]:
    fractions, values = curves
    found = {name: means(values[name], seed) for name in [*methods, RANDOM] if name in values}
    return {"fraction": fractions.tolist(), "orders": found}


def _stages(cascade: pd.DataFrame, seed: int) -> list[dict[str, Any]]:
    """Rank correlation with the trained map by what was randomised, from the top down, each with all before it."""
    return [
        {"stage": stage, **mean(cascade.loc[cascade.stage == stage, "similarity"].to_numpy(dtype=float), seed)}
        for stage in cascade.stage.unique()
    ]


def _agreement(scores: Sequence[Mapping[str, Any]], endpoint: str, seed: int) -> list[dict[str, Any]]:
    """Rank correlation of each pair of methods' maps of the same patient."""
    pairs: dict[tuple[str, str], list[float]] = {}
    for score in scores:
        for part in score["agreement"]:
            if part["endpoint"] == endpoint:
                value = math.nan if part["similarity"] is None else part["similarity"]
                pairs.setdefault((part["method"], part["other"]), []).append(value)
    return [
        {"method": method, "other": other, **mean(np.array(values, float), seed)} for (method, other), values in pairs.items()
    ]
