"""Progress without a terminal: lines that a log can hold, with stage, count and time left, and no control character."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time

import pytest
from rich.console import Console

from mri_vit import study
from mri_vit.run import screen
from mri_vit.run.screen import duration

WORK = """
import time
from rich.console import Console
from mri_vit.run import screen
screen.EVERY_S = 0.05
console = Console()
with screen.waiting(console, "making [red]patients"):
    time.sleep(0.2)
with screen.progress(console) as bar:
    task = bar.add_task("train fold 2 of 3", total=8, note="")
    for _ in range(8):
        time.sleep(0.05)
        bar.update(task, advance=1, note="loss 0.650")
"""


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def console(clock: Clock) -> Console:
    return Console(file=io.StringIO(), get_time=clock)


def said(shown: Console) -> list[str]:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue().splitlines()


def test_time_left_is_as_long_as_the_last_steps_took(clock: Clock):
    with screen.progress(console(clock)) as bar:
        bar.add_task("train fold 2 of 3", total=180, note="")
        task = bar.tasks[0]
        assert screen.progress_line(task) == "train fold 2 of 3: 0 of 180"
        for done in range(1, 46):
            clock.now += 4.0
            bar.update(task.id, completed=done, note="loss 0.650")
        assert screen.progress_line(task) == "train fold 2 of 3: 45 of 180, about 9 min left, loss 0.650"  # 135 times 4 s


def test_what_an_earlier_run_did_is_not_taken_for_speed(clock: Clock):
    with screen.progress(console(clock)) as bar:
        task = bar.add_task("train", total=100, note="")
        for done in (81, 82, 83):  # 80 were done before
            clock.now += 60.0
            bar.update(task, completed=done)
        assert screen.progress_line(bar.tasks[0]) == "train: 83 of 100, about 17 min left"


def test_epochs_of_many_minutes_have_a_time_left(clock: Clock):
    with screen.progress(console(clock)) as bar:
        task = bar.add_task("train", total=10, note="")
        for _ in range(2):
            clock.now += 1200.0
            bar.advance(task)
        assert screen.progress_line(bar.tasks[0]) == "train: 2 of 10, about 2.7 h left"


def test_a_task_that_is_over_is_told_once_with_the_time_it_took(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(screen, "EVERY_S", 0.02)
    shown = console(clock)
    with screen.progress(shown) as bar:
        first = bar.add_task("train fold 1 of 2", total=180, note="")
        clock.now += 40.0
        bar.update(first, completed=63, note="loss 0.650")
        screen.stop_clocks(bar)  # it ended early
        clock.now += 5.0
        bar.add_task("train fold 2 of 2", total=180, note="")
        bar.add_task("explain", total=0, note="")  # nothing to do
        clock.now += 2.0
        deadline = time.monotonic() + 10
        while len(said(shown)) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = said(shown)
    assert lines.count("train fold 1 of 2: 63 of 180 in 40 s, loss 0.650") == 1
    assert lines.count("train fold 2 of 2: 0 of 180") >= 2
    assert lines[-1] == "train fold 2 of 2: 0 of 180 in 2 s"
    assert not any("explain" in line for line in lines)


def test_a_stage_that_fails_is_not_said_to_have_ended(clock: Clock):
    shown = console(clock)

    def interrupted() -> None:
        with screen.progress(shown) as bar:
            bar.update(bar.add_task("train", total=2, note=""), advance=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert said(shown) == []


def test_within_the_first_minute_only_the_end_is_told(clock: Clock):
    shown = console(clock)
    with screen.progress(shown) as bar:
        task = bar.add_task("prepare", total=3, note="")
        for _ in range(3):
            clock.now += 10.0
            bar.update(task, advance=1, note="1 excluded")
    assert said(shown) == ["prepare: 3 of 3 in 30 s, 1 excluded"]


@pytest.mark.parametrize("more", [{}, {"FORCE_COLOR": "1"}, {"TERM": "xterm-256color"}])
def test_a_pipe_gets_lines_and_no_control_character(more: dict[str, str]):
    piped = subprocess.run([sys.executable, "-c", WORK], capture_output=True, env=os.environ | more, check=True)
    text = re.sub(r"\x1b\[[\d;]*m", "", piped.stdout.decode()) if "FORCE_COLOR" in more else piped.stdout.decode()
    assert re.fullmatch(r"[\x20-\x7e\n]*", text)
    lines = text.splitlines()
    assert "making [red]patients: 0 s so far" in lines
    assert "making [red]patients: 0 s" in lines
    assert any(re.fullmatch(r"train fold 2 of 3: [2-7] of 8, about [01] s left, loss 0.650", line) for line in lines)
    assert lines[-1] == "train fold 2 of 3: 8 of 8 in 0 s, loss 0.650"
    assert piped.stderr == b""


def test_a_reader_who_goes_away_is_no_traceback():
    code = WORK.replace("range(8)", "range(40)")
    command = [sys.executable, "-c", f"from mri_vit.cli import exit_code\nexit_code.of(lambda: exec({code!r}, {{}}))"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_terminal_gets_bars():
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run([sys.executable, "-c", WORK], stdout=theirs, env=os.environ | {"TERM": "xterm"}, check=True)
        os.close(theirs)
        shown = terminal.read(100_000).decode()
    assert "\x1b[" in shown
    assert "━" in shown
    assert " of 8" not in shown


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.0, "3 s"), (89.0, "89 s"), (180.0, "3 min"), (5399.0, "90 min"), (9000.0, "2.5 h")]
)
def test_durations_are_read_at_a_glance(seconds: float, words: str):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("fold-2", "train fold 2 of 3"),
        ("repeat-2-fold-1", "train repeat 2 fold 1 of 3"),
        ("resnet10 fold-3", "train resnet10 fold 3 of 3"),
        ("pretrain fold-1", "pretrain fold 1 of 3"),
        ("pretrain", "pretrain"),
        ("pretrain my-fold-net", "pretrain my-fold-net"),
    ],
)
def test_networks_are_told_by_stage_and_fold(title: str, told: str):
    assert study._progress_title(title, [[[], [], []]]) == told
