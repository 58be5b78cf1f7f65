"""Can a map be believed: what its places are worth to the model, and whether they lie on the tumour. Arrays in, numbers out.

Letters: p places that are given, o orders of these places, q places that are kept, f fractions, s places along the grid's edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from scipy.ndimage import maximum_filter
from scipy.stats import rankdata
from torch import Tensor

from mri_vit.explain.methods.target import TargetSigns, cls, evidences, in_air, predicted
from mri_vit.model.encoder import Encoder
from mri_vit.model.network import Network
from mri_vit.settings.sections import Grid

FRACTIONS = tuple(step / 8 for step in range(9))  # eighths: sixteenths move the demo's areas by 5 %, for twice the time
RANDOM_ORDERS = 4  # their mean is the curve that a map must beat: its error is half of one order's
TOKENS_AT_ONCE = 4096  # of one forward pass: ViT-B's hidden layer then holds 50 MB; more is no faster on a CPU
HIT_MARGIN_PLACES = 1  # places, along each axis: a peak counts as on the tumour up to one place (16 mm) from it, as patches blur
PERMUTATIONS = 200  # permutations of a simulation: the error of its mean is 1/14 of one permutation's spread

Evidence = Callable[[Int[Tensor, "o q"]], dict[str, Float[Tensor, "o"]]]  # kept places, as indices -> by endpoint


@dataclass(frozen=True)
class Chance:
    """What a map would score if its values lay anywhere: means over permutations, and the spread of one permutation."""

    hit: float
    energy: float
    energy_spread: float


# --- what the places are worth to the model --------------------------------------------------------------------------------


def reader(
    net: Network,
    patches: Float[Tensor, "1 n k"],
    place: Int[Tensor, "1 n"],
    brain: Integer[np.ndarray, "p"] | None = None,
    signs: TargetSigns | None = None,
) -> Evidence:
    """What the network says of one patient when only some places are given: the evidence for what it predicts from all.

    `brain` are the indices of the places that may be left out, all where not given: a network on all places always keeps
    its air, which no map is judged on. `signs` are its predictions from all places, where they are known already.

    Tokens are left out, not replaced by grey: each keeps its position, and nothing is invented in their place. A network of
    volumes is given air instead, see `occlusion_by_air`.
    The evidence is times its direction on all places, so that less of it always means a weaker prediction.
    """
    sign = predicted(net, patches, place, signs)
    free = (torch.arange(place.shape[1]) if brain is None else torch.from_numpy(brain)).to(place.device)
    if not isinstance(net.encoder, Encoder):
        always = torch.ones_like(place, dtype=torch.bool).index_fill_(1, free, False)

        def in_volume(kept: Int[Tensor, "o q"]) -> dict[str, Float[Tensor, "o"]]:
            given = always.repeat(len(kept), 1).scatter_(1, free[kept], True)
            return {endpoint: sign[endpoint] * value for endpoint, value in in_air(net, patches[0], place[0], given).items()}

        return in_volume
    with torch.no_grad():
        x = net.encoder.tokens(patches, place)[0]
    # Row 0 of x is CLS.
    fixed = torch.ones(len(x), dtype=torch.bool, device=place.device).index_fill_(0, free + 1, False).nonzero()[:, 0]

    @torch.no_grad()
    def evidence(kept: Int[Tensor, "o q"]) -> dict[str, Float[Tensor, "o"]]:
        rows = torch.cat([fixed.expand(len(kept), -1), free[kept] + 1], dim=1)
        parts = rows.split(max(1, TOKENS_AT_ONCE // rows.shape[1]))
        values = evidences(net, torch.cat([cls(net.encoder, x[part]) for part in parts]))
        return {endpoint: sign[endpoint] * value for endpoint, value in values.items()}

    return evidence


def order(relevance: Float[np.ndarray, "p"], generator: np.random.Generator) -> Integer[np.ndarray, "p"]:
    """Indices from the most to the least relevant place; equal ones in random order, because neighbours share more than rank."""
    mixed = generator.permutation(len(relevance))
    return mixed[np.argsort(-relevance[mixed], kind="stable")]


def curves(evidence: Evidence, orders: Int[Tensor, "o p"]) -> dict[tuple[str, str], Float[np.ndarray, "o f"]]:
    """Deletion and insertion curves of each order of places (most relevant first), by endpoint and "deletion" or "insertion".

    Definition: at a fraction x of `FRACTIONS`, deletion has left out the first x·p places of the order, insertion has given
    only these. The value is the evidence less that of all places: 0 at deletion's start and at insertion's end.
    A map is faithful when deletion falls early (a low area) and insertion rises early (a high one), each against random orders.
    Assumption: the network can read an incomplete set of places; it was trained on random draws where `token_budget` is set. A
    network of volumes was not, and to it the holes of a random order, which are many, may be more foreign than a map's.
    Source: Petsiuk et al. 2018 (RISE), arXiv:1806.07421, on tokens left out instead of pixels painted over.

    Returns
    -------
    Arrays in the evidence's unit (log odds, or the risk's), a row per order, a column per fraction.
    """
    places = orders.shape[1]
    full, empty = evidence(orders[:1]), evidence(orders[:1, :0])
    values: dict[tuple[str, str], list[Tensor]] = {}
    for fraction in FRACTIONS:
        cut = round(fraction * places)
        for change, kept in (("deletion", orders[:, cut:]), ("insertion", orders[:, :cut])):
            by_endpoint = full if kept.shape[1] == places else empty if kept.shape[1] == 0 else evidence(kept)
            for endpoint, value in by_endpoint.items():
                values.setdefault((endpoint, change), []).append((value - full[endpoint]).expand(len(orders)))
    return {key: torch.stack(columns, dim=1).cpu().numpy() for key, columns in values.items()}


# --- whether they lie on the tumour ----------------------------------------------------------------------------------------


def near_tumour(share: Float[np.ndarray, "places"], grid: Grid) -> Bool[np.ndarray, "places"]:
    """Places that hold tumour, or are `HIT_MARGIN_PLACES` one that does along every axis."""
    holds = (share > 0).reshape(grid.side, grid.side, grid.side)
    return maximum_filter(holds, size=2 * HIT_MARGIN_PLACES + 1, mode="constant").ravel()


def hit(relevance: Float[np.ndarray, "p"], near: Bool[np.ndarray, "p"]) -> float:
    """The pointing game: 1 when the map's peak is on the tumour or within one place of it, else 0; NaN without a peak.

    By chance it is 1 with a probability of `near.mean()`: the share of the places where a peak would count.
    Source: Zhang et al. 2018, doi:10.1007/s11263-017-1059-x (there with a margin of 15 pixels).
    """
    if relevance.min() == relevance.max():
        return math.nan
    return float(near[relevance.argmax()])


def energy(relevance: Float[np.ndarray, "p"], share: Float[np.ndarray, "p"]) -> float:
    """The share of the map's sum that lies in the tumour; NaN of a map that is 0 everywhere.

    Formula: Σ rᵢ·tᵢ / Σ rᵢ with t the tumour's share of a place's brain. The uniform map, and by chance any map, has
    `share.mean()`.
    Assumption: within a place the map is even, so a place half in the tumour gives it half its value.
    Source: energy-based pointing game, Wang et al. 2020 (Score-CAM), arXiv:1910.01279.
    """
    total = float(relevance.sum(dtype=np.float64))
    return float((relevance * share).sum(dtype=np.float64)) / total if total > 0 else math.nan


def by_simulation(
    relevance: Float[np.ndarray, "p"],
    share: Float[np.ndarray, "p"],
    near: Bool[np.ndarray, "p"],
    generator: np.random.Generator,
    draws: int = PERMUTATIONS,
) -> Chance:
    """Hit and energy of the same values in random order over the places, many times; its means stand beside the exact ones.

    Definition: the map's values are permuted over the given places; hit and energy are computed on each permutation.
    Assumption: places are exchangeable. A map that is smooth in space varies more than this, around the same mean.
    """
    if relevance.min() == relevance.max():  # as `hit` and `energy`: no peak, but a sum if it is not 0
        return Chance(math.nan, energy(relevance, share), 0.0)
    permuted = generator.permuted(np.tile(relevance, (draws, 1)), axis=1)
    energies = permuted @ share / relevance.sum()
    return Chance(float(near[permuted.argmax(axis=1)].mean()), float(energies.mean()), float(energies.std()))


# --- whether two maps are alike --------------------------------------------------------------------------------------------


def similarity(first: Float[np.ndarray, "p"], second: Float[np.ndarray, "p"]) -> float:
    """Spearman's rank correlation of two maps over the same places: 1 the same order, 0 unrelated; NaN when one is constant.

    Assumption: none about scale; every place counts alike, also the many of little relevance.
    Source: Adebayo et al. 2018, arXiv:1810.03292, compare maps by it.
    """
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    norm = math.sqrt(float((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / norm if norm > 0 else math.nan
