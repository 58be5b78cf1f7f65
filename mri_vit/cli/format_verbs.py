"""The command line's verbs that describe files: the keys of the study file, laid out for a terminal or for a program that reads
lines, and the JSON Schema of documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mri_vit.cli.arguments import Output
from mri_vit.errors import UsageError
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.keys import Key, keys, question, renamed, sections
from mri_vit.settings.recipe import Comparator


def settings(key: str = "", /) -> None:
    """List the keys of the study file, each with its type, its default and what it is, or those asked about.

    In a terminal by section, otherwise one a line with tabs between.

    Parameters
    ----------
    key
        A section (train), a key (train.epochs) or its last part (epochs); all where none is named.
    """
    from rich.console import Console

    listed, console = find_keys(key), Console()
    if console.is_terminal:
        console.print(key_table(listed))
    else:
        for line in key_lines(listed):
            print(line)


def schema(
    *, of: Literal["report", "check", "comparison", "prediction"] = "report", output: Annotated[Path | None, Output] = None
) -> None:
    """Write the JSON Schema of metrics.json or another document.

    Parameters
    ----------
    of
        metrics.json of a report, what `check --json` prints, a comparison.json, or a patient's prediction.json.
    output
        The file; if none is given, the schema is printed.
    """
    import json

    from mri_vit.finished import comparison_document as comparison
    from mri_vit.finished import prediction_document as prediction
    from mri_vit.preflight import document
    from mri_vit.report.schema import metrics
    from mri_vit.run.atomic import write_bytes

    documents = {"report": metrics, "check": document, "comparison": comparison, "prediction": prediction}
    text = json.dumps(documents[of].json_schema(), indent=1, ensure_ascii=False)
    if output:
        write_bytes(f"{text}\n".encode(), output)
    else:
        print(text)


LISTS = {"endpoints": Endpoint, "comparators": Comparator}  # [[sections]], of which a file may have several


def find_keys(name: str = "") -> list[Key]:
    """The keys of a section, or of this name or last part; all where none is named.

    Raises UsageError where there is none, with what was meant.
    """
    known = [*keys(), *(key for head, section in LISTS.items() for key in keys(section, f"{head}."))]
    wanted = name.strip("-[]")
    matching = (
        known
        if not wanted
        else [key for key in known if key.section == wanted] or [key for key in known if f".{key.name}".endswith(f".{wanted}")]
    )
    if new := renamed(wanted):
        raise UsageError(f"unknown key {name}: it is now {new}")
    if not matching:
        answer = question(wanted, [*filter(None, section_titles()), *(key.name for key in known)], "`mri-vit settings` lists all")
        raise UsageError(f"unknown key {name}; {answer}")
    return matching


def section_titles() -> dict[str, str]:
    """What each section is about, by name; those of lists too."""
    return {**sections(), **{name: (section.__doc__ or "").partition("\n")[0].rstrip(".") for name, section in LISTS.items()}}


def key_lines(listed: Sequence[Key]) -> Iterator[str]:
    """One a key: name, type, default and what it is, with tabs between."""
    for key in listed:
        yield "\t".join([key.name, key.kind, _default(key), key.description])


def key_table(listed: Sequence[Key]) -> Group:
    """Section by section, names beside what there is to say of them."""
    width = max(len(key.name) for key in listed)  # the same in every section
    shown = []
    for name, about in section_titles().items():
        if rows := [key for key in listed if key.section == name]:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(min_width=width, no_wrap=True)
            grid.add_column()
            for key in rows:
                said = Text.assemble((key.kind, "cyan"), f", {_default(key)}\n", (key.description, "dim"))
                grid.add_row(Text(key.name, style="bold"), said)
            shown += [Text.assemble((_bracketed(name), "bold green"), f"{about}\n"), grid, Text()]
    return Group(*shown[:-1])


def _bracketed(name: str) -> str:
    if name in LISTS:
        return f"[[{name}]] "
    return f"[{name}] " if name else ""


def _default(key: Key) -> str:
    return "must be given" if key.default is None else f"default {key.default}"
