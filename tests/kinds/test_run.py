"""A study of all kinds of endpoints through every verb, another cohort and a second run."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.prediction import comparable
from made.study import worked_here
from whole_road import SHRUNKEN, every_verb, hurry, mri_vit, parted, words

from mri_vit.metrics.continuous import calibration

pytestmark = [
    pytest.mark.long(60),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]
ENDPOINTS = """
[[endpoints]]
name = "who_type"
kind = "multiclass"
classes = ["oligo", "gbm", "astro"]

[[endpoints]]
name = "grade"
kind = "ordinal"
classes = ["2", "3", "4"]

[[endpoints]]
name = "ki67"
kind = "continuous"
unit = "%"
log = true

[[endpoints]]
name = "mgmt"
kind = "binary"

[[endpoints]]
name = "os"
kind = "survival"
time = "os_days"
event = "os_event"
"""
KINDS = {"who_type": "multiclass", "grade": "ordinal", "ki67": "continuous", "mgmt": "binary", "os": "survival"}
PLACES = ["oligo", "gbm", "astro"]  # of the study file, unlike the order of the alphabet


def labelled(table: Path, types: list[str]) -> pd.DataFrame:
    """The same table with labels of further kinds, of which some are missing."""
    people = pd.read_csv(table, dtype=str, keep_default_na=False)
    random, n = np.random.default_rng(0), len(people)
    people["who_type"] = [types[index % len(types)] for index in range(n)]
    people["grade"] = [("", "2", "3", "4", "3", "2")[index % 6] for index in range(n)]
    people["ki67"] = [f"{value:.1f}" for value in random.lognormal(2.5, 0.6, n)]
    people.to_csv(table, index=False)
    return people


@pytest.fixture(scope="module")
def run(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of all kinds and what every verb made of it, and the other cohort's table, which has no `oligo`."""
    home = tmp_path_factory.mktemp("kinds")
    own, others = parted(scans, home)
    labelled(own, ["gbm", "astro", "oligo"])
    labelled(others, ["gbm", "astro"])
    (home / "study.toml").write_text(
        'name = "kinds"\ncohort = "cohort.csv"\nprepared = "prepared"\noutput = "run"\n'
        '[explain]\nmethods = ["rollout", "gradient_attention"]\nevery_class = true\n'
        f'[controls]\nmodels = ["volume", "intensity", "shuffled"]\n{ENDPOINTS}'
    )
    with pytest.MonkeyPatch.context() as patch:
        worked_here(patch)
        hurry(patch)
        options = {**SHRUNKEN, "fused": "true"}
        every_verb(home / "study.toml", options, others, home / "run", home / "prepared", skip=("pretrain",))
        again = words({**options, "seed": 1, "output": home / "again", "explain.patients": 0, "explain.scored": 0})
        for verb in ("prepare", "train", "report"):
            assert mri_vit(verb, home / "study.toml", *again) == 0
    return home


def test_each_kind_is_in_the_metrics_with_every_model(run: Path):
    found = json.loads((run / "run" / "report" / "metrics.json").read_text())["endpoints"]
    assert {name: endpoint["kind"] for name, endpoint in found.items()} == KINDS
    for endpoint in found.values():
        assert {"vit", "volume", "intensity"} <= endpoint["models"].keys()
    table = pd.read_csv(run / "run" / "predictions.csv", keep_default_na=False)
    own = table.loc[(table.model == "vit") & (table.endpoint == "ki67")]
    line = calibration(*(np.log(own[name].astype(float).to_numpy()) for name in ("truth", "score")))
    measured = found["ki67"]["models"]["vit"]
    assert measured["log"] is True
    assert measured["line"]["slope"]["value"] == pytest.approx(line.slope.value)
    folds = pd.read_csv(run / "run" / "report" / "tables" / "folds.csv")
    counts = folds.loc[(folds.endpoint == "who_type") & (folds.model == "vit"), "counts"]
    assert all(re.fullmatch(r"oligo \d+; gbm \d+; astro \d+", count) for count in counts)
    rows = (run / "run" / "report" / "index.html").read_text()
    assert re.search(r"Limits of agreement.{0,300}[\d.]+ to [\d.]+ times, mean [\d.]+ times", rows, re.DOTALL)


def test_a_prediction_has_each_class_the_expected_grade_and_the_number(run: Path):
    metrics = json.loads((run / "run" / "report" / "metrics.json").read_text())["endpoints"]
    homes = [file.parent for file in (run / "run-new").rglob("prediction.json")]
    assert len(homes) == 4
    for home in homes:
        endpoints = json.loads((home / "prediction.json").read_text())["endpoints"]
        assert {name: one["kind"] for name, one in endpoints.items()} == KINDS
        for name, classes in (("who_type", PLACES), ("grade", ["2", "3", "4"])):
            shares = endpoints[name]["value"]["probabilities"]
            assert list(shares) == classes
            assert sum(shares.values()) == pytest.approx(1)
            assert endpoints[name]["value"]["side"] in classes
        value = endpoints["ki67"]["value"]
        limits = metrics["ki67"]["models"]["vit"]["agreement"]  # of logarithms
        assert value["low"] == pytest.approx(value["score"] / math.exp(limits["upper"]["value"]))
        assert value["high"] == pytest.approx(value["score"] / math.exp(limits["lower"]["value"]))
        assert 0 < value["low"] < value["high"]
        maps = json.loads((home / "maps" / "map.json").read_text())["maps"]
        of_type = {entry["explains"]: entry["of_class"] for entry in maps if entry["endpoint"] == "who_type"}
        called = endpoints["who_type"]["value"]["side"]
        assert of_type == {f"who_type = {name}": "" if name == called else name for name in PLACES}
        assert (home / "index.html").read_text().count("WHO 2021 type: gradient-weighted attention of") >= 2


def test_an_exported_model_predicts_every_kind_as_its_run(run: Path, tmp_path: Path):
    assert mri_vit("export", "model", run / "run", "-o", tmp_path / "model") == 0
    options = ("--cohort", run / "others.csv", "--show-untrusted")
    for of in (run / "run", tmp_path / "model"):
        assert mri_vit("predict", of, "-o", tmp_path / f"by-{of.name}", *options) == 0
    by_run, by_model = comparable(tmp_path / "by-run"), comparable(tmp_path / "by-model")
    assert len([name for name in by_run if name.endswith("prediction.json")]) == 4
    assert [name for name in by_run | by_model if by_run.get(name) != by_model.get(name)] == []


@pytest.mark.parametrize("named", [True, False], ids=["with the run's classes", "without classes"])
def test_on_a_cohort_without_a_class_each_patient_is_judged_by_the_probability_of_their_own(
    run: Path, tmp_path: Path, named: bool
):
    """The table's classes in the order of the alphabet are others than the run's."""
    folder = run / "run-external"
    if not named:
        folder = tmp_path / "evaluation"
        text = (run / "run-external.toml").read_text().replace(str(run / "run-external"), str(folder))
        without = re.sub(r'\nclasses = \[[^]]*"oligo"[^]]*\]', "", text)
        assert without != text
        (tmp_path / "external.toml").write_text(without)
        with pytest.MonkeyPatch.context() as patch:
            worked_here(patch)
            hurry(patch)
            assert mri_vit("evaluate", run / "run", "--study", tmp_path / "external.toml") == 0
    table = pd.read_csv(folder / "predictions.csv", dtype={"patient": str}, keep_default_na=False)
    people = pd.read_csv(run / "others.csv", dtype=str, keep_default_na=False).set_index("patient").who_type
    own = table[(table.model == "vit") & (table.endpoint == "who_type")]
    assert set(own["class"]) == set(PLACES)
    for patient, rows in own.groupby("patient"):
        assert set(rows[rows.truth.astype(float) == 1]["class"]) == {people[patient]}
    found = json.loads((folder / "report" / "metrics.json").read_text())["endpoints"]["who_type"]
    assert found["models"]["vit"]["counts"] == {"oligo": 0, "gbm": 2, "astro": 2}


def test_a_class_that_the_run_never_saw_and_another_unit_are_refused_with_the_run_s(run: Path, tmp_path: Path, capsys):
    text = (run / "run-external.toml").read_text().replace(str(run / "run-external"), str(tmp_path / "evaluation"))
    for old, new, said in (
        ('"oligo"', '"ependymoma"', "never saw the class 'ependymoma'; it has oligo, gbm, astro"),
        ('unit = "%"', 'unit = "share"', "ki67 is in % in the run"),
        ('kind = "ordinal"', 'kind = "multiclass"', "does not predict 'grade'"),
    ):
        assert old in text
        (tmp_path / "external.toml").write_text(text.replace(old, new))
        assert mri_vit("evaluate", run / "run", "--study", tmp_path / "external.toml") == 2
        assert said in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "evaluation").exists()


def test_two_runs_are_compared_on_every_endpoint(run: Path, tmp_path: Path):
    assert mri_vit("compare", run / "run", run / "again", "-o", tmp_path / "both") == 0
    found = json.loads((tmp_path / "both" / "comparison.json").read_text())["endpoints"]
    assert {name: (one["kind"], one["measure"]) for name, one in found.items()} == {
        "who_type": ("multiclass", "hand_till_m"),
        "grade": ("ordinal", "generalised_c"),
        "ki67": ("continuous", "generalised_c"),
        "mgmt": ("binary", "auc"),
        "os": ("survival", "harrell_c"),
    }


def test_runs_of_other_classes_are_not_compared(run: Path, tmp_path: Path, capsys):
    other = shutil.copytree(run / "again", tmp_path / "other")
    text = (other / "study.toml").read_text()
    changed = re.sub(r'"oligo",(\s*)"gbm"', r'"gbm",\1"oligo"', text)
    assert changed != text
    (other / "study.toml").write_text(changed)
    assert mri_vit("compare", run / "run", other, "-o", tmp_path / "refused") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "who_type is multiclass (oligo, gbm, astro) in" in said
    assert "and multiclass (gbm, oligo, astro) in" in said
