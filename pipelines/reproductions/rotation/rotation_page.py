"""How far predictions and maps move when the patient lies rotated: the page, its figures and its tables.

Two things are told apart: the whole road, where scans lie turned and preparation is to undo it, and the network alone, which
reads a prepared volume that was turned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit.data.cohort import Patient
from mri_vit.explain.methods import catalogue
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.words.notation import adjusted_p, between, change, duration, number, percent
from mri_vit.settings.file import all_from_demo
from mri_vit.settings.schema import Study
from reproductions import html_page
from reproductions.html_page import Page, Picture, Section, Table
from reproductions.rotation import rotation_figures, stability
from reproductions.rotation.reading import SCANNED
from reproductions.rotation.rotated_patients import CONTENT, CONTENT_BACK, GRID, GRID_BACK, HEADER, Tables
from reproductions.rotation.stability import SCORE, Found, between_patients, means, some

SOURCE = "Rotation of the patient: predictions and maps against the angle"
TITLE = "How far do predictions and maps move when the patient lies rotated?"
THIN = "Mean over endpoints and axes, thin lines single axes; bars are 95 % intervals over patients."
MADE_UP = "Their heads are the MNI152 brain bent a little, without skull or scalp, and so easier to align than real ones."


def write(rows: Tables, patients: Sequence[Patient], study: Study, note: str, home: Path) -> Path:
    """The page with its figures and tables in the folder `home`; returns its path. `note` is one more finding, or ""."""
    of = stability.found(rows, patients, study)
    columns = ["patient", "fold", "road", "axis", "degrees", "endpoint", "evidence", "change"]
    tables = {
        "alignment": of.lies,
        "scores": of.scores[columns],
        "maps": rows.maps,
        "ranks": of.ranks,
        "auc": of.aucs,
        "tests": of.tests,
        "curves": stability.curves(of),
    }
    sections = [alignment(of), scores(of), maps(of, 2 * of.half_a_place_mm), *tumours(of)]
    synthetic = all_from_demo(patient.id for patient in patients)
    said = [*sentences(of), *([note] if note else [])]
    written = {name: table for name, table in tables.items() if len(table)}
    return html_page.write(Page(SOURCE, TITLE, said, sections, facts(of), written, MADE_UP if synthetic else ""), home)


def alignment(of: Found) -> Section:
    """Whether preparation undoes the rotation."""
    rows = []
    for degrees in of.degrees:
        here, header = (some(of.lies, road=road, degrees=degrees) for road in (CONTENT, HEADER))
        lost = here["lost"].tolist()
        rows.append(
            (
                f"{degrees:g}°",
                at(of.lies, "error_degrees", CONTENT, degrees),
                at(of.lies, "error_degrees", HEADER, degrees),
                f"{_largest(here)}; {_largest(header)}",
                at(of.lies, "error_mm", CONTENT, degrees),
                f"{percent(float(np.mean(lost)), 1)}; {percent(max(lost), 1)}",
                f"{int((here['failed'] != '').sum())} of {len(here)}",
                f"{flagged(here)} of {len(here)}",
            )
        )
    columns = (
        "turned by", "degrees left, scans", "degrees left, headers", "worst: scans; headers", "mm left, scans",
        "brain out of view: mean; most", "not prepared", "flagged",
    )  # fmt: skip
    note = (
        "What is left is the rotation between where the head lies on the grid and where it lay before, of the reference scan; mm"
        " are of the brain's points. Out of view: the share of the brain that was turned out of a scan's field of view, of the"
        " scan that lost most. Flagged: the run's own limits find the head turned, or a part of it missing, and did not find"
        " that of the patient as scanned. Both count heads, one for each patient and axis. At 0° scans are resampled onto their"
        " own voxels and prepared anew."
    )
    caption = (
        "Dots are patients; lines their mean with 95 % intervals (Student's t over patients). Headers turned alone are the"
        " control: the same voxels, said to lie turned."
    )
    why = [f"Not prepared: {reason}." for reason in sorted(set(of.lies["failed"]) - {""})]
    picture = Picture("alignment", rotation_figures.alignment(of.lies), "Rotation left by angle", caption)
    return Section("Does preparation undo it?", why, (picture,), (Table("Rotation left", columns, rows, note),))


def scores(of: Found) -> Section:
    """How far scores move."""
    line = _lines({"": of.scores}, lambda rows: stability.between_patients(rows, "change"))
    label = "Change of score (SD over patients)"
    drawn = rotation_figures.over_angle({"": stability.at_zero(of.scores)}, "change", label, line, "two patients", (0.0, None))
    caption = (
        "Absolute change of the log odds (or of the risk), in standard deviations over patients within a fold. The dashed line is"
        f" the difference between two patients by the same network. {THIN}"
    )
    rows = []
    for degrees in of.degrees:
        cells = [cell(some(t, road=road, degrees=degrees)) for t in (of.ranks, of.aucs) for road in (CONTENT, GRID)]
        less = [tested(some(of.tests, measure=SCORE, road=road, degrees=degrees)) for road in (CONTENT, GRID)]
        rows.append((f"{degrees:g}°", *cells, *less))
    columns = (
        "turned by", "rank correlation, whole road", "rank correlation, network alone", "AUC, whole road", "AUC, network alone",
        "change less interpolation's, whole road", "change less interpolation's, network alone",
    )  # fmt: skip
    note = (
        "Rank correlation: Spearman's, over patients, of scores as scanned and as turned, each less its fold's mean. AUC: of"
        " pairs within a fold, mean over binary endpoints; a dash where no label is known. Both are means over axes. The interval"
        " of a rank correlation is a percentile bootstrap of patients, that of an AUC Wilson's; networks are taken as given."
        " The last columns are the change less that of"
        " the same patients turned there and back, with Student's paired t and Holm's correction over all measures, roads and"
        " angles."
    )
    picture = Picture("scores", drawn, "Change of score by angle", caption)
    return Section("How far do scores move?", (), (picture,), (Table("Scores by angle", columns, rows, note),))


def maps(of: Found, place_mm: float) -> Section:
    """How far maps move."""
    alike = (
        "The rank correlation over the voxels of the patient's own reference scan, after turning back; 1 is the same order. The"
        " dashed line is that of two patients' maps by the same network."
    )
    moved = f"How far the middle of the map's highest 5 % of voxels lies from where it lay. A place is {place_mm:g} mm wide."
    drawn = (
        ("maps", "similarity", "Rank correlation with the map as scanned", (None, 1.02), alike),
        ("hot_spot", "hot_spot_mm", "Hot spot moved by (mm)", (0.0, None), moved),
    )
    pictures = []
    for name, column, label, limits, caption in drawn:
        line = _lines(of.maps, lambda rows, column=column: stability.between_patients(rows, column))
        pictures.append(_of_methods(of, name, column, label, line, "two patients", limits, caption))
    return Section("How far do maps move?", (), pictures)


def tumours(of: Found) -> list[Section]:
    """Where a tumour mask is known, whether maps stay on it."""
    rows = pd.concat(of.maps.values())
    known = rows.loc[rows["energy"].notna().to_numpy()]
    if known.empty:
        return []

    def even(rows: pd.DataFrame) -> pd.DataFrame:
        return stability.means(some(rows, road=SCANNED), "energy_chance")

    energy = "The share of the map's sum that lies in the tumour; the dashed line is that of an even map."
    hits = "How often the map's peak is on the tumour, or within a place of it."
    line, share = _lines(of.maps, even), "Share of the map in the tumour"
    pictures = (
        _of_methods(of, "energy", "energy", share, line, "an even map", (0.0, None), energy),
        _of_methods(of, "hits", "hit", "Peak on the tumour (share of maps)", {}, "", (-0.02, 1.02), hits),
    )
    n = len(set(known["patient"]))
    how_many = f"{n} {'patient has' if n == 1 else 'patients have'} a tumour mask in the prepared brain."
    return [Section("Do maps stay on the tumour?", (how_many,), pictures)]


def _largest(lies: pd.DataFrame) -> str:
    """The largest rotation that is left."""
    left = lies["error_degrees"].dropna().to_numpy(float)
    return number(float(left.max()), 2) if len(left) else "–"


def _of_methods(
    of: Found,
    name: str,
    column: str,
    label: str,
    line: dict[str, tuple[float, float, float]],
    named: str,
    limits: tuple[float | None, float | None],
    caption: str,
) -> Picture:
    """A panel for each method's maps."""
    panels = {catalogue.METHODS[method].title: stability.at_zero(own) for method, own in of.maps.items()}
    line = {catalogue.METHODS[method].title: ends for method, ends in line.items()}
    drawn = rotation_figures.over_angle(panels, column, label, line, named, limits)
    return Picture(name, drawn, f"{label} by angle", f"{caption} {THIN}")


def _lines(panels: dict[str, pd.DataFrame], of: Callable[[pd.DataFrame], pd.DataFrame]) -> dict[str, tuple[float, float, float]]:
    """A horizontal line for each panel, with its interval's ends, where it is known."""
    found = {name: of(rows) for name, rows in panels.items()}
    return {
        name: (float(one["value"].iloc[0]), float(one["low"].iloc[0]), float(one["high"].iloc[0]))
        for name, one in found.items()
        if len(one)
    }


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
