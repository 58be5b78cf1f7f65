"""3D Vision Transformers of others: DINOv2's and DINOv3's form, and Primus.

DINO: what differs between files is read off their keys. `pos_embed` is a learned table (DINOv2: Oquab et al. 2023,
arXiv:2304.07193), `rope_embed.periods` or `rope.periods` are rotary positions (DINOv3: Siméoni et al. 2025, arXiv:2508.10104)
over three axes; `mlp.w12` is a SwiGLU, `mlp.fc1` none. Registers: Darcet et al. 2023, arXiv:2309.16588.

Primus: EVA-02's blocks on patches of 8³ voxels, with rotary positions (Wald et al. 2025, arXiv:2503.01835). Written from the
paper and the published code (dynamic-network-architectures, Apache-2.0), without its patch decoder: attention without a key's
bias, its output normalised before the last map where a file has a norm for it; a SwiGLU with a norm inside (EVA-02: Fang et al.
2023, arXiv:2303.11331).

Letters: b volumes, c channels, x y z voxels, s side, p = s³ places, r registers, n = 1 + r + p tokens (of Primus r + p), d width,
h heads, e = d/h numbers of a head, a = e/2 pairs.
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
from mri_vit.features import fitting
from mri_vit.features.fitting import CLS, MEAN, Foreign, LayerScale

DINO_ANCHOR = "patch_embed.proj.weight"
DINO_SOURCE = "Oquab et al. 2023, arXiv:2304.07193; Siméoni et al. 2025, arXiv:2508.10104; in 3D"
DINO_LEFT_OUT = ("mask_token", "head", "dino_head", "ibot_head", "fc_norm", "attn_pool")
HEAD_WIDTH = 64  # of DINOv2's published sizes
LEARNED_EPS = 1e-6  # what DINOv2's LayerNorm adds to a variance
ROTARY_EPS = 1e-5  # DINOv3's; also PyTorch's, which 3D networks with rotary positions keep
PERIODS = "rope.periods"

PRIMUS_ANCHOR = "down_projection.proj.weight"
PRIMUS_SOURCE = "Wald et al. 2025, arXiv:2503.01835"
PRIMUS_LEFT_OUT = ("up_projection", "mask_token", "decoder", "eva.rope.")  # rotary angles are computed
PRIMUS_HEADS = {396: 6, 792: 12, 864: 12, 1056: 16}  # by width: S, B, M, L of the published code
ROTARY_BASE = 10_000.0  # of the rotary frequencies, in grid positions; timm's RotaryEmbeddingCat, which the published code calls
AXES, PAIR = 3, 2
LAYER_SCALE_KEY = re.compile(r"\.gamma_([12])$")  # LayerScale's weights lie in the block itself


class Block(nn.Module):
    """Pre-norm block: attention, then MLP, each scaled where a file has LayerScale, and added to the residual path."""

    def __init__(self, attention: Attention | EvaAttention, mlp: nn.Module, scaled: bool, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.heads = attention.heads
        self.norm1, self.attn, self.ls1 = nn.LayerNorm(dim, eps), attention, LayerScale(dim) if scaled else nn.Identity()
        self.norm2, self.mlp, self.ls2 = nn.LayerNorm(dim, eps), mlp, LayerScale(dim) if scaled else nn.Identity()

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        x = x + self.ls1(self.attn(self.norm1(x), angle))
        return x + self.ls2(self.mlp(self.norm2(x)))


# --- DINO ---------------------------------------------------------------------------------------------------------------------


class Learned(nn.Module):
    """A position for CLS and each grid position; registers have none, and are put in afterwards."""

    def __init__(self, positions: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(1, 1 + positions, dim))

    def added(self, cls: Float[Tensor, "b 1 d"], patches: Float[Tensor, "b p d"]) -> tuple[Tensor, Tensor]:
        return cls + self.table[:, :1], patches + self.table[:, 1:]

    def angles(self, side: int, before: int, head_width: int) -> Float[Tensor, "n a"]:
        """Of 0: nothing is turned."""
        return self.table.new_zeros(before + side**3, head_width // 2)


class Rotary(nn.Module):
    """Angles 2π · coordinate / period, the coordinate of a grid position's middle from -1 to 1 along each axis."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.periods = nn.Buffer(torch.empty(count))

    def added(self, cls: Float[Tensor, "b 1 d"], patches: Float[Tensor, "b p d"]) -> tuple[Tensor, Tensor]:
        return cls, patches

    def angles(self, side: int, before: int, head_width: int) -> Float[Tensor, "n a"]:
        return fitting.angles(fitting.centred(side).to(self.periods), 2 * math.pi / self.periods, before)


class Attention(nn.Module):
    """Multi-head self-attention whose queries and keys are turned by their grid position."""

    def __init__(self, dim: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        q, k, v = rearrange(self.qkv(x), "b n (three h e) -> three b h n e", three=3, h=self.heads)
        q, k = (fitting.turned(part, angle, fitting.ROTARY_HALVES) for part in (q, k))
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


class DinoViT(nn.Module):
    """The network. CLS and the mean of the grid positions' tokens are read, both after the last norm; registers are not."""

    def __init__(self, embed: nn.Conv3d, registers: int, position: Learned | Rotary, blocks: list[Block], eps: float) -> None:
        super().__init__()
        dim = embed.out_channels
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.register_tokens = nn.Parameter(torch.empty(1, registers, dim))
        self.patch_embed = nn.ModuleDict({"proj": embed})
        self.position = position
        self.blocks, self.head_width = nn.ModuleList(blocks), dim // blocks[0].heads
        self.norm = nn.LayerNorm(dim, eps)

    def tokens(self, volume: Float[Tensor, "b c x y z"]) -> Float[Tensor, "b n d"]:
        """Every token after the last norm: CLS, registers, grid positions."""
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


def read_dino(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The network that a file's tensors make up; `heads` where it is not known and no period gives it.

    Rotary positions serve any edge, learned ones that of their table.

    Raises UsageError where a key or shape is not that of one ViT in 3D, or positions are of neither kind.
    """
    before = fitting.prefix(tensors, DINO_ANCHOR, path)
    weights = renamed(fitting.within(tensors, before, DINO_LEFT_OUT))
    dim, channels, patch = fitting.kernel(weights, DINO_ANCHOR, path)
    if "position.table" in weights:
        side = fitting.side(weights["position.table"].shape[1] - 1, patch, edge, f"{before}pos_embed", path)
        usual, own_edge, eps = (None if dim % HEAD_WIDTH else dim // HEAD_WIDTH), side * patch, LEARNED_EPS
    elif "position.periods" in weights:
        width = 6 * weights["position.periods"].numel()  # a pair and three axes for each
        side, usual, own_edge, eps = 0, (None if dim % width else dim // width), None, ROTARY_EPS
        if heads not in (None, usual):
            raise UsageError(f"{path}: {before}{PERIODS} is of heads {width} wide; found {heads} heads of {dim} / {heads}")
    else:
        raise UsageError(f"{path}: found neither {before}pos_embed nor {before}{PERIODS}; positions are not known")
    count = fitting.heads(heads, usual, dim, path)
    with torch.device("meta"):
        position = Learned(side**3, dim) if side else Rotary(weights["position.periods"].numel())
        blocks = [_dino_block(weights, dim, count, eps, path) for _ in range(fitting.depth(weights, "blocks.", path))]
        embed = nn.Conv3d(channels, dim, patch, stride=patch)
        network = DinoViT(embed, weights["register_tokens"].shape[1], position, blocks, eps)
    return Foreign(fitting.filled(network, weights, before, path), "3D DINO ViT", DINO_SOURCE, channels, own_edge, patch, count)


def _dino_block(weights: Mapping[str, Tensor], dim: int, heads: int, eps: float, path: Path) -> Block:
    """A block like the file's first."""
    swiglu = "blocks.0.mlp.w12.weight" in weights
    hidden = fitting.taken(weights, "blocks.0.mlp.w3.weight" if swiglu else "blocks.0.mlp.fc2.weight", path).shape[1]
    attention = Attention(dim, heads, "blocks.0.attn.qkv.bias" in weights)
    return Block(attention, (SwiGLU if swiglu else Mlp)(dim, hidden), "blocks.0.ls1.gamma" in weights, dim, eps)


def renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under one set of names: those of DINOv2's own code, with registers, of which there may be none.

    Known are blocks in chunks (`blocks.0.3.`, DINOv2's), `storage_tokens` (DINOv3's) and `reg_token` (timm's) for registers,
    queries apart from keys and values, a SwiGLU's first maps apart, and DINOv3's mask of the key's bias.
    """
    names = {"pos_embed": "position.table", "rope_embed.periods": "position.periods", PERIODS: "position.periods"}
    names |= {"storage_tokens": "register_tokens", "reg_token": "register_tokens"}
    plain = {names.get(key, re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", key)): value for key, value in weights.items()}
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


# --- Primus -------------------------------------------------------------------------------------------------------------------


class EvaAttention(nn.Module):
    """Multi-head self-attention whose queries and keys are turned by their position; `norm` is over the heads' joint output."""

    def __init__(self, dim: int, heads: int, norm: nn.Module) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)
        self.norm, self.proj = norm, nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b n d"], angle: Float[Tensor, "n a"]) -> Float[Tensor, "b n d"]:
        q, k, v = (rearrange(part(x), "b n (h e) -> b h n e", h=self.heads) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (fitting.turned(part, angle, fitting.ROTARY_NEIGHBOURS) for part in (q, k))
        return self.proj(self.norm(rearrange(F.scaled_dot_product_attention(q, k, v), "b h n e -> b n (h e)")))


class EvaSwiGLU(nn.Module):
    """fc2(norm(SiLU(fc1_g x) · fc1_x x))."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1_g, self.fc1_x = nn.Linear(dim, hidden), nn.Linear(dim, hidden)
        self.norm, self.fc2 = nn.LayerNorm(hidden), nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.fc2(self.norm(F.silu(self.fc1_g(x)) * self.fc1_x(x)))


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
    """The encoder. It has no class token: the mean of the grid positions' normalised tokens is read."""

    def __init__(self, embed: nn.Conv3d, registers: int, eva: Eva, head_width: int) -> None:
        super().__init__()
        self.register_tokens = nn.Parameter(torch.empty(1, registers, embed.out_channels))
        self.down_projection = nn.ModuleDict({"proj": embed})
        self.eva, self.head_width = eva, head_width

    def tokens(self, volume: Float[Tensor, "b c x y z"]) -> Float[Tensor, "b n d"]:
        """Every token after the last norm: registers, then grid positions."""
        embedded = self.down_projection["proj"](volume)
        registers = repeat(self.register_tokens, "1 r d -> b r d", b=len(volume))
        x = torch.cat([registers, rearrange(embedded, "b d x y z -> b (x y z) d")], dim=1)
        bands = self.head_width // (AXES * PAIR)
        rates = ROTARY_BASE ** (-torch.arange(bands, device=x.device) / bands)
        coordinates = fitting.indices(embedded.shape[-1]).to(x.device)
        return self.eva(x, fitting.angles(coordinates, rates, registers.shape[1]))

    def forward(self, volume: Float[Tensor, "b c x y z"]) -> dict[str, Float[Tensor, "b d"]]:
        return {MEAN: self.tokens(volume)[:, self.register_tokens.shape[1] :].mean(dim=1)}


def read_primus(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The encoder that a file's tensors make up; `heads` where the width is of no published size.

    Raises UsageError where a key or shape is not that of one Primus (the first version: one convolution embeds patches).
    """
    before = fitting.prefix(tensors, PRIMUS_ANCHOR, path)
    weights = {
        LAYER_SCALE_KEY.sub(r".ls\1.gamma", key): value for key, value in fitting.within(tensors, before, PRIMUS_LEFT_OUT).items()
    }
    dim, channels, patch = fitting.kernel(weights, PRIMUS_ANCHOR, path)
    weights.setdefault("register_tokens", torch.empty(1, 0, dim))
    registers = weights["register_tokens"].shape[1]
    if "eva.pos_embed" in weights:
        own_edge = patch * fitting.side(
            weights["eva.pos_embed"].shape[1] - registers, patch, edge, f"{before}eva.pos_embed", path
        )
    else:
        weights["eva.pos_embed"], own_edge = torch.zeros(1, 1, dim), None  # added to every token alike
    count = fitting.heads(heads, PRIMUS_HEADS.get(dim), dim, path)
    if (dim // count) % (AXES * PAIR):
        raise UsageError(f"{path}: heads of {dim} / {count} = {dim // count} numbers; rotary positions need a multiple of 6")
    with torch.device("meta"):
        blocks = [_primus_block(weights, dim, count, path) for _ in range(fitting.depth(weights, "eva.blocks.", path))]
        eva = Eva(blocks, weights["eva.pos_embed"].shape[1], dim)
        network = Primus(nn.Conv3d(channels, dim, patch, stride=patch), registers, eva, dim // count)
    return Foreign(fitting.filled(network, weights, before, path), "Primus", PRIMUS_SOURCE, channels, own_edge, patch, count)


def _primus_block(weights: Mapping[str, Tensor], dim: int, heads: int, path: Path) -> Block:
    """A block like the file's first."""
    hidden = fitting.taken(weights, "eva.blocks.0.mlp.fc1_g.weight", path).shape[0]
    inner = nn.LayerNorm(dim) if "eva.blocks.0.attn.norm.weight" in weights else nn.Identity()
    return Block(EvaAttention(dim, heads, inner), EvaSwiGLU(dim, hidden), "eva.blocks.0.ls1.gamma" in weights, dim)
