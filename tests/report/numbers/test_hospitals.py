"""A model by hospital: unseen ones are pooled, seen ones are not, small ones are left out, and clustering widens the interval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.report import seen

from mri_vit.metrics import calibration, transportability
from mri_vit.metrics.discrimination import auc
from mri_vit.report.numbers import hospitals, measures, prediction_sets, results
from mri_vit.report.numbers.judged import averaged
from mri_vit.report.pages import report_files
from mri_vit.report.reading.foreign_table import Declared, run_from_tables
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.hospitals import HospitalNumbers
from mri_vit.report.words.hospitals import hospital_sentences

pytestmark = pytest.mark.long(15)

HOSTILE = "<img src=x onerror='alert(1)'>"  # a hospital's name


def tables(folder: Path, sizes: dict[str, int], folds: str = "sites", effect: float = 1.5, models: tuple[str, ...] = ("vit",)):
    """A marker and survival of patients of these hospitals; folds are hospitals, pairs of them, or random."""
    random = np.random.default_rng(5)
    site = random.permutation(np.repeat(list(sizes), list(sizes.values())))
    n, place = len(site), pd.factorize(pd.Series(site), sort=True)[0]
    fold = {"sites": place, "pairs": place // 2, "random": random.permutation(n) % 5}[folds]
    mgmt = random.permutation(np.arange(n) % 2)
    days = np.ceil(random.exponential(400, n) / 30) * 30  # tied
    people = pd.DataFrame({"patient": [f"P{i:03d}" for i in range(n)], "site": site, "mgmt": mgmt})
    people.assign(os_days=days, os_event=random.integers(0, 4, n).clip(max=1)).to_csv(folder / "cohort.csv", index=False)
    scores, alive = [], []
    for model in models:
        key = {"patient": people.patient, "model": model, "repeat": 0, "fold": fold}
        score = 1 / (1 + np.exp(-random.normal(size=n) - effect * (mgmt - 0.5)))
        risk = random.normal(size=n) - np.log(days)
        scores += [
            pd.DataFrame({**key, "endpoint": "mgmt", "score": score}),
            pd.DataFrame({**key, "endpoint": "os", "score": risk}),
        ]
        alive.append(
            pd.DataFrame({**key, "endpoint": "os", "horizon_days": 365, "survival": np.exp(-365 / 400 * np.exp(risk / 9))})
        )
    pd.concat(scores).to_csv(folder / "predictions.csv", index=False)
    pd.concat(alive).to_csv(folder / "survival.csv", index=False)


def read(folder: Path, declared: Declared | None = None) -> Run:
    return run_from_tables(folder / "predictions.csv", folder / "cohort.csv", folder / "out", declared or Declared())


def measured(run: Run, endpoint: str = "mgmt") -> HospitalNumbers:
    settings = next(one for one in run.study.endpoints if one.name == endpoint)
    found = hospitals.measure(run, settings, results.judged_rows(run, settings)["vit"])
    assert found is not None
    return found


EIGHT = {name: 30 for name in "ABCDEFGH"}


def test_hospitals_that_trained_no_model_of_theirs_are_pooled_with_the_packages_own_meta_analysis(tmp_path):
    tables(tmp_path, EIGHT)
    run = read(tmp_path)
    found = measured(run)
    assert (found.unseen, found.column, found.known, found.left_out) == ("left out", "site", 8, ())
    endpoint = run.study.endpoints[0]
    people = averaged(results.judged_rows(run, endpoint)["vit"])
    site = people.patient.map(results.site_of(run))
    figures = [measures.of(endpoint).figure(people.loc[site == name]) for name in EIGHT]
    assert {one.site: one.value for one in found.sites} == {
        name: pytest.approx(figure.value) for name, figure in zip(EIGHT, figures, strict=True)
    }
    values, variances = np.array([one.on_arcsine for one in figures]).T
    mean = transportability.random_effects(values, variances)
    assert found.pooled is not None
    assert found.pooled.value == pytest.approx(np.sin(mean.mean) ** 2)
    assert found.pooled.prediction.low < found.pooled.low < found.pooled.value < found.pooled.high < found.pooled.prediction.high
    assert 0.5 < found.above["0.6"] < found.above["0.5"] < 1


def test_calibration_by_hospital_is_that_of_its_patients(tmp_path):
    tables(tmp_path, EIGHT)
    run = read(tmp_path)
    found, endpoint = measured(run), run.study.endpoints[0]
    people = averaged(results.judged_rows(run, endpoint)["vit"])
    here = people.loc[people.patient.map(results.site_of(run)) == "C"]
    truth, score = here.truth.to_numpy(bool), here.score.to_numpy(float)
    (of_c,) = (one for one in found.sites if one.site == "C")
    assert of_c.slope is not None and of_c.observed_to_expected is not None  # noqa: PT018
    assert of_c.slope.value == pytest.approx(calibration.calibration_line(truth, score)[0])
    assert of_c.observed_to_expected.value == pytest.approx(calibration.observed_to_expected(truth, score))
    assert found.slope is not None and found.slope.low < found.slope.value < found.slope.high  # noqa: PT018
    of_survival = measured(run, "os")
    assert of_survival.slope is None
    assert of_survival.observed_to_expected is not None


@pytest.mark.parametrize(("folds", "unseen"), [("sites", "left out"), ("pairs", "left out"), ("random", None)])
def test_nothing_is_said_of_a_new_hospital_where_models_knew_its_like(tmp_path, folds, unseen):
    tables(tmp_path, EIGHT, folds)
    found = measured(read(tmp_path))
    assert found.unseen == unseen
    assert (found.pooled is not None, bool(found.sites)) == (bool(unseen), bool(unseen))
    assert found.clustered is not None


def test_patients_that_no_model_was_trained_on_are_of_unseen_hospitals(tmp_path):
    tables(tmp_path, EIGHT)
    table = pd.read_csv(tmp_path / "predictions.csv").assign(fold=0)
    table.to_csv(tmp_path / "predictions.csv", index=False)
    assert measured(read(tmp_path)).unseen is None  # one fold of nobody knows what
    found = measured(read(tmp_path, Declared(held_out=True)))
    assert (found.unseen, found.pooled is not None) == ("held-out", True)


def left_out(run: Run, **changed: object) -> str | None:
    """What the one rule says of a run after a change of its cohort or predictions."""
    run = replace(run, **changed)  # type: ignore[arg-type]
    return hospitals.unseen(run, run.predictions.loc[(run.predictions.endpoint == "mgmt") & (run.predictions.model == "vit")])


def test_a_patient_of_no_known_hospital_may_have_been_trained_on_by_any(tmp_path):
    tables(tmp_path, EIGHT)
    run = read(tmp_path)
    assert left_out(run) == "left out"
    unnamed = run.cohort.assign(site=run.cohort.site.where(run.cohort.patient != "P000", ""))
    assert left_out(run, cohort=unnamed) is None
    assert measured(replace(run, cohort=unnamed)).unseen is None
    assert left_out(run, cohort=run.cohort[run.cohort.patient != "P000"]) is None
    assert left_out(run, cohort=run.cohort.drop(columns="site")) is None


def test_every_repeat_has_to_leave_whole_hospitals_out_and_hospitals_of_one_patient_show_nothing(tmp_path):
    tables(tmp_path, EIGHT)
    run = read(tmp_path)
    again = run.predictions.assign(repeat=1, fold=lambda rows: (rows.fold + 1) // 2)
    assert left_out(run, predictions=pd.concat([run.predictions, again])) == "left out"
    again["fold"] = pd.factorize(again.patient)[0] % 5
    assert left_out(run, predictions=pd.concat([run.predictions, again])) is None
    assert left_out(run, cohort=run.cohort.assign(site=run.cohort.patient)) is None
    assert left_out(run, predictions=run.predictions.assign(fold=0)) is None


def test_a_run_that_leaves_out_another_column_says_nothing_of_sites_and_its_sets_compare_that_column(tmp_path):
    tables(tmp_path, EIGHT, "random")
    run = read(tmp_path)
    scanner = pd.Series(pd.factorize(run.cohort.patient)[0] % 4, run.cohort.index).map("scanner {}".format)
    fold = run.predictions.patient.map(dict(zip(run.cohort.patient, pd.factorize(scanner)[0], strict=True)))
    train = run.study.train.model_copy(update={"leave_out": "scanner"})
    run = replace(
        run,
        design="cross-validation",
        study=run.study.model_copy(update={"train": train}),
        cohort=run.cohort.assign(scanner=scanner),
        predictions=run.predictions.assign(fold=fold),
    )
    found = measured(run)
    assert (found.unseen, found.column, found.known) == ("left out", "scanner", 4)
    endpoint = run.study.endpoints[0]
    sets = prediction_sets.measure(run, endpoint, "vit", results.judged_rows(run, endpoint)["vit"])
    assert isinstance(sets, prediction_sets.Sets)
    assert (sets.figures.calibrated_on, sets.figures.column) == ("other sites", "scanner")
    assert [one.site for one in sets.figures.sites] == sorted(scanner.unique())
    score = run.predictions[run.predictions.endpoint == "mgmt"].set_index("patient").score
    truth = run.cohort.set_index("patient").mgmt.astype(float)
    here = dict(zip(run.cohort.patient, scanner, strict=True))
    for patient, answer in list(sets.patients.items())[:20]:  # compared with patients of other scanners alone
        others = score[(truth == 1) & (score.index.map(here) != here[patient])]
        assert ("positive" in answer.classes) == ((1 + (others <= score[patient]).sum()) / (1 + len(others)) > 0.1)


def test_of_held_out_patients_the_range_is_said_under_a_condition_and_is_no_headline(tmp_path):
    tables(tmp_path, EIGHT)
    pd.read_csv(tmp_path / "predictions.csv").drop(columns="fold").to_csv(tmp_path / "predictions.csv", index=False)
    (tmp_path / "survival.csv").unlink()
    written = report_files.write_report(read(tmp_path, Declared(held_out=True)), tmp_path / "out")
    assert written.metrics.hospitals["mgmt"]["vit"].sentences[0].startswith("If no model was trained on patients of these")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<summary>Hospitals</summary>" in page
    assert "expected in a new one</summary>" not in page
    assert "internal–external" not in (tmp_path / "out" / "methods.md").read_text()


def test_small_hospitals_are_left_out_by_name_and_too_few_large_ones_are_not_pooled(tmp_path):
    tables(tmp_path, {"A": 40, "B": 40, "C": 40, "D": 40, "tiny": 4, "small": 6})
    found = measured(read(tmp_path))
    assert (found.left_out, found.pooled, found.above) == (("small", "tiny"), None, {})
    assert [one.site for one in found.sites] == ["A", "B", "C", "D"]
    run = read(tmp_path)
    endpoint = run.study.endpoints[0]
    rows = results.judged_rows(run, endpoint)
    numbers = results.measure(run, endpoint, rows, {})["vit"].figures
    first = hospital_sentences(numbers, found)[0]  # pyright: ignore[reportArgumentType]
    assert "4 of 6 hospitals have at least 5 patients of the rarer class and 5 are needed" in first


def test_the_interval_for_clustering_is_of_the_jackknife_and_wider_where_hospitals_differ(tmp_path):
    tables(tmp_path, EIGHT, "random")
    table = pd.read_csv(tmp_path / "predictions.csv")
    site = table.patient.map(pd.read_csv(tmp_path / "cohort.csv").set_index("patient").site)
    alike = measured(read(tmp_path)).clustered
    backwards = (table.endpoint == "mgmt") & site.isin(["A", "B"])
    table.loc[backwards, "score"] = 1 - table.score[backwards]
    table.assign(fold=0).to_csv(tmp_path / "predictions.csv", index=False)
    apart = measured(read(tmp_path, Declared(held_out=True))).clustered
    assert alike is not None and apart is not None  # noqa: PT018
    assert alike.ratio < 1.6 < apart.ratio
    mgmt = table[table.endpoint == "mgmt"]
    truth = mgmt.patient.map(pd.read_csv(tmp_path / "cohort.csv").set_index("patient").mgmt).to_numpy()
    own, names = mgmt.score.to_numpy(), site[table.endpoint == "mgmt"].to_numpy()
    assert apart.value == pytest.approx(auc(truth, own))
    without = np.array([auc(truth[names != one], own[names != one]) for one in "ABCDEFGH"])
    error = np.sqrt(7 / 8 * ((without - apart.value) ** 2).sum())
    centre = apart.value * (1 - apart.value)
    assert np.log(apart.high / (1 - apart.high)) - np.log(apart.value / (1 - apart.value)) == pytest.approx(
        2.364624 * error / centre, rel=1e-5
    )


@pytest.mark.parametrize(
    ("sizes", "why"),
    [({"A": 60, "B": 60, "C": 60}, "there are 3 and 5 are needed"), ({"A": 150} | dict.fromkeys("BCDEF", 20), "most")],
)
def test_few_hospitals_or_one_that_has_most_patients_give_no_interval_for_clustering(tmp_path, sizes, why):
    tables(tmp_path, sizes)
    run = read(tmp_path)
    found = measured(run)
    assert found.clustered is None
    endpoint = run.study.endpoints[0]
    numbers = results.measure(run, endpoint, results.judged_rows(run, endpoint), {})["vit"].figures
    assert why in hospital_sentences(numbers, found)[-1]  # pyright: ignore[reportArgumentType]


def test_one_hospital_none_or_too_few_positives_say_nothing(tmp_path):
    tables(tmp_path, EIGHT)
    run = read(tmp_path)
    endpoint = run.study.endpoints[0]
    rows = results.judged_rows(run, endpoint)["vit"]
    one = run.cohort.assign(site=["A"] * 5 + [""] * (len(run.cohort) - 5))
    assert hospitals.measure(replace(run, cohort=one), endpoint, rows) is None
    assert hospitals.measure(replace(run, cohort=run.cohort.drop(columns="site")), endpoint, rows) is None
    few = rows.assign(truth=np.arange(len(rows)) < 4)
    assert hospitals.measure(run, endpoint, few) is None


@pytest.mark.usefixtures("sketched")
def test_the_page_has_the_range_of_a_new_hospital_and_a_hostile_name_is_text(tmp_path):
    tables(tmp_path, {HOSTILE: 40, **EIGHT}, models=("vit", "clinical"))
    written = report_files.write_report(read(tmp_path, Declared(margin=0.05)), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<img src=x" not in page
    found = written.metrics.hospitals["mgmt"]["vit"]
    assert found.sentences[0] in seen(tmp_path / "out").replace("\N{NO-BREAK SPACE}", " ")
    for table in ("hospitals", "hospital_figures", "margins"):
        assert (tmp_path / "out" / "tables" / f"{table}.csv").exists()
    assert len(pd.read_csv(tmp_path / "out" / "tables" / "hospital_figures.csv")) == 2 * 9
    methods = (tmp_path / "out" / "methods.md").read_text()
    assert "internal–external" in methods
    assert "jackknife of hospitals" in methods
    assert "margin 0.05" in methods
    table = pd.read_csv(tmp_path / "predictions.csv").assign(fold=lambda one: pd.factorize(one.patient)[0] % 5)
    table.to_csv(tmp_path / "predictions.csv", index=False)
    report_files.write_report(read(tmp_path), tmp_path / "random")
    methods = (tmp_path / "random" / "methods.md").read_text()
    assert ("internal–external" in methods, "jackknife of hospitals" in methods, "margin" in methods) == (False, True, False)
