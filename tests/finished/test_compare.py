"""A comparison as a user makes it: what differs, a page that opens offline, a file that follows its schema."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from made.pair import as_vit, copied, divided_anew, make_a, opened
from made.report import seen
from made.run import write_cost
from rich.console import Console
from whole_road import mri_vit

from mri_vit.cli import file_verbs
from mri_vit.data import predictions
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.finished import compare
from mri_vit.finished.comparison import Comparison, dumps
from mri_vit.report.words import notation

pytestmark = pytest.mark.long(15)


def changed(run: Path, *pairs: tuple[str, str]) -> None:
    """Change lines of a run's study file."""
    file = run / "study.toml"
    text = file.read_text()
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after, 1)
    file.write_text(text)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and one with other settings, software and three patients fewer, whose model is another."""
    home = tmp_path_factory.mktemp("two")
    a = make_a(home / "a")
    lost = ("P010", "P011", "P012")
    b = copied(a, "<b>&b", lambda table: as_vit("twin")(table.loc[~table.patient.isin(lost)]))
    changed(
        b,
        ('name = "made-up"', 'name = "other"'),
        ("seed = 7", 'seed = 8\nchannels = ["t1", "t1ce", "t2", "flair"]'),
        ('prepared = "prepared"', 'prepared = "/somewhere/else"'),
        (
            "[train]",
            '[explain]\npatients = 3\n[pretrain]\nmethod = "mae"\n[model]\nweights = "/nets/vit.npz"\n[train]\nepochs = 7',
        ),
        ('name = "twin"', 'name = "twin"\ntrain = { learning_rate = 0.5 }'),
    )
    environment = json.loads((b / "environment.json").read_text())
    environment["versions"]["torch"] = "9.9"
    (b / "environment.json").write_text(json.dumps(environment))
    for run, scans in ((a, {"P020": {"t1": "1", "t2": "2"}}), (b, {"P020": {"t1": "1", "t2": "3"}, "P021": {"t1": "4"}})):
        (run / "inputs.json").write_text(json.dumps(scans))
    for fold in range(3):
        write_cost(a, "vit", 0, fold, parameters=1000, flops=2e9, patient_seconds=0.5, training_seconds=10)
        write_cost(b, "vit", 0, fold, parameters=2000, flops=4e9, patient_seconds=1.5, training_seconds=20)
    return a, b


@pytest.fixture(scope="module")
def found(two: tuple[Path, Path]) -> Comparison:
    return compare.compare(opened(*two))


def test_settings_that_differ_are_named_by_dotted_keys_with_their_defaults(found: Comparison):
    settings = {one.key: (one.a, one.b, one.decides) for one in found.settings}
    assert settings["train.epochs"] == (100, 7, True)
    assert settings["seed"] == (7, 8, True)
    assert settings["model.weights"] == (None, "vit.npz", True)
    assert settings["pretrain.method"] == ("none", "mae", True)
    assert settings["comparators.twin.train.learning_rate"] == (None, 0.5, True)
    assert settings["explain.patients"] == (None, 3, False)
    assert not {"name", "prepared", "channels", "train.folds"} & set(settings)
    decides = [one.decides for one in found.settings]
    assert decides == sorted(decides, reverse=True)


def test_software_patients_and_names_that_differ_are_named(found: Comparison):
    assert [(one.key, one.a, one.b) for one in found.versions] == [("torch", "2.13.0", "9.9")]
    assert found.patients.a_alone == ("P010", "P011", "P012")
    assert found.patients.b_alone == ()
    assert found.patients.both == 57
    assert found.patients.other_scans == ("P020",)
    assert (found.models_alone.a, found.models_alone.b) == (("twin",), ())
    assert found.folds.same
    assert "same folds" in found.folds.sentence


def test_costs_stand_where_both_runs_know_them(found: Comparison):
    assert set(found.costs) == {"vit"}
    cost = found.costs["vit"]
    assert (cost.a.parameters, cost.b.parameters) == (1000, 2000)
    assert (cost.a.training_seconds, cost.b.training_seconds) == (30, 60)


def test_runs_of_one_name_are_told_apart_by_their_folders_or_letters(tmp_path: Path):
    a = make_a(tmp_path / "a")
    names = [side.name for side in compare.sides(opened(a, copied(a, "b")))]
    assert names == ["a", "b"]
    assert [side.name for side in compare.sides(opened(a, a))] == ["made-up (A)", "made-up (B)"]


def test_the_file_follows_its_schema_and_is_read_to_the_letter(found: Comparison, capsys: pytest.CaptureFixture[str]):
    file_verbs.schema(of="comparison")
    schema = json.loads(capsys.readouterr().out)
    text = dumps(found)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(text))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(json.loads(text) | {"more": 1})
    assert dumps(Comparison.model_validate_json(text)) == text


def test_the_page_carries_every_figure_and_fetches_nothing(two: tuple[Path, Path], found: Comparison, tmp_path: Path):
    home = tmp_path / "out"
    home.mkdir()
    compare.write_comparison(opened(*two), found, home)
    text = (home / "index.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:|#|comparison\.json)', text)
    assert "<b>&b" not in text  # the folder's name is text
    words = seen(home)
    for endpoint in found.endpoints.values():
        for model, one in endpoint.models.items():
            assert f"{one.a.value:.3f}" in words
            assert model in words
        assert endpoint.models["vit"].verdict[1:] in words
    assert text.count("data:image/svg+xml") == 1 + len(found.endpoints)
    assert "train.epochs 100 7" in words


def test_a_run_beside_itself_is_said_to_be_the_same(two: tuple[Path, Path], tmp_path: Path):
    run, console = two[0], Console(file=io.StringIO(), width=80)
    found = compare.run(run, run, tmp_path / "out", console)
    assert {one.verdict for endpoint in found.endpoints.values() for one in endpoint.models.values()} == {"same predictions"}
    assert (found.tests, found.settings, found.versions) == (0, (), ())


def test_verdicts_give_the_better_run_and_by_how_much(tmp_path: Path):
    a = make_a(tmp_path / "a")
    strong = copied(
        a, "strong", lambda table: table.assign(score=table.score.where(table.model != "vit", table.truth.fillna(0.5)))
    )
    found = compare.compare(opened(a, strong)).endpoints["pten"].models["vit"]
    assert found.verdict == f"B is better by {-found.difference:.3f} ({-found.high:.3f} to {-found.low:.3f})"
    other = compare.compare(opened(a, divided_anew(a, "other")))
    assert "different folds" in other.folds.sentence
    assert other.endpoints["mgmt"].models["vit"].verdict.startswith("no clear difference: ")


def test_nothing_is_written_into_the_runs_and_the_terminals_table_fits(two: tuple[Path, Path], tmp_path: Path):
    def contents() -> dict[str, str]:
        return {
            str(file): hashlib.sha256(file.read_bytes()).hexdigest() for run in two for file in run.rglob("*") if file.is_file()
        }

    before, screen = contents(), io.StringIO()
    compare.run(*two, tmp_path / "out", Console(file=screen, width=80))
    assert contents() == before
    said = screen.getvalue().splitlines()
    said = said[next(i for i, line in enumerate(said) if line.startswith("A  ")) : -1]  # the last line is a path to copy
    assert max(map(len, said)) <= 80
    assert any("train.epochs: 100 in A, 7 in B" in line for line in said)


def test_a_folder_of_another_is_left_alone_and_an_earlier_comparison_is_replaced(two: tuple[Path, Path], tmp_path: Path):
    console, foreign = Console(file=io.StringIO()), tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "index.html").write_text("mine")
    with pytest.raises(UsageError, match=r"holds index\.html and is no comparison"):
        compare.run(*two, foreign, console)
    assert (foreign / "index.html").read_text() == "mine"
    with pytest.raises(UsageError, match="is no comparison"):
        compare.run(*two, two[0], console)
    (tmp_path / "link").symlink_to(foreign)
    with pytest.raises(IntegrityError, match="link"):
        compare.run(*two, tmp_path / "link", console)
    compare.run(two[0], two[0], tmp_path / "out", console)
    compare.run(*two, tmp_path / "out", console)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["b"]["study"] == "other"


def test_the_verb_writes_into_a_folder_named_after_both_runs(two: tuple[Path, Path], tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert mri_vit("compare", two[0], two[0]) == 0
    written: dict[str, Any] = json.loads((tmp_path / "comparison-a-a" / "comparison.json").read_text())
    assert math.isclose(written["endpoints"]["mgmt"]["models"]["vit"]["p"], 1)
    assert mri_vit("compare", two[0], tmp_path) == 2
    assert "no study.toml; a run can be compared once" in capsys.readouterr().err


@pytest.mark.parametrize(("few", "shown"), [(4, False), (5, True)])
def test_a_result_that_is_not_judged_has_no_interval(few: int, shown: bool, tmp_path: Path):
    a = make_a(tmp_path / "a", patients=30)
    table = predictions.load(a / "predictions.csv")
    positive = sorted(table.patient[(table.endpoint == "mgmt") & (table.model == "vit") & (table.truth == 1)].unique())
    lost = positive[few:]
    b = copied(a, "b", lambda table: table.loc[~((table.endpoint == "mgmt") & table.patient.isin(lost))])
    made = compare.compare(opened(a, b))
    page = compare.page_html(made, {})
    result = made.endpoints["mgmt"].models["vit"]
    assert result.marked == few
    assert (notation.interval(result.a, result.n) in page) == shown
