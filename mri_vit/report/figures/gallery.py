"""Every figure of a report by its name: the run and its metrics.json in, drawn one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from mri_vit.kinds.kind import labels
from mri_vit.metrics import survival
from mri_vit.prepare.tumour import SURE
from mri_vit.report.figures import competing, map_figures, of_kind, panels, utility
from mri_vit.report.figures.hospitals import hospital_figures
from mri_vit.report.figures.instability import instability
from mri_vit.report.figures.panels import ForestRow
from mri_vit.report.figures.tumours import where_tumours_lie
from mri_vit.report.numbers import judged
from mri_vit.report.numbers.instability import trainings
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.kinds import Result
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.patients import MapEvaluation
from mri_vit.report.words.instability import what
from mri_vit.report.words.notation import Bounded, estimate, file_name, interval, is_defined, symbol, title
from mri_vit.report.words.notation import judged as judged_figure
from mri_vit.report.words.run_facts import chief, visible
from mri_vit.settings.recipe import is_compared
from mri_vit.settings.schema import Endpoint


def report_figures(run: Run, metrics: Metrics, survivors: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Name and figure, one at a time, because all at once would need too much memory."""
    shown = {name: visible(metrics, endpoint.models) for name, endpoint in metrics.endpoints.items()}
    lines = [(title(name), _models(models)) for name, models in shown.items() if models]
    if lines:
        yield "forest", panels.forest(lines, "AUC or concordance, 95 % interval (dashed: chance)")
    if any(one.tumour_ml is not None for one in metrics.tumours.values()):
        yield "tumours", where_tumours_lie(list(metrics.tumours.values()), SURE)
    for endpoint in run.study.endpoints:
        if not shown[endpoint.name]:
            continue
        found = metrics.endpoints[endpoint.name]
        measured = type(found).model_validate(dict(found) | {"models": shown[endpoint.name]})
        if rows := _every_model(metrics, endpoint.name):
            yield (
                file_name("compared_models", endpoint.name),
                panels.forest([(title(endpoint.name), rows)], "95 % interval (dashed: chance)"),
            )
        yield from of_kind.of(endpoint.kind).draw(run, endpoint, measured, survivors)
        yield from hospital_figures(metrics, endpoint.name)
        yield from _instability(run, metrics, endpoint)
        yield from _utility(metrics, endpoint.name)
        if run.internal and (rows := _beside(metrics, endpoint.name)):
            yield file_name("external", endpoint.name), panels.forest(rows, "internal, out of fold, and external; 95 % interval")
    if metrics.map_scores:
        yield from _maps(metrics.map_scores)


def risk_group_curves(run: Run, metrics: Metrics) -> pd.DataFrame:
    """Kaplan–Meier curves of the risk groups of the models shown: endpoint, model, group, days, survival, low, high, censored.

    Not of an endpoint with a competing event, whose curves are cumulative incidences.
    """
    parts = [
        _curve(run, endpoint, model, group, high).assign(endpoint=endpoint.name, model=model, group=group)
        for endpoint in run.study.endpoints
        if labels(endpoint).of_visit and not endpoint.competing
        for model in visible(metrics, metrics.endpoints[endpoint.name].models)
        for group, high in (("low risk", False), ("high risk", True))
    ]
    columns = pd.Index(["endpoint", "model", "group", "days", "survival", "low", "high", "censored"])
    return pd.concat(parts, ignore_index=True).reindex(columns=columns) if parts else pd.DataFrame(columns=columns)


def incidence_curves(run: Run, metrics: Metrics) -> pd.DataFrame:
    """Cumulative incidences of the risk groups of the models shown: endpoint, model, group, of, days, share, low, high."""
    parts = [
        competing.incidence_curves(judged.known_rows(run.predictions, endpoint, model)).assign(
            endpoint=endpoint.name, model=model
        )
        for endpoint in run.study.endpoints
        if endpoint.competing
        for model in visible(metrics, metrics.endpoints[endpoint.name].models)
    ]
    columns = pd.Index(["endpoint", "model", "group", "of", "days", "share", "low", "high"])
    return pd.concat(parts, ignore_index=True).reindex(columns=columns) if parts else pd.DataFrame(columns=columns)


def _curve(run: Run, endpoint: Endpoint, model: str, group: str, high: bool) -> pd.DataFrame:
    rows = judged.risk_groups(judged.known_rows(run.predictions, endpoint, model))
    rows = rows[rows.high == high]
    if not len(rows):
        return pd.DataFrame({"days": [], "survival": [], "low": [], "high": [], "censored": []})
    fitted = survival.kaplan_meier(judged.floats(rows.time_days), judged.flags(rows.event), group)
    share, band = fitted.survival_function_, fitted.confidence_interval_survival_function_
    return pd.DataFrame(
        {
            "days": share.index.to_numpy(float),
            "survival": share.iloc[:, 0].to_numpy(float),
            "low": band.iloc[:, 0].to_numpy(float),
            "high": band.iloc[:, 1].to_numpy(float),
            "censored": fitted.event_table.censored.to_numpy(int),
        }
    )


def _every_model(metrics: Metrics, name: str) -> list[ForestRow]:
    """A row per model where the other figures do not show all; models in those figures keep their colour."""
    if len(metrics.compared_models) == len(metrics.shown):
        return []
    models = {model: result for model, result in metrics.endpoints[name].models.items() if is_compared(model)}
    rows = zip(models, _models(models), strict=True)
    return [row if model in metrics.shown else replace(row, stroke=panels.PLAIN) for model, row in rows]


def _models(models: Mapping[str, Result]) -> list[ForestRow]:
    """A row per model, filled where its verdict differs from chance."""
    return [_whole(model, models[model], stroke) for model, stroke in panels.drawn(models)]


def _whole(label: str, result: Result, stroke: panels.Stroke) -> ForestRow:
    """A result over all patients; without an interval where it cannot be judged, because that would suggest a result."""
    row = _row(label, symbol(result), result.judged, result.n, stroke)
    if result.verdict_kind == "undefined":
        row = replace(row, text=f"{symbol(result)} {judged_figure(result)}", low=row.value, high=row.value)
    return replace(row, filled=result.verdict_kind in ("better", "worse"))


def _row(label: str, measure: str, ends: Bounded, n: int, stroke: panels.Stroke) -> ForestRow:
    """A row whose mark is filled where the interval leaves out chance."""
    value, low, high = ends.value, ends.low, ends.high
    text, differs = f"{measure} {interval(ends, n)}".strip(), low > 0.5 or high < 0.5
    return ForestRow(panels.shortened(label), text, value, low, high, stroke, filled=differs)


def _instability(run: Run, metrics: Metrics, endpoint: Endpoint) -> Iterator[tuple[str, Figure]]:
    """The instability plot of each model that is reported at length and was trained several times."""
    for model, found in metrics.instability.get(endpoint.name, {}).items():
        if model in chief(metrics):
            name = what(found[0].scale, found[0].days, found[0].unit)
            yield file_name("instability", endpoint.name, model), instability(trainings(run, endpoint, model)[0], name)


def _utility(metrics: Metrics, name: str) -> Iterator[tuple[str, Figure]]:
    """Net benefit over the study's range, of the models that are reported at length."""
    for one in metrics.utility.endpoints.get(name, ()) if metrics.utility else ():
        if one.model in chief(metrics) and is_defined(one.difference[0]):
            day = [str(int(one.days))] if is_defined(one.days) else []
            yield file_name("utility", name, one.model, *day), utility.over_range(one)


def _beside(metrics: Metrics, name: str) -> list[tuple[str, list[ForestRow]]]:
    """For an external evaluation, each model's internal estimate above its external one."""
    models = metrics.endpoints[name].models
    styles = panels.strokes(list(models))
    groups = []
    for model, inside in (metrics.internal or {}).get(name, {}).items():
        if model in models:
            outside, measure = models[model], symbol(models[model])
            internal = _row("internal", measure, inside, inside.n, styles[model])
            if not is_defined(inside.low):
                internal = replace(internal, text=f"{measure} {estimate(inside, inside.n)}", low=inside.value, high=inside.value)
            here = _row("external", measure, outside.judged, outside.n, styles[model])
            if outside.verdict_kind == "undefined":
                here = _whole("external", outside, styles[model])
            groups.append((model, [internal, here]))
    return groups


def _maps(scored: MapEvaluation) -> Iterator[tuple[str, Figure]]:
    """The figures of maps; the tumour's only for endpoints with a finding."""
    claimed = [
        (title(name), endpoint.methods)
        for name, endpoint in scored.endpoints.items()
        if not endpoint.no_finding and endpoint.with_tumour
    ]
    if claimed:
        yield "map_tumour", map_figures.tumour_overlap(claimed)
    for name, endpoint in scored.endpoints.items():
        if endpoint.curves["deletion"].orders:
            yield file_name("map_curves", name), map_figures.deletion_insertion(endpoint.curves)
        if any(result.cascade for result in endpoint.methods.values()):
            yield file_name("map_cascade", name), map_figures.randomisation_cascade(endpoint.methods)
        if endpoint.agreement:
            yield file_name("map_agreement", name), map_figures.method_agreement(list(endpoint.methods), endpoint.agreement)
