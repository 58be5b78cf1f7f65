"""Parts of patients as batches: some tokens at random, or a crop, which is a box of places; mirrored, intensities changed.

Letters: b patients, p tokens of each, k numbers in a patch, f foreground places of a patient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.batches import Batch, augment
from mri_vit.data.tokens import Tokens
from mri_vit.settings.schema import Study

STRETCH = 4 / 3  # of a box's edges against each other, at most: the usual limits of aspect are 3/4 to 4/3 (Szegedy et al. 2015)


def box(patient: Tokens, count: int, generator: torch.Generator) -> Int[np.ndarray, " p"]:
    """Indices of the `count` tokens within a random box of places, its edges along the grid's axes.

    The box grows around a random point near one of the brain's places until it holds `count` places of the brain; of the
    face that comes last, as many at random as are lacking. So every crop holds exactly as many as are asked for, and those
    of several patients make one batch.

    Raises ValueError when the patient has fewer tokens.
    """
    if count > len(patient.place):
        raise ValueError(f"found {len(patient.place)} tokens; {count} are asked for")
    side = patient.grid.side
    at = np.stack(np.unravel_index(patient.place.astype(np.int64), (side,) * 3), axis=1)  # (f, 3)
    chosen = int(torch.randint(len(at), (), generator=generator))
    jitter, stretch = torch.rand(2, 3, generator=generator, dtype=torch.float64).numpy()
    centre = at[chosen] + jitter - 0.5  # off the lattice, so that no two faces come at once
    edge = STRETCH ** (stretch - 0.5)  # of the box along each axis; the longest is at most STRETCH times the shortest
    distance = (np.abs(at - centre) / edge).max(axis=1)  # a box is a ball of this norm
    last = np.partition(distance, count - 1)[count - 1]
    inside, face = np.flatnonzero(distance < last), np.flatnonzero(distance == last)
    some = torch.randperm(len(face), generator=generator)[: count - len(inside)].numpy()
    return np.concatenate([inside, face[some]])


def thinned(chosen: Int[np.ndarray, " p"], most: int, generator: torch.Generator) -> Int[np.ndarray, " _"]:
    """At most `most` of the chosen tokens, drawn at random."""
    return chosen[torch.randperm(len(chosen), generator=generator)[:most].numpy()]


def scattered(patient: Tokens, count: int, generator: torch.Generator) -> Int[np.ndarray, " p"]:
    """Indices of `count` tokens drawn from the whole brain, in random order."""
    return torch.randperm(len(patient.place), generator=generator)[:count].numpy()


def view(patients: Sequence[Tokens], chosen: Sequence[Int[np.ndarray, " p"]], study: Study, generator: torch.Generator) -> Batch:
    """The chosen tokens of each patient as one batch, each patient perhaps mirrored, its intensities perhaps changed."""
    mirrored = torch.rand(len(patients), generator=generator) < (0.5 if study.train.mirror else 0)
    parts = [
        tokens.mirror(part) if flip else part
        for part, flip in zip((taken(*pair) for pair in zip(patients, chosen, strict=True)), mirrored.tolist(), strict=True)
    ]
    patches, place = stacked(parts)
    return augment(patches, study.train.intensity, generator), place


def taken(patient: Tokens, chosen: Int[np.ndarray, " p"]) -> Tokens:
    """The patient with the chosen tokens alone, in the order chosen; places stay the true ones."""
    return replace(patient, patches=patient.patches[chosen], place=patient.place[chosen])


def stacked(parts: Sequence[Tokens]) -> tuple[Float[Tensor, "b p k"], Int[Tensor, "b p"]]:
    """Patients with equally many tokens as a batch."""
    patches = torch.stack([torch.from_numpy(part.patches) for part in parts]).float()
    return patches, torch.from_numpy(np.stack([part.place for part in parts]).astype(np.int64))
