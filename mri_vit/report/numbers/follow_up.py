"""Follow-up: times and events of patients with a known survival in, its median and the numbers at risk out."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.metrics.survival import at_risk, median_follow_up
from mri_vit.report.numbers.survival import TABLE_DAYS
from mri_vit.report.schema.table1 import FollowUp


def of_patients(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"]) -> FollowUp:
    """Median follow-up with its interval, and how many are still followed at the horizons."""
    found = median_follow_up(time_days, event)
    left = at_risk(time_days, np.array(TABLE_DAYS, dtype=float))
    return FollowUp(
        n=len(event),
        events=int(event.sum()),
        median_days=found.value,
        low=found.low,
        high=found.high,
        days=TABLE_DAYS,
        at_risk=tuple(left.tolist()),
    )
