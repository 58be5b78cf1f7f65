"""Sanity checks: the networks and inputs that a map is compared with: permuted weights, other folds, and a hardly changed scan.

A map that stays when the network is destroyed shows the scan and not the network (Adebayo et al. 2018, arXiv:1810.03292); a map
that goes when the scan is hardly changed shows chance.

Weights are permuted within each tensor instead of drawn anew: every tensor keeps its values, so the network's sizes stay
those of a trained one. Fresh weights would also leave the heads at zero, where every gradient is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.tokens import Tokens
from mri_vit.model.encoder import Encoder
from mri_vit.model.network import Network

NOISE = 0.05  # standard deviations of the brain's values: a reader of the scan would not see it
RANDOMISED = 5  # networks of permuted weights: on the demo one alone hits anything from 0.08 to 0.75 of the tumours
AXES = (0, 1, 2)  # to the right, to the front, to the top: the three opposite directions are the same test mirrored


@dataclass(frozen=True, eq=False)
class ReferenceNetworks:
    """Of one fold: the other folds' networks, one trained on permuted labels, and those of randomised weights."""

    fold: int
    folds: tuple[Network, ...]  # of the other folds
    shuffled: Network | None  # trained on permuted labels
    randomised: tuple[Network, ...]
    cascade: dict[str, Network]


def reference_networks(nets: Sequence[Network], fold: int, shuffled: Network | None, seed: int) -> ReferenceNetworks:
    """The references for `nets[fold]` among the networks of one repeat's folds; they hold `RANDOMISED` copies of its weights.

    The networks given are put into evaluation mode: a block that training would drop at random would make a map random.
    """
    for network in (*nets, *([shuffled] if shuffled else [])):
        network.eval()
    net = nets[fold]
    random = tuple(randomised(net, np.random.default_rng([seed, fold, index])) for index in range(RANDOMISED))
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
    """A network of the same shapes with the weights of each tensor in random order."""

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
    """The patches with Gaussian noise of `NOISE` on every brain voxel; the background stays exactly zero."""
    noise = torch.from_numpy(generator.normal(scale=NOISE, size=tuple(patches.shape)).astype(np.float32))
    return torch.where(patches == 0, patches, patches + noise.to(patches.device))


def shifted(prepared: Tokens, axis: int) -> Tokens:
    """The patient moved by one voxel along an axis of the grid, brain and all, and cut into places anew."""
    volume = np.roll(tokens.to_volume(prepared), 1, axis=1 + axis)
    np.moveaxis(volume, 1 + axis, 0)[0] = 0  # what left the grid does not come back on its other side
    return tokens.from_volume(volume, (volume != 0).any(axis=0), prepared.grid, prepared.config_sha256, prepared.channels)


def _with(net: Network, weights: dict[str, Tensor]) -> Network:
    """A network like `net` that reads, and does not copy, `weights`."""
    with torch.device("meta"):
        other = Network(net.model, net.grid, net.heads, net.channels)
    other.load_state_dict(weights, assign=True)
    return other.eval()
