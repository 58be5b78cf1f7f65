"""Persons: visits of several cohorts in, who is one and the same person out.

Two rows are of one person where a cohort declares it (its column `same_as`) or where two scans have the same voxels, whatever
file, format, orientation or id they came in.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import canonical, read
from mri_vit.errors import UsageError
from mri_vit.importers.rules import SAME_AS


@dataclass(frozen=True)
class Source:
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


@dataclass(frozen=True)
class Link:
    """Two patients who are one person, and how that is known; the other may be of a cohort that is not merged."""

    one: Subject
    other: Subject
    why: str


def declared(sources: Sequence[Source]) -> list[Link]:
    """The links that the column `same_as` states.

    Two patients of whom both are said to be a third are one person, whether or not the third one's cohort is merged.
    Raises UsageError naming table and patient where a cell is not of the form `cohort:patient`.
    """
    found = []
    for source in sources:
        for patient in source.patients:
            for said in patient.clinical.get(SAME_AS, "").split():
                cohort, colon, name = said.partition(":")
                if not (cohort and colon and name):
                    raise UsageError(f"{source.table}: patient {patient.id}, column {SAME_AS}: {said!r}; expected cohort:patient")
                own, other = Subject(source.name, patient.subject), Subject(cohort, name)
                if other != own:
                    found.append(Link(own, other, f"{SAME_AS} of {source.name}"))
    return list(dict.fromkeys(found))


def unknown(sources: Sequence[Source], links: Iterable[Link]) -> list[Link]:
    """The links to a patient whom a merged cohort does not have: a slip, or a patient who was left out."""
    there = _subjects(sources)
    cohorts = {source.name for source in sources}
    return [link for link in links if link.other.cohort in cohorts and link.other not in there]


def by_voxels(sources: Sequence[Source], hashes: Mapping[Path, str]) -> list[Link]:
    """The links between patients who have a scan in common; `hashes` are those of `voxel_hash`, by file."""
    holders: dict[str, dict[Subject, Path]] = defaultdict(dict)
    for source in sources:
        for patient in source.patients:
            for path in scans(patient):
                if hashes.get(path):
                    holders[hashes[path]].setdefault(Subject(source.name, patient.subject), path)
    found = []
    for people in holders.values():
        first, *others = people
        found += [Link(first, other, "scans of the same voxels") for other in others]
    return found


def joined(sources: Sequence[Source], links: Iterable[Link]) -> dict[Subject, int]:
    """A number per person, equal for all who are linked, directly or through others; persons count in the sources' order.

    Those of cohorts that are not merged, whom links name, have their persons' numbers too.
    """
    pairs = [(link.one, link.other) for link in links]
    everybody = dict.fromkeys([*_subjects(sources), *(one for pair in pairs for one in pair)])
    place = {subject: n for n, subject in enumerate(everybody)}
    ends = np.array([(place[one], place[other]) for one, other in pairs], dtype=int).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(place), len(place)))
    component = connected_components(graph, directed=False)[1]
    number: dict[int, int] = {}
    return {subject: number.setdefault(int(of), len(number)) for subject, of in zip(place, component, strict=True)}


def _subjects(sources: Sequence[Source]) -> dict[Subject, None]:
    """The patients of all cohorts, in their order."""
    return {Subject(source.name, subject): None for source in sources for subject in source.subjects}


def scans(patient: Patient) -> list[Path]:
    """The scan files that a patient has."""
    return [path for path in patient.scans.values() if path]


def voxel_hash(path: Path) -> str:
    """SHA-256 of a scan's voxels as RAS+, whatever orientation, data type and packing they were stored in.

    Empty for a scan of one value, which anybody's may be. Raises UnusablePatient where the file is no readable scan.
    """
    array = canonical(read(path)).array
    return hashlib.sha256(array.tobytes()).hexdigest() if array.min() < array.max() else ""
