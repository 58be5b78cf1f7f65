"""The ladder: figures of pairs within a fold, what is nothing is told as nothing, and the page says what the figures say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproductions.ladder import ladder_page
from reproductions.ladder.first_order import first_order
from reproductions.ladder.perceptron import Perceptron

from mri_vit.data.cohort import Patient, without_labels
from mri_vit.metrics.discrimination import wilson_of_auc
from mri_vit.metrics.within_fold import inflation, p_above_chance, within_fold_auc, within_fold_comparison
from mri_vit.predictors.regressions import Tabular
from mri_vit.settings.schema import CHANNELS, Endpoint

NAMES = {ladder_page.MLP: "MLP <of numbers>", "resnet10": "CNN", "vit": "ViT"}
FOLDS = 3


def predicted(
    seeds: tuple[int, ...] = (1,), sizes: tuple[int, ...] = (24, 96), endpoints: tuple[str, ...] = ("mgmt", "pten")
) -> pd.DataFrame:
    """Scores of three models in three folds: "mgmt" is found by all, better with more patients; "pten" by nobody."""
    tables = []
    for seed in seeds:
        for size in sizes:
            for endpoint in endpoints:
                generator = np.random.default_rng([seed, size, len(endpoint), ord(endpoint[0])])
                truth, fold = np.arange(size) % 2, np.arange(size) // 2 % FOLDS
                shift = 5.0 * fold  # each fold's model has a scale of its own, which pairs across folds would take for a cause
                for index, model in enumerate(NAMES):
                    signal = 0 if endpoint == "pten" else truth * np.sqrt(size) / (3 + index)
                    numbers = {"patient": [f"p{i}" for i in range(size)], "fold": fold, "truth": truth}
                    scores = signal + shift + generator.normal(size=size)
                    key = {"seed": seed, "labelled": size, "model": model, "endpoint": endpoint}
                    tables.append(pd.DataFrame({**key, **numbers, "score": scores}))
    return pd.DataFrame(pd.concat(tables).sample(frac=1, random_state=0))  # the order of rows means nothing


def test_with_one_cohort_a_point_is_the_reports_own_figure_interval_and_p():
    table = predicted()
    point = ladder_page.points(table).set_index(["endpoint", "labelled", "model"]).loc[("mgmt", 96, "vit")]
    own = table[(table.endpoint == "mgmt") & (table.labelled == 96) & (table.model == "vit")]
    found = within_fold_auc(own.truth.to_numpy() == 1, own.score.to_numpy(), own.fold.to_numpy())
    low, high = wilson_of_auc(found.value, found.variance, 48, 48, refits=True)
    expected = (96, found.value, low, high, p_above_chance(found, inflation(FOLDS)))
    assert tuple(point[["known", "auc", "low", "high", "p"]]) == pytest.approx(expected)


def test_over_cohorts_a_point_is_their_mean_and_its_interval_as_narrow_as_their_patients_and_their_spread_allow():
    one, three = (
        ladder_page.points(predicted(seeds)).set_index(["endpoint", "labelled", "model"]) for seeds in ((1,), (1, 2, 3))
    )
    apart = [ladder_page.points(predicted((seed,))).set_index(["endpoint", "labelled", "model"]).auc for seed in (1, 2, 3)]
    pd.testing.assert_series_equal(three.auc, sum(apart) / 3)
    assert (three.known == 3 * one.known).all()
    here = ("pten", 96, "vit")
    spread = np.std([auc[here] for auc in apart], ddof=1) / np.sqrt(3) * 4.302653  # Student's t, two degrees of freedom
    assert three.auc[here] - three.low[here] >= spread - 1e-6  # of a quantile with six digits
    assert three.high[here] - three.low[here] < max(one.high[here] - one.low[here], 2 * spread + 1e-6)


def test_an_auc_of_one_has_an_interval():
    table = predicted(sizes=(24,), endpoints=("mgmt",))
    table["score"] = table.truth + 0.01 * table.fold
    found = ladder_page.points(table)
    assert (found.auc == 1).all()
    assert (found.low < 0.9).all()


def test_differences_are_of_pairs_within_a_fold_and_inflated_as_refitted_models_are():
    table = predicted()
    tests = ladder_page.against(table, "vit").set_index(["endpoint", "labelled", "model"])
    here = pd.DataFrame(table[(table.endpoint == "mgmt") & (table.labelled == 24)]).sort_values("patient")
    found = {
        model: within_fold_auc(rows.truth.to_numpy() == 1, rows.score.to_numpy(), rows.fold.to_numpy())
        for model, rows in here.groupby("model")
    }
    paired = within_fold_comparison([found[ladder_page.MLP]], [found["vit"]], inflation(FOLDS))
    mine = tests.loc[("mgmt", 24, ladder_page.MLP)]
    assert tuple(mine[["difference", "low", "high", "p"]]) == pytest.approx(
        (paired.difference, paired.low, paired.high, paired.p)
    )
    assert len(tests) == 2 * 2 * 2
    assert (tests.p_adjusted >= tests.p).all()
    assert tests.p_adjusted.min() == pytest.approx(min(1, 8 * tests.p.min()))  # Holm over all of them


@pytest.mark.slow
def test_a_coin_is_found_in_no_more_ladders_than_the_level_allows():
    found = [ladder_page.points(predicted((seed,), endpoints=("pten",))) for seed in range(100, 180)]
    wrong = sum((points.p_adjusted < ladder_page.LEVEL).any() for points in found)
    assert wrong <= 9  # of 80 at a level of 0.05: 4 are expected, and 10 or more come once in 200 times


def test_a_model_finds_from_the_size_after_which_it_never_fails():
    points = pd.DataFrame(
        {
            "model": ["vit"] * 4 + ["cnn"] * 4,
            "labelled": [24, 48, 96, 192] * 2,
            "p_adjusted": [0.01, 0.2, 0.04, 0.01] + [0.01] * 3 + [0.06],
        }
    )
    assert ladder_page.found_from(points, "vit") == 96
    assert ladder_page.found_from(points, "cnn") is None


def test_two_visits_are_one_patient_and_who_has_no_label_is_left_out():
    table = pd.DataFrame(
        {
            "endpoint": "mgmt",
            "model": "vit",
            "fold": [0, 0, 1, 1],
            "patient": ["a", "a", "b", "c"],
            "session": ["1", "2", "", ""],
            "score": [0.2, 0.4, 0.7, 0.9],
            "truth": [np.nan, 1.0, 0.0, np.nan],
        }
    )
    found = ladder_page.of_patients(table)
    assert found[["patient", "truth"]].to_numpy().tolist() == [["a", 1.0], ["b", 0.0]]
    assert found.score.tolist() == pytest.approx([0.3, 0.7])


def heads(n: int = 240) -> tuple[list[Patient], pd.DataFrame]:
    """Heads of noise with a tumour: how bright it is is MGMT, in which half TERTp; each stands beside its mirror image."""
    generator = np.random.default_rng(0)
    patients, rows = [], []
    for index in range(n // 2):
        head = generator.normal(size=(4, 8, 8, 8))
        bright = index % 2
        head[1, 1:3, 3:5, 3:5] += 3 + 2 * bright
        for side, volume in enumerate((head, head[:, ::-1])):
            labels = {"mgmt": float(bright), "tertp": float(side)}
            patients.append(Patient(f"p{index}-{side}", {}, labels, {}))
            rows.append(first_order(volume.reshape(4, -1), CHANNELS))
    return patients, pd.DataFrame(rows, index=pd.Index([p.id for p in patients]))


@pytest.mark.parametrize("make", [lambda table, ends: Tabular(table, ends), lambda table, ends: Perceptron(table, ends, 0)])
def test_first_order_numbers_tell_brightness_and_cannot_tell_the_side(make):
    patients, table = heads()
    predictor = make(table, [Endpoint(name="mgmt", kind="binary"), Endpoint(name="tertp", kind="binary")])
    predictor.fit(patients[:120], patients[120:160])
    test = patients[160:]
    scores = predictor.predict([without_labels(p) for p in test])[0]
    for endpoint, (low, high) in {"mgmt": (0.9, 1.0), "tertp": (0.5, 0.5)}.items():
        here = scores[scores.endpoint == endpoint].set_index("patient").score
        truth = np.array([p.labels[endpoint] == 1 for p in test])
        auc = within_fold_auc(truth, here[[p.id for p in test]].to_numpy(), np.zeros(len(test))).value
        assert low <= auc <= high  # a mirror image has the same numbers, so of the side it is one half exactly


def test_the_page_says_who_finds_what_and_escapes_names(tmp_path: Path):
    costs = pd.DataFrame({"model": ["vit"], "parameters": [1234567], "training_seconds": [600.0]})
    planted = {"mgmt": "brightness", "pten": "a coin"}
    page = ladder_page.write(predicted(), NAMES, planted, ["made in one go"], costs, tmp_path).read_text()
    for text in ("MLP &lt;of numbers&gt;", "1,234,567", "10.0 min", "made in one go", "are synthetic", "brightness"):
        assert text in page
    assert "<of numbers>" not in page
    assert "no model is told from chance" in page
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {"index.html", "ladder.svg", "ladder.png", "points.csv", "against.csv", "predictions.csv"}
    again = pd.read_csv(tmp_path / "predictions.csv")
    pd.testing.assert_frame_equal(ladder_page.points(again), ladder_page.points(predicted()))


def test_a_real_cohorts_page_does_not_call_it_synthetic(tmp_path: Path):
    costs = pd.DataFrame({"model": ["vit"], "parameters": [1], "training_seconds": [1.0]})
    page = ladder_page.write(predicted(endpoints=("mgmt",)), NAMES, {}, [], costs, tmp_path).read_text()
    assert "are synthetic" not in page


def test_the_sentences_tell_from_which_size_a_marker_is_found_and_who_differs():
    table = predicted(sizes=(24, 192))
    coin = np.random.default_rng(9).normal(size=len(table))
    table["score"] = np.where(table.model == ladder_page.MLP, coin, table.score)
    found, tests = ladder_page.points(table), ladder_page.against(table, "vit")
    mgmt, pten = ladder_page.sentences(found, tests, NAMES, {"mgmt": "Brightness", "pten": "A coin"})
    assert mgmt.startswith("Brightness: better than chance: CNN (from ")
    assert "ViT (from " in mgmt
    assert "not told from chance, with 192 patients either: MLP <of numbers>" in mgmt
    assert mgmt.endswith("with 192 patients by more than chance worse than the ViT: MLP <of numbers>.")
    assert pten == "A coin: no model is told from chance."


def test_a_marker_that_numbers_without_place_find_is_told_as_such():
    found, tests = ladder_page.points(predicted(sizes=(192,))), ladder_page.against(predicted(sizes=(192,)), "vit")
    mgmt, pten = ladder_page.sentences(found, tests, NAMES, {"mgmt": "Brightness", "pten": "A coin"})
    assert "; MLP <of numbers> reaches 1.000 [0.98" in mgmt
    assert "need not have seen more" in mgmt
    assert "need not" not in pten
