"""What a risk adds to covariates: patients with out-of-fold risks in; hazard ratios, likelihood ratios and changes of C out.

Cox regressions are stratified by the network that scored a patient, and its risks are standardised among the patients that it
scored: two networks share neither a scale nor a zero. n is the number of patients, k that of columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.stats import chi2, norm

from mri_vit.errors import UsageError
from mri_vit.metrics.comparison import Z_95, Comparison
from mri_vit.metrics.delong import wilson_of_c
from mri_vit.metrics.within_fold import WithinFold, within_fold_c, within_fold_comparison
from mri_vit.studies.added_value import cox
from mri_vit.studies.added_value.cox import Fit

RISK = "risk"  # the column of the network's risk; covariates have names of their own, see `People`
SAME = 1e-6  # of a risk's variance in a fold: what covariates leave unexplained below it is rounding


@dataclass(frozen=True, eq=False)
class Scored:
    """The risks of one repeat: `network` is which one scored a patient, `fold` the test fold of the Cox regressions."""

    risk: Float[np.ndarray, " n"]
    network: Int[np.ndarray, " n"]
    fold: Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class People:
    """Patients whose outcome and covariates are all known. `covariates` has a row each, in numbers, none named `RISK`."""

    days: Float[np.ndarray, " n"]
    died: Bool[np.ndarray, " n"]
    covariates: pd.DataFrame
    repeats: Sequence[Scored]


@dataclass(frozen=True)
class HazardRatio:
    """A hazard ratio with its 95 % interval and Wald's p, and the p of the test that it is the same at all times."""

    value: float
    low: float
    high: float
    p: float
    proportional_p: float


@dataclass(frozen=True)
class LikelihoodRatio:
    """Twice the gain in log likelihood by more columns, and how it is judged.

    `given_p` takes the risks as given; `p` allows for the refitting of the networks, whose error is `inflated` times as large.
    """

    chi2: float
    df: int
    given_p: float
    inflated: float
    p: float


@dataclass(frozen=True)
class Concordance:
    """Harrell's C of pairs within a fold, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AddedValue:
    """All that is measured. `without`, `alone` and `both` are hazard ratios by column: of covariates, of the risk, of all."""

    n: int
    deaths: int
    coefficients: int  # of the regression on all
    explained: float  # share of the risk's variance within a fold that the covariates explain
    without: dict[str, HazardRatio]
    alone: dict[str, HazardRatio]
    both: dict[str, HazardRatio]
    test: LikelihoodRatio  # of the risk, given the covariates
    reverse: LikelihoodRatio  # of the covariates, given the risk
    c_without: Concordance
    c_alone: Concordance
    c_both: Concordance
    gain: Comparison  # C of both less that of the covariates
    gain_reverse: Comparison  # C of both less that of the risk


def measure(people: People, inflated: float) -> AddedValue:
    """Hold the risk against the covariates, and the covariates against the risk.

    Formula: χ² = 2 (log L(both) - log L(one)), L the partial likelihood (Efron's ties) stratified by network. Of the risk, the
    signed root of χ² is averaged over repeats, and its square is given; p is that of the root divided by `inflated`, squared, by
    χ² of one degree of freedom, and the interval of the hazard ratio is wider by the same factor. Of the covariates, which no
    network learned, χ² is averaged over repeats, and p is that of χ² of k degrees of freedom. C is that of pairs within a fold,
    of linear predictors whose coefficients come from the patients of the other folds (with the prior of the control on clinical
    columns).
    Assumption: log hazards are linear in each column; hazards are proportional; censoring is unrelated to survival.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; `within_fold.inflation` for the factor.

    Parameters
    ----------
    inflated : as `within_fold.inflation` gives it; 1 where the patients taught no network.

    Raises
    ------
    UsageError where a column has no finite hazard ratio, there are no more deaths than columns, or the risk is a linear
    function of the covariates.
    """
    repeats = [replace(one, risk=standardised(one.risk, one.network)) for one in people.repeats]
    k = people.covariates.shape[1]
    _refuse_too_few(people, k + 1)
    explained = float(np.mean([_explained(people.covariates.to_numpy(float), one) for one in repeats]))
    fits = [_fits(people, one) for one in repeats]
    without, alone, both = ([fit[place] for fit in fits] for place in range(3))
    covariates, names = list(people.covariates), [*people.covariates, RISK]
    of = [_concordances(people, one) for one in repeats]
    c_without, c_alone, c_both = ([found[place] for found in of] for place in range(3))
    return AddedValue(
        n=len(people.days),
        deaths=int(people.died.sum()),
        coefficients=k + 1,
        explained=explained,
        without=_ratios(covariates, without, inflated),
        alone=_ratios([RISK], alone, inflated),
        both=_ratios(names, both, inflated),
        test=_of_risk([_gain(a, b) for a, b in zip(without, both, strict=True)], [fit.coefficient[-1] for fit in both], inflated),
        reverse=_of_covariates([_gain(a, b) for a, b in zip(alone, both, strict=True)], k),
        c_without=_concordance(c_without),
        c_alone=_concordance(c_alone),
        c_both=_concordance(c_both),
        gain=within_fold_comparison(c_both, c_without, inflated),
        gain_reverse=within_fold_comparison(c_both, c_alone, inflated),
    )


def standardised(risk: Float[np.ndarray, " n"], network: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Risks with mean 0 and sample SD 1 among the patients that one network scored; 0 where they are all equal."""
    found = np.zeros(len(risk))
    for name in np.unique(network):
        here = network == name
        if np.ptp(risk[here]) > 0:
            found[here] = (risk[here] - risk[here].mean()) / risk[here].std(ddof=1)
    return found


def _refuse_too_few(people: People, coefficients: int) -> None:
    deaths = int(people.died.sum())
    if deaths <= coefficients:
        raise UsageError(
            f"{deaths} deaths among {len(people.days)} patients with all covariates known, for {coefficients} coefficients; "
            "name fewer covariates, or such as more patients have"
        )


def _explained(columns: Float[np.ndarray, "n k"], scored: Scored) -> float:
    """Share of the risk's variance within folds that the covariates explain, with one slope for all folds.

    Raises UsageError where each fold's own slopes leave nothing unexplained: such a risk is the covariates under another name.
    """
    centred, left, total = columns.copy(), 0.0, 0.0
    for name in np.unique(scored.network):
        here = scored.network == name
        centred[here] -= columns[here].mean(axis=0)
        if here.sum() > columns.shape[1] + 1:  # with fewer patients, slopes fit anything
            left += _residual(centred[here], scored.risk[here])
            total += float((scored.risk[here] ** 2).sum())
    if not (scored.risk**2).sum():
        raise UsageError("the risk is the same for all patients of each fold; it can add nothing")
    if total and left <= SAME * total:
        raise UsageError("the risk is a linear function of the covariates in every fold (collinear); it can add nothing to them")
    return 1 - _residual(centred, scored.risk) / float((scored.risk**2).sum())


def _residual(columns: Float[np.ndarray, "n k"], risk: Float[np.ndarray, " n"]) -> float:
    slopes = np.linalg.lstsq(columns, risk, rcond=None)[0]
    return float(((risk - columns @ slopes) ** 2).sum())


def _fits(people: People, scored: Scored) -> tuple[Fit, Fit, Fit]:
    """Cox regressions on the covariates, on the risk, and on both."""
    risk = pd.DataFrame({RISK: scored.risk}, index=people.covariates.index)
    tables = people.covariates, risk, people.covariates.join(risk)
    without, alone, both = (cox.fit(people.days, people.died, table, scored.network) for table in tables)
    return without, alone, both


def _ratios(names: Sequence[str], fits: Sequence[Fit], inflated: float) -> dict[str, HazardRatio]:
    """Means over repeats: of coefficients, and of their variances, for the patients are the same."""
    coefficient = np.mean([fit.coefficient for fit in fits], axis=0)
    error = np.sqrt(np.mean([fit.variance for fit in fits], axis=0))
    changing = np.median([fit.proportional_p for fit in fits], axis=0)
    found = {}
    for place, name in enumerate(names):
        reach = error[place] * (inflated if name == RISK else 1.0)
        value, low, high = np.exp(coefficient[place] + reach * np.array([0.0, -Z_95, Z_95])).tolist()
        p = float(2 * norm.sf(abs(coefficient[place]) / reach))
        found[name] = HazardRatio(value, low, high, p, float(changing[place]))
    return found


def _gain(less: Fit, more: Fit) -> float:
    return max(0.0, 2 * (more.log_likelihood - less.log_likelihood))


def _of_risk(gains: Sequence[float], coefficients: Sequence[float], inflated: float) -> LikelihoodRatio:
    root = float(np.mean(np.sign(coefficients) * np.sqrt(gains)))
    given, honest = (float(chi2.sf((root / by) ** 2, 1)) for by in (1.0, inflated))
    return LikelihoodRatio(root**2, 1, given, inflated, honest)


def _of_covariates(gains: Sequence[float], k: int) -> LikelihoodRatio:
    mean = float(np.mean(gains))
    p = float(chi2.sf(mean, k))
    return LikelihoodRatio(mean, k, p, 1.0, p)


def _concordances(people: People, scored: Scored) -> tuple[WithinFold, WithinFold, WithinFold]:
    """C of covariates, of the risk as it is, and of both, each patient by coefficients of the other folds' patients."""
    covariates = people.covariates.to_numpy(float)
    both = np.column_stack([covariates, scored.risk])
    predicted = (
        cox.out_of_fold(people.days, people.died, covariates, scored.network, scored.fold),
        scored.risk,
        cox.out_of_fold(people.days, people.died, both, scored.network, scored.fold),
    )
    without, alone, of_both = (within_fold_c(people.days, people.died, one, scored.fold) for one in predicted)
    return without, alone, of_both


def _concordance(found: Sequence[WithinFold]) -> Concordance:
    """The mean over repeats, with the interval that the report gives it: variances are those of one repeat."""
    value, variance, error = (float(np.mean([getattr(one, name) for one in found])) for name in ("value", "variance", "error"))
    if math.isnan(value):
        return Concordance(math.nan, math.nan, math.nan)
    return Concordance(value, *wilson_of_c(value, variance, error**2, refits=True))
