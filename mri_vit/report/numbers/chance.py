"""Could chance have made it, refitting included? One model's rows of an endpoint in; test, judged interval and sites out.

A row is a patient of a repeat, as `judged.known_rows` gives them; folds and repeats are counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import kruskal
from scipy.stats import t as student

from mri_vit.kinds.kind import labels
from mri_vit.metrics import within_fold
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.sample_size import Detection
from mri_vit.metrics.transportability import i_squared, of_arcsine, prediction_interval, random_effects, spread_of_figures
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.judged import averaged, first_repeat, fold_of, rarer
from mri_vit.report.numbers.measures import Background
from mri_vit.report.schema.measured import ALPHA, MAX_POOLING_GAP, MIN_EVENTS, MIN_OF_SITE, MIN_SITES, Apart, UnadjustedTest
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Design, Estimate, Interval, Retraining, WithinSites
from mri_vit.settings.schema import Endpoint


@dataclass(frozen=True)
class AgainstChance:
    """What is known of one model about chance."""

    judged: Estimate
    chance_test: UnadjustedTest
    retraining: Retraining | None
    within_sites: WithinSites | None


def measure(endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> AgainstChance:
    """All that is asked of a model about chance; `rows` are of one model and endpoint, at least one."""
    found = within_folds(endpoint, rows)
    inflated = inflation(rows, background.design)
    mean = _mean(found)
    refits = background.design not in NOT_TRAINED_ON
    free = _free(mean, refits, _detection(endpoint, rows, inflated, background.family))
    variance = float(np.mean([one.variance for one in found]))  # of one repeat, for the patients are the same
    low, high = measures.of(endpoint).interval(mean.value, variance, mean.error, averaged(rows), refits)
    return AgainstChance(
        judged=Estimate(value=mean.value, low=low, high=high),
        chance_test=_refitted(endpoint, rows, found[0], background, free) or free,
        retraining=_retrained(endpoint, rows, [one.value for one in found], background.seeds),
        within_sites=_within_sites(endpoint, rows, mean, inflated, background.site_of),
    )


def within_folds(endpoint: Endpoint, rows: pd.DataFrame) -> list[WithinFold]:
    """The judged figure of pairs within a fold, of each repeat; influences are in the order of the repeat's rows."""
    within = measures.of(endpoint).within
    return [within(here, fold_of(here)) for _, here in rows.groupby("repeat", sort=True)]


def inflation(rows: pd.DataFrame, design: Design) -> float:
    """What multiplies the error of scores as given: 1 where no model was trained on the patients, else for folds and repeats."""
    if design in NOT_TRAINED_ON:
        return 1.0
    return within_fold.inflation(int(first_repeat(rows).fold.nunique()), int(rows.repeat.nunique()))


def _retrained(endpoint: Endpoint, rows: pd.DataFrame, values: list[float], seeds: pd.DataFrame) -> Retraining | None:
    """Where another training would lie: by the `values` of several repeats; of one repeat, by its networks of several seeds.

    Repeats differ in folds and seeds and so in all that another training would differ in. A seed's figure is that of one
    network, whose scatter is wider than that of the mean score of several.
    """
    if len(values) > 1 or not len(seeds):
        return retraining(values, "repeats")
    within = measures.of(endpoint).within
    trained = [of_seed(endpoint, rows, own) for _, own in seeds.groupby("seed")]
    return retraining([within(here, fold_of(here)).value for here in trained], "seeds")


def of_seed(endpoint: Endpoint, rows: pd.DataFrame, seeds: pd.DataFrame) -> pd.DataFrame:
    """The judged rows with one seed's scores in the place of their own."""
    keys = [column for column in ("repeat", "fold", "patient", "session") if column in rows]
    scores = labels(endpoint).scores_by(endpoint, seeds.astype({"score": float}), keys)
    return rows.drop(columns=list(scores.columns)).merge(scores.reset_index(), on=keys, validate="one_to_one")


def retraining(values: list[float], source: str) -> Retraining | None:
    """A 95 % prediction interval of one more training, from those that were made; None with one alone.

    Formula: mean ± t sqrt(1 + 1/R) s, s the sample standard deviation of R trainings, t of R - 1 degrees of freedom.
    Assumption: trainings scatter as a normal distribution.
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return None
    mean, deviation = float(np.mean(known)), float(np.std(known, ddof=1))
    reach = float(student.ppf(0.975, len(known) - 1)) * math.sqrt(1 + 1 / len(known)) * deviation
    low, high = max(0.0, mean - reach), min(1.0, mean + reach)
    return Retraining.model_validate(
        {"source": source, "trainings": len(known), "deviation": deviation, "low": low, "high": high}
    )


def _detection(endpoint: Endpoint, rows: pd.DataFrame, inflated: float, results: int) -> Detection:
    """What these patients can tell from chance; equal scores have a smaller error, and their figure is less too.

    As `crossval.power` has it before a run.
    """
    of_kind, errors = labels(endpoint), []
    for _, here in rows.groupby("repeat", sort=True):
        known = of_kind.arrays(here)[0]
        errors.append(of_kind.within(known, of_kind.untied(known), fold_of(here)).error)
    return Detection(float(np.mean(errors)), inflated, results)


def _free(found: WithinFold, refits: bool, test: Detection) -> UnadjustedTest:
    """The test that needs no training: a normal p, which has no least value."""
    return UnadjustedTest(
        method="within folds" if refits else "scores as given",
        value=found.value,
        error=found.error,
        inflation=test.inflated,
        draws=None,
        p=within_fold.p_above_chance(found, test.inflated),
        p_below=within_fold.p_below_chance(found, test.inflated),
        least=within_fold.least_above_chance(test.error, test.inflated),
        least_adjusted=test.critical,
        found_80=test.found(0.8),
        found_90=test.found(0.9),
    )


def _refitted(
    endpoint: Endpoint, rows: pd.DataFrame, found: WithinFold, background: Background, free: UnadjustedTest
) -> UnadjustedTest | None:
    """The test by refits of the first repeat on permuted labels; None where there are none, or too few to decide.

    Formula: (b + 1) / (m + 1), b of m permutations reaching the observed figure (Phipson & Smyth 2010,
    doi:10.2202/1544-6115.1585). A fold keeps its classes when labels are permuted within it, and so its weight. Drawing ends
    with the twentieth that reaches it, which says nothing of low values: their p is that of the `free` test. Where fewer reach
    it, and even none would leave p above the level once it is corrected for its family, m decides and not the model: no test.
    """
    nulls = background.nulls
    if not len(nulls) or math.isnan(found.value):
        return None
    once = first_repeat(rows)
    weight = labels(endpoint).fold_weights(labels(endpoint).arrays(once)[0], once.fold.to_numpy())
    values = nulls.pivot(index="draw", columns="fold", values="value")
    weights = np.where(values.isna(), 0.0, [weight.get(fold, 0.0) for fold in values.columns])  # an undefined fold weighs nothing
    total = weights.sum(axis=1)
    drawn = (weights * values.fillna(0.0).to_numpy(float)).sum(axis=1)[total > 0] / total[total > 0]
    above = int((drawn >= found.value - 1e-9).sum())
    if above < within_fold.ENOUGH_EXCEEDANCES and background.family > ALPHA * (len(drawn) + 1):
        return None
    return UnadjustedTest(
        method="refitted",
        value=found.value,
        error=found.error,
        inflation=float(np.sqrt(np.mean((drawn - within_fold.CHANCE) ** 2)) / found.error) if found.error else math.nan,
        draws=len(drawn),
        p=(above + 1) / (len(drawn) + 1),
        p_below=free.p_below,
        least=free.least,
        least_adjusted=free.least_adjusted,
        found_80=free.found_80,
        found_90=free.found_90,
    )


def _mean(found: Sequence[WithinFold]) -> WithinFold:
    """The mean figure of several repeats; error and influences of one, for the patients are the same."""
    value, error = (float(np.mean([getattr(one, name) for one in found])) for name in ("value", "error"))
    return WithinFold(value, error, found[0].influence)


def _within_sites(
    endpoint: Endpoint, rows: pd.DataFrame, pooled: WithinFold, inflated: float, site_of: Mapping[str, str]
) -> WithinSites | None:
    """The figure among patients of one site and fold, and how it differs between sites; None without two sites to compare.

    The site is blamed where the figure of all pairs is higher than that of pairs within a site on the same patients, and the
    latter is no better than chance. That the one is significant and the other not says little: of results in which the site
    had no part 4 to 70 % look so, 0 to 1.3 % differ (`pipelines/reproduce.py null_studies/beside`). The difference has the
    variance of scores as given, because both figures share what folds learn from each other.
    """
    of_kind = measures.of(endpoint)
    within = of_kind.within
    rows = rows.assign(site=rows.patient.map(site_of).fillna(""))
    rows = rows.loc[rows.site != ""]
    if rows.site.nunique() < 2:
        return None
    repeats = [here for _, here in rows.groupby("repeat", sort=True)]
    cells = [within(here, here.groupby(["fold", "site"]).ngroup().to_numpy()) for here in repeats]
    found = _mean(cells)
    people = averaged(rows).merge(rows[["patient", "site"]].drop_duplicates(), on="patient")
    alone = {str(site): here for site, here in people.groupby("site") if not math.isnan(of_kind.estimate(here))}
    figures = [within(here, np.zeros(len(here))).value for here in alone.values()]
    if len(figures) < 2 or math.isnan(found.value):
        return None
    p = within_fold.p_above_chance(found, inflated)
    less = within_fold.within_fold_comparison([within(here, fold_of(here)) for here in repeats], cells, 1.0)
    over_all = within_fold.p_above_chance(pooled, inflated)
    return WithinSites(
        sites=len(figures),
        value=found.value,
        error=found.error,
        p=p,
        least=min(figures),
        most=max(figures),
        confounded=over_all <= ALPHA < p and less.difference > 0 and less.p <= ALPHA,
        difference=Estimate(value=less.difference, low=less.low, high=less.high),
        difference_p=less.p,
        **between_sites(endpoint, alone),
    )


def between_sites(endpoint: Endpoint, alone: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """How figures of single sites with patients enough differ, on the arcsine scale; and which are worse than the others.

    A site is compared with the mean of the others, each weighing as its variance has it; Holm's method over the sites.
    """
    large = {site: here for site, here in alone.items() if rarer(endpoint, here) >= MIN_OF_SITE}
    pooled = {site: measures.of(endpoint).figure(here).on_arcsine for site, here in large.items()}
    enough = {site: one for site, one in pooled.items() if np.isfinite(one).all()}
    values, variances = np.array(list(enough.values())).reshape(-1, 2).T
    ends = prediction_interval(values, variances) if len(enough) >= MIN_SITES else (math.nan, math.nan)
    low, high = of_arcsine(np.array(ends)).tolist()
    weight = 1 / variances
    others = weight.sum() - weight
    with np.errstate(invalid="ignore", divide="ignore"):  # of one site there are no others
        behind = ((weight * values).sum() - weight * values) / others - values
        p = holm(np.asarray(ndtr(-behind / np.sqrt(variances + 1 / others))))
    return {
        "compared_sites": len(enough),
        "i_squared": i_squared(values, variances),
        "tau": spread_of_figures(random_effects(values, variances)),
        "between": None if math.isnan(low) else Interval(low=low, high=high),
        "worse": tuple(site for site, of_site in zip(enough, p.tolist(), strict=True) if of_site <= ALPHA),
    }


def scales_apart(endpoint: Endpoint, rows: pd.DataFrame, pooled: float, within: float) -> Apart | None:
    """The pooled figure and that within folds, both of the first repeat, where they are far apart and the folds' scores are shown
    to lie apart among patients of one outcome; else None, and so with few of the rarer class.

    A mean over repeats is the score of an ensemble, which does better than one model. The test is that of Kruskal & Wallis 1952,
    doi:10.1080/01621459.1952.10483441, of scores less the mean of their outcome.
    """
    once = first_repeat(rows)
    if not abs(pooled - within) > MAX_POOLING_GAP or rarer(endpoint, averaged(once)) < MIN_EVENTS:
        return None
    if not (alike := measures.of(endpoint).alike):
        return None
    same = once.score - once.groupby(alike).score.transform("mean")
    if np.ptp(same) < 1e-9 * np.ptp(once.score):  # rounding: every score is the mean of its outcome
        return None
    test = kruskal(*(of_fold.to_numpy(float) for _, of_fold in same.groupby(fold_of(once))))
    return Apart(pooled, within, rows.repeat.nunique()) if test.pvalue <= ALPHA else None
