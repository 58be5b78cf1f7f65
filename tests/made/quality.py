"""A made record of a prepared patient in whom qc finds nothing; and heads whose tumour enhances as much as is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mri_vit import synthetic
from mri_vit.data.volume import Volume
from mri_vit.prepare import agreement
from mri_vit.prepare.alignment import on_grid
from mri_vit.prepare.prepared import Log
from mri_vit.synthetic import draw_cases

PARTS = ("cerebellum", *(f"{s} {e} {v}" for s in ("left", "right") for e in ("front", "back") for v in ("upper", "lower")))
OF_SCAN = {"filled": 1.0, "signal_to_noise": 20.0, "ghosts": 0.0, "shading": 1.3, "quantiles": [n / 12 - 1 for n in range(25)]}
LIKENESS = {"likeness": 0.5, "mirrored_likeness": 0.25, "own_to_mirrored": 2.0, "reversed": None}
QUALITY: dict[str, Any] = {
    "turned_degrees": 14.0,
    "middle_degrees": 1.0,
    "middle_mm": 0.5,
    "squeezed": 0.92,
    "fluid_contrast": 6.0,
    "enhancement": 2.0,
    "coverage": dict.fromkeys(PARTS, 0.99),
    "scans": {"t1ce": dict(OF_SCAN)} | {scan: OF_SCAN | LIKENESS for scan in ("t1", "t2", "flair")},
}
RECORD: dict[str, Any] = {"quality": QUALITY, "brain_ml": 1400.0, "warnings": []}


def copies_of_rims(number: int, rim_signal: float, noises: tuple[float, ...]) -> list[agreement.Copies]:
    """T1 and T1ce of one sound head at several noises, a share of the brain's signal each: no vessels, and a rim of that signal.

    White matter has 0.87. No bias field is corrected, which is worse than what is prepared.
    """
    random = np.random.default_rng([11, number])
    case = replace(draw_cases(12, np.random.default_rng(11))[number], rim_signal=rim_signal)
    scans, _ = synthetic.scan(case, random)
    brains = {channel: scans[channel].array > 0 for channel in ("t1", "t1ce")}
    made = []
    for noise in noises:
        noisy = {
            channel: Volume(
                (scans[channel].array + noise * gain(scans[channel].array) * random.normal(size=inside.shape)) * inside,
                scans[channel].affine,
            )
            for channel, inside in brains.items()
        }
        prepared = on_grid(noisy, tuple(noisy), "t1ce", brains, dict.fromkeys(noisy, np.eye(4)), agreement.GRID, Log())
        made.append(agreement.of_grid(*prepared, tuple(noisy), agreement.GRID))
    return made


def gain(array: np.ndarray) -> float:
    return float(np.median(array[array > 0]))
