"""Compare: two finished runs set beside each other, on one self-contained page and in `comparison.json`.

Nothing is fitted anew, and neither run's folder is written to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit import style
from mri_vit.finished import comparison_document, comparison_numbers, paired_runs
from mri_vit.finished.comparison_document import SCHEMA, Compared, Comparison, EndpointCompared, Folds, Side
from mri_vit.finished.paired_runs import Rows, Runs
from mri_vit.report.figures import panels
from mri_vit.report.figures.panels import DASHED, ForestRow, ForestScale
from mri_vit.report.figures.pictures import data_url
from mri_vit.report.numbers import results
from mri_vit.report.reading.run import OWN
from mri_vit.report.words import notation
from mri_vit.report.words.notation import change, counted, listed, title, with_sign
from mri_vit.run import atomic, files
from mri_vit.run.atomic import refuse_foreign, refuse_link, write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.screen import plain, say
from mri_vit.settings.recipe import is_candidate
from mri_vit.settings.schema import Endpoint
from mri_vit.style import GREY, INK, VERMILLION

SETTINGS_SHOWN = 6  # lines of the terminal; the page has them all
RECORD = "comparison.json"
MARKS = {"schema", "a", "b", "endpoints", "tests"}  # keys that the record has
NAMED = 40  # patients of one run alone whose ids stand on the page; the record has them all
LETTERS = 18  # of a label beside the axis
REACHES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # how far an axis may go to both sides of 0
Groups = Sequence[tuple[str, Sequence[ForestRow]]]
FLAGS = {"binary": ("positive", "negative"), "survival": ("died", "censored")}


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
    refuse(home)
    both = paired_runs.read_both(a, b, console)
    found = compare(both)
    with atomic.held(home, ()):
        written = write_comparison(both, found, home)
    _show(found, console)
    say(console, f"comparison: {written}")
    return found


def compare(both: Runs) -> Comparison:
    """All numbers and sentences of two runs side by side."""
    a, b = paired_runs.sides(both)
    endpoints = comparison_numbers.compared_endpoints(both)
    same, inflation = comparison_numbers.same_folds(both), comparison_numbers.inflation(both)
    tests = sum(comparison_numbers.tested(found.kind, one) for found in endpoints.values() for one in found.models.values())
    return Comparison(
        schema=SCHEMA,
        a=a,
        b=b,
        settings=paired_runs.settings(both),
        versions=paired_runs.versions(both),
        patients=paired_runs.patients(both),
        folds=Folds(same=same, inflation=inflation, sentence=comparison_numbers.folds_sentence(same, (a.design, b.design))),
        endpoints={name: comparison_numbers.with_verdict(found) for name, found in endpoints.items()},
        endpoints_alone=paired_runs.endpoints_alone(both),
        models_alone=paired_runs.models_alone(both),
        costs=paired_runs.costs(both),
        tests=tests,
        rules=comparison_numbers.rules(tests, inflation),
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
    return f"{side.name}: {comparison_numbers.DESIGNS[side.design]}, {side.patients} patients"


def _table(found: Comparison) -> Table:
    title = f"On {found.patients.both} patients in both runs; adjusted p of {found.tests} tests"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in ("endpoint", "model", "n", "A", "B", "A − B [95 %]", "adj. p"):
        table.add_column(column, no_wrap=column in ("n", "A", "B", "A − B [95 %]"))
    for name, endpoint in found.endpoints.items():
        for model, one in endpoint.models.items():
            figures = [notation.number(side.value) for side in (one.a, one.b)]
            cells = [name, model, str(one.n), *figures, notation.change(one.difference, one.low, one.high)]
            table.add_row(
                *(
                    plain(cell)
                    for cell in (*cells, comparison_numbers.KINDS["same"] if one.kind == "same" else _p(one.p_adjusted))
                )
            )
    return table


def _p(value: float) -> str:
    return notation.p_alone(value) if notation.is_defined(value) else "–"


def refuse(home: Path) -> None:
    """Raise UsageError when `home` holds something else than a comparison of ours, IntegrityError when it is a link."""
    refuse_link(home)
    refuse_foreign(home, set(read_json_or_empty(home / RECORD)) >= MARKS, "comparison")


def write_comparison(runs: Runs, found: Comparison, home: Path) -> Path:
    """Write `comparison.json` and `index.html` into the folder `home`, which there is, and return the page's path.

    Raises as `refuse` does.
    """
    refuse(home)
    text = page_html(found, drawn(runs, found))
    write_bytes(comparison_document.dumps(found).encode(), home / RECORD)
    write_bytes(text.encode(), home / files.PAGE)  # last, so that a page is never newer than what it rests on
    return home / files.PAGE


def drawn(runs: Runs, found: Comparison) -> dict[str, str]:
    """The figures by name as data: URLs: the forest of differences, and for each endpoint how the own model ranks patients."""
    groups = patient_groups(found.endpoints)
    made = {"forest": forest(groups)} if groups else {}
    for endpoint in runs.endpoints:
        own = [rows for rows in runs.rows[endpoint.name] if rows.model == OWN]
        if own and not found.endpoints[endpoint.name].models[OWN].same_predictions:
            made[f"ranks {endpoint.name}"] = scatter(endpoint, own[0])
    return {name: data_url(style.to_bytes(figure, "svg"), "image/svg+xml") for name, figure in made.items()}


def page_html(found: Comparison, pictures: dict[str, str]) -> str:
    """The page, with nothing that is fetched from elsewhere; `pictures` are its figures as data: URLs by name."""
    environment = style.templates("mri_vit.report.pages")
    environment.filters.update(
        number=notation.number,
        between=notation.between,
        interval=notation.interval,
        change=notation.change,
        adjusted_p=notation.adjusted_p,
        p_alone=notation.p_alone,
        setting=notation.setting,
        significant=notation.significant,
        duration=notation.duration,
        title=notation.title,
        counted=counted,
        listed=listed,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    return environment.get_template("compared.html").render(
        c=found,
        own=OWN,
        pictures=pictures,
        kinds=comparison_numbers.KINDS,
        marks=comparison_numbers.MARKS,
        designs=comparison_numbers.DESIGNS,
        roles=comparison_numbers.ROLES,
        marked=comparison_numbers.MARKED,
        symbols=comparison_numbers.SYMBOLS,
        controls=notation.EXPLAINED,
        named=NAMED,
        record=RECORD,
    )


def forest(groups: Groups) -> Figure:
    """The difference of each model's figure, A less B, by endpoint; a filled mark is a difference by the page's rules."""
    reach = _reach([row for _, rows in groups for row in rows])
    ticks = [(at, _tick(at)) for at in (-reach, 0.0, reach)]
    return panels.forest(groups, "← B better      A better →", ForestScale(-reach, reach, 0.0, ticks, (-reach / 2, reach / 2)))


def patient_groups(endpoints: Mapping[str, EndpointCompared]) -> Groups:
    """What the forest shows, by endpoint; nothing where there is nothing to show."""
    return [(title(name), rows) for name, found in endpoints.items() if (rows := _rows(found))]


def scatter(endpoint: Endpoint, rows: Rows) -> Figure:
    """Each patient's rank within the fold by B over that by A: on the dashed line both runs rank the patient alike."""
    a, b, marked = comparison_numbers.ranks(rows.a), comparison_numbers.ranks(rows.b), comparison_numbers.marked(endpoint, rows.a)
    yes, no = FLAGS[endpoint.kind]
    with panels.panel(height=panels.SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="ranked alike")
        # Pixels, since ten thousand marks would be megabytes as vectors.
        axes.plot(a[~marked], b[~marked], "o", ms=5, mec=GREY, mfc="white", mew=1.1, label=no, rasterized=True)
        axes.plot(a[marked], b[marked], "D", ms=4.6, color=VERMILLION, mew=0, alpha=0.85, label=yes, rasterized=True)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set(xlabel="Rank within the fold, A (1: highest)", ylabel="Rank within the fold, B (1: highest)")
        panels.legend_below(figure, 3)
    return figure


def _tick(value: float) -> str:
    """−0.2, 0, +0.2."""
    return with_sign(value).rstrip("0").rstrip(".") if value else "0"


def _rows(found: EndpointCompared) -> list[ForestRow]:
    """The own model, and of the others that a report shows those whose predictions differ."""
    candidates = results.shown([model for model in found.models if is_candidate(model)])
    shown = {
        model: one
        for model, one in found.models.items()
        if one.role == "own" or (one.kind != "same" and (model in candidates or one.role == "control"))
    }
    return [_row(model, shown[model], stroke) for model, stroke in panels.drawn(shown)]


def _row(model: str, one: Compared, stroke: panels.Stroke) -> ForestRow:
    label = model if len(model) <= LETTERS else f"{model[: LETTERS - 1]}…"
    if one.kind in ("same", "undefined"):  # nothing was tested
        text = "same predictions" if one.kind == "same" else "not compared"
        return ForestRow(
            label, text, one.difference if one.kind == "same" else math.nan, one.difference, one.difference, stroke, False
        )
    text = change(one.difference, one.low, one.high)
    return ForestRow(label, text, one.difference, one.low, one.high, stroke, filled=one.kind in ("a", "b"))


def _reach(rows: Sequence[ForestRow]) -> float:
    """How far the axis goes, so that nothing lies outside."""
    ends = [abs(end) for row in rows for end in (row.value, row.low, row.high) if not math.isnan(end)]
    return next((reach for reach in REACHES if reach >= max(ends, default=0.0)), max(ends, default=0.0))
