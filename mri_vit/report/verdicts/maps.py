"""Whether a map may carry a finding, by rules that are fixed before any map is seen: one method's figures in, a kind out.

A map can only be a finding where the prediction is one: without it, nothing is said of the tumour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mri_vit.report.schema.endpoints import Result
from mri_vit.report.schema.parts import Kind, Mean
from mri_vit.report.schema.patients import EndpointMaps, MapEvaluation, MapFigures, MapKind, MapVerdict
from mri_vit.settings.sections import AnyMethod

ALIKE = 0.5  # rank correlation: below it two maps share less than a quarter (0.5²) of the variance of their ranks
FEWEST = 5  # a bootstrap of n patients has n^n draws: with five, over three thousand; with four, 256 for 1000 resamples

Answer = Literal["yes", "no", "unsettled", "undefined"]
OnTumour = Literal["less", "more", "no more", "undefined"]  # than the tumour's share of the places
ORDER: tuple[MapKind, ...] = ("passes", "unsettled", "fails", "undefined", "none")  # what carries a finding first


@dataclass(frozen=True)
class Answers:
    """The questions that a method's maps of an endpoint are asked, and the verdict on them."""

    kind: MapKind
    moves: Answer  # with the model
    labels: Answer  # whether it moves with them; undefined where it was not asked
    gain: Answer  # better than random deletion
    is_worse_inserted: bool  # than random insertion
    tumour: OnTumour


def of_method(result: MapFigures, predicted: Kind) -> Answers:
    """The verdict on a method's maps of an endpoint, by the kind of verdict on the model that the maps are of."""
    moves, labels, gain = moved(result.randomised), _labels(result), _gained(result.deletion_gain)
    return Answers(
        kind=_kind(moves, labels, gain) if predicted == "better" else "none",
        moves=moves,
        labels=labels,
        gain=gain,
        is_worse_inserted=known(result.insertion_gain) and result.insertion_gain.high < 0,
        tumour=_on_tumour(result.energy_ratio),
    )


def is_finding(result: Result) -> bool:
    """Whether what a model was found to tell lets its maps stand for it: better than chance, and no doubt about why."""
    sites = result.within_sites
    return result.verdict_kind == "better" and not result.too_good and not (sites and sites.confounded)


def moved(similarity: Mean) -> Answer:
    """Whether a map is another one after something was destroyed: yes where the rank correlation's interval ends below 0.5."""
    if not known(similarity):
        return "undefined"
    return "yes" if similarity.high < ALIKE else "no"


def known(estimate: Mean) -> bool:
    """Whether an estimate is of enough patients to be judged."""
    return estimate.n >= FEWEST and not math.isnan(estimate.low)


def best(endpoint: EndpointMaps) -> AnyMethod | None:
    """The method whose maps pass and lie most on the tumour, or, without masks or where they taught it, fall furthest beyond
    random.
    """
    passing: list[AnyMethod] = [name for name, result in endpoint.methods.items() if result.verdict_kind == "passes"]

    def rank(name: AnyMethod) -> tuple[float, float]:
        figures = (endpoint.methods[name].energy_ratio.value, endpoint.methods[name].deletion_gain.value)
        on_tumour, gain = (-math.inf if math.isnan(value) else value for value in figures)
        return (gain, 0.0) if endpoint.taught else (on_tumour, gain)

    return max(passing, key=rank) if passing else None


def of_map(method: str, endpoint: str, scored: MapEvaluation | None) -> tuple[MapVerdict, ...]:
    """The verdicts on one map of a patient, the best first: that on its method for its endpoint, or, without one, for each."""
    endpoints: Mapping[str, EndpointMaps] = scored.endpoints if scored else {}
    found = [
        MapVerdict(endpoint=name, kind=result.verdict_kind, sentence=result.verdict)
        for name, own in endpoints.items()
        for of_method, result in own.methods.items()
        if of_method == method and endpoint in ("", name)
    ]
    return tuple(sorted(found, key=lambda verdict: ORDER.index(verdict.kind)))


def _kind(moves: Answer, labels: Answer, gain: Answer) -> MapKind:
    if "no" in (moves, labels, gain):
        return "fails"
    if "undefined" in (moves, gain):
        return "undefined"
    return "unsettled" if labels == "unsettled" else "passes"


def _labels(result: MapFigures) -> Answer:
    """Two networks of true labels may differ as much, and then to differ from one of shuffled labels means nothing."""
    answer = moved(result.shuffled)
    return "unsettled" if answer == "yes" and _gained(result.label_gain) != "yes" else answer


def _gained(gain: Mean) -> Answer:
    if not known(gain):
        return "undefined"
    return "yes" if gain.low > 0 else "no"


def _on_tumour(ratio: Mean) -> OnTumour:
    if not known(ratio):
        return "undefined"
    if ratio.high < 1:
        return "less"
    return "more" if ratio.low > 1 else "no more"
