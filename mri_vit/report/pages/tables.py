"""The report's tables as CSV: metrics.json in, a DataFrame per file out, and text that no spreadsheet takes for a formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from mri_vit.report.reading.run import Run

Metrics = Mapping[str, Any]

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first letters by which a spreadsheet takes text for a formula (OWASP, CSV injection)


def of_report(run: Run, metrics: Mapping[str, Any], survivors: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table by its file name; one that would be empty is left out, but for the excluded.

    `survivors` are the Kaplan–Meier curves of the risk groups, as drawn.
    """
    tables = {
        "results": pd.DataFrame(list(_results(metrics))),
        "contenders": pd.DataFrame([_flat(contender) for contender in metrics["contenders"]]),
        "folds": _long(metrics, "folds"),
        "roc": pd.DataFrame(list(_curves(metrics, "roc"))),
        "precision_recall": pd.DataFrame(list(_curves(metrics, "precision_recall"))),
        "calibration": pd.DataFrame(list(_calibration(metrics))),
        "decision": pd.DataFrame(list(_decision(metrics))),
        "survival_curves": pd.DataFrame(list(_curves(metrics, "curve"))),
        "kaplan_meier": survivors,
        "subgroups": pd.DataFrame(
            [{"endpoint": name, **row} for name, e in metrics["endpoints"].items() for row in e.get("subgroups") or ()]
        ),
        "map_scores": pd.DataFrame(list(_map_scores(metrics))),
        "map_curves": pd.DataFrame(list(_map_curves(metrics))),
        "map_cascade": pd.DataFrame(list(_map_parts(metrics, "cascade"))),
        "map_agreement": pd.DataFrame(
            [{"endpoint": name, **pair} for name, endpoint in _scored(metrics) for pair in endpoint["agreement"]]
        ),
    }
    return {"excluded": run.excluded} | {name: table for name, table in tables.items() if len(table)}


def to_csv(table: pd.DataFrame) -> str:
    """CSV whose text cells are text to a spreadsheet too: a leading = + - @ gets an apostrophe before it. Numbers stay."""
    return table.map(_harmless).to_csv(index=False, lineterminator="\n")


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _of_models(metrics: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Mapping[str, Any], Mapping[str, Any]]]:
    for name, endpoint in metrics["endpoints"].items():
        for model, result in endpoint["models"].items():
            yield {"endpoint": name, "model": model}, endpoint, result


def _results(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row per endpoint and model with every measure that is one value, named by its path, e.g. `auc.low`."""
    for head, endpoint, result in _of_models(metrics):
        yield {**head, "kind": endpoint["kind"], **_flat(result)}


def _flat(part: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in part.items():
        if isinstance(value, Mapping):
            row |= _flat(value, f"{above}{key}.")
        elif not isinstance(value, list | tuple):
            row[f"{above}{key}"] = value
    return row


def _long(metrics: Mapping[str, Any], key: str) -> pd.DataFrame:
    return pd.DataFrame([{**head, **row} for head, _, result in _of_models(metrics) for row in result[key]])


def _curves(metrics: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """A row per point of a curve that stands in a result as lists of equal length."""
    for head, _, result in _of_models(metrics):
        curve = result.get(key) or {}
        for point in zip(*curve.values(), strict=True):
            yield {**head, **dict(zip(curve, point, strict=True))}


def _calibration(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for head, endpoint, result in _of_models(metrics):
        if endpoint["kind"] == "binary":
            for point in (result["calibration"] or {"bins": []})["bins"]:
                yield {**head, "days": None, **point}
        for at in result.get("calibration_at") or ():
            for group in at["groups"]:
                yield {**head, "days": at["days"], **group}


def _decision(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for head, endpoint, result in _of_models(metrics):
        if endpoint["kind"] == "binary" and result["net_benefit"]:
            columns = zip(endpoint["thresholds"], result["net_benefit"], endpoint["net_benefit_of_all"], strict=True)
            for threshold, benefit, everybody in columns:
                yield {**head, "threshold": threshold, "net_benefit": benefit, "net_benefit_of_all": everybody}


def _scored(metrics: Metrics) -> list[tuple[str, Metrics]]:
    return list((metrics["map_scores"] or {"endpoints": {}})["endpoints"].items())


def _map_scores(metrics: Metrics) -> Iterator[dict[str, Any]]:
    """A row per endpoint and method with every figure that is one value."""
    for name, endpoint in _scored(metrics):
        for method, result in endpoint["methods"].items():
            yield {"endpoint": name, "method": method, **_flat(result)}


def _map_parts(metrics: Metrics, key: str) -> Iterator[dict[str, Any]]:
    for name, endpoint in _scored(metrics):
        for method, result in endpoint["methods"].items():
            for part in result[key]:
                yield {"endpoint": name, "method": method, **part}


def _map_curves(metrics: Metrics) -> Iterator[dict[str, Any]]:
    """A row per endpoint, order of removal and fraction, in standard deviations of the evidence."""
    for name, endpoint in _scored(metrics):
        for order, found in endpoint["curves"].items():
            for method, curve in found["orders"].items():
                points = zip(found["fraction"], curve["value"], curve["low"], curve["high"], strict=True)
                for point in points:
                    row = dict(zip(("fraction", "value", "low", "high"), point, strict=True))
                    yield {"endpoint": name, "curve": order, "method": method, **row}
