"""Does a figure differ between groups of patients by more than chance? Figures of groups in; a test of heterogeneity out.

g is the number of groups, n that of patients. Out-of-fold scores need no correction here: what a fold's model has learned by
chance raises or lowers all groups' figures alike, and their differences have the error of scores as given
(`pipelines/reproduce.py null_studies/utility`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import chdtrc

from mri_vit.metrics.checked import Groups, Numbers, grouped, measured, numbers, refuse_unequal

TABLE_DRAWS = 1999  # of tables with the same sums; (m + 1) a round number, so that p has three exact digits


@dataclass(frozen=True)
class Heterogeneity:
    """A test that groups have one figure: chi² with its degrees of freedom and p; NaN with fewer than two groups.

    `groups` are the positions of the groups that were compared among those given.
    """

    chi2: float
    df: int
    p: float
    groups: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class GroupRatios:
    """Observed over expected of each group, in the order of their names, with the variance if all groups had one ratio."""

    ratio: Float[np.ndarray, " g"]
    variance: Float[np.ndarray, " g"]


def cochran_q(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"]) -> Heterogeneity:
    """Cochran's test that g groups have one true value.

    Formula: Q = sum_g w_g (x_g - x̄)², w_g = 1 / variance, x̄ the mean weighted by w; chi² of g - 1 degrees of freedom.
    Assumption: each value is near normal with the variance given. Groups without a value, or a variance above 0, are left out.
    Source: Cochran 1954, doi:10.2307/3001666.

    >>> round(cochran_q(np.array([0.6, 0.8]), np.array([0.005, 0.005])).p, 3)
    0.046
    """
    refuse_unequal(values=len(values), variances=len(variances))
    usable = np.isfinite(values) & (variances > 0)  # false for NaN
    groups = tuple(np.flatnonzero(usable).tolist())
    df = max(0, len(groups) - 1)
    if df == 0:
        return Heterogeneity(math.nan, df, math.nan, groups)
    q = mean_and_q(values[usable], variances[usable, None])[1].item()
    return Heterogeneity(q, df, float(chdtrc(df, q)), groups)


def mean_and_q(
    values: Float[np.ndarray, " g"], variances: Float[np.ndarray, "g t"]
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """The mean of g groups weighted by 1 / variance, and Cochran's Q about it, at each of t columns of variances."""
    weight = 1 / variances
    mean = (weight * values[:, None]).sum(axis=0) / weight.sum(axis=0)
    return mean, (weight * (values[:, None] - mean) ** 2).sum(axis=0)


def rates_differ(counts: Integer[np.ndarray, "g 2"], generator: np.random.Generator) -> Heterogeneity:
    """Test that g groups have one rate, by all tables with the same sums: exact however small groups are.

    Definition: Pearson's chi² of the table; p = (b + 1) / (m + 1), b of m random tables with the same sums of rows and columns
    reaching it. Groups without a patient are left out.
    Source: Fisher 1925; Phipson & Smyth 2010, doi:10.2202/1544-6115.1585, for p.
    `counts`: of each group, those who have it and those who have not.
    Returns: Heterogeneity; NaN where one of the columns is empty.

    >>> round(rates_differ(np.array([[8, 2], [3, 7]]), np.random.default_rng(0)).chi2, 2)
    5.05
    """
    groups = tuple(np.flatnonzero(counts.sum(axis=1)).tolist())
    counts = counts[list(groups)]
    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    df = max(0, len(rows) - 1)
    if len(rows) < 2 or (columns == 0).any():
        return Heterogeneity(math.nan, df, math.nan, groups)
    expected = rows * columns[0] / rows.sum()
    # With fixed sums, both columns' squares are the first's, once by either's expected counts.
    weight = 1 / expected + 1 / (rows - expected)
    drawn = generator.multivariate_hypergeometric(rows, int(columns[0]), TABLE_DRAWS)
    found, others = ((weight * (table - expected) ** 2).sum(axis=-1) for table in (counts[:, 0], drawn))
    p = float(((others >= found * (1 - 1e-9)).sum() + 1) / (TABLE_DRAWS + 1))
    return Heterogeneity(float(found), df, p, groups)


def group_ratios(observed: Numbers, expected: Numbers, group: Groups) -> GroupRatios:
    """The O:E ratio of each group, and its variance under one ratio r of all.

    Formula: O_g / E_g; variance the larger of sum (o_i - r e_i)² and sum r e_i (1 - r e_i), over E_g², r = O / E of all patients.
    The former allows for probabilities that are not each patient's own, the latter for a group by chance without a case.
    Assumption: patients are independent.
    Source: the score test of a ratio in generalised linear models: Cox & Hinkley 1974, Theoretical Statistics, chapter 9.
    `observed`: 1 and 0, or pseudo-values where some are censored; `expected`: predicted probabilities.
    """
    observed, expected = measured(observed, expected, "outcomes", "probabilities")
    group = grouped(group, len(observed))
    everyone = float(observed.sum() / expected.sum()) if expected.sum() > 0 else math.nan
    each, spread = everyone * expected, (observed - everyone * expected) ** 2
    sums = [
        [float(of[group == name].sum()) for of in (observed, expected, spread, each * (1 - each))] for name in np.unique(group)
    ]
    o, e, own, binomial = np.array(sums).reshape(-1, 4).T
    e = np.where(e > 0, e, math.nan)
    return GroupRatios(o / e, np.maximum(own, binomial) / e**2)


def group_means(value: Numbers, group: Groups) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """The mean of each group, in the order of their names, and its variance s² / n; NaN with one patient."""
    value = numbers(value, "values")
    group = grouped(group, len(value))
    parts = [value[group == name] for name in np.unique(group)]
    spread = [float(part.var(ddof=1)) / len(part) if len(part) > 1 else math.nan for part in parts]
    return np.array([float(part.mean()) for part in parts]), np.array(spread)


def ranks_differ(values: Numbers, group: Groups) -> Heterogeneity:
    """Test that g groups have one distribution, by ranks: a skew number or a few outliers do not decide it.

    Source: Kruskal & Wallis 1952, doi:10.1080/01621459.1952.10483441, with ties.
    Returns: Heterogeneity; NaN with one group, or where all values are equal.
    """
    values = numbers(values, "values")
    group = grouped(group, len(values))
    parts = [values[group == name] for name in np.unique(group)]
    groups = tuple(range(len(parts)))
    if len(parts) < 2 or not np.ptp(values) > 0:
        return Heterogeneity(math.nan, max(0, len(parts) - 1), math.nan, groups)
    from scipy.stats import kruskal  # here, because it takes a third of a second

    found = kruskal(*parts)
    return Heterogeneity(float(found.statistic), len(parts) - 1, float(found.pvalue), groups)
