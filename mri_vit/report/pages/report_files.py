"""The report: a run or a table of predictions in; page, `metrics.json`, texts, tables, figures and terminal summary out.

Nothing here loads what trains: a table's report needs neither PyTorch's memory nor its import time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import jinja2
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit import style
from mri_vit.data.cohort import visit_id
from mri_vit.errors import UsageError
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.outputs.overlays import nearly_even
from mri_vit.kinds.kind import with_article
from mri_vit.report import assembly, verdicts
from mri_vit.report.figures import gallery, hospitals
from mri_vit.report.pages import csv_tables, front_page, patient_pages
from mri_vit.report.reading.foreign_table import COMPETING_EVENT, UNDECLARED, Declared, run_from_tables
from mri_vit.report.reading.run import Run, read_run
from mri_vit.report.schema.kinds import Result
from mri_vit.report.schema.metrics import Metrics, dumps
from mri_vit.report.schema.parts import NOT_TRAINED_ON, OWN, TABLES
from mri_vit.report.schema.patients import MapEvaluation, MapResult
from mri_vit.report.verdicts import is_finding
from mri_vit.report.words import (
    caveats,
    checklists,
    competing,
    endpoint_results,
    instability,
    interactions,
    map_sentences,
    methods_section,
    notation,
    of_kind,
    run_facts,
    unlabelled,
    utility,
)
from mri_vit.report.words.hospitals import noun
from mri_vit.report.words.run_facts import Facts
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import refuse_foreign, refuse_links, write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.screen import plain, say
from mri_vit.settings import recipe
from mri_vit.settings.recipe import NOT_COMPARED
from mri_vit.settings.sections import AnyMethod

MAX_PATIENT_PAGES = 5000  # patients' pages unless they are asked for: more than any public cohort has
RECORD = files.METRICS
MARKS = {"schema", "study", "design", "endpoints"}  # keys that every version's record has
FOLDERS = ("figures", "tables", "patients", "viewer")
# A file of an earlier report, as it names them: in one of these folders, in no other, and not hidden.
OWN_FILE = re.compile(
    r"((figures|tables)/[A-Za-z0-9_][A-Za-z0-9._-]*\.(svg|png|csv)|patients/[A-Za-z0-9_][A-Za-z0-9._-]*\.(html|js|webp))"
)
TEXTS = ("methods.md", *(f"{name}.md" for name in checklists.CHECKLISTS))
RESULT_COLUMNS = ("endpoint", "model", "n", "result [95 % interval]", "judged")
EXPECTED_COLUMNS = ("endpoint", "simulated", "verdict", "as expected")
OF_EXPECTED = {"better": "an effect", "chance": "no effect"}


@dataclass(frozen=True)
class Written:
    """A report that was written: where its page is, and what stands in its `metrics.json`."""

    page: Path
    metrics: Metrics


def report_run(folder: Path, console: Console, pages: bool = False) -> Written:
    """Write a run's report and print results, verdicts and path; `pages`: a page per patient even above `MAX_PATIENT_PAGES`."""
    if not (folder / files.PREDICTIONS).exists():
        raise UsageError(f"{folder}: no {files.PREDICTIONS}; run `mri-vit train` first")
    integrity.refuse_changed_run(folder, console, names=integrity.TABLES)
    written = write_report(read_run(folder), folder / files.REPORT, None if pages else MAX_PATIENT_PAGES)
    print_results(written, console)
    return written


def report_table(
    scores: Path,
    people: Path,
    output: Path,
    console: Console,
    pages: bool = False,
    declared: Declared = UNDECLARED,
) -> Path:
    """Write a report into `output` from a table of predictions made elsewhere and the cohort table of its patients.

    `pages` as for `report_run`, `declared` as for `run_from_tables`.
    """
    refuse_folder(output)
    run = run_from_tables(scores, people, output, declared)
    with atomic.held(output, FOLDERS):
        written = write_report(run, output, None if pages else MAX_PATIENT_PAGES)
    print_results(written, console)
    return written.page


def write_report(run: Run, home: Path, most_pages: int | None = MAX_PATIENT_PAGES) -> Written:
    """Write a report into the folder `home`, from the run as read alone.

    `home` then holds index.html, metrics.json (every number on the page), methods.md, the checklists, tables/*.csv,
    figures/*.svg and *.png, and for at most `most_pages` visits (None: any number) patients/* with viewer/. Files that an earlier
    report listed in its metrics.json and this one does not write are deleted, so that no excluded patient stays.

    Raises
    ------
    UsageError
        `home` is a file, or holds something else than a report of ours; nothing in it is touched.
    IntegrityError
        `home`, or one of its folders, is a link.
    """
    refuse_folder(home)
    metrics = assembly.metrics(run)
    drawn, contents = _drawn(run, metrics)
    visits = patient_pages.visits(run, metrics)
    visits = visits if most_pages is None or len(visits) <= most_pages else []
    metrics = Metrics.model_validate(dict(metrics) | {"files": tuple(sorted({*contents, *patient_pages.page_files(visits)}))})
    delete_files(home, earlier_files(home) - set(metrics.files))
    home.mkdir(parents=True, exist_ok=True)
    # First, so that a report that was killed is known as ours, with all that it may have written.
    _write_text(home / RECORD, dumps(metrics))
    for name, content in contents.items():
        (home / name).parent.mkdir(exist_ok=True)
        write_bytes(content, home / name)
    written = (
        methods_section.methods_and_results(metrics, Facts(brains=run.brains)),
        *(checklists.filled_checklist(name, metrics) for name in checklists.CHECKLISTS),
    )
    for name, text in zip(TEXTS, written, strict=True):
        _write_text(home / name, text)
    templates = report_templates(metrics)
    patient_pages.write_patient_pages(run, metrics, visits, home, templates)
    # Last, so that a page is never newer than what it rests on.
    links = {visit.visit: visit.link for visit in visits}
    _write_text(home / "index.html", front_page.front_page(run, metrics, templates, drawn, links, TEXTS))
    return Written(home / "index.html", metrics)


def _drawn(run: Run, metrics: Metrics) -> tuple[dict[str, str], dict[str, bytes]]:
    """Figures as data: URLs by name, and the files of figures and tables by their path in the report."""
    survivors = gallery.risk_group_curves(run, metrics)
    drawn, contents = {}, {}
    for name, figure in gallery.report_figures(run, metrics, survivors):
        kinds = {kind: style.to_bytes(figure, kind) for kind in ("svg", "png")}
        contents |= {f"figures/{name}.{kind}": content for kind, content in kinds.items()}
        drawn[name] = style.data_url(kinds["svg"], "image/svg+xml")
    for name, table in csv_tables.report_tables(run, metrics, survivors).items():
        contents[f"tables/{name}.csv"] = csv_tables.to_csv(table).encode()
    return drawn, contents


def report_templates(metrics: Metrics) -> jinja2.Environment:
    """The templates of a report with their filters and shared names."""
    environment = style.templates("mri_vit.report.pages")
    filters = (
        *(notation.number, notation.interval, notation.judged, notation.signed, notation.adjusted_p, notation.title),
        *(notation.setting, notation.tied, notation.short, notation.significant, notation.in_words, notation.duration),
        *(notation.symbol, notation.capitalize_first, notation.counted, notation.estimate, run_facts.could_show, nearly_even),
        with_article,
    )
    environment.filters.update({function.__name__: function for function in filters})
    environment.filters.update(
        p=notation.p_value,
        ratio=caveats.hazard_ratio_in_words,
        column=caveats.covariate_label,
        change=caveats.gain_of_c,
        sequence=recipe.title,
        share=competing.share,
        groups_in_words=competing.groups_in_words,
        explained=caveats.with_glossary_links,
        anchor=caveats.glossary_anchor,
        short_truth=run_facts.short_label,
        label_in_words=run_facts.label_in_words,
        per_hundred=utility.per_hundred,
        place=noun,
        p_alone=notation.p_alone,
    )
    environment.tests.update(
        control=NOT_COMPARED.__contains__, known=notation.is_defined, with_chance_row=lambda kind: of_kind.of(kind).has_chance_row
    )
    environment.globals.update(
        absence=run_facts.absence,
        in_words=of_kind.of,
        meanings=of_kind.meanings,
        own=OWN,
        tables=TABLES,
        not_trained_on=NOT_TRAINED_ON,
        chief=run_facts.chief(metrics),
        visible=lambda models: run_facts.visible(metrics, models),
        file_name=notation.file_name,
        measures=endpoint_results.measure_rows,
        most_hospitals=hospitals.MOST,
        kinds=notation.KINDS,
        marks=notation.MARKS,
        controls=notation.EXPLAINED,
        map_kinds=notation.MAP_KINDS,
        map_marks=notation.MAP_MARKS,
        methods=METHODS,
        terms=caveats.GLOSSARY,
        visit_id=visit_id,
        is_finding=is_finding,
        one_training=instability.one_training,
        table1_heads=run_facts.table1_heads,
        table1_lines=run_facts.table1_lines,
        table1_compares=run_facts.table1_compares,
        table1_caption=run_facts.table1_caption,
        threshold_range=utility.threshold_range,
        by_day=utility.by_day,
        unnamed_thresholds=utility.unnamed,
        unnamed_event=COMPETING_EVENT,
        interaction_columns=interactions.columns_of,
        measure_name=interactions.measure_name,
        characteristic_name=unlabelled.characteristic_name,
        cell_in_words=unlabelled.cell_in_words,
    )
    return environment


def _write_text(path: Path, text: str) -> None:
    write_bytes(text.encode(), path)


def refuse_folder(home: Path) -> None:
    """Raise UsageError when `home` holds anything but an mri-vit report, IntegrityError when it is a link."""
    refuse_links(home, FOLDERS)
    refuse_foreign(home, set(read_json_or_empty(home / RECORD)) >= MARKS, "report")


def earlier_files(home: Path) -> set[str]:
    """Files listed by the folder's earlier report; none where its record cannot be read. Names are checked: anyone may edit it.

    Versions before 0.5 listed the patients who have maps instead of the patients' pages.
    """
    earlier = read_json_or_empty(home / RECORD)
    listed, maps = (value if isinstance(value, list) else [] for value in (earlier.get("files"), earlier.get("maps")))
    pages = [f"patients/{patient['patient']}.html" for patient in maps if isinstance(patient, dict) and "patient" in patient]
    return {name for name in (*listed, *pages) if isinstance(name, str) and OWN_FILE.fullmatch(name)}


def delete_files(home: Path, names: set[str]) -> None:
    """Delete these files of an earlier report; links that lead out of the folder are not followed."""
    for name in names:
        path = home / name
        if path.is_file() and path.parent.resolve() == home.resolve() / path.parent.name:
            path.unlink()


def print_results(written: Written, console: Console) -> None:
    """Print a report's results and its path."""
    _print_table(console, "Results", RESULT_COLUMNS, [astuple(row) for row in result_rows(written.metrics)])
    for sentence in verdict_lines(written.metrics):
        console.print(plain(f"- {sentence}"))
    if expected := expected_verdict_rows(written.metrics):
        _print_table(console, "Simulated effects and verdicts", EXPECTED_COLUMNS, expected)
    if len(written.metrics.patients) > MAX_PATIENT_PAGES and not any(
        name.startswith("patients/") for name in written.metrics.files
    ):
        say(console, f"no pages for {len(written.metrics.patients):,} patients; `mri-vit report … --patient-pages` writes them")
    say(console, f"report: {written.page}")


def _print_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)  # 80 columns
    for column in columns:
        table.add_column(plain(column))
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    console.print(table)


@dataclass(frozen=True)
class ResultRow:
    """A row of the results printed on the terminal."""

    endpoint: str
    model: str
    n: str
    result: str
    judged: str


def result_rows(metrics: Metrics) -> list[ResultRow]:
    """A row per endpoint and model shown."""
    rows = []
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.models:
            rows.append(ResultRow(name, "–", "0", "–", "no result"))
        shown = run_facts.visible(metrics, endpoint.models)
        rows += [_result_row(name, model, result) for model, result in shown.items()]
        if left := len(endpoint.models) - len(shown):
            rows.append(ResultRow(name, f"{left} more", "", "in the report", ""))
    return rows


def _result_row(name: str, model: str, result: Result) -> ResultRow:
    text = notation.judged(result) if notation.is_defined(result.judged.value) else "undefined"
    return ResultRow(name, model, str(result.n), f"{notation.symbol(result)} {text}", notation.KINDS[result.verdict_kind])


def expected_verdict_rows(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """A row per endpoint of the synthetic cohort: the simulated effect, the verdict on the own model, and whether they agree."""
    return [
        (name, OF_EXPECTED[one.expected], notation.KINDS[one.found], "yes" if one.as_expected else "NO")
        for name, one in metrics.expected_verdicts.items()
    ]


def verdict_lines(metrics: Metrics) -> list[str]:
    """The verdicts on models, then on maps: "MGMT promoter methylation, vit: better than chance (…)".

    One sentence summarises the comparators; the table lists them.
    """
    sentences = []
    if metrics.transductive:
        sentences.append(f"Transductive: pretraining saw scans of test patients: {metrics.transductive}")
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.models:
            sentences.append(f"{notation.title(name)}: {run_facts.absence(metrics.cohort.known[name], metrics.design)}")
        for model in run_facts.chief(metrics):
            if model in endpoint.models:
                sentences.append(f"{notation.title(name)}, {model}: {endpoint.models[model].verdict}")
        sentences += [f"{notation.title(name)}: warning: {warning}" for warning in endpoint.warnings]
        if endpoint.comparators:
            sentences.append(f"{notation.title(name)}, comparators: {endpoint.comparators.sentence}")
    to_do = map_sentences.to_make_again(metrics)
    scored = _map_verdicts(metrics.map_scores) if metrics.map_scores else []
    return [*sentences, *scored, *([to_do] if to_do else [])]


def _map_verdicts(scored: MapEvaluation) -> list[str]:
    """A line per endpoint on its best map, or why there is none."""
    sentences = []
    for name, endpoint in scored.endpoints.items():
        head, best = f"Maps of {notation.title(name)}", verdicts.best_method(endpoint)
        chosen = [(method, result) for method, result in endpoint.methods.items() if method == best]
        if endpoint.no_finding:
            sentences.append(f"{head}: {endpoint.no_finding}")
        elif not chosen:
            sentences.append(f"{head}: {_none_passes(endpoint.methods)}")
        for method, result in [] if endpoint.no_finding else chosen:
            count = f"best of {len(endpoint.methods)}" if len(endpoint.methods) > 1 else "the only one"
            sentences.append(f"{head}, {notation.short(method)} ({count}): {result.verdict}")
    return sentences


def _none_passes(methods: Mapping[AnyMethod, MapResult]) -> str:
    """Maps that could not be judged, or the number of each verdict."""
    kinds = Counter(result.verdict_kind for result in methods.values())
    if set(kinds) == {"undefined"}:
        return f"not judged: fewer than {verdicts.MIN_SCORED_PATIENTS} patients could be scored"
    counts = ", ".join(f"{kinds[kind]} {notation.MAP_KINDS[kind]}" for kind in verdicts.MAP_ORDER if kinds[kind])
    return f"none of {len(methods)} passes its checks ({counts})"
