"""Tables of predictions made elsewhere, with classes, grades and numbers, are judged as a run's are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.report import measure
from scipy.special import softmax
from sklearn.metrics import mean_absolute_error, roc_auc_score

from mri_vit.cli.arguments import loaded
from mri_vit.errors import UsageError
from mri_vit.kinds.classes import from_table
from mri_vit.report.reading.foreign_table import Declared, run_from_tables
from mri_vit.settings.schema import Endpoint

NAMES, GRADES, N = ("astro", "gbm", "oligo"), ("2", "3", "4"), 120
ASKED = Declared(held_out=True, numbers=("ki67",), grades=("grade",))


def tables(folder: Path) -> tuple[Path, Path, np.ndarray]:
    """Scores and people; the type is predicted well, the number weakly, the grade not. And the probabilities of the types."""
    random = np.random.default_rng(0)
    of_type, grade = random.integers(3, size=N), random.integers(3, size=N)
    ki67 = random.lognormal(3, 0.5, N)
    ids = np.array([f"p{index}" for index in range(N)])
    people = pd.DataFrame({"patient": ids, "grade": np.array(GRADES)[grade], "who_type": np.array(NAMES)[of_type], "ki67": ki67})
    people.to_csv(folder / "people.csv", index=False)
    types = softmax(2 * np.eye(3)[of_type] + random.normal(size=(N, 3)), axis=1)
    grades = softmax(random.normal(size=(N, 3)), axis=1)
    rows = [
        pd.DataFrame({"patient": np.repeat(ids, 3), "endpoint": name, "class": list(classes) * N, "score": shares.ravel()})
        for name, classes, shares in (("who_type", NAMES, types), ("grade", GRADES, grades))
    ]
    rows.append(pd.DataFrame({"patient": ids, "endpoint": "ki67", "class": "", "score": ki67 + random.normal(scale=15, size=N)}))
    pd.concat(rows).to_csv(folder / "scores.csv", index=False)
    return folder / "scores.csv", folder / "people.csv", types


def test_a_table_from_elsewhere_has_classes_grades_and_numbers(tmp_path: Path):
    scores, people, types = tables(tmp_path)
    found = measure(run_from_tables(scores, people, tmp_path / "report", ASKED))
    models = {name: endpoint["models"]["model"] for name, endpoint in found["endpoints"].items()}
    assert {name: endpoint["kind"] for name, endpoint in found["endpoints"].items()} == {
        "who_type": "multiclass",
        "grade": "ordinal",
        "ki67": "continuous",
    }
    known, table = pd.read_csv(people), pd.read_csv(scores)
    assert models["who_type"]["judged"]["value"] == pytest.approx(roc_auc_score(known.who_type, types, multi_class="ovo"))
    assert models["ki67"]["mae"]["value"] == pytest.approx(mean_absolute_error(known.ki67, table[table.endpoint == "ki67"].score))
    assert [models[name]["verdict_kind"] for name in ("who_type", "grade", "ki67")] == ["better", "chance", "better"]
    assert models["who_type"]["chance_test"]["inflation"] == 1.0


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Declared(numbers=("ki_67",)), "no endpoint 'ki_67' .found who_type, grade, ki67"),
        (Declared(numbers=("ki67",), grades=("ki67",)), "grades have a row for each, in their order"),
        (Declared(grades=("grade",)), "expected 0, 1, or empty"),
    ],
)
def test_what_is_declared_wrongly_is_refused(tmp_path: Path, declared: Declared, words: str):
    scores, people, _ = tables(tmp_path)
    with pytest.raises(UsageError, match=words):
        run_from_tables(scores, people, tmp_path / "report", declared)


def spoiled(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> tuple[Path, Path]:
    scores, people, _ = tables(folder)
    change(pd.read_csv(scores, dtype=str, keep_default_na=False)).to_csv(scores, index=False)
    return scores, people


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.drop(t.index[(t.patient == "p7") & (t["class"] == "gbm")]),
            "patient p7: 1 without a row for each of astro, gbm",
        ),
        (
            lambda t: t.assign(score=t.score.where(t.endpoint != "grade", (t.score.astype(float) + 1).astype(str))),
            "endpoint grade, model model, patient p0: 120 whose grades' probabilities do not add up to 1",
        ),
        (
            lambda t: t.assign(truth=np.where(t.endpoint != "who_type", "", np.where(t["class"] == "gbm", "0", "1"))),
            "endpoint who_type, model model, patient p0: 120 with a truth of 1 in no class or in several",
        ),
        (lambda t: t[t["class"] != "oligo"], "endpoint who_type has the classes astro, gbm: two are a binary endpoint"),
        (lambda t: t.assign(**{"class": t["class"].where(t.index % 7 > 0, t["class"].str.upper())}), "spell each alike"),
    ],
    ids=["a missing row", "no probabilities", "two truths", "two classes", "two spellings"],
)
def test_a_table_whose_classes_are_not_whole_is_refused_with_its_patient(tmp_path: Path, change, words: str):
    scores, people = spoiled(tmp_path, change)
    with pytest.raises(UsageError, match=re.escape(words)):
        run_from_tables(scores, people, tmp_path / "report", ASKED)


def test_grades_that_are_numbers_are_in_their_order_however_the_table_is_sorted(tmp_path: Path):
    scores, people = spoiled(tmp_path, lambda table: table.iloc[::-1])
    run = run_from_tables(scores, people, tmp_path / "report", ASKED)
    assert {endpoint.name: endpoint.classes for endpoint in run.study.endpoints}["grade"] == GRADES


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["gbm", "astro", "oligo", "-1"], "'-1' is no name of a class; leave the cell empty"),
        (["gbm", "astro", "oligo", "?"], "'?' is no name of a class"),
        (["2", "3", "4", "999"], "'999' stands for a missing value"),
        (["2", "3", "4", "2.0"], "'2' and '2.0' are one number"),
    ],
)
def test_cells_that_are_no_classes_are_not_made_one(tmp_path: Path, cells: list[str], words: str):
    rows = [f"p{row},{cell}" for row, cell in enumerate(cells * 3)]
    (tmp_path / "people.csv").write_text("\n".join(["patient,who_type", *rows]) + "\n")
    with pytest.raises(UsageError, match=re.escape(words)):
        from_table(Endpoint(name="who_type", kind="multiclass"), tmp_path / "people.csv")


def test_a_study_that_names_no_classes_has_those_of_its_table(tmp_path: Path):
    _, people, _ = tables(tmp_path)
    (tmp_path / "study.toml").write_text(
        f'name = "s"\ncohort = "{people.name}"\nprepared = "p"\noutput = "o"\n'
        'endpoints = [{ name = "who_type", kind = "multiclass" }]\n'
    )
    assert loaded(tmp_path / "study.toml", {}).endpoints[0].classes == NAMES
