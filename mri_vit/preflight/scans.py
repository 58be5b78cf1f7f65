"""Scans: the files that a cohort table names go in; what their headers say, what is wrong with them, and copies come out.

Of each file the first 4 KB are unpacked, in several threads, because a network's disk answers slowly. What only the voxels
tell (flipped bits, NaN, an empty image) is found when a patient is prepared. Files of equal size are compared by a few
samples of their content, and those that are equal in these by the hash of the whole; copies that were written anew are found
when patients are prepared, by their voxels. Rows that seem to be one person are found by their cells.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import nibabel as nib
import numpy as np
from jaxtyping import Float

from mri_vit.data import nifti, volume
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import MISSING
from mri_vit.errors import UnusablePatient
from mri_vit.preflight.labels import follows
from mri_vit.run.integrity import sha256
from mri_vit.settings import source
from mri_vit.settings.recipe import title

Result = TypeVar("Result")
THREADS = 8  # as many files are asked for at a time
BATCH = 64  # files that a thread is given at a time: handing over each alone takes as long as reading it
READ_WHOLE = 100  # files whose last bytes contradict their header, which are then read to their end: 0.2 s each
SAMPLES, SAMPLE_BYTES = 8, 4096  # a T1ce of 240 × 240 × 155 voxels has eight slices' parts in them
CHANCE = 0.01  # pairs of different people whose cells would be equal by chance, in the whole table, at most


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a file's ends tells; `fault` says why it cannot be used, "" where nothing speaks against it.

    `doubtful` files end with another size than their header announces: damaged, or of several gzip members.
    """

    fault: str
    size: int = 0
    same_file: tuple[int, int] = (0, 0)  # device and inode: one file under two names has the same
    shape: tuple[int, ...] = ()
    affine: Float[np.ndarray, "4 4"] | None = None
    doubtful: bool = False


def look(paths: Iterable[Path]) -> dict[Path, Seen]:
    """Look at the ends of each file; of doubtful ones the first `READ_WHOLE` are read whole, which settles them."""
    each = list(dict.fromkeys(paths))
    seen = dict(zip(each, in_threads(_look, each), strict=True))
    for path in [path for path, one in seen.items() if one.doubtful][:READ_WHOLE]:
        seen[path] = _settled(path, seen[path])
    return seen


def in_threads(work: Callable[[Path], Result], files: Sequence[Path]) -> list[Result]:
    """What `work` makes of each file, in their order, several at a time."""
    batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [one for done in pool.map(lambda batch: [work(file) for file in batch], batches) for one in done]


def _look(path: Path) -> Seen:
    if wrong := source.fault(path):
        return Seen(wrong)
    try:
        with path.open("rb") as file:
            start, stat = file.read(nifti.START_BYTES), os.fstat(file.fileno())
            file.seek(max(0, stat.st_size - 4))
            end = file.read(4)
    except OSError as error:
        return Seen(f"cannot be read: {error.strerror}")
    inode = (stat.st_dev, stat.st_ino)
    try:
        said = nifti.announced(start, path.suffix.lower() == ".gz")
    except UnusablePatient as fault:
        return Seen(fault.reason, stat.st_size, inode)
    if said.gzipped:  # RFC 1952: a gzip member ends with its unpacked size, modulo 2^32
        differs = int.from_bytes(end, "little") != said.content_bytes % (1 << 32)
        return Seen("", stat.st_size, inode, said.shape, said.affine, doubtful=differs)
    if stat.st_size != said.content_bytes:
        fault = f"holds {stat.st_size:,} bytes where its header announces {said.content_bytes:,}"
        return Seen(fault, stat.st_size, inode)
    return Seen("", stat.st_size, inode, said.shape, said.affine)


def _settled(path: Path, seen: Seen) -> Seen:
    try:
        volume.read_mask(path)  # its size is in doubt, not its slope, which a mask may have as it likes
    except UnusablePatient as fault:
        return Seen(fault.reason, seen.size, seen.same_file)
    return Seen("", seen.size, seen.same_file, seen.shape, seen.affine)


def off_grid(mask: Seen, scan: Seen, name: str) -> str:
    """How a mask's grid differs from the scan's that it must lie on; "" where it is the same, in whatever order of axes."""
    if mask.affine is None or scan.affine is None:
        return ""
    if mask.shape == scan.shape and np.array_equal(mask.affine, scan.affine):
        return ""
    (shape, affine), (other_shape, other) = _as_ras(mask), _as_ras(scan)
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in other_shape], [1], indexing="ij"), float).reshape(4, -1)
    apart_mm = float(np.linalg.norm(((affine - other) @ corners)[:3], axis=0).max())
    if shape == other_shape and apart_mm <= nifti.FRAMES_TOLERANCE_MM:
        return ""
    return f"is on another grid than the {title(name)}: shape {shape} against {other_shape}, corners {apart_mm:.1f} mm apart"


def _as_ras(seen: Seen) -> tuple[tuple[int, ...], Float[np.ndarray, "4 4"]]:
    """Shape and affine with the axes laid as RAS+."""
    affine = np.asarray(seen.affine)
    orientation = nib.io_orientation(affine)
    shape: list[int] = [0, 0, 0]
    for axis, (towards, _) in enumerate(orientation):
        shape[int(towards)] = seen.shape[axis]
    return tuple(shape), affine @ nib.orientations.inv_ornt_aff(orientation, seen.shape)


def total_bytes(seen: Mapping[Path, Seen]) -> int:
    """What the files take on disk, one under several names counted once."""
    return sum({one.same_file: one.size for one in seen.values()}.values())


def usual_voxels(seen: Mapping[Path, Seen]) -> float:
    """Of the files that can be read, the median."""
    return float(np.median([np.prod(one.shape) for one in seen.values() if one.shape] or [0]))


def usable(seen: Mapping[Path, Seen]) -> Sequence[Path]:
    """The files that nothing speaks against."""
    return [path for path, one in seen.items() if not one.fault]


def duplicate_files(seen: Mapping[Path, Seen]) -> list[list[Path]]:
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


def duplicate_persons(patients: Sequence[Patient]) -> list[list[Patient]]:
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
