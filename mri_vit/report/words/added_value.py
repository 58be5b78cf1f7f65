"""Whether a risk adds to age and molecular markers, in words: the analyses in, sentences and names of columns out."""

from __future__ import annotations

import numpy as np

from mri_vit.metrics.added_value import RISK
from mri_vit.metrics.comparison import holm
from mri_vit.report.numbers.added_value import AddedValueFigures
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.schema.endpoints import CovariateRatio, CoxComparison, LikelihoodRatio, RiskTest
from mri_vit.report.schema.parts import Estimate, Kind
from mri_vit.report.verdicts.models import of_added_value
from mri_vit.report.words.notation import EXPLAINED, adjusted_p, change, ends, interval, listed, number, p_value, title

LARGEST = 999  # a hazard ratio that is written out; beyond it nothing is known but that it is large
DEATHS_PER_COEFFICIENT = 10  # from which intervals can be relied on; Peduzzi et al. 1995, doi:10.1016/0895-4356(95)00048-8


def sentences(measured: AddedValueFigures, kind: Kind) -> list[str]:
    """The answer, then what limits it; the simplest explanation follows a good one."""
    analysis = measured.analysis
    if isinstance(analysis, str):
        return [f"Whether the risk of {measured.model} adds to age and molecular markers cannot be tested: {analysis}."]
    text = [_answer(measured, analysis, kind), _concordances(analysis)]
    text += [_beside(control, attempt) for control, attempt in measured.beside.items()]
    text += [_reverse(measured, analysis), _patients(measured, analysis)]
    text += [f"{called(name)} {why} and is left out." for name, why in measured.left_out.items()]
    changing = _changing(measured.model, analysis)
    text += (
        [f"Hazards are not proportional: the hazard ratio of {changing} changes over time; the mean is given."]
        if changing
        else []
    )
    return text + ([_permuted(measured.permuted)] if measured.permuted else [])


def _answer(measured: AddedValueFigures, analysis: CoxComparison, kind: Kind) -> str:
    covariates = listed([called(name) for name in measured.covariates])
    numbers = (
        f"{chi_squared(analysis.test)}, {adjusted_p(measured.adjusted_p['risk'])}; hazard ratio "
        f"{of_ratio(analysis.both[RISK])} per standard deviation"
    )
    claim = {
        "better": f"The risk of {measured.model} adds to {covariates}",
        "worse": f"Given {covariates}, patients with a higher risk of {measured.model} live longer",
    }.get(kind, f"No evidence that the risk of {measured.model} adds to {covariates}")
    return f"{claim}: {numbers}."


def _concordances(analysis: CoxComparison) -> str:
    return (
        f"Harrell's C, out of fold, is {interval(analysis.c_without)} with the covariates, {interval(analysis.c_alone)} with the "
        f"risk and {interval(analysis.c_both)} with both: the risk changes it by {of_gain(analysis.gain)}."
    )


def _beside(control: str, attempt: RiskTest | str) -> str:
    risk = f"the risk of the control {control} ({EXPLAINED[control]})"
    if isinstance(attempt, str):
        return f"Adjusted for {risk} as well: not tested, because {attempt}."
    numbers = f"hazard ratio {of_ratio(attempt.hazard_ratio)}, {p_value(attempt.test.p)}"
    claims = {"better": "it still adds", "worse": "patients with a higher risk live longer"}
    claim = claims.get(of_added_value(attempt.hazard_ratio.value, attempt.test.p), "there is no evidence that it adds")
    return f"Adjusted for {risk} as well, {claim}: {numbers}."


def _reverse(measured: AddedValueFigures, analysis: CoxComparison) -> str:
    p = measured.adjusted_p["covariates"]
    claim = "The covariates add to the risk" if p <= ALPHA else "No evidence that the covariates add to the risk"
    return f"{claim}: {chi_squared(analysis.reverse)}, {adjusted_p(p)}; they change C by {of_gain(analysis.gain_reverse)}."


def _patients(measured: AddedValueFigures, analysis: CoxComparison) -> str:
    per = analysis.deaths / analysis.coefficients
    missing = listed([f"{called(name)} in {count}" for name, count in measured.missing.items()]) if measured.missing else ""
    return (
        f"{analysis.n} of {measured.known} patients with a risk and a known outcome have every covariate"
        f"{f' (missing: {missing})' if missing else ''}; {analysis.deaths} died, {number(per, 1)} for each of "
        f"{analysis.coefficients} coefficients"
        + (
            f": fewer than {DEATHS_PER_COEFFICIENT}, so hazard ratios and intervals are rough."
            if per < DEATHS_PER_COEFFICIENT
            else "."
        )
    )


def _changing(model: str, analysis: CoxComparison) -> str:
    """The columns whose hazard ratio changes over time, by Holm's p over all columns; "" without any."""
    adjusted = holm(np.array([ratio.proportional_p for ratio in analysis.both.values()]))
    changing = [(name, float(p)) for name, p in zip(analysis.both, adjusted, strict=True) if p <= ALPHA]
    return listed([f"{label(name, model)} ({adjusted_p(p)})" for name, p in changing]) if changing else ""


def _permuted(attempt: RiskTest | str) -> str:
    if isinstance(attempt, str):
        return f"The network trained on permuted labels could not be tested on them: {attempt}."
    numbers = (
        f"hazard ratio {of_ratio(attempt.hazard_ratio)}, {p_value(attempt.test.p)} ({p_value(attempt.test.given_p)} as given)"
    )
    adds = of_added_value(attempt.hazard_ratio.value, attempt.test.p) == "better"
    claim = "adds to the covariates, which it should not" if adds else "adds nothing to the covariates, as expected"
    return f"The network trained on permuted labels, tested on them, {claim}: {numbers}."


def label(column: str, model: str) -> str:
    """The name of a column of a regression."""
    return f"risk of {model}, per SD" if column == RISK else called(column)


def called(column: str) -> str:
    """A covariate's name, of a marker its full name, with what its hazard ratio is of."""
    name, colon, levels = column.partition(": ")
    return f"{title(name)}{colon}{levels}"


def of_ratio(ratio: CovariateRatio) -> str:
    """A hazard ratio with its interval: 2.44 [1.52, 3.94]."""
    return f"{_factor(ratio.value)} {ends(ratio.low, ratio.high, write=_factor)}"


def of_gain(gain: Estimate) -> str:
    """A difference of C with its interval: +0.120 [+0.030, +0.210]."""
    return change(gain.value, gain.low, gain.high)


def chi_squared(test: LikelihoodRatio) -> str:
    """likelihood ratio χ² = 4.20 (1 df)"""
    tie = "\N{NO-BREAK SPACE}"
    return f"likelihood ratio χ²{tie}={tie}{number(test.chi2, 2)} ({test.df}{tie}df)"


def _factor(value: float) -> str:
    return number(value, 2) if not value > LARGEST else f"> {LARGEST}"
