"""How calibration drifts from the run's own cohort to the other: a model's rows in both in, both calibrations out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from mri_vit.metrics import drift as metric
from mri_vit.report.numbers.judged import averaged, chances_alive, first_repeat, flags, floats, known_rows, rarer
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.elsewhere import CalibrationDrift, Drift
from mri_vit.report.schema.part import Estimate
from mri_vit.settings.endpoint import Endpoint

FEWEST = 5  # as of a result that is judged
DAYS = (365.0, 730.0)  # one and two years, of the predicted horizons


def measure(run: Run, endpoint: Endpoint, tables: Mapping[str, pd.DataFrame]) -> dict[str, tuple[CalibrationDrift, ...]]:
    """By model, the drift of its probabilities: one of a marker, one for each day of survival.

    None where a cohort has no probabilities, or fewer than five patients of the rarer class (or deaths): resamples of two
    patients who are alike are alike, and would vouch for anything.
    """
    inside = replace(run, predictions=run.inside, survival=run.inside_survival)
    of_kind = _of_marker if endpoint.kind == "binary" else _of_survival
    known = {model: (known_rows(inside, endpoint, model), rows) for model, rows in tables.items()}
    found = {
        model: of_kind(inside, run, endpoint, *both)
        for model, both in known.items()
        if all(len(rows) and rarer(endpoint, averaged(rows)) >= FEWEST for rows in both)
    }
    return {model: drifts for model, drifts in found.items() if drifts}


def _of_marker(
    inside: Run, run: Run, endpoint: Endpoint, before: pd.DataFrame, now: pd.DataFrame
) -> tuple[CalibrationDrift, ...]:
    people = [averaged(rows) for rows in (before, now)]
    if any(((one.score < 0) | (one.score > 1)).any() for one in people):
        return ()
    first, other = (metric.of_markers(flags(one.truth), floats(one.score)) for one in people)
    slope, intercept, ratio, excess = map(_drift, metric.drift(first, other, run.study.seed))
    return (_described(math.nan, first.n, other.n, slope, intercept, ratio, excess),)


def _of_survival(
    inside: Run, run: Run, endpoint: Endpoint, before: pd.DataFrame, now: pd.DataFrame
) -> tuple[CalibrationDrift, ...]:
    tables = [_with_chances(of, endpoint, rows) for of, rows in ((inside, before), (run, now))]
    found = []
    for day in (day for day in DAYS if all(day in table and len(table) for table in tables)):
        first, other = (
            metric.of_survival(floats(one.time_days), flags(one.event), floats(pd.Series(one[day])), day) for one in tables
        )
        ratio, excess = map(_drift, metric.drift(first, other, run.study.seed))
        found.append(_described(day, first.n, other.n, None, None, ratio, excess))
    return tuple(found)


def _with_chances(run: Run, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
    """A row per patient who has probabilities of survival: these by day, and the outcome."""
    return chances_alive(run, endpoint, rows).join(first_repeat(rows).set_index("patient")[["time_days", "event"]], how="inner")


def _described(
    days: float, n_internal: int, n_external: int, slope: Drift | None, intercept: Drift | None, ratio: Drift, excess: Drift
) -> CalibrationDrift:
    return CalibrationDrift(
        days=days,
        n_internal=n_internal,
        n_external=n_external,
        slope=slope,
        intercept=intercept,
        observed_to_expected=ratio,
        excess=excess,
        sentence="",
    )


def _drift(found: metric.Drift) -> Drift:
    inside, outside, difference = (
        Estimate(value=value, low=low, high=high) for value, low, high in (found.inside, found.outside, found.difference)
    )
    return Drift(internal=inside, external=outside, difference=difference)
