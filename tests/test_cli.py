"""The command line: every key of the study file is an option, and only those that are given override the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mri_vit import cli
from mri_vit.settings import file as study_file
from mri_vit.settings.keys import keys
from mri_vit.settings.schema import Study

WITH_KEYS = ("demo", "check", "prepare", "pretrain", "train", "explain", "report", "run", "evaluate")
WITHOUT = ("inspect", "predict", "compare")
STUDY = """
name = "x"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
[train]
epochs = 7
mirror = false
[model]
tokens = "foreground"
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """What `mri-vit pretrain` was asked to do, in a folder with a study file."""
    asked: list[Study] = []
    monkeypatch.setattr(cli, "_stage", lambda name, study: asked.append(study))
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
    assert "--train.epochs integer ≥ 1 (default 100)\n" in shown
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
    assert len(shown.splitlines()) < 40


def test_help_imports_nothing_slow():
    code = "import sys; from mri_vit import cli\ntry: cli.main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "print('HEAVY', {'torch', 'monai', 'numpy', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY set()"


def test_only_what_is_given_overrides_the_file(loaded):
    assert ended("pretrain", "study.toml", "--train.batch", "3") == 0
    assert (loaded[0].train.batch, loaded[0].train.epochs, loaded[0].train.mirror) == (3, 7, False)
    assert loaded[0].model.tokens == "foreground"
    assert ended("pretrain", "study.toml") == 0
    assert loaded[1] == study_file.load(Path("study.toml"))


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--train.epochs=5"], "train.epochs", 5),
        (["--train.rate", "2e-3"], "train.rate", 2e-3),
        (["--train.mirror", "true"], "train.mirror", True),
        (["--train.mirror", "False"], "train.mirror", False),
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
        (["--train.epoch", "5"], "unknown option --train.epoch; the nearest known one is --train.epochs"),
        (["--train.epoch=5"], "unknown option --train.epoch; the nearest known one is --train.epochs"),
        (["--zzz", "5"], "unknown option --zzz; the nearest known one is --"),
        (["--train", "5"], "unknown option --train; the nearest"),
        (["--train.epochs"], "--train.epochs requires an argument"),
        (["--train.epochs", "0"], "study.toml, line 7: train.epochs: Input should be greater than or equal to 1 (found 0)"),
        (["--train.epochs", "five"], "train.epochs: Input should be a valid integer"),
        (["more.toml"], "Unused"),
    ],
)
def test_a_wrong_option_is_a_usage_error_without_traceback_or_frame(loaded, capsys, words: list[str], message: str):
    assert ended("pretrain", "study.toml", *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("mri-vit: ")
    assert not {"Traceback", "╭"} & set(said.split())
    assert not loaded


def test_an_unknown_verb_is_named_with_those_that_there_are(capsys):
    assert ended("trian", "study.toml") == 2
    assert 'mri-vit: Unknown command "trian". Did you mean "train"?' in capsys.readouterr().err
