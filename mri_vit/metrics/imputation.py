"""Multiple imputation of covariates: columns with gaps in; m completed tables, and what these say together, out.

n is the number of patients, k that of columns, m of imputed tables, v of variables, each of one column or of a category's levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from scipy.special import chdtrc, fdtrc, stdtr, stdtrit

from mri_vit.metrics.checked import refuse_unequal

Columns = Float[np.ndarray, "n k"]
MIN_IMPUTATIONS = 5  # Rubin 1987, section 4.2: enough for an estimate, if not for another run's third digit
MAX_IMPUTATIONS = 20  # beyond, another run's p changes by a tenth of itself at most, and each costs as many regressions
MAX_ROWS = 25_000  # of all tables and repeats: some ten seconds of regressions; larger cohorts have five tables
ROUNDS = 10  # of chained equations: van Buuren 2018, Flexible Imputation of Missing Data, section 4.5.4: five to ten are enough
LARGE_DF = 1e9  # of a t distribution that is normal to every digit
DONORS = 5  # of predictive mean matching: van Buuren 2018, section 3.4.3; R's mice
TIE_DIGITS = 9  # of predictions, in shares of the largest: beyond is rounding, and they are one
RIDGE = 1e-5  # of a regression's diagonal, as R's mice: levels of a category may depend on each other


def imputations(share_incomplete: float, rows: int) -> int:
    """How many tables: as many as the patients who lack a covariate are per cent, from five to twenty; none without any.

    Source: White, Royston & Wood 2011, doi:10.1002/sim.4067: an estimate then varies little between repetitions.
    `rows`: patients that a table's regressions read, over all repeats; of many, fewer tables are made, and five at least.
    """
    if not share_incomplete > 0:
        return 0
    return max(MIN_IMPUTATIONS, min(math.ceil(100 * share_incomplete), MAX_IMPUTATIONS, MAX_ROWS // max(rows, 1)))


def chained_equations(
    columns: Columns,
    variables: Sequence[Sequence[int]],
    complete: Float[np.ndarray, "n c"],
    m: int,
    generator: np.random.Generator,
) -> list[Float[np.ndarray, "n k"]]:
    """m tables whose gaps are filled by draws from what the other columns and `complete` say of them.

    Definition: each variable in turn is regressed on all others and on `complete` among the patients who have it; coefficients
    are drawn from their posterior; a gap gets the value of one of the five patients whose prediction, by the fitted
    coefficients, is nearest to its own, by the drawn ones (predictive mean matching). Ten rounds, each table by itself. Levels
    of a category are predicted together and taken from one donor.
    Assumption: cells are missing at random given the other columns and `complete`, which holds all else that the analysis
    has, the outcome too: of survival the event and its cumulative hazard, and those of a competing event.
    Source: van Buuren & Groothuis-Oudshoorn 2011, doi:10.18637/jss.v045.i03; Little 1988, doi:10.1080/07350015.1988.10509663,
    for the matching; White & Royston 2009, doi:10.1002/sim.3618, for the outcome of survival; Bartlett & Taylor 2016,
    doi:10.1093/biostatistics/kxw019, for a competing event.
    `columns`: NaN where missing, the levels of a category together. `variables`: the columns of each.
    Returns: m arrays [n, k]; what is known is as it was.
    """
    refuse_unequal(columns=len(columns), others=len(complete))
    gaps = [(np.array(places), np.isnan(columns[:, places[0]])) for places in variables]
    gaps = sorted(((places, lacks) for places, lacks in gaps if lacks.any()), key=lambda pair: int(pair[1].sum()))
    for places, lacks in gaps:
        if lacks.all():
            raise ValueError(f"columns {places.tolist()} are missing of all {len(columns)} patients; expected some who have them")
    tables = []
    for _ in range(m):
        table = columns.copy()
        for places, lacks in gaps:  # to begin with, another patient's value
            table[np.ix_(lacks, places)] = columns[np.ix_(generator.choice(np.flatnonzero(~lacks), int(lacks.sum())), places)]
        for _ in range(ROUNDS):
            for places, lacks in gaps:
                others = np.delete(table, places, axis=1)
                _match(table, places, lacks, _scaled(np.hstack([others, complete])), generator)
        tables.append(table)
    return tables


def _scaled(x: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n r"]:
    """An intercept, and the columns that vary, in standard deviations."""
    spread = x.std(axis=0)
    varying = spread > 0
    return np.hstack([np.ones((len(x), 1)), (x[:, varying] - x[:, varying].mean(axis=0)) / spread[varying]])


def _match(
    table: Columns, places: np.ndarray, lacks: np.ndarray, x: Float[np.ndarray, "n r"], generator: np.random.Generator
) -> None:
    """Fill one variable's gaps in place."""
    known = ~lacks
    x_known, y = x[known], table[np.ix_(known, places)]
    gram = x_known.T @ x_known
    inverse = np.linalg.inv(gram + RIDGE * np.diag(np.diag(gram)))
    fitted = inverse @ x_known.T @ y
    degrees = max(len(y) - x.shape[1], 1)
    sigma = np.sqrt(((y - x_known @ fitted) ** 2).sum(axis=0) / generator.chisquare(degrees, len(places)))
    drawn = fitted + np.linalg.cholesky(inverse) @ generator.standard_normal(fitted.shape) * sigma
    wanted, donors = x[lacks] @ drawn, x_known @ fitted
    table[np.ix_(lacks, places)] = y[_nearest(wanted, donors, generator)]


def _nearest(
    wanted: Float[np.ndarray, "w q"], donors: Float[np.ndarray, "d q"], generator: np.random.Generator
) -> Int[np.ndarray, " w"]:
    """For each wanted prediction a donor, by chance among the five nearest and all who have the same predictions as these."""
    scale = np.abs(donors).max() or 1.0
    kinds, kind_of, count = np.unique((donors / scale).round(TIE_DIGITS), axis=0, return_inverse=True, return_counts=True)
    line = np.argsort(kind_of.ravel(), kind="stable")  # donors of one prediction stand together
    first = np.r_[0, np.cumsum(count)[:-1]]
    _, near = KDTree(kinds).query(wanted / scale, k=min(DONORS, len(kinds)))
    near = near.reshape(len(wanted), -1)
    reached = np.cumsum(count[near], axis=1)
    enough = (reached < min(DONORS, len(donors))).sum(axis=1)  # the place of the last prediction that is needed
    rows = np.arange(len(wanted))
    drawn = (generator.random(len(wanted)) * reached[rows, enough]).astype(int)
    place = (reached <= drawn[:, None]).sum(axis=1)
    kind = near[rows, place]
    return line[first[kind] + drawn - (reached[rows, place] - count[kind])]


@dataclass(frozen=True)
class Pooled:
    """An estimate of several imputed tables: its variance and the degrees of freedom of its t."""

    value: float
    variance: float
    df: float

    @property
    def reach(self) -> float:
        """Half of the 95 % interval's width."""
        return float(stdtrit(self.df, 0.975)) * math.sqrt(self.variance)

    @property
    def p(self) -> float:
        """Two-sided, that it is zero."""
        return float(2 * stdtr(self.df, -abs(self.value) / math.sqrt(self.variance)))


def rubin(values: Float[np.ndarray, " m"], variances: Float[np.ndarray, " m"]) -> Pooled:
    """Rubin's rules for one estimate of m imputed tables.

    Formula: mean Q; variance T = U + (1 + 1/m) B, U the mean of the tables' variances and B the sample variance of their values;
    T's degrees of freedom (m - 1) (1 + U / ((1 + 1/m) B))², those of R's mitools and of `mice` for a large sample.
    Assumption: each table's estimate is near normal with its variance.
    Source: Rubin 1987, Multiple Imputation for Nonresponse in Surveys, section 3.3.

    >>> found = rubin(np.array([1.0, 1.2, 0.8]), np.array([0.04, 0.05, 0.03]))
    >>> print(f"{found.value:.2f}, SE {found.variance ** 0.5:.3f}, {found.df:.1f} df")
    1.00, SE 0.306, 6.1 df
    """
    refuse_unequal(values=len(values), variances=len(variances))
    m, within = len(values), float(np.mean(variances))
    extra = (1 + 1 / m) * float(np.var(values, ddof=1)) if m > 1 else 0.0
    df = (m - 1) * (1 + within / extra) ** 2 if extra > 0 else LARGE_DF
    return Pooled(float(np.mean(values)), within + extra, min(df, LARGE_DF))


def pooled_chi2(chi2: Float[np.ndarray, " m"], k: int) -> tuple[float, float]:
    """The chi² of k degrees of freedom of m imputed tables, as one, and its p: the statistic D2.

    Formula: D = (mean(chi²) / k - r (m + 1) / (m - 1)) / (1 + r), r = (1 + 1/m) times the variance of sqrt(chi²); D is F of k and
    k^(-3/m) (m - 1) (1 + 1/r)² degrees of freedom. k D, 0 at least, is given for the chi².
    Source: Li, Meng, Raghunathan & Rubin 1991, Statistica Sinica 1:65; van Buuren 2018, section 5.3.2.

    >>> statistic, p = pooled_chi2(np.array([6.1, 7.4, 5.2]), 2)
    >>> print(f"{statistic:.2f}, p {p:.3f}")
    5.61, p 0.062
    """
    m = len(chi2)
    if m < 2:
        return float(chi2[0]), float(chdtrc(k, chi2[0]))
    r = (1 + 1 / m) * float(np.var(np.sqrt(chi2), ddof=1))
    d = max(0.0, (float(np.mean(chi2)) / k - r * (m + 1) / (m - 1)) / (1 + r))
    df = k ** (-3 / m) * (m - 1) * (1 + 1 / r) ** 2 if r > 0 else LARGE_DF
    return k * d, float(fdtrc(k, min(df, LARGE_DF), d))
