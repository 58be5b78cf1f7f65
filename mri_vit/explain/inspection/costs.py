"""Costs: how long an inspection's features and loss landscapes take, before they are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from mri_vit.explain.inspection import learned
from mri_vit.explain.inspection.learned import Features, Landscape
from mri_vit.explain.inspection.vit_numbers import InspectedFold


@dataclass(frozen=True)
class Work:
    """Steps of a search for an input, and patients' passes through the network."""

    steps: int = 0
    passes: int = 0

    def seconds(self, pace: Pace) -> float:
        return self.steps * pace.step + self.passes * pace.one_pass


@dataclass(frozen=True)
class Pace:
    """Seconds of one step and of one pass."""

    step: float
    one_pass: float


def features_work(numbers: int, patients: int) -> Work:
    """What the features of so many endpoints take, and beside them the units'; each is searched for in two networks."""
    searches = 2 * (numbers + learned.ENCODER_UNITS)
    passes = searches * (learned.NOISE_INPUTS + 1) + 3 * min(patients, learned.FEATURE_PATIENTS)
    return Work(searches * learned.ASCENT_STEPS, passes)


def landscape_work(training: int, test: int) -> Work:
    """What the landscape of so many patients takes."""
    return Work(
        passes=(learned.LANDSCAPE_POINTS**2 + 1) * sum(min(count, learned.LANDSCAPE_PATIENTS) for count in (training, test))
    )


def pace(subject: InspectedFold, searched: bool) -> Pace:
    """Measured on the first patient, the second time; the step only where something is `searched` for."""
    net, study = subject.after.eval(), subject.study
    frame = learned.frame_of(subject.patients[0], study, net)
    how = learned.Regularisation(roughness=1.0, jitter=round(learned.JITTER * net.grid.patch))

    def target(volume: Float[Tensor, "c e e e"]) -> Float[Tensor, ""]:
        return learned.read(net, volume, frame.position)[0, 0]

    def step() -> None:
        learned.maximise(target, frame.brain, len(study.channels), how, torch.Generator().manual_seed(0), steps=1)

    return Pace(_seconds(step) if searched else 0.0, _seconds(lambda: learned.represented(net, subject.patients[:1], study)))


def _seconds(run: Callable[[], object]) -> float:
    """Of a call, once another has found memory for it; a GPU is waited for."""
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    return seconds


@dataclass(frozen=True)
class Section:
    """A part of the page that takes many passes: its name, about how long it takes here, and what measures it."""

    name: str
    seconds: float
    measure: Callable[[], Features | Landscape]


def sections(subject: InspectedFold, beside: Sequence[InspectedFold]) -> Iterator[Section]:
    """Features and landscape of the subject, and the landscapes of others beside it, in their order on the page."""
    for network in (subject, *beside):
        searched = network is subject
        measured = pace(network, searched)
        if searched:
            work = features_work(len(learned.asked(network.after)), len(network.patients))
            yield Section("features", work.seconds(measured), partial(learned.measure_features, network))
        work = landscape_work(len(network.train), len(network.patients))
        yield Section(f"loss landscape of {network.name}", work.seconds(measured), partial(learned.measure_landscape, network))
