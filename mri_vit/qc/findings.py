"""Findings: patients' figures and the study's limits go in; what lies outside them, or unlike the other patients, comes out.

Letters: n patients, f figures, m numbers of a patient's likeness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from mri_vit.prepare.outliers import BY_MAD
from mri_vit.settings.sections import Quality, Reason

LEAST = 20  # patients from which a median absolute deviation is steady: its standard error is a quarter of it
UNLIKE = {
    "likeness": "is less like the reference than the cohort's, by {:.1f} robust standard deviations",
    "histogram": "is unlike the cohort's: its histogram lies {:.1f} robust standard deviations from their median",
}
SHARED = 0.5  # of patients who have tissue at a place that counts, and of a patient's places that the other must have
LEAST_PAIRED = 3  # patients: of two, the median lies between them, and they look opposite
NEAR = 0.6  # correlation worth a closer look: copies of two real patients had 0.83 and 0.89, 4560 synthetic pairs up to 0.84
AT_ONCE = 500  # patients held against all: 20 MB where there are 10,000


@dataclass(frozen=True)
class Finding:
    """Why someone should look at a patient: the reason, which scan it is of (or none), the figure, and it all as a sentence."""

    patient: str
    reason: Reason
    scan: str
    figure: float
    words: str


def findings_of(patient: str, record: Mapping[str, Any], limits: Quality) -> list[Finding]:
    """What is outside the limits in a prepared patient's record, read alone."""
    quality = record["quality"]
    found = [Finding(patient, *one) for one in _whole(quality, record["brain_ml"], limits)]
    for scan, figures in quality["scans"].items():
        found += [Finding(patient, reason, scan, at, f"{scan} {words}") for reason, at, words in _of_scan(figures, limits)]
    return found


def _whole(quality: Mapping[str, Any], brain_ml: float, limits: Quality) -> Iterator[tuple[Reason, str, float, str]]:
    low, high = limits.brain_ml
    if not low <= brain_ml <= high:
        yield "volume", "", brain_ml, f"brain volume {brain_ml:.0f} ml; {low:.0f} to {high:.0f} is usual"
    squeezed = quality["squeezed"]
    missing = {part: share for part, share in quality["coverage"].items() if share < limits.coverage}
    if squeezed < limits.squeezed:
        words = f"a part of the brain is missing: the MNI152 brain fits it only when squeezed to {squeezed:.0%} along one axis"
        yield "part missing", "", squeezed, words
    elif missing:
        named = ", ".join(f"{part} {share:.0%}" for part, share in missing.items())
        yield "part missing", "", min(missing.values()), f"of the MNI152 brain the patient's reaches only: {named}"
    turned, middle = quality["turned_degrees"], quality["middle_degrees"]
    if turned > limits.turned_degrees:
        yield (
            "turned",
            "",
            turned,
            f"the head is turned by {turned:.0f}° against the MNI152 brain; see whether it lies straight now",
        )
    if middle > limits.middle_degrees:
        yield "turned", "", middle, f"the brain's middle plane leans by {middle:.1f}° on the grid: it was aligned badly"
    yield from _exchanged(
        quality["fluid_contrast"], limits.fluid_contrast, "flair", "t2", "fluid is brighter in FLAIR than in T2"
    )
    yield from _exchanged(
        quality["enhancement"], limits.enhancement, "t1ce", "t1", "what takes up contrast is brighter in T1 than in T1ce"
    )


def _exchanged(figure: float | None, limit: float, one: str, other: str, words: str) -> Iterator[tuple[Reason, str, float, str]]:
    """Exchanged where the figure is as far below 0 as it should be above; between the two it says nothing of an exchange."""
    if figure is None or figure >= limit:
        return
    usual = f"({figure:.1f} SD; {limit:g} or more is usual)"
    if figure <= -limit:
        yield "exchanged", f"{one} {other}", figure, f"{one} and {other} are exchanged: {words} {usual}"
    else:
        yield (
            "indistinguishable",
            f"{one} {other}",
            figure,
            f"{one} cannot be distinguished from {other} {usual}; see the picture",
        )


def _of_scan(figures: Mapping[str, Any], limits: Quality) -> Iterator[tuple[Reason, float, str]]:
    ratio, back = figures.get("own_to_mirrored"), figures.get("reversed")
    if ratio is not None and ratio < limits.own_to_mirrored:
        if back is not None and back >= limits.own_to_mirrored:
            said = f"is mirrored: turned over, it is {back:.2f} times as like the reference as the reference's mirror image"
            yield "mirrored", back, said
        else:
            said = f"shows another head, or is not aligned: {ratio:.2f} times as like the reference as its mirror image"
            yield "another head", ratio, f"{said}; {limits.own_to_mirrored:g} or more is usual"
    if (filled := figures["filled"]) < limits.filled:
        yield "empty", filled, f"holds {filled:.0%} of the brain, the rest is background"
    if (shading := figures["shading"]) is not None and shading > limits.shading:
        yield "shading", shading, f"was {shading:.1f} times as bright at one end of its bias field as at the other"
    if (ghosts := figures["ghosts"]) is not None and ghosts > limits.ghosts:
        yield "ghosts", ghosts, f"has ghosts of {ghosts:.1%} of the brain's signal at half the field of view"
    if (snr := figures["signal_to_noise"]) is not None and snr < limits.signal_to_noise:
        yield "noise", snr, f"has {snr:.1f} times the signal of its noise"


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
