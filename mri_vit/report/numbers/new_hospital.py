"""What a hospital in neither cohort may expect: a model's rows and the sites of this cohort in, a prediction interval out.

Sites of the run's own cohort are not taken: its networks were trained on the other patients of each, unless sites were left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from mri_vit.metrics import delong, discrimination, within_fold
from mri_vit.metrics.delong import newcombe_variance, wilson_of_auc, wilson_of_c
from mri_vit.metrics.heterogeneity import ASSUMED_TAU, assumed_interval, prediction_interval, random_effects
from mri_vit.report.numbers.judged import averaged, flags, floats, rarer
from mri_vit.report.schema.elsewhere import NewHospital, SiteFigure
from mri_vit.settings.endpoint import Endpoint

# Of the rarer class, or deaths, as of a whole cohort that is judged: with fewer a site's variance is mostly a guess.
FEWEST_OF_SITE = 5
# Of three or four sites the interval by their own differences is as wide as the scale, at any figure that a model may have.
FEWEST_SITES = 5


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


def measure(endpoint: Endpoint, rows: pd.DataFrame, cohort: pd.DataFrame) -> NewHospital | None:
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
    value, variance = discrimination.auc(truth, score), delong.delong_variance(truth, score)
    low, high = wilson_of_auc(value, variance, positives, negatives)
    shrunk = (value * positives * negatives + 0.5) / (positives * negatives + 1)
    variance = max(variance, newcombe_variance(shrunk, positives, negatives))
    return Figure(value, low, high, shrunk * (1 - shrunk) / variance)
