"""Scans: the files that a cohort table names go in; what their headers say, what is wrong with them, and copies come out.

Of each file the first 4 KB are unpacked, in several threads, because a network's disk answers slowly. Faults that only the voxels
show (flipped bits, NaN, an empty image) are found when a patient is prepared. Files of equal size are compared by a few samples
of their content, and those equal in these by the hash of the whole; copies that were saved again are found when patients are
prepared, by their voxels. Rows that seem to be one person are found by their cells.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import nibabel as nib
import numpy as np
from jaxtyping import Float

from mri_vit.data import nifti, volume
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import MISSING
from mri_vit.errors import UnusablePatient
from mri_vit.run.integrity import sha256
from mri_vit.settings import source
from mri_vit.settings.recipe import title

Result = TypeVar("Result")
THREADS = 8  # as many files are asked for at a time
BATCH_FILES = 64  # files that a thread is given at a time: handing over each alone takes as long as reading it
MAX_WHOLE_READS = 100  # files whose last bytes contradict their header, which are then read to their end: 0.2 s each
SAMPLES, SAMPLE_BYTES = 8, 4096  # a T1ce of 240 × 240 × 155 voxels has eight slices' parts in them
MAX_CHANCE_PAIRS = 0.01  # pairs of different people whose cells would be equal by chance, in the whole table, at most


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What the ends of a file show; `fault` says why it cannot be used, "" where it can.

    `doubtful` files end with another size than their header announces: damaged, or of several gzip members.
    """

    fault: str
    size: int = 0
    same_file: tuple[int, int] = (0, 0)  # device and inode: one file under two names has the same
    shape: tuple[int, ...] = ()
    affine: Float[np.ndarray, "4 4"] | None = None
    doubtful: bool = False


def inspect(paths: Iterable[Path]) -> dict[Path, FileInfo]:
    """Read the ends of each file; the first `MAX_WHOLE_READS` doubtful ones are read whole, which settles them."""
    unique = list(dict.fromkeys(paths))
    info = dict(zip(unique, _in_threads(_inspect, unique), strict=True))
    for path in [path for path, file in info.items() if file.doubtful][:MAX_WHOLE_READS]:
        try:
            volume.read_mask(path)  # its size is in doubt, not its slope, which a mask may have as it likes
            info[path] = replace(info[path], doubtful=False)
        except UnusablePatient as fault:
            info[path] = FileInfo(fault.reason, info[path].size, info[path].same_file)
    return info


def _in_threads(work: Callable[[Path], Result], files: Sequence[Path]) -> list[Result]:
    """What `work` makes of each file, in their order, several at a time."""
    batches = [files[start : start + BATCH_FILES] for start in range(0, len(files), BATCH_FILES)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [result for done in pool.map(lambda batch: [work(file) for file in batch], batches) for result in done]


def _inspect(path: Path) -> FileInfo:
    if wrong := source.fault(path):
        return FileInfo(wrong)
    try:
        with path.open("rb") as file:
            start, stat = file.read(nifti.START_BYTES), os.fstat(file.fileno())
            file.seek(max(0, stat.st_size - 4))
            end = file.read(4)
    except OSError as error:
        return FileInfo(f"cannot be read: {error.strerror}")
    inode = (stat.st_dev, stat.st_ino)
    try:
        header = nifti.announced(start, path.suffix.lower() == ".gz")
    except UnusablePatient as fault:
        return FileInfo(fault.reason, stat.st_size, inode)
    if header.gzipped:  # RFC 1952: a gzip member ends with its unpacked size, modulo 2^32
        differs = int.from_bytes(end, "little") != header.content_bytes % (1 << 32)
        return FileInfo("", stat.st_size, inode, header.shape, header.affine, doubtful=differs)
    if stat.st_size != header.content_bytes:
        fault = f"holds {stat.st_size:,} bytes where its header announces {header.content_bytes:,}"
        return FileInfo(fault, stat.st_size, inode)
    return FileInfo("", stat.st_size, inode, header.shape, header.affine)


def off_grid(mask: FileInfo, scan: FileInfo, name: str) -> str:
    """How a mask's grid differs from the scan's that it must lie on; "" where it is the same, in whatever order of axes."""
    if mask.affine is None or scan.affine is None:
        return ""
    if mask.shape == scan.shape and np.array_equal(mask.affine, scan.affine):
        return ""
    (shape, affine), (other_shape, other) = _as_ras(mask), _as_ras(scan)
    apart_mm = float(nifti.corners_apart_mm(affine, other, other_shape).max())
    if shape == other_shape and apart_mm <= nifti.FRAMES_TOLERANCE_MM:
        return ""
    return f"is on another grid than the {title(name)}: shape {shape} against {other_shape}, corners {apart_mm:.1f} mm apart"


def _as_ras(file: FileInfo) -> tuple[tuple[int, ...], Float[np.ndarray, "4 4"]]:
    """Shape and affine with the axes laid as RAS+."""
    affine = np.asarray(file.affine)
    orientation = nib.io_orientation(affine)
    shape: list[int] = [0, 0, 0]
    for axis, (towards, _) in enumerate(orientation):
        shape[int(towards)] = file.shape[axis]
    return tuple(shape), affine @ nib.orientations.inv_ornt_aff(orientation, file.shape)


def total_bytes(info: Mapping[Path, FileInfo]) -> int:
    """What the files take on disk, one under several names counted once."""
    return sum({file.same_file: file.size for file in info.values()}.values())


def usual_voxels(info: Mapping[Path, FileInfo]) -> float:
    """Of the files that can be read, the median."""
    return float(np.median([np.prod(file.shape) for file in info.values() if file.shape] or [0]))


def duplicate_files(info: Mapping[Path, FileInfo]) -> list[list[Path]]:
    """Groups of files with the same content, of those that can be read."""
    sized = _groups([path for path, file in info.items() if not file.fault], lambda path: info[path].size)
    sampled = _grouped(sized, info, lambda path: _sample(path, info[path].size))
    return _grouped(sampled, info, sha256)


def _grouped(groups: Sequence[list[Path]], info: Mapping[Path, FileInfo], key: Callable[[Path], Hashable]) -> list[list[Path]]:
    """The groups divided by a key that takes reading; a file is read once, however many names it has."""
    one_of = {info[path].same_file: path for group in groups for path in group}
    keys = dict(zip(one_of, _in_threads(key, list(one_of.values())), strict=True))
    return [part for group in groups for part in _groups(group, lambda path: keys[info[path].same_file])]


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
    a column's i-th value; groups are given where this is below `MAX_CHANCE_PAIRS`. Of columns that hold the same (days and
    months) one is counted, and rows with a missing cell are left out.
    """
    cells = {p.id: (*p.clinical.values(), *map(str, p.labels.values())) for p in patients}
    complete = [p for p in patients if not any(cell.strip().lower() in MISSING for cell in cells[p.id])]
    if len(complete) < 2:
        return []
    columns: list[tuple[str, ...]] = []
    for column in zip(*(cells[p.id] for p in complete), strict=True):
        if not any(follows(other, column) for other in columns):
            columns.append(column)
    pairs = len(complete) * (len(complete) - 1) / 2
    same = [sum((n / len(complete)) ** 2 for n in Counter(column).values()) for column in columns]
    if not columns or pairs * math.prod(same) >= MAX_CHANCE_PAIRS:
        return []
    of: dict[tuple[str, ...], list[Patient]] = defaultdict(list)
    for p in complete:
        of[cells[p.id]].append(p)
    return [group for group in of.values() if len({p.subject for p in group}) > 1]


def follows(cells: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a column's values never fall, or never rise, where another's rise; both vary."""
    a, b = _numbers(cells), _numbers(others)
    if len(set(a)) < 2 or len(set(b)) < 2:
        return False
    by_other = sorted(zip(b, a, strict=True))  # equal ones of `cells` stay in this order when they are sorted by it
    rising, falling = (sorted(by_other, key=lambda pair: pair[1], reverse=reverse) for reverse in (False, True))
    return [pair[0] for pair in by_other] in ([pair[0] for pair in rising], [pair[0] for pair in falling])


def _numbers(cells: Sequence[str]) -> list[float] | list[str]:
    """Numbers where every cell is one, else text."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return list(cells)
    return numbers if all(map(math.isfinite, numbers)) else list(cells)
