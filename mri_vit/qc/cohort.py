"""Cohort: all patients' figures go in; those that are unlike the others', and pairs that look like one person, come out.

Letters: n patients, f figures, m numbers of a patient's likeness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mri_vit.prepare.outliers import BY_MAD
from mri_vit.qc.limits import Finding
from mri_vit.settings.quality import Quality

LEAST = 20  # patients from which a median absolute deviation is steady: its standard error is a quarter of it
SHARED = 0.5  # of patients who have tissue at a place that counts, and of a patient's places that the other must have
LEAST_PAIRED = 3  # patients: of two, the median lies between them, and they look opposite
NEAR = 0.6  # correlation worth a closer look: copies of two real patients had 0.83 and 0.89, 4560 synthetic pairs up to 0.84
AT_ONCE = 500  # patients held against all: 20 MB where there are 10,000


def unlike(records: Mapping[str, Mapping[str, Any]], limits: Quality) -> list[Finding]:
    """Figures on their bad side of the cohort's median by more robust standard deviations than the limit.

    Likeness to the reference that is low, and histograms that are far from the cohort's median histogram, scan by scan.
    """
    found = []
    for scan in sorted({scan for record in records.values() for scan in record["quality"]["scans"]}):
        of_scan = {name: one for name, record in records.items() if (one := record["quality"]["scans"].get(scan))}
        if len(of_scan) < LEAST:
            continue
        names = list(of_scan)
        quantiles = np.array([of_scan[name]["quantiles"] for name in names])
        apart = np.abs(quantiles - np.median(quantiles, axis=0)).mean(axis=1)  # Wasserstein's distance between histograms
        words = "is unlike the cohort's: its histogram lies {:.1f} robust standard deviations from their median"
        found += _beyond(names, scan, np.log(np.maximum(apart, 1e-3)), limits.robust_z, words)
        likeness = np.array([of_scan[name].get("likeness", np.nan) for name in names], float)
        if np.isfinite(likeness).sum() >= LEAST:
            words = "is less like the reference than the cohort's, by {:.1f} robust standard deviations"
            known = np.isfinite(likeness)
            found += _beyond([n for n, k in zip(names, known, strict=True) if k], scan, -likeness[known], limits.robust_z, words)
    return found


def robust_z(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Distance from the median in standard deviations estimated from the median absolute deviation; 0 where that is 0."""
    away = values - np.median(values)
    deviation = BY_MAD * np.median(np.abs(away))
    return away / deviation if deviation > 0 else np.zeros_like(away)


def _beyond(names: Sequence[str], scan: str, bad: Float[np.ndarray, "n"], limit: float, words: str) -> list[Finding]:
    return [
        Finding(name, "unlike the cohort", scan, float(z), f"{scan} {words.format(z)}")
        for name, z in zip(names, robust_z(bad), strict=True)
        if z > limit
    ]


def nearest(means: Float[np.ndarray, "n m"]) -> list[tuple[int, int]]:
    """Pairs of patients of whom one is the other's nearest, and near; NaN is not known.

    `means` are a patient's scans at each place of the grid, compared once the cohort's median is taken away: all brains have much
    in common, which says nothing.
    """
    if len(means) < LEAST_PAIRED:
        return []
    means = means[:, np.isfinite(means).mean(axis=0) > SHARED]
    away = means - np.nanmedian(means, axis=0)
    known = np.isfinite(away).astype(np.float32)
    filled = np.where(known, away, 0).astype(np.float32)
    squares = filled**2
    found = set()
    for start in range(0, len(means), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        lengths = np.sqrt((squares[part] @ known.T) * (known[part] @ squares.T))  # each over what the other has too
        correlation = filled[part] @ filled.T / np.maximum(lengths, 1e-6)
        correlation[known[part] @ known.T < SHARED * known.sum(axis=1)] = -1
        correlation[np.arange(len(correlation)), np.arange(start, start + len(correlation))] = -1
        for i, j in enumerate(correlation.argmax(axis=1).tolist()):
            if correlation[i, j] >= NEAR:
                found.add((min(start + i, j), max(start + i, j)))
    return sorted(found)
