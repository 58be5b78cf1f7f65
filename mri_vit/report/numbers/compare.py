"""Results beside each other: two models on the same patients by a paired test, and p-values corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from mri_vit.metrics import comparison, concordance, concordance_interval, delong, discrimination
from mri_vit.metrics.delong import Comparison
from mri_vit.report.numbers.judged import averaged, by_fold, flags, floats
from mri_vit.report.numbers.survival import outcome
from mri_vit.report.schema.comparison import Comparison as PairedTest
from mri_vit.report.schema.comparison import ResampledTest
from mri_vit.report.schema.metrics import Result
from mri_vit.settings.models import SHUFFLED
from mri_vit.settings.schema import Endpoint

COMPARISONS = ("versus_clinical", "versus_own")  # parts of a result; each is a family of tests
Results = Mapping[str, Mapping[str, Result]]  # by endpoint and model


def versus(endpoint: Endpoint, rows: pd.DataFrame, other: pd.DataFrame, seed: int) -> PairedTest | None:
    """The difference between a model and another on the patients that both predicted, and the test that it is zero.

    AUC: DeLong's paired test of the patients' mean scores. C: a paired bootstrap of patients. Over several repeats also the
    corrected resampled t-test of the differences per fold (one-sided: is the model better?).

    Parameters
    ----------
    rows, other : as `judged.known_rows` gives them.
    seed : of the study.

    Returns
    -------
    The comparison, its `p_adjusted` still NaN (see `adjusted`); None without a shared patient.
    """
    keys = ["repeat", "patient"]
    labels = ["truth"] if endpoint.kind == "binary" else ["time_days", "event"]
    pairs = rows[[*keys, "fold", *labels, "score"]].merge(other[[*keys, "score"]], on=keys, suffixes=("", "_other"))
    if not len(pairs):
        return None
    ours, theirs = averaged(pairs), averaged(pairs.assign(score=pairs.score_other))
    found = PAIRED[endpoint.kind](ours, theirs, seed)
    return PairedTest(
        difference=found.difference,
        low=found.low,
        high=found.high,
        z=found.z,
        p=found.p,
        p_adjusted=math.nan,
        n=len(ours),
        nadeau_bengio=_over_repeats(pairs, ESTIMATE[endpoint.kind]),
    )


def adjusted(results: Results) -> dict[str, dict[str, Result]]:
    """The same results with Holm's correction filled in.

    Four families: the permutation p of every endpoint and model but the shuffled control; those of the shuffled control;
    the comparisons of every endpoint and candidate with clinical-only; those of every endpoint and comparator with the own
    model. The p below chance is corrected like the p above.
    """
    every = [(name, model) for name, models in results.items() for model in models]
    honest = [key for key in every if key[1] != SHUFFLED]
    shuffled = [key for key in every if key[1] == SHUFFLED]
    families = (
        *(("permutation", p, family) for p in ("p", "p_below") for family in (honest, shuffled)),
        *((part, "p", [(name, model) for name, model in every if getattr(results[name][model], part)]) for part in COMPARISONS),
    )
    filled = {name: dict(models) for name, models in results.items()}
    for part, key, family in families:
        tests = [getattr(results[name][model], part) for name, model in family]
        p = comparison.holm(np.array([getattr(test, key) for test in tests], dtype=float))
        for (name, model), value in zip(family, p, strict=True):
            test = getattr(filled[name][model], part).model_copy(update={f"{key}_adjusted": float(value)})
            filled[name][model] = filled[name][model].model_copy(update={part: test})
    return filled


def _paired_auc(ours: pd.DataFrame, theirs: pd.DataFrame, seed: int) -> Comparison:
    return delong.delong_paired(flags(ours.truth), floats(ours.score), floats(theirs.score))


def _paired_c(ours: pd.DataFrame, theirs: pd.DataFrame, seed: int) -> Comparison:
    a, b = outcome(ours), outcome(theirs)
    return concordance_interval.concordance_difference(a.time_days, a.event, a.risk, b.risk, np.random.default_rng(seed))


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


PAIRED: Mapping[str, Callable[[pd.DataFrame, pd.DataFrame, int], Comparison]] = {"binary": _paired_auc, "survival": _paired_c}
ESTIMATE: Mapping[str, Callable[[pd.DataFrame], float]] = {"binary": _auc, "survival": _c}
