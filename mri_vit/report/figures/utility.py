"""The figure of net benefit over the study's range of thresholds; what is undefined leaves a gap."""

from __future__ import annotations

from matplotlib.figure import Figure

from mri_vit.report.figures.panels import INK, drawn, numbers, panel
from mri_vit.report.schema.utility import BenefitOverRange


def over_range(found: BenefitOverRange) -> Figure:
    """What a model adds to the better of acting on all and on none, per 100 patients, in its simultaneous 95 % band."""
    with panel(height=2.4) as (figure, axes):
        grid = 100 * numbers(found.thresholds)
        ((_, stroke),) = drawn([found.model])
        axes.axhline(0, color=INK, lw=1)
        axes.fill_between(grid, 100 * numbers(found.low), 100 * numbers(found.high), color=stroke.colour, alpha=0.15, lw=0)
        axes.plot(grid, 100 * numbers(found.difference), **(stroke.look if len(grid) > 1 else {**stroke.look, "marker": "o"}))
        axes.set(xlabel="Risk from which one acts, %", ylabel="Net true positives\nper 100 patients")
    return figure
