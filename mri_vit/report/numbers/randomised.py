"""What networks of randomised weights put on the tumour: each patient's figures by network in, means over the networks out.

One such network draws all patients' maps much alike, so that patients say little about how networks differ: the network is the
unit, and the interval is one over networks. Networks of different folds are different ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from mri_vit.report.numbers.means import mean
from mri_vit.report.schema.part import Mean


@dataclass(frozen=True)
class Networks:
    """Fields of a method's result about networks of randomised weights; n is networks, and so intervals are."""

    hit_randomised: Mean
    energy_randomised: Mean


def networks(rows: pd.DataFrame, seed: int) -> Networks:
    """Means over networks of the share of peaks that hit the tumour, and of the energy over the tumour's share.

    Parameters
    ----------
    rows
        A row per patient with `fold`, `tumour_share`, and `hit_randomised` and `energy_randomised`: lists with a value for
        each network of the fold (None where undefined), or None without a tumour mask.

    Returns
    -------
    Networks
        Intervals are 95 %, by a bootstrap of networks. A network's hits are a mean over its fold's patients, its energy a
        ratio of their sums.
    """
    hits, energies = _by_network(rows, "hit_randomised"), _by_network(rows, "energy_randomised")
    hit = hits.groupby(["fold", "network"])["value"].mean()
    sums = energies.groupby(["fold", "network"])[["value", "tumour_share"]].sum()
    sums = sums.loc[sums["tumour_share"] > 0]
    ratio = sums["value"] / sums["tumour_share"]
    return Networks(
        hit_randomised=mean(hit.to_numpy(dtype=float), seed), energy_randomised=mean(ratio.to_numpy(dtype=float), seed)
    )


def _by_network(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """A row per patient and network of whom both the value and the tumour are known."""
    long = [
        {"fold": fold, "network": index, "value": value, "tumour_share": share}
        for fold, share, values in zip(rows.fold, rows.tumour_share, rows[key], strict=True)
        if isinstance(values, list)  # None, or in a table NaN, without a mask
        for index, value in enumerate(values)
    ]
    table = pd.DataFrame(long, columns=pd.Index(["fold", "network", "value", "tumour_share"]))
    return table.astype({"value": float, "tumour_share": float}).dropna()
