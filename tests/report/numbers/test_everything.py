"""The report's numbers against a made-up run whose numbers are computed again here, by other means."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import concordance_index
from made.report import measure
from made.run import FOLDS, HORIZONS, MODELS, TWO_VISITS, make_run
from scipy.stats import chi2
from sklearn.metrics import average_precision_score, brier_score_loss, confusion_matrix, roc_auc_score

from mri_vit.report.numbers import binary as points
from mri_vit.report.numbers import judged, survival
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.survival import SurvivalResult
from mri_vit.report.words import caveats, endpoint_results

pytestmark = pytest.mark.long(17)

BINARY = ("mgmt", "pten", "idh1")


@pytest.fixture(scope="module")
def run(made_up: Path) -> Run:
    return reports.read_run(made_up / "run")


@pytest.fixture(scope="module")
def metrics(made_up: Path) -> dict:
    return pickle.loads((made_up / "measured").read_bytes())


@pytest.fixture(scope="module")
def twice(tmp_path_factory) -> Run:
    return reports.read_run(
        make_run(tmp_path_factory.mktemp("runs") / "twice", repeats=2, patients=40, models=("vit", "clinical"))
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Run:
    """One model, few patients: for what is changed and measured again."""
    return reports.read_run(make_run(tmp_path_factory.mktemp("runs") / "small", patients=40, models=("vit",)))


def labelled(run: Run, endpoint: str, model: str) -> pd.DataFrame:
    """Rows of patients with a known label, visits averaged, by plain loops over the table."""
    people: dict[str, dict] = {}
    for row in run.predictions.to_dict("records"):
        known = not math.isnan(row["truth"]) or not math.isnan(row["time_days"])
        if row["endpoint"] == endpoint and row["model"] == model and row["repeat"] == 0 and known:
            people.setdefault(row["patient"], {**row, "scores": []})["scores"].append(row["score"])
    return pd.DataFrame([{**row, "score": np.mean(row["scores"])} for row in people.values()])


def measured(run: Run, endpoint: str, model: str = "vit") -> dict:
    """One model's result, measured with no other endpoint beside it."""
    alone = tuple(e for e in run.study.endpoints if e.name == endpoint)
    found = measure(replace(run, study=run.study.model_copy(update={"endpoints": alone})))
    return found["endpoints"][endpoint]["models"][model]


@pytest.fixture(scope="module")
def usual(small: Run) -> dict[str, dict]:
    """The results of a marker and of survival of the run of one model, as they are when nothing is changed."""
    return {name: measured(small, name) for name in ("mgmt", "os")}


def with_scores(run: Run, score, model: str = "vit") -> Run:
    """The run with one model's scores replaced by a function of its rows."""
    table = run.predictions.copy()
    own = table.model == model
    table.loc[own, "score"] = score(table[own])
    return replace(run, predictions=table)


# --- one row per patient ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("endpoint", BINARY)
def test_auc_per_fold_pooled_and_within_folds_are_those_of_another_library(run, metrics, endpoint, model):
    rows, result = labelled(run, endpoint, model), metrics["endpoints"][endpoint]["models"][model]
    assert (result["n"], result["positive"]) == (len(rows), rows.truth.sum())
    assert result["auc"]["value"] == pytest.approx(roc_auc_score(rows.truth, rows.score), abs=1e-12)
    assert result["auc"]["low"] <= result["auc"]["value"] <= result["auc"]["high"]
    values, pairs = [], []
    for fold in result["folds"]:
        here = rows[rows.fold == fold["fold"]]
        assert (fold["n"], fold["positive"]) == (len(here), here.truth.sum())
        if here.truth.nunique() == 1:
            assert math.isnan(fold["auc"])
            continue
        values.append(roc_auc_score(here.truth, here.score))
        pairs.append(here.truth.sum() * (1 - here.truth).sum())
        assert fold["auc"] == pytest.approx(values[-1], abs=1e-12)
    assert result["undefined_folds"] == FOLDS - len(values)
    assert (result["fold_mean"], result["fold_variance"]) == pytest.approx((np.mean(values), np.var(values, ddof=1)))
    assert result["auc_within_folds"]["value"] == pytest.approx(np.average(values, weights=pairs))


def test_a_fold_of_one_class_is_counted_as_undefined(metrics):
    assert metrics["endpoints"]["idh1"]["models"]["vit"]["undefined_folds"] == 1
    assert metrics["endpoints"]["mgmt"]["models"]["vit"]["undefined_folds"] == 0


def test_two_visits_are_one_patient_whose_first_visit_tells_survival(small):
    patient = TWO_VISITS[0]
    rows = small.predictions[(small.predictions.patient == patient) & (small.predictions.model == "vit")]
    binary, os = (next(e for e in small.study.endpoints if e.name == name) for name in ("idh1", "os"))
    seen = judged.known_rows(small.predictions, binary, "vit").set_index("patient").loc[patient]
    assert seen.score == pytest.approx(rows[rows.endpoint == "idh1"].score.mean())
    first = judged.known_rows(small.predictions, os, "vit").set_index("patient").loc[patient]
    assert first.session == "a"
    assert first.score == rows[(rows.endpoint == "os") & (rows.session == "a")].score.item()
    assert measured(small, "idh1")["n"] == len(small.cohort) - 2


def unlabelled(run: Run, visit: str, *columns: str) -> Run:
    """The run without these labels of one visit of the patient that was seen twice."""
    table = run.predictions.copy()
    own = (table.patient == TWO_VISITS[0]) & (table.session == visit)
    table.loc[own, list(columns)] = math.nan
    return replace(run, predictions=table)


def test_a_label_that_only_a_later_visit_has_is_the_patients(small):
    patient, idh1 = TWO_VISITS[0], next(e for e in small.study.endpoints if e.name == "idh1")
    table = small.predictions[(small.predictions.patient == patient) & (small.predictions.endpoint == "idh1")]
    seen = judged.known_rows(unlabelled(small, "a", "truth").predictions, idh1, "vit").set_index("patient").loc[patient]
    assert seen.truth == table[table.session == "b"].truth.item()
    assert seen.score == pytest.approx(table.score.mean())  # of both visits: a label is of the patient and not of a scan
    both = small.predictions.assign(truth=small.predictions.truth.mask(small.predictions.patient == patient))
    assert patient not in set(judged.known_rows(both, idh1, "vit").patient)


def test_survival_counts_from_the_first_visit_whose_time_is_known(small):
    table = small.predictions.copy()
    own = (table.patient == TWO_VISITS[0]) & (table.endpoint == "os")
    table.loc[own & (table.session == "b"), ["time_days", "event"]] = 123.0, 1.0
    table.loc[own & (table.session == "a"), ["time_days", "event"]] = math.nan
    os = next(e for e in small.study.endpoints if e.name == "os")
    seen = judged.known_rows(table, os, "vit").set_index("patient").loc[TWO_VISITS[0]]
    assert (seen.session, seen.time_days, seen.event) == ("b", 123.0, True)
    assert seen.score == table[own & (table.session == "b")].score.item()


def test_scores_are_averaged_over_the_repeats_and_each_repeat_is_told(twice):
    result = measured(twice, "mgmt")
    rows = twice.predictions.query("endpoint == 'mgmt' and model == 'vit'").dropna(subset=["truth"])
    mean = rows.groupby("patient")[["score", "truth"]].mean()
    assert result["n"] == len(mean)
    assert result["auc"]["value"] == pytest.approx(roc_auc_score(mean.truth, mean.score), abs=1e-12)
    assert len(result["folds"]) == 2 * FOLDS
    assert [part["repeat"] for part in result["repeats"]] == [0, 1]


def test_labels_are_exchanged_within_a_fold_only_where_one_model_scored_it(small, twice):
    once, both = (judged.averaged(judged.known_rows(run.predictions, run.study.endpoints[0], "vit")) for run in (small, twice))
    assert once.group.nunique() == FOLDS
    assert both.group.nunique() == 1


# --- binary ----------------------------------------------------------------------------------------------------------------


def test_probabilities_are_judged_as_another_library_judges_them(run, metrics):
    rows, result = labelled(run, "mgmt", "vit"), metrics["endpoints"]["mgmt"]["models"]["vit"]
    brier = result["brier"]
    assert brier["value"] == pytest.approx(brier_score_loss(rows.truth, rows.score))
    assert brier["value"] == pytest.approx(brier["reliability"] - brier["resolution"] + brier["uncertainty"] + brier["within"])
    precision = result["average_precision"]
    assert precision["value"] == pytest.approx(average_precision_score(rows.truth, rows.score))
    assert precision["low"] < precision["value"] < precision["high"]
    assert precision["chance"] == result["prevalence"] == pytest.approx(rows.truth.mean())
    assert sum(part["n"] for part in result["calibration"]["bins"]) == len(rows)


def test_the_operating_point_counts_patients_at_their_folds_threshold(run, metrics):
    rows, point = labelled(run, "mgmt", "vit"), metrics["endpoints"]["mgmt"]["models"]["vit"]["operating_point"]
    (tn, fp), (fn, tp) = confusion_matrix(rows.truth, rows.score >= rows.threshold)
    shares = {"sensitivity": tp / (tp + fn), "specificity": tn / (tn + fp), "ppv": tp / (tp + fp), "npv": tn / (tn + fn)}
    assert {name: point[name]["value"] for name in shares} == pytest.approx(shares)
    assert point["n"] == len(rows)
    assert point["thresholds"] == [{"repeat": 0, "fold": fold, "threshold": 0.5} for fold in range(FOLDS)]


def test_net_benefit_is_that_of_its_definition(run, metrics):
    rows, endpoint = labelled(run, "mgmt", "vit"), metrics["endpoints"]["mgmt"]
    for index in (9, 49, 79):
        at, n = endpoint["thresholds"][index], len(rows)
        called = rows.score >= at
        expected = (called * rows.truth).sum() / n - (called * (1 - rows.truth)).sum() / n * at / (1 - at)
        assert endpoint["models"]["vit"]["net_benefit"][index] == pytest.approx(expected)
        assert endpoint["net_benefit_of_all"][index] == pytest.approx(rows.truth.mean() - (1 - rows.truth.mean()) * at / (1 - at))


def test_the_roc_curve_has_the_area_that_is_told_and_lies_in_its_band(metrics):
    result = metrics["endpoints"]["mgmt"]["models"]["vit"]
    curve = {name: np.array(values) for name, values in result["roc"].items()}
    assert np.trapezoid(curve["pooled"], curve["false_positives"]) == pytest.approx(result["auc"]["value"], abs=0.01)
    assert np.trapezoid(curve["mean"], curve["false_positives"]) == pytest.approx(result["fold_mean"], abs=0.02)
    assert (np.diff(curve["pooled"]) >= 0).all()
    assert ((curve["low"] <= curve["pooled"] + 1e-12) & (curve["pooled"] <= curve["high"] + 1e-12)).all()
    assert {len(values) for values in curve.values()} == {101}


def test_the_band_of_tied_scores_is_the_diagonal():
    truth = np.arange(40) % 2 == 0
    low, high = points.band(truth, np.zeros(40), np.random.default_rng(0))
    np.testing.assert_allclose(low, points.GRID)
    np.testing.assert_allclose(high, points.GRID)


def test_the_interval_of_average_precision_is_that_of_drawing_patients_one_by_one():
    generator = np.random.default_rng(3)
    truth = np.arange(60) % 3 == 0
    score = np.round(truth + generator.normal(size=60), 1)  # with ties
    values = []
    for _ in range(1000):
        drawn = np.concatenate([generator.choice(np.flatnonzero(here), here.sum()) for here in (truth, ~truth)])
        values.append(average_precision_score(truth[drawn], score[drawn]))
    found = points.average_precision_interval(truth, score, np.random.default_rng(0))
    assert found == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.03)


def test_scores_that_are_no_probabilities_are_ranked_and_not_calibrated(small, usual):
    found = measured(with_scores(small, lambda rows: 7 * rows.score - 2), "mgmt")
    told = usual["mgmt"]
    assert found["auc"] == pytest.approx(told["auc"])
    assert [found[key] for key in ("brier", "calibration", "net_benefit")] == [None] * 3
    assert "not probabilities" in found["not_probability"]
    assert told["not_probability"] is None


def test_a_remark_is_made_where_folds_share_no_scale(small):
    found = measured(with_scores(small, lambda rows: rows.score / (1 + 3 * rows.fold)), "mgmt")
    pooled, within = found["auc"]["value"], found["auc_within_folds"]["value"]
    assert abs(pooled - within) > 0.02
    assert f"{pooled:.3f}" in found["remark"]
    assert f"{within:.3f}" in found["remark"]


def test_over_several_repeats_the_remark_is_that_of_the_first_repeat_alone(twice):
    unlike = with_scores(twice, lambda rows: np.where(rows.repeat == 1, rows.score / (1 + 9 * rows.fold), rows.score))
    once = replace(twice, predictions=twice.predictions[twice.predictions.repeat == 0])
    for name in ("mgmt", "os"):
        # The scale of the second repeat's folds, and the ensemble of both repeats, change nothing.
        first = measured(once, name)["remark"]
        told = measured(unlike, name)["remark"]
        assert told == (first and first.replace("The pooled", "In the first repeat the pooled"))
    scaled = with_scores(twice, lambda rows: np.where(rows.repeat == 0, rows.score / (1 + 3 * rows.fold), rows.score))
    rows = labelled(scaled, "mgmt", "vit")  # of the first repeat
    pooled = roc_auc_score(rows.truth, rows.score)
    assert measured(scaled, "mgmt")["remark"].startswith(f"In the first repeat the pooled AUC ({pooled:.3f})")


def test_folds_of_equal_scores_are_counted_as_tied(small, usual):
    found = with_scores(small, lambda rows: rows.score.where(rows.fold > 0, 0.5))
    for name, figure in (("mgmt", "auc"), ("os", "harrell_c")):
        result = measured(found, name)
        assert [fold["tied"] for fold in result["folds"]] == [True] + [False] * (FOLDS - 1)
        assert result["tied_folds"] == 1
        assert result["folds"][0][figure] == 0.5
        assert usual[name]["tied_folds"] == 0
    assert not judged.tied(np.zeros(1))


def test_of_a_single_fold_nothing_is_said_about_folds(small, usual):
    table = small.predictions.assign(fold=0)
    for name, within in (("mgmt", "auc_within_folds"), ("os", "harrell_c_within_folds")):
        result = measured(replace(small, predictions=table), name)
        assert result[within] is result["remark"] is None
        assert math.isnan(result["fold_mean"])
        assert math.isnan(result["fold_variance"])
        assert usual[name][within]["value"] > 0
        labels = [
            label
            for label, _ in endpoint_results.measure_rows(
                {"vit": (BinaryResult if name == "mgmt" else SurvivalResult).model_validate(result)}
            )
        ]
        assert not any("fold" in label and "threshold" not in label for label in labels)


# --- survival --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_concordance_and_counts_are_those_of_another_library(run, metrics, model):
    rows = run.predictions.query("endpoint == 'os' and model == @model").drop_duplicates("patient").dropna(subset=["event"])
    result = metrics["endpoints"]["os"]["models"][model]
    assert result["harrell_c"]["value"] == pytest.approx(concordance_index(rows.time_days, -rows.score, rows.event), abs=1e-12)
    assert result["harrell_c"]["low"] < result["harrell_c"]["value"] < result["harrell_c"]["high"]
    assert (result["n"], result["events"]) == (len(rows), rows.event.sum())
    for at in result["auc_at"]:
        assert at["cases"] == ((rows.time_days <= at["days"]) & (rows.event == 1)).sum()
        assert at["controls"] == (rows.time_days > at["days"]).sum()
    high = rows.score >= rows.threshold
    test = multivariate_logrank_test(rows.time_days, high, rows.event)
    found = result["logrank"]
    assert (found["chi2"], found["given_p"]) == pytest.approx((test.test_statistic, test.p_value), rel=1e-6)
    assert found["inflation"] == pytest.approx(math.sqrt(2))
    assert found["p"] == pytest.approx(chi2.sf(test.test_statistic / 2, 1), rel=1e-6)
    assert result["groups"]["high risk"]["n"] == high.sum()
    assert sum(group["n"] for group in result["groups"].values()) == len(rows)


def test_a_risk_that_knows_the_day_of_death_is_perfect_at_every_horizon(small):
    perfect = with_scores(small, lambda rows: -rows.time_days.fillna(0))
    os = perfect.predictions.query("endpoint == 'os' and model == 'vit'").set_index(["patient", "session"]).time_days
    table = perfect.survival.assign(
        survival=[
            float(os.get((p, s), 0) > day)
            for p, s, day in zip(perfect.survival.patient, perfect.survival.session, perfect.survival.horizon_days, strict=True)
        ]
    )
    found = measured(replace(perfect, survival=table), "os")
    assert found["harrell_c"]["value"] == found["uno_c"]["value"] == 1
    assert [at["value"] for at in found["auc_at"]] == pytest.approx([1, 1, 1])
    assert found["mean_auc"] == pytest.approx(1)
    # Patients censored by a horizon have no weight, and all others are told right.
    assert [at["value"] for at in found["brier_at"]] == [0, 0, 0]
    assert found["integrated_brier"]["value"] == 0 < found["integrated_brier"]["reference"]


def test_curves_hold_every_horizon_and_agree_with_the_tables(metrics):
    result = metrics["endpoints"]["os"]["models"]["vit"]
    curve = result["curve"]
    assert curve["days"] == list(HORIZONS)
    place = {day: curve["days"].index(day) for day in survival.TABLE_DAYS}
    assert [at["value"] for at in result["auc_at"]] == pytest.approx([curve["auc"][place[at["days"]]] for at in result["auc_at"]])
    assert [at["value"] for at in result["brier_at"]] == [curve["brier"][place[at["days"]]] for at in result["brier_at"]]
    assert [at["reference"] for at in result["brier_at"]] == [curve["reference"][place[at["days"]]] for at in result["brier_at"]]
    for at in result["calibration_at"]:
        assert sum(group["n"] for group in at["groups"]) == result["n"]


def test_without_a_survival_table_only_the_order_is_judged(small, usual):
    found = measured(replace(small, survival=small.survival.iloc[:0]), "os")
    assert (found["integrated_brier"], found["curve"], found["brier_at"], found["calibration_at"]) == (None, None, [], [])
    assert found["harrell_c"] == usual["os"]["harrell_c"]


def test_risk_groups_say_where_their_cut_off_comes_from(small, usual):
    bare = replace(small, predictions=small.predictions.assign(threshold=math.nan))
    os = next(e for e in small.study.endpoints if e.name == "os")
    rows = judged.risk_groups(judged.known_rows(bare.predictions, os, "vit"))
    assert (rows.high == (rows.score > rows.groupby("fold").score.transform("median"))).all()
    assert "median of the patient's own test fold" in measured(bare, "os")["cutoffs"]
    assert measured(bare, "mgmt")["operating_point"] is None
    assert "learned without the patients shown" in usual["os"]["cutoffs"]


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ("cross-validation", "learned without the patients shown"),
        ("external", "mean of the run's fold cut-offs"),
        ("table", "how it was chosen is not known here"),
    ],
)
def test_a_cut_off_is_told_as_what_it_is_in_each_design(small, design, said):
    told = caveats.risk_group_cutoffs(True, design, repeats=1)
    assert said in told
    assert ("without the patients shown" in told) == (design == "cross-validation")
    assert said in measured(replace(small, design=design), "os")["cutoffs"]


def test_horizons_near_6_12_and_24_months_stand_for_them_under_their_own_days(small):
    own = {182: 180.0, 365: 366.0, 730: 760.0}  # the last is more than half a month away
    days = small.survival.horizon_days.map(lambda day: own.get(day, float(day)))
    result = measured(replace(small, survival=small.survival.assign(horizon_days=days)), "os")
    assert [at["days"] for at in result["brier_at"]] == [180, 366]
    assert [at["days"] for at in result["calibration_at"]] == [180, 366]
    assert [at["days"] for at in result["auc_at"]] == [180, 366, 730]
    seen = dict(zip(result["curve"]["days"], result["curve"]["brier"], strict=True))
    assert [at["value"] for at in result["brier_at"]] == [seen[180], seen[366]]


@pytest.mark.parametrize("longest_days", [3.0, 200.0, 1500.0, 40000.0])
def test_numbers_at_risk_have_room(longest_days):
    ticks = survival.risk_ticks(longest_days)
    assert ticks[0] == 0
    assert ticks[-1] <= longest_days
    assert 1 <= len(ticks) <= survival.MAX_TICKS
