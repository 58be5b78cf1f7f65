"""Fitting: a checkpoint's tensors compared with the network that they are for, key by key, and layers that such networks share.

Whatever differs is a UsageError that names file and key, what was found and what is expected. `CLS`, `MEAN`, `FIRST_TOKEN` and
`HEADS` are the ways in which an encoder is read, as files and tables name them.

Letters: h heads, n tokens, d width, e numbers of a head, a = e/2 pairs, f = a/3 frequencies of an axis, s side, p = s³ places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.errors import UsageError

CLS = "CLS"  # the class token after the last norm
MEAN = "tokens' mean"  # of the grid positions' tokens after the last norm
FIRST_TOKEN = "first token"  # of an encoder without a class token: what BrainIAC's code reads, see `foreign.MonaiViT`
HEADS = "heads' input"  # what heads of ours read: CLS and what `pool` adds; of a network that is no ViT, its features
ROTARY_HALVES = "b h n (two a)"  # pair i is numbers i and a + i: DINOv3's
ROTARY_NEIGHBOURS = "b h n (a two)"  # pair i is numbers 2i and 2i + 1: timm's, and so EVA's and Primus'


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


def prefix(weights: Mapping[str, Tensor], anchor: str, path: Path) -> str:
    """What stands before every key of the encoder: "backbone." of Lightning's files, "" of most.

    `anchor` is a key that every encoder of the kind has. Of a student and its teacher the teacher is taken, which is what is
    evaluated (Caron et al. 2021, arXiv:2104.14294).
    """
    before = sorted(key.removesuffix(anchor) for key in weights if key.endswith(anchor))
    teachers = [name for name in before if "teacher" in name]
    if len(teachers or before) > 1:
        raise UsageError(f"{path}: found several encoders, under {' and '.join(map(repr, before))}; expected one")
    return (teachers or before)[0]


def within(weights: Mapping[str, Tensor], before: str, left_out: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors under a prefix, without it; those whose key begins with one of `left_out` come after the encoder."""
    own = {key.removeprefix(before): value for key, value in weights.items() if key.startswith(before)}
    return {key: value for key, value in own.items() if not key.startswith(left_out)}


def taken(weights: Mapping[str, Tensor], key: str, path: Path) -> Tensor:
    """A tensor that must be there."""
    if key not in weights:
        raise UsageError(f"{path}: {key} is missing")
    return weights[key]


def kernel(weights: Mapping[str, Tensor], key: str, path: Path) -> tuple[int, int, int]:
    """(width, channels, patch edge) of a convolution that embeds patches. Raises UsageError where its patches are no cubes."""
    shape = list(taken(weights, key, path).shape)
    if len(shape) != 5 or len(set(shape[2:])) != 1:
        kind = "a 2D network" if len(shape) == 4 else "patches that are no cubes"
        raise UsageError(f"{path}: {key} has shape {shape}, {kind}; expected [width, channels, p, p, p]")
    return shape[0], shape[1], shape[2]


def depth(weights: Mapping[str, Tensor], block: str, path: Path) -> int:
    """How many blocks there are. Raises UsageError where one is missing among them."""
    numbers = {int(match[1]) for key in weights if (match := re.match(re.escape(block) + r"(\d+)\.", key))}
    if missing := sorted(set(range(max(numbers, default=0) + 1)) - numbers):
        raise UsageError(f"{path}: {block}{missing[0]} is missing; found {len(numbers)} blocks")
    return len(numbers)


def side(positions: int, patch: int, edge: int | None, key: str, path: Path) -> int:
    """Patches along an edge of the cube that a table of positions is of; `edge` is the edge in voxels that was asked for."""
    count = round(max(positions, 1) ** (1 / 3))
    if count**3 != positions:
        raise UsageError(f"{path}: {key} is of {positions} positions, which are no cube; expected side³")
    if edge not in (None, count * patch):
        raise UsageError(f"{path}: {key} is of {count}³ patches of {patch}³, an edge of {count * patch}; found {edge}")
    return count


def heads(given: int | None, usual: int | None, dim: int, path: Path) -> int:
    """How many attention heads there are, which most files do not state: as given, or as published for this width."""
    if not (count := given or usual):
        raise UsageError(
            f"{path}: no file says how many attention heads it has, and width {dim} is of no known size; give --heads"
        )
    if dim % count:
        raise UsageError(f"{path}: width {dim} is no multiple of {count} heads; give another --heads")
    return count


def filled(network: Any, weights: Mapping[str, Tensor], before: str, path: Path) -> nn.Module:
    """The network, which may lie on the meta device, with these weights, for evaluation."""
    own = network.state_dict()
    for key, expected in own.items():
        if key not in weights:
            raise UsageError(f"{path}: {before}{key} is missing; expected shape {list(expected.shape)}")
        if weights[key].shape != expected.shape:
            shapes = f"has shape {list(weights[key].shape)}; expected {list(expected.shape)}"
            raise UsageError(f"{path}: {before}{key} {shapes}")
    if others := [key for key in weights if key not in own]:
        raise UsageError(f"{path}: {before}{others[0]} has no place in this architecture; expected no such key")
    network.load_state_dict({key: weights[key] for key in own}, assign=True)
    return network.eval().requires_grad_(False)


# --- layers
# ----------------------------------------------------------------------------------------------------------------------


def indices(side: int) -> Float[Tensor, "p 3"]:
    """Each grid position's index along x, y, z, of which the last runs fastest."""
    along = torch.arange(float(side))
    return rearrange(torch.stack(torch.meshgrid(along, along, along, indexing="ij")), "three x y z -> (x y z) three")


def centred(side: int) -> Float[Tensor, "p 3"]:
    """Each grid position's middle in a cube from -1 to 1: DINOv3's coordinates, the same for a volume of any size."""
    return 2 * (indices(side) + 0.5) / side - 1


def angles(coordinates: Float[Tensor, "p 3"], rates: Float[Tensor, " f"], before: int) -> Float[Tensor, "n a"]:
    """By how much each pair of a token is turned, pairs ordered by axis, then frequency.

    `rates` are radians per unit of the coordinate. `before` tokens (CLS, registers) have no place: they come first, and an angle
    of 0 leaves them exactly as they are.
    """
    turned = rearrange(coordinates[:, :, None] * rates, "p three f -> p (three f)")
    return F.pad(turned, (0, 0, before, 0))


def turned(x: Float[Tensor, "b h n e"], angle: Float[Tensor, "n a"], pairs: str) -> Float[Tensor, "b h n e"]:
    """Queries or keys, each pair turned by its angle (rotary positions); `pairs` says which numbers make one.

    The dot product of a turned query and a turned key depends only on how far apart their places are (Su et al. 2021,
    arXiv:2104.09864). Axial: a third of the pairs belongs to each axis.
    """
    first, second = rearrange(x, f"{pairs} -> two b h n a", two=2)
    cos, sin = angle.cos(), angle.sin()
    return rearrange(torch.stack([first * cos - second * sin, second * cos + first * sin]), f"two b h n a -> {pairs}")


class LayerScale(nn.Module):
    """A weight of its own for each number of a residual branch's output (Touvron et al. 2021, arXiv:2103.17239)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma
