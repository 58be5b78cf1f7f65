"""The Vision Transformer (Dosovitskiy et al. 2021, arXiv:2010.11929) over the positions of a 3D grid.

Patches and their grid positions go in, the normalised CLS token comes out: z0 = [cls; x·E] + position;
z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'; y = LN(z_cls).

Letters: b patients, p tokens that are given, n = p + 1 with CLS, k numbers in a patch, d width, h heads, e = d/h, r query rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mri_vit.settings.recipe import Pool

VAR_EPS = 1e-2  # added to a patch's variance: of voxels in standard deviations of the brain, a tenth of one is taken for noise
ENERGY_EPS = 1e-3  # added to an energy before its logarithm: a response of 3 % of such a standard deviation
POSITION_STD = 0.02  # of CLS's position and of what starts small; Dosovitskiy et al.'s code: nn.initializers.normal(stddev=0.02)
POSITION_BASE = 100.0  # waves of 6 to some 400 grid positions; with the 10,000 of sentences most never turn within a grid of 14
Fuse = Callable[..., Tensor]  # what makes one matrix of the heads', such as torch.mean; called with the tensor and `dim`
Mask = Bool[Tensor, "b 1 1 n"] | None  # the keys that are tokens; what it does not mark fills up a patient who has fewer
# query rows of attention held at a time: 12 heads × 128 × 2745 numbers are 17 MB, which stays near the cache
ATTENTION_ROWS = 128
# numbers of attention held at a time on a GPU, where every block of rows starts some kernels anew: 0.5 GB in single precision
GPU_ATTENTION = 2**27


def embedding(patch_size: int, dim: int, stem: int | None, conv_stem: int | None, channels: int, texture: int = 0) -> nn.Module:
    """[b p k] to [b p d]: linear, or with `stem` hidden numbers, or convolutions of which the first has `conv_stem` channels, and
    beside them the energy of as many filters as `texture` says.

    All read one patch at a time. A convolution that looked across a patch's border would see masked neighbours when pretraining
    hides them, and would miss dropped ones when only some tokens are drawn; and it would have to read what is no foreground.
    """
    edge = round((patch_size / channels) ** (1 / 3))
    if texture:
        return TexturedStem(edge, channels, conv_stem or 1, texture, dim)
    if conv_stem:
        return ConvolutionalStem(edge, channels, conv_stem, dim)
    if stem:
        return nn.Sequential(nn.Linear(patch_size, stem), nn.GELU(), nn.Linear(stem, dim))
    return nn.Linear(patch_size, dim)


class ConvolutionalStem(nn.Module):
    """Strided 3D convolutions within each patch (Xiao et al. 2021, arXiv:2106.14881, in 3D and patch by patch).

    Each 3³ convolution halves the edge and doubles the channels until 2 voxels are left, which the last one makes a token.
    The same weights serve every voxel of every patch, which a linear map has to learn for each voxel apart.
    """

    def __init__(self, edge: int, channels: int, width: int, dim: int) -> None:
        super().__init__()
        self.edge, self.channels = edge, channels
        layers: list[nn.Module] = []
        while edge > 2:
            layers += [nn.Conv3d(channels, width, 3, stride=2, padding=1), nn.GELU()]
            channels, width, edge = width, 2 * width, (edge + 1) // 2
        self.layers = nn.Sequential(*layers, nn.Conv3d(channels, dim, edge))

    def forward(self, patches: Float[Tensor, "b p k"]) -> Float[Tensor, "b p d"]:
        return rearrange(self.layers(cubes(patches, self.channels, self.edge)), "(b p) d 1 1 1 -> b p d", b=len(patches))


class TexturedStem(nn.Module):
    """A convolutional stem, and a linear map of the logarithm of each filter's energy over the patch, added up.

    A filter's energy is its response's mean square over the patch (Laws 1980, "Rapid texture identification", there with fixed
    filters; here they are learned). Every filter's weights have a mean of 0 in each channel, so that brightness gives no energy.
    Both parts read each sequence twice: as it is, and less its mean, over its standard deviation within the patch, so that a
    grain's form does not hang on its contrast.
    """

    def __init__(self, edge: int, channels: int, width: int, filters: int, dim: int) -> None:
        super().__init__()
        self.edge, self.channels = edge, channels
        self.stem = ConvolutionalStem(edge, 2 * channels, width, dim)
        self.filters = nn.Conv3d(2 * channels, filters, min(3, edge), bias=False)
        self.energy = nn.Linear(filters, dim)

    def forward(self, patches: Float[Tensor, "b p k"]) -> Float[Tensor, "b p d"]:
        voxels = cubes(patches, self.channels, self.edge)
        apart = voxels - voxels.mean(dim=(2, 3, 4), keepdim=True)
        variance = apart.square().sum(dim=(2, 3, 4), keepdim=True) / (self.edge**3 - 1)
        even = apart * (variance + VAR_EPS).rsqrt()
        both = torch.cat([voxels, even], dim=1)
        weight = self.filters.weight - self.filters.weight.mean(dim=(2, 3, 4), keepdim=True)
        energy = (mean_square(F.conv3d(both, weight)) + ENERGY_EPS).log()
        tokens = self.stem.layers(both).flatten(1) + self.energy(energy)
        return rearrange(tokens, "(b p) d -> b p d", b=len(patches))


class _MeanSquare(torch.autograd.Function):
    """One pass over the numbers each way, where PyTorch's square and mean make seven, which were the most of a step: with it the
    recommended network learns in 0.7 of the time on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "n c x y z"]) -> Float[Tensor, "n c"]:
        ctx.save_for_backward(x)
        precise = torch.promote_types(x.dtype, torch.float32)  # as autocast has squares
        return torch.linalg.vector_norm(x, dim=(2, 3, 4), dtype=precise).square() / x[0, 0].numel()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Float[Tensor, "n c"]) -> Float[Tensor, "n c x y z"]:
        (x,) = ctx.saved_tensors
        return x * (2 / x[0, 0].numel() * slope)[:, :, None, None, None].to(x.dtype)


def mean_square(x: Float[Tensor, "n c x y z"]) -> Float[Tensor, "n c"]:
    """Of each channel's voxels."""
    return _MeanSquare.apply(x)  # type: ignore[return-value]


def cubes(patches: Float[Tensor, "b p k"], channels: int, edge: int) -> Float[Tensor, "n c x y z"]:
    """The patches of all patients as volumes, n = b·p, with channels last in memory: on a CPU seven to eight tenths of the
    time (`pipelines/bench.py --part stems`).
    """
    volumes = rearrange(patches, "b p (c x y z) -> (b p) c x y z", c=channels, x=edge, y=edge, z=edge)
    return volumes.contiguous(memory_format=torch.channels_last_3d)


def waves(positions: int, dim: int) -> Float[Tensor, "p d"]:
    """Where the embeddings of a cubic grid's positions start: sines and cosines of each axis' coordinate.

    A sixth of the width each for sine and cosine along x, y and z; what is left over is 0. Places near each other start alike, so
    that what is learned of one is at once known of its neighbours; positions drawn at random know no neighbours, and from a
    hundred patients they never learn any. Training changes them like any weight.
    Source: Vaswani et al. 2017, arXiv:1706.03762, 3.5; in a plane: He et al. 2022, arXiv:2111.06377, appendix A.
    """
    side, count = round(positions ** (1 / 3)), dim // 6
    rate = POSITION_BASE ** (-torch.arange(count) / max(count, 1))
    coordinate = torch.arange(positions)[:, None] // torch.tensor([side * side, side, 1]) % side  # x is the slowest axis
    angle = (coordinate[..., None] - (side - 1) / 2) * rate  # [p, 3, count], 0 in the middle of the grid
    return F.pad(torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1), (0, dim - 6 * count))


class Attention(nn.Module):
    """Multi-head self-attention. `forward` is fused; `weighted` gives the same output and what it attended to."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def project(self, x: Float[Tensor, "b n d"]) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each [b h n e]."""
        q, k, v = rearrange(self.qkv(x), "b n (three h e) -> three b h n e", three=3, h=self.heads)
        return q, k, v

    def forward(self, x: Float[Tensor, "b n d"], mask: Mask = None) -> Float[Tensor, "b n d"]:
        attended = F.scaled_dot_product_attention(*self.project(x), attn_mask=mask)
        return self.out(rearrange(attended, "b h n e -> b n (h e)"))

    def weights(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n n"]:
        """Every head's attention matrix; each row sums to 1."""
        q, k, _ = self.project(x)
        return attention_weights(q, k)

    def weighted(
        self, x: Float[Tensor, "b n d"], fuse: Fuse = torch.mean, mask: Mask = None
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n n"]]:
        """The output of `forward`, and the attention fused over heads; rows in blocks, so that no [b h n n] is held."""
        q, k, v = self.project(x)
        out, fused = torch.empty_like(q), x.new_empty(x.shape[0], x.shape[1], x.shape[1])  # as precise as x under autocast
        for rows in row_blocks(q, k):
            weights = attention_weights(q[:, :, rows], k, mask)  # [b h r n]
            fused[:, rows] = fuse(weights, dim=1)
            out[:, :, rows] = weights @ v
        return self.out(rearrange(out, "b h n e -> b n (h e)")), fused

    def cls_weights(self, x: Float[Tensor, "b n d"], fuse: Fuse = torch.mean, mask: Mask = None) -> Float[Tensor, "b n"]:
        """The CLS token's attention fused over heads: one row, at the price of one row."""
        q, k, _ = self.project(x)
        return fuse(attention_weights(q[:, :, :1], k, mask), dim=1)[:, 0].to(x.dtype)


def attention_weights(q: Float[Tensor, "b h r e"], k: Float[Tensor, "b h n e"], mask: Mask = None) -> Float[Tensor, "b h r n"]:
    """softmax(q·kᵀ/√e) (Vaswani et al. 2017, equation 1); the scale is taken on q, which is the smaller."""
    scores = q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), dim=-1)


def row_blocks(q: Float[Tensor, "b h r e"], k: Float[Tensor, "b h n e"], rows: int | None = None) -> list[slice]:
    """Query rows by turns, so that of attention no more than a block is held; `rows` of a block on a CPU."""
    rows = rows or ATTENTION_ROWS
    rows = rows if q.is_cpu else max(rows, GPU_ATTENTION // (k.shape[0] * k.shape[1] * k.shape[2]))
    return [slice(start, start + rows) for start in range(0, q.shape[2], rows)]


class Block(nn.Module):
    """Pre-norm block: attention, then MLP, each added to the residual path."""

    def __init__(self, dim: int, heads: int, mlp: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp), nn.GELU(), nn.Linear(mlp, dim))
        self.drop_path = drop_path
        self.share: tuple[int, int] = (0, 1)  # which of how many shares of a batch it is given, see train/devices.py

    def forward(self, x: Float[Tensor, "b n d"], mask: Mask = None) -> Float[Tensor, "b n d"]:
        x = x + self.dropped(self.attention(self.norm1(x), mask))
        return x + self.dropped(self.mlp(self.norm2(x)))

    def weighted(
        self, x: Float[Tensor, "b n d"], fuse: Fuse = torch.mean, mask: Mask = None
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n n"]]:
        """`forward` without drop-path, and the attention fused over heads."""
        change, fused = self.attention.weighted(self.norm1(x), fuse, mask)
        x = x + change
        return x + self.mlp(self.norm2(x)), fused

    def dropped(self, change: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Stochastic depth (Huang et al. 2016): in training, a whole patient's change is left out, the others scaled up."""
        if not self.training or self.drop_path == 0:
            return change
        keep, (mine, shares) = 1 - self.drop_path, self.share
        kept = torch.bernoulli(change.new_full((change.shape[0] * shares, 1, 1), keep))
        return change * kept[mine::shares] / keep


class Encoder(nn.Module):
    """Patches at given grid positions to the normalised CLS token.

    `patch_size` is k (numbers in a patch of `channels` sequences), `places` how many grid positions the grid has; `stem`,
    `conv_stem` and `texture` choose the patch embedding, `pool` what the output is: the normalised CLS token; or to it the other
    tokens' mean or each feature's largest value is added, so that one grid position of hundreds counts before any
    attention has learned where to look.

    The readout of no grid positions is CLS alone. Each adds to CLS what it shows; none shows nothing, so it adds 0. That is
    finite for the mean and the maximum alike, and it is what the curves of a map's faithfulness start from and end at.

    Examples
    --------
    ViT-B/16 over a quarter of the 2744 grid positions; here with two of its twelve blocks:

    >>> import torch
    >>> from mri_vit import ViT
    >>> vit = ViT(patch_size=4 * 16**3, positions=2744, dim=768, depth=2, heads=12, mlp=3072)
    >>> patches, place = torch.zeros(1, 686, 4 * 16**3), torch.arange(686)[None]
    >>> vit(patches, place).shape
    torch.Size([1, 768])
    """

    def __init__(
        self,
        patch_size: int,
        positions: int,
        dim: int,
        depth: int,
        heads: int,
        mlp: int,
        stem: int | None = None,
        drop_path: float = 0.0,
        conv_stem: int | None = None,
        pool: Pool = "cls",
        channels: int = 4,
        texture: int = 0,
    ) -> None:
        super().__init__()
        self.dim, self.channels = dim, channels
        self.pool: Pool = pool
        self.embed = embedding(patch_size, dim, stem, conv_stem, channels, texture)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.empty(1, positions + 1, dim))
        if not self.position.is_meta:  # where a draw makes nothing, but torch import its compiler for two seconds
            with torch.no_grad():
                self.position[:, :1].normal_(std=POSITION_STD)
                self.position[0, 1:] = waves(positions, dim)
        rates = np.linspace(0, drop_path, depth).tolist()  # deeper blocks drop more often; Huang et al. 2016
        self.blocks = nn.ModuleList(Block(dim, heads, mlp, rate) for rate in rates)
        self.norm = nn.LayerNorm(dim)

    @property
    def norm_eps(self) -> float:
        """What every norm adds to a variance; checkpoints of others were trained with other values than PyTorch's 1e-5."""
        return self.norm.eps

    @norm_eps.setter
    def norm_eps(self, eps: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = eps

    @property
    def layers(self) -> list[Block]:
        """The blocks, first to last, as what they are."""
        return cast("list[Block]", list(self.blocks))

    def tokens(self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b n d"]:
        """The encoder's input: CLS and the embedded patches, each with the embedding of its grid position."""
        return self.placed(self.embed(patches.to(self.position.dtype)), position)

    def placed(self, embedded: Float[Tensor, "b p d"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b n d"]:
        """Embedded patches with the embeddings of their grid positions, behind CLS."""
        position = F.embedding(position + 1, self.position[0])  # row 0 belongs to CLS
        cls = repeat(self.cls + self.position[:, :1], "1 1 d -> b 1 d", b=len(position))
        return torch.cat([cls, embedded + position], dim=1)

    def forward(
        self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> Float[Tensor, "b d"]:
        """The readout. Where `present` is given, what it does not mark is no token: it fills up a patient who has fewer."""
        x = self.tokens(patches, position)
        for block in self.layers:
            x = block(x, key_mask(present))
        return self.readout(x, present)

    def readout(self, x: Float[Tensor, "b n d"], present: Bool[Tensor, "b p"] | None = None) -> Float[Tensor, "b d"]:
        """What the heads read of the last block's output; CLS alone where no grid position was given (n = 1)."""
        return read_out(x, self.norm, self.pool, present)

    def parts(self, x: Float[Tensor, "b n d"], present: Bool[Tensor, "b p"] | None = None) -> Float[Tensor, "b p d"]:
        """Each grid position's part in each feature that `readout` adds to CLS, as weights that sum to 1 over all."""
        y = self.norm(x[:, 1:])
        there = torch.ones_like(y[..., 0], dtype=torch.bool) if present is None else present
        if self.pool == "max":
            largest = y.masked_fill(~there[..., None], -torch.inf).argmax(dim=1)
            return (torch.arange(y.shape[1], device=y.device)[:, None] == largest[:, None]).to(y.dtype)
        return (there.to(y.dtype) / there.sum(dim=1, keepdim=True))[..., None].expand_as(y)

    def attention(self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> list[Float[Tensor, "b h n n"]]:
        """Every block's attention matrices (N×N per head: for tests and small models; `explain.rollout` streams)."""
        x, matrices = self.tokens(patches, position), []
        for block in self.layers:
            matrices.append(block.attention.weights(block.norm1(x)))
            x = block(x)
        return matrices


def key_mask(present: Bool[Tensor, "b p"] | None) -> Mask:
    """What attention may look at: CLS, and the grid positions that are `present`."""
    return None if present is None else rearrange(F.pad(present, (1, 0), value=True), "b n -> b 1 1 n")


def read_out(
    x: Float[Tensor, "b n d"], norm: nn.Module, pool: Pool, present: Bool[Tensor, "b p"] | None = None
) -> Float[Tensor, "b d"]:
    """The normalised CLS token, and what `pool` adds to it of the normalised others: those that are `present`."""
    cls = norm(x[:, 0])
    if x.shape[1] == 1 or pool == "cls":
        return cls
    y = norm(x[:, 1:])
    if present is None:
        return cls + (y.amax(dim=1) if pool == "max" else y.mean(dim=1))
    if pool == "max":
        return cls + y.masked_fill(~present[..., None], -torch.inf).amax(dim=1)
    return cls + y.masked_fill(~present[..., None], 0).sum(dim=1) / present.sum(dim=1, keepdim=True)


def resize_positions(position: Float[Tensor, "1 m d"], side: int) -> Float[Tensor, "1 n d"]:
    """Position embeddings for a grid of side³, interpolated trilinearly; CLS keeps its own."""
    old = round((position.shape[1] - 1) ** (1 / 3))
    if old**3 != position.shape[1] - 1:
        raise ValueError(f"{position.shape[1] - 1} positions are no cube")
    grid = rearrange(position[:, 1:], "1 (i j k) d -> 1 d i j k", i=old, j=old)
    resized = F.interpolate(grid, size=(side, side, side), mode="trilinear", align_corners=False)
    return torch.cat([position[:, :1], rearrange(resized, "1 d i j k -> 1 (i j k) d")], dim=1)
