"""The results of an endpoint in words: lines for a paper, and the table of its measures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mri_vit.metrics.equivalence import Claim
from mri_vit.report.schema.binary import Calibration
from mri_vit.report.schema.instability import PredictionSets
from mri_vit.report.schema.kinds import AnyEndpoint, Result
from mri_vit.report.schema.margins import MarginTest
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import OWN, Comparison, EndpointPart, Estimate, Value, WithinSites
from mri_vit.report.schema.survival import CalibrationAt
from mri_vit.report.words import of_kind, run_facts
from mri_vit.report.words.hospitals import noun
from mri_vit.report.words.instability import what
from mri_vit.report.words.notation import (
    CHANCE_TESTS,
    SYMBOLS,
    adjusted_p,
    between,
    change,
    counted,
    ends,
    escape,
    estimate,
    interval,
    is_defined,
    is_known,
    judged,
    listed,
    number,
    p_value,
    signed,
    symbol,
)
from mri_vit.report.words.utility import BEST, per_hundred, threshold_range

NAMES = {
    "auc": "AUC of all scores together",
    "average_precision": "average precision",
    "brier": "Brier score",
    "harrell_c": "Harrell's C of all risks together",
    "uno_c": "Uno's C",
    "integrated_brier": "integrated Brier score",
}
TEST = "Against chance, one-sided, not adjusted"
ADJUSTED = "Against chance, one-sided, Holm over endpoints and compared models, or controls"
RETRAINED = "Expected range of another training"


def result_lines(metrics: Metrics) -> list[str]:
    """A line for each result and comparison, then for what was measured beside, one short sentence for each measure."""
    lines = [
        f"**{escape(name)}**, {escape(model)}: {patients_and_events(result)}; {'; '.join(_result_figures(result))}."
        for name, model, result in run_facts.results(metrics)
    ]
    lines += [f"**{escape(name)}**: no result." for name, found in metrics.endpoints.items() if not found.models]
    lines += [
        comparison_line(name, model, other, test)
        for name, model, found in run_facts.results(metrics)
        for other, test in [*found.versus_controls.items(), *([(OWN, found.versus_own)] if found.versus_own else [])]
    ]
    for name, model, _ in run_facts.results(metrics):
        if own := (metrics.internal or {}).get(name, {}).get(model):
            where = "out of fold in the run's own cohort"
            lines.append(f"**{escape(name)}**, {escape(model)}, {where}: {SYMBOLS[own.measure]} {estimate(own)}.")
    beside = (_net_benefit, _added_value, _subgroups, hospital_figures, _margins, _unlabelled, _incidence, _instability, _sets)
    lines += [f"**{escape(name)}**, {escape(words)}." for measure in beside for name, words in measure(metrics)]
    probes = metrics.site_probe.models if metrics.site_probe else {}
    return lines + [f"**Site probe**, {escape(model)}: {escape(found.sentence)}." for model, found in probes.items()]


Lines = Iterator[tuple[str, str]]  # endpoints, each with a sentence without its full stop

WORTH = {"better": "shown to be worth more", "worse": "shown to be worth less", "chance": "no evidence of a difference"}
CLAIMED: Mapping[Claim, str] = {
    "equivalent": "equivalent to",
    "not inferior": "not inferior to",
    "inferior": "inferior to",
    "open": "shown neither inferior nor non-inferior to",
}


def net_benefits(metrics: Metrics, name: str) -> str:
    """What acting on an endpoint's models is worth over the study's range; "" where it was not measured."""
    over = metrics.utility
    found = [one for one in over.endpoints.get(name, ()) if one.verdict_kind in WORTH] if over else []
    if not (over and found):
        return ""
    figures = [
        f"{one.model}{f' within {one.days:.0f} days' if is_defined(one.days) else ''} {per_hundred(one.mean[BEST])} "
        f"({WORTH[one.verdict_kind]}{', where it is defined' * bool(one.undefined.get(BEST))})"
        for one in found
    ]
    return (
        f"net benefit {threshold_range(over.least, over.most)} beyond that of acting on all patients or on none, whichever is "
        f"better, in true positives per 100 patients: {'; '.join(figures)}"
    )


def _net_benefit(metrics: Metrics) -> Lines:
    yield from ((name, words) for name in metrics.endpoints if (words := net_benefits(metrics, name)))


def _added_value(metrics: Metrics) -> Lines:
    for name, endpoint in metrics.endpoints.items():
        if found := getattr(endpoint, "added_value", None):
            yield name, f"added value: {_first(found.sentences)}"


def _subgroups(metrics: Metrics) -> Lines:
    for name, found in metrics.interactions.items():
        tested = found.sentences[: len(found.sentences) - len(found.not_tested)]
        yield name, f"subgroups: {' '.join(tested or found.sentences).removesuffix('.')}"


def hospital_figures(metrics: Metrics) -> Lines:
    """What a new hospital may expect, and intervals that allow for clustering, each with all models of an endpoint."""
    for name, models in metrics.hospitals.items():
        of = noun(next(iter(models.values())).column)
        symbols = {model: symbol(result) for model, result in metrics.endpoints[name].models.items()}
        new = [
            f"{model} {symbols[model]} {ends(found.pooled.prediction.low, found.pooled.prediction.high)}"
            for model, found in models.items()
            if found.pooled
        ]
        alike = [
            f"{model} {symbols[model]} {between(found.clustered.value, found.clustered.low, found.clustered.high)}"
            for model, found in models.items()
            if found.clustered
        ]
        if new:
            yield name, f"95 % prediction interval of a new {of}: {'; '.join(new)}"
        if alike:
            yield name, f"with an interval that allows for clustering by {of}: {'; '.join(alike)}"


def _margins(metrics: Metrics) -> Lines:
    for name, models in metrics.margins.items():
        weak = _not_better(metrics, name)
        for model, found in models.items():
            claims = [
                f"{words} {listed([_against(test, weak) for test in found.tests if test.claim == claim])}"
                for claim, words in CLAIMED.items()
                if any(test.claim == claim for test in found.tests)
            ]
            every = [found.every_control.sentence.replace("Non-inferiority", "non-inferiority")] if found.every_control else []
            yield name, f"margin {metrics.margin:g}: {model} is {'; '.join([*claims, *every])}"


def _against(test: MarginTest, weak: Collection[str]) -> str:
    says_little = test.other in weak and test.claim in ("equivalent", "not inferior")
    return test.other + UNPROVEN * says_little


def _unlabelled(metrics: Metrics) -> Lines:
    yield from ((name, f"without a label: {_first(found.sentences)}") for name, found in metrics.unlabelled.items())


def _incidence(metrics: Metrics) -> Lines:
    for name, endpoint in metrics.endpoints.items():
        if competing := getattr(endpoint, "competing", None):
            yield name, f"cumulative incidence: {_first(competing.sentences)}"


def _instability(metrics: Metrics) -> Lines:
    for name, models in metrics.instability.items():
        by_scale: dict[str, list[str]] = {}
        for model, (found, *_) in models.items():
            at_random = f", two patients' differ by {number(found.at_random)}" if is_defined(found.at_random) else ""
            scale = what(found.scale, found.days, found.unit)
            by_scale.setdefault(scale, []).append(f"{model} {number(found.mape)}{at_random}")
        yield from (
            (name, f"mean change of a patient's {scale} by another training (MAPE): {'; '.join(figures)}")
            for scale, figures in by_scale.items()
        )


def _sets(metrics: Metrics) -> Lines:
    for name, models in metrics.prediction_sets.items():
        weak = _not_better(metrics, name)
        figures = [f"{model}{UNPROVEN * (model in weak)} {_set_figures(found)}" for model, found in models.items()]
        of_classes = not any(is_defined(found.reach) for found in models.values())
        held = (
            "sets with a coverage of 90 % in each class hold one class alone"
            if of_classes
            else "intervals with a coverage of 90 % reach"
        )
        yield name, f"{held}: {'; '.join(figures)}"


def _set_figures(found: PredictionSets) -> str:
    if not is_defined(found.reach):
        return f"for {found.answered} of {counted(found.n, 'patient')}, right in {found.right}"
    form = "a factor of {:.3g}" if found.times else "± {:.3g}"
    return f"{form.format(found.reach)}, by the training patients' mean {form.format(found.reach_without_skill)}"


UNPROVEN = " (not shown to beat chance)"


def _not_better(metrics: Metrics, name: str) -> set[str]:
    return {model for model, result in metrics.endpoints[name].models.items() if result.verdict_kind != "better"}


def _first(sentences: Sequence[str]) -> str:
    return sentences[0].removesuffix(".")


def comparison_line(name: str, model: str, other: str, test: Comparison) -> str:
    """The difference of two models, with interval and test."""
    resampled = test.nadeau_bengio
    over = f", over the folds of all repeats one-sided {escape(p_value(resampled.p))}" if resampled else ""
    return (
        f"**{escape(name)}**, {escape(model)} minus {other} ({counted(test.n, 'patient')}): difference {signed(test)}, "
        f"two-sided {escape(p_value(test.p))}, {escape(adjusted_p(test.p_adjusted))}{over}."
    )


def patients_and_events(part: Result | AnyEndpoint) -> str:
    """51 patients, 20 positive."""
    n = part.known if isinstance(part, EndpointPart) else part.n
    return ", ".join(filter(None, [counted(n, "patient"), part.tally]))


def headline_figure(result: Result) -> str:
    """The one figure of a result that stands for it."""
    return f"{symbol(result)} {judged(result)}"


def calibration_figures(result: Result) -> str:
    """Slope and O:E of probabilities, or of numbers the line of the observed on the predicted; "" where there are none."""
    if found := getattr(result, "calibration", None):
        return f"slope {number(found.slope, 2)}, O:E {interval(found.observed_to_expected, digits=2)}"
    if line := getattr(result, "line", None):
        return f"slope {interval(line.slope, digits=2)}, mean error {interval(line.in_the_large, digits=2)}"
    ratios = {
        at.days: at.observed_to_expected for at in getattr(result, "calibration_at", ()) if is_known(at.observed_to_expected)
    }
    return "; ".join(f"at {days} days O:E {interval(ratio, digits=2)}" for days, ratio in ratios.items() if ratio)


def _result_figures(result: Result) -> list[str]:
    figures = [headline_figure(result)]
    names = NAMES if getattr(result, "others", None) is None else {**NAMES, "uno_c": "Wolbers's C"}
    for key, words in names.items():
        if words not in figures[0] and (part := getattr(result, key, None)):
            figures.append(f"{words} {number(part.value) if isinstance(part, Value) else interval(part)}")
    words = of_kind.of_result(result)
    if (scaled := words.scaled(result)) and is_known(scaled):
        figures.append(f"{words.gain()} {interval(scaled)}")
    figures += [f"remark: {escape(result.remark).rstrip('.')}"] if result.remark else []
    if is_defined(result.fold_variance):
        figures.append(f"folds {number(result.fold_mean)} ± {number(result.fold_variance, 4)} (mean ± sample variance)")
    test = result.chance_test
    adjusted = f" ({escape(adjusted_p(test.p_adjusted))})" if is_defined(test.p_adjusted) else ""
    before, after = words.figures(result)
    figures += [*before, f"one-sided against chance {escape(p_value(test.p))}{adjusted}", *after]
    return [*figures, f"verdict: {escape(result.verdict)}"] if result.verdict else figures


ABSENT = "–"


@dataclass(frozen=True)
class Measure:
    """A line of the table: its name, and how a result writes it; None where the result does not have it."""

    label: str
    write: Callable[[Any], str | None]


def measure_rows(models: Mapping[str, Result]) -> list[of_kind.Row]:
    """Each measure's name and a cell per model, in the order of `models`; a measure that no model has is left out."""
    results = list(models.values())
    return of_kind.of_result(results[0]).measure_rows(results) if results else []


def rows_of(measures: Sequence[Measure], results: Sequence[Any]) -> list[of_kind.Row]:
    cells = [(measure.label, [measure.write(result) or ABSENT for result in results]) for measure in measures]
    return [(label, row) for label, row in cells if set(row) - {ABSENT}]


def distances(found: Calibration | CalibrationAt, n: int) -> str | None:
    return f"{interval(found.e50, n)}, {interval(found.e90, n)}" if found.e50 and found.e90 else None


def scaled_in_words(scaled: Estimate | None, n: int) -> str | None:
    return scaled and interval(scaled, n)


def spread(result: Result) -> str | None:
    if len(result.folds) == len(result.repeats):
        return None  # one fold: there is nothing to take a mean of
    return f"{number(result.fold_mean, 4, result.n)} ± {number(result.fold_variance, 4)}"


def chance_test_in_words(r: Result) -> str:
    test = r.chance_test
    draws = f", {test.draws:,} permutations" if test.draws else ""
    return f"{p_value(test.p)}; {CHANCE_TESTS[test.method]}{draws}, error × {number(test.inflation, 2)}"


def retrained(r: Result) -> str | None:
    retraining = r.retraining
    single = ", each a single network" if retraining and retraining.source == "seeds" else ""
    return retraining and f"{ends(retraining.low, retraining.high)}, of {retraining.trainings} {retraining.source}{single}"


def less_within(sites: WithinSites) -> str:
    """By how much the figure of all pairs is higher; nothing in reports that have no difference."""
    of = sites.difference
    return f", over all {change(of.value, of.low, of.high)}, two-sided {p_value(sites.difference_p)}" if of else ""


def between_sites(sites: WithinSites) -> str:
    """How far figures of single sites differ."""
    found = f"{number(sites.least)} to {number(sites.most)} in {sites.sites} sites"
    if is_defined(sites.i_squared):
        large = f" of {sites.compared_sites} sites large enough" if sites.compared_sites else ""
        found += f", I²{large} {number(100 * sites.i_squared, 0)} %"
    return found


def common_rows(symbol: str) -> tuple[Measure, ...]:
    """The rows on chance and another training, which every kind has."""
    return (
        Measure(f"{symbol}, mean ± variance over folds", spread),
        Measure(TEST, chance_test_in_words),
        Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
        Measure(RETRAINED, retrained),
    )
