"""Every public metric takes flags of any type alike, and refuses what is neither 0 nor 1, not finite or of unequal length."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from made.examples import examples
from sklearn.metrics import roc_auc_score

import mri_vit.metrics
from mri_vit.metrics import (
    benefit,
    calibration,
    calibration_curve,
    competing_risks,
    concordance,
    continuous,
    cox,
    decision,
    discrimination,
    ipcw,
    multiclass,
    ordinal,
    site_calibration,
    survival,
)

untimed = examples(5)  # each example calls thirty functions with six types
TYPES = (np.int64, np.int8, np.uint8, np.float64, np.float32, np.float16)
DAYS = np.array([2.0, 4.0])
THRESHOLDS = np.array([0.2, 0.5])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def names(values: np.ndarray) -> list[str]:
    return [f"p{i}" for i in range(len(values))]


# Each takes flags first and then numbers of the same patients, and is called with copies of other types and lengths.


def other(x: np.ndarray) -> np.ndarray:
    """Numbers in another order, finite whatever is wrong with `x`."""
    return np.sin(np.nan_to_num(x))


def by_day(y: np.ndarray, x: np.ndarray) -> decision.ByDay:
    return decision.ByDay(x, y, other(x) ** 2, 3.0)


def none(x: np.ndarray) -> np.ndarray:
    """Flags of a competing event that no patient had."""
    return np.zeros(len(x), dtype=bool)


OF_LABELS: dict[str, Callable] = {
    "auc": discrimination.auc,
    "auc_within": lambda y, x: discrimination.auc_within(y, x, np.zeros(len(x), int)),
    "average_precision": discrimination.average_precision,
    "delong_components": discrimination.delong_components,
    "delong_variance": discrimination.delong_variance,
    "delong_interval": discrimination.delong_interval,
    "auc_interval": discrimination.auc_interval,
    "delong_paired": lambda y, x: discrimination.delong_paired(y, x, x[::-1].copy()),
    "brier": calibration.brier,
    "brier_decomposition": calibration_curve.brier_decomposition,
    "calibration_line": calibration.calibration_line,
    "calibration_in_the_large": calibration.calibration_in_the_large,
    "recalibrated": calibration.recalibrated,
    "expected_calibration_error": calibration_curve.expected_calibration_error,
    "reliability_curve": calibration_curve.reliability_curve,
    "observed_to_expected": calibration.observed_to_expected,
    "integrated_calibration_index": calibration.integrated_calibration_index,
    "scaled_brier": calibration.scaled_brier,
    "probability_intervals": lambda y, x: calibration.probability_intervals(y, x, THRESHOLDS, generator(), 20),
    "choose_threshold": lambda y, x: decision.choose_threshold(names(x), y, x),
    "youden_threshold": decision.youden_threshold,
    "net_benefit": lambda y, x: decision.net_benefit(y, x, THRESHOLDS),
    "of_markers": lambda y, x: benefit.of_markers(y, x, THRESHOLDS).worth,
    "slope_interval": calibration.slope_interval,
}
OF_EVENTS: dict[str, Callable] = {
    "concordance_counts": lambda y, x: concordance.concordance_counts(x, y, x[::-1].copy()),
    "harrell_c": lambda y, x: concordance.harrell_c(x, y, x[::-1].copy()),
    "harrell_c_within": lambda y, x: concordance.harrell_c_within(x, y, x[::-1].copy(), np.zeros(len(x), int)),
    "uno_c": lambda y, x: concordance.uno_c(x, y, x[::-1].copy()),
    "uno_interval": lambda y, x: concordance.uno_interval(x, y, x[::-1].copy()),
    "median_follow_up": lambda y, x: survival.median_follow_up(x, y),
    "pseudo_survival": lambda y, x: survival.pseudo_survival(x, y, 3.0),
    "drawn_survival": lambda y, x: survival.drawn_survival(x, y, np.ones((1, len(x))), DAYS),
    "scaled_integrated_brier": lambda y, x: ipcw.scaled_integrated_brier(x, y, np.tile(x[:, None] ** 2, len(DAYS)), DAYS),
    "censoring_survival": lambda y, x: survival.censoring_survival(x, y, DAYS),
    "cumulative_dynamic_auc": lambda y, x: ipcw.cumulative_dynamic_auc(x, y, -x, DAYS),
    "auc_at_interval": lambda y, x: ipcw.auc_at_interval(x, y, -x, DAYS, generator(), 20),
    "mean_cumulative_dynamic_auc": lambda y, x: ipcw.mean_cumulative_dynamic_auc(x, y, -x, DAYS),
    "integrated_brier_intervals": lambda y, x: ipcw.integrated_brier_intervals(
        x, y, np.full((len(x), 2), 0.4), DAYS, generator(), 20
    ),
    "drawn_censoring_survival": lambda y, x: survival.drawn_censoring_survival(x, y, np.ones((1, len(x))), DAYS),
    "brier_at": lambda y, x: ipcw.brier_at(x, y, np.full((len(x), 2), 0.5), DAYS),
    "integrated_brier": lambda y, x: ipcw.integrated_brier(x, y, np.full((len(x), 2), 0.5), DAYS),
    "brier_of_kaplan_meier": lambda y, x: ipcw.brier_of_kaplan_meier(x, y, DAYS),
    "kaplan_meier": lambda y, x: survival.kaplan_meier(x, y, "").survival_function_.to_numpy(),
    "survival_steps": lambda y, x: survival.survival_steps(x, y)[1],
    "hazard_ratio_per_sd": lambda y, x: cox.hazard_ratio_per_sd(x, y, other(x)),
    "hazard_ratio_of_groups": lambda y, x: cox.hazard_ratio_of_groups(x, y, other(x) > 0),
    "restricted_mean_difference": lambda y, x: survival.restricted_mean_difference(x, y, other(x) > 0, 4.0),
    "survival_net_benefit": lambda y, x: decision.survival_net_benefit(by_day(y, x), THRESHOLDS),
    "survival_influence": lambda y, x: decision.survival_influence(by_day(y, x), THRESHOLDS),
    "of_survival": lambda y, x: benefit.of_survival(by_day(y, x), THRESHOLDS).worth,
    "survival_net_benefit_band": lambda y, x: decision.survival_net_benefit_band(by_day(y, x), THRESHOLDS),
    "logrank": lambda y, x: survival.logrank(x, y, x > np.median(x)),
    "calibration_at": lambda y, x: survival.calibration_at(x, y, np.linspace(0, 1, len(x)), 2.0),
    "survival_at": lambda y, x: survival.survival_at(x, y, DAYS),
    "cumulative_incidence": lambda y, x: competing_risks.cumulative_incidence(x, y, none(x)),
    "incidence_at": lambda y, x: competing_risks.incidence_at(x, y, none(x), 3.0),
    "drawn_incidence": lambda y, x: competing_risks.drawn_incidence(x, y, none(x), np.ones((1, len(x))), DAYS),
    "pseudo_incidence": lambda y, x: competing_risks.pseudo_incidence(x, y, none(x), 3.0),
    "cumulative_hazard": lambda y, x: competing_risks.cumulative_hazard(x, y, DAYS),
    "grays_test": lambda y, x: competing_risks.grays_test(x, y, none(x), x > np.median(x)),
}
WITHOUT_FLAGS = {  # numbers alone, or flags that come with no numbers: tested below or with their own functions
    "at_risk", "choose_cutoff", "high_risk", "operating_point", "weighted_auc", "quantile_groups",
    "chance_error", "uno_weight", "mean_and_sample_variance", "log_odds", "odds", "integral", "refuse_disorder",
    "drawn_distances", "drawn_lines", "drawn_auc", "drawn_brier", "refitted_logrank",
    "log_observed_to_expected", "none_treated", "better_of", "comparable", "mean_difference", "band_over",
    "smooth_calibration", "fit_cox", "out_of_fold", "dependent", "wilson_of_auc", "wilson_of_c", "newcombe_variance",
}  # fmt: skip
OF_CHECKED = {  # their arrays are checked by the functions that call them
    "cases_and_controls", "comparable_pairs", "concordances", "count_from", "death_counts", "dense_ranks", "free_of_event",
    "in_line", "patient_pairs", "ranks",
}  # fmt: skip
ALL = {**OF_LABELS, **OF_EVENTS}
# Each takes classes of k and then the probabilities of them, or calls.
OF_CLASSES: dict[str, Callable] = {
    "within_fold_m": lambda y, p: multiclass.within_fold_m(y, p, np.zeros(len(p), int)),
    "pdi": multiclass.pdi,
    "pdi_interval": lambda y, p: multiclass.pdi_interval(y, p, generator(), 20),
    "log_loss": multiclass.log_loss,
    "brier": multiclass.brier,
    "losses": lambda y, p: multiclass.losses(y, p, generator(), 20),
}
OF_RANKS = {"within_fold_m", "pdi", "pdi_interval"}  # which compare scores of a class, whatever their scale
OF_CALLS: dict[str, Callable] = {
    "confusion": lambda y, called: multiclass.confusion(y, called, 3),
    "weighted_kappa": lambda y, called: ordinal.weighted_kappa(y, called, 3),
}
# Each takes measured numbers and then what was predicted of them.
OF_NUMBERS: dict[str, Callable] = {
    "within_fold_order": lambda y, x: ordinal.within_fold_order(y, x, np.zeros(len(x), int)),
    "within_fold_correlation": lambda y, x: continuous.within_fold_correlation(y, x, np.zeros(len(x), int)),
    "within_fold_spearman": lambda y, x: continuous.within_fold_spearman(y, x, np.zeros(len(x), int)),
    "r_squared": lambda y, x: continuous.r_squared(y, x, np.full(len(y), 7.0)),
    "errors": lambda y, x: continuous.errors(y, x, np.full(len(y), 7.0), generator(), 20),
    "calibration": continuous.calibration,
    "agreement": continuous.agreement,
}


@pytest.fixture
def untyped() -> Iterator[None]:
    """Calls as a user makes them, with nobody checking shapes and types before the function does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def numbers_of(result: object) -> list[float]:
    """Every number of a result, whatever holds it."""
    if isinstance(result, decision.Threshold):
        return [result.value]
    if isinstance(result, tuple | list):
        return [number for part in result for number in numbers_of(part)]
    if hasattr(result, "__dataclass_fields__"):
        return numbers_of(list(vars(result).values()))
    return np.ravel(np.asarray(result, dtype=float)).tolist()


def patients(seed: int, n: int = 14) -> tuple[np.ndarray, np.ndarray]:
    """Flags with both values, and numbers within 0 and 1 (as scores) that differ."""
    random = np.random.default_rng(seed)
    return random.permutation(np.arange(n) % 3 == 0), random.permutation(n) / n


def numbers_for(name: str, x: np.ndarray) -> np.ndarray:
    return x if name in OF_LABELS else 6 * x  # times on both sides of DAYS


def public(rooms: tuple[ModuleType, ...]) -> set[str]:
    return {
        name
        for room in rooms
        for name, function in inspect.getmembers(room, inspect.isfunction)
        if function.__module__ == room.__name__ and not name.startswith("_")
    }


def test_every_public_function_is_held_to_these_rules():
    rooms = (
        *(benefit, calibration, calibration_curve, competing_risks, concordance, cox, decision, discrimination, ipcw),
        *(site_calibration, survival),
    )
    without_flags = continuous, multiclass, ordinal
    assert public(rooms) == {*ALL, *WITHOUT_FLAGS, *OF_CHECKED}
    assert public(without_flags) == {*OF_CLASSES, *OF_CALLS, *OF_NUMBERS}
    here = {file.stem for file in Path(mri_vit.metrics.__path__[0]).glob("*.py")} - {"__init__"}
    assert here - {room.__name__.rsplit(".", 1)[1] for room in (*rooms, *without_flags)} == {
        "added_value",
        "checked",
        "clusters",
        "comparison",
        "conformal",
        "instability",
        "equivalence",
        "imputation",
        "interaction",
        "intervals",
        "risk_sets",
        "sample_size",
        "transportability",
        "within_fold",
    }


@untimed
@given(st.integers(0, 10**6))
def test_flags_of_every_type_give_equal_results(seed: int):
    flags, x = patients(seed)
    for name, function in ALL.items():
        expected = numbers_of(function(flags, numbers_for(name, x)))
        for kind in TYPES:
            np.testing.assert_array_equal(numbers_of(function(flags.astype(kind), numbers_for(name, x))), expected, err_msg=name)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32])
def test_scores_and_times_of_every_type_give_equal_results(kind: type):
    flags, x = patients(0)
    x = np.argsort(x) + 1
    for name in ("auc", "average_precision", "delong_interval", "delong_paired"):
        assert numbers_of(ALL[name](flags, x.astype(kind))) == numbers_of(ALL[name](flags, x.astype(float))), name
    for name in ("harrell_c", "uno_c", "uno_interval", "kaplan_meier", "logrank", "brier_at"):
        assert numbers_of(ALL[name](flags, x.astype(kind))) == numbers_of(ALL[name](flags, x.astype(float))), name


@pytest.mark.parametrize("kind", [bool, *TYPES])
def test_auc_and_harrell_c_are_those_of_scikit_learn_and_lifelines_for_flags_of_every_type(kind: type):
    flags, x = patients(4, 40)
    risk = np.random.default_rng(1).normal(size=40).round(1)
    assert discrimination.auc(flags.astype(kind), risk) == pytest.approx(roc_auc_score(flags, risk), abs=1e-12)
    assert concordance.harrell_c(x, flags.astype(kind), risk) == pytest.approx(concordance_index(x, -risk, flags), abs=1e-12)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("wrong", [2.0, 0.5, math.nan])
def test_flags_other_than_0_and_1_are_refused_with_what_was_found(name: str, wrong: float):
    flags, x = patients(0)
    flags = flags.astype(float)
    flags[3] = wrong
    with pytest.raises(ValueError, match=rf"1 of 14 (labels|events) are neither 0 nor 1; found {wrong:g}"):
        ALL[name](flags, numbers_for(name, x))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("wrong", "said"), [(math.nan, "are NaN"), (math.inf, "are infinite")])
def test_scores_and_times_that_are_not_finite_are_refused_with_how_many(name: str, wrong: float, said: str):
    flags, x = patients(0)
    x[3] = wrong
    with pytest.raises(ValueError, match=rf"\d of \d+ [a-z]+ {said}"):
        ALL[name](flags, numbers_for(name, x))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", ALL)
def test_unequal_lengths_are_refused_with_both(name: str):
    flags, x = patients(0)
    with pytest.raises(ValueError, match=r"13 .*14|14 .*13"):
        ALL[name](flags[:-1], numbers_for(name, x))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", [object, str])
def test_flags_that_are_no_numbers_and_flags_in_a_column_are_refused(name: str, kind: type):
    flags, x = patients(0)
    with pytest.raises(ValueError, match="expected an array of numbers"):
        ALL[name](flags.astype(kind), numbers_for(name, x))
    with pytest.raises(ValueError, match="expected an array of 1 axis"):
        ALL[name](flags[:, None], numbers_for(name, x))


@pytest.mark.usefixtures("untyped")
def test_a_second_score_is_checked_as_the_first():
    flags, x = patients(0)
    lost = np.where(np.arange(14) == 3, math.nan, x)
    for second in (lost, x[:-1]):
        with pytest.raises(ValueError, match=r"1 of 14 scores are NaN|14 labels and 13 scores"):
            discrimination.delong_paired(flags, x, second)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("group", [np.zeros(13, int), np.zeros((14, 1), int), np.where(np.arange(14) == 3, math.nan, 0)])
def test_groups_that_are_missing_or_of_another_length_are_refused(group: np.ndarray):
    flags, x = patients(0)
    for call in (
        lambda: discrimination.auc_within(flags, x, group),
        lambda: concordance.harrell_c_within(x, flags, x, group),
        lambda: survival.high_risk(x, group),
    ):
        with pytest.raises(ValueError, match=r"groups of shape \(1|1 of 14 groups are NaN"):
            call()


@pytest.mark.usefixtures("untyped")
def test_calls_groups_of_risk_weights_and_predictions_are_checked_too():
    flags, x = patients(0)
    point = decision.operating_point(flags, x > 0.5)
    assert decision.operating_point(flags.astype(np.uint8), (x > 0.5).astype(float)) == point
    assert survival.logrank(x, flags, (x > 0.5).astype(int)) == survival.logrank(x, flags, x > 0.5)
    for call, said in (
        (lambda: decision.operating_point(flags, x), "calls are neither 0 nor 1"),
        (lambda: decision.operating_point(flags, flags[:-1]), "14 labels and 13 calls"),
        (lambda: decision.net_benefit(flags, x, np.array([math.nan])), "1 of 1 thresholds are NaN"),
        (lambda: survival.logrank(x, flags, x * math.nan), "14 of 14 groups are NaN"),
        (lambda: survival.logrank(x, flags, flags[:-1]), "for 14 patients; expected one group each"),
        (lambda: survival.at_risk(x, np.array([math.nan])), "1 of 1 days are NaN"),
        (lambda: decision.choose_cutoff(names(x), x + math.inf), "are infinite"),
        (lambda: calibration_curve.quantile_groups(x * math.nan, 3), "14 of 14 values are NaN"),
        (lambda: survival.calibration_at(x, flags, x[:-1], 0.5), "14 times and 13 predictions"),
        (lambda: ipcw.brier_at(x, flags, np.ones((14, 3)), DAYS), r"shape \(14, 3\) for 14 patients and 2 days"),
        (lambda: discrimination.weighted_auc(-np.ones((1, 14)), np.ones((1, 14)), x), "14 of 14 weights are negative"),
        (lambda: discrimination.weighted_auc(np.ones((1, 13)), np.ones((1, 14)), x), r"shape \(1, 13\) for 14 scores"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.parametrize("kind", [bool, *TYPES])
def test_one_class_alone_stays_undefined_for_flags_of_every_type(kind: type):
    _, x = patients(0)
    for flags in (np.zeros(14, kind), np.ones(14, kind)):
        assert math.isnan(discrimination.auc(flags, x))
        assert np.isnan(discrimination.delong_interval(flags, x)).all()
    assert math.isnan(concordance.harrell_c(x, np.zeros(14, kind), x))


def classed(seed: int, n: int = 14) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes of three, probabilities of them, and calls."""
    random = np.random.default_rng(seed)
    raw = random.random((n, 3))
    return random.permutation(np.arange(n) % 3), raw / raw.sum(axis=1, keepdims=True), random.permutation(np.arange(n) % 3)


def of_classes(name: str, seed: int = 0) -> tuple[Callable, np.ndarray, np.ndarray]:
    label, probability, called = classed(seed)
    return (OF_CLASSES[name], label, probability) if name in OF_CLASSES else (OF_CALLS[name], label, called)


@untimed
@given(st.integers(0, 10**6))
def test_classes_of_every_type_give_equal_results(seed: int):
    for name in (*OF_CLASSES, *OF_CALLS):
        function, label, given_to = of_classes(name, seed)
        expected = numbers_of(function(label, given_to))
        for kind in TYPES:
            np.testing.assert_array_equal(numbers_of(function(label.astype(kind), given_to)), expected, err_msg=name)
            if name in OF_CALLS:
                np.testing.assert_array_equal(numbers_of(function(label, given_to.astype(kind))), expected, err_msg=name)


@pytest.mark.parametrize("name", [*OF_CLASSES, *OF_CALLS])
@pytest.mark.parametrize("wrong", [3.0, -1.0, 0.5, math.nan])
def test_classes_other_than_those_counted_are_refused_with_what_was_found(name: str, wrong: float):
    function, label, given_to = of_classes(name)
    lost = np.where(np.arange(14) == 3, wrong, label)
    with pytest.raises(ValueError, match=rf"1 of 14 labels are no class from 0 to 2; found {wrong:g}"):
        function(lost, given_to)
    if name in OF_CALLS:
        with pytest.raises(ValueError, match=rf"1 of 14 predictions are no class from 0 to 2; found {wrong:g}"):
            function(label, lost)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", [*OF_CLASSES, *OF_CALLS])
def test_classes_of_another_length_no_numbers_and_in_a_column_are_refused(name: str):
    function, label, given_to = of_classes(name)
    for shorter in ((label[:-1], given_to), (label, given_to[:-1])):
        with pytest.raises(ValueError, match=r"13 .*14|14 .*13"):
            function(*shorter)
    with pytest.raises(ValueError, match="expected an array of numbers"):
        function(label.astype(str), given_to)
    with pytest.raises(ValueError, match="expected an array of 1 axis"):
        function(label[:, None], given_to)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", OF_CLASSES)
def test_probabilities_that_are_none_are_refused(name: str):
    function, label, probability = of_classes(name)
    here = np.arange(14)[:, None] == 3
    as_shares = (
        (np.where(here, [[-0.5, 1.0, 0.5]], probability), "1 of 42 probabilities lie outside 0 to 1"),
        (np.where(here, [[0.5, 0.5, 0.5]], probability), "probabilities of 1 of 14 patients do not add up to 1; found 1.5"),
    )
    for wrong, said in (
        *(() if name in OF_RANKS else as_shares),
        (np.where(here, math.nan, probability), "3 of 42 (probabilities|scores) are NaN"),
        (probability[:, 0], "expected an array of 2 axes"),
        (probability.astype(str), "expected an array of numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            function(label, wrong)
    single = numbers_of(function(label, probability.astype(np.float32)))
    np.testing.assert_allclose(single, numbers_of(function(label, probability)), atol=1e-5)


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32, np.float16])
def test_measured_and_predicted_numbers_of_every_type_give_equal_results(name: str, kind: type):
    value, predicted = np.random.default_rng(0).integers(0, 20, (2, 14))
    expected = numbers_of(OF_NUMBERS[name](value.astype(float), predicted.astype(float)))
    np.testing.assert_array_equal(numbers_of(OF_NUMBERS[name](value.astype(kind), predicted.astype(kind))), expected)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("side", [0, 1])
def test_measured_and_predicted_numbers_that_are_none_are_refused(name: str, side: int):
    both = np.random.default_rng(0).normal(size=(2, 14))

    def call(wrong: np.ndarray) -> object:
        return OF_NUMBERS[name](*(wrong if at == side else both[at] for at in range(2)))

    for number, said in ((math.nan, "NaN"), (math.inf, "infinite")):
        with pytest.raises(ValueError, match=rf"1 of 14 (values|predictions|outcomes|scores) are {said}"):
            call(np.where(np.arange(14) == 3, number, both[side]))
    with pytest.raises(ValueError, match=r"13 .*14|14 .*13"):
        call(both[side][:-1])
    with pytest.raises(ValueError, match="expected an array of numbers"):
        call(both[side].astype(str))
    with pytest.raises(ValueError, match="expected an array of 1 axis"):
        call(both[side][:, None])


@pytest.mark.usefixtures("untyped")
def test_groups_and_references_of_numbers_and_classes_are_checked_too():
    label, probability, _ = classed(0)
    value, predicted = np.random.default_rng(0).normal(size=(2, 14))
    for group in (np.zeros(13, int), np.where(np.arange(14) == 3, math.nan, 0)):
        for call in (
            lambda group=group: multiclass.within_fold_m(label, probability, group),
            lambda group=group: ordinal.within_fold_order(value, predicted, group),
            lambda group=group: continuous.within_fold_correlation(value, predicted, group),
            lambda group=group: continuous.within_fold_spearman(value, predicted, group),
        ):
            with pytest.raises(ValueError, match=r"groups of shape \(13|1 of 14 groups are NaN"):
                call()
    for reference, said in ((value[:-1], "14 values and 13 references"), (value * math.nan, "14 of 14 references are NaN")):
        for call in (
            lambda reference=reference: continuous.r_squared(value, predicted, reference),
            lambda reference=reference: continuous.errors(value, predicted, reference, generator(), 20),
        ):
            with pytest.raises(ValueError, match=said):
                call()
