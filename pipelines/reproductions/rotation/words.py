"""What was found of rotated patients, in sentences, and how it was made."""

from __future__ import annotations

import math

import pandas as pd

from mri_vit.explain.methods import catalogue
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.words.notation import adjusted_p, between, change, duration, number
from reproductions.rotation.numbers import SCORE, Found, between_patients, means, some
from reproductions.rotation.patient import CONTENT, CONTENT_BACK, GRID, GRID_BACK, HEADER


def sentences(of: Found) -> list[str]:
    """The answer, a finding each."""
    scores = {road: at(of.scores, "change", road, of.most) for road in (CONTENT, GRID, CONTENT_BACK, GRID_BACK)}
    said = [
        aligned(of),
        f"Turned by {of.most:g}°, the score moves by {scores[CONTENT]} standard deviations on the whole road, and by"
        f" {scores[GRID]} where nothing undoes the rotation and the network alone meets it. Interpolation alone moves it by"
        f" {scores[CONTENT_BACK]} and {scores[GRID_BACK]}; two patients differ by {cell(between_patients(of.scores, 'change'))}."
        f" {_more(of, SCORE)}",
    ]
    for method, own in of.maps.items():
        alike = {road: at(own, "similarity", road, of.most) for road in scores}
        said.append(
            f"Maps by {catalogue.METHODS[method].title}, turned by {of.most:g}°: the rank correlation with the map as scanned is"
            f" {alike[CONTENT]} on the whole road and {alike[GRID]} for the network alone; interpolation alone leaves"
            f" {alike[CONTENT_BACK]} and {alike[GRID_BACK]}, and two patients' maps have"
            f" {cell(between_patients(own, 'similarity'))}. {_more(of, method)}"
        )
    return said


def aligned(of: Found) -> str:
    """Whether preparation undoes the rotation."""
    turned = of.lies.loc[(of.lies["road"].isin((CONTENT, HEADER)) & (of.lies["degrees"] > 0)).to_numpy()]
    failed = int((turned["failed"] != "").sum())
    off = int((turned["error_mm"] > of.half_a_place_mm).sum())
    return (
        f"Of {of.most:g}°, preparation leaves {at(of.lies, 'error_degrees', CONTENT, of.most)} degrees where scans were turned,"
        f" so that the brain's points lie {at(of.lies, 'error_mm', CONTENT, of.most)} mm from where they lay; and"
        f" {at(of.lies, 'error_degrees', HEADER, of.most)} degrees where headers alone were turned. Of {len(turned)} turned heads"
        f" at all angles {failed or 'none'} failed to be prepared, {off or 'none'} lay off by half a place"
        f" ({of.half_a_place_mm:g} mm) or more, and the run's own limits flag {flagged(turned) or 'none'} as turned"
        " or incomplete."
    )


def flagged(lies: pd.DataFrame) -> int:
    """How many heads the run's own limits find turned, or a part of them missing, as they do not find the patients as scanned."""
    return sum(bool({"turned", "part missing"} & set(flags.split(", "))) for flags in lies["flags"])


def _more(of: Found, measure: str) -> str:
    """On which road, at which angles, more moves than by interpolation alone."""
    parts = []
    for road, title in ((CONTENT, "on the whole road"), (GRID, "for the network alone")):
        here = some(of.tests, measure=measure, road=road)
        if here.empty:
            continue
        moves = here["difference"] > 0 if measure == SCORE else here["difference"] < 0
        sure = here.loc[(moves & (here["p_adjusted"] < ALPHA)).to_numpy()]
        parts.append(f"{title} at {', '.join(f'{angle:g}°' for angle in sorted(sure['degrees'])) or 'no angle'}")
    what = "the score" if measure == SCORE else "the map"
    return f"More than by interpolation alone {what} moves {'; '.join(parts)} (paired, Holm)." if parts else ""


def facts(of: Found) -> list[str]:
    """How it was made, and what limits it."""
    angles = ", ".join(f"{degrees:g}" for degrees in of.degrees)
    axes = ", ".join(sorted(set(some(of.lies, road=CONTENT)["axis"])))
    return [
        f"{of.patients} patients, the first of the table; {angles} degrees about {axes}, right-handed in RAS+ mm through the"
        " brain's middle. Headers, and scans there and back, are turned about one axis for each patient, which goes from patient"
        " to patient.",
        "Each patient is read by the fold's network that was not trained on them, patients of another table by the first fold's;"
        " of several seeds of a fold by the first's.",
        "Whole road: every scan's content is turned in its own field of view by one linear interpolation (of a stripped scan from"
        " brain voxels alone, and cut out anew), then prepared anew: aligned, bias corrected, scaled. A scanner would take slices"
        " of the turned head; here thick slices are blurred instead, which the interpolation alone shows.",
        "Network alone: the prepared volume is turned on its grid, interpolated from brain voxels alone and cut into places anew;"
        " nothing is aligned or scaled.",
        "Interpolation alone is turning there and back. It interpolates twice where the roads interpolate once, so it says"
        " somewhat too much, and a road that moves no more than it is not shown to move at all.",
        "Maps are laid from places straight onto the voxels of the patient's reference scan as it was taken, so that turning back"
        " costs no interpolation. Maps of one endpoint explain the class that was predicted as scanned.",
        "A patient's value is the mean over axes and endpoints; intervals are Student's t over patients, tests paired over"
        " patients, two-sided, with Holm's correction. Networks are taken as given.",
        f"A patient took {duration(of.seconds / max(1, of.patients))} on one thread, on the mean.",
    ]


def at(rows: pd.DataFrame, column: str, road: str, degrees: float) -> str:
    """A mean over patients with its interval."""
    return cell(means(some(rows, road=road, degrees=degrees), column))


def cell(found: pd.DataFrame) -> str:
    """The one row of a table of means: value and interval."""
    if found.empty:
        return "–"
    value, low, high = (float(found[name].iloc[0]) for name in ("value", "low", "high"))
    return number(value, 2) if math.isnan(low) else between(value, low, high, digits=2)


def tested(test: pd.DataFrame) -> str:
    """The one row of a table of tests: a difference with its interval and p."""
    if test.empty:
        return "–"
    difference, low, high, p = (float(test[name].iloc[0]) for name in ("difference", "low", "high", "p_adjusted"))
    return f"{change(difference, low, high)}, {adjusted_p(p)}"
