"""Which planted causes are fit for a test of networks? What brightness and an oracle tell of each, before any network is trained.

.venv/bin/python pipelines/reproduce.py simulated_effects/causes causes.toml
.venv/bin/python pipelines/reproduce.py simulated_effects/causes causes.toml --patients 96 --seed 2      (quicker)

Result: runs/causes/SEED/causes.csv, and the same as a table.
A cause is fit for a test of networks where brightness is near chance and the oracle, which knows the tumour and what to look for,
is not: then the scans that a network reads hold the cause, and no threshold finds it. Both read the prepared grid.

Letters: e voxels of an edge of the grid, n voxels of a region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.ndimage import binary_erosion, gaussian_filter

from mri_vit import study
from mri_vit.cli.arguments import Count, Seed
from mri_vit.crossval import folds
from mri_vit.data import run_cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import token_file
from mri_vit.metrics.discrimination import auc, auc_interval
from mri_vit.metrics.within_fold import CHANCE
from mri_vit.predictors.patient_tables import intensity_table
from mri_vit.prepare.prepared import mask_on_grid
from mri_vit.report.words.notation import between, number
from mri_vit.run import folder as run_folder
from mri_vit.run import screen
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study
from reproductions.probes import table
from reproductions.simulated_effects import effects

CONFIG = Path(__file__).with_name("causes.toml")
PATIENTS = 384  # half-widths of the intervals of an AUC near 0.5 are 0.06 with so many


def main(file: Path = CONFIG, *, seed: Seed = 1, patients: Count = PATIENTS) -> None:
    """Make the cohort of this seed, prepare it, and write what tells its causes."""
    console = Console()
    settings = study_file.filled(study_file.load(file), seed=seed).model_copy(update={"seed": seed})
    effects.make(settings.cohort.parent, seed, patients)
    with run_folder.claimed(settings) as run:
        study.prepare(settings, study.check(settings, run), run, console)
        people = run_cohort.included(settings, run)
        split = folds.make(people, settings.endpoints, settings.train, seed)[0]
        found = measure(settings, people, split, seed)
        table = pd.DataFrame([asdict(one) | {"fit": one.fit} for one in found])
        write_bytes(table.to_csv(index=False).encode(), run / "causes.csv")
        console.print(shown(found))
        screen.say(console, f"table: {run / 'causes.csv'}")


BRIGHTNESS, ORACLE = 0.60, 0.95  # at most, and at least: what the project asks of a cause before a network is tested on it
LAGS = (2, 4)  # voxels of 2 mm: a fine grain has forgotten itself after 4 mm, a coarse one has not


@dataclass(frozen=True)
class Cause:
    """One label: AUC with its 95 % interval of out-of-fold scores from brightness, and of the oracle; None where it has none.

    `brain` is of statistics over the brain, `tumour` of those and of the same over the tumour; `best` the AUC of the single
    statistic over the brain that tells most, in either direction, which was picked for that among `picked_from`.
    """

    name: str
    patients: int
    brain: tuple[float, float, float]
    tumour: tuple[float, float, float]
    best: tuple[str, float]
    picked_from: int
    oracle: tuple[float, float, float] | None

    @property
    def fit(self) -> bool:
        """Whether networks may be tested on it."""
        return self.brain[0] <= BRIGHTNESS and self.oracle is not None and self.oracle[0] >= ORACLE


def measure(study: Study, patients: Sequence[Patient], folds: Sequence[Sequence[str]], seed: int) -> list[Cause]:
    """Every endpoint of the study, in its order.

    Parameters
    ----------
    patients : prepared, all with every label and a tumour mask.
    folds : the ids that each fold tests.
    """
    ids = [patient.id for patient in patients]
    statistics = intensity_table(patients, study)
    brain = statistics.filter(regex="^(?!tumour_)")
    vectors = {"brain": filled(brain), "tumour": filled(statistics)}
    shown = [subject(patient, study) for patient in patients]
    found = []
    for name in (endpoint.name for endpoint in study.endpoints):
        truth = np.array([patient.labels[name] for patient in patients]) == 1
        scores = table(vectors, ids, truth.astype(float), folds, seed, (1.0,))
        linear = {read: rows.set_index("patient").score for read, rows in scores[scores.probe == "linear"].groupby("features")}
        single = {str(one): auc(truth, values.to_numpy()) for one, values in brain.dropna(axis="columns").items()}
        best = max(single, key=lambda one: abs(single[one] - CHANCE))
        found.append(
            Cause(
                name,
                len(patients),
                told(truth, linear["brain"][ids].to_numpy()),
                told(truth, linear["tumour"][ids].to_numpy()),
                (best, max(single[best], 1 - single[best])),
                len(single),
                told(truth, np.array([ORACLES[name](one) for one in shown])) if name in ORACLES else None,
            )
        )
    return found


def shown(found: Sequence[Cause]) -> Table:
    """The table, in 80 columns."""
    title = (
        f"AUC [95 %] of {found[0].patients} patients; fit where brightness over the brain has {BRIGHTNESS:.2f} or less, and the"
        f" oracle {ORACLE:.2f} or more. The best of {found[0].picked_from} statistics was picked for that."
    )
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("cause", "brain", "with tumour", "best statistic", "oracle", "fit"):
        drawn.add_column(column)
    for one in found:
        oracle = between(*one.oracle) if one.oracle else "none"
        best = f"{number(one.best[1])} {one.best[0]}"
        drawn.add_row(one.name, between(*one.brain), between(*one.tumour), best, oracle, "yes" if one.fit else "no")
    return drawn


def told(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """AUC and its interval."""
    low, high = auc_interval(truth, score)
    return auc(truth, score), low, high


def filled(statistics: pd.DataFrame) -> Float[np.ndarray, "n d"]:
    """The statistics with the column's median where one is missing; a column without any is left out."""
    return statistics.dropna(axis="columns", how="all").fillna(statistics.median()).to_numpy()


@dataclass(frozen=True, eq=False)
class Subject:
    """What an oracle is shown: the prepared scans by sequence, and which of their voxels are tumour; spacing in mm."""

    scans: Mapping[str, Float[np.ndarray, "e e e"]]
    tumour: Bool[np.ndarray, "e e e"]
    affine: Float[np.ndarray, "4 4"]
    spacing_mm: float

    @property
    def core(self) -> Bool[np.ndarray, "e e e"]:
        """The tumour less a voxel at its border."""
        return np.asarray(binary_erosion(self.tumour))

    @property
    def from_middle_mm(self) -> Float[np.ndarray, "n 3"]:
        """The tumour's voxels, from its middle."""
        position = np.argwhere(self.tumour) * self.spacing_mm
        return position - position.mean(axis=0)


def subject(patient: Patient, study: Study) -> Subject:
    """A prepared patient with a tumour mask."""
    assert patient.tumour_mask
    stored = tokens.load(token_file(study.prepared, patient), study.channels)
    scans = dict(zip(stored.channels, tokens.to_volume(stored).astype(np.float32), strict=True))
    tumour = mask_on_grid(patient.tumour_mask, study.prepared / patient.id, stored.grid)
    return Subject(scans, tumour, np.array(stored.grid.affine), stored.grid.spacing_mm)


def coarseness(one: Subject) -> float:
    """How much more T1 differs over the longer lag than over the shorter, inside the tumour."""
    short, long = (np.mean([_differences(one.scans["t1"], one.core, lag, axis) for axis in range(3)]) for lag in LAGS)
    return float(long / short)


def disagreement(one: Subject) -> float:
    """Correlation of T2 with FLAIR over the tumour, its sign turned."""
    return -float(np.corrcoef(one.scans["t2"][one.core], one.scans["flair"][one.core])[0, 1])


def leftness(one: Subject) -> float:
    """How far left the tumour's middle lies, mm."""
    return -float((one.affine @ np.append(np.argwhere(one.tumour).mean(axis=0), 1))[0])


def interplay(one: Subject) -> float:
    """Disagreement of T2 with FLAIR times how far left: positive where there is a mismatch on the left, or none on the right."""
    return disagreement(one) * leftness(one)


def inwardness(one: Subject) -> float:
    """How far the tumour's brightest fifth of T1ce lies from the tumour's middle towards the middle of the brain, mm."""
    across = (np.argwhere(one.core) @ one.affine[:3, :3].T)[:, 0]
    t1ce = one.scans["t1ce"][one.core]
    brightest = t1ce > np.quantile(t1ce, 0.8)
    return float(np.sign(leftness(one)) * (across[brightest].mean() - across.mean()))


def unevenness(one: Subject) -> float:
    """Voxels that a blur of one takes from the tumour or gives to it, by its volume^(2/3): its corners, not its surface."""
    smooth = gaussian_filter(one.tumour.astype(float), 1) > 0.5  # of a half: a flat face stays where it is
    return float((one.tumour != smooth).sum() / one.tumour.sum() ** (2 / 3))


def spread(one: Subject) -> float:
    """Root mean square distance from the tumour's middle, in radii of a ball of its volume: of a ball √(3/5) = 0.77."""
    away = one.from_middle_mm
    radius = (len(away) * one.spacing_mm**3 * 3 / (4 * np.pi)) ** (1 / 3)
    return float(np.sqrt((away**2).sum(axis=1).mean()) / radius)


def noisiness(one: Subject) -> float:
    """Standard deviation of what a blur of one voxel takes from T2, in the brain away from its surface and from the tumour."""
    t2 = one.scans["t2"]
    within = np.asarray(binary_erosion(t2 != 0, iterations=3), bool) & np.asarray(binary_erosion(~one.tumour, iterations=2), bool)
    return float((t2 - gaussian_filter(t2, 1))[within].std())


ORACLES: dict[str, Callable[[Subject], float]] = {
    "texture": coarseness,
    "mismatch": disagreement,
    "side": leftness,
    "interaction": interplay,
    "inward": inwardness,
    "border": unevenness,
    "foci": spread,
    "scanner": noisiness,
}


def _differences(scan: Float[np.ndarray, "e e e"], region: Bool[np.ndarray, "e e e"], lag: int, axis: int) -> float:
    """Mean squared difference of voxels that lie so far apart along an axis, both in the region."""
    values, within = (np.moveaxis(one, axis, 0) for one in (scan, region))
    both = within[lag:] & within[:-lag]
    return float(((values[lag:] - values[:-lag])[both] ** 2).mean())
