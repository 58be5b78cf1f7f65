"""Finder: a patient's scans go in, on voxels of 2 mm; where the tumour is, and how sure that is, comes out. It sees no label.

Its network (`finder_network.py`) has seen synthetic heads alone, each with contrasts, movements and tumours of its own (as
SynthSeg: Billot et al. 2023, arXiv:2107.09559); its training is `pipelines/finder.py train`. It sees FLAIR, T2 where there is
one, their mirror images, and the template's grey and white matter.

Letters: n input channels; x y z voxels of `BOX`, i j k those of a patient's scans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage
from scipy.special import expit
from threadpoolctl import threadpool_limits

from mri_vit.data.volume import Volume, resample
from mri_vit.prepare import register
from mri_vit.prepare.finder_network import log_odds, weights
from mri_vit.prepare.tumour import SEEN

SEQUENCES = SEEN  # what is not given is marked as missing
SPACING_MM = 2.0
BOX = (80, 96, 80)  # voxels: 160 x 192 x 160 mm around the middle of the MNI152 brain's box, multiples of 16 for three halvings
BOX_AFFINE = np.array([[2.0, 0, 0, -79], [0, 2, 0, -112], [0, 0, 2, -74], [0, 0, 0, 1]])  # to RAS+ mm of the MNI152 frame
INPUTS = 2 * len(SEQUENCES) + (len(SEQUENCES) - 1) + 2  # scans, mirror images, which scans there are, tissue maps
Z_RANGE = (-5.0, 8.0)  # standard deviations: what lies beyond is a fault of the image and no tissue
CORE = 0.2  # probability from which the network's word is taken for a tumour: readers draw faint oedema too
THRESHOLD = 0.5  # probability of tumour from which a voxel is drawn, once the patient's own brightness was looked at
FILLED = 0.51  # of a hole that was filled
LIKELY, UNLIKELY = 0.6, 0.05  # probabilities of voxels that show how bright a patient's tumour is, and what lies around it
NEAR, FEWEST = 8, 50  # voxels: how far around a tumour is looked, and how many it takes to make a histogram
BINS = np.linspace(-3, 6, 46)  # standard deviations of the brain
LIMITS = (1e-3, 1 - 1e-3)  # of a probability whose log odds are taken
WEIGHT, SHIFT = 1.0, 1.0  # of a scan's log ratio, and what is added: of six pairs best on 24 heads, mean Dice 0.603 (plain 0.598)
SMALLEST_ML = 1.0  # of a tumour: 12 mm across; a smaller bright spot is as often no tumour
CALIBRATION = (0.813, 0.043)  # fitted to 58 masks in 48 heads, with T2 and without; in ten real patients off by 0.05
LEAST = 0.2  # confidence below which no mask is drawn: of 24 healthy heads 7 of 9, of 672 synthetic patients with tumours none
MIN_PIECE_SHARE = 0.05  # of the largest piece: smaller ones are left out


@dataclass(frozen=True, eq=False)
class Found:
    """How probable tumour is at each voxel of `BOX`, 0 away from the pieces that count; and how sure that is, 0 to 1."""

    probability: Volume
    confidence: float


def inputs(
    scans: Mapping[str, Float[np.ndarray, "x y z"]], brain: Bool[np.ndarray, "x y z"], tissue: Float[np.ndarray, "2 x y z"]
) -> Float[np.ndarray, "n x y z"]:
    """What the network reads: scans in standard deviations of the brain and 0 outside; a missing one is 0, and marked so."""
    nothing = np.zeros(BOX, np.float32)
    seen = {name: scans.get(name, nothing).clip(*Z_RANGE) for name in SEQUENCES}
    there = [brain.astype(np.float32) * (name in scans) for name in SEQUENCES[1:]]
    mirrored = [scan[::-1] for scan in seen.values()]  # a tumour is what has no counterpart on the other side
    return np.stack([*seen.values(), *mirrored, *there, *tissue]).astype(np.float32)


def tissue_of(to_template: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "2 x y z"]:
    """Shares of grey and white matter of the MNI152 brain on `BOX`; `to_template` carries a point of the box to it, RAS+ mm."""
    return np.stack([resample(maps, BOX, BOX_AFFINE, to_template).array for maps in register.tissue_maps()])


def find(
    scans: Mapping[str, Float[np.ndarray, "i j k"]],
    brain: Bool[np.ndarray, "i j k"],
    affine: Float[np.ndarray, "4 4"],
    to_template: Float[np.ndarray, "4 4"],
) -> Found:
    """Where a patient's tumour is: nowhere above `THRESHOLD`, where none is found, or none that is likely enough.

    Arguments are those of `probability_of`.
    """
    seen, probability = probability_of(scans, brain, affine, to_template)
    mask, sure = drawn(seen, probability)
    near = np.asarray(ndimage.binary_dilation(mask, iterations=2))  # as far as interpolation reaches
    part = np.where(mask, np.maximum(probability, FILLED), np.where(near, np.minimum(probability, THRESHOLD), 0))
    return Found(Volume(part.astype(np.float32), BOX_AFFINE), sure)


def drawn(seen: Float[np.ndarray, "x y z"], probability: Float[np.ndarray, "x y z"]) -> tuple[Bool[np.ndarray, "x y z"], float]:
    """The mask of what is probable, and its `confidence`; without a voxel where that is below `LEAST`."""
    mask = pieces(probability > THRESHOLD)
    sure = confidence(seen, mask)
    return (mask if sure >= LEAST else np.zeros_like(mask)), sure


def probability_of(
    scans: Mapping[str, Float[np.ndarray, "i j k"]],
    brain: Bool[np.ndarray, "i j k"],
    affine: Float[np.ndarray, "4 4"],
    to_template: Float[np.ndarray, "4 4"],
) -> tuple[Float[np.ndarray, "x y z"], Float[np.ndarray, "x y z"]]:
    """How probable tumour is at each voxel of `BOX`, as the network has it, and after a look at the patient (`as_in_patient`).

    `scans`: by sequence, in standard deviations of the brain and 0 outside; FLAIR among them. Others than `SEEN` are left.
    `brain`: its voxels. `affine`: theirs, 2 mm apart, on the voxels of `BOX_AFFINE` and some beside, to RAS+ mm of the MNI152
    frame. `to_template`: the affine 4×4 that carries a point of that frame to the MNI152 brain itself.
    """
    on_box, inside = {name: _on_box(scans[name], affine) for name in SEEN if name in scans}, _on_box(brain, affine)
    seen = probability_on_box(on_box, inside, tissue_of(to_template))
    return seen, as_in_patient(seen, on_box, inside)


def as_in_patient(
    probability: Float[np.ndarray, "x y z"], scans: Mapping[str, Float[np.ndarray, "x y z"]], brain: Bool[np.ndarray, "x y z"]
) -> Float[np.ndarray, "x y z"]:
    """The probabilities after a look at how bright this patient's tumour is, beside what lies around it.

    Bayes' rule with two histograms of each scan: of what is probably tumour, and of what lies near and hardly is. The network
    knows what tumours look like, not this one. Where either has too few voxels nothing changes.
    """
    core = pieces(probability > CORE)
    near = np.asarray(ndimage.binary_dilation(core, iterations=NEAR)) & brain
    tumour, other = near & (probability > LIKELY), near & (probability < UNLIKELY)
    if min(tumour.sum(), other.sum()) < FEWEST:
        return probability
    log_odds = np.log(probability.clip(*LIMITS) / (1 - probability.clip(*LIMITS))) + SHIFT
    for scan in scans.values():
        soft = ndimage.gaussian_filter(scan, 0.5)
        inside, outside = (_histogram(soft[part]) for part in (tumour, other))
        log_odds += WEIGHT * np.log(inside / outside).clip(-2, 2)[np.digitize(soft, BINS[1:-1])]
    smooth = ndimage.gaussian_filter(log_odds.clip(-4, 4), 0.7)
    return np.where(near, 1 / (1 + np.exp(-smooth)), np.minimum(probability, THRESHOLD)).astype(np.float32)


def _histogram(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " b"]:
    """Shares by bin, smoothed over one and a half of them, no share 0."""
    counts = ndimage.gaussian_filter1d(np.histogram(values, BINS)[0].astype(float), 1.5) + 0.5
    return counts / counts.sum()


def probability_on_box(
    scans: Mapping[str, Float[np.ndarray, "x y z"]], brain: Bool[np.ndarray, "x y z"], tissue: Float[np.ndarray, "2 x y z"]
) -> Float[np.ndarray, "x y z"]:
    """Of the patient and of the mirror image, whose log odds are averaged: left and right are alike to it."""
    mirrored = inputs({name: scan[::-1] for name, scan in scans.items()}, brain[::-1], tissue[:, ::-1])
    with threadpool_limits(1):  # the last bits must not depend on the machine, and workers share its cores
        there, back = (log_odds(seen, weights()) for seen in (inputs(scans, brain, tissue), mirrored))
    return expit((there + back[::-1]) / 2) * brain


def pieces(tumour: Bool[np.ndarray, "x y z"], smallest_ml: float = SMALLEST_ML) -> Bool[np.ndarray, "x y z"]:
    """The largest connected piece, its holes filled, and others that are not small beside it; none where all are too small."""
    found, count = ndimage.label(tumour)  # pyright: ignore[reportGeneralTypeIssues]
    if not count:
        return tumour
    sizes_ml = np.bincount(found.ravel())[1:] * SPACING_MM**3 / 1000
    kept = np.flatnonzero(sizes_ml >= max(smallest_ml, MIN_PIECE_SHARE * sizes_ml.max())) + 1
    return np.asarray(ndimage.binary_fill_holes(np.isin(found, kept)))


def confidence(probability: Float[np.ndarray, "x y z"], mask: Bool[np.ndarray, "x y z"]) -> float:
    """The Dice that the mask is expected to have with the tumour, by the network's probabilities; 0 where there is no mask.

    By these alone it would be 2 Σ p of the mask / (Σ p + its size), which a network that is too sure of itself makes
    too large; a logistic curve carries that to the Dice that it had in heads that the network had not seen.
    """
    if not mask.any():
        return 0.0
    by_itself = float(2 * probability[mask].sum() / (probability.sum() + mask.sum()))
    middle, width = CALIBRATION
    return float(1 / (1 + np.exp(-(by_itself - middle) / width)))


def _on_box(array: np.ndarray, affine: Float[np.ndarray, "4 4"]) -> np.ndarray:
    """An array on the voxels of `BOX`, 0 where it does not reach; what lies beyond the box, which few brains do, is left out."""
    first = np.rint((affine[:3, 3] - BOX_AFFINE[:3, 3]) / SPACING_MM).astype(int)
    on_box = np.zeros(BOX, array.dtype)
    ends = zip(first, array.shape, BOX, strict=True)
    target = tuple(slice(max(start, 0), max(min(start + n, size), 0)) for start, n, size in ends)
    source = tuple(slice(part.start - start, part.stop - start) for part, start in zip(target, first, strict=True))
    on_box[target] = array[source]
    return on_box
