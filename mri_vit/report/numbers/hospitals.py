"""Hospitals: a model's figure in each that trained no model which scored it, what a further hospital may expect, and an interval
of all patients that allows for clustering by hospital.

Where models were trained on other patients of the same hospitals, as with random folds, a hospital's figure says nothing of a
further one, whatever the number of hospitals: scanners and referral were learned with the rest. Then there is no such interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from mri_vit.metrics import within_fold
from mri_vit.metrics.clusters import clustered_interval
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.site_calibration import Normal
from mri_vit.metrics.transportability import (
    mean_interval,
    of_arcsine,
    prediction_interval,
    random_effects,
    share_above,
    spread_of_figures,
)
from mri_vit.report.numbers import chance, measures
from mri_vit.report.numbers.judged import averaged, chances_alive, first_repeat, fold_of, rarer
from mri_vit.report.numbers.results import SITE_COLUMN
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.hospitals import MAX_SHARE, ClusteredInterval, HospitalFigures, HospitalNumbers, Pooled, Unseen
from mri_vit.report.schema.measured import MIN_OF_SITE, MIN_SITES
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Design, Estimate, Interval
from mri_vit.settings.schema import Endpoint

MIN_SHARING = 10  # patients beyond the first of their hospital: of two random folds 1 in 1,000 divides none
LEVELS = (within_fold.CHANCE, 0.6)  # above which a share of hospitals is given: chance, and what a weak control reaches
Scale = Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, " k"]]


def measure(run: Run, endpoint: Endpoint, rows: pd.DataFrame) -> HospitalNumbers | None:
    """One model's figures by hospital; None without two hospitals, or where too few patients are of the rarer class.

    `rows` are as `judged.known_rows` gives them. Patients without a hospital are left out.
    """
    column, site_of = hospital_of(run)
    rows = rows.assign(site=rows.patient.map(site_of).fillna("").astype(str))
    rows = rows.loc[rows.site != ""]
    if rows.site.nunique() < 2:
        return None
    predicted = run.predictions.loc[(run.predictions.endpoint == endpoint.name) & (run.predictions.model == rows.model.iloc[0])]
    people = averaged(rows)
    people = people.assign(site=people.patient.map(site_of).astype(str))
    if rarer(endpoint, people) < MIN_OF_SITE:
        return None
    largest = float(people.site.value_counts().max() / len(people))
    found = HospitalNumbers(
        column=column,
        known=int(people.site.nunique()),
        unseen=unseen(run, predicted),
        clustered=_clustered(endpoint, rows, run.design) if largest <= MAX_SHARE else None,
        largest=largest,
    )
    if not found.unseen:
        return found
    alive = chances_alive(run.survival, endpoint, rows) if len(run.survival) else pd.DataFrame()
    return _with_each_hospital(found, endpoint, people, alive, chance.inflation(rows, run.design))


def hospital_of(run: Run) -> tuple[str, dict[str, str]]:
    """The column that names hospitals, which is the one whose values are left out if any are, and the hospital by patient."""
    column = run.study.train.leave_out if run.design == "cross-validation" else None
    column = column if column and column in run.cohort else SITE_COLUMN
    return column, dict(zip(run.cohort.patient, run.cohort[column], strict=True)) if column in run.cohort else {}


def large_sites(endpoint: Endpoint, people: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The patients of each site that has enough for a figure of its own, by the column `site` of `people`; the largest first."""
    sizes = people.site.value_counts()
    parts = {str(site): people.loc[people.site == site] for site in sorted(sizes.index, key=lambda site: (-sizes[site], site))}
    return {
        site: here
        for site, here in parts.items()
        if rarer(endpoint, here) >= MIN_OF_SITE and not math.isnan(measures.of(endpoint).figure(here).low)
    }


def pooled_figure(figures: Sequence[measures.Figure], inflated: float = 1.0) -> tuple[Pooled, dict[str, float]] | None:
    """The mean of sites' judged figures, and the share of further sites above each of `LEVELS`; None with too few sites.

    `inflated` is as `chance.inflation` gives it.
    """
    if len(figures) < MIN_SITES:
        return None
    values, variances = np.array([one.on_arcsine for one in figures]).T
    mean = random_effects(values, variances)
    wider = within_fold.interval_inflation(float(of_arcsine(np.array([mean.mean]))[0]), inflated)
    pooled = _pooled(values, variances, wider, of_arcsine, spread_of_figures(mean))
    return pooled, {f"{level:g}": share_above(values, variances, math.asin(math.sqrt(level)), wider) for level in LEVELS}


def unseen(run: Run, predicted: pd.DataFrame) -> Unseen | None:
    """Whether, and why, no hospital's patients trained a model that scored others of it.

    `predicted`: all of one endpoint that a model predicted, whether its label is known or not. Where nothing says that hospitals
    were left out, each has to lie in one of several folds, in every repeat. That shows nothing where a patient's hospital is not
    known, for it may be any, or where hospitals are so small that random folds would divide none.
    """
    if run.design in NOT_TRAINED_ON:
        return "external" if run.design == "external" else "held-out"
    column, hospital = hospital_of(run)
    if run.design == "cross-validation" and column == run.study.train.leave_out:
        return "left out"
    folds = predicted[["repeat", "fold", "patient"]].assign(site=predicted.patient.map(hospital).fillna("").astype(str))
    sharing = folds.patient.nunique() - folds.site.nunique()
    several = folds.groupby("repeat").fold.nunique().min() > 1
    whole = (folds.groupby(["repeat", "site"]).fold.nunique() == 1).all()
    return "left out" if several and whole and (folds.site != "").all() and sharing >= MIN_SHARING else None


def _with_each_hospital(
    found: HospitalNumbers, endpoint: Endpoint, people: pd.DataFrame, alive: pd.DataFrame, inflated: float
) -> HospitalNumbers:
    """The same with the figures of hospitals that trained no model which scored them, and what a further one may expect."""
    large = large_sites(endpoint, people)
    figures = {site: measures.of(endpoint).figure(here) for site, here in large.items()}
    calibrated = {site: measures.of(endpoint).site_calibration(endpoint, here, alive) for site, here in large.items()}
    sites = tuple(
        HospitalFigures(
            site=site,
            n=len(large[site]),
            value=one.value,
            low=one.low,
            high=one.high,
            slope=_estimate(calibrated[site].get("slope"), _as_it_is),
            observed_to_expected=_estimate(calibrated[site].get("observed_to_expected"), np.exp),
        )
        for site, one in figures.items()
    )
    pooled, above = pooled_figure(list(figures.values()), inflated) or (None, {})
    return replace(
        found,
        sites=sites,
        left_out=tuple(sorted(set(people.site) - set(large))),
        pooled=pooled,
        above=above,
        slope=_pooled_calibration(calibrated, "slope", _as_it_is),
        observed_to_expected=_pooled_calibration(calibrated, "observed_to_expected", np.exp),
    )


def _pooled_calibration(calibrated: Mapping[str, Mapping[str, Normal]], name: str, scale: Scale) -> Pooled | None:
    """The mean of sites' calibration; None with too few sites where it is defined."""
    known = [one for of_site in calibrated.values() if (one := of_site.get(name)) and not math.isnan(one.variance)]
    if len(known) < MIN_SITES:
        return None
    values, variances = np.array(known).T
    return _pooled(values, variances, 1.0, scale, random_effects(values, variances).tau)


def _pooled(
    values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"], wider: float, scale: Scale, tau: float
) -> Pooled:
    found = random_effects(values, variances)
    ends = [found.mean, *mean_interval(found), *prediction_interval(values, variances, wider)]
    mean, low, high, least, most = scale(np.array(ends)).tolist()
    return Pooled(value=mean, low=low, high=high, sites=len(values), tau=tau, prediction=Interval(low=least, high=most))


def _estimate(found: Normal | None, scale: Scale) -> Estimate | None:
    if found is None or math.isnan(found.variance):
        return None
    reach = Z_95 * math.sqrt(found.variance)
    value, low, high = scale(np.array([found.value, found.value - reach, found.value + reach])).tolist()
    return Estimate(value=value, low=low, high=high)


def _as_it_is(values: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    return values


def _clustered(endpoint: Endpoint, rows: pd.DataFrame, design: Design) -> ClusteredInterval | None:
    """The interval of the judged figure by a jackknife of hospitals; None with too few hospitals, or where it is undefined.

    Of several repeats both intervals have the errors of the first, for repeats share their patients.
    """
    if rows.site.nunique() < MIN_SITES:
        return None
    of_kind, found = measures.of(endpoint), chance.within_folds(endpoint, rows)
    value, once = float(np.mean([one.value for one in found])), first_repeat(rows)
    without = _without_each(endpoint, once, once.site.to_numpy(str)) + (value - found[0].value)
    wider = within_fold.interval_inflation(value, chance.inflation(once, design))
    clustered = clustered_interval(value, without, wider)
    low, high = of_kind.interval(value, found[0].variance, found[0].error, averaged(once), design not in NOT_TRAINED_ON)
    if math.isnan(clustered.low + low) or not high > low:
        return None
    return ClusteredInterval(
        sites=len(without),
        n=int(rows.patient.nunique()),
        value=value,
        low=clustered.low,
        high=clustered.high,
        usual=Interval(low=low, high=high),
        ratio=(clustered.high - clustered.low) / (high - low),
    )


def _without_each(endpoint: Endpoint, rows: pd.DataFrame, site: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
    """The judged figure of one repeat without the patients of each site in turn."""
    fold = fold_of(rows)
    kept = (site != name for name in np.unique(site))
    return np.array([measures.of(endpoint).within(rows.loc[here], fold[here]).value for here in kept])
