"""Maps of one endpoint by leaving places out: how far the evidence falls when the encoder is not given them.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, k numbers in a patch, d width, o blocks of places.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mri_vit.explain.methods.target import TargetSigns, evidences, predicted
from mri_vit.explain.methods.target import cls as encoded
from mri_vit.model.network import Network

EDGE = 2  # places along a block's edge: 32 mm on the full grid, the size of a tumour; one place hides too little to be missed
PASS_TOKENS = 8192  # tokens in one pass; more are no faster


@torch.no_grad()
def occlusion(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """How far each endpoint's target falls without the block of places around a place.

    Definition: blocks of `EDGE`³ places tile the grid; each in turn is left out of the tokens, positions and all.
    Formula: (f(all) − f(all but the block))⁺ for every place of the block, f the target of target.py.
    Assumption: the encoder reads sets of places, as one trained on drawn tokens does, so that a smaller set is no foreign input.
    Source: Zeiler & Fergus 2014, arXiv:1311.2901, section 4.2, with tokens left out instead of replaced by grey.

    Parameters
    ----------
    net : the network, in any mode.
    patches : float [b p k], the given places' patches.
    place : int [b p], where they sit.
    signs : by endpoint 1 or -1 for each patient, what the maps are to explain; the predicted classes where not given.

    Returns
    -------
    dict from endpoint to float [b p] ≥ 0, in units of the target.
    """
    signs = predicted(net, patches, place, signs)
    alone = [
        _one(
            net,
            net.encoder.tokens(patches[i : i + 1], place[i : i + 1])[0],
            place[i],
            {name: sign[i : i + 1] for name, sign in signs.items()},
        )
        for i in range(len(place))
    ]
    return {name: torch.stack([one[name] for one in alone]) for name in alone[0]}


def blocks(place: Int[Tensor, "p"], side: int) -> Bool[Tensor, "o p"]:
    """Which places each block holds; blocks without a given place are not there."""
    i, j, k = place // side**2, place // side % side, place % side
    wide = -(-side // EDGE)
    block = (i // EDGE * wide + j // EDGE) * wide + k // EDGE
    return block.unique()[:, None] == block


def _one(net: Network, x: Float[Tensor, "n d"], place: Int[Tensor, "p"], signs: TargetSigns) -> dict[str, Float[Tensor, "p"]]:
    """One patient's maps from its embedded tokens."""
    whole = encoded(net.encoder, x[None])
    full = evidences(net, whole)
    out = blocks(place, net.grid.side)
    value = {name: x.new_zeros(len(place)) for name in full}
    for size in out.sum(dim=1).unique().tolist():  # blocks of one size leave equally many tokens, which make a batch
        for some in out[out.sum(dim=1) == size].split(max(1, PASS_TOKENS // len(x))):
            kept = torch.cat([some.new_ones(len(some), 1), ~some], dim=1)  # CLS stays
            rest = x.expand(len(some), *x.shape)[kept].view(len(some), -1, x.shape[1])
            without = evidences(net, encoded(net.encoder, rest))
            for name in full:
                fall = signs[name] * (full[name] - without[name])
                value[name] += fall.clamp_min(0) @ some.to(fall.dtype)
    return value
