"""Pretraining by size: its figures held to hand counts and to the house's own tests, on tables made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made.study import ENDPOINTS
from reproductions.pretraining_size import pretraining_page
from reproductions.pretraining_size.encoders import COLUMNS, CONTROL, FINE_TUNED, PROBE
from reproductions.pretraining_size.size_effects import Point, adjusted, measure, pointed, wide
from reproductions.repeated_runs import paired

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.within_fold import inflation, within_fold_auc, within_fold_comparison
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Endpoint, Study

PATIENTS = [f"p{i:02d}" for i in range(40)]
LABELS = ["solid", "pten"]
TRUTH, FOLD = np.arange(40) % 2, np.arange(40) // 20


def rows(how: str, network: str, label: str, patients: int, scores: list[np.ndarray]) -> pd.DataFrame:
    """One point's table, a run for each array of scores."""
    own = {"how": how, "network": network, "label": label, "patients": patients}
    tables = [
        pd.DataFrame({"run": run, "patient": PATIENTS, "fold": FOLD, "truth": TRUTH, "score": score}).assign(**own)
        for run, score in enumerate(scores)
    ]
    return pd.DataFrame(pd.concat(tables)).reindex(columns=COLUMNS)


def noisy(signal: float, seed: int, runs: int = 3) -> list[np.ndarray]:
    """Scores of as many runs, whose errors are partly the same."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=40)
    return [signal * TRUTH + shared + 0.3 * generator.normal(size=40) for _ in range(runs)]


def whole() -> pd.DataFrame:
    """Both ways of learning, two networks, a label that helps with growing size and one that does not, and the control."""
    parts = []
    for how in (FINE_TUNED, PROBE):
        for seed, network in enumerate(("vit", "cnn")):
            parts.append(rows(how, network, "", 0, noisy(0.0, seed)))
            for number, size in enumerate((10, 30, 90), 1):
                parts.append(rows(how, network, "solid", size, noisy(2.0 * number, seed)))
                parts.append(rows(how, network, "pten", size, noisy(0.0, 10 * number + seed)))
    parts.append(rows(CONTROL, "intensity", "", 0, noisy(0.5, 99, runs=1)))
    return pd.DataFrame(pd.concat(parts, ignore_index=True))


def point(points: list[Point], how: str, network: str, label: str, patients: int) -> Point:
    return next(p for p in points if (p.how, p.network, p.label, p.patients) == (how, network, label, patients))


def test_the_spread_is_the_runs_standard_deviation_with_two_degrees_of_freedom():
    ordered = np.where(TRUTH == 1, 2.0, 1.0)  # every pair of a fold in order: AUC 1
    one_low = ordered.copy()
    one_low[1] = 0.0  # a positive of the first fold below its ten negatives: 10 of 200 pairs are lost
    flat = np.ones(40)  # nothing but ties: AUC 0.5
    (found,) = measure(rows(FINE_TUNED, "vit", "", 0, [ordered, one_low, flat]), "vit")
    assert found.runs == pytest.approx((1.0, 0.95, 0.5))
    mean = (1.0 + 0.95 + 0.5) / 3
    assert found.mean == pytest.approx(mean)
    assert found.sd == pytest.approx(math.sqrt(((1 - mean) ** 2 + (0.95 - mean) ** 2 + (0.5 - mean) ** 2) / 2))


def test_a_constant_shift_of_every_run_leaves_the_spread_and_moves_the_mean():
    people = pd.DataFrame({"truth": TRUTH.astype(float), "fold": FOLD}, index=pd.Index(PATIENTS))
    runs = [within_fold_auc(TRUTH == 1, score, FOLD) for score in noisy(0.5, 3)]
    key = (FINE_TUNED, "vit", "solid", 10)
    before = pointed(key, runs, people)
    after = pointed(key, [replace(run, value=run.value + 0.125) for run in runs], people)
    assert after.sd == pytest.approx(before.sd)
    assert after.mean == pytest.approx(before.mean + 0.125)
    ours, theirs = [replace(run, value=run.value + 0.125) for run in runs], runs
    assert paired(ours, theirs, inflation(2)).difference == pytest.approx(0.125)


def test_the_order_of_rows_means_nothing():
    table = whole()
    mixed = pd.DataFrame(table.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(wide(measure(table, "vit")), wide(measure(mixed, "vit")))


def test_of_runs_that_are_all_the_same_the_test_is_the_houses_own():
    first, second = (within_fold_auc(TRUTH == 1, noisy(signal, 5)[0], FOLD) for signal in (2.0, 0.4))
    expected = within_fold_comparison([first], [second], inflation(2))
    found = paired([first] * 3, [second] * 3, inflation(2))
    assert (found.difference, found.low, found.high, found.p) == pytest.approx(
        (expected.difference, expected.low, expected.high, expected.p)
    )


def test_runs_that_disagree_widen_the_interval_and_raise_the_p():
    good, bad = (within_fold_auc(TRUTH == 1, noisy(signal, 5)[0], FOLD) for signal in (2.5, 0.4))
    steady = paired([replace(good, value=0.8)] * 3, [replace(bad, value=0.5)] * 3, inflation(2))
    unsteady = paired([replace(good, value=v) for v in (0.55, 0.85, 1.0)], [replace(bad, value=0.5)] * 3, inflation(2))
    assert unsteady.difference == pytest.approx(steady.difference)
    assert unsteady.high - unsteady.low > steady.high - steady.low
    assert unsteady.p > steady.p


def test_gains_and_rivals_are_each_corrected_by_holm_over_their_figure_alone():
    points = measure(whole(), "vit")
    for how in (FINE_TUNED, PROBE):
        for which, count in (("gain", 4), ("rival", 4)):
            tests = [test for p in points if p.how == how and (test := getattr(p, which))]
            assert len(tests) == count
            raw = np.array([test.p for test in tests])
            assert [test.p_adjusted for test in tests] == pytest.approx(holm(raw))
            smallest = raw.argmin()
            assert tests[smallest].p_adjusted == pytest.approx(min(1.0, count * raw[smallest]))  # the smallest pays for all
    assert {(p.label, p.patients) for p in points if p.gain} == {("solid", 90), ("pten", 90)}
    assert {(p.network, p.label, p.patients) for p in points if p.rival} == {
        ("cnn", label, size) for label in ("solid", "pten") for size in (10, 90)
    }
    assert adjusted(points) == points  # once more changes nothing


def test_a_difference_is_found_where_it_is_planted_and_not_where_it_is_not():
    points = measure(whole(), "vit")
    for network in ("vit", "cnn"):
        means = [point(points, FINE_TUNED, network, "solid", size).mean for size in (10, 30, 90)]
        assert means == sorted(means)
        helped, coin = (point(points, FINE_TUNED, network, label, 90).gain for label in ("solid", "pten"))
        assert helped is not None
        assert coin is not None
        assert helped.p_adjusted < 0.05 < coin.p_adjusted


def test_points_of_other_patients_or_folds_are_refused():
    table = whole()
    with pytest.raises(ValueError, match="solid 90, run 2: no score of patient p07"):
        measure(
            pd.DataFrame(
                table[~((table.label == "solid") & (table.patients == 90) & (table.run == 2) & (table.patient == "p07"))]
            ),
            "vit",
        )
    moved = table.assign(fold=table.fold.where((table.label != "pten") | (table.patient != "p03"), 1))
    with pytest.raises(ValueError, match="patient p03 has two folds"):
        measure(moved, "vit")


@pytest.fixture
def study(tiny: Study) -> Study:
    labels = tuple(Endpoint(name=name, kind="binary") for name in ("solid", "pten"))
    return tiny.model_copy(
        update={
            "endpoints": (ENDPOINTS[0], *labels),
            "comparators": (Comparator(name="cnn", model={"architecture": "resnet10"}),),
        }
    )


def test_the_sentences_say_what_helped_what_did_not_and_whether_networks_change_places(study: Study):
    points, names = measure(whole(), "vit"), pretraining_page.named(study)
    text = " ".join(pretraining_page.sentences(points, names, LABELS))
    most = point(points, FINE_TUNED, "vit", "solid", 90)
    assert most.gain
    assert f"after 90 patients with solid {pretraining_page.spread(most)}, which is better than from scratch" in text
    assert pretraining_page.spread(replace(most, mean=0.5, sd=0.125)).split() == ["0.500", "±", "0.125"]
    assert "with PTEN alteration" in text
    assert "is not different by more than chance" in text
    assert "that it leads after few patients and is overtaken is not shown" in text
    assert "is seen" not in text
    assert "regression on brightness alone" in text


def test_the_known_case_holds_where_the_cause_helps_and_the_coin_does_not():
    table = whole()
    said = pretraining_page.known_case(measure(table, "vit"))
    assert said.startswith("Known case held: “solid” is the target's own cause")
    assert said.endswith("0 of 4 with PTEN alteration.")
    exchanged = table.assign(label=table.label.replace({"solid": "pten", "pten": "solid"}))
    assert pretraining_page.known_case(measure(exchanged, "vit")).startswith("Known case not held")
    table["score"] = table.truth  # nothing is left to gain
    assert pretraining_page.known_case(measure(table, "vit")).startswith("Known case not held")


def test_networks_that_change_places_are_said_to(study: Study):
    table = whole()
    cnn_first = {("vit", 10): 0.0, ("cnn", 10): 9.0, ("vit", 90): 9.0, ("cnn", 90): 0.0}
    table = table[~((table.how == FINE_TUNED) & (table.label == "solid") & table.patients.isin([10, 90]))]
    parts = [rows(FINE_TUNED, net, "solid", size, noisy(signal, 7)) for (net, size), signal in cnn_first.items()]
    points = measure(pd.DataFrame(pd.concat([pd.DataFrame(table), *parts])), "vit")
    found = pretraining_page.sentences(points, pretraining_page.named(study), LABELS)
    said = [one for one in found if " against " in one]
    assert "is overtaken is seen" in said[0]
    assert "after solid" in said[0].partition("is seen")[0]


def test_a_figure_has_a_panel_for_each_label_and_a_line_for_each_network(study: Study):
    drawn = pretraining_page.figure(measure(whole(), "vit"), pretraining_page.named(study), LABELS, FINE_TUNED)
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert titles == ["Pretrained on solid", "Pretrained on PTEN alteration"]
    for axes in drawn.axes:
        lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
        assert len(lines) == 2
        assert len(np.asarray(lines[0].get_xdata())) == 4  # from scratch, and three numbers of patients


@pytest.mark.parametrize("how", [FINE_TUNED, PROBE])
def test_every_interval_of_a_figure_lies_within_it_whichever_panel_is_lowest(study: Study, how: str):
    points = measure(whole(), "vit")
    low = min(point.low for point in points if point.how == how)
    for labels in (LABELS, LABELS[::-1]):
        for axes in pretraining_page.figure(points, pretraining_page.named(study), labels, how).axes:
            bottom, top = axes.get_ylim()
            assert bottom < low
            assert top > 1
