"""Labels of every kind: how a table's cells are read, what is refused with a cure, and how folds are balanced over them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mri_vit.crossval import folds
from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.kinds.kind import labels
from mri_vit.settings.recipe import Train
from mri_vit.settings.schema import KEYS, Endpoint

TYPE = Endpoint(name="who_type", kind="multiclass", classes=("gbm", "astro", "oligo"))
GRADE = Endpoint(name="grade", kind="ordinal", classes=("2", "3", "4"))
SHARE = Endpoint(name="ki67", kind="continuous", unit="%")
KINDS = {
    "binary": Endpoint(name="mgmt", kind="binary"),
    "survival": Endpoint(name="os", kind="survival", time="os_days", event="os_event"),
    "multiclass": TYPE,
    "ordinal": GRADE,
    "continuous": SHARE,
}


def table(folder: Path, column: str, cells: list[str]) -> Path:
    rows = [f"P{row},{cell}" for row, cell in enumerate(cells, 1)]
    (folder / "cohort.csv").write_text("\n".join([f"patient,{column}", *rows]) + "\n")
    return folder / "cohort.csv"


def read(folder: Path, endpoint: Endpoint, cells: list[str]) -> list[float]:
    patients = cohort.read(table(folder, endpoint.name, cells), (endpoint,), needed=())
    return [patient.labels[endpoint.name] for patient in patients]


def test_every_kind_of_the_study_file_has_all_its_parts():
    from mri_vit.kinds.kind import part

    assert set(KINDS) == set(KEYS)
    for name in KEYS:
        for of in ("labels", "heads", "regression", "measures", "words", "figures", "shown"):
            assert part(name, of) is not None


def test_a_class_is_its_place_among_the_classes_in_any_case_and_with_any_signs(tmp_path: Path):
    assert read(tmp_path, TYPE, ["gbm", "GBM", "Oligo", "astro.", "", "NA"])[:4] == [0, 0, 2, 1]
    assert all(map(math.isnan, read(tmp_path, TYPE, ["gbm", "gbm", "", "NA"])[2:]))
    assert read(tmp_path, GRADE, ["2", "4", "3"]) == [0, 2, 1]


def test_numbers_are_read_as_they_are(tmp_path: Path):
    assert read(tmp_path, SHARE, ["12.5", "0", "1e2", "-3"]) == [12.5, 0, 100, -3]


@pytest.mark.parametrize(
    ("endpoint", "cell", "said"),
    [
        (TYPE, "2", "'2'; expected one of gbm, astro, oligo, or empty when missing; numbers are kind = \"continuous\""),
        (TYPE, "astr0", "is it 'astro'"),
        (TYPE, "ependymoma", "expected one of gbm, astro, oligo"),
        (GRADE, "IV", "expected one of 2, 3, 4"),
        (SHARE, "high", 'expected a number in %, or empty when missing; names of classes are kind = "multiclass" or "ordinal"'),
        (SHARE, "inf", "expected a number"),
        (SHARE.model_copy(update={"log": True}), "0", "expected a number above 0, of which the logarithm is learned"),
    ],
)
def test_a_cell_of_another_kind_is_refused_with_file_row_column_and_cure(
    tmp_path: Path, endpoint: Endpoint, cell: str, said: str
):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, endpoint, ["3" if endpoint is GRADE else "gbm" if endpoint is TYPE else "5", cell])
    assert str(refused.value).startswith(f"{tmp_path / 'cohort.csv'}, row 3, column {endpoint.name}: ")
    assert said in str(refused.value)


def test_a_code_for_a_missing_number_is_refused_and_a_number_like_it_is_not(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"row 8, column ki67: 999 stands for a missing value, as the others lie between 10 and 60"
    ):
        read(tmp_path, SHARE, ["10", "20", "30", "40", "50", "60", "999"])
    with pytest.raises(UsageError, match="-1 stands for a missing value"):
        read(tmp_path, SHARE, ["0", "1", "2", "3", "2", "-1"])
    assert read(tmp_path, SHARE, ["95", "96", "97", "98", "99", "100"])[4] == 99


def test_classes_that_the_study_leaves_out_are_those_of_the_table_as_they_are_mostly_written(tmp_path: Path):
    bare = Endpoint(name="who_type", kind="multiclass")
    file = table(tmp_path, "who_type", ["oligo", "GBM", "gbm", "gbm", "astro", ""])
    assert labels(bare).completed(bare, file).classes == ("astro", "gbm", "oligo")
    for cells, cure in (
        (["a", "b", "a"], 'two are kind = "binary"'),
        ([str(number) for number in range(20)], 'numbers are kind = "continuous"'),
    ):
        with pytest.raises(UsageError, match=cure):
            labels(bare).completed(bare, table(tmp_path, "who_type", cells))


def test_a_rare_class_whose_name_is_nearly_anothers_and_one_that_no_patient_has_are_remarked():
    endpoint = Endpoint(name="who_type", kind="multiclass", classes=("gbm", "astrocytoma", "astrocytma", "oligo"))
    rows = np.array([0.0] * 30 + [1.0] * 30 + [2.0])[:, None]
    remarks = dict(labels(endpoint).remarks(endpoint, rows, {}))
    assert remarks["who_type: no patient is of oligo, so it can never be predicted"] == []
    assert remarks[
        "who_type: the class astrocytma is spelled nearly as astrocytoma, 1 against 30 patients; is it a slip of the pen?"
    ] == [60]


def test_proportions_among_per_cents_are_remarked():
    rows = np.array([0.2, 0.4, 35.0, 50.0, 20.0, 10.0, 5.0, 80.0])[:, None]
    ((words, odd),) = labels(SHARE).remarks(SHARE, rows, {})
    assert odd == [0, 1]
    assert "are these proportions?" in words


def test_the_run_keeps_the_names_of_classes(tmp_path: Path):
    patients = cohort.read(table(tmp_path, "who_type", ["GBM", "oligo", ""]), (TYPE,), needed=())
    (tmp_path / "again.csv").write_bytes(cohort.dumps(patients))
    again = cohort.read(tmp_path / "again.csv", (TYPE,), needed=())
    assert [patient.classes for patient in again] == [{"who_type": "gbm"}, {"who_type": "oligo"}, {}]
    assert [str(patient.labels) for patient in again] == [str(patient.labels) for patient in patients]


@pytest.mark.parametrize("endpoint", [TYPE, GRADE, SHARE], ids=lambda endpoint: endpoint.kind)
def test_folds_are_even_in_every_class_and_quarter(tmp_path: Path, endpoint: Endpoint):
    generator = np.random.default_rng(0)
    if endpoint.classes:
        cells = [endpoint.classes[index] for index in generator.choice(3, 90, p=[0.6, 0.3, 0.1])]
    else:
        cells = [f"{value:.1f}" for value in generator.lognormal(3, 1, 90)]
    patients = cohort.read(table(tmp_path, endpoint.name, cells), (endpoint,), needed=())
    (split,) = folds.make(patients, (endpoint,), Train(folds=3), 0)
    stratum = dict(zip((p.id for p in patients), cohort.strata(patients, endpoint), strict=True))
    counts = [Counter(stratum[i] for i in ids) for ids in split]
    for name in set(stratum.values()):
        assert np.ptp([count[name] for count in counts]) <= 2


def test_a_class_of_one_patient_is_refused_with_its_name_and_a_cure(tmp_path: Path):
    patients = cohort.read(table(tmp_path, "who_type", ["gbm"] * 9 + ["astro"] * 9 + ["oligo"]), (TYPE,), needed=())
    with pytest.raises(
        UsageError, match=r"9 of gbm, 9 of astro, 1 of oligo; no number of folds helps.*add patients of oligo, join it"
    ):
        folds.check(patients, (TYPE,), Train(folds=3))


@pytest.mark.parametrize("endpoint", KINDS.values(), ids=KINDS)
def test_the_mean_over_folds_by_their_weights_is_the_figure_within_folds_whatever_the_scores(endpoint: Endpoint):
    generator, of_kind = np.random.default_rng(1), labels(endpoint)
    for _ in range(20):
        n, group = 40, generator.integers(0, 3, 40)
        values = {
            "binary": generator.integers(0, 2, (n, 1)),
            "survival": np.column_stack([generator.integers(1, 30, n), generator.integers(0, 2, n)]),
            "continuous": generator.integers(0, 9, (n, 1)),
        }.get(endpoint.kind, generator.integers(0, 3, (n, 1)))
        known = values.astype(float)
        score = generator.integers(0, 8, (n, len(endpoint.classes or ("",)))) / 8.0
        weight = of_kind.fold_weights(known, group)
        each = {fold: of_kind.figures(known[group == fold], score[None, group == fold], known, group)[0] for fold in weight}
        total = sum(weight.values())
        mean = sum(weight[fold] * each[fold] for fold in weight if weight[fold]) / total
        assert mean == pytest.approx(of_kind.within(known, score, group).value, abs=1e-12)


@pytest.mark.parametrize("endpoint", KINDS.values(), ids=KINDS)
def test_untied_scores_have_an_error_and_the_rarer_are_counted(endpoint: Endpoint):
    generator, of_kind = np.random.default_rng(2), labels(endpoint)
    known = generator.integers(0, 2 if endpoint.kind in ("binary", "survival") else 3, (60, len(endpoint.columns))).astype(float)
    found = of_kind.within(known, of_kind.untied(known), np.arange(60) % 3)
    assert 0 < found.error < 0.2
    assert 0 < of_kind.count_rarer(known) < 60


def test_numbers_so_skew_that_their_logarithm_is_better_learned_are_told_with_the_cure():
    random = np.random.default_rng(0)
    skewed, even = random.lognormal(2.5, 0.8, 300)[:, None], random.normal(55, 10, 300)[:, None]
    number = Endpoint(name="volume", kind="continuous", unit="ml")
    ((words, rows),) = labels(number).remarks(number, skewed, {})
    assert "volume: values are skew" in words
    assert "log = true learns their logarithm" in words
    assert rows == [int(skewed.argmax())]
    assert not list(labels(number).remarks(number, even, {}))
    assert not list(labels(number).remarks(number, skewed - skewed.min(), {}))  # of 0 there is no logarithm
    logged = number.model_copy(update={"log": True})
    assert not list(labels(logged).remarks(logged, skewed, {}))
