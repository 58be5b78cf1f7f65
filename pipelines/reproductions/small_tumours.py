"""The built-in cohort with small tumours, and one marker that shows in a thin rim alone: a plain Vision Transformer misses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from mri_vit.synthetic import RECIPE, Case, draw_cases, scan, written

DIAMETER_MM = (10, 22)  # how far tumours reach across
RIM_MM = 3.0  # thickness of their rims; less than a voxel of most scans
RIM_SIGNAL = {True: 1.90, False: 1.10}  # the rim's signal in T1ce by MGMT; white matter has 0.87, so both are seen to enhance
SIGNAL_SD = 0.05  # standard deviation of that signal between patients, so that none equals another

README = """# The built-in cohort, hard variant

{patients} made-up patients (seed {seed}, recipe {recipe}), drawn and scanned as in the built-in cohort. **No real person is
in it.** What differs: tumours are {least} to {most} mm across, each has a core and a rim of {rim} mm, and `mgmt` is 1 where the
rim takes up much contrast (signal {bright} against {faint} in T1ce, where white matter has 0.87). No other scan and no size
tells it; `age`, `sex` and `site` have no part in it. The last {unlabelled} patients have no label.
"""


def make(folder: Path, seed: int, labelled: int, unlabelled: int) -> Path:
    """Write the cohort as `synthetic.cohort.make` does: `labelled` patients with known MGMT, then `unlabelled` ones without."""
    readme = README.format(
        patients=labelled + unlabelled, seed=seed, recipe=RECIPE, unlabelled=unlabelled,
        least=DIAMETER_MM[0], most=DIAMETER_MM[1], rim=RIM_MM, bright=RIM_SIGNAL[True], faint=RIM_SIGNAL[False],
    )  # fmt: skip
    return written(folder, seed, draw_small_cases(labelled, unlabelled, np.random.default_rng(seed)), readme, scan)


def draw_small_cases(labelled: int, unlabelled: int, rng: np.random.Generator) -> list[Case]:
    """Patients as of `draw_cases`, with small tumours and rims whose brightness is their MGMT."""
    n = labelled + unlabelled
    cases = draw_cases(n, rng)
    across, bright, spread = rng.uniform(*DIAMETER_MM, n), rng.random(n) < 0.5, rng.normal(0, SIGNAL_SD, n)
    return [
        replace(
            case,
            radius_mm=float(across[i]) / 2,
            solid=False,
            rim_mm=RIM_MM,
            rim_signal=RIM_SIGNAL[bool(bright[i])] + float(spread[i]),
            labels={"mgmt": f"{bright[i]:.0f}" if i < labelled else ""},
        )
        for i, case in enumerate(cases)
    ]
