"""The command line: every key of the study file is an option, and only those that are given override the file."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from mri_vit import cli
from mri_vit.settings import file as study_file
from mri_vit.settings.file import keys
from mri_vit.settings.schema import Study

WITH_KEYS = ("demo", "check", "prepare", "pretrain", "train", "explain", "report", "run", "evaluate")
WITHOUT = ("plan", "inspect", "predict", "features", "compare", "settings")
WITHOUT_OUTPUT = [("status",), ("settings",), ("plan",), ("serve",)]  # which write no file, or as long as they run
STUDY = """
name = "x"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
[train]
epochs = 7
flip_lr = false
[model]
tokens = "foreground"
"""


def verbs(app: App, named: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every verb, and of the verbs of verbs."""
    for name in app:
        if name not in ("--help", "-h", "--version"):
            yield from verbs(app[name], (*named, name))
    if named and app.default_command:
        yield named


def options(verb: tuple[str, ...]) -> set[str]:
    """The names of all that a verb takes."""
    app = cli.app
    for word in verb:
        app = app[word]
    return {name for argument in app.assemble_argument_collection() for name in argument.names}


VERBS = list(verbs(cli.app))


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """What `mri-vit pretrain` was asked to do, in a folder with a study file."""
    asked: list[Study] = []
    monkeypatch.setattr("mri_vit.cli.study_verbs._stage", lambda name, study: asked.append(study))
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    return asked


def ended(*arguments: str) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    return int(end.value.code or 0)


def helped(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert ended(verb, "--help") == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", WITH_KEYS)
def test_help_lists_every_key_within_80_columns(verb: str, capsys, monkeypatch):
    shown = helped(verb, capsys, monkeypatch)
    words = " ".join(shown.split())
    for key in keys():
        assert f"--{key.name} " in shown or f"--{key.name}, " in shown
        assert key.description in words
    assert "--train.epochs integer ≥ 1 (default 160)\n" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "--no-" not in shown
    assert "--empty-" not in shown


@pytest.mark.parametrize("verb", WITHOUT)
def test_a_verb_that_takes_no_study_lists_no_key(verb: str, capsys, monkeypatch):
    assert "--train.epochs" not in helped(verb, capsys, monkeypatch)


def test_the_list_of_verbs_is_short(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert ended("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {verb} " in shown for verb in (*WITH_KEYS, *WITHOUT))
    assert len(shown.splitlines()) <= 48  # two screens of a plain terminal


def test_help_imports_nothing_slow():
    code = "import sys; from mri_vit import cli\ntry: cli.main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "print('HEAVY', {'torch', 'monai', 'numpy', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY set()"


def test_only_what_is_given_overrides_the_file(loaded):
    assert ended("pretrain", "study.toml", "--train.batch_size", "3") == 0
    assert (loaded[0].train.batch_size, loaded[0].train.epochs, loaded[0].train.flip_lr) == (3, 7, False)
    assert loaded[0].model.tokens == "foreground"
    assert ended("pretrain", "study.toml") == 0
    assert loaded[1] == study_file.load(Path("study.toml"))


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--train.epochs=5"], "train.epochs", 5),
        (["--train.learning_rate", "2e-3"], "train.learning_rate", 2e-3),
        (["--train.flip_lr", "true"], "train.flip_lr", True),
        (["--train.flip_lr", "False"], "train.flip_lr", False),
        (["--controls.models", '["clinical", "volume"]'], "controls.models", ("clinical", "volume")),
        (["--controls.models", "[]"], "controls.models", ()),
        (["--model.tokens", "all"], "model.tokens", "all"),
        (["--model.tokens", '"all"'], "model.tokens", "all"),
        (["--train.leave_out=a = b"], "train.leave_out", "a = b"),
        (["--train.epochs", "5", "--train.epochs", "6"], "train.epochs", 6),
        (["-o", "/else"], "output", Path("/else")),
        (["--name", "-1"], None, None),
    ],
)
def test_values_are_typed_as_in_the_file(loaded, words: list[str], key: str | None, value: object):
    assert ended("pretrain", "study.toml", *words) == (0 if key else 2)
    if key:
        found: object = loaded[0]
        for part in key.split("."):
            found = getattr(found, part)
        assert found == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "5"], "unknown option --epochs; did you mean --train.epochs or --pretrain.epochs?"),
        (["--epochs=5"], "unknown option --epochs; did you mean --train.epochs or --pretrain.epochs?"),
        (["--rate", "5"], "unknown option --rate; did you mean --train.learning_rate or --pretrain.learning_rate?"),
        (["--train.rate", "5"], "unknown option --train.rate: train.rate is now train.learning_rate"),
        (["--patience", "5"], "unknown option --patience; did you mean --train.patience?"),
        (["--train.epoch", "5"], "unknown option --train.epoch; did you mean --train.epochs?"),
        (["--train.epoch=5"], "unknown option --train.epoch; did you mean --train.epochs?"),
        (["-train.epochs", "5"], "unknown option -train.epochs; did you mean --train.epochs?"),
        (["--zzz", "5"], "unknown option --zzz; `mri-vit pretrain --help` lists all"),
        (
            ["--train", "5"],
            "unknown option --train: train is a section of the study file; `mri-vit settings train` lists its keys",
        ),
        (["--train.epochs"], "--train.epochs needs a value"),
        (["train.epochs=5"], "unexpected train.epochs=5; did you mean --train.epochs=5?"),
        (["--train.epochs", "0"], "study.toml, line 7: train.epochs: expected at least 1 (found 0)"),
        (["--train.epochs", "five"], "train.epochs: expected an integer"),
        (["more.toml"], "unexpected more.toml; `mri-vit pretrain --help` lists the arguments of `pretrain`"),
    ],
)
def test_a_wrong_option_is_a_usage_error_without_traceback_or_frame(loaded, capsys, words: list[str], message: str):
    assert ended("pretrain", "study.toml", *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("mri-vit: ")
    assert not {"Traceback", "╭"} & set(said.split())
    assert not loaded


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian", "study.toml"], "unknown verb trian; did you mean train?"),
        (["zzz"], "unknown verb zzz; `mri-vit --help` lists all"),
        (["cohort", "mrge"], "unknown verb mrge; did you mean merge?"),
        (["--epochs", "5"], "expected a verb before --epochs; `mri-vit --help` lists all"),
        (["--instal-completion"], "expected a verb before --instal-completion; did you mean --install-completion?"),
        (["help"], "unknown verb help; did you mean --help?"),
        (["run"], "`run` needs STUDY; `mri-vit run --help` lists its arguments"),
        (["import", "auto"], "`import` needs SOURCE; `mri-vit import --help` lists its arguments"),
        (["evaluate", "run"], "`evaluate` needs --study; `mri-vit evaluate --help` lists its arguments"),
        (["inspect", "run", "--position", "1", "2"], "--position takes 3 values, found 2"),
        (["inspect", "run", "--fold", "x"], 'invalid value for --fold: unable to convert "x" into int'),
        (
            ["status", "run", "--train.epochs", "5"],
            "`status` does not accept keys of the study file",
        ),
    ],
)
def test_a_wrong_verb_or_value_is_answered_in_one_line(words: list[str], message: str, capsys):
    assert ended(*words) == 2
    said = capsys.readouterr()
    assert said.err.startswith("mri-vit: ")
    assert message in said.err
    assert (said.err.count("\n"), said.out) == (1, "")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_answers_an_unknown_option_in_one_line(verb: tuple[str, ...], capsys):
    assert ended(*verb, "--zzz", "5") == 2
    assert capsys.readouterr().err == f"mri-vit: unknown option --zzz; `mri-vit {' '.join(verb)} --help` lists all\n"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "--train.epochs" in options(verb)], ids=" ".join)
def test_every_verb_that_takes_keys_knows_what_epochs_means(verb: tuple[str, ...], capsys):
    assert ended(*verb, "--epochs", "5") == 2
    assert capsys.readouterr().err == "mri-vit: unknown option --epochs; did you mean --train.epochs or --pretrain.epochs?\n"


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_o_is_short_for_output_wherever_there_is_one(verb: tuple[str, ...]):
    assert ("-o" in options(verb)) == ("--output" in options(verb))
    assert "--output" in options(verb) or verb in WITHOUT_OUTPUT


def test_settings_are_plain_in_a_pipe_and_coloured_in_a_terminal():
    command = [sys.executable, "-c", "from mri_vit.cli import main; main()", "settings", "epochs"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split("\t")[0] for line in piped.splitlines()] == ["pretrain.epochs", "train.epochs"]
    assert "\x1b" not in piped
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(command, stdout=theirs, env=os.environ | {"TERM": "xterm"}, check=True)
        os.close(theirs)
        coloured = terminal.read(10_000).decode()
    assert "\x1b[" in coloured
    assert "[train] Cross-validation and optimisation" in re.sub(r"\x1b\[[\d;]*m", "", coloured)


def test_predict_takes_its_output_by_place_and_by_name(monkeypatch):
    asked = []
    monkeypatch.setattr("mri_vit.finished.predict.predict", lambda *given: asked.append(given[:4]))
    for output in (["out"], ["--output", "out"], ["-o", "out"]):
        assert ended("predict", "run", "cohort.csv", *output) == 0
    assert asked == [(Path("run"), Path("cohort.csv"), Path("out"), 1)] * 3
