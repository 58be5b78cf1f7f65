"""Figures: the differences of two runs as a forest, and how the two rank the same patients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mri_vit.compared import numbers
from mri_vit.compared.document import Compared, EndpointCompared
from mri_vit.compared.runs import Rows
from mri_vit.report.figures import panels
from mri_vit.report.figures.panels import DASHED, ForestRow, ForestScale
from mri_vit.report.numbers import comparators
from mri_vit.report.words.notation import change, title, with_sign
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.models import is_candidate
from mri_vit.style import GREY, INK, VERMILLION

LETTERS = 18  # of a label beside the axis
REACHES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # how far an axis may go to both sides of 0
Groups = Sequence[tuple[str, Sequence[ForestRow]]]
FLAGS = {"binary": ("positive", "negative"), "survival": ("died", "censored")}


def forest(groups: Groups) -> Figure:
    """The difference of each model's figure, A less B, by endpoint; a filled mark is a difference by the page's rules."""
    reach = _reach([row for _, rows in groups for row in rows])
    ticks = [(at, _tick(at)) for at in (-reach, 0.0, reach)]
    return panels.forest(groups, "← B better      A better →", ForestScale(-reach, reach, 0.0, ticks, (-reach / 2, reach / 2)))


def groups(endpoints: Mapping[str, EndpointCompared]) -> Groups:
    """What the forest shows, by endpoint; nothing where there is nothing to show."""
    return [(title(name), rows) for name, found in endpoints.items() if (rows := _rows(found))]


def scatter(endpoint: Endpoint, rows: Rows) -> Figure:
    """Each patient's rank within the fold by B over that by A: on the dashed line both runs rank the patient alike."""
    a, b, marked = numbers.ranks(rows.a), numbers.ranks(rows.b), numbers.marked(endpoint, rows.a)
    yes, no = FLAGS[endpoint.kind]
    with panels.panel(height=panels.SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="ranked alike")
        # Pixels, since ten thousand marks would be megabytes as vectors.
        axes.plot(a[~marked], b[~marked], "o", ms=5, mec=GREY, mfc="white", mew=1.1, label=no, rasterized=True)
        axes.plot(a[marked], b[marked], "D", ms=4.6, color=VERMILLION, mew=0, alpha=0.85, label=yes, rasterized=True)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set(xlabel="Rank within the fold, A (1: highest)", ylabel="Rank within the fold, B (1: highest)")
        panels.legend_below(figure, 3)
    return figure


def _tick(value: float) -> str:
    """−0.2, 0, +0.2."""
    return with_sign(value).rstrip("0").rstrip(".") if value else "0"


def _rows(found: EndpointCompared) -> list[ForestRow]:
    """The own model, and of the others that a report shows those whose predictions differ."""
    candidates = comparators.shown([model for model in found.models if is_candidate(model)])
    shown = {
        model: one
        for model, one in found.models.items()
        if one.role == "own" or (one.kind != "same" and (model in candidates or one.role == "control"))
    }
    return [_row(model, shown[model], stroke) for model, stroke in panels.drawn(shown)]


def _row(model: str, one: Compared, stroke: panels.Stroke) -> ForestRow:
    label = model if len(model) <= LETTERS else f"{model[: LETTERS - 1]}…"
    if one.kind in ("same", "undefined"):  # nothing was tested
        text = "same predictions" if one.kind == "same" else "not compared"
        return ForestRow(
            label, text, one.difference if one.kind == "same" else math.nan, one.difference, one.difference, stroke, False
        )
    text = change(one.difference, one.low, one.high)
    return ForestRow(label, text, one.difference, one.low, one.high, stroke, filled=one.kind in ("a", "b"))


def _reach(rows: Sequence[ForestRow]) -> float:
    """How far the axis goes, so that nothing lies outside."""
    ends = [abs(end) for row in rows for end in (row.value, row.low, row.high) if not math.isnan(end)]
    return next((reach for reach in REACHES if reach >= max(ends, default=0.0)), max(ends, default=0.0))
