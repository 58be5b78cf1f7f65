"""Net benefit over the study's range, tests between subgroups, patients without a label: figures, words, what is left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.run import make_run
from pydantic import ValidationError

from mri_vit.errors import UsageError
from mri_vit.metrics import decision
from mri_vit.report import assembly
from mri_vit.report.numbers import characteristics, judged, unlabelled
from mri_vit.report.numbers import utility as numbers
from mri_vit.report.pages import report_files
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.foreign_table import Declared, run_from_tables
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.metrics import Metrics
from mri_vit.settings.sections import Report

pytestmark = pytest.mark.long(25)

RANGE = (0.1, 0.4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return named(reports.read_run(make_run(tmp_path_factory.mktemp("one") / "run", patients=80)), thresholds=RANGE)


@pytest.fixture(scope="module")
def metrics(run: Run) -> Metrics:
    return assembly.metrics(run)


def named(run: Run, **keys: object) -> Run:
    """The run with other keys of the report."""
    return replace(run, study=run.study.model_copy(update={"report": run.study.report.model_copy(update=keys)}))


def only(run: Run, *endpoints: str) -> Run:
    kept = tuple(e for e in run.study.endpoints if e.name in endpoints)
    return replace(run, study=run.study.model_copy(update={"endpoints": kept}))


# Net benefit.


@pytest.mark.parametrize("ends", [(0.0, 0.4), (0.4, 0.1), (0.1, 1.0), (-0.1, 0.2)])
def test_a_range_of_thresholds_is_one_of_probabilities(ends: tuple[float, float]):
    with pytest.raises(ValidationError, match=r"expected a low and a high probability, 0 < low <= high < 1"):
        Report(thresholds=ends)


def test_a_study_that_names_no_range_keeps_its_records_and_has_no_such_key(run: Run):
    assert "thresholds" not in Report().model_dump()
    found = assembly.metrics(only(named(run, thresholds=None), "mgmt"))
    assert found.utility is None
    assert "utility" not in json.loads(found.model_dump_json(by_alias=True))


def test_the_mean_over_the_range_is_that_of_the_decision_curves(run: Run, metrics: Metrics):
    assert metrics.utility
    (found,) = metrics.utility.endpoints["mgmt"]
    people = judged.averaged(judged.known_rows(run.predictions, run.study.endpoints[0], "vit"))
    truth, score = people.truth.to_numpy(bool), people.score.to_numpy(float)
    at = np.arange(10, 41) / 100
    ours, everyone = (decision.net_benefit(truth, p, at) for p in (score, np.ones(len(truth))))
    assert found.thresholds == pytest.approx(at)
    assert found.mean["all"].difference == pytest.approx((ours - everyone).mean())
    assert found.mean["none"].difference == pytest.approx(ours.mean())
    assert found.mean["better of both"].difference == pytest.approx((ours - np.maximum(everyone, 0)).mean())
    assert found.difference == pytest.approx(ours - np.maximum(everyone, 0))
    assert {"clinical", "volume"} <= set(found.mean)


def test_a_model_that_knows_is_worth_more_and_one_that_does_not_is_not(metrics: Metrics):
    assert metrics.utility
    kinds = {name: models[0].verdict_kind for name, models in metrics.utility.endpoints.items()}
    assert kinds["mgmt"] == "better"
    assert kinds["pten"] == "chance"
    first = metrics.utility.endpoints["mgmt"][0].sentences[0]
    assert first.startswith("Acting on vit at risks of 10 to 40")
    assert "true positives per 100 patients" in first


def test_survival_has_a_figure_for_each_day_of_its_decision_curves(metrics: Metrics):
    assert metrics.utility
    result = metrics.endpoints["os"].models["vit"]
    assert [one.days for one in metrics.utility.endpoints["os"]] == [at.days for at in result.decision_at]  # type: ignore[union-attr]
    for one, at in zip(metrics.utility.endpoints["os"], result.decision_at, strict=True):  # type: ignore[union-attr]
        where = [metrics.endpoints["os"].thresholds.index(round(t, 2)) for t in one.thresholds]
        every = np.maximum(np.array(at.net_benefit_of_all)[where], 0)
        assert one.difference == pytest.approx(np.array(at.net_benefit)[where] - every, abs=1e-9)


def test_scores_that_are_no_probabilities_have_no_net_benefit(run: Run):
    found = assembly.metrics(only(replace(run, predictions=run.predictions.assign(score=run.predictions.score * 3)), "mgmt"))
    assert found.utility
    assert found.utility.left_out == {"mgmt": "no model gives probabilities"}


def test_a_threshold_above_which_none_was_followed_is_left_out_and_named_and_one_above_all_risks_is_acting_on_none(run: Run):
    rows, chances = run.predictions.copy(), run.survival.copy()
    two = rows.patient[rows.endpoint == "os"].unique()[:2]
    rows.loc[(rows.endpoint == "os") & rows.patient.isin(two), ["time_days", "event"]] = 50.0, 0.0
    chances["survival"] = np.where(chances.patient.isin(two), 0.618, chances.survival.clip(lower=0.655))
    found = assembly.metrics(only(replace(run, predictions=rows, survival=chances), "os")).utility
    assert found
    one = found.endpoints["os"][0]
    at, difference = np.array(one.thresholds), np.array(one.difference)
    lost = (at > 0.345) & (at < 0.382)
    assert np.isnan(difference).tolist() == lost.tolist()
    people = judged.averaged(judged.known_rows(rows, run.study.endpoints[-1], "vit"))
    everyone = decision.survival_net_benefit(
        decision.ByDay(people.time_days.to_numpy(float), people.event.to_numpy(bool), np.ones(len(people)), one.days), at
    )
    assert difference[at > 0.382] == pytest.approx(-np.maximum(everyone, 0)[at > 0.382])  # acting on none
    assert one.mean["better of both"].difference == pytest.approx(difference[~lost].mean())
    assert one.undefined["all"] == pytest.approx(at[lost])
    first, *_, last = one.sentences
    assert "at risks of 10 to 34\N{NO-BREAK SPACE}% and at risks of 39 to 40" in first
    assert last.startswith("Left out at risks of 35 to 38")


def test_of_horizons_near_each_other_the_nearest_to_a_year_is_taken():
    from mri_vit.report.numbers import survival

    near = [180.0, 355.0, 364.0, 370.0, 730.0]
    assert survival.decision_days(near) == [364.0, 730.0]
    assert survival.table_days(near) == (180.0, 364.0, 730.0)
    assert survival.horizon(near) == 364.0
    assert survival.horizon([300.0]) is None


def test_a_single_threshold_between_whole_per_cents_is_a_range_too():
    assert numbers.thresholds_of(0.105, 0.105).tolist() == [0.105]
    assert numbers.thresholds_of(0.105, 0.13).tolist() == [0.105, 0.11, 0.12, 0.13]


def test_where_labels_may_leak_nothing_is_claimed(run: Run, metrics: Metrics):
    from mri_vit.report.words import utility

    rows = {"mgmt": {"vit": judged.known_rows(run.predictions, run.study.endpoints[0], "vit")}}
    figures = {"mgmt": dict(metrics.endpoints["mgmt"].models)}
    found = utility.of_run(only(run, "mgmt"), rows, figures, ["vit"], {"mgmt"})  # type: ignore[arg-type]
    assert found
    assert found.endpoints["mgmt"][0].verdict_kind == "undefined"
    assert "labels may leak" in found.endpoints["mgmt"][0].sentences[0]


# Subgroups.


def test_every_large_subgroup_has_figures_of_its_own_patients_and_a_small_one_has_none(run: Run, metrics: Metrics):
    endpoint = metrics.endpoints["idh1"]
    rows = judged.first_repeat(judged.known_rows(run.predictions, run.study.endpoints[2], "vit"))
    sex = rows.patient.map(dict(zip(run.cohort.patient, run.cohort.sex, strict=True)))
    for sub in (one for one in endpoint.subgroups if one.column == "sex"):
        here = rows[sex == sub.level]
        truth, called = here.truth.astype(bool), here.score >= here.threshold
        assert sub.beside["sensitivity"].value == pytest.approx(called[truth].mean())
        assert sub.beside["specificity"].value == pytest.approx((~called[~truth]).mean())
        assert sub.beside["observed_to_expected"].value == pytest.approx(truth.sum() / here.score.sum())
    assert all(not sub.beside for e in metrics.endpoints.values() for sub in e.subgroups if sub.small)


def test_p_of_all_endpoints_columns_and_measures_are_adjusted_together(metrics: Metrics):
    tests = [test for found in metrics.interactions.values() for test in found.tests]
    assert {test.measure for test in metrics.interactions["os"].tests} == {"figure", "observed_to_expected"}
    smallest = min(tests, key=lambda test: test.p)
    assert smallest.p_adjusted == pytest.approx(min(1, len(tests) * smallest.p))


def test_a_model_that_is_blind_in_one_group_is_named(run: Run):
    rows = run.predictions.copy()
    men = rows.patient.map(dict(zip(run.cohort.patient, run.cohort.sex, strict=True))) == "M"
    own = (rows.endpoint == "idh1") & (rows.model == "vit")
    rows.loc[own, "score"] = np.where(rows.truth[own].astype(float) == 1, 0.9, 0.1)
    rows.loc[own & men, "score"] = np.random.default_rng(0).random(int((own & men).sum()))
    found = assembly.metrics(only(replace(run, predictions=rows), "idh1")).interactions["idh1"]
    assert any(sentence.startswith("AUC of vit differs between the groups by sex (adjusted p") for sentence in found.sentences)


def test_a_column_of_one_large_group_is_not_tested_and_says_why(metrics: Metrics):
    assert metrics.interactions["mgmt"].not_tested["sex"] == "only one of its groups has at least 10 patients of the rarer class"


def test_who_lacks_the_column_is_no_group(run: Run):
    cohort = run.cohort.assign(site=np.where(np.arange(len(run.cohort)) % 2 == 0, "", run.cohort.site))
    found = assembly.metrics(only(replace(run, cohort=cohort), "idh1")).interactions["idh1"]
    assert all("missing" not in test.levels for test in found.tests)


def test_a_figure_that_one_group_lacks_is_tested_between_the_others_and_of_one_alone_not_at_all(run: Run):
    def interactions(thirds: bool):
        """The men, or a third of the patients, are followed for 200 days at most."""
        rows = run.predictions.copy()
        level = np.array(["a", "b", "c"] if thirds else ["a", "c"])[np.arange(len(run.cohort)) % (3 if thirds else 2)]
        short = rows.patient.map(dict(zip(run.cohort.patient, level, strict=True))) == "c"
        late = short & (rows.endpoint == "os") & (rows.time_days.astype(float) > 200)
        rows.loc[late, ["time_days", "event"]] = 200.0, 0.0
        died = rows.time_days.where(rows.event == 1)
        rows.loc[short & (died == died[short].max()), "event"] = 0.0
        other = replace(named(run, subgroups=("site",)), predictions=rows, cohort=run.cohort.assign(site=level))
        return assembly.metrics(only(other, "os")).interactions["os"]

    found = interactions(thirds=False)
    assert {test.measure for test in found.tests} == {"figure"}
    assert found.not_tested == {"calibration (O:E) by site": "it is known of only one of the groups"}
    found = interactions(thirds=True)
    levels = {test.measure: test.levels for test in found.tests}
    assert levels == {"figure": ("a", "b", "c"), "observed_to_expected": ("a", "b")}
    assert any("O:E) is compared between site a and b alone" in sentence for sentence in found.sentences)


# Patients without a label.


def cohort_of(run: Run, older: float, lack: int) -> tuple[Run, pd.DataFrame]:
    """Patients of whom so many have no label of mgmt and are older by so many years; and the rows of the others."""
    random = np.random.default_rng(0)
    n = 160
    lacks = np.arange(n) >= n - lack
    table = pd.DataFrame({"patient": [f"Q{i:03d}" for i in range(n)], "sex": random.choice(["F", "M"], n)})
    table["age"] = (60 + 9 * random.normal(size=n) + older * lacks).round().astype(int).astype(str)
    table["mgmt"] = np.where(lacks, "", random.choice(["0", "1"], n))
    scores = run.predictions.iloc[:0].reindex(range(n)).assign(patient=table.patient, model="vit", endpoint="mgmt", repeat=0)
    scores = scores.assign(score=random.random(n), fold=0)
    return replace(only(run, "mgmt"), cohort=table, predictions=scores, located={}), scores.loc[~lacks]


def test_older_patients_without_a_label_are_named_with_both_means(run: Run):
    from mri_vit.report.words import unlabelled as words

    other, rows = cohort_of(run, 8.0, 40)
    found = words.of_run(other, {"mgmt": {"vit": rows}}, {"mgmt": "vit"})["mgmt"]
    assert (found.tested, found.untested, found.predicted) == (120, 40, 40)
    assert {one.name for one in found.characteristics} == {"sex", "age", "score"}
    assert [one.name for one in found.characteristics if one.differs] == ["age"]
    assert found.sentences[0].startswith(
        "The 40 patients without a label differ from the 120 on which vit was judged: older (mean "
    )
    age = next(one for one in found.characteristics if one.name == "age")
    assert age.untested.difference == pytest.approx(8 / 9, abs=0.35)
    assert age.by_chance == pytest.approx(math.sqrt(1 / 120 + 1 / 40))


def test_patients_like_the_others_raise_no_alarm_and_few_are_not_compared(run: Run):
    from mri_vit.report.words import unlabelled as words

    other, rows = cohort_of(run, 0.0, 40)
    found = words.of_run(other, {"mgmt": {"vit": rows}}, {"mgmt": "vit"})["mgmt"]
    assert not any(one.differs for one in found.characteristics)
    groups = "the 40 patients without a label differ from the 120 on which vit was judged"
    assert found.sentences == (f"No evidence that {groups}: 3 characteristics compared.",)
    other, rows = cohort_of(run, 8.0, 9)
    found = words.of_run(other, {"mgmt": {"vit": rows}}, {"mgmt": "vit"})["mgmt"]
    assert (found.untested, found.characteristics) == (9, ())
    assert found.sentences[0].startswith("No comparison of the 9 patients without a label with the 151 on which vit was judged")


def test_where_every_patient_has_a_label_nothing_is_said(run: Run):
    other, rows = cohort_of(run, 0.0, 0)
    assert unlabelled.measure(other, other.study.endpoints[0], "vit", rows) is None


def test_a_level_that_only_the_untested_have_is_named(run: Run):
    other, rows = cohort_of(run, 0.0, 40)
    lacks = ~other.cohort.patient.isin(rows.patient)
    apart = replace(other, cohort=other.cohort.assign(sex=np.where(lacks, "F", "M")))
    found = unlabelled.measure(apart, apart.study.endpoints[0], "vit", rows)
    assert found
    assert next(one for one in found.characteristics if one.row.column == "sex").differs


def test_the_characteristics_are_those_of_table_1(run: Run):
    tested = pd.Series(run.cohort.index < 60, run.cohort.index)
    described = {row.column for row in characteristics.table1(run).rows if row.kind != "follow-up"}
    assert {row.column for row in characteristics.of_two_groups(run, tested, ~tested)} == described


# The page and its files.


def test_sections_stand_on_the_page_and_in_the_tables_and_texts(run: Run, tmp_path: Path):
    written = report_files.write_report(only(run, "mgmt"), tmp_path / "report")
    text = written.page.read_text(encoding="utf-8")
    for words in ("Net benefit at risks of 10", "Subgroups", "Patients without a label", "differ?"):
        assert words in text
    tables = tmp_path / "report" / "tables"
    found = pd.read_csv(tables / "utility.csv")
    assert set(found.endpoint) == {"mgmt"}
    assert (found.low <= found.difference).all()
    assert {"sensitivity.low", "observed_to_expected.value"} <= set(pd.read_csv(tables / "subgroups.csv").columns)
    assert {"p", "p_adjusted"} <= set(pd.read_csv(tables / "interactions.csv").columns)
    assert {"tested.mean", "untested.difference"} <= set(pd.read_csv(tables / "unlabelled.csv").columns)
    assert (tmp_path / "report" / "figures" / "utility_mgmt_vit.svg").exists()
    methods = (tmp_path / "report" / "methods.md").read_text(encoding="utf-8")
    assert "Cochran's Q" in methods
    assert "Over the thresholds that the study names" in methods
    assert "[@" not in methods


def test_without_a_range_one_sentence_names_the_key(run: Run, tmp_path: Path):
    written = report_files.write_report(only(named(run, thresholds=None), "mgmt"), tmp_path / "report")
    text = written.page.read_text(encoding="utf-8")
    assert text.count("[report] thresholds") == 1
    assert not (tmp_path / "report" / "tables" / "utility.csv").exists()


def test_a_table_from_elsewhere_takes_the_range_and_refuses_a_wrong_one(run: Run, tmp_path: Path):
    random = np.random.default_rng(0)
    truth = np.arange(60) % 2
    people = pd.DataFrame({"patient": [f"P{i}" for i in range(60)], "mgmt": truth})
    people.to_csv(tmp_path / "people.csv", index=False)
    score = np.clip(0.3 + 0.4 * truth + 0.2 * random.normal(size=60), 0.01, 0.99).round(2)
    people.assign(endpoint="mgmt", score=score)[["patient", "endpoint", "score"]].to_csv(tmp_path / "scores.csv", index=False)
    tables = tmp_path / "scores.csv", tmp_path / "people.csv", tmp_path
    found = assembly.metrics(run_from_tables(*tables, Declared(thresholds=RANGE)))
    assert found.utility
    assert found.utility.endpoints["mgmt"][0].verdict_kind == "better"
    with pytest.raises(UsageError, match=r"thresholds are 0\.4 and 0\.1; expected a low and a high probability"):
        run_from_tables(*tables, Declared(thresholds=(0.4, 0.1)))
