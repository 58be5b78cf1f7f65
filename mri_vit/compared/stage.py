"""Stage: two finished runs set beside each other; nothing is fitted anew, and neither run's folder is written to."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit.compared import differences, numbers, page, runs, words
from mri_vit.compared.document import SCHEMA, Comparison, Folds, Side
from mri_vit.compared.runs import Runs
from mri_vit.report.words import notation
from mri_vit.report.words.notation import counted
from mri_vit.run import folder as run_folder
from mri_vit.run.screen import plain, say

SETTINGS_SHOWN = 6  # lines of the terminal; the page has them all


def run(a: Path, b: Path, output: Path | None, console: Console) -> Comparison:
    """Compare two run folders, write `comparison.json` and a page into `output`, and print the results.

    `output` is `comparison-<a>-<b>` here where none is named, after the runs' folders.

    Raises
    ------
    UsageError
        As `runs.read_both` and `page.refuse` do.
    IntegrityError
        A run was changed after it was written, or `output` is a link.
    FolderHeld
        Another process writes into `output`.
    """
    home = output or Path("-".join(("comparison", *(folder.resolve().name for folder in (a, b)))))
    page.refuse(home)
    both = runs.read_both(a, b, console)
    found = compare(both)
    with run_folder.held(home, ()):
        written = page.write(both, found, home)
    _show(found, console)
    say(console, f"comparison: {written}")
    return found


def compare(both: Runs) -> Comparison:
    """All numbers and sentences of two runs side by side."""
    a, b = differences.sides(both)
    endpoints = numbers.measure(both)
    same, inflation = numbers.same_folds(both), numbers.inflation(both)
    tests = sum(numbers.tested(found.kind, one) for found in endpoints.values() for one in found.models.values())
    return Comparison(
        schema=SCHEMA,
        a=a,
        b=b,
        settings=differences.settings(both),
        versions=differences.versions(both),
        patients=differences.patients(both),
        folds=Folds(same=same, inflation=inflation, sentence=words.folds(same, (a.design, b.design))),
        endpoints={name: words.with_verdict(found) for name, found in endpoints.items()},
        endpoints_alone=differences.endpoints_alone(both),
        models_alone=differences.models_alone(both),
        costs=differences.costs(both),
        tests=tests,
        rules=words.rules(tests, inflation),
    )


def _show(found: Comparison, console: Console) -> None:
    """Print the runs, what differs, and the results; fits 80 columns."""
    for letter, side in (("A", found.a), ("B", found.b)):
        console.print(plain(f"{letter}  {_described(side)}"))
    decisive = [one for one in found.settings if one.decides]
    for one in decisive[:SETTINGS_SHOWN]:
        console.print(plain(f"   {one.key}: {notation.setting(one.a)} in A, {notation.setting(one.b)} in B"))
    if len(decisive) > SETTINGS_SHOWN:
        console.print(plain(f"   and {counted(len(decisive) - SETTINGS_SHOWN, 'setting')} more"))
    console.print(_table(found))
    console.print(plain(found.folds.sentence))
    for name, endpoint in found.endpoints.items():
        for one in (one for one in endpoint.models.values() if one.role == "own"):
            console.print(plain(f"- {notation.title(name)}: {one.verdict}"))


def _described(side: Side) -> str:
    return f"{side.name}: {words.DESIGNS[side.design]}, {side.patients} patients"


def _table(found: Comparison) -> Table:
    title = f"On {found.patients.both} patients in both runs; adjusted p of {found.tests} tests"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in ("endpoint", "model", "n", "A", "B", "A − B [95 %]", "adj. p"):
        table.add_column(column, no_wrap=column in ("n", "A", "B", "A − B [95 %]"))
    for name, endpoint in found.endpoints.items():
        for model, one in endpoint.models.items():
            figures = [notation.number(side.value) for side in (one.a, one.b)]
            cells = [name, model, str(one.n), *figures, notation.change(one.difference, one.low, one.high)]
            table.add_row(*(plain(cell) for cell in (*cells, words.KINDS["same"] if one.kind == "same" else _p(one.p_adjusted))))
    return table


def _p(value: float) -> str:
    return notation.p_alone(value) if notation.is_defined(value) else "–"
