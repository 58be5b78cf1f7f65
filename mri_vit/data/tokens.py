"""The first interface: a prepared patient as foreground patches and their grid positions, on disk and in memory.

Letters: c channels, p patch edge, e grid edge, s = e/p grid positions along an edge, f foreground grid positions, k = c·p³
numbers in a patch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from einops import rearrange
from jaxtyping import Bool, Float, Int16

from mri_vit.errors import IntegrityError
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.settings.recipe import CHANNELS, parse_sequences
from mri_vit.settings.sections import Grid

SCHEMA = "mri-vit tokens 1"
PREPARE_AGAIN = "delete its folder and prepare again"


@dataclass(frozen=True, eq=False)
class Tokens:
    """The patches that hold brain, and where on the grid they sit: grid position = (i·s + j)·s + k along x, y, z.

    `channels` are the sequences in the order in which a patch has them.
    """

    patches: Float[np.ndarray, "f k"]
    position: Int16[np.ndarray, "f"]
    grid: Grid
    config_sha256: str
    channels: tuple[str, ...] = CHANNELS


def patchify(volume: Float[np.ndarray, "c e e e"], patch: int) -> Float[np.ndarray, "positions k"]:
    """Every grid position's patch, flattened in the order channel, x, y, z."""
    return rearrange(volume, "c (i x) (j y) (k z) -> (i j k) (c x y z)", x=patch, y=patch, z=patch)


def unpatchify(patches: Float[np.ndarray, "positions k"], grid: Grid) -> Float[np.ndarray, "c e e e"]:
    """The inverse of `patchify`."""
    side, patch = grid.side, grid.patch
    return rearrange(patches, "(i j k) (c x y z) -> c (i x) (j y) (k z)", i=side, j=side, k=side, x=patch, y=patch, z=patch)


def from_volume(
    volume: Float[np.ndarray, "c e e e"],
    brain: Bool[np.ndarray, "e e e"],
    grid: Grid,
    config_sha256: str,
    channels: tuple[str, ...] = CHANNELS,
) -> Tokens:
    """Keep the grid positions with any brain voxel, as float16, with everything outside the brain exactly zero."""
    if len(volume) != len(channels):
        raise ValueError(f"found {len(volume)} volumes; expected one for each of {', '.join(channels)}")
    cut = {"x": grid.patch, "y": grid.patch, "z": grid.patch}
    masks = rearrange(brain, "(i x) (j y) (k z) -> i j k x y z", **cut)  # views, of which positions with brain are copied
    at = np.nonzero(masks.any(axis=(3, 4, 5)))
    patches = rearrange(volume, "c (i x) (j y) (k z) -> i j k c x y z", **cut)[at]
    patches = np.where(masks[at][:, None], patches, 0).astype(np.float16)
    position = np.ravel_multi_index(at, (grid.side,) * 3).astype(np.int16)
    return Tokens(patches.reshape(len(position), -1), position, grid, config_sha256, channels)


def to_volume(tokens: Tokens) -> Float[np.ndarray, "c e e e"]:
    """The dense volume, exactly as it was stored."""
    patches = np.zeros((tokens.grid.positions, tokens.patches.shape[1]), tokens.patches.dtype)
    patches[tokens.position] = tokens.patches
    return unpatchify(patches, tokens.grid)


def save(tokens: Tokens, path: Path) -> None:
    """Write `tokens.safetensors` atomically."""
    metadata = {
        "schema": SCHEMA,
        "grid": tokens.grid.model_dump_json(),
        "affine": json.dumps(tokens.grid.affine),
        "channels": json.dumps(tokens.channels),
        "config_sha256": tokens.config_sha256,
    }
    with replacing(path) as beside:
        safetensors.numpy.save_file({"patches": tokens.patches, "place": tokens.position}, beside, metadata)
        sort_header(beside)


def load(path: Path, channels: Sequence[str] | None = None) -> Tokens:
    """Read a prepared patient's tokens.

    Parameters
    ----------
    path
        `tokens.safetensors` in the prepared patient's folder.
    channels
        The sequences that it must have, in this order; any where none are given.

    Returns
    -------
    Tokens: `patches` float16 [f, k], z-scored in the brain, 0 outside; `position` int16 [f]; the grid; the sequences.

    Raises
    ------
    IntegrityError
        The file is damaged, or its sequences are others or in another order.

    Examples
    --------
    >>> import numpy as np
    >>> from mri_vit import load_tokens
    >>> from mri_vit.data import tokens
    >>> from mri_vit.settings.schema import Grid
    >>> grid, brain = Grid(edge=8, spacing_mm=10.0, patch=2), np.zeros((8, 8, 8), bool)
    >>> brain[2:6, 2:6, 2:6] = True
    >>> made = tokens.from_volume(np.ones((4, 8, 8, 8), np.float32), brain, grid, "-")
    >>> tokens.save(made, folder / "tokens.safetensors")
    >>> load_tokens(folder / "tokens.safetensors").patches.shape  # 2³ grid positions with brain, four sequences of 2³ voxels
    (8, 32)
    """
    with _opened(path) as (file, metadata):
        patches, position = file.get_tensor("patches"), file.get_tensor("place")
    with as_written(path, PREPARE_AGAIN):
        grid, config_sha256 = Grid.model_validate_json(metadata["grid"]), metadata["config_sha256"]
        found = parse_sequences(metadata["channels"])
        if patches.shape[1:] != (len(found) * grid.patch**3,):
            raise ValueError(f"patches of {patches.shape[1:]} numbers for {len(found)} sequences")
    if channels is not None and found != tuple(channels):
        raise IntegrityError(f"{path}: found the sequences {', '.join(found)}; expected {', '.join(channels)}; {PREPARE_AGAIN}")
    return Tokens(patches, position, grid, config_sha256, found)


def load_place(path: Path) -> Int16[np.ndarray, " f"]:
    """Where a prepared patient's patches lie, without reading them. Raises IntegrityError as `load` does."""
    with _opened(path) as (file, _):
        return file.get_tensor("place")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """The open file and its header, which is ours; raises IntegrityError for any other, and for what cannot be read of it."""
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("schema") != SCHEMA:
                raise IntegrityError(f"{path}: found {metadata.get('schema')}; expected {SCHEMA}")
            yield file, metadata
    except (safetensors.SafetensorError, OSError) as error:
        raise IntegrityError(f"{path}: not a prepared patient: {error}; {PREPARE_AGAIN}") from None
