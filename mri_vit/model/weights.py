"""Where an encoder starts from: a file of pretrained weights, of a trained network, or of a 2D Vision Transformer,
whose weights are inflated (Carreira & Zisserman 2017 inflated CNNs).

`inflate` fills an encoder with what `checkpoint.read_2d` read. The image is taken for an axial slice as it is shown: columns run
from the patient's right to left, rows from front to back, and depth is the third axis, z. So both image axes run against
ours (x grows to the right, y to the front).

Letters: d width, e patch edge, n positions with CLS, k = channels·e³ numbers in a patch, s grid positions along an edge,
x y z axes of a patch or of the grid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.model import network
from mri_vit.model.checkpoint import Weights2D, read_2d
from mri_vit.model.encoder import POSITION_STD, Encoder, resize_positions
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.settings import source
from mri_vit.settings.file import under_present_names
from mri_vit.settings.recipe import Model
from mri_vit.settings.sections import Grid

SCHEMA = "mri-vit encoder 1"


@torch.no_grad()
def inflate(weights: Weights2D, encoder: Encoder) -> None:
    """Fill the encoder with a 2D ViT's weights: blocks, norm and CLS as they are, patch kernels and positions inflated.

    The encoder's LayerNorms add to the variance what the checkpoint's do, without which small tokens would come out
    differently; a state_dict does not keep that. What else the encoder has keeps its values.

    `weights`: of `read_2d`; width, depth, MLP, patch edge and, where the file says it, heads must be the encoder's.
    `encoder`: with one linear map as its patch embedding; changed in place.

    Raises UsageError when the checkpoint does not fit the encoder, and names what differs.
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
    """Position embeddings of side³ grid positions: those of the axial plane in every slice, plus `depth_term`; CLS keeps its own.

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


def save_encoder(encoder: nn.Module, made: Mapping[str, Any], path: Path) -> None:
    """Write an encoder's weights atomically; `made` is the header that `load_encoder` returns, without `norm_eps`."""
    header = {**made, "norm_eps": getattr(encoder, "norm_eps", None)}
    metadata = {"schema": SCHEMA, **{key: json.dumps(value) for key, value in header.items()}}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.state_dict().items()}
    with replacing(path) as beside:
        safetensors.torch.save_file(weights, beside, metadata)
        sort_header(beside)


def load_encoder(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An encoder's weights, and its header: `model`, `grid`, `pretrain` and `train` as dictionaries, `channels`, `seen` and
    `taught` as lists, `seed` and `norm_eps` as numbers, `start` as the SHA-256 of the file that it started from, or None.

    `seen` are the image-exposed subjects, whose scans the weights were pretrained on; `taught` the label-exposed ones, whose
    labels the weights that they started from were trained on.

    Raises IntegrityError when the file is damaged or is something else.
    """
    weights, metadata = network.read(path, SCHEMA)
    with as_written(path):
        header = {key: value if key == "schema" else json.loads(value) for key, value in metadata.items()}
        _ = [header[key] for key in ("model", "grid", "pretrain", "channels")]
    return weights, under_present_names(header)


def fill(encoder: nn.Module, path: Path, model: Model, grid: Grid) -> None:
    """Give the encoder of `model` and `grid` the weights of a file; what the file has none of stays as it is.

    Ours are of a pretrained encoder or of a network; where their grid cut the same box into another number of grid positions of
    the same patch, positions are interpolated, as for fine-tuning at a higher resolution. Any other file is read as a 2D Vision
    Transformer's and inflated (see `inflate`).

    Raises UsageError when the weights would not mean what they meant: of another architecture, shape, number of heads, sequences
    or box, and for a convolutional network of other voxels; IntegrityError when the file is damaged.
    """
    schema = _header(path).get("schema")
    if schema == network.SCHEMA:
        before = network.load(path)
        weights, was, its = before.encoder.state_dict(), before.grid, before.model
        norm_eps = getattr(before.encoder, "norm_eps", None)
    elif schema == SCHEMA:
        weights, header = load_encoder(path)
        with as_written(path):
            was, its = Grid.model_validate(header["grid"]), Model.model_validate(header["model"])
            norm_eps = header.get("norm_eps") and float(header["norm_eps"])
    elif isinstance(encoder, Encoder):
        inflate(read_2d(path), encoder)
        return
    else:
        raise UsageError(f"{path}: weights of a 2D Vision Transformer fit no other architecture than vit")
    if its.architecture != model.architecture:
        raise UsageError(f"{path}: its weights are of architecture {its.architecture}, the study's model is {model.architecture}")
    if isinstance(encoder, Encoder) and "position" in weights:
        if was.patch != grid.patch:
            raise UsageError(f"{path}: its patches have {was.patch}³ voxels, the study's {grid.patch}³")
        if was.edge * was.spacing_mm != grid.edge * grid.spacing_mm:
            raise UsageError(
                f"{path}: its positions are of a box of {was.edge * was.spacing_mm:g} mm, the study's of"
                f" {grid.edge * grid.spacing_mm:g} mm"
            )
        if was.side != grid.side:
            weights["position"] = resize_positions(weights["position"], grid.side)
    elif was.spacing_mm != grid.spacing_mm:
        raise UsageError(f"{path}: its kernels are of voxels of {was.spacing_mm:g} mm, the study's of {grid.spacing_mm:g} mm")
    _refuse_another_model(path, its, model)
    own = encoder.state_dict()
    differing = [
        name for name in own | weights if name not in own or name not in weights or own[name].shape != weights[name].shape
    ]
    if differing:
        raise UsageError(f"{path}: its weights are of another [model] or [grid]; the first that differs is {differing[0]}")
    encoder.load_state_dict(weights)
    if norm_eps and isinstance(encoder, Encoder):
        encoder.norm_eps = norm_eps


def _refuse_another_model(path: Path, its: Model, ours: Model) -> None:
    """Name every key by which the weights' tensors differ in shape, or compute something else in the same shapes."""
    keys: dict[str, tuple[object, object]] = {"channels": (its.channels, ours.channels)}
    if ours.architecture.startswith(("vit", "monai_vit", "hybrid")):  # other networks have no width of a token and no heads
        keys |= dict(zip(("dim", "depth", "heads", "mlp"), zip(its.shape, ours.shape, strict=True), strict=True))
    if ours.architecture == "vit":
        keys |= {key: (getattr(its, key) or 0, getattr(ours, key) or 0) for key in ("stem", "conv_stem", "texture")}
    differing = [f"model.{key} is {theirs}, the study's {wanted}" for key, (theirs, wanted) in keys.items() if theirs != wanted]
    if differing:
        raise UsageError(f"{path}: its {'; its '.join(differing)}")


def image_exposed(path: Path) -> list[str]:
    """The subjects on whose scans a file's weights were pretrained; none is known of a file that is not ours.

    Raises UsageError for the weights of an exported model, which do not say it.
    """
    return _subjects(path, "seen")


def label_exposed(path: Path) -> list[str]:
    """The subjects whose labels a file's weights were trained on; else as `image_exposed`."""
    return _subjects(path, "taught")


def licence_of(path: Path) -> str | None:
    """The licence of others' weights from which a file of ours was trained; None where it records none, or is not ours."""
    with as_written(path):
        return json.loads(_header(path).get("model", "{}")).get("weights_licence")


def _subjects(path: Path, key: str) -> list[str]:
    with as_written(path):
        subjects = [str(subject) for subject in json.loads(_header(path).get(key, "[]"))]
    if network.UNNAMED in subjects:
        raise UsageError(
            f"{path}: the weights of an exported model do not say which patients they were trained on, so that these could be"
            " tested again; expected the weights of the run itself"
        )
    return subjects


def _header(path: Path) -> dict[str, str]:
    """What a file says it is; `schema` only in a file of ours. Raises UsageError when there is no such file."""
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong} (model.weights)")
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            return file.metadata() or {}
    except safetensors.SafetensorError:
        return {}  # of another format, or damaged: whoever reads it next says which
