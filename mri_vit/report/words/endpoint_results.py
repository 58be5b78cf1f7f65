"""The results of an endpoint in words: lines for a paper, and the table of its measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mri_vit.report.schema.endpoints import (
    AucAt,
    BinaryEndpoint,
    BinaryResult,
    BrierAt,
    Calibration,
    CalibrationAt,
    Days,
    HazardRatio,
    OperatingPoint,
    Result,
    SurvivalEndpoint,
    SurvivalResult,
)
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import OWN, Comparison, Estimate, Value, WithinSites
from mri_vit.report.words import run_facts
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
    number,
    p_value,
    signed,
    symbol,
)

NAMES = {
    "auc": "AUC of all scores together",
    "average_precision": "average precision",
    "brier": "Brier score",
    "harrell_c": "Harrell's C of all risks together",
    "uno_c": "Uno's C",
    "integrated_brier": "integrated Brier score",
}
RATES = {"sensitivity": "sensitivity", "specificity": "specificity", "ppv": "PPV", "npv": "NPV"}


def result_lines(metrics: Metrics) -> list[str]:
    """A line for each result, comparison, inner estimate of an external evaluation, and site probe."""
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
    probes = metrics.site_probe.models if metrics.site_probe else {}
    return lines + [f"**Site probe**, {escape(model)}: {escape(found.sentence)}." for model, found in probes.items()]


def comparison_line(name: str, model: str, other: str, test: Comparison) -> str:
    """The difference of two models, with interval and test."""
    resampled = test.nadeau_bengio
    over = f", over the folds of all repeats one-sided {escape(p_value(resampled.p))}" if resampled else ""
    return (
        f"**{escape(name)}**, {escape(model)} minus {other} ({counted(test.n, 'patient')}): difference {signed(test)}, "
        f"two-sided {escape(p_value(test.p))}, {escape(adjusted_p(test.p_adjusted))}{over}."
    )


def patients_and_events(part: Result | BinaryEndpoint | SurvivalEndpoint) -> str:
    """51 patients, 20 positive."""
    n = part.known if isinstance(part, BinaryEndpoint | SurvivalEndpoint) else part.n
    return f"{counted(n, 'patient')}, {part.marked} {part.marked_as}"


def headline_figure(result: Result) -> str:
    """The one figure of a result that stands for it."""
    return f"{symbol(result)} {judged(result)}"


def threshold_rates(result: Result) -> list[str]:
    """Sensitivity and the like at the threshold, those that are known."""
    point = result.operating_point if isinstance(result, BinaryResult) else None
    if point is None:
        return []
    return [f"{words} {interval(rate)}" for key, words in RATES.items() if is_known(rate := getattr(point, key))]


def _result_figures(result: Result) -> list[str]:
    figures = [headline_figure(result)]
    for key, words in NAMES.items():
        if words not in figures[0] and (part := getattr(result, key, None)):
            figures.append(f"{words} {number(part.value) if isinstance(part, Value) else interval(part)}")
    brier = result.brier if isinstance(result, BinaryResult) else result.integrated_brier
    if brier and brier.scaled and is_known(brier.scaled):
        figures.append(f"scaled Brier score {interval(brier.scaled)}")
    figures += [f"remark: {escape(result.remark).rstrip('.')}"] if result.remark else []
    if is_defined(result.fold_variance):
        figures.append(f"folds {number(result.fold_mean)} ± {number(result.fold_variance, 4)} (mean ± sample variance)")
    if isinstance(result, BinaryResult):
        if fit := result.calibration:
            both = {"slope": fit.slope, "intercept": fit.intercept}
            figures += [f"calibration {key} {number(value)}" for key, value in both.items() if is_defined(value)]
        figures += threshold_rates(result)
    else:
        figures += [f"AUC at {at.days} days {interval(at)}" for at in result.auc_at if is_known(at)]
    test = result.chance_test
    adjusted = f" ({escape(adjusted_p(test.p_adjusted))})" if is_defined(test.p_adjusted) else ""
    figures.append(f"one-sided against chance {escape(p_value(test.p))}{adjusted}")
    if isinstance(result, SurvivalResult):
        figures.append(f"log-rank {escape(p_value(result.logrank.p))}")
        if is_known(ratio := result.hazard.per_sd):
            figures.append(f"hazard ratio per standard deviation {interval(ratio, digits=2)}")
    return [*figures, f"verdict: {escape(result.verdict)}"] if result.verdict else figures


R = TypeVar("R", BinaryResult, SurvivalResult)
Row = tuple[str, list[str]]
ABSENT = "–"


@dataclass(frozen=True)
class Measure(Generic[R]):
    """A line of the table: its name, and how a result writes it; None where the result does not have it."""

    label: str
    write: Callable[[R], str | None]


def measure_rows(models: Mapping[str, Result]) -> list[Row]:
    """Each measure's name and a cell per model, in the order of `models`; a measure that no model has is left out."""
    binary = [result for result in models.values() if isinstance(result, BinaryResult)]
    survival = [result for result in models.values() if isinstance(result, SurvivalResult)]
    return [*_rows(BINARY, binary), *_rows([*SURVIVAL, *_at_horizons(survival)], survival)]


def _rows(measures: Sequence[Measure[R]], results: Sequence[R]) -> list[Row]:
    cells = [(measure.label, [measure.write(result) or ABSENT for result in results]) for measure in measures]
    return [(label, row) for label, row in cells if set(row) - {ABSENT}]


def _at_horizons(results: Sequence[SurvivalResult]) -> list[Measure[SurvivalResult]]:
    """AUC(t) and Brier(t) at every horizon that a model has."""
    aucs = sorted({point.days for result in results for point in result.auc_at})
    briers = sorted({point.days for result in results for point in result.brier_at})
    calibrated = sorted({point.days for result in results for point in result.calibration_at})
    return [
        *(Measure(f"AUC({days} days), cumulative/dynamic", _auc_at(days)) for days in aucs),
        *(Measure(f"Brier score at {days} days (Kaplan–Meier alone)", _brier_at(days)) for days in briers),
        *(Measure(f"Calibration at {days} days [95 %]", _calibration_at(days)) for days in calibrated),
    ]


def _auc_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(point: AucAt) -> str:
        return f"{interval(point, point.cases + point.controls)}, {point.cases} died by then, {point.controls} alive"

    return lambda r: next((write(point) for point in r.auc_at if point.days == days), None)


def _brier_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(point: BrierAt) -> str:
        return f"{number(point.value)} ({number(point.reference)})"

    return lambda r: next((write(point) for point in r.brier_at if point.days == days), None)


def _calibration_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(at: CalibrationAt, n: int) -> str | None:
        parts = {"slope": at.slope, "O:E": at.observed_to_expected, "ICI": at.ici}
        known = [f"{name} {interval(part, n, 2)}" for name, part in parts.items() if part and is_defined(part.value)]
        return "; ".join(known + ([f"E50, E90 {distances}"] if (distances := _distances(at, n)) else [])) or None

    return lambda r: next((write(at, r.n) for at in r.calibration_at if at.days == days), None)


def _distances(found: Calibration | CalibrationAt, n: int) -> str | None:
    return f"{interval(found.e50, n)}, {interval(found.e90, n)}" if found.e50 and found.e90 else None


def _scaled(scaled: Estimate | None, n: int) -> str | None:
    return scaled and interval(scaled, n)


def _spread(result: Result) -> str | None:
    if len(result.folds) == len(result.repeats):
        return None  # one fold: there is nothing to take a mean of
    return f"{number(result.fold_mean, 4, result.n)} ± {number(result.fold_variance, 4)}"


def _rate(label: str, of: Callable[[OperatingPoint], Estimate]) -> Measure[BinaryResult]:
    return Measure(label, lambda r: r.operating_point and interval(of(r.operating_point), r.operating_point.n))


def _hazard(r: HazardRatio, n: int) -> str:
    return f"{interval(r, n, 2)}, proportional hazards: {p_value(r.proportional_p)}"


def _logrank(r: SurvivalResult) -> str:
    test = r.logrank
    corrected = test.inflation > 1 and is_defined(test.chi2)
    how = f"; corrected for refitting, {p_value(test.given_p)} for groups as given" if corrected else ""
    return f"χ² = {number(test.chi2, 2)}, {p_value(test.p)}{how}"


def _restricted_mean(r: SurvivalResult) -> str:
    mean = r.restricted_mean
    until = f", up to {number(mean.tau_days, 0)} days" if is_defined(mean.tau_days) else ""
    return f"{interval(mean.difference, r.n, 0)} days{until}"


def _integrated_brier(r: SurvivalResult) -> str | None:
    brier = r.integrated_brier
    return brier and f"{interval(brier, r.n)} ({number(brier.reference)})"


def _line(name: str) -> Measure[BinaryResult]:
    def write(r: BinaryResult) -> str | None:
        if not (fit := r.calibration):
            return None
        bounds = getattr(fit, f"{name}_interval")
        return between(getattr(fit, name), bounds.low, bounds.high, r.n)

    return Measure(f"Calibration {name} [bootstrap 95 %]", write)


TEST = "Against chance, one-sided, not adjusted"
ADJUSTED = "Against chance, one-sided, Holm over endpoints and compared models, or controls"
RETRAINED = "Expected range of another training"
SITES = "Within sites"


def _chance_test(r: Result) -> str:
    test = r.chance_test
    draws = f", {test.draws:,} permutations" if test.draws else ""
    return f"{p_value(test.p)}; {CHANCE_TESTS[test.method]}{draws}, error × {number(test.inflation, 2)}"


def _retrained(r: Result) -> str | None:
    retraining = r.retraining
    single = ", each a single network" if retraining and retraining.source == "seeds" else ""
    return retraining and f"{ends(retraining.low, retraining.high)}, of {retraining.trainings} {retraining.source}{single}"


def _sites(r: Result) -> str | None:
    sites = r.within_sites
    if not sites:
        return None
    return f"{number(sites.value)}, one-sided {p_value(sites.p)}, not adjusted{less_within(sites)}; {between_sites(sites)}"


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
    return found + (f", 95 % of such sites in {ends(sites.between.low, sites.between.high)}" if sites.between else "")


BINARY: tuple[Measure[BinaryResult], ...] = (
    Measure("Patients (positive)", lambda r: f"{r.n} ({r.positive})"),
    Measure("AUC, judged [95 %, corrected for refitting]", judged),
    Measure("AUC, all patients [DeLong 95 %]", lambda r: interval(r.auc, r.n)),
    Measure("AUC, mean ± variance over folds", _spread),
    Measure(TEST, _chance_test),
    Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
    Measure(RETRAINED, _retrained),
    Measure(SITES, _sites),
    Measure("Average precision [bootstrap 95 %]", lambda r: interval(r.average_precision, r.n)),
    Measure("Prevalence, the average precision of chance", lambda r: number(r.average_precision.chance)),
    Measure("Brier score [bootstrap 95 %]", lambda r: r.brier and interval(r.brier, r.n, 4)),
    Measure("Scaled Brier score, 0 without a model [bootstrap 95 %]", lambda r: r.brier and _scaled(r.brier.scaled, r.n)),
    Measure("Brier score: reliability (lower is better)", lambda r: r.brier and number(r.brier.reliability, 4, r.n)),
    Measure("Brier score: resolution (higher is better)", lambda r: r.brier and number(r.brier.resolution, 4, r.n)),
    Measure("Brier score: uncertainty", lambda r: r.brier and number(r.brier.uncertainty, 4, r.n)),
    Measure("Brier score: within bins", lambda r: r.brier and number(r.brier.within, 4, r.n)),
    _line("slope"),
    _line("intercept"),
    Measure("Calibration in the large", lambda r: r.calibration and number(r.calibration.in_the_large, n=r.n)),
    Measure(
        "Observed to expected positives (O:E) [bootstrap 95 %]",
        lambda r: r.calibration and interval(r.calibration.observed_to_expected, r.n),
    ),
    Measure("Integrated calibration index (ICI) [bootstrap 95 %]", lambda r: r.calibration and interval(r.calibration.ici, r.n)),
    Measure("E50, E90: median and 90th percentile of that distance", lambda r: r.calibration and _distances(r.calibration, r.n)),
    Measure("Expected calibration error", lambda r: r.calibration and number(r.calibration.ece, n=r.n)),
    _rate("Sensitivity at the fold's threshold", lambda point: point.sensitivity),
    _rate("Specificity", lambda point: point.specificity),
    _rate("Positive predictive value", lambda point: point.ppv),
    _rate("Negative predictive value", lambda point: point.npv),
)
SURVIVAL: tuple[Measure[SurvivalResult], ...] = (
    Measure("Patients (died)", lambda r: f"{r.n} ({r.events})"),
    Measure("Harrell's C, judged [95 %, corrected for refitting]", judged),
    Measure("Harrell's C, all patients [95 %]", lambda r: interval(r.harrell_c, r.n)),
    Measure("Harrell's C, mean ± variance over folds", _spread),
    Measure("Uno's C [95 %]", lambda r: f"{interval(r.uno_c, r.n)}, up to {number(r.uno_c.tau_days, 0)} days"),
    Measure(TEST, _chance_test),
    Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
    Measure(RETRAINED, _retrained),
    Measure(SITES, _sites),
    Measure("Log-rank of the risk groups", _logrank),
    Measure("Hazard ratio per standard deviation of the risk [95 %]", lambda r: _hazard(r.hazard.per_sd, r.n)),
    Measure("Hazard ratio, high against low risk [95 %]", lambda r: _hazard(r.hazard.high_vs_low, r.n)),
    Measure("Restricted mean survival, high minus low risk [95 %]", _restricted_mean),
    Measure("AUC(t), mean over time", lambda r: number(r.mean_auc, n=r.n)),
    Measure("Integrated Brier score [bootstrap 95 %] (Kaplan–Meier alone)", _integrated_brier),
    Measure(
        "Scaled integrated Brier score, 0 without a model [bootstrap 95 %]",
        lambda r: r.integrated_brier and _scaled(r.integrated_brier.scaled, r.n),
    ),
)
