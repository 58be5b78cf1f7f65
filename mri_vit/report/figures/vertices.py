"""Which vertices of a curve are drawn: its coordinates in, the places of those that can be told from the one before out.

n is the number of vertices. Full curves are in the report's tables.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

CELL = 1 / 500  # of an axis: at a figure's own size less than a pixel of a screen, and than the thinnest line's width


def drawn(*coordinates: Float[np.ndarray, " n"]) -> Int[np.ndarray, " kept"]:
    """Indices of the vertices to draw, each coordinate in shares of its axis.

    A vertex is left out where it lies in the same cell of a grid of `CELL` as the one before. It is then less than
    `CELL` of either axis away from a vertex that is drawn, and so is the curve, in steps or straight lines.
    """
    cells = np.floor(np.stack(coordinates) / CELL)
    moved = (np.diff(cells, axis=1) != 0).any(axis=0)  # NaN is unequal to itself: a gap stays
    ends = np.zeros(cells.shape[1], dtype=bool)
    ends[:1] = ends[-1:] = True
    ends[1:] |= moved
    return np.flatnonzero(ends)
