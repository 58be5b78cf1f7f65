"""Checkpoints that others wrote: the tensors in a file of weights, and a 2D Vision Transformer's under the names of our encoder.

No code in a file is ever run. Letters: d width, e patch edge, n positions with CLS, h heads.
"""

from __future__ import annotations

import pickle
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from einops import rearrange
from torch import Tensor

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.settings import source

PICKLED = (".pth", ".pt", ".bin", ".ckpt")
WEIGHT_KEYS = ("model", "state_dict", "network_weights", "teacher")  # MAE's and DeiT's; Lightning's; nnssl's; DINO's own files


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every floating-point tensor of a file by its key, as float32.

    The formats are .safetensors, .npz, and .pth, .pt, .bin and .ckpt of tensors alone; where such a file holds the weights under
    a key beside others (an optimiser's state, the number of epochs), these are taken.

    Raises UsageError when there is no such file, or it is of another format; IntegrityError when the file is damaged, or holds
    objects whose making would run code.
    """
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong}; a file of weights is expected")
    try:
        named = {key: value for key, value in _read(path).items() if isinstance(key, str) and isinstance(value, Tensor)}
        numbers = {key: value for key, value in named.items() if value.is_floating_point()}
        if not numbers:
            raise ValueError("there is no tensor of floating-point numbers in it")
        return {key: value.float() for key, value in numbers.items()}
    except pickle.UnpicklingError:  # PyTorch's own words advise to load it with the code that is in it
        raise IntegrityError(
            f"{path}: weights cannot be read: found damage, or objects whose making would run code; expected tensors alone."
            " Whoever trusts the file can save its state_dict as .safetensors"
        ) from None
    except (
        *(safetensors.SafetensorError, zipfile.BadZipFile, zlib.error),
        *(OSError, EOFError, ValueError, RuntimeError, AttributeError, TypeError),
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise IntegrityError(f"{path}: weights cannot be read: {reason}") from None


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        with safetensors.safe_open(str(path), "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    if path.suffix == ".npz":
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {key: torch.from_numpy(file[key]) for key in file.files}
    if path.suffix in PICKLED:
        found = torch.load(path, map_location="cpu", weights_only=True)
        for key in WEIGHT_KEYS:
            if isinstance(found.get(key), dict):
                return found[key]
        return found
    raise UsageError(f"{path}: found {path.suffix or 'no suffix'}; expected .safetensors, .npz, {', '.join(PICKLED)}")


@dataclass(frozen=True)
class Naming:
    """What a library calls a Vision Transformer's weights. `inside` names a block's by ours; two or more are stacked."""

    block: str
    embed: str
    cls: str
    position: str
    norm: str
    inside: dict[str, str]
    kernel: str = ".weight"
    scale: str = ".weight"
    bias: str = ".bias"
    norm_eps: float = 1e-6  # what LayerNorm adds to the variance: Flax's default, and timm's

    def wanted(self, prefix: str, depth: int) -> dict[str, list[str]]:
        """The file's keys that make up each weight of ours."""
        parts = {"embed": [self.embed], "norm": [self.norm]} | {
            f"blocks.{i}.{ours}": [self.block.format(i) + part for part in theirs.split()]
            for i in range(depth)
            for ours, theirs in self.inside.items()
        }
        keys = {"cls": [prefix + self.cls], "position": [prefix + self.position]}
        for ours, theirs in parts.items():
            weight = self.scale if "norm" in ours else self.kernel
            keys[f"{ours}.weight"] = [prefix + part + weight for part in theirs]
            keys[f"{ours}.bias"] = [prefix + part + self.bias for part in theirs]
        return keys


TIMM = Naming(  # also DINO's and MAE's own files
    "blocks.{}.", "patch_embed.proj", "cls_token", "pos_embed", "norm",
    {
        "norm1": "norm1", "attention.qkv": "attn.qkv", "attention.out": "attn.proj",
        "norm2": "norm2", "mlp.0": "mlp.fc1", "mlp.2": "mlp.fc2",
    },
)  # fmt: skip
TRANSFORMERS = Naming(  # as on disk in all versions
    "encoder.layer.{}.", "embeddings.patch_embeddings.projection", "embeddings.cls_token", "embeddings.position_embeddings",
    "layernorm",
    {
        "norm1": "layernorm_before", "norm2": "layernorm_after",
        "attention.qkv": "attention.attention.query attention.attention.key attention.attention.value",
        "attention.out": "attention.output.dense", "mlp.0": "intermediate.dense", "mlp.2": "output.dense",
    },
    norm_eps=1e-12,  # ViTConfig's default, which the published ViTs keep
)  # fmt: skip
TRANSFORMERS_5 = Naming(  # as in memory since version 5, so in files written from a state_dict
    "layers.{}.", TRANSFORMERS.embed, TRANSFORMERS.cls, TRANSFORMERS.position, TRANSFORMERS.norm,
    {
        "norm1": "layernorm_before", "norm2": "layernorm_after",
        "attention.qkv": "attention.q_proj attention.k_proj attention.v_proj",
        "attention.out": "attention.o_proj", "mlp.0": "mlp.fc1", "mlp.2": "mlp.fc2",
    },
    norm_eps=TRANSFORMERS.norm_eps,
)  # fmt: skip
QUERY = "MultiHeadDotProductAttention_1/query"
JAX = Naming(  # Dosovitskiy et al.'s own files
    "Transformer/encoderblock_{}/", "embedding", "cls", "Transformer/posembed_input/pos_embedding", "Transformer/encoder_norm",
    {
        "norm1": "LayerNorm_0", "norm2": "LayerNorm_2",
        "attention.qkv": " ".join(QUERY.replace("query", part) for part in ("query", "key", "value")),
        "attention.out": QUERY.replace("query", "out"), "mlp.0": "MlpBlock_3/Dense_0", "mlp.2": "MlpBlock_3/Dense_1",
    },
    kernel="/kernel", scale="/scale", bias="/bias",
)  # fmt: skip
NAMINGS = (TIMM, TRANSFORMERS, TRANSFORMERS_5, JAX)
PREFIXES = ("", "vit.")  # transformers puts the second before a ViT inside a classifier
REFUSED = {  # part of a key: what it means; the copied blocks would compute something else without it
    "register_tokens": "register tokens, as DINOv2's",
    "reg_token": "register tokens, as DINOv2's",
    "dist_token": "a distillation token, as DeiT's",
    "distillation_token": "a distillation token, as DeiT's",
    ".ls1.": "LayerScale, as DINOv2's",
    "layer_scale": "LayerScale, as DINOv2's",
    "gamma_1": "LayerScale, as BEiT's",
    "mlp.w12": "a SwiGLU, as DINOv2's giant",
    "mlp.weights_in": "a SwiGLU, as DINOv2's giant",
    "mlp.fc1_g": "a SwiGLU",
}
LEFT_OUT = (  # what comes after the blocks, or is for pretraining
    *("head", "fc.", "classifier", "pooler", "pre_logits"),
    *("mask_token", "embeddings.mask_token", "decoder"),
)


@dataclass(frozen=True, eq=False)
class Weights2D:
    """A 2D Vision Transformer's weights under our encoder's names.

    `tensors["embed.weight"]` is the kernel [d 3 e e] over rows and columns, `tensors["position"]` [1 n d]. `heads` is None
    where the file does not say it, as those of timm and transformers. `norm_eps` is what the library that the names are of
    adds to the variance in LayerNorm.
    """

    path: Path
    tensors: dict[str, Tensor]
    heads: int | None
    norm_eps: float

    @property
    def depth(self) -> int:
        return sum(name.endswith("norm1.weight") for name in self.tensors)


def read_2d(path: Path) -> Weights2D:
    """Read a 2D ViT's checkpoint and bring its weights under our names, as float32.

    Known are timm's names (DINO and MAE have the same), transformers' on disk and in memory, with or without `vit.`, and
    those of the original JAX code; the formats are .safetensors, .npz, and .pth, .pt, .bin and .ckpt of tensors alone
    (no code is run). Classifiers, poolers, mask tokens and decoders are left out. The original code computes GELU by tanh; timm,
    transformers and we compute it exactly, also with its weights.

    Raises UsageError when there is no such file, or no plain ViT in it, naming the key that is missing, superfluous or of a
    wrong shape; IntegrityError when the file is damaged.
    """
    found = read_tensors(path)
    fits = [(naming, prefix) for naming in NAMINGS for prefix in PREFIXES]
    naming, prefix = max(fits, key=lambda fit: sum(key in found for keys in fit[0].wanted(fit[1], 1).values() for key in keys))
    number = re.compile(re.escape(prefix + naming.block).replace(r"\{\}", r"(\d+)"))
    depth = len({match[1] for match in map(number.match, found) if match})
    if not depth:
        raise UsageError(f"{path}: no Vision Transformer in the names of timm, transformers or the original JAX code was found")
    wanted = naming.wanted(prefix, depth)
    taken = [key for keys in wanted.values() for key in keys]
    _refuse_other_keys(path, found, taken, prefix)
    heads = found[JAX.block.format(0) + QUERY + JAX.kernel].shape[1] if naming is JAX else None
    if naming is JAX:
        found = {key: _torch_layout(key, found[key]) for key in taken}
    _refuse_wrong_shapes(path, found, wanted)
    tensors = {ours: torch.cat([found[key] for key in keys]) for ours, keys in wanted.items()}
    return Weights2D(path, tensors, heads, naming.norm_eps)


def _torch_layout(key: str, array: Tensor) -> Tensor:
    """A weight of the original JAX code in torch's order of axes: outputs first, heads side by side."""
    if key.endswith(JAX.bias):
        return array.flatten()  # [heads, width of a head]
    if not key.endswith(JAX.kernel):
        return array
    if array.ndim == 4:
        return rearrange(array, "row column rgb d -> d rgb row column")
    if array.ndim == 3:
        return rearrange(array, "h e d -> d (h e)" if "/out/" in key else "d h e -> (h e) d")
    return array.T


def _refuse_other_keys(path: Path, found: dict[str, Tensor], taken: list[str], prefix: str) -> None:
    """Raise UsageError when a key of a plain ViT is missing, or one belongs to something that a plain ViT does not have."""
    others = [key for key in found if key not in taken and not key.removeprefix(prefix).startswith(LEFT_OUT)]
    known = {meaning: key for part, meaning in REFUSED.items() for key in reversed(others) if part in key}
    if known:
        extras = " and ".join(f"{meaning} ({key})" for meaning, key in known.items())
        raise UsageError(f"{path}: it has {extras}, for which our blocks have no place; take the weights of a plain ViT")
    missing = [key for key in taken if key not in found]
    if missing:
        raise UsageError(f"{path}: {missing[0]} is missing" + (f", and {len(missing) - 1} more" if len(missing) > 1 else ""))
    if others:
        raise UsageError(f"{path}: {others[0]} does not belong to a plain ViT; our blocks would give another output without it")


def _refuse_wrong_shapes(path: Path, found: dict[str, Tensor], wanted: dict[str, list[str]]) -> None:
    """Raise UsageError when the shapes are not those of one ViT; all follow from width, MLP, patch edge and positions."""
    dim = found[wanted["norm.weight"][0]].numel()
    mlp = found[wanted["blocks.0.mlp.0.bias"][0]].numel()
    edge = round((found[wanted["embed.weight"][0]].numel() / (3 * dim)) ** 0.5)
    side = round(max(found[wanted["position"][0]].numel() / dim - 1, 1) ** 0.5)
    expected = {"cls": (1, 1, dim), "position": (1, side**2 + 1, dim), "embed.weight": (dim, 3, edge, edge)}
    inside = {"attention.qkv.weight": (-1, dim), "attention.out.weight": (dim, dim), "mlp.0.weight": (mlp, dim)}
    inside |= {"mlp.2.weight": (dim, mlp), "attention.qkv.bias": (-1,), "mlp.0.bias": (mlp,)}
    for ours, keys in wanted.items():
        shape = expected.get(ours) or inside.get(ours.partition(".")[2].partition(".")[2], (dim,))
        shape = tuple(3 * dim // len(keys) if size == -1 else size for size in shape)  # query, key and value, or all in one
        for key in keys:
            if tuple(found[key].shape) != shape:
                raise UsageError(f"{path}: {key} has shape {list(found[key].shape)}; a 2D ViT of width {dim} has {list(shape)}")
