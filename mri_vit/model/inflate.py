"""A 2D Vision Transformer's checkpoint to the weights that the 3D encoder starts from (Carreira & Zisserman 2017 inflated CNNs).

`inflate` fills an encoder with what `vit2d.read_2d` read. The image is taken for an axial slice as it is shown: columns run
from the patient's right to left, rows from front to back, and depth is the third axis, z. So both image axes run against
ours (x grows to the right, y to the front).

Letters: d width, e patch edge, n positions with CLS, k = channels·e³ numbers in a patch, s places along an edge,
x y z axes of a patch or of the grid.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.model.encoder import POSITION_STD, Encoder
from mri_vit.model.vit2d import Weights2D


@torch.no_grad()
def inflate(weights: Weights2D, encoder: Encoder) -> None:
    """Fill the encoder with a 2D ViT's weights: blocks, norm and CLS as they are, patch kernels and positions inflated.

    The encoder's LayerNorms add to the variance what the checkpoint's do, without which small tokens would come out
    differently; a state_dict does not keep that. What else the encoder has keeps its values.

    Parameters
    ----------
    weights : of `read_2d`; width, depth, MLP, patch edge and, where the file says it, heads must be the encoder's.
    encoder : with one linear map as its patch embedding; changed in place.

    Raises
    ------
    UsageError when the checkpoint does not fit the encoder, saying in what.
    """
    if not isinstance(encoder.embed, nn.Linear):
        raise UsageError(f"{weights.path}: its patch kernels need one linear map; leave model.stem and model.conv_stem out")
    _refuse_other_shape(weights, encoder)
    side = round((encoder.position.shape[1] - 1) ** (1 / 3))
    inflated = {
        "embed.weight": inflated_kernel(weights.tensors["embed.weight"], encoder.channels),
        "position": inflated_positions(weights.tensors["position"], side),
    }
    encoder.load_state_dict(encoder.state_dict() | weights.tensors | inflated)
    for module in encoder.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = weights.norm_eps


def inflated_kernel(kernel: Float[Tensor, "d 3 e e"], channels: int) -> Float[Tensor, "d k"]:
    """The linear map on a 3D patch that sees, in equal scans that do not change in depth, what the kernel saw in grey.

    A grey image has three equal colours and gives the sum of three kernels, 3 × their mean; each of four scans gets
    ¾ of the mean, so that an embedding keeps its size. It is spread evenly over depth (Carreira & Zisserman 2017, 3.1).
    """
    edge = kernel.shape[-1]
    axial = rearrange(kernel.mean(dim=1).flip(1, 2), "d row column -> d column row") * (3 / channels)
    depth = kernel.new_full((edge,), 1 / edge)
    return repeat(einsum(axial, depth, "d x y, z -> d x y z"), "d x y z -> d (c x y z)", c=channels)


def inflated_positions(position: Float[Tensor, "1 n d"], side: int) -> Float[Tensor, "1 m d"]:
    """Position embeddings of side³ places: those of the axial plane in every slice, plus `depth_term`; CLS keeps its own.

    A 2D grid of another side is interpolated bicubically, as timm and transformers do. All of the table is learned, so the
    term in depth is learned with it and needs no weights of its own.
    """
    old = round((position.shape[1] - 1) ** 0.5)
    plane = rearrange(position[:, 1:], "1 (row column) d -> 1 d row column", row=old)
    if old != side:
        plane = F.interpolate(plane, size=(side, side), mode="bicubic", align_corners=False)
    axial = rearrange(plane.flip(2, 3), "1 d row column -> column row 1 d")
    volume = axial + depth_term(side, position.shape[2]).to(position)  # [x y z d]
    return torch.cat([position[:, :1], rearrange(volume, "x y z d -> 1 (x y z) d")], dim=1)


def depth_term(side: int, dim: int) -> Float[Tensor, "s d"]:
    """Where the positions' learned term in depth starts: sine and cosine of the slice's number (Vaswani et al. 2017, 3.5).

    Its mean over the slices is taken off, so that the 2D positions stay the mean over depth, and its root mean square is
    `POSITION_STD`: small, as the learned positions of a plane are.
    """
    rate = 10000.0 ** (-torch.arange(0, dim, 2) / dim)  # the base is Vaswani et al.'s
    angle = torch.arange(side)[:, None] * rate
    term = torch.cat([angle.sin(), angle.cos()], dim=1)[:, :dim]
    term = term - term.mean(dim=0)
    return term * POSITION_STD / term.square().mean().sqrt().clamp_min(1e-12)  # one slice alone has no depth, and gets zero


def _refuse_other_shape(weights: Weights2D, encoder: Encoder) -> None:
    """Raise UsageError naming in what the checkpoint and the encoder differ."""
    if not encoder.layers:
        raise UsageError(f"{weights.path}: it needs model.depth {weights.depth} (the study's is 0)")
    ours, first = encoder.state_dict(), encoder.layers[0]
    pairs = {
        "model.dim": (weights.tensors["cls"].shape[-1], ours["cls"].shape[-1]),
        "model.depth": (weights.depth, len(encoder.layers)),
        "model.mlp": (len(weights.tensors["blocks.0.mlp.0.bias"]), len(ours["blocks.0.mlp.0.bias"])),
        "model.heads": (weights.heads or first.attention.heads, first.attention.heads),
        "grid.patch": (
            weights.tensors["embed.weight"].shape[-1],
            round((ours["embed.weight"].shape[1] / encoder.channels) ** (1 / 3)),
        ),
    }
    differing = [f"{key} {theirs} (the study's is {own})" for key, (theirs, own) in pairs.items() if theirs != own]
    if differing:
        raise UsageError(f"{weights.path}: it needs {', '.join(differing)}")
