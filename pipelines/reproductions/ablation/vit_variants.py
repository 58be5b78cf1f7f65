"""Variants of the Vision Transformer, of the encoder's own parts: other positions, other norms, and less than full attention.

Each is a function like `model.network.encoder`, which `Neural` takes as `encode`; no study file names one. They ask what the
ViT paper's appendix D asks (Dosovitskiy et al. 2021, arXiv:2010.11929). Tokens are a set of places: foreground, a draw of it,
or fewer than others of the batch. So whatever asks where a token lies asks its place, and not its number in the row.

Letters: b patients, p tokens that are given, n = p + 1 with CLS, k numbers in a patch, d width, h heads, e = d/h, o offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.model.encoder import POSITION_BASE, POSITION_STD, Attention, Block, Encoder, read_out
from mri_vit.model.network import Encode, encoder
from mri_vit.settings.recipe import Model, Pool
from mri_vit.settings.sections import Grid

REACH = 2  # places that a window reaches each way: 5 of 16 mm are 80 mm, about half a brain; Ramachandran et al. 2019 try 3 to 11
AXES = 3
SENTENCES = 10_000.0  # base of the waves' lengths in Vaswani et al. 2017, 3.5; a grid has 2744 places, as a text has words
Add = Callable[[Tensor], Tensor]  # from a block's queries [b h n e] to what is added to its scores
Step = Callable[[Block, Tensor, Add], Tensor]  # a block's output for tokens [b n d]


def coordinates(position: Int[Tensor, "b p"], side: int) -> Int[Tensor, "b p 3"]:
    """Where on a grid of side³ places tokens lie along x, y and z; for one at no place (-1) some place of the grid."""
    return position[..., None] // torch.tensor([side * side, side, 1], device=position.device) % side


def line_waves(number: Int[Tensor, " o"] | Float[Tensor, " o"], dim: int, base: float) -> Float[Tensor, "o d"]:
    """Sines and cosines of numbers, of lengths up to some 2π·base (Vaswani et al. 2017, arXiv:1706.03762, 3.5)."""
    angle = number[:, None] * base ** (-torch.arange(dim // 2) / (dim // 2))
    return F.pad(torch.cat([angle.sin(), angle.cos()], dim=1), (0, dim % 2))


class Nowhere(nn.Module):
    """No position: patches are a bag ("considering the inputs as a bag of patches", appendix D.4)."""

    def forward(self, position: Int[Tensor, "b p"]) -> Float[Tensor, ""]:
        return torch.zeros((), device=position.device)


class PerPlace(nn.Module):
    """A vector for each place, learned from where it starts."""

    def __init__(self, start: nn.Parameter) -> None:
        super().__init__()
        self.table = start  # [1 places d]: of three axes, so that it is not decayed (train/optimiser.py)

    def forward(self, position: Int[Tensor, "b p"]) -> Float[Tensor, "b p d"]:
        return F.embedding(position.clamp(min=0), self.table[0])  # no token is at -1, and no token attends to it


class PerCoordinate(nn.Module):
    """A learned vector for each coordinate of each axis, at the start its waves; those of x, y and z in a row are a place's.

    Source: the 2D embedding of appendix D.4, where X and Y have half the width each.
    """

    def __init__(self, side: int, dim: int) -> None:
        super().__init__()
        self.side = side
        widths = [dim // AXES + (axis < dim % AXES) for axis in range(AXES)]
        middle = torch.arange(side) - (side - 1) / 2
        self.tables = nn.ParameterList([line_waves(middle, width, POSITION_BASE)[None] for width in widths])

    def forward(self, position: Int[Tensor, "b p"]) -> Float[Tensor, "b p d"]:
        along = coordinates(position, self.side).unbind(dim=-1)
        return torch.cat([F.embedding(at, table[0]) for at, table in zip(along, self.tables, strict=True)], dim=-1)


class Everywhere(nn.Module):
    """Full attention: nothing is added to any score."""

    def forward(self, q: Float[Tensor, "b h n e"], position: Int[Tensor, "b p"]) -> Float[Tensor, "1 1 1 1"]:
        return q.new_zeros(1, 1, 1, 1)


class Relative(nn.Module):
    """A query's product with what is learned of the offset between its place and the key's; 0 where one of both is CLS.

    As in appendix D.4 the query is the content's, the product is added to the scores before the softmax, and the same vectors
    serve all heads. An offset's vector is the sum of its three axes', which start as waves, as the encoder's positions.
    """

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.side = side
        start = line_waves(torch.arange(1 - side, side), width, POSITION_BASE)
        self.offsets = nn.Parameter(repeat(start, "o e -> a o e", a=AXES).clone())

    def forward(self, q: Float[Tensor, "b h n e"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b h n n"]:
        at = coordinates(position, self.side)
        against = torch.einsum("bhpe,aoe->bhpao", q[:, :, 1:] * q.shape[-1] ** -0.5, self.offsets)
        # of each query and axis the scores of the keys' coordinates, so that only side of the numbers are gathered, not p
        offset = at[..., None] - torch.arange(self.side, device=at.device) + self.side - 1
        of_coordinate = against.gather(-1, repeat(offset, "b p a c -> b h p a c", h=q.shape[1]))
        keys = F.one_hot(at, self.side).to(q.dtype)
        added = rearrange(of_coordinate, "b h p a c -> b h p (a c)") @ rearrange(keys, "b p a c -> b 1 (a c) p")
        return F.pad(added, (1, 0, 1, 0))


class Window(nn.Module):
    """Local attention: a place attends to the places within `reach` of it along every axis, and to CLS; CLS to all.

    Source: Ramachandran et al. 2019, arXiv:1906.05909, whose neighbourhood is a query's own; a CLS token that sees and is seen by
    all is the global token of Beltagy et al. 2020, arXiv:2004.05150. All scores are computed and those outside dropped, for
    places are a set of any shape: it costs no less than full attention.
    """

    def __init__(self, side: int, reach: int) -> None:
        super().__init__()
        self.side, self.reach = side, reach

    def forward(self, q: Float[Tensor, "b h n e"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b 1 n n"]:
        at = coordinates(position, self.side)
        near = (at[:, :, None] - at[:, None]).abs() <= self.reach
        return dropping(near.all(dim=-1), q)


class Along(nn.Module):
    """Axial attention: a place attends to the places of its line along one axis, and to CLS; CLS to all.

    Source: Ho et al. 2019, arXiv:1912.12180; Wang et al. 2020, arXiv:2003.07853; appendix D.6. As of `Window`, nothing is saved.
    """

    def __init__(self, side: int, axis: int) -> None:
        super().__init__()
        self.side = side
        self.others = [other for other in range(AXES) if other != axis]

    def forward(self, q: Float[Tensor, "b h n e"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b 1 n n"]:
        at = coordinates(position, self.side)[..., self.others]
        same = at[:, :, None] == at[:, None]
        return dropping(same.all(dim=-1), q)


def dropping(seen: Bool[Tensor, "b p p"], q: Float[Tensor, "b h n e"]) -> Float[Tensor, "b 1 n n"]:
    """What is added to scores so that only keys that are `seen` count; CLS sees all and is seen by all."""
    return added_where(rearrange(F.pad(seen, (1, 0, 1, 0), value=True), "b n m -> b 1 n m"), q)


def added_where(kept: Tensor, q: Tensor) -> Tensor:
    """0 for scores that are kept, minus infinity for the others, as precise as the queries."""
    return torch.zeros_like(kept, dtype=q.dtype).masked_fill(~kept, -torch.inf)


def attended(attention: Attention, x: Float[Tensor, "b n d"], add: Add) -> Float[Tensor, "b n d"]:
    """The attention's output with `add` of its queries added to the scores."""
    q, k, v = attention.project(x)
    return attention.out(rearrange(F.scaled_dot_product_attention(q, k, v, attn_mask=add(q)), "b h n e -> b n (h e)"))


def pre_norm(block: Block, x: Float[Tensor, "b n d"], add: Add) -> Float[Tensor, "b n d"]:
    """As `Block.forward`: what is read is normalised, what is added to is not."""
    x = x + block.dropped(attended(block.attention, block.norm1(x), add))
    return x + block.dropped(block.mlp(block.norm2(x)))


def post_norm(block: Block, x: Float[Tensor, "b n d"], add: Add) -> Float[Tensor, "b n d"]:
    """As Vaswani et al. 2017, arXiv:1706.03762, 3.1 and 5.4: each sum is normalised."""
    x = block.norm1(x + block.dropped(attended(block.attention, x, add)))
    return block.norm2(x + block.dropped(block.mlp(x)))


class Variant(nn.Module):
    """The parts of an encoder around other positions, scores and steps: patches at places to the features that heads read.

    `scores` are of its blocks, first to last. CLS has one vector, the sum of its token and its position in the encoder.
    """

    def __init__(self, parts: Encoder, position: nn.Module, scores: Sequence[nn.Module], step: Step = pre_norm) -> None:
        super().__init__()
        self.dim, self.step = parts.dim, step
        self.pool: Pool = parts.pool
        self.embed, self.blocks, self.norm = parts.embed, parts.blocks, parts.norm
        self.cls = nn.Parameter((parts.cls + parts.position[:, :1]).detach())
        self.position, self.scores = position, nn.ModuleList(scores)

    def forward(
        self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> Float[Tensor, "b d"]:
        """The readout. Where `present` is given, what it does not mark is no token, as of `Encoder.forward`."""
        embedded = self.embed(patches.to(self.cls.dtype)) + self.position(position)
        x = torch.cat([repeat(self.cls, "1 1 d -> b 1 d", b=len(patches)), embedded], dim=1)
        token = None if present is None else rearrange(F.pad(present, (1, 0), value=True), "b n -> b 1 1 n")
        for block, score in zip(self.blocks, self.scores, strict=True):

            def add(q: Tensor, score: nn.Module = score) -> Tensor:
                added = score(q, position)
                return added if token is None else added + added_where(token, q)

            x = self.step(cast(Block, block), x, add)
        return read_out(x, self.norm, self.pool, present)


def parts(model: Model, grid: Grid, channels: tuple[str, ...]) -> Encoder:
    """The encoder whose parts a variant is of. Raises UsageError for a recipe of another network."""
    if model.architecture != "vit":
        raise UsageError(f"variants are of model.architecture vit, found {model.architecture}")
    return encoder(model, grid, channels)


def full(of: Encoder) -> list[nn.Module]:
    """Full attention in every block."""
    return [Everywhere() for _ in of.blocks]


def learned(of: Encoder) -> PerPlace:
    """The encoder's own positions: learned, and at the start waves of three axes."""
    return PerPlace(nn.Parameter(of.position[:, 1:].detach().clone()))


def no_positions(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """A bag of patches."""
    own = parts(model, grid, channels)
    return Variant(own, Nowhere(), full(own))


def drawn_1d(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """A learned vector for each place, at the start small random numbers, as in the paper: it knows no neighbour."""
    own = parts(model, grid, channels)
    start = torch.empty(1, grid.positions, own.dim)
    return Variant(own, PerPlace(nn.Parameter(start if start.is_meta else start.normal_(std=POSITION_STD))), full(own))


def waves_1d(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """A learned vector for each place, at the start waves of its number in raster order."""
    own = parts(model, grid, channels)
    return Variant(own, PerPlace(nn.Parameter(line_waves(torch.arange(grid.positions), own.dim, SENTENCES)[None])), full(own))


def per_axis_3d(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """Learned vectors of the three coordinates."""
    own = parts(model, grid, channels)
    return Variant(own, PerCoordinate(grid.side, own.dim), full(own))


def relative(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """No positions of places, but each block's own of the offsets between two."""
    own = parts(model, grid, channels)
    width = own.dim // model.shape[2]
    return Variant(own, Nowhere(), [Relative(grid.side, width) for _ in own.blocks])


def post_norm_relu(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """Blocks of the first Transformer: norms after each sum, ReLU in the MLP, and so no norm before the readout."""
    own = parts(model, grid, channels)
    for block in own.layers:
        block.mlp[1] = nn.ReLU()
    own.norm = cast(nn.LayerNorm, nn.Identity())  # the last block's output is normalised
    return Variant(own, learned(own), full(own), post_norm)


def local(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """The encoder with local attention."""
    own = parts(model, grid, channels)
    return Variant(own, learned(own), [Window(grid.side, REACH) for _ in own.blocks])


def axial(model: Model, grid: Grid, channels: tuple[str, ...]) -> Variant:
    """The encoder with axial attention: for each of its blocks three, along x, y and z, each with an MLP (appendix D.6)."""
    own = parts(model.model_copy(update={"depth": AXES * model.shape[1]}), grid, channels)
    return Variant(own, learned(own), [Along(grid.side, number % AXES) for number in range(len(own.blocks))])


@dataclass(frozen=True)
class Kind:
    """A variant: what builds it, what it is called, and what differs from the encoder."""

    encode: Encode
    label: str
    differs: str


POSITIONS = {
    "no-positions": Kind(no_positions, "No positions", "patches are a bag"),
    "drawn-1d": Kind(drawn_1d, "1D drawn", "learned for each place of the raster, small random numbers at the start"),
    "waves-1d": Kind(waves_1d, "1D waves", "learned for each place of the raster, waves of its number at the start"),
    "per-axis-3d": Kind(per_axis_3d, "3D per axis", "learned for each coordinate of x, y and z, its waves at the start"),
    "relative": Kind(
        relative, "Relative positions", "learned for each offset between two places in every block, waves at the start"
    ),
}
BLOCKS = {
    "post-norm-relu": Kind(post_norm_relu, "Post-norm and ReLU", "norms after each sum, ReLU for GELU"),
    "local": Kind(local, "Local attention", f"places attend to {2 * REACH + 1}³ places around them"),
    "axial": Kind(axial, "Axial attention", "each block is three, along x, y and z"),
}
VARIANTS = POSITIONS | BLOCKS
