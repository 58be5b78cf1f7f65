"""Persons: visits of several cohorts go in; which of them are one person, and which look like it, come out.

Two rows are of one person where a cohort declares it (its column `same_as`) or where two scans have the same voxels, whatever
file, format, orientation or id they came in. A copy that was resampled, registered or normalised again has other voxels, but the
same brain: each scan is cropped to the box of its head and averaged to a few thousand cells, and only the patients nearest to
each other are aligned by a rigid registration and compared by the rank correlation of their voxels. Letters: n patients, c cells.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from jaxtyping import Float
from scipy.ndimage import gaussian_filter, map_coordinates, uniform_filter
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata
from SimpleITK import Image

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, read, to_itk
from mri_vit.errors import UsageError
from mri_vit.importers.layout import SAME_AS


@dataclass(frozen=True)
class SourceCohort:
    """One cohort that is merged with others."""

    name: str
    table: Path
    patients: Sequence[Patient]
    named: bool = True  # by its own table; a folder's name may be another cohort's too

    @property
    def subjects(self) -> list[str]:
        """Its patients, in the table's order."""
        return list(dict.fromkeys(patient.subject for patient in self.patients))


@dataclass(frozen=True, order=True)
class Subject:
    """A patient of one cohort."""

    cohort: str
    patient: str

    def __str__(self) -> str:
        return f"{self.patient} of {self.cohort}"


@dataclass(frozen=True)
class Link:
    """Two patients who are one person, and how that is known; the other may be of a cohort that is not merged."""

    one: Subject
    other: Subject
    why: str


def declared_links(sources: Sequence[SourceCohort]) -> list[Link]:
    """The links that the column `same_as` states.

    Two patients who are both declared to be a third are one person, whether or not the third one's cohort is merged.
    Raises UsageError naming table and patient where a cell is not of the form `cohort:patient`.
    """
    links = []
    for source in sources:
        for patient in source.patients:
            for entry in patient.clinical.get(SAME_AS, "").split():
                cohort, colon, name = entry.partition(":")
                if not (cohort and colon and name):
                    raise UsageError(
                        f"{source.table}: patient {patient.id}, column {SAME_AS}: {entry!r}; expected cohort:patient"
                    )
                own, other = Subject(source.name, patient.subject), Subject(cohort, name)
                if other != own:
                    links.append(Link(own, other, f"{SAME_AS} of {source.name}"))
    return list(dict.fromkeys(links))


def unknown_links(sources: Sequence[SourceCohort], links: Iterable[Link]) -> list[Link]:
    """The links to a patient who is missing from a merged cohort: a slip, or a patient who was left out."""
    there = _subjects(sources)
    cohorts = {source.name for source in sources}
    return [link for link in links if link.other.cohort in cohorts and link.other not in there]


def links_by_voxels(sources: Sequence[SourceCohort], hashes: Mapping[Path, str]) -> list[Link]:
    """The links between patients who have a scan in common; `hashes` are those of `voxel_hash`, by file."""
    holders: dict[str, dict[Subject, Path]] = defaultdict(dict)
    for source in sources:
        for patient in source.patients:
            for path in scan_paths(patient):
                if hashes.get(path):
                    holders[hashes[path]].setdefault(Subject(source.name, patient.subject), path)
    links = []
    for people in holders.values():
        first, *others = people
        links += [Link(first, other, "scans of the same voxels") for other in others]
    return links


def person_numbers(sources: Sequence[SourceCohort], links: Iterable[Link]) -> dict[Subject, int]:
    """A number per person, equal for all who are linked, directly or through others; persons count in the sources' order.

    Patients whom links name in cohorts that are not merged have their persons' numbers too.
    """
    pairs = [(link.one, link.other) for link in links]
    subjects = dict.fromkeys([*_subjects(sources), *(subject for pair in pairs for subject in pair)])
    place = {subject: n for n, subject in enumerate(subjects)}
    ends = np.array([(place[one], place[other]) for one, other in pairs], dtype=int).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(place), len(place)))
    component = connected_components(graph, directed=False)[1]
    number: dict[int, int] = {}
    return {subject: number.setdefault(int(of), len(number)) for subject, of in zip(place, component, strict=True)}


def _subjects(sources: Sequence[SourceCohort]) -> dict[Subject, None]:
    """The patients of all cohorts, in their order."""
    return {Subject(source.name, subject): None for source in sources for subject in source.subjects}


def scan_paths(patient: Patient) -> list[Path]:
    """The scan files that a patient has."""
    return [path for path in patient.scans.values() if path]


def voxel_hash(path: Path) -> str:
    """SHA-256 of a scan's voxels as RAS+, whatever orientation, data type and packing they were stored in.

    Empty for a scan of one value, which is no evidence. Raises UnusablePatient where the file is no readable scan.
    """
    array = canonical(read(path)).array
    return hashlib.sha256(array.tobytes()).hexdigest() if array.min() < array.max() else ""


EDGE = 24  # cells along each axis of a signature: about 7 mm of a head
COARSE_MM = 4.0  # voxels of what is registered: no finer than the slices of most clinical scans
HEAD_THRESHOLD = 0.1  # of the 99th percentile above the border's value: where a head begins
NEIGHBOURS = 3  # patients who are registered to each one; the copy of a scan was always the nearest of all
# Rank correlation from which two patients are flagged. Copies of five real patients (rotated by some degrees, resampled to 2 mm,
# with another contrast) had 0.93 to 0.99, ten pairs of different patients at most 0.63, T1ce and FLAIR alike.
MIN_CORRELATION = 0.8
STEPS_MM, ENOUGH_MM, MOST_STEPS = 2.0, 0.01, 60  # of the registration: half a voxel at first; it ends at a hundredth of one


@dataclass(frozen=True)
class Alike:
    """Two patients who are not known as one person and whose scans look alike."""

    one: Subject
    other: Subject
    correlation: float


def alike_pairs(scans: Mapping[Subject, Path], person: Mapping[Subject, int]) -> tuple[list[Alike], list[Subject]]:
    """Pairs of different persons whose scans of one channel look alike, the most alike first; and whose scan shows no head.

    Parameters
    ----------
    scans : one scan of each patient, all of one channel; FLAIR and T1ce discriminate best.
    person : as `person_numbers` gives it.

    Raises
    ------
    UnusablePatient where a file is no readable scan.
    """
    small = {one: coarse(canonical(read(path))) for one, path in scans.items()}
    people = [one for one, copy in small.items() if (sitk.GetArrayViewFromImage(copy) > HEAD_THRESHOLD).any()]
    signatures = [signature(sitk.GetArrayViewFromImage(small[one])) for one in people]
    pairs = []
    for a, b in neighbours(np.stack(signatures)) if people else ():
        one, other = people[a], people[b]
        if person[one] != person[other] and (value := correlation(small[one], small[other])) >= MIN_CORRELATION:
            pairs.append(Alike(one, other, value))
    return sorted(pairs, key=lambda pair: -pair.correlation), [one for one in scans if one not in people]


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
    low, high = (np.array([end(axis) for axis in np.nonzero(array > HEAD_THRESHOLD)]) for end in (np.min, np.max))
    at = np.stack(np.meshgrid(*(np.linspace(a, b, EDGE) for a, b in zip(low, high, strict=True)), indexing="ij"))
    smooth = uniform_filter(array, np.maximum(1, np.round((high - low) / EDGE)).astype(int).tolist())
    ranks = rankdata(map_coordinates(smooth, at.reshape(3, -1), order=1, mode="nearest"))
    return 2 * (ranks - 1) / (len(ranks) - 1) - 1


def neighbours(signatures: Float[np.ndarray, "n c"]) -> list[tuple[int, int]]:
    """Pairs of which either is among the NEIGHBOURS of the other, once the cohort's median brain is subtracted."""
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
    """Spearman's correlation of the voxels that both heads have, after registration of the other to the one; 0 without any."""
    moments = sitk.CenteredTransformInitializerFilter.MOMENTS
    transform = sitk.CenteredTransformInitializer(one, other, sitk.Euler3DTransform(), moments)
    registration = sitk.ImageRegistrationMethod()
    registration.SetMetricAsCorrelation()
    registration.SetInterpolator(sitk.sitkLinear)
    registration.SetInitialTransform(transform, True)
    registration.SetOptimizerAsRegularStepGradientDescent(STEPS_MM, ENOUGH_MM, MOST_STEPS)
    registration.SetOptimizerScalesFromPhysicalShift()
    registration.SetNumberOfThreads(1)  # a pair takes half a second, and results do not depend on the machine
    try:
        registration.Execute(one, other)
    except RuntimeError:  # ITK: the two do not overlap, or one is too flat to be rotated
        return 0.0
    moved = sitk.GetArrayFromImage(sitk.Resample(other, one, transform, sitk.sitkLinear, 0.0))
    still = sitk.GetArrayFromImage(one)
    both = (still > HEAD_THRESHOLD) & (moved > HEAD_THRESHOLD)
    return float(np.corrcoef(rankdata(still[both]), rankdata(moved[both]))[0, 1]) if both.sum() > 1 else 0.0
