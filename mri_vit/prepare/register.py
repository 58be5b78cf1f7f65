"""Register: two volumes go in, the 4×4 that carries points of one to the other (RAS+ mm) comes out, with its metric.

A patient's scans differ by a rigid movement. One head differs from another in size as well, so the template is laid over a brain
by an affine 4×4, of which the grid then takes the rigid part alone.

The metric is Mattes mutual information in nats, higher is better (Mattes et al. 2003, doi:10.1109/TMI.2003.809072).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float
from scipy.linalg import polar
from scipy.ndimage import distance_transform_edt, gaussian_filter1d
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import LPS, Volume, bounding_box, carry_box, cut_box, mean_index, read, to_itk, widen
from mri_vit.errors import MriVitError

Transform = Any  # SimpleITK's, whose import takes 120 MB: not needed unless a patient is prepared
TEMPLATE = "mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"  # t1, and the shares of grey (gm) and white matter (wm), 0 to 255
COARSE_MM = 8.0  # first level: finds the basin from tens of mm away in hundredths of a second per start
FINE_MM = 2.0  # second level: agrees with full resolution to 0.2-0.4 mm
SAMPLED_SHARE = 0.1  # of the fixed copy's voxels are sampled; more moves the result by less than 0.2 mm
COARSE_SAMPLED_SHARE = 0.025  # until steps are shorter than 0.05 mm: few are left for the larger share
BRAIN_SAMPLED_SHARE = 0.4  # when only the brain counts, which is a quarter of a head's scan
INNER_MARGIN_MM = 6.0  # the brain, the fluid and bone around it; scalp is further, and its fat is off by a pixel (chemical shift)
SAMPLES = 5000  # but never fewer, or a coarse scan's metric is noise
ITERATIONS = 100  # at most, per level; 20 to 60 are used
HEAD_RADIUS_MM = 80.0  # what a radian moves at the head's edge: makes a turn and a shift comparable for the optimiser
TEMPLATE_SIZE = 0.95  # of the template that a start takes a brain for: MNI152 is larger than most (Lancaster et al. 2007,
# doi:10.1002/hbm.20345); five real patients ended at 0.87 to 0.95
BINS = 32  # of the joint histogram; Mattes et al. 2003 use 50, fewer suit the few samples
TEMPLATE_BINS = 20  # one head to another's: a smoother metric, from which jittered starts end within 1 mm instead of 2
SEED = 1  # of the sample points; fixed, so that a rerun gives the same bytes
TILTS_DEGREES = {"x": (0, -20, 20, -40, 40), "y": (-20, 20), "z": (-20, 20)}  # starts; a chin on the chest nods by 30
BLUR_MARGIN = (4, 4, 4)  # voxels of 1 mm that a blur for 2 mm reaches, and more: beyond them a map stays 0
MARGIN_MM = 10.0  # around the template's brain: its outline is what holds a brain with a tumour in place
_COPIES: WeakKeyDictionary[Volume, dict[float, Volume]] = WeakKeyDictionary()  # by spacing


@dataclass(frozen=True, eq=False)
class Alignment:
    """An alignment: `matrix` carries a point of the fixed volume to the moving one, RAS+ mm."""

    matrix: Float[np.ndarray, "4 4"]
    metric: float
    first_metric: float  # of the first start as it stood
    coarse_metrics: tuple[float, ...]  # of every start after the coarse level; -inf where nothing overlaps


@dataclass(frozen=True, eq=False)
class Pose:
    """How a brain lies against the MNI152 brain: by an affine 4×4, and by its rigid part, which keeps sizes."""

    affine: Alignment
    rigid: Float[np.ndarray, "4 4"]

    def seen_from(self, to_scan: Float[np.ndarray, "4 4"]) -> Pose:
        """The same of another scan, whose points `to_scan` carries to the one that the template was laid over."""
        back = np.linalg.inv(to_scan)
        return Pose(replace(self.affine, matrix=back @ self.affine.matrix), back @ self.rigid)


@dataclass(frozen=True)
class Freedom:
    """What an alignment may change: ITK's transform of a 4×4 and a centre (RAS+ mm), and the optimiser's scale of its numbers."""

    transform: Callable[[Float[np.ndarray, "4 4"], Float[np.ndarray, "3"]], Transform]
    scales: tuple[float, ...]


def to_ras(transform: Transform) -> Float[np.ndarray, "4 4"]:
    """Any of ITK's rigid or affine transforms (LPS+ mm) as a 4×4 between RAS+ mm spaces."""
    origin = np.array(transform.TransformPoint((0.0, 0.0, 0.0)))
    axes = [np.array(transform.TransformPoint(tuple(axis))) - origin for axis in np.eye(3)]
    lps = np.eye(4)
    lps[:3, :3] = np.stack(axes, axis=1)
    lps[:3, 3] = origin
    return LPS @ lps @ LPS


def euler(ras: Float[np.ndarray, "4 4"], centre_mm: Float[np.ndarray, "3"]) -> Transform:
    """A rigid 4×4 between RAS+ mm spaces as ITK's Euler transform, turning about `centre_mm` (RAS+ mm)."""
    import SimpleITK as sitk

    return _about_centre(sitk.Euler3DTransform(), ras, centre_mm, 1e-6)


def affine_transform(ras: Float[np.ndarray, "4 4"], centre_mm: Float[np.ndarray, "3"]) -> Transform:
    """An affine 4×4 between RAS+ mm spaces as ITK's affine transform about `centre_mm` (RAS+ mm)."""
    import SimpleITK as sitk

    return _about_centre(sitk.AffineTransform(3), ras, centre_mm)


def _about_centre(
    transform: Transform, ras: Float[np.ndarray, "4 4"], centre_mm: Float[np.ndarray, "3"], *tolerance: float
) -> Transform:
    """The transform set to a 4×4 between RAS+ mm spaces, its numbers taken about `centre_mm`."""
    lps = LPS @ ras @ LPS
    centre = LPS[:3, :3] @ centre_mm
    transform.SetCenter(centre.tolist())
    transform.SetMatrix(lps[:3, :3].flatten().tolist(), *tolerance)
    transform.SetTranslation((lps[:3, 3] + lps[:3, :3] @ centre - centre).tolist())
    return transform


RIGID = Freedom(euler, (HEAD_RADIUS_MM**2,) * 3 + (1.0,) * 3)


AFFINE = Freedom(affine_transform, (HEAD_RADIUS_MM**2,) * 9 + (1.0,) * 3)


def rigid_part(ras: Float[np.ndarray, "4 4"], centre_mm: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    """The rigid 4×4 nearest to an affine one: the rotation of its polar decomposition, `centre_mm` carried to the same place."""
    rigid = np.eye(4)
    rigid[:3, :3] = polar(ras[:3, :3])[0]
    rigid[:3, 3] = ras[:3, :3] @ centre_mm + ras[:3, 3] - rigid[:3, :3] @ centre_mm
    return rigid


def align(
    fixed: Volume,
    moving: Volume,
    starts: Sequence[Float[np.ndarray, "4 4"]],
    bins: int = BINS,
    near: Volume | None = None,
    freedom: Freedom = RIGID,
) -> Alignment:
    """The best alignment reached from several starts, never worse than the first start itself.

    `starts` are guesses of the 4×4 from fixed to moving; `near` is where (1) in the fixed scan's space the metric looks,
    everywhere when None; `bins` are those of the joint histogram.
    """
    fine_mm = max(FINE_MM, *(min(scan.spacing_mm) for scan in (fixed, moving)))  # between coarse scans there is nothing finer
    fixed_copy, moving_copy = coarse_copy(fixed, fine_mm), coarse_copy(moving, fine_mm)
    level = _Level(
        coarse_copy(fixed_copy, COARSE_MM),
        coarse_copy(moving_copy, COARSE_MM),
        bins,
        near,
        SAMPLED_SHARE,
        freedom,
        step_mm=4.0,
        stop_mm=0.4,
    )
    reached = [level.optimise(start) for start in starts]
    metrics = tuple(metric for _, metric in reached)
    rough = _Level(fixed_copy, moving_copy, bins, near, COARSE_SAMPLED_SHARE, freedom, step_mm=1.0, stop_mm=0.05)
    level = _Level(fixed_copy, moving_copy, bins, near, SAMPLED_SHARE, freedom, step_mm=0.125, stop_mm=0.01)
    matrix, metric = level.optimise(rough.optimise(reached[int(np.argmax(metrics))][0])[0])
    first_metric = level.metric(starts[0])
    if first_metric >= metric:
        return Alignment(starts[0], first_metric, first_metric, metrics)
    return Alignment(matrix, metric, first_metric, metrics)


def to_reference(reference: Volume, scan: Volume, near: Volume | None = None) -> Alignment:
    """Align a scan to the patient's reference scan, starting from what the headers say, and from centre upon centre.

    `near` is where (1) in the reference's space the metric looks; everywhere when None.
    """
    shift = np.eye(4)
    shift[:3, 3] = _centre_mm(scan) - _centre_mm(reference)  # for scans whose headers share no frame
    starts = [np.eye(4)] if np.array_equal(shift, np.eye(4)) else [np.eye(4), shift]
    return align(reference, scan, starts, near=near)


def refine(reference: Volume, scan: Volume, matrix: Float[np.ndarray, "4 4"], near: Volume) -> Alignment:
    """A scan's alignment to the reference settled by what lies near the brain alone; it stays if that is no better."""
    level = _Level(
        coarse_copy(reference, FINE_MM),
        coarse_copy(scan, FINE_MM),
        BINS,
        near,
        BRAIN_SAMPLED_SHARE,
        RIGID,
        step_mm=0.25,
        stop_mm=0.01,
    )
    settled, after = level.optimise(matrix)
    before = level.metric(matrix)
    return Alignment(settled if after > before else matrix, max(after, before), before, ())


def around(mask: Volume, margin_mm: float) -> Volume:
    """Where (1) a mask or its surroundings up to a margin are, on a coarse copy of its grid."""
    copy = coarse_copy(mask, FINE_MM)
    part = widen(bounding_box(copy.array >= 0.5), [math.ceil(margin_mm / mm) for mm in copy.spacing_mm], copy.shape)
    away_mm = np.asarray(distance_transform_edt(copy.array[part] < 0.5, sampling=copy.spacing_mm))
    near = np.zeros(copy.shape, np.uint8)
    near[part] = away_mm <= margin_mm
    return Volume(near, copy.affine)


def to_template(brain: Volume) -> Pose:
    """Lay the MNI152 brain over a T1-weighted brain on a background of 0: the 4×4s carry MNI152 to the scan.

    With the skull on, settings disagree by 7 to 19 mm; brain to brain they agree. A rigid 4×4 does not do for this: where a brain
    is smaller than the template, which nearly all are, it turns to fit the outline. On five real patients it ended 1 to 9 degrees
    from the affine one's rotation, and other starts moved it by up to 4 degrees, where the affine one moved by 0.2.
    """
    fixed, near = template()
    centre_mm, scan_centre_mm = _weighted_centre_mm(fixed), _weighted_centre_mm(brain)
    starts = []
    for axis, angles in TILTS_DEGREES.items():
        for degrees in angles:
            start = np.eye(4)
            start[:3, :3] = Rotation.from_euler(axis, degrees, degrees=True).as_matrix() * TEMPLATE_SIZE
            start[:3, 3] = scan_centre_mm - start[:3, :3] @ centre_mm
            starts.append(start)
    found = align(fixed, brain, starts, TEMPLATE_BINS, near, AFFINE)
    return Pose(found, rigid_part(found.matrix, centre_mm))


@cache
def template() -> tuple[Volume, Volume]:
    """The MNI152 T1 brain on 2 mm voxels, and where to look (1): the brain with a margin. Kept for the life of the process."""
    whole = mni152()
    small = coarse_copy(whole, FINE_MM)
    small = Volume(small.array / whole.array.max(), small.affine)
    return small, around(Volume((small.array > 0).astype(np.float32), small.affine), MARGIN_MM)


@cache
def template_depth_mm() -> Float[np.ndarray, "x y z"]:
    """How deep each voxel of `template` lies within its brain; 0 outside."""
    brain, _ = template()
    depth = np.zeros(brain.shape, np.float32)
    part = widen(bounding_box(brain.array > 0), (1, 1, 1), brain.shape)
    depth[part] = distance_transform_edt(brain.array[part] > 0, sampling=brain.spacing_mm)
    return depth


@cache
def tissue_maps() -> tuple[Volume, Volume]:
    """Shares of grey and of white matter of the MNI152 brain, on voxels of 1 mm and blurred for such of `FINE_MM`; 0 beyond."""
    whole = (mni152(tissue) for tissue in ("gm", "wm"))
    parts = (cut_box(one, widen(bounding_box(one.array > 0), BLUR_MARGIN, one.shape)) for one in whole)
    grey, white = (smoothed(part, [FINE_MM] * 3) for part in parts)
    return Volume(grey.array / 255, grey.affine), Volume(white.array / 255, white.affine)  # stored in a byte


def mni152(which: str = "t1") -> Volume:
    """The MNI152 T1 brain on 1 mm voxels, as nilearn stores it, or its grey (gm) or white matter (wm), 0 to 255.

    Read without importing nilearn, which takes every process 3 s; its `datasets.load_mni152_template(resolution=1)` gives the
    same, scaled to 0 to 1.
    """
    found = importlib.util.find_spec("nilearn")
    positions = (found.submodule_search_locations or []) if found else []
    name = TEMPLATE.format(which)
    file = next((path for position in positions if (path := Path(position, "datasets", "data", name)).is_file()), None)
    if file is None:
        raise MriVitError(f"the installed nilearn has no datasets/data/{name}; install nilearn anew")
    return read(file)


def _centre_mm(volume: Volume) -> Float[np.ndarray, "3"]:
    """Middle of the field of view."""
    return (volume.affine @ [*(np.array(volume.shape) - 1) / 2, 1])[:3]


def _weighted_centre_mm(volume: Volume) -> Float[np.ndarray, "3"]:
    """Middle of the voxels that are not background (0)."""
    return (volume.affine @ [*mean_index(volume.array > 0), 1])[:3]


class _Level:
    """One resolution of a registration: copies of the two scans, and the optimiser's first and last step."""

    def __init__(
        self,
        fixed: Volume,
        moving: Volume,
        bins: int,
        near: Volume | None,
        share: float,
        freedom: Freedom,
        step_mm: float,
        stop_mm: float,
    ) -> None:
        self.centre_mm = _centre_mm(fixed)
        if near is not None:  # no voxel elsewhere is looked at
            part = carry_box(bounding_box(near.array > 0), np.linalg.inv(fixed.affine) @ near.affine)
            fixed = cut_box(fixed, widen(part, (0, 0, 0), fixed.shape))
        self.share = min(1.0, max(share, SAMPLES / fixed.array.size))
        self.fixed, self.moving = to_itk(fixed), to_itk(moving)
        self.near = None if near is None else to_itk(near)
        self.bins, self.freedom, self.step_mm, self.stop_mm = bins, freedom, step_mm, stop_mm

    def optimise(self, start: Float[np.ndarray, "4 4"]) -> tuple[Float[np.ndarray, "4 4"], float]:
        """Where the start leads and the metric one step before; the start and -inf when too little of the scans overlaps.

        The last step is shorter than `stop_mm`; a metric of its own costs as much as ten steps, which is why it has none.
        """
        transform = self.freedom.transform(start, self.centre_mm)
        method = self._method(transform)
        try:
            method.Execute(self.fixed, self.moving)
        except RuntimeError:  # ITK: too few samples map inside the moving scan
            return start, -math.inf
        return to_ras(transform), -method.GetMetricValue()

    def metric(self, matrix: Float[np.ndarray, "4 4"]) -> float:
        """Mutual information in nats; -inf when too little of the scans overlaps."""
        try:
            return -self._method(self.freedom.transform(matrix, self.centre_mm)).MetricEvaluate(self.fixed, self.moving)
        except RuntimeError:
            return -math.inf

    def _method(self, transform: Transform) -> Any:
        """SimpleITK's registration method with every setting but the levels."""
        import SimpleITK as sitk

        method = sitk.ImageRegistrationMethod()
        method.SetNumberOfThreads(1)  # the order of summation, and so the last bits, must not depend on the machine
        method.SetMetricAsMattesMutualInformation(self.bins)
        method.SetMetricSamplingStrategy(method.RANDOM)
        method.SetMetricSamplingPercentage(self.share, SEED)
        method.SetMetricUseFixedImageGradientFilter(False)
        method.SetMetricUseMovingImageGradientFilter(False)
        if self.near is not None:
            method.SetMetricFixedMask(self.near)
        method.SetInterpolator(sitk.sitkLinear)
        method.SetOptimizerScales(self.freedom.scales)
        method.SetOptimizerAsRegularStepGradientDescent(self.step_mm, self.stop_mm, ITERATIONS, 0.5, 1e-8)
        method.SetInitialTransform(transform, True)
        return method


def smoothed(volume: Volume, spacing_mm: Sequence[float]) -> Volume:
    """The scan blurred along each axis finer than `spacing_mm`, so that sampling it at that spacing does not alias.

    The blur makes the widths at half maximum add up to the new voxel's (Cardoso et al. 2015, doi:10.1007/978-3-319-24571-3_81).
    """
    array = np.asarray(volume.array, np.float32)
    for axis, (old, new) in enumerate(zip(volume.spacing_mm, spacing_mm, strict=True)):
        array = _blurred(array, new / old, axis)
    return Volume(array, volume.affine, volume.notes)


def _blurred(array: Float[np.ndarray, "*shape"], wider: float, axis: int) -> Float[np.ndarray, "*shape"]:
    """An array blurred along an axis for voxels that are so many times as wide."""
    if wider <= 1.05:  # within 5 % there is nothing to alias
        return array
    return gaussian_filter1d(array, math.sqrt((wider**2 - 1) / (8 * math.log(2))), axis, mode="nearest", truncate=3)


def coarse_copy(volume: Volume, spacing_mm: float) -> Volume:
    """A copy over the same field of view whose voxels are no finer than `spacing_mm`: made once, and kept while the scan is.

    One scan takes part in up to seven registrations.
    """
    copies = _COPIES.setdefault(volume, {})
    if spacing_mm not in copies:
        copies[spacing_mm] = _copied(volume, spacing_mm)
    return copies[spacing_mm]


def _copied(volume: Volume, spacing_mm: float) -> Volume:
    old = np.array(volume.spacing_mm)
    shape = np.maximum(np.round(np.array(volume.shape) * old / np.maximum(old, spacing_mm)), 1).astype(int)
    step = np.array(volume.shape) / shape  # in voxels of the scan; the outer faces stay where they are
    to_fine = np.block([[np.diag(step), (step - 1)[:, None] / 2], [np.zeros((1, 3)), np.ones((1, 1))]])
    background = float(volume.array[0, 0, 0])  # around a stripped brain all else is that, and stays so
    differs = volume.array != background
    if not differs.any():  # a mask that fills its grid
        return Volume(np.full(shape, background, np.float32), volume.affine @ to_fine, volume.notes)
    content = bounding_box(differs)
    source = widen(content, np.ceil(1.3 * step + 1).astype(int).tolist(), volume.shape)  # 1.3: three sigma of the blur
    target = widen(carry_box(source, np.linalg.inv(to_fine)), (0, 0, 0), shape.tolist())
    part = np.asarray(volume.array[source], np.float32)
    for kept, wanted, wide in zip(source, target, step.tolist(), strict=True):  # blur and interpolation in one matrix per axis
        index = np.arange(wanted.start, wanted.stop) * wide + (wide - 1) / 2 - kept.start
        part = np.tensordot(part, _interpolation(index, kept.stop - kept.start, wide), axes=(0, 1))  # its new axis is the last
    array = np.full(shape, background, np.float32)
    array[target] = part
    return Volume(array, volume.affine @ to_fine, volume.notes)


def _interpolation(index: Float[np.ndarray, "new"], voxels: int, wide: float) -> Float[np.ndarray, "new old"]:
    """What each of a line's voxels gives to the linear interpolation at an index, once it is blurred for voxels so wide."""
    blur = _blurred(np.eye(voxels, dtype=np.float32), wide, 0)
    low = np.floor(index.clip(0, voxels - 1)).astype(int)
    share = (index.clip(0, voxels - 1) - low)[:, None].astype(np.float32)
    return blur[low] * (1 - share) + blur[np.minimum(low + 1, voxels - 1)] * share
