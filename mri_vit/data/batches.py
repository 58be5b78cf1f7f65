"""From one prepared patient on disk to the tensors that the network reads, and labels. Batches for training are in `store.py`.

Letters: b patients, p tokens of each, k numbers in a patch, c label columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.run import files
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.schema import Study

Inputs = tuple[Float[Tensor, "b p k"], Int[Tensor, "b p"]]


def token_file(study: Study, patient: Patient) -> Path:
    return study.prepared / patient.id / files.TOKENS


def labels(patients: Sequence[Patient], endpoint: Endpoint) -> Float[Tensor, "b c"]:
    """The endpoint's label columns, NaN where missing."""
    return torch.tensor([[p.labels[column] for column in endpoint.columns] for p in patients], dtype=torch.float32)


def everything(prepared: Tokens, study: Study) -> Inputs:
    """One patient as a batch of one with every token that the study's encoder reads."""
    return shown(prepared, study.model.tokens)


def shown(prepared: Tokens, which: Literal["all", "foreground"]) -> Inputs:
    """One patient as a batch of one: every place of the grid, or those that hold brain."""
    patches, place = prepared.patches, prepared.place
    if which == "all":
        patches, place = np.zeros((prepared.grid.places, patches.shape[1]), patches.dtype), np.arange(prepared.grid.places)
        patches[prepared.place] = prepared.patches
    return torch.from_numpy(patches).float()[None], torch.from_numpy(place.astype(np.int64))[None]
