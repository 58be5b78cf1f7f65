"""The command that answers a question: it lists the questions, refuses others, and each says what it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import reproduce

from mri_vit.run import exit_code

HOME = reproduce.REPRODUCTIONS


def test_every_folder_has_a_question_and_all_are_listed(capsys):
    folders = {file.parent.name for file in HOME.glob("*/*.py")}
    assert {question.partition("/")[0] for question in reproduce.questions()} == folders
    assert reproduce.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-len(reproduce.questions()) :] == reproduce.questions()


def test_an_unknown_question_is_refused(capsys):
    assert reproduce.main(["nosuch"]) == 2
    assert "no question nosuch; there are ablation, " in capsys.readouterr().err


@pytest.mark.parametrize("question", reproduce.questions())
def test_each_question_says_what_it_takes(question: str, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [])
    assert reproduce.main([question, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"{Path(question).name} " in shown.splitlines()[0]
    assert (reproduce.script(question).main.__doc__ or "").partition("\n")[0][:40] in " ".join(shown.split())


def test_a_study_file_is_found_in_the_questions_folder(tmp_path: Path, monkeypatch):
    asked = []
    monkeypatch.setattr(exit_code, "of_script", lambda main: asked.append(sys.argv) or 0)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ladder.toml").touch()
    assert reproduce.main(["ladder", "ladder.toml", "--seeds", "1"]) == 0
    assert reproduce.main(["ladder", "ladder_brats2021.toml"]) == 0
    assert asked == [
        ["reproduce.py ladder", "ladder.toml", "--seeds", "1"],
        ["reproduce.py ladder", str(HOME / "ladder" / "ladder_brats2021.toml")],
    ]


def test_worker_processes_find_what_a_question_gives_them(tmp_path: Path):
    """As the command is called: functions of a question that run in processes of their own are found by their module's name."""
    (tmp_path / "reproductions" / "small").mkdir(parents=True)
    (tmp_path / "reproductions" / "small" / "__main__.py").write_text(
        "from mri_vit.run import executor\n"
        "from mri_vit.run.task import Where\n\n"
        "def double(number):\n    return 2 * number\n\n"
        "def main(number: int):\n"
        "    print(*executor.each(double, {str(i): (i,) for i in range(number)}, Where(2)))\n"
    )
    script = tmp_path / "reproduce.py"
    script.write_text(Path(reproduce.__file__).read_text())
    ended = subprocess.run([sys.executable, script, "small", "2"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.strip().strip("()").split(") (")) == ["'0', 0", "'1', 2"]
