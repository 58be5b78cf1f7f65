"""The report's first page: a run and its metrics in, one self-contained HTML page out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool
from markupsafe import Markup

from mri_vit import style
from mri_vit.data.cohort import visit_id
from mri_vit.data.run_cohort import SYNTHETIC_NOTE
from mri_vit.data.volume import Volume, read, read_mask, resample
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.outputs.overlays import nearly_even
from mri_vit.report import verdicts
from mri_vit.report.pages import page_pictures
from mri_vit.report.pages.page_pictures import drawable, map_on_scan
from mri_vit.report.reading.run import Run, subject
from mri_vit.report.reading.run_files import Map
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import OWN, Environment, Nothing
from mri_vit.report.schema.patients import GroupMaps, Patient, PatientMaps, ShownMap
from mri_vit.report.words import map_sentences, protocol
from mri_vit.report.words.notation import MAP_KINDS, capitalize_first
from mri_vit.settings.file import all_from_demo

DEMO = "demo"  # the study on the built-in cohort
VERSIONS_FIRST = ("mri-vit", "torch", "monai")
REASONS_SHOWN = 6  # rows in the flow diagram's box; the table below it has all

# 10 MB of page open at once on a hospital's machine; the figures need up to 5 of them.
MAPS_SHOWN, MAPS_EACH = 12, 3  # patients on the page, and maps of each; patients' own pages have all
MAPS_BUDGET, MAPS_WIDTH, MAPS_QUALITY = 2_000_000, 960, 80  # bytes of page; pixels, as the picture is drawn; WebP's scale
GROUPS_BUDGET = 700_000  # bytes of the cohort's mean maps
QC_BUDGET, QC_WIDTH, QC_QUALITY = 800_000, 224, 60  # a quarter of the sheet's width: enough to see a brain cut off


@dataclass(frozen=True)
class Thumbnail:
    """A card's picture as a data: URL, and its description."""

    picture: str
    words: str


def front_page(
    run: Run,
    metrics: Metrics,
    templates: jinja2.Environment,
    drawn: Mapping[str, str],
    links: Mapping[str, str],
    texts: Sequence[str],
) -> str:
    """The HTML page.

    `drawn` are the figures as data: URLs by name, `links` the patients' pages by patient, `texts` the files for a paper.
    """
    prepared = [(name, path) for name, path in run.qc if path.is_file()]
    sheets = page_pictures.shrunk([path for _, path in prepared], QC_WIDTH, QC_QUALITY, QC_BUDGET)
    script = templates.get_template("report.js").render()
    return templates.get_template("page.html").render(
        script=Markup(script),
        policy=style.content_policy(
            {"script-src": style.source_hash(script), "style-src": "'unsafe-inline'", "img-src": "data:"}
        ),
        m=metrics,
        pictures=drawn,
        tumour_masks=protocol.tumour_masks(run.study.prepare, run.study.channels, list(metrics.tumours.values())),
        links=links,
        thumbnails=_thumbnails(run, metrics),
        excluded=run.excluded.to_dict("records"),
        decisions=run.decisions.to_dict("records"),
        reasons=_reasons(metrics.cohort.excluded_reasons),
        maps=_patient_maps(run, metrics.maps),
        groups=_mean_maps(run, metrics),
        beside=network_maps(run, metrics),
        comparator_notes=map_sentences.comparator_notes(metrics),
        failing=failure_cards(run, metrics, links),
        sheets=[(name, picture) for (name, _), picture in zip(prepared, sheets, strict=False)],
        sheets_left_out=len(prepared) - len(sheets),
        is_synthetic=is_synthetic(run),
        settings=_settings(metrics),
        versions=_versions(metrics.environment),
        models=metrics.models,
        channels=run.study.channels,
        reference=run.study.prepare.reference,
        judged=[name for name, endpoint in metrics.endpoints.items() if endpoint.models],
        to_make_again=map_sentences.to_make_again(metrics),
        beside_random_weights=map_sentences.BESIDE_RANDOM_WEIGHTS,
        explained=map_sentences.explained(metrics),
        supervision_note=map_sentences.supervision_note(metrics),
        texts=texts,
    )


def _settings(metrics: Metrics) -> dict[str, dict[str, Any]]:
    """The study's settings by section; keys above the first section come under "study"."""
    plain = metrics.settings.model_dump(mode="json")
    head = {key: value for key, value in plain.items() if not isinstance(value, dict)}
    sections = {section: values for section, values in plain.items() if isinstance(values, dict)}
    return {section: values for section, values in {"study": head, **sections}.items() if values}


def _patient_maps(run: Run, described: Sequence[PatientMaps]) -> list[tuple[PatientMaps, list[tuple[ShownMap, str]]]]:
    """Patients with their first maps and pictures; within the budget of bytes each patient's first map has priority."""
    pairs = list(zip(run.maps, described, strict=True))[:MAPS_SHOWN]
    wanted = [
        (said.patient, entry, found.overlays[entry.index])
        for rank in range(MAPS_EACH)
        for found, said in pairs
        for entry in said.of_prediction[rank : rank + 1]
    ]
    packed = page_pictures.shrunk([path for *_, path in wanted], MAPS_WIDTH, MAPS_QUALITY, MAPS_BUDGET)
    shown: dict[str, list[tuple[ShownMap, str]]] = {}
    for (patient, entry, _), picture in zip(wanted, packed, strict=False):
        shown.setdefault(patient, []).append((entry, picture))
    return [(said, shown[said.patient]) for _, said in pairs if said.patient in shown]


def _mean_maps(run: Run, metrics: Metrics) -> list[tuple[GroupMaps, str]]:
    """The cohort's mean maps with their pictures; endpoints with a finding first, then their own maps before shared ones."""
    scored = metrics.map_scores.endpoints if metrics.map_scores else {}

    def weak(pair: tuple[GroupMaps, Path]) -> tuple[bool, bool]:
        entry, endpoint = pair[0], scored.get(pair[0].endpoint)
        return endpoint is None or bool(endpoint.no_finding), not METHODS[entry.method].per_endpoint

    ordered = sorted(zip(metrics.map_groups, (path for _, path in run.groups), strict=True), key=weak)
    packed = page_pictures.shrunk([path for _, path in ordered], MAPS_WIDTH, MAPS_QUALITY, GROUPS_BUDGET)
    return [(entry, picture) for (entry, _), picture in zip(ordered, packed, strict=False)]


def is_synthetic(run: Run) -> bool:
    """Whether patients are synthetic, by the run's own note, or by the demo's patient names for versions before 0.6.

    The note of an evaluation is about the run, not about the patients it judges.
    """
    people = run.predictions.patient
    noted = run.design == "cross-validation" and SYNTHETIC_NOTE in run.notes
    return noted or (run.study.name == DEMO and len(people) > 0 and all_from_demo(people))


def _reasons(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Reasons of exclusion with their counts, the most frequent first, rare ones together."""
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
    """The picture of each endpoint's card that has a finding: the map with the median peak of its method."""
    reference, found = run.study.prepare.reference, {}
    for name, card in metrics.cards.items():
        if verdicts.is_finding(metrics.endpoints[name].models[card.model]) and (pair := _typical(run, metrics, name)):
            whose, entry = pair
            names = (whose.facts["brain"], whose.facts["maps"][entry.index]["files"][reference])
            brain, heat = (read(whose.folder / file) for file in names)
            title = capitalize_first(entry.title)
            said = f"{title} of {whose.patient}, the map with the median peak; checks of such maps: {MAP_KINDS[entry.kind]}"
            even = nearly_even(entry.peak)
            found[name] = Thumbnail(page_pictures.map_thumbnail(brain, heat), f"{said}; {even}" if even else said)
    return found


def _typical(run: Run, metrics: Metrics, endpoint: str) -> tuple[Map, ShownMap] | None:
    """Among an endpoint's drawable maps by the best method, the one with the median peak."""
    scored = metrics.map_scores.endpoints.get(endpoint) if metrics.map_scores else None
    best = verdicts.best_method(scored) if scored else None
    drawable = [
        (whose, entry)
        for whose, said in zip(run.maps, metrics.maps, strict=True)
        for entry in said.of_prediction
        if entry.endpoint in ("", endpoint) and entry.peak > 0 and page_pictures.drawable(whose, run.study.prepare.reference)
    ]
    method = best or next((entry.method for _, entry in drawable if entry.endpoint), None)
    ranked = sorted((pair for pair in drawable if pair[1].method == method), key=lambda pair: (pair[1].peak, pair[0].patient))
    return ranked[len(ranked) // 2] if ranked else None


FAILURE_WIDTH, FAILURE_QUALITY = 420, 60  # pixels, WebP's scale: a sheet of four scans and a map in 5 to 20 kB each
FAILURE_LARGEST = 30_000  # bytes of a picture, else it is left out: ten cards with two each are then 0.6 MB of an endpoint
FAILURE_BUDGET = 1_500_000  # bytes of page of all of them


@dataclass(frozen=True)
class FailureCard:
    """One of the worst patients; a picture is a data: URL, "" where there is none."""

    patient: Patient
    link: str
    qc: str
    map: str


def failure_cards(run: Run, metrics: Metrics, links: Mapping[str, str]) -> dict[str, list[FailureCard]]:
    """The worst patients of each endpoint in order; `links` are the patients' pages by visit."""
    people = {one.patient: one for one in metrics.patients}
    sheets = _failure_sheets(run)
    shown: dict[str, list[tuple[Patient, Path | None, Path | None]]] = {}
    for name, found in metrics.failures.items():
        worst = [people[patient] for patient in found.patients]
        shown[name] = [(one, sheets.get(one.patient), _failure_map(run, metrics, one, name)) for one in worst]
    wanted = list(dict.fromkeys(path for cards in shown.values() for _, *both in cards for path in both if path))
    packed = dict(zip(wanted, page_pictures.shrunk(wanted, FAILURE_WIDTH, FAILURE_QUALITY, FAILURE_BUDGET), strict=False))
    small = {path: url for path, url in packed.items() if len(url) <= FAILURE_LARGEST}
    return {
        name: [
            FailureCard(one, _failure_link(one, links), *(small.get(path, "") if path else "" for path in (sheet, drawn)))
            for one, sheet, drawn in cards
        ]
        for name, cards in shown.items()
    }


def _failure_sheets(run: Run) -> dict[str, Path]:
    """The picture of preparation of each patient's first visit."""
    people = set(run.cohort.patient)
    return {subject(visit, people): path for visit, path in reversed(run.qc) if path.is_file()}


def _failure_map(run: Run, metrics: Metrics, patient: Patient, endpoint: str) -> Path | None:
    """The picture of the endpoint's first map, else of one for all endpoints; None without any, or without a finding."""
    card = metrics.cards.get(endpoint)
    if card is None or not verdicts.is_finding(metrics.endpoints[endpoint].models[card.model]):
        return None
    for found, said in zip(run.maps, metrics.maps, strict=True):
        if found.patient in patient.maps:
            maps = said.of_prediction
            own = [entry for entry in maps if entry.endpoint == endpoint] or [one for one in maps if not one.endpoint]
            return found.overlays[own[0].index] if own else None
    return None


def _failure_link(patient: Patient, links: Mapping[str, str]) -> str:
    visits = (visit_id(patient.patient, session) for session in patient.sessions)
    return next((links[visit] for visit in visits if visit in links), "")


@dataclass(frozen=True)
class NetworkMap:
    """A network's map: the network's name, the map's facts, and its picture as a data: URL."""

    model: str
    entry: ShownMap
    picture: str


@dataclass(frozen=True)
class NetworkMaps:
    """Maps of one patient for one endpoint on the plane at a height in mm; `tumour`: whether a tumour's outline is drawn."""

    patient: str
    endpoint: str
    height_mm: float
    tumour: bool
    maps: tuple[NetworkMap, ...]


def network_maps(run: Run, metrics: Metrics) -> NetworkMaps | None:
    """The maps of the first patient with maps by every network, preferably one with a tumour mask.

    They are of the first endpoint that the own network predicts better than chance, or else the first. None where no patient
    has maps by all networks.
    """
    found = {OWN: (run.maps, metrics.maps)}
    found |= {name: (run.comparator_maps[name].maps, one.maps) for name, one in metrics.comparator_maps.items()}
    by_patient = {name: {m.patient: (m, said) for m, said in zip(*both, strict=True)} for name, both in found.items()}
    reference = run.study.prepare.reference
    whole = [
        patient
        for patient in by_patient[OWN]
        if len(found) > 1
        and all(patient in of and drawable(of[patient][0], reference) for of in by_patient.values())
        and metrics.endpoints
    ]
    if not whole:
        return None
    masked = [patient for patient in whole if patient in run.tumours and run.tumours[patient].is_file()]
    return _network_maps_of(next(iter(masked or whole)), by_patient, run, metrics)


def _network_maps_of(
    patient: str, by_patient: Mapping[str, Mapping[str, tuple[Map, PatientMaps]]], run: Run, metrics: Metrics
) -> NetworkMaps | None:
    endpoint, reference = _compared_endpoint(metrics), run.study.prepare.reference
    own = by_patient[OWN][patient][0]
    brain = read(own.folder / own.facts["brain"])
    chosen = [
        (name, found, entry)
        for name, of in by_patient.items()
        for found, said in (of[patient],)
        for entry in _chosen_maps(said, endpoint, name, metrics)
    ]
    if len({name for name, *_ in chosen}) < 2:
        return None
    heats = [map_on_scan(found.folder, found.facts["maps"][entry.index], brain, reference) for _, found, entry in chosen]
    tumour = _tumour_mask(run, patient, brain)
    planes, height_mm = page_pictures.side_by_side(brain, heats, tumour)
    shown = tuple(NetworkMap(name, entry, picture) for (name, _, entry), picture in zip(chosen, planes, strict=True))
    return NetworkMaps(patient, endpoint, height_mm, tumour is not None and bool(tumour.any()), shown)


def _compared_endpoint(metrics: Metrics) -> str:
    """The first endpoint that the own network predicts better than chance, or else the first."""
    findings = [name for name, one in metrics.endpoints.items() if OWN in one.models and verdicts.is_finding(one.models[OWN])]
    return next(iter(findings or metrics.endpoints))


def _chosen_maps(said: PatientMaps, endpoint: str, model: str, metrics: Metrics) -> list[ShownMap]:
    """A comparator's maps for the endpoint; for the own network the best method's map, or the endpoint's first."""
    maps = [entry for entry in said.of_prediction if entry.endpoint == endpoint or not METHODS[entry.method].per_endpoint]
    if model != OWN:
        return sorted((entry for entry in maps if entry.endpoint), key=lambda entry: list(METHODS).index(entry.method))
    scored = metrics.map_scores.endpoints.get(endpoint) if metrics.map_scores else None
    best = verdicts.best_method(scored) if scored else None
    ranked = sorted(maps, key=lambda entry: (entry.method != best, not entry.endpoint))
    return ranked[:1]


def _tumour_mask(run: Run, patient: str, brain: Volume) -> Bool[np.ndarray, "x y z"] | None:
    """The tumour, given in the reference's space, on the brain's voxels."""
    path = run.tumours.get(patient)
    if path is None or not path.is_file():
        return None
    drawn = read_mask(path)
    mask = Volume((drawn.array != 0).astype(np.uint8), drawn.affine)
    return resample(mask, brain.shape, brain.affine, interpolation=sitk.sitkNearestNeighbor).array > 0
