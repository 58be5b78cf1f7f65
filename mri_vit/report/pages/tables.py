"""The report's tables as CSV: `metrics.json` in, a DataFrame per file out, and text that no spreadsheet takes for a formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pandas as pd

from mri_vit.data.sheet import harmless
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult
from mri_vit.report.schema.maps import EndpointMaps, MapResult
from mri_vit.report.schema.metrics import Endpoint, Metrics
from mri_vit.report.schema.parts import Band, Part
from mri_vit.report.schema.patients import Patient
from mri_vit.report.schema.survival import CoxComparison, SurvivalEndpoint, SurvivalResult

Cells = dict[str, Any]  # of one row, by column
T = TypeVar("T")


def of_report(run: Run, metrics: Metrics, survivors: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table by its file name; one that would be empty is left out, but for the excluded.

    `survivors` are the Kaplan–Meier curves of the risk groups, as drawn.
    """
    tables = {
        "results": pd.DataFrame(list(_results(metrics))),
        "contenders": pd.DataFrame([_flat(_cells(model)) for model in metrics.contenders]),
        "folds": pd.DataFrame([{**head, **_cells(fold)} for head, _, result in _of_models(metrics) for fold in result.folds]),
        "roc": pd.DataFrame(list(_curves(metrics, "roc"))),
        "precision_recall": pd.DataFrame(list(_curves(metrics, "precision_recall"))),
        "calibration": pd.DataFrame(list(_calibration(metrics))),
        "decision": pd.DataFrame(list(_decision(metrics))),
        "survival_curves": pd.DataFrame(list(_curves(metrics, "curve"))),
        "kaplan_meier": survivors,
        "table1": pd.DataFrame(list(_characteristics(metrics))),
        "patients": pd.DataFrame([_patient(one) for one in metrics.patients]),
        "subgroups": pd.DataFrame(
            [{"endpoint": name, **_cells(row)} for name, found in metrics.endpoints.items() for row in found.subgroups]
        ),
        "pairs": pd.DataFrame(
            [{"endpoint": name, **_flat(_cells(pair))} for name, found in metrics.endpoints.items() for pair in found.pairs]
        ),
        "added_value": pd.DataFrame(list(_hazard_ratios(metrics))),
        "drift": pd.DataFrame([{**head, **_flat(_cells(one))} for head, drifts in _by_model(metrics.drift) for one in drifts]),
        "new_hospital": pd.DataFrame([{**head, **_flat(_cells(one))} for head, one in _by_model(metrics.new_hospital)]),
        "map_scores": pd.DataFrame([{**head, **_flat(_cells(result))} for head, result in _map_results(metrics)]),
        "comparator_map_scores": pd.DataFrame(list(_of_comparators(metrics))),
        "map_curves": pd.DataFrame(list(_map_curves(metrics))),
        "map_cascade": pd.DataFrame(
            [{**head, **_cells(stage)} for head, result in _map_results(metrics) for stage in result.cascade]
        ),
        "map_agreement": pd.DataFrame(
            [{"endpoint": name, **_cells(pair)} for name, endpoint in _scored(metrics) for pair in endpoint.agreement]
        ),
    }
    return {"excluded": run.excluded} | {name: table for name, table in tables.items() if len(table)}


def to_csv(table: pd.DataFrame) -> str:
    """CSV whose text cells are text to a spreadsheet too: a leading = + - @ gets an apostrophe before it. Numbers stay."""
    return table.map(harmless).to_csv(index=False, lineterminator="\n")


def _cells(part: Part) -> Cells:
    """A part as the file has it, null where it is undefined."""
    return part.model_dump(mode="json")


def _of_models(metrics: Metrics) -> Iterator[tuple[Cells, Endpoint, BinaryResult | SurvivalResult]]:
    for name, endpoint in metrics.endpoints.items():
        for model, result in endpoint.models.items():
            yield {"endpoint": name, "model": model}, endpoint, result


def _by_model(found: Mapping[str, Mapping[str, T]]) -> Iterator[tuple[Cells, T]]:
    for name, models in found.items():
        for model, one in models.items():
            yield {"endpoint": name, "model": model}, one


def _results(metrics: Metrics) -> Iterator[Cells]:
    """A row per endpoint and model with every measure that is one value, named by its path, e.g. `auc.low`."""
    for head, endpoint, result in _of_models(metrics):
        yield {**head, "kind": endpoint.kind, **_flat(_cells(result))}


def _hazard_ratios(metrics: Metrics) -> Iterator[Cells]:
    """A row per survival endpoint, Cox regression and column."""
    for name, endpoint in metrics.endpoints.items():
        added = endpoint.added_value if isinstance(endpoint, SurvivalEndpoint) else None
        if added and isinstance(added.analysis, CoxComparison):
            analysis = added.analysis
            for regression, ratios in (("covariates", analysis.without), ("risk", analysis.alone), ("both", analysis.both)):
                head = {"endpoint": name, "model": added.model, "regression": regression}
                for column, ratio in ratios.items():
                    yield {**head, "column": column, **_cells(ratio)}


def _flat(part: Cells, above: str = "") -> Cells:
    row: Cells = {}
    for key, value in part.items():
        if isinstance(value, dict):
            row |= _flat(value, f"{above}{key}.")
        elif not isinstance(value, list):
            row[f"{above}{key}"] = value
    return row


def _characteristics(metrics: Metrics) -> Iterator[Cells]:
    """A row per characteristic, split and level; of a number or a follow-up there is one level, without a name."""
    for row in metrics.table1.rows:
        for split, cell in zip(metrics.table1.splits, row.cells, strict=True):
            figures = _cells(cell)
            counts = figures.pop("counts") or [None]
            for level, count in zip(row.levels or ("",), counts, strict=True):
                head = {"column": row.column, "kind": row.kind, "level": level, "split": split.name, "n": split.n}
                yield {**head, "count": count, **figures, "by_chance": _cells(split)["by_chance"]}


def _patient(one: Patient) -> Cells:
    """A row per patient; of each endpoint, columns such as `mgmt.error`."""
    cells = _cells(one)
    several = {key: " ".join(cells[key]) for key in ("sessions", "maps")} | {"findings": "; ".join(cells["findings"])}
    return _flat({**cells, **several, "endpoints": {}}) | _flat(cells["endpoints"])


def _curves(metrics: Metrics, key: str) -> Iterator[Cells]:
    """A row per point of a curve that stands in a result as lists of equal length."""
    for head, _, result in _of_models(metrics):
        curve = _cells(found) if (found := getattr(result, key, None)) else {}
        for point in zip(*curve.values(), strict=True):
            yield {**head, **dict(zip(curve, point, strict=True))}


def _calibration(metrics: Metrics) -> Iterator[Cells]:
    for head, _, result in _of_models(metrics):
        if isinstance(result, BinaryResult):
            for group in result.calibration.bins if result.calibration else ():
                yield {**head, "days": None, **_cells(group)}
        else:
            for at in result.calibration_at:
                for group in at.groups:
                    yield {**head, "days": at.days, **_cells(group)}


def _decision(metrics: Metrics) -> Iterator[Cells]:
    """A row per threshold; of survival, for each day."""
    for name, endpoint in metrics.endpoints.items():
        for model, result in endpoint.models.items():
            found: list[tuple[int | float | None, tuple[float, ...], Band | None, tuple[float, ...]]] = []
            if isinstance(endpoint, BinaryEndpoint) and isinstance(result, BinaryResult) and result.net_benefit:
                found.append((None, result.net_benefit, result.net_benefit_band, endpoint.net_benefit_of_all))
            if isinstance(result, SurvivalResult):
                found += [(at.days, at.net_benefit, at.net_benefit_band, at.net_benefit_of_all) for at in result.decision_at]
            for days, benefit, band, of_all in found:
                empty = (None,) * len(benefit)
                columns = {"threshold": endpoint.thresholds, "net_benefit": benefit}
                columns |= {
                    "low": band.low if band else empty,
                    "high": band.high if band else empty,
                    "net_benefit_of_all": of_all,
                }
                for row in zip(*columns.values(), strict=True):
                    yield {"endpoint": name, "model": model, "days": days, **dict(zip(columns, row, strict=True))}


def _scored(metrics: Metrics) -> list[tuple[str, EndpointMaps]]:
    return list(metrics.map_scores.endpoints.items()) if metrics.map_scores else []


def _map_results(metrics: Metrics) -> Iterator[tuple[Cells, MapResult]]:
    for name, endpoint in _scored(metrics):
        for method, result in endpoint.methods.items():
            yield {"endpoint": name, "method": method}, result


def _of_comparators(metrics: Metrics) -> Iterator[Cells]:
    """A row per comparator, endpoint and method, like those of the own model."""
    for model, found in metrics.comparator_maps.items():
        for name, endpoint in (found.scores.endpoints if found.scores else {}).items():
            for method, result in endpoint.methods.items():
                yield {"model": model, "endpoint": name, "method": method, **_flat(_cells(result))}


def _map_curves(metrics: Metrics) -> Iterator[Cells]:
    """A row per endpoint, order of removal and fraction, in standard deviations of the evidence."""
    for name, endpoint in _scored(metrics):
        for order, found in endpoint.curves.items():
            for method, curve in found.orders.items():
                for point in zip(found.fraction, curve.value, curve.low, curve.high, strict=True):
                    row = dict(zip(("fraction", "value", "low", "high"), point, strict=True))
                    yield {"endpoint": name, "curve": order, "method": method, **row}
