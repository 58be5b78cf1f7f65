"""Reference networks: what the maps of a fold's network are compared with; the same for all its patients, so made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mri_vit.explain.checks import sanity
from mri_vit.model.network import Network

RANDOMISED = 5  # networks of permuted weights: on the demo one alone hits anything from 0.08 to 0.75 of the tumours


@dataclass(frozen=True, eq=False)
class ReferenceNetworks:
    """Of one fold: the other folds' networks, one trained on permuted labels, and those of randomised weights."""

    fold: int
    folds: tuple[Network, ...]  # of the other folds
    shuffled: Network | None  # trained on permuted labels
    randomised: tuple[Network, ...]
    cascade: dict[str, Network]


def of_fold(nets: Sequence[Network], fold: int, shuffled: Network | None, seed: int) -> ReferenceNetworks:
    """The references for `nets[fold]` among the networks of one repeat's folds; they hold `RANDOMISED` copies of its weights.

    The networks given are put into evaluation mode: a block that training would drop at random would make a map random.
    """
    for network in (*nets, *([shuffled] if shuffled else [])):
        network.eval()
    net = nets[fold]
    random = tuple(sanity.randomised(net, np.random.default_rng([seed, fold, index])) for index in range(RANDOMISED))
    others = tuple(other for index, other in enumerate(nets) if index != fold)
    return ReferenceNetworks(fold, others, shuffled, random, sanity.cascade(net, random[0]))
