"""Table 1 against the cohort table of a made-up run, counted here by other means."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter
from lifelines.utils import median_survival_times
from made.run import FOLDS, make_run

from mri_vit.metrics.comparison import difference_of_shares
from mri_vit.report import assembly
from mri_vit.report.numbers import characteristics
from mri_vit.report.pages import csv_tables
from mri_vit.report.reading import run as reading
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.endpoints import SurvivalEndpoint
from mri_vit.report.schema.patients import Cell, Row, Table1
from mri_vit.settings.schema import Endpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return reading.read_run(make_run(tmp_path_factory.mktemp("runs") / "made", models=("vit",)))


@pytest.fixture(scope="module")
def found(run) -> Table1:
    return characteristics.table1(run)


def row(table: Table1, column: str, kind: str) -> Row:
    return next(row for row in table.rows if (row.column, row.kind) == (column, kind))


def cell(table: Table1, column: str, kind: str, split: str) -> Cell:
    names = [split.name for split in table.splits]
    return row(table, column, kind).cells[names.index(split)]


def people(run: Run, fold: int | None = None) -> pd.DataFrame:
    """The predicted patients, of one fold if it is named."""
    rows = run.predictions if fold is None else run.predictions.loc[run.predictions.fold == fold]
    return run.cohort.loc[run.cohort.patient.isin(rows.patient)]


def test_every_fold_and_the_excluded_have_a_column(run, found):
    kinds = [(split.kind, split.n) for split in found.splits]
    sizes = [("fold", len(people(run, fold))) for fold in range(FOLDS)]
    assert kinds == [("all", 60), *sizes, ("excluded", 2)]
    assert all(len(row.cells) == len(found.splits) for row in found.rows)


def test_every_cell_accounts_for_every_patient_of_its_column(found):
    for one in found.rows:
        for split, here in zip(found.splits, one.cells, strict=True):
            assert here.known + here.missing == split.n
            if one.kind == "words":
                assert sum(here.counts) == here.known


def test_age_has_the_median_and_quartiles_of_each_fold_and_differs_by_the_textbook_formula(run, found):
    for fold in range(FOLDS):
        own = people(run, fold).age.astype(float)
        others = people(run).age.astype(float).drop(own.index)
        here = cell(found, "age", "number", f"fold {fold + 1}")
        assert (here.low, here.median, here.high) == tuple(np.percentile(own, [25, 50, 75]))
        assert here.difference == pytest.approx(abs(own.mean() - others.mean()) / math.sqrt((own.var() + others.var()) / 2))


def test_words_and_labels_are_counted(run, found):
    sex = row(found, "sex", "words")
    here = cell(found, "sex", "words", "fold 2")
    assert dict(zip(sex.levels, here.counts, strict=True)) == people(run, 1).sex.value_counts().to_dict()
    mgmt = cell(found, "mgmt", "label", "all")
    assert (mgmt.known, mgmt.counts) == ((people(run).mgmt != "").sum(), ((people(run).mgmt == "1").sum(),))
    assert cell(found, "tertp", "label", "all").known == 0


def test_who_was_excluded_is_described_by_what_is_known(found):
    here = cell(found, "age", "number", "not predicted")
    assert (here.known, here.missing) == (0, 2)
    assert math.isnan(here.median)


def test_follow_up_is_the_median_of_the_reversed_curve_per_fold(run, found):
    for fold, name in [(None, "all"), *((fold, f"fold {fold + 1}") for fold in range(FOLDS))]:
        known = people(run, fold).loc[lambda table: table.os_days != ""]
        curve = KaplanMeierFitter().fit(known.os_days.astype(float), known.os_event == "0")  # no day of this run has both
        here = cell(found, "os", "follow-up", name)
        low, high = pd.DataFrame(median_survival_times(curve.confidence_interval_)).to_numpy()[0]
        expected = [value if math.isfinite(value) else math.nan for value in (curve.median_survival_time_, low, high)]
        assert [here.median, here.low, here.high] == pytest.approx(expected, nan_ok=True)


def test_the_endpoint_holds_the_follow_up_and_who_is_at_risk(run):
    endpoint = assembly.metrics(run).endpoints["os"]
    assert isinstance(endpoint, SurvivalEndpoint)
    found = endpoint.follow_up
    known = people(run).loc[lambda table: table.os_days != ""].os_days.astype(float)
    assert (found.n, found.days) == (len(known), (182, 365, 730))
    assert found.at_risk == tuple((known > day).sum() for day in found.days)


def test_rare_words_stand_together(run):
    scanners = [f"scanner {place % 11}" for place in range(len(run.cohort))]
    study = run.study.model_copy(update={"report": run.study.report.model_copy(update={"subgroups": ("scanner",)})})
    found = row(characteristics.table1(replace(run, cohort=run.cohort.assign(scanner=scanners), study=study)), "scanner", "words")
    assert (len(found.levels), found.levels[-1], found.lumped) == (8, "other levels", 4)
    assert all(sum(here.counts) == here.known for here in found.cells)


def test_left_out_sites_name_their_columns(run):
    study = run.study.model_copy(update={"train": run.study.train.model_copy(update={"leave_out": "site"})})
    sites = sorted(run.cohort.site[run.cohort.site != ""].unique())
    homes = run.predictions.patient.map(dict(zip(run.cohort.patient, run.cohort.site, strict=True)))
    apart = replace(run, study=study, predictions=run.predictions.assign(fold=homes.map(sites.index)))
    assert [split.name for split in characteristics.table1(apart).splits] == ["all", *sites, "not predicted"]


def test_an_outcome_is_no_characteristic_and_an_endpoint_only_a_label(run):
    table = run.cohort.assign(death_date="2020", progression_days="7")
    columns = [(row.column, row.kind) for row in characteristics.table1(replace(run, cohort=table)).rows]
    assert columns == [(name, kind) for name, kind in columns if name not in ("death_date", "progression_days", "t1")]
    assert ("mgmt", "label") in columns
    assert ("mgmt", "words") not in columns


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> tuple[Run, Run]:
    home: Path = tmp_path_factory.mktemp("external")
    inside = reading.read_run(make_run(home / "internal", models=("vit",)))
    internal = json.loads(assembly.metrics(inside).model_dump_json())
    return inside, reading.read_run(make_run(home / "external", seed=3, patients=40, models=("vit",), internal=internal))


def test_an_evaluation_stands_beside_the_cohort_that_its_models_come_from(evaluated):
    inside, outside = evaluated
    found, before = characteristics.table1(outside), characteristics.table1(inside)
    assert [split.kind for split in found.splits] == ["all", "excluded", "development"]
    assert cell(found, "age", "number", "development").median == cell(before, "age", "number", "all").median
    own, others = people(outside).age.astype(float), people(inside).age.astype(float)
    expected = abs(own.mean() - others.mean()) / math.sqrt((own.var() + others.var()) / 2)
    assert cell(found, "age", "number", "development").difference == pytest.approx(expected)
    site = dict(zip(row(found, "site", "words").levels, cell(found, "site", "words", "development").counts, strict=True))
    assert site == people(inside).site.value_counts().to_dict()


def test_a_characteristic_that_the_other_cohort_lacks_is_known_in_nobody_there(evaluated):
    _, outside = evaluated
    study = outside.study.model_copy(
        update={
            "report": outside.study.report.model_copy(update={"subgroups": ("grade",)}),
            "endpoints": (*outside.study.endpoints, Endpoint(name="atrx", kind="binary")),
        }
    )
    found = characteristics.table1(replace(outside, study=study, cohort=outside.cohort.assign(grade="4", atrx="1")))
    assert cell(found, "grade", "words", "development").known == 0
    assert (cell(found, "atrx", "label", "development").known, cell(found, "atrx", "label", "all").counts) == (0, (40,))


def test_a_number_in_the_other_cohort_is_one_here_however_few_differ(evaluated):
    inside, outside = evaluated
    ages = ["44" if i % 2 else "63" for i in range(len(outside.cohort))]
    found = characteristics.table1(replace(outside, cohort=outside.cohort.assign(age=ages)))
    before = characteristics.table1(inside)
    assert cell(found, "age", "number", "all").median in (44.0, 53.5, 63.0)
    assert cell(found, "age", "number", "development").median == cell(before, "age", "number", "all").median


def test_words_beside_a_number_of_the_other_cohort_do_not_make_it_unknown_there(evaluated):
    inside, outside = evaluated
    ages = ["over 89" if i == 0 else "63" for i in range(len(outside.cohort))]
    mixed = replace(outside, cohort=outside.cohort.assign(age=ages))
    found = characteristics.table1(mixed)
    there = cell(found, "age", "words", "development")
    assert (there.known, there.counts) == (cell(characteristics.table1(inside), "age", "number", "all").known, ())
    table = csv_tables.report_tables(mixed, assembly.metrics(mixed), pd.DataFrame())["table1"].query("column == 'age'")
    assert set(table.loc[table.split == "development", "level"]) == {"over 89", "63"}
    assert table.loc[table.split == "development", "count"].isna().all()


def test_an_age_that_cannot_be_is_no_part_of_the_mean(run):
    def measured(age: str) -> Cell:
        cells = ["35" if i == 1 else age if i == 0 else old for i, old in enumerate(run.cohort.age)]
        return cell(characteristics.table1(replace(run, cohort=run.cohort.assign(age=cells))), "age", "number", "all")

    assert measured("999") == measured("-1") == measured("")
    assert measured("36") != measured("")


def test_of_two_groups_one_may_have_no_patient_beside_the_levels_that_are_named():
    """As where a competing event is named and nobody of a group is censored."""
    apart = characteristics._levels_apart((3, 2), 5, (1, 1), 5)
    assert apart == difference_of_shares(np.array([3, 2, 0]), np.array([1, 1, 3])) > 0
    assert characteristics._levels_apart((3, 2), 5, (1, 4), 5) == difference_of_shares(np.array([3, 2]), np.array([1, 4]))
