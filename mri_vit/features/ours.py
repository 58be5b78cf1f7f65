"""Encoders of ours: the file of a trained network or of a pretrained encoder, and what it reads of a prepared patient.

Letters: b patients, p tokens of each, k numbers in a patch, d width.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mri_vit.data.store import chosen_tokens
from mri_vit.data.tokens import Tokens
from mri_vit.errors import UsageError
from mri_vit.features.fitting import CLS, HEADS, MEAN
from mri_vit.model import network, weights
from mri_vit.model.encoder import Encoder
from mri_vit.pretrain.mae import encoded
from mri_vit.run.integrity import as_written
from mri_vit.settings.recipe import Model
from mri_vit.settings.sections import Grid


@dataclass(frozen=True, eq=False)
class Ours:
    """An encoder with what it was made for; `taught` are the subjects whose labels it learned, `seen` those whose scans."""

    encoder: nn.Module
    model: Model
    grid: Grid
    channels: tuple[str, ...]
    taught: tuple[str, ...]
    seen: tuple[str, ...]


def schema(path: Path) -> str:
    """What a file of ours says it is; "" for any other."""
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            found = (file.metadata() or {}).get("schema", "")
    except (safetensors.SafetensorError, OSError):
        return ""
    return found if found in (network.SCHEMA, weights.SCHEMA) else ""


def load(path: Path) -> Ours:
    """The encoder of a file of ours. Raises IntegrityError where it is damaged."""
    if schema(path) == network.SCHEMA:
        net = network.load(path)
        return Ours(net.encoder.eval(), net.model, net.grid, tuple(net.channels), net.label_exposed, net.image_exposed)
    tensors, header = weights.load_encoder(path)
    with as_written(path):
        model, grid = Model.model_validate(header["model"]), Grid.model_validate(header["grid"])
        channels = tuple(header["channels"])
    encoder = network.encoder(model.model_copy(update={"drop_path": 0.0}), grid, channels)
    with as_written(path):
        encoder.load_state_dict(tensors)
    if header.get("norm_eps"):
        encoder.norm_eps = float(header["norm_eps"])
    return Ours(encoder.eval(), model, grid, channels, tuple(weights.label_exposed(path)), tuple(weights.image_exposed(path)))


def of_patient(ours: Ours, prepared: Tokens, path: Path) -> dict[str, Float[Tensor, " d"]]:
    """What it reads of a patient. Raises UsageError where the patient was prepared on another grid, or with other sequences."""
    if prepared.grid != ours.grid:
        found, expected = (json.dumps(grid.model_dump()) for grid in (prepared.grid, ours.grid))
        raise UsageError(f"{path}: prepared on the grid {found}; the encoder reads {expected}")
    if prepared.channels != ours.channels:
        found, expected = (", ".join(names) for names in (prepared.channels, ours.channels))
        raise UsageError(f"{path}: found the sequences {found}; the encoder reads {expected}")
    return {name: vector[0] for name, vector in readings(ours.encoder, *chosen_tokens(prepared, ours.model.tokens)).items()}


@torch.no_grad()
def readings(encoder: nn.Module, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> dict[str, Float[Tensor, "b d"]]:
    """What an encoder says of patients, by the way it is read.

    `CLS` and the mean over the other tokens, both after the last norm, are read of Vision Transformers; what heads read, of
    networks in which it is something else.
    """
    found: dict[str, Tensor] = {}
    if isinstance(encoder, Encoder):
        x = encoded(encoder, patches, place)  # (b, n, d)
        found = {CLS: x[:, 0], MEAN: x[:, 1:].mean(dim=1)}
    if not isinstance(encoder, Encoder) or encoder.pool != "cls":
        found[HEADS] = encoder(patches, place)
    return found
