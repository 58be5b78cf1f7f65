"""The built-in cohort: synthetic patients on real anatomy, with known effects in their scans; each head is a digital phantom.

A phantom is a head, its tissue and its tumour at any point, and the four scans that are taken of it. Everything about a head is a
function of a point in its T1ce's world (RAS+ mm): tissue from the MNI152 maps behind a smooth deformation, tumour from the
distance to its centre. A scan evaluates that function at its own voxels, so scans may lie on any grid. Letters: n points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.spatial.transform import Rotation
from threadpoolctl import threadpool_limits

from mri_vit.data import sheet
from mri_vit.data.nifti import SYNTHETIC
from mri_vit.data.volume import Volume, write
from mri_vit.errors import UsageError
from mri_vit.run.atomic import write_bytes
from mri_vit.run.jobs import CONTEXT, end_with_parent
from mri_vit.settings.file import DEMO_PATIENT
from mri_vit.settings.schema import CHANNELS

TISSUE = {  # relative signal of (CSF, grey, white, tumour core, enhancement, oedema); the order seen at 1.5 T
    "t1": (0.20, 0.62, 0.85, 0.35, 0.60, 0.55),
    "t1ce": (0.20, 0.64, 0.87, 0.33, 1.50, 0.56),
    "t2": (1.00, 0.62, 0.45, 0.95, 0.70, 0.85),
    "flair": (0.15, 0.65, 0.52, 0.55, 0.85, 1.10),
}
RIM_MM = 5.0  # of the built-in cohort's tumours
CORE, ENHANCEMENT = 3, 4  # their columns in TISSUE
CONTROLS = (12, 14, 12)  # points of the deformation, 16 mm apart
BEND_MM = 4.0  # about the residual between brains after rigid alignment
DENT_SHARE = 0.12  # of a tumour's radius
DRAWN_SHARE = 0.2  # of a voxel that must be tumour for its truth: readers draw the soft border of an oedema with it

PATIENTS = 96
SEED = 20261121  # fixed before the study was first run on it; settings were chosen on other seeds
WORKERS = 2  # no machine has fewer cores today
RECIPE = 7  # raised with every change to the files, so that an older cohort is made anew
MISSING = 0.15  # of each label
CENSORED = 0.30  # of survival times
TYPES = {"gbm": "t1", "astro": "flair", "oligo": "t2"}  # in which scan a tumour is darker than the two others let expect
LEVEL = {"t1": 0.60, "t2": 0.90, "flair": 0.95}  # of a tumour inside, the mean of patients: all are seen beside white matter
COMMON = 0.30  # how far a tumour is off LEVEL at most, up or down, in all three scans alike: more than its type makes of it
DARKER = 0.25  # how much darker the type makes it in one of them: eight times the noise of a voxel
UPTAKE = {2: 1.05, 3: 1.70, 4: 2.50}  # of contrast by grade, in the unit of TISSUE, where white matter has 0.87
UPTAKE_SD = 0.10  # of that between patients of one grade, so that none equals another
THIN_RIM_MM = 2.0  # so that the core, and not the rim, is most of a tumour
NECROTIC = (0.05, 0.90)  # least and largest share of the core: either part is then at least about a voxel thick
FLUID, FAINT = 0.20, 0.90  # signal of necrosis in T1ce, as of CSF; how much of the uptake the rest of a core has without `mgmt`
ADDED = ("who_type", "grade", "necrosis_share", "null_type", "null_grade", "null_number")  # label columns of the added kinds
README = """# The built-in cohort

{patients} synthetic patients (seed {seed}, recipe {recipe}) on real anatomy: the MNI152 T1 and its grey and white matter maps
(Fonov et al. 2011, as shipped in nilearn), each behind a smooth random deformation, with four coarse scans (3 to 5 mm) on
different grids, spacings and axis orders. **No real person is in it.** Simulated effects:

| column | cause in the scans | verdict to expect of a network |
|---|---|---|
| `mgmt` | 1: the whole tumour takes up contrast; 0: only its rim | better than chance |
| `tertp` | 1: the tumour lies in the left half of the brain | better than chance |
| `pten` | **none**: drawn at random | chance; a model that finds it is wrong |
| `os_days`, `os_event` | Weibull time, longer with `mgmt`, shorter with size, age; {censored:.0%} censored | better than chance |

MGMT, and with it survival, can also be predicted from 36 statistics of brightness (the control `intensity`), which is no merit of
a network. The template's halves are mirror images, so that only the position determines `tertp`: it is for a network to find, one
that flipped patients do not teach it (`train.laterality_endpoints`). Where a network makes almost no mistake there, the report
warns that this is too good to be believed unchecked, as for a real label.
Oedema reaches 1.3 or 1.9 tumour radii; this, site and sex are unrelated to the labels.
{missing:.0%} of each label are missing at random{unlabelled}. T2 was "taken" after a small movement of the head that is not in
its header. `truth/<patient>.nii.gz`, the column `tumour_mask`, is the tumour (1 core, 2 enhancing, 3 oedema) in the T1ce
scan's space. The demo's study does not learn from it: masks are found in the scans (`prepare.tumour = "found"`), for the network
and for the controls; the true ones judge maps.
"""
README_OF_KINDS = """
## Labels of further kinds

| column | cause in the scans | verdict to expect of a network |
|---|---|---|
| `who_type`: gbm, astro, oligo | the tumour is darker in T1, FLAIR or T2 than in the two others | better than chance |
| `grade`: 2, 3, 4 | how bright the tumour's uptake of contrast is, faint to strong | better than chance |
| `necrosis_share`, % | how much of the core is dark in T1ce, from one side on; 5 to 90 | better than chance |
| `null_type`, `null_grade`, `null_number` | **none**: as many of each value as above, drawn at random | chance |

Each is drawn by itself, whatever the other labels are; {missing:.0%} of each are missing. T1, T2 and FLAIR show the type, T1ce
shows grade and necrosis. A tumour is brighter or darker than others in T1, T2 and FLAIR at once, by more than the type makes of
it: no single scan tells the type, they must be compared. The core is what lies within the rim; its necrosis is a cap, as dark as
fluid. The rest of the core takes up as much contrast as the rim where `mgmt` is 1, and {faint:.0%} of that where it is 0, and the
rim is thin: so necrosis is seen whatever `mgmt` is, and of `mgmt` hardly anything is left. Statistics of brightness
(the control `intensity`) can tell all three, as they can MGMT; volume, the rest of the brain, site, age and sex cannot.
"""


@dataclass(frozen=True)
class Look:
    """How a tumour looks by the labels of further kinds."""

    level: dict[str, float]  # signal in T1, T2 and FLAIR, alike in core and enhancement
    necrotic: float  # share of the core
    towards: tuple[float, float, float]  # where in the core that is: a direction of length 1


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
    look: Look | None = None  # with labels of further kinds


P = TypeVar("P", bound=Person)
Scan = Callable[[P, np.random.Generator], tuple[dict[str, Volume], Volume]]  # of the four scans, and of the true tumour


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
        dented = 1 + map_coordinates(self.dent, self._coarse(voxel), order=1, mode="nearest")
        away = np.linalg.norm(mni - self.case.centre_mm, axis=1) * dented
        radius, rim, look = self.case.radius_mm, self.case.rim_mm, self.case.look
        inside = _edge(radius - away)
        dark = 0.0 if self.case.solid else 1.0
        if look:
            height = (mni - self.case.centre_mm) @ np.array(look.towards) * dented
            dark = np.maximum(dark * (1 - FAINT), _edge(height - (radius - rim) * _cap(look.necrotic)))
        core = inside * dark * _edge(radius - rim - away)
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


def _cap(share: float) -> float:
    """How high above the centre of a ball of radius 1 a plane lies that cuts off this share of it."""
    return 2 * math.cos((math.acos(2 * share - 1) + 4 * math.pi) / 3)  # the root of t³ - 3t + 2 - 4 share between -1 and 1


def scan(case: Case, rng: np.random.Generator) -> tuple[dict[str, Volume], Volume]:
    """The patient's four scans, and the true tumour in the T1ce scan's space."""
    bend = unscaled_bend(rng)
    dent = gaussian_filter(rng.normal(size=CONTROLS), 1)
    head = Phantom(pose(rng), scaled(bend, BEND_MM), case, scaled(dent, DENT_SHARE))
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
        if case.look:
            tissue[CORE] = case.look.level.get(channel, FLUID)
            tissue[ENHANCEMENT] = case.look.level.get(channel, case.rim_signal)
        signal = shares[brain] @ tissue * receive_field(points[brain], rng)
        noise = rng.normal(0, 0.03, signal.shape)  # 3 % of white matter: an ordinary clinical scan
        gain = rng.uniform(300, 900)  # scanners have no unit
        array = np.zeros(len(points), np.int16)
        array[brain] = np.maximum(gain * (signal + noise), 1)
        scans[channel] = Volume(array.reshape(grid.shape), grid.affine)
        if channel == "t1ce":
            label = np.where(shares[:, 3:].sum(axis=1) > DRAWN_SHARE, shares[:, 3:].argmax(axis=1) + 1, 0)
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


def make(folder: Path, seed: int = SEED, patients: int = PATIENTS, unlabelled: int = 0, kinds: bool = False) -> Path:
    """Write the cohort (scans, `cohort.csv`, `README.md`, `truth/`) into `folder` and return the table's path.

    Of the `patients` the last `unlabelled` have no label at all. With `kinds` the table has labels of further kinds too, classes,
    grades and a number, and tumours look like them; the patients, their other labels, and where and how large their tumours are
    stay the same. A folder that already holds the same cohort is not changed.
    """
    readme = README.format(
        patients=patients, seed=seed, recipe=RECIPE, censored=CENSORED, missing=MISSING,
        unlabelled=f", and the last {unlabelled} patients have none" if unlabelled else "",
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    cases = draw_cases(patients, rng)
    if kinds:
        cases, readme = with_kinds(cases, rng), readme + README_OF_KINDS.format(missing=MISSING, faint=FAINT)
    labelled = patients - unlabelled
    cases[labelled:] = [replace(case, labels=dict.fromkeys(case.labels, "")) for case in cases[labelled:]]
    return written(folder, seed, cases, readme, scan)


def written(folder: Path, seed: int, cases: Sequence[P], readme: str, scan: Scan[P], workers: int = WORKERS) -> Path:
    """Write the scans that `scan` takes of `cases`, their table and a README, `workers` at a time, and return the table's path.

    A folder that already holds the same cohort is not changed. Raises UsageError for one with another table.
    """
    table, old = folder / "cohort.csv", folder / "README.md"
    if table.exists() and not (old.exists() and old.read_text(encoding="utf-8").startswith(README.partition("\n")[0])):
        raise UsageError(f"{table} is not the built-in cohort; choose another folder for it")
    if table.exists() and old.read_text(encoding="utf-8") == readme:
        return table
    table.unlink(missing_ok=True)  # a cohort with a table is whole
    (folder / "truth").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, CONTEXT, end_with_parent) as pool:
        list(pool.map(_write, cases, repeat(folder), [[seed, index] for index in range(len(cases))], repeat(scan), chunksize=4))
    write_bytes(readme.encode(), folder / "README.md")
    rows = (
        (
            *(case.id, *(f"{case.id}/{channel}.nii.gz" for channel in CHANNELS), f"truth/{case.id}.nii.gz"),
            *(case.age, case.sex, case.site, *case.labels.values()),
        )
        for case in cases
    )
    header = ["patient", *CHANNELS, "tumour_mask", "age", "sex", "site", *cases[0].labels]
    write_bytes(sheet.to_csv(header, rows), table)
    return table


def _write(case: P, folder: Path, seed: list[int], scan: Scan[P]) -> None:
    """One patient's files, in a worker."""
    with threadpool_limits(1):  # a second BLAS thread gains nothing, and spins on the core that the other worker needs
        scans, truth = scan(case, np.random.default_rng(seed))
    (folder / case.id).mkdir(exist_ok=True)
    for channel, volume in scans.items():
        write(volume, folder / case.id / f"{channel}.nii.gz", SYNTHETIC)
    write(truth, folder / "truth" / f"{case.id}.nii.gz", SYNTHETIC)


def draw_cases(n: int, rng: np.random.Generator) -> list[Case]:
    """Patients with their causes and labels."""
    maps, affine = anatomy()
    deep = np.argwhere(maps["white"] > 0.8)  # inside white matter, not at its edge
    centres = deep[rng.choice(len(deep), n)] @ affine[:3, :3].T + affine[:3, 3]
    radius = 16 + 12 * rng.beta(0.5, 0.5, n)  # 16 to 28 mm: smaller ones are not learned from so few patients; mostly small or
    # large, few between, because survival must be learned from some thirty deaths per fold
    age = np.clip(rng.normal(61, 11, n), 20, 88).round()  # glioblastoma's median age at diagnosis is about 64
    left = centres[:, 0] < 0
    solid, wide, pten = rng.random(n) < 0.5, rng.random(n) < 0.5, rng.random(n) < 0.4
    volume = (radius**3 - np.mean(radius**3)) / np.std(radius**3)
    # methylation multiplies time by 7 (in patients by about 1.5: Hegi et al. 2005, which 96 do not show); each standard deviation
    # of volume and age divides it by 1.8 and 1.2
    slowed = np.exp(np.where(solid, 1.0, -1.0) - 0.6 * volume - 0.15 * (age - age.mean()) / age.std())
    days = 450 * slowed * rng.weibull(2.5, n)  # 450 days: about the median under standard care (Stupp et al. 2005)
    chance = rng.random(n)
    follow_up = chance * np.quantile(days / chance, 1 - CENSORED)  # uniform, with CENSORED of the patients outliving theirs
    event = days <= follow_up
    days = np.maximum(np.minimum(days, follow_up).round(), 1)

    labels = _labels({"mgmt": solid, "tertp": left, "pten": pten, "os_days": days, "os_event": event}, rng)
    sex, site = rng.choice(["F", "M"], n, p=[0.4, 0.6]), rng.choice(["A", "B", "C"], n)
    return [
        Case(
            id=f"{DEMO_PATIENT}{i + 1:03d}",
            age=int(age[i]),
            sex=str(sex[i]),
            site=str(site[i]),
            labels={name: values[i] for name, values in labels.items()},
            centre_mm=(float(centres[i, 0]), float(centres[i, 1]), float(centres[i, 2])),
            radius_mm=float(radius[i]),
            solid=bool(solid[i]),
            wide_oedema=bool(wide[i]),
            rim_mm=RIM_MM,
            rim_signal=TISSUE["t1ce"][ENHANCEMENT],
        )
        for i in range(n)
    ]


def _labels(drawn: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, list[str]]:
    """The label columns as the table has them, some cells of each endpoint empty."""
    columns = {name: [f"{value:.0f}" for value in values] for name, values in drawn.items()}
    _forget(columns, (("mgmt",), ("tertp",), ("pten",), ("os_days", "os_event")), rng)
    return columns


def _forget(columns: dict[str, list[str]], endpoints: Sequence[Sequence[str]], rng: np.random.Generator) -> None:
    """Empty some cells of each endpoint, in all its columns at once."""
    for endpoint in endpoints:
        n = len(columns[endpoint[0]])
        for row in rng.choice(n, round(MISSING * n), replace=False):
            for column in endpoint:
                columns[column][row] = ""


def with_kinds(cases: Sequence[Case], rng: np.random.Generator) -> list[Case]:
    """The same patients with labels of further kinds, and with tumours that look like them."""
    n = len(cases)
    names = rng.permutation(np.resize(list(TYPES), n))  # as many of each, and so no rare class
    grades = rng.permutation(np.resize(list(UPTAKE), n))
    share = rng.uniform(*NECROTIC, n)
    common, spread = rng.uniform(-COMMON, COMMON, n), rng.normal(0, UPTAKE_SD, n)
    towards = rng.normal(size=(n, 3))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    columns = {"who_type": [str(name) for name in names], "grade": [f"{grade}" for grade in grades]}
    columns["necrosis_share"] = [f"{100 * value:.0f}" for value in share]
    for null, like in (("null_type", "who_type"), ("null_grade", "grade"), ("null_number", "necrosis_share")):
        columns[null] = [columns[like][row] for row in rng.permutation(n)]
    _forget(columns, [[name] for name in ADDED], rng)
    return [
        replace(
            case,
            labels=case.labels | {name: columns[name][i] for name in ADDED},
            rim_mm=THIN_RIM_MM,
            rim_signal=UPTAKE[int(grades[i])] + float(spread[i]),
            look=Look(
                {channel: level + float(common[i]) - DARKER * (TYPES[names[i]] == channel) for channel, level in LEVEL.items()},
                float(share[i]),
                (float(towards[i, 0]), float(towards[i, 1]), float(towards[i, 2])),
            ),
        )
        for i, case in enumerate(cases)
    ]
