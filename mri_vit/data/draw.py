"""Draw: which tokens of which patients make a batch, which are mirrored or moved, and how intensities change.

A draw touches no voxel. Patches of moved scans are cut from the patches as they are stored: a grid position's window into moved
scans shows parts of up to eight stored patches, its own and neighbours'. Nothing is interpolated: a translation by whole voxels
changes no number, only which patch it is in.

Letters: b patients of a batch, p tokens of each, c channels, f foreground grid positions of a patient, r stored patches, x y z
voxels of a patch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
from jaxtyping import Bool, Float16, Float32, Int, Int64
from torch import Tensor

from mri_vit.settings.schema import Study

EMPTY_ROW = -1  # as a row: a patch of zeros, as every background grid position has one
NO_POSITION = -1  # as a grid position: no token at all, which only fills up a patient who has fewer than the others of the batch
NO_PATCH = -1  # as a neighbour: there is no patch, only air


def stream(*names: int | str) -> np.random.Generator:
    """The random stream of that name, the same on every machine.

    Philox (Salmon et al. 2011, doi:10.1145/2063384.2063405) is made for many streams: each key gives one of its own. The key is
    a hash of the name, so that two names share none.
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


@dataclass(frozen=True, eq=False)
class Draw:
    """What a batch will hold.

    `patient` is an index into the store's patients and `row` one into its patches; `position` is where the token lies on
    the grid after mirroring; a voxel x that is not 0 becomes gain·x + shift. `moved` is by how many voxels along x, y, z a
    patient's scans are moved before they are mirrored.
    """

    patient: Int64[np.ndarray, "b p"]
    row: Int64[np.ndarray, "b p"]
    position: Int64[np.ndarray, "b p"]
    mirrored: Bool[np.ndarray, "b p"]
    gain: Float32[np.ndarray, "b p c"]
    shift: Float32[np.ndarray, "b p c"]
    moved: Int64[np.ndarray, "b p 3"]


def shown(position: Int[np.ndarray, " f"], study: Study) -> tuple[Int64[np.ndarray, " s"], Int64[np.ndarray, " s"]]:
    """Rows and grid positions that the study's encoder reads of a patient whose patches lie at `position`."""
    if study.model.tokens == "foreground":
        return np.arange(len(position)), position.astype(np.int64)
    row = np.full(study.grid.positions, EMPTY_ROW, np.int64)
    row[position] = np.arange(len(position))
    return row, np.arange(study.grid.positions)


def plain(patient: int, row: Int64[np.ndarray, " p"], position: Int64[np.ndarray, " p"], channels: int) -> Draw:
    """These rows of one patient at these grid positions, as they are stored."""
    shape = (1, len(row), channels)
    return Draw(
        np.full((1, len(row)), patient, np.int64),
        row[None],
        position[None],
        np.zeros((1, len(row)), bool),
        np.ones(shape, np.float32),
        np.zeros(shape, np.float32),
        np.zeros((1, len(row), 3), np.int64),
    )


def whole(patient: int, position: Int[np.ndarray, " f"], study: Study, width: int) -> Draw:
    """Every token that the study's encoder reads of a patient, filled up to `width` with none."""
    row, at = shown(position, study)
    lacking = (0, width - len(row))
    row, at = np.pad(row, lacking, constant_values=EMPTY_ROW), np.pad(at, lacking, constant_values=NO_POSITION)
    return plain(patient, row, at, len(study.channels))


def drawn(
    patient: int,
    position: Int[np.ndarray, " f"],
    study: Study,
    budget: int,
    random: np.random.Generator,
    kept: Bool[np.ndarray, " f"] | None = None,
) -> Draw:
    """`budget` tokens of a patient at random, but those first that are to be `kept`.

    A patient with fewer tokens is filled up with background grid positions, which are empty, so every batch has one shape.
    """
    row, at = shown(position, study)
    chosen = random.permutation(len(row))
    if kept is not None:
        last = ~kept[row[chosen]] | (row[chosen] == EMPTY_ROW)
        chosen = chosen[np.argsort(last, kind="stable")]
    chosen = chosen[:budget]
    row, at = row[chosen], at[chosen]
    if lacking := budget - len(row):
        background = random.permutation(np.setdiff1d(np.arange(study.grid.positions), position))[:lacking]
        row, at = np.pad(row, (0, lacking), constant_values=EMPTY_ROW), np.concatenate([at, background])
    return plain(patient, row, at, len(study.channels))


def augmented(draw: Draw, study: Study, random: np.random.Generator) -> Draw:
    """One patient perhaps moved and mirrored, each scan with a random gain and shift, and perhaps some scans emptied."""
    settings, channels = study.train, draw.gain.shape[2]
    mirrored = bool(random.random() < 0.5) and settings.flip_lr
    gain, shift = np.array([1.0, 0.0])[:, None] + settings.intensity_jitter * random.standard_normal((2, channels))
    left = kept_scans(channels, settings.modality_dropout, random)
    reach = math.floor(settings.translation_mm / study.grid.spacing_mm + 1e-6)  # 0.3 mm by 0.1 mm are three voxels
    moved = random.integers(-reach, reach + 1, 3) if reach else np.zeros(3, np.int64)
    return replace(
        draw,
        position=mirrored_place(draw.position, study.grid.side) if mirrored else draw.position,
        mirrored=np.full_like(draw.mirrored, mirrored),
        gain=np.broadcast_to(np.float32(gain * left), draw.gain.shape),
        shift=np.broadcast_to(np.float32(shift * left), draw.shift.shape),
        moved=np.broadcast_to(moved, draw.moved.shape),
    )


@dataclass(frozen=True, eq=False)
class Member:
    """One patient of a batch: an index into the store's patients, where the patches lie, and the random stream of this turn."""

    patient: int
    position: Int[np.ndarray, " f"]
    random: np.random.Generator


def view(member: Member, chosen: Int[np.ndarray, " p"], study: Study) -> Draw:
    """The chosen tokens of one patient, perhaps mirrored, intensities perhaps changed."""
    own = plain(member.patient, chosen, member.position[chosen].astype(np.int64), len(study.channels))
    return augmented(own, study, member.random)


def mirrored_place(position: Int[np.ndarray, "*n"], side: int) -> Int[np.ndarray, "*n"]:
    """Each grid position with left and right exchanged: exact, because the grid is centred on the midsagittal plane."""
    i, rest = np.divmod(position, side * side)
    return (side - 1 - i) * side * side + rest


def kept_scans(channels: int, chance: float, random: np.random.Generator) -> Bool[np.ndarray, " c"]:
    """Which of so many scans of a patient stay when each is emptied with that chance, but for one that always stays (ModDrop:
    Neverova et al. 2016).
    """
    kept = random.random(channels) >= chance
    kept[random.integers(channels)] = True
    return kept


@dataclass(frozen=True, eq=False)
class Mixing:
    """Mixup on tokens: each patient's partner, an index into the batch, and the share of a patient's own tokens."""

    partner: Int64[np.ndarray, " b"]
    share: float
    own: Bool[np.ndarray, "b p"]


def mixing(shape: tuple[int, int], alpha: float, random: np.random.Generator) -> Mixing:
    """Partners and share for a batch of that shape.

    The share is from Beta(alpha, alpha) (Zhang et al. 2018, arXiv:1710.09412).
    """
    share = float(random.beta(alpha, alpha))
    return Mixing(random.permutation(shape[0]), share, random.random(shape) < share)


def mixed(draw: Draw, mix: Mixing) -> Draw:
    """Each token with its grid position is its patient's own, or the partner's.

    Tokens of two patients are chosen from, not averaged, because theirs lie at different grid positions (as in TokenMix, Liu et
    al. 2022, arXiv:2207.08409); losses are weighted by the share.
    """

    def chosen(field: np.ndarray) -> np.ndarray:
        return np.where(mix.own if field.ndim == 2 else mix.own[..., None], field, field[mix.partner])

    return Draw(*(chosen(getattr(draw, field.name)) for field in fields(Draw)))


def split(draw: Draw, first: int) -> tuple[Draw, Draw]:
    """The `first` tokens of each patient, and the others."""
    parts = [np.split(getattr(draw, field.name), [first], axis=1) for field in fields(Draw)]
    return Draw(*(part[0] for part in parts)), Draw(*(part[1] for part in parts))


def stacked(draws: Sequence[Draw]) -> Draw:
    """The draws of several patients with equally many tokens as one."""
    return Draw(*(np.concatenate([getattr(draw, field.name) for draw in draws]) for field in fields(Draw)))


def neighbours(position: Int[np.ndarray, " f"], side: int) -> Int64[np.ndarray, "f 3 3 3"]:
    """The patches at each grid position's neighbours, from one before it to one behind along i, j, k; `NO_PATCH` without one."""
    at = np.full((side + 2,) * 3, NO_PATCH, np.int64)
    i, j, k = (1 + index for index in np.unravel_index(position.astype(np.int64), (side,) * 3))
    at[i, j, k] = np.arange(len(position))
    step = np.arange(-1, 2)
    return at[i[:, None, None, None] + step[:, None, None], j[:, None, None, None] + step[:, None], k[:, None, None, None] + step]


def moved_windows(
    rows: Float16[Tensor, "r c x y z"], near: Int64[Tensor, "p 3 3 3"], by: Sequence[int]
) -> Float16[Tensor, "p c x y z"]:
    """What each grid position shows when the scans are moved `by` so many voxels along x, y and z, less than a patch's edge each.

    `near` are indices into `rows`; one of these is a patch of air.
    """
    out = rows.new_empty(len(near), *rows.shape[1:])
    edge = rows.shape[-1]
    for (a, to_x, from_x), (b, to_y, from_y), (c, to_z, from_z) in product(*(_parts(edge, step) for step in by)):
        out[:, :, to_x, to_y, to_z] = rows[:, :, from_x, from_y, from_z][near[:, a, b, c]]
    return out


def _parts(edge: int, by: int) -> list[tuple[int, slice, slice]]:
    """Along one axis: from which neighbour (0, 1, 2; 1 is the position itself), to which voxels of the window, from which."""
    own = (1, slice(max(by, 0), edge + min(by, 0)), slice(max(-by, 0), edge - max(by, 0)))
    if by == 0:
        return [own]
    before = (0, slice(0, by), slice(edge - by, edge))
    behind = (2, slice(edge + by, edge), slice(0, -by))
    return [own, before if by > 0 else behind]
