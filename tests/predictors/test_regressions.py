"""The controls: what they may use, what they learn, and that they learn it inside `fit`."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torchsurv.loss.cox import neg_partial_log_likelihood

from mri_vit.crossval import loop
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.covariates import clinical_columns, clinical_table, withheld
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.predictors import regressions as controls
from mri_vit.settings.schema import Endpoint, Study, Train
from mri_vit.settings.sections import Controls

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


STUDY = Study(name="controls", cohort=Path("cohort.csv"), prepared=Path("prepared"), output=Path("run"))


def asking(*columns: str) -> Study:
    """The study with these clinical columns named."""
    return STUDY.model_copy(update={"controls": Controls(columns=columns)})


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
    assert clinical_columns(people(), STUDY) == ["age", "sex"]
    assert clinical_columns(people(), asking("sex")) == ["sex"]
    with pytest.raises(UsageError, match=r"no column 'kps' in the cohort table \(found age, sex"):
        clinical_columns(people(), asking("kps"))


@pytest.mark.parametrize("name", ["pfs_days", "vital_status", "death_date", "days_to_death", "Survival", "progression"])
def test_what_happened_after_imaging_is_no_covariate_unless_asked_for(name: str):
    patients = [replace(p, clinical=p.clinical | {name: str(i % 7)}) for i, p in enumerate(people(40))]
    assert clinical_columns(patients, STUDY) == ["age", "sex"]
    assert clinical_columns(patients, asking(name)) == [name]


@pytest.mark.parametrize(
    "name",
    ["MGMT index", "mgmt_status", "MGMT.value", "Methylation percentage", "methylated", "tert_promoter", "TERTp-call", "PTEN"],
)
def test_what_is_named_after_a_label_is_no_covariate_unless_asked_for(name: str):
    patients = [replace(p, clinical=p.clinical | {name: str(i % 7)}) for i, p in enumerate(people(40))]
    assert clinical_columns(patients, STUDY) == ["age", "sex"]
    assert clinical_columns(patients, asking(name)) == [name]


@pytest.mark.parametrize("name", ["idh1", "IDH2", "idh_diagnosis", "IDH status"])
def test_what_is_named_after_idh_is_no_covariate_of_a_study_of_idh(name: str):
    study = STUDY.model_copy(update={"endpoints": (Endpoint(name="idh", kind="binary"),)})
    patients = [replace(p, clinical=p.clinical | {name: str(i % 7)}) for i, p in enumerate(people(40))]
    assert name in clinical_columns(patients, STUDY)
    assert name not in clinical_columns(patients, study)


@pytest.mark.parametrize("name", ["kps", "osteoporosis", "eventual_dose", "idh1", "ose", "percent_resected"])
def test_a_name_that_only_begins_like_a_short_label_is_a_covariate(name: str):
    patients = [replace(p, clinical=p.clinical | {name: str(i % 7)}) for i, p in enumerate(people(40))]
    assert clinical_columns(patients, STUDY) == ["age", "sex", name]


def test_the_column_that_is_left_out_is_no_covariate():
    patients = [replace(p, clinical=p.clinical | {"centre": "AB"[i % 2]}) for i, p in enumerate(people(40))]
    assert "centre" in clinical_columns(patients, STUDY)
    left_out = STUDY.model_copy(update={"train": Train(leave_out="centre")})
    assert "centre" not in clinical_columns(patients, left_out)


def test_a_missing_cell_is_missing_and_a_number_is_a_number():
    table = clinical_table(people(), ["age", "sex"])
    assert table.age.dtype == float
    assert math.isnan(table.age.iloc[0])
    assert set(table.sex) == {"M", "F"}


def test_clinical_only_finds_age_where_age_tells():
    patients = people()
    tabular = controls.Tabular(clinical_table(patients, ["age", "sex"]), (MGMT, OS))
    tabular.fit(patients[:120], [])
    score, survival = tabular.predict(blind(patients[120:]))
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
    score, _ = tabular.predict(blind(patients[40:]))
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
    table = clinical_table(patients, ["age", "sex"])
    changed = table.copy()
    changed.loc[[p.id for p in patients[61:]], "age"] = 1000.0
    found = []
    for covariates in (table, changed):
        tabular = controls.Tabular(covariates, (MGMT, OS))
        tabular.fit(patients[:60], [])
        found.append(tabular.predict(blind(patients[60:61]))[0].score.to_numpy())
    np.testing.assert_array_equal(*found)


def test_an_endpoint_of_one_class_or_without_an_event_has_no_prediction():
    patients = [replace(p, labels={"mgmt": 1.0, "os_days": 5.0 + i, "os_event": 0.0}) for i, p in enumerate(people(20))]
    more = [replace(p, labels=p.labels | {"mgmt": float(i % 2)}) for i, p in enumerate(patients)]
    tabular = controls.Tabular(clinical_table(patients, ["age", "sex"]), (MGMT, OS))
    tabular.fit(more[:10], [])
    score, survival = tabular.predict(blind(patients[10:]))
    assert set(score.endpoint) == {"mgmt"}
    assert len(survival) == 0


def test_covariates_that_do_not_vary_in_training_give_no_prediction():
    patients = people(30)
    constant = pd.DataFrame({"x": [1.0] * 20 + [2.0] * 10}, index=pd.Index([p.id for p in patients]))
    tabular = controls.Tabular(constant, (MGMT, OS))
    tabular.fit(patients[:20], [])
    assert [len(table) for table in tabular.predict(blind(patients[20:]))] == [0, 0]


def test_a_fitted_control_that_is_handed_a_label_raises():
    patients = people(30)
    tabular = controls.Tabular(clinical_table(patients, ["age", "sex"]), (MGMT, OS))
    tabular.fit(patients[:20], [])
    with pytest.raises(IntegrityError, match="patient p20 was handed to a fitted predictor with its label"):
        tabular.predict(patients[20:])


def with_mgmt(patients: list[Patient], mgmt: list[float]) -> list[Patient]:
    return [replace(p, labels=p.labels | {"mgmt": value}) for p, value in zip(patients, mgmt, strict=True)]


def test_a_marker_tells_survival_and_is_never_read_for_itself():
    """MGMT is known of two in three and shortens survival, which nothing else tells; no regression of MGMT may see it."""
    coin = np.random.default_rng(5)
    marker = coin.integers(0, 2, 240).astype(float)
    days = np.ceil(300 * np.exp(-1.5 * marker) * coin.exponential(size=240)) + 1
    patients = [
        replace(p, labels={"mgmt": marker[i], "os_days": days[i], "os_event": 1.0}) for i, p in enumerate(people(240, seed=2))
    ]
    patients = with_mgmt(patients, [math.nan if i % 3 == 2 else float(one) for i, one in enumerate(marker)])
    study = asking("sex", "mgmt").model_copy(update={"endpoints": (MGMT, OS)})
    columns = clinical_columns(patients, study)
    tabular = controls.Tabular(clinical_table(patients, columns), study.endpoints, withheld(columns, study))
    tabular.fit(patients[:120], [])
    scores, _ = tabular.predict([without_labels(p) for p in patients[120:]])
    risk = scores[scores.endpoint == "os"].set_index("patient").score
    known = [p for p in patients[120:] if p.knows(MGMT)]
    truth = [p.labels["mgmt"] == 1 for p in known]
    assert roc_auc_score(truth, risk.loc[[p.id for p in known]]) == 1.0  # the risk is MGMT and a little sex
    probability = scores[scores.endpoint == "mgmt"].set_index("patient").score
    assert probability.nunique() <= 2  # sex alone
    assert abs(roc_auc_score(truth, probability.loc[[p.id for p in known]]) - 0.5) < 0.15


def test_a_test_patients_marker_moves_neither_the_fit_nor_the_marker_that_is_predicted_for_them():
    patients = people(90)
    study = asking("age", "mgmt").model_copy(update={"endpoints": (MGMT, OS)})
    turned = with_mgmt(patients, [p.labels["mgmt"] if i < 60 else 1 - p.labels["mgmt"] for i, p in enumerate(patients)])
    lost = with_mgmt(patients, [p.labels["mgmt"] if i < 60 else math.nan for i, p in enumerate(patients)])
    said = []
    for asked in (patients, turned, lost):
        columns = clinical_columns(asked, study)
        tabular = controls.Tabular(clinical_table(asked, columns), study.endpoints, withheld(columns, study))
        tabular.fit(asked[:60], [])
        said.append(tabular.predict([without_labels(p) for p in asked[60:]])[0].set_index(["endpoint", "patient"]).score)
    for other in said[1:]:
        pd.testing.assert_series_equal(other.loc[["mgmt"]], said[0].loc[["mgmt"]])
    change = (said[1] - said[0]).loc["os"].abs()
    assert change.nunique() > 0
    change = change.loc[[p.id for p in patients[60:] if p.clinical["age"]]]  # a missing age is imputed, from the marker too
    np.testing.assert_allclose(change, change.iloc[0])  # one coefficient, the same for all: the fit is the same
    assert not np.allclose(said[2].loc["os"], said[0].loc["os"])


def test_the_validation_patients_do_not_move_the_fit():
    patients = people(60)
    table = clinical_table(patients, ["age", "sex"])
    found = []
    for val in ([], patients[30:50]):
        tabular = controls.Tabular(table, (MGMT, OS))
        tabular.fit(patients[:30], val)
        found.append(tabular.predict(blind(patients[50:]))[0].score.to_numpy())
    np.testing.assert_array_equal(*found)


def test_the_cox_control_has_a_normal_prior_of_variance_one_on_each_coefficient():
    patients = people(60, seed=3)
    x = np.random.default_rng(4).normal(size=60)
    x = (x - x.mean()) / x.std()
    tabular = controls.Tabular(pd.DataFrame({"x": x}, index=pd.Index([p.id for p in patients])), (OS,))
    tabular.fit(patients, [])
    score = tabular.predict(blind(patients))[0].score.to_numpy()
    coefficient = np.polyfit(x, score, 1)[0]
    days = torch.tensor([p.labels["os_days"] for p in patients])
    event = torch.tensor([p.labels["os_event"] == 1 for p in patients])

    def log_posterior(beta: float) -> float:
        likelihood = neg_partial_log_likelihood(torch.tensor(beta * x), event, days, ties_method="efron", reduction="sum")
        return -float(likelihood) - beta**2 / 2

    with warnings.catch_warnings(action="ignore"):  # torchsurv tells of ties
        steps = coefficient + np.array([-0.05, 0.0, 0.05])
        assert np.argmax([log_posterior(beta) for beta in steps]) == 1


def blind(patients: list[Patient]) -> list[Patient]:
    return [without_labels(p) for p in patients]


def site_patients(n: int) -> list[Patient]:
    return [Patient(f"p{i}", {}, {}, {"site": "ABC"[i % 3]}) for i in range(n)]


def test_a_probe_tells_sites_that_lie_in_the_vectors_and_no_others():
    patients = site_patients(120)
    rng = np.random.default_rng(0)
    noise = {p.id: rng.normal(size=6) for p in patients}
    with_site = {p.id: noise[p.id] + 3 * np.eye(6)["ABC".index(p.clinical["site"])] for p in patients}
    right = {}
    for name, vectors in (("noise", noise), ("site", with_site)):
        rows = loop.site_probe(lambda some, v=vectors: np.stack([v[p.id] for p in some]), patients[:80], patients[80:])
        assert list(rows.columns) == ["patient", "site", "predicted"]
        right[name] = float((rows.site == rows.predicted).mean())
    assert right["site"] > 0.9
    assert right["noise"] < 0.6  # chance is a third; 0.6 of 40 has a probability below 1e-3 by chance


def test_without_two_sites_there_is_no_probe():
    assert loop.sites(site_patients(30))
    assert not loop.sites([Patient(f"p{i}", {}, {}, {"site": "A"}) for i in range(9)])
    assert not loop.sites([Patient(f"p{i}", {}, {}, {}) for i in range(9)])
    assert not loop.sites([Patient("a", {}, {}, {"site": "A"}), Patient("b", {}, {}, {"site": "B"})])
