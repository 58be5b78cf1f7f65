"""Fitting: a checkpoint's tensors held against the network that they are for, key by key, before any of them is used.

Whatever differs is a UsageError that names file and key, what was found and what is expected. `CLS`, `MEAN`, `FIRST` and `HEADS`
are the ways in which an encoder is read, as files and tables name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mri_vit.errors import UsageError

CLS = "CLS"  # the class token after the last norm
MEAN = "tokens' mean"  # of the places' tokens after the last norm
FIRST = "first token"  # of an encoder without a class token: what BrainIAC's code reads, see `foreign.MonaiViT`
HEADS = "heads' input"  # what heads of ours read: CLS and what `pool` adds; of a network that is no ViT, its features


@dataclass(frozen=True, eq=False)
class Foreign:
    """An encoder of others with its weights.

    `network` gives, for float [b c e e e], features [b d] by the way they are read; it reads `channels` volumes at a time of
    `edge`³ voxels (None: any multiple of `patch`). `architecture` is its name for people, `source` where it was published.
    """

    network: Any  # a module; no type says what it gives
    architecture: str
    source: str
    channels: int
    edge: int | None
    patch: int
    heads: int


def prefix(found: Mapping[str, Tensor], anchor: str, path: Path) -> str:
    """What stands before every key of the encoder: "backbone." of Lightning's files, "" of most.

    `anchor` is a key that every encoder of the kind has. Of a student and its teacher the teacher is taken, which is what is
    evaluated (Caron et al. 2021, arXiv:2104.14294).
    """
    before = sorted(key.removesuffix(anchor) for key in found if key.endswith(anchor))
    teachers = [one for one in before if "teacher" in one]
    if len(teachers or before) > 1:
        raise UsageError(f"{path}: found several encoders, under {' and '.join(map(repr, before))}; expected one")
    return (teachers or before)[0]


def within(found: Mapping[str, Tensor], before: str, left_out: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors under a prefix, without it; those whose key begins with one of `left_out` come after the encoder."""
    own = {key.removeprefix(before): value for key, value in found.items() if key.startswith(before)}
    return {key: value for key, value in own.items() if not key.startswith(left_out)}


def taken(found: Mapping[str, Tensor], key: str, path: Path) -> Tensor:
    """A tensor that has to be there."""
    if key not in found:
        raise UsageError(f"{path}: {key} is missing")
    return found[key]


def kernel(found: Mapping[str, Tensor], key: str, path: Path) -> tuple[int, int, int]:
    """(width, channels, patch edge) of a convolution that embeds patches. Raises UsageError where its patches are no cubes."""
    shape = list(taken(found, key, path).shape)
    if len(shape) != 5 or len(set(shape[2:])) != 1:
        kind = "a 2D network" if len(shape) == 4 else "patches that are no cubes"
        raise UsageError(f"{path}: {key} has shape {shape}, {kind}; expected [width, channels, p, p, p]")
    return shape[0], shape[1], shape[2]


def depth(found: Mapping[str, Tensor], block: str, path: Path) -> int:
    """How many blocks there are. Raises UsageError where one is missing among them."""
    numbers = {int(match[1]) for key in found if (match := re.match(re.escape(block) + r"(\d+)\.", key))}
    if missing := sorted(set(range(max(numbers, default=0) + 1)) - numbers):
        raise UsageError(f"{path}: {block}{missing[0]} is missing; found {len(numbers)} blocks")
    return len(numbers)


def side(positions: int, key: str, path: Path) -> int:
    """Places along an edge of the cube that positions are of."""
    found = round(max(positions, 1) ** (1 / 3))
    if found**3 != positions:
        raise UsageError(f"{path}: {key} is of {positions} places, which are no cube; expected side³")
    return found


def heads(given: int | None, usual: int | None, dim: int, path: Path) -> int:
    """How many attention heads there are, which most files do not say: as given, or as published for this width."""
    if not (count := given or usual):
        raise UsageError(
            f"{path}: no file says how many attention heads it has, and width {dim} is of no known size; give --heads"
        )
    if dim % count:
        raise UsageError(f"{path}: width {dim} is no multiple of {count} heads; give another --heads")
    return count


def filled(network: Any, found: Mapping[str, Tensor], before: str, path: Path) -> nn.Module:
    """The network, which may lie on the meta device, with these weights, for evaluation."""
    own = network.state_dict()
    for key, expected in own.items():
        if key not in found:
            raise UsageError(f"{path}: {before}{key} is missing; expected shape {list(expected.shape)}")
        if found[key].shape != expected.shape:
            shapes = f"has shape {list(found[key].shape)}; expected {list(expected.shape)}"
            raise UsageError(f"{path}: {before}{key} {shapes}")
    if others := [key for key in found if key not in own]:
        raise UsageError(f"{path}: {before}{others[0]} has no place in this architecture; expected no such key")
    network.load_state_dict({key: found[key] for key in own}, assign=True)
    return network.eval().requires_grad_(False)
