"""Can a map be believed: what its grid positions are worth to the model, whether they lie on the tumour, and whether the map
changes as it should with the network and with the input.

A map that stays when the network is destroyed shows the scan and not the network (Adebayo et al. 2018, arXiv:1810.03292); a map
that changes when the scan hardly does shows chance.

Letters: b patients, p grid positions that are given, o orders of these, q positions that are kept, f fractions, k numbers in a
patch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from scipy.ndimage import maximum_filter
from scipy.stats import rankdata
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.tokens import Tokens
from mri_vit.explain.methods.target import Questions, cls, in_air, predicted, targets
from mri_vit.model.encoder import Encoder
from mri_vit.model.network import Network
from mri_vit.settings.sections import Grid

FRACTIONS = tuple(step / 8 for step in range(9))  # eighths: sixteenths move the demo's areas by 5 %, for twice the time
RANDOM_ORDERS = 4  # their mean is the curve that a map must beat: its error is half of one order's
TOKENS_AT_ONCE = 4096  # of one forward pass: ViT-B's hidden layer then holds 50 MB; more is no faster on a CPU
HIT_MARGIN_PLACES = 1  # grid positions (16 mm), along each axis: a peak this near counts as on the tumour, as patches blur
PERMUTATIONS = 200  # permutations of a simulation: the error of its mean is 1/14 of one permutation's spread

NOISE_SD = 0.05  # standard deviations of the brain's values: a reader of the scan would not see it
RANDOMISED_NETWORKS = 5  # networks of permuted weights: on the demo one alone hits anything from 0.08 to 0.75 of the tumours
AXES = (0, 1, 2)  # to the right, to the front, to the top: the three opposite directions are the same test mirrored

Evidence = Callable[[Int[Tensor, "o q"]], dict[str, Float[Tensor, "o"]]]  # kept positions, as indices -> by endpoint


@dataclass(frozen=True)
class Chance:
    """What a map would score if its values lay anywhere: means over permutations, and the spread of one permutation."""

    hit: float
    energy: float
    energy_spread: float


# --- what the positions are worth to the model -----------------------------------------------------------------------------


def reader(
    net: Network,
    patches: Float[Tensor, "1 n k"],
    position: Int[Tensor, "1 n"],
    brain: Integer[np.ndarray, "p"] | None = None,
    questions: Questions | None = None,
) -> Evidence:
    """The network's evidence in one patient when only some grid positions are given, for what it predicts from all of them.

    `brain` are the indices of the positions that may be left out, by default all: a network on all positions always keeps its
    air, on which no map is judged. `questions` are its predictions from all positions, where they are known already.

    Tokens are left out, not replaced by grey: each keeps its position, and nothing is invented in their place. A network of
    volumes is given air instead, see `occlusion_by_air`.
    The evidence is that for what is predicted on all positions, so that less of it always means a weaker prediction.
    """
    asked = predicted(net, patches, position, questions)
    free = (torch.arange(position.shape[1]) if brain is None else torch.from_numpy(brain)).to(position.device)
    if not isinstance(net.encoder, Encoder):
        always = torch.ones_like(position, dtype=torch.bool).index_fill_(1, free, False)

        def in_volume(kept: Int[Tensor, "o q"]) -> dict[str, Float[Tensor, "o"]]:
            given = always.repeat(len(kept), 1).scatter_(1, free[kept], True)
            return in_air(net, patches[0], position[0], given, asked)

        return in_volume
    with torch.no_grad():
        x = net.encoder.tokens(patches, position)[0]
    # Row 0 of x is CLS.
    fixed = torch.ones(len(x), dtype=torch.bool, device=position.device).index_fill_(0, free + 1, False).nonzero()[:, 0]

    @torch.no_grad()
    def evidence(kept: Int[Tensor, "o q"]) -> dict[str, Float[Tensor, "o"]]:
        rows = torch.cat([fixed.expand(len(kept), -1), free[kept] + 1], dim=1)
        parts = rows.split(max(1, TOKENS_AT_ONCE // rows.shape[1]))
        return targets(net, torch.cat([cls(net.encoder, x[part]) for part in parts]), asked)

    return evidence


def order(relevance: Float[np.ndarray, "p"], generator: np.random.Generator) -> Integer[np.ndarray, "p"]:
    """Indices from the most to the least relevant position; ties in random order, because neighbours share more than rank."""
    mixed = generator.permutation(len(relevance))
    return mixed[np.argsort(-relevance[mixed], kind="stable")]


def curves(evidence: Evidence, orders: Int[Tensor, "o p"]) -> dict[tuple[str, str], Float[np.ndarray, "o f"]]:
    """Deletion and insertion curves of each order of positions (most relevant first), by endpoint and "deletion" or "insertion".

    Definition: at a fraction x of `FRACTIONS`, deletion has left out the first x·p positions of the order, insertion has given
    only these. The value is the evidence less that of all positions: 0 at deletion's start and at insertion's end.
    A map is faithful when deletion falls early (a low area) and insertion rises early (a high one), each against random orders.
    Assumption: the network can read an incomplete set of tokens; it was trained on random draws where `token_budget` is set. A
    network of volumes was not, and the many holes of a random order may be more foreign to it than those of a map.
    Source: Petsiuk et al. 2018 (RISE), arXiv:1806.07421, on tokens left out instead of pixels painted over.
    Values are in the evidence's unit (log odds, or the risk's).
    """
    positions = orders.shape[1]
    full, empty = evidence(orders[:1]), evidence(orders[:1, :0])
    values: dict[tuple[str, str], list[Tensor]] = {}
    for fraction in FRACTIONS:
        cut = round(fraction * positions)
        for change, kept in (("deletion", orders[:, cut:]), ("insertion", orders[:, :cut])):
            by_endpoint = full if kept.shape[1] == positions else empty if kept.shape[1] == 0 else evidence(kept)
            for endpoint, value in by_endpoint.items():
                values.setdefault((endpoint, change), []).append((value - full[endpoint]).expand(len(orders)))
    return {key: torch.stack(columns, dim=1).cpu().numpy() for key, columns in values.items()}


# --- whether they lie on the tumour ----------------------------------------------------------------------------------------


def near_tumour(share: Float[np.ndarray, "positions"], grid: Grid) -> Bool[np.ndarray, "positions"]:
    """Positions that hold tumour, or lie within `HIT_MARGIN_PLACES` of one that does along every axis."""
    holds = (share > 0).reshape(grid.side, grid.side, grid.side)
    return maximum_filter(holds, size=2 * HIT_MARGIN_PLACES + 1, mode="constant").ravel()


def hit(relevance: Float[np.ndarray, "p"], near: Bool[np.ndarray, "p"]) -> float:
    """The pointing game: 1 when the map's peak is on the tumour or within one position of it, else 0; NaN without a peak.

    By chance it is 1 with a probability of `near.mean()`: the share of the positions where a peak would count.
    Source: Zhang et al. 2018, doi:10.1007/s11263-017-1059-x (there with a margin of 15 pixels).
    """
    if relevance.min() == relevance.max():
        return math.nan
    return float(near[relevance.argmax()])


def energy(relevance: Float[np.ndarray, "p"], share: Float[np.ndarray, "p"]) -> float:
    """The share of the map's sum that lies in the tumour; NaN of a map that is 0 everywhere.

    Formula: Σ rᵢ·tᵢ / Σ rᵢ with t the tumour's share of a position's brain. The uniform map, and by chance any map, has
    `share.mean()`.
    Assumption: within a position the map is even, so one half in the tumour gives it half its value.
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
    """Hit and energy of the same values in random order over the positions, to check the exact chance levels.

    Definition: the map's values are permuted over the given positions; hit and energy are computed on each permutation.
    Assumption: positions are exchangeable. A map that is smooth in space varies more than this, around the same mean.
    """
    if relevance.min() == relevance.max():  # as `hit` and `energy`: no peak, but a sum if it is not 0
        return Chance(math.nan, energy(relevance, share), 0.0)
    permuted = generator.permuted(np.tile(relevance, (draws, 1)), axis=1)
    energies = permuted @ share / relevance.sum()
    return Chance(float(near[permuted.argmax(axis=1)].mean()), float(energies.mean()), float(energies.std()))


# --- whether two maps are alike --------------------------------------------------------------------------------------------


def similarity(first: Float[np.ndarray, "p"], second: Float[np.ndarray, "p"]) -> float:
    """Spearman's rank correlation of two maps over the same positions: 1 the same order, 0 unrelated; NaN when one is constant.

    Assumption: none about scale; every position counts alike, also the many of little relevance.
    Source: Adebayo et al. 2018, arXiv:1810.03292, compare maps by it.
    """
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    norm = math.sqrt(float((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / norm if norm > 0 else math.nan


# --- networks and inputs that a map is compared with ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReferenceNetworks:
    """With what a fold's network is compared: the other folds' networks, one trained on permuted labels, randomised ones."""

    fold: int
    folds: tuple[Network, ...]
    shuffled: Network | None
    randomised: tuple[Network, ...]
    cascade: dict[str, Network]


def reference_networks(nets: Sequence[Network], fold: int, shuffled: Network | None, seed: int) -> ReferenceNetworks:
    """The references for `nets[fold]` among the networks of one repeat's folds; with `RANDOMISED_NETWORKS` copies of its weights.

    The networks are put into evaluation mode: a block that training would drop at random would make a map random.
    """
    for network in (*nets, *([shuffled] if shuffled else [])):
        network.eval()
    net = nets[fold]
    random = tuple(randomised(net, np.random.default_rng([seed, fold, index])) for index in range(RANDOMISED_NETWORKS))
    others = tuple(other for index, other in enumerate(nets) if index != fold)
    return ReferenceNetworks(fold, others, shuffled, random, cascade(net, random[0]))


def stages(net: Network) -> dict[str, list[str]]:
    """The names of the weights by stage, from the output back to the input: heads, last block, …, first block, embedding.

    A network of volumes has its tensors in two halves, in the network's own order, which is that of its layers: its last stage is
    the half that reads the volume.
    """
    names = list(net.state_dict())
    if not isinstance(net.encoder, Encoder):
        own = [name for name in names if name.startswith("encoder.")]
        half = len(own) // 2
        heads = [name for name in names if not name.startswith("encoder.")]
        return {"heads": heads, "the half before": own[half:], "the first half": own[:half]}
    blocks = [f"encoder.blocks.{index}." for index in reversed(range(len(net.encoder.blocks)))]
    by_stage = {"heads": [name for name in names if name.startswith(("head.", "encoder.norm."))]}
    for number, prefix in zip(range(len(blocks), 0, -1), blocks, strict=True):
        by_stage[f"block {number}"] = [name for name in names if name.startswith(prefix)]
    taken = {name for part in by_stage.values() for name in part}
    return by_stage | {"embedding": [name for name in names if name not in taken]}


def randomised(net: Network, generator: np.random.Generator) -> Network:
    """A network of the same shapes with the weights of each tensor in random order.

    Weights are permuted instead of drawn anew: every tensor keeps its values, so the network's sizes stay those of a trained one.
    Fresh weights would also leave the heads at zero, where every gradient is zero.
    """

    def permuted(weights: Tensor) -> Tensor:
        chosen = torch.from_numpy(generator.permutation(weights.numel())).to(weights.device)
        return weights.flatten()[chosen].reshape(weights.shape)

    return _with(net, {name: permuted(weights) for name, weights in net.state_dict().items()})


def cascade(net: Network, random: Network) -> dict[str, Network]:
    """The network on its way to `random`, by stage: each has random's weights from the heads down to and with that stage.

    Weights are shared with the two networks, so that all stages together need no memory of their own; the last is `random`.
    """
    weights, other = net.state_dict(), random.state_dict()
    changed = {}
    for stage, names in stages(net).items():
        weights = weights | {name: other[name] for name in names}
        changed[stage] = _with(net, weights)
    return changed


def noisy(patches: Float[Tensor, "b p k"], generator: np.random.Generator) -> Float[Tensor, "b p k"]:
    """The patches with Gaussian noise of `NOISE_SD` on every brain voxel; the background stays exactly zero."""
    noise = torch.from_numpy(generator.normal(scale=NOISE_SD, size=tuple(patches.shape)).astype(np.float32))
    return torch.where(patches == 0, patches, patches + noise.to(patches.device))


def shifted(prepared: Tokens, axis: int) -> Tokens:
    """The patient translated by one voxel along an axis of the grid, and cut into patches anew."""
    volume = np.roll(tokens.to_volume(prepared), 1, axis=1 + axis)
    np.moveaxis(volume, 1 + axis, 0)[0] = 0  # what left the grid does not come back on its other side
    return tokens.from_volume(volume, (volume != 0).any(axis=0), prepared.grid, prepared.config_sha256, prepared.channels)


def _with(net: Network, weights: dict[str, Tensor]) -> Network:
    """A network like `net` that reads, and does not copy, `weights`."""
    with torch.device("meta"):
        other = Network(net.model, net.grid, net.heads, net.channels)
    other.load_state_dict(weights, assign=True)
    return other.eval()
