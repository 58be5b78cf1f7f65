"""Likeness: scans of several patients in, pairs that look like one person out, whom neither a file nor an id gives away.

A copy that was resampled, registered or normalised anew has other voxels. What stays is the brain: its scans, cut to the box of
the head and averaged down to a few thousand cells, are compared by the correlation of their ranks, once what all brains have in
common is taken away. Letters: n patients, c cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.ndimage import map_coordinates
from scipy.stats import rankdata

from mri_vit.data.volume import canonical, read
from mri_vit.importers.persons import Subject

EDGE = 24  # cells along each axis: about 7 mm of a head, coarser than any clinical slice
FAINT = 0.1  # of the 99th percentile above the border's value: the head ends where voxels fall below it
FEWEST = 8  # patients whose mean is what all brains have in common; of fewer, a mean is one of themselves
ALIKE = 0.8  # correlation beyond which two patients are flagged; see `docs/importing.md` for what was measured


@dataclass(frozen=True)
class Alike:
    """Two patients who are not known as one person and whose scans look alike."""

    one: Subject
    other: Subject
    channel: str
    correlation: float


def signature(path: Path) -> Float[np.ndarray, " c"]:
    """A scan as EDGE³ cells over the box of its head, RAS+, as ranks from -1 to 1.

    Raises UnusablePatient where the file is no readable scan.
    """
    scan = canonical(read(path))
    array = scan.array - float(np.median(_border(scan.array)))
    seen = array > FAINT * np.percentile(array, 99)
    if not seen.any():
        return np.zeros(EDGE**3)
    low, high = (np.array([f(axis) for axis in np.nonzero(seen)]) for f in (np.min, np.max))
    at = np.stack(np.meshgrid(*(np.linspace(a, b, EDGE) for a, b in zip(low, high, strict=True)), indexing="ij"))
    smooth = _averaged(array, (high - low) / EDGE)
    ranks = rankdata(map_coordinates(smooth, at.reshape(3, -1), order=1, mode="nearest"))
    return 2 * (ranks - 1) / (len(ranks) - 1) - 1


def alike(signatures: Mapping[Subject, Float[np.ndarray, " c"]], person: Mapping[Subject, int], channel: str) -> list[Alike]:
    """Pairs of different persons whose signatures correlate by more than ALIKE, the most alike first."""
    people = list(signatures)
    if len(people) < 2:
        return []
    matrix = np.stack([signatures[one] for one in people])  # (n, c)
    if len(people) >= FEWEST:
        matrix = matrix - np.median(matrix, axis=0)
    correlation = np.corrcoef(matrix)
    pairs = [
        Alike(people[i], people[j], channel, float(correlation[i, j]))
        for i, j in zip(*np.nonzero(np.triu(correlation > ALIKE, 1)), strict=True)
        if person[people[i]] != person[people[j]]
    ]
    return sorted(pairs, key=lambda pair: -pair.correlation)


def _border(array: Float[np.ndarray, "x y z"]) -> Float[np.ndarray, " b"]:
    """Voxels of the six outer planes."""
    return np.concatenate([array.take(end, axis).ravel() for axis in range(3) for end in (0, -1)])


def _averaged(array: Float[np.ndarray, "x y z"], cell: Float[np.ndarray, "3"]) -> Float[np.ndarray, "x y z"]:
    """Means over boxes of a cell's size, so that a cell speaks of all its voxels."""
    from scipy.ndimage import uniform_filter

    return uniform_filter(array, np.maximum(1, np.round(cell)).astype(int).tolist())
