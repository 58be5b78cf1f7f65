"""One patient's maps: from prepared tokens and a fitted network to NIfTI files in every space, pictures, and what they say.

Letters: x, y, z the T1ce scan's own voxels, f places that have a value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
import torch
from jaxtyping import Bool, Float, Integer
from nibabel.affines import apply_affine
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.batches import Batch, everything, token_file
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, resample, write
from mri_vit.errors import UsageError
from mri_vit.explain.images import overlay
from mri_vit.explain.images.native import Space, seen, space
from mri_vit.explain.methods import modality
from mri_vit.explain.methods.gradient import gradient_by_scan
from mri_vit.explain.methods.names import METHODS, SPACES, UNIT, brain_file, file_name
from mri_vit.explain.methods.relevance import relative, relevances
from mri_vit.model.heads import Head, direction
from mri_vit.model.network import Network
from mri_vit.prepare.brain import STRIPPED_ML, volume_ml
from mri_vit.prepare.prepared import load_record
from mri_vit.run import ownership
from mri_vit.run.atomic import write_bytes
from mri_vit.run.complete_folder import complete
from mri_vit.settings.schema import REFERENCE, Study

SCHEMA = 3  # of map.json
RECORD = "map.json"
DECIMALS = 2  # of stored values: nobody reads a thousandth of the uniform map, and the files halve
SHARES = ("rollout", "cls_attention")  # their row over CLS and the places sums to 1, so CLS's own share can be told
RESEARCH = "For research; not a medical device."


@dataclass(frozen=True, eq=False)
class Found:
    """One map: times the uniform map at each place, CLS's own share where it has one, how much is each scan's."""

    method: str
    endpoint: str
    explains: str
    value: Float[np.ndarray, "f"]
    cls_share: float | None
    by_scan: dict[str, float] | None  # None where there is nothing to share

    @property
    def words(self) -> str:
        """Its title for a reader."""
        return f"{METHODS[self.method].title}{' for ' if self.explains else ''}{self.explains}"


def explain(patient: Patient, net: Network, study: Study, folder: Path, model: dict[str, Any]) -> None:
    """Write a patient's maps into `folder`, which appears whole or not at all.

    Parameters
    ----------
    patient
        Prepared. Where there is a tumour mask, the pictures show its outline.
    net
        In eval mode, on any device.
    study
        Its `explain` section names the methods.
    folder
        `maps/<patient.id>`. For each map (a method and, where it has them, an endpoint): a NIfTI with a sidecar on the voxels
        of each scan and of the prepared grid, and an overlay picture. Beside them the T1ce's brain (not where what was
        taken for the brain is larger than one: it may hold a face), the brain's mask on the grid, and `map.json`.
    model
        Name, repeat and fold, which go into `map.json` and the sidecars.

    Raises
    ------
    UnusablePatient
        A scan or the tumour mask can no longer be read.
    """
    refuse_foreign(folder)
    prepared = tokens.load(token_file(study, patient))
    patches, place = (part.to(net.encoder.cls.device) for part in everything(prepared, study))
    at = np.isin(place[0].cpu().numpy(), prepared.place)  # a network on all places reads air too; a map is of the brain
    found = _found((patches, place), at, net, study)
    entries = [_entry(patient, one) for one in found]
    brain = (tokens.to_volume(prepared) != 0).any(axis=0)
    mask = file_name(patient, "brain", "", "grid", "mask.nii.gz")
    listed = {
        "schema": SCHEMA,
        "patient": patient.id,
        "subject": patient.subject,
        **model,
        "tokens": place.shape[1],
        "settings": study.explain.of_maps,
        "brain": None,
        "mask": mask,
        "tumour": patient.tumour_mask is not None,
        "maps": entries,
        "score_by_scan": {name: _numbers(one) for name, one in modality.scores_by_scan(net, patches, place).items()},
    }
    with complete(folder, refuse_foreign) as beside:
        write(Volume(brain.astype(np.uint8), np.array(study.grid.affine)), beside / mask)
        for name, scan, where in _spaces(patient, study, brain, place[0].cpu().numpy()[at]):
            heats = [_rounded(seen(one.value, where)) for one in found]
            for one, entry, heat in zip(found, entries, heats, strict=True):
                entry["files"][name] = file_name(patient, one.method, one.endpoint, name, "map.nii.gz")
                write(heat, beside / entry["files"][name])
                told = _sidecar(one, heat, where, _words(name, study)) | {"Model": model}
                _write_json(told, beside / file_name(patient, one.method, one.endpoint, name, "map.json"))
            if name == REFERENCE:
                for entry, heat in zip(entries, heats, strict=True):
                    entry |= _summit(heat, where)
                _draw(patient, found, scan, heats, where, beside)
                if volume_ml(where.inside, scan) <= STRIPPED_ML:
                    listed["brain"] = brain_file(patient)
                    write(brain_only(scan, where.inside), beside / listed["brain"])
        _write_json(listed, beside / RECORD)


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is nothing, or a patient's maps of ours and nothing else."""
    named = re.compile(r"sub-[A-Za-z0-9]+_.+\.(nii\.gz|json|png)")
    ownership.refuse_strangers(folder, lambda name: name == RECORD or bool(named.fullmatch(name)), "a patient's maps")
    if (folder / RECORD).exists() and not {"schema", "patient", "maps"} <= set(ownership.record(folder / RECORD)):
        raise UsageError(f"{folder}: its {RECORD} is damaged or another program's; the folder is left alone: delete it first")


def brain_only(scan: Volume, inside: Bool[np.ndarray, "x y z"]) -> Volume:
    """The scan as a report may publish it: 0 outside the brain, so that no face can be rebuilt; 1 to 255 inside, as bytes.

    The pictures' contrast is spread over 1 to 255. A screen shows no more levels, and the file is small.
    """
    values = scan.array[inside]
    low, high = np.percentile(values, overlay.CONTRAST) if values.size else (0.0, 1.0)
    level = 1 + 254 * ((scan.array - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a brain of one value is black, no fault
    return Volume(np.where(inside, level, 0).round().astype(np.uint8), scan.affine)


def _found(batch: Batch, at: Bool[np.ndarray, "p"], net: Network, study: Study) -> list[Found]:
    """The study's maps of one patient on the places `at` which there is brain, in the order of its methods."""
    patches, place = batch
    raw = relevances(net, patches, place, study.explain.methods)
    by_scan = modality.maps_by_scan(raw, gradient_by_scan(net, patches, place))
    explains = _predictions(net, batch)
    return [
        Found(
            method,
            endpoint,
            explains.get(endpoint, ""),
            relative(value[:, torch.from_numpy(at).to(value.device)])[0].cpu().numpy(),
            round(1 - float(value.sum()), 4) if method in SHARES else None,
            None if math.isnan(shares["t1"]) else shares,
        )
        for (method, endpoint), value in raw.items()
        for shares in (_numbers(by_scan[method, endpoint]),)
    ]


def _numbers(tensors: Mapping[str, Float[Tensor, "1"]]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in tensors.items()}


@torch.no_grad()
def _predictions(net: Network, batch: Batch) -> dict[str, str]:
    """By endpoint what its maps explain: the class that is predicted, or for survival the risk."""

    def said(head: Head, sign: float) -> str:
        name = head.endpoint.name
        return f"{name} = {int(sign > 0)}" if head.kind == "binary" else f"higher risk ({name})"

    outputs = net(*batch)
    signs = {head.endpoint.name: float(direction(head, outputs[head.endpoint.name])[0]) for head in net.heads}
    return {head.endpoint.name: said(head, signs[head.endpoint.name]) for head in net.heads}


def _spaces(
    patient: Patient, study: Study, brain: Bool[np.ndarray, "e e e"], place: Integer[np.ndarray, "f"]
) -> Iterator[tuple[str, Volume, Space]]:
    """One after the other, because at full size each takes hundreds of megabytes: name, scan (the brain for the grid), voxels."""
    to_grid = load_record(study.prepared / patient.id)["to_grid"]
    for name in SPACES:
        if name == "grid":
            scan, carried = Volume(brain.astype(np.uint8), np.array(study.grid.affine)), np.eye(4)
        elif (file := patient.scans[name]) is None:  # which prepare.needs allows
            continue
        else:
            scan, carried = read(file), np.array(to_grid[name])
        yield name, scan, space(scan.shape, scan.affine, carried, brain, place, study.grid)


def _rounded(heat: Volume) -> Volume:
    return Volume(heat.array.round(DECIMALS), heat.affine)


def _entry(patient: Patient, one: Found) -> dict[str, Any]:
    """A map's part of `map.json`, but for what is seen only on the T1ce's voxels."""
    method = METHODS[one.method]
    return {
        "method": one.method,
        "endpoint": one.endpoint,
        "title": method.title,
        "source": method.source,
        "explains": one.explains,
        "unit": UNIT,
        "cls_share": one.cls_share,
        "files": {},
        "overlay": file_name(patient, one.method, one.endpoint, None, "overlay.png"),
        "note": method.tells,
        "by_scan": one.by_scan,
    }


def _summit(heat: Volume, where: Space) -> dict[str, Any]:
    """Range inside the brain, and where the highest voxel lies in scanner space (the first of them where several are)."""
    peak = np.unravel_index(int(heat.array.argmax()), heat.shape)
    low, high = _range(heat, where)
    return {"minimum": low, "peak": high, "peak_mm": [round(float(x), 1) for x in apply_affine(heat.affine, np.array(peak))]}


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
        "Note": f"{method.tells} 1 is an even share of the map's sum; 0 outside the brain. {RESEARCH}",
    }


def _words(name: str, study: Study) -> str:
    """Which voxels a map lies on, for a reader."""
    if name == "grid":
        grid = study.grid
        return f"the prepared grid: {grid.edge}³ voxels of {grid.spacing_mm:g} mm, rigidly aligned to the MNI152 brain"
    return f"the voxels of the patient's own {SPACES[name]} scan"


def _draw(patient: Patient, found: Sequence[Found], scan: Volume, heats: Sequence[Volume], where: Space, folder: Path) -> None:
    """The overlay pictures, on the T1ce's voxels."""
    tumour = None
    if patient.tumour_mask:  # it lies in the T1ce's world, on whatever voxels
        drawn = read(patient.tumour_mask)
        drawn = Volume((drawn.array != 0).astype(np.uint8), drawn.affine)
        tumour = resample(drawn, scan.shape, scan.affine, interpolation=sitk.sitkNearestNeighbor).array > 0
    for one, heat in zip(found, heats, strict=True):
        picture = folder / file_name(patient, one.method, one.endpoint, None, "overlay.png")
        title, note = f"{patient.id} · {one.words} · on the patient's own T1ce", f"{METHODS[one.method].tells} {RESEARCH}"
        overlay.draw(scan, heat, title, picture, where.inside, tumour, note)


def _write_json(content: dict[str, Any], path: Path) -> None:
    write_bytes(json.dumps(content, indent=1, ensure_ascii=False).encode(), path)
