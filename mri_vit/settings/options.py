"""The keys of the study file as options of the command line, and how --help lays them out."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from cyclopts import Group, Parameter

from mri_vit.settings.keys import Key, keys, sections

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

SHORT = {"output": "-o", "executor.kind": "--executor"}
COLUMN = 14  # where descriptions of verbs begin


def overrides() -> Any:
    """A TypedDict of text by dotted key, each key an option: what is not given is not in it, so that the file's value stays."""
    groups = {
        name: Group.create_ordered(f"[{name}] {about}" if name else about, help_formatter=Layout())
        for name, about in sections().items()
    }
    each = {key.name: Annotated[str, _option(key, groups[key.section])] for key in keys()}
    return TypedDict("Overrides", each, total=False)  # type: ignore[misc]  # which keys there are, the schema knows


def _option(key: Key, group: Group) -> Parameter:
    return Parameter(
        name=f"--{key.name}",  # as in the file; cyclopts on its own writes hyphens for underscores
        alias=SHORT.get(key.name),
        group=group,
        metavar=key.kind,
        show_default=key.default or False,
        help=key.description,
        allow_repeating=True,  # the last one counts, so that a script's options can be overridden in turn
    )


class Layout:
    """Plain text for 80 columns: what can be given with its type and default, and below it what it is about."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one part of the help."""
        if not panel.entries:
            return
        _print(console, f"{panel.title}:")
        for entry in panel.entries:
            about = _text(entry.description)
            if panel.format == "command":
                name = f"  {', '.join(entry.display_labels)}"
                if len(name) >= COLUMN:  # a line of its own
                    _print(console, name)
                    name = ""
                _print(console, _wrapped(f"{name:<{COLUMN}}{about}", options.max_width, COLUMN, ""))
            else:
                _print(console, _wrapped(_head(entry), options.max_width, 6))
                _print(console, textwrap.indent(_wrapped(about, options.max_width - 4, 2), " " * 4))
        console.print()

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the first line."""
        _print(console, f"Usage: {_text(usage)}\n")


def _head(entry: HelpEntry) -> str:
    names = " ".join([", ".join(entry.display_labels), entry.metavar or ""]).rstrip()
    return f"{names} (default {entry.default})" if entry.default else names


def _wrapped(text: str, width: int, indent: int, first: str = "  ") -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=" " * indent, break_on_hyphens=False)


def _text(shown: Any) -> str:
    """The plain text of what cyclopts hands over."""
    shown = getattr(shown, "primary_renderable", shown)
    return str(getattr(shown, "plain", shown) or "").strip()


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
