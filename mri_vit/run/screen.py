"""Screen: what the terminal shows. Text from outside (names, paths, columns) is shown as it is and never read as markup."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

WARNING = "yellow"


def plain(text: str, style: str = "") -> Text:
    """Text as it is: brackets are no markup, colons no emoji, and control characters do not reach the terminal."""
    return Text(printable(text), style=style)


def printable(text: str) -> str:
    """The text with what no terminal should be sent written out: escape sequences, and bytes that are no UTF-8."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line, which is not wrapped, so that a path can be copied from it."""
    console.print(plain(text, style), soft_wrap=True)


def progress(console: Console) -> Progress:
    """Bars of several tasks, each with a field `note`."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    title, note = TextColumn("{task.description:<8}", markup=False), TextColumn("{task.fields[note]}", markup=False)
    return Progress(title, *columns, note, console=console)
