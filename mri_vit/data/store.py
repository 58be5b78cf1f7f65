"""Store: the patches of some patients, in memory, on the GPU or on disk. Draws go in, batches come out on the device.
One patient on disk becomes a batch of one.

Wherever patches lie, a draw gives the same batch to the last bit: they stay float16, and what is drawn is gathered, mirrored and
changed by the same code.

Letters: n patients, f foreground grid positions of one, r rows of all, b patients of a batch, p tokens of each, c channels or
label columns, x voxels along a patch's edge, k = c·x³ numbers in a patch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Int, Int16, Int64
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import EMPTY_ROW, NO_PATCH, NO_POSITION, Draw, moved_windows, neighbours
from mri_vit.data.tokens import Tokens
from mri_vit.run import files
from mri_vit.run.resource import free_memory
from mri_vit.settings.recipe import Model
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.sections import Grid

Inputs = tuple[Float[Tensor, "b p k"], Int[Tensor, "b p"]]
T = TypeVar("T")
Fetched = tuple[Float16[Tensor, "r k"], list[Int16[np.ndarray, " _"]], Draw]  # rows, where each patient's lie, and what is drawn
CPU_SHARE = 0.25  # of the free memory; two trainings that start at once see the same, and each network needs some
GPU_SHARE = 0.75  # of the GPU's: 5,000 patients of 21 MB in 141 GB, and ViT-B's activations beside them
PREFETCHED_BATCHES = 4  # batches that are read before they are asked for
READER_THREADS = 4  # files that are read at a time; a disk over a network answers several at once
CACHE_BYTES = 2**19  # bytes of patches that are changed at a time on a CPU, so that they stay in a core's cache


def token_file(prepared: Path, patient: Patient) -> Path:
    return prepared / patient.id / files.TOKENS


def labels(patients: Sequence[Patient], endpoint: Endpoint) -> Float[Tensor, "b c"]:
    """The endpoint's label columns, NaN where missing."""
    return torch.tensor([[p.labels[column] for column in endpoint.columns] for p in patients], dtype=torch.float32)


def all_tokens(prepared: Tokens, settings: Model) -> Inputs:
    """One patient as a batch of one with every token that the study's encoder reads."""
    return chosen_tokens(prepared, settings.tokens)


def chosen_tokens(prepared: Tokens, which: Literal["all", "foreground"]) -> Inputs:
    """One patient as a batch of one: every position of the grid, or those that hold brain."""
    patches, position = prepared.patches, prepared.position
    if which == "all":
        patches, position = (
            np.zeros((prepared.grid.positions, patches.shape[1]), patches.dtype),
            np.arange(prepared.grid.positions),
        )
        patches[prepared.position] = prepared.patches
    return torch.from_numpy(patches).float()[None], torch.from_numpy(position.astype(np.int64))[None]


@dataclass(frozen=True)
class Batch:
    """What a network reads; `present` marks tokens, and is None where no patient is filled up with none."""

    patches: Float16[Tensor, "b p k"]
    position: Int64[Tensor, "b p"]
    present: Bool[Tensor, "b p"] | None = None


@runtime_checkable
class Store(Protocol):
    """Where the patches of each patient lie on the grid, and the batches of draws."""

    position: list[Int16[np.ndarray, " _"]]

    def take(self, draw: Draw) -> Batch:
        """The batch of a draw."""
        ...

    def each(self, asked: Iterable[tuple[T, Sequence[Draw]]]) -> Iterator[tuple[T, list[Batch]]]:
        """What was asked with, and the batches of the draws that were asked for, in the same order.

        A batch lasts until the next one is asked for: on a CPU the next is written over it, because fresh memory costs more
        than what is done in it (measured: 80 of 140 ms for 16 patients of 320 tokens).
        """
        ...


def store(files: Sequence[Path], device: torch.device) -> Held | Read:
    """The patients of these `tokens.safetensors`: held where they fit into the stated share of the device's memory.

    Raises IntegrityError for a file that is damaged, or has other sequences than the first.
    """
    size = sum(file.stat().st_size for file in files if file.exists())
    return held(files, device) if size <= budget(device) else Read(files, device)


def budget(device: torch.device) -> int:
    """Bytes of patients that are held on a device."""
    if device.type == "cuda":
        return round(GPU_SHARE * torch.cuda.mem_get_info(device)[0])
    return round(CPU_SHARE * free_memory())


class Held:
    """Patches in one tensor on the device; the last row is an empty patch, which all background grid positions share."""

    def __init__(self, rows: Float16[Tensor, "r k"], position: Sequence[Int16[np.ndarray, " _"]], grid: Grid) -> None:
        self.position, self._grid = list(position), grid
        self._rows, self._lanes = rows, lanes(rows.shape[1] // grid.patch**3, grid.patch, rows.device)
        self._first = np.cumsum([0, *map(len, position)])
        self._near: dict[int, Int64[np.ndarray, "f 3 3 3"]] = {}  # by patient, filled when one is moved

    def take(self, draw: Draw, over: Batch | None = None) -> Batch:
        """The batch of a draw; where there is one of its size to be written `over`, in that one's memory."""
        device = self._rows.device
        patches = self._moved(draw) if draw.moved.any() else self._as_stored(draw, over)
        if (draw.gain != 1).any() or draw.shift.any():
            change(patches, sent(draw.gain, device), sent(draw.shift, device))
        present = sent(draw.position != NO_POSITION, device) if (draw.position == NO_POSITION).any() else None
        return Batch(patches, sent(draw.position, device), present)

    def _as_stored(self, draw: Draw, over: Batch | None) -> Float16[Tensor, "b p k"]:
        device = self._rows.device
        empty = len(self._rows) - 1
        row = sent(np.where(draw.row == EMPTY_ROW, empty, self._first[draw.patient] + draw.row), device)
        count = self._lanes.shape[1]
        at = row.flatten()[:, None] * count + self._lanes[sent(draw.mirrored.astype(np.int64), device).flatten()]
        rows = self._rows.view(len(self._rows) * count, -1)
        size = (at.numel(), rows.shape[1])
        room = over.patches if over and over.patches.numel() == math.prod(size) and not rows.is_cuda else rows.new_empty(size)
        return torch.index_select(rows, 0, at.flatten(), out=room.view(size)).view(*row.shape, -1)

    def _moved(self, draw: Draw) -> Float16[Tensor, "b p k"]:
        """As stored, but moved; one patient's tokens of one row of the batch at a time, which are moved alike."""
        edge, device, empty = self._grid.patch, self._rows.device, len(self._rows) - 1
        cubes = self._rows.view(empty + 1, -1, edge, edge, edge)
        out = cubes.new_empty(*draw.row.shape, *cubes.shape[1:])
        for b, patient in ((b, patient) for b, row in enumerate(draw.patient) for patient in np.unique(row)):
            (whose,) = np.nonzero(draw.patient[b] == patient)
            row = draw.row[b, whose]
            near, used = np.full((len(row), 3, 3, 3), NO_PATCH), row != EMPTY_ROW
            near[used] = self._neighbours(int(patient))[row[used]]
            index = sent(np.where(near == NO_PATCH, empty, self._first[patient] + near), device)
            out[b, sent(whose, device)] = moved_windows(cubes, index, draw.moved[b, whose[0]].tolist())
        mirrored = sent(draw.mirrored, device)[:, :, None, None, None, None]
        return torch.where(mirrored, out.flip(3), out).flatten(2) if draw.mirrored.any() else out.flatten(2)

    def _neighbours(self, patient: int) -> Int64[np.ndarray, "f 3 3 3"]:
        if patient not in self._near:
            self._near[patient] = neighbours(self.position[patient], self._grid.side)
        return self._near[patient]

    def each(self, asked: Iterable[tuple[T, Sequence[Draw]]]) -> Iterator[tuple[T, list[Batch]]]:
        last: list[Batch] = []
        for given, draws in asked:
            last = [self.take(draw, over) for draw, over in zip_longest(draws, last[: len(draws)])]
            yield given, last


@cache
def lanes(channels: int, patch: int, device: torch.device) -> Int64[Tensor, "2 l"]:
    """Where each lane of a patch is taken from, as it is stored and mirrored.

    A patch has l = c·x lanes of x² numbers each; mirrored, lanes trade places within their channel.
    """
    lane = np.arange(channels * patch).reshape(channels, patch)
    return torch.from_numpy(np.stack([lane, lane[:, ::-1]]).reshape(2, -1)).to(device)


def held(files: Sequence[Path], device: torch.device) -> Held:
    """The patients of these files, read one after the other into one tensor."""
    position = [tokens.load_place(file) for file in files]
    first = tokens.load(files[0])
    rows = torch.empty(sum(map(len, position)) + 1, first.patches.shape[1], dtype=torch.float16, device=device)
    rows[-1] = 0
    start = 0
    for file, at in zip(files, position, strict=True):
        rows[start : start + len(at)] = torch.from_numpy(tokens.load(file, first.channels).patches)
        start += len(at)
    return Held(rows, position, first.grid)


class Read:
    """Patches on disk, of which those that are drawn are read ahead of the device's work, into memory that it copies from."""

    def __init__(self, files: Sequence[Path], device: torch.device) -> None:
        self.position = [tokens.load_place(file) for file in files]
        self._files, self._device = list(files), device
        first = tokens.load(files[0])
        self._grid, self._channels = first.grid, first.channels

    def take(self, draw: Draw) -> Batch:
        return self._sent(*self._fetched(draw))

    def each(self, asked: Iterable[tuple[T, Sequence[Draw]]]) -> Iterator[tuple[T, list[Batch]]]:
        def fetched(one: tuple[T, Sequence[Draw]]) -> tuple[T, list[Fetched]]:
            return one[0], [self._fetched(draw) for draw in one[1]]

        last: list[Batch] = []
        for given, parts in ahead(fetched, asked):
            last = [self._sent(*part, over) for part, over in zip_longest(parts, last[: len(parts)])]
            yield given, last

    def _fetched(self, draw: Draw) -> Fetched:
        return self._every_row(draw) if draw.moved.any() else self._drawn_rows(draw)

    def _drawn_rows(self, draw: Draw) -> Fetched:
        """The rows that are drawn and an empty one, as of one patient, and the draw as one of these; where they lie is in it."""
        used = draw.row != EMPTY_ROW
        rows = self._room(int(used.sum()))
        row = np.full_like(draw.row, EMPTY_ROW)
        start = 0
        for patient in np.unique(draw.patient[used]):
            whose = used & (draw.patient == patient)
            end = start + int(whose.sum())
            patches = tokens.load(self._files[patient], self._channels).patches
            np.take(patches, draw.row[whose], axis=0, out=rows.numpy()[start:end], mode="clip")  # "raise" would copy twice
            row[whose] = np.arange(start, end)
            start = end
        return rows, [np.zeros(start, np.int16)], replace(draw, row=row, patient=np.zeros_like(draw.patient))

    def _every_row(self, draw: Draw) -> Fetched:
        """All rows of the patients who are drawn, as what is moved shows neighbours too, and an empty one."""
        patients = np.unique(draw.patient)
        positions = [self.position[patient] for patient in patients]
        rows, start = self._room(sum(map(len, positions))), 0
        for patient, position in zip(patients, positions, strict=True):
            rows.numpy()[start : start + len(position)] = tokens.load(self._files[patient], self._channels).patches
            start += len(position)
        return rows, positions, replace(draw, patient=np.searchsorted(patients, draw.patient))

    def _room(self, rows: int) -> Float16[Tensor, "r k"]:
        """Memory for so many rows and, behind them, an empty one."""
        numbers = len(self._channels) * self._grid.patch**3
        room = torch.empty(rows + 1, numbers, dtype=torch.float16, pin_memory=self._device.type == "cuda")
        room[-1] = 0
        return room

    def _sent(self, rows: Float16[Tensor, "r k"], position: list[np.ndarray], draw: Draw, over: Batch | None = None) -> Batch:
        return Held(rows.to(self._device, non_blocking=True), position, self._grid).take(draw, over)


def ahead(function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """`function` of each item, in order, worked out by other threads up to `PREFETCHED_BATCHES` items before it is asked for."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(READER_THREADS) as threads:
        try:
            for item in items:
                waiting.append(threads.submit(function, item))
                if len(waiting) > PREFETCHED_BATCHES:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # whoever asked may have stopped
            for future in waiting:
                future.cancel()


def sent(array: np.ndarray, device: torch.device) -> Tensor:
    """An array on the device, which the processor does not wait for."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def change(patches: Float16[Tensor, "b p k"], gain: Float[Tensor, "b p c"], shift: Float[Tensor, "b p c"]) -> None:
    """gain·x + shift of each voxel that is not 0, per channel, in place; the background stays exactly zero."""
    channels = gain.shape[2]
    x = patches.view(-1, channels, patches.shape[2] // channels)
    parts = len(x) if patches.is_cuda else max(1, CACHE_BYTES // (patches.shape[2] * patches.element_size()))
    gain, shift = (factor.to(patches.dtype).view(-1, channels, 1) for factor in (gain, shift))
    for some, by, more in zip(x.split(parts), gain.split(parts), shift.split(parts), strict=True):
        some.mul_(by).addcmul_(some.sign().abs_(), more)
