"""The table of measures of one endpoint: a line per measure, a cell per model. Results of metrics.json in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mri_vit.report.words.notation import adjusted_p, ends, interval, number, p_value

Result = Mapping[str, Any]
Write = Callable[[Result], str]
ABSENT = "–"


@dataclass(frozen=True)
class Measure:
    """A line of the table: its name, how a result writes it, and the part of the result that it needs."""

    label: str
    write: Write
    part: str = "n"  # which every result has


def lines(kind: str, models: Mapping[str, Result]) -> list[tuple[str, list[str]]]:
    """Each measure's name and a cell per model, in the order of `models`; a measure that no model has is left out."""
    table = [*(BINARY if kind == "binary" else SURVIVAL), *_at_horizons(models)]
    cells = [(measure.label, [_cell(measure, result) for result in models.values()]) for measure in table]
    return [(label, row) for label, row in cells if set(row) != {ABSENT}]


def _cell(measure: Measure, result: Result) -> str:
    return ABSENT if result[measure.part] is None else measure.write(result)


def _at_horizons(models: Mapping[str, Result]) -> list[Measure]:
    """AUC(t) and Brier(t) at every horizon that a model has."""
    found = []
    for key, label, write in (
        ("auc_at", "AUC({} days), cumulative/dynamic", _auc_at),
        ("brier_at", "Brier score at {} days (Kaplan–Meier alone)", _brier_at),
    ):
        for days in sorted({point["days"] for result in models.values() for point in result.get(key) or ()}):
            found.append(Measure(label.format(days), _at(key, days, write)))
    return found


def _at(key: str, days: int, write: Write) -> Write:
    return lambda result: next((write(point) for point in result[key] or () if point["days"] == days), ABSENT)


def _auc_at(point: Result) -> str:
    return f"{interval(point, point['cases'] + point['controls'])}, {point['cases']} died by then, {point['controls']} alive"


def _brier_at(point: Result) -> str:
    return f"{number(point['value'])} ({number(point['reference'])})"


def _spread(result: Result) -> str:
    if len(result["folds"]) == len(result["repeats"]):
        return ABSENT  # one fold: there is nothing to take a mean of
    return f"{number(result['fold_mean'], 4, result['n'])} ± {number(result['fold_variance'], 4)}"


def _brier(name: str, label: str) -> Measure:
    return Measure(f"Brier score{label}", lambda r: number(r["brier"][name], 4, r["n"]), "brier")


def _calibration(name: str, label: str) -> Measure:
    return Measure(label, lambda r: number(r["calibration"][name], n=r["n"]), "calibration")


def _rate(name: str, label: str) -> Measure:
    return Measure(label, lambda r: interval(r["operating_point"][name], r["operating_point"]["n"]), "operating_point")


PERMUTATION = (
    Measure("Permutation test, not adjusted", lambda r: p_value(r["permutation"]["p"])),
    Measure("Permutation test, Holm over endpoints and models", lambda r: adjusted_p(r["permutation"]["p_adjusted"])),
)
BINARY = (
    Measure("Patients (positive)", lambda r: f"{r['n']} ({r['positive']})"),
    Measure("AUC, all patients [DeLong 95 %]", lambda r: interval(r["auc"], r["n"])),
    Measure("AUC, bootstrap 95 %", lambda r: ends(r["auc_bootstrap"]["low"], r["auc_bootstrap"]["high"])),
    Measure("AUC, pairs within a fold only", lambda r: number(r["auc_within_folds"]["value"], n=r["n"]), "auc_within_folds"),
    Measure("AUC, mean ± variance over folds", _spread),
    *PERMUTATION,
    Measure("Average precision [bootstrap 95 %]", lambda r: interval(r["average_precision"], r["n"])),
    Measure("Prevalence, the average precision of chance", lambda r: number(r["average_precision"]["chance"])),
    _brier("value", ""),
    _brier("reliability", ": reliability (lower is better)"),
    _brier("resolution", ": resolution (higher is better)"),
    _brier("uncertainty", ": uncertainty"),
    _brier("within", ": within bins"),
    _calibration("slope", "Calibration slope"),
    _calibration("intercept", "Calibration intercept"),
    _calibration("in_the_large", "Calibration in the large"),
    _calibration("ece", "Expected calibration error"),
    _rate("sensitivity", "Sensitivity at the fold's threshold"),
    _rate("specificity", "Specificity"),
    _rate("ppv", "Positive predictive value"),
    _rate("npv", "Negative predictive value"),
)
SURVIVAL = (
    Measure("Patients (died)", lambda r: f"{r['n']} ({r['events']})"),
    Measure("Harrell's C, all patients [bootstrap 95 %]", lambda r: interval(r["harrell_c"], r["n"])),
    Measure(
        "Harrell's C, pairs within a fold only",
        lambda r: number(r["harrell_c_within_folds"]["value"], n=r["n"]),
        "harrell_c_within_folds",
    ),
    Measure("Harrell's C, mean ± variance over folds", _spread),
    Measure(
        "Uno's C [bootstrap 95 %]", lambda r: f"{interval(r['uno_c'], r['n'])}, up to {number(r['uno_c']['tau_days'], 0)} days"
    ),
    *PERMUTATION,
    Measure("Log-rank of the risk groups", lambda r: f"χ² = {number(r['logrank']['chi2'], 2)}, {p_value(r['logrank']['p'])}"),
    Measure("AUC(t), mean over time", lambda r: number(r["mean_auc"], n=r["n"])),
    Measure(
        "Integrated Brier score (Kaplan–Meier alone)",
        lambda r: f"{number(r['integrated_brier']['value'], n=r['n'])} ({number(r['integrated_brier']['reference'])})",
        "integrated_brier",
    ),
)
