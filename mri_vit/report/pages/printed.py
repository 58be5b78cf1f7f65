"""Printed: a finished run, or a table of predictions made elsewhere, goes in; its report is written, and its results are printed.

Nothing here loads what trains: a table's report takes neither PyTorch's memory nor its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit.errors import UsageError
from mri_vit.report.pages import home, html
from mri_vit.report.reading.run import read_run, run_from_tables
from mri_vit.report.words import terminal
from mri_vit.run import files, integrity, ownership
from mri_vit.run.screen import plain, say


def report(folder: Path, console: Console, pages: bool = False) -> html.Written:
    """Write the report of a run folder and print where it is, with a short table of results and the verdicts.

    Of more than `html.MOST_PAGES` visits, each gets a page only where `pages` asks for it.
    """
    if not (folder / files.PREDICTIONS).exists():
        raise UsageError(f"{folder}: no {files.PREDICTIONS}; run `mri-vit train` first")
    integrity.refuse_changed_run(folder, console, names=integrity.TABLES)
    written = html.write(read_run(folder), folder / files.REPORT, None if pages else html.MOST_PAGES)
    show(written, console)
    return written


def table_report(
    scores: Path, people: Path, output: Path, subgroups: tuple[str, ...], console: Console, pages: bool = False
) -> Path:
    """Write a report into `output` from a table of predictions made elsewhere, about the patients of a cohort table.

    `subgroups` are columns to look into beside the usual ones; `pages` as for `report`.
    """
    home.refuse(output)
    found = run_from_tables(scores, people, output, subgroups)
    with ownership.held(output, home.FOLDERS):
        written = html.write(found, output, None if pages else html.MOST_PAGES)
    show(written, console)
    return written.page


def show(written: html.Written, console: Console) -> None:
    """Print a report's results and its path."""
    _print_table(console, "Results", terminal.COLUMNS, [astuple(row) for row in terminal.rows(written.metrics)])
    for sentence in terminal.verdicts(written.metrics):
        console.print(plain(f"- {sentence}"))
    if found := terminal.planted(written.metrics):
        _print_table(console, "What was planted and what was found", terminal.PLANTED, found)
    if len(written.metrics.patients) > html.MOST_PAGES and not any(
        name.startswith("patients/") for name in written.metrics.files
    ):
        say(console, f"no pages of {len(written.metrics.patients):,} patients; `mri-vit report … --patient-pages` writes them")
    say(console, f"report: {written.page}")


def _print_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)  # 80 columns
    for column in columns:
        table.add_column(plain(column))
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    console.print(table)
