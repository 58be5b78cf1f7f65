"""Cumulative incidence by risk group, of the event and of the one that may come first: a run's rows in, a figure out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from mri_vit.metrics.competing_risks import cumulative_incidence
from mri_vit.report.figures import panels
from mri_vit.report.figures.endpoint_curves import RISK_STROKES, at_risk_rows
from mri_vit.report.figures.panels import panel
from mri_vit.report.numbers import judged
from mri_vit.report.schema.survival import Group, RiskGroup

EVENT, OTHER = "event", "competing event"
BELOW = 0.005  # of the axis: a curve at 0 is seen


def incidence_curves(rows: pd.DataFrame) -> pd.DataFrame:
    """The curves of a model's risk groups, of rows as `judged.known_rows` gives them: group, of, days, share, low, high."""
    parts = []
    grouped = judged.risk_groups(rows)
    for group, high in (("low risk", False), ("high risk", True)):
        here = grouped.loc[grouped.high == high]
        days, event, other = judged.floats(here.time_days), judged.flags(here.event), judged.flags(here.competing)
        for of, curve in ((EVENT, (days, event, other)), (OTHER, (days, other, event))):
            found = cumulative_incidence(*curve)
            columns = {name: getattr(found, name) for name in ("days", "share", "low", "high")}
            parts.append(pd.DataFrame({"group": group, "of": of, **columns}))
    return pd.concat(parts, ignore_index=True)


def incidence(
    curves: pd.DataFrame, at_risk: Mapping[RiskGroup, Group], ticks: Sequence[int], longest: float, name: str
) -> Figure:
    """Shares with the event (thick, with 95 % bands) and with the competing one (thin), and the numbers at risk below."""
    with panel(height=4.6) as (figure, axes):
        for of, (group, stroke) in itertools.product((EVENT, OTHER), RISK_STROKES.items()):
            curve = curves.loc[(curves["of"] == of) & (curves["group"] == group)]
            days, share, low, high = (
                pd.concat([curve[column], curve[column].tail(1)]).to_numpy(float) for column in ("days", "share", "low", "high")
            )
            days[-1] = longest  # a curve goes on until the last patient
            seen = panels.drawn_vertices(days / longest, share, low, high)
            label = f"{group}: {'the event' if of == EVENT else name}"
            if of == EVENT:
                axes.fill_between(days[seen], low[seen], high[seen], step="post", color=stroke.colour, alpha=0.17, lw=0)
                axes.step(days[seen], share[seen], where="post", label=label, **stroke.look)
            else:
                axes.step(days[seen], share[seen], where="post", label=label, color=stroke.colour, ls=":", lw=1.3)
        axes.set(ylim=(-BELOW, 1.0), xlabel="Days from imaging", ylabel="Share of patients")
        axes.set_xlim(0, longest)
        axes.set_xticks(list(ticks))
        axes.legend(loc="best")
        at_risk_rows(figure, at_risk, ticks)
    return figure
