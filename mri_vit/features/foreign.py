"""Encoders that others have trained: a file goes in; its keys and shapes show the architecture, and a card what it does not say.

A card holds the licence and how the scans were prepared that the encoder was trained on; it is read from a file beside the
weights, `brainiac.ckpt.toml` for `brainiac.ckpt`, and from the command line. MONAI's Vision Transformer in 3D, as BrainIAC
has it, stands here: one channel, 96³ voxels, patches of 16³, no class token. Letters: b volumes, c channels, x y z voxels, d
width.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pydantic
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.features import dino, fitting, primus
from mri_vit.features.fitting import CLS, FIRST, MEAN, Foreign
from mri_vit.features.scan import Expected
from mri_vit.model.checkpoint import read_tensors
from mri_vit.settings.recipe import Section
from mri_vit.settings.sections import Grid

Read = Callable[[Mapping[str, Tensor], Path, int | None, int | None], Foreign]
MONAI_ANCHOR = "patch_embedding.position_embeddings"
MONAI_SOURCE = "Dosovitskiy et al. 2021, arXiv:2010.11929, as MONAI's ViT; BrainIAC: github.com/AIM-KannLab/BrainIAC"
LEFT_OUT = ("classification_head", "decoder", "conv3d_transpose", "mask_token")  # ViTAutoEnc's and classifiers'
HEAD_WIDTH = 64  # of every published size; Dosovitskiy et al. 2021, Table 1
MOST_CHANNELS = 8  # that are tried where a linear map embeds patches, and only their product with the patch is known
AXES = r"[RL][AP][SI]|[RL][SI][AP]|[AP][RL][SI]|[AP][SI][RL]|[SI][RL][AP]|[SI][AP][RL]"


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


def read_monai_vit(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The network that a file's tensors make up; `heads` where it is not known, 64 numbers wide each otherwise.

    Raises UsageError where a key or shape is not that of one ViT in 3D.
    """
    before = fitting.prefix(tensors, MONAI_ANCHOR, path)
    found = fitting.within(tensors, before, LEFT_OUT)
    found = {key: value for key, value in found.items() if "cross_attn" not in key}  # older versions save it; nothing reads it
    embedding = "conv" if "patch_embedding.patch_embeddings.weight" in found else "perceptron"
    dim, channels, patch = (_convolution if embedding == "conv" else _linear)(found, path)
    side = fitting.side(found[MONAI_ANCHOR].shape[1], before + MONAI_ANCHOR, path)
    if edge not in (None, side * patch):
        raise UsageError(
            f"{path}: {before}{MONAI_ANCHOR} is of {side}³ patches of {patch}³, an edge of {side * patch}; found {edge}"
        )
    count = fitting.heads(heads, None if dim % HEAD_WIDTH else dim // HEAD_WIDTH, dim, path)
    mlp = fitting.taken(found, "blocks.0.mlp.linear1.weight", path).shape[0]
    with torch.device("meta"):
        vit = _vit(channels, side * patch, patch, dim, mlp, fitting.depth(found, "blocks.", path), count, embedding, found)
    network = MonaiViT(fitting.filled(vit, found, before, path)).eval()
    return Foreign(network, "MONAI ViT", MONAI_SOURCE, channels, side * patch, patch, count)


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


class Card(Section):
    """What is known of a file of weights; None where it is not stated."""

    licence: str | None = Field(default=None, description="terms under which the weights were published, such as CC-BY-4.0")
    heads: int | None = Field(default=None, ge=1, description="attention heads, which most files do not say")
    edge: int | None = Field(default=None, ge=1, le=512, description="voxels along an edge of the cube that is read")
    spacing_mm: float | None = Field(default=None, ge=0.1, le=10, description="edge of its voxels; unset: the prepared box fits")
    intensity: Literal["zscore", "unit"] = Field(
        default="zscore", description="the brain's voxels: mean 0 and deviation 1, or from 0 to 1; outside is 0"
    )
    axes: str | None = Field(
        default=None, pattern=f"^({AXES})$", description="where the array's axes point to, such as RAS, or SAR for z, y, x"
    )


def read_card(weights: Path, given: Mapping[str, Any]) -> Card:
    """The card of a file of weights. `given` are values of the command line, None where nothing is; they go first.

    Raises UsageError naming file and key where the card beside the weights is damaged, or says another licence.
    """
    beside = weights.with_name(f"{weights.name}.toml")
    told = {key: value for key, value in given.items() if value is not None}
    try:
        written = tomllib.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
        known, card = Card.model_validate(written), Card.model_validate(written | told)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{beside}: not TOML: {error}") from None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"{beside if key in written else weights}: {key}: {first['msg']}, found {first['input']!r}") from None
    if known.licence and card.licence != known.licence:
        raise UsageError(
            f"{weights}: {beside.name} states the licence {known.licence}, the command {card.licence}; only one is right"
        )
    return card


@dataclass(frozen=True)
class Architecture:
    """How an encoder is known and read: `anchor` is a key that it alone has; `axes` are those of the arrays that its authors'
    code gives it, `edge` is read where the weights serve any.
    """

    anchor: str
    read: Read
    axes: str
    edge: int


ARCHITECTURES = {
    "MONAI ViT": Architecture(MONAI_ANCHOR, read_monai_vit, "RAS", 96),  # BrainIAC's edge
    "Primus": Architecture(primus.ANCHOR, primus.read, "SAR", 160),  # nnU-Net reads z, y, x; at 1 mm 160 hold most of a brain
    "3D DINO ViT": Architecture(dino.ANCHOR, dino.read, "RAS", 96),
}


def load(path: Path, card: Card, grid: Grid) -> tuple[Foreign, Expected]:
    """An encoder with its weights, and the scans that it expects of patients who were prepared on `grid`.

    Where the card states no spacing, the encoder's cube is laid over the whole prepared box.

    Raises
    ------
    UsageError
        The file is of no known architecture, or is not whole: file, key, what was found and what is expected are named.
    IntegrityError
        The file is damaged.
    """
    tensors = read_tensors(path)
    name = next((one for one, kind in ARCHITECTURES.items() if any(key.endswith(kind.anchor) for key in tensors)), None)
    if name is None:
        known = ", ".join(f"{kind.anchor} ({one})" for one, kind in ARCHITECTURES.items())
        raise UsageError(
            f"{path}: no known 3D encoder: found keys such as {sorted(tensors)[0]}; expected one that ends in {known}"
        )
    if empty := [key for key, value in tensors.items() if not value.numel()]:
        raise UsageError(f"{path}: {empty[0]} has shape {list(tensors[empty[0]].shape)}; expected numbers in it")
    kind = ARCHITECTURES[name]
    try:
        encoder = kind.read(tensors, path, card.heads, card.edge)
    except (IndexError, KeyError, ValueError, RuntimeError, ZeroDivisionError) as error:  # of a shape that nobody thought of
        raise UsageError(f"{path}: its tensors do not make up one {name}: {' '.join(str(error).split())}") from None
    edge = encoder.edge or card.edge or kind.edge
    if edge % encoder.patch:
        raise UsageError(f"{path}: an edge of {edge} voxels is no multiple of its patch of {encoder.patch}; give another --edge")
    spacing_mm = card.spacing_mm or round(grid.edge * grid.spacing_mm / edge, 6)
    return encoder, Expected(edge, encoder.patch, spacing_mm, card.intensity, card.axes or kind.axes)
