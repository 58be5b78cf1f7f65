"""Concordance, Kaplan-Meier, log-rank and censoring-weighted measures against double loops and lifelines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_lung
from lifelines.statistics import logrank_test
from lifelines.utils import concordance_index

from mri_vit.metrics import concordance, discrimination, ipcw, survival

NAN = math.nan
untimed = settings(deadline=None)  # a shared core may be slow
followed = st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=25)


def columns(rows, *types):
    return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True))


def cohort(n, seed, grid=1.0):
    """Times on a grid of days (ties when it is coarse), about 70 % deaths, and a risk that tells a little."""
    generator = np.random.default_rng(seed)
    risk = generator.normal(size=n).round(1)
    time_days = np.ceil(generator.exponential(400 * np.exp(-0.5 * risk)) / grid) * grid
    return time_days, generator.random(n) < 0.7, risk


def pairs_by_definition(time_days, event):
    for i in np.flatnonzero(event):
        for j in range(len(time_days)):
            if time_days[i] < time_days[j] or (time_days[i] == time_days[j] and not event[j]):
                yield i, j


def censoring_by_definition(time_days, event, day):
    product = 1.0
    for s in sorted({t for t, died in zip(time_days, event, strict=True) if t <= day and not died}):
        at_risk = (time_days >= s).sum() - ((time_days == s) & event).sum()
        product *= 1 - ((time_days == s) & ~event).sum() / at_risk
    return product


# --- concordance ---------------------------------------------------------------------------------------------------------


@untimed
@given(followed)
def test_harrell_c_is_that_of_lifelines_and_of_brute_force(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    values = [(risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]) for i, j in pairs_by_definition(time_days, event)]
    value = concordance.harrell_c(time_days, event, risk)
    if not values:
        assert math.isnan(value)
        return
    assert value == pytest.approx(np.mean(values), abs=1e-12)
    assert value == pytest.approx(concordance_index(time_days, -risk, event), abs=1e-12)
    assert concordance.concordance_counts(time_days, event, risk) == tuple(values.count(kind) for kind in (1, 0, 0.5))


@pytest.mark.parametrize("grid", [1e-6, 30.0])
def test_counts_of_two_thousand_patients_are_those_of_the_pair_matrix(grid):
    time_days, event, risk = cohort(2000, seed=1, grid=grid)
    comparable = (time_days[event, None] < time_days) | ((time_days[event, None] == time_days) & ~event)
    higher, equal = risk[event, None] > risk, risk[event, None] == risk
    counts = tuple(int((comparable & kind).sum()) for kind in (higher, ~higher & ~equal, equal))
    assert concordance.concordance_counts(time_days, event, risk) == counts
    assert concordance.harrell_c(time_days, event, risk) == (counts[0] + counts[2] / 2) / sum(counts)


@untimed
@given(followed)
def test_concordance_keeps_under_a_rising_map_and_turns_under_a_falling_one(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    for measure in (concordance.harrell_c, concordance.uno_c):
        value = measure(time_days, event, risk)
        assert measure(time_days, event, np.exp(risk)) == pytest.approx(value, nan_ok=True)
        assert measure(time_days, event, -risk) == pytest.approx(1 - value, nan_ok=True)


@untimed
@given(followed)
def test_concordance_within_folds_ignores_the_scale_of_each_fold(rows):
    time_days, event, risk, group = columns(rows, float, bool, float, int)
    value = concordance.harrell_c_within(time_days, event, risk, group)
    scaled = concordance.harrell_c_within(time_days, event, np.exp(risk) * 10.0**group - 50 * group, group)
    assert scaled == pytest.approx(value, nan_ok=True)
    alone = concordance.harrell_c_within(time_days, event, risk, 0 * group)
    assert alone == pytest.approx(concordance.harrell_c(time_days, event, risk), nan_ok=True)


@untimed
@given(followed)
def test_uno_c_is_that_of_its_definition(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    for tau in (None, 4.0):
        above = below = 0.0
        for i, j in pairs_by_definition(time_days, event):
            g = censoring_by_definition(time_days, event, time_days[i])
            if g > 0 and time_days[i] < (tau or math.inf):
                above += ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])) / g**2
                below += 1 / g**2
        expected = above / below if below else NAN
        assert concordance.uno_c(time_days, event, risk, tau) == pytest.approx(expected, nan_ok=True)


def test_uno_c_without_censoring_is_harrell_c():
    time_days, event, risk = cohort(50, seed=2)
    event = np.ones_like(event)
    assert concordance.uno_c(time_days, event, risk) == pytest.approx(concordance.harrell_c(time_days, event, risk))


@untimed
@given(followed, st.integers(0, 9))
def test_each_patients_pairs_are_those_of_the_pair_matrix_whatever_the_deaths_weigh(rows, seed):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    weight = np.random.default_rng(seed).integers(0, 5, event.sum()) / 4
    of = dict(zip(np.flatnonzero(event), weight, strict=True))
    expected = np.zeros((3, len(risk)))
    for i, j in pairs_by_definition(time_days, event):  # i died first
        concordant = of[i] * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
        expected[0, i] += of[i]
        expected[1, j] += of[i]
        expected[2, [i, j]] += concordant
    found = concordance.patient_pairs(time_days, event, risk, weight)
    np.testing.assert_array_equal([found.later, found.earlier, found.concordant], expected)  # quarters are exact


@pytest.mark.parametrize(
    ("seed", "harrell", "uno"), [(0, 0.0478168212861, 0.0449703070145), (1, 0.0505045042842, 0.0474964364327)]
)
def test_the_jackknifes_error_is_that_of_r(seed: int, harrell: float, uno: float):
    """R 4.2.2, survival::concordance(reverse = TRUE, timewt = "n" or "n/G2"), without the sqrt(n / (n - 1)) of ours."""
    random, n = np.random.default_rng(seed), 80
    x = random.normal(size=n)
    days, end = random.exponential(np.exp(-x)), random.exponential(1.5, n)
    seen = np.minimum(days, end), days <= end, x + random.normal(size=n)
    before = survival.censoring_survival(seen[0], seen[1], seen[0][seen[1]] - 1e-9)  # G(t-), as R has it
    for weight, expected in ((None, harrell), (1 / before**2, uno)):
        found = concordance.patient_pairs(*seen, weight)
        assert math.sqrt(found.variance * (n - 1) / n) == pytest.approx(expected, abs=1e-11)


def test_where_one_death_has_nearly_all_the_weight_the_interval_of_unos_c_is_wide():
    time_days = np.r_[np.arange(1.0, 30), 100, 101]
    event = np.r_[np.ones(10), np.zeros(19), 1, 0] == 1  # 19 are censored between the tenth death and the last
    risk = np.r_[np.arange(30.0, 1, -1), 1, 2]  # all in order but for the last death
    assert concordance.harrell_c(time_days, event, risk) > 0.99
    low, high = concordance.uno_interval(time_days, event, risk)
    assert low < 0.3 < 0.9 < high


@pytest.mark.parametrize("days", [1.0, 100.0])
def test_without_a_signal_the_variance_of_weighted_pairs_is_that_of_permuted_risks_with_ties_too(days: float):
    time_days, event, risk = cohort(40, seed=3, grid=days)
    weight = np.random.default_rng(1).integers(1, 6, event.sum()).astype(float)
    random = np.random.default_rng(0)
    drawn = [concordance.patient_pairs(time_days, event, random.permutation(risk), weight).value for _ in range(4000)]
    found = concordance.patient_pairs(time_days, event, risk, weight)
    error = math.sqrt(found.null_variance(risk)) / (2 * found.later.sum())
    assert error == pytest.approx(float(np.std(drawn)), rel=0.05)  # 4000 draws: 1.1 % of it


# --- undefined and refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 3])
def test_without_a_death_or_a_pair_everything_is_undefined_and_nothing_warns(n):
    time_days, nobody, risk, at_days = np.arange(1.0, n + 1), np.zeros(n, dtype=bool), np.ones(n), np.array([0.5, 2.0])
    generator, group = np.random.default_rng(0), np.zeros(n, int)
    undefined = [
        concordance.harrell_c(time_days, nobody, risk),
        concordance.uno_c(time_days, nobody, risk),
        concordance.harrell_c_within(time_days, nobody, risk, group),
        *concordance.uno_interval(time_days, nobody, risk),
        *survival.logrank(time_days, nobody, risk > 0),
        *ipcw.cumulative_dynamic_auc(time_days, nobody, risk, at_days),
        *np.ravel(ipcw.auc_at_interval(time_days, nobody, risk, at_days, generator)),
        ipcw.mean_cumulative_dynamic_auc(time_days, nobody, risk, at_days),
    ]
    assert all(math.isnan(value) for value in undefined)


def test_one_death_alone_has_no_pair():
    one, died = np.array([5.0]), np.array([True])
    assert math.isnan(concordance.harrell_c(one, died, one))
    assert math.isnan(ipcw.cumulative_dynamic_auc(one, died, one, one)[0])
    assert math.isnan(ipcw.brier_at(one, died, one[:, None] / 10, one)[0])


def test_all_tied_risks_give_one_half():
    time_days, event, _ = cohort(30, seed=7)
    same = np.ones(30)
    assert concordance.harrell_c(time_days, event, same) == 0.5
    assert concordance.uno_c(time_days, event, same) == pytest.approx(0.5)
    assert ipcw.cumulative_dynamic_auc(time_days, event, same, np.array([200.0]))[0] == pytest.approx(0.5)


def test_missing_times_and_risks_are_refused():
    time_days, event, risk = np.array([1.0, 2, NAN]), np.array([True, True, False]), np.array([NAN, NAN, 1.0])
    at = np.array([1.0])
    for call in (
        lambda: concordance.harrell_c(np.arange(3.0), event, risk),
        lambda: concordance.uno_c(np.arange(3.0), event, risk),
        lambda: ipcw.cumulative_dynamic_auc(np.arange(3.0), event, risk, at),
    ):
        with pytest.raises(ValueError, match="2 of 3 risks are NaN"):
            call()
    for call in (
        lambda: concordance.harrell_c(time_days, event, np.arange(3.0)),
        lambda: survival.censoring_survival(time_days, event, at),
        lambda: ipcw.brier_of_kaplan_meier(time_days, event, at),
    ):
        with pytest.raises(ValueError, match="1 of 3 times are NaN"):
            call()


# --- curves and log-rank -------------------------------------------------------------------------------------------------


@untimed
@given(followed)
def test_logrank_never_warns_and_is_a_probability_or_undefined(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    chi2, p = survival.logrank(time_days, event, risk > 1)
    assert math.isnan(p) or (chi2 >= 0 and 0 <= p <= 1)
    assert survival.logrank(time_days, event, risk <= 1)[1] == pytest.approx(p, nan_ok=True)
    chi2, p = survival.logrank(time_days, event, risk)
    assert math.isnan(p) or (chi2 >= 0 and 0 <= p <= 1)


def test_logrank_of_two_groups_is_that_of_lifelines_and_of_the_hypergeometric_sums():
    time_days, event, risk = cohort(60, seed=3, grid=30.0)
    high = risk > 0
    found = survival.logrank(time_days, event, high)
    test = logrank_test(time_days[high], time_days[~high], event[high], event[~high])
    assert found == pytest.approx((test.test_statistic, test.p_value), rel=1e-9)
    names = np.where(high, "high", "low")
    assert survival.logrank(time_days, event, names) == pytest.approx(found, rel=1e-9)
    excess = variance = 0.0
    for day in np.unique(time_days[event]):
        there, died = time_days >= day, event & (time_days == day)
        n, d, share = there.sum(), died.sum(), (there & high).sum() / there.sum()
        excess += (died & high).sum() - d * share
        variance += d * share * (1 - share) * (n - d) / (n - 1) if n > 1 else 0.0
    assert found[0] == pytest.approx(excess**2 / variance, rel=1e-9)


def test_logrank_of_four_groups_is_what_R_prints():
    """survdiff(Surv(time, status) ~ ph.ecog, lung): 22 on 3 degrees of freedom, p = 7e-05."""
    table = load_lung().dropna(subset=["ph.ecog"])
    chi2, p = survival.logrank(table.time.to_numpy(float), table.status.to_numpy() == 1, table["ph.ecog"].to_numpy())
    assert chi2 == pytest.approx(22, abs=0.5)
    assert p == pytest.approx(7e-5, abs=0.5e-5)


def test_a_group_lost_before_the_first_death_does_not_count_in_the_logrank_test():
    time_days, event, risk = cohort(40, seed=4)
    lost = np.r_[time_days, 0.1, 0.2], np.r_[event, False, False], np.r_[(risk > 0).astype(int), 2, 2]
    assert survival.logrank(*lost) == pytest.approx(survival.logrank(time_days, event, risk > 0), rel=1e-9)


def test_greenwood_band_is_that_of_its_formula():
    time_days, event = np.array([1.0, 2, 2, 3, 5, 5, 8]), np.array([1, 1, 0, 1, 1, 0, 0], dtype=bool)
    band = survival.kaplan_meier(time_days, event, "all").confidence_interval_
    steps = [(1, 7, 1), (2, 6, 1), (3, 4, 1), (5, 3, 1)]  # day, at risk, deaths
    value, total = 1.0, 0.0
    for day, at_risk, deaths in steps:
        value *= 1 - deaths / at_risk
        total += deaths / (at_risk * (at_risk - deaths))
        reach = 1.959963984540054 * math.sqrt(total) / math.log(value)
        assert band.loc[day].to_numpy() == pytest.approx(sorted(value ** math.exp(sign * reach) for sign in (1, -1)))


@pytest.mark.parametrize("seed", range(3))
def test_the_steps_of_a_survival_curve_are_those_of_lifelines(seed):
    time_days, event, _ = cohort(60, seed=seed)
    time_days = time_days // 90 * 90 if seed else np.ceil(time_days / 90) * 90  # several a day; in some cohorts on day 0
    curve = survival.kaplan_meier(time_days, event, "all").survival_function_["all"]
    days, alive = survival.survival_steps(time_days, event)
    np.testing.assert_array_equal(days, curve.index)
    np.testing.assert_allclose(alive, curve, rtol=1e-12)


def test_numbers_at_risk_fall_as_patients_leave():
    left = survival.at_risk(np.array([10.0, 20, 30]), np.array([0.0, 10, 25, 30]))
    assert left.tolist() == [3, 2, 1, 0]


@untimed
@given(followed)
def test_each_fold_is_split_at_its_own_median(rows):
    _, _, risk, group = columns(rows, float, bool, float, int)
    high = survival.high_risk(risk, group)
    assert (survival.high_risk(risk + 1000 * group, group) == high).all()
    for name in np.unique(group):
        assert high[group == name].sum() <= (group == name).sum() / 2


# --- weighted for censoring ----------------------------------------------------------------------------------------------


@untimed
@given(followed)
def test_censoring_curve_is_that_of_its_definition(rows):
    time_days, event, _, _ = columns(rows, float, bool, float, int)
    at_days = np.arange(0.0, 8)
    expected = [censoring_by_definition(time_days, event, day) for day in at_days]
    assert survival.censoring_survival(time_days, event, at_days) == pytest.approx(expected, abs=1e-12)


@untimed
@given(followed, st.integers(0, 9))
def test_censoring_curve_of_a_draw_is_that_of_the_patients_drawn(rows, seed):
    time_days, event, _, _ = columns(rows, float, bool, float, int)
    drawn = np.random.default_rng(seed).multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=3)
    at_days = np.array([0.0, 1.0, 3.0, 9.0])
    own, then = (
        survival.drawn_censoring_survival(time_days, event, drawn.astype(float), time_days),
        survival.drawn_censoring_survival(time_days, event, drawn.astype(float), at_days),
    )
    for row, counts in enumerate(drawn):
        rows_drawn = np.repeat(np.arange(len(rows)), counts)
        people = time_days[rows_drawn], event[rows_drawn]
        np.testing.assert_array_equal(own[row], survival.censoring_survival(*people, time_days))
        assert then[row] == pytest.approx([censoring_by_definition(*people, day) for day in at_days])


def test_censoring_curve_without_ties_is_lifelines_curve_of_the_turned_events():
    time_days, event, _ = cohort(60, seed=8, grid=1e-6)
    curve = KaplanMeierFitter().fit(time_days, ~event).survival_function_at_times(time_days).to_numpy()
    assert survival.censoring_survival(time_days, event, time_days) == pytest.approx(curve, abs=1e-12)


def test_lifelines_curve_of_the_turned_events_differs_where_a_death_and_a_censoring_share_a_day():
    time_days, event, day = np.array([1.0, 2, 2, 3, 4]), np.array([True, True, False, True, False]), np.array([2.0])
    turned = KaplanMeierFitter().fit(time_days, ~event).survival_function_at_times(day).to_numpy()
    # On day 2 four are at risk, one dies and one is censored. The death comes first, so one of three is censored.
    assert survival.censoring_survival(time_days, event, day) == pytest.approx([2 / 3])
    assert turned == pytest.approx([3 / 4])


@untimed
@given(followed)
def test_auc_at_a_day_is_that_of_its_definition(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    at_days = np.array([1.0, 3, 5])
    for day, value in zip(at_days, ipcw.cumulative_dynamic_auc(time_days, event, risk, at_days), strict=True):
        above = below = 0.0
        for i in np.flatnonzero(event & (time_days <= day)):
            for j in np.flatnonzero(time_days > day):
                weight = 1 / censoring_by_definition(time_days, event, time_days[i])
                above += weight * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
                below += weight
        assert value == pytest.approx(above / below if below else NAN, nan_ok=True)


def test_auc_at_a_day_without_censoring_is_the_auc_of_having_died():
    time_days, event, risk = cohort(80, seed=9)
    value = ipcw.cumulative_dynamic_auc(time_days, np.ones_like(event), risk, np.array([300.0]))
    assert value[0] == pytest.approx(discrimination.auc(time_days <= 300, risk))


def test_interval_of_auc_at_a_day_is_wilsons_with_the_variance_of_drawing_patients_one_by_one():
    time_days, event, risk = cohort(50, seed=10, grid=40.0)
    at_days = np.array([1.0, 200, 500, 1e6])  # nobody has died by the first, nobody is followed beyond the last
    values = []
    for counts in np.random.default_rng(5).multinomial(50, np.full(50, 1 / 50), size=150):
        rows = np.repeat(np.arange(50), counts)
        values.append(ipcw.cumulative_dynamic_auc(time_days[rows], event[rows], risk[rows], at_days[1:3]))
    low, high = ipcw.auc_at_interval(time_days, event, risk, at_days, np.random.default_rng(5), resamples=150)
    assert np.isnan([low[[0, 3]], high[[0, 3]]]).all()
    value = ipcw.cumulative_dynamic_auc(time_days, event, risk, at_days)
    for column, variance in zip((1, 2), np.var(values, axis=0, ddof=1), strict=True):
        cases, controls = (event & (time_days <= at_days[column])).sum(), (time_days > at_days[column]).sum()
        expected = discrimination.wilson_of_auc(value[column], float(variance), int(cases), int(controls))
        assert (low[column], high[column]) == pytest.approx(expected, abs=1e-12)


def test_a_perfect_risk_of_few_has_an_interval_with_a_width():
    time_days, event = np.r_[np.arange(10.0, 30), np.full(4, 500.0)], np.r_[np.ones(20), np.zeros(4)]
    low, high = ipcw.auc_at_interval(time_days, event, -time_days, np.array([100.0]), np.random.default_rng(0))
    assert high[0] == pytest.approx(1.0)
    assert 0.5 < low[0] < 0.9


def test_interval_of_the_integrated_brier_score_is_that_of_drawing_patients_one_by_one():
    time_days, event, risk = cohort(50, seed=10, grid=40.0)
    at_days = np.array([100.0, 200, 300])
    chances = np.exp(-np.outer(np.exp(risk), at_days) / 400)
    same = np.tile(survival.drawn_survival(time_days, event, np.ones((1, 50)), at_days), (50, 1))
    values = []
    for counts in np.random.default_rng(5).multinomial(50, np.full(50, 1 / 50), size=100):
        rows = np.repeat(np.arange(50), counts)
        drawn = time_days[rows], event[rows], chances[rows], at_days
        own, reference = ipcw.integrated_brier(*drawn), ipcw.integrated_brier(*drawn[:2], same, at_days)
        values.append((own, 1 - own / reference))
    found = ipcw.integrated_brier_intervals(time_days, event, chances, at_days, np.random.default_rng(5), 100)
    assert found == pytest.approx(np.nanquantile(values, [0.025, 0.975], axis=0), abs=1e-12)
    far = np.array([100.0, 1e6])
    assert np.isnan(ipcw.integrated_brier_intervals(time_days, event, chances[:, :2], far, np.random.default_rng(5))).all()


@untimed
@given(followed)
def test_brier_at_a_day_is_that_of_its_definition(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    at_days = np.array([1.0, 3, 5])
    predicted = np.stack([np.exp(-0.1 * day * (1 + risk)) for day in at_days], axis=1)
    for column, value in enumerate(ipcw.brier_at(time_days, event, predicted, at_days)):
        day, total = at_days[column], 0.0
        for i in range(len(risk)):
            if time_days[i] > day:
                total += (1 - predicted[i, column]) ** 2 / censoring_by_definition(time_days, event, day)
            elif event[i] and (time_days > day).any():
                total += predicted[i, column] ** 2 / censoring_by_definition(time_days, event, time_days[i])
        assert value == pytest.approx(total / len(risk) if (time_days > day).any() else NAN, nan_ok=True)


def test_integrated_brier_is_the_mean_over_time_and_needs_two_days():
    time_days, event, _ = cohort(60, seed=11)
    at_days = np.array([50.0, 100, 300])
    half = np.full((60, 3), 0.5)
    values = ipcw.brier_at(time_days, event, half, at_days)
    by_hand = (50 * (values[0] + values[1]) / 2 + 200 * (values[1] + values[2]) / 2) / 250
    assert ipcw.integrated_brier(time_days, event, half, at_days) == pytest.approx(by_hand)
    assert math.isnan(ipcw.integrated_brier(time_days, event, half[:, :1], at_days[:1]))
    with pytest.raises(ValueError, match="rising order"):
        ipcw.integrated_brier(time_days, event, half, at_days[::-1].copy())


def test_kaplan_meier_is_the_best_prediction_that_is_one_for_all():
    time_days, event, _ = cohort(80, seed=12, grid=1e-6)
    at_days = np.array([100.0, 300, 600])
    reference = ipcw.brier_of_kaplan_meier(time_days, event, at_days)
    curve = survival.kaplan_meier(time_days, event, "").survival_function_at_times(at_days).to_numpy()
    for shift in (-0.05, 0.05):
        assert (ipcw.brier_at(time_days, event, np.tile(curve + shift, (80, 1)), at_days) > reference).all()
    everyone = np.ones_like(event)
    dead = (time_days[:, None] <= at_days).mean(axis=0)
    assert ipcw.brier_of_kaplan_meier(time_days, everyone, at_days) == pytest.approx(dead * (1 - dead))


def test_calibration_at_a_day_without_censoring_is_the_share_alive_in_each_group():
    time_days = np.arange(1.0, 31)
    predicted = np.linspace(0.1, 0.9, 30)
    found = survival.calibration_at(time_days, np.ones(30, bool), predicted, 15.5, groups=3)
    assert found.n.tolist() == [10, 10, 10]
    assert found.predicted == pytest.approx(predicted.reshape(3, 10).mean(axis=1))
    assert found.observed == pytest.approx([0.0, 0.5, 1.0])
    assert found.low[1] < 0.5 < found.high[1]
    assert math.isnan(found.low[2])  # nobody in the last group has died


def test_calibration_keeps_equal_predictions_together_and_does_not_look_beyond_the_follow_up():
    time_days, event = np.array([1.0, 2, 3, 4, 5, 6]), np.array([1, 0, 1, 1, 0, 0], dtype=bool)
    assert survival.calibration_at(time_days, event, np.full(6, 0.5), 2.5).n.tolist() == [6]
    beyond = survival.calibration_at(time_days, event, np.full(6, 0.5), 7.0)
    assert np.isnan([beyond.observed, beyond.low, beyond.high]).all()
    assert len(survival.calibration_at(time_days[:0], event[:0], time_days[:0], 2.5).n) == 0


def test_pseudo_values_are_those_of_R():
    """R 4.2.2, survival 3.5-3: z <- pseudo(survfit(Surv(time, status) ~ 1, lung), times = c(200, 400)); z[c(1, 4, 100), ]."""
    table = load_lung()
    time_days, event = table.time.to_numpy(float), table.status.to_numpy() == 1  # lifelines codes a death as 1
    found = np.stack([survival.pseudo_survival(time_days, event, day) for day in (200.0, 400.0)], axis=1)
    expected = [[1.00516372029416, -0.22307836599335], [1.00516372029416, -0.04861347274285],
                [-0.00799701970274, -0.00442971329066]]  # fmt: skip
    assert found[[0, 3, 99]] == pytest.approx(np.array(expected), abs=1e-12)
    assert (found**2).mean(axis=0) == pytest.approx([0.683785601007, 0.434271714435], abs=1e-12)


def test_drawn_survival_is_that_of_patients_drawn_one_by_one():
    time_days, event, _ = cohort(40, seed=3, grid=40.0)
    drawn = np.random.default_rng(5).multinomial(40, np.full(40, 1 / 40), size=20)
    found = survival.drawn_survival(time_days, event, drawn.astype(float), np.array([0.0, 100, 300]))
    for one, counts in zip(found, drawn, strict=True):
        rows = np.repeat(np.arange(40), counts)
        curve = survival.kaplan_meier(time_days[rows], event[rows], "").survival_function_at_times([0.0, 100, 300])
        assert one == pytest.approx(curve.to_numpy(), abs=1e-12)
