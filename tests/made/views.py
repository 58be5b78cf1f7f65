"""Prepared patients in memory as a store, and what a method of pretraining is shown of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from mri_vit.data.cohort import Patient
from mri_vit.data.draw import Member, mirrored_place
from mri_vit.data.store import Held, token_file
from mri_vit.data.tokens import Tokens, load
from mri_vit.pretrain.encoder import Method
from mri_vit.settings.schema import CHANNELS, Study


def loaded(patients: Sequence[Patient], study: Study) -> list[Tokens]:
    """The tokens of these patients."""
    return [load(token_file(study.prepared, patient)) for patient in patients]


def in_memory(patients: Sequence[Tokens]) -> Held:
    """A store of these patients."""
    rows = np.concatenate([*(one.patches for one in patients), np.zeros_like(patients[0].patches[:1])])
    return Held(torch.from_numpy(rows), [one.position for one in patients], patients[0].grid)


def views(net: Method, patients: Sequence[Tokens], random: np.random.Generator) -> list[Tensor]:
    """Patches and places of each of the method's draws."""
    members = [Member(i, one.position, random) for i, one in enumerate(patients)]
    batches = map(in_memory(patients).take, net.draws(members, random))
    return [part for batch in batches for part in (batch.patches, batch.position)]


def flipped(patient: Tokens) -> Tokens:
    """Left and right exchanged, voxel by voxel."""
    x = rearrange(patient.patches, "f (c x yz) -> f c x yz", c=len(CHANNELS), x=patient.grid.patch)[:, :, ::-1]
    position = mirrored_place(patient.position, patient.grid.side).astype(np.int16)
    return Tokens(np.ascontiguousarray(rearrange(x, "f c x yz -> f (c x yz)")), position, patient.grid, patient.config_sha256)
