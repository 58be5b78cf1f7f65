"""An added value in words: findings in; sentences, the cells of tables, and how it was made out."""

from __future__ import annotations

import numpy as np
from reproductions.html_page import Table

from mri_vit.metrics.comparison import holm
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.words.notation import EXPLAINED, adjusted_p, between, change, ends, number, p_alone, p_value, title
from mri_vit.settings.recipe import VOLUME
from mri_vit.studies.added_value.findings import Findings, Tried, adds
from mri_vit.studies.added_value.numbers import RISK, Concordance, HazardRatio, LikelihoodRatio
from mri_vit.studies.added_value.people import DEALT

LARGEST = 999  # a hazard ratio that is written out; beyond it nothing is known but that it is large
FEWEST_DEATHS = 10  # for each coefficient; Peduzzi et al. 1995, doi:10.1016/0895-4356(95)00048-8
SIMULATED = (  # pipelines/null_added_value.py
    "Simulated, risks that add nothing are found at p ≤ 0.05 in 8 to 15 % of studies as given, and in 4 % or fewer so."
)
SIMULATED_C = "Simulated, a risk that adds nothing changes C by −0.001 to +0.001 on average, and no interval lay above 0."
PUBLISHED = (
    "Published: on two external test sets a network's index adds to clinical and molecular columns (n = 708: C 0.783 against "
    "0.774, p = 0.001; n = 132: 0.766 against 0.748, p = 0.023). Those patients taught no network. They are other people with "
    "other columns, so that the figures here are not to be held against them."
)


def sentences(of: Findings) -> list[str]:
    """The answer, a finding each; the simplest explanation stands beside a good one."""
    said = [_answer(of)]
    if adds(of.found, of.p_risk):
        said += [_beside(control, tried) for control, tried in of.beside.items()]
    said += [_concordances(of), _reverse(of), _patients(of)]
    said += [_changing(of)] if changing(of) else []
    return said + ([_permuted(of.permuted)] if of.permuted else [])


def _answer(of: Findings) -> str:
    ratio = of.found.both[RISK]
    figures = (
        f"hazard ratio {of_ratio(ratio)} per standard deviation, likelihood ratio {_chi2(of.found.test)}, {adjusted_p(of.p_risk)}"
    )
    subject, covariates = f"The risk of {of.asked.model}", listed([called(name) for name in of.taken.adjusted])
    if adds(of.found, of.p_risk):
        return f"{subject} adds to {covariates} by more than chance: {figures}."
    if of.p_risk <= ALPHA:
        return f"{subject} is related to survival the wrong way round, given {covariates}: {figures}."
    return f"{subject} does not add to {covariates} by more than chance: {figures}."


def _beside(control: str, tried: Tried) -> str:
    whose = f"the out-of-fold risk of the control {control} ({EXPLAINED[control]})"
    if isinstance(tried, str):
        return f"Whether it adds to {whose} as well could not be told: {tried}."
    figures = f"hazard ratio {of_ratio(tried.both[RISK])}, {p_value(tried.test.p)}"
    if adds(tried, tried.test.p):
        return f"It still adds where {whose} stands among the covariates: {figures}."
    if tried.test.p <= ALPHA:
        return f"Where {whose} stands among the covariates, it is related to survival the wrong way round: {figures}."
    cause = "so a size that can be measured may be all that it knows" if control == VOLUME else "so that may be all it knows"
    return f"It does not add by more than chance where {whose} stands among the covariates: {figures}; {cause}."


def _concordances(of: Findings) -> str:
    found = of.found
    gain = change(found.gain.difference, found.gain.low, found.gain.high)
    return (
        f"Harrell's C, out of fold, is {of_c(found.c_without)} with the covariates, {of_c(found.c_alone)} with the risk and "
        f"{of_c(found.c_both)} with both: the risk changes it by {gain}."
    )


def _reverse(of: Findings) -> str:
    found, given = of.found, of.found.gain_reverse
    verb = "add" if of.p_covariates <= ALPHA else "do not add"
    return (
        f"The other way round, the covariates {verb} to the risk by more than chance: likelihood ratio {_chi2(found.reverse)}, "
        f"{adjusted_p(of.p_covariates)}; they change C by {change(given.difference, given.low, given.high)}."
    )


def _patients(of: Findings) -> str:
    found = of.found
    per = found.deaths / found.coefficients
    said = (
        f"{found.n} of {of.taken.known} patients with a risk and a known outcome have every covariate; {found.deaths} died, "
        f"{number(per, 1)} for each of {found.coefficients} coefficients"
    )
    if per < FEWEST_DEATHS:
        said += f": fewer than {FEWEST_DEATHS}, so that hazard ratios and their intervals are rough"
    return said + "."


def changing(of: Findings) -> dict[str, float]:
    """The columns whose hazard ratio is seen to change over time, with Holm's p over all columns of the regression on all."""
    tests = {name: ratio.proportional_p for name, ratio in of.found.both.items()}
    adjusted = holm(np.array(list(tests.values())))
    return {name: float(p) for name, p in zip(tests, adjusted, strict=True) if p <= ALPHA}


def _changing(of: Findings) -> str:
    found = ", ".join(f"{label(name, of)} ({adjusted_p(p)})" for name, p in changing(of).items())
    return f"Hazards are not proportional: the hazard ratio of {found} changes over time, and the figure given is a mean."


def _permuted(tried: Tried) -> str:
    if isinstance(tried, str):
        return f"The network that learned permuted labels could not be asked likewise: {tried}."
    figures = f"hazard ratio {of_ratio(tried.both[RISK])}, {p_value(tried.test.p)} ({p_value(tried.test.given_p)} as given)"
    verb = "adds, which it should not" if adds(tried, tried.test.p) else "adds nothing by more than chance, as it should be"
    return f"The network that learned permuted labels, asked likewise of these labels, {verb}: {figures}."


def facts(of: Findings) -> list[str]:
    """How it was made, and what limits it."""
    return [
        f"Adjusted for {listed([called(name) for name in of.taken.adjusted])}, as the run's cohort table has them. Patients who "
        "lack one are left out, and nothing is imputed.",
        *(_refitted(of) if of.asked.inflated > 1 else _given()),
        "The covariates were learned by no network, so their likelihood ratio is taken as it is (simulated, covariates that add "
        "nothing are found in 5 to 6 %). The two adjusted p are Holm's "
        "of these two tests; those beside a control are not adjusted, for a risk has to pass all of them.",
        "Assumed: each log hazard is linear in its column, so that a risk may add no more than the curve of a covariate; "
        "hazards are proportional (the last column of the first table is Grambsch and Therneau's test on Schoenfeld's "
        "residuals); censoring is unrelated to survival.",
        PUBLISHED,
    ]


def _refitted(of: Findings) -> list[str]:
    asked, inflated = of.asked, of.asked.inflated
    times = "one repeat" if asked.repeats == 1 else f"{asked.repeats} repeats, whose figures are averaged"
    return [
        f"Risks are out of fold: of a network that did not learn from the patient ({asked.folds} folds, {times}). Networks "
        "share neither scale nor zero, so risks are standardised among the patients that one network scored, and each fold has "
        "a baseline hazard of its own (a stratified Cox regression, Efron's ties): nobody is held against a patient of another "
        "fold.",
        "A patient is scored by a network that learned from those whom a network that learned from this patient scores, so "
        f"that chance counts twice. χ² is therefore divided by {number(inflated**2, 2)} for p, and the interval of the risk's "
        f"hazard ratio is {number(inflated, 2)} times as wide. {SIMULATED}",
        "C is of pairs within a fold, and the coefficients behind it come from the patients of the other folds, with the prior "
        "of the control on clinical columns. Those patients' risks are by networks that learned from this fold, which no "
        f"finished run can avoid. {SIMULATED_C} The interval of a change in C is wide where the gain is small: whether a risk "
        "adds is judged by the likelihood ratio.",
    ]


def _given() -> list[str]:
    return [
        "The patients taught no network, so that risks and χ² are taken as they are. The coefficients behind C come from other "
        f"patients of the same cohort, in {DEALT} folds that are dealt here."
    ]


def hazard_table(of: Findings) -> Table:
    """Hazard ratios without and with the risk."""
    rows = []
    for name, ratio in of.found.both.items():
        less = of.found.without.get(name)
        before = (of_ratio(less), p_alone(less.p)) if less else ("", "")
        rows.append((label(name, of), *before, of_ratio(ratio), p_alone(ratio.p), p_alone(ratio.proportional_p)))
    columns = ("", "covariates alone", "p", "with the risk", "p", "constant over time, p")
    wider = " Interval and p of the risk allow for the refitting of networks." if of.asked.inflated > 1 else ""
    note = f"Hazard ratios with 95 % intervals; p is Wald's, of this column alone, not adjusted.{wider}"
    return Table("Hazard ratios without and with the risk", columns, rows, note)


def test_table(of: Findings) -> Table:
    """Both likelihood ratios."""
    rows = [
        (
            name,
            number(test.chi2, 2),
            str(test.df),
            p_alone(test.given_p),
            number(test.inflated**2, 2),
            p_alone(test.p),
            p_alone(p),
        )
        for name, test, p in (
            (f"risk of {of.asked.model}, given the covariates", of.found.test, of.p_risk),
            ("covariates, given the risk", of.found.reverse, of.p_covariates),
        )
    ]
    columns = ("adds", "χ²", "degrees of freedom", "p as given", "χ² divided by", "p", "adjusted p")
    return Table("Likelihood ratios", columns, rows)


def concordance_table(of: Findings) -> Table:
    """C of each regression, and what each part changes."""
    found = of.found
    rows = [
        ("covariates alone", of_c(found.c_without), ""),
        ("risk alone", of_c(found.c_alone), ""),
        ("both", of_c(found.c_both), ""),
        *(
            (name, "", change(gain.difference, gain.low, gain.high))
            for name, gain in (("both − covariates", found.gain), ("both − risk", found.gain_reverse))
        ),
    ]
    columns = ("linear predictor, out of fold", "Harrell's C", "difference")
    return Table("Harrell's C of pairs within a fold", columns, rows, "With 95 % intervals, on the same patients and pairs.")


def beside_table(of: Findings) -> Table:
    """The risk beside each control that reads the scans."""
    rows = []
    for control, tried in of.beside.items():
        if isinstance(tried, str):
            rows.append((control, "not fitted", "", "", "", ""))
            continue
        gain = change(tried.gain.difference, tried.gain.low, tried.gain.high)
        ratio = tried.both[RISK]
        rows.append((control, of_ratio(ratio), number(tried.test.chi2, 2), p_alone(tried.test.p), of_c(tried.c_without), gain))
    columns = ("also adjusted for the risk of", "hazard ratio of the network's", "χ²", "p", "C without it", "change of C")
    note = "The controls' risks are out of fold too. " + " ".join(f"{name}: {EXPLAINED[name]}." for name in of.beside)
    return Table("The same beside a simpler risk from the scans", columns, rows, note)


def left_out(of: Findings) -> list[str]:
    """Sentences on covariates that were left out, and on whom each missing one costs."""
    said = [f"{called(name)} {why} and is left out." for name, why in of.taken.left_out.items()]
    if of.taken.lacking:
        lacking = listed([f"{called(name)} in {count}" for name, count in of.taken.lacking.items()])
        said.append(f"Of {of.taken.known} patients, missing: {lacking}.")
    return said


def label(name: str, of: Findings) -> str:
    """A column's name for people."""
    return f"risk of {of.asked.model}, per SD" if name == RISK else called(name)


def called(column: str) -> str:
    """A covariate's name for people: of a marker its full name, with what its hazard ratio is of."""
    name, colon, levels = column.partition(": ")
    return f"{title(name)}{colon}{levels}"


def of_ratio(ratio: HazardRatio) -> str:
    """A hazard ratio with its interval: 2.44 [1.52, 3.94]."""
    return f"{_factor(ratio.value)} {ends(ratio.low, ratio.high, write=_factor)}"


def _factor(value: float | None) -> str:
    return number(value, 2) if value is None or not value > LARGEST else f"> {LARGEST}"


def of_c(found: Concordance) -> str:
    return between(found.value, found.low, found.high)


def listed(names: list[str]) -> str:
    """age, sex and site"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _chi2(test: LikelihoodRatio) -> str:
    tie = "\N{NO-BREAK SPACE}"
    return f"χ²{tie}={tie}{number(test.chi2, 2)} ({test.df} degree{'s' * (test.df > 1)} of freedom)"
