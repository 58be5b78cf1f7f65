"""A patient's maps as files: computed maps in; a NIfTI on every scan's voxels, pictures, sidecars and their record out.

Letters: x, y, z the reference scan's own voxels (T1ce, unless a study says otherwise), e grid edge.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool
from nibabel.affines import apply_affine

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, read, resample, write
from mri_vit.errors import UsageError
from mri_vit.explain.methods.catalogue import METHODS, UNIT
from mri_vit.explain.methods.patient_maps import MapResult, PatientMaps, of_patient
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.native_maps import Space, frame_of_grid, frames_of_patient, on_scan, space
from mri_vit.explain.outputs.records import (
    GRID,
    MAP_SCHEMA,
    RESEARCH,
    MapEntry,
    MapRecord,
    NetworkId,
    brain_file,
    file_name,
    plain,
    write_json,
)
from mri_vit.model.network import Network
from mri_vit.prepare.brain import STRIPPED_GAP, STRIPPED_ML, border_value, skull_gap, volume_ml
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.settings.sequences import title

DECIMALS = 2  # of stored values: a thousandth of the uniform map means nothing, and the files halve


class Peak(NamedTuple):
    """Range inside the brain, and where the highest voxel lies in scanner space (the first of them where several are)."""

    minimum: float
    peak: float
    peak_mm: list[float]


def explain(patient: Patient, net: Network, study: Study, folder: Path, network: NetworkId) -> None:
    """Make a prepared patient's maps by a network in evaluation mode, on any device, and write them as `write_maps` does."""
    refuse_foreign(folder)
    write_maps(of_patient(patient, net, study), study, folder, network)


def write_maps(maps: PatientMaps, study: Study, folder: Path, network: NetworkId) -> None:
    """Write a patient's maps into `folder`, which appears whole or not at all.

    Parameters
    ----------
    maps
        Where the patient has a tumour mask, the pictures show its outline.
    study
        Its `explain` section names the methods.
    folder
        `maps/<patient.id>`. For each map (a method and, where it has them, an endpoint): a NIfTI with a sidecar on the voxels
        of each scan and of the prepared grid, and an overlay picture. Beside them the reference's brain (not where what was
        taken for the brain may hold a face, see `_is_brain`), the brain's mask on the grid, and `map.json`.
    network
        Whose maps they are, which goes into `map.json` and the sidecars.

    Raises
    ------
    UnusablePatient
        The reference scan or the tumour mask can no longer be read.
    """
    refuse_foreign(folder)
    patient, reference, results = maps.patient, study.prepare.reference, maps.results
    file = patient.scans[reference]
    assert file is not None  # no patient is prepared without it
    scan = read(file)
    brain = (tokens.to_volume(maps.prepared) != 0).any(axis=0)
    mask, published, peaks = file_name(patient, "brain", "", GRID, "mask.nii.gz"), None, []
    written: list[dict[str, str]] = [{} for _ in results]  # file by space, map by map
    with complete(folder, refuse_foreign) as beside:
        write(Volume(brain.astype(np.uint8), np.array(study.grid.affine)), beside / mask)
        for name, frame in (frames_of_patient(patient, scan, study) | {GRID: frame_of_grid(study.grid)}).items():
            # One space after the other: at full size each takes hundreds of megabytes.
            where = space(frame.shape, frame.affine, frame.to_grid, brain, maps.input.at, study.grid)
            heats = [on_scan(result.value, where, DECIMALS) for result in results]
            for result, by_space, heat in zip(results, written, heats, strict=True):
                by_space[name] = file_name(patient, result.method, result.endpoint, name, "map.nii.gz")
                write(heat, beside / by_space[name])
                sidecar = _sidecar(result, heat, where, name, study) | {"Model": asdict(network)}
                write_json(sidecar, beside / file_name(patient, result.method, result.endpoint, name, "map.json"))
            if name == reference:
                peaks = [_peak(heat, where) for heat in heats]
                _draw(maps, scan, heats, where, f"the patient's own {title(reference)}", beside, network)
                if _is_brain(scan, where.inside, study):
                    published = brain_file(patient, reference)
                    write(brain_only(scan, where.inside), beside / published)
        record = MapRecord(
            schema=MAP_SCHEMA,
            patient=patient.id,
            subject=patient.subject,
            **asdict(network),
            tokens=maps.input.batch[1].shape[1],
            settings=study.explain.of_maps,
            brain=published,
            mask=mask,
            tumour=patient.tumour_mask is not None,
            maps=[_entry(patient, *parts) for parts in zip(results, written, peaks, strict=True)],
            score_by_scan=maps.score_by_scan,
        )
        write_json(plain(record), beside / files.MAP)


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is nothing, or a patient's maps of ours and nothing else."""
    named = re.compile(r"sub-[A-Za-z0-9]+_.+\.(nii\.gz|json|png)")
    atomic.refuse_strangers(folder, lambda name: name == files.MAP or bool(named.fullmatch(name)), "a patient's maps")
    if (folder / files.MAP).exists() and not {"schema", "patient", "maps"} <= set(
        integrity.read_json_or_empty(folder / files.MAP)
    ):
        raise UsageError(f"{folder}: its {files.MAP} is damaged or another program's; the folder is left alone: delete it first")


def brain_only(scan: Volume, inside: Bool[np.ndarray, "x y z"]) -> Volume:
    """The scan as a report may publish it: 0 outside the brain, so that no face can be rebuilt; 1 to 255 inside, as bytes.

    The pictures' contrast is spread over 1 to 255. A screen shows no more levels, and the file is small.
    """
    values = scan.array[inside]
    low, high = np.percentile(values, overlays.CONTRAST) if values.size else (0.0, 1.0)
    level = 1 + 254 * ((scan.array - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a brain of one value is black, no fault
    return Volume(np.where(inside, level, 0).round().astype(np.uint8), scan.affine)


def _is_brain(scan: Volume, inside: Bool[np.ndarray, "x y z"], study: Study) -> bool:
    """Whether what was taken for the brain can be no more than one; otherwise it may hold a face, and is not published.

    It is no larger than a brain; and where the study says that all scans were stripped, which nothing has checked until here, no
    gap as dark as a skull's lies below its rim.
    """
    if volume_ml(inside, scan) > STRIPPED_ML:
        return False
    return study.prepare.brain != "none" or skull_gap(canonical(scan), border_value(scan.array)) < STRIPPED_GAP


def _entry(patient: Patient, result: MapResult, by_space: dict[str, str], peak: Peak) -> MapEntry:
    method = METHODS[result.method]
    return MapEntry(
        method=result.method,
        endpoint=result.endpoint,
        title=method.title,
        source=method.source,
        explains=result.explains,
        unit=UNIT,
        cls_share=result.cls_share,
        files=by_space,
        overlay=file_name(patient, result.method, result.endpoint, None, "overlay.png"),
        note=result.note,
        by_scan=result.by_scan,
        **peak._asdict(),
    )


def _peak(heat: Volume, where: Space) -> Peak:
    highest = np.unravel_index(int(heat.array.argmax()), heat.shape)
    low, high = _range(heat, where)
    return Peak(low, high, [round(float(x), 1) for x in apply_affine(heat.affine, np.array(highest))])


def _range(heat: Volume, where: Space) -> list[float]:
    values = heat.array[where.inside]
    return [round(float(x), DECIMALS) for x in (values.min(), values.max())] if values.size else [0.0, 0.0]


def _sidecar(result: MapResult, heat: Volume, where: Space, name: str, study: Study) -> dict[str, Any]:
    """What goes with one NIfTI file, in BIDS' manner."""
    grid = study.grid
    lies_on = f"the voxels of the patient's own {title(name)} scan"
    if name == GRID:
        lies_on = f"the prepared grid: {grid.edge}³ voxels of {grid.spacing_mm:g} mm, rigidly aligned to the MNI152 brain"
    return {
        "Description": result.title,
        "Method": result.method,
        "Endpoint": result.endpoint,
        "Explains": result.explains,
        "Units": UNIT,
        "Range": _range(heat, where),
        "SpatialReference": lies_on,
        "Source": METHODS[result.method].source,
        "Note": f"{result.note} 1 is an even share of the map's sum; 0 outside the brain. {RESEARCH}",
    }


def _draw(
    maps: PatientMaps, scan: Volume, heats: list[Volume], where: Space, scan_title: str, folder: Path, network: NetworkId
) -> None:
    """The overlay pictures, on the reference's voxels; a comparator's name goes before the map's."""
    tumour = None
    if maps.tumour:  # it lies in the reference's world, on whatever voxels
        mask = Volume((maps.tumour.array != 0).astype(np.uint8), maps.tumour.affine)
        tumour = resample(mask, scan.shape, scan.affine, interpolation=sitk.sitkNearestNeighbor).array > 0
    whose = "" if network.model == VIT else f"{network.model}: "
    for result, heat in zip(maps.results, heats, strict=True):
        picture = folder / file_name(maps.patient, result.method, result.endpoint, None, "overlay.png")
        head = f"{maps.patient.id} · {whose}{result.title} · on {scan_title}"
        overlays.draw(scan, heat, head, picture, where.inside, tumour, f"{result.note} {RESEARCH}")
