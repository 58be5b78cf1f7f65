"""Brain: the reference scan goes in (T1ce, as a rule; and T1 on its grid), the mask of its brain on the same grid comes out.

`extract` follows the study's choice: "auto", "none", "mask", "deepbet" or "command" (a program of the user's own, run without
a shell). `skull_gap` decides whether a scan was stripped: from the outside inwards, a head shows its scalp (bright, for its
fat), its skull (dark, for bone has hardly any signal) and its brain. A stripped brain starts with its cortex, and what is
dark within are furrows, which do not go around it. Both are looked for in axial slices, however the scan was acquired: face
and neck, which are no skull, lie in other ones. Depths are in radii of the head, so that a child's counts as an adult's does.

Letters: s slices, a directions, d depths, x y voxels of a slice.
"""

from __future__ import annotations

import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy import ndimage

from mri_vit.data.nifti import FRAMES_TOLERANCE_MM, corners_apart_mm
from mri_vit.data.volume import Volume, bounding_box, canonical, read_mask, write
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.settings.recipe import title
from mri_vit.settings.sections import Prepare

STRIPPED_SHARE = (
    0.4  # of voxels at the border value: stripped scans have 0.87 (0.48 for an ellipsoid in its box), raw ones 0.03-0.10
)
STRIPPED_ML = 2400.0  # a large brain has 2000 ml
# `skull_gap` is 0.00 to 0.15 in 12 patients whose scans came stripped (223 variants: in slabs, standardised, loose by 2 mm, in
# coil fields of 7 to 1), and 0.21 to 0.91, half above 0.54, in one raw head (114 variants of its four sequences: scaled, in
# slabs, defaced, without fat, in such fields, of 3 mm voxels). Brains with 3 mm of what surrounds them have 0.10 to 0.36.
STRIPPED_GAP, HEAD_GAP = 0.18, 0.25
MIN_BRAIN_ML = 250.0  # a newborn's has 350; masks of tumours, ten of which have 30 to 195, are none of the brain
MIN_AREA_SHARE = 0.5  # of the largest slice: in smaller ones, at the vertex, the skull lies in the slice and not across it
MAX_SLICES = 24  # evenly spread; 1 mm slices are much alike
RAY_DIRECTIONS = 72  # every 5 degrees: 7 mm at the skull of an adult
RAY_STEP = 1 / 60  # of the radius: 1.3 mm in an adult
RIM_DEPTH = 0.2  # of the radius: scalp and skull end there, at 16 mm in an adult
BRAIN_DEPTH = 0.4  # as far as the brain's brightness is measured; the ventricles begin behind it
BRAIN_QUANTILE = 0.25  # of the brain's depths: bright fluid does not count, nor does a dark furrow
_GAPS: WeakKeyDictionary[Volume, float | None] = WeakKeyDictionary()  # of scans; a patient's is asked for twice
DIRECTION_QUANTILE = 0.75  # a quarter may show a darker gap, as between a stripped brain's cerebellum and temporal lobes


@dataclass(frozen=True, eq=False)
class Brain:
    """The mask on the reference's grid, how it was made, that as a sentence for a Methods section, and what had to be settled."""

    mask: Bool[np.ndarray, "x y z"]
    source: str
    methods: str
    notes: tuple[str, ...] = ()


def extract(reference: Volume, t1: Volume | None, file: str, given: Path | None, settings: Prepare, scratch: Path) -> Brain:
    """The brain mask of the reference scan, found as `settings.brain` says; `given` is the cohort table's mask, `t1` on its grid.

    Raises UnusablePatient: no brain is found, or a mask does not fit the scan; UsageError: the way chosen is not available.
    """
    by, name = way(reference, given, settings), title(settings.reference)
    if by == "mask":
        if given is None:
            raise UnusablePatient('brain = "mask", but the cohort table gives no brain_mask')
        drawn = _given(given, reference, name)
        brain = Brain(drawn.array > 0, by, "The brain masks supplied with the scans were used.", drawn.notes)
    elif by == "none":
        mask = foreground(reference.array)
        brain = Brain(mask, by, "Scans were already skull-stripped; the brain is what differs from background.")
    elif by == "deepbet":
        scans, names = ((t1, reference), f"T1 and {name}") if t1 else ((reference,), name)
        methods = f"The brain was extracted from {names} with deepbet (Fisch et al. 2024)."
        brain = Brain(_deepbet(scans, name), by, methods, _doubt(reference, name))
    else:
        program = Path(settings.brain_command[0]).name
        mask = _command(reference, name, settings.brain_command, scratch)
        brain = Brain(mask, by, f"The brain was extracted from {name} with {program}.")
    size_ml = volume_ml(brain.mask, reference)
    if size_ml < MIN_BRAIN_ML:
        raise UnusablePatient(
            f"empty brain: {size_ml:.1f} ml ({brain.source}); expected {MIN_BRAIN_ML:g} ml or more, not a tumour", file
        )
    return brain


def way(t1ce: Volume, given: Path | None, settings: Prepare) -> str:
    """How the brain is found: the study's choice, which "auto" leaves to what there is."""
    if settings.brain != "auto":
        return settings.brain
    return "mask" if given else "none" if is_stripped(t1ce) else "deepbet"


def border_value(array: Shaped[np.ndarray, "x y z"]) -> float:
    """The commonest value on the six faces: background, which is not 0 in scans that were standardised or interpolated."""
    faces = np.concatenate([np.take(array, (0, -1), axis).ravel() for axis in range(3)])
    values, counts = np.unique(faces, return_counts=True)
    return float(values[counts.argmax()])


def is_stripped(scan: Volume) -> bool:
    """Whether a scan shows a brain without its head: an emptied background, and below the rim no gap as dark as a skull's."""
    gap = _gap(scan)
    return gap is not None and gap < STRIPPED_GAP


def _gap(scan: Volume) -> float | None:
    """`skull_gap` of a scan whose background was emptied; None where it was not, or where more than a brain is left."""
    if scan not in _GAPS:
        background = border_value(scan.array)
        rest = scan.array != background
        emptied = rest.any() and 1 - rest.mean() >= STRIPPED_SHARE and volume_ml(rest, scan) <= STRIPPED_ML
        _GAPS[scan] = skull_gap(scan, background) if emptied else None
    return _GAPS[scan]


def _doubt(reference: Volume, name: str) -> tuple[str, ...]:
    """A note where it is not clear whether a scan was stripped: its brain is then looked for, which changes little in one."""
    gap = _gap(reference)
    if gap is None or gap >= HEAD_GAP:
        return ()
    return (f"{name} may have been stripped loosely: a gap of {gap:.2f} below its rim; heads have {HEAD_GAP:g} or more",)


def foreground(array: Shaped[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    """The largest piece of a stripped scan that is not background, its holes filled."""
    return _largest(array != border_value(array))


def _largest(mask: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    """The largest connected piece of a mask, its holes filled; a mask of nothing stays so."""
    if not mask.any():
        return mask
    part = bounding_box(mask)
    pieces, _ = ndimage.label(mask[part])  # pyright: ignore[reportGeneralTypeIssues]
    sizes = np.bincount(pieces.ravel())
    sizes[0] = 0
    largest = np.zeros_like(mask)
    largest[part] = ndimage.binary_fill_holes(pieces == sizes.argmax())
    return largest


def volume_ml(mask: Bool[np.ndarray, "x y z"], scan: Volume) -> float:
    """Volume of a mask on the scan's grid."""
    return float(mask.sum() * abs(np.linalg.det(scan.affine[:3, :3])) / 1000)


def _given(path: Path, reference: Volume, name: str) -> Volume:
    mask = on_grid_of(reference, name, path, "brain")
    labels = np.unique(mask.array)
    if not np.isin(labels, (0, 1)).all():
        raise UnusablePatient(f"brain mask holds labels {labels[:5].tolist()}; expected 0 and 1", str(path))
    return mask


def _deepbet(scans: tuple[Volume, ...], name: str) -> Bool[np.ndarray, "x y z"]:
    """Where deepbet's probability passes a half on the mean of scans of one grid, each on the scale of its own intensities.

    T1 is what it was trained on and the reference has the patient's own space; T1 and T1ce together miss less than either: Dice
    against HD-BET 0.973, as the mean of two probabilities has in twice the time, against 0.969 and 0.972.
    """
    try:
        from deepbet import BrainExtraction
    except ImportError:
        raise UsageError(
            "the scans have their skulls on, or were stripped loosely, and deepbet is not installed: pip install "
            "'mri-vit[brain]', or set "
            'prepare.brain = "none" where all of them were stripped'
        ) from None
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its weights are TorchScript, which torch is retiring
            network = BrainExtraction(no_gpu=True)
            chance = network.run_model(np.mean([_scaled(scan.array) for scan in scans], axis=0))
    except (AssertionError, ValueError) as error:  # nothing brain-like in its first, coarse look
        raise UnusablePatient(f"empty brain: deepbet finds none in the {name} ({error})") from None
    finally:
        torch.set_num_threads(threads)
    return _largest(chance > 0.5)


def _scaled(array: Shaped[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    """Intensities between their percentiles 0.5 and 99.5 as 0 to 1, limited to that, as deepbet does with a scan."""
    low, high = np.percentile(array, (0.5, 99.5))
    return ((array - low) / max(high - low, 1e-6)).clip(0, 1).astype(np.float32)


def _command(reference: Volume, name: str, words: tuple[str, ...], scratch: Path) -> Bool[np.ndarray, "x y z"]:
    source, target = scratch / "scan.nii.gz", scratch / "brain.nii.gz"
    write(reference, source)
    try:
        run_command(words, source, target, "brain")
        found = on_grid_of(reference, name, target, "brain")
        return foreground(found.array)  # a mask or a stripped scan: tools write one or the other
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)


def skull_gap(scan: Volume, background: float) -> float:
    """How dark the gap below the rim is, compared with the rim and the brain: 0 is no gap, 1 a black one.

    `scan` lies along RAS+ and is not `background`, the value of what was emptied, throughout.
    """
    inside = scan.array != background
    areas = inside.sum(axis=(0, 1))
    large = np.flatnonzero(areas >= MIN_AREA_SHARE * areas.max())
    chosen = large[np.unique(np.linspace(0, len(large) - 1, MAX_SLICES).round().astype(int))]
    spacing_mm = np.array(scan.spacing_mm[:2])
    radius_mm = float(np.sqrt(areas.max() * spacing_mm.prod() / np.pi))
    darkest = scan.array.min(where=inside, initial=np.inf)  # not the background, which a standardised scan may have anywhere
    signal = np.where(inside, scan.array - darkest, 0)
    profiles = np.stack([_profiles(signal[..., at], inside[..., at], spacing_mm, radius_mm) for at in chosen])
    along = ndimage.uniform_filter1d(profiles, 3, axis=1, mode="wrap")  # a skull goes on in all directions, a furrow ends
    smooth = ndimage.uniform_filter1d(along, 3, axis=0, mode="nearest")
    outer = round(RIM_DEPTH / RAY_STEP)
    brain = np.quantile(smooth[..., outer:], BRAIN_QUANTILE, axis=-1, keepdims=True)
    rim = np.maximum.accumulate(smooth[..., :outer], axis=-1)  # the brightest so far on the way inwards
    bright = np.minimum(rim, brain)
    left = np.divide(smooth[..., :outer], bright, out=np.ones_like(bright), where=bright > 0)
    return float(np.quantile(1 - left.min(axis=-1), DIRECTION_QUANTILE))


def _profiles(
    signal: Shaped[np.ndarray, "x y"], inside: Bool[np.ndarray, "x y"], spacing_mm: Float[np.ndarray, "2"], radius_mm: float
) -> Float[np.ndarray, "a d"]:
    """The signal of a slice from the outer border inwards, towards the middle."""
    filled = np.asarray(ndimage.binary_fill_holes(inside))
    angles = np.arange(RAY_DIRECTIONS) * 2 * np.pi / RAY_DIRECTIONS
    towards = np.stack([np.cos(angles), np.sin(angles)])[:, :, None] / spacing_mm[:, None, None]
    middle = np.argwhere(filled).mean(axis=0)[:, None, None]
    longest_mm = float(np.linalg.norm(np.array(signal.shape) * spacing_mm))
    outwards_mm = np.arange(0, longest_mm, RAY_STEP * radius_mm)
    reached = ndimage.map_coordinates(filled, middle + towards * outwards_mm, order=0)
    border_mm = outwards_mm[len(outwards_mm) - 1 - reached[:, ::-1].argmax(axis=1)]
    depths_mm = border_mm[:, None] - np.arange(round(BRAIN_DEPTH / RAY_STEP)) * RAY_STEP * radius_mm
    return ndimage.map_coordinates(signal.astype(np.float32), middle + towards * depths_mm, order=1)


def run_command(command: tuple[str, ...], source: Path, target: Path, what: str) -> None:
    """Run the `what` command, of whose words "{input}" and "{output}" are replaced; it has then written `target`.

    Raises UnusablePatient when it ends with a fault or writes nothing, UsageError when it cannot be run.
    """
    words = [part.replace("{input}", str(source)).replace("{output}", str(target)) for part in command]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except (FileNotFoundError, PermissionError) as error:
        raise UsageError(f"{what} command {command[0]!r} cannot be run: {error.strerror}") from None
    if ended.returncode:
        raise UnusablePatient(f"{what} command {command[0]} ended with {ended.returncode}: {ended.stderr.strip()[-300:]}")
    if not target.exists():
        raise UnusablePatient(f"{what} command {command[0]} wrote no {{output}}")


def on_grid_of(reference: Volume, name: str, path: Path, what: str) -> Volume:
    """Read a mask of a `what` that must lie on the grid of the reference, whose `name` is for messages."""
    found = canonical(read_mask(path))
    apart_mm = float(corners_apart_mm(found.affine, reference.affine, reference.shape).max())
    if found.shape != reference.shape or apart_mm > FRAMES_TOLERANCE_MM:
        raise UnusablePatient(
            f"{what} mask is on another grid than the {name}: shape {found.shape} against {reference.shape} (axes laid as RAS+), "
            f"corners {apart_mm:.1f} mm apart",
            str(path),
        )
    return found
