"""Candidates: series that were taken for the same channel of one visit go in; their order, and why, come out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Shaped

from mri_vit.importers.dicom import geometry
from mri_vit.importers.dicom.recognise import Guess
from mri_vit.importers.dicom.series import Series

WHOLE_BRAIN_MM = 100  # along the slices; an adult's brain is some 130 mm long in its shortest direction
AXIAL = 0.8  # cosine of the slices' normal with the body's axis: within 37 degrees, nearer to it than to any other
FOREGROUND = 0.1  # of the 99th percentile: above it a voxel is head and not air
TAIL_PERCENTILE = 99.5  # a tumour that enhances is a few millilitres of a head of 3 to 4 litres
BRIGHTER = 1.15  # ratio of tails from which one scan is said to hold contrast agent; a judgement, held to no data


@dataclass(frozen=True)
class Candidate:
    """A series that passed the checks, and what it is taken for."""

    name: str  # the series' hash
    series: Series
    guess: Guess


def ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first: whole head, original, 3D or axial, finest voxels, most slices, the last that was taken."""
    return sorted(candidates, key=lambda one: ([-value for value in _merits(one.series).values()], one.series.name))


def why_not(candidate: Candidate, chosen: Candidate) -> str:
    """The first merit by which the chosen one comes before a candidate."""
    ours, theirs = _merits(candidate.series), _merits(chosen.series)
    for merit, value in ours.items():
        if value != theirs[merit]:
            return f"another was chosen for {merit}{_figures(merit, theirs[merit], value)}"
    return "another was chosen, of equal merit, by the order of their UIDs"


def summary(series: Series) -> str:
    """Slices, voxels and plane of a series, in words."""
    slices = geometry.ordered(series.images)
    rows, columns = slices[0].spacing_mm
    kind = "3D" if series.tags.is_3d else "2D"
    return f"{len(slices)} slices, {columns:.2f} x {rows:.2f} x {_step_mm(series):.2f} mm, {_plane(series)}, {kind}"


def by_content(candidates: Sequence[Candidate], arrays: Sequence[Shaped[np.ndarray, "_ _ _"]]) -> list[Candidate]:
    """T1 scans of one visit, of none of which a field says whether an agent was given, told apart by their brightest voxels.

    A weak rule, and called so in its reason: scans are ordered by how bright the brightest 0.5 % of the head are relative to
    its median, and those above the widest gap are taken for T1ce if it is a ratio of `BRIGHTER` or more. Coils, fat
    saturation or haemorrhage can mislead it, and a tumour that does not enhance hides from it.
    """
    order = sorted(range(len(candidates)), key=lambda at: bright_tail(arrays[at]))
    tails = [bright_tail(arrays[at]) for at in order]
    gaps = [above / below for below, above in pairwise(tails)]
    if not gaps or max(gaps) < BRIGHTER:
        return [_told(one, "t1", "image content tells none of the visit's T1 scans as T1ce") for one in candidates]
    below = gaps.index(max(gaps)) + 1
    taken = list(candidates)
    for place, at in enumerate(order):
        name = "t1" if place < below else "t1ce"
        said = f"the brightest 0.5 % of its head are {tails[place]:.2f} times the median; T1ce is {tails[below]:.2f} and more"
        taken[at] = _told(candidates[at], name, f"taken for {name} by a weak rule on image content: {said}")
    return taken


def _told(candidate: Candidate, channel: str, why: str) -> Candidate:
    return replace(candidate, guess=Guess(channel, True, f"{candidate.guess.reason}; {why}"))


def bright_tail(array: Shaped[np.ndarray, "_ _ _"]) -> float:
    """The 99.5th percentile of the head, relative to its median; 1 where all is dark."""
    top = float(np.percentile(array, 99))
    head = array[array > FOREGROUND * top]
    if not head.size or top <= 0:
        return 1.0
    return float(np.percentile(head, TAIL_PERCENTILE) / np.median(head))


def _merits(series: Series) -> dict[str, float]:
    """By merit, in the order in which they count; more is better."""
    slices = geometry.ordered(series.images)
    step_mm = _step_mm(series)
    return {
        "covering the head": float(step_mm * len(slices) >= WHOLE_BRAIN_MM),
        "being original": float("DERIVED" not in series.tags.image_type),
        "being 3D": float(series.tags.is_3d),
        "being axial": float(series.tags.is_3d or _plane(series) == "axial"),
        "finer voxels (mm)": -round(max(*slices[0].spacing_mm, step_mm), 2),
        "more slices": float(len(slices)),
        "being later": float(series.tags.number),
        "being taken later": series.taken_s if math.isfinite(series.taken_s) else 0.0,
    }


def _figures(merit: str, chosen: float, other: float) -> str:
    """Of a merit that is a size; yes and no, and the numbers of series, need none."""
    return f": {abs(chosen):g} against {abs(other):g}" if merit in ("finer voxels (mm)", "more slices") else ""


def _step_mm(series: Series) -> float:
    return float(np.median(np.diff(geometry.places_mm(geometry.ordered(series.images)))))


def _plane(series: Series) -> str:
    across = np.abs(geometry.normal(series.images[0]))
    axis = int(np.argmax(across))
    return ("sagittal", "coronal", "axial")[axis] if across[axis] >= AXIAL else "oblique"
