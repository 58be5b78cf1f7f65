"""Completion by the Tab key: the scripts hold every verb and key, work in bash, and no file is touched that is not named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mri_vit import cli
from mri_vit.cli import install
from mri_vit.settings.file import keys

ASKED = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_mri_vit
printf '%s\\n' "${COMPREPLY[@]}"
"""  # what bash does when Tab is pressed behind these words


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def written(home: Path) -> set[Path]:
    return {path.relative_to(home) for path in home.rglob("*") if path.is_file()}


def test_bash_completes_verbs_options_and_keys(home: Path):
    list(install(cli.app, "bash", home / "script"))

    def offered(*words: str) -> set[str]:
        call = ["bash", "-c", ASKED, "bash", str(home / "script"), "mri-vit", *words]
        return set(subprocess.run(call, capture_output=True, text=True, check=True, cwd=home).stdout.split())

    assert {"run", "status", "import", "settings"} <= offered("")
    assert offered("pretr") == {"pretrain"}
    assert offered("run", "--train.ep") == {"--train.epochs"}
    assert offered("import", "dicom", "--la") == {"--labels"}
    assert offered("schema", "--of", "") == {"report", "check", "comparison", "prediction"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_holds_every_verb_and_key(shell, home: Path):
    list(install(cli.app, shell, home / "script"))
    script = (home / "script").read_text()
    assert all(name in script for name in cli.app if not name.startswith("-"))  # fish writes -h as "-s h"
    assert all(key.name in script for key in keys())


@pytest.mark.parametrize(
    ("shell", "script", "startup"),
    [
        ("bash", ".local/share/bash-completion/completions/mri-vit", ".bashrc"),
        ("zsh", ".zsh/completions/_cyclopts_mri-vit", ".zshrc"),
        ("fish", ".config/fish/completions/mri-vit.fish", None),
    ],
)
def test_what_is_said_to_be_written_is_what_is_written(shell, script: str, startup: str | None, home: Path):
    own = "alias ll='ls -l'\n"
    if startup:
        (home / startup).write_text(own)
    said = list(install(cli.app, shell, None))
    assert said[0] == f"wrote {home / script}"
    assert written(home) == {Path(script), *([Path(startup)] if startup else [])}
    if startup:
        assert said[1] == f"added to {home / startup}:"
        added = [line.strip() for line in said if line.startswith("    ")]
        assert sorted((home / startup).read_text().splitlines()) == sorted([own.strip(), *added])
        again = list(install(cli.app, shell, None))
        assert again[1] == f"left {home / startup} unchanged: it already loads the script"
        assert sorted((home / startup).read_text().splitlines()) == sorted([own.strip(), *added])


def test_with_an_output_no_other_file_is_touched(home: Path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--install-completion", "zsh", "-o", str(home / "here" / "script")])
    assert not end.value.code
    assert capsys.readouterr().out == f"wrote {home / 'here' / 'script'}; no other file was changed\n"
    assert written(home) == {Path("here/script")}


def test_oh_my_zsh_needs_no_line_in_its_startup_file(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "omz" / "custom").mkdir(parents=True)
    monkeypatch.setenv("ZSH", str(home / "omz"))
    said = list(install(cli.app, "zsh", None))
    assert said[1] == f"left {home / '.zshrc'} unchanged: oh-my-zsh finds the script by itself"
    assert not (home / ".zshrc").exists()


def test_a_shell_that_is_not_known_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr("mri_vit.cli.detect_shell", lambda: "powershell")
    with pytest.raises(SystemExit) as end:
        cli.main(["--install-completion"])
    assert end.value.code == 2
    assert "name it: `mri-vit --install-completion` bash, zsh or fish" in capsys.readouterr().err
