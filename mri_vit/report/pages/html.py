"""The report: a run in; one self-contained page, `metrics.json`, the texts for a paper, tables and figures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jinja2

from mri_vit import style
from mri_vit.explain.methods.names import METHODS
from mri_vit.report import assembly
from mri_vit.report.figures import gallery, pictures
from mri_vit.report.pages import home as report_home
from mri_vit.report.pages import tables, viewer
from mri_vit.report.reading.run import OWN, Run
from mri_vit.report.schema.maps import GroupMaps, PatientMaps, ShownMap
from mri_vit.report.schema.metrics import Metrics, dumps
from mri_vit.report.schema.run import Environment, Nothing
from mri_vit.report.words import checklists, map_verdicts, measures, methods, notation
from mri_vit.report.words import maps as map_texts
from mri_vit.report.words.wording import Facts, in_words
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import sequences
from mri_vit.settings.models import NO_CANDIDATES

DEMO, DEMO_PATIENT = "demo", "demo-"  # the study on the built-in, synthetic cohort, and how its patients' names begin
VERSIONS_FIRST = ("mri-vit", "torch", "monai")
REASONS_SHOWN = 6  # the flow diagram's box stays a box; the table below it has them all

# A page of 10 MB opens at once; its figures need 3 or 4 of them, whatever the number of patients.
MAPS_SHOWN, MAPS_EACH = 12, 3  # patients on the page, and maps of each; the rest are on the patients' own pages
MAPS_BUDGET, MAPS_WIDTH, MAPS_QUALITY = 2_500_000, 960, 80  # bytes of page; pixels, as the picture is drawn; WebP's scale
GROUPS_BUDGET = 1_000_000  # bytes of the cohort's mean maps
QC_BUDGET, QC_WIDTH, QC_QUALITY = 2_000_000, 224, 60  # a quarter of the sheet's width: enough to see a brain cut off

TEXTS = ("methods.md", "tripod_ai.md", "claim.md")


@dataclass(frozen=True)
class Written:
    """A report that was written: where its page is, and what stands in its `metrics.json`."""

    page: Path
    metrics: Metrics


def write(run: Run, home: Path) -> Written:
    """Write a report into the folder `home`, from the run as read alone.

    `home` then holds index.html, metrics.json (every number on the page), methods.md, tripod_ai.md, claim.md, tables/*.csv,
    figures/*.svg and *.png, and patients/*.html for those whose map can be turned. Figures, tables and patients' pages that
    an earlier report wrote there, by its metrics.json, and this one does not are deleted, so nobody stays who is out of the run.

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
    links = viewer.links(run.maps, run.study.prepare.reference)
    pages = {unquote(link) for link in links.values()}
    metrics = metrics.model_copy(update={"files": tuple(sorted({*files, *pages}))})
    report_home.delete(home, report_home.listed(home) - set(metrics.files))
    home.mkdir(parents=True, exist_ok=True)
    # First, so that a report that was killed is known as ours, with all that it may have written.
    _write(home / report_home.RECORD, dumps(metrics))
    for name, content in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        write_bytes(content, home / name)
    written = (methods.text(metrics, Facts(brains=run.brains)), checklists.tripod_ai(metrics), checklists.claim(metrics))
    for name, text in zip(TEXTS, written, strict=True):
        _write(home / name, text)
    viewer.write(run.maps, metrics.maps, home, run.study.name, run.study.prepare.reference)
    # Last, so that a page is never newer than what it rests on.
    _write(home / "index.html", page(run, metrics, drawn, links))
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


def page(run: Run, metrics: Metrics, drawn: Mapping[str, str], links: Mapping[str, str]) -> str:
    """The HTML page; `drawn` are the figures as data: URLs by name, `links` the patient pages by patient."""
    prepared = [(name, path) for name, path in run.qc if path.is_file()]
    sheets = pictures.shrunk([path for _, path in prepared], QC_WIDTH, QC_QUALITY, QC_BUDGET)
    return (
        _environment(metrics)
        .get_template("page.html")
        .render(
            m=metrics,
            pictures=drawn,
            links=links,
            excluded=run.excluded.to_dict("records"),
            decisions=run.decisions.to_dict("records"),
            reasons=_reasons(metrics.cohort.excluded_reasons),
            maps=_gallery(run, metrics.maps),
            groups=_groups(run, metrics),
            sheets=[(name, picture) for (name, _), picture in zip(prepared, sheets, strict=False)],
            sheets_left_out=len(prepared) - len(sheets),
            is_demo=_is_demo(run),
            settings=_settings(metrics),
            versions=_versions(metrics.environment),
            models=metrics.models,
            channels=run.study.channels,
            reference=run.study.prepare.reference,
            judged=[name for name, endpoint in metrics.endpoints.items() if endpoint.models],
            to_make_again=map_texts.to_make_again(metrics),
            beside_random_weights=map_verdicts.BESIDE_RANDOM_WEIGHTS,
            explained_class=map_texts.EXPLAINED_CLASS,
            texts=TEXTS,
        )
    )


def _settings(metrics: Metrics) -> dict[str, dict[str, Any]]:
    """The study's settings section by section; what stands above the first section is the study's own."""
    plain = metrics.settings.model_dump(mode="json")
    head = {key: value for key, value in plain.items() if not isinstance(value, dict)}
    sections = {section: values for section, values in plain.items() if isinstance(values, dict)}
    return {section: values for section, values in {"study": head, **sections}.items() if values}


def _environment(metrics: Metrics) -> jinja2.Environment:
    """The templates with their filters, and the names that all of them share."""
    environment = style.templates("mri_vit.report.pages")
    environment.filters.update(
        number=notation.number,
        interval=notation.interval,
        judged=notation.judged,
        signed=notation.signed,
        p=notation.p_value,
        adjusted_p=notation.adjusted_p,
        title=notation.title,
        setting=notation.setting,
        tied=notation.tied,
        short=notation.short,
        significant=notation.significant,
        sequence=sequences.title,
        in_words=in_words,
        duration=notation.duration,
        symbol=notation.symbol,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    environment.tests.update(control=NO_CANDIDATES.__contains__, known=notation.is_defined)
    environment.globals.update(
        absence=notation.absence,
        own=OWN,
        chief=notation.chief(metrics),
        visible=lambda models: notation.visible(metrics, models),
        file_name=notation.file_name,
        measures=measures.lines,
        kinds=notation.KINDS,
        marks=notation.MARKS,
        controls=notation.EXPLAINED,
        map_kinds=notation.MAP_KINDS,
        map_marks=notation.MAP_MARKS,
        methods=METHODS,
    )
    return environment


def _gallery(run: Run, described: Sequence[PatientMaps]) -> list[tuple[PatientMaps, list[tuple[ShownMap, str]]]]:
    """Patients with the first of their maps and their pictures; where bytes run out, each patient's first goes before others."""
    pairs = list(zip(run.maps, described, strict=True))[:MAPS_SHOWN]
    wanted = [
        (said.patient, entry, found.overlays[entry.index])
        for rank in range(MAPS_EACH)
        for found, said in pairs
        for entry in said.maps[rank : rank + 1]
    ]
    packed = pictures.shrunk([path for *_, path in wanted], MAPS_WIDTH, MAPS_QUALITY, MAPS_BUDGET)
    shown: dict[str, list[tuple[ShownMap, str]]] = {}
    for (patient, entry, _), picture in zip(wanted, packed, strict=False):
        shown.setdefault(patient, []).append((entry, picture))
    return [(said, shown[said.patient]) for _, said in pairs if said.patient in shown]


def _groups(run: Run, metrics: Metrics) -> list[tuple[GroupMaps, str]]:
    """The cohort's mean maps with their pictures, endpoints with a finding first, and of these the maps that are their own."""
    scored = metrics.map_scores.endpoints if metrics.map_scores else {}

    def weak(pair: tuple[GroupMaps, Path]) -> tuple[bool, bool]:
        entry, endpoint = pair[0], scored.get(pair[0].endpoint)
        return endpoint is None or bool(endpoint.no_finding), not METHODS[entry.method].per_endpoint

    ordered = sorted(zip(metrics.map_groups, (path for _, path in run.groups), strict=True), key=weak)
    packed = pictures.shrunk([path for _, path in ordered], MAPS_WIDTH, MAPS_QUALITY, GROUPS_BUDGET)
    return [(entry, picture) for (entry, _), picture in zip(ordered, packed, strict=False)]


def _is_demo(run: Run) -> bool:
    """Whether the patients are the synthetic ones; anybody may call a study so."""
    people = run.predictions.patient
    return run.study.name == DEMO and len(people) > 0 and bool(people.str.startswith(DEMO_PATIENT).all())


def _reasons(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Reasons of exclusion with their patients, the most frequent first, the rare ones together."""
    ordered = sorted(counts.items(), key=lambda reason: -reason[1])
    rest = sum(count for _, count in ordered[REASONS_SHOWN:])
    return ordered[:REASONS_SHOWN] + ([("other reasons, listed below", rest)] if rest else [])


def _versions(environment: Nothing | Environment) -> list[tuple[str, str]]:
    if isinstance(environment, Nothing):
        return []
    order = [name for name in VERSIONS_FIRST if name in environment.versions]
    order += sorted(set(environment.versions) - set(order))
    facts = {"git commit": environment.git_commit, "device": environment.device, "threads": environment.threads}
    facts |= {"seed": environment.seed, "started": environment.started}
    return [(name, environment.versions[name]) for name in order] + [
        (label, str(value)) for label, value in facts.items() if value is not None
    ]


def _write(path: Path, text: str) -> None:
    write_bytes(text.encode(), path)
