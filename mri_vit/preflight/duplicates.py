"""Duplicates: one scan under two names, and rows of a table that seem to be one person.

Files of equal size are compared by a few samples of their content, and those that are equal in these by the hash of the whole.
Copies that were written anew are found when patients are prepared, by their voxels.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path

from mri_vit.data.cohort import Patient
from mri_vit.data.spellings import MISSING
from mri_vit.preflight.plausible import follows
from mri_vit.preflight.scans import Seen, in_threads, usable
from mri_vit.run.integrity import sha256

SAMPLES, SAMPLE_BYTES = 8, 4096  # a T1ce of 240 × 240 × 155 voxels has eight slices' parts in them
CHANCE = 0.01  # pairs of different people whose cells would be equal by chance, in the whole table, at most


def of_files(seen: Mapping[Path, Seen]) -> list[list[Path]]:
    """Groups of files with the same content, of those that can be read."""
    sized = _groups(usable(seen), lambda path: seen[path].size)
    sampled = _grouped(sized, seen, lambda path: _sample(path, seen[path].size))
    return _grouped(sampled, seen, sha256)


def _grouped(groups: Sequence[list[Path]], seen: Mapping[Path, Seen], key: Callable[[Path], Hashable]) -> list[list[Path]]:
    """The groups divided by a key that takes reading; a file is read once, however many names it has."""
    one_of = {seen[path].same_file: path for group in groups for path in group}
    found = dict(zip(one_of, in_threads(key, list(one_of.values())), strict=True))
    return [part for group in groups for part in _groups(group, lambda path: found[seen[path].same_file])]


def _groups(paths: Iterable[Path], key: Callable[[Path], Hashable]) -> list[list[Path]]:
    """Those of several that share a key."""
    of: dict[Hashable, list[Path]] = defaultdict(list)
    for path in paths:
        of[key(path)].append(path)
    return [group for group in of.values() if len(group) > 1]


def _sample(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        if size <= SAMPLES * SAMPLE_BYTES:
            return hashlib.sha256(file.read()).digest()
        digest = hashlib.sha256()
        for part in range(SAMPLES):
            file.seek((2 * part + 1) * size // (2 * SAMPLES))
            digest.update(file.read(SAMPLE_BYTES))
        return digest.digest()


def of_persons(patients: Sequence[Patient]) -> list[list[Patient]]:
    """Groups of patients under several ids whose labels and clinical cells are all equal, where chance makes no such pair.

    Definition: with cells that are independent of each other, n(n-1)/2 · Π Σ pᵢ² pairs are equal by chance, pᵢ being the share of
    a column's i-th value; groups are given where this is below `CHANCE`. Of columns that say the same (days and months) one
    is counted, and rows with a missing cell are left out.
    """
    cells = {p.id: (*p.clinical.values(), *map(str, p.labels.values())) for p in patients}
    whole = [p for p in patients if not any(cell.strip().lower() in MISSING for cell in cells[p.id])]
    if len(whole) < 2:
        return []
    columns: list[tuple[str, ...]] = []
    for column in zip(*(cells[p.id] for p in whole), strict=True):
        if not any(follows(other, column) for other in columns):
            columns.append(column)
    pairs = len(whole) * (len(whole) - 1) / 2
    same = [sum((n / len(whole)) ** 2 for n in Counter(column).values()) for column in columns]
    if not columns or pairs * math.prod(same) >= CHANCE:
        return []
    of: dict[tuple[str, ...], list[Patient]] = defaultdict(list)
    for p in whole:
        of[cells[p.id]].append(p)
    return [group for group in of.values() if len({p.subject for p in group}) > 1]
