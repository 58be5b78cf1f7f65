"""Results beside each other: two models on the same patients by a paired test, and p-values corrected for their number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from mri_vit.metrics import comparison, concordance, discrimination, within_fold
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.numbers.judged import by_fold, flags, floats, outcome
from mri_vit.report.schema.comparison import BestControl, ResampledTest
from mri_vit.report.schema.comparison import Comparison as PairedTest
from mri_vit.report.schema.metrics import Result
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.recipe import PERMUTED, RADIOMICS, is_bar, is_candidate

Results = Mapping[str, Mapping[str, Result]]  # by endpoint and model
ROW = ["repeat", "patient"]  # what a row of a model's table is of


def versus(endpoint: Endpoint, rows: pd.DataFrame, other: pd.DataFrame, inflated: float) -> PairedTest | None:
    """The difference between a model and another on the patients that both predicted, and the test that it is zero.

    What differs is the figure that is judged, of pairs within a fold, and the test is `within_fold_comparison`. Over several
    repeats also the corrected resampled t-test of the differences per fold (one-sided: is the model better?).

    Parameters
    ----------
    rows, other : as `judged.known_rows` gives them.
    inflated : as `chance.inflation` gives it.

    Returns
    -------
    The comparison, its `p_adjusted` still NaN (see `adjusted`); None without a shared patient.
    """
    ours, theirs = shared([rows, other])
    if not len(ours):
        return None
    found = within_fold.within_fold_comparison(
        chance.within_folds(endpoint, ours), chance.within_folds(endpoint, theirs), inflated
    )
    return PairedTest(
        difference=found.difference,
        low=found.low,
        high=found.high,
        z=found.z,
        p=found.p,
        p_adjusted=math.nan,
        n=ours.patient.nunique(),
        nadeau_bengio=_over_repeats(ours.assign(score_other=theirs.score), ESTIMATE[endpoint.kind]),
    )


def shared(tables: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Each table's rows of the patients and repeats that all have, in one order."""
    indexed = [table.set_index(ROW) for table in tables]
    rows = functools.reduce(lambda a, b: a.intersection(b), [table.index for table in indexed]).sort_values()
    return [table.loc[rows].reset_index() for table in indexed]


def best_control(tests: Mapping[str, PairedTest], models: Mapping[str, Result]) -> BestControl | None:
    """The strongest control that a candidate was compared with, and the p that it beats them all; None without one.

    To be better than the best of them is to be better than each, so the largest p is the p of that claim and needs no
    correction for their number (the intersection-union test: Berger 1982, doi:10.1080/00401706.1982.10487790). A difference
    that is not above 0, or that cannot be tested, counts as p = 1.
    """
    if not tests:
        return None
    p = {name: _p_of_gain(test) for name, test in tests.items()}
    least = max(p, key=lambda name: (p[name], -tests[name].difference))
    strongest = max(tests, key=lambda name: np.nan_to_num(models[name].estimate.value, nan=-math.inf))
    return BestControl(strongest=strongest, least=least, p=p[least], p_adjusted=math.nan, beaten=False)


def adjusted(results: Results) -> dict[str, dict[str, Result]]:
    """The same results with Holm's correction filled in.

    Families: the p against chance of every endpoint and candidate; those of the controls, so that one more control takes no
    candidate's finding away; those of each model on permuted labels, and of the upper reference; the candidates' p against the
    best control; the comparisons with each control; those of comparators with the own model. A p below chance is corrected like
    one above.
    """
    filled = {name: dict(models) for name, models in results.items()}
    every = [(name, model) for name, models in results.items() for model in models]
    candidates = [key for key in every if is_candidate(key[1])]
    controls = [key for key in every if is_bar(key[1])]
    for family in (candidates, controls, *([key for key in every if key[1] == model] for model in (*PERMUTED, RADIOMICS))):
        for p in ("p", "p_below"):
            _fill(filled, family, "chance_test", p)
    for part in ("versus_best", "versus_own"):
        _fill(filled, [(name, model) for name, model in every if getattr(filled[name][model], part)], part, "p")
    for control in sorted({name for models in results.values() for result in models.values() for name in result.versus_controls}):
        _fill_control(filled, [key for key in every if control in results[key[0]][key[1]].versus_controls], control)
    return filled


def _fill(filled: dict[str, dict[str, Result]], family: list[tuple[str, str]], part: str, key: str) -> None:
    tests = [getattr(filled[name][model], part) for name, model in family]
    for (name, model), test, p in zip(family, tests, _holm([getattr(test, key) for test in tests]), strict=True):
        update: dict[str, object] = {f"{key}_adjusted": p}
        if part == "versus_best":
            update["beaten"] = p <= ALPHA
        filled[name][model] = filled[name][model].model_copy(update={part: test.model_copy(update=update)})


def _fill_control(filled: dict[str, dict[str, Result]], family: list[tuple[str, str]], control: str) -> None:
    tests = [filled[name][model].versus_controls for name, model in family]
    for (name, model), test, p in zip(family, tests, _holm([test[control].p for test in tests]), strict=True):
        told = test | {control: test[control].model_copy(update={"p_adjusted": p})}
        filled[name][model] = filled[name][model].model_copy(update={"versus_controls": told})


def _holm(p: list[float]) -> list[float]:
    return comparison.holm(np.array(p, dtype=float)).tolist()


def _p_of_gain(test: PairedTest) -> float:
    return test.p if test.difference > 0 and not math.isnan(test.p) else 1.0


def _auc(people: pd.DataFrame) -> float:
    return discrimination.auc(flags(people.truth), floats(people.score))


def _c(people: pd.DataFrame) -> float:
    seen = outcome(people)
    return concordance.harrell_c(seen.time_days, seen.event, seen.risk)


def _over_repeats(pairs: pd.DataFrame, estimate: Callable[[pd.DataFrame], float]) -> ResampledTest | None:
    """Nadeau and Bengio's test over the folds of all repeats; None with one repeat, or with fewer than two defined folds."""
    if pairs.repeat.nunique() < 2:
        return None
    folds = [here for _, _, here in by_fold(pairs)]
    differences = np.array([estimate(here) - estimate(here.assign(score=here.score_other)) for here in folds])
    n, n_test = pairs.patient.nunique(), round(len(pairs) / len(folds))
    if n <= n_test:  # repeats without folds leave nobody to train on
        return None
    t, p = comparison.nadeau_bengio(differences, n - n_test, n_test)
    return ResampledTest(t=t, p=p, splits=int((~np.isnan(differences)).sum()))


ESTIMATE: Mapping[str, Callable[[pd.DataFrame], float]] = {"binary": _auc, "survival": _c}
