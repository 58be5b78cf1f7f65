"""Compare two finished runs: their settings, patients and costs, paired tests, a self-contained page and `comparison.json`.

Nothing is fitted anew, and neither run's folder is written to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit import style
from mri_vit.finished import comparison, paired_runs
from mri_vit.finished.comparison import (
    SCHEMA,
    Alone,
    Comparison,
    Cost,
    Costs,
    EndpointCompared,
    Folds,
    Patients,
    Setting,
    Side,
)
from mri_vit.finished.paired_runs import Opened, Rows, Runs
from mri_vit.kinds.kind import labels, part
from mri_vit.report.figures import panels
from mri_vit.report.figures.panels import DASHED, ForestRow, ForestScale
from mri_vit.report.numbers import results
from mri_vit.report.schema.parts import OWN, Environment
from mri_vit.report.words import notation
from mri_vit.report.words.notation import change, counted, is_defined, listed, title, with_sign
from mri_vit.run import atomic, files
from mri_vit.run.atomic import refuse_foreign, refuse_link, write_bytes
from mri_vit.run.folder import FREE
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.screen import plain, say
from mri_vit.settings.recipe import is_compared
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.style import GREY, INK, VERMILLION

SETTINGS_SHOWN = 6  # settings on the terminal; the page has all
RECORD = "comparison.json"
MARKS = {"schema", "a", "b", "endpoints", "tests"}  # keys of the record
LISTED_PATIENTS = 40  # ids of patients of only one run that the page lists; the record has all
LABEL_LETTERS = 18  # of a label beside the axis
AXIS_ENDS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # ends of an axis, to both sides of 0
OF_THE_MACHINE = ("cohort", "prepared", "output")  # paths; the section on patients covers their content
FILES = ("model.weights", "qc.decisions", "prepare.brain_command", "prepare.tumour_command")  # paths compared by file name only


def run(a: Path, b: Path, output: Path | None, console: Console) -> Comparison:
    """Compare two run folders, write `comparison.json` and a page into `output`, and print the results.

    By default `output` is `comparison-<a>-<b>` in the current folder, after the runs' folders.

    Raises
    ------
    UsageError
        As `paired_runs.read_both` and `refuse` do.
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
        page = write_comparison(both, found, home)
    _print(found, console)
    say(console, f"comparison: {page}")
    return found


def compare(both: Runs) -> Comparison:
    """All numbers and sentences of the comparison."""
    a, b = sides(both)
    endpoints = comparison.compared_endpoints(both)
    same, inflation = comparison.same_folds(both), comparison.inflation(both)
    tests = sum(
        not row.same_predictions and not comparison.few(row.rarer)
        for endpoint in endpoints.values()
        for row in endpoint.models.values()
    )
    names = [[endpoint.name for endpoint in opened.run.study.endpoints] for opened in (both.a, both.b)]
    return Comparison(
        schema=SCHEMA,
        a=a,
        b=b,
        settings=settings(both),
        versions=tuple(_differing(_made_with(both.a), _made_with(both.b))),
        patients=patients(both),
        folds=Folds(same=same, inflation=inflation, sentence=comparison.folds_sentence(same, (a.design, b.design))),
        endpoints=endpoints,
        endpoints_alone=_alone(*names),
        models_alone=_alone(both.a.models, both.b.models),
        costs=costs(both),
        tests=tests,
        rules=comparison.rules(tests, inflation),
    )


def sides(runs: Runs) -> tuple[Side, Side]:
    """Each run under a distinct name."""
    both = (runs.a, runs.b)
    studies = [opened.run.study.name for opened in both]
    folders = [opened.folder.resolve().name for opened in both]
    names = next((pair for pair in (studies, folders) if len(set(pair)) == 2), [f"{studies[0]} (A)", f"{studies[1]} (B)"])
    a, b = (_side(opened, name) for opened, name in zip(both, names, strict=True))
    return a, b


def settings(runs: Runs) -> tuple[Setting, ...]:
    """Every differing key of the study files, defaults filled in; first those that can change a prediction."""
    a, b = (dict(_flat(_plain(opened.run.study))) for opened in (runs.a, runs.b))
    return tuple(sorted(_differing(a, b), key=lambda setting: not setting.decides))  # otherwise in the study file's order


def patients(runs: Runs) -> Patients:
    """Patients in both runs, and in only one."""
    a, b = runs.a.people, runs.b.people
    ours, theirs = runs.a.scans, runs.b.scans
    other = None
    if ours is not None and theirs is not None:
        other = tuple(sorted({scan[0] for scan in ours.keys() & theirs.keys() if ours[scan] != theirs[scan]}))
    return Patients(both=len(a & b), a_alone=tuple(sorted(a - b)), b_alone=tuple(sorted(b - a)), other_scans=other)


def costs(runs: Runs) -> dict[str, Costs]:
    """The costs of each model of both runs, where both recorded any."""
    found = {}
    for model in (name for name in runs.a.models if name in runs.b.models):
        a, b = (Cost.model_validate(vars(results.costs(opened.run, model))) for opened in (runs.a, runs.b))
        if any(is_defined(getattr(a, name)) and is_defined(getattr(b, name)) for name in Cost.model_fields):
            found[model] = Costs(a=a, b=b)
    return found


def _side(opened: Opened, name: str) -> Side:
    run = opened.run
    environment = run.environment
    known = isinstance(environment, Environment)
    return Side(
        name=name,
        study=run.study.name,
        folder=opened.folder.resolve().name,
        design=run.design,
        patients=len(opened.people),
        folds=int(run.predictions.fold.nunique()),
        repeats=int(run.predictions.repeat.nunique()),
        folds_sha256=run.folds_sha256,
        device=environment.device if known else "",
        started=environment.started if known else "",
    )


def _plain(study: Study) -> dict[str, Any]:
    """The settings as JSON has them: the network's width and depth in numbers, paths as file names, lists of tables by name."""
    plain = study.model_dump(mode="json", exclude={*OF_THE_MACHINE, "name"})
    plain["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), study.model.shape, strict=True))
    if study.pretrain.method == "none":  # what did not happen has no settings
        plain["pretrain"] = {"method": "none"}
    for table in ("endpoints", "comparators"):
        plain[table] = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in plain[table]}
    return plain


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; an empty table, such as a comparator without keys of its own, is a value."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield key, _file_name(value) if key in FILES or key.endswith(".weights") else value


def _file_name(value: Any) -> Any:
    if isinstance(value, list):
        return [_file_name(one) for one in value]
    return Path(value).name if isinstance(value, str) else value


def _made_with(opened: Opened) -> dict[str, Any]:
    environment = opened.run.environment
    if not isinstance(environment, Environment):
        return {}
    facts = {"git commit": environment.git_commit, "device": environment.device, "threads": environment.threads}
    return {**environment.versions, **facts}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Setting]:
    keys = [*a, *(key for key in b if key not in a)]
    return [
        Setting(key=key, a=a.get(key), b=b.get(key), decides=not FREE & {key, key.partition(".")[0]})
        for key in keys
        if a.get(key) != b.get(key)
    ]


def _alone(a: list[str], b: list[str]) -> Alone:
    return Alone(a=tuple(name for name in a if name not in b), b=tuple(name for name in b if name not in a))


def _print(found: Comparison, console: Console) -> None:
    """Print the runs, differing settings, and the results; fits 80 columns."""
    for letter, side in (("A", found.a), ("B", found.b)):
        console.print(plain(f"{letter}  {side.name}: {comparison.DESIGNS[side.design]}, {counted(side.patients, 'patient')}"))
    decisive = [setting for setting in found.settings if setting.decides]
    for setting in decisive[:SETTINGS_SHOWN]:
        console.print(plain(f"   {setting.key}: {notation.setting(setting.a)} in A, {notation.setting(setting.b)} in B"))
    if len(decisive) > SETTINGS_SHOWN:
        console.print(plain(f"   and {counted(len(decisive) - SETTINGS_SHOWN, 'setting')} more"))
    console.print(_table(found))
    console.print(plain(found.folds.sentence))
    for name, endpoint in found.endpoints.items():
        for row in (row for row in endpoint.models.values() if row.role == "own"):
            console.print(plain(f"- {title(name)}: {row.verdict}"))


def _table(found: Comparison) -> Table:
    heading = f"On {counted(found.patients.both, 'patient')} in both runs; p adjusted over {counted(found.tests, 'test')}"
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in ("endpoint", "model", "n", "A", "B", "A − B [95 %]", "adj. p"):
        table.add_column(column, no_wrap=column in ("n", "A", "B", "A − B [95 %]"))
    for name, endpoint in found.endpoints.items():
        for model, row in endpoint.models.items():
            p = notation.p_alone(row.p_adjusted) if notation.is_defined(row.p_adjusted) else "–"
            results = [notation.number(side.value) for side in (row.a, row.b)]
            unjudged = comparison.few(row.rarer)  # an interval would vouch for such a difference
            difference = with_sign(row.difference) if unjudged else change(row.difference, row.low, row.high)
            cells = [name, model, str(row.n), *results, difference]
            table.add_row(*(plain(cell) for cell in (*cells, comparison.KINDS["same"] if row.kind == "same" else p)))
    return table


def refuse(home: Path) -> None:
    """Raise UsageError when `home` holds anything but a comparison by mri-vit, IntegrityError when it is a link."""
    refuse_link(home)
    refuse_foreign(home, set(read_json_or_empty(home / RECORD)) >= MARKS, "comparison")


def write_comparison(runs: Runs, found: Comparison, home: Path) -> Path:
    """Write `comparison.json` and `index.html` into the existing folder `home`, and return the page's path.

    Raises as `refuse` does.
    """
    refuse(home)
    competing = {endpoint.name: "with the event" for endpoint in runs.endpoints if endpoint.competing}
    text = page_html(found, drawn(runs, found), competing)
    write_bytes(comparison.dumps(found).encode(), home / RECORD)
    write_bytes(text.encode(), home / files.PAGE)  # last, so that a page is never newer than what it rests on
    return home / files.PAGE


def drawn(runs: Runs, found: Comparison) -> dict[str, str]:
    """The figures by name as data: URLs: the forest of differences, A minus B, and a scatter of ranks by the own model."""
    figures = {}
    if groups := [(title(name), rows) for name, endpoint in found.endpoints.items() if (rows := _forest_rows(endpoint))]:
        ends = [end for _, rows in groups for row in rows for end in (row.value, row.low, row.high)]
        furthest = max((abs(end) for end in ends if not math.isnan(end)), default=0.0)
        reach = next((reach for reach in AXIS_ENDS if reach >= furthest), furthest)
        ticks = [(at, with_sign(at).rstrip("0").rstrip(".") if at else "0") for at in (-reach, 0.0, reach)]
        scale = ForestScale(-reach, reach, 0.0, ticks, (-reach / 2, reach / 2))
        figures["forest"] = panels.forest(groups, "← B better      A better →", scale)
    for endpoint in runs.endpoints:
        own = [rows for rows in runs.rows[endpoint.name] if rows.model == OWN]
        if own and not found.endpoints[endpoint.name].models[OWN].same_predictions:
            figures[f"ranks {endpoint.name}"] = scatter(endpoint, own[0])
    return {name: style.data_url(style.to_bytes(figure, "svg"), "image/svg+xml") for name, figure in figures.items()}


def _forest_rows(endpoint: EndpointCompared) -> list[ForestRow]:
    """The own model, and those other models of a report whose predictions differ; filled where one run is better."""
    compared = results.shown([model for model in endpoint.models if is_compared(model)])
    shown = {
        model: row
        for model, row in endpoint.models.items()
        if row.role == "own" or (row.kind != "same" and (model in compared or row.role == "control"))
    }
    rows = []
    for model, stroke in panels.drawn(shown):
        row, label = shown[model], panels.shortened(model, LABEL_LETTERS)
        value, low, high = row.difference, row.low, row.high
        text = change(value, low, high)
        if row.kind in ("same", "undefined"):  # not tested
            text, low, high = ("same predictions" if row.kind == "same" else "not compared"), value, value
            value = value if row.kind == "same" else math.nan
        rows.append(ForestRow(label, text, value, low, high, stroke, filled=row.kind in ("a", "b")))
    return rows


def scatter(endpoint: Endpoint, rows: Rows) -> Figure:
    """Each patient's rank within the fold by B against that by A; on the dashed line both ranks are equal."""
    a, b, marked = comparison.ranks(rows.a), comparison.ranks(rows.b), comparison.marked(endpoint, rows.a)
    yes = "with the event" if endpoint.competing else labels(endpoint).marked_as or "patients"
    with panels.panel(height=panels.SQUARE_INCHES) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="equal rank")
        # Pixels, since ten thousand marks would be megabytes as vectors.
        if not marked.all():
            axes.plot(a[~marked], b[~marked], "o", ms=5, mec=GREY, mfc="white", mew=1.1, label="others", rasterized=True)
        axes.plot(a[marked], b[marked], "D", ms=4.6, color=VERMILLION, mew=0, alpha=0.85, label=yes, rasterized=True)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set(xlabel="Rank within the fold, A (1: highest)", ylabel="Rank within the fold, B (1: highest)")
        panels.legend_below(figure, 3)
    return figure


def page_html(found: Comparison, pictures: dict[str, str], marked: Mapping[str, str] | None = None) -> str:
    """The self-contained page; `pictures` are its figures as data: URLs by name, `marked` the endpoints' own words for who is."""
    environment = style.templates("mri_vit.report.pages")
    filters = (
        *(notation.number, notation.between, notation.interval, notation.adjusted_p, notation.p_alone, notation.setting),
        *(notation.significant, notation.duration, notation.capitalize_first, change, title, counted, listed, with_sign),
    )
    environment.filters.update({function.__name__: function for function in filters})
    return environment.get_template("compared.html").render(
        c=found,
        own=OWN,
        pictures=pictures,
        kinds=comparison.KINDS,
        marks=comparison.MARKS,
        designs=comparison.DESIGNS,
        roles=comparison.ROLES,
        marked={name: part(one.kind, "labels").marked_as for name, one in found.endpoints.items()} | dict(marked or {}),
        few=comparison.few,
        symbols=notation.SYMBOLS,
        controls=notation.EXPLAINED,
        named=LISTED_PATIENTS,
        record=RECORD,
    )
