"""The few-shot curve: what a probe reaches on frozen features, over the number of scans that they were learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mri_vit.report.figures.panels import CANDIDATES, DASHED, panel
from mri_vit.style import INK
from reproductions.features.numbers import Line

APART = 0.07  # of the distance between two numbers of scans: so far lie the intervals of two curves from each other
SAME = 1e-9  # two shares of the labels are written as decimals


def few_shot(curves: Mapping[str, Sequence[Line]], shares: Sequence[float]) -> Figure:
    """A colour for each method; filled marks and whole lines are the largest share of labels, open ones others; dashed: chance.

    Numbers of scans stand at equal distances, because each is about twice the one before it, and none comes first.
    """
    counts = sorted({line.scans for lines in curves.values() for line in lines})
    pairs = [(name, share) for name in curves for share in shares]
    with panel(height=3.9) as (figure, axes):
        axes.axhline(0.5, color=INK, lw=1, ls=DASHED, zorder=0)
        for index, (name, share) in enumerate(pairs):
            stroke = CANDIDATES[list(curves).index(name) % len(CANDIDATES)]
            lines = sorted((line for line in curves[name] if abs(line.share - share) < SAME), key=lambda line: line.scans)
            x = np.array([counts.index(line.scans) for line in lines]) + APART * (index - (len(pairs) - 1) / 2)
            y, low, high = (np.array([getattr(line, key) for line in lines]) for key in ("auc", "low", "high"))
            whole = share == max(shares)
            axes.vlines(x, low, high, color=stroke.colour, lw=1.1, alpha=0.7)
            axes.plot(
                x, y, stroke.marker, ls="-" if whole else (0, (2, 1.5)), color=stroke.colour, lw=1.8 if whole else 1.2,
                ms=5.5, mfc=stroke.colour if whole else "white", label=f"{name}, {100 * share:.0f} % of labels",
            )  # fmt: skip
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        axes.set(xlabel="Scans that the encoder learned from (0: random weights)", ylabel="AUC of the linear probe")
        figure.legend(loc="outside lower center", ncols=2)
    return figure
