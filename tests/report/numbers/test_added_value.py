"""What a risk adds: whose covariates and risks are read, what is left out, what is written, and what has no analysis and why."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.metrics import filled
from made.report import seen
from made.run import make_run

from mri_vit.data import predictions
from mri_vit.kinds.survival.words import with_verdict
from mri_vit.metrics.added_value import Patients, RepeatScores
from mri_vit.metrics.imputation import chained_equations
from mri_vit.report import assembly
from mri_vit.report.figures.endpoint_curves import added_value as forest
from mri_vit.report.numbers import added_value, judged
from mri_vit.report.numbers.added_value import completed
from mri_vit.report.pages import report_files
from mri_vit.report.reading import foreign_table
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.survival import AddedValue, CoxComparison, SurvivalEndpoint
from mri_vit.report.words.caveats import hazard_ratio_in_words

pytestmark = pytest.mark.long(40)

Cell = str | Callable[[dict[str, str]], str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("one") / "run", patients=80)


@pytest.fixture(scope="module")
def measured(folder: Path) -> AddedValue:
    return of_run(reports.read_run(folder))


def of_run(run: Run, shown: tuple[str, ...] = ("vit",)) -> AddedValue:
    """The part of metrics.json, measured with nothing beside it."""
    endpoint = next(endpoint for endpoint in run.study.endpoints if endpoint.kind == "survival")
    models = judged.in_order(run.predictions.loc[run.predictions.endpoint == endpoint.name, "model"].unique().tolist())
    tables = {model: judged.known_rows(run.predictions, endpoint, model) for model in models}
    result = added_value.measure(run, endpoint, {name: rows for name, rows in tables.items() if len(rows)}, list(shown))
    assert result is not None
    return with_verdict(result)


def analysed(result: AddedValue) -> CoxComparison:
    assert isinstance(result.analysis, CoxComparison), result.analysis
    return result.analysis


def changed(folder: Path, to: Path, **columns: Cell) -> Run:
    """The same run with other columns in its cohort table: of each, a cell, or what gives it from the row."""
    shutil.copytree(folder, to)
    table = pd.read_csv(to / "cohort.csv", dtype=str, keep_default_na=False)
    for name, cell in columns.items():
        table[name] = [cell(row) if callable(cell) else cell for row in table.to_dict("records")]
    table.to_csv(to / "cohort.csv", index=False)
    return reports.read_run(to)


def with_covariates(run: Run, *names: str) -> Run:
    assert isinstance(run.covariates, pd.DataFrame)
    return replace(run, covariates=run.covariates.loc[:, list(names)])


def test_clinical_columns_and_known_markers_are_the_covariates(measured: AddedValue):
    assert measured.model == "vit"
    assert measured.covariates == ("age", "sex", "mgmt", "pten", "idh1")  # the site is where a patient is from
    assert measured.left_out == {"tertp": "is missing in 100 % of the patients"}
    assert analysed(measured).test.inflation == pytest.approx(2**0.5)


def test_markers_that_the_study_does_not_predict_are_covariates_too(folder: Path, tmp_path: Path):
    run = changed(folder, tmp_path / "run")
    file = tmp_path / "run" / "study.toml"
    file.write_text(re.sub(r'\[\[endpoints\]\]\nname = "\w+"\nkind = "binary"\n', "", file.read_text()))
    run = reports.read_run(tmp_path / "run")
    assert isinstance(run.covariates, pd.DataFrame)
    assert list(run.covariates) == ["age", "sex", "idh1", "mgmt", "pten", "tertp"]


def test_the_study_chooses_its_clinical_columns(folder: Path, tmp_path: Path):
    changed(folder, tmp_path / "run")
    file = tmp_path / "run" / "study.toml"
    file.write_text(file.read_text().replace("[train]", '[controls]\ncolumns = ["age"]\n[train]'))
    run = reports.read_run(tmp_path / "run")
    assert isinstance(run.covariates, pd.DataFrame)
    assert list(run.covariates)[:2] == ["age", "mgmt"]


def test_a_covariate_that_a_patient_lacks_is_imputed_and_counted_and_the_complete_cases_stand_beside(folder: Path):
    table = pd.read_csv(folder / "cohort.csv", dtype=str, keep_default_na=False)
    known = pd.DataFrame(table[(table.os_days != "") & ~table.duplicated("patient")])
    result = of_run(with_covariates(reports.read_run(folder), "age", "mgmt"))
    assert result.known == len(known)
    assert result.missing == {"mgmt": int((known.mgmt == "").sum())}
    assert analysed(result).n == len(known)
    assert result.imputations == max(5, math.ceil(100 * (known.mgmt == "").mean()))
    assert result.complete_cases
    assert result.complete_cases.n == len(known[known.mgmt != ""]) < len(known)
    assert any(f"were imputed {result.imputations} times" in sentence for sentence in result.sentences)
    again = of_run(with_covariates(reports.read_run(folder), "age", "mgmt"))
    assert again == result  # draws start from the study's seed
    deviation = known.age.astype(float).std()
    assert f"age, per {deviation:.3g} (SD)" in analysed(result).both  # no age was made up


def test_of_several_visits_the_covariates_are_those_of_the_visit_whose_time_counts(folder: Path, tmp_path: Path):
    run = changed(folder, tmp_path / "run", dose=lambda row: {"a": "100", "b": "9000"}.get(row["session"], row["age"]))
    (own,) = (f for f in analysed(of_run(with_covariates(run, "dose"))).both if f.startswith("dose"))
    rows = judged.known_rows(run.predictions, run.study.endpoints[-1], "vit")
    assert isinstance(run.covariates, pd.DataFrame)
    visits = [f"{p}_{s}" if s else p for p, s in zip(rows.patient, rows.session, strict=True)]
    assert own == f"dose, per {run.covariates.dose.loc[visits].std():.3g} (SD)"
    assert "A_b.c-D_b" not in visits


def test_covariates_in_numbers_are_per_deviation_and_categories_against_the_most_frequent():
    cells = pd.DataFrame(
        {
            "age": [50.0, 60, 70, 60],
            "grade": ["II", "IV", "IV", "III"],
            "flag": [0.0, 1, 1, 1],
            "all": ["x"] * 4,
            "one": [3.0] * 4,
        },
        index=pd.Index(list("abcd")),
    )
    columns, covariate, left_out = added_value.coded(cells)
    assert list(columns) == ["age, per 8.16 (SD)", "grade: II vs IV", "grade: III vs IV", "flag: 1 vs 0"]
    assert columns.iloc[:, 0].std() == pytest.approx(1)
    assert columns["grade: II vs IV"].tolist() == [1, 0, 0, 0]
    assert columns["flag: 1 vs 0"].tolist() == [0, 1, 1, 1]
    assert covariate["grade: III vs IV"] == "grade"
    assert left_out == {"all": "is x for all", "one": "is 3 for all"}


def test_a_column_that_follows_from_others_is_left_out_with_the_reason(folder: Path):
    run = with_covariates(reports.read_run(folder), "age", "sex")
    assert isinstance(run.covariates, pd.DataFrame)
    table = run.covariates.assign(same=1.0, months=12 * run.covariates.age)
    result = of_run(replace(run, covariates=table))
    assert result.covariates == ("age", "sex")
    (months, why) = next((name, why) for name, why in result.left_out.items() if name.startswith("months"))
    assert why == "follows from the other covariates"
    assert result.left_out["same"] == "is 1 for all"
    assert f"{months} {why} and is left out." in result.sentences


def test_the_control_on_clinical_columns_adds_nothing_to_its_own_column(folder: Path):
    """In this run it reads age and adds noise to it, so that it is no copy; nothing else in it is of survival."""
    result = of_run(with_covariates(reports.read_run(folder), "age"), shown=("clinical",))
    assert result.adjusted_p["risk"] > 0.05
    assert result.verdict_kind == "chance"
    assert result.permuted is None  # which is of the own model
    assert result.beside == {}  # there is nothing that a simpler risk could explain
    assert result.sentences[0].startswith("No evidence that the risk of clinical adds to age: likelihood ratio")


def test_a_planted_risk_adds_and_the_permuted_one_does_not(measured: AddedValue):
    first, *others = measured.sentences
    assert measured.verdict_kind == "better"
    assert first.startswith("The risk of vit adds to age, sex, MGMT promoter methylation, PTEN alteration and idh1: ")
    assert hazard_ratio_in_words(analysed(measured).both["risk"]) in first
    assert any("the control volume" in sentence and "still adds" in sentence for sentence in others)
    assert any("permuted labels" in sentence and "adds nothing" in sentence for sentence in others)
    assert any("for each of 6 coefficients: fewer than 10" in sentence for sentence in others)


def test_a_risk_that_a_control_has_too_does_not_add_beside_it(folder: Path):
    run = with_covariates(reports.read_run(folder), "age", "sex")
    table = run.predictions
    own = (table.model == "vit") & (table.endpoint == "os")
    noise = np.random.default_rng(0).normal(0, 0.1, int(own.sum()))
    volume = pd.DataFrame(table[own]).assign(model="volume", score=lambda rows: rows.score.astype(float) + noise)
    without = pd.DataFrame(table[(table.model != "volume") | (table.endpoint != "os")])
    result = of_run(replace(run, predictions=pd.concat([without, volume], ignore_index=True)))
    assert result.verdict_kind == "better"
    (beside,) = (sentence for sentence in result.sentences if "the control volume" in sentence)
    assert "no evidence that it adds" in beside


def test_a_risk_that_is_the_wrong_way_round_does_not_add(folder: Path):
    run = reports.read_run(folder)
    result = of_run(replace(run, predictions=run.predictions.assign(score=-run.predictions.score.astype(float))))
    assert result.verdict_kind == "worse"
    assert "with a higher risk of vit live longer" in result.sentences[0]


def test_two_tests_are_adjusted_together(measured: AddedValue):
    p = sorted([analysed(measured).test.p, analysed(measured).reverse.p])
    assert sorted(measured.adjusted_p.values()) == pytest.approx([min(1, 2 * p[0]), max(2 * p[0], p[1])])


def test_an_evaluation_takes_risks_as_given(tmp_path: Path):
    inside = json.loads(filled({}).model_dump_json())
    outside = make_run(tmp_path / "outside", models=("vit", "clinical"), internal=inside, seed=3, patients=80)
    analysis = analysed(of_run(reports.read_run(outside)))
    assert analysis.test.inflation == 1.0
    assert analysis.test.p == analysis.test.given_p
    assert not np.isnan(analysis.c_both.value)  # by folds of its own


def test_a_table_from_elsewhere_is_analysed_by_its_own_columns(folder: Path, tmp_path: Path, measured: AddedValue):
    table = predictions.load(folder / "predictions.csv")
    own = table[(table.model == "vit") & (table.endpoint == "os")].assign(session="", model="theirs")
    predictions.save(own.drop_duplicates("patient"), tmp_path / "predictions.csv")
    people = tmp_path / "people.csv"
    shutil.copyfile(folder / "cohort.csv", people)
    result = of_run(foreign_table.run_from_tables(tmp_path / "predictions.csv", people, tmp_path), shown=("theirs",))
    assert (result.model, result.known) == ("theirs", measured.known)
    assert analysed(result).both["risk"].value == pytest.approx(analysed(measured).both["risk"].value, rel=0.02)  # other draws


def reason(run: Run) -> str:
    """Why a run has no analysis; the section is that one sentence."""
    result = of_run(run)
    assert isinstance(result.analysis, str)
    assert result.verdict_kind == "undefined"
    assert result.sentences == (
        f"Whether the risk of vit adds to age and molecular markers cannot be tested: {result.analysis}.",
    )
    return result.analysis


def of_own(run: Run, **columns: object) -> Run:
    """The run with other cells in the rows of its own model's risk."""
    table = run.predictions.copy()
    own = (table.model == "vit") & (table.endpoint == "os")
    for name, cells in columns.items():
        table.loc[own, name] = cells
    return replace(run, predictions=table)


def test_without_covariates_the_section_says_so(folder: Path, tmp_path: Path):
    run = reports.read_run(folder)
    assert "0 covariates" in reason(replace(run, covariates=pd.DataFrame()))
    assert "tertp is missing in 100 %" in reason(with_covariates(run, "tertp"))
    assert isinstance(run.covariates, pd.DataFrame)
    assert "same is 1 for all" in reason(replace(run, covariates=run.covariates.loc[:, []].assign(same=1.0)))
    broken = changed(folder, tmp_path / "broken", pten=lambda row: "7" if row["pten"] else "")
    assert "pten" in reason(broken)
    assert str(tmp_path) not in reason(broken)


def test_c_without_and_with_the_risk_is_of_the_patients_with_every_covariate_alone(folder: Path):
    """The outcome of another patient, from which that patient's covariate is imputed, moves hazard ratios and no C."""
    run = with_covariates(reports.read_run(folder), "age", "mgmt")
    table = run.predictions
    own = table[(table.model == "vit") & (table.endpoint == "os")]
    assert isinstance(run.covariates, pd.DataFrame)
    visits = [f"{p}_{s}" if s else p for p, s in zip(own.patient, own.session, strict=True)]
    lacks = run.covariates.mgmt.reindex(visits).isna().to_numpy()
    before, result = (analysed(of_run(one)) for one in (run, of_own(run, event=own.event.astype(float).where(~lacks, 0.0))))
    figures = "c_without", "c_alone", "c_both", "gain", "gain_reverse"
    assert all(getattr(before, name) == getattr(result, name) for name in figures)
    assert before.both != result.both
    complete = of_run(run).complete_cases
    assert complete
    assert any(f"C of the {complete.n} patients with every covariate, out of fold" in text for text in of_run(run).sentences)


def test_a_competing_event_says_what_a_missing_covariate_is():
    """Only the other event depends on the column: read as censored, its patients get the values of the censored."""
    random, n = np.random.default_rng(0), 1500
    x, risk = random.normal(size=n), random.normal(size=n)
    dies, ends, other = random.exponential(size=(3, n))
    other *= np.exp(-1.5 * x)
    days = np.minimum(np.minimum(dies, ends), other)
    gaps, fold = pd.DataFrame({"x": np.where(random.random(n) < 0.4, np.nan, x)}), np.zeros(n, dtype=int)
    of = Patients(500 * days, days == dies, gaps, [RepeatScores(risk, fold, fold)])

    def apart(x: np.ndarray, lacks: np.ndarray | bool) -> float:
        return x[lacks & (days == other)].mean() - x[lacks & (days == ends)].mean()

    lacks = gaps.x.isna().to_numpy()
    imputed, without = (
        np.mean([apart(one.x.to_numpy(), lacks) for one in completed(gaps, {"x": "x"}, of, event, 0)])
        for event in (days == other, None)
    )
    assert apart(x, True) == pytest.approx(0.99, abs=0.01)  # about what is to be found
    assert imputed == pytest.approx(apart(x, True), abs=0.2)
    assert without < 0.5


def test_the_event_2_of_a_run_reaches_the_imputation(folder: Path, monkeypatch: pytest.MonkeyPatch):
    run = with_covariates(reports.read_run(folder), "age", "mgmt")
    competes = run.study.endpoints[-1].model_copy(update={"competing": "death of another cause"})
    run = replace(run, study=run.study.model_copy(update={"endpoints": (*run.study.endpoints[:-1], competes)}))
    own = run.predictions[(run.predictions.model == "vit") & (run.predictions.endpoint == "os")]
    event = own.event.astype(float)
    event = event.where((event != 0) | (np.arange(len(own)) % 2 == 0), 2.0)
    read: list[int] = []
    monkeypatch.setattr(added_value, "chained_equations", lambda *of: read.append(of[2].shape[1]) or chained_equations(*of))
    assert analysed(of_run(of_own(run, event=event.to_numpy()))).n
    assert set(read) == {5}  # the risk, and of both events the event and the cumulative hazard


def test_cells_that_never_meet_are_imputed_without_a_complete_case(folder: Path):
    run = reports.read_run(folder)
    rows = judged.known_rows(run.predictions, run.study.endpoints[-1], "vit")
    number = np.arange(len(rows))
    values = np.random.default_rng(0).normal(size=(3, len(rows)))
    cells = {f"c{part}": np.where(number % 3 == part, np.nan, values[part]) for part in range(3)}
    visits = [f"{p}_{s}" if s else p for p, s in zip(rows.patient, rows.session, strict=True)]
    table = pd.DataFrame(cells, index=pd.Index(visits))
    result = of_run(replace(run, covariates=table))
    assert analysed(result).n == len(rows)
    assert (result.imputations, result.complete_cases and result.complete_cases.n) == (20, 0)
    assert np.isnan(analysed(result).c_both.value)
    assert "Harrell's C of the 0 patients with every covariate cannot be estimated." in result.sentences


def test_nothing_is_imputed_where_nothing_is_missing(folder: Path):
    result = of_run(with_covariates(reports.read_run(folder), "age", "sex"))
    assert {"imputations", "complete_cases"}.isdisjoint(result.model_dump())


def test_too_few_deaths_are_said_with_their_number(folder: Path):
    run = reports.read_run(folder)
    own = run.predictions[(run.predictions.model == "vit") & (run.predictions.endpoint == "os")]
    few = own.event.astype(float).where(own.event.isna() | (own.event.astype(float).cumsum() <= 4), 0.0)
    assert re.search(r"\d deaths among \d+ patients .* for 6 coefficients", reason(of_own(run, event=few.to_numpy())))
    assert "0 deaths among" in reason(of_own(run, event=own.event.astype(float).where(own.event.isna(), 0.0).to_numpy()))


def test_a_fold_without_a_death_does_no_harm(folder: Path):
    run = with_covariates(reports.read_run(folder), "age")
    own = run.predictions[(run.predictions.model == "vit") & (run.predictions.endpoint == "os")]
    event = own.event.astype(float).where((own.fold != 0) | own.event.isna(), 0.0)
    assert np.isfinite(analysed(of_run(of_own(run, event=event.to_numpy()))).c_both.value)


def test_risks_and_covariates_that_part_the_deaths_or_copy_each_other_are_named(folder: Path, tmp_path: Path):
    run = with_covariates(reports.read_run(folder), "age")
    assert "same for all patients" in reason(of_own(run, score=1.0))
    assert isinstance(run.covariates, pd.DataFrame)
    own = run.predictions[(run.predictions.model == "vit") & (run.predictions.endpoint == "os")]
    visits = [f"{p}_{s}" if s else p for p, s in zip(own.patient, own.session, strict=True)]
    assert "collinear" in reason(of_own(run, score=run.covariates.age.reindex(visits).to_numpy()))
    parted = changed(folder, tmp_path / "run", flag=lambda row: {"1": "1", "0": "0"}.get(row["os_event"], ""))
    assert "at every death the patient had the highest value" in reason(with_covariates(parted, "flag"))


def test_one_network_for_all_patients_is_one_stratum(folder: Path):
    run = reports.read_run(folder)
    together = replace(run, predictions=run.predictions.assign(fold=0))
    assert analysed(of_run(replace(together, design="table"))).test.inflation == math.sqrt(2)  # who trained what is not known
    analysis = analysed(of_run(replace(together, design="held-out")))
    assert analysis.test.inflation == 1.0
    assert 0 < analysis.c_both.value < 1


def test_repeats_are_averaged(tmp_path: Path):
    run = reports.read_run(make_run(tmp_path / "twice", repeats=2, patients=60, models=("vit",)))
    assert 1 < analysed(of_run(run)).test.inflation < 2**0.5


def test_the_report_has_the_section_its_figure_and_its_table(folder: Path, tmp_path: Path):
    hostile = "<script>alert(1)</script>"
    run = changed(folder, tmp_path / "run", **{"<b>bold</b>": lambda row: hostile if int(row["age"] or 0) > 60 else "$x$"})
    endpoint = run.study.endpoints[-1]
    os_alone = replace(run, study=run.study.model_copy(update={"endpoints": (endpoint,)}))
    os_alone = replace(os_alone, predictions=run.predictions[run.predictions.endpoint == "os"])
    written = report_files.write_report(os_alone, tmp_path / "report")
    endpoint = written.metrics.endpoints["os"]
    assert isinstance(endpoint, SurvivalEndpoint)
    result = endpoint.added_value
    assert result
    assert "<b>bold</b>" in result.covariates
    text = written.page.read_text(encoding="utf-8")
    assert "Does the risk add to age and molecular markers?" in text
    assert "<script>alert" not in text
    assert "<b>bold" not in text
    assert hazard_ratio_in_words(analysed(result).both["risk"]) in seen(tmp_path / "report")
    table = pd.read_csv(tmp_path / "report" / "tables" / "added_value.csv")
    own = table[(table.regression == "both") & (table.column == "risk")].iloc[0]
    assert own.value == analysed(result).both["risk"].value
    assert (tmp_path / "report" / "figures" / "added_value_os.svg").exists()


def test_a_ratio_that_is_hardly_known_stays_in_the_figure(measured: AddedValue):
    ratio = analysed(measured).both["risk"].model_copy(update={"value": 2e3, "low": 1e-9, "high": 1e12})
    wide = analysed(measured).model_copy(update={"both": {"risk": ratio}})
    assert forest("vit", wide).axes
    assert hazard_ratio_in_words(ratio) == "> 999 [0.00, > 999]"


def test_a_study_without_survival_has_no_such_key_and_reads_no_covariates(folder: Path, tmp_path: Path):
    changed(folder, tmp_path / "run")
    file = tmp_path / "run" / "study.toml"
    file.write_text(file.read_text()[: file.read_text().index('[[endpoints]]\nname = "os"')])
    run = reports.read_run(tmp_path / "run")
    assert isinstance(run.covariates, pd.DataFrame)
    assert run.covariates.empty
    assert (
        "added_value"
        not in assembly.metrics(
            replace(run, study=run.study.model_copy(update={"endpoints": run.study.endpoints[:1]}))
        ).model_dump_json()
    )
