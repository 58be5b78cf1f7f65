"""Segment: the tumour of a patient without a mask, by a program of the user's own, as a file of the prepared patient."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import nibabel as nib
import numpy as np
from jaxtyping import Float
from nibabel.filebasedimages import ImageFileError

from mri_vit.data.volume import Volume, resample, write
from mri_vit.prepare import command
from mri_vit.prepare import tumour as tumours
from mri_vit.prepare.brain import volume_ml
from mri_vit.prepare.log import Log
from mri_vit.run import files
from mri_vit.settings.sections import Prepare
from mri_vit.settings.sequences import title

SCANS = "scans"  # the folder that the program is given: a file per sequence


def tumour(
    scans: Mapping[str, Volume],
    brain: Volume,
    from_reference: Mapping[str, Float[np.ndarray, "4 4"]],
    settings: Prepare,
    folder: Path,
    log: Log,
) -> None:
    """Write the tumour's mask, on the reference's grid, into the patient's folder; none, and a warning, where nothing was found.

    Parameters
    ----------
    scans
        By sequence, whole and as they were acquired; the reference among them.
    brain
        Its mask, on the reference's grid.
    from_reference
        By sequence, from a point of the reference's space to that scan's, RAS+ mm.
    settings
        `tumour_command`; "{input}" becomes a folder with a file per sequence (t1.nii.gz, …), each on the reference's grid and 0
        outside the brain, "{output}" the mask to be written: what is not 0 is tumour.
    folder
        The patient's, which is being built.

    Raises
    ------
    UnusablePatient
        The program failed, wrote nothing, or wrote a mask on another grid or of no tumour (see `tumour.refuse`).
    UsageError
        It cannot be run.
    """
    reference, name = scans[settings.reference], title(settings.reference)
    given, target = folder / SCANS, folder / files.TUMOUR
    given.mkdir()
    try:
        for channel, scan in scans.items():
            seen = resample(scan, reference.shape, reference.affine, from_reference[channel])
            write(Volume((seen.array * brain.array).astype(np.float32), reference.affine), given / f"{channel}.nii.gz")
        command.run(settings.tumour_command, given, target, "tumour")
        mask = command.on_grid_of(reference, name, target, "tumour") if _holds_any(target) else None
    finally:
        shutil.rmtree(given)
        target.unlink(missing_ok=True)  # as the program wrote it
    if mask is not None:
        inside = Volume(brain.array > 0.5, brain.affine)
        tumours.refuse(mask, np.eye(4), inside, volume_ml(inside.array, inside), settings.reference)
    size_ml = 0.0 if mask is None else volume_ml(mask.array != 0, reference)
    program = Path(settings.tumour_command[0]).name
    log.add(
        "tumour",
        f"The tumour was segmented with {program}.",
        tumour_ml=round(size_ml, 1),
        command_sha256=command_sha256(settings),
    )
    if mask is None:
        log.warnings.append(f"{program} found no tumour; the patient has no tumour mask")
    else:
        write(Volume((mask.array != 0).astype(np.uint8), reference.affine), target)


def command_sha256(settings: Prepare) -> str:
    """Hash of the command, which may give a machine away; empty where there is none."""
    return hashlib.sha256(json.dumps(settings.tumour_command).encode()).hexdigest() if settings.tumour_command else ""


def _holds_any(file: Path) -> bool:
    """Whether a mask has a voxel, as an image without any is refused when it is read; what cannot be read is left to that."""
    try:
        return bool(np.asanyarray(nib.load(file).dataobj).any())  # type: ignore[attr-defined]
    except (ImageFileError, OSError, EOFError, ValueError):
        return True
