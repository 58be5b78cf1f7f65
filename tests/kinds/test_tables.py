"""Tables of predictions made elsewhere, with classes, grades and numbers, are judged as a run's are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.report import measure
from scipy.special import softmax
from sklearn.metrics import mean_absolute_error, roc_auc_score

from mri_vit.cli.arguments import loaded
from mri_vit.errors import UsageError
from mri_vit.report.reading.run import Declared, run_from_tables

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


def test_a_study_that_names_no_classes_has_those_of_its_table(tmp_path: Path):
    _, people, _ = tables(tmp_path)
    (tmp_path / "study.toml").write_text(
        f'name = "s"\ncohort = "{people.name}"\nprepared = "p"\noutput = "o"\n'
        'endpoints = [{ name = "who_type", kind = "multiclass" }]\n'
    )
    assert loaded(tmp_path / "study.toml", {}).endpoints[0].classes == NAMES
