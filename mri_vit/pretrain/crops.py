"""Parts of patients: some tokens at random, or a crop, which is a box of places; mirrored, intensities changed.

Letters: p tokens that are chosen, f foreground places of a patient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from mri_vit.data.draw import Draw, augmented, plain
from mri_vit.settings.schema import Study

STRETCH = 4 / 3  # of a box's edges against each other, at most: the usual limits of aspect are 3/4 to 4/3 (Szegedy et al. 2015)


@dataclass(frozen=True, eq=False)
class Member:
    """One patient of a batch: an index into the store's patients, where the patches lie, and the random stream of this turn."""

    patient: int
    place: Int[np.ndarray, " f"]
    random: np.random.Generator


def box(member: Member, side: int, count: int) -> Int[np.ndarray, " p"]:
    """Indices of the `count` tokens within a random box of places, its edges along the axes of a grid of side³ places.

    The box grows around a random point near one of the brain's places until it holds `count` places of the brain; of the
    face that comes last, as many at random as are lacking. So every crop holds exactly as many as are asked for, and those
    of several patients make one batch.

    Raises ValueError when the patient has fewer tokens.
    """
    place, random = member.place, member.random
    if count > len(place):
        raise ValueError(f"found {len(place)} tokens; {count} are asked for")
    at = np.stack(np.unravel_index(place.astype(np.int64), (side,) * 3), axis=1)  # (f, 3)
    chosen = random.integers(len(at))
    jitter, stretch = random.random((2, 3))
    centre = at[chosen] + jitter - 0.5  # off the lattice, so that no two faces come at once
    edge = STRETCH ** (stretch - 0.5)  # of the box along each axis; the longest is at most STRETCH times the shortest
    distance = (np.abs(at - centre) / edge).max(axis=1)  # a box is a ball of this norm
    last = np.partition(distance, count - 1)[count - 1]
    inside, face = np.flatnonzero(distance < last), np.flatnonzero(distance == last)
    return np.concatenate([inside, random.permutation(face)[: count - len(inside)]])


def scattered(member: Member, count: int) -> Int[np.ndarray, " p"]:
    """Indices of `count` tokens drawn from the whole brain, in random order."""
    return member.random.permutation(len(member.place))[:count]


def view(member: Member, chosen: Int[np.ndarray, " p"], study: Study) -> Draw:
    """The chosen tokens of one patient, perhaps mirrored, intensities perhaps changed."""
    own = plain(member.patient, chosen, member.place[chosen].astype(np.int64), len(study.channels))
    return augmented(own, study, member.random)
