"""A patient's predicted survival beside the cohort's, as the points of a drawing of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

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


def cohort(people: Sequence[PatientResult]) -> str:
    """Kaplan and Meier's curve of everybody whose time is known."""
    known = [one for one in people if one.truth is not None and not np.isnan(one.time_days)]
    if not known:
        return ""
    times, died = np.array([one.time_days for one in known]), np.array([one.truth for one in known], dtype=bool)
    fitted = kaplan_meier(times, died, "cohort").survival_function_["cohort"]
    days, alive = fitted.index.to_numpy(dtype=float), fitted.to_numpy()
    steps = [point for i in range(1, len(days)) for point in ((days[i], alive[i - 1]), (days[i], alive[i]))]
    return _points([(days[0], alive[0]), *steps])


def of_patient(survival: pd.DataFrame, result: PatientResult, of_all: str) -> Curve | None:
    """The curve of one patient from rows of horizon_days and survival; None where there are none."""
    if not len(survival):
        return None
    found = survival.sort_values("horizon_days").astype({"horizon_days": float})
    points = [(0.0, 1.0), *zip(found.horizon_days.tolist(), found.survival.tolist(), strict=True)]
    own = round(_x(result.time_days), 1) if result.time_days <= LAST_DAYS else None
    ticks = [(round(_x(days), 1), months) for days, months in TICKS]
    return Curve(_points(points), of_all, ticks, own, bool(result.truth))


def _points(points: Sequence[tuple[float, float]]) -> str:
    inside = [(days, alive) for days, alive in points if days <= LAST_DAYS]
    return " ".join(f"{_x(days):.1f},{HEIGHT * (1 - alive):.1f}" for days, alive in inside)


def _x(days: float) -> float:
    return WIDTH * days / LAST_DAYS
