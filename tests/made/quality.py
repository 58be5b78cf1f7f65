"""A made record of a prepared patient in whom nothing is out of the ordinary, as far as qc reads it."""

from __future__ import annotations

from typing import Any

PARTS = ("cerebellum", *(f"{s} {e} {v}" for s in ("left", "right") for e in ("front", "back") for v in ("upper", "lower")))
OF_SCAN = {"filled": 1.0, "signal_to_noise": 20.0, "ghosts": 0.0, "shading": 1.3, "quantiles": [n / 12 - 1 for n in range(25)]}
LIKENESS = {"likeness": 0.5, "mirrored_likeness": 0.25, "own_to_mirrored": 2.0, "reversed": None}
QUALITY: dict[str, Any] = {
    "turned_degrees": 14.0,
    "middle_degrees": 1.0,
    "middle_mm": 0.5,
    "squeezed": 0.92,
    "fluid_contrast": 4.0,
    "enhancement": 7.0,
    "coverage": dict.fromkeys(PARTS, 0.99),
    "scans": {"t1ce": dict(OF_SCAN)} | {scan: OF_SCAN | LIKENESS for scan in ("t1", "t2", "flair")},
}
RECORD: dict[str, Any] = {"quality": QUALITY, "brain_ml": 1400.0, "warnings": []}
