"""Verdicts, by rules that are fixed before any result is seen: how a model stands against chance, the controls and the study's
own model, and whether its maps may carry a finding.

A map can only be a finding where the prediction is one: without it, the report says nothing about the tumour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from mri_vit.metrics.within_fold import leak_level
from mri_vit.report.schema.binary import BinaryNumbers
from mri_vit.report.schema.kinds import Numbers, Result
from mri_vit.report.schema.measured import ALPHA, Caveats, ProbeFigures
from mri_vit.report.schema.parts import OWN, Comparison, Kind, Mean
from mri_vit.report.schema.patients import EndpointMaps, MapEvaluation, MapFigures, MapKind, MapVerdict
from mri_vit.settings.recipe import PERMUTED, RESHUFFLED, SHUFFLED, is_bar, is_compared
from mri_vit.settings.sections import AnyMethod

# √2 is no bound below: of one to three features in ten folds that know nothing 8 to 9 % have a p of 0.05, 4 to 5 % one of 0.025.
ALPHA_BELOW = ALPHA / 2
MIN_RARER_GROUP = 5  # a perfect order of d deaths has a chance of 1/d!; five are the fewest with less than 1 %
PERFECT_DISCRIMINATION = 0.995  # an AUC or C of at most one pair in 200 out of order
NEAR_CHANCE = 0.6  # of the best control: a third of what lies between chance and 0.8, say; the built-in cohort's bound too
MIN_PROBABILITY_GAP = 0.9  # between the probabilities of the two classes: models give it to patients they were fitted on
# thresholds that are each their own fold's optimum by luck: two to six in a hundred, three of them 1 in 5000
MIN_THRESHOLD_FOLDS = 3

Unjudged = Literal["few", "one class", "no pair", "no interval"]
TooGood = Literal["truth", "control", "gap", "alone"]
Standing = Literal["better", "not better", "not the least", "no shared patient", "not run"]
ComparatorStanding = Literal["better", "worse", "alike", "undefined"]


@dataclass(frozen=True)
class Verdict:
    """What the report says about a model on an endpoint."""

    kind: Kind  # undefined where labels may leak
    against_chance: Kind
    unjudged: Unjudged | None  # why it cannot be judged
    is_tied: bool  # all scores are equal
    leaks: bool  # the permuted labels were found, twice
    controls: Standing | None = None  # only of a compared model that is better than chance
    best_is_weak: bool = False  # the strongest control is no better than chance itself
    too_good: TooGood | None = None
    confounded: bool = False  # better than chance, shown to be less among patients of one site, and there not better
    tells_site: bool = False  # better than chance, and its CLS vector predicts the site


def of_endpoint(
    models: Mapping[str, Numbers], caveats: Mapping[str, Caveats], leaks: bool, site_told: frozenset[str] = frozenset()
) -> dict[str, Verdict]:
    """The verdict on every model of an endpoint.

    Where labels may leak, every verdict but those on permuted labels becomes a warning of the kind "undefined". `site_told`
    are the models whose CLS vector predicts the site.
    """
    kinds: dict[str, Kind] = {model: against_chance(result) for model, result in models.items()}
    found = {
        model: Verdict(
            kind="undefined" if leaks and model not in PERMUTED else kind,
            against_chance=kind,
            unjudged=unjudged(models[model]) if kind == "undefined" else None,
            is_tied=caveats[model].tied,
            leaks=leaks,
            too_good=too_good(model, models, caveats[model]),
            confounded=kind == "better" and (sites := models[model].within_sites) is not None and sites.confounded,
            tells_site=kind == "better" and model in site_told,
        )
        for model, kind in kinds.items()
    }
    for model, kind in kinds.items():
        if is_compared(model) and kind == "better":
            best = models[model].versus_best
            weak = bool(best) and kinds[best.strongest] in ("chance", "worse")
            found[model] = replace(found[model], controls=beside_controls(models[model], models), best_is_weak=weak)
    return found


def against_chance(result: Numbers) -> Kind:
    """Better or worse than chance, indistinguishable from it, or not to be judged: by the adjusted p alone."""
    if unjudged(result):
        return "undefined"
    test = result.chance_test
    if test.p_adjusted <= ALPHA:
        return "better"
    return "worse" if test.p_below_adjusted <= ALPHA_BELOW else "chance"


def unjudged(result: Numbers) -> Unjudged | None:
    """Why a result cannot be judged; None where it can."""
    if not result.rarer:
        return "one class"
    if result.rarer < MIN_RARER_GROUP:
        return "few"
    if math.isnan(result.chance_test.p_adjusted):
        return "no pair"
    return "no interval" if math.isnan(result.judged.low) else None


def beside_controls(result: Numbers, models: Mapping[str, Numbers]) -> Standing:
    """Whether a compared model beats every control, the strongest alone, or none; over several repeats each t-test must agree."""
    best = result.versus_best
    if not best:
        run = any(map(is_bar, models))
        return "no shared patient" if run else "not run"
    tests = result.versus_controls
    if best.beaten and all(agrees(test) for test in tests.values()):
        return "better"
    strongest = tests[best.strongest]
    beats_it = strongest.p_adjusted <= ALPHA and strongest.difference > 0 and agrees(strongest)
    return "not the least" if beats_it and (best.beaten or best.least != best.strongest) else "not better"


def agrees(test: Comparison) -> bool:
    """Whether the t-test over the folds of several repeats says so too; with one repeat nothing contradicts."""
    return test.nadeau_bengio is None or test.nadeau_bengio.p <= ALPHA


def too_good(model: str, models: Mapping[str, Numbers], caveats: Caveats) -> TooGood | None:
    """Why a compared model's or control's result asks for a check before it is believed; None where it does not.

    A result that cannot be judged is not believed anyway: of two patients, one order in two is perfect.
    """
    if model in PERMUTED or unjudged(models[model]):
        return None
    if caveats.like_truth:
        return "truth"
    if caveats.gap >= MIN_PROBABILITY_GAP:
        return "gap"
    others = [name for name in models if is_bar(name) and name != model]
    controls = [models[name].judged.value for name in others]
    known = [value for value in controls if not math.isnan(value)]
    if not models[model].judged.value >= PERFECT_DISCRIMINATION:
        return None
    if not known:
        return "alone" if is_compared(model) else None
    return "control" if max(known) <= NEAR_CHANCE else None


def leaking(endpoints: Mapping[str, Mapping[str, Numbers]]) -> frozenset[str]:
    """The endpoints through whose design labels may leak: those that a network found again after their labels were permuted.

    An endpoint is suspicious where the one-sided p of the shuffled control is at most sqrt(0.01 / E), E endpoints; it leaks where
    that of a second, fresh permutation is too, so that at most one honest study in a hundred is accused. Binary endpoints leak
    also where every threshold of the shuffled control is its own test fold's optimum: it was chosen there.
    """
    shuffled = {name: models[SHUFFLED] for name, models in endpoints.items() if SHUFFLED in models}
    limit = leak_level(len(shuffled))
    twice = {
        name
        for name, result in shuffled.items()
        if RESHUFFLED in endpoints[name] and all(found.chance_test.p <= limit for found in (result, endpoints[name][RESHUFFLED]))
    }
    binary = {name: result for name, result in shuffled.items() if isinstance(result, BinaryNumbers)}
    points = [result.operating_point for result in binary.values() if result.operating_point]
    cells = sum(len(point.thresholds) for point in points)
    own = sum(point.own_optimum for point in points)
    return frozenset(twice | (set(binary) if cells >= MIN_THRESHOLD_FOLDS and own == cells else set()))


def of_added_value(hazard_ratio: float, p: float) -> Kind:
    """Whether a risk adds to covariates, by its likelihood-ratio test, and as a risk does: a higher one dies sooner."""
    if p > ALPHA:
        return "chance"
    return "better" if hazard_ratio > 1 else "worse"


@dataclass(frozen=True)
class Sides:
    """The comparators of an endpoint by their standing, each side with the largest difference in its favour first."""

    better: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    leaks: bool = False  # labels may leak, so that no comparator wins
    unjudged: Unjudged | None = None  # why the study's own model cannot be judged, so that nothing is said of a difference


def comparator_standing(test: Comparison) -> ComparatorStanding:
    """Whether a comparator is better or worse than the study's own model by more than chance, from its `versus_own`.

    The p after Holm must be at most ALPHA; over several repeats the corrected resampled t-test must agree, each way one-sided.
    """
    p, difference, repeated = test.p_adjusted, test.difference, test.nadeau_bengio
    if math.isnan(p) or math.isnan(difference):
        return "undefined"
    p_better, p_worse = (repeated.p, 1 - repeated.p) if repeated else (0.0, 0.0)  # NaN agrees with neither
    if p <= ALPHA and difference > 0 and p_better <= ALPHA:
        return "better"
    return "worse" if p <= ALPHA and difference < 0 and p_worse <= ALPHA else "alike"


def comparator_sides(models: Mapping[str, Numbers], verdicts: Mapping[str, Verdict]) -> Sides | None:
    """The comparators of one endpoint by their standing; None where none is compared with another model.

    A model that learned labels it should not know would win by that; where labels may leak, no model wins. Nor is a difference
    stated, or denied, where one of the two cannot be judged.
    """
    tests = {model: result.versus_own for model, result in models.items() if result.versus_own}
    if not tests:
        return None
    if verdicts[OWN].leaks:
        return Sides(leaks=True)
    if verdicts[OWN].unjudged:
        return Sides(undefined=tuple(tests), unjudged=verdicts[OWN].unjudged)
    found: dict[ComparatorStanding, list[str]] = {side: [] for side in get_args(ComparatorStanding)}
    for model in sorted(tests, key=lambda model: -tests[model].difference):
        found["undefined" if verdicts[model].unjudged else comparator_standing(tests[model])].append(model)
    return Sides(
        better=tuple(found["better"]),
        worse=tuple(found["worse"][::-1]),
        alike=tuple(found["alike"]),
        undefined=tuple(found["undefined"]),
    )


def tells_site(probe: ProbeFigures) -> bool:
    """Both its p and its interval must say so, as for a verdict."""
    return probe.p <= ALPHA and probe.balanced_accuracy.low > probe.chance


# Maps.

MIN_MAP_CORRELATION = 0.5  # rank correlation: below it two maps share less than a quarter (0.5²) of the variance of their ranks
# a bootstrap of n patients has n^n draws: with five, over three thousand; with four, 256 for 1000 resamples
MIN_SCORED_PATIENTS = 5

Answer = Literal["yes", "no", "unsettled", "undefined"]
OnTumour = Literal["less", "more", "no more", "undefined"]  # than the tumour's share of the grid positions
MAP_ORDER: tuple[MapKind, ...] = ("passes", "unsettled", "fails", "undefined", "none")  # what carries a finding first


@dataclass(frozen=True)
class Answers:
    """The questions that a method's maps of an endpoint are asked, and the verdict on them."""

    kind: MapKind
    moves: Answer  # with the model
    labels: Answer  # whether it moves with them; undefined where it was not asked
    gain: Answer  # better than random deletion
    is_worse_inserted: bool  # than random insertion
    tumour: OnTumour


def map_answers(result: MapFigures, predicted: Kind) -> Answers:
    """The verdict on a method's maps of an endpoint, by the kind of verdict on the model that the maps are of."""
    moves, labels, gain = moved(result.randomised), _labels(result), _gained(result.deletion_gain)
    return Answers(
        kind=_kind(moves, labels, gain) if predicted == "better" else "none",
        moves=moves,
        labels=labels,
        gain=gain,
        is_worse_inserted=is_enough(result.insertion_gain) and result.insertion_gain.high < 0,
        tumour=_on_tumour(result.energy_ratio),
    )


def is_finding(result: Result) -> bool:
    """Whether a model's result allows its maps to be a finding: better than chance, and no doubt about why."""
    sites = result.within_sites
    return result.verdict_kind == "better" and not result.too_good and not (sites and sites.confounded)


def moved(similarity: Mean) -> Answer:
    """Whether a map is another one after something was destroyed: yes where the rank correlation's interval ends below 0.5."""
    if not is_enough(similarity):
        return "undefined"
    return "yes" if similarity.high < MIN_MAP_CORRELATION else "no"


def is_enough(estimate: Mean) -> bool:
    """Whether an estimate is of enough patients to be judged."""
    return estimate.n >= MIN_SCORED_PATIENTS and not math.isnan(estimate.low)


def best_method(endpoint: EndpointMaps) -> AnyMethod | None:
    """The method whose maps pass and lie most on the tumour, or, without masks or with mask supervision, fall furthest beyond
    random.
    """
    passing: list[AnyMethod] = [name for name, result in endpoint.methods.items() if result.verdict_kind == "passes"]

    def rank(name: AnyMethod) -> tuple[float, float]:
        figures = (endpoint.methods[name].energy_ratio.value, endpoint.methods[name].deletion_gain.value)
        on_tumour, gain = (-math.inf if math.isnan(value) else value for value in figures)
        return (gain, 0.0) if endpoint.mask_supervised else (on_tumour, gain)

    return max(passing, key=rank) if passing else None


def map_verdicts(method: str, endpoint: str, scored: MapEvaluation | None) -> tuple[MapVerdict, ...]:
    """The verdicts on one map of a patient, the best first: that on its method for its endpoint, or, without one, for each."""
    endpoints: Mapping[str, EndpointMaps] = scored.endpoints if scored else {}
    found = [
        MapVerdict(endpoint=name, kind=result.verdict_kind, sentence=result.verdict)
        for name, own in endpoints.items()
        for own_method, result in own.methods.items()
        if own_method == method and endpoint in ("", name)
    ]
    return tuple(sorted(found, key=lambda verdict: MAP_ORDER.index(verdict.kind)))


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
    if not is_enough(gain):
        return "undefined"
    return "yes" if gain.low > 0 else "no"


def _on_tumour(ratio: Mean) -> OnTumour:
    if not is_enough(ratio):
        return "undefined"
    if ratio.high < 1:
        return "less"
    return "more" if ratio.low > 1 else "no more"
