"""Screen: what the terminal shows. Text from outside (names, paths, columns) is shown as it is and never read as markup."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

WARNING = "yellow"


def plain(text: str, style: str = "") -> Text:
    """Text as it is: brackets are no markup, colons no emoji, and control characters do not reach the terminal."""
    return Text(printable(text), style=style)


def printable(text: str) -> str:
    """The text with what no terminal should be sent written out: escape sequences, and bytes that are no UTF-8."""
    return "".join(c if c.isprintable() or c in "\n\t\N{NO-BREAK SPACE}" else c.encode("unicode_escape").decode() for c in text)


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line, which is not wrapped, so that a path can be copied from it."""
    console.print(plain(text, style), soft_wrap=True)


def duration(seconds: float) -> str:
    """A time as one reads it: 40 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
