"""Learned: what an inspection shows of any network, a Vision Transformer or not: its features, and its loss landscape.

Both cost many passes through the network, so either may be left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

from mri_vit.explain.inspection import activation, drawings, features, surfaces
from mri_vit.explain.inspection.features import Features
from mri_vit.explain.inspection.subject import Subject
from mri_vit.explain.inspection.surfaces import Landscape

Costly = Literal["features", "landscape"]


@dataclass(frozen=True, eq=False)
class Learned:
    """Features, where they were not left out; landscapes, the inspected network's first, then those of others beside it."""

    features: Features | None = None
    landscapes: Sequence[Landscape] = ()


def measure(subject: Subject, beside: Sequence[Subject] = (), without: Collection[Costly] = ()) -> Learned:
    """What is learned of the subject, and the landscapes of others `beside` it."""
    return Learned(
        None if "features" in without else features.measure(subject),
        () if "landscape" in without else tuple(surfaces.measure(one) for one in (subject, *beside)),
    )


def passes(numbers: int, networks: int, without: Collection[Costly] = ()) -> int:
    """How many patients' passes through a network it takes for so many endpoints, and the landscapes of so many networks.

    A step of a search counts as two: backwards takes about as long as forwards where no weight needs a gradient.
    """
    searches = 2 * (numbers + features.UNITS)
    of_features = 2 * searches * activation.STEPS + 3 * features.PATIENTS
    of_landscape = networks * surfaces.POINTS**2 * 2 * surfaces.PATIENTS
    return (0 if "features" in without else of_features) + (0 if "landscape" in without else of_landscape)


def figures(learned: Learned, subject: Subject) -> Mapping[str, Figure]:
    """Every figure by the name of its file."""
    return dict(_of_features(learned, subject)) | dict(_of_landscapes(learned))


def _of_features(learned: Learned, subject: Subject) -> Iterator[tuple[str, Figure]]:
    if learned.features is None:
        return
    for feature in learned.features.each:
        for stage, found in (("control", feature.control), ("learned", feature.learned)):
            drawn = drawings.input_planes(found.volume, learned.features.brain, subject.study.channels, subject.study.grid)
            yield f"feature_{feature.name}_{stage}", drawn


def _of_landscapes(learned: Learned) -> Iterator[tuple[str, Figure]]:
    every = [(one, part) for one in learned.landscapes for part in one.loss]
    if not every:
        return
    span = drawings.colour_span([one.loss[part] for one, part in every], [one.untrained[part] for one, part in every])
    for one in learned.landscapes:
        panels = [(f"{one.patients[part]} {part} patients", loss, one.untrained[part]) for part, loss in one.loss.items()]
        yield f"landscape_{one.name}", drawings.landscapes(panels, one.steps, span)
