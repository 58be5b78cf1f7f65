"""MONAI's Vision Transformer in 3D, as BrainIAC has it: one channel, 96³ voxels, patches of 16³, no class token.

Letters: b volumes, c channels, x y z voxels, d width.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.features import fitting
from mri_vit.features.fitting import Foreign
from mri_vit.features.reading import CLS, FIRST, MEAN

ANCHOR = "patch_embedding.position_embeddings"
SOURCE = "Dosovitskiy et al. 2021, arXiv:2010.11929, as MONAI's ViT; BrainIAC: github.com/AIM-KannLab/BrainIAC"
LEFT_OUT = ("classification_head", "decoder", "conv3d_transpose", "mask_token")  # ViTAutoEnc's and classifiers'
HEAD_WIDTH = 64  # of every published size; Dosovitskiy et al. 2021, Table 1
MOST_CHANNELS = 8  # that are tried where a linear map embeds patches, and only their product with the patch is known


class MonaiViT(nn.Module):
    """MONAI's ViT and how it is read.

    With a class token that is CLS and the mean of the others; without one the mean of all and the first token alone: BrainIAC's
    code reads `features[0][:, 0]`, which is the token of a corner's patch where there is no class token.
    """

    def __init__(self, vit: nn.Module) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, volume: Float[Tensor, "b c x y z"]) -> dict[str, Float[Tensor, "b d"]]:
        x = self.vit(volume)[0]
        if hasattr(self.vit, "cls_token"):
            return {CLS: x[:, 0], MEAN: x[:, 1:].mean(dim=1)}
        return {MEAN: x.mean(dim=1), FIRST: x[:, 0]}


def read(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The network that a file's tensors make up; `heads` where it is not known, 64 numbers wide each otherwise.

    Raises UsageError where a key or shape is not that of one ViT in 3D.
    """
    before = fitting.prefix(tensors, ANCHOR, path)
    found = fitting.within(tensors, before, LEFT_OUT)
    found = {key: value for key, value in found.items() if "cross_attn" not in key}  # older versions save it; nothing reads it
    embedding = "conv" if "patch_embedding.patch_embeddings.weight" in found else "perceptron"
    dim, channels, patch = (_convolution if embedding == "conv" else _linear)(found, path)
    side = fitting.side(found[ANCHOR].shape[1], before + ANCHOR, path)
    if edge not in (None, side * patch):
        raise UsageError(f"{path}: {before}{ANCHOR} is of {side}³ patches of {patch}³, an edge of {side * patch}; found {edge}")
    count = fitting.heads(heads, None if dim % HEAD_WIDTH else dim // HEAD_WIDTH, dim, path)
    mlp = fitting.taken(found, "blocks.0.mlp.linear1.weight", path).shape[0]
    with torch.device("meta"):
        vit = _vit(channels, side * patch, patch, dim, mlp, fitting.depth(found, "blocks.", path), count, embedding, found)
    network = MonaiViT(fitting.filled(vit, found, before, path)).eval()
    return Foreign(network, "MONAI ViT", SOURCE, channels, side * patch, patch, count)


def _vit(
    channels: int, edge: int, patch: int, dim: int, mlp: int, depth: int, heads: int, embedding: str, found: Mapping[str, Tensor]
) -> nn.Module:
    from monai.networks.nets.vit import ViT  # whose import takes seconds

    vit = ViT(
        channels, edge, patch, dim, mlp, depth, heads, embedding,
        classification="cls_token" in found, num_classes=1, post_activation="none", qkv_bias="blocks.0.attn.qkv.bias" in found,
    )  # fmt: skip
    for block in vit.blocks:
        cast(Any, block).norm_cross_attn = nn.Identity()  # it has no cross-attention
    if "cls_token" in found:
        del vit.classification_head  # without which all tokens come out
    return vit


def _convolution(found: Mapping[str, Tensor], path: Path) -> tuple[int, int, int]:
    return fitting.kernel(found, "patch_embedding.patch_embeddings.weight", path)


def _linear(found: Mapping[str, Tensor], path: Path) -> tuple[int, int, int]:
    """(width, channels, patch edge) of a linear map of a patch: the fewest channels that leave a cube."""
    dim, numbers = fitting.taken(found, "patch_embedding.patch_embeddings.1.weight", path).shape
    for channels in range(1, MOST_CHANNELS + 1):
        patch = round((numbers / channels) ** (1 / 3))
        if channels * patch**3 == numbers:
            return dim, channels, patch
    raise UsageError(f"{path}: patch_embedding.patch_embeddings.1.weight reads {numbers} numbers, which are no cubes' voxels")
