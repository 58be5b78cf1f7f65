"""The table of measures of one endpoint: a line per measure, a cell per model. Results of `metrics.json` in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mri_vit.report.schema.binary import BinaryResult, OperatingPoint
from mri_vit.report.schema.parts import Estimate
from mri_vit.report.schema.survival import AucAt, BrierAt, Days, HazardRatio, SurvivalResult
from mri_vit.report.words.notation import adjusted_p, between, ends, interval, is_defined, judged, number, p_value
from mri_vit.report.words.verdicts import METHODS

R = TypeVar("R", BinaryResult, SurvivalResult)
Row = tuple[str, list[str]]
ABSENT = "–"


@dataclass(frozen=True)
class Measure(Generic[R]):
    """A line of the table: its name, and how a result writes it; None where the result does not have it."""

    label: str
    write: Callable[[R], str | None]


def lines(models: Mapping[str, BinaryResult | SurvivalResult]) -> list[Row]:
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
    return [
        *(Measure(f"AUC({days} days), cumulative/dynamic", _auc_at(days)) for days in aucs),
        *(Measure(f"Brier score at {days} days (Kaplan–Meier alone)", _brier_at(days)) for days in briers),
    ]


def _auc_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(point: AucAt) -> str:
        return f"{interval(point, point.cases + point.controls)}, {point.cases} died by then, {point.controls} alive"

    return lambda r: next((write(point) for point in r.auc_at if point.days == days), None)


def _brier_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(point: BrierAt) -> str:
        return f"{number(point.value)} ({number(point.reference)})"

    return lambda r: next((write(point) for point in r.brier_at if point.days == days), None)


def _spread(result: BinaryResult | SurvivalResult) -> str | None:
    if len(result.folds) == len(result.repeats):
        return None  # one fold: there is nothing to take a mean of
    return f"{number(result.fold_mean, 4, result.n)} ± {number(result.fold_variance, 4)}"


def _rate(label: str, of: Callable[[OperatingPoint], Estimate]) -> Measure[BinaryResult]:
    return Measure(label, lambda r: r.operating_point and interval(of(r.operating_point), r.operating_point.n))


def _uno(r: SurvivalResult) -> str:
    return f"{interval(r.uno_c, r.n)}, up to {number(r.uno_c.tau_days, 0)} days"


def _logrank(r: SurvivalResult) -> str:
    return f"χ² = {number(r.logrank.chi2, 2)}, {p_value(r.logrank.p)}"


def _hazard(r: HazardRatio, n: int) -> str:
    return f"{interval(r, n, 2)}, the same at all times: {p_value(r.proportional_p)}"


def _restricted_mean(r: SurvivalResult) -> str:
    found = r.restricted_mean
    until = f", up to {number(found.tau_days, 0)} days" if is_defined(found.tau_days) else ""
    return f"{interval(found.difference, r.n, 0)} days{until}"


def _integrated_brier(r: SurvivalResult) -> str | None:
    found = r.integrated_brier
    return found and f"{interval(found, r.n)} ({number(found.reference)})"


def _slope(r: BinaryResult) -> str | None:
    fit = r.calibration
    return fit and between(fit.slope, fit.slope_interval.low, fit.slope_interval.high, r.n)


def _intercept(r: BinaryResult) -> str | None:
    fit = r.calibration
    return fit and between(fit.intercept, fit.intercept_interval.low, fit.intercept_interval.high, r.n)


TEST = "Against chance, one-sided, not adjusted"
ADJUSTED = "Against chance, one-sided, Holm over endpoints and candidates, or controls"
RETRAINED = "Another training of the same study would lie in"
SITES = "Pairs of patients of one site"


def _test(r: BinaryResult | SurvivalResult) -> str:
    test = r.chance_test
    draws = f", {test.draws:,} permutations" if test.draws else ""
    return f"{p_value(test.p)}; {METHODS[test.method]}{draws}, error × {number(test.inflation, 2)}"


def _retrained(r: BinaryResult | SurvivalResult) -> str | None:
    found = r.retraining
    single = ", of a single network each" if found and found.source == "seeds" else ""
    return found and f"{ends(found.low, found.high)}, of {found.trainings} {found.source}{single}"


def _sites(r: BinaryResult | SurvivalResult) -> str | None:
    found = r.within_sites
    if not found:
        return None
    beyond = f", I² {number(100 * found.i_squared, 0)} %" if is_defined(found.i_squared) else ""
    between = f"{number(found.least)} to {number(found.most)} in {found.sites} sites{beyond}"
    return f"{number(found.value)}, one-sided {p_value(found.p)}, not adjusted; {between}"


BINARY: tuple[Measure[BinaryResult], ...] = (
    Measure("Patients (positive)", lambda r: f"{r.n} ({r.positive})"),
    Measure("AUC that is judged [95 %, refitting allowed for]", judged),
    Measure("AUC, all patients [DeLong 95 %]", lambda r: interval(r.auc, r.n)),
    Measure("AUC, all patients, Wilson 95 %", lambda r: ends(r.auc_wilson.low, r.auc_wilson.high)),
    Measure("AUC, all patients, bootstrap 95 %", lambda r: ends(r.auc_bootstrap.low, r.auc_bootstrap.high)),
    Measure("AUC, mean ± variance over folds", _spread),
    Measure(TEST, _test),
    Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
    Measure(RETRAINED, _retrained),
    Measure(SITES, _sites),
    Measure("Average precision [bootstrap 95 %]", lambda r: interval(r.average_precision, r.n)),
    Measure("Prevalence, the average precision of chance", lambda r: number(r.average_precision.chance)),
    Measure("Brier score [bootstrap 95 %]", lambda r: r.brier and interval(r.brier, r.n, 4)),
    Measure("Brier score: reliability (lower is better)", lambda r: r.brier and number(r.brier.reliability, 4, r.n)),
    Measure("Brier score: resolution (higher is better)", lambda r: r.brier and number(r.brier.resolution, 4, r.n)),
    Measure("Brier score: uncertainty", lambda r: r.brier and number(r.brier.uncertainty, 4, r.n)),
    Measure("Brier score: within bins", lambda r: r.brier and number(r.brier.within, 4, r.n)),
    Measure("Calibration slope [bootstrap 95 %]", _slope),
    Measure("Calibration intercept [bootstrap 95 %]", _intercept),
    Measure("Calibration in the large", lambda r: r.calibration and number(r.calibration.in_the_large, n=r.n)),
    Measure(
        "Observed to expected positives (O:E) [bootstrap 95 %]",
        lambda r: r.calibration and interval(r.calibration.observed_to_expected, r.n),
    ),
    Measure("Integrated calibration index (ICI) [bootstrap 95 %]", lambda r: r.calibration and interval(r.calibration.ici, r.n)),
    Measure("Expected calibration error", lambda r: r.calibration and number(r.calibration.ece, n=r.n)),
    _rate("Sensitivity at the fold's threshold", lambda point: point.sensitivity),
    _rate("Specificity", lambda point: point.specificity),
    _rate("Positive predictive value", lambda point: point.ppv),
    _rate("Negative predictive value", lambda point: point.npv),
)
SURVIVAL: tuple[Measure[SurvivalResult], ...] = (
    Measure("Patients (died)", lambda r: f"{r.n} ({r.events})"),
    Measure("Harrell's C that is judged [95 %, refitting allowed for]", judged),
    Measure("Harrell's C, all patients [bootstrap 95 %]", lambda r: interval(r.harrell_c, r.n)),
    Measure("Harrell's C, mean ± variance over folds", _spread),
    Measure("Uno's C [bootstrap 95 %]", _uno),
    Measure(TEST, _test),
    Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
    Measure(RETRAINED, _retrained),
    Measure(SITES, _sites),
    Measure("Log-rank of the risk groups", _logrank),
    Measure("Hazard ratio per standard deviation of the risk [95 %]", lambda r: _hazard(r.hazard.per_sd, r.n)),
    Measure("Hazard ratio, high against low risk [95 %]", lambda r: _hazard(r.hazard.high_vs_low, r.n)),
    Measure("Restricted mean survival, high less low risk [95 %]", _restricted_mean),
    Measure("AUC(t), mean over time", lambda r: number(r.mean_auc, n=r.n)),
    Measure("Integrated Brier score [bootstrap 95 %] (Kaplan–Meier alone)", _integrated_brier),
)
