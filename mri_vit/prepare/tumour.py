"""Tumour: a patient's tumour mask is taken from the table and checked against the brain that was prepared, or found.

It is found by the built-in finder or by a program of the user's own. Training is supervised by it, scans can be cut around it,
its volume is a control, and its position judges maps. No label is ever looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from jaxtyping import Bool, Float
from nibabel.filebasedimages import ImageFileError
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, laid_as, read_mask, resample, write
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import location
from mri_vit.prepare.agreement import Copies
from mri_vit.prepare.brain import on_grid_of, run_command, volume_ml
from mri_vit.prepare.prepared import PREPARE_AGAIN, Log, drawn_on_grid, load_record, reference_of, reference_to_grid
from mri_vit.prepare.register import Pose
from mri_vit.run import files
from mri_vit.run.integrity import as_written
from mri_vit.settings.recipe import FLAIR, title, titles
from mri_vit.settings.sections import Grid, Prepare

MAX_LABELS = 32  # values of a mask besides 0, unless it counts metastases as 1, 2, 3 …; BraTS has 3, a scan hundreds
INTEGER_TOL = 0.02  # from a whole number: 8 bits for four labels store them by steps of 0.016
MAX_BRAIN_SHARE = 0.5  # of the brain: the ten real masks have 0.017 to 0.142, and a hemisphere is less
MIN_INSIDE_SHARE = 0.5  # of the mask, in the brain: the ten real masks have 0.98 and more on a grid of 4 mm
SEEN = (FLAIR, "t2")  # what the finder looks at, which needs FLAIR; a network that had learned T1ce and T1 too missed two of ten
SURE = 0.7  # confidence from which a mask is sure: readers agree with each other by 0.85 ± 0.08 (Menze et al. 2015)
SCANS = "scans"  # the folder that the program is given: a file per sequence


def mask_of(
    patient: Patient,
    scans: Mapping[str, Volume],
    brain: Volume,
    from_reference: Mapping[str, Float[np.ndarray, "4 4"]],
    copies: Copies,
    pose: Pose,
    settings: Prepare,
    folder: Path,
    log: Log,
) -> Path | None:
    """The file of the patient's tumour mask on the voxels of the reference's file, as `settings.tumour` says; None
    where there is none.

    `scans`: by sequence, whole and as they were acquired; the reference among them.
    `brain`: its mask (1), on the reference's grid.
    `from_reference`: by sequence, from a point of the reference's space to that scan's, RAS+ mm.
    `copies`: the scans on voxels of 2 mm of the MNI152 frame, which `pose` lays over the reference.
    `folder`: the patient's, which is being built; a mask that is found goes there.

    Raises as `_found_by_command` does; UnusablePatient where a given mask cannot be read.
    """
    reference, file, mask = scans[settings.reference], folder / files.TUMOUR, None
    figures: dict[str, Any] = {}
    if patient.tumour_mask and settings.takes_given_masks:
        source, methods = "given", "The tumour masks supplied with the scans were used."
        file, mask = patient.tumour_mask, read_mask(patient.tumour_mask)
    elif settings.finds_tumours and settings.tumour_command:
        source, methods = "command", f"The tumour was segmented with {Path(settings.tumour_command[0]).name}."
        mask = _found_by_command(scans, brain, from_reference, settings, folder)
    elif settings.finds_tumours and FLAIR in copies.scans:
        source, seen = "found", [name for name in SEEN if name in copies.scans]
        methods = f"The tumour was found automatically in {titles(seen)} by the finder of mri-vit."
        mask, figures["confidence"] = _found(reference, brain, copies, pose)
    else:
        source, methods = "none", "No tumour mask was used."
        if settings.finds_tumours:
            log.warnings.append("tumour: there is no FLAIR to find it in; the patient has no tumour mask")
    if mask is not None:
        to_template = np.linalg.inv(pose.affine.matrix)
        figures |= {"tumour_ml": round(volume_ml(mask.array != 0, mask), 1), **location.of_mask(mask, to_template)}
    elif source in ("command", "found"):
        log.warnings.append("tumour: none was found; the patient has no tumour mask")
    if source == "found" and mask is not None and figures["confidence"] < SURE:
        words = f"tumour: the mask that was found is doubtful (confidence {figures['confidence']:.2f}); see the picture"
        log.warnings.append(words)
    log.add("tumour", methods, source=source, **figures)
    if mask is None:
        return None
    if source != "given":
        drawn = Volume((mask.array != 0).astype(np.uint8), mask.affine)
        write(laid_as(drawn, stored_affine(settings.reference, log)), file)
    return file


def _found(reference: Volume, brain: Volume, copies: Copies, pose: Pose) -> tuple[Volume | None, float]:
    """The tumour that the finder sees, on the reference's voxels, or None; and how sure it is."""
    from mri_vit.prepare import finder  # here, because it imports this module

    found = finder.find(copies.scans, copies.brain, copies.affine, np.linalg.inv(pose.affine.matrix) @ pose.rigid)
    back = np.linalg.inv(pose.rigid)
    probability = resample(found.probability, reference.shape, reference.affine, back).array
    drawn = (probability > finder.THRESHOLD) & (brain.array > 0.5)
    return Volume(drawn, reference.affine) if drawn.any() else None, round(found.confidence, 3)


def stored_affine(scan: str, log: Log) -> Float[np.ndarray, "4 4"]:
    """The affine of a scan as its file has it, before its axes were laid as RAS+."""
    read = next(step for step in log.steps if step["step"] == "read")
    return np.array(read["scans"][scan]["stored"]["affine"], float)


def of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a prepared patient's tumour: its source, and where there is a mask, how large it is and where it lies."""
    of_older = {"source": "none"}  # a version before 0.5 looked for none
    return next((step for step in record.get("steps", ()) if step["step"] == "tumour"), of_older)


def described(found: Mapping[str, Any]) -> str:
    """A tumour's entry in words: 51 ml, left temporal lobe, found automatically, confidence high (0.94)."""
    if "tumour_ml" not in found:
        return "no tumour mask" if found["source"] == "none" else "no tumour found"
    side = "on both sides" if found["side"] == "both" else found["side"]
    source = {"given": "given", "command": "by a program of the user's own", "found": "found automatically"}[found["source"]]
    if "confidence" in found:
        source += f", confidence {'high' if found['confidence'] >= SURE else 'low'} ({found['confidence']:.2f})"
    lobes, away = " and ".join(found["lobes"]), f"{found['ventricles_mm']:.0f} mm from the ventricles"
    return f"tumour of {found['tumour_ml']:.0f} ml, {side}, {lobes}, {away}; mask {source}"


def check(mask: Path, prepared: Path) -> None:
    """See that a mask can be a tumour's and lies in the prepared brain. Raises UnusablePatient as `refuse` does.

    `mask`: in the space of the patient's reference scan; what is not 0 is tumour.
    `prepared`: the patient's folder.
    """
    stored = tokens.load(prepared / files.TOKENS)
    brain = Volume((tokens.to_volume(stored) != 0).any(axis=0), np.array(stored.grid.affine))
    with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
        brain_ml = float(load_record(prepared)["brain_ml"])
    refuse(read_mask(mask), reference_to_grid(prepared), brain, brain_ml, reference_of(prepared), str(mask))


def refuse(
    mask: Volume, to_grid: Float[np.ndarray, "4 4"], brain: Volume, brain_ml: float, reference: str, file: str = ""
) -> None:
    """Raise UnusablePatient where a tumour mask is a scan, a probability map or a whole brain, or lies elsewhere.

    `mask` lies in the space of the scan `reference`, from which `to_grid` carries a point to that of `brain` (or as much of it as
    was kept), RAS+ mm; what is not 0 is tumour. `brain_ml` is the volume of all of it, `file` the mask's, for the message.
    """
    drawn = mask.array != 0
    labels, size_ml = np.unique(mask.array[drawn]), volume_ml(drawn, mask)
    size = f"the tumour mask holds {size_ml:.0f} ml, {size_ml / brain_ml:.0%} of the brain"
    counted = len(labels) < 256 and np.array_equal(labels, np.arange(1, len(labels) + 1))  # in a byte
    if (len(labels) > MAX_LABELS and not counted) or (len(labels) > 1 and np.abs(labels - np.rint(labels)).max() > INTEGER_TOL):
        values = f"{len(labels)} values from {labels[0]:g} to {labels[-1]:g}"
        reason = f"{size}, and {values}; expected 0 outside the tumour and whole numbers in it, not a scan or probabilities"
        raise UnusablePatient(reason, file)
    if size_ml > MAX_BRAIN_SHARE * brain_ml:
        reason = f"{size}; expected {MAX_BRAIN_SHARE:.0%} or less: a tumour, not a scan or the brain"
        raise UnusablePatient(reason, file)
    where = f"expected a mask in the space of the {title(reference)}"
    inside = inside_share(mask, to_grid, brain)
    if inside == 0:
        away_mm = distance_mm(mask, to_grid, brain)
        raise UnusablePatient(f"the tumour mask lies {away_mm:.0f} mm away from the prepared brain; {where}", file)
    if inside < MIN_INSIDE_SHARE:
        raise UnusablePatient(f"only {inside:.0%} of the tumour mask's {size_ml:.0f} ml lie in the prepared brain; {where}", file)


def around(
    mask: Path | None,
    volume: Float[np.ndarray, "c e e e"],
    brain: Bool[np.ndarray, "e e e"],
    margin_mm: float,
    from_grid: Float[np.ndarray, "4 4"],
    grid: Grid,
    reference: str,
    log: Log,
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """Scans on the grid, and the brain there, emptied further than the margin from every voxel of the tumour.

    `mask`: in the reference's space; what is not 0 is tumour; None where there is none.
    `volume`, `brain`: c scans and the brain on the grid of e voxels along an edge.
    `from_grid`: from a point of the grid to the reference's space, RAS+ mm. Raises UnusablePatient where there is no mask or it
    cannot be read, and as `refuse` does.
    """
    if mask is None:
        raise UnusablePatient("no tumour mask, given or found, around which prepare.tumour_crop_margin_mm keeps the scans")
    drawn, there = read_mask(mask), Volume(brain, np.array(grid.affine))
    refuse(drawn, np.linalg.inv(from_grid), there, volume_ml(brain, there), reference, str(mask))
    tumour = drawn_on_grid(drawn, from_grid, grid)
    near = brain & (np.asarray(distance_transform_edt(~tumour)) * grid.spacing_mm <= margin_mm)
    log.add(
        "around_tumour",
        f"Voxels further than {margin_mm:g} mm from the tumour mask were set to 0.",
        reach_mm=margin_mm,
        kept_of_brain=round(float(near.sum() / brain.sum()), 4),
    )
    return volume * near, near


def tumour_shares(mask: Volume, to_grid: Float[np.ndarray, "4 4"], prepared: Tokens) -> Float[np.ndarray, "positions"]:
    """The tumour's share of the brain voxels of every grid position; 0 where there is no brain.

    `mask` lies in the world of the patient's reference (any voxel that is not 0 is tumour) on whatever voxels; `to_grid`
    carries a point of it to the grid, RAS+ mm.
    """
    grid = prepared.grid
    drawn = Volume((mask.array != 0).astype(np.float32), mask.affine)
    on_grid = resample(drawn, (grid.edge, grid.edge, grid.edge), np.array(grid.affine), np.linalg.inv(to_grid)).array
    brain = (tokens.to_volume(prepared) != 0).any(axis=0)
    voxels, tumour = (
        tokens.patchify(part[None].astype(np.float32), grid.patch).sum(axis=1)
        for part in (brain, brain & (on_grid > 0.5))  # 0.5: a voxel is tumour where most of what is around its centre is
    )
    return tumour / np.maximum(voxels, 1)


def inside_share(tumour: Volume, to_grid: Float[np.ndarray, "4 4"], brain: Volume) -> float:
    """Of a mask's voxels, those whose nearest voxel of a brain's grid is the brain's; `to_grid` is as `distance_mm` has it."""
    points = _points_mm(tumour.array != 0, np.linalg.inv(brain.affine) @ to_grid @ tumour.affine)
    index = np.rint(points).astype(int)
    on_grid = ((index >= 0) & (index < brain.shape)).all(axis=1)
    return float(brain.array[tuple(index[on_grid].T)].sum() / len(index))


def distance_mm(tumour: Volume, to_grid: Float[np.ndarray, "4 4"], brain: Volume) -> float:
    """From a mask to the nearest voxel of a brain, 0 where a voxel of the mask is one of the brain's.

    `to_grid` carries a point of the mask's space to the brain's, RAS+ mm.
    """
    if inside_share(tumour, to_grid, brain) > 0:
        return 0.0
    surface = (tumour.array != 0) & ~_surrounded(tumour.array != 0)  # the nearest points of both lie on their surfaces
    rim = brain.array & ~_surrounded(brain.array)
    points = _points_mm(surface, to_grid @ tumour.affine)
    return float(KDTree(_points_mm(rim, brain.affine)).query(points)[0].min())


def _points_mm(mask: Bool[np.ndarray, "x y z"], affine: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "n 3"]:
    return np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]


def _surrounded(mask: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    """Voxels all of whose six neighbours are in the mask too."""
    padded = np.pad(mask, 1)
    shifted = [np.roll(padded, step, axis) for axis in range(3) for step in (-1, 1)]
    return np.logical_and.reduce(shifted)[1:-1, 1:-1, 1:-1]


def _found_by_command(
    scans: Mapping[str, Volume],
    brain: Volume,
    from_reference: Mapping[str, Float[np.ndarray, "4 4"]],
    settings: Prepare,
    folder: Path,
) -> Volume | None:
    """The tumour's mask, on the reference's grid, by `settings.tumour_command`; None where it found nothing.

    Of the command's words "{input}" becomes a folder with a file per sequence (t1.nii.gz, …), each on the reference's grid and 0
    outside the brain, "{output}" the mask to be written: what is not 0 is tumour. Arguments are those of `mask_of`.

    Raises UnusablePatient: the program failed, wrote nothing, or wrote a mask on another grid or of no tumour (see `refuse`);
    UsageError: it cannot be run.
    """
    reference, name = scans[settings.reference], title(settings.reference)
    given, target = folder / SCANS, folder / files.TUMOUR
    given.mkdir()
    try:
        for channel, scan in scans.items():
            seen = resample(scan, reference.shape, reference.affine, from_reference[channel])
            write(Volume((seen.array * brain.array).astype(np.float32), reference.affine), given / f"{channel}.nii.gz")
        run_command(settings.tumour_command, given, target, "tumour")
        mask = on_grid_of(reference, name, target, "tumour") if _holds_any(target) else None
    finally:
        shutil.rmtree(given)
        target.unlink(missing_ok=True)  # as the program wrote it
    if mask is not None:
        inside = Volume(brain.array > 0.5, brain.affine)
        refuse(mask, np.eye(4), inside, volume_ml(inside.array, inside), settings.reference)
    return mask


def _holds_any(file: Path) -> bool:
    """Whether a mask has a voxel, as an image without any is refused when it is read; what cannot be read is left to that."""
    try:
        return bool(np.asanyarray(nib.load(file).dataobj).any())  # type: ignore[attr-defined]
    except (ImageFileError, OSError, EOFError, ValueError):
        return True
