"""Candidates: series that were taken for the same channel of one visit go in; their order, and why, come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from mri_vit.data.volume import Volume
from mri_vit.importers.dicom import enhancement, geometry
from mri_vit.importers.dicom.recognise import AgentBy, Guess, fat_suppressed
from mri_vit.importers.dicom.series import Series

WHOLE_BRAIN_MM = 100  # along the slices; an adult's brain is some 130 mm long in its shortest direction
AXIAL = 0.8  # cosine of the slices' normal with the body's axis: within 37 degrees, nearer to it than to any other


@dataclass(frozen=True)
class Candidate:
    """A series that passed the checks, and what it is taken for."""

    name: str  # the series' hash
    series: Series
    guess: Guess


def ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first: whole head, told by its name, original, 3D or axial, finest voxels, most slices, the last that was taken."""
    return sorted(candidates, key=lambda one: ([-value for value in _merits(one).values()], one.series.name))


def why_not(candidate: Candidate, chosen: Candidate) -> str:
    """The first merit by which the chosen one comes before a candidate."""
    ours, theirs = _merits(candidate), _merits(chosen)
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


def open_t1(t1s: Sequence[Candidate]) -> list[Candidate]:
    """Of a visit's T1-weighted series those of which names and fields leave open whether they are T1 or T1ce.

    A series of which neither says it is the T1 where another is the T1ce, and where it is the only one that was acquired; others
    are reformatted from it. A field that is filled for all of several series, whose names are silent, tells none from another.
    """
    evidence = {one.guess.agent_by for one in t1s}
    several = sum("DERIVED" not in one.series.tags.image_type for one in t1s) != 1 and len(t1s) > 1
    if several and evidence == {AgentBy.FIELD} and {one.guess.channel for one in t1s} == {"t1ce"}:
        return list(t1s)
    decided = not all(one.guess.agent_unsaid for one in t1s)
    silent = [
        one for one in t1s if one.guess.agent_by is AgentBy.NOTHING and not (decided and "DERIVED" in one.series.tags.image_type)
    ]
    settled = not several or any(one.guess.channel == "t1ce" for one in t1s)
    return [one for one in t1s if one.guess.agent_by is AgentBy.UNCLEAR or (one in silent and not settled)]


def by_content(t1s: Sequence[Candidate], scans: Mapping[str, Volume]) -> list[Candidate]:
    """A visit's T1-weighted series with what their voxels say: T1ce enhances against another and none against it, T1 inversely.

    Those that names or choices decide stay as they are. Scans of which one has suppressed fat are not compared.
    """
    enhances = cache(lambda name, other: enhancement.enhances(scans[name], scans[other]))
    taken = []
    for one in t1s:
        others = [
            other for other in t1s if other is not one and fat_suppressed(one.series.tags) == fat_suppressed(other.series.tags)
        ]
        above = any(enhances(one.name, other.name) for other in others)
        below = any(enhances(other.name, one.name) for other in others)
        channel = "t1ce" if above else "t1"
        if one.guess.agent_by in (AgentBy.NAME, None) or above == below or (one.guess.agent_by is AgentBy.FIELD and above):
            taken.append(one)
        else:
            why = f"taken for {channel} by its voxels: {'it' if above else 'another of the visit'} enhances against the other"
            taken.append(replace(one, guess=Guess(channel, True, f"{one.guess.reason}; {why}", AgentBy.VOXELS)))
    return taken


def by_default(one: Candidate, t1s: Sequence[Candidate]) -> Candidate:
    """A series of which nothing says whether an agent was given, with the reason why it counts as T1; any other as it is."""
    if one.guess.agent_by is not AgentBy.NOTHING:
        return one
    with_agent = any(other.guess.channel == "t1ce" for other in t1s)
    why = "another of the visit is the T1ce" if with_agent else "it is the only T1-weighted series that was acquired in the visit"
    return replace(one, guess=replace(one.guess, reason=f"{one.guess.reason}; it counts as T1, as {why}"))


def _merits(candidate: Candidate) -> dict[str, float]:
    """By merit, in the order in which they count; more is better."""
    series = candidate.series
    slices = geometry.ordered(series.images)
    step_mm = _step_mm(series)
    return {
        "covering the head": float(step_mm * len(slices) >= WHOLE_BRAIN_MM),
        "a name that says whether an agent was given": float(candidate.guess.agent_by is AgentBy.NAME),
        "being original": float("DERIVED" not in series.tags.image_type),
        "being 3D": float(series.tags.is_3d),
        "being axial": float(series.tags.is_3d or _plane(series) == "axial"),
        "finer voxels (mm)": -round(max(*slices[0].spacing_mm, step_mm), 2),
        "more slices": float(len(slices)),
        "being later": float(series.tags.number),
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
