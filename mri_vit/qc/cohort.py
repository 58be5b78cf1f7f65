"""Cohort: all patients' figures go in; those that are unlike the others', and pairs that look like one person, come out.

Letters: n patients, f figures, m numbers of a patient's likeness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from mri_vit.prepare.outliers import BY_MAD
from mri_vit.qc.limits import Finding
from mri_vit.settings.sections import Quality

LEAST = 20  # patients from which a median absolute deviation is steady: its standard error is a quarter of it
UNLIKE = {
    "likeness": "is less like the reference than the cohort's, by {:.1f} robust standard deviations",
    "histogram": "is unlike the cohort's: its histogram lies {:.1f} robust standard deviations from their median",
}
SHARED = 0.5  # of patients who have tissue at a place that counts, and of a patient's places that the other must have
LEAST_PAIRED = 3  # patients: of two, the median lies between them, and they look opposite
NEAR = 0.6  # correlation worth a closer look: copies of two real patients had 0.83 and 0.89, 4560 synthetic pairs up to 0.84
AT_ONCE = 500  # patients held against all: 20 MB where there are 10,000


def deviations(records: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """How far each patient's scans lie on the bad side of the cohort's median, in robust standard deviations.

    By figure (`likeness` to the reference, which is bad when low, and the `histogram`'s distance from the cohort's median
    histogram), scan and patient; nothing of a scan that fewer than `LEAST` patients have.
    """
    found: dict[str, dict[str, dict[str, float]]] = {"likeness": {}, "histogram": {}}
    for scan in sorted({scan for record in records.values() for scan in record["quality"]["scans"]}):
        of_scan = {name: one for name, record in records.items() if (one := record["quality"]["scans"].get(scan))}
        likeness = {name: -value for name, one in of_scan.items() if (value := one.get("likeness")) is not None}
        if len(likeness) >= LEAST:
            found["likeness"][scan] = _deviations(likeness)
        if len(of_scan) >= LEAST:
            quantiles = np.array([one["quantiles"] for one in of_scan.values()])
            apart = np.abs(quantiles - np.median(quantiles, axis=0)).mean(axis=1)  # Wasserstein's distance of two histograms
            distance = dict(zip(of_scan, np.log(np.maximum(apart, 1e-3)).tolist(), strict=True))
            found["histogram"][scan] = _deviations(distance)
    return found


def unlike(far: Mapping[str, Mapping[str, Mapping[str, float]]], limits: Quality) -> list[Finding]:
    """The `deviations` that are beyond the limit."""
    return [
        Finding(name, "unlike the cohort", scan, z, f"{scan} {UNLIKE[figure].format(z)}")
        for figure, of_scans in far.items()
        for scan, of_patients in of_scans.items()
        for name, z in of_patients.items()
        if z > limits.robust_z
    ]


def _deviations(bad: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(bad, robust_z(np.array(list(bad.values()))).tolist(), strict=True))


def robust_z(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Distance from the median in standard deviations estimated from the median absolute deviation; 0 where that is 0."""
    away = values - np.median(values)
    deviation = BY_MAD * np.median(np.abs(away))
    return away / deviation if deviation > 0 else np.zeros_like(away)


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
