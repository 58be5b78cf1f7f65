"""Endpoints of classes, grades and numbers: how often is noise called a finding, and do the intervals hold what they should?

    .venv/bin/python pipelines/reproduce.py null_studies/kinds --studies 1000      (55 minutes on one core)

A study has one endpoint of one kind and 20 features of which five know it, or none. The package's own regression of the kind is
refitted in each of the package's folds, and the report's own functions measure the rows. An interval misses where it does not
hold what the folds' own models reach, in the mean, on 4,000 other patients. Rates are in per cent, with Wilson's intervals.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd

from mri_vit.cli.arguments import Count
from mri_vit.crossval import folds
from mri_vit.data.cohort import Patient
from mri_vit.data.predictions import NULL_COLUMNS, SEED_COLUMNS
from mri_vit.kinds.continuous.measures import scaled
from mri_vit.metrics import continuous, multiclass, ordinal
from mri_vit.metrics.discrimination import auc
from mri_vit.metrics.intervals import rate
from mri_vit.metrics.within_fold import leak_level
from mri_vit.predictors import regressions
from mri_vit.report.numbers import chance, measures
from mri_vit.report.numbers.chance import Background
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.schema.parts import Estimate
from mri_vit.settings.schema import Endpoint, Train

FEATURES, KNOWING = 20, 5
EFFECT = 0.4  # of each knowing feature, in standard deviations: a figure of 0.7 to 0.75
SHARES = {"gbm": 0.6, "astro": 0.25, "oligo": 0.15}  # as adults' gliomas are spread
FOLDS = {80: 3, 300: 5}
GRADE_CUTS = (-1.0, 0.5)  # of the latent number: about a quarter, a third and the rest of the patients
OTHERS = 4000  # patients on which a fold's model is measured: a figure to 0.01
ENDPOINTS = (
    Endpoint(name="who_type", kind="multiclass", classes=tuple(SHARES)),
    Endpoint(name="grade", kind="ordinal", classes=("2", "3", "4")),
    Endpoint(name="age", kind="continuous", unit="years"),
    Endpoint(name="ki67", kind="continuous", unit="%"),  # skew, which `check` advises against
    Endpoint(name="log_ki67", kind="continuous", unit="%", log=True),
)
NO_NULLS, NO_SEEDS = pd.DataFrame(columns=pd.Index(NULL_COLUMNS)), pd.DataFrame(columns=pd.Index(SEED_COLUMNS))
BACKGROUND = Background("cross-validation", NO_NULLS, NO_SEEDS, {})
SEED_ONLY = cast(Run, SimpleNamespace(study=SimpleNamespace(seed=0)))  # of a run nothing else is read


def cohort_of(endpoint: Endpoint, random: np.random.Generator, n: int, effect: float) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, f] and labels [n, 1] of n patients."""
    x = random.normal(size=(n, FEATURES))
    if endpoint.kind == "multiclass":
        label = random.choice(len(SHARES), n, p=list(SHARES.values()))
        means = effect * np.random.default_rng(0).choice([-1.0, 1.0], size=(len(SHARES), KNOWING))  # the same in every study
        x[:, :KNOWING] += means[label]
        return x, label[:, None].astype(float)
    latent = effect * x[:, :KNOWING].sum(axis=1)
    if endpoint.kind == "ordinal":
        latent = latent + random.logistic(size=n)
        return x, np.digitize(latent, GRADE_CUTS)[:, None].astype(float)
    value = latent + random.normal(size=n)
    return x, (np.exp(2.5 + 0.6 * value) if "ki67" in endpoint.name else 55 + 10 * value)[:, None]


def rows_of(endpoint: Endpoint, label: np.ndarray, score: np.ndarray, fold: np.ndarray, mean: np.ndarray) -> pd.DataFrame:
    """As `judged.known_rows` gives them; `mean` is of each patient's training fold."""
    table: dict[str, Any] = {"patient": [f"p{i:04d}" for i in range(len(label))], "model": "vit", "endpoint": endpoint.name}
    table |= {"repeat": 0, "fold": fold, "threshold": np.nan}
    if not endpoint.classes:
        return pd.DataFrame(table | {"truth": label[:, 0], "score": score[:, 0], "threshold": mean})
    each = {f"p{index}": score[:, index] for index in range(score.shape[1])}
    return pd.DataFrame(table | {"label": label[:, 0].astype(int), **each, "score": score @ np.arange(score.shape[1])})


def fold_of_each(endpoint: Endpoint, label: np.ndarray, seed: int) -> np.ndarray:
    """As the package makes them."""
    ids = [f"p{i:04d}" for i in range(len(label))]
    patients = [Patient(one, {}, {endpoint.name: float(value)}, {}) for one, (value,) in zip(ids, label, strict=True)]
    (split,) = folds.make(patients, (endpoint,), Train(folds=FOLDS[len(label)]), seed)
    of = {name: number for number, members in enumerate(split) for name in members}
    return np.array([of[one] for one in ids])


def scored(endpoint: Endpoint, x: np.ndarray, label: np.ndarray, fold: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Out-of-fold scores [n, k], the folds' training means [n], and each fold's scores of the others [folds, m, k]."""
    regression, mean, theirs = regressions.of(endpoint), np.empty(len(x)), []
    score = np.empty((len(x), len(endpoint.classes or ("",))))
    for k in np.unique(fold):
        train = fold != k
        (both,) = regression.refit(endpoint, x[train], label[None, train], np.concatenate([x[~train], others]))
        both = np.exp(both) if endpoint.log else both  # of a logarithm a refit gives that
        score[~train], mean[~train] = both[: (~train).sum()], label[train].mean()
        theirs.append(both[(~train).sum() :])
    return score, mean, np.array(theirs)


def reached(endpoint: Endpoint, label: np.ndarray, score: np.ndarray, mean: float) -> dict[str, float]:
    """What one model reaches on patients it was not trained on; names as in `intervals`."""
    own, one = label[:, 0], np.zeros(len(label))
    if endpoint.kind == "multiclass":
        whole = own.astype(int)
        return {
            "M": multiclass.within_fold_m(whole, score, one).value,
            "PDI": multiclass.pdi(whole, score),
            "log loss": multiclass.log_loss(whole, score),
            "Brier": multiclass.brier(whole, score),
            "accuracy": float((score.argmax(axis=1) == whole).mean()),
            "AUC of the rarest class": auc(whole == len(SHARES) - 1, score[:, -1]),
        }
    if endpoint.kind == "ordinal":
        whole, expected = own.astype(int), score @ np.arange(score.shape[1])
        return {
            "C": ordinal.within_fold_order(own, expected, one).value,
            "weighted kappa": ordinal.weighted_kappa(whole, expected.round().astype(int), score.shape[1]).value,
            "log loss": multiclass.log_loss(whole, score),
            "accuracy": float((expected.round() == own).mean()),
        }
    predicted, reference = score[:, 0], np.full(len(own), mean)
    scales = scaled(endpoint, own), scaled(endpoint, predicted)
    line, apart = continuous.calibration(*scales), continuous.agreement(*scales)
    return {
        "C": ordinal.within_fold_order(own, predicted, one).value,
        "Spearman": continuous.within_fold_spearman(own, predicted, one).value,
        "Pearson": continuous.within_fold_correlation(*scales, one).value,
        "R²": continuous.r_squared(own, predicted, reference),
        "MAE": float(np.abs(own - predicted).mean()),
        "slope": line.slope.value,
        "in the large": line.in_the_large.value,
        "lower limit": apart.lower.value,
        "upper limit": apart.upper.value,
    }


def intervals(figures: Any) -> Mapping[str, Estimate]:
    """Of the figures that a report has of one model; `judged` is of pairs within a fold, the others of all patients together."""
    if figures.kind_of == "multiclass":
        of = {"PDI": figures.pdi, "Brier": figures.brier, "AUC of the rarest class": figures.classes["oligo"].auc}
        return of | {"M": figures.judged, "log loss": figures.log_loss, "accuracy": figures.confusion.accuracy}
    if figures.kind_of == "ordinal":
        of = {"C": figures.judged, "weighted kappa": figures.weighted_kappa}
        return of | {"log loss": figures.log_loss, "accuracy": figures.confusion.accuracy}
    of = {"C": figures.judged, "Spearman": figures.spearman, "Pearson": figures.pearson, "R²": figures.r_squared}
    of |= {"MAE": figures.mae, "slope": figures.line.slope, "in the large": figures.line.in_the_large}
    return of | {"lower limit": figures.agreement.lower, "upper limit": figures.agreement.upper}


def one_study(endpoint: Endpoint, n: int, effect: float, seed: int) -> dict[str, bool | None]:
    """By claim whether this study makes it; None where the report gives no interval."""
    random = np.random.default_rng([seed, n])
    x, label = cohort_of(endpoint, random, n, effect)
    others, theirs = cohort_of(endpoint, random, OTHERS, effect)
    fold = fold_of_each(endpoint, label, seed)
    score, mean, elsewhere = scored(endpoint, x, label, fold, others)
    rows = rows_of(endpoint, label, score, fold, mean)
    found = measures.of(endpoint).measure(SEED_ONLY, endpoint, rows, BACKGROUND)
    limit = leak_level(1)
    leak = True
    for _ in range(2):  # as a study does: the fresh permutation is made where the first is suspicious
        leak = leak and _of_permuted(endpoint, x, label, fold, random) <= limit
    claims: dict[str, bool | None] = {
        "better": found.chance_test.p <= ALPHA,
        "worse": found.chance_test.p_below <= ALPHA,
        "leak": leak,
    }
    means = [label[fold != k].mean() for k in np.unique(fold)]
    each = [reached(endpoint, theirs, one, own) for one, own in zip(elsewhere, means, strict=True)]
    for name, end in intervals(found.figures).items():
        wanted = float(np.mean([one[name] for one in each]))
        claims[f"{name} misses"] = None if np.isnan(end.low) else not end.low <= wanted <= end.high
    return claims


def _of_permuted(endpoint: Endpoint, x: np.ndarray, label: np.ndarray, fold: np.ndarray, random: np.random.Generator) -> float:
    """The p of labels that the patients of a fold exchanged."""
    exchanged = label.copy()
    for k in np.unique(fold):
        here = np.flatnonzero(fold == k)
        exchanged[here] = label[random.permutation(here)]
    score, mean, _ = scored(endpoint, x, exchanged, fold, x[:0])
    return chance.measure(endpoint, rows_of(endpoint, exchanged, score, fold, mean), BACKGROUND).chance_test.p


def main(*, studies: Count = 1000) -> None:
    """Print the rates of each kind of endpoint."""
    for endpoint in ENDPOINTS:
        for n, effect in ((n, effect) for n in FOLDS for effect in (0.0, EFFECT)):
            found = [one_study(endpoint, n, effect, seed) for seed in range(studies)]
            known = "known" if effect else "nothing known"
            print(f"{endpoint.name} ({endpoint.kind}), {n} patients, {known}: {studies} studies", flush=True)
            for claim in found[0]:
                made = [bool(claims[claim]) for claims in found if claims[claim] is not None]
                share = rate(sum(made), len(made))
                of = "" if len(made) == studies else f" of {len(made)}"
                print(f"    {claim}: {100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]{of}", flush=True)
