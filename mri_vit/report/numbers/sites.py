"""Sites: how calibration drifts from the run's cohort, what a new hospital may expect, and whether the model's CLS vector
predicts the site.

Sites of the run's own cohort give no interval for a new hospital: its networks were trained on the other patients of each,
unless sites were left out. Of the probe, n is the number of guesses (one for each patient, repeat and visit), m of patients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped
from scipy.stats import norm

from mri_vit.metrics import intervals
from mri_vit.metrics import transportability as metric
from mri_vit.metrics.transportability import ASSUMED_TAU, assumed_interval
from mri_vit.metrics.within_fold import inflation
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.hospitals import large_sites, pooled_figure
from mri_vit.report.numbers.judged import averaged, known_rows, rarer
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import MIN_OF_SITE, PERMUTATIONS, DriftFigures, Expectation, ProbeFigures
from mri_vit.report.schema.parts import Drift, Estimate, SiteFigure
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Endpoint

MODEL = VIT  # whose vector is probed where the table does not say
MIN_FOR_DRIFT = 5  # as of a result that is judged


def calibration_drift(run: Run, endpoint: Endpoint, tables: Mapping[str, pd.DataFrame]) -> dict[str, tuple[DriftFigures, ...]]:
    """By model, the drift of its probabilities: one of a marker, one for each day of survival.

    None where a cohort has no probabilities, or fewer than five patients of the rarer class (or deaths): resamples of two
    patients who are alike are alike, and would vouch for anything.
    """
    inside = replace(run, predictions=run.inside, survival=run.inside_survival)
    known = {model: (known_rows(inside.predictions, endpoint, model), rows) for model, rows in tables.items()}
    found = {
        model: measures.of(endpoint).drift(inside, run, endpoint, *both)
        for model, both in known.items()
        if all(len(rows) and rarer(endpoint, averaged(rows)) >= MIN_FOR_DRIFT for rows in both)
    }
    return {model: drifts for model, drifts in found.items() if drifts}


def drift_of(found: metric.Drift) -> Drift:
    inside, outside, difference = (
        Estimate(value=value, low=low, high=high) for value, low, high in (found.inside, found.outside, found.difference)
    )
    return Drift(internal=inside, external=outside, difference=difference)


def new_hospital(endpoint: Endpoint, rows: pd.DataFrame, cohort: pd.DataFrame) -> Expectation | None:
    """The interval from the sites of this cohort where enough have patients enough, else by an assumed heterogeneity.

    `rows` are as `judged.known_rows` gives them; None where too few of all are of the rarer class, or their figure has no
    variance.
    """
    people = averaged(rows)
    named = people.patient.map(dict(zip(cohort.patient, cohort.site, strict=True))) if "site" in cohort else ""
    people = people.assign(site=named).fillna({"site": ""})
    large = large_sites(endpoint, people.loc[people.site != ""])
    figures = {site: measures.of(endpoint).figure(here) for site, here in large.items()}
    sites = tuple(
        SiteFigure(site=site, n=len(large[site]), value=one.value, low=one.low, high=one.high)
        for site, one in sorted(figures.items())
    )
    expect = partial(
        Expectation,
        measure=measures.of(endpoint).labels.measure,
        sites=sites,
        left_out=people.site[people.site != ""].nunique() - len(sites),
    )
    if found := pooled_figure(list(figures.values())):
        pooled, _ = found
        return expect(method="sites", value=pooled.value, low=pooled.prediction.low, high=pooled.prediction.high, tau=pooled.tau)
    whole = measures.of(endpoint).figure(people)
    if rarer(endpoint, people) < MIN_OF_SITE or math.isnan(whole.low):
        return None
    low, high = assumed_interval(whole.value, whole.low, whole.high)
    return expect(method="assumed", value=whole.value, low=low, high=high, tau=ASSUMED_TAU)


# The probe.


def probe_figures(probe: pd.DataFrame, seed: int) -> dict[str, ProbeFigures]:
    """Balanced accuracy of the probe of each model; none without guesses of two sites."""
    if not len(probe) or probe.site.nunique() < 2:
        return {}
    probe = probe if "model" in probe else probe.assign(model=MODEL)
    return {str(model): _of_model(rows, seed) for model, rows in probe.groupby("model")}


def balanced_accuracy(site: Shaped[np.ndarray, " m"], right: Shaped[np.ndarray, " m"]) -> float:
    """Mean over sites of the share of a site's patients that the probe got right; chance is 1 / sites, whatever their sizes.

    Source: Brodersen et al. 2010, doi:10.1109/ICPR.2010.764.
    """
    return float(np.mean([right[site == name].mean() for name in np.unique(site)]))


def _of_model(rows: pd.DataFrame, seed: int) -> ProbeFigures:
    rows = rows.assign(right=(rows.site == rows.predicted).astype(float))
    people = rows.groupby("patient").agg({"site": "first", "right": "mean"})
    site, right = people.site.to_numpy(str), people.right.to_numpy(float)
    value, sites = balanced_accuracy(site, right), int(people.site.nunique())
    low, high = _interval(site, right, np.random.default_rng(seed))
    # the probe of a fold learned from the others' sites, as a model from their labels: see `within_fold.inflation`
    z = norm.isf(_permutation_p(rows, np.random.default_rng(seed)))
    p = float(norm.sf(z / inflation(int(rows.fold.nunique()))))
    return ProbeFigures(
        n=len(people),
        sites=sites,
        balanced_accuracy=Estimate(value=value, low=low, high=high),
        chance=1 / sites,
        p=p,
    )


def _interval(
    site: Shaped[np.ndarray, " m"], right: Shaped[np.ndarray, " m"], generator: np.random.Generator
) -> tuple[float, float]:
    """95 % interval by a bootstrap of patients within their site."""
    _, of, size = np.unique(site, return_inverse=True, return_counts=True)
    share = right / size[of] / len(size)  # of each patient in the mean over sites
    low, high = intervals.interval(lambda drawn: drawn @ share, of, generator)
    return float(low), float(high)


def _permutation_p(rows: pd.DataFrame, generator: np.random.Generator) -> float:
    """One-sided p: patients of a fold of the first repeat exchange their sites, which then hold in every repeat.

    Folds are kept, because the probe of a fold knows how common each site was among the others.
    """
    first = rows.loc[rows.repeat == rows.repeat.min()].drop_duplicates("patient")
    people = pd.Index(first.patient)
    site, names = pd.factorize(first.site)
    rows = rows.loc[rows.patient.isin(people)]
    of = people.get_indexer(pd.Index(rows.patient))
    guess = pd.Index(names).get_indexer(pd.Index(rows.predicted))
    weight = 1 / np.bincount(of)[of]  # a patient counts once, however many guesses
    folds = [np.flatnonzero(first.fold == fold) for fold in first.fold.unique()]
    observed, reached = _right_by_site(site, of, guess, weight), 0
    permuted = site.copy()
    for _ in range(PERMUTATIONS):
        for members in folds:
            permuted[members] = site[generator.permutation(members)]
        # A hair of tolerance: sums of the same shares in another order differ in the last digit.
        reached += _right_by_site(permuted, of, guess, weight) >= observed - 1e-12
    return (reached + 1) / (PERMUTATIONS + 1)


def _right_by_site(
    site: Int[np.ndarray, " m"], of: Int[np.ndarray, " n"], guess: Int[np.ndarray, " n"], weight: Shaped[np.ndarray, " n"]
) -> float:
    right = np.bincount(of, weights=(site[of] == guess) * weight, minlength=len(site))
    return float((np.bincount(site, weights=right) / np.bincount(site)).mean())
