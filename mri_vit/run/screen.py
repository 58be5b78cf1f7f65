"""Screen: what the terminal shows. Text from outside (names, paths, columns) is shown as it is and never read as markup; progress
is bars where a terminal shows them and elsewhere, as in a log, a line a minute without control characters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

WARNING = "yellow"
EVERY_S = 60.0  # a night has some 500 lines then
PACE_S = 3600.0  # over which the pace is taken; rich's own 30 s hold no two epochs of a large network, and so no time left


def plain(text: str, style: str = "") -> Text:
    """Text as it is: brackets are no markup, colons no emoji, and control characters do not reach the terminal."""
    return Text(printable(text), style=style)


def printable(text: str) -> str:
    """The text with what no terminal should be sent written out: escape sequences, and bytes that are no UTF-8."""
    return "".join(c if c.isprintable() or c in "\n\t\N{NO-BREAK SPACE}" else c.encode("unicode_escape").decode() for c in text)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line, which is not wrapped, so that a path can be copied from it."""
    console.print(plain(text, style), soft_wrap=True)


def counted(number_of: int, thing: str) -> str:
    """1 patient, 2 patients."""
    return f"{number_of} {thing}{'' if number_of == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time as one reads it: 40 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """Several tasks, each with a field `note`, as bars or as lines."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    title, note = TextColumn("{task.description:<8}", markup=False), TextColumn("{task.fields[note]}", markup=False)
    shown = _shown(console)
    bars = Progress(title, *columns, note, console=console, disable=not shown, speed_estimate_period=PACE_S)
    if shown:
        with bars:
            yield bars
        return
    reported = set()
    with _every_minute(lambda: _report(bars, reported)):
        yield bars
    stop_clocks(bars)
    _report(bars, reported)


def stop_clocks(bars: Progress) -> None:
    """Stop the clocks that run: these tasks do not go on."""
    for task in bars.tasks:
        if task.stop_time is None:
            bars.stop_task(task.id)


@contextmanager
def waiting(console: Console, title: str) -> Iterator[None]:
    """Work of unknown length that is done meanwhile."""
    if _shown(console):
        with console.status(plain(title)):
            yield
        return
    began = time.monotonic()
    with _every_minute(lambda: say(console, f"{title}: {duration(time.monotonic() - began)} so far")):
        yield
    say(console, f"{title}: {duration(time.monotonic() - began)}")


def progress_line(task: Task) -> str:
    """How far a task is, and when it will be done; of one that is over, how long it took."""
    done = f"{task.description}: {task.completed:.0f}" + (f" of {task.total:.0f}" if task.total else "")
    took = task.finished_time if task.finished_time is not None else task.elapsed or 0.0
    if _over(task):
        done += f" in {duration(took)}"
    elif task.time_remaining is not None:
        done += f", about {duration(float(task.time_remaining))} left"
    return ", ".join(filter(None, [done, task.fields.get("note")]))


def _report(bars: Progress, reported: set[int]) -> None:
    """A line for each task; a last one for each that is over, and none for one that had nothing to do."""
    for task in bars.tasks:
        if task.id in reported or task.total == 0:
            continue
        if _over(task):
            reported.add(task.id)
        say(bars.console, progress_line(task))


def _over(task: Task) -> bool:
    return task.finished or task.stop_time is not None


def _shown(console: Console) -> bool:
    """Whether bars can be drawn: not in a pipe, even where FORCE_COLOR asks for colours there."""
    return console.is_jupyter or (console.is_interactive and console.file.isatty())


@contextmanager
def _every_minute(report: Callable[[], None]) -> Iterator[None]:
    """Call `report` in a thread of its own, for an epoch may take longer."""
    over = Event()

    def repeat() -> None:
        while not over.wait(EVERY_S):
            try:
                report()
            except OSError:  # whoever was reading has gone; what is printed next says so
                return

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
