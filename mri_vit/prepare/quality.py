"""Quality: a prepared patient's scans go in; the numbers and the picture by which someone, or a limit, judges them come out.

How well a scan was taken (signal to noise, ghosts, shading), how much of each part of the MNI152 brain the mask reaches, and
whether scans are what the table calls them. The numbers stand under "quality" in `patient.json`; rounded, and null where there
is no basis for one. The picture, qc.png, has three planes of each scan, with the outlines of brain and tumour.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFont
from scipy.linalg import svdvals
from scipy.ndimage import binary_dilation, binary_erosion, distance_transform_edt
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume, bounding_box, mean_index, middle_half, resample
from mri_vit.prepare import agreement, register
from mri_vit.prepare import brain as brains_of
from mri_vit.prepare.agreement import Copies
from mri_vit.prepare.bias import MAD_TO_SD, NEGATIVE_SHARE
from mri_vit.settings.recipe import CHANNELS

QUANTILES = tuple(np.linspace(0.02, 0.98, 25).tolist())  # of a scan in its brain: what its histogram is compared by
SPARSE_MM = 2.0
HEAD_SIGNAL_SHARE = 0.3  # of the brain's signal: what is brighter is head, and no ghost of it
ERODED_VOXELS = 2  # voxels within the brain's border: its edge is no noise
DILATED_VOXELS = 2  # voxels around what was imaged: its blur and its ringing are no background
FIELD_QUANTILES = (0.02, 0.98)  # quantiles of the field over the brain
MIN_BACKGROUND_VOXELS = 500  # voxels of background that a mean needs
RIM_MM = 8.0  # of the MNI152 brain that is left out: there brains of one size differ
# Planes of the MNI152 frame, mm (its atlas's labels are not among the installed files; these need none). Below and behind the
# first two lies cerebellum alone; above the third the cerebrum, cut at the frame's middle plane and at the other two.
CEREBELLUM_BELOW, CEREBELLUM_BEHIND, CEREBRUM_ABOVE, FRONT_OF, UPPER_ABOVE = -25.0, -40.0, -15.0, -20.0, 15.0
DEEP_MM = 8.0  # within the brain: fat that stripping left at its rim is brighter in T1 than anything that takes up contrast
TAIL_SHARE = 0.001  # of the deep voxels at each end, about 0.8 ml: some vessels, or a narrow ventricle
MIN_TAIL_VOXELS = 20  # of an end: fewer say nothing
MIN_T1_SD = -0.5  # from the brain's mean: grey matter in T1. How dark fluid and oedema are differs from one kind of T1 to another
MAX_T2_SD = 1.5  # from the brain's mean: fluid is brighter in T2. How bright oedema is beyond that differs between T2 and FLAIR
PANEL_PX = 224  # pixels per plane: one per millimetre of the default grid
TITLE_PX, LINE_PX, MARGIN_PX = 28, 20, 8  # pixels for the title, for each line below it, and beside them
WINDOW_SD = (-2.5, 4.0)  # standard deviations shown from black to white
BACKGROUND = (16, 16, 20)
OUTLINE = (255, 176, 0)  # amber: distinguished from grey by everyone, colour-blind or not
TUMOUR_OUTLINE = (64, 200, 255)  # sky blue: distinguished from amber and from grey likewise
TEXT = (225, 225, 225)
PLANES = {  # name: (axis through the plane, letter on its left, letter on its right)
    "axial": (2, "R", "L"),  # as radiologists look: from the feet, the patient's right on the left
    "coronal": (1, "R", "L"),
    "sagittal": (0, "A", "P"),
}


def of_scan(
    whole: Volume,
    scan: Volume,
    corrected: Volume,
    brain: Bool[np.ndarray, "x y z"],
    mask: Volume,
    from_reference: Float[np.ndarray, "4 4"],
) -> dict[str, Any]:
    """Of one scan as it was taken, on its own voxels.

    `scan` is the box of the `whole` one that holds the `brain`, `corrected` the same without its bias field. The 4×4 carries a
    point of the reference scan, on whose voxels the brain is the `mask`, to this one.
    """
    background = brains_of.border_value(whole.array)
    taken, sparse = scan.array[brain], thinned(whole)
    in_sparse = resample(mask, sparse.shape, sparse.affine, np.linalg.inv(from_reference)).array > 0.5
    return _rounded(
        {
            "filled": float((taken != background).mean()),
            "signal_to_noise": signal_to_noise(scan, brain),
            "ghosts": ghosts(sparse, in_sparse, background),
            "shading": shading(taken, corrected.array[brain]),
        }
    )


def of_patient(
    copies: Copies,
    mask: Volume,
    pose: register.Pose,
    reference: str,
    taken: Mapping[str, Volume],
    of_scans: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """All figures of a patient.

    `copies` of the scans are on `agreement.GRID`, whatever the study's grid; `mask` is the brain (1) on the reference scan's
    voxels, over which the MNI152 brain lies as `pose` says; `taken` are the scans as they were taken, axes laid as RAS+.
    """

    def aligned_mirrored(channel: str) -> Float[np.ndarray, "x y z"]:
        mirrored = Volume(np.ascontiguousarray(taken[channel].array[::-1]), taken[channel].affine)
        return copies.seen(mirrored, register.to_reference(taken[reference], mirrored).matrix @ pose.rigid)

    judged = [channel for channel, scan in taken.items() if agreement.shows_folds(channel, scan)]
    judged = judged if reference in judged else []
    agreed = agreement.of_copies(copies, reference, judged, aligned_mirrored)
    scans = {
        channel: {
            **of_scans[channel],
            **(_rounded(agreed.scans[channel].figures) if channel in agreed.scans else {}),
            "quantiles": [round(value, 3) for value in np.quantile(scan[copies.brain], QUANTILES).tolist()],
        }
        for channel, scan in copies.scans.items()
    }
    whole = {
        "turned_degrees": turn(pose.rigid),
        "middle_degrees": agreed.middle_degrees,
        "middle_mm": agreed.middle_mm,
        "squeezed": squeezed(pose.affine.matrix),
        "fluid_contrast": fluid_contrast(copies),
        "enhancement": enhancement(copies),
    }
    return _rounded(whole) | {"coverage": _rounded(shares(mask, pose.affine.matrix)), "scans": scans}


def turn(matrix: Float[np.ndarray, "4 4"]) -> float:
    """Degrees by which a rigid 4×4 turns."""
    return float(np.degrees(Rotation.from_matrix(matrix[:3, :3]).magnitude()))


def _rounded(found: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None or not math.isfinite(value) else round(value, 4) for name, value in found.items()}


def signal_to_noise(scan: Volume, brain: Bool[np.ndarray, "x y z"]) -> float | None:
    """Median signal over noise in the middle half of the brain along each axis.

    Noise is by what a voxel differs from its six neighbours (Coupé et al. 2008, doi:10.1109/TMI.2007.906087). None where too
    little brain is left, or where the scan was standardised, so that its zero is no absence of signal.
    """
    if (scan.array[brain] < 0).mean() > NEGATIVE_SHARE:
        return None
    part_of = middle_half(bounding_box(brain))
    part = scan.array[part_of].astype(np.float32)
    deep = np.asarray(binary_erosion(brain[part_of], iterations=ERODED_VOXELS), bool)
    if deep.sum() < MIN_BACKGROUND_VOXELS:
        return None
    beside = (
        sum(np.roll(part, step, axis) for axis in range(3) for step in (-1, 1)) / 6
    )  # what rolls over the box's ends is not deep
    noise = MAD_TO_SD * np.median(np.abs(np.sqrt(6 / 7) * (part - beside)[deep]))
    return float(np.median(part[deep]) / max(noise, 1e-6))


def thinned(scan: Volume) -> Volume:
    """Every n-th voxel of a fine scan, `SPARSE_MM` apart: what is as large as a head needs no more."""
    steps = [max(1, round(SPARSE_MM / mm)) for mm in scan.spacing_mm]
    array = scan.array[:: steps[0], :: steps[1], :: steps[2]]
    return Volume(np.ascontiguousarray(array), scan.affine @ np.diag([*steps, 1.0]))


def ghosts(scan: Volume, brain: Bool[np.ndarray, "x y z"], background: float) -> float | None:
    """The brightest half-field-of-view ghost among the three axes, as a share of the brain's signal.

    What was imaged, shifted by half the field of view, against the rest of the background (Giannelli et al. 2010,
    doi:10.1120/jacmp.v11i4.3237; the ghost-to-signal ratio of MRIQC). None where no background is left to compare. A scan that
    was stripped after it was taken shows no ghost: its background was emptied.
    """
    array = scan.array - background
    signal = float(np.median(array[brain]))
    imaged = np.asarray(binary_dilation((array > HEAD_SIGNAL_SHARE * signal) | brain, iterations=DILATED_VOXELS))
    shares = []
    for axis, n in enumerate(array.shape):
        shifted, beyond = np.roll(imaged, n // 2, axis), np.logical_not(imaged)
        ghost, rest = shifted & beyond, np.logical_not(shifted) & beyond
        if min(ghost.sum(), rest.sum()) >= MIN_BACKGROUND_VOXELS:
            shares.append((array[ghost].mean() - array[rest].mean()) / max(signal, 1e-6))
    return float(max(shares)) if shares else None


def shading(before: Float[np.ndarray, "n"], after: Float[np.ndarray, "n"]) -> float | None:
    """Greatest over least of the bias field that was taken out of the brain's voxels, without its outer hundredths."""
    known = (before > 0) & (after > 0)
    if not known.any():
        return None
    low, high = np.quantile(before[known] / after[known], FIELD_QUANTILES)
    return float(high / low)


def core() -> Bool[np.ndarray, "x y z"]:
    """The MNI152 brain without its rim, on the voxels of `register.template`."""
    return register.template_depth_mm() > RIM_MM


@cache
def parts() -> dict[str, Bool[np.ndarray, "x y z"]]:
    """Parts of `core`: cerebellum, and eight of the cerebrum."""
    brain, _ = register.template()
    axes = np.ogrid[tuple(map(slice, brain.shape))]
    x, y, z = (index * step + start for index, step, start in zip(axes, brain.spacing_mm, brain.affine[:3, 3], strict=True))
    found = {"cerebellum": core() & (z < CEREBELLUM_BELOW) & (y < CEREBELLUM_BEHIND)}
    for side, in_side in (("left", x < 0), ("right", x >= 0)):
        for end, in_end in (("front", y >= FRONT_OF), ("back", y < FRONT_OF)):
            for level, in_level in (("upper", z >= UPPER_ABOVE), ("lower", z < UPPER_ABOVE)):
                found[f"{side} {end} {level}"] = core() & (z > CEREBRUM_ABOVE) & in_side & in_end & in_level
    return found


def shares(mask: Volume, from_mni: Float[np.ndarray, "4 4"]) -> dict[str, float]:
    """Of each part, what lies in the brain `mask`; the affine 4×4 carries a point of the MNI152 frame to it."""
    brain, _ = register.template()
    reached = resample(mask, brain.shape, brain.affine, from_mni).array > 0.5
    return {name: float(reached[part].mean()) for name, part in parts().items()}


def squeezed(from_mni: Float[np.ndarray, "4 4"]) -> float:
    """Least over greatest scale of an affine 4×4: a whole template laid over half a brain is squeezed along one axis."""
    scales = np.asarray(svdvals(from_mni[:3, :3]))
    return float(scales.min() / scales.max())


def fluid_contrast(copies: Copies) -> float | None:
    """How much further T2 rises above FLAIR than it falls below, in standard deviations of the brain; None without either scan.

    It rises in fluid, such as that of the ventricles. What is brighter than `MAX_T2_SD` counts as `MAX_T2_SD` in both.
    """
    return _asymmetry(copies, "t2", "flair", (-np.inf, MAX_T2_SD))


def enhancement(copies: Copies) -> float | None:
    """How much further T1ce rises above T1 than it falls below, in standard deviations of the brain; None without either scan.

    It rises in what takes up contrast. What is darker than `MIN_T1_SD` counts as `MIN_T1_SD` in both.
    """
    return _asymmetry(copies, "t1ce", "t1", (MIN_T1_SD, np.inf))


def _asymmetry(copies: Copies, bright: str, other: str, limits: tuple[float, float]) -> float | None:
    """The two ends of a scan less another, both within `limits`, added up; from the median, deep in the brain."""
    if not {bright, other} <= copies.scans.keys():
        return None
    deep = np.asarray(distance_transform_edt(copies.brain, sampling=copies.voxel_mm)) > DEEP_MM
    if deep.sum() < MIN_TAIL_VOXELS / TAIL_SHARE:
        return None
    values: list[Float[np.ndarray, "n"]] = [copies.scans[scan][deep].clip(*limits) for scan in (bright, other)]
    low, middle, high = np.quantile(values[0] - values[1], (TAIL_SHARE, 0.5, 1 - TAIL_SHARE))
    return float(low + high - 2 * middle)


def draw_picture(
    volume: Float[np.ndarray, "c e e e"],
    brain: Bool[np.ndarray, "e e e"],
    patient: str,
    below: Sequence[str],
    channels: Sequence[str] = CHANNELS,
    tumour: Bool[np.ndarray, "e e e"] | None = None,
) -> bytes:
    """The picture as PNG, with the lines `below` under the title, broken where the picture ends.

    Its planes pass through the middle of the brain; of a `tumour` there is one more, the axial plane that holds most of it.
    """
    middle = mean_index(brain)
    rows = [(plane, *letters, round(float(middle[letters[0]]))) for plane, letters in PLANES.items()]
    if tumour is not None and tumour.any():
        rows.append(("tumour, axial", *PLANES["axial"], int(tumour.sum(axis=(0, 1)).argmax())))
    there = [bool(scan.any()) for scan in volume]
    small, large = ImageFont.load_default(13), ImageFont.load_default(16)
    width = PANEL_PX * len(channels) - 2 * MARGIN_PX
    lines = [part for line in below for part in _broken(line, width, small)]
    header = TITLE_PX + LINE_PX * len(lines)
    picture = Image.new("RGB", (PANEL_PX * len(channels), header + PANEL_PX * len(rows)), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    pen.text((MARGIN_PX, 6), patient, TEXT, large)
    for number, line in enumerate(lines):
        pen.text((MARGIN_PX, TITLE_PX + number * LINE_PX), line, TEXT, small)
    for row, (plane, axis, left, right, at) in enumerate(rows):
        drawn = [(brain, OUTLINE)] if tumour is None else [(brain, OUTLINE), (tumour, TUMOUR_OUTLINE)]
        outlines = [(_outline(_slice(mask, axis, at)), colour) for mask, colour in drawn]
        for column, channel in enumerate(channels):
            low, high = WINDOW_SD
            grey = ((_slice(volume[column], axis, at) - low) / (high - low)).clip(0, 1) * 255
            shown = np.where(_slice(brain, axis, at) & there[column], grey, 0).astype(np.uint8)
            panel = np.repeat(_enlarged(shown)[..., None], 3, axis=2)
            panel[panel.max(axis=2) == 0] = BACKGROUND
            for outline, colour in outlines:
                panel[outline] = colour
            x, y = column * PANEL_PX, header + row * PANEL_PX
            picture.paste(Image.fromarray(panel), (x, y))
            pen.text((x + 5, y + PANEL_PX // 2), left, TEXT, small, anchor="lm")
            pen.text((x + PANEL_PX - 5, y + PANEL_PX // 2), right, TEXT, small, anchor="rm")
            pen.text((x + 5, y + 4), f"{channel} {plane}{'' if there[column] else ': no scan'}", TEXT, small)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=4)
    return file.getvalue()


def _broken(line: str, width_px: int, font: Any) -> list[str]:
    """The words of a line, in as many lines as it takes for none to be wider."""
    parts: list[str] = []
    for word in line.split():
        longer = f"{parts[-1]} {word}" if parts else word
        if parts and font.getlength(longer) <= width_px:
            parts[-1] = longer
        else:
            parts.append(word)
    return parts


def _outline(mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "_ _"]:
    """The rim of a mask, enlarged as a panel is."""
    shape = _enlarged(mask.astype(np.uint8) * 255) > 127
    return shape & np.logical_not(binary_erosion(shape))


def _slice(array: np.ndarray, axis: int, index: int) -> np.ndarray:
    """A plane as an image: head (in an axial plane the nose) at the top, the patient's right or front at the left."""
    return np.take(array, index, axis).T[::-1, ::-1]


def _enlarged(image: UInt8[np.ndarray, "h w"]) -> UInt8[np.ndarray, "_ _"]:
    return np.array(Image.fromarray(image).resize((PANEL_PX, PANEL_PX), Image.Resampling.BILINEAR))
