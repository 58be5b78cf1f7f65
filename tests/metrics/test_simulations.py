"""Does an interval hold the truth as often as it says, and is p uniform when there is nothing to find? Counts are printed."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, norm
from sklearn.model_selection import StratifiedKFold

from mri_vit.data.cohort import Patient, without_labels
from mri_vit.metrics import discrimination, intervals, ipcw, within_fold
from mri_vit.predictors.regressions import Tabular
from mri_vit.settings.schema import Endpoint

pytestmark = pytest.mark.slow
SAMPLES = 2000


def test_delong_interval_covers_an_auc_of_070_as_often_as_it_says(capsys):
    generator = np.random.default_rng(0)
    truth = np.arange(200) < 100
    apart = math.sqrt(2) * norm.ppf(0.7)  # two unit normals this far apart have an AUC of 0.7
    hits = 0
    for _ in range(SAMPLES):
        low, high = discrimination.delong_interval(truth, generator.normal(size=200) + apart * truth)
        hits += low <= 0.7 <= high
    with capsys.disabled():
        print(f"\nDeLong's 95 % interval held the truth in {hits} of {SAMPLES} samples ({100 * hits / SAMPLES:.2f} %)")
    assert 0.935 <= hits / SAMPLES <= 0.965


@pytest.mark.parametrize(
    ("patients", "effect", "day"), [(60, 0.0, 730.0), (60, 0.5, 730.0), (60, 1.5, 730.0), (30, 1.0, 730.0), (120, 0.5, 365.0)]
)
@pytest.mark.timeout(1200)
def test_interval_of_auc_at_a_day_covers_it_with_few_at_risk(patients, effect, day, capsys):
    """Survival is exponential, its log hazard linear in the risk; follow-up ends evenly between 200 and 1700 days."""
    generator, samples, held, percentile, at_risk = np.random.default_rng(1), 1000, 0, 0, []
    many = generator.normal(size=400_000)
    truth = discrimination.auc(generator.exponential(400 * np.exp(-effect * many)) <= day, many)
    defined = 0
    for _ in range(samples):
        risk = generator.normal(size=patients)
        dies, leaves = generator.exponential(400 * np.exp(-effect * risk)), generator.uniform(200, 1700, patients)
        seen = np.minimum(dies, leaves), dies <= leaves, risk
        if np.isnan(ipcw.cumulative_dynamic_auc(*seen, np.array([day]))[0]):
            continue
        defined += 1
        at_risk.append(int((seen[0] > day).sum()))
        low, high = ipcw.auc_at_interval(*seen, np.array([day]), generator, 300)
        held += low[0] <= truth <= high[0]
        drawn = intervals.counts(np.zeros(patients), generator, 300)
        low, high = intervals.percentile_interval(ipcw.drawn_auc(*seen, np.array([day]), drawn))
        percentile += low[0] <= truth <= high[0]
    with capsys.disabled():
        print(f"\nAUC({day:.0f} days) of {truth:.3f}, {np.mean(at_risk):.1f} of {patients} at risk; held in {defined} samples:")
        print(f"Wilson's interval {100 * held / defined:.1f} %, the percentile interval {100 * percentile / defined:.1f} %")
    assert held / defined >= 0.93


def test_paired_tests_reject_equal_models_about_as_often_as_they_say(capsys):
    generator = np.random.default_rng(3)
    truth = np.arange(120) < 50
    p = []
    for _ in range(SAMPLES):
        shared = generator.normal(size=120) + truth
        a, b = (shared + generator.normal(size=120) for _ in range(2))
        p.append(discrimination.delong_paired(truth, a, b).p)
    report(capsys, "paired DeLong", np.array(p))
    assert 0.035 <= np.mean(np.array(p) < 0.05) <= 0.065  # three standard errors of 0.005


def report(capsys, name: str, p: np.ndarray) -> None:
    with capsys.disabled():
        print(
            f"\n{name}: of {len(p)} p under the null, {(p < 0.05).sum()} below 0.05 and {(p < 0.5).sum()} below 0.5; "
            f"Kolmogorov-Smirnov p {kstest(p, 'uniform').pvalue:.3f}"
        )


def test_a_cross_validated_regression_on_columns_that_mean_nothing_is_seldom_called_better_than_chance(capsys):
    """Refitted in each fold, a regression without a signal scatters more than given scores do, and the inflation covers that."""
    generator, n, runs = np.random.default_rng(3), 82, 300
    above = below = 0
    for _ in range(runs):
        columns = pd.DataFrame({"age": generator.normal(size=n), "sex": generator.choice(["F", "M"], n)}).astype({"sex": object})
        columns.index = pd.Index([f"p{i}" for i in range(n)])
        truth = generator.permutation(np.arange(n) % 2 == 0)
        patients = [Patient(f"p{i}", {}, {"mgmt": float(truth[i])}, {}) for i in range(n)]
        score, fold = np.zeros(n), np.zeros(n, int)
        for k, (train, test) in enumerate(StratifiedKFold(4, shuffle=True, random_state=0).split(truth, truth)):
            tabular = Tabular(columns, (Endpoint(name="mgmt", kind="binary"),))
            tabular.fit([patients[i] for i in train], [])
            score[test] = tabular.predict([without_labels(patients[i]) for i in test])[0].score
            fold[test] = k
        found = within_fold.within_fold_auc(truth, score, fold)
        above += within_fold.p_above_chance(found, within_fold.inflation(4)) <= 0.05
        below += within_fold.p_below_chance(found, within_fold.inflation(4)) <= 0.05
    with capsys.disabled():
        print(f"\nof {runs} cross-validated regressions on nothing, {above} have p <= 0.05 above chance, {below} below")
    assert above / runs <= 0.08  # nominal 0.05, and two standard errors of 300 runs
