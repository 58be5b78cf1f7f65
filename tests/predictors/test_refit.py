"""Many label vectors at once: each solution is the one that scikit-learn and lifelines find for it alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sklearn.linear_model import LogisticRegression

from mri_vit.predictors import refit
from mri_vit.predictors.regressions import COX_TOLERANCE, scaling


def rows(generator: np.random.Generator, n: int, numbers: int) -> pd.DataFrame:
    """Covariates as a cohort has them: some cells missing, columns that go together, and a category."""
    cause = generator.normal(size=(n, 1))
    table = pd.DataFrame(generator.normal(size=(n, numbers)) + cause * generator.normal(size=numbers)).add_prefix("x")
    table = table.mask(generator.random(table.shape) < 0.05)
    table.iloc[generator.random(n) < 0.2, : numbers // 2] = np.nan  # of whom a mask is missing
    return table.assign(site=generator.choice(np.array(["A", "B", "C", None], dtype=object), n))


def scaled(seed: int, n: int, numbers: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Training rows, test rows of whom some are equal, and what else is random."""
    generator = np.random.default_rng(seed)
    table = rows(generator, n + 30, numbers)
    fitted = scaling().fit(table[:n])
    train, test = np.asarray(fitted.transform(table[:n])), np.asarray(fitted.transform(table[n:]))
    return train, np.concatenate([test, test[:3]]), generator


SIZES = [(56, 1), (56, 4), (56, 72), (200, 72)]  # patients, and columns of numbers: also more columns than patients


@pytest.mark.parametrize(("n", "numbers"), SIZES)
def test_each_logistic_fit_is_scikit_learns(n: int, numbers: int):
    train, test, generator = scaled(1, n, numbers)
    signal = train[:, 0] + generator.logistic(size=n) > 0.5
    labels = np.stack([signal, *(generator.permutation(signal) for _ in range(4)), generator.random(n) < 0.08])
    found = refit.logistic(train, labels, test)
    for one, odds in zip(labels, found, strict=True):
        expected = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-9).fit(train, one)
        np.testing.assert_allclose(odds, expected.decision_function(test), atol=1e-5)


@pytest.mark.parametrize(("n", "numbers"), SIZES)
@pytest.mark.parametrize("day", [1e-3, 120.0])  # the unit of time: patients have times of their own, or share them
def test_each_cox_fit_is_lifelines(n: int, numbers: int, day: float):
    train, test, generator = scaled(2, n, numbers)
    days = np.ceil(generator.exponential(500, n) * np.exp(-train[:, 0] / 2) / day) * day
    event = generator.random(n) < 0.75
    assert (len(set(days[event])) < event.sum()) == (day > 1)
    orders = [np.arange(n), *(generator.permutation(n) for _ in range(3))]
    found = refit.cox(train, np.stack([days[order] for order in orders]), np.stack([event[order] for order in orders]), test)
    columns = pd.DataFrame(train).add_prefix("x")
    for order, risk in zip(orders, found, strict=True):
        cox = CoxPHFitter(penalizer=1 / n)
        told = columns.assign(days=days[order], event=event[order])
        cox.fit(told, "days", "event", fit_options=COX_TOLERANCE)
        expected = cox.predict_log_partial_hazard(pd.DataFrame(test).add_prefix("x"))
        np.testing.assert_allclose(risk, expected, atol=1e-5)


def test_a_vector_with_one_class_or_no_death_has_no_fit_and_spoils_no_other():
    train, test, generator = scaled(3, 40, 3)
    labels = np.stack([np.zeros(40, bool), generator.random(40) < 0.5, np.ones(40, bool)])
    found = refit.logistic(train, labels, test)
    assert np.isnan(found).all(axis=1).tolist() == [True, False, True]
    np.testing.assert_allclose(found[1], refit.logistic(train, labels[1:2], test)[0], atol=1e-5)
    days = np.tile(np.arange(40.0), (2, 1))
    risk = refit.cox(train, days, np.stack([np.zeros(40, bool), labels[1]]), test)
    assert np.isnan(risk).all(axis=1).tolist() == [True, False]


def test_a_nearly_separated_outcome_on_a_long_tailed_column_is_fitted_too():
    generator = np.random.default_rng(4)
    train = generator.standard_t(1.5, size=(60, 50))
    train = (train - train.mean(axis=0)) / train.std(axis=0)
    days = np.exp(-3 * train[:, :5].sum(axis=1))
    orders = np.stack([np.arange(60), *(generator.permutation(60) for _ in range(50))])
    risk = refit.cox(train, days[orders], np.ones(orders.shape, bool), train)
    assert np.isfinite(risk).all()
    assert np.corrcoef(risk[0], np.log(days))[0, 1] < -0.9
