"""Encoders that others have trained: a file goes in; its keys and shapes show the architecture, and a card what it does not say.

A card holds the licence and how the scans were prepared that the encoder was trained on; it is read from a file beside the
weights, `brainiac.ckpt.toml` for `brainiac.ckpt`, and from the command line. `expected_scan` gives a prepared patient as the cube
of voxels that the encoder was trained on: spacing, extent, axes, intensities.

MONAI's Vision Transformer in 3D, as BrainIAC has it, is read here: one channel, 96³ voxels, patches of 16³, no class token.

Letters: b volumes, c channels or sequences, x y z voxels, d width, g edge of the prepared grid, e edge of the encoder's cube.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import nibabel as nib
import numpy as np
import pydantic
import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from mri_vit.data.tokens import Tokens, to_volume
from mri_vit.data.volume import Volume, resample
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.features import fitting, transformers
from mri_vit.features.fitting import CLS, FIRST_TOKEN, MEAN, Foreign
from mri_vit.model.checkpoint import read_tensors
from mri_vit.settings.recipe import Section
from mri_vit.settings.sections import GRID_CENTRE_MM, Grid

Read = Callable[[Mapping[str, Tensor], Path, int | None, int | None], Foreign]
MONAI_ANCHOR = "patch_embedding.position_embeddings"
MONAI_SOURCE = "Dosovitskiy et al. 2021, arXiv:2010.11929, as MONAI's ViT; BrainIAC: github.com/AIM-KannLab/BrainIAC"
LEFT_OUT = ("classification_head", "decoder", "conv3d_transpose", "mask_token")  # ViTAutoEnc's and classifiers'
HEAD_WIDTH = 64  # of every published size; Dosovitskiy et al. 2021, Table 1
MAX_CHANNELS = 8  # that are tried where a linear map embeds patches, and only their product with the patch is known
AXES = r"[RL][AP][SI]|[RL][SI][AP]|[AP][RL][SI]|[AP][SI][RL]|[SI][RL][AP]|[SI][AP][RL]"
# What a prepared brain is held against, which is z-scored with its tails pulled in (`prepare.intensity`): of 46 synthetic
# patients the mean lies within 0.006 of 0 and the deviation between 1.00 and 1.04; bright tails of real ones raise the latter.
FARTHEST_MEAN, LEAST_DEVIATION, LARGEST_DEVIATION = 0.1, 0.9, 1.4
TAIL_PERCENT = 0.5  # at each end of a brain that is laid between 0 and 1, as `prepare.intensity` has it


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
        return {MEAN: x.mean(dim=1), FIRST_TOKEN: x[:, 0]}


def read_monai_vit(tensors: Mapping[str, Tensor], path: Path, heads: int | None, edge: int | None) -> Foreign:
    """The network that a file's tensors make up; `heads` where it is not known, 64 numbers wide each otherwise.

    Raises UsageError where a key or shape is not that of one ViT in 3D.
    """
    before = fitting.prefix(tensors, MONAI_ANCHOR, path)
    weights = fitting.within(tensors, before, LEFT_OUT)
    weights = {
        key: value for key, value in weights.items() if "cross_attn" not in key
    }  # older versions save it; nothing reads it
    embedding = "conv" if "patch_embedding.patch_embeddings.weight" in weights else "perceptron"
    if embedding == "conv":
        dim, channels, patch = fitting.kernel(weights, "patch_embedding.patch_embeddings.weight", path)
    else:
        dim, channels, patch = _linear(weights, path)
    edge = patch * fitting.side(weights[MONAI_ANCHOR].shape[1], patch, edge, before + MONAI_ANCHOR, path)
    count = fitting.heads(heads, None if dim % HEAD_WIDTH else dim // HEAD_WIDTH, dim, path)
    mlp = fitting.taken(weights, "blocks.0.mlp.linear1.weight", path).shape[0]
    with torch.device("meta"):
        vit = _vit(channels, edge, patch, dim, mlp, fitting.depth(weights, "blocks.", path), count, embedding, weights)
    network = MonaiViT(fitting.filled(vit, weights, before, path)).eval()
    return Foreign(network, "MONAI ViT", MONAI_SOURCE, channels, edge, patch, count)


def _vit(
    channels: int,
    edge: int,
    patch: int,
    dim: int,
    mlp: int,
    depth: int,
    heads: int,
    embedding: str,
    weights: Mapping[str, Tensor],
) -> nn.Module:
    from monai.networks.nets.vit import ViT  # whose import takes seconds

    vit = ViT(
        channels, edge, patch, dim, mlp, depth, heads, embedding,
        classification="cls_token" in weights, num_classes=1, post_activation="none",
        qkv_bias="blocks.0.attn.qkv.bias" in weights,
    )  # fmt: skip
    for block in vit.blocks:
        cast(Any, block).norm_cross_attn = nn.Identity()  # it has no cross-attention
    if "cls_token" in weights:
        del vit.classification_head  # without which all tokens come out
    return vit


def _linear(weights: Mapping[str, Tensor], path: Path) -> tuple[int, int, int]:
    """(width, channels, patch edge) of a linear map of a patch: the fewest channels that leave a cube."""
    dim, numbers = fitting.taken(weights, "patch_embedding.patch_embeddings.1.weight", path).shape
    for channels in range(1, MAX_CHANNELS + 1):
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
    """The card of a file of weights. `given` are values of the command line, None where not given; they take precedence.

    Raises UsageError naming file and key where the card beside the weights is damaged, or says another licence.
    """
    beside = weights.with_name(f"{weights.name}.toml")
    options = {key: value for key, value in given.items() if value is not None}
    try:
        written = tomllib.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
        known, card = Card.model_validate(written), Card.model_validate(written | options)
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
class Expected:
    """What an encoder reads: a cube of `edge`³ voxels of `spacing_mm`, in the middle of the prepared grid."""

    edge: int
    patch: int
    spacing_mm: float
    intensity: Literal["zscore", "unit"]
    axes: str

    @property
    def affine(self) -> Float[np.ndarray, "4 4"]:
        """Voxel index, axes RAS+, to mm of the MNI152 frame; the cube has the prepared grid's centre."""
        half = (self.edge - 1) / 2 * self.spacing_mm
        affine = np.diag([self.spacing_mm] * 3 + [1.0])
        affine[:3, 3] = np.array(GRID_CENTRE_MM) - half
        return affine


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
    "Primus": Architecture(
        transformers.PRIMUS_ANCHOR, transformers.read_primus, "SAR", 160
    ),  # nnU-Net reads z, y, x; at 1 mm 160 hold most of a brain
    "3D DINO ViT": Architecture(transformers.DINO_ANCHOR, transformers.read_dino, "RAS", 96),
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
    name = next((name for name, kind in ARCHITECTURES.items() if any(key.endswith(kind.anchor) for key in tensors)), None)
    if name is None:
        known = ", ".join(f"{kind.anchor} ({name})" for name, kind in ARCHITECTURES.items())
        raise UsageError(
            f"{path}: no known 3D encoder: found keys such as {sorted(tensors)[0]}; expected one that ends in {known}"
        )
    if empty := [key for key, value in tensors.items() if not value.numel()]:
        raise UsageError(f"{path}: {empty[0]} has shape {list(tensors[empty[0]].shape)}; expected numbers in it")
    kind = ARCHITECTURES[name]
    try:
        encoder = kind.read(tensors, path, card.heads, card.edge)
    except (IndexError, KeyError, ValueError, RuntimeError, ZeroDivisionError) as error:  # of an unforeseen shape
        raise UsageError(f"{path}: its tensors do not make up one {name}: {' '.join(str(error).split())}") from None
    edge = encoder.edge or card.edge or kind.edge
    if edge % encoder.patch:
        raise UsageError(f"{path}: an edge of {edge} voxels is no multiple of its patch of {encoder.patch}; give another --edge")
    spacing_mm = card.spacing_mm or round(grid.edge * grid.spacing_mm / edge, 6)
    return encoder, Expected(edge, encoder.patch, spacing_mm, card.intensity, card.axes or kind.axes)


# --- a prepared patient as the encoder expects it -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scan:
    """`volumes` [c e e e] in the order of `channels`, those that the patient has."""

    volumes: Float[np.ndarray, "c e e e"]
    channels: tuple[str, ...]


def expected_scan(prepared: Tokens, expected: Expected, channels: tuple[str, ...]) -> Scan:
    """The patient's sequences among `channels` as the encoder expects them; one that is empty is missing.

    Raises UnusablePatient where a sequence's mean and deviation over the brain are not those of a prepared patient.
    """
    dense = to_volume(prepared).astype(np.float32)
    brain = (dense != 0).any(axis=0)
    known = {name: dense[prepared.channels.index(name)] for name in channels}
    known = {name: array for name, array in known.items() if array.any()}
    for name, array in known.items():
        mean, deviation = float(array[brain].mean()), float(array[brain].std())
        if not (abs(mean) <= FARTHEST_MEAN and LEAST_DEVIATION <= deviation <= LARGEST_DEVIATION):
            raise UnusablePatient(
                f"{name} has a mean of {mean:.2f} and a deviation of {deviation:.2f} in the brain; expected a z-score, 0 within"
                f" {FARTHEST_MEAN} and {LEAST_DEVIATION} to {LARGEST_DEVIATION}"
            )
    affine = np.array(prepared.grid.affine)
    mask = on_cube(brain.astype(np.float32), affine, expected) > 0.5
    volumes = np.zeros((len(known), *[expected.edge] * 3), np.float32)
    for volume, array in zip(volumes, known.values(), strict=True):
        volume[:] = turned(scaled(on_cube(array, affine, expected), mask, expected.intensity), expected.axes)
    return Scan(volumes, tuple(known))


def on_cube(
    array: Float[np.ndarray, "g g g"], affine: Float[np.ndarray, "4 4"], expected: Expected
) -> Float[np.ndarray, "e e e"]:
    """The prepared array seen on the encoder's cube, axes RAS+, by one trilinear interpolation; 0 beyond what was prepared."""
    edge = expected.edge
    return resample(Volume(array, affine), (edge, edge, edge), expected.affine).array


def scaled(
    array: Float[np.ndarray, "e e e"], brain: Bool[np.ndarray, "e e e"], intensity: Literal["zscore", "unit"]
) -> Float[np.ndarray, "e e e"]:
    """The brain's voxels on the scale that is expected, over the brain as it is in the cube; 0 outside."""
    values, output = array[brain], np.zeros_like(array)
    if not values.size:
        return output
    if intensity == "zscore":
        output[brain] = (values - values.mean()) / max(float(values.std()), np.finfo(np.float32).tiny)
    else:
        low, high = np.percentile(values, (TAIL_PERCENT, 100 - TAIL_PERCENT))
        output[brain] = np.clip((values - low) / max(high - low, np.finfo(np.float32).tiny), 0, 1)
    return output


def turned(array: Float[np.ndarray, "e e e"], axes: str) -> Float[np.ndarray, "e e e"]:
    """An RAS+ array with its axes put in another order and direction; no voxel is changed."""
    orientation = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.orientations.axcodes2ornt(axes))
    return np.ascontiguousarray(nib.orientations.apply_orientation(array, orientation))


def share_inside(brain: Bool[np.ndarray, "g g g"], grid: Grid, expected: Expected) -> float:
    """The share of the brain's voxels whose centre lies in the cube."""
    at = np.argwhere(brain)
    from_centre_mm = (at - (grid.edge - 1) / 2) * grid.spacing_mm
    within = (np.abs(from_centre_mm) <= expected.edge * expected.spacing_mm / 2).all(axis=1)
    return float(within.mean()) if len(at) else 1.0
