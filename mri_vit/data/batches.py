"""From prepared patients on disk to the tensors that the network reads.

Letters: b patients in a batch, p tokens of each, k numbers in a patch, c label columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.run import files
from mri_vit.settings.schema import CHANNELS, Endpoint, Study

Batch = tuple[Float[Tensor, "b p k"], Int[Tensor, "b p"]]


def token_file(study: Study, patient: Patient) -> Path:
    return study.prepared / patient.id / files.TOKENS


def labels(patients: Sequence[Patient], endpoint: Endpoint) -> Float[Tensor, "b c"]:
    """The endpoint's label columns, NaN where missing."""
    return torch.tensor([[p.labels[column] for column in endpoint.columns] for p in patients], dtype=torch.float32)


def everything(prepared: Tokens, study: Study) -> Batch:
    """One patient as a batch of one with every token that the study's encoder reads."""
    return _batch(*_shown(prepared, study))


def _shown(prepared: Tokens, study: Study) -> tuple[Float[np.ndarray, "p k"], Integer[np.ndarray, "p"]]:
    """Patches and places that the study's encoder reads, as they are stored."""
    if study.model.tokens == "foreground":
        return prepared.patches, prepared.place
    patches = np.zeros((study.grid.places, prepared.patches.shape[1]), prepared.patches.dtype)
    patches[prepared.place] = prepared.patches
    return patches, np.arange(study.grid.places)


def _batch(patches: Float[np.ndarray, "p k"], place: Integer[np.ndarray, "p"]) -> Batch:
    return torch.from_numpy(patches).float()[None], torch.from_numpy(place.astype(np.int64))[None]


def drawn(prepared: Tokens, study: Study, budget: int, generator: torch.Generator) -> Batch:
    """One patient as a batch of one with `budget` tokens drawn at random.

    A patient with fewer tokens is filled up with background places, which are empty, so every batch has one shape.
    """
    patches, place = _shown(prepared, study)
    chosen = torch.randperm(len(place), generator=generator)[:budget].numpy()
    patches, place = _batch(patches[chosen], place[chosen])
    lacking = budget - place.shape[1]
    if lacking:
        background = np.setdiff1d(np.arange(study.grid.places), prepared.place)
        extra = torch.from_numpy(background)[torch.randperm(len(background), generator=generator)[:lacking]]
        patches = torch.cat([patches, patches.new_zeros(1, lacking, patches.shape[2])], dim=1)
        place = torch.cat([place, extra[None]], dim=1)
    return patches, place


def augment(patches: Float[Tensor, "b p k"], spread: float, generator: torch.Generator) -> Float[Tensor, "b p k"]:
    """A random gain and shift per patient and channel; the background stays exactly zero."""
    shape = (len(patches), 1, len(CHANNELS))
    voxels = patches.shape[2] // len(CHANNELS)
    gain = 1 + spread * torch.randn(shape, generator=generator)
    shift = spread * torch.randn(shape, generator=generator)
    changed = patches * gain.repeat_interleave(voxels, dim=2) + shift.repeat_interleave(voxels, dim=2)
    return torch.where(patches == 0, patches, changed)


def training_batch(patients: Sequence[Patient], study: Study, generator: torch.Generator) -> Batch:
    """Patients read from disk, perhaps mirrored, their tokens drawn, their intensities perhaps changed."""
    loaded = [tokens.load(token_file(study, patient)) for patient in patients]
    most = study.grid.places if study.model.tokens == "all" else max(len(prepared.place) for prepared in loaded)
    budget = min(study.train.token_budget or most, study.grid.places)
    parts = []
    for prepared in loaded:
        mirrored = study.train.mirror and torch.rand((), generator=generator) < 0.5
        parts.append(drawn(tokens.mirror(prepared) if mirrored else prepared, study, budget, generator))
    patches, place = (torch.cat(part) for part in zip(*parts, strict=True))
    return without_scans(augment(patches, study.train.intensity, generator), study.train.modality_dropout, generator), place


def without_scans(patches: Float[Tensor, "b p k"], chance: float, generator: torch.Generator) -> Float[Tensor, "b p k"]:
    """Each patient's scans emptied with that chance each, but for one that always stays (ModDrop: Neverova et al. 2016)."""
    if not chance:
        return patches
    left = torch.rand(len(patches), len(CHANNELS), generator=generator) >= chance
    left[torch.arange(len(patches)), torch.randint(len(CHANNELS), (len(patches),), generator=generator)] = True
    return patches * left.repeat_interleave(patches.shape[2] // len(CHANNELS), dim=1)[:, None]


def mixed(
    patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], alpha: float, generator: torch.Generator
) -> tuple[Float[Tensor, "b p k"], Int[Tensor, "b p"], list[int], float]:
    """Mixup on tokens: each token with its place is its patient's own, or a partner's; also the partners and the own share.

    The share is drawn from Beta(alpha, alpha) (Zhang et al. 2018, arXiv:1710.09412); losses are weighted by it. Tokens of two
    patients are chosen from, not averaged, because theirs lie at different places (as in TokenMix, Liu et al. 2022,
    arXiv:2207.08409). With alpha 0 nothing is mixed and there are no partners.
    """
    if not alpha:
        return patches, place, [], 1.0
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    share = float(np.random.default_rng(seed).beta(alpha, alpha))  # PyTorch's own Beta takes no generator
    partner = torch.randperm(len(patches), generator=generator)
    own = (torch.rand(place.shape, generator=generator) < share).to(place.device)
    other = partner.to(place.device)
    return torch.where(own[..., None], patches, patches[other]), torch.where(own, place, place[other]), partner.tolist(), share
