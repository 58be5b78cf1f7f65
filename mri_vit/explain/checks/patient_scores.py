"""The trial of a patient's maps: every method's evidence for and against, as numbers that a report can put together.

Letters: p (in a batch, f) places of the brain that are given, q those after a move.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer

from mri_vit.data import tokens
from mri_vit.data.batches import Batch, everything, token_file
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import read
from mri_vit.explain.checks import sanity
from mri_vit.explain.checks.faithfulness import (
    FRACTIONS,
    RANDOM_ORDERS,
    by_simulation,
    curves,
    energy,
    hit,
    near_tumour,
    order,
    reader,
    similarity,
    tumour_shares,
)
from mri_vit.explain.methods.names import METHODS
from mri_vit.explain.methods.relevance import relevances
from mri_vit.explain.methods.target import Ways, predicted
from mri_vit.model.network import Network
from mri_vit.prepare.prepared import load_record
from mri_vit.settings.schema import Study

SCHEMA = 2  # of scores/<patient>.json
RANDOMISED = 5  # networks of permuted weights: on the demo one alone hits anything from 0.08 to 0.75 of the tumours
ON_TUMOUR = (  # of a row; None without a tumour mask
    "hit",
    "hit_chance",  # exact
    "hit_simulated",
    "hit_randomised",  # of each randomised network, which are the same for a fold's patients
    "energy",
    "tumour_share",  # what energy is by chance, exactly
    "energy_simulated",
    "energy_spread",  # standard deviation of one permutation
    "energy_randomised",
)
DIGITS = 6  # of a number in the file; the last ones depend on the machine

Key = tuple[str, str]  # method and endpoint, "" where the method has none
Maps = dict[Key, Float[np.ndarray, "p"]]
Tumour = tuple[Float[np.ndarray, "p"], Bool[np.ndarray, "p"]]  # each place's share of tumour, and whether a peak there is a hit


@dataclass(frozen=True, eq=False)
class Given:
    """What a network reads of a patient, the indices of the brain's places in it, and these places on the grid."""

    batch: Batch
    brain: Integer[np.ndarray, "f"]
    at: Int[np.ndarray, "f"]


@dataclass(frozen=True, eq=False)
class Witnesses:
    """The networks that a fold's maps are held against; the same for all its patients, so they are built once."""

    fold: int
    net: Network
    folds: tuple[Network, ...]  # of the other folds
    shuffled: Network | None  # trained on shuffled labels
    randomised: tuple[Network, ...]
    cascade: dict[str, Network]


def call(nets: Sequence[Network], fold: int, shuffled: Network | None, seed: int) -> Witnesses:
    """The witnesses for `nets[fold]` among the fold models of one repeat; they hold `RANDOMISED` copies of its weights.

    The networks given are put into evaluation mode: a block that training would drop at random would make a map random.
    """
    for network in (*nets, *([shuffled] if shuffled else [])):
        network.eval()
    net = nets[fold]
    random = tuple(sanity.randomised(net, np.random.default_rng([seed, fold, index])) for index in range(RANDOMISED))
    others = tuple(other for index, other in enumerate(nets) if index != fold)
    return Witnesses(fold, net, others, shuffled, random, sanity.cascade(net, random[0]))


def scores(patient: Patient, witnesses: Witnesses, study: Study) -> dict[str, Any]:
    """How a patient's maps stand trial: the content of `scores/<patient>.json`. What is undefined is None.

    Parameters
    ----------
    patient
        Prepared, and not among those that `witnesses.net` was trained on.
    witnesses
        Of the patient's fold; see `call`.
    study
        Its `explain` section names the methods. Noise and random orders depend on its seed and the patient's id alone.

    Returns
    -------
    dict
        "rows": for each method and endpoint where its peak and its sum lie (`hit`, `energy`, each with what chance gives and
        with those of randomised networks), and rank correlations with the maps of other networks and of changed inputs;
        "curves": deletion and insertion, in the evidence's unit; "cascade": rank correlations while the weights are randomised
        from the heads down; "agreement": rank correlations between methods.
    """
    generator = np.random.default_rng([study.seed, zlib.crc32(patient.id.encode())])
    net, device = witnesses.net, witnesses.net.encoder.cls.device
    prepared = tokens.load(token_file(study, patient))
    given = _given(prepared, study, device)
    patches, place = given.batch
    ways = predicted(net, patches, place)  # every network is asked about the class that this one predicts
    maps = _maps(net, given, study, ways)
    tumour = _tumour(patient, prepared, study, given.at)
    curved = _curves(net, given, maps, study, generator)

    def alike(network: Network) -> dict[Key, float]:
        return _similarities(maps, _maps(network, given, study, ways))

    disturbed = replace(given, batch=(sanity.noisy(patches, generator), place))
    noise = _similarities(maps, _maps(net, disturbed, study, ways))
    moves = [_given(sanity.shifted(prepared, axis), study, device) for axis in sanity.AXES]
    shifts = [_after_shift(maps, given.at, moved.at, _maps(net, moved, study, ways)) for moved in moves]
    folds = [alike(network) for network in witnesses.folds]
    shuffled = [alike(witnesses.shuffled)] if witnesses.shuffled else []
    random = [_maps(network, given, study, ways) for network in witnesses.randomised]
    *stages, last = witnesses.cascade
    steps = {stage: alike(witnesses.cascade[stage]) for stage in stages} | {last: _similarities(maps, random[0])}
    about = {
        key: {
            **_on_tumour(relevance, tumour, [other[key] for other in random], generator),
            "shuffled": _written(_mean(found.get(key, math.nan) for found in shuffled)),
            "folds": _written(_mean(found.get(key, math.nan) for found in folds)),
            "noise": _written(noise[key]),
            "shift": _written(_mean(found[key] for found in shifts)),
        }
        for key, relevance in maps.items()
    }
    charges = [(endpoint, method) for endpoint in net.head for method in study.explain.methods]
    return {
        "schema": SCHEMA,
        "patient": patient.id,
        "subject": patient.subject,
        "fold": witnesses.fold,
        "settings": study.explain.of_maps,
        "rows": [{"method": method, "endpoint": endpoint, **about[_key(method, endpoint)]} for endpoint, method in charges],
        "curves": curved,
        "cascade": [
            {"method": method, "endpoint": endpoint, "stage": stage, "similarity": _written(found[_key(method, endpoint)])}
            for endpoint, method in charges
            for stage, found in steps.items()
        ],
        "agreement": [
            {
                "endpoint": endpoint,
                "method": one,
                "other": other,
                "similarity": _written(similarity(maps[_key(one, endpoint)], maps[_key(other, endpoint)])),
            }
            for endpoint in net.head
            for one, other in combinations(study.explain.methods, 2)
        ],
    }


def _given(prepared: tokens.Tokens, study: Study, device: torch.device) -> Given:
    """What the network reads of a patient; a network on all places reads air as well, on which no map is judged."""
    patches, place = everything(prepared, study)
    brain = np.flatnonzero(np.isin(place[0].numpy(), prepared.place))
    return Given((patches.to(device), place.to(device)), brain, place[0].numpy()[brain])


def _key(method: str, endpoint: str) -> Key:
    return method, endpoint if METHODS[method].per_endpoint else ""


def _maps(net: Network, given: Given, study: Study, ways: Ways) -> Maps:
    """One patient's maps by one network, on the brain's places."""
    found = relevances(net, *given.batch, study.explain.methods, ways)
    return {key: relevance[0].detach().cpu().numpy()[given.brain] for key, relevance in found.items()}


def _tumour(patient: Patient, prepared: tokens.Tokens, study: Study, at: Int[np.ndarray, "p"]) -> Tumour | None:
    """On the brain's places; None without a mask, or when none of it lies in the prepared brain."""
    if patient.tumour_mask is None:
        return None
    to_grid = np.array(load_record(study.prepared / patient.id)["t1ce_to_grid"])
    share = tumour_shares(read(patient.tumour_mask), to_grid, prepared)
    return (share[at], near_tumour(share, study.grid)[at]) if share[at].any() else None


def _on_tumour(
    relevance: Float[np.ndarray, "p"],
    tumour: Tumour | None,
    random: Sequence[Float[np.ndarray, "p"]],
    generator: np.random.Generator,
) -> dict[str, float | list[float | None] | None]:
    """Hit and energy with their chance: exact, by simulation, and of each randomised network."""
    if tumour is None:
        return dict.fromkeys(ON_TUMOUR)
    share, near = tumour
    chance = by_simulation(relevance, share, near, generator)
    figures = (
        _written(hit(relevance, near)),
        _written(float(near.mean())),
        _written(chance.hit),
        [_written(hit(other, near)) for other in random],
        _written(energy(relevance, share)),
        _written(float(share.mean())),
        _written(chance.energy),
        _written(chance.energy_spread),
        [_written(energy(other, share)) for other in random],
    )
    return dict(zip(ON_TUMOUR, figures, strict=True))


def _similarities(maps: Maps, others: Maps) -> dict[Key, float]:
    """Of the maps that both have: a head that one fold could not learn has no map there."""
    return {key: similarity(relevance, others[key]) for key, relevance in maps.items() if key in others}


def _after_shift(
    maps: Maps, at: Int[np.ndarray, "p"], moved: Int[np.ndarray, "q"], others: dict[Key, Float[np.ndarray, "q"]]
) -> dict[Key, float]:
    """Compared on the places that both have: at its border a brain that moved leaves some and reaches others."""
    _, before, after = np.intersect1d(at, moved, return_indices=True)
    return _similarities(
        {key: relevance[before] for key, relevance in maps.items()}, {key: other[after] for key, other in others.items()}
    )


def _curves(net: Network, given: Given, maps: Maps, study: Study, generator: np.random.Generator) -> list[dict[str, Any]]:
    """Of every map, each endpoint's own alone, and of random orders, which are the same for all methods."""
    patches, place = given.batch
    random = [generator.permutation(len(given.brain)) for _ in range(RANDOM_ORDERS)]
    keys = list(maps)
    orders = [*random, *(order(maps[key], generator) for key in keys)]
    found = curves(reader(net, patches, place, given.brain), torch.from_numpy(np.stack(orders)).to(place.device))
    rows = []
    for (endpoint, way), values in found.items():
        by_method = {"random": values[:RANDOM_ORDERS].mean(axis=0)}
        by_method |= {method: values[RANDOM_ORDERS + keys.index(_key(method, endpoint))] for method in study.explain.methods}
        for method, value in by_method.items():
            rows.append(
                {
                    "method": method,
                    "endpoint": endpoint,
                    "order": way,
                    "fraction": list(FRACTIONS),
                    "value": [_written(float(number)) for number in value],
                }
            )
    return rows


def _mean(values: Iterable[float]) -> float:
    """Of those that are defined; NaN when none is."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _written(value: float) -> float | None:
    """A number as it stands in the file."""
    return None if math.isnan(value) else round(value, DIGITS)
