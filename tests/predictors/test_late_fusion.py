"""Late fusion: a network that overfitted gets no say, one that tells something does, and nobody is trained again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter
from made.network import HEADS, linear
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mri_vit.crossval import comparison, folds
from mri_vit.data import cohort, predictions, tokens
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.errors import IntegrityError
from mri_vit.model import heads
from mri_vit.model.heads import Head
from mri_vit.predictors import late_fusion
from mri_vit.predictors.late_fusion import LateFusion
from mri_vit.predictors.network import Neural
from mri_vit.predictors.regressions import Tabular
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import FUSED, Comparator
from mri_vit.settings.schema import Endpoint, Model, Study, Train
from mri_vit.settings.sections import Controls, Grid

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
SPLIT = (50, 90, 150)  # ends of the training, validation and test patients


class Saying(Neural):
    """A fitted network whose log odds of MGMT, and of death in each interval, are a number that lies in the patient's scans."""

    def __init__(self, study: Study, folder: Path) -> None:
        super().__init__(study, folder, seed=0)
        net = linear()
        net.heads = [head for head in HEADS if head.endpoint.name != "pfs"]
        positions = torch.arange(net.grid.positions)[None]
        with torch.no_grad():
            nothing, one = (net.encoder(torch.full((1, net.grid.positions, 32), x), positions)[0] for x in (0.0, 1.0))
            direction = (one - nothing) / (one - nothing).square().sum()
            for name, start in (("mgmt", math.log(2.0)), ("os", -2.0)):  # MGMT's positives weigh 2 in HEADS
                net.head[name].weight[:] = direction  # type: ignore[index]
                net.head[name].bias[:] = start - direction @ nothing  # type: ignore[index]
        self._networks = [net]


def people(study: Study, said: np.ndarray, clinical: np.ndarray, mgmt: np.ndarray, days: np.ndarray) -> list[Patient]:
    """Prepared patients of whom the network says `said`; every fifth is censored."""
    brain, shape = np.ones((6, 6, 6), bool), (4, 6, 6, 6)
    made = []
    for i in range(len(said)):
        (study.prepared / f"p{i}").mkdir(parents=True)
        prepared = tokens.from_volume(np.full(shape, said[i] or 1e-6, np.float32), brain, study.grid, "-")
        tokens.save(prepared, study.prepared / f"p{i}" / "tokens.safetensors")
        labels = {"mgmt": float(mgmt[i]), "os_days": float(days[i]), "os_event": float(i % 5 > 0)}
        made.append(Patient(f"p{i}", {}, labels, {"score": repr(float(clinical[i]))}))
    return made


def study_in(folder: Path) -> Study:
    return Study(
        name="fusion",
        cohort=folder / "cohort.csv",
        prepared=folder / "prepared",
        output=folder / "run",
        grid=Grid(edge=6, spacing_mm=8.0, patch=2),
        model=Model(dim=16, depth=1, heads=2, mlp=24, tokens="foreground"),
        train=Train(threads=1),
        endpoints=(MGMT, OS),
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[Patient]]:
    """Network and clinical column each tell a part of MGMT and of survival."""
    study, rng = study_in(tmp_path_factory.mktemp("both")), np.random.default_rng(1)
    said, clinical = rng.normal(size=(2, SPLIT[-1]))
    mgmt = rng.random(SPLIT[-1]) < 1 / (1 + np.exp(-1.5 * (said + clinical)))
    days = np.ceil(400 * rng.exponential(size=SPLIT[-1]) / np.exp(said + clinical))
    return study, people(study, said, clinical, mgmt, days)


def split(patients: list[Patient]) -> tuple[list[Patient], list[Patient], list[Patient]]:
    return patients[: SPLIT[0]], patients[SPLIT[0] : SPLIT[1]], patients[SPLIT[1] :]


def blind(patients: list[Patient]) -> list[Patient]:
    return [without_labels(p) for p in patients]


def column(patients: list[Patient]) -> pd.DataFrame:
    return pd.DataFrame({"score": [float(p.clinical["score"]) for p in patients]}, index=pd.Index([p.id for p in patients]))


def fused(study: Study, patients: list[Patient], folder: Path, val: list[Patient] | None = None) -> LateFusion:
    """Fitted on the training and validation patients, or on other validation patients."""
    model = LateFusion(Saying(study, folder), column(patients), folder)
    model.fit(split(patients)[0], split(patients)[1] if val is None else val)
    return model


def scores(table: pd.DataFrame, endpoint: str) -> np.ndarray:
    return table[table.endpoint == endpoint].score.to_numpy(dtype=float)


def auc(patients: list[Patient], score: np.ndarray) -> float:
    return float(roc_auc_score([p.labels["mgmt"] for p in patients], score))


def test_what_a_head_says_is_the_log_odds_of_its_probability_and_the_log_of_its_risk():
    output = torch.tensor([[-3.0, 0.5, 1.0], [2.0, -1.0, 0.0]])
    for head in HEADS:
        mine, score = output[:, : head.width], heads.scores(head, output[:, : head.width])[:, 0]
        expected = {"binary": torch.logit(score), "hazard": score.log(), "cox": score}[head.kind]
        np.testing.assert_allclose(joint(head, mine), expected, rtol=1e-5)
    sure = joint(HEADS[1], torch.full((1, 3), -200.0))  # nobody dies: a risk of 0
    assert np.isfinite(sure).all()


def joint(head: Head, *outputs: torch.Tensor) -> np.ndarray:
    return heads.of(head.endpoint).joint_evidence([head] * len(outputs), outputs)[:, 0]


def test_what_several_networks_say_is_what_their_mean_score_says_on_the_same_scale():
    said = torch.linspace(-6, 6, 12).reshape(3, 4)  # three networks, four patients
    plain, hazard, cox = Head(HEADS[0].endpoint, "binary"), HEADS[1], HEADS[2]
    columns = [one[:, None] for one in said]
    np.testing.assert_allclose(joint(plain, *columns), torch.logit(torch.sigmoid(said).mean(dim=0)), rtol=1e-5, atol=1e-6)
    hazards = [one[:, None] - torch.arange(float(hazard.width)) for one in said]
    mean = torch.stack([heads.scores(hazard, one)[:, 0] for one in hazards]).mean(dim=0)
    np.testing.assert_allclose(joint(hazard, *hazards), mean.log(), rtol=1e-5)
    mean = torch.stack([heads.scores(cox, one)[:, 0] for one in columns]).mean(dim=0)
    np.testing.assert_allclose(joint(cox, *columns), mean, rtol=1e-5, atol=1e-6)
    sure = joint(plain, torch.tensor([[80.0], [-80.0]]), torch.tensor([[90.0], [-90.0]]))  # probabilities round to 1 and 0
    np.testing.assert_allclose(sure, np.array([80.0, -80.0]) + np.array([1.0, -1.0]) * math.log(2), atol=1e-3)


def test_the_log_odds_of_one_network_are_not_changed_by_a_bit():
    said = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0)) * torch.logspace(-12, 2, 1000)[:, None]
    assert np.array_equal(joint(Head(HEADS[0].endpoint, "binary"), said), said[:, 0].double().numpy())


def test_with_two_seeds_the_evidence_is_that_of_the_mean_score(tiny):
    study = tiny.model_copy(update={"train": tiny.train.model_copy(update={"seeds": 2, "epochs": 1})})
    patients = cohort.read(study.cohort, study.endpoints)
    predictor = Neural(study, study.output, seed=3)
    predictor.fit(patients[:12], patients[12:16])
    ages = pd.DataFrame({"age": [float(i) for i in range(len(patients))]}, index=pd.Index([p.id for p in patients]))
    fusion = LateFusion(predictor, ages, study.output)
    fusion.fit(patients[:12], patients[12:16])
    asked = blind(patients[16:])
    said, mean = fusion._evidence(asked), predictor.predict(asked)[0]
    np.testing.assert_allclose(said.by_model["mgmt"]["vit"], logit(scores(mean, "mgmt")), rtol=1e-5)
    np.testing.assert_allclose(said.by_model["os"]["vit"], np.log(scores(mean, "os")), rtol=1e-5)


def test_the_weights_are_scikit_learns_and_lifelines_on_the_validation_patients(both, tmp_path):
    study, patients = both
    train, val, test = split(patients)
    score, survival = fused(study, patients, tmp_path).predict(blind(test))

    clinical = Tabular(column(patients), study.endpoints)
    clinical.fit(train, [])
    said, _ = Saying(study, tmp_path).predict(blind([*val, *test]))
    column_says = clinical.predict(blind([*val, *test]))[0]
    n = len(val)
    odds = np.stack([logit(scores(said, "mgmt")), logit(scores(column_says, "mgmt"))], axis=1)
    hazard = np.stack([np.log(scores(said, "os")), scores(column_says, "os")], axis=1)
    scaled = [(x - x[:n].mean(axis=0)) / x[:n].std(axis=0) for x in (odds, hazard)]
    logistic = LogisticRegression(C=1.0).fit(scaled[0][:n], [p.labels["mgmt"] == 1 for p in val])
    np.testing.assert_allclose(scores(score, "mgmt"), logistic.predict_proba(scaled[0][n:])[:, 1], rtol=1e-3)
    frame = pd.DataFrame(scaled[1][:n], columns=pd.Index(["vit", "clinical"]))
    frame = frame.assign(days=[p.labels["os_days"] for p in val], event=[p.labels["os_event"] == 1 for p in val])
    cox = CoxPHFitter(penalizer=1 / n).fit(frame, "days", "event")
    np.testing.assert_allclose(scores(score, "os"), scaled[1][n:] @ cox.params_.to_numpy(), atol=1e-3)
    assert survival.survival.between(0, 1).all()
    assert (survival.groupby("patient").size() == len(predictions.HORIZONS_DAYS)).all()
    assert json.loads((tmp_path / late_fusion.WEIGHTS).read_text()) == {"mgmt": "", "os": ""}


def test_two_that_each_tell_a_part_tell_more_together(both, tmp_path):
    study, patients = both
    test = split(patients)[2]
    together = auc(test, scores(fused(study, patients, tmp_path).predict(blind(test))[0], "mgmt"))
    alone = auc(test, scores(Saying(study, tmp_path).predict(blind(test))[0], "mgmt"))
    assert together > max(alone, auc(test, column(test).score.to_numpy())) + 0.03


def test_a_network_that_knows_its_training_patients_by_heart_does_not_drown_the_clinical_column(tmp_path):
    study, rng = study_in(tmp_path), np.random.default_rng(2)
    clinical = rng.normal(size=SPLIT[-1])
    mgmt = rng.random(SPLIT[-1]) < 1 / (1 + np.exp(-3 * clinical))
    by_heart = np.where(np.arange(SPLIT[-1]) < SPLIT[0], np.where(mgmt, 4.0, -4.0), 4 * rng.normal(size=SPLIT[-1]))
    patients = people(study, by_heart, clinical, mgmt, np.arange(SPLIT[-1]) + 1.0)
    train, _, test = split(patients)
    honest = auc(test, scores(fused(study, patients, tmp_path).predict(blind(test))[0], "mgmt"))
    dazzled = auc(test, scores(fused(study, patients, tmp_path, val=train).predict(blind(test))[0], "mgmt"))
    assert honest > auc(test, clinical[SPLIT[1] :]) - 0.05
    assert honest > dazzled + 0.1


def one_class(p: Patient) -> Patient:
    return replace(p, labels=p.labels | {"mgmt": 1.0, "os_event": 0.0})


def few_labels(p: Patient) -> Patient:
    """Nine of the forty validation patients keep theirs."""
    return p if int(p.id[1:]) < SPLIT[0] + 9 else without_labels(p)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (one_class, {"mgmt": "the validation patients are of one class", "os": "no validation patient died"}),
        (few_labels, dict.fromkeys(("mgmt", "os"), "fewer than 10 validation patients with a known label")),
    ],
)
def test_where_the_weights_are_undetermined_both_count_the_same_and_it_is_said(both, tmp_path, change, why):
    study, patients = both
    train, val, test = split(patients)
    score, survival = fused(study, patients, tmp_path, val=[change(p) for p in val]).predict(blind(test))
    assert json.loads((tmp_path / late_fusion.WEIGHTS).read_text()) == why
    assert late_fusion.equally_weighted([tmp_path]).startswith(f"equal weights for mgmt in {tmp_path.name}: {why['mgmt']}")
    clinical = Tabular(column(patients), study.endpoints)
    clinical.fit(train, [])
    (said, alive), (column_says, alive_too) = (m.predict(blind([*val, *test])) for m in (Saying(study, tmp_path), clinical))
    n = len(val)
    for name, pair, found in (
        ("mgmt", [logit(scores(said, "mgmt")), logit(scores(column_says, "mgmt"))], logit(scores(score, "mgmt"))),
        ("os", [np.log(scores(said, "os")), scores(column_says, "os")], scores(score, "os")),
    ):
        both_say = np.stack(pair, axis=1)
        mean, deviation = both_say[:n].mean(axis=0), both_say[:n].std(axis=0)
        expected = mean.mean() + deviation.mean() * ((both_say[n:] - mean) / deviation).mean(axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=name)
    keys = ["patient", "horizon_days"]
    means = pd.concat([alive, alive_too]).groupby(keys).survival.mean()
    found = survival.set_index(keys).survival
    np.testing.assert_allclose(found, means.loc[found.index], atol=1e-9)


def test_the_other_test_patients_move_nobodys_prediction_and_labels_are_refused(both, tmp_path):
    study, patients = both
    test = split(patients)[2]
    model = fused(study, patients, tmp_path)
    among = model.predict(blind(test))[0].set_index(["endpoint", "patient"]).score
    alone = model.predict(blind(test[7:8]))[0].set_index(["endpoint", "patient"]).score
    np.testing.assert_allclose(alone, among.loc[alone.index], rtol=1e-12)
    with pytest.raises(IntegrityError, match="patient p97 was handed to a fitted predictor with its label"):
        model.predict(test[7:8])


def test_of_what_the_clinical_columns_say_nothing_there_is_nothing_to_fuse(both, tmp_path):
    study, patients = both
    train, val, test = split(patients)
    model = LateFusion(Saying(study, tmp_path), column(patients), tmp_path)
    model.fit([replace(p, labels=p.labels | {"os_event": 0.0}) for p in train], val)
    score, survival = model.predict(blind(test))
    assert set(score.endpoint) == {"mgmt"}
    assert len(survival) == 0


def test_a_marker_among_the_clinical_columns_is_kept_from_its_own_fusion(both, tmp_path):
    study, patients = both
    train, val, test = split(patients)
    with_marker = column(patients).assign(mgmt=[p.labels["mgmt"] for p in patients])
    model = LateFusion(Saying(study, tmp_path), with_marker, tmp_path)
    model.fit(train, val)
    said, without = model.predict(blind(test))[0], fused(study, patients, tmp_path).predict(blind(test))[0]
    np.testing.assert_array_equal(scores(said, "mgmt"), scores(without, "mgmt"))
    assert not np.allclose(scores(said, "os"), scores(without, "os"))


def held(study: Study, ages: list[str]) -> tuple[Study, list[Patient]]:
    study = study.model_copy(update={"fused": True, "controls": Controls(models=())})
    patients = [
        replace(p, clinical={"age": age}) for p, age in zip(cohort.read(study.cohort, study.endpoints), ages, strict=True)
    ]
    study.output.mkdir(exist_ok=True)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    comparison.run(study, patients, splits, study.output, lambda title: lambda *_: None, print)
    return study, patients


def test_the_benchmark_fuses_each_folds_network_as_it_is(tiny):
    study = tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1})})
    study, patients = held(study, [str(50 + i % 9) for i in range(24)])
    table = predictions.load(study.output / "predictions.csv")
    assert set(table.model) == {"vit", FUSED}
    assert not table.duplicated(["model", "endpoint", "patient"]).any()
    assert set(table[table.model == FUSED].patient) == {p.id for p in patients}
    homes = {file.parent.relative_to(study.output).parts[0] for file in study.output.glob("**/best.safetensors")}
    assert homes == {"fold-1", "fold-2"}  # no network lies under comparators/
    note = json.loads((study.output / "notes.json").read_text())[FUSED]
    assert "equal weights for mgmt in fold-1, fold-2: fewer than 10 validation patients" in note  # of twelve, two validate
    before = [(study.output / name).read_bytes() for name in ("predictions.csv", "notes.json")]
    held(study, [str(50 + i % 9) for i in range(24)])
    assert [(study.output / name).read_bytes() for name in ("predictions.csv", "notes.json")] == before


def test_without_a_clinical_column_there_is_no_such_model(tiny):
    study, _ = held(tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1})}), ["60"] * 24)
    assert set(predictions.load(study.output / "predictions.csv").model) == {"vit"}
    assert "no clinical column" in json.loads((study.output / "notes.json").read_text())[FUSED]


def test_a_comparator_is_not_fused_and_the_setting_survives_being_written(tiny):
    study = tiny.model_copy(update={"fused": True, "comparators": (Comparator(name="deep", model={"depth": 3}),)})
    assert not study.of(study.comparators[0]).fused
    file = study.cohort.parent / "study.toml"
    file.write_text(study_file.dumps(study))
    assert study_file.load(file).fused
