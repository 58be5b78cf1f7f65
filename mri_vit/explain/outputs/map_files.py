"""A patient's maps as files: computed maps in; a NIfTI on every scan's voxels, pictures, sidecars and their record out.

A map is made on every scan straight from its grid positions, so it is interpolated once however the scan lies. Where the voxels
of a scan lie is read from the prepared patient's record instead of the scan.

Letters: x, y, z a scan's own voxels, v those of them that are brain, f grid positions that have a value, e grid edge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool, Float, Integer, Shaped
from nibabel.affines import apply_affine
from scipy.sparse import csr_array

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.nifti import in_c_order
from mri_vit.data.volume import Volume, canonical, cut_box, read, resample, write
from mri_vit.errors import UsageError
from mri_vit.explain.methods.catalogue import METHODS, UNIT
from mri_vit.explain.methods.patient_maps import MapResult, PatientMaps, of_patient
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.records import (
    GRID,
    MAP_SCHEMA,
    RESEARCH,
    MapEntry,
    MapRecord,
    NetworkId,
    brain_file,
    file_name,
    write_json,
)
from mri_vit.model.network import Network
from mri_vit.prepare.brain import STRIPPED_GAP, STRIPPED_ML, border_value, skull_gap, volume_ml
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete
from mri_vit.run.integrity import as_written
from mri_vit.settings.recipe import VIT, title
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid, Prepare

NOT_ASKED: Mapping[str, dict[str, float]] = {}
DECIMALS = 2  # of stored values: a thousandth of the uniform map means nothing
STEP = 0.1**DECIMALS  # that a stored number counts: two bytes each are smaller by a quarter, and are written in half the time
VOXELS_AT_ONCE = 2**15  # whose eight corners with their shares stay in a core's cache


@dataclass(frozen=True, eq=False)
class Frame:
    """The voxels of a scan as its file has them, and where they lie.

    `affine` carries a voxel's index to RAS+ mm, `to_grid` the scan's RAS+ mm to the prepared grid's.
    """

    shape: tuple[int, int, int]
    affine: Float[np.ndarray, "4 4"]
    to_grid: Float[np.ndarray, "4 4"]


@dataclass(frozen=True, eq=False)
class Space:
    """The voxels that maps are laid on: which are brain, and of which grid positions each brain voxel is made (rows sum to 1)."""

    affine: Float[np.ndarray, "4 4"]
    inside: Bool[np.ndarray, "x y z"]  # in memory as in a file, x next to each other, and so are the rows of `share` and the maps
    share: csr_array  # [v f]


def explain(patient: Patient, net: Network, study: Study, folder: Path, network: NetworkId) -> None:
    """Make a prepared patient's maps by a network in evaluation mode, on any device, and write them as `write_maps` does."""
    refuse_foreign(folder)
    write_maps(of_patient(patient, net, study), study, folder, network)


def write_maps(
    maps: PatientMaps, study: Study, folder: Path, network: NetworkId, score_by_scan: Mapping[str, dict[str, float]] = NOT_ASKED
) -> None:
    """Write a patient's maps into `folder`, which is `maps/<patient.id>` and appears whole or not at all.

    For each map (a method and, where it has them, an endpoint): a NIfTI with a sidecar on the voxels of each scan and of the
    prepared grid, and an overlay picture, which shows the tumour's outline where there is a mask. Beside them the reference's
    brain (not where what was taken for the brain may hold a face, see `_is_brain`), the brain's mask on the grid, and `map.json`.

    `score_by_scan` is `PatientMaps.score_by_scan` where a report will read it: it costs more than all maps together.

    Raises UnusablePatient where the reference scan or the tumour mask can no longer be read.
    """
    refuse_foreign(folder)
    patient, reference, results = maps.patient, study.prepare.reference, maps.results
    file = patient.scans[reference]
    assert file is not None  # no patient is prepared without it
    scan = read(file)
    brain = (tokens.to_volume(maps.prepared) != 0).any(axis=0)
    mask, published = file_name(patient, "brain", "", "", GRID, "mask.nii.gz"), None
    written: list[dict[str, str]] = [{} for _ in results]  # file by space, map by map
    peaks: list[dict[str, Any]] = []
    edge = study.grid.edge
    of_grid = Frame((edge, edge, edge), np.array(study.grid.affine), np.eye(4))
    with complete(folder, refuse_foreign) as beside:
        write(Volume(brain.astype(np.uint8), of_grid.affine), beside / mask)
        for name, frame in (frames_of_patient(patient, scan, study) | {GRID: of_grid}).items():
            # One space after the other: at full size each takes hundreds of megabytes.
            where = space(frame.shape, frame.affine, frame.to_grid, brain, maps.input.at, study.grid)
            stored = [stored_on_scan(result.value, where) for result in results]
            for result, by_space, steps in zip(results, written, stored, strict=True):
                by_space[name] = file_name(patient, *result.place, name, "map.nii.gz")
                write(steps, beside / by_space[name], step=STEP)
                sidecar = _sidecar(result, steps, where, name, study) | {"Model": asdict(network)}
                write_json(sidecar, beside / file_name(patient, *result.place, name, "map.json"))
            if name == reference:
                peaks = [_peak(steps, where) for steps in stored]
                _draw(maps, scan, stored, where, f"the patient's own {title(reference)}", beside, network)
                if _is_brain(scan, where.inside, study.prepare):
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
            tumour=patient.judging_mask is not None,
            maps=[
                MapEntry(
                    method=result.method,
                    endpoint=result.endpoint,
                    title=METHODS[result.method].title + (f" of {result.of_class}" if result.of_class else ""),
                    source=METHODS[result.method].source,
                    explains=result.explains,
                    of_class=result.of_class,
                    unit=UNIT,
                    cls_share=result.cls_share,
                    files=by_space,
                    overlay=file_name(patient, *result.place, None, "overlay.png"),
                    note=result.note,
                    by_scan=result.by_scan,
                    **peak,
                )
                for result, by_space, peak in zip(results, written, peaks, strict=True)
            ],
            score_by_scan=dict(score_by_scan),
        )
        write_json(asdict(record), beside / files.MAP)


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
    values, level = scan.array[inside], np.zeros(scan.shape, np.uint8)
    low, high = np.percentile(values, overlays.CONTRAST) if values.size else (0.0, 1.0)
    share = ((values - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a brain of one value is black, no fault
    level[inside] = (1 + 254 * share).round()
    return Volume(level, scan.affine)


def _is_brain(scan: Volume, inside: Bool[np.ndarray, "x y z"], settings: Prepare) -> bool:
    """Whether what was taken for the brain can be no more than one; otherwise it may hold a face, and is not published.

    It is no larger than a brain; and where the study says that all scans were stripped, which nothing has checked until here, no
    gap as dark as a skull's lies below its rim.
    """
    if volume_ml(inside, scan) > STRIPPED_ML:
        return False
    return settings.brain != "none" or skull_gap(canonical(scan), border_value(scan.array)) < STRIPPED_GAP


def _peak(stored: Volume, where: Space) -> dict[str, Any]:
    """Range inside the brain, and where the highest voxel lies in scanner space (the first of several by x, y and z)."""
    in_file = stored.array.T
    equal = np.argwhere(in_file == in_file.max())[:, ::-1] if in_file.any() else np.zeros((1, 3), int)
    highest = equal[np.lexsort(equal.T[::-1])[0]]
    low, high = _range(stored, where)
    return {"minimum": low, "peak": high, "peak_mm": [round(float(x), 1) for x in apply_affine(stored.affine, highest)]}


def _range(stored: Volume, where: Space) -> list[float]:
    values = stored.array.T[where.inside.T]
    return [round(int(x) * STEP, DECIMALS) for x in (values.min(), values.max())] if values.size else [0.0, 0.0]


def _sidecar(result: MapResult, stored: Volume, where: Space, name: str, study: Study) -> dict[str, Any]:
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
        "Range": _range(stored, where),
        "SpatialReference": lies_on,
        "Source": METHODS[result.method].source,
        "Note": f"{result.note} 1 is an even share of the map's sum; 0 outside the brain. {RESEARCH}",
    }


def _draw(
    maps: PatientMaps, scan: Volume, stored: list[Volume], where: Space, scan_title: str, folder: Path, network: NetworkId
) -> None:
    """The overlay pictures, on the reference's voxels, of which no more is read than is shown; a comparator's name goes before
    the map's.
    """
    shown = overlays.shown_box(where.inside, scan.spacing_mm)
    part, tumour = cut_box(scan, shown), None
    if maps.tumour:  # it lies in the reference's world, on whatever voxels
        mask = Volume((maps.tumour.array != 0).astype(np.uint8), maps.tumour.affine)
        tumour = resample(mask, part.shape, part.affine, interpolation=sitk.sitkNearestNeighbor).array > 0
    whose = "" if network.model == VIT else f"{network.model}: "
    under = overlays.underlay(part, where.inside[shown], tumour)
    for result, steps in zip(maps.results, stored, strict=True):
        picture = folder / file_name(maps.patient, *result.place, None, "overlay.png")
        head = f"{maps.patient.id} · {whose}{result.title} · on {scan_title}"
        heat = Volume(steps.array[shown] * np.float32(STEP), part.affine)
        overlays.draw(under, heat, head, picture, f"{result.note} {RESEARCH}")


# --- from grid positions to a scan's voxels -----------------------------------------------------------------------------------


def frames_of_patient(patient: Patient, reference: Volume, study: Study) -> dict[str, Frame]:
    """The frame of every scan that the patient has, in the order of the study's channels.

    A scan whose frame the record lacks, as a version before 0.5 left it, is read.
    """
    prepared = study.prepared / patient.id
    to_grid, stored = load_record(prepared)["to_grid"], _stored(prepared)
    frames = {}
    for name in study.channels:
        if (file := patient.scans[name]) is None:  # which prepare.needs allows
            continue
        if name == study.prepare.reference:
            shape, affine = reference.shape, reference.affine
        elif name in stored:
            shape, affine = stored[name]
        else:
            scan = read(file)
            shape, affine = scan.shape, scan.affine
        frames[name] = Frame(shape, affine, np.array(to_grid[name]))
    return frames


def scans_read(patient: Patient, study: Study) -> list[Path]:
    """Which of a patient's scans are read where maps are drawn: the reference, and those whose frame the record lacks."""
    stored = _stored(study.prepared / patient.id)
    return [file for name, file in patient.scans.items() if file and (name == study.prepare.reference or name not in stored)]


def _stored(prepared: Path) -> dict[str, tuple[tuple[int, int, int], Float[np.ndarray, "4 4"]]]:
    """By scan the shape and the affine of its file, as far as the record has them."""
    steps = load_record(prepared)["steps"]
    with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
        scans = next((step["scans"] for step in steps if step["step"] == "read"), {})
        frames = {}
        for name, scan in scans.items():
            if "stored" in scan:
                (x, y, z), affine = scan["stored"]["shape"], np.array(scan["stored"]["affine"], float)
                if affine.shape != (4, 4):
                    raise ValueError("an affine that is not 4×4")
                frames[name] = (int(x), int(y), int(z)), affine
        return frames


def space(
    shape: tuple[int, int, int],
    affine: Float[np.ndarray, "4 4"],
    to_grid: Float[np.ndarray, "4 4"],
    brain: Bool[np.ndarray, "e e e"],
    position: Integer[np.ndarray, "f"],
    grid: Grid,
) -> Space:
    """How the voxels of a scan are interpolated from grid positions: trilinear between their centres.

    A scan's voxel is brain where the grid's nearest one is. Near the brain's border only positions that have a value count, so a
    map does not fade there for lack of neighbours. The result serves every map of the same positions.

    `affine` carries a voxel's index to RAS+ mm, `to_grid` the scan's RAS+ mm to the grid's; `position` are those that will
    have a value, in the order of the values.
    """
    on_grid = Volume(brain.astype(np.uint8), np.array(grid.affine))
    nearest = resample(on_grid, shape, affine, to_source=to_grid, interpolation=sitk.sitkNearestNeighbor).array
    inside = (in_c_order(nearest.T, np.uint8) > 0).T
    centres = np.array(grid.affine) @ np.diag(
        [grid.patch, grid.patch, grid.patch, 1.0]
    )  # index of a grid position to its RAS+ mm
    centres[:3, 3] = np.array(grid.affine)[:3, 3] + grid.spacing_mm * (grid.patch - 1) / 2  # the first one's centre
    to_place = np.linalg.inv(centres) @ to_grid @ affine  # a voxel's index to an index among the grid positions
    voxels = np.argwhere(inside.T)[:, ::-1]
    strides = np.array([[grid.side**2], [grid.side], [1]], np.int32)  # grid position = (i·side + j)·side + k
    row_of = np.full(grid.positions, -1, np.int32)
    row_of[position] = np.arange(len(position), dtype=np.int32)
    column, share = (np.empty((len(voxels), 8), kind) for kind in (np.int32, np.float32))
    for start in range(0, len(voxels), VOXELS_AT_ONCE):
        some = np.s_[start : start + VOXELS_AT_ONCE]
        at = to_place[:3, :3].astype(np.float32) @ voxels[some].T.astype(np.float32) + to_place[:3, 3:].astype(np.float32)
        at = at.clip(0, grid.side - 1)  # half a grid position beyond the outermost centres their value holds on
        below = at.astype(np.int32)
        beyond = at - below
        ends = (below * strides, np.minimum(below + 1, grid.side - 1) * strides)  # the neighbours on either side, per axis
        nearness = (1 - beyond, beyond)
        for corner, (x, y, z) in enumerate(product((0, 1), repeat=3)):
            row = row_of[ends[x][0] + ends[y][1] + ends[z][2]]
            column[some, corner] = row.clip(0)
            share[some, corner] = nearness[x][0] * nearness[y][1] * nearness[z][2] * (row >= 0)
        of_all = share[some].sum(axis=1, keepdims=True)
        share[some] /= np.maximum(of_all, 1e-6)  # 1e-6: a voxel all of whose grid positions lack a value stays 0
    rows = np.arange(0, column.size + 1, 8, dtype=np.int32)
    return Space(affine, inside, csr_array((share.ravel(), column.ravel(), rows), shape=(len(voxels), len(position))))


def on_scan(value: Float[np.ndarray, "f"], space: Space) -> Volume:
    """The map on the voxels of a space; zero outside the brain."""
    return _laid(space.share @ value.astype(np.float32), space)


def stored_on_scan(value: Float[np.ndarray, "f"], space: Space) -> Volume:
    """The same in whole `STEP`s, of two bytes, or of four where a value needs them."""
    steps = np.rint((space.share @ value.astype(np.float32)) / np.float32(STEP))
    fits = not steps.size or np.abs(steps).max() <= np.iinfo(np.int16).max
    return _laid(steps.astype(np.int16 if fits else np.int32), space)


def _laid(values: Shaped[np.ndarray, "v"], space: Space) -> Volume:
    array = np.zeros(space.inside.T.shape, values.dtype)
    array[space.inside.T] = values
    return Volume(array.T, space.affine)
