"""Cumulative incidence where another event may come first: rows of `judged.known_rows` in, parts of metrics.json out."""

from __future__ import annotations

import pandas as pd

from mri_vit.metrics.checked import Days, Events
from mri_vit.metrics.competing_risks import grays_test, incidence_at
from mri_vit.metrics.survival import refitted_logrank
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.judged import first_repeat, flags, floats, risk_groups
from mri_vit.report.schema.competing import CompetingResult, GraysTest, IncidenceAt
from mri_vit.report.schema.measured import TABLE_DAYS
from mri_vit.report.schema.parts import Design, Estimate


def of_groups(rows: pd.DataFrame, design: Design) -> CompetingResult | None:
    """Of the groups of low and of high risk; None where no competing event is declared."""
    if "competing" not in rows:
        return None
    grouped = risk_groups(rows)
    chi2, p = grays_test(floats(grouped.time_days), flags(grouped.event), flags(grouped.competing), flags(grouped.high))
    inflated = chance.inflation(first_repeat(rows), design)
    return CompetingResult(
        grays_test=GraysTest(chi2=chi2, p=refitted_logrank(chi2, inflated), given_p=p, inflation=inflated),
        groups={
            name: of_patients(grouped.loc[grouped.high == high]) for name, high in (("low risk", False), ("high risk", True))
        },
    )


def of_patients(people: pd.DataFrame) -> tuple[IncidenceAt, ...]:
    """Shares who had either event by 6, 12 and 24 months."""
    days, event, other = floats(people.time_days), flags(people.event), flags(people.competing)
    return tuple(
        IncidenceAt(days=day, event=_at(days, event, other, day), other=_at(days, other, event, day)) for day in TABLE_DAYS
    )


def _at(days: Days, event: Events, other: Events, day: int) -> Estimate:
    value, low, high = incidence_at(days, event, other, float(day))
    return Estimate(value=value, low=low, high=high)
