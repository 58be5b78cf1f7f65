"""Competing risks: does Gray's test find risk groups of nothing, and do intervals of incidence and AUC(t) cover the truth?

    .venv/bin/python pipelines/reproduce.py null_studies/competing --studies 1000      (15 minutes on one core)

A study is a cause-specific Cox regression on 20 features, fitted anew in each fold, of patients with an event (hazard 1 in 700
days), another one that may come first (1 in 1,200) and censoring between 200 and 1,600 days, all in whole weeks. Of the features
none or four know the event (log hazard ratio 0.4 per SD each), and in one kind another four know the other event. The truth of
an AUC(t) is the mean over studies of what the folds' models reach in 4,000 other patients who are never censored.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.cli.arguments import Count
from mri_vit.metrics import competing_risks, ipcw
from mri_vit.metrics.intervals import rate
from mri_vit.predictors import refit
from mri_vit.report.numbers import competing, survival

FEATURES, KNOWING, EFFECT = 20, 4, 0.4
EVENT_DAYS, OTHER_DAYS, FOLLOWED, WEEK = 700.0, 1200.0, (200.0, 1600.0), 7.0
OTHERS = 4000  # patients on which a fold's model is judged without error
AT_DAYS = np.array([182.0, 364.0, 728.0])  # whole weeks, as the times
KINDS = {"no signal": (0.0, 0.0), "signal": (EFFECT, 0.0), "signal of the other event alone": (0.0, EFFECT)}
SIZES = ((82, 3), (240, 5))  # patients and folds


def outcome(
    random: np.random.Generator, features: Float[np.ndarray, "n f"], effects: tuple[float, float], censored: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Days and events 0, 1 and 2 of patients with these features."""
    of_event, of_other = features[:, :KNOWING].sum(axis=1), features[:, KNOWING : 2 * KNOWING].sum(axis=1)
    first = random.exponential(EVENT_DAYS, len(features)) * np.exp(-effects[0] * of_event)
    second = random.exponential(OTHER_DAYS, len(features)) * np.exp(-effects[1] * of_other)
    left = random.uniform(*FOLLOWED, len(features)) if censored else np.full(len(features), np.inf)
    days = np.minimum.reduce([first, second, left])
    return WEEK * np.ceil(days / WEEK), np.select([first == days, second == days], [1, 2])


def study(random: np.random.Generator, n: int, folds: int, effects: tuple[float, float]) -> tuple[pd.DataFrame, np.ndarray]:
    """The rows that a report judges, and the AUC(t) of the folds' models in other patients."""
    features, elsewhere = random.normal(size=(n, FEATURES)), random.normal(size=(OTHERS, FEATURES))
    days, event = outcome(random, features, effects)
    later, what = outcome(random, elsewhere, effects, censored=False)
    fold, score, reached = random.permutation(n) % folds, np.zeros(n), []
    for k in range(folds):
        train = fold != k
        other = np.concatenate([features[~train], elsewhere])
        risk = refit.cox(features[train], days[None, train], event[None, train] == 1, other)[0]
        score[~train] = risk[: (~train).sum()]
        reached.append(ipcw.cumulative_dynamic_auc(later, what == 1, risk[(~train).sum() :], AT_DAYS, what == 2))
    patient = [f"p{i:03d}" for i in range(n)]
    table = {"patient": patient, "repeat": 0, "fold": fold, "score": score, "time_days": days, "threshold": np.nan}
    return pd.DataFrame({**table, "event": event == 1, "competing": event == 2}), np.mean(reached, axis=0)


def judge(rows: pd.DataFrame, incidence: list[float], seed: int) -> tuple[list[bool], list[np.ndarray]]:
    """Which tests say p ≤ 0.05 and which intervals of the incidence cover; the ends of those of AUC(t)."""
    days, event, other, risk = (rows[column].to_numpy() for column in ("time_days", "event", "competing", "score"))
    grays = competing.of_groups(rows, "cross-validation")
    assert grays is not None
    logrank = survival.of_risk_groups(rows, 0.5, "cross-validation").logrank
    found = [p <= 0.05 for p in (grays.grays_test.given_p, grays.grays_test.p, logrank.p)]
    ends = np.array([competing_risks.incidence_at(days, event, other, day)[1:] for day in AT_DAYS]).T
    of_auc = ipcw.auc_at_interval(days, event, risk, AT_DAYS, np.random.default_rng(seed), refits=True, other=other)
    return [*found, *((ends[0] <= incidence) & (incidence <= ends[1]))], list(of_auc)


def main(*, studies: Count = 1000) -> None:
    """Print, for each kind and size, the share of studies with p ≤ 0.05, and of intervals that cover."""
    by_day = "at " + ", ".join(f"{day:.0f}" for day in AT_DAYS)
    print(
        f"kind, patients, folds: Gray's test as given, Gray's test, log-rank; incidence {by_day}; AUC(t) {by_day}, % of {studies}"
    )
    for kind, effects in KINDS.items():
        random = np.random.default_rng(2)
        whole, what = outcome(random, random.normal(size=(10**6, FEATURES)), effects, censored=False)
        incidence = [float(np.mean((what == 1) & (whole <= day))) for day in AT_DAYS]
        for n, folds in SIZES:
            random, found, reached = np.random.default_rng(1), [], []
            for number in range(studies):
                rows, of_models = study(random, n, folds, effects)
                said, ends = judge(rows, incidence, number)
                found.append(said)
                reached.append([of_models, *ends])
            of_models, low, high = np.array(reached).swapaxes(0, 1)
            expected = of_models.mean(axis=0)
            counts = [*np.sum(found, axis=0), *((low <= expected) & (expected <= high)).sum(axis=0)]
            shares = [rate(int(count), studies) for count in counts]
            words = [f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]" for one in shares]
            aucs = ", ".join(f"{one:.2f}" for one in expected)
            print(f"{kind}, {n}, {folds}: {'; '.join(words)}; expected AUC(t) {aucs}", flush=True)
