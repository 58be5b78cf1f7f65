"""How much of a score, and of a map, comes from each sequence.

Letters: b patients, p tokens that are given, k numbers in a patch, c scans in the order of the network's channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.explain.methods.target import evidences, features
from mri_vit.model.network import Network


@torch.no_grad()
def scores_by_scan(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]
) -> dict[str, dict[str, Float[Tensor, "b"]]]:
    """Each scan's exact Shapley value of each endpoint's evidence.

    Definition: the mean, over all orders in which the c scans may be added, of how far the evidence rises with the scan.
    Formula: sum over the sets S of other scans of |S|! (c − 1 − |S|)! / c! · (v(S with the scan) − v(S)); all 2^c v are computed.
    Assumption: a scan that is not there is one of the brain's mean brightness (0) at every voxel; the brain's outline stays.
    Source: Shapley 1953, doi:10.1515/9781400881970-018; for models, Lundberg & Lee 2017, arXiv:1705.07874.

    Parameters
    ----------
    net : the network, in any mode.
    patches : float [b p k], the given places' patches.
    place : int [b p], where they sit.

    Returns
    -------
    dict from endpoint to: "evidence" of the whole, "empty" without any scan, and one value per scan, each float [b] in log
    odds or units of the risk, for a one (not for the predicted class); the scans' values add up to evidence − empty.
    """
    worth = {
        present: _evidence_of(present, net, patches, place)
        for size in range(len(net.channels) + 1)
        for present in map(frozenset, combinations(net.channels, size))
    }
    nothing, everything = frozenset(), frozenset(net.channels)
    return {
        name: {"evidence": worth[everything][name], "empty": worth[nothing][name]}
        | {scan: _shapley(scan, {present: value[name] for present, value in worth.items()}) for scan in net.channels}
        for name in worth[everything]
    }


def maps_by_scan(
    maps: Mapping[tuple[str, str], Float[Tensor, "b p"]],
    attributions: Mapping[str, Float[Tensor, "b p c"]],
    channels: Sequence[str],
) -> dict[tuple[str, str], dict[str, Float[Tensor, "b"]]]:
    """How much of each map comes from each scan.

    Definition: a place's value is split among its scans in proportion to the size of their attributions there,
    and each scan's part is summed over the places. A map that belongs to no endpoint ("") is split by the mean of the
    endpoints' proportions. Places at which no scan has an attribution, as background has none, are left out.
    Assumption: what makes a place matter to the map also makes its voxels matter to the evidence. The shares describe where
    both meet; they are no part of the map's method.

    Parameters
    ----------
    maps : as `patient_maps.relevances` gives them, by method and endpoint.
    attributions : as `gradient.gradient_by_scan` or `integrated_gradients_by_scan` give them for the same places.
    channels : the network's, in its order.

    Returns
    -------
    dict with the keys of `maps`; in each, float [b] per scan that add up to 1, NaN where the map is zero throughout.
    """
    proportion = {name: _proportions(attribution) for name, attribution in attributions.items()}
    proportion[""] = torch.stack(list(proportion.values())).mean(dim=0)
    shares = {}
    for (method, endpoint), value in maps.items():
        part = torch.einsum("bp,bpc->bc", value, proportion[endpoint])
        share = part / part.sum(dim=1, keepdim=True)  # 0/0 is NaN
        shares[method, endpoint] = dict(zip(channels, share.unbind(dim=1), strict=True))
    return shares


def _evidence_of(
    present: frozenset[str], net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]
) -> dict[str, Float[Tensor, "b"]]:
    """The evidence when only the scans of `present` are there."""
    keep = patches.new_tensor([scan in present for scan in net.channels])
    scans = rearrange(patches, "b p (c voxels) -> b p c voxels", c=len(net.channels))
    left = rearrange(scans * keep[:, None], "b p c voxels -> b p (c voxels)")
    return evidences(net, features(net, left, place))


def _shapley(scan: str, worth: dict[frozenset[str], Float[Tensor, "b"]]) -> Float[Tensor, "b"]:
    others = max(map(len, worth)) - 1
    gains = [
        (worth[present | {scan}] - value) / (comb(others, len(present)) * (others + 1))  # = |S|! (c − 1 − |S|)! / c!
        for present, value in worth.items()
        if scan not in present
    ]
    return torch.stack(gains).sum(dim=0)


def _proportions(attribution: Float[Tensor, "b p c"]) -> Float[Tensor, "b p c"]:
    """Each scan's share of a place's absolute attribution; 0 for all where there is none."""
    size = attribution.abs()
    total = size.sum(dim=2, keepdim=True)
    return torch.where(total > 0, size / total, size)
