"""The volumes of a patient's page: prepared scans, maps and the tumour's mask where they lie, as text that a script carries.

All lie in the reference scan's own space, whatever their voxels: a prepared scan lies on the grid, whose axes are turned into
that space. Letters: x, y, z voxels, c sequences, f places.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from einops import reduce
from jaxtyping import Float, UInt8

from mri_vit.data import tokens
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, read, read_mask
from mri_vit.explain.outputs.overlays import CONTRAST, SCALE, nearly_even
from mri_vit.prepare.prepared import reference_to_grid
from mri_vit.report.reading.maps import Map
from mri_vit.run import files
from mri_vit.settings import sequences

FINEST_MM = 2.0  # of the prepared scans on a page: 1 MB for four; the scans themselves have their full resolution
LEVEL = 6  # of gzip: twice as fast as 9 for a hundredth more bytes
MARGIN = 4  # voxels kept around the brain, so that its edge does not touch the picture's


def of_visit(
    prepared: Path | None, found: Map | None, tumour: Path | None, entries: Sequence[Mapping[str, Any]], reference: str
) -> dict[str, Any]:
    """What the viewer draws of a visit, as JSON's types: scans to choose from, maps over them, and the tumour's mask.

    Parameters
    ----------
    prepared
        The prepared visit's folder, whose scans are shown on the grid; None where it is gone.
    found
        The visit's maps, over the reference's brain on its own voxels; None where none were made or its brain was not published.
    tumour
        The tumour's mask, in the reference's space; None without one.
    entries
        Those of `found`'s maps that are shown, in that order.
    reference
        The sequence in whose space all lie.

    Raises
    ------
    UnusablePatient, IntegrityError
        A scan, a map or the prepared patient is damaged.
    """
    scans, maps = [], []
    if found:
        scan = read(found.folder / found.facts["brain"])
        box = around(scan.array)
        scans.append({"label": f"{sequences.title(reference)}, as it was scanned", "volume": embedded(cut(scan, box))})
        for entry in entries:
            heat = cut(heat_of(found.folder, entry, scan, reference), box)
            shown = embedded(Volume(levels(heat.array), heat.affine))
            maps.append({"volume": shown, "peak_mm": list(entry["peak_mm"]), "even": nearly_even(entry["peak"])})
    if prepared:
        scans += [
            {"label": f"{sequences.title(name)}, prepared", "volume": embedded(one)} for name, one in on_grid(prepared).items()
        ]
    return {
        "scans": scans,
        "maps": maps,
        "tumour": embedded(inside(read_mask(tumour))) if tumour and scans else None,
        "top": SCALE[-1],
    }


def on_grid(prepared: Path) -> dict[str, Volume]:
    """The prepared scans by sequence, as bytes, on voxels of 2 mm or the grid's own; one that is missing is left out."""
    stored = coarse(tokens.load(prepared / files.TOKENS))
    volumes = tokens.to_volume(stored)
    brain = (volumes != 0).any(axis=0)
    box = around(brain)
    affine = np.linalg.inv(reference_to_grid(prepared)) @ np.array(stored.grid.affine)
    found = {}
    for name, array in zip(stored.channels, volumes, strict=True):
        if array.any():
            low, high = np.percentile(array[brain], CONTRAST)
            level = 1 + 254 * ((array - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a scan of one value is black, no fault
            found[name] = cut(Volume(np.where(brain, level, 0).round().astype(np.uint8), affine), box)
    return found


def coarse(stored: Tokens) -> Tokens:
    """The same brain on larger voxels, each the mean of several, as far as they divide a patch and stay within `FINEST_MM`."""
    grid = stored.grid
    factor = max(n for n in range(1, grid.patch + 1) if grid.patch % n == 0 and (n == 1 or n * grid.spacing_mm <= FINEST_MM))
    sizes = dict.fromkeys("xyz", grid.patch // factor) | {"c": len(stored.channels)}
    patches = reduce(
        stored.patches.astype(np.float32), "f (c x u y v z w) -> f (c x y z)", "mean", **sizes, u=factor, v=factor, w=factor
    )
    fewer = grid.model_copy(
        update={"edge": grid.edge // factor, "spacing_mm": grid.spacing_mm * factor, "patch": grid.patch // factor}
    )
    return replace(stored, patches=patches, grid=fewer)


def inside(tumour: Volume) -> Volume:
    """A tumour's mask on its own voxels, 1 inside: the viewer draws its border within each plane."""
    mask = tumour.array != 0
    return cut(Volume(mask.astype(np.uint8), tumour.affine), around(mask))


def levels(heat: Float[np.ndarray, "x y z"]) -> UInt8[np.ndarray, "x y z"]:
    """A map in times the uniform map as bytes: 0 at an even share or less, 255 at the scale's top.

    Between them the squared level is even in the map's logarithm, because NiiVue's opacity below a threshold is the squared
    level: so the opacity grows evenly with each doubling, as in explain/outputs/overlays.py.
    """
    height = np.log(heat.clip(SCALE[0], SCALE[-1])) / np.log(SCALE[-1])
    return np.rint(255 * np.sqrt(height)).astype(np.uint8)


def around(array: np.ndarray) -> tuple[slice, slice, slice]:
    """The box of what is not 0 in x, y, z, with a margin; all of it where nothing is."""
    ends = [np.flatnonzero(array.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
    if not len(ends[0]):
        return slice(None), slice(None), slice(None)
    x, y, z = (slice(max(int(end[0]) - MARGIN, 0), int(end[-1]) + MARGIN + 1) for end in ends)
    return x, y, z


def cut(volume: Volume, box: tuple[slice, slice, slice]) -> Volume:
    """The part of a volume in a box, lying where it lay."""
    affine = volume.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ [part.start or 0 for part in box]
    return Volume(volume.array[box], affine)


def embedded(volume: Volume) -> str:
    """A volume of bytes as the base64 text of its .nii.gz; equal volumes give equal texts."""
    image = nib.Nifti1Image(volume.array.astype(np.uint8), volume.affine)
    image.set_qform(volume.affine, code=1)
    image.header.set_xyzt_units("mm")
    return base64.b64encode(gzip.compress(image.to_bytes(), LEVEL, mtime=0)).decode()


def drawable(found: Map, reference: str) -> bool:
    """Whether the brain and every map lie on the reference's voxels."""
    needed = [found.facts.get("brain"), *(entry["files"].get(reference) for entry in found.facts["maps"])]
    return len(needed) > 1 and all(name and (found.folder / name).is_file() for name in needed)


def heat_of(folder: Path, entry: Mapping[str, Any], scan: Volume, reference: str) -> Volume:
    """A map on the reference's voxels, like the brain. One of zeros is legal, though as a scan it would be refused as empty."""
    return read(folder / entry["files"][reference]) if entry["peak"] else Volume(np.zeros_like(scan.array), scan.affine)
