"""One patient's maps: from prepared tokens and a fitted network to NIfTI files in every space, pictures, and their record.

Letters: x, y, z the reference scan's own voxels (T1ce, unless a study says otherwise), f places that have a value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
import torch
from jaxtyping import Bool, Float
from nibabel.affines import apply_affine
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, resample, write
from mri_vit.errors import UsageError
from mri_vit.explain.images import frames, overlay
from mri_vit.explain.images.native import Space, on_scan, space
from mri_vit.explain.methods import modality, patient_maps
from mri_vit.explain.methods.gradient import gradient_by_scan
from mri_vit.explain.methods.names import METHODS, UNIT, brain_file, file_name
from mri_vit.explain.methods.patient_maps import PatientMaps
from mri_vit.explain.methods.relevance import note, relative
from mri_vit.explain.methods.target import TargetSigns
from mri_vit.explain.records import MAP_SCHEMA, RESEARCH, Fitted, MapEntry, MapRecord, plain
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.prepare.brain import STRIPPED_ML, volume_ml
from mri_vit.run import files, integrity, ownership
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.settings.sequences import title

DECIMALS = 2  # of stored values: nobody reads a thousandth of the uniform map, and the files halve
SHARES = ("rollout", "cls_attention")  # their row over CLS and the places sums to 1, so CLS's own share is known


@dataclass(frozen=True, eq=False)
class Found:
    """One map: times the uniform map at each place, CLS's own share where it has one, how much of it is each sequence's."""

    method: str
    endpoint: str
    explains: str
    value: Float[np.ndarray, "f"]
    cls_share: float | None
    by_scan: dict[str, float] | None  # None where there is nothing to share
    note: str  # what a reader may take from it

    @property
    def words(self) -> str:
        """Its title for a reader."""
        return f"{METHODS[self.method].title}{' for ' if self.explains else ''}{self.explains}"


@dataclass(eq=False)
class Placed:
    """What was written of the maps, map by map: files by space, and the range and the peak on the reference; the brain's file."""

    files: list[dict[str, str]]
    summits: list[Summit] = field(default_factory=list)
    brain: str | None = None


class Summit(NamedTuple):
    """Range inside the brain, and where the highest voxel lies in scanner space (the first of them where several are)."""

    minimum: float
    peak: float
    peak_mm: list[float]


def explain(patient: Patient, net: Network, study: Study, folder: Path, fitted: Fitted) -> None:
    """Make a prepared patient's maps by a network in evaluation mode, on any device, and write them as `write_maps` does."""
    refuse_foreign(folder)
    write_maps(patient_maps.of_patient(patient, net, study), study, folder, fitted)


def write_maps(made: PatientMaps, study: Study, folder: Path, fitted: Fitted) -> None:
    """Write a patient's maps into `folder`, which appears whole or not at all.

    Parameters
    ----------
    made
        Where the patient has a tumour mask, the pictures show its outline.
    study
        Its `explain` section names the methods.
    folder
        `maps/<patient.id>`. For each map (a method and, where it has them, an endpoint): a NIfTI with a sidecar on the voxels
        of each scan and of the prepared grid, and an overlay picture. Beside them the reference's brain (not where what was
        taken for the brain is larger than one: it may hold a face), the brain's mask on the grid, and `map.json`.
    fitted
        Whose maps they are, which goes into `map.json` and the sidecars.

    Raises
    ------
    UnusablePatient
        The reference scan or the tumour mask can no longer be read.
    """
    refuse_foreign(folder)
    patient, found = made.patient, _found(made)
    brain = (tokens.to_volume(made.prepared) != 0).any(axis=0)
    mask = file_name(patient, "brain", "", "grid", "mask.nii.gz")
    with complete(folder, refuse_foreign) as beside:
        write(Volume(brain.astype(np.uint8), np.array(study.grid.affine)), beside / mask)
        placed = _write_in_every_space(found, made, brain, study, beside, fitted)
        content = MapRecord(
            schema=MAP_SCHEMA,
            patient=patient.id,
            subject=patient.subject,
            **asdict(fitted),
            tokens=made.given.batch[1].shape[1],
            settings=study.explain.of_maps,
            brain=placed.brain,
            mask=mask,
            tumour=patient.tumour_mask is not None,
            maps=[_entry(patient, one, placed.files[index], placed.summits[index]) for index, one in enumerate(found)],
            score_by_scan=_shapley(made),
        )
        _write_json(plain(content), beside / files.MAP)


def _write_in_every_space(
    found: Sequence[Found], made: PatientMaps, brain: Bool[np.ndarray, "e e e"], study: Study, folder: Path, fitted: Fitted
) -> Placed:
    """The maps on every scan's voxels and on the grid, with sidecars; on the reference's also the pictures and the brain."""
    patient, reference = made.patient, study.prepare.reference
    scan = read(_file_of(reference, patient))
    placed = Placed(files=[{} for _ in found])
    for name, where in _spaces(made, scan, study, brain):
        heats = [_rounded(on_scan(one.value, where)) for one in found]
        for one, listed, heat in zip(found, placed.files, heats, strict=True):
            listed[name] = file_name(patient, one.method, one.endpoint, name, "map.nii.gz")
            write(heat, folder / listed[name])
            sidecar = _sidecar(one, heat, where, _words(name, study)) | {"Model": asdict(fitted)}
            _write_json(sidecar, folder / file_name(patient, one.method, one.endpoint, name, "map.json"))
        if name == reference:
            placed.summits = [_summit(heat, where) for heat in heats]
            whose = "" if fitted.model == VIT else f"{fitted.model}: "
            _draw(made, found, scan, heats, where, title(reference), folder, whose)
            if volume_ml(where.inside, scan) <= STRIPPED_ML:
                placed.brain = brain_file(patient, reference)
                write(brain_only(scan, where.inside), folder / placed.brain)
    return placed


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is nothing, or a patient's maps of ours and nothing else."""
    named = re.compile(r"sub-[A-Za-z0-9]+_.+\.(nii\.gz|json|png)")
    ownership.refuse_strangers(folder, lambda name: name == files.MAP or bool(named.fullmatch(name)), "a patient's maps")
    if (folder / files.MAP).exists() and not {"schema", "patient", "maps"} <= set(
        integrity.read_json_or_empty(folder / files.MAP)
    ):
        raise UsageError(f"{folder}: its {files.MAP} is damaged or another program's; the folder is left alone: delete it first")


def brain_only(scan: Volume, inside: Bool[np.ndarray, "x y z"]) -> Volume:
    """The scan as a report may publish it: 0 outside the brain, so that no face can be rebuilt; 1 to 255 inside, as bytes.

    The pictures' contrast is spread over 1 to 255. A screen shows no more levels, and the file is small.
    """
    values = scan.array[inside]
    low, high = np.percentile(values, overlay.CONTRAST) if values.size else (0.0, 1.0)
    level = 1 + 254 * ((scan.array - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a brain of one value is black, no fault
    return Volume(np.where(inside, level, 0).round().astype(np.uint8), scan.affine)


def _found(made: PatientMaps) -> list[Found]:
    """The patient's maps on the places where there is brain, in the order of the study's methods."""
    by_scan = modality.maps_by_scan(made.value, gradient_by_scan(made.net, *made.given.batch), made.net.channels)
    explains = {head.endpoint.name: _explains(head, made.signs) for head in made.net.heads}
    return [
        Found(
            method,
            endpoint,
            explains.get(endpoint, ""),
            relative(value[:, torch.from_numpy(made.given.brain).to(value.device)])[0].cpu().numpy(),
            round(1 - float(value.sum()), 4) if method in SHARES else None,
            None if any(map(math.isnan, shares.values())) else shares,
            note(method, made.net),
        )
        for (method, endpoint), value in made.value.items()
        for shares in (_numbers(by_scan[method, endpoint]),)
    ]


def _numbers(tensors: Mapping[str, Float[Tensor, "1"]]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in tensors.items()}


def _explains(head: Head, signs: TargetSigns) -> str:
    """What an endpoint's maps explain: a class of a marker, or for survival the risk."""
    name = head.endpoint.name
    return f"{name} = {int(float(signs[name][0]) > 0)}" if head.kind == "binary" else f"higher risk ({name})"


def _file_of(reference: str, patient: Patient) -> Path:
    """The reference's file, without which nobody is prepared."""
    file = patient.scans[reference]
    assert file is not None
    return file


def _spaces(made: PatientMaps, scan: Volume, study: Study, brain: Bool[np.ndarray, "e e e"]) -> Iterator[tuple[str, Space]]:
    """Name and voxels, one after the other, because at full size each takes hundreds of megabytes."""
    own = frames.of_patient(made.patient, scan, study)
    for name, frame in (own | {"grid": frames.of_grid(study.grid)}).items():
        yield name, space(frame.shape, frame.affine, frame.to_grid, brain, made.given.at, study.grid)


def _rounded(heat: Volume) -> Volume:
    return Volume(heat.array.round(DECIMALS), heat.affine)


def _entry(patient: Patient, one: Found, files: dict[str, str], summit: Summit) -> MapEntry:
    method = METHODS[one.method]
    return MapEntry(
        method=one.method,
        endpoint=one.endpoint,
        title=method.title,
        source=method.source,
        explains=one.explains,
        unit=UNIT,
        cls_share=one.cls_share,
        files=files,
        overlay=file_name(patient, one.method, one.endpoint, None, "overlay.png"),
        note=one.note,
        by_scan=one.by_scan,
        **summit._asdict(),
    )


def _shapley(made: PatientMaps) -> dict[str, dict[str, float]]:
    """By endpoint each sequence's part of the evidence."""
    return {name: _numbers(one) for name, one in modality.scores_by_scan(made.net, *made.given.batch).items()}


def _summit(heat: Volume, where: Space) -> Summit:
    peak = np.unravel_index(int(heat.array.argmax()), heat.shape)
    low, high = _range(heat, where)
    return Summit(low, high, [round(float(x), 1) for x in apply_affine(heat.affine, np.array(peak))])


def _range(heat: Volume, where: Space) -> list[float]:
    values = heat.array[where.inside]
    return [round(float(x), DECIMALS) for x in (values.min(), values.max())] if values.size else [0.0, 0.0]


def _sidecar(one: Found, heat: Volume, where: Space, lies_on: str) -> dict[str, Any]:
    """What goes with one NIfTI file, in BIDS' manner."""
    method = METHODS[one.method]
    return {
        "Description": one.words,
        "Method": one.method,
        "Endpoint": one.endpoint,
        "Explains": one.explains,
        "Units": UNIT,
        "Range": _range(heat, where),
        "SpatialReference": lies_on,
        "Source": method.source,
        "Note": f"{one.note} 1 is an even share of the map's sum; 0 outside the brain. {RESEARCH}",
    }


def _words(name: str, study: Study) -> str:
    """Which voxels a map lies on, for a reader."""
    if name == "grid":
        grid = study.grid
        return f"the prepared grid: {grid.edge}³ voxels of {grid.spacing_mm:g} mm, rigidly aligned to the MNI152 brain"
    return f"the voxels of the patient's own {title(name)} scan"


def _draw(
    made: PatientMaps,
    found: Sequence[Found],
    scan: Volume,
    heats: Sequence[Volume],
    where: Space,
    scan_title: str,
    folder: Path,
    whose: str,
) -> None:
    """The overlay pictures, on the reference's voxels; `whose` goes before the map's name."""
    tumour = None
    if made.tumour:  # it lies in the reference's world, on whatever voxels
        drawn = Volume((made.tumour.array != 0).astype(np.uint8), made.tumour.affine)
        tumour = resample(drawn, scan.shape, scan.affine, interpolation=sitk.sitkNearestNeighbor).array > 0
    for one, heat in zip(found, heats, strict=True):
        picture = folder / file_name(made.patient, one.method, one.endpoint, None, "overlay.png")
        head, note = (
            f"{made.patient.id} · {whose}{one.words} · on the patient's own {scan_title}",
            f"{one.note} {RESEARCH}",
        )
        overlay.draw(scan, heat, head, picture, where.inside, tumour, note)


def _write_json(content: dict[str, Any], path: Path) -> None:
    write_bytes(json.dumps(content, indent=1, ensure_ascii=False).encode(), path)
