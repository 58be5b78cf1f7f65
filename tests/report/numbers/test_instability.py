"""Predictions of several trainings in a run, and patients' sets: planted tables, their figures by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made.report import measure
from made.run import make_run

from mri_vit.data import predictions
from mri_vit.metrics.conformal import expected_range
from mri_vit.report.numbers import instability, prediction_sets
from mri_vit.report.numbers.judged import known_rows
from mri_vit.report.numbers.prediction_sets import Sets, TooFew
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.foreign_table import Declared, run_from_tables
from mri_vit.report.reading.run import Run

REPEATS, N = 3, 120


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return reports.read_run(make_run(tmp_path_factory.mktemp("runs") / "thrice", repeats=REPEATS, patients=90, models=("vit",)))


@pytest.fixture(scope="module")
def metrics(run: Run) -> dict[str, Any]:
    return measure(run)


def of(run: Run, name: str) -> Any:
    return next(endpoint for endpoint in run.study.endpoints if endpoint.name == name)


def by_repeat(run: Run, name: str) -> pd.DataFrame:
    """A row per patient, a column per repeat: the mean over visits."""
    rows = run.predictions[(run.predictions.endpoint == name) & (run.predictions.model == "vit")]
    return rows.groupby(["patient", "repeat"]).score.mean().unstack()


def test_a_markers_mape_and_calls_are_those_of_its_table(run: Run, metrics: dict[str, Any]):
    table, (found,) = by_repeat(run, "mgmt"), metrics["instability"]["mgmt"]["vit"]
    each = [(table[a] - table[b]).abs() for a, b in ((0, 1), (0, 2), (1, 2))]
    change, called = pd.DataFrame(dict(enumerate(each))).T.mean(), table >= 0.5  # the planted threshold
    assert (found["source"], found["trainings"], found["n"], found["scale"]) == ("repeats", REPEATS, len(table), "probability")
    assert found["mape"] == pytest.approx(np.mean(change))
    assert (found["median"], found["ninth_decile"]) == pytest.approx((np.median(change), np.quantile(change, 0.9)))
    assert found["divided"] == ((called.sum(axis=1) % REPEATS) != 0).sum()
    assert found["disagreement"] == pytest.approx(
        found["divided"] * 2 / 3 / len(table)
    )  # one of three disagrees in two of three pairs
    assert found["rank_agreement"] == pytest.approx((table.corr("spearman").to_numpy().sum() - 3) / 6)


def test_each_patient_has_the_range_and_the_votes(run: Run, metrics: dict[str, Any]):
    table = by_repeat(run, "mgmt")
    for one in metrics["patients"]:
        found, own = one["endpoints"]["mgmt"]["retrained"], table.loc[one["patient"]]
        assert (found["low"], found["high"]) == pytest.approx((own.min(), own.max()))
        votes = int((own >= 0.5).sum())
        assert (found["called"], found["alike"]) == (("positive", votes) if votes > 1 else ("negative", REPEATS - votes))


def test_survival_is_followed_by_the_event_free_probability_at_a_year_of_the_visit_whose_time_is_counted(
    run: Run, metrics: dict[str, Any]
):
    (found,) = metrics["instability"]["os"]["vit"]
    rows = run.survival[(run.survival.horizon_days == 365) & run.survival.session.isin(["", "a"])]
    table = rows.groupby(["patient", "repeat"]).survival.first().unstack()
    each = [(table[a] - table[b]).abs() for a, b in ((0, 1), (0, 2), (1, 2))]
    assert (found["scale"], found["days"]) == ("survival", 365)
    assert found["mape"] == pytest.approx((sum(each) / 3).mean())  # type: ignore[operator]
    assert "event-free probability at 365 days" in found["sentences"][0]


def test_without_probabilities_survival_is_followed_by_the_rank_within_the_fold(run: Run):
    bare = replace(run, survival=run.survival.iloc[:0])
    (found,) = instability.trainings(bare, of(run, "os"), "vit")
    assert found.scale == "rank"
    assert ((found.predicted > 0) & (found.predicted < 1)).all()


def test_one_training_has_no_figure_and_no_key(tmp_path: Path):
    found = measure(reports.read_run(make_run(tmp_path / "once", patients=60, models=("vit",))))
    assert "instability" not in found
    assert "retrained" not in found["patients"][0]["endpoints"]["mgmt"]
    assert set(found["prediction_sets"]) == {"mgmt", "pten", "idh1"}
    assert "censored" in found["no_sets"]["os"]


def test_seeds_are_followed_within_the_first_repeat(tmp_path: Path):
    folder = make_run(tmp_path / "seeds", repeats=2, patients=60, models=("vit",))
    table = predictions.load(folder / "predictions.csv")
    noise = np.random.default_rng(0).normal(scale=0.1, size=(2, len(table)))
    parts = [table.assign(seed=seed, score=table.score + noise[seed]) for seed in range(2)]
    predictions.save(pd.concat(parts).reindex(columns=predictions.SEED_COLUMNS), folder / "seeds.csv")
    run = reports.read_run(folder)
    found = instability.trainings(run, of(run, "mgmt"), "vit")
    assert [(one.source, len(one.predicted)) for one in found] == [("repeats", 2), ("seeds", 2)]
    rows = (table.repeat == 0) & (table.endpoint == "mgmt")
    apart = pd.Series(noise[0] - noise[1]).loc[rows].groupby(table.patient[rows]).mean().abs().sort_index()
    own = pd.Series(np.abs(found[1].predicted[0, :, 0] - found[1].predicted[1, :, 0]), found[1].patients).sort_index()
    assert own.to_numpy() == pytest.approx(apart.to_numpy(), abs=1e-8)


def test_sets_leave_one_in_ten_out_of_each_class_and_hold_patients_whose_label_is_not_known(run: Run, metrics: dict[str, Any]):
    found = metrics["prediction_sets"]["mgmt"]["vit"]
    assert found["classes"] == []  # which are so by construction, and say nothing
    results = [one["endpoints"]["mgmt"] for one in metrics["patients"]]
    known = [
        (("negative", "positive")[result["truth"]], result["answer"]["classes"])
        for result in results
        if result["truth"] is not None
    ]
    assert len(known) == found["n"] < len(results)
    assert sum(len(classes) == 1 for _, classes in known) == found["answered"]
    assert sum(classes == [truth] for truth, classes in known) == found["right"]
    of_class = {name: [truth in classes for truth, classes in known if truth == name] for name in ("negative", "positive")}
    assert all(len(held) - sum(held) == len(held) // 10 for held in of_class.values())
    assert (found["new_low"], found["new_high"]) == pytest.approx(expected_range(min(map(len, of_class.values()))))
    assert sum(not classes for _, classes in known) == found["none"]
    assert all(result["answer"] for result in results)


def test_a_positive_is_ruled_out_where_nine_in_ten_positives_score_higher(run: Run, metrics: dict[str, Any]):
    score = {one["patient"]: one["endpoints"]["mgmt"] for one in metrics["patients"]}
    positives = np.sort([one["score"] for one in score.values() if one["truth"]])
    for one in score.values():
        others = positives if not one["truth"] else np.delete(positives, np.searchsorted(positives, one["score"]))
        p = (1 + (others <= one["score"]).sum()) / (1 + len(others))
        assert ("positive" in one["answer"]["classes"]) == (p > 0.1)


def test_sites_are_counted_and_those_that_are_folds_are_compared_with_each_other(run: Run):
    site = dict(zip(run.cohort.patient, run.cohort.site, strict=True))
    names = sorted(set(site.values()) - {""})
    endpoint, known = of(run, "mgmt"), known_rows(run.predictions, of(run, "mgmt"), "vit")
    found = prediction_sets.measure(run, endpoint, "vit", known)
    assert isinstance(found, Sets)
    truth = known.drop_duplicates("patient").set_index("patient").truth
    for one in found.figures.sites:
        own = [patient for patient in truth.index if site[patient] == one.site]
        held = [("negative", "positive")[int(truth[patient])] in found.patients[patient].classes for patient in own]
        assert (one.n, one.covered) == (len(own), sum(held))
    assert found.figures.calibrated_on == "other patients"
    home = run.predictions.patient.map({patient: names.index(name) for patient, name in site.items() if name})
    left_out = replace(run, predictions=run.predictions.assign(fold=home))
    found = prediction_sets.measure(left_out, endpoint, "vit", known_rows(left_out.predictions, endpoint, "vit"))
    assert isinstance(found, Sets)
    assert found.figures.calibrated_on == "other sites"
    assert sum(one.covered for one in found.figures.classes) == sum(one.covered for one in found.figures.sites)
    assert math.isnan(found.figures.new_low)
    assert all(math.isnan(one.p) for one in found.figures.sites)  # of three sites


def test_too_few_of_a_class_give_the_number_that_is_needed(run: Run):
    endpoint = of(run, "mgmt")
    positive = run.predictions.patient[(run.predictions.endpoint == "mgmt") & (run.predictions.truth == 1)].unique()
    fewer = replace(run, predictions=run.predictions[~run.predictions.patient.isin(positive[7:])])
    found = prediction_sets.measure(fewer, endpoint, "vit", known_rows(fewer.predictions, endpoint, "vit"))
    assert found == TooFew("positive", 7, 10)


def test_a_table_of_types_grades_and_numbers_has_sets_and_intervals(tmp_path: Path):
    random = np.random.default_rng(0)
    label, grade, number = random.integers(3, size=N), random.integers(3, size=N), random.normal(50, 10, N)
    ids = [f"p{i:03d}" for i in range(N)]
    people = {"patient": ids, "who": np.array(["a", "b", "c"])[label], "grade": grade + 2, "ki67": number}
    pd.DataFrame(people).to_csv(tmp_path / "people.csv", index=False)
    rows = []
    for repeat in range(2):
        for name, names, own in (("who", ("a", "b", "c"), label), ("grade", ("2", "3", "4"), grade)):
            shares = np.exp(1.5 * np.eye(3)[own] + random.normal(size=(N, 3)))
            shares /= shares.sum(axis=1, keepdims=True)
            columns = {"patient": np.repeat(ids, 3), "endpoint": name, "class": list(names) * N, "score": shares.ravel()}
            rows.append(pd.DataFrame(columns | {"repeat": repeat, "fold": np.repeat(np.arange(N) % 3, 3)}))
        predicted = number + random.normal(scale=5, size=N)
        rows.append(
            pd.DataFrame(
                {"patient": ids, "endpoint": "ki67", "class": "", "score": predicted, "repeat": repeat, "fold": np.arange(N) % 3}
            )
        )
    pd.concat(rows).to_csv(tmp_path / "scores.csv", index=False)
    asked = Declared(numbers=("ki67",), grades=("grade",))
    found = measure(run_from_tables(tmp_path / "scores.csv", tmp_path / "people.csv", tmp_path / "report", asked))
    sets = {name: models["model"] for name, models in found["prediction_sets"].items()}
    for name, names, own in (("who", "abc", label), ("grade", "234", grade)):
        answers = [one["endpoints"][name]["answer"]["classes"] for one in found["patients"]]
        missed = np.bincount(own[[names[y] not in answer for y, answer in zip(own, answers, strict=True)]], minlength=3)
        assert (missed <= np.bincount(own) // 10).all()
        assert name == "grade" or (missed == np.bincount(own) // 10).all()  # grades between two belong to a set
    for one in found["patients"]:
        assert one["endpoints"]["grade"]["answer"]["classes"] != ["2", "4"]
    inside = [one["endpoints"]["ki67"]["answer"] for one in found["patients"]]
    held = sum(one["low"] <= value <= one["high"] for one, value in zip(inside, number, strict=True))
    assert held == N - N // 10
    assert 0 < sets["ki67"]["reach"] < sets["ki67"]["reach_without_skill"]
    assert sets["ki67"]["reach"] == pytest.approx(1.645 * 5 / math.sqrt(2), rel=0.25)
    unstable = {name: models["model"][0] for name, models in found["instability"].items()}
    assert (unstable["ki67"]["scale"], unstable["who"]["scale"]) == ("number", "probability")
    assert unstable["ki67"]["divided"] is None
    assert unstable["ki67"]["mape"] == pytest.approx(2 * 5 / math.sqrt(math.pi), rel=0.15)
    assert 0 < unstable["who"]["mape"] < unstable["who"]["at_random"] < 1
