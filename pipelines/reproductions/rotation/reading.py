"""Reading: a network and a patient as seen, turned or not, go in; scores and maps come out, the maps on the patient's own voxels.

Whatever was turned, a reading knows the 4×4 from the patient's own space, as it was scanned, to the grid that the network read.
So every map is laid on the same voxels of the patient's own reference scan, turned back without another interpolation.

Letters: x y z voxels of the reference scan on which maps are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume
from mri_vit.explain.faithfulness import energy, hit, near_tumour, similarity
from mri_vit.explain.methods import patient_maps
from mri_vit.explain.methods.target import Questions, cls, evidences, predicted
from mri_vit.explain.outputs import map_files
from mri_vit.model.network import Network
from mri_vit.prepare.tumour import tumour_shares
from mri_vit.settings.schema import Study
from reproductions.rotation import rotated

METHODS = ("rollout", "gradient_attention")  # the map of the encoder, and the one of each endpoint
SCANNED, ANOTHER = "scanned", "another patient"  # roads of rows: the patient as scanned; another in their place
COMPARED_MM = 4.0  # between two voxels on which maps are compared: a quarter of a place of 16 mm, so that nothing is missed
HOTTEST = 0.05  # of the voxels make the hot spot: of a brain of 1300 ml a ball of 5 cm, which one place of 4 ml cannot move far


@dataclass(frozen=True)
class Score:
    """What the network said of one endpoint: the log odds of 1, or the risk."""

    road: str
    axis: str
    degrees: float
    endpoint: str
    evidence: float


@dataclass(frozen=True)
class Map:
    """A map against that of the patient as scanned; NaN for what is undefined."""

    road: str
    axis: str
    degrees: float
    method: str
    endpoint: str  # "" where the map is the same for every endpoint
    similarity: float  # rank correlation over the voxels that are brain in both
    hot_spot_mm: float  # between the middles of their highest voxels
    peak_mm: float  # between their highest voxels
    hit: float  # whether the peak is on the tumour
    energy: float  # share of the map in the tumour
    energy_chance: float


@dataclass(frozen=True, eq=False)
class Seen:
    """A prepared patient as the network reads it, and the 4×4 from the patient's own space as scanned to its grid, RAS+ mm."""

    prepared: Tokens
    to_grid: Float[np.ndarray, "4 4"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A patient as scanned, by the network that was not trained on them; `study` asks for the methods that are compared."""

    patient: Patient
    net: Network
    study: Study
    seen: Seen
    to_grid: dict[str, Float[np.ndarray, "4 4"]]  # by scan
    reference: Volume
    flags: frozenset[str]
    tumour: Volume | None


@dataclass(frozen=True, eq=False)
class Reading:
    """What the network said, and each map on voxels of the patient's own reference scan; 0 outside `inside`."""

    evidence: dict[str, float]
    inside: Bool[np.ndarray, "x y z"]
    affine: Float[np.ndarray, "4 4"]
    maps: dict[patient_maps.Key, Float[np.ndarray, "x y z"]]
    on_tumour: dict[patient_maps.Key, tuple[float, float, float]]  # hit, energy, and the energy of an even map


def reading(of: Subject, seen: Seen, questions: Questions | None) -> Reading:
    """What the network says of a patient as seen; `questions` are what maps explain, without them the prediction."""
    given, grid = given_of(of, seen), of.study.grid
    with torch.no_grad():
        said = evidences(of.net, cls(of.net.encoder, of.net.encoder.tokens(*given.batch)))
    questions = predicted(of.net, *given.batch) if questions is None else questions
    values = patient_maps.on_brain(patient_maps.make(of.net, *given.batch, of.study.explain.methods, questions).value, given)
    steps = [max(1, round(COMPARED_MM / mm)) for mm in of.reference.spacing_mm]
    x, y, z = (math.ceil(voxels / step) for voxels, step in zip(of.reference.shape, steps, strict=True))
    brain = (tokens.to_volume(seen.prepared) != 0).any(axis=0)
    space = map_files.space((x, y, z), of.reference.affine @ np.diag([*steps, 1]), seen.to_grid, brain, given.at, grid)
    return Reading(
        {endpoint: float(value[0]) for endpoint, value in said.items()},
        space.inside,
        space.affine,
        {key: map_files.on_scan(value, space).array for key, value in values.items()},
        _on_tumour(of, seen, given, values),
    )


def given_of(of: Subject, seen: Seen) -> patient_maps.NetworkInput:
    """What the network reads of a patient as seen."""
    return patient_maps.network_input(seen.prepared, of.study, of.net.encoder.cls.device)


def _on_tumour(
    of: Subject, seen: Seen, given: patient_maps.NetworkInput, values: dict[patient_maps.Key, np.ndarray]
) -> dict[patient_maps.Key, tuple[float, float, float]]:
    """Of each map, on the places that were read; nothing without a tumour mask in the brain."""
    if of.tumour is None:
        return {}
    share = tumour_shares(of.tumour, seen.to_grid, seen.prepared)
    near, share = near_tumour(share, of.study.grid)[given.at], share[given.at]
    if not share.any():
        return {}
    return {key: (hit(value, near), energy(value, share), float(share.mean())) for key, value in values.items()}


def said(road: str, axis: str, degrees: float, first: Reading, now: Reading) -> Iterator[Score | Map]:
    """Scores, and maps against the `first` ones, as rows."""
    for endpoint, evidence in now.evidence.items():
        yield Score(road, axis, degrees, endpoint, evidence)
    both = first.inside & now.inside
    for (method, endpoint), array in now.maps.items():
        before, none = first.maps[method, endpoint], (math.nan,) * 3
        alike = similarity(before[both], array[both]) if both.any() else math.nan
        apart = [
            float(np.linalg.norm(where(before, first) - where(array, now)))
            for where in (_hot_spot_mm, _peak_mm)
        ]  # fmt: skip
        on_tumour = none if road == ANOTHER else now.on_tumour.get((method, endpoint), none)  # the mask is this patient's
        yield Map(road, axis, degrees, method, endpoint, alike, *apart, *on_tumour)


def _hot_spot_mm(array: Float[np.ndarray, "x y z"], of: Reading) -> Float[np.ndarray, "3"]:
    """The middle of a map's highest voxels."""
    values = array[of.inside]
    if not values.size or values.min() == values.max():
        return np.full(3, math.nan)
    high = np.argwhere(of.inside & (array >= np.quantile(values, 1 - HOTTEST)))
    return rotated.carried(of.affine, high.mean(axis=0)[None])[0]


def _peak_mm(array: Float[np.ndarray, "x y z"], of: Reading) -> Float[np.ndarray, "3"]:
    """A map's highest voxel."""
    values = array[of.inside]
    if not values.size or values.min() == values.max():
        return np.full(3, math.nan)
    at = np.argwhere(of.inside)[values.argmax()]
    return rotated.carried(of.affine, at[None].astype(float))[0]
