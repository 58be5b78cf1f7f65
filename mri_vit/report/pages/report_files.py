"""The report's files: a run in; one self-contained page, `metrics.json`, the texts for a paper, tables and figures out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mri_vit import style
from mri_vit.report import assembly
from mri_vit.report.figures import gallery, pictures
from mri_vit.report.pages import csv_tables, front_page, patient_pages
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.metrics import Metrics, dumps
from mri_vit.report.words import checklists, methods_section
from mri_vit.report.words.run_facts import Facts
from mri_vit.run import files
from mri_vit.run.atomic import refuse_foreign, refuse_links, write_bytes
from mri_vit.run.integrity import read_json_or_empty

MOST_PAGES = 2000  # patients' pages unless they are asked for: more than any public cohort has, and some ten seconds
RECORD = files.METRICS
MARKS = {"schema", "study", "design", "endpoints"}  # keys that every version's record has
FOLDERS = ("figures", "tables", "patients", "viewer")
# A file of an earlier report, as it names them: in one of these folders, in no other, and not hidden.
OWN_FILE = re.compile(
    r"((figures|tables)/[A-Za-z0-9_][A-Za-z0-9._-]*\.(svg|png|csv)|patients/[A-Za-z0-9_][A-Za-z0-9._-]*\.(html|js|webp))"
)
TEXTS = ("methods.md", "tripod_ai.md", "claim.md", "stard_ai.md")


@dataclass(frozen=True)
class Written:
    """A report that was written: where its page is, and what stands in its `metrics.json`."""

    page: Path
    metrics: Metrics


def write_report(run: Run, home: Path, most_pages: int | None = MOST_PAGES) -> Written:
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
    refuse_folder(home)
    metrics = assembly.metrics(run)
    drawn, files = _drawn(run, metrics)
    visits = patient_pages.visits(run, metrics)
    visits = visits if most_pages is None or len(visits) <= most_pages else []
    metrics = metrics.model_copy(update={"files": tuple(sorted({*files, *patient_pages.page_files(visits)}))})
    delete_files(home, earlier_files(home) - set(metrics.files))
    home.mkdir(parents=True, exist_ok=True)
    # First, so that a report that was killed is known as ours, with all that it may have written.
    _write_text(home / RECORD, dumps(metrics))
    for name, content in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        write_bytes(content, home / name)
    lists = (checklists.tripod_ai(metrics), checklists.claim(metrics), checklists.stard_ai(metrics))
    written = (methods_section.methods_and_results(metrics, Facts(brains=run.brains)), *lists)
    for name, text in zip(TEXTS, written, strict=True):
        _write_text(home / name, text)
    patient_pages.write_patient_pages(run, metrics, visits, home)
    # Last, so that a page is never newer than what it rests on.
    _write_text(home / "index.html", front_page.front_page(run, metrics, drawn, {one.visit: one.link for one in visits}, TEXTS))
    return Written(home / "index.html", metrics)


def _drawn(run: Run, metrics: Metrics) -> tuple[dict[str, str], dict[str, bytes]]:
    """Figures as data: URLs by name, and the files of figures and tables by their path in the report."""
    survivors = gallery.risk_group_curves(run, metrics)
    drawn, files = {}, {}
    for name, figure in gallery.report_figures(run, metrics, survivors):
        kinds = {kind: style.to_bytes(figure, kind) for kind in ("svg", "png")}
        files |= {f"figures/{name}.{kind}": content for kind, content in kinds.items()}
        drawn[name] = pictures.data_url(kinds["svg"], "image/svg+xml")
    for name, table in csv_tables.report_tables(run, metrics, survivors).items():
        files[f"tables/{name}.csv"] = csv_tables.to_csv(table).encode()
    return drawn, files


def _write_text(path: Path, text: str) -> None:
    write_bytes(text.encode(), path)


def refuse_folder(home: Path) -> None:
    """Raise UsageError when `home` holds something else than a report of ours, IntegrityError when it leads elsewhere."""
    refuse_links(home, FOLDERS)
    refuse_foreign(home, set(read_json_or_empty(home / RECORD)) >= MARKS, "report")


def earlier_files(home: Path) -> set[str]:
    """Files that the earlier report of this folder says it wrote; none where its record cannot be read. Anybody may edit it.

    Versions before 0.5 did not list the patients' pages, but the patients who have maps.
    """
    earlier = read_json_or_empty(home / RECORD)
    files, maps = (value if isinstance(value, list) else [] for value in (earlier.get("files"), earlier.get("maps")))
    pages = [f"patients/{patient['patient']}.html" for patient in maps if isinstance(patient, dict) and "patient" in patient]
    return {name for name in (*files, *pages) if isinstance(name, str) and OWN_FILE.fullmatch(name)}


def delete_files(home: Path, names: set[str]) -> None:
    """Delete these files of an earlier report, but through no link that leads out of the folder."""
    for name in names:
        path = home / name
        if path.is_file() and path.parent.resolve() == home.resolve() / path.parent.name:
            path.unlink()
