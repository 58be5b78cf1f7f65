"""Regressions on principal components: what they are, who chooses how many, and that only training patients make them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from mri_vit.data.cohort import Patient, without_labels
from mri_vit.errors import IntegrityError
from mri_vit.predictors.regressions import COMPONENTS, PrincipalRegressions
from mri_vit.settings.schema import Endpoint

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def people(n: int = 120, columns: int = 300, seed: int = 0) -> tuple[list[Patient], pd.DataFrame]:
    """Patients whose table has more columns than there are patients; six causes move the columns, the first two the labels."""
    rng = np.random.default_rng(seed)
    cause = rng.normal(size=(n, 6)) * np.array([3, 3, 2, 2, 1, 1])
    table = cause @ rng.normal(size=(6, columns)) + rng.normal(size=(n, columns))
    risk = cause[:, 0] - cause[:, 1]
    mgmt = rng.random(n) < 1 / (1 + np.exp(-risk))
    days = np.ceil(300 * np.exp(-risk / 2) * rng.exponential(size=n))
    made = [
        Patient(f"p{i}", {}, {"mgmt": float(mgmt[i]), "os_days": float(days[i]), "os_event": float(i % 5 > 0)}, {})
        for i in range(n)
    ]
    return made, pd.DataFrame(table, pd.Index([p.id for p in made])).add_prefix("f")


def blind(patients: list[Patient]) -> list[Patient]:
    return [without_labels(p) for p in patients]


def by_hand(table: pd.DataFrame, train: list[Patient], m: int) -> tuple[np.ndarray, np.ndarray]:
    """Training rows and all rows along m directions, by a plain singular value decomposition, of unit variance in training."""
    rows = table.loc[[p.id for p in train]].to_numpy()
    scaled, every = ((part - rows.mean(axis=0)) / rows.std(axis=0) for part in (rows, table.to_numpy()))
    _, size, directions = np.linalg.svd(scaled, full_matrices=False)
    axes = directions[:m].T / size[:m] * math.sqrt(len(rows) - 1)
    return scaled @ axes, every @ axes


def test_it_is_scikit_learns_regression_on_as_many_components_as_the_validation_patients_choose():
    patients, table = people()
    train, val, test = patients[:70], patients[70:90], patients[90:]
    model = PrincipalRegressions(table, (MGMT,))
    model.fit(train, val)
    loss, said = {}, {}
    for m in COMPONENTS:
        inner, every = by_hand(table, train, m)
        probability = (
            LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)
            .fit(inner / inner.std(axis=0), [p.labels["mgmt"] for p in train])
            .predict_proba(every / inner.std(axis=0))[:, 1]
        )
        loss[m] = log_loss([p.labels["mgmt"] for p in val], probability[70:90])
        said[m] = probability[90:]
    chosen = min(loss, key=lambda m: loss[m])
    assert model.components() == {"mgmt": chosen}
    np.testing.assert_allclose(model.predict(blind(test))[0].score.to_numpy(float), said[chosen], atol=1e-4)
    assert roc_auc_score([p.labels["mgmt"] for p in test], said[chosen]) > 0.85


def test_survival_gets_a_risk_and_probabilities_that_fall_with_time():
    patients, table = people()
    model = PrincipalRegressions(table, (MGMT, OS))
    model.fit(patients[:70], patients[70:90])
    score, survival = model.predict(blind(patients[90:]))
    assert set(score.endpoint) == {"mgmt", "os"}
    assert not score.duplicated(["patient", "endpoint"]).any()
    falling = survival.pivot(index="patient", columns="horizon_days", values="survival").diff(axis=1).iloc[:, 1:]
    assert (falling <= 0).all(axis=None)
    assert (falling < 0).any(axis=None)


def test_permuted_labels_are_not_learned():
    patients, table = people(240)
    shuffled = np.random.default_rng(1).permutation(len(patients))
    patients = [Patient(p.id, {}, patients[i].labels, {}) for p, i in zip(patients, shuffled, strict=True)]
    model = PrincipalRegressions(table, (MGMT,))
    model.fit(patients[:90], patients[90:120])
    found = roc_auc_score([p.labels["mgmt"] for p in patients[120:]], model.predict(blind(patients[120:]))[0].score)
    assert abs(found - 0.5) < 0.15


def test_test_patients_move_nothing_and_validation_patients_only_the_number_of_components():
    patients, table = people()
    train, val, test = patients[:70], patients[70:90], patients[90:]
    said = []
    for factor in (1.0, 5.0):
        changed = table.copy()
        changed.loc[[p.id for p in test[1:]]] *= factor
        model = PrincipalRegressions(changed, (MGMT, OS))
        model.fit(train, val)
        said.append(model.predict(blind(test[:1])))
    pd.testing.assert_frame_equal(said[0][0], said[1][0])
    one, other = PrincipalRegressions(table, (MGMT,)), PrincipalRegressions(table, (MGMT,))
    one.fit(train, val)
    other.fit(train, [Patient(p.id, {}, {**p.labels, "mgmt": math.nan}, {}) for p in val])
    assert other.components() == {"mgmt": COMPONENTS[0]}  # nobody says which is better
    assert one.components() != other.components()


def test_a_missing_sequence_is_the_median_and_of_a_few_patients_there_are_a_few_components():
    patients, table = people(8, columns=40)
    table.iloc[2, :20] = math.nan
    model = PrincipalRegressions(table, (MGMT,))
    model.fit([Patient(p.id, {}, {**p.labels, "mgmt": float(i % 2)}, {}) for i, p in enumerate(patients[:6])], [])
    score = model.predict(blind(patients))[0].score.astype(float)
    assert score.between(0, 1).all()
    assert model.components() == {"mgmt": 2}
    other = model.of(table.rename(index=lambda name: f"x{name}"))
    renamed = other.predict([Patient(f"x{p.id}", {}, {}, {}) for p in patients])[0]
    np.testing.assert_array_equal(renamed.score, score)


def test_what_has_nothing_to_learn_has_no_prediction_and_labels_are_refused():
    patients, table = people(30)
    alike = [Patient(p.id, {}, {**p.labels, "mgmt": 1.0}, {}) for p in patients]
    model = PrincipalRegressions(table, (MGMT, OS))
    model.fit(alike[:20], alike[20:])
    assert set(model.predict(blind(alike))[0].endpoint) == {"os"}
    constant = PrincipalRegressions(table * 0, (MGMT, OS))
    constant.fit(patients[:20], patients[20:])
    score, survival = constant.predict(blind(patients))
    assert list(score) == ["patient", "endpoint", "score", "class"]
    assert len(score) == len(survival) == 0
    with pytest.raises(IntegrityError, match="p3 was handed to a fitted predictor with its label"):
        model.predict(patients[3:4])
