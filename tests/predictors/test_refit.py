"""Many label vectors at once: each solution is the one that scikit-learn, lifelines, SciPy and R find for it alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

from mri_vit.errors import BadNumbers
from mri_vit.kinds.survival.regression import COX_TOLERANCE
from mri_vit.predictors import refit
from mri_vit.predictors.regressions import scaling


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


def ranked(score: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
    """Grades of rising scores, each of a share of the rows; the last has the rest."""
    return np.digitize(score.argsort().argsort(), np.cumsum(shares) * len(score))


def orders(generator: np.random.Generator, label: np.ndarray, draws: int) -> np.ndarray:
    """The labels as they are, and permuted."""
    return np.stack([label, *(generator.permutation(label) for _ in range(draws - 1))])


@pytest.mark.parametrize(("n", "numbers"), SIZES)
def test_each_softmax_fit_is_scikit_learns_also_where_classes_are_absent(n: int, numbers: int):
    train, test, generator = scaled(5, n, numbers)
    labels = orders(generator, ranked(train[:, 0] + generator.logistic(size=n), (0.4, 0.3, 0.25)), 7)
    labels[3][labels[3] == 2] = 1
    labels[4] = np.where(labels[4] == 1, 3, 0)
    labels[5] = np.where(np.arange(n) == 7, 3, labels[5] % 2)  # a class of one row
    found = refit.softmax(train, labels, 4, test)
    for label, chances in zip(labels, found, strict=True):
        alone = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-9).fit(train, label)
        expected = np.zeros((len(test), 4))
        expected[:, alone.classes_] = alone.predict_proba(test)
        np.testing.assert_allclose(chances, expected, atol=1e-6)
        assert (chances[:, np.setdiff1d(np.arange(4), label)] == 0).all()
    np.testing.assert_allclose(found[:, -3:], found[:, :3], rtol=1e-12)  # rows that are equal


def most_likely(train: np.ndarray, grade: np.ndarray, grades: int, test: np.ndarray) -> np.ndarray:
    """Probabilities of the proportional-odds model by SciPy, from the definition: differences of the cumulative ones."""
    x, y = torch.tensor(train), torch.tensor(grade)

    def chances(beta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        slopes, first, gaps = beta.tensor_split([x.shape[1], x.shape[1] + 1])
        cuts = first + torch.cat([torch.zeros(1), gaps.exp().cumsum(0)])
        above = torch.sigmoid(x @ slopes[:, None] - cuts)
        return -torch.diff(above, prepend=torch.ones(len(x), 1), append=torch.zeros(len(x), 1))

    def loss(beta: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(beta, requires_grad=True)
        value = (at[: x.shape[1]] ** 2).sum() / 2 - chances(at, x)[torch.arange(len(y)), y].log().sum()
        value.backward()
        return value.item(), at.grad.numpy()  # type: ignore[union-attr]

    best = minimize(loss, np.zeros(x.shape[1] + grades - 1), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    assert np.abs(best.jac).max() < 1e-6
    return chances(torch.tensor(best.x), torch.tensor(test)).numpy()


@pytest.mark.parametrize(("n", "numbers"), SIZES)
@pytest.mark.parametrize("grades", [3, 5])
def test_each_proportional_odds_fit_has_the_greatest_penalised_likelihood(n: int, numbers: int, grades: int):
    train, test, generator = scaled(6, n, numbers)
    shares = (0.3, 0.2, 0.3, 0.1)[: grades - 1]
    labels = orders(generator, ranked(train[:, 0] + generator.logistic(size=n), shares), 3)
    found = refit.cumulative(train, labels, grades, test)
    for grade, chances in zip(labels, found, strict=True):
        np.testing.assert_allclose(chances, most_likely(train, grade, grades, test), atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-12)
    np.testing.assert_allclose(found[:, -3:], found[:, :3], rtol=1e-12)  # rows that are equal


HOUSING = (  # MASS::housing$Freq: satisfaction (3) changes fastest, then influence (3), type (4) and contact (2)
    21, 21, 28, 34, 22, 36, 10, 11, 36, 61, 23, 17, 43, 35, 40, 26, 18, 54, 13, 9, 10, 8, 8, 12,
    6, 7, 9, 18, 6, 7, 15, 13, 13, 7, 5, 11, 14, 19, 37, 17, 23, 40, 3, 5, 23, 78, 46, 43,
    48, 45, 86, 15, 25, 62, 20, 23, 20, 10, 22, 24, 7, 10, 21, 57, 23, 13, 31, 21, 13, 5, 6, 13,
)  # fmt: skip
POLR = [  # of R's rows 1, 16, 31, 46 and 61: low, medium and high satisfaction
    [0.3784494, 0.2876751, 0.3338755],
    [0.2292406, 0.2643196, 0.5064399],
    [0.5071210, 0.2641196, 0.2287595],
    [0.4294565, 0.2820628, 0.2884807],
    [0.1444202, 0.2117080, 0.6438717],
]


def test_without_a_penalty_the_proportional_odds_fit_is_rs_polr():
    """Numbers of R 4.2.2 with MASS 7.3-58.2.

    > fit <- polr(Sat ~ Infl + Type + Cont, weights = Freq, data = housing, control = list(reltol = 1e-15, maxit = 1000))
    > start <- c(coef(fit), fit$zeta)
    > fit <- polr(Sat ~ Infl + Type + Cont, weights = Freq, data = housing, start = start, control = list(reltol = 1e-16))
    > round(predict(fit, housing[seq(1, 72, 15), ], type = "probs"), 7)
    """
    contact, kind, influence, grade = np.indices((2, 4, 3, 3)).reshape(4, -1)
    flags = (
        np.column_stack([influence == 1, influence == 2, kind == 1, kind == 2, kind == 3, contact == 1]) * 1e3
    )  # hardly penalised
    train = np.repeat(flags, HOUSING, axis=0)
    centre = train.mean(axis=0)
    found = refit.cumulative(train - centre, np.repeat(grade, HOUSING)[None], 3, flags[::15] - centre)
    np.testing.assert_allclose(found[0], POLR, atol=1e-6)


def test_each_linear_fit_is_scikit_learns_of_the_standardised_value():
    for seed, (n, numbers) in enumerate(SIZES):
        train, test, generator = scaled(seed, n, numbers)
        values = orders(generator, 60 + 12 * train[:, 0] + 5 * generator.normal(size=n), 5)
        values[3], values[4] = np.round(values[3] / 20), 1e6 + 1e-3 * values[4]  # ties, and another unit
        for value, told in zip(values, refit.linear(train, values, test), strict=True):
            mean, sd = value.mean(), value.std()
            expected = mean + sd * Ridge(alpha=1.0).fit(train, (value - mean) / sd).predict(test)
            np.testing.assert_allclose((told - mean) / sd, (expected - mean) / sd, atol=1e-6)


def test_columns_that_are_not_centred_change_no_fit():
    train, test, generator = scaled(7, 56, 4)
    score = train[:, 0] + generator.logistic(size=56)
    grade = ranked(score, (0.3, 0.4))[None]
    for fit in (lambda x, y: refit.softmax(x, grade, 3, y), lambda x, y: refit.cumulative(x, grade, 3, y)):
        np.testing.assert_allclose(fit(train + 2, test + 2), fit(train, test), atol=1e-6)
    np.testing.assert_allclose(refit.linear(train + 2, score[None], test + 2), refit.linear(train, score[None], test), atol=1e-9)


def test_a_grade_that_is_absent_has_no_probability_and_of_two_grades_there_is_a_logistic_regression():
    train, test, generator = scaled(8, 80, 4)
    labels = orders(generator, ranked(train[:, 0] + generator.logistic(size=80), (0.25, 0.25, 0.25)), 3)
    labels[1][labels[1] == 2] = 3
    labels[2] = np.where(labels[2] > 1, 2, 1)
    found = refit.cumulative(train, labels, 4, test)
    dense = refit.cumulative(train, np.minimum(labels[1:2], 2), 3, test)
    np.testing.assert_allclose(found[1][:, [0, 1, 3]], dense[0], atol=1e-10)
    odds = refit.logistic(train, labels[2:] == 2, test)[0]
    np.testing.assert_allclose(found[2][:, [1, 2]], expit(np.stack([-odds, odds], axis=1)), atol=1e-6)
    assert (found[1][:, 2] == 0).all()
    assert (found[2][:, [0, 3]] == 0).all()
    assert (found[0] > 0).all()


def test_a_vector_with_one_class_one_grade_or_one_value_has_no_fit():
    train, test, generator = scaled(9, 40, 3)
    labels = np.stack([np.full(40, 2), generator.integers(0, 3, 40), np.zeros(40, int)])
    for found in (
        refit.softmax(train, labels, 3, test),
        refit.cumulative(train, labels, 3, test),
        refit.linear(train, labels + 0.1, test)[:, :, None],
    ):
        assert np.isnan(found).all(axis=(1, 2)).tolist() == [True, False, True]
        assert np.isfinite(found[1]).all()
    assert np.isnan(refit.softmax(train, labels[:1], 3, test)).all()
    assert refit.cumulative(train, labels[:0], 3, test).shape == (0, len(test), 3)


def test_a_fit_is_the_same_alone_as_among_others():
    train, test, generator = scaled(10, 100, 6)
    score = 2 * train[:, 0] + generator.logistic(size=100)
    labels = orders(generator, ranked(score, (0.5, 0.3, 0.15)), 30)
    labels[::4][labels[::4] == 1] = 0  # others lack a class
    labels[1] = 3
    values = orders(generator, score, 30)
    for several, fit in (
        (labels, lambda some: refit.softmax(train, some, 4, test)),
        (labels, lambda some: refit.cumulative(train, some, 4, test)),
        (values, lambda some: refit.linear(train, some, test)),
    ):
        alone = np.concatenate([fit(some[None]) for some in several])
        np.testing.assert_allclose(fit(several), alone, rtol=0, atol=1e-10)


def test_separated_classes_and_grades_on_long_tailed_columns_are_fitted_too():
    generator = np.random.default_rng(11)
    train = generator.standard_t(1.5, size=(60, 50))
    train = (train - train.mean(axis=0)) / train.std(axis=0)
    grade = ranked(train[:, :5].sum(axis=1), (0.2, 0.2, 0.4))
    labels = orders(generator, grade, 30)
    for fit in (refit.softmax, refit.cumulative):
        found = fit(train, labels, 4, train)
        np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-12)
        assert (found[0].argmax(axis=1) == grade).mean() > 0.9


def test_a_step_that_would_bring_cuts_out_of_order_is_halved(monkeypatch: pytest.MonkeyPatch):
    outside = []
    maximum = refit._maximum

    def watched(x, start, gradient, hessian):
        def told(beta, rows):
            outside.append(np.isnan(slope := gradient(beta, rows)).any())
            return slope

        return maximum(x, start, told, hessian)

    monkeypatch.setattr(refit, "_maximum", watched)
    generator = np.random.default_rng(35)
    train = generator.normal(size=(60, 50)) * 10
    train -= train.mean(axis=0)
    grade = np.digitize(train[:, 0].argsort().argsort(), [1, 2, 4, 59])
    found = refit.cumulative(train, grade[None], 5, train)
    assert any(outside)
    np.testing.assert_allclose(found[0], most_likely(train, grade, 5, train), atol=1e-6)


def test_a_fit_that_needs_more_steps_is_refused(monkeypatch: pytest.MonkeyPatch):
    train, test, generator = scaled(12, 56, 4)
    labels = orders(generator, ranked(train[:, 0], (0.3, 0.4)), 3)
    monkeypatch.setattr(refit, "MAX_STEPS", 2)
    for fit in (refit.softmax, refit.cumulative):
        with pytest.raises(BadNumbers, match="did not converge"):
            fit(train, labels, 3, test)


def test_where_no_column_varies_a_fit_is_the_share_or_the_mean():
    label = np.repeat([0, 1, 2], [5, 3, 12])[None]
    for fit in (refit.softmax, refit.cumulative):
        found = fit(np.zeros((20, 1)), label, 3, np.ones((1, 1)))
        np.testing.assert_allclose(found[0, 0], [0.25, 0.15, 0.6], atol=1e-6)
    assert refit.linear(np.zeros((20, 1)), label + 0.5, np.ones((1, 1))) == pytest.approx(1.85)
