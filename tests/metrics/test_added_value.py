"""What a risk adds, where it is known: planted hazards, coins, copies of a covariate, other scales, other orders, and repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from reproductions.null_studies import added_value as simulated
from scipy.stats import binom, chi2

from mri_vit.metrics.added_value import (
    RISK,
    Patients,
    RepeatScores,
    added_value,
    concordances,
    risk_given_covariates,
    standardised,
)
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.concordance import harrell_c_within
from mri_vit.metrics.cox import PRIOR_VARIANCE, NotEstimableError, fit_cox, out_of_fold
from mri_vit.metrics.intervals import distribution
from mri_vit.metrics.within_fold import inflation, interval_inflation
from mri_vit.predictors import regressions

pytestmark = pytest.mark.long(32)

ROOT_2 = 2**0.5


def made(n: int = 150, told: float = 1.0, seed: int = 0, folds: int = 3) -> Patients:
    """Patients whose hazard is their age and a cause; the risk shows the cause, or a coin where `told` is 0."""
    random = np.random.default_rng(seed)
    age, sex, cause = random.normal(size=n), random.random(n) < 0.5, random.normal(size=n)
    dies, ends = random.exponential(size=n) * np.exp(-0.5 * age - cause), random.exponential(2.5, size=n)
    covariates = pd.DataFrame({"age": age, "sex": sex.astype(float)}, index=pd.Index([f"p{i:03d}" for i in range(n)]))
    fold = random.permutation(n) % folds
    risk = told * cause + (1 - told) * random.normal(size=n)
    return Patients(500 * np.minimum(dies, ends), dies <= ends, covariates, [RepeatScores(risk, fold, fold)])


def with_risk(people: Patients, risk: np.ndarray) -> Patients:
    return replace(people, repeats=[replace(one, risk=risk) for one in people.repeats])


def figures(people: Patients, inflation: float) -> list[float]:
    found, c = added_value(people, inflation), concordances(people)
    ratios = [vars(one) for part in (found.without, found.alone, found.both) for one in part.values()]
    others = [vars(one) for one in (found.test, found.reverse, *vars(c).values())]
    return [value for one in (*ratios, *others) for value in one.values()]


def test_a_planted_hazard_is_found_with_its_ratio_and_a_coin_is_not():
    found = added_value(made(600), ROOT_2)
    assert found.test.p < 1e-6
    assert found.both[RISK].low < np.e < found.both[RISK].high  # a standard deviation of the cause multiplies the hazard by e
    assert found.both["age"].low < np.exp(0.5) < found.both["age"].high
    assert concordances(made(600)).gain.low > 0
    coin = added_value(made(600, told=0.0), ROOT_2)
    assert coin.test.p > 0.05
    assert coin.both[RISK].low < 1 < coin.both[RISK].high
    assert abs(concordances(made(600, told=0.0)).gain.difference) < 0.01


def test_likelihood_ratios_are_twice_the_gains_in_log_likelihood():
    people = made()
    (one,) = people.repeats
    risk = pd.DataFrame({RISK: standardised(one.risk, one.network)}, index=people.covariates.index)
    both, without, alone = (
        fit_cox(people.days, people.died, table, one.fold).log_likelihood
        for table in (people.covariates.join(risk), people.covariates, risk)
    )
    found = added_value(people, ROOT_2)
    assert found.test.chi2 == pytest.approx(2 * (both - without))
    assert found.reverse.chi2 == pytest.approx(2 * (both - alone))
    assert (found.test.df, found.reverse.df) == (1, 2)
    assert found.test.given_p == pytest.approx(chi2.sf(found.test.chi2, 1))
    assert found.test.p == pytest.approx(chi2.sf(found.test.chi2 / 2, 1))
    assert found.reverse.p == pytest.approx(chi2.sf(found.reverse.chi2, 2))


def test_the_interval_of_the_risk_alone_is_wider_where_networks_were_refitted():
    given, refitted = added_value(made(), 1.0), added_value(made(), ROOT_2)
    reach = {name: np.log(one.both[RISK].high / one.both[RISK].value) for name, one in (("as given", given), ("not", refitted))}
    assert reach["not"] == pytest.approx(ROOT_2 * reach["as given"])
    assert given.both["age"] == refitted.both["age"]
    assert given.test.p == given.test.given_p == refitted.test.given_p < refitted.test.p


def test_a_risk_that_is_a_covariate_under_another_name_is_refused():
    people = made()
    (one,) = people.repeats
    age = people.covariates.age.to_numpy()
    per_fold = (3 + one.fold) * age + 2 * people.covariates.sex.to_numpy() - one.fold  # on a scale of its own in each fold
    for risk in (age, -2 * age + 5, per_fold):
        with pytest.raises(NotEstimableError, match="linear function of the covariates in every fold"):
            added_value(with_risk(people, risk), ROOT_2)
    with pytest.raises(NotEstimableError, match="the same for all patients of each fold"):
        added_value(with_risk(people, one.fold.astype(float)), ROOT_2)


def test_a_shift_and_a_factor_of_each_folds_risks_change_nothing():
    people = made()
    (one,) = people.repeats
    other = with_risk(people, one.risk * (10.0**one.fold) + 1000 * one.fold)
    assert figures(other, ROOT_2) == pytest.approx(figures(people, ROOT_2), rel=1e-6, abs=1e-9)


def test_the_order_of_patients_means_nothing():
    people = made()
    (one,) = people.repeats
    order = np.random.default_rng(1).permutation(len(people.days))
    turned = Patients(
        people.days[order],
        people.died[order],
        people.covariates.iloc[order],
        [RepeatScores(one.risk[order], one.network[order], one.fold[order])],
    )
    assert figures(turned, ROOT_2) == pytest.approx(figures(people, ROOT_2), rel=1e-6, abs=1e-9)


def predictors(people: Patients) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold linear predictors of the covariates, and of both."""
    (one,) = people.repeats
    covariates = people.covariates.to_numpy()
    both = np.column_stack([covariates, standardised(one.risk, one.network)])
    first, second = (out_of_fold(people.days, people.died, part, one.network, one.fold) for part in (covariates, both))
    return first, second


def test_the_gain_is_the_difference_of_two_c_of_the_same_patients_and_pairs():
    people = made(told=0.6)
    (one,) = people.repeats
    found = concordances(people)
    without, both = (harrell_c_within(people.days, people.died, part, one.fold) for part in predictors(people))
    assert found.c_without.value == pytest.approx(without)
    assert found.c_both.value == pytest.approx(both)
    assert found.c_alone.value == pytest.approx(harrell_c_within(people.days, people.died, one.risk, one.fold))
    assert found.gain.difference == pytest.approx(both - without)
    assert found.gain_reverse.difference == pytest.approx(both - found.c_alone.value)


def test_the_interval_of_the_gain_is_that_of_a_jackknife_and_of_a_bootstrap_of_patients():
    people = made(200, told=0.6)
    (one,) = people.repeats
    found, n = concordances(people).gain, len(people.days)
    without, both = predictors(people)
    middle = np.mean([harrell_c_within(people.days, people.died, risk, one.fold) for risk in (without, both)])
    error = (found.high - found.low) / (2 * Z_95) / interval_inflation(float(middle), ROOT_2)

    def gain(rows: np.ndarray) -> float:
        days, died, fold = people.days[rows], people.died[rows], one.fold[rows]
        return harrell_c_within(days, died, both[rows], fold) - harrell_c_within(days, died, without[rows], fold)

    left = np.array([gain(np.delete(np.arange(n), i)) for i in range(n)])
    jackknife = np.sqrt((n - 1) / n * ((left - left.mean()) ** 2).sum())
    draws = distribution(
        lambda drawn: np.array([gain(np.repeat(np.arange(n), counts.astype(int))) for counts in drawn]),
        one.fold,
        np.random.default_rng(0),
        400,
    )
    assert error == pytest.approx(jackknife, rel=0.03)
    assert error == pytest.approx(draws.std(ddof=1), rel=0.12)  # which 400 draws know to 4 %


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_risk_alone_is_tested_as_in_the_comparison(repeats: int):
    patients = made(told=0.6)
    patients = replace(
        patients, repeats=[replace(scores, risk=scores.risk**k) for scores in patients.repeats for k in (1, 3)[:repeats]]
    )
    alone, full = risk_given_covariates(patients, ROOT_2), added_value(patients, ROOT_2)
    assert (alone.hazard_ratio, alone.test) == (full.both[RISK], full.test)


def test_repeats_are_averaged_and_allow_for_less():
    people = made()
    (one,) = people.repeats
    other = np.random.default_rng(9).permutation(len(people.days)) % 3
    second = RepeatScores(one.risk + np.random.default_rng(8).normal(size=len(people.days)), other, other)
    each, together = [replace(people, repeats=[scored]) for scored in (one, second)], replace(people, repeats=[one, second])
    alone = [added_value(scored, 1.0) for scored in each]
    found = added_value(together, inflation(3, 2))
    root = np.mean([np.sqrt(part.test.chi2) for part in alone])
    assert found.test.p == pytest.approx(chi2.sf((root / inflation(3, 2)) ** 2, 1))
    assert inflation(3, 2) < inflation(3, 1)
    gains = [concordances(scored).gain.difference for scored in each]
    assert concordances(together).gain.difference == pytest.approx(np.mean(gains))
    assert np.log(found.both[RISK].value) == pytest.approx(np.mean([np.log(part.both[RISK].value) for part in alone]))
    twice = replace(people, repeats=[one, one])
    assert vars(added_value(twice, 1.0).test) == pytest.approx(vars(alone[0].test))
    assert concordances(twice).gain.difference == pytest.approx(gains[0])


def test_opposite_findings_of_two_repeats_do_not_add_up():
    people = made(told=0.5)
    (one,) = people.repeats
    found = added_value(replace(people, repeats=[one, replace(one, risk=-one.risk)]), 1.0)
    assert found.test.p == pytest.approx(1, abs=1e-4)
    assert found.both[RISK].value == pytest.approx(1, abs=1e-4)


def test_too_few_deaths_are_refused_with_their_number():
    people = made(30)
    few = replace(people, died=people.died & (np.cumsum(people.died) <= 3))
    with pytest.raises(NotEstimableError, match=r"3 deaths among 30 patients .* for 3 coefficients"):
        added_value(few, ROOT_2)
    with pytest.raises(NotEstimableError, match=r"3 deaths among 30 patients .* for 3 coefficients"):
        concordances(few)


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("kind", ["noise", "cause of its own"])
def test_the_simulation_judges_as_the_page_does(kind: str, repeats: int):
    drawn = simulated.draw(np.random.default_rng(3), 82, 3, repeats, kind, simulated.regression)
    covariates = pd.DataFrame(drawn.covariates, columns=pd.Index(["age", "marker", "sex"]))
    scored = [RepeatScores(risk, fold, fold) for risk, fold in zip(drawn.risk, drawn.fold, strict=True)]
    people = Patients(drawn.time, drawn.died, covariates, scored)
    found, gain = added_value(people, inflation(3, repeats)), concordances(people).gain
    theirs = [found.test.given_p, found.test.p, found.reverse.p, gain.difference, gain.low, gain.high]
    assert list(vars(simulated.judge(drawn)).values()) == pytest.approx(theirs, rel=1e-6)


def test_the_prior_is_that_of_the_control_on_clinical_columns():
    assert PRIOR_VARIANCE == regressions.PRIOR_VARIANCE


STUDIES = 300


def coin(train: np.ndarray, time: np.ndarray, died: np.ndarray, other: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=len(other))


def rejected(kind: str, learner: simulated.Learner) -> tuple[int, int, int]:
    """Of so many studies, how often the risk is found as given, and with refitting allowed for; and how often the covariates."""
    random = np.random.default_rng(1)
    found = [simulated.judge(simulated.draw(random, 82, 3, 1, kind, learner)) for _ in range(STUDIES)]
    given, honest, reverse = (sum(getattr(one, p) <= 0.05 for one in found) for p in ("given_p", "p", "reverse_p"))
    return given, honest, reverse


def expected(share: float) -> tuple[int, int]:
    """Within what count lies, in 999 of 1000 tests of so many studies."""
    low, high = binom.interval(0.999, STUDIES, share)
    return int(low), int(high)


@pytest.mark.slow
def test_a_coin_that_learned_nothing_from_anybody_is_found_in_five_per_cent():
    given, honest, _ = rejected("noise", coin)
    low, high = expected(0.05)
    assert low <= given <= high
    assert honest < given  # careful beyond need where nothing was learned


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise", "shows covariates"])
def test_a_network_that_adds_nothing_is_found_too_often_as_given_and_seldom_with_refitting_allowed_for(kind: str):
    given, honest, _ = rejected(kind, simulated.linear)
    assert given > expected(0.05)[1]
    assert honest <= expected(0.05)[1]


@pytest.mark.slow
def test_covariates_that_add_nothing_to_a_learned_risk_are_found_in_five_per_cent():
    _, _, reverse = rejected("idle covariates", simulated.linear)
    low, high = expected(0.05)
    assert low <= reverse <= high
