"""Heads and regressions of classes, grades and numbers against formulas and other programs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from mri_vit.data.predictions import score_rows, score_table
from mri_vit.kinds.multiclass.heads import log_odds
from mri_vit.model import heads
from mri_vit.predictors import regressions
from mri_vit.predictors.regressions import scaling
from mri_vit.settings.schema import Endpoint

TYPE = Endpoint(name="who_type", kind="multiclass", classes=("gbm", "astro", "oligo"))
GRADE = Endpoint(name="grade", kind="ordinal", classes=("2", "3", "4", "5"))
AGE = Endpoint(name="age", kind="continuous", unit="years")
LOG = Endpoint(name="ki67", kind="continuous", log=True)
NEW = pytest.mark.parametrize("endpoint", [TYPE, GRADE, AGE, LOG], ids=lambda endpoint: endpoint.name)


def known(endpoint: Endpoint, n: int = 40) -> Tensor:
    generator = np.random.default_rng(0)
    values = generator.choice(len(endpoint.classes), n, p=None) if endpoint.classes else generator.lognormal(3, 0.5, n)
    return torch.tensor(values, dtype=torch.float32)[:, None]


def fitted(endpoint: Endpoint, weighted: bool = False) -> heads.Head:
    head = heads.from_labels(endpoint, known(endpoint), "hazard", 3, weighted)
    assert head is not None
    return head


@NEW
@pytest.mark.parametrize("weighted", [False, True])
def test_training_starts_at_the_best_constant_whose_loss_is_a_binary_endpoints(endpoint: Endpoint, weighted: bool):
    head, labels = fitted(endpoint, weighted), known(endpoint)
    start = heads.bias(head, labels).expand(len(labels), -1).clone().requires_grad_()
    loss = heads.loss(head, start, labels)
    assert float(loss.detach()) == pytest.approx(math.log(2), rel=0.03)
    loss.backward()
    assert start.grad is not None
    slope = start.grad.sum(dim=0).abs().max()
    assert float(slope) < (0.2 if endpoint.kind == "continuous" else 0.03)  # the median is not quite Huber's constant


@NEW
def test_an_unknown_label_changes_no_loss_and_has_a_gradient_of_zero(endpoint: Endpoint):
    head, labels = fitted(endpoint), known(endpoint)
    output = torch.randn(len(labels), head.width, generator=torch.Generator().manual_seed(0))
    wild = output.clone()
    wild[:5] = math.nan
    labels[:5] = math.nan
    wild.requires_grad_()
    loss = heads.loss(head, wild, labels)
    torch.testing.assert_close(loss, heads.loss(head, output[5:], labels[5:]))
    loss.backward()
    assert wild.grad is not None
    assert torch.equal(wild.grad[:5], torch.zeros(5, head.width))
    assert float(heads.loss(head, output, torch.full_like(labels, math.nan))) == 0


@NEW
def test_a_loss_far_from_the_label_is_finite_and_so_is_its_gradient(endpoint: Endpoint):
    head, labels = fitted(endpoint), known(endpoint)
    for size in (1e3, -1e3):
        output = torch.full((len(labels), head.width), size, requires_grad=True)
        loss = heads.loss(head, output, labels)
        loss.backward()
        assert torch.isfinite(loss)
        assert output.grad is not None
        assert torch.isfinite(output.grad).all()


@pytest.mark.parametrize("endpoint", [TYPE, GRADE], ids=lambda endpoint: endpoint.name)
@given(st.integers(0, 10_000))
def test_probabilities_of_classes_are_none_below_zero_and_add_up_to_one(endpoint: Endpoint, seed: int):
    head = fitted(endpoint, weighted=True)
    output = 30 * torch.randn(8, head.width, generator=torch.Generator().manual_seed(seed))
    shares = heads.scores(head, output)
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(8))


def test_class_weights_are_taken_back_so_that_the_start_predicts_the_shares_of_the_training_fold():
    labels = torch.tensor([0.0] * 30 + [1.0] * 9 + [2.0])[:, None]
    for weighted in (False, True):
        head = heads.from_labels(TYPE, labels, "hazard", 3, weighted)
        assert head is not None
        start = heads.scores(head, heads.bias(head, labels)[None])[0]
        torch.testing.assert_close(start, torch.tensor([30.5, 9.5, 1.5]) / 41.5)


def test_the_loss_of_classes_is_pytorchs_cross_entropy_times_its_weight():
    head, labels = fitted(TYPE), known(TYPE)
    output = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(1))
    expected = torch.nn.functional.cross_entropy(output, labels[:, 0].long())
    torch.testing.assert_close(heads.loss(head, output, labels), head.loss_weight * expected)


def test_a_map_explains_the_class_that_is_called_once_the_weights_are_taken_back():
    labels = torch.tensor([0.0] * 30 + [1.0] * 9 + [2.0])[:, None]
    head = heads.from_labels(TYPE, labels, "hazard", 3, weighted=True)
    assert head is not None
    output = torch.randn(200, 3, generator=torch.Generator().manual_seed(2))
    called = heads.scores(head, output).argmax(dim=1)
    assert (called != output.argmax(dim=1)).any()
    assert torch.equal(heads.question(head, output), called.float())
    for question, row, own in zip(heads.question(head, output), output, called, strict=True):
        rest = row[torch.arange(3) != own].logsumexp(dim=0)
        torch.testing.assert_close(heads.target(head, row[None], question[None])[0], row[own] - rest)


@pytest.mark.parametrize("missing", [0, 3])
def test_a_training_fold_without_the_lowest_or_highest_grade_has_a_finite_loss(missing: int):
    labels = torch.tensor([grade for grade in range(4) if grade != missing] * 8, dtype=torch.float32)[:, None]
    head = heads.from_labels(GRADE, labels, "hazard", 3, weighted=True)
    assert head is not None
    assert math.isfinite(head.loss_weight)
    start = heads.bias(head, labels).expand(len(labels), -1)
    assert float(heads.loss(head, start, labels)) == pytest.approx(math.log(2), rel=0.05)


def test_log_odds_of_a_class_are_those_of_its_probability():
    output = torch.tensor([[0.3, -1.0, 2.0], [60.0, 0.0, -60.0]], dtype=torch.float64)
    torch.testing.assert_close(log_odds(output)[0], torch.logit(output[0].softmax(dim=0)))
    assert torch.isfinite(log_odds(output)).all()
    torch.testing.assert_close(log_odds(output.float())[1, 0], torch.tensor(60.0))  # 1 - p is 0 in any precision


@NEW
def test_a_fold_of_one_class_or_value_gets_no_head(endpoint: Endpoint):
    assert heads.from_labels(endpoint, torch.ones(9, 1), "hazard", 3, weighted=True) is None


@pytest.mark.parametrize("endpoint", [TYPE, GRADE, AGE, LOG], ids=lambda endpoint: endpoint.name)
def test_late_fusion_of_two_equal_models_is_that_model(endpoint: Endpoint):
    head = fitted(endpoint)
    output = torch.randn(6, head.width, generator=torch.Generator().manual_seed(3))
    scores = heads.scores(head, output).double().numpy()
    of_kind = heads.of(endpoint)
    both = (of_kind.joint_evidence([head], [output]) + of_kind.from_scores(endpoint, scores)) / 2
    np.testing.assert_allclose(of_kind.to_scores(endpoint, both), scores, rtol=1e-4, atol=1e-6)


def rows(n: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(4)
    return pd.DataFrame(
        generator.normal(size=(n, 3)), columns=pd.Index(["a", "b", "c"]), index=pd.Index([f"p{i}" for i in range(n)])
    )


@NEW
def test_a_refit_to_the_own_labels_is_the_fit_itself(endpoint: Endpoint):
    table, labels = rows(), known(endpoint, 60).double().numpy()
    of_kind = regressions.of(endpoint)
    single = of_kind.fit(endpoint, table, labels)
    assert single is not None
    scaled = np.asarray(scaling().fit_transform(table))
    again = of_kind.refit(endpoint, scaled, labels[None], scaled)[0]
    expected = np.log(single.scores(table)) if endpoint.log else single.scores(table)
    np.testing.assert_allclose(again, expected, rtol=1e-4, atol=1e-5)


def test_the_regression_of_classes_is_scikit_learns_and_that_of_numbers_ridge():
    table, scaled = rows(), np.asarray(scaling().fit_transform(rows()))
    labels = known(TYPE, 60).double().numpy()
    own = regressions.of(TYPE).fit(TYPE, table, labels)
    assert own is not None
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(scaled, labels[:, 0])
    np.testing.assert_allclose(own.scores(table), theirs.predict_proba(scaled), atol=1e-4)
    value = known(AGE, 60).double().numpy()
    own = regressions.of(AGE).fit(AGE, table, value)
    assert own is not None
    centre, spread = value.mean(), value.std()
    expected = Ridge(alpha=1.0).fit(scaled, (value[:, 0] - centre) / spread).predict(scaled) * spread + centre
    np.testing.assert_allclose(own.scores(table)[:, 0], expected, rtol=1e-6)


def test_a_class_that_no_training_patient_has_gets_probability_zero():
    labels = np.array([0.0] * 30 + [2.0] * 30)[:, None]
    own = regressions.of(TYPE).fit(TYPE, rows(), labels)
    assert own is not None
    assert (own.scores(rows())[:, 1] == 0).all()


@pytest.mark.parametrize("endpoint", [TYPE, AGE], ids=lambda endpoint: endpoint.name)
def test_a_table_of_scores_is_read_back_in_any_order(endpoint: Endpoint):
    scores = np.random.default_rng(5).random((4, len(endpoint.classes or ("",))))
    table = score_table(endpoint, ["a", "b", "c", "d"], scores).sample(frac=1, random_state=0)
    np.testing.assert_array_equal(score_rows(table, endpoint, ["d", "a"]), scores[[3, 0]])
    assert np.isnan(score_rows(table, endpoint, ["absent"])).all()
