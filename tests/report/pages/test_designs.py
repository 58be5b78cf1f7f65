"""The page of runs that are not a plain cross-validation: tables, single folds, ties, a demo, a report upon a report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from made.report import measure, read_metrics, seen
from made.run import TWO_VISITS, make_run

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.report.pages import front_page, report_files
from mri_vit.report.reading import run as run_folder
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.parts import Kind
from mri_vit.report.words import methods_section, notation, run_facts
from mri_vit.report.words.notation import escape

pytestmark = pytest.mark.usefixtures("sketched")

WRITTEN = ("figures", "tables", "patients")  # whose files metrics.json lists


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Run:
    return run_folder.read_run(make_run(tmp_path_factory.mktemp("runs") / "small", patients=30, models=("vit",)))


def asked(run: Run, *endpoints: str) -> Run:
    """The run with these of its endpoints, no maps and no pictures."""
    found = tuple(e for e in run.study.endpoints if e.name in endpoints)
    table = run.predictions[run.predictions.endpoint.isin(endpoints)]
    return replace(run, study=run.study.model_copy(update={"endpoints": found}), predictions=table, maps=(), qc=())


def page_of(run: Run, home: Path) -> str:
    return seen(report_files.write_report(run, home).page.parent)


def test_a_table_of_risks_without_probabilities_compares_its_models_by_their_order_alone(tmp_path):
    run = asked(run_folder.read_run(make_run(tmp_path / "made", patients=30, models=("vit", "clinical"))), "os")
    page_of(replace(run, design="table", survival=run.survival.iloc[:0]), tmp_path / "out")
    pairs = read_metrics(tmp_path / "out")["endpoints"]["os"]["pairs"]
    assert [(pair["model"], pair["other"], pair["brier"]) for pair in pairs] == [("vit", "clinical", None)]
    assert all(pair["score"]["p"] is not None for pair in pairs)


def test_of_a_table_with_one_fold_and_repeats_the_page_says_what_can_be_said(tmp_path):
    run = asked(run_folder.read_run(make_run(tmp_path / "twice", patients=30, repeats=2, models=("vit",))), "mgmt", "os")
    table = run.predictions[run.predictions.patient != run.predictions.patient.iloc[-1]]
    words = page_of(replace(run, design="table", predictions=table.assign(fold=0)), tmp_path / "out")
    written = (tmp_path / "out" / "methods.md").read_text(encoding="utf-8")
    for text in (words, written):
        for rule in read_metrics(tmp_path / "out")["rules"]:  # which hold for every report
            text = text.replace(rule, "").replace(escape(rule), "")
        assert "ooled figures use each patient's mean score over the repeats" in text
        assert "how it was chosen is not known here" in text
        assert not re.search(
            r"within (a fold|folds|the same fold)|pairs of patients of the same fold|± variance", text, re.IGNORECASE
        )
    people = read_metrics(tmp_path / "out")["cohort"]
    flow = words[words.index(f"{people['patients']} patients in the table") : words.index("Patients without a label")]
    assert f"{people['unpredicted']} without a prediction" in flow
    assert f"{people['predicted']} predicted" in flow
    assert "unknown" in flow
    assert "excluded" not in words


def test_folds_of_equal_scores_are_told_in_words_and_in_their_table(small, tmp_path):
    run = asked(small, "mgmt", "os")
    table = run.predictions.assign(score=run.predictions.score.where(run.predictions.fold > 0, 0.5))
    words = page_of(replace(run, predictions=table), tmp_path)
    assert words.count("In 1 of 3 folds all patients have the same score (all tied)") == 2
    assert len(re.findall(r"n = \d+, \d+ (?:positive|died), all tied", words)) == 2


@pytest.mark.usefixtures("sketched")
def test_a_table_of_many_patients_has_their_pages_on_request_alone(small, tmp_path):
    run = asked(small, "mgmt")
    few = run.predictions.patient.nunique()
    for most, has_pages in ((few - 1, False), (2 * few, True), (None, True)):
        written = report_files.write_report(run, tmp_path / str(most), most)
        assert any(name.startswith("patients/") for name in written.metrics.files) == has_pages
        assert (tmp_path / str(most) / "patients").exists() == has_pages
        assert ('href="patients/' in written.page.read_text()) == has_pages
        assert len(written.metrics.patients) == few


def test_an_endpoint_that_the_shuffled_control_alone_predicted_has_its_page(small, tmp_path):
    run = asked(small, "mgmt")
    words = page_of(replace(run, predictions=run.predictions.assign(model="shuffled")), tmp_path)
    assert "0 patients with a known label" in words
    assert (tmp_path / "figures" / "precision_recall_mgmt.svg").is_file()


def test_a_second_report_deletes_what_the_first_wrote_and_nothing_else(small, tmp_path):
    home, outside = tmp_path / "report", tmp_path / "kept.svg"
    report_files.write_report(asked(small, "mgmt", "os"), home)
    first = set(read_metrics(home)["files"])
    assert first == {f"{path.parent.name}/{path.name}" for folder in WRITTEN for path in (home / folder).iterdir()}
    assert "figures/km_os_vit.svg" in first
    (home / "figures" / "own.svg").write_text("the user's own, in no list")
    (home / "notes.csv").write_text("not in a folder of the report")
    outside.write_text("outside")
    metrics = read_metrics(home)
    metrics["files"] += ["../kept.svg", "figures/../../kept.svg", str(outside), "notes.csv", "figures/..", 7]
    (home / "metrics.json").write_text(json.dumps(metrics))
    report_files.write_report(asked(small, "mgmt"), home)
    second = set(read_metrics(home)["files"])
    assert second < first
    left = {f"{path.parent.name}/{path.name}" for folder in WRITTEN for path in (home / folder).iterdir()}
    assert left == second | {"figures/own.svg"}
    assert outside.is_file()
    assert (home / "notes.csv").is_file()


def test_a_folder_that_is_a_link_out_of_the_report_loses_nothing(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "roc.csv").write_text("not of this report")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "tables").symlink_to(tmp_path / "elsewhere")
    report_files.delete_files(tmp_path / "home", {"tables/roc.csv"})
    assert (tmp_path / "elsewhere" / "roc.csv").is_file()


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["index.html", "metrics.json", "patients/wife.html", "thesis.md"])
def test_a_folder_that_is_no_report_of_ours_is_refused_and_stays_as_it_is(small, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"files": ["figures/roc.svg"], "schema": 1}')
    before = content(tmp_path)
    with pytest.raises(UsageError, match=f"holds {name.partition('/')[0]} and is no report"):
        report_files.write_report(asked(small, "mgmt"), tmp_path)
    assert content(tmp_path) == before


def test_what_a_system_leaves_in_an_empty_folder_makes_it_nobodys(tmp_path):
    for name in (".DS_Store", "Thumbs.db", "._x", ".lock"):
        (tmp_path / name).touch()
    report_files.refuse_folder(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        report_files.refuse_folder(tmp_path / ".lock")


@pytest.mark.parametrize("name", ["", *report_files.FOLDERS])
def test_a_report_whose_folder_leads_elsewhere_is_refused_before_anything_is_written(small, tmp_path, name):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "own.html").write_text("the user's own")
    if name:
        home.mkdir()
    (home / name).symlink_to(elsewhere)
    with pytest.raises(IntegrityError, match="is a link to"):
        report_files.write_report(asked(small, "mgmt"), home)
    assert content(elsewhere) == {"own.html": "the user's own"}
    assert not (home / "metrics.json").exists()


def test_pages_that_the_earlier_report_wrote_go_and_the_users_own_stay(small, tmp_path):
    metrics: dict[str, Any] = dict.fromkeys(report_files.MARKS, 1) | {"files": ["patients/gone.html"]}
    metrics["maps"] = [{"patient": "of-an-older-version"}]  # which listed no pages
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (tmp_path / "patients").mkdir()
    for name in ("gone", "of-an-older-version", "own"):
        (tmp_path / "patients" / f"{name}.html").write_text(name)
    report_files.write_report(asked(small, "mgmt"), tmp_path)
    left = {path.name for path in (tmp_path / "patients").iterdir()}
    assert "own.html" in left
    assert not left & {"gone.html", "of-an-older-version.html"}


def test_a_report_that_was_killed_is_known_as_ours_with_what_it_wrote(small, tmp_path, monkeypatch):
    monkeypatch.setattr(methods_section, "methods_and_results", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report_files.write_report(asked(small, "mgmt"), tmp_path)
    assert not (tmp_path / "index.html").exists()
    report_files.refuse_folder(tmp_path)
    assert "figures/calibration_mgmt.svg" in report_files.earlier_files(tmp_path)


STRANGE = json.dumps(
    {"files": ["../kept.svg", "/kept.svg", "figures/../../kept.svg", "notes.csv", "tables/.new.csv", "maps/a.png", 7]}
)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', '{"files": null}', "\x00", STRANGE])
def test_a_spoiled_list_of_files_is_no_list(tmp_path, text):
    (tmp_path / "metrics.json").write_text(text)
    assert report_files.earlier_files(tmp_path) == set()


def test_published_concordance_stands_beside_the_width_of_this_interval(small, tmp_path):
    words = page_of(asked(small, "os"), tmp_path)
    result = read_metrics(tmp_path)["endpoints"]["os"]["models"]["vit"]
    half = (result["harrell_c"]["high"] - result["harrell_c"]["low"]) / 2
    known = f"about ± {notation.number(half)} over {result['n']} patients, {result['events']} deaths"
    known += "; one fold holds only about one in three of them"
    assert known in words
    assert "reaches an AUC of 0.5 with a standard error" not in words


@pytest.mark.parametrize(
    ("design", "why"), [("cross-validation", "not trained"), ("external", "not judged"), ("table", "not judged")]
)
def test_nothing_is_said_of_training_where_none_was_done(design, why):
    assert run_facts.absence(0, design) == f"no patient has a label, so it is {why}"
    assert "trained" not in run_facts.absence(3, design)


@pytest.mark.parametrize(("name", "prefix", "made_up"), [("demo", "demo-", True), ("demo", "", False), ("real", "demo-", False)])
def test_patients_are_made_up_only_where_study_and_patients_are_the_demos(small, name, prefix, made_up):
    run = replace(
        small,
        study=small.study.model_copy(update={"name": name}),
        predictions=small.predictions.assign(patient=prefix + small.predictions.patient),
    )
    assert front_page.is_synthetic(run) == made_up
    assert front_page.is_synthetic(replace(run, notes={"synthetic": "60 of 60 patients are synthetic"}))
    one_real = pd.concat([run.predictions, small.predictions.iloc[:1]])
    assert not front_page.is_synthetic(replace(run, predictions=one_real))


def test_a_label_of_a_later_visit_counts_alike_in_the_flow_and_in_the_result(tmp_path):
    folder = make_run(tmp_path / "later", patients=30, models=("vit",))
    later = {"idh1": "1", "os_days": "123", "os_event": "1"}
    people = pd.read_csv(folder / "cohort.csv", dtype=str, keep_default_na=False)
    table = pd.read_csv(folder / "predictions.csv", dtype=str, keep_default_na=False)
    for text, columns in ((people, later), (table, {"truth": "1", "time_days": "123", "event": "1"})):
        own = text.patient.isin(TWO_VISITS)
        text.loc[own & (text.session == "a"), list(columns)] = ""
        for column, value in columns.items():
            text.loc[own & (text.session == "b"), column] = value
    table.loc[table.endpoint == "os", "truth"] = ""
    table.loc[table.endpoint != "os", ["time_days", "event"]] = ""
    people.to_csv(folder / "cohort.csv", index=False)
    table.to_csv(folder / "predictions.csv", index=False)
    metrics = measure(asked(run_folder.read_run(folder), "idh1", "os"))
    for name in ("idh1", "os"):
        # Everybody was predicted, so that who is known in the table is known in the result.
        known = people[(people[name if name == "idh1" else "os_days"] != "")].patient.nunique()
        assert metrics["cohort"]["known"][name] == metrics["endpoints"][name]["known"] == known


@pytest.mark.parametrize("kind", get_args(Kind))
def test_an_internal_result_has_an_interval_only_where_the_run_judged_it(kind: Kind, tmp_path: Path):
    result = {"judged": {"value": 0.7, "low": 0.5, "high": 0.9}, "auc": {}, "n": 7, "verdict_kind": kind}
    (tmp_path / "evaluation.json").write_text(json.dumps({"endpoints": {"mgmt": {"kind": "binary", "models": {"vit": result}}}}))
    found = run_folder._internal(tmp_path / "evaluation.json")["mgmt"]["vit"]
    assert notation.estimate(found) == ("0.700" if kind == "undefined" else "0.700 [0.500, 0.900]")
