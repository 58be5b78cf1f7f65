"""Command: a program of the user's own that makes a mask from scans, run without a shell; and masks that must fit a scan."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from mri_vit.data.nifti import FRAMES_TOLERANCE_MM
from mri_vit.data.volume import Volume, canonical, read_mask
from mri_vit.errors import UnusablePatient, UsageError


def run(command: tuple[str, ...], source: Path, target: Path, what: str) -> None:
    """Run the `what` command, of whose words "{input}" and "{output}" are replaced; it has then written `target`.

    Raises UnusablePatient when it ends with a fault or writes nothing, UsageError when it cannot be run.
    """
    words = [part.replace("{input}", str(source)).replace("{output}", str(target)) for part in command]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except (FileNotFoundError, PermissionError) as error:
        raise UsageError(f"{what} command {command[0]!r} cannot be run: {error.strerror}") from None
    if ended.returncode:
        raise UnusablePatient(f"{what} command {command[0]} ended with {ended.returncode}: {ended.stderr.strip()[-300:]}")
    if not target.exists():
        raise UnusablePatient(f"{what} command {command[0]} wrote no {{output}}")


def on_grid_of(reference: Volume, name: str, path: Path, what: str) -> Volume:
    """Read a mask of a `what` that must lie on the grid of the reference, whose `name` is for messages."""
    found = canonical(read_mask(path))
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in reference.shape], [1], indexing="ij"), float).reshape(4, -1)
    apart_mm = float(np.linalg.norm(((found.affine - reference.affine) @ corners)[:3], axis=0).max())
    if found.shape != reference.shape or apart_mm > FRAMES_TOLERANCE_MM:
        raise UnusablePatient(
            f"{what} mask is on another grid than the {name}: shape {found.shape} against {reference.shape} (axes laid as RAS+), "
            f"corners {apart_mm:.1f} mm apart",
            str(path),
        )
    return found
