"""Maps of one endpoint by occlusion: how far the evidence falls without a block of places.

A Vision Transformer is not given their tokens; a network of volumes, which reads every voxel, is given air in their place.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, k numbers in a patch, d width, o blocks of places.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mri_vit.explain.methods.target import TargetSigns, evidences, features, in_air, predicted
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
    by_patient = [
        _of_patient(
            net,
            net.encoder.tokens(patches[i : i + 1], place[i : i + 1])[0],
            place[i],
            {name: sign[i : i + 1] for name, sign in signs.items()},
        )
        for i in range(len(place))
    ]
    return {name: torch.stack([value[name] for value in by_patient]) for name in by_patient[0]}


@torch.no_grad()
def occlusion_by_air(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """As `occlusion`, of a network of volumes: how far each endpoint's target falls when air takes the place of a block.

    Definition: the blocks of `occlusion`; each in turn has every scan's voxels set to 0, as outside the brain.
    Formula: (f(all) − f(block in air))⁺ for every place of the block, f the target of target.py.
    Assumption: a hole in the brain is no more foreign to the network than what it hides is worth. It was trained on none, so
    what it makes of the hole's edges is in the map too. Voxels are z-scored in the brain, where 0 is the mean brightness: a hole
    is a grey one, as in the source.
    Source: Zeiler & Fergus 2014, arXiv:1311.2901, section 4.2.

    Parameters
    ----------
    net : a network of volumes, in evaluation mode.
    patches, place, signs : as for `occlusion`.

    Returns
    -------
    dict from endpoint to float [b p] ≥ 0, in units of the target; 0 where a place lies outside the box that the network reads.
    """
    signs = predicted(net, patches, place, signs)
    full = evidences(net, features(net, patches, place))
    value = {name: patches.new_zeros(place.shape) for name in full}
    for i in range(len(place)):
        out = blocks(place[i], net.grid.side)
        for name, without in in_air(net, patches[i], place[i], ~out).items():
            fall = signs[name][i] * (full[name][i] - without)
            value[name][i] = fall.clamp_min(0) @ out.to(fall.dtype)
    return value


def blocks(place: Int[Tensor, "p"], side: int) -> Bool[Tensor, "o p"]:
    """Which places each block holds; blocks without a given place are not there."""
    i, j, k = place // side**2, place // side % side, place % side
    wide = -(-side // EDGE)
    block = (i // EDGE * wide + j // EDGE) * wide + k // EDGE
    return block.unique()[:, None] == block


def _of_patient(
    net: Network, x: Float[Tensor, "n d"], place: Int[Tensor, "p"], signs: TargetSigns
) -> dict[str, Float[Tensor, "p"]]:
    """One patient's maps from its embedded tokens."""
    full = evidences(net, encoded(net.encoder, x[None]))
    out = blocks(place, net.grid.side)
    value = {name: x.new_zeros(len(place)) for name in full}
    sizes = out.sum(dim=1)
    for size in sizes.unique().tolist():  # blocks of one size leave equally many tokens, which make a batch
        for rows in out[sizes == size].split(max(1, PASS_TOKENS // len(x))):
            kept = torch.cat([rows.new_ones(len(rows), 1), ~rows], dim=1)  # CLS stays
            rest = x.expand(len(rows), *x.shape)[kept].view(len(rows), -1, x.shape[1])
            without = evidences(net, encoded(net.encoder, rest))
            for name in full:
                fall = signs[name] * (full[name] - without[name])
                value[name] += fall.clamp_min(0) @ rows.to(fall.dtype)
    return value
