"""The controls: what they may use, what they learn, and that they learn it inside `fit`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mri_vit import controls, probe
from mri_vit.cohort import Patient
from mri_vit.config import Controls, Endpoint
from mri_vit.errors import UsageError

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def people(n: int = 200, seed: int = 0) -> list[Patient]:
    """Patients whose age tells MGMT and survival; sex is a coin."""
    generator = np.random.default_rng(seed)
    age = generator.normal(60, 10, n)
    mgmt = generator.random(n) < 1 / (1 + np.exp(-(age - 60) / 5))
    days = np.ceil(400 * np.exp(-(age - 60) / 15) * generator.exponential(size=n))
    return [
        Patient(
            f"p{i}",
            {},
            {"mgmt": float(mgmt[i]), "os_days": float(days[i]), "os_event": float(i % 4 > 0)},
            {
                "age": "" if i % 17 == 0 else f"{age[i]:.1f}",
                "sex": "MF"[i % 2],
                "site": "ABC"[i % 3],
                "note": f"seen on day {i}",
                "same": "1",
                "os_days": f"{days[i]}",
                "tertp": str(i % 2),
            },
        )
        for i in range(n)
    ]


def test_labels_sites_notes_and_constants_are_no_clinical_covariates():
    assert controls.clinical_columns(people(), Controls()) == ["age", "sex"]
    assert controls.clinical_columns(people(), Controls(columns=("sex",))) == ["sex"]
    with pytest.raises(UsageError, match=r"no column 'kps' in the cohort table \(found age, sex"):
        controls.clinical_columns(people(), Controls(columns=("kps",)))


def test_a_missing_cell_is_missing_and_a_number_is_a_number():
    table = controls.clinical_table(people(), ["age", "sex"])
    assert table.age.dtype == float
    assert math.isnan(table.age.iloc[0])
    assert set(table.sex) == {"M", "F"}


def test_clinical_only_finds_age_where_age_tells():
    patients = people()
    tabular = controls.Tabular(controls.clinical_table(patients, ["age", "sex"]), (MGMT, OS))
    tabular.fit(patients[:100], patients[100:120])
    score, survival = tabular.predict(patients[120:])
    mgmt = score[score.endpoint == "mgmt"].score
    assert mgmt.between(0, 1).all()
    assert roc_auc_score([p.labels["mgmt"] for p in patients[120:]], mgmt) > 0.8
    risk = score[score.endpoint == "os"].score
    days = [p.labels["os_days"] for p in patients[120:]]
    assert np.corrcoef(risk, np.log(days))[0, 1] < -0.3
    curves = survival.pivot(index="patient", columns="horizon_days", values="survival")
    assert survival.survival.between(0, 1).all()
    assert (np.diff(curves.to_numpy(), axis=1) <= 1e-12).all()


def test_the_regressions_are_scikit_learns_and_lifelines_on_standardised_columns():
    patients = people(60, seed=2)
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.normal(5, 3, 60), "y": rng.normal(size=60)}, index=pd.Index([p.id for p in patients]))
    tabular = controls.Tabular(table, (MGMT, OS))
    tabular.fit(patients[:40], [])
    score, _ = tabular.predict(patients[40:])
    scaled = (table - table[:40].mean()) / table[:40].std(ddof=0)
    truth = [p.labels["mgmt"] == 1 for p in patients[:40]]
    expected = LogisticRegression(C=1.0).fit(scaled[:40].to_numpy(), truth).predict_proba(scaled[40:].to_numpy())[:, 1]
    np.testing.assert_allclose(score[score.endpoint == "mgmt"].score, expected, rtol=1e-4)
    frame = scaled[:40].assign(
        days=[p.labels["os_days"] for p in patients[:40]], event=[p.labels["os_event"] for p in patients[:40]]
    )
    cox = CoxPHFitter(penalizer=1 / 40).fit(frame, "days", "event")
    np.testing.assert_allclose(score[score.endpoint == "os"].score, cox.predict_log_partial_hazard(scaled[40:]), atol=1e-6)


def test_nothing_of_the_test_patients_moves_the_fit():
    patients = people(80)
    table = controls.clinical_table(patients, ["age", "sex"])
    changed = table.copy()
    changed.loc[[p.id for p in patients[61:]], "age"] = 1000.0
    found = []
    for covariates in (table, changed):
        tabular = controls.Tabular(covariates, (MGMT, OS))
        tabular.fit(patients[:60], [])
        found.append(tabular.predict(patients[60:61])[0].score.to_numpy())
    np.testing.assert_array_equal(*found)


def test_an_endpoint_of_one_class_or_without_an_event_has_no_prediction():
    patients = [replace(p, labels={"mgmt": 1.0, "os_days": 5.0 + i, "os_event": 0.0}) for i, p in enumerate(people(20))]
    more = [replace(p, labels=p.labels | {"mgmt": float(i % 2)}) for i, p in enumerate(patients)]
    tabular = controls.Tabular(controls.clinical_table(patients, ["age", "sex"]), (MGMT, OS))
    tabular.fit(more[:10], [])
    score, survival = tabular.predict(patients[10:])
    assert set(score.endpoint) == {"mgmt"}
    assert len(survival) == 0


def site_patients(n: int) -> list[Patient]:
    return [Patient(f"p{i}", {}, {}, {"site": "ABC"[i % 3]}) for i in range(n)]


def test_a_probe_tells_sites_that_lie_in_the_vectors_and_no_others():
    patients = site_patients(120)
    rng = np.random.default_rng(0)
    noise = {p.id: rng.normal(size=6) for p in patients}
    with_site = {p.id: noise[p.id] + 3 * np.eye(6)["ABC".index(p.clinical["site"])] for p in patients}
    right = {}
    for name, vectors in (("noise", noise), ("site", with_site)):
        rows = probe.probe(lambda some, v=vectors: np.stack([v[p.id] for p in some]), patients[:80], patients[80:])
        assert list(rows.columns) == ["patient", "site", "predicted"]
        right[name] = float((rows.site == rows.predicted).mean())
    assert right["site"] > 0.9
    assert right["noise"] < 0.6  # chance is a third; 0.6 of 40 has a probability below 1e-3 by chance


def test_without_two_sites_there_is_no_probe():
    assert probe.sites(site_patients(30))
    assert not probe.sites([Patient(f"p{i}", {}, {}, {"site": "A"}) for i in range(9)])
    assert not probe.sites([Patient(f"p{i}", {}, {}, {}) for i in range(9)])
    assert not probe.sites([Patient("a", {}, {}, {"site": "A"}), Patient("b", {}, {}, {"site": "B"})])
