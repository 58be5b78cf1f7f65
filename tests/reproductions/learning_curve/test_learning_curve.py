"""Learning curves: means over cohorts, their intervals and paired tests, held to hand counts and to DeLong's own functions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from reproductions.learning_curve import curve

from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.discrimination import auc, delong_paired, delong_variance

NAMES = {"vit": "ViT <ours>", "cnn": "CNN", "coin": "Coin"}


def predicted(seeds: tuple[int, ...] = (1, 2, 3), sizes: tuple[int, ...] = (40, 80)) -> pd.DataFrame:
    """Scores of a good model, a weaker one that shares its errors, and a coin."""
    tables = []
    for seed in seeds:
        for size in sizes:
            generator = np.random.default_rng([seed, size])
            truth = np.arange(size) % 2
            good = truth + generator.normal(0, 0.7, size)
            scores = {"vit": good, "cnn": good + generator.normal(0, 1.5, size), "coin": generator.random(size)}
            patients = [f"p{i}" for i in range(size)]
            tables += [
                pd.DataFrame({"seed": seed, "labelled": size, "model": m, "patient": patients, "truth": truth, "score": s})
                for m, s in scores.items()
            ]
    return pd.DataFrame(pd.concat(tables).sample(frac=1, random_state=0))  # the order of rows means nothing


def of(table: pd.DataFrame, seed: int, size: int, model: str) -> tuple[np.ndarray, np.ndarray]:
    here = pd.DataFrame(table[(table.seed == seed) & (table.labelled == size) & (table.model == model)]).sort_values("patient")
    return here.truth.to_numpy() == 1, here.score.to_numpy()


def test_a_point_is_the_mean_over_cohorts_and_its_interval_the_wider_of_two_sources_of_chance():
    table = predicted()
    points = curve.curve(table).set_index(["labelled", "model"])
    parts = [of(table, seed, 80, "cnn") for seed in (1, 2, 3)]
    aucs = np.array([auc(*part) for part in parts])
    within = np.sqrt(sum(delong_variance(*part) for part in parts)) / 3
    reach = max(Z_95 * within, 4.302653 * aucs.std(ddof=1) / np.sqrt(3))  # Student's t with two degrees of freedom, from a table
    assert points.auc[80, "cnn"] == pytest.approx(aucs.mean())
    assert points.high[80, "cnn"] == pytest.approx(min(1, aucs.mean() + reach))
    assert points.low[80, "cnn"] == pytest.approx(aucs.mean() - reach)


def test_with_one_cohort_the_interval_and_the_test_are_delongs():
    table = predicted(seeds=(4,), sizes=(60,))
    test = curve.against(table).set_index("model").loc["cnn"]
    truth, ours = of(table, 4, 60, "vit")
    theirs = of(table, 4, 60, "cnn")[1]
    paired = delong_paired(truth, theirs, ours)
    assert (test.difference, test.low, test.high, test.p) == pytest.approx((paired.difference, paired.low, paired.high, paired.p))


def test_a_difference_that_changes_from_cohort_to_cohort_is_not_found_however_sure_each_cohort_is():
    tables = [predicted(seeds=(seed,), sizes=(80,)) for seed in (1, 2)]
    tables[1] = tables[1].assign(model=tables[1].model.replace({"vit": "coin", "coin": "vit"}))  # the other way round
    test = curve.against(pd.concat(tables)).set_index("model").loc["coin"]
    differences = [auc(*of(pd.concat(tables), s, 80, "coin")) - auc(*of(pd.concat(tables), s, 80, "vit")) for s in (1, 2)]
    assert min(map(abs, differences)) > 0.2
    assert test.high - test.low == pytest.approx(2 * 12.706205 * np.std(differences, ddof=1) / np.sqrt(2))  # t with one
    assert test.p > 0.5


def test_more_cohorts_narrow_the_interval_and_find_the_weaker_model():
    few, many = curve.against(predicted(seeds=(1,))), curve.against(predicted(seeds=tuple(range(1, 9))))
    assert ((many.high - many.low).to_numpy() < (few.high - few.low).to_numpy()).all()
    worse = many[(many.model == "coin")]
    assert (worse.difference < 0).all()
    assert (worse.p_adjusted < 0.001).all()
    assert (many.p_adjusted >= many.p).all()


def test_the_sentences_tell_who_differs_by_more_than_chance_and_who_does_not():
    table = predicted(seeds=(1, 2, 3), sizes=(80,))
    same = pd.DataFrame(table[table.model == "vit"]).assign(model="cnn")  # the same scores under another name
    table = pd.concat([pd.DataFrame(table[table.model != "cnn"]), same])
    (sentence,) = curve.sentences(curve.curve(table), curve.against(table), NAMES)
    assert sentence.startswith("At 80 labelled patients ViT <ours> reaches 0.")
    assert "by more than chance worse are Coin" in sentence
    assert "not different from it by more than chance are CNN" in sentence


def test_the_page_holds_every_model_and_escapes_their_names(tmp_path):
    costs = pd.DataFrame({"model": ["vit"], "parameters": [1234567], "training_seconds": [600.0]})
    page = curve.write(predicted(), NAMES, ["made up"], costs, tmp_path).read_text()
    assert all(text in page for text in ("ViT &lt;ours&gt;", "CNN", "Coin", "1,234,567", "10 min", "made up"))
    assert "<ours>" not in page.partition("<svg")[0]
    assert {"curve.svg", "curve.png", "curve.csv", "against.csv", "predictions.csv"} < {f.name for f in tmp_path.iterdir()}
    again = pd.read_csv(tmp_path / "predictions.csv")
    pd.testing.assert_frame_equal(curve.curve(again), curve.curve(predicted()), rtol=1e-4)


def test_the_written_predictions_give_the_same_figures_again_however_close_the_scores(tmp_path):
    table = predicted(seeds=(1, 2), sizes=(40,))
    table["score"] = (0.5 + 1e-6 * table.score).astype(np.float32)  # a network that has learned next to nothing
    costs = pd.DataFrame({"model": ["vit"], "parameters": [1], "training_seconds": [1.0]})
    curve.write(table, NAMES, [], costs, tmp_path)
    again = curve.curve(pd.read_csv(tmp_path / "predictions.csv"))
    pd.testing.assert_frame_equal(again, pd.read_csv(tmp_path / "curve.csv"), atol=1e-6, check_dtype=False)
