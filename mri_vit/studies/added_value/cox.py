"""Stratified Cox regressions of several columns: patients in; coefficients, likelihood and out-of-fold predictors out.

n is the number of patients, k that of columns. Times are in days; died is False for a patient censored at that time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError, ConvergenceWarning
from lifelines.statistics import proportional_hazard_test

from mri_vit.errors import UsageError
from mri_vit.predictors.regressions import COX_TOLERANCE, PRIOR_VARIANCE

DAYS, DIED, STRATUM = "days", "died", "stratum"  # of the table that lifelines fits; columns are x0, x1, … in it
MOST_ERROR = 100.0  # of the log hazard ratio of a standard deviation; where a likelihood rises without end it is thousands
LEAST = 1e-9  # of a column's variance: what is left of it below, once the others are taken out, is rounding

ENOUGH = {"precision": 1e-12, "r_precision": 1e-12}  # of well parted columns; lifelines stops at 1e-7 of a step

Days = Float[np.ndarray, " n"]
Died = Bool[np.ndarray, " n"]
Stratum = Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Fit:
    """A Cox regression: partial log likelihood, and of each column the log hazard ratio, its variance and `proportional_p`.

    The last is the p of the two-sided score test of Schoenfeld's residuals against the Kaplan-Meier time.
    """

    log_likelihood: float
    coefficient: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]
    proportional_p: Float[np.ndarray, " k"]


def fit(days: Days, died: Died, columns: pd.DataFrame, stratum: Stratum) -> Fit:
    """Fit log hazards that are linear in the columns, each stratum with a baseline hazard of its own.

    Formula: Efron's partial likelihood, the sum of the strata's.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; Grambsch & Therneau 1994, doi:10.1093/biomet/81.3.515.

    Raises
    ------
    UsageError that names the column without a finite hazard ratio.
    """
    for name, column in columns.items():
        _refuse_boundless(str(name), days, died, column.to_numpy(float), stratum)
    found = _at_the_top(days, died, columns.to_numpy(float), stratum)
    errors = found.standard_errors_.to_numpy(float) if found else np.full(columns.shape[1], np.nan)
    wild = np.flatnonzero(~(errors * columns.to_numpy(float).std(axis=0) < MOST_ERROR))
    if found is None or len(wild):
        named = ", ".join(str(columns.columns[place]) for place in wild)
        raise UsageError(
            f"the Cox regression on {', '.join(map(str, columns))} has no finite hazard ratio for {named} "
            f"({int(died.sum())} deaths among {len(died)} patients): together the columns part those who died, or depend on "
            "each other; name fewer covariates"
        )
    table = _table(days, died, columns.to_numpy(float), stratum)
    with np.errstate(all="ignore"):
        changing = np.ravel(proportional_hazard_test(found, table, time_transform="km").p_value).astype(float)
    return Fit(float(found.log_likelihood_), found.params_.to_numpy(float), errors**2, changing)


def out_of_fold(
    days: Days, died: Died, columns: Float[np.ndarray, "n k"], stratum: Stratum, fold: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Each patient's linear predictor by coefficients of the patients of the other folds; 0 where nobody of these died.

    A coefficient per standard deviation has the prior of `tabular.Regressions`, so that few deaths do no harm. A column that does
    not vary among the other patients tells nothing.
    """
    predicted = np.zeros(len(days))
    for name in np.unique(fold):
        test = fold == name
        train = ~test
        varying = columns[train].std(axis=0) > 0
        if not varying.any() or not died[train].any():
            continue
        table = _table(days[train], died[train], columns[train][:, varying], stratum[train])
        penalty = 1 / (PRIOR_VARIANCE * int(train.sum()))  # lifelines divides the likelihood by n
        found = _fitted(CoxPHFitter(penalizer=penalty), table, COX_TOLERANCE)
        if found is None:
            raise UsageError(f"the Cox regression without fold {name + 1} did not converge; name fewer covariates")
        predicted[test] = columns[test][:, varying] @ found.params_.to_numpy(float)
    return predicted


def dependent(columns: pd.DataFrame, stratum: Sequence[Stratum]) -> dict[str, str]:
    """Columns that a stratified regression cannot tell from others, each with what is wrong with it.

    A column is constant within every stratum, or a linear combination of those before it there, in any of the `stratum`.
    """
    wrong: dict[str, str] = {}
    for of_repeat in stratum:
        left: list[Float[np.ndarray, " n"]] = []  # orthogonal, of length 1
        for name, column in columns.items():
            values = column.to_numpy(float)
            values = values - pd.Series(values).groupby(of_repeat).transform("mean").to_numpy()
            size = float(values @ values)
            if size <= LEAST * max(1.0, float((column**2).sum())):
                wrong.setdefault(str(name), "does not vary within a fold")
                continue
            for _ in range(2):  # once more, against rounding
                for axis in left:
                    values = values - (values @ axis) * axis
            rest = float(values @ values)
            if rest <= LEAST * size:
                wrong.setdefault(str(name), "is told by the other covariates")
            else:
                left.append(values / np.sqrt(rest))
    return wrong


def _table(days: Days, died: Died, columns: Float[np.ndarray, "n k"], stratum: Stratum) -> pd.DataFrame:
    table = pd.DataFrame(columns).add_prefix("x")
    return table.assign(**{DAYS: days, DIED: died, STRATUM: stratum})


def _at_the_top(days: Days, died: Died, x: Float[np.ndarray, "n k"], stratum: Stratum) -> CoxPHFitter | None:
    """The regression where its likelihood is highest; None where it has no such place.

    Where columns nearly depend on each other, lifelines gives up on the way and hands out what it has. So it climbs along
    directions that do not (the likelihood is the same), and then starts at the end in the columns themselves.
    """
    centred = x - pd.DataFrame(x).groupby(stratum).transform("mean").to_numpy()
    triangle = np.linalg.qr(centred, mode="r")
    size = np.abs(np.diag(triangle))
    if len(centred) < x.shape[1] or not (size**2 > LEAST * (centred**2).sum(axis=0)).all():
        return None
    directions = np.linalg.inv(triangle) * np.sqrt(len(x))
    climbed = _fitted(CoxPHFitter(), _table(days, died, centred @ directions, stratum), ENOUGH)
    if climbed is None:
        return None
    top = directions @ climbed.params_.to_numpy(float)
    return _fitted(CoxPHFitter(), _table(days, died, x, stratum), ENOUGH, top * x.std(axis=0, ddof=1))  # per its own deviation


def _fitted(
    regression: CoxPHFitter, table: pd.DataFrame, options: dict[str, float], start: Float[np.ndarray, " k"] | None = None
) -> CoxPHFitter | None:
    """The regression, fitted; None where it does not converge, of which lifelines may do no more than warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence; who asks looks at the errors
        warnings.filterwarnings("error", message="Newton-Raphson")
        try:
            return regression.fit(table, DAYS, DIED, strata=[STRATUM], fit_options=options, initial_point=start)
        except (ConvergenceError, ConvergenceWarning, np.linalg.LinAlgError):
            return None


def _refuse_boundless(name: str, days: Days, died: Died, x: Float[np.ndarray, " n"], stratum: Stratum) -> None:
    """Raise UsageError unless a death had a lower x than someone then at risk in the stratum, and one had a higher."""
    at_risk = (days >= days[died, None]) & (stratum == stratum[died, None])  # (deaths, n)
    above, below = (at_risk & (x > x[died, None])).any(), (at_risk & (x < x[died, None])).any()
    if not (above and below):
        most = "lowest" if above else "highest"
        raise UsageError(
            f"{name}: at every death the patient had the {most} value of those at risk in the fold, so that its hazard ratio has "
            "no finite estimate; leave it out of the covariates"
        )
