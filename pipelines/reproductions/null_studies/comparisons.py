"""Two runs of equal worth: how often does `mri-vit compare` tell them apart, with the same folds and with others?

    .venv/bin/python pipelines/reproduce.py null_studies/comparisons --studies 1000      (15 minutes on one busy core)

A run is a ridge regression, cross-validated and refitted in each fold, on 20 features of which four know the marker, or none. The
features of two runs correlate by a half, and are equal in "one recipe, other folds". An evaluation is of a regression on 200
other patients. Expected at p ≤ 0.05 are 5 % of studies or fewer.
"""

from __future__ import annotations

import math
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
from jaxtyping import Bool, Float, Int

from mri_vit.cli.arguments import Count
from mri_vit.finished.comparison import over_repeats
from mri_vit.metrics.comparison import Comparison
from mri_vit.metrics.within_fold import WithinFold, inflation, refitted_comparison, within_fold_auc, within_fold_comparison

FEATURES, KNOWING, PENALTY, POSITIVE = 20, 4, 10.0, 0.45
SIGNALS = (0.0, 0.4, 0.8, 1.2)  # shifts between the classes: AUCs of about 0.5, 0.65, 0.8 and 0.92
OTHERS = 200  # patients of an evaluation's training cohort
KINDS = (  # name, repeats of A and of B, how B comes about
    ("same folds", 1, 1, "same"),
    ("other folds", 1, 1, "other"),
    ("3 repeats, same folds", 3, 3, "same"),
    ("3 repeats and 2, other folds", 3, 2, "other"),
    ("5 repeats and 1, other folds", 5, 1, "other"),
    ("one recipe, other folds", 1, 1, "one"),
    ("a run and an evaluation", 1, 1, "evaluation"),
)


def study(random: np.random.Generator, n: int, folds: int, repeats: tuple[int, int], how: str, signal: float) -> Comparison:
    """The test of A less B in one study of n patients."""
    truth = random.permutation(n) < n * POSITIVE
    shared = random.normal(size=(n, FEATURES))
    a, b = (0.7 * shared + 0.7 * random.normal(size=(n, FEATURES)) for _ in range(2))
    for features in (a, b):
        features[:, :KNOWING] += signal * (truth - 0.5)[:, None]
    if how == "one":
        b = a
    of_a = [deal(random, truth, folds) for _ in range(repeats[0])]
    of_b = of_a if how == "same" else [deal(random, truth, folds) for _ in range(repeats[1])]
    ours, theirs = (
        [within_fold_auc(truth, out_of_fold(features, truth, fold), fold) for fold in dealt]
        for features, dealt in ((a, of_a), (b, of_b))
    )
    if how == "evaluation":
        theirs = [_evaluated(random, b, truth, signal)]
    if how == "same":
        return refitted_comparison(ours, theirs, inflation(folds, repeats[0]))
    compare = refitted_comparison if len(ours) == len(theirs) else within_fold_comparison
    return compare([over_repeats(ours)], [over_repeats(theirs)], math.sqrt(2))


def deal(random: np.random.Generator, truth: Bool[np.ndarray, " n"], folds: int) -> Int[np.ndarray, " n"]:
    """A fold for each patient, each class spread evenly."""
    fold = np.zeros(len(truth), dtype=int)
    for positive in (False, True):
        here = random.permutation(np.flatnonzero(truth == positive))
        fold[here] = np.arange(len(here)) % folds
    return fold


def out_of_fold(
    features: Float[np.ndarray, "n f"], truth: Bool[np.ndarray, " n"], fold: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Scores by a regression that was fitted without the patient's fold."""
    score = np.empty(len(truth))
    for k in range(fold.max() + 1):
        train = fold != k
        score[~train] = features[~train] @ _weights(features[train], truth[train])
    return score


def _evaluated(random: np.random.Generator, features: np.ndarray, truth: np.ndarray, signal: float) -> WithinFold:
    """What a regression on other patients reaches on these."""
    theirs = random.permutation(OTHERS) < OTHERS * POSITIVE
    others = random.normal(size=(OTHERS, FEATURES))
    others[:, :KNOWING] += signal * (theirs - 0.5)[:, None]
    return within_fold_auc(truth, features @ _weights(others, theirs), np.zeros(len(truth)))


def _weights(features: np.ndarray, truth: np.ndarray) -> np.ndarray:
    centred = features - features.mean(0)
    return np.linalg.solve(centred.T @ centred + PENALTY * np.eye(FEATURES), centred.T @ (truth - truth.mean()))


def main(*, studies: Count = 1000) -> None:
    """Print, for each kind of pair, the share of studies with p ≤ 0.05, the mean difference, and the SD of z."""
    for signal in SIGNALS:
        for n, folds in ((82, 3), (82, 5), (300, 5)):
            for name, a, b, how in KINDS:
                if how == "evaluation" and signal:
                    continue  # its training cohort is of another size, so that the two are not of equal worth
                random = np.random.default_rng(1)
                found = [study(random, n, folds, (a, b), how, signal) for _ in range(studies)]
                share = np.mean([one.p <= 0.05 for one in found])
                mean, spread = np.mean([one.difference for one in found]), np.std([one.z for one in found])
                print(f"signal {signal}, n {n}, {folds} folds, {name}: {share:.1%}, {mean:+.4f}, {spread:.2f}", flush=True)
