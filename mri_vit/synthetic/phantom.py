"""A digital phantom: a synthetic head, its tissue and its tumour at any point, and the four scans that are taken of it.

Everything about a head is a function of a point in its T1ce's world (RAS+ mm): tissue from the MNI152 maps behind a smooth
deformation, tumour from the distance to its centre. A scan evaluates that function at its own voxels, so scans may lie on
any grid. Letters: n points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume
from mri_vit.settings.schema import CHANNELS

TISSUE = {  # relative signal of (CSF, grey, white, tumour core, enhancement, oedema); the order seen at 1.5 T
    "t1": (0.20, 0.62, 0.85, 0.35, 0.60, 0.55),
    "t1ce": (0.20, 0.64, 0.87, 0.33, 1.50, 0.56),
    "t2": (1.00, 0.62, 0.45, 0.95, 0.70, 0.85),
    "flair": (0.15, 0.65, 0.52, 0.55, 0.85, 1.10),
}
RIM_MM = 5.0  # of the built-in cohort's tumours
ENHANCEMENT = 4  # its column in TISSUE
CONTROLS = (12, 14, 12)  # points of the deformation, 16 mm apart
BEND_MM = 4.0  # about the residual between brains after rigid alignment
DENT = 0.12  # of a tumour's radius


@dataclass(frozen=True)
class Person:
    """A synthetic patient's row of the table, without the files."""

    id: str
    age: int
    sex: str
    site: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Case(Person):
    """One synthetic patient: position, size and look of the tumour."""

    centre_mm: tuple[float, float, float]
    radius_mm: float
    solid: bool
    wide_oedema: bool
    rim_mm: float  # thickness of the enhancing rim around the core
    rim_signal: float  # of contrast-enhancing tumour in T1ce, in the unit of TISSUE


@cache
def anatomy() -> tuple[dict[str, Float[np.ndarray, "x y z"]], Float[np.ndarray, "4 4"]]:
    """MNI152 tissue maps at 2 mm, softened to the scans' resolution, and their affine."""
    from nilearn import datasets  # here, because its import takes seconds

    t1 = datasets.load_mni152_template(resolution=2)
    grey, white = datasets.load_mni152_gm_template(resolution=2), datasets.load_mni152_wm_template(resolution=2)
    maps = {"t1": t1.get_fdata(), "grey": grey.get_fdata(), "white": white.get_fdata()}
    maps["brain"] = (datasets.load_mni152_brain_mask(resolution=2).get_fdata() > 0).astype(float)
    soft = {name: gaussian_filter(array.astype(np.float32), 0.6) for name, array in maps.items()}  # 1.2 mm: half a voxel
    soft["near"] = (gaussian_filter(maps["brain"], 3) > 1e-3).astype(np.float32)  # about 18 mm around: no bend reaches that far
    return soft, np.asarray(t1.affine, float)


@dataclass(frozen=True, eq=False)
class Head:
    """A patient's head without a tumour: tissue at any point of its T1ce's world."""

    to_mni: Float[np.ndarray, "4 4"]  # the head's pose in the scanner
    bend_mm: Float[np.ndarray, "3 x y z"]  # the deformation, over the box of the tissue maps

    def mni(self, points_mm: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
        """The points in the space of the tissue maps, before the deformation."""
        return points_mm @ self.to_mni[:3, :3].T + self.to_mni[:3, 3]

    def healthy(self, points_mm: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
        """Shares of CSF, grey and white; all zero outside the brain."""
        voxel = _voxel(self.mni(points_mm))
        near = _near(voxel)
        shares = np.zeros((len(points_mm), 3))
        healthy, _, brain = self._anatomy(voxel[:, near])
        shares[near] = healthy * brain[:, None]
        return shares

    def _anatomy(
        self, voxel: Float[np.ndarray, "3 n"]
    ) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Near the brain: shares of CSF, grey and white; along how much of a voxel oedema spreads; and what is brain."""
        maps, affine = anatomy()
        coarse = self._coarse(voxel)
        bent = voxel + np.stack([map_coordinates(axis, coarse, order=1, mode="nearest") for axis in self.bend_mm]) / affine[0, 0]
        grey, white, brain, t1 = (map_coordinates(maps[name], bent, order=1) for name in ("grey", "white", "brain", "t1"))
        csf = np.clip(brain - grey - white, 0, 1)
        healthy = np.stack([csf, grey, white], axis=1) * (0.9 + 0.2 * t1[:, None])  # a little of the template's own texture
        return healthy, np.clip(white + 0.3 * grey, 0, 1), brain > 0.5

    def _coarse(self, voxel: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 n"]:
        """Where voxels of the maps lie between the control points of the deformation."""
        return voxel * (np.array(self.bend_mm.shape[1:])[:, None] - 1) / (np.array(anatomy()[0]["t1"].shape)[:, None] - 1)


@dataclass(frozen=True, eq=False)
class Phantom(Head):
    """A patient's head: signal and truth at any point of its T1ce's world."""

    case: Case
    dent: Float[np.ndarray, "x y z"]  # makes the tumour uneven: its radius varies by this share

    def tissues(self, points_mm: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 6"]:
        """Shares of CSF, grey, white, core, enhancement and oedema; all zero outside the brain."""
        mni = self.mni(points_mm)
        voxel = _voxel(mni)
        near = _near(voxel)
        shares = np.zeros((len(mni), 6))
        shares[near] = self._near_brain(mni[near], voxel[:, near])
        return shares

    def _near_brain(self, mni: Float[np.ndarray, "n 3"], voxel: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "n 6"]:
        healthy, spread, brain = self._anatomy(voxel)
        away = np.linalg.norm(mni - self.case.centre_mm, axis=1) * (
            1 + map_coordinates(self.dent, self._coarse(voxel), order=1, mode="nearest")
        )
        radius, rim = self.case.radius_mm, self.case.rim_mm
        inside = _edge(radius - away)
        core = inside * (0.0 if self.case.solid else 1.0) * _edge(radius - rim - away)
        reach = radius * (1.9 if self.case.wide_oedema else 1.3)
        oedema = _edge(reach - away) * (1 - inside) * spread  # along white matter
        sick = np.stack([core, inside - core, oedema], axis=1)
        return np.concatenate([healthy * (1 - sick.sum(axis=1, keepdims=True)), sick * brain[:, None]], axis=1) * brain[:, None]


def _voxel(mni: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "3 n"]:
    _, affine = anatomy()
    return ((mni - affine[:3, 3]) / affine[0, 0]).T  # the maps' axes are RAS+ with equal spacing


def _near(voxel: Float[np.ndarray, "3 n"]) -> Bool[np.ndarray, "n"]:
    return map_coordinates(anatomy()[0]["near"], voxel, order=0) > 0


def _edge(depth_mm: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """A border softened over 2 mm, about half a scan voxel: 1 inside, 0 outside."""
    return np.clip(0.5 + depth_mm / 2, 0, 1)


def scan(case: Case, rng: np.random.Generator) -> tuple[dict[str, Volume], Volume]:
    """The patient's four scans, and the true tumour in the T1ce scan's space."""
    bend = unscaled_bend(rng)
    dent = gaussian_filter(rng.normal(size=CONTROLS), 1)
    head = Phantom(pose(rng), scaled(bend, BEND_MM), case, scaled(dent, DENT))
    scans = {}
    truth = None
    for channel in CHANNELS:
        moved = rigid(rng.normal(0, 1.5, 3), rng.normal(0, 1.5, 3)) if channel == "t2" else np.eye(4)
        grid = _grid(rng)
        points = points_of(grid)
        shares = head.tissues(points @ moved[:3, :3].T + moved[:3, 3])
        brain = shares.any(axis=1)
        tissue = np.array(TISSUE[channel])
        if channel == "t1ce":
            tissue[ENHANCEMENT] = case.rim_signal
        signal = shares[brain] @ tissue * receive_field(points[brain], rng)
        noise = rng.normal(0, 0.03, signal.shape)  # 3 % of white matter: an ordinary clinical scan
        gain = rng.uniform(300, 900)  # scanners have no unit
        array = np.zeros(len(points), np.int16)
        array[brain] = np.maximum(gain * (signal + noise), 1)
        scans[channel] = Volume(array.reshape(grid.shape), grid.affine)
        if channel == "t1ce":
            label = np.where(shares[:, 3:].max(axis=1) > 0.5, shares[:, 3:].argmax(axis=1) + 1, 0)
            truth = Volume(label.reshape(grid.shape).astype(np.uint8), grid.affine)
    assert truth is not None
    return scans, truth


def pose(rng: np.random.Generator) -> Float[np.ndarray, "4 4"]:
    """The pose of a head: some degrees, some mm off straight."""
    return rigid(rng.normal(0, 4, 3), rng.normal(0, 5, 3))


def unscaled_bend(rng: np.random.Generator) -> Float[np.ndarray, "3 x y z"]:
    """A deformation at its control points, smooth over two of them."""
    return gaussian_filter(rng.normal(size=(3, *CONTROLS)), (0, 2, 2, 2))


def scaled(field: Float[np.ndarray, "..."], deviation: float) -> Float[np.ndarray, "..."]:
    """The field with this standard deviation."""
    return deviation * field / field.std()


def rigid(degrees: Float[np.ndarray, "3"], shift_mm: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, 3] = shift_mm
    return matrix


def _grid(rng: np.random.Generator) -> Volume:
    """An empty grid over the head: thick slices, slightly oblique, with axes in some scanner's order and directions."""
    spacing = np.array([*[rng.uniform(3.0, 4.0)] * 2, rng.uniform(3.5, 5.0)])[rng.permutation(3)]
    shape = np.ceil(np.array([190, 220, 200]) / spacing).astype(int)  # mm; holds the MNI152 brain in any pose of `scan`
    axes = rigid(rng.normal(0, 5, 3), np.zeros(3))[:3, :3] * spacing
    centre = np.array([0.0, -17.0, 5.0])  # middle of the MNI152 brain's box
    order, sign = rng.permutation(3), rng.choice([-1, 1], 3)
    affine = np.eye(4)
    affine[:3, :3] = (axes * sign)[:, order]
    shape = shape[order]
    affine[:3, 3] = centre - affine[:3, :3] @ ((shape - 1) / 2)
    return Volume(np.zeros(shape, np.uint8), affine)


def points_of(grid: Volume) -> Float[np.ndarray, "n 3"]:
    x, y, z = (
        index[..., None] * column
        for index, column in zip(np.ogrid[tuple(map(slice, grid.shape))], grid.affine[:3, :3].T, strict=True)
    )
    return (x + y + z + grid.affine[:3, 3]).reshape(-1, 3)


def receive_field(points_mm: Float[np.ndarray, "n 3"], rng: np.random.Generator) -> Float[np.ndarray, "n"]:
    """A smooth receive field, strongest towards a random side: ±20 % over the head, as at 1.5 to 3 T."""
    points = points_mm / 100  # decimetres: about -1 to 1 over a head
    slope, curve = rng.normal(0, 0.12, 3), rng.normal(0, 0.08, 3)
    return np.exp(np.clip(points @ slope + points**2 @ curve, -math.log(2), math.log(2)))
