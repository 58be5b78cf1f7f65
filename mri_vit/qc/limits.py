"""Limits: a patient's figures and the study's limits go in; what lies outside comes out, as findings with a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mri_vit.settings.sections import Quality, Reason


@dataclass(frozen=True)
class Finding:
    """Why someone should look at a patient: the reason, which scan it is of (or none), the figure, and it all as a sentence."""

    patient: str
    reason: Reason
    scan: str
    figure: float
    words: str


def of_patient(patient: str, record: Mapping[str, Any], limits: Quality) -> list[Finding]:
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
