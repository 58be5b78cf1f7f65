"""Primus: EVA-02's blocks on patches of 8³ voxels, with rotary positions over three axes (Wald et al. 2025, arXiv:2503.01835).

Written from the paper and the published code (dynamic-network-architectures, Apache-2.0), whose patch decoder is left out. A
block is pre-norm: attention without a key's bias, its output normalised before the last map where a file has a norm for it; a
SwiGLU with a norm inside; each branch scaled where a file has LayerScale (EVA-02: Fang et al. 2023, arXiv:2303.11331).

Letters: b volumes, c channels, x y z voxels, s side, p = s³ places, r registers, n = r + p tokens, d width, h heads, e = d/h
numbers of a head, a = e/2 pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.features import fitting, layers
from mri_vit.features.fitting import MEAN, Foreign
from mri_vit.features.layers import LayerScale

ANCHOR = "down_projection.proj.weight"
SOURCE = "Wald et al. 2025, arXiv:2503.01835"
LEFT_OUT = ("up_projection", "mask_token", "decoder", "eva.rope.")  # rotary angles are computed
HEADS = {396: 6, 792: 12, 864: 12, 1056: 16}  # by width: S, B, M, L of the published code
BASE = 10_000.0  # of the rotary frequencies, in places; timm's RotaryEmbeddingCat, which the published code calls
AXES, PAIR = 3, 2
SCALES = re.compile(r"\.gamma_([12])$")  # LayerScale's weights lie in the block itself


class Attention(nn.Module):
    """Multi-head self-attention whose queries and keys are turned by their place; `norm` is over the heads' joint output."""

    def __init__(self, dim: int, heads: int, norm: nn.Module) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)
        self.norm, self.proj = norm, nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        q, k, v = (rearrange(part(x), "b n (h e) -> b h n e", h=self.heads) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = layers.turned(q, angle, layers.NEIGHBOURS), layers.turned(k, angle, layers.NEIGHBOURS)
        return self.proj(self.norm(rearrange(F.scaled_dot_product_attention(q, k, v), "b h n e -> b n (h e)")))


class SwiGLU(nn.Module):
    """fc2(norm(SiLU(fc1_g x) · fc1_x x))."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1_g, self.fc1_x = nn.Linear(dim, hidden), nn.Linear(dim, hidden)
        self.norm, self.fc2 = nn.LayerNorm(hidden), nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.fc2(self.norm(F.silu(self.fc1_g(x)) * self.fc1_x(x)))


class Block(nn.Module):
    """Attention, then SwiGLU, each behind a norm, scaled and added to the residual path."""

    def __init__(self, attention: Attention, mlp: SwiGLU, scales: tuple[nn.Module, nn.Module], dim: int) -> None:
        super().__init__()
        self.norm1, self.attn, self.ls1 = nn.LayerNorm(dim), attention, scales[0]
        self.norm2, self.mlp, self.ls2 = nn.LayerNorm(dim), mlp, scales[1]

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        x = x + self.ls1(self.attn(self.norm1(x), angle))
        return x + self.ls2(self.mlp(self.norm2(x)))


class Eva(nn.Module):
    """The blocks, on embedded tokens to which a learned position is added (of 0 where a file has none)."""

    def __init__(self, blocks: list[Block], tokens: int, dim: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(1, tokens, dim))
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(dim)

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x, angle)
        return self.norm(x)


class Primus(nn.Module):
    """The encoder. It has no class token: the mean of the places' normalised tokens is read."""

    def __init__(self, embed: nn.Conv3d, registers: int, eva: Eva, head_width: int) -> None:
        super().__init__()
        self.register_tokens = nn.Parameter(torch.empty(1, registers, embed.out_channels))
        self.down_projection = nn.ModuleDict({"proj": embed})
        self.eva, self.head_width = eva, head_width

    def tokens(self, volume: Float[Tensor, "b c x y z"]) -> Float[Tensor, "b n d"]:
        """Every token after the last norm: registers, then places."""
        embedded = self.down_projection["proj"](volume)
        registers = repeat(self.register_tokens, "1 r d -> b r d", b=len(volume))
        x = torch.cat([registers, rearrange(embedded, "b d x y z -> b (x y z) d")], dim=1)
        bands = self.head_width // (AXES * PAIR)
        rates = BASE ** (-torch.arange(bands, device=x.device) / bands)
        coordinates = layers.indices(embedded.shape[-1]).to(x.device)
        return self.eva(x, layers.angles(coordinates, rates, registers.shape[1]))

    def forward(self, volume: Float[Tensor, "b c x y z"]) -> dict[str, Float[Tensor, "b d"]]:
        return {MEAN: self.tokens(volume)[:, self.register_tokens.shape[1] :].mean(dim=1)}


def read(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The encoder that a file's tensors make up; `heads` where the width is of no published size.

    Raises UsageError where a key or shape is not that of one Primus (the first version: one convolution embeds patches).
    """
    before = fitting.prefix(tensors, ANCHOR, path)
    found = {SCALES.sub(r".ls\1.gamma", key): value for key, value in fitting.within(tensors, before, LEFT_OUT).items()}
    dim, channels, patch = fitting.kernel(found, ANCHOR, path)
    found.setdefault("register_tokens", torch.empty(1, 0, dim))
    registers = found["register_tokens"].shape[1]
    if "eva.pos_embed" in found:
        side = fitting.side(found["eva.pos_embed"].shape[1] - registers, f"{before}eva.pos_embed", path)
        if edge not in (None, side * patch):
            raise UsageError(
                f"{path}: {before}eva.pos_embed is of {side}³ patches of {patch}³, an edge of {side * patch}; found {edge}"
            )
        own_edge = side * patch
    else:
        found["eva.pos_embed"], own_edge = torch.zeros(1, 1, dim), None  # added to every token alike
    count = fitting.heads(heads, HEADS.get(dim), dim, path)
    if (dim // count) % (AXES * PAIR):
        raise UsageError(f"{path}: heads of {dim} / {count} = {dim // count} numbers; rotary positions need a multiple of 6")
    with torch.device("meta"):
        blocks = [_block(found, dim, count, path) for _ in range(fitting.depth(found, "eva.blocks.", path))]
        eva = Eva(blocks, found["eva.pos_embed"].shape[1], dim)
        network = Primus(nn.Conv3d(channels, dim, patch, stride=patch), registers, eva, dim // count)
    return Foreign(fitting.filled(network, found, before, path), "Primus", SOURCE, channels, own_edge, patch, count)


def _block(found: Mapping[str, Tensor], dim: int, heads: int, path: Path) -> Block:
    """A block as the file's first is."""
    hidden = fitting.taken(found, "eva.blocks.0.mlp.fc1_g.weight", path).shape[0]
    inner = nn.LayerNorm(dim) if "eva.blocks.0.attn.norm.weight" in found else nn.Identity()
    scales = (LayerScale(dim), LayerScale(dim)) if "eva.blocks.0.ls1.gamma" in found else (nn.Identity(), nn.Identity())
    return Block(Attention(dim, heads, inner), SwiGLU(dim, hidden), scales, dim)
