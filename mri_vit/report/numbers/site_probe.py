"""Whether the model's CLS vector predicts the site: the probe's guesses in, balanced accuracy out.

n is the number of guesses (one for each patient, repeat and visit), m the number of patients.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped
from scipy.stats import norm

from mri_vit.metrics import intervals
from mri_vit.metrics.within_fold import inflation
from mri_vit.report.schema.parts import Estimate
from mri_vit.report.schema.run import Probe, SiteProbe
from mri_vit.settings.recipe import VIT

PERMUTATIONS = 999  # (m + 1) a round number, so that p has three exact digits
MODEL = VIT  # whose vector is probed where the table does not say


def measure(probe: pd.DataFrame, seed: int) -> SiteProbe | None:
    """Balanced accuracy of the probe of each model, not yet judged; None without guesses of two sites."""
    if not len(probe) or probe.site.nunique() < 2:
        return None
    probe = probe if "model" in probe else probe.assign(model=MODEL)
    return SiteProbe(site_column="site", models={str(model): _of_model(rows, seed) for model, rows in probe.groupby("model")})


def balanced_accuracy(site: Shaped[np.ndarray, " m"], right: Shaped[np.ndarray, " m"]) -> float:
    """Mean over sites of the share of a site's patients that the probe got right; chance is 1 / sites, whatever their sizes.

    Source: Brodersen et al. 2010, doi:10.1109/ICPR.2010.764.
    """
    return float(np.mean([right[site == name].mean() for name in np.unique(site)]))


def _of_model(rows: pd.DataFrame, seed: int) -> Probe:
    rows = rows.assign(right=(rows.site == rows.predicted).astype(float))
    people = rows.groupby("patient").agg({"site": "first", "right": "mean"})
    site, right = people.site.to_numpy(str), people.right.to_numpy(float)
    value, sites = balanced_accuracy(site, right), int(people.site.nunique())
    low, high = _interval(site, right, np.random.default_rng(seed))
    # the probe of a fold learned from the others' sites, as a model from their labels: see `within_fold.inflation`
    z = norm.isf(_permutation_p(rows, np.random.default_rng(seed)))
    p = float(norm.sf(z / inflation(int(rows.fold.nunique()))))
    return Probe(
        n=len(people),
        sites=sites,
        balanced_accuracy=Estimate(value=value, low=low, high=high),
        chance=1 / sites,
        p=p,
        warning=False,
        sentence="",
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
