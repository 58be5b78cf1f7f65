"""The report: a run in; one self-contained page, `metrics.json`, the texts for a paper, tables and figures out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mri_vit import style
from mri_vit.report import assembly
from mri_vit.report.figures import gallery, pictures
from mri_vit.report.pages import front, patients, tables
from mri_vit.report.pages import home as report_home
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.metrics import Metrics, dumps
from mri_vit.report.words import checklists, methods
from mri_vit.report.words.wording import Facts
from mri_vit.run.atomic import write_bytes

MOST_PAGES = 2000  # patients' pages unless they are asked for: more than any public cohort has, and some ten seconds
TEXTS = ("methods.md", "tripod_ai.md", "claim.md", "stard_ai.md")


@dataclass(frozen=True)
class Written:
    """A report that was written: where its page is, and what stands in its `metrics.json`."""

    page: Path
    metrics: Metrics


def write(run: Run, home: Path, most_pages: int | None = MOST_PAGES) -> Written:
    """Write a report into the folder `home`, from the run as read alone.

    `home` then holds index.html, metrics.json (every number on the page), methods.md, the three checklists, tables/*.csv,
    figures/*.svg and *.png, and, of at most `most_pages` visits (None: any number), patients/* with viewer/. Figures, tables and
    patients' pages that an earlier report wrote there, by its metrics.json, and this one does not are deleted, so that nobody
    stays who is out of the run.

    Raises
    ------
    UsageError
        `home` is a file, or holds something else than a report of ours; nothing in it is touched.
    IntegrityError
        `home`, or one of its folders, is a link.
    """
    report_home.refuse(home)
    metrics = assembly.metrics(run)
    drawn, files = _drawn(run, metrics)
    visits = patients.visits(run, metrics)
    visits = visits if most_pages is None or len(visits) <= most_pages else []
    metrics = metrics.model_copy(update={"files": tuple(sorted({*files, *patients.written_by(visits)}))})
    report_home.delete(home, report_home.listed(home) - set(metrics.files))
    home.mkdir(parents=True, exist_ok=True)
    # First, so that a report that was killed is known as ours, with all that it may have written.
    _write(home / report_home.RECORD, dumps(metrics))
    for name, content in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        write_bytes(content, home / name)
    lists = (checklists.tripod_ai(metrics), checklists.claim(metrics), checklists.stard_ai(metrics))
    written = (methods.text(metrics, Facts(brains=run.brains)), *lists)
    for name, text in zip(TEXTS, written, strict=True):
        _write(home / name, text)
    patients.write(run, metrics, visits, home)
    # Last, so that a page is never newer than what it rests on.
    _write(home / "index.html", front.page(run, metrics, drawn, {one.visit: one.link for one in visits}, TEXTS))
    return Written(home / "index.html", metrics)


def _drawn(run: Run, metrics: Metrics) -> tuple[dict[str, str], dict[str, bytes]]:
    """Figures as data: URLs by name, and the files of figures and tables by their path in the report."""
    survivors = gallery.survivors(run, metrics)
    drawn, files = {}, {}
    for name, figure in gallery.of_report(run, metrics, survivors):
        found = {kind: style.to_bytes(figure, kind) for kind in ("svg", "png")}
        files |= {f"figures/{name}.{kind}": content for kind, content in found.items()}
        drawn[name] = pictures.data_url(found["svg"], "image/svg+xml")
    for name, table in tables.of_report(run, metrics, survivors).items():
        files[f"tables/{name}.csv"] = tables.to_csv(table).encode()
    return drawn, files


def _write(path: Path, text: str) -> None:
    write_bytes(text.encode(), path)
