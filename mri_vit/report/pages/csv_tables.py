"""The report's tables as CSV: `metrics.json` in, a DataFrame per file out, and text that no spreadsheet takes for a formula."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd

from mri_vit.data.sheet import harmless
from mri_vit.report.figures import gallery
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.interactions import InteractionTest
from mri_vit.report.schema.kinds import AnyEndpoint, AnySubgroup, Result
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Band, CalibrationGroup, Part
from mri_vit.report.schema.patients import EndpointMaps, MapEvaluation, MapResult, Patient
from mri_vit.report.schema.survival import CoxComparison

SET_PARTS = ("classes", "sites")
Cells = dict[str, Any]  # of one row, by column
T = TypeVar("T")


def report_tables(run: Run, metrics: Metrics, survivors: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table by its file name; empty ones are left out, except that of excluded patients.

    `survivors` are the Kaplan–Meier curves of the risk groups, as drawn.
    """
    rows: dict[str, Iterable[Cells]] = {
        "results": _results(metrics),
        "compared_models": map(_row, metrics.compared_models),
        "folds": ({**head, **_cells(fold)} for head, _, result in _of_models(metrics) for fold in result.folds),
        "roc": _curves(metrics, "roc"),
        "precision_recall": _curves(metrics, "precision_recall"),
        "calibration": _calibration(metrics),
        "decision": _decision(metrics),
        "survival_curves": _curves(metrics, "curve"),
        "table1": _characteristics(metrics),
        "patients": map(_patient, metrics.patients),
        "subgroups": ({"endpoint": name, **_subgroup(row)} for name, e in metrics.endpoints.items() for row in e.subgroups),
        "interactions": ({"endpoint": name, **_tested(one)} for name, e in metrics.interactions.items() for one in e.tests),
        "utility": _utility(metrics),
        "unlabelled": ({"endpoint": name, **_row(one)} for name, e in metrics.unlabelled.items() for one in e.characteristics),
        "pairs": ({"endpoint": name, **_row(pair)} for name, e in metrics.endpoints.items() for pair in e.pairs),
        "added_value": _hazard_ratios(metrics),
        "instability": ({**head, **_row(one)} for head, found in _by_model(metrics.instability) for one in found),
        "prediction_sets": ({**head, **_row(one)} for head, one in _by_model(metrics.prediction_sets)),
        "coverage": (
            {**head, "of": kind, **_cells(one)}
            for head, found in _by_model(metrics.prediction_sets)
            for kind in SET_PARTS
            for one in getattr(found, kind)
        ),
        "drift": ({**head, **_row(drift)} for head, drifts in _by_model(metrics.drift) for drift in drifts),
        "new_hospital": ({**head, **_row(expected)} for head, expected in _by_model(metrics.new_hospital)),
        "hospitals": ({**head, **_row(found)} for head, found in _by_model(metrics.hospitals)),
        "hospital_figures": ({**head, **_row(site)} for head, found in _by_model(metrics.hospitals) for site in found.sites),
        "margins": ({**head, **_row(test)} for head, found in _by_model(metrics.margins) for test in found.tests),
        "map_scores": ({**head, **_row(result)} for head, result in _map_results(metrics.map_scores)),
        "comparator_map_scores": (
            {"model": model, **head, **_row(result)}
            for model, maps in metrics.comparator_maps.items()
            for head, result in _map_results(maps.scores)
        ),
        "map_curves": _map_curves(metrics),
        "map_cascade": (
            {**head, **_cells(stage)} for head, result in _map_results(metrics.map_scores) for stage in result.cascade
        ),
        "map_agreement": ({"endpoint": name, **_cells(pair)} for name, e in _scored(metrics.map_scores) for pair in e.agreement),
    }
    curves = {"kaplan_meier": survivors, "cumulative_incidence": gallery.incidence_curves(run, metrics)}
    tables = {"excluded": run.excluded} | curves | {name: pd.DataFrame(list(r)) for name, r in rows.items()}
    return {name: table for name, table in tables.items() if len(table) or name == "excluded"}


def to_csv(table: pd.DataFrame) -> str:
    """CSV whose text cells no spreadsheet takes for formulas: a leading = + - @ gets an apostrophe. Numbers are unchanged."""
    return table.map(_cell).map(harmless).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> Any:
    """Counts by name in one cell: `gbm 9; astro 7`."""
    return "; ".join(f"{name} {count}" for name, count in value.items()) if isinstance(value, dict) else value


def _cells(part: Part) -> Cells:
    """A part as in metrics.json, null where undefined."""
    return part.model_dump(mode="json")


def _subgroup(part: AnySubgroup) -> Cells:
    """A part of the cohort, what is measured beside its judged figure by its path, e.g. `sensitivity.low`."""
    cells = _cells(part)
    return cells | _flat(cells.pop("beside", {}))


def _tested(test: InteractionTest) -> Cells:
    return _cells(test) | {"levels": "; ".join(test.levels)}


def _utility(metrics: Metrics) -> Iterator[Cells]:
    """A row per model, day and threshold: the net benefit less the better of acting on all and on none, with its band."""
    for name, found in (metrics.utility.endpoints if metrics.utility else {}).items():
        for one in found:
            for point in zip(one.thresholds, one.difference, one.low, one.high, strict=True):
                head = {"endpoint": name, "model": one.model, "days": _cells(one)["days"]}
                yield {**head, **dict(zip(("threshold", "difference", "low", "high"), point, strict=True))}


def _row(part: Part) -> Cells:
    """A part's values by their path, e.g. `auc.low`."""
    return _flat(_cells(part))


def _of_models(metrics: Metrics) -> Iterator[tuple[Cells, AnyEndpoint, Result]]:
    for name, endpoint in metrics.endpoints.items():
        for model, result in endpoint.models.items():
            yield {"endpoint": name, "model": model}, endpoint, result


def _by_model(found: Mapping[str, Mapping[str, T]]) -> Iterator[tuple[Cells, T]]:
    for name, models in found.items():
        for model, one in models.items():
            yield {"endpoint": name, "model": model}, one


def _results(metrics: Metrics) -> Iterator[Cells]:
    """A row per endpoint and model with every single-valued measure, named by its path, e.g. `auc.low`."""
    for head, endpoint, result in _of_models(metrics):
        yield {**head, "kind": endpoint.kind, **_row(result)}


def _hazard_ratios(metrics: Metrics) -> Iterator[Cells]:
    """A row per survival endpoint, Cox regression and column."""
    for name, endpoint in metrics.endpoints.items():
        added = getattr(endpoint, "added_value", None)
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
    """A row per characteristic, split and level; numbers and follow-up have one level, without a name."""
    for row in metrics.table1.rows:
        for split, cell in zip(metrics.table1.splits, row.cells, strict=True):
            figures = _cells(cell)
            levels = row.levels or ("",)
            for level, count in zip(levels, figures.pop("counts") or [None] * len(levels), strict=True):
                head = {"column": row.column, "kind": row.kind, "level": level, "split": split.name, "n": split.n}
                yield {**head, "count": count, **figures, "by_chance": _cells(split)["by_chance"]}


def _patient(one: Patient) -> Cells:
    """A row per patient; for each endpoint columns such as `mgmt.error`."""
    cells = _cells(one)
    several = {key: " ".join(cells[key]) for key in ("sessions", "maps")} | {"findings": "; ".join(cells["findings"])}
    for of in cells["endpoints"].values():
        if "answer" in of:
            of["answer"]["classes"] = " ".join(of["answer"]["classes"])
    return _flat({**cells, **several, "endpoints": {}}) | _flat(cells["endpoints"])


def _curves(metrics: Metrics, key: str) -> Iterator[Cells]:
    """A row per point of a curve, which a result stores as lists of equal length."""
    for head, _, result in _of_models(metrics):
        curve = _cells(found) if (found := getattr(result, key, None)) else {}
        for point in zip(*curve.values(), strict=True):
            yield {**head, **dict(zip(curve, point, strict=True))}


def _calibration(metrics: Metrics) -> Iterator[Cells]:
    for head, _, result in _of_models(metrics):
        for of_class, days, groups in _groups(result):
            for group in groups:
                yield {**head, **({"class": of_class} if of_class else {}), "days": days, **_cells(group)}


def _groups(result: Result) -> Iterator[tuple[str, int | float | None, Sequence[CalibrationGroup]]]:
    """Class, days and groups of each calibration of a result; it has one of a marker, one a day of survival, one a class."""
    if calibration := getattr(result, "calibration", None):
        yield "", None, calibration.bins
    for at in getattr(result, "calibration_at", ()):
        yield "", at.days, at.groups
    for name, one in getattr(result, "classes", {}).items():
        yield name, None, one.calibration.bins if one.calibration else ()


def _decision(metrics: Metrics) -> Iterator[Cells]:
    """A row per threshold, and for survival per day."""
    for head, endpoint, result in _of_models(metrics):
        curves: list[tuple[int | float | None, tuple[float, ...], Band | None, tuple[float, ...]]] = []
        if benefit := getattr(result, "net_benefit", None):
            curves.append((None, benefit, getattr(result, "net_benefit_band", None), getattr(endpoint, "net_benefit_of_all", ())))
        for at in getattr(result, "decision_at", ()):
            curves.append((at.days, at.net_benefit, at.net_benefit_band, at.net_benefit_of_all))
        for days, benefit, band, of_all in curves:
            low, high = (band.low, band.high) if band else ((None,) * len(benefit),) * 2
            for threshold, *values in zip(endpoint.thresholds, benefit, low, high, of_all, strict=True):
                columns = dict(zip(("net_benefit", "low", "high", "net_benefit_of_all"), values, strict=True))
                yield {**head, "days": days, "threshold": threshold, **columns}


def _scored(scores: MapEvaluation | None) -> list[tuple[str, EndpointMaps]]:
    return list(scores.endpoints.items()) if scores else []


def _map_results(scores: MapEvaluation | None) -> Iterator[tuple[Cells, MapResult]]:
    for name, endpoint in _scored(scores):
        for method, result in endpoint.methods.items():
            yield {"endpoint": name, "method": method}, result


def _map_curves(metrics: Metrics) -> Iterator[Cells]:
    """A row per endpoint, order of removal and fraction, in standard deviations of the evidence."""
    for name, endpoint in _scored(metrics.map_scores):
        for order, found in endpoint.curves.items():
            for method, curve in found.orders.items():
                for point in zip(found.fraction, curve.value, curve.low, curve.high, strict=True):
                    row = dict(zip(("fraction", "value", "low", "high"), point, strict=True))
                    yield {"endpoint": name, "curve": order, "method": method, **row}
