"""What a prediction loses when something is left out: a block of grid positions (occlusion), or a scan (Shapley values).

A Vision Transformer is not given a block's tokens; a network of volumes, which reads every voxel, is given air in their place.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, k numbers in a patch, d width, c scans in the order of the
network's channels, o blocks of grid positions.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mri_vit.explain.methods.catalogue import BLOCK_EDGE
from mri_vit.explain.methods.target import Questions, features, in_air, predicted, targets
from mri_vit.explain.methods.target import cls as encoded
from mri_vit.model import heads
from mri_vit.model.network import Network

PASS_TOKENS = 8192  # tokens in one pass; more are no faster


@torch.no_grad()
def occlusion(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """How far each endpoint's target falls without the block of grid positions around a position.

    Definition: blocks of `BLOCK_EDGE`³ positions tile the grid; the tokens of each in turn are left out.
    Formula: (f(all) − f(all but the block))⁺ for every position of the block, f the target of target.py.
    Assumption: the encoder reads sets of tokens, as one trained on drawn tokens does, so that a smaller set is no foreign input.
    Source: Zeiler & Fergus 2014, arXiv:1311.2901, section 4.2, with tokens left out instead of replaced by grey.

    `questions` are what the maps are to explain, by default what the network predicts. Maps are ≥ 0, in units of the target.
    """
    questions = predicted(net, patches, position, questions)
    value = {name: patches.new_zeros(position.shape) for name in questions}
    for i in range(len(position)):
        asked = {name: each[i : i + 1] for name, each in questions.items()}
        x = net.encoder.tokens(patches[i : i + 1], position[i : i + 1])  # [1 n d]
        full = targets(net, encoded(net.encoder, x), asked)
        out = blocks(position[i], net.grid.side)
        sizes = out.sum(dim=1)
        for size in sizes.unique().tolist():  # blocks of one size leave equally many tokens, which make a batch
            for rows in out[sizes == size].split(max(1, PASS_TOKENS // x.shape[1])):
                kept = torch.cat([rows.new_ones(len(rows), 1), ~rows], dim=1)  # CLS stays
                rest = x.expand(len(rows), -1, -1)[kept].view(len(rows), -1, x.shape[2])
                for name, without in targets(net, encoded(net.encoder, rest), asked).items():
                    fall = full[name] - without
                    value[name][i] += fall.clamp_min(0) @ rows.to(fall.dtype)
    return value


@torch.no_grad()
def occlusion_by_air(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """As `occlusion`, of a network of volumes: how far each endpoint's target falls when air takes the place of a block.

    Definition: the blocks of `occlusion`; each in turn has every scan's voxels set to 0, as outside the brain.
    Formula: (f(all) − f(block in air))⁺ for every place of the block, f the target of target.py.
    Assumption: a hole in the brain is no more foreign to the network than what it hides is worth. It was trained on none, so
    what it makes of the hole's edges is in the map too. Voxels are z-scored in the brain, where 0 is the mean brightness: a hole
    is a grey one, as in the source.
    Source: Zeiler & Fergus 2014, arXiv:1311.2901, section 4.2.
    Parameters are those of `occlusion`, the network in evaluation mode; 0 where a position lies outside the box that it reads.
    """
    questions = predicted(net, patches, position, questions)
    full = targets(net, features(net, patches, position), questions)
    value = {name: patches.new_zeros(position.shape) for name in full}
    for i in range(len(position)):
        asked = {name: each[i : i + 1] for name, each in questions.items()}
        out = blocks(position[i], net.grid.side)
        for name, without in in_air(net, patches[i], position[i], ~out, asked).items():
            fall = full[name][i] - without
            value[name][i] = fall.clamp_min(0) @ out.to(fall.dtype)
    return value


def blocks(position: Int[Tensor, "p"], side: int) -> Bool[Tensor, "o p"]:
    """Which grid positions each block holds; blocks without a given grid position are not there."""
    i, j, k = position // side**2, position // side % side, position % side
    wide = -(-side // BLOCK_EDGE)
    block = (i // BLOCK_EDGE * wide + j // BLOCK_EDGE) * wide + k // BLOCK_EDGE
    return block.unique()[:, None] == block


@torch.no_grad()
def scores_by_scan(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]
) -> dict[str, dict[str, Float[Tensor, "b"]]]:
    """Each scan's exact Shapley value of each endpoint's evidence.

    Definition: the mean, over all orders in which the c scans may be added, of how far the evidence rises with the scan.
    Formula: sum over the sets S of other scans of |S|! (c − 1 − |S|)! / c! · (v(S with the scan) − v(S)); all 2^c v are computed.
    Assumption: a scan that is not there is one of the brain's mean brightness (0) at every voxel; the brain's outline stays.
    Source: Shapley 1953, doi:10.1515/9781400881970-018; for models, Lundberg & Lee 2017, arXiv:1705.07874.
    Returns by endpoint: "evidence" of the whole, "empty" without any scan, and one value per scan, in the evidence's unit; they
    are of what the score says (of a marker a one, also where a zero is predicted; of several classes that which the whole
    patient is predicted), and the scans' values add up to evidence − empty.
    """
    said = predicted(net, patches, position)
    asked = {head.endpoint.name: heads.of(head.endpoint).of_score(said[head.endpoint.name]) for head in net.heads}
    scans = rearrange(patches, "b p (c voxels) -> b p c voxels", c=len(net.channels))
    worth = {}
    for present in (frozenset(some) for size in range(len(net.channels) + 1) for some in combinations(net.channels, size)):
        keep = patches.new_tensor([scan in present for scan in net.channels])
        left = rearrange(scans * keep[:, None], "b p c voxels -> b p (c voxels)")
        worth[present] = targets(net, features(net, left, position), asked)
    nothing, everything = frozenset(), frozenset(net.channels)
    return {
        name: {"evidence": worth[everything][name], "empty": worth[nothing][name]}
        | {scan: _shapley(scan, {present: value[name] for present, value in worth.items()}) for scan in net.channels}
        for name in worth[everything]
    }


def _shapley(scan: str, worth: dict[frozenset[str], Float[Tensor, "b"]]) -> Float[Tensor, "b"]:
    others = max(map(len, worth)) - 1
    gains = [
        (worth[present | {scan}] - value) / (comb(others, len(present)) * (others + 1))  # = |S|! (c − 1 − |S|)! / c!
        for present, value in worth.items()
        if scan not in present
    ]
    return torch.stack(gains).sum(dim=0)
