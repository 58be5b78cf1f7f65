"""A model's figure in each hospital as a forest plot: the hospitals, their mean, and where a further one is expected."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from mri_vit.report.figures import panels
from mri_vit.report.figures.panels import ForestRow, Stroke
from mri_vit.report.schema.hospitals import HospitalFigures, Hospitals, Pooled
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words.hospitals import noun
from mri_vit.report.words.notation import file_name, interval, number
from mri_vit.report.words.run_facts import visible

MOST = 40  # hospitals drawn, the largest first: more make a picture that no screen holds
LETTERS = 15  # of a hospital's name, after which "(120)" stands


def hospital_figures(metrics: Metrics, endpoint: str) -> list[tuple[str, Figure]]:
    """Name and forest of each model that is shown and has hospitals of its own."""
    results = visible(metrics, metrics.endpoints[endpoint].models)
    styles = panels.strokes(list(results))
    found = {model: one for model, one in metrics.hospitals.get(endpoint, {}).items() if one.sites and model in results}
    return [
        (file_name("hospitals", endpoint, model), forest(one, model, results[model].symbol, styles[model]))
        for model, one in found.items()
    ]


def forest(found: Hospitals, model: str, symbol: str, stroke: Stroke) -> Figure:
    """Hospitals with their 95 % intervals; below them the mean, as a diamond, and the prediction interval, as a bare line."""
    groups = [(model, [_row(one, stroke) for one in found.sites[:MOST]])]
    if found.pooled:
        groups.append((f"{found.pooled.sites} of {found.known}", _pooled(found.pooled, noun(found.column), stroke)))
    return panels.forest(groups, f"{symbol}, 95 % interval (patients)")


def _row(one: HospitalFigures, stroke: Stroke) -> ForestRow:
    label = f"{panels.shortened(one.site, LETTERS)} ({one.n})"
    return ForestRow(label, interval(one), one.value, one.low, one.high, stroke, filled=one.low > 0.5 or one.high < 0.5)


def _pooled(pooled: Pooled, whose: str, stroke: Stroke) -> list[ForestRow]:
    low, high = pooled.prediction.low, pooled.prediction.high
    mean = ForestRow("mean", interval(pooled), pooled.value, pooled.low, pooled.high, replace(stroke, marker="D"), filled=True)
    ends = f"{number(low)} to {number(high)}"
    further = ForestRow(f"a new {whose}", ends, pooled.value, low, high, replace(stroke, marker="|", width=4.0), filled=True)
    return [mean, further]
