"""Skull: a scan goes in, how dark a gap lies between its rim and what is deeper comes out.

From the outside inwards, a head shows its scalp (bright, for its fat), its skull (dark, for bone has hardly any signal) and its
brain. A stripped brain starts with its cortex, and what is dark within are furrows, which do not go around it. Both are looked
for in axial slices, however the scan was acquired: face and neck, which are no skull, lie in other ones. Depths are in radii of
the head, so that a child's counts as an adult's does.

Letters: s slices, a directions, d depths, x y voxels of a slice.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy import ndimage

from mri_vit.data.volume import Volume

LEAST_AREA = 0.5  # of the largest slice: in smaller ones, at the vertex, the skull lies in the slice and not across it
MOST_SLICES = 24  # evenly spread; 1 mm slices are much alike
DIRECTIONS = 72  # every 5 degrees: 7 mm at the skull of an adult
STEP = 1 / 60  # of the radius: 1.3 mm in an adult
OUTER = 0.2  # of the radius: scalp and skull end there, at 16 mm in an adult
INNER = 0.4  # as far as the brain is taken to tell how bright it is; the ventricles begin behind it
BRAIN_QUANTILE = 0.25  # of the brain's depths: bright fluid does not count, nor does a dark furrow
OF_DIRECTIONS = 0.75  # a quarter may show a darker gap, as between a stripped brain's cerebellum and temporal lobes


def gap(scan: Volume, background: float) -> float:
    """How dark the gap below the rim is, compared with the rim and the brain: 0 is no gap, 1 a black one.

    Parameters
    ----------
    scan
        Axes laid as RAS+; some of it is not background.
    background
        The value of what was emptied.
    """
    inside = scan.array != background
    areas = inside.sum(axis=(0, 1))
    large = np.flatnonzero(areas >= LEAST_AREA * areas.max())
    chosen = large[np.unique(np.linspace(0, len(large) - 1, MOST_SLICES).round().astype(int))]
    spacing_mm = np.array(scan.spacing_mm[:2])
    radius_mm = float(np.sqrt(areas.max() * spacing_mm.prod() / np.pi))
    darkest = scan.array.min(where=inside, initial=np.inf)  # not the background, which a standardised scan may have anywhere
    signal = np.where(inside, scan.array - darkest, 0)
    profiles = np.stack([_profiles(signal[..., at], inside[..., at], spacing_mm, radius_mm) for at in chosen])
    along = ndimage.uniform_filter1d(profiles, 3, axis=1, mode="wrap")  # a skull goes on in all directions, a furrow ends
    smooth = ndimage.uniform_filter1d(along, 3, axis=0, mode="nearest")
    outer = round(OUTER / STEP)
    brain = np.quantile(smooth[..., outer:], BRAIN_QUANTILE, axis=-1, keepdims=True)
    rim = np.maximum.accumulate(smooth[..., :outer], axis=-1)  # the brightest so far on the way inwards
    bright = np.minimum(rim, brain)
    left = np.divide(smooth[..., :outer], bright, out=np.ones_like(bright), where=bright > 0)
    return float(np.quantile(1 - left.min(axis=-1), OF_DIRECTIONS))


def _profiles(
    signal: Shaped[np.ndarray, "x y"], inside: Bool[np.ndarray, "x y"], spacing_mm: Float[np.ndarray, "2"], radius_mm: float
) -> Float[np.ndarray, "a d"]:
    """The signal of a slice from the outer border inwards, towards the middle."""
    filled = np.asarray(ndimage.binary_fill_holes(inside))
    angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
    towards = np.stack([np.cos(angles), np.sin(angles)])[:, :, None] / spacing_mm[:, None, None]
    middle = np.argwhere(filled).mean(axis=0)[:, None, None]
    longest_mm = float(np.linalg.norm(np.array(signal.shape) * spacing_mm))
    outwards_mm = np.arange(0, longest_mm, STEP * radius_mm)
    reached = ndimage.map_coordinates(filled, middle + towards * outwards_mm, order=0)
    border_mm = outwards_mm[len(outwards_mm) - 1 - reached[:, ::-1].argmax(axis=1)]
    depths_mm = border_mm[:, None] - np.arange(round(INNER / STEP)) * STEP * radius_mm
    return ndimage.map_coordinates(signal.astype(np.float32), middle + towards * depths_mm, order=1)
