"""Sentences beside the verdicts: what limits a result, what a risk adds to age and molecular markers, published figures, and the
glossary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup, escape

from mri_vit.metrics.added_value import RISK
from mri_vit.metrics.comparison import holm
from mri_vit.report.schema.measured import (
    ALPHA,
    MIN_OF_SITE,
    MIN_SITES,
    AddedValueFigures,
    Caveats,
    Contradiction,
    DriftFigures,
    Expectation,
    Ordered,
    ProbeFigures,
)
from mri_vit.report.schema.parts import Design, Estimate, Kind, Published
from mri_vit.report.schema.survival import CompleteCases, CovariateRatio, CoxComparison, LikelihoodRatio, RiskTest
from mri_vit.report.verdicts import of_added_value
from mri_vit.report.words.notation import (
    EXPLAINED,
    SYMBOLS,
    adjusted_p,
    change,
    ends,
    interval,
    is_defined,
    listed,
    number,
    p_value,
    title,
    word_list,
)

MAX_NAMED = 3  # groups of patients that a sentence names
CUTOFFS: Mapping[Design, str] = {  # what the threshold of a predictions table is
    "cross-validation": "the cut-off of the patient's fold in the predictions table: the median risk of the fold's training "
    "patients, learned without the patients shown",
    "external": "the mean of the run's fold cut-offs, each the median risk of that fold's training patients",
    "table": "the threshold in the predictions table; how it was chosen is not known here",
    "held-out": "the threshold in the predictions table; how it was chosen is not known here",
}


def score_remark(measure: str, caveats: Caveats, n: int) -> str | None:
    """Whether the scores of `n` patients are all equal, or the pooled figure and that of pairs within a fold are far apart."""
    if caveats.tied:
        return f"Warning: all {n} scores are equal, so the model does not distinguish the patients."
    if not (apart := caveats.apart):
        return None
    where = "In the first repeat the" if apart.repeats > 1 else "The"
    return (
        f"{where} pooled {measure} ({apart.pooled:.3f}) and that of pairs within a fold ({apart.within:.3f}) lie apart, and so "
        "do the folds' scores: their models use different scales, so rely on the figure within folds."
    )


def ordered_sentence(model: str, found: Ordered) -> str:
    """That scores follow an order which they cannot know."""
    return (
        f"scores of {model} rise or fall with {found.order} among patients of the same fold and outcome (rank correlation "
        f"{number(found.correlation, 2)}, {p_value(found.p)}): did the order give the answer away, or did scans change over time?"
    )


def copies_sentence(groups: Sequence[tuple[str, ...]]) -> str:
    """That patients under several ids have one score and one outcome."""
    return f"{_groups(groups)} have the same score and outcome to the last digit: one patient under several ids?"


def scans_of_one_sentence(groups: Sequence[tuple[str, ...]]) -> str:
    """That ids which differ in their last part have the same labels."""
    return (
        f"{_groups(groups)} look like scans of one patient: their ids differ in the last part alone, and their labels agree in "
        "every group. Name visits in a column session, so that no patient is both trained on and tested"
    )


def contradiction_sentence(model: str, found: Contradiction) -> str:
    """That Uno's C says otherwise than Harrell's."""
    return (
        f"Harrell's C ({found.harrell:.3f}) and Uno's ({found.uno:.3f}) of {model} contradict each other: late deaths, which "
        "weigh most in Uno's, go another way than early ones, and a few may decide it; rely on neither alone"
    )


def _groups(groups: Sequence[tuple[str, ...]]) -> str:
    more = len(groups) - MAX_NAMED
    named = "; ".join(", ".join(group) for group in groups[:MAX_NAMED])
    return f"patients {named}" + f" (and {more} more groups)" * (more > 0)


def not_probability(caveats: Caveats, n: int) -> str | None:
    """Why the scores of `n` patients are no probabilities."""
    if not caveats.outside:
        return None
    return f"{caveats.outside} of {n} scores lie outside 0 to 1: they rank patients but are not probabilities"


def risk_group_cutoffs(has_cutoffs: bool, design: Design, repeats: int) -> str:
    """Where the cut-offs of the risk groups come from."""
    repeated = " Patients are shown as in the first repeat." if repeats > 1 else ""
    if has_cutoffs:
        return f"High risk means a risk at or above {CUTOFFS[design]}.{repeated}"
    return (
        "High risk means a risk above the median of the patient's own test fold, because the table has no cut-off learned "
        f"beforehand. The split shows the order of the risks; it is not a rule for new patients.{repeated}"
    )


def site_probe_sentence(probe: ProbeFigures, warning: bool) -> str:
    """Whether the model's CLS vector predicts the site."""
    accuracy = probe.balanced_accuracy
    figures = f"balanced accuracy {interval(accuracy)}, chance {probe.chance:.2f}"
    figures += f", one-sided permutation {p_value(probe.p)}, not adjusted"
    if warning:
        return f"the model's CLS vector predicts the site ({figures}): a shortcut is possible where site and label are related"
    return f"no evidence that the model's CLS vector predicts the site ({figures})"


RARER_GROUP = {
    "auc": "patients of each class",
    "harrell_c": "deaths",
    "hand_till_m": "patients of each class",
    "generalised_c": "patients beside the commonest value",
}


def drift_sentence(drift: DriftFigures, competing: bool = False) -> str:
    """How far probabilities are off here on the whole, whether they were in the run, and whether that changed."""
    what = (
        "Probabilities"
        if not is_defined(drift.days)
        else f"Probabilities {'of the event' if competing else 'to die'} within {drift.days:.0f} days"
    )
    here, before, change = drift.excess.external, drift.excess.internal, drift.excess.difference
    if not is_defined(here.value):
        return f"{what} cannot be judged here: no patient was followed for that long"
    if not is_defined(here.low):
        return f"{what} differ from what is observed here by {_points(here.value)}; the uncertainty of this value is not known"
    if here.low <= 0 <= here.high:
        sentence = f"{what} show no evidence of an overall error here: {_points_interval(here)}"
    else:
        ends = f"[{_signed_points(here.low)}, {_signed_points(here.high)}]"
        sentence = f"{what} are {_points(abs(here.value)).lstrip('+')} too {'high' if here.value > 0 else 'low'} here {ends}"
    if not (is_defined(change.low) and is_defined(before.value)):
        return sentence
    changed = "with no evidence of a change" if change.low <= 0 <= change.high else "so calibration changed"
    return f"{sentence}; in the run it was {_points_interval(before)}, {changed}"


def _points_interval(estimate: Estimate) -> str:
    """Points by which probabilities exceed the observed share, with the interval: +8 points [+2, +14]."""
    ends = f" [{_signed_points(estimate.low)}, {_signed_points(estimate.high)}]" if is_defined(estimate.low) else ""
    return f"{_points(estimate.value)}{ends}"


def _points(share: float) -> str:
    rounded = _signed_points(share)
    return f"{rounded} point{'' if rounded[1:] == '1' else 's'}"


def _signed_points(share: float) -> str:
    text = number(100 * share, 0)
    return text if text == "0" or not text[0].isdigit() else f"+{text}"


def expectation_sentence(expected: Expectation) -> str:
    """In which range the figure of a new hospital lies, and what that rests on."""
    between = f"{number(expected.low, 2)} to {number(expected.high, 2)}"
    range_ = f"Expect {SYMBOLS[expected.measure]} {between} in a hospital that is in neither cohort"
    few = f"fewer than {MIN_OF_SITE} {RARER_GROUP[expected.measure]}"
    left = f"; {expected.left_out} with {few} left out" if expected.left_out else ""
    if expected.method == "sites":
        return f"{range_}, from the differences between {len(expected.sites)} sites of this cohort{left}"
    held = (
        f"{len(expected.sites)} of its sites {'has' if len(expected.sites) == 1 else 'have'}" if expected.sites else "no site has"
    )
    return (
        f"{range_} by assumption: this cohort cannot show how sites differ ({held} at least {MIN_OF_SITE} "
        f"{RARER_GROUP[expected.measure]}; {MIN_SITES} are needed), so the spread is taken from models for heart disease"
    )


MAX_HAZARD_RATIO = 999  # a hazard ratio that is written out; beyond it nothing is known but that it is large
DEATHS_PER_COEFFICIENT = 10  # from which intervals can be relied on; Peduzzi et al. 1995, doi:10.1016/0895-4356(95)00048-8
SAEED = "Saeed et al. 2023, Medical Image Analysis, Table 4"  # the first figures, which a reproduction of it cites too
PUBLISHED = {name: tuple(Published(**figure) for figure in figures) for name, figures in word_list("published").items()}


def published_figures(endpoint: str) -> tuple[Published, ...]:
    """The published figures of an endpoint; none for one that is not known here."""
    return PUBLISHED.get(endpoint, ())


GLOSSARY: Mapping[str, str] = word_list("glossary")
_TERM = "|".join(sorted(map(re.escape, GLOSSARY), key=len, reverse=True))
_ANY_TERM = re.compile(rf"(?<![\w(])({_TERM})(?![\w(])", re.IGNORECASE)
_WRITTEN = {term.lower(): term for term in GLOSSARY}


def glossary_anchor(term: str) -> str:
    """The id of a term's entry in the glossary."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def with_glossary_links(text: str) -> Markup:
    """The text with each term, where it first stands, leading to its entry and showing it when pointed at."""
    parts, end, linked = [], 0, set()
    for match in _ANY_TERM.finditer(text):
        term = _WRITTEN[match[0].lower()]
        if term not in linked:
            linked.add(term)
            link = Markup('<a class="term" href="#{}" title="{}">{}</a>').format(glossary_anchor(term), GLOSSARY[term], match[0])
            parts += [escape(text[end : match.start()]), link]
            end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


# What a risk adds.


def added_value_sentences(measured: AddedValueFigures, kind: Kind, competing: bool = False) -> list[str]:
    """The answer, then what limits it; the simplest explanation follows a good one."""
    analysis = measured.analysis
    if isinstance(analysis, str):
        return [f"Whether the risk of {measured.model} adds to age and molecular markers cannot be tested: {analysis}."]
    text = [_answer(measured, analysis, kind, competing), _concordances(analysis, measured.complete_cases)]
    text += [_beside(control, attempt) for control, attempt in measured.beside.items()]
    text += [_reverse(measured, analysis), _patients(measured, analysis, competing)]
    text += [f"{covariate_name(name)} {why} and is left out." for name, why in measured.left_out.items()]
    changing = _changing(measured.model, analysis)
    text += (
        [f"Hazards are not proportional: the hazard ratio of {changing} changes over time; the mean is given."]
        if changing
        else []
    )
    return text + ([_permuted(measured.permuted)] if measured.permuted else [])


def _answer(measured: AddedValueFigures, analysis: CoxComparison, kind: Kind, competing: bool) -> str:
    covariates = listed([covariate_name(name) for name in measured.covariates])
    numbers = (
        f"{chi_squared(analysis.test)}, {adjusted_p(measured.adjusted_p['risk'])}; hazard ratio "
        f"{hazard_ratio_in_words(analysis.both[RISK])} per standard deviation"
    )
    later = "have the event later" if competing else "live longer"
    claim = {
        "better": f"The risk of {measured.model} adds to {covariates}",
        "worse": f"Given {covariates}, patients with a higher risk of {measured.model} {later}",
    }.get(kind, f"No evidence that the risk of {measured.model} adds to {covariates}")
    return f"{claim}: {numbers}."


def _concordances(analysis: CoxComparison, complete: CompleteCases | None) -> str:
    of = f"Harrell's C of the {complete.n} patients with every covariate" if complete else "Harrell's C"
    if not is_defined(analysis.c_both.low) or not is_defined(analysis.gain.low):
        return f"{of} cannot be estimated."
    return (
        f"{of}, out of fold, is {interval(analysis.c_without)} with the covariates, {interval(analysis.c_alone)} with the "
        f"risk and {interval(analysis.c_both)} with both: the risk changes it by {gain_of_c(analysis.gain)}."
    )


def _beside(control: str, attempt: RiskTest | str) -> str:
    risk = f"the risk of the control {control} ({EXPLAINED[control]})"
    if isinstance(attempt, str):
        return f"Adjusted for {risk} as well: not tested, because {attempt}."
    numbers = f"hazard ratio {hazard_ratio_in_words(attempt.hazard_ratio)}, {p_value(attempt.test.p)}"
    claims = {"better": "it still adds", "worse": "a higher risk then goes with later events"}
    claim = claims.get(of_added_value(attempt.hazard_ratio.value, attempt.test.p), "there is no evidence that it adds")
    return f"Adjusted for {risk} as well, {claim}: {numbers}."


def _reverse(measured: AddedValueFigures, analysis: CoxComparison) -> str:
    p = measured.adjusted_p["covariates"]
    claim = "The covariates add to the risk" if p <= ALPHA else "No evidence that the covariates add to the risk"
    change_of_c = f"; they change C by {gain_of_c(analysis.gain_reverse)}" if is_defined(analysis.gain_reverse.low) else ""
    return f"{claim}: {chi_squared(analysis.reverse)}, {adjusted_p(p)}{change_of_c}."


def _patients(measured: AddedValueFigures, analysis: CoxComparison, competing: bool) -> str:
    per, ended = analysis.deaths / analysis.coefficients, "had the event" if competing else "died"
    lack = listed([f"{covariate_name(name)} in {count}" for name, count in measured.missing.items()])
    known = f"{analysis.n} patients have a risk and a known outcome"
    if measured.imputations:
        known += f"; covariates that some lack ({lack}) were imputed {measured.imputations} times for hazard ratios and tests"
    return (
        f"{known}; {analysis.deaths} {ended}, {number(per, 1)} for each of {analysis.coefficients} coefficients"
        + (
            f": fewer than {DEATHS_PER_COEFFICIENT}, so hazard ratios and intervals are rough."
            if per < DEATHS_PER_COEFFICIENT
            else "."
        )
        + _complete_cases(measured.complete_cases, ended)
    )


def _complete_cases(found: CompleteCases | None, ended: str) -> str:
    """The same without imputation."""
    if found is None:
        return ""
    alone = f" In the {found.n} with every covariate ({found.deaths} {ended})"
    if isinstance(found.test, str):
        return f"{alone} the risk cannot be tested: {found.test}."
    return f"{alone} the risk's hazard ratio is {hazard_ratio_in_words(found.test.hazard_ratio)}, {p_value(found.test.test.p)}."


def _changing(model: str, analysis: CoxComparison) -> str:
    """The columns whose hazard ratio changes over time, by Holm's p over all columns; "" without any."""
    adjusted = holm(np.array([ratio.proportional_p for ratio in analysis.both.values()]))
    changing = [(name, float(p)) for name, p in zip(analysis.both, adjusted, strict=True) if p <= ALPHA]
    return listed([f"{covariate_label(name, model)} ({adjusted_p(p)})" for name, p in changing]) if changing else ""


def _permuted(attempt: RiskTest | str) -> str:
    if isinstance(attempt, str):
        return f"The network trained on permuted labels could not be tested on them: {attempt}."
    p = f"{p_value(attempt.test.p)} ({p_value(attempt.test.given_p)} not corrected for refitting)"
    adds = of_added_value(attempt.hazard_ratio.value, attempt.test.p) == "better"
    claim = "adds to the covariates, which it should not" if adds else "adds nothing to the covariates, as expected"
    ratio = hazard_ratio_in_words(attempt.hazard_ratio)
    return f"The network trained on permuted labels, tested on them, {claim}: hazard ratio {ratio}, {p}."


def covariate_label(column: str, model: str) -> str:
    """The name of a column of a regression."""
    return f"risk of {model}, per SD" if column == RISK else covariate_name(column)


def covariate_name(column: str) -> str:
    """A covariate's name, of a marker its full name, with what its hazard ratio is of."""
    name, colon, levels = column.partition(": ")
    return f"{title(name)}{colon}{levels}"


def hazard_ratio_in_words(ratio: CovariateRatio) -> str:
    """A hazard ratio with its interval: 2.44 [1.52, 3.94]."""
    return f"{_factor(ratio.value)} {ends(ratio.low, ratio.high, write=_factor)}"


def gain_of_c(gain: Estimate) -> str:
    """A difference of C with its interval: +0.120 [+0.030, +0.210]."""
    return change(gain.value, gain.low, gain.high)


def chi_squared(test: LikelihoodRatio) -> str:
    """likelihood ratio χ² = 4.20 (1 df)"""
    tie = "\N{NO-BREAK SPACE}"
    return f"likelihood ratio χ²{tie}={tie}{number(test.chi2, 2)} ({test.df}{tie}df)"


def _factor(value: float) -> str:
    return number(value, 2) if not value > MAX_HAZARD_RATIO else f"> {MAX_HAZARD_RATIO}"
