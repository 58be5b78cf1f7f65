"""A patient's predicted survival beside the cohort's, as the points of a drawing of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.metrics.survival import kaplan_meier
from mri_vit.report.schema.patients import PatientResult

WIDTH, HEIGHT = 420, 200  # the drawing's own units, in which a page lays it out
LAST_DAYS = 1095.0  # three years: few predictions and few glioblastoma patients reach further
TICKS = ((182.0, "6"), (365.0, "12"), (548.0, "18"), (730.0, "24"), (1095.0, "36"))  # days, months


@dataclass(frozen=True)
class Curve:
    """Polylines as SVG has them, where years lie, and the patient's own time."""

    predicted: str
    cohort: str
    ticks: Sequence[tuple[float, str]]
    own: float | None  # where the patient's time lies; None where it is not known, or beyond the drawing
    died: bool


def cohort(time_days: Float[np.ndarray, " n"], died: Bool[np.ndarray, " n"]) -> str:
    """Kaplan and Meier's curve of everybody whose time is known."""
    if not len(time_days):
        return ""
    fitted = kaplan_meier(time_days, died, "cohort").survival_function_["cohort"]
    days, alive = fitted.index.to_numpy(dtype=float), fitted.to_numpy()
    steps = [point for i in range(1, len(days)) for point in ((days[i], alive[i - 1]), (days[i], alive[i]))]
    return _points([(days[0], alive[0]), *steps])


def of_patient(points: Sequence[tuple[float, float]], result: PatientResult, of_all: str) -> Curve:
    """The curve of one patient of a cohort, with the patient's own time."""
    own = round(_x(result.time_days), 1) if result.time_days <= LAST_DAYS else None
    return drawn(points, of_all, own, bool(result.truth))


def drawn(points: Sequence[tuple[float, float]], of_all: str, own: float | None = None, died: bool = False) -> Curve:
    """The curve through a patient's (days, probability of being alive), which starts from 1."""
    ticks = [(round(_x(days), 1), months) for days, months in TICKS]
    return Curve(_points([(0.0, 1.0), *points]), of_all, ticks, own, died)


def _points(points: Sequence[tuple[float, float]]) -> str:
    inside = [(days, alive) for days, alive in points if days <= LAST_DAYS]
    return " ".join(f"{_x(days):.1f},{HEIGHT * (1 - alive):.1f}" for days, alive in inside)


def _x(days: float) -> float:
    return WIDTH * days / LAST_DAYS
