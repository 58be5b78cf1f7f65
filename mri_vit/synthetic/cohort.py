"""The built-in cohort: synthetic patients on real anatomy, with known causes planted in their scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from mri_vit.data import sheet
from mri_vit.data.nifti import SYNTHETIC
from mri_vit.data.volume import Volume, write
from mri_vit.errors import UsageError
from mri_vit.run.atomic import write_bytes
from mri_vit.run.jobs import CONTEXT, end_with_parent
from mri_vit.settings.file import DEMO_PATIENT
from mri_vit.settings.schema import CHANNELS
from mri_vit.synthetic.phantom import ENHANCEMENT, RIM_MM, TISSUE, Case, Person, anatomy, scan

PATIENTS = 96
SEED = 20261121  # fixed before the study was first run on it; settings were chosen on other seeds
WORKERS = 2  # no machine has fewer cores today
RECIPE = 5  # raised with every change to the files, so that an older cohort is made anew
MISSING = 0.15  # of each label
CENSORED = 0.30  # of survival times
P = TypeVar("P", bound=Person)
Scan = Callable[[P, np.random.Generator], tuple[dict[str, Volume], Volume]]  # of the four scans, and of the true tumour
README = """# The built-in cohort

{patients} made-up patients (seed {seed}, recipe {recipe}) on real anatomy: the MNI152 T1 and its grey and white matter maps
(Fonov et al. 2011, as shipped in nilearn), each behind a smooth random deformation, with four coarse scans (3 to 5 mm) on
different grids, spacings and axis orders. **No real person is in it.** Simulated effects:

| column | cause in the scans | verdict to expect of a network |
|---|---|---|
| `mgmt` | 1: the whole tumour takes up contrast; 0: only its rim | better than chance |
| `tertp` | 1: the tumour lies in the left half of the brain | better than chance |
| `pten` | **none**: a coin | chance; a model that finds it is wrong |
| `os_days`, `os_event` | Weibull time, shorter with a larger tumour and with age; {censored:.0%} censored | better than chance |

MGMT can also be predicted from 36 statistics of brightness (the control `intensity`) and survival from the tumour's volume (the
control `volume`), so these are no merit of a network. The template's halves are mirror images, so that only the position
determines `tertp`: it is for a network to find, one that is not trained on flipped patients (`train.flip_lr = false`). Where a
network makes almost no mistake there, the report warns that this is too good to be believed unchecked, as for a real label.
Oedema reaches 1.3 or 1.9 tumour radii; this, site and sex are unrelated to the labels.
{missing:.0%} of each label are missing at random{unlabelled}. T2 was "taken" after a small movement of the head that is not in
its header. `truth/<patient>.nii.gz`, the column `tumour_mask`, is the tumour (1 core, 2 enhancing, 3 oedema) in the T1ce
scan's space. No network sees it: the control `volume` reads its volume, and maps are judged by it.
"""


def make(folder: Path, seed: int = SEED, patients: int = PATIENTS, unlabelled: int = 0) -> Path:
    """Write the cohort (scans, `cohort.csv`, `README.md`, `truth/`) into `folder` and return the table's path.

    Of the `patients` the last `unlabelled` have no label at all. A folder that already holds the same cohort is not changed.
    """
    readme = README.format(
        patients=patients, seed=seed, recipe=RECIPE, censored=CENSORED, missing=MISSING,
        unlabelled=f", and the last {unlabelled} patients have none" if unlabelled else "",
    )  # fmt: skip
    cases = draw_cases(patients, np.random.default_rng(seed))
    labelled = patients - unlabelled
    cases[labelled:] = [replace(case, labels=dict.fromkeys(case.labels, "")) for case in cases[labelled:]]
    return written(folder, seed, cases, readme, scan)


def written(folder: Path, seed: int, cases: Sequence[P], readme: str, scan: Scan[P], workers: int = WORKERS) -> Path:
    """Write the scans that `scan` takes of `cases`, their table and a README, `workers` at a time, and return the table's path.

    A folder that already holds the same cohort is not changed. Raises UsageError for one with another table.
    """
    table, old = folder / "cohort.csv", folder / "README.md"
    if table.exists() and not (old.exists() and old.read_text().startswith(README.partition("\n")[0])):
        raise UsageError(f"{table} is not the built-in cohort; choose another folder for it")
    if table.exists() and old.read_text() == readme:
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
    slowed = np.exp(-1.1 * volume - 0.15 * (age - age.mean()) / age.std())  # each standard deviation divides time by 3 and 1.2
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
    n = len(columns["mgmt"])
    for endpoint in (("mgmt",), ("tertp",), ("pten",), ("os_days", "os_event")):
        for row in rng.choice(n, round(MISSING * n), replace=False):
            for column in endpoint:
                columns[column][row] = ""
    return columns
