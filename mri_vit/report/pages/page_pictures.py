"""What pages show beside text: shrunk pictures, volumes for the viewer, survival curves, and a score among the cohort's scores.

All volumes lie in the reference scan's own space, whatever their voxels: a prepared scan lies on the grid, whose axes are turned
into that space. Pictures are WebP, a tenth of the PNG, which stays in the run's folder.
Letters: x, y, z voxels, h, w pixels, c sequences, f grid positions, n patients.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from einops import reduce
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from mri_vit import style
from mri_vit.data import tokens
from mri_vit.data.nifti import WHOLE, packed
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Box, Volume, canonical, read, read_mask
from mri_vit.errors import IntegrityError
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.overlays import CONTRAST, SCALE, nearly_even
from mri_vit.metrics.survival import survival_steps
from mri_vit.prepare.prepared import reference_to_grid
from mri_vit.report.reading.run_files import Map
from mri_vit.report.schema.competing import NEITHER
from mri_vit.report.schema.patients import PatientResult
from mri_vit.run import files
from mri_vit.settings import recipe
from mri_vit.settings.sections import Grid

FINEST_MM = 2.0  # of the prepared scans on a page: 1 MB for four; the scans themselves have their full resolution
MARGIN_VOXELS = 4  # voxels kept around the brain, so that its edge does not touch the picture's


def viewer_volumes(
    prepared: Path | None, patient_map: Map | None, tumour: Path | None, entries: Sequence[Mapping[str, Any]], reference: str
) -> dict[str, Any]:
    """The viewer's volumes of a visit as JSON types: scans, maps as overlays, and the tumour's mask.

    Parameters
    ----------
    prepared
        The prepared visit's folder, with scans on the grid; None where it no longer exists.
    patient_map
        The visit's maps on the voxels of the reference's brain; None where none were made or its brain was not published.
    tumour
        The tumour's mask, in the reference's space; None without one.
    entries
        The maps of `patient_map` to show, in this order.
    reference
        The sequence in whose space all volumes lie.

    Raises
    ------
    UnusablePatient, IntegrityError
        A scan, a map or the prepared patient is damaged.
    """
    scans, maps = [], []
    if patient_map:
        scan = read(patient_map.folder / patient_map.facts["brain"])
        box = bounding_box(scan.array)
        scans.append({"label": f"{recipe.title(reference)}, as it was scanned", "volume": base64_nifti(cropped(scan, box))})
        for entry in entries:
            heat = map_on_scan(patient_map.folder, entry, scan, reference, box)
            shown = base64_nifti(Volume(map_levels(heat.array), heat.affine))
            maps.append({"volume": shown, "peak_mm": list(entry["peak_mm"]), "even": nearly_even(entry["peak"])})
    if prepared:
        scans += [
            {"label": f"{recipe.title(name)}, prepared", "volume": base64_nifti(one)}
            for name, one in prepared_volumes(prepared).items()
        ]
    return {
        "scans": scans,
        "maps": maps,
        "tumour": base64_nifti(tumour_volume(read_mask(tumour))) if tumour and scans else None,
        "top": SCALE[-1],
    }


def prepared_volumes(prepared: Path) -> dict[str, Volume]:
    """The prepared scans by sequence, as bytes, on voxels of 2 mm or coarser; missing sequences are left out."""
    stored = coarse_tokens(tokens.load(prepared / files.TOKENS))
    volumes = tokens.to_volume(stored)
    brain = (volumes != 0).any(axis=0)
    box = bounding_box(brain)
    affine = np.linalg.inv(reference_to_grid(prepared)) @ np.array(stored.grid.affine)
    scans = {}
    for name, array in zip(stored.channels, volumes, strict=True):
        if array.any():
            low, high = np.percentile(array[brain], CONTRAST)
            level = 1 + 254 * ((array - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a scan of one value is black, no fault
            scans[name] = cropped(Volume(np.where(brain, level, 0).round().astype(np.uint8), affine), box)
    return scans


def coarse_tokens(stored: Tokens) -> Tokens:
    """The same brain on larger voxels, each a mean of several, up to `FINEST_MM` and as far as they divide a patch."""
    grid = stored.grid
    factor = max(n for n in range(1, grid.patch + 1) if grid.patch % n == 0 and (n == 1 or n * grid.spacing_mm <= FINEST_MM))
    sizes = dict.fromkeys("xyz", grid.patch // factor) | {"c": len(stored.channels)}
    patches = reduce(
        stored.patches.astype(np.float32), "f (c x u y v z w) -> f (c x y z)", "mean", **sizes, u=factor, v=factor, w=factor
    )
    fewer = {"edge": grid.edge // factor, "spacing_mm": grid.spacing_mm * factor, "patch": grid.patch // factor}
    return replace(stored, patches=patches, grid=Grid.model_validate(dict(grid) | fewer))


def tumour_volume(tumour: Volume) -> Volume:
    """A tumour's mask on its own voxels, 1 inside: the viewer draws its border within each plane."""
    mask = tumour.array != 0
    return cropped(Volume(mask.astype(np.uint8), tumour.affine), bounding_box(mask))


def map_levels(heat: Float[np.ndarray, "x y z"]) -> UInt8[np.ndarray, "x y z"]:
    """A map relative to a uniform map as bytes: 0 at 1 or less, 255 at the scale's top.

    Between them the squared level is linear in the map's logarithm, because NiiVue's opacity below a threshold is the squared
    level: so each doubling adds the same opacity, as in explain/outputs/overlays.py.
    """
    height = np.log(heat.clip(SCALE[0], SCALE[-1])) / np.log(SCALE[-1])
    return np.rint(255 * np.sqrt(height)).astype(np.uint8)


def bounding_box(array: np.ndarray) -> Box:
    """The box of what is not 0 in x, y, z, with a margin; all of it where nothing is."""
    ends = [np.flatnonzero(array.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
    if not len(ends[0]):
        return WHOLE
    x, y, z = (slice(max(int(end[0]) - MARGIN_VOXELS, 0), int(end[-1]) + MARGIN_VOXELS + 1) for end in ends)
    return x, y, z


def cropped(volume: Volume, box: Box) -> Volume:
    """The part of a volume in a box, at the same place in space."""
    affine = volume.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ [part.start or 0 for part in box]
    return Volume(volume.array[box], affine)


def base64_nifti(volume: Volume) -> str:
    """A volume of bytes as the base64 text of its .nii.gz; equal volumes give equal texts."""
    image = nib.Nifti1Image(volume.array.astype(np.uint8), volume.affine)
    image.set_qform(volume.affine, code=1)
    image.header.set_xyzt_units("mm")
    return base64.b64encode(packed(image.to_bytes())).decode()


def drawable(patient_map: Map, reference: str) -> bool:
    """Whether the brain and every map exist on the reference's voxels."""
    needed = [patient_map.facts.get("brain"), *(entry["files"].get(reference) for entry in patient_map.facts["maps"])]
    return len(needed) > 1 and all(name and (patient_map.folder / name).is_file() for name in needed)


def map_on_scan(folder: Path, entry: Mapping[str, Any], scan: Volume, reference: str, part: Box = WHOLE) -> Volume:
    """A box of a map on the reference's voxels. A map of zeros is valid, although a scan of zeros is refused as empty."""
    if not entry["peak"]:
        return cropped(Volume(np.zeros_like(scan.array), scan.affine), part)
    return read(folder / entry["files"][reference], part)


CURVE_WIDTH, CURVE_HEIGHT = 420, 200  # the drawing's own units, in which a page lays it out
LAST_DAYS = 1095.0  # three years: few predictions and few glioblastoma patients reach further
MONTH_TICKS = ((182.0, "6"), (365.0, "12"), (548.0, "18"), (730.0, "24"), (1095.0, "36"))  # days, months


@dataclass(frozen=True)
class SurvivalCurve:
    """SVG polylines, tick positions, and the patient's own time."""

    predicted: str
    cohort: str
    ticks: Sequence[tuple[float, str]]
    own: float | None  # position of the patient's time; None where it is unknown or beyond the axis
    ended: str  # what that time is
    by: str  # what the cohort's curve is


def cohort_curve(time_days: Float[np.ndarray, " n"], died: Bool[np.ndarray, " n"], other: Bool[np.ndarray, " n"] | None) -> str:
    """The Kaplan–Meier curve of all patients with a known time, or what the cumulative incidence leaves."""
    if not len(time_days):
        return ""
    days, alive = survival_steps(time_days, died, other)
    steps = [point for i in range(1, len(days)) for point in ((days[i], alive[i - 1]), (days[i], alive[i]))]
    return polyline([(days[0], alive[0]), *steps])


def patient_curve(points: Sequence[tuple[float, float]], result: PatientResult, of_all: str) -> SurvivalCurve:
    """The curve of one patient of the cohort, with the patient's own time."""
    own = round(_x(result.time_days), 1) if result.time_days <= LAST_DAYS else None
    ended = "when the patient died" if result.truth else "when the patient was last known to be alive"
    if result.label:  # of an endpoint with a competing event
        ended = f"last follow-up, with {NEITHER}" if result.label == NEITHER else result.label
    return survival_curve(points, of_all, own, ended, competing=bool(result.label))


def survival_curve(
    points: Sequence[tuple[float, float]], of_all: str, own: float | None = None, ended: str = "", competing: bool = False
) -> SurvivalCurve:
    """The curve through a patient's (days, probability of being alive, or without the event), starting at 1."""
    ticks = [(round(_x(days), 1), months) for days, months in MONTH_TICKS]
    return SurvivalCurve(
        polyline([(0.0, 1.0), *points]), of_all, ticks, own, ended, "without the event" if competing else "Kaplan–Meier"
    )


def polyline(points: Sequence[tuple[float, float]]) -> str:
    """Points (days, share alive) of a curve in the drawing's own units, as far as it reaches."""
    inside = [(days, alive) for days, alive in points if days <= LAST_DAYS]
    return " ".join(f"{_x(days):.1f},{CURVE_HEIGHT * (1 - alive):.1f}" for days, alive in inside)


def _x(days: float) -> float:
    return CURVE_WIDTH * days / LAST_DAYS


STRIP_WIDTH, STRIP_ROW = 420, 34  # the drawing's own units: its width, and the height of a row of dots
MAX_DOTS = 400  # dots in a row; of more patients an even sample by rank
GOLDEN_RATIO = 0.618034  # dots are moved up and down by its multiples, which never line up


@dataclass(frozen=True)
class ScoreStrip:
    """Dots by group, the positions of the patient and the threshold, and the ends of the scale."""

    groups: Sequence[tuple[str, Sequence[tuple[float, float]]]]  # title, and x and y of each dot
    own: float
    threshold: float | None
    ends: tuple[str, str]
    height: int
    scale: str  # title of the axis


def score_strip(
    scores: Mapping[str, Sequence[float]], ends: tuple[float, float] | None, own: float, threshold: float, scale: str = "score"
) -> ScoreStrip:
    """A drawing from patients' scores by group, the lowest first, a patient's own and the threshold.

    `ends` are those of the scale; None: of the scores.
    """
    drawn = [own, *(score for of_group in scores.values() for score in of_group)]
    low, high = ends or (float(min(drawn)), float(max(drawn)))

    def x(score: float) -> float:
        return round(STRIP_WIDTH * (score - low) / max(high - low, 1e-9), 1)  # 1e-9: scores that are all the same

    groups = []
    for row, (name, members) in enumerate(scores.items()):
        of_group = np.array(members)
        few = np.unique(np.linspace(0, len(of_group) - 1, min(len(of_group), MAX_DOTS)).round().astype(int))
        heights = [STRIP_ROW * (row + 0.2 + 0.6 * (index * GOLDEN_RATIO % 1)) for index in range(len(few))]
        dots = [(x(float(score)), round(y, 1)) for score, y in zip(of_group[few], heights, strict=True)]
        groups.append((f"{name} ({len(of_group)})", dots))
    at = None if np.isnan(threshold) or not low <= threshold <= high else x(threshold)
    return ScoreStrip(groups, x(own), at, (f"{low:.2g}", f"{high:.2g}"), STRIP_ROW * len(groups), scale)


BATCH_PICTURES = 32  # pictures read ahead; more would be wasted where the budget ends
WORKERS = 2  # Pillow releases the GIL while it decodes and encodes


def opened(path: Path) -> Image.Image:
    """The pixels of a picture. Raises IntegrityError where it is damaged."""
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # as Pillow says "damaged"
        raise IntegrityError(f"{path}: damaged picture ({error}); delete it, or its folder, and make it again") from None


def shrunk(paths: Sequence[Path], width: int, quality: int, budget: int) -> list[str]:
    """Pictures at most `width` pixels wide as data: URLs, in order, as many as fit into `budget` bytes of page."""

    def pack(path: Path) -> str:
        small = opened(path)
        if small.width > width:
            small = small.resize((width, round(small.height * width / small.width)), Image.Resampling.BOX, reducing_gap=2.0)
        stream = BytesIO()
        small.save(stream, "WEBP", quality=quality, method=0)  # of 0 to 6: no larger than 1 here, and twice as fast
        return style.data_url(stream.getvalue(), "image/webp")

    packed, spent = [], 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, len(paths), BATCH_PICTURES):
            for url in pool.map(pack, paths[start : start + BATCH_PICTURES]):
                spent += len(url)
                if spent > budget:
                    return packed
                packed.append(url)
    return packed


THUMBNAIL_QUALITY = 75  # WebP's scale: 10 kB a card
AXIAL = 2


def map_thumbnail(brain: Volume, heat: Volume) -> str:
    """The axial plane of the map's peak as a data: URL, the patient's right on its left.

    `brain` and `heat` lie on the same voxels and are 0 outside the brain.
    """
    scan, over = canonical(brain), canonical(heat)
    return _as_webp(_plane(scan, over, _peak_voxel(over)))


def side_by_side(brain: Volume, heats: Sequence[Volume], tumour: Bool[np.ndarray, "x y z"] | None) -> tuple[Sequence[str], float]:
    """The same axial plane of several maps as data: URLs, and its height in mm.

    It is the plane with the largest section of the tumour, whose outline is drawn, or else the plane of the first map's peak.
    All volumes lie on the brain's voxels.
    """
    scan, over = canonical(brain), [canonical(heat) for heat in heats]
    outline = canonical(Volume(tumour, brain.affine)).array if tumour is not None and tumour.any() else None
    voxel = _peak_voxel(over[0])
    if outline is not None:
        largest = int(outline.sum(axis=(0, 1)).argmax())
        voxel = (*(int(middle) for middle in np.argwhere(outline[:, :, largest]).mean(axis=0)), largest)
    height_mm = float((scan.affine @ [*voxel, 1])[2])
    return [_as_webp(_plane(scan, one, voxel, outline)) for one in over], height_mm


def _peak_voxel(heat: Volume) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(heat.array.argmax()), heat.array.shape))


def _plane(
    scan: Volume, heat: Volume, voxel: tuple[int, ...], outline: Bool[np.ndarray, "x y z"] | None = None
) -> UInt8[np.ndarray, "h w 3"]:
    shown = overlays.window(scan.array > 0, scan.spacing_mm)
    return overlays.panel(scan, (0.0, float(scan.array.max())), heat, AXIAL, voxel, shown, outline)


def _as_webp(panel: UInt8[np.ndarray, "h w 3"]) -> str:
    stream = BytesIO()
    Image.fromarray(panel).save(stream, "WEBP", quality=THUMBNAIL_QUALITY)
    return style.data_url(stream.getvalue(), "image/webp")
