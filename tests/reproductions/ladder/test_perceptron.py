"""The fully connected network: it learns what no regression can, from its training patients alone, and the same every time."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from reproductions.ladder import perceptron
from reproductions.ladder.perceptron import Perceptron

from mri_vit.data.cohort import Patient, without_labels
from mri_vit.errors import BadNumbers, IntegrityError
from mri_vit.metrics.discrimination import auc
from mri_vit.predictors.regressions import Tabular
from mri_vit.settings.schema import Endpoint

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def people(n: int, labels: np.ndarray) -> list[Patient]:
    return [Patient(f"p{i}", {}, {"mgmt": float(labels[i]), "os_days": 1.0, "os_event": 1.0}, {}) for i in range(n)]


def crossed(n: int = 300, seed: int = 0) -> tuple[list[Patient], pd.DataFrame]:
    """Patients whose marker is whether two numbers have one sign, which neither tells alone; a third is missing in some."""
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=(n, 3))
    labels = (numbers[:, 0] * numbers[:, 1] > 0).astype(float)
    numbers[::5, 2] = math.nan
    table = pd.DataFrame(numbers, index=pd.Index([f"p{i}" for i in range(n)]), columns=pd.Index(["a", "b", "c"]))
    return people(n, labels), table


def found(predictor: Perceptron | Tabular, patients: list[Patient]) -> float:
    scores = predictor.predict([without_labels(p) for p in patients])[0].set_index("patient").score
    return auc(np.array([p.labels["mgmt"] == 1 for p in patients]), scores[[p.id for p in patients]].to_numpy())


def test_it_learns_a_cross_that_a_regression_on_the_same_numbers_cannot():
    patients, table = crossed()
    network, regression = Perceptron(table, [MGMT], seed=0), Tabular(table, [MGMT])
    for predictor in (network, regression):
        predictor.fit(patients[:160], patients[160:200])
    assert found(network, patients[200:]) > 0.9
    assert found(regression, patients[200:]) < 0.7


def test_labels_that_have_nothing_to_do_with_the_numbers_take_the_greatest_penalties_and_are_not_learned():
    aucs, weights = [], []
    for seed in range(12):
        _, table = crossed(120, seed)
        patients = people(120, np.random.default_rng([7, seed]).integers(0, 2, 120))
        network = Perceptron(table, [MGMT], seed)
        network.fit(patients[:60], patients[60:90])
        aucs.append(found(network, patients[90:]))
        weights.append(network._networks["mgmt"].named_steps["mlpclassifier"].alpha)
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.1)  # three standard errors of twelve such AUCs
    assert np.median(weights) >= 10


def test_the_same_seed_gives_the_same_scores_and_another_other_ones():
    patients, table = crossed(60)
    one, same, other = (Perceptron(table, [MGMT], seed) for seed in (1, 1, 2))
    for network in (one, same, other):
        network.fit(patients[:40], patients[40:50])
    asked = [without_labels(p) for p in patients[50:]]
    assert one.predict(asked)[0].equals(same.predict(asked)[0])
    assert not one.predict(asked)[0].equals(other.predict(asked)[0])


def test_the_penalty_is_chosen_on_the_validation_patients_alone():
    patients, table = crossed()
    chosen = []
    for val in (patients[160:200], people(300, np.random.default_rng(3).integers(0, 2, 300))[160:200]):
        network = Perceptron(table, [MGMT], seed=0)
        network.fit(patients[:160], val)
        chosen.append(network._networks["mgmt"].named_steps["mlpclassifier"].alpha)
    assert chosen[0] < chosen[1]  # where the validation labels are coins, what was learned of the others' is of no use


def test_without_validation_labels_the_greatest_penalty_holds():
    patients, table = crossed(60)
    network = Perceptron(table, [MGMT], seed=0)
    network.fit(patients[:40], [without_labels(p) for p in patients[40:50]])
    assert network._networks["mgmt"].named_steps["mlpclassifier"].alpha == max(perceptron.PENALTIES)


def test_survival_one_class_and_constant_numbers_get_no_network():
    patients, table = crossed(40)
    for endpoints, numbers, who in (
        ([OS], table, patients),
        ([MGMT], table, people(40, np.ones(40))),
        ([MGMT], pd.DataFrame(1.0, table.index, table.columns), patients),
    ):
        network = Perceptron(numbers, endpoints, seed=0)
        network.fit(who[:30], who[30:35])
        score, survival = network.predict([without_labels(p) for p in who[35:]])
        assert (len(score), len(survival)) == (0, 0)


def test_it_refuses_patients_who_bring_their_labels():
    patients, table = crossed(40)
    network = Perceptron(table, [MGMT], seed=0)
    network.fit(patients[:30], patients[30:35])
    with pytest.raises(IntegrityError):
        network.predict(patients[35:])


def test_a_network_that_does_not_reach_its_end_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(perceptron, "MOST", 2)
    patients, table = crossed(40)
    with pytest.raises(BadNumbers, match="mgmt: the fully connected network did not converge"):
        Perceptron(table, [MGMT], seed=0).fit(patients[:30], patients[30:35])


def test_the_weights_are_counted_as_the_network_has_them():
    patients, table = crossed(40)
    network = Perceptron(pd.DataFrame(table[["a", "b"]]), [MGMT], seed=0)
    network.fit(patients[:30], patients[30:35])
    fitted = network._networks["mgmt"].named_steps["mlpclassifier"]
    assert perceptron.parameters(2) == sum(part.size for part in (*fitted.coefs_, *fitted.intercepts_))
