"""A 3D Vision Transformer in the form of DINOv2 and DINOv3: CLS, registers, LayerScale; learned or rotary positions.

What differs between files is read off their keys: `pos_embed` is a learned table (DINOv2: Oquab et al. 2023, arXiv:2304.07193),
`rope_embed.periods` or `rope.periods` are rotary positions (DINOv3: Siméoni et al. 2025, arXiv:2508.10104) over three axes;
`mlp.w12` is a SwiGLU, `mlp.fc1` none. Registers: Darcet et al. 2023, arXiv:2309.16588.

Letters: b volumes, c channels, x y z voxels, s side, p = s³ places, r registers, n = 1 + r + p tokens, d width, h heads, e = d/h
numbers of a head, a = e/2 pairs.
"""

from __future__ import annotations

import math
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
from mri_vit.features.fitting import CLS, MEAN, Foreign
from mri_vit.features.layers import LayerScale

ANCHOR = "patch_embed.proj.weight"
SOURCE = "Oquab et al. 2023, arXiv:2304.07193; Siméoni et al. 2025, arXiv:2508.10104; in 3D"
LEFT_OUT = ("mask_token", "head", "dino_head", "ibot_head", "fc_norm", "attn_pool")
HEAD_WIDTH = 64  # of DINOv2's published sizes
LEARNED_EPS = 1e-6  # what DINOv2's LayerNorm adds to a variance
ROTARY_EPS = 1e-5  # DINOv3's; also PyTorch's, which 3D networks with rotary positions keep
PERIODS = "rope.periods"


class Learned(nn.Module):
    """A position for CLS and each place; registers have none, and are put in afterwards."""

    def __init__(self, places: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(1, 1 + places, dim))

    def added(self, cls: Float[Tensor, "b 1 d"], patches: Float[Tensor, "b p d"]) -> tuple[Tensor, Tensor]:
        return cls + self.table[:, :1], patches + self.table[:, 1:]

    def angles(self, side: int, before: int, head_width: int) -> Float[Tensor, "n a"]:
        """Of 0: nothing is turned."""
        return self.table.new_zeros(before + side**3, head_width // 2)


class Rotary(nn.Module):
    """Angles 2π · coordinate / period, the coordinate of a place's middle from -1 to 1 along each axis."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.periods = nn.Buffer(torch.empty(count))

    def added(self, cls: Float[Tensor, "b 1 d"], patches: Float[Tensor, "b p d"]) -> tuple[Tensor, Tensor]:
        return cls, patches

    def angles(self, side: int, before: int, head_width: int) -> Float[Tensor, "n a"]:
        return layers.angles(layers.centred(side).to(self.periods), 2 * math.pi / self.periods, before)


class Attention(nn.Module):
    """Multi-head self-attention whose queries and keys are turned by their place."""

    def __init__(self, dim: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        q, k, v = rearrange(self.qkv(x), "b n (three h e) -> three b h n e", three=3, h=self.heads)
        q, k = layers.turned(q, angle, layers.HALVES), layers.turned(k, angle, layers.HALVES)
        return self.proj(rearrange(F.scaled_dot_product_attention(q, k, v), "b h n e -> b n (h e)"))


class Mlp(nn.Module):
    """Two linear maps with an exact GELU between."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.fc2(F.gelu(self.fc1(x)))


class SwiGLU(nn.Module):
    """w3(SiLU(w1 x) · w2 x), the first two maps as one (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w12, self.w3 = nn.Linear(dim, 2 * hidden), nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)


class Block(nn.Module):
    """Pre-norm block: attention, then MLP, each scaled and added to the residual path."""

    def __init__(self, attention: Attention, mlp: nn.Module, scales: tuple[nn.Module, nn.Module], dim: int, eps: float) -> None:
        super().__init__()
        self.norm1, self.attn, self.ls1 = nn.LayerNorm(dim, eps), attention, scales[0]
        self.norm2, self.mlp, self.ls2 = nn.LayerNorm(dim, eps), mlp, scales[1]

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        x = x + self.ls1(self.attn(self.norm1(x), angle))
        return x + self.ls2(self.mlp(self.norm2(x)))


class DinoViT(nn.Module):
    """The network. CLS and the mean of the places' tokens are read, both after the last norm; registers are not."""

    def __init__(self, embed: nn.Conv3d, registers: int, position: Learned | Rotary, blocks: list[Block], eps: float) -> None:
        super().__init__()
        dim = embed.out_channels
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.register_tokens = nn.Parameter(torch.empty(1, registers, dim))
        self.patch_embed = nn.ModuleDict({"proj": embed})
        self.position = position
        self.blocks, self.head_width = nn.ModuleList(blocks), dim // blocks[0].attn.heads
        self.norm = nn.LayerNorm(dim, eps)

    def tokens(self, volume: Float[Tensor, "b c x y z"]) -> Float[Tensor, "b n d"]:
        """Every token after the last norm: CLS, registers, places."""
        embedded = self.patch_embed["proj"](volume)
        side = embedded.shape[-1]
        cls, patches = self.position.added(
            repeat(self.cls_token, "1 1 d -> b 1 d", b=len(volume)), rearrange(embedded, "b d x y z -> b (x y z) d")
        )
        x = torch.cat([cls, repeat(self.register_tokens, "1 r d -> b r d", b=len(volume)), patches], dim=1)
        angle = self.position.angles(side, x.shape[1] - patches.shape[1], self.head_width)
        for block in self.blocks:
            x = block(x, angle)
        return self.norm(x)

    def forward(self, volume: Float[Tensor, "b c x y z"]) -> dict[str, Float[Tensor, "b d"]]:
        x = self.tokens(volume)
        return {CLS: x[:, 0], MEAN: x[:, 1 + self.register_tokens.shape[1] :].mean(dim=1)}


def read(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The network that a file's tensors make up; `heads` where it is not known and no period tells it.

    Rotary positions serve any edge, learned ones that of their table.

    Raises UsageError where a key or shape is not that of one ViT in 3D, or positions are of neither kind.
    """
    before = fitting.prefix(tensors, ANCHOR, path)
    found = renamed(fitting.within(tensors, before, LEFT_OUT))
    dim, channels, patch = fitting.kernel(found, ANCHOR, path)
    if "position.table" in found:
        side = fitting.side(found["position.table"].shape[1] - 1, f"{before}pos_embed", path)
        if edge not in (None, side * patch):
            raise UsageError(
                f"{path}: {before}pos_embed is of {side}³ patches of {patch}³, an edge of {side * patch}; found {edge}"
            )
        usual, own_edge, eps = (None if dim % HEAD_WIDTH else dim // HEAD_WIDTH), side * patch, LEARNED_EPS
    elif "position.periods" in found:
        width = 6 * found["position.periods"].numel()  # a pair and three axes for each
        side, usual, own_edge, eps = 0, (None if dim % width else dim // width), None, ROTARY_EPS
        if heads not in (None, usual):
            raise UsageError(f"{path}: {before}{PERIODS} is of heads {width} wide; found {heads} heads of {dim} / {heads}")
    else:
        raise UsageError(f"{path}: found neither {before}pos_embed nor {before}{PERIODS}; positions are not known")
    count = fitting.heads(heads, usual, dim, path)
    with torch.device("meta"):
        position = Learned(side**3, dim) if side else Rotary(found["position.periods"].numel())
        blocks = [_block(found, dim, count, eps, path) for _ in range(fitting.depth(found, "blocks.", path))]
        embed = nn.Conv3d(channels, dim, patch, stride=patch)
        network = DinoViT(embed, found["register_tokens"].shape[1], position, blocks, eps)
    return Foreign(fitting.filled(network, found, before, path), "3D DINO ViT", SOURCE, channels, own_edge, patch, count)


def _block(found: Mapping[str, Tensor], dim: int, heads: int, eps: float, path: Path) -> Block:
    """A block as the file's first is."""
    swiglu = "blocks.0.mlp.w12.weight" in found
    hidden = fitting.taken(found, "blocks.0.mlp.w3.weight" if swiglu else "blocks.0.mlp.fc2.weight", path).shape[1]
    scales = (LayerScale(dim), LayerScale(dim)) if "blocks.0.ls1.gamma" in found else (nn.Identity(), nn.Identity())
    attention = Attention(dim, heads, "blocks.0.attn.qkv.bias" in found)
    return Block(attention, (SwiGLU if swiglu else Mlp)(dim, hidden), scales, dim, eps)


def renamed(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under one set of names: those of DINOv2's own code, with registers, of which there may be none.

    Known are blocks in chunks (`blocks.0.3.`, DINOv2's), `storage_tokens` (DINOv3's) and `reg_token` (timm's) for registers,
    queries apart from keys and values, a SwiGLU's first maps apart, and DINOv3's mask of the key's bias.
    """
    names = {"pos_embed": "position.table", "rope_embed.periods": "position.periods", PERIODS: "position.periods"}
    names |= {"storage_tokens": "register_tokens", "reg_token": "register_tokens"}
    plain = {names.get(key, re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", key)): value for key, value in found.items()}
    for key in list(plain):
        if key.endswith("attn.qkv.bias_mask"):
            bias = key.removesuffix("_mask")
            plain[bias] = plain[bias] * plain.pop(key).nan_to_num()
    for first, second, both in (("attn.q", "attn.kv", "attn.qkv"), ("mlp.w1", "mlp.w2", "mlp.w12")):
        for key in [key for key in plain if f".{first}." in key and key.replace(f".{first}.", f".{second}.") in plain]:
            other = key.replace(f".{first}.", f".{second}.")
            plain[key.replace(f".{first}.", f".{both}.")] = torch.cat([plain.pop(key), plain.pop(other)])
    cls = plain.get("cls_token")
    if cls is not None:
        plain.setdefault("register_tokens", cls.new_empty(1, 0, cls.shape[-1]))
    return plain
