"""What an evaluation says of other hospitals: how calibration drifts from the run's cohort, and what a new hospital may expect.

Sites of the run's own cohort give no interval for a new hospital: its networks were trained on the other patients of each,
unless sites were left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from mri_vit.metrics import discrimination, within_fold
from mri_vit.metrics import transportability as metric
from mri_vit.metrics.discrimination import newcombe_variance, wilson_of_auc, wilson_of_c
from mri_vit.metrics.transportability import ASSUMED_TAU, assumed_interval, prediction_interval, random_effects
from mri_vit.report.numbers.judged import averaged, chances_alive, first_repeat, flags, floats, known_rows, rarer
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.parts import Estimate
from mri_vit.report.schema.run import CalibrationDrift, Drift, NewHospital, SiteFigure
from mri_vit.settings.endpoint import Endpoint

FEWEST_FOR_DRIFT = 5  # as of a result that is judged
DAYS = (365.0, 730.0)  # one and two years, of the predicted horizons
# Of the rarer class, or deaths, as of a whole cohort that is judged: with fewer a site's variance is mostly a guess.
FEWEST_OF_SITE = 5
# Of three or four sites the interval by their own differences is as wide as the scale, at any figure that a model may have.
FEWEST_SITES = 5


def calibration_drift(
    run: Run, endpoint: Endpoint, tables: Mapping[str, pd.DataFrame]
) -> dict[str, tuple[CalibrationDrift, ...]]:
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
        if all(len(rows) and rarer(endpoint, averaged(rows)) >= FEWEST_FOR_DRIFT for rows in both)
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


class Figure(NamedTuple):
    """An AUC or C with its 95 % interval, and the number of patients of whom a share has its variance."""

    value: float
    low: float
    high: float
    patients: float

    @property
    def on_logit(self) -> tuple[float, float]:
        """Value and variance of its logit, by the delta method; half a patient is added on either side, so that 1 has one."""
        value = (self.value * self.patients + 0.5) / (self.patients + 1)
        return float(logit(value)), 1 / (self.patients * value * (1 - value))


def new_hospital(endpoint: Endpoint, rows: pd.DataFrame, cohort: pd.DataFrame) -> NewHospital | None:
    """The interval from the sites of this cohort where enough have patients enough, else by an assumed heterogeneity.

    `rows` are as `judged.known_rows` gives them; None where too few of all are of the rarer class, or their figure has no
    variance.
    """
    people = averaged(rows)
    named = people.patient.map(dict(zip(cohort.patient, cohort.site, strict=True))) if "site" in cohort else None
    by_site = [(str(site), here) for site, here in people.groupby(named) if str(site)] if named is not None else []
    enough = [(site, here) for site, here in by_site if rarer(endpoint, here) >= FEWEST_OF_SITE]
    figures = [_figure(endpoint, here) for _, here in enough]
    sites = tuple(
        SiteFigure(site=site, n=len(here), value=one.value, low=one.low, high=one.high)
        for (site, here), one in zip(enough, figures, strict=True)
    )
    shared = {
        "measure": "auc" if endpoint.kind == "binary" else "harrell_c",
        "sites": sites,
        "left_out": len(by_site) - len(enough),
        "sentence": "",
    }
    if len(sites) >= FEWEST_SITES:
        values, variances = np.array([one.on_logit for one in figures]).T
        found = random_effects(values, variances)
        value, low, high = expit([found.mean, *prediction_interval(values, variances)]).tolist()
        ends = {"value": value, "low": low, "high": high, "tau": found.tau}
        return NewHospital.model_validate({**shared, "method": "sites", **ends})
    whole = _figure(endpoint, people)
    if rarer(endpoint, people) < FEWEST_OF_SITE or math.isnan(whole.low):
        return None
    low, high = assumed_interval(whole.value, whole.low, whole.high)
    ends = {"value": whole.value, "low": low, "high": high, "tau": ASSUMED_TAU}
    return NewHospital.model_validate({**shared, "method": "assumed", **ends})


def _figure(endpoint: Endpoint, people: pd.DataFrame) -> Figure:
    """The AUC or C of one model's scores of some patients."""
    score = floats(people.score)
    if endpoint.kind == "survival":
        found = within_fold.within_fold_c(floats(people.time_days), flags(people.event), score, np.zeros(len(people)))
        null = found.error**2
        low, high = wilson_of_c(found.value, found.variance, null)
        if math.isnan(low):
            return Figure(found.value, math.nan, math.nan, math.nan)
        patients = 1 / (4 * null)
        if found.variance > 0:
            patients = min(patients, found.value * (1 - found.value) / found.variance)
        return Figure(found.value, low, high, patients)
    truth = flags(people.truth)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return Figure(math.nan, math.nan, math.nan, math.nan)
    value, variance = discrimination.auc(truth, score), discrimination.delong_variance(truth, score)
    low, high = wilson_of_auc(value, variance, positives, negatives)
    shrunk = (value * positives * negatives + 0.5) / (positives * negatives + 1)
    variance = max(variance, newcombe_variance(shrunk, positives, negatives))
    return Figure(value, low, high, shrunk * (1 - shrunk) / variance)
