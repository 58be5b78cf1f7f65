"""The report's first page: a run and its metrics in, one self-contained HTML page out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mri_vit.data.synthetic import NOTE
from mri_vit.data.volume import read
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.outputs.overlays import nearly_even
from mri_vit.report.figures import pictures, thumbnail
from mri_vit.report.pages import beside, environment, failing, policy, volumes
from mri_vit.report.reading.maps import Map
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.maps import GroupMaps, PatientMaps, ShownMap
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.run import Environment, Nothing
from mri_vit.report.verdicts import maps as map_verdict
from mri_vit.report.words import map_verdicts
from mri_vit.report.words import maps as map_texts
from mri_vit.report.words.notation import MAP_KINDS
from mri_vit.settings.demo import made_up

DEMO = "demo"  # the study on the built-in cohort
VERSIONS_FIRST = ("mri-vit", "torch", "monai")
REASONS_SHOWN = 6  # the flow diagram's box stays a box; the table below it has them all

# 10 MB of page open at once on a hospital's machine; the figures need up to 5 of them.
MAPS_SHOWN, MAPS_EACH = 12, 3  # patients on the page, and maps of each; the rest are on the patients' own pages
MAPS_BUDGET, MAPS_WIDTH, MAPS_QUALITY = 2_000_000, 960, 80  # bytes of page; pixels, as the picture is drawn; WebP's scale
GROUPS_BUDGET = 700_000  # bytes of the cohort's mean maps
QC_BUDGET, QC_WIDTH, QC_QUALITY = 800_000, 224, 60  # a quarter of the sheet's width: enough to see a brain cut off


@dataclass(frozen=True)
class Thumbnail:
    """A card's picture, a data: URL, and what it shows."""

    picture: str
    words: str


def page(run: Run, metrics: Metrics, drawn: Mapping[str, str], links: Mapping[str, str], texts: Sequence[str]) -> str:
    """The HTML page.

    `drawn` are the figures as data: URLs by name, `links` the patients' pages by patient, `texts` the files for a paper.
    """
    templates = environment.of_report(metrics)
    prepared = [(name, path) for name, path in run.qc if path.is_file()]
    sheets = pictures.shrunk([path for _, path in prepared], QC_WIDTH, QC_QUALITY, QC_BUDGET)
    script = templates.get_template("report.js").render()
    return templates.get_template("page.html").render(
        script=Markup(script),
        policy=policy.of({"script-src": policy.hash_of(script), "style-src": "'unsafe-inline'", "img-src": "data:"}),
        m=metrics,
        pictures=drawn,
        links=links,
        thumbnails=_thumbnails(run, metrics),
        excluded=run.excluded.to_dict("records"),
        decisions=run.decisions.to_dict("records"),
        reasons=_reasons(metrics.cohort.excluded_reasons),
        maps=_gallery(run, metrics.maps),
        groups=_groups(run, metrics),
        beside=beside.row(run, metrics),
        comparator_notes=map_texts.comparator_notes(metrics),
        failing=failing.cards(run, metrics, links),
        sheets=[(name, picture) for (name, _), picture in zip(prepared, sheets, strict=False)],
        sheets_left_out=len(prepared) - len(sheets),
        is_synthetic=is_synthetic(run),
        settings=_settings(metrics),
        versions=_versions(metrics.environment),
        models=metrics.models,
        channels=run.study.channels,
        reference=run.study.prepare.reference,
        judged=[name for name, endpoint in metrics.endpoints.items() if endpoint.models],
        to_make_again=map_texts.to_make_again(metrics),
        beside_random_weights=map_verdicts.BESIDE_RANDOM_WEIGHTS,
        explained_class=map_texts.EXPLAINED_CLASS,
        taught=map_texts.taught(metrics),
        texts=texts,
    )


def _settings(metrics: Metrics) -> dict[str, dict[str, Any]]:
    """The study's settings section by section; what stands above the first section is the study's own."""
    plain = metrics.settings.model_dump(mode="json")
    head = {key: value for key, value in plain.items() if not isinstance(value, dict)}
    sections = {section: values for section, values in plain.items() if isinstance(values, dict)}
    return {section: values for section, values in {"study": head, **sections}.items() if values}


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


def is_synthetic(run: Run) -> bool:
    """Whether patients are synthetic, by the run's own note; a version before 0.6 wrote none, and the demo's names tell.

    What an evaluation notes is of the run, not of those whom it judges.
    """
    people = run.predictions.patient
    noted = run.design == "cross-validation" and NOTE in run.notes
    return noted or (run.study.name == DEMO and len(people) > 0 and made_up(people))


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


def _thumbnails(run: Run, metrics: Metrics) -> dict[str, Thumbnail]:
    """The picture of each endpoint's card, where it has a finding: the map whose peak is the median of its method's."""
    reference, found = run.study.prepare.reference, {}
    for name, card in metrics.cards.items():
        if map_verdict.is_finding(metrics.endpoints[name].models[card.model]) and (pair := _typical(run, metrics, name)):
            whose, entry = pair
            names = (whose.facts["brain"], whose.facts["maps"][entry.index]["files"][reference])
            brain, heat = (read(whose.folder / file) for file in names)
            title = entry.title[:1].upper() + entry.title[1:]
            said = f"{title} of {whose.patient}, of median peak; the method {MAP_KINDS[entry.kind]}"
            even = nearly_even(entry.peak)
            found[name] = Thumbnail(thumbnail.of_map(brain, heat), f"{said}; {even}" if even else said)
    return found


def _typical(run: Run, metrics: Metrics, endpoint: str) -> tuple[Map, ShownMap] | None:
    """Of an endpoint's maps that can be drawn, by the method that stands best, the one with the median peak."""
    scored = metrics.map_scores.endpoints.get(endpoint) if metrics.map_scores else None
    best = map_verdict.best(scored) if scored else None
    drawable = [
        (whose, entry)
        for whose, said in zip(run.maps, metrics.maps, strict=True)
        for entry in said.maps
        if entry.endpoint in ("", endpoint) and entry.peak > 0 and volumes.drawable(whose, run.study.prepare.reference)
    ]
    method = best or next((entry.method for _, entry in drawable if entry.endpoint), None)
    ranked = sorted((pair for pair in drawable if pair[1].method == method), key=lambda pair: (pair[1].peak, pair[0].patient))
    return ranked[len(ranked) // 2] if ranked else None
