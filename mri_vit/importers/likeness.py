"""Likeness: scans of several patients in, pairs out who look like one person, whom neither a file nor an id gives away.

A copy that was resampled, registered or normalised anew has other voxels; what stays is the brain. First each scan is cut to the
box of its head and averaged to a few thousand cells, and the patients nearest to each other are found; then these alone are laid
over each other by a rigid registration, and compared by the rank correlation of their voxels. Letters: n patients, c cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from jaxtyping import Float
from scipy.ndimage import gaussian_filter, map_coordinates, uniform_filter
from scipy.stats import rankdata
from SimpleITK import Image

from mri_vit.data.volume import Volume, canonical, read, to_itk
from mri_vit.importers.persons import Subject

EDGE = 24  # cells along each axis of a signature: about 7 mm of a head
COARSE_MM = 4.0  # voxels of what is registered: no finer than the slices of most clinical scans
HEAD = 0.1  # of the 99th percentile above the border's value: where a head begins
NEIGHBOURS = 3  # patients who are laid over each one; the copy of a scan was always the nearest of all
# Rank correlation from which two patients are flagged. Copies of five real patients (turned by some degrees, resampled to 2 mm,
# their contrast bent) had 0.93 to 0.99, ten pairs of different patients at most 0.63, T1ce and FLAIR alike.
ALIKE = 0.8
STEPS_MM, ENOUGH_MM, MOST_STEPS = 2.0, 0.01, 60  # of the registration: half a voxel at first; it ends at a hundredth of one


@dataclass(frozen=True)
class Alike:
    """Two patients who are not known as one person and whose scans look alike."""

    one: Subject
    other: Subject
    correlation: float


def alike(scans: Mapping[Subject, Path], person: Mapping[Subject, int]) -> tuple[list[Alike], list[Subject]]:
    """Pairs of different persons whose scans of one channel look alike, the most alike first; and whose scan shows no head.

    Parameters
    ----------
    scans : one scan of each patient, all of one channel; FLAIR and T1ce tell best.
    person : as `persons.joined` gives it.

    Raises
    ------
    UnusablePatient where a file is no readable scan.
    """
    small = {one: coarse(canonical(read(path))) for one, path in scans.items()}
    people = [one for one, copy in small.items() if (sitk.GetArrayViewFromImage(copy) > HEAD).any()]
    signatures = [signature(sitk.GetArrayViewFromImage(small[one])) for one in people]
    found = []
    for a, b in neighbours(np.stack(signatures)) if people else ():
        one, other = people[a], people[b]
        if person[one] != person[other] and (value := correlation(small[one], small[other])) >= ALIKE:
            found.append(Alike(one, other, value))
    return sorted(found, key=lambda pair: -pair.correlation), [one for one in scans if one not in people]


def coarse(scan: Volume) -> Image:
    """The scan at 4 mm, its border's value 0 and its brightest voxels 1."""
    border = np.concatenate([scan.array.take(end, axis).ravel() for axis in range(3) for end in (0, -1)])
    above = np.maximum(scan.array - np.median(border), 0)
    bright = np.percentile(above[above > 0], 99) if (above > 0).any() else 1.0
    smooth = gaussian_filter(above / bright, [COARSE_MM / 2 / mm for mm in scan.spacing_mm])  # ITK's needs four slices
    image = to_itk(Volume(smooth.astype(np.float32), scan.affine))
    size = [max(1, round(n * mm / COARSE_MM)) for n, mm in zip(image.GetSize(), image.GetSpacing(), strict=True)]
    origin, direction = image.GetOrigin(), image.GetDirection()
    return sitk.Resample(image, size, sitk.Transform(), sitk.sitkLinear, origin, [COARSE_MM] * 3, direction, 0.0)


def signature(array: Float[np.ndarray, "z y x"]) -> Float[np.ndarray, " c"]:
    """EDGE³ cells over the box of the head, as ranks from -1 to 1; there is a head."""
    low, high = (np.array([end(axis) for axis in np.nonzero(array > HEAD)]) for end in (np.min, np.max))
    at = np.stack(np.meshgrid(*(np.linspace(a, b, EDGE) for a, b in zip(low, high, strict=True)), indexing="ij"))
    smooth = uniform_filter(array, np.maximum(1, np.round((high - low) / EDGE)).astype(int).tolist())
    ranks = rankdata(map_coordinates(smooth, at.reshape(3, -1), order=1, mode="nearest"))
    return 2 * (ranks - 1) / (len(ranks) - 1) - 1


def neighbours(signatures: Float[np.ndarray, "n c"]) -> list[tuple[int, int]]:
    """Pairs of which either is among the NEIGHBOURS of the other, once what all brains have in common is taken away."""
    n = len(signatures)
    if n < 2:
        return []
    centred = signatures - np.median(signatures, axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    near = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    product = near @ near.T
    np.fill_diagonal(product, -np.inf)
    nearest = np.argsort(-product, axis=1)[:, : min(NEIGHBOURS, n - 1)]
    return sorted({(min(i, int(j)), max(i, int(j))) for i in range(n) for j in nearest[i]})


def correlation(one: Image, other: Image) -> float:
    """Spearman's correlation of the voxels that both heads have, after the other was laid over the one; 0 without any."""
    moments = sitk.CenteredTransformInitializerFilter.MOMENTS
    transform = sitk.CenteredTransformInitializer(one, other, sitk.Euler3DTransform(), moments)
    registration = sitk.ImageRegistrationMethod()
    registration.SetMetricAsCorrelation()
    registration.SetInterpolator(sitk.sitkLinear)
    registration.SetInitialTransform(transform, True)
    registration.SetOptimizerAsRegularStepGradientDescent(STEPS_MM, ENOUGH_MM, MOST_STEPS)
    registration.SetOptimizerScalesFromPhysicalShift()
    registration.SetNumberOfThreads(1)  # a pair takes half a second, and results do not hang on the machine
    try:
        registration.Execute(one, other)
    except RuntimeError:  # ITK: the two do not overlap, or one is too flat to be turned
        return 0.0
    moved = sitk.GetArrayFromImage(sitk.Resample(other, one, transform, sitk.sitkLinear, 0.0))
    still = sitk.GetArrayFromImage(one)
    both = (still > HEAD) & (moved > HEAD)
    return float(np.corrcoef(rankdata(still[both]), rankdata(moved[both]))[0, 1]) if both.sum() > 1 else 0.0


def of_channel(subjects: Mapping[Subject, Sequence[Mapping[str, Path | None]]], channel: str) -> dict[Subject, Path]:
    """The first scan of a channel that each patient has."""
    found = {
        subject: next((path for scans in visits if (path := scans.get(channel))), None) for subject, visits in subjects.items()
    }
    return {subject: path for subject, path in found.items() if path}
