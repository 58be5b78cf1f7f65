"""Hazard ratios, restricted means and decision curves of survival, against R's figures, lifelines and cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_lung, load_rossi
from lifelines.utils import restricted_mean_survival_time
from scipy.stats import norm

from mri_vit.metrics import cox, decision, survival

untimed = settings(deadline=None)  # a shared core may be slow
followed = st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 3)), min_size=1, max_size=20)
THRESHOLDS = np.array([0.0, 0.2, 0.5, 0.8])


def columns(rows):
    return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), (float, bool, float), strict=True))


def lung():
    table = load_lung()
    return table.time.to_numpy(float), table.status.to_numpy() == 1, table


def simulated(n, seed, effect):
    generator = np.random.default_rng(seed)
    risk = generator.normal(size=n)
    dies, leaves = generator.exponential(400 * np.exp(-effect * risk)), generator.uniform(200, 1700, n)
    return np.minimum(dies, leaves), dies <= leaves, risk


# --- hazard ratios -------------------------------------------------------------------------------------------------------


def test_hazard_ratio_of_two_groups_is_that_of_R():
    """R: coxph(Surv(time, status) ~ sex, lung): exp(coef) 0.5880, lower .95 0.4237, upper .95 0.816."""
    time_days, event, table = lung()
    found = cox.hazard_ratio_of_groups(time_days, event, (table.sex == 2).to_numpy())
    assert (found.value, found.low, found.high) == pytest.approx((0.5880, 0.4237, 0.816), abs=5e-4)


def test_hazard_ratio_per_standard_deviation_is_that_of_a_unit_to_the_power_of_the_deviation():
    """R: coxph(Surv(time, status) ~ age, lung): coef 0.018720, se 0.009199."""
    time_days, event, table = lung()
    found = cox.hazard_ratio_per_sd(time_days, event, table.age.to_numpy(float))
    deviation = table.age.std()
    assert math.log(found.value) / deviation == pytest.approx(0.018720, abs=2e-6)
    assert math.log(found.high / found.low) / deviation == pytest.approx(2 * 1.959964 * 0.009199, abs=1e-5)


def test_hazard_ratio_does_not_ask_for_the_scale_of_the_risk():
    time_days, event, risk = simulated(80, seed=1, effect=0.7)
    found, other = cox.hazard_ratio_per_sd(time_days, event, risk), cox.hazard_ratio_per_sd(time_days, event, 5 + 40 * risk)
    assert list(vars(other).values()) == pytest.approx(list(vars(found).values()), rel=1e-5)
    turned = cox.hazard_ratio_per_sd(time_days, event, -risk)
    assert (turned.value, turned.low) == pytest.approx((1 / found.value, 1 / found.high), rel=1e-5)


@pytest.mark.parametrize("inflated", [1.2, math.sqrt(2)])
def test_intervals_of_out_of_fold_risks_are_wider_by_what_refitting_does_and_values_stay(inflated: float):
    time_days, event, risk = simulated(80, seed=1, effect=0.7)
    per_sd, groups = (
        [np.log([one.value, one.low, one.high]) for one in pair]
        for pair in (
            [cox.hazard_ratio_per_sd(time_days, event, risk, *more) for more in ((), (inflated,))],
            [cox.hazard_ratio_of_groups(time_days, event, risk > 0, *more) for more in ((), (inflated,))],
        )
    )
    means = [survival.restricted_mean_difference(time_days, event, risk > 0, 730.0, *more) for more in ((), (inflated,))]
    for as_given, wider in (per_sd, groups, [np.array([one.difference, one.low, one.high]) for one in means]):
        assert wider[0] == as_given[0]
        assert wider[1:] - wider[0] == pytest.approx(inflated * (as_given[1:] - as_given[0]))


def test_hazards_that_are_known_of_one_day_alone_are_not_tested_for_change():
    """Information on later days is rounding: R's cox.zph stops, and a p made of it would be 0 or 1."""
    time_days = np.array([30.0] * 5 + [50, 60, 70, 80, 90, 100])
    event, high = np.array([1] * 5 + [1, 1, 0, 1, 0, 1], dtype=bool), np.array([1, 1, 1] + [0] * 8, dtype=float)
    for found in (cox.hazard_ratio_per_sd(time_days, event, high), cox.hazard_ratio_of_groups(time_days, event, high > 0)):
        assert math.isfinite(found.value)
        assert math.isnan(found.proportional_p)


def test_hazard_ratio_finds_what_was_planted():
    time_days, event, risk = simulated(4000, seed=2, effect=0.7)
    found = cox.hazard_ratio_per_sd(time_days, event, risk)
    assert math.log(found.value) == pytest.approx(0.7 * risk.std(ddof=1), abs=0.06)
    assert found.proportional_p > 0.01


def test_a_hazard_that_changes_sides_is_found_and_a_proportional_one_is_not_accused():
    generator = np.random.default_rng(3)
    high = np.arange(400) < 200
    early, late = generator.exponential(np.where(high, 100, 400)), 200 + generator.exponential(np.where(high, 800, 100))
    time_days = np.where(early < 200, early, late)  # the high group dies early, the other after 200 days
    assert cox.hazard_ratio_of_groups(time_days, np.ones(400), high).proportional_p < 1e-4
    accused = [cox.hazard_ratio_per_sd(*simulated(60, seed, 0.7)).proportional_p < 0.05 for seed in range(60)]
    assert np.mean(accused) < 0.16  # 0.05 and four standard errors


@untimed
@given(followed)
def test_hazard_ratios_exist_where_the_likelihood_has_a_maximum_and_nothing_warns(rows):
    time_days, event, risk = columns(rows)
    for found, x in (
        (cox.hazard_ratio_per_sd(time_days, event, risk), risk),
        (cox.hazard_ratio_of_groups(time_days, event, risk > 1), risk > 1),
    ):
        above = any((x[time_days >= time_days[i]] > x[i]).any() for i in np.flatnonzero(event))
        below = any((x[time_days >= time_days[i]] < x[i]).any() for i in np.flatnonzero(event))
        assert math.isnan(found.value) == (not (above and below))
        assert math.isnan(found.value) or found.low < found.value < found.high


# --- restricted means ----------------------------------------------------------------------------------------------------


def test_restricted_mean_without_censoring_is_the_mean_time_up_to_tau_and_its_error_that_of_a_mean():
    time_days, high = np.array([10.0, 30, 30, 70, 90, 20, 50, 100, 120]), np.arange(9) >= 5
    found = survival.restricted_mean_difference(time_days, np.ones(9), high, 80.0)
    means = [np.minimum(time_days[group], 80).mean() for group in (~high, high)]
    assert (found.tau_days, found.low_risk, found.high_risk) == pytest.approx((80, *means))
    variances = [np.minimum(time_days[group], 80).var() / group.sum() for group in (~high, high)]
    reach = 1.959964 * math.sqrt(sum(variances))
    assert (found.low, found.high) == pytest.approx((means[1] - means[0] - reach, means[1] - means[0] + reach), abs=1e-4)


def test_restricted_means_are_those_of_lifelines():
    time_days, event, table = lung()
    high = (table.sex == 1).to_numpy()
    found = survival.restricted_mean_difference(time_days, event, high, 730.0)
    for value, group in ((found.low_risk, ~high), (found.high_risk, high)):
        curve = survival.kaplan_meier(time_days[group], event[group], "")
        assert value == pytest.approx(restricted_mean_survival_time(curve, t=730.0))
    assert found.difference == pytest.approx(found.high_risk - found.low_risk)


def test_restricted_mean_with_censoring_worked_by_hand():
    # Not high: S is 1 to day 2, 3/4 to day 6, 3/8 to day 8; high: 1 to day 4, 1/2 to day 8.
    time_days, event = np.array([2.0, 4, 6, 9, 4, 8]), np.array([1, 0, 1, 0, 1, 0])
    found = survival.restricted_mean_difference(time_days, event, np.arange(6) >= 4, 730.0)
    assert (found.tau_days, found.low_risk, found.high_risk) == pytest.approx((8, 2 + 3 + 0.75, 4 + 2))
    variance = (3.75**2 / (4 * 3) + 0.75**2 / (2 * 1)) + 2**2 / (2 * 1)
    assert found.high - found.difference == pytest.approx(1.959964 * math.sqrt(variance), abs=1e-5)


@untimed
@given(followed)
def test_restricted_mean_never_warns_and_turns_with_its_groups(rows):
    time_days, event, risk = columns(rows)
    found = survival.restricted_mean_difference(time_days, event, risk > 1, 4.0)
    other = survival.restricted_mean_difference(time_days, event, risk <= 1, 4.0)
    assert found.difference == pytest.approx(-other.difference, nan_ok=True)
    assert (found.low, found.high) == pytest.approx((-other.high, -other.low), nan_ok=True)
    assert math.isnan(found.difference) == ((risk > 1).all() or (risk <= 1).all())


def test_groups_without_a_death_have_a_difference_without_an_interval():
    found = survival.restricted_mean_difference(np.arange(1.0, 7), np.zeros(6), np.arange(6) % 2 == 0, 730.0)
    assert found.difference == 0
    assert math.isnan(found.low)
    assert math.isnan(found.high)


# --- decision curves -----------------------------------------------------------------------------------------------------


def test_net_benefit_of_survival_without_censoring_is_that_of_having_died():
    time_days, _, risk = simulated(80, seed=5, effect=1.0)
    death = 1 / (1 + np.exp(-risk))
    found = decision.survival_net_benefit(decision.ByDay(time_days, np.ones(80), death, 300.0), THRESHOLDS)
    assert found == pytest.approx(decision.net_benefit(time_days <= 300, death, THRESHOLDS))
    of_all = decision.survival_net_benefit(decision.ByDay(time_days, np.ones(80), np.ones(80), 300.0), THRESHOLDS)
    assert of_all == pytest.approx(decision.net_benefit(time_days <= 300, np.ones(80), THRESHOLDS))


@untimed
@given(followed, st.sampled_from([0.5, 2.0, 3.5, 6.0, 9.0]))
def test_net_benefit_of_survival_is_that_of_its_definition_by_lifelines(rows, at_day):
    time_days, event, risk = columns(rows)
    death = risk / 3
    found = decision.survival_net_benefit(decision.ByDay(time_days, event, death, at_day), THRESHOLDS)
    for value, threshold in zip(found, THRESHOLDS, strict=True):
        treated = death >= threshold
        if not treated.any():
            assert value == 0
            continue
        alive = float(survival.kaplan_meier(time_days[treated], event[treated], "").survival_function_at_times(at_day).iloc[0])
        last = time_days[treated].max()
        if at_day > last and not event[treated][time_days[treated] == last].all():
            assert math.isnan(value)
            continue
        share = treated.mean()
        assert value == pytest.approx((1 - alive) * share - alive * share * threshold / (1 - threshold), abs=1e-9)


def test_the_band_without_censoring_is_that_of_a_mean_over_patients():
    time_days, _, risk = simulated(80, seed=5, effect=1.0)
    death = 1 / (1 + np.exp(-risk))
    low, high = decision.survival_net_benefit_band(decision.ByDay(time_days, np.ones(80), death, 300.0), THRESHOLDS)
    worth = (death >= THRESHOLDS[:, None]) * np.where(time_days <= 300, 1.0, -decision.odds(THRESHOLDS)[:, None])
    assert (high - low) / 2 == pytest.approx(norm.ppf(0.975) * worth.std(axis=1) / math.sqrt(80), abs=1e-12)
    assert (high + low) / 2 == pytest.approx(worth.mean(axis=1))


def test_the_band_of_treating_everybody_without_harm_is_greenwoods():
    time_days, event, _ = simulated(120, seed=6, effect=1.0)
    curve = KaplanMeierFitter().fit(time_days, event)
    at_day = 200.0
    died = curve.event_table[(curve.event_table.index <= at_day) & (curve.event_table.observed > 0)]
    greenwood = (died.observed / (died.at_risk * (died.at_risk - died.observed))).sum()
    error = float(curve.survival_function_at_times(at_day).iloc[0]) * math.sqrt(greenwood)
    low, high = decision.survival_net_benefit_band(decision.ByDay(time_days, event, np.full(120, 0.5), at_day), np.zeros(1))
    assert event.mean() < 0.9  # some are censored
    assert (high - low) / 2 == pytest.approx([norm.ppf(0.975) * error])


def test_the_band_holds_the_net_benefit_of_many_patients_as_often_as_it_says():
    thresholds, at_day = np.array([0.1, 0.3, 0.5]), 300.0
    risk = np.random.default_rng(1).normal(size=200_000)
    dies = 1 - np.exp(-at_day / (400 * np.exp(-risk)))  # as they are simulated
    called = 1 / (1 + np.exp(-risk)) >= thresholds[:, None]
    truth = (called * (dies - (1 - dies) * decision.odds(thresholds)[:, None])).mean(axis=1)
    held = np.zeros(3)
    for seed in range(2, 402):
        time_days, event, risk = simulated(100, seed=seed, effect=1.0)
        death = 1 / (1 + np.exp(-risk))
        low, high = decision.survival_net_benefit_band(decision.ByDay(time_days, event, death, at_day), thresholds)
        held += (low <= truth) & (truth <= high)
    assert (held / 400 > 0.92).all(), held  # of 0.95: three standard errors of a share of 400


def test_without_a_patient_nothing_is_defined():
    none = np.zeros(0)
    assert math.isnan(cox.hazard_ratio_per_sd(none, none, none).value)
    assert math.isnan(cox.hazard_ratio_of_groups(none, none, none).value)
    assert math.isnan(survival.restricted_mean_difference(none, none, none, 730.0).difference)
    assert np.isnan(decision.survival_net_benefit(decision.ByDay(none, none, none, 365.0), THRESHOLDS)).all()
    assert np.isnan(decision.survival_net_benefit_band(decision.ByDay(none, none, none, 365.0), THRESHOLDS)).all()


def test_rossi_arrests_by_financial_aid_are_those_of_R():
    """R: coxph(Surv(week, arrest) ~ fin, Rossi): coef -0.3691, se 0.1897."""
    table = load_rossi()
    found = cox.hazard_ratio_of_groups(table.week.to_numpy(float), table.arrest.to_numpy(), table.fin.to_numpy())
    assert math.log(found.value) == pytest.approx(-0.3691, abs=5e-4)
