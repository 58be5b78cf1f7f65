"""How often does a study call a model better than chance, and how often did `mri-vit plan` predict that it would?

    .venv/bin/python pipelines/reproduce.py null_studies/power --studies 3000      (10 minutes on one core)

A model is a ridge regression of a marker, or of survival's martingale residuals, on 20 features of which four know something. The
prediction is `sample_size.Detection.power` at the AUC or C that is reached on average, with the mean error without a signal.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

from collections.abc import Iterator

import numpy as np

from mri_vit.cli.arguments import Count
from mri_vit.metrics.sample_size import Detection
from mri_vit.metrics.within_fold import ALPHA, WithinFold, inflation, p_above_chance, within_fold_auc, within_fold_c
from reproductions.null_studies.beside import out_of_fold, residuals
from reproductions.null_studies.comparisons import FEATURES, KNOWING, deal

DESIGNS = (  # patients, share of positives or deaths, folds, repeats; effects of a marker; effects on the log hazard
    (82, 0.5, 3, 1, (0.5, 0.7, 0.9), (0.8, 1.2, 2.0)),
    (82, 0.5, 5, 5, (0.5, 0.7, 0.9), (0.8, 1.2, 2.0)),
    (82, 0.25, 3, 1, (0.5, 0.7, 0.9), (0.8, 1.2, 2.0)),
    (150, 0.4, 5, 3, (0.4, 0.5, 0.6), (0.6, 0.9, 1.4)),
    (300, 0.5, 5, 1, (0.25, 0.35, 0.45), (0.4, 0.6, 0.9)),
    (300, 0.2, 5, 1, (0.25, 0.35, 0.45), (0.4, 0.6, 0.9)),
)
RESULTS = (1, 4)  # corrected together


def marker(random: np.random.Generator, n: int, share: float, folds: int, repeats: int, effect: float) -> Iterator[WithinFold]:
    """The AUC of each repeat."""
    truth = random.permutation(n) < round(n * share)
    x = random.normal(size=(n, FEATURES))
    x[:, :KNOWING] += effect * (truth - 0.5)[:, None]
    for _ in range(repeats):
        fold = deal(random, truth, folds)
        yield within_fold_auc(truth, out_of_fold(x, lambda train: truth[train].astype(float), fold), fold)


def survival(random: np.random.Generator, n: int, share: float, folds: int, repeats: int, effect: float) -> Iterator[WithinFold]:
    """The C of each repeat; censored by the end of the study."""
    x = random.normal(size=(n, FEATURES))
    days = random.exponential(np.exp(-effect / 2 * x[:, :KNOWING].sum(axis=1)))
    end = np.quantile(days, share) * random.uniform(0.8, 1.2, n)
    died, days = days <= end, np.minimum(days, end)
    for _ in range(repeats):
        fold = deal(random, died, folds)
        yield within_fold_c(days, died, out_of_fold(x, lambda train: residuals(days[train], died[train]), fold), fold)


def mean(repeats: list[WithinFold]) -> WithinFold:
    """The mean figure, with the error of one repeat."""
    value, error = np.mean([(one.value, one.error) for one in repeats], axis=0)
    return WithinFold(float(value), float(error), repeats[0].influence)


def main(*, studies: Count = 3000) -> None:
    """Print, for each kind of study, the mean AUC or C, its power, and what was predicted."""
    for name, repeat in (("AUC", marker), ("C", survival)):
        for n, share, folds, repeats, of_marker, of_survival in DESIGNS:
            for effect in of_marker if name == "AUC" else of_survival:
                random, inflated = np.random.default_rng(1), inflation(folds, repeats)
                means = (mean(list(repeat(random, n, share, folds, repeats, effect))) for _ in range(studies))
                value, error, p = np.array([(one.value, one.error, p_above_chance(one, inflated)) for one in means]).T
                for results in RESULTS:
                    power = 100 * float(np.mean(p <= ALPHA / results))
                    said = 100 * Detection(float(np.mean(error)), inflated, results).power(float(np.mean(value)))
                    print(
                        f"{name} {np.mean(value):.3f}, n {n}, {share:.0%}, {folds} folds, {repeats} repeats, {results} results: "
                        f"power {power:.1f}, predicted {said:.1f}, {said - power:+.1f}",
                        flush=True,
                    )
