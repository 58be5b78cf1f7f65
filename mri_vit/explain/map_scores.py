"""The scores of a patient's maps, as a record that a report can summarise.

Letters: p (in a batch, f) grid positions of the brain that are given, q those after a translation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from mri_vit.explain import faithfulness
from mri_vit.explain.faithfulness import (
    FRACTIONS,
    RANDOM_ORDERS,
    ReferenceNetworks,
    by_simulation,
    curves,
    energy,
    hit,
    near_tumour,
    order,
    reader,
    similarity,
)
from mri_vit.explain.methods import patient_maps
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.methods.patient_maps import Key, NetworkInput, PatientMaps
from mri_vit.explain.outputs.records import SCORE_SCHEMA, Agreement, CascadeStep, Curve, ScoreRecord, ScoreRow
from mri_vit.model.network import Network
from mri_vit.prepare.prepared import reference_to_grid
from mri_vit.prepare.tumour import tumour_shares
from mri_vit.settings.schema import Study

# Of a row, in its order; None without a tumour mask.
ON_TUMOUR = (
    "hit", "hit_chance", "hit_simulated", "hit_randomised",
    "energy", "tumour_share", "energy_simulated", "energy_spread", "energy_randomised",
)  # fmt: skip
STORED_DIGITS = 6  # of a number in the file; the last ones depend on the machine

Maps = dict[Key, Float[np.ndarray, "p"]]
Similarities = dict[Key, float]  # rank correlations with another network's or input's maps
# Each position's share of tumour, and whether a peak there is a hit.
Tumour = tuple[Float[np.ndarray, "p"], Bool[np.ndarray, "p"]]


def scores(made: PatientMaps, references: ReferenceNetworks, study: Study) -> ScoreRecord:
    """The evaluation of a patient's maps: the content of `scores/<patient>.json`. What is undefined is None.

    `made` are the maps of the fold's network, which was not trained on the patient; every reference network's maps explain the
    same classes. Noise and random orders depend on the study's seed and the patient's id alone.

    `rows`: for each method and endpoint where its peak and its sum lie (`hit`, `energy`, each with chance and with those of
    randomised networks), and rank correlations with the maps of other networks and of changed inputs; `curves`: deletion and
    insertion, in the evidence's unit; `cascade`: rank correlations while the weights are randomised from the heads down;
    `agreement`: rank correlations between methods.
    """
    patient, methods, own, (patches, position) = made.patient, study.explain.methods, made.input, made.input.batch
    generator = np.random.default_rng([study.seed, zlib.crc32(patient.id.encode())])
    maps = patient_maps.on_brain(made.value, own)

    def maps_of(network: Network, read: NetworkInput = own) -> Maps:
        return patient_maps.on_brain(patient_maps.make(network, *read.batch, methods, made.questions).value, read)

    drawn = _curves(made, maps, methods, generator)  # first, then noise, then rows: all draw from the one generator
    noise = _similarities(maps, maps_of(made.net, replace(own, batch=(faithfulness.noisy(patches, generator), position))))
    shifts = []
    for axis in faithfulness.AXES:
        shifted = patient_maps.network_input(faithfulness.shifted(made.prepared, axis), study, patches.device)
        # Compared on the positions that both have: at its border a shifted brain leaves some and reaches others.
        _, before, after = np.intersect1d(own.at, shifted.at, return_indices=True)
        others = {key: other[after] for key, other in maps_of(made.net, shifted).items()}
        shifts.append(_similarities({key: relevance[before] for key, relevance in maps.items()}, others))
    randomised = [maps_of(network) for network in references.randomised]
    *stages, last = references.cascade  # the last stage is the first of the randomised networks
    cascade = {stage: _similarities(maps, maps_of(references.cascade[stage])) for stage in stages}
    cascade[last] = _similarities(maps, randomised[0])
    shuffled = [_similarities(maps, maps_of(references.shuffled))] if references.shuffled else []
    folds = [_similarities(maps, maps_of(network)) for network in references.folds]
    tumour = _tumour(made, study)
    rows = {
        key: ScoreRow(
            *key,
            **_on_tumour(relevance, tumour, [other[key] for other in randomised], generator),
            shuffled=_written(_mean(similar.get(key, math.nan) for similar in shuffled)),
            folds=_written(_mean(similar.get(key, math.nan) for similar in folds)),
            noise=_written(noise[key]),
            shift=_written(_mean(similar[key] for similar in shifts)),
        )
        for key, relevance in maps.items()
    }
    pairs = [(endpoint, method) for endpoint in made.net.head for method in methods]
    return ScoreRecord(
        schema=SCORE_SCHEMA,
        patient=patient.id,
        subject=patient.subject,
        fold=references.fold,
        settings=study.explain.of_maps,
        rows=[replace(rows[_key(method, endpoint)], endpoint=endpoint) for endpoint, method in pairs],
        curves=drawn,
        cascade=[
            CascadeStep(method, endpoint, stage, _written(similar[_key(method, endpoint)]))
            for endpoint, method in pairs
            for stage, similar in cascade.items()
        ],
        agreement=[
            Agreement(endpoint, first, other, _written(similarity(maps[_key(first, endpoint)], maps[_key(other, endpoint)])))
            for endpoint in made.net.head
            for first, other in combinations(methods, 2)
        ],
    )


def _key(method: str, endpoint: str) -> Key:
    return method, endpoint if METHODS[method].per_endpoint else ""


def _tumour(made: PatientMaps, study: Study) -> Tumour | None:
    """On the brain's grid positions; None without a mask, or when none of it lies in the prepared brain."""
    if made.tumour is None:
        return None
    at, to_grid = made.input.at, reference_to_grid(study.prepared / made.patient.id)
    share = tumour_shares(made.tumour, to_grid, made.prepared)
    return (share[at], near_tumour(share, study.grid)[at]) if share[at].any() else None


def _on_tumour(
    relevance: Float[np.ndarray, "p"],
    tumour: Tumour | None,
    randomised: Sequence[Float[np.ndarray, "p"]],
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Hit and energy with their chance: exact, by simulation, and of each randomised network."""
    if tumour is None:
        return dict.fromkeys(ON_TUMOUR)
    share, near = tumour
    chance = by_simulation(relevance, share, near, generator)
    figures = (
        _written(hit(relevance, near)),
        _written(float(near.mean())),
        _written(chance.hit),
        [_written(hit(other, near)) for other in randomised],
        _written(energy(relevance, share)),
        _written(float(share.mean())),
        _written(chance.energy),
        _written(chance.energy_spread),
        [_written(energy(other, share)) for other in randomised],
    )
    return dict(zip(ON_TUMOUR, figures, strict=True))


def _similarities(maps: Maps, others: Maps) -> Similarities:
    """Of the maps that both have: a head that one fold could not learn has no map there."""
    return {key: similarity(relevance, others[key]) for key, relevance in maps.items() if key in others}


def _curves(made: PatientMaps, maps: Maps, methods: Sequence[str], generator: np.random.Generator) -> list[Curve]:
    """Deletion and insertion of every map, and of random orders, which are the same for all methods."""
    (patches, position), brain = made.input.batch, made.input.brain
    random = [generator.permutation(len(brain)) for _ in range(RANDOM_ORDERS)]
    keys = list(maps)
    orders = torch.from_numpy(np.stack([*random, *(order(maps[key], generator) for key in keys)]))
    by_change = curves(reader(made.net, patches, position, brain, made.questions), orders.to(position.device))
    rows = []
    for (endpoint, change), values in by_change.items():
        by_method = {"random": values[:RANDOM_ORDERS].mean(axis=0)}
        by_method |= {method: values[RANDOM_ORDERS + keys.index(_key(method, endpoint))] for method in methods}
        for method, value in by_method.items():
            rows.append(Curve(method, endpoint, change, list(FRACTIONS), [_written(float(number)) for number in value]))
    return rows


def _mean(values: Iterable[float]) -> float:
    """Of those that are defined; NaN when none is."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _written(value: float) -> float | None:
    """A number as it stands in the file."""
    return None if math.isnan(value) else round(value, STORED_DIGITS)
