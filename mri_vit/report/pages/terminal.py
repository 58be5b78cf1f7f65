"""The terminal: a finished run, or a table of predictions made elsewhere, goes in; its report is written, its results printed.

Nothing here loads what trains: a table's report takes neither PyTorch's memory nor its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit.errors import UsageError
from mri_vit.report import verdicts
from mri_vit.report.pages import report_files
from mri_vit.report.reading.run import read_run, run_from_tables
from mri_vit.report.schema.endpoints import BinaryResult, SurvivalResult
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.patients import MapEvaluation, MapResult
from mri_vit.report.words import map_sentences, notation, run_facts
from mri_vit.run import atomic, files, integrity
from mri_vit.run.screen import plain, say
from mri_vit.settings.sections import AnyMethod


def report_run(folder: Path, console: Console, pages: bool = False) -> report_files.Written:
    """Write the report of a run folder and print where it is, with a short table of results and the verdicts.

    Of more than `html.MOST_PAGES` visits, each gets a page only where `pages` asks for it.
    """
    if not (folder / files.PREDICTIONS).exists():
        raise UsageError(f"{folder}: no {files.PREDICTIONS}; run `mri-vit train` first")
    integrity.refuse_changed_run(folder, console, names=integrity.TABLES)
    written = report_files.write_report(read_run(folder), folder / files.REPORT, None if pages else report_files.MOST_PAGES)
    print_results(written, console)
    return written


def report_table(
    scores: Path, people: Path, output: Path, subgroups: tuple[str, ...], console: Console, pages: bool = False
) -> Path:
    """Write a report into `output` from a table of predictions made elsewhere, about the patients of a cohort table.

    `subgroups` are columns to look into beside the usual ones; `pages` as for `report`.
    """
    report_files.refuse_folder(output)
    run = run_from_tables(scores, people, output, subgroups)
    with atomic.held(output, report_files.FOLDERS):
        written = report_files.write_report(run, output, None if pages else report_files.MOST_PAGES)
    print_results(written, console)
    return written.page


def print_results(written: report_files.Written, console: Console) -> None:
    """Print a report's results and its path."""
    _print_table(console, "Results", RESULT_COLUMNS, [astuple(row) for row in result_rows(written.metrics)])
    for sentence in verdict_lines(written.metrics):
        console.print(plain(f"- {sentence}"))
    if planted := planted_rows(written.metrics):
        _print_table(console, "Simulated effects and verdicts", PLANTED_COLUMNS, planted)
    if len(written.metrics.patients) > report_files.MOST_PAGES and not any(
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


RESULT_COLUMNS = ("endpoint", "model", "n", "result [95 % interval]", "judged")


PLANTED_COLUMNS = ("endpoint", "simulated", "verdict", "as expected")
OF_PLANTED = {"better": "an effect", "chance": "no effect"}


@dataclass(frozen=True)
class ResultRow:
    """A row of the terminal's table: the endpoint, the model, patients, the result and its verdict in one word."""

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


def _result_row(name: str, model: str, result: BinaryResult | SurvivalResult) -> ResultRow:
    text = notation.judged(result) if notation.is_defined(result.judged.value) else "undefined"
    return ResultRow(name, model, str(result.n), f"{notation.symbol(result)} {text}", notation.KINDS[result.verdict_kind])


def planted_rows(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """Of a made-up cohort a row per endpoint, under `PLANTED`: what is in it, the verdict on the own model, and yes or no."""
    return [
        (name, OF_PLANTED[one.planted], notation.KINDS[one.found], "yes" if one.as_expected else "NO")
        for name, one in metrics.planted.items()
    ]


def verdict_lines(metrics: Metrics) -> list[str]:
    """The verdicts as sentences, the candidates' and then the maps': "MGMT promoter methylation, vit: better than chance (…)".

    Where the study's own model has comparators, one sentence reports them, and the table has the rest.
    """
    sentences = []
    if metrics.transductive:
        sentences.append(f"Transductive: pretraining saw scans of patients judged here: {metrics.transductive}")
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.models:
            sentences.append(f"{notation.title(name)}: {run_facts.absence(metrics.cohort.known[name], metrics.design)}")
        for model in run_facts.chief(metrics):
            if model in endpoint.models:
                sentences.append(f"{notation.title(name)}, {model}: {endpoint.models[model].verdict}")
        if endpoint.rivals:
            sentences.append(f"{notation.title(name)}, comparators: {endpoint.rivals.sentence}")
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
    """A map that cannot be judged is another thing than one that fails."""
    kinds = Counter(result.verdict_kind for result in methods.values())
    if set(kinds) == {"undefined"}:
        return f"not judged: fewer than {verdicts.FEWEST_SCORED} patients could be scored"
    counts = ", ".join(f"{kinds[kind]} {notation.MAP_KINDS[kind]}" for kind in verdicts.MAP_ORDER if kinds[kind])
    return f"none of {len(methods)} passes its checks ({counts})"
