"""Beside: one patient's maps by the study's own network and by its comparators, the same plane of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool

from mri_vit.data.volume import Volume, read, read_mask, resample
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.report.figures import thumbnail
from mri_vit.report.pages.volumes import drawable, heat_of
from mri_vit.report.reading.maps import Map
from mri_vit.report.reading.run import OWN, Run
from mri_vit.report.schema.maps import PatientMaps, ShownMap
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.verdicts import maps as map_verdict


@dataclass(frozen=True)
class Shown:
    """A network's map: the network's name, what is known of the map, and its picture, a data: URL."""

    model: str
    entry: ShownMap
    picture: str


@dataclass(frozen=True)
class Row:
    """Maps of one patient for one endpoint, on the plane at a height in mm; whether it cuts a tumour, whose outline is drawn."""

    patient: str
    endpoint: str
    height_mm: float
    tumour: bool
    maps: tuple[Shown, ...]


def row(run: Run, metrics: Metrics) -> Row | None:
    """The maps of the first patient of whom every network has some, one with a tumour mask before others.

    They are of the first endpoint that the own network finds, or else the first. None where no patient has maps by all of them.
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
    return _of(next(iter(masked or whole)), by_patient, run, metrics)


def _of(patient: str, by_patient: Mapping[str, Mapping[str, tuple[Map, PatientMaps]]], run: Run, metrics: Metrics) -> Row | None:
    endpoint, reference = _endpoint(metrics), run.study.prepare.reference
    own = by_patient[OWN][patient][0]
    brain = read(own.folder / own.facts["brain"])
    chosen = [
        (name, found, entry)
        for name, of in by_patient.items()
        for found, said in (of[patient],)
        for entry in _chosen(said, endpoint, name, metrics)
    ]
    if len({name for name, *_ in chosen}) < 2:
        return None
    heats = [heat_of(found.folder, found.facts["maps"][entry.index], brain, reference) for _, found, entry in chosen]
    tumour = _tumour(run, patient, brain)
    pictures, height_mm = thumbnail.side_by_side(brain, heats, tumour)
    shown = tuple(Shown(name, entry, picture) for (name, _, entry), picture in zip(chosen, pictures, strict=True))
    return Row(patient, endpoint, height_mm, tumour is not None and bool(tumour.any()), shown)


def _endpoint(metrics: Metrics) -> str:
    """The first that the own network finds, or else the first."""
    told = [name for name, one in metrics.endpoints.items() if OWN in one.models and map_verdict.is_finding(one.models[OWN])]
    return next(iter(told or metrics.endpoints))


def _chosen(said: PatientMaps, endpoint: str, model: str, metrics: Metrics) -> list[ShownMap]:
    """A comparator's maps for the endpoint; of the own network's the method that stands best, or the endpoint's first."""
    maps = [entry for entry in said.maps if entry.endpoint == endpoint or not METHODS[entry.method].per_endpoint]
    if model != OWN:
        return sorted((entry for entry in maps if entry.endpoint), key=lambda entry: list(METHODS).index(entry.method))
    scored = metrics.map_scores.endpoints.get(endpoint) if metrics.map_scores else None
    best = map_verdict.best(scored) if scored else None
    ranked = sorted(maps, key=lambda entry: (entry.method != best, not entry.endpoint))
    return ranked[:1]


def _tumour(run: Run, patient: str, brain: Volume) -> Bool[np.ndarray, "x y z"] | None:
    """The tumour on the brain's voxels; it lies in the reference's world."""
    path = run.tumours.get(patient)
    if path is None or not path.is_file():
        return None
    drawn = read_mask(path)
    mask = Volume((drawn.array != 0).astype(np.uint8), drawn.affine)
    return resample(mask, brain.shape, brain.affine, interpolation=sitk.sitkNearestNeighbor).array > 0
