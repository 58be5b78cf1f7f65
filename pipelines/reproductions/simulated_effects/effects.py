"""The built-in cohort with simulated effects: labels that show in how a tumour's voxels lie, and in no sequence's brightness.

Everybody has one tumour, of which half is bright in T2, half in FLAIR, and a fifth takes up contrast; every cause is a coin of
its own, and none changes how many voxels of a sequence have which signal. Where a tumour lies is decided on a lattice around it,
whose values are then ranked: so its volume, its halves and its enhancing part are as large as asked for, whatever its form.

Letters: n points, v nodes of the lattice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import distance_transform_edt, gaussian_filter, map_coordinates

from mri_vit.data.volume import Volume
from mri_vit.settings.file import DEMO_PATIENT
from mri_vit.settings.schema import CHANNELS
from mri_vit.synthetic import (
    BEND_MM,
    TISSUE,
    WORKERS,
    Head,
    Person,
    anatomy,
    points_of,
    pose,
    receive_field,
    rigid,
    scaled,
    unscaled_bend,
    written,
)

RECIPE = 4  # raised with every change to the files, so that an older cohort is made anew
RADIUS_MM = (15.0, 20.0)  # of a ball of the tumour's volume: two patches of 16 mm across, or three
SPACING_MM = (1.8, 2.2)  # of scans: what a grain of 2 mm needs
LATTICE_MM = 1.5  # finer than a scan
REACH_MM = 60.0  # of the lattice to each side: holds three foci of the largest volume
APART_MM = {True: 20.0, False: -1.0}  # between two balls: more than a patch, or they run together, with a tenth less surface
TURNS = 16  # how often their triangle is turned
OFF_CENTRE_MM = 15.0  # the least distance from the plane between the brain's halves, so that nobody's side is in doubt
EVEN_MM, UNEVEN_MM = 1.5, 4.0  # standard deviation of a border's bumps: broad ones of everybody, fine ones of an irregular border
BROAD_MM, BUMP_MM = 9.0, 3.5  # how far such bumps reach: standard deviation of the filter that makes them from noise
GRAIN_MM = {False: 1.8, True: 5.0}  # the same of the grain of T1: fine, coarse
PREVAILS = {"texture": 0.9, "mismatch": 0.65}  # share of a tumour that shows it; the rest shows the opposite: none is all alike
PARTS_MM = 9.0  # how far such parts reach, as BROAD_MM: a patch of 16 mm is mostly of one
BLUR_MM = 1.2  # by which scan and grid, of 2 mm each, blur a grain: a fine one has as much more contrast before
HALVES_MM = 4.0  # the same of the parts that are bright in T2, and in FLAIR
PULL = 0.1  # per mm inward or outward: tilt of the field whose highest part takes up contrast, by its own spread
ENHANCING, DEEP_MM = 0.22, 3.0  # share of the tumour that takes up contrast, this deep in it: two voxels, whatever its border
SIGNAL = {"t1": 0.50, "t1ce": 0.55, "t2": (0.75, 1.00), "flair": (0.70, 1.00)}  # in the unit of TISSUE; of halves, the two
GRAIN, CONTRAST = 0.10, 1.40  # standard deviation of T1's grain; signal of enhancement
NOISE = {"A": 0.03, "B": 0.05}  # of white matter, by site: the scanner's signature
CONFOUNDED = 0.85  # of patients have the label of their site
COINS = ("texture", "mismatch", "side", "inward", "border", "foci", "coin", "scanner")  # side and site decide two
LABELS = ("texture", "mismatch", "side", "interaction", "inward", "border", "foci", "coin", "scanner")
README = """# The built-in cohort, hidden causes

{patients} made-up patients (seed {seed}, recipe {recipe}) on the anatomy of the built-in cohort, scanned with voxels of
{least} to {most} mm. **No real person is in it.** Each label is a coin of its own, and each tumour shows all causes at once:

| column | cause in the scans |
|---|---|
| `texture` | 1: the grain of T1 is coarse in {coarse:.0%} of the tumour, 0: in the rest alone; else fine, of equal variance |
| `mismatch` | 1: FLAIR is dark where T2 is bright in {turned:.0%} of the tumour, 0: in the rest alone; else bright there too |
| `side` | 1: the tumour lies in the left half of the brain; the template's halves are mirror images |
| `interaction` | 1: a mismatch in the left half or none in the right one; neither alone tells it, nor do both added up |
| `inward` | 1: the part that takes up contrast lies towards the middle of the brain, 0: away from it |
| `border` | 1: the border is irregular, 0: even; the volume is the same |
| `foci` | 1: three foci that lie apart, 0: three that have run together, of the same volume and about the same surface |
| `coin` | **none**; a model that finds it is wrong |
| `scanner` | **a trap**: in {confounded:.0%} of patients 1 at site B, whose scans have more noise, and 0 at site A |

How much brightness alone tells of each is measured before any network is:
`pipelines/reproduce.py simulated_effects/causes`. No label tells age or sex.
`truth/<patient>.nii.gz`, the column `tumour_mask`, is the tumour in the T1ce scan's space. `train.mask_supervision_…` learns from
it; to predict, no network sees it, unless scans are cut around it. The last {unlabelled} patients have no label.
"""


@dataclass(frozen=True)
class Hidden(Person):
    """One patient: where the tumour lies, how large it is, and which causes it shows. Its side is that of its centre."""

    centre_mm: tuple[float, float, float]
    volume_mm3: float
    texture: bool
    mismatch: bool
    inward: bool
    border: bool
    foci: bool


def make(folder: Path, seed: int, patients: int, unlabelled: int = 0, workers: int = WORKERS) -> Path:
    """Write the cohort (scans, `cohort.csv`, `README.md`, `truth/`) into `folder`, `workers` patients at a time, and return
    the table's path.

    Of the `patients` the last `unlabelled` have no label. A folder that already holds the same cohort is left as it is.
    """
    readme = README.format(
        patients=patients, seed=seed, recipe=RECIPE, unlabelled=unlabelled, confounded=CONFOUNDED,
        least=SPACING_MM[0], most=SPACING_MM[1], coarse=PREVAILS["texture"], turned=PREVAILS["mismatch"],
    )  # fmt: skip
    return written(folder, seed, draw_cases(patients, np.random.default_rng(seed), unlabelled), readme, scan, workers)


def draw_cases(n: int, rng: np.random.Generator, unlabelled: int = 0) -> list[Hidden]:
    """Patients with their causes and labels, the last `unlabelled` without labels."""
    maps, affine = anatomy()
    deep = np.argwhere(maps["white"] > 0.8) @ affine[:3, :3].T + affine[:3, 3]  # inside white matter, not at its edge
    deep = deep[abs(deep[:, 0]) > OFF_CENTRE_MM]
    centres = deep[rng.choice(len(deep), n)]
    radius, age = rng.uniform(*RADIUS_MM, n), np.clip(rng.normal(61, 11, n), 20, 88).round()  # as in the built-in cohort
    sex, site = rng.choice(["F", "M"], n, p=[0.4, 0.6]), rng.choice(["A", "B"], n)
    coins = {name: rng.random(n) < 0.5 for name in COINS}
    left = centres[:, 0] < 0
    labels = coins | {"side": left, "interaction": coins["mismatch"] == left}
    labels["scanner"] = (site == "B") == (rng.random(n) < CONFOUNDED)
    return [
        Hidden(
            id=f"{DEMO_PATIENT}{i + 1:03d}",
            age=int(age[i]),
            sex=str(sex[i]),
            site=str(site[i]),
            labels={name: f"{labels[name][i]:.0f}" if i < n - unlabelled else "" for name in LABELS},
            centre_mm=(float(centres[i, 0]), float(centres[i, 1]), float(centres[i, 2])),
            volume_mm3=float(4 / 3 * np.pi * radius[i] ** 3),
            texture=bool(coins["texture"][i]),
            mismatch=bool(coins["mismatch"][i]),
            inward=bool(coins["inward"][i]),
            border=bool(coins["border"][i]),
            foci=bool(coins["foci"][i]),
        )
        for i in range(n)
    ]


@dataclass(frozen=True, eq=False)
class Tumour:
    """A tumour on its lattice, in the space of the tissue maps: how much of a node it is, and its signal in each sequence."""

    first_mm: Float[np.ndarray, "3"]
    share: Float[np.ndarray, "v v v"]
    signal: dict[str, Float[np.ndarray, "v v v"]]

    def at(self, mni: Float[np.ndarray, "n 3"], channel: str) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """How much of each point is tumour, and the tumour's signal there."""
        node = ((mni - self.first_mm) / LATTICE_MM).T
        share = map_coordinates(self.share, node, order=1, cval=0.0)
        return share, map_coordinates(self.signal[channel], node, order=1, mode="nearest")


def grown(case: Hidden, rng: np.random.Generator) -> Tumour:
    """The patient's tumour. What a cause does not change is drawn alike with it and without."""
    axis = np.arange(-REACH_MM, REACH_MM + LATTICE_MM / 2, LATTICE_MM)
    offset = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    maps, affine = anatomy()
    voxel = (offset + case.centre_mm - affine[:3, 3]) / affine[0, 0]
    brain = map_coordinates(maps["brain"], np.moveaxis(voxel, -1, 0), order=1) > 0.5

    def field(reach_mm: float) -> Float[np.ndarray, "v v v"]:
        return scaled(gaussian_filter(rng.normal(size=brain.shape), reach_mm / LATTICE_MM), 1.0)

    away = np.min([np.linalg.norm(offset - one, axis=-1) for one in _foci(case, brain, rng)], axis=0)
    broad, fine = field(BROAD_MM), field(BUMP_MM)
    bumpy = np.where(brain, away + EVEN_MM * broad + UNEVEN_MM * case.border * fine, np.inf)
    depth = _least(bumpy, round(case.volume_mm3 / LATTICE_MM**3)) - bumpy
    inside = depth > 0
    parts = [field(PARTS_MM) for _ in range(2)]
    coarse, mismatched = (
        (part < np.quantile(part[inside], share)) == getattr(case, name)
        for part, (name, share) in zip(parts, PREVAILS.items(), strict=True)
    )
    to_middle = -np.sign(case.centre_mm[0]) * offset[..., 0]
    halves, spots = field(HALVES_MM), field(HALVES_MM) + PULL * (to_middle if case.inward else -to_middle)
    bright = halves > np.where(mismatched, *(np.median(halves[inside & part]) for part in (mismatched, ~mismatched)))
    enhancing = _most(np.where(depth > DEEP_MM, spots, -np.inf), round(ENHANCING * inside.sum()))
    fine_grain, coarse_grain = (_of_unit_spread(field(GRAIN_MM[reach]), inside) for reach in (False, True))
    grain = _of_unit_spread(np.where(coarse, coarse_grain, fine_grain), inside)
    (dim_t2, bright_t2), (dim_flair, bright_flair) = SIGNAL["t2"], SIGNAL["flair"]
    signal = {
        "t1": SIGNAL["t1"] + GRAIN * (grain - grain[inside].mean()),
        "t1ce": np.where(enhancing, CONTRAST, SIGNAL["t1ce"]),
        "t2": np.where(bright, bright_t2, dim_t2),
        "flair": np.where(bright != mismatched, bright_flair, dim_flair),
    }
    return Tumour(np.array(case.centre_mm) - REACH_MM, np.clip(0.5 + depth / LATTICE_MM, 0, 1), signal)


def _foci(case: Hidden, brain: Bool[np.ndarray, "v v v"], rng: np.random.Generator) -> Float[np.ndarray, "3 3"]:
    """Centres of the balls that a tumour begins as, about its own: corners of a triangle, of `TURNS` random turns the one whose
    corners lie deepest in the brain.
    """
    turns = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(TURNS)]
    radius = (case.volume_mm3 / (4 * np.pi)) ** (1 / 3)  # of a third of the volume
    angle = 2 * np.pi * np.arange(3)[:, None] / 3
    edge = 2 * radius + APART_MM[case.foci]
    corners = [edge / np.sqrt(3) * (np.cos(angle) * across + np.sin(angle) * up) for across, up, _ in turns]
    deep = np.asarray(distance_transform_edt(brain))
    return max(corners, key=lambda found: deep[tuple(np.rint((found + REACH_MM) / LATTICE_MM).astype(int).T)].min())


def _of_unit_spread(grain: Float[np.ndarray, "v v v"], inside: Bool[np.ndarray, "v v v"]) -> Float[np.ndarray, "v v v"]:
    """With a spread of 1 inside, as blurred by scan and grid."""
    return grain / gaussian_filter(grain, BLUR_MM / LATTICE_MM)[inside].std()


def _least(values: Float[np.ndarray, "v v v"], count: int) -> float:
    """The value below which so many lie."""
    return float(np.partition(values, count, axis=None)[count])


def _most(values: Float[np.ndarray, "v v v"], count: int) -> Bool[np.ndarray, "v v v"]:
    """Which of them are the largest, so many, or as many as are finite."""
    return (values >= -_least(-values, count - 1)) & np.isfinite(values)


def scan(case: Hidden, rng: np.random.Generator) -> tuple[dict[str, Volume], Volume]:
    """The patient's four scans, and the true tumour in the T1ce scan's space."""
    bend = unscaled_bend(rng)
    head = Head(pose(rng), scaled(bend, BEND_MM))
    tumour = grown(case, rng)
    scans = {}
    truth = None
    for channel in CHANNELS:
        grid = _grid(rng)
        points = points_of(grid)
        healthy = head.healthy(points)
        brain = healthy.any(axis=1)
        share, sick = tumour.at(head.mni(points[brain]), channel)
        signal = (healthy[brain] @ np.array(TISSUE[channel][:3]) * (1 - share) + sick * share) * receive_field(points[brain], rng)
        noise = rng.normal(0, NOISE[case.site], signal.shape)
        array = np.zeros(len(points), np.int16)
        array[brain] = np.maximum(rng.uniform(300, 900) * (signal + noise), 1)  # scanners have no unit
        scans[channel] = Volume(array.reshape(grid.shape), grid.affine)
        if channel == "t1ce":
            label = np.zeros(len(points), np.uint8)
            label[brain] = share > 0.5
            truth = Volume(label.reshape(grid.shape), grid.affine)
    assert truth is not None
    return scans, truth


def _grid(rng: np.random.Generator) -> Volume:
    """An empty grid over the head, slightly oblique."""
    spacing = rng.uniform(*SPACING_MM, 3)
    shape = np.ceil(np.array([190, 220, 200]) / spacing).astype(int)  # mm; holds the MNI152 brain in any pose
    affine = np.eye(4)
    affine[:3, :3] = rigid(rng.normal(0, 4, 3), np.zeros(3))[:3, :3] * spacing
    affine[:3, 3] = np.array([0.0, -17.0, 5.0]) - affine[:3, :3] @ ((shape - 1) / 2)  # the middle of the brain's box
    return Volume(np.zeros(shape, np.uint8), affine)
