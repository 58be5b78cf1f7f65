"""The verb `pretrain`: whose scans an encoder saw, that training takes what was made, and that a collapse is reported."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import torch
from made.prepared import add_records
from made.views import loaded, views
from safetensors.torch import load_file
from waits import Waits

from mri_vit import cli
from mri_vit.crossval import folds, loop, work_units
from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.model import network
from mri_vit.model.weights import image_exposed, label_exposed, load_encoder
from mri_vit.predictors.network import PRETRAINED, Neural
from mri_vit.pretrain.encoder import METHODS, pretrained, untrained
from mri_vit.run import files
from mri_vit.run import folder as run_folder
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import Comparator, Pretrain
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls
from mri_vit.train.supervised import fit

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

UNLABELLED = [f"p{index:02d}" for index in (3, 8, 13, 18)]


def prepared(tiny: Study, pretrain: Pretrain, repeats: int = 1, comparators: tuple[Comparator, ...] = ()) -> Study:
    """The tiny study as `prepare` leaves it, with a pretraining and with four patients of whom no label is known."""
    train = tiny.train.model_copy(update={"epochs": 1, "repeats": repeats})
    changed = {"pretrain": pretrain, "train": train, "comparators": comparators, "controls": Controls(models=())}
    study = Study.model_validate(tiny.model_dump() | {key: value for key, value in changed.items()})
    table = pd.read_csv(study.cohort, dtype=str, keep_default_na=False)
    table.loc[table.patient.isin(UNLABELLED), ["mgmt", "os_days", "os_event"]] = ""
    table.to_csv(study.cohort, index=False)
    add_records(study, table.patient)
    with run_folder.claimed(study):
        run_cohort.freeze(study, cohort.read(study.cohort, study.endpoints), study.output)
    (study.output / "excluded.csv").write_text("patient,file,reason\n")
    (study.cohort.parent / "study.toml").write_text(study_file.dumps(study))
    return study


def mri_vit(verb: str, study: Study) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main([verb, str(study.cohort.parent / "study.toml")])
    return int(end.value.code or 0)


def of_folds(study: Study, home: Path) -> dict[Path, set[str]]:
    """Each fold's encoder, and its test patients."""
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.load(study.output / "folds.json", patients)
    return {
        files.fold_folder(home, repeat, fold) / PRETRAINED: set(ids)
        for repeat, split in enumerate(splits)
        for fold, ids in enumerate(split)
    }


def notes(study: Study) -> dict[str, str]:
    return json.loads((study.output / "notes.json").read_text())


def test_no_encoder_sees_a_test_patient_of_its_fold_and_each_sees_all_others_labelled_or_not(tiny, capsys):
    comparator = Comparator(name="deep", model={"depth": 3}, pretrain={"epochs": 1})
    study = prepared(tiny, Pretrain(method="mae", epochs=2), repeats=2, comparators=(comparator,))
    assert mri_vit("pretrain", study) == 0
    said = capsys.readouterr().out
    everybody = {p.subject for p in cohort.read(study.cohort, study.endpoints)}
    for home, called in ((study.output, "pretrain"), (study.output / "rivals" / "deep", "pretrain deep")):
        files = of_folds(study, home)
        assert len(files) == 4
        for file, test in files.items():
            assert set(image_exposed(file)) == everybody - test
            assert set(image_exposed(file)) & set(UNLABELLED)
            history = pd.read_csv(file.with_suffix(".csv"))
            assert f"{called} {file.parent.name}: last loss {history.loss.iloc[-1]:.3f}, {file}" in said
    assert load_encoder(study.output / "rivals" / "deep" / "fold-1" / PRETRAINED)[1]["model"]["depth"] == 3
    assert not list(study.output.glob("**/best.safetensors"))  # nothing is trained


def test_training_finds_what_was_made_and_makes_nothing_again(tiny):
    study = prepared(tiny, Pretrain(method="mae", epochs=2))
    assert mri_vit("pretrain", study) == 0
    made = [path for file in of_folds(study, study.output) for path in (file, file.with_suffix(".csv"))]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in made}
    assert mri_vit("train", study) == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in made} == before
    assert notes(study)["transductive"] == ""


def test_what_was_made_ahead_is_what_a_fit_would_have_made(tiny, tmp_path):
    study = prepared(tiny, Pretrain(method="mae", epochs=2))
    assert mri_vit("pretrain", study) == 0
    assert mri_vit("train", study) == 0
    patients = cohort.read(study.cohort, study.endpoints)
    for number, (file, test) in enumerate(of_folds(study, study.output).items()):
        seed = loop.fold_seed(study.seed, 0, number)
        train, val, _ = loop.parts(patients, sorted(test), study, seed)
        folder = tmp_path / file.parent.name
        folder.mkdir()
        Neural(study, folder, seed).fit(train, val)
        for name, read in ((PRETRAINED, load_encoder), ("best.safetensors", lambda path: (load_file(path), {}))):
            (weights, header), (expected, expected_header) = read(file.parent / name), read(folder / name)
            assert header == expected_header
            assert all(torch.equal(weights[key], value) for key, value in expected.items())


def test_one_encoder_of_all_patients_is_noted_as_transductive(tiny):
    study = prepared(tiny, Pretrain(method="mae", epochs=1, patients="all"))
    assert mri_vit("pretrain", study) == 0
    file = study.output / PRETRAINED
    made = file.stat().st_mtime_ns
    assert len(image_exposed(file)) == 24
    assert mri_vit("train", study) == 0
    assert file.stat().st_mtime_ns == made
    assert notes(study)["transductive"] == "vit (20 patients)"  # the four without a label are judged on nothing
    assert not list(study.output.glob(f"fold-*/{PRETRAINED}"))
    judged = predictions.load(study.output / "predictions.csv").dropna(subset=["time_days"]).patient
    assert judged.nunique() == 20


def test_one_encoder_of_the_unlabelled_sees_nobody_who_is_judged(tiny):
    study = prepared(tiny, Pretrain(method="mae", epochs=1, patients="unlabelled"))
    assert mri_vit("pretrain", study) == 0
    assert image_exposed(study.output / PRETRAINED) == UNLABELLED
    assert mri_vit("train", study) == 0
    assert notes(study)["transductive"] == ""
    home = study.output / "fold-1"
    assert work_units.starting_study(study, study.output, home).model.weights == study.output / PRETRAINED
    others = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"patients": "others"})})
    assert work_units.starting_study(others, study.output, home).model.weights == home / PRETRAINED


def test_a_visit_without_a_label_of_a_patient_with_one_is_not_unlabelled(tiny):
    study = tiny.model_copy(update={"pretrain": Pretrain(method="mae", patients="unlabelled")})
    known, unknown = {"mgmt": 1.0, "os_days": 5.0, "os_event": 1.0}, dict.fromkeys(("mgmt", "os_days", "os_event"), math.nan)
    visits = [("a", "1", known), ("a", "2", unknown), ("b", "1", unknown)]
    patients = [Patient(f"{who}_{when}", {}, labels, {}, session=when) for who, when, labels in visits]
    assert [p.id for p in work_units._chosen(study, patients)] == ["b_1"]


def test_an_encoder_of_another_pretraining_is_refused_and_one_that_was_stopped_is_not_resumed(tiny, tmp_path):
    study = tiny.model_copy(update={"pretrain": Pretrain(method="mae", epochs=2)})
    patients, file = cohort.read(study.cohort, study.endpoints), tmp_path / "encoder.safetensors"
    (tmp_path / "encoder.0123456789ab.state").write_bytes(b"of other settings")
    pretrained(study, patients, file, 0)
    assert {path.name for path in tmp_path.glob("encoder*")} == {"encoder.csv", "encoder.safetensors"}
    assert pretrained(study, patients, file, 0).model.weights == file
    longer = study.model_copy(update={"pretrain": Pretrain(method="mae", epochs=3)})
    duller = study.model_copy(update={"train": study.train.model_copy(update={"intensity_jitter": 0.0})})
    for asked, others, seed, what in (
        (longer, patients, 0, "pretrain"),
        (duller, patients, 0, "train"),
        (study, patients[1:], 0, "seen"),
        (study, patients, 1, "seed"),
    ):
        with pytest.raises(UsageError, match=rf"encoder\.safetensors: holds an encoder of another {what}"):
            pretrained(asked, others, file, seed)


def test_whom_weights_know_is_handed_on_from_network_to_encoder_and_back(tiny, tmp_path):
    short = tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1})})
    patients = cohort.read(short.cohort, short.endpoints)
    fit(patients[:6], patients[6:9], short, tmp_path / "net", seed=0)
    weights = tmp_path / "net" / "best.safetensors"
    learning = Pretrain(method="mae", epochs=1)
    from_network = short.model_copy(update={"pretrain": learning, "model": short.model.model_copy(update={"weights": weights})})
    begun = pretrained(from_network, patients[9:12], tmp_path / "encoder.safetensors", 0)
    assert begun.model.weights is not None
    assert label_exposed(begun.model.weights) == sorted(p.subject for p in patients[:9])
    assert image_exposed(begun.model.weights) == sorted(p.subject for p in patients[9:12])
    afresh = network.load(weights)
    afresh.encoder.norm_eps *= 2  # another file of the same name, of the same people
    network.save(afresh, weights)
    with pytest.raises(UsageError, match="holds an encoder of another start"):
        pretrained(from_network, patients[9:12], tmp_path / "encoder.safetensors", 0)
    last = fit(patients[12:18], patients[18:], begun, tmp_path / "last", seed=0)
    assert set(last.image_exposed) == {p.subject for p in patients[9:12]}
    assert set(last.label_exposed) == {p.subject for p in (*patients[:9], *patients[12:])}


def test_a_collapse_is_reported_at_once_and_noted_in_the_run(tiny, capsys, monkeypatch):
    study = prepared(tiny, Pretrain(method="dino", epochs=1, local_crops=1))
    monkeypatch.setattr("mri_vit.pretrain.dino.ALIKE_NATS", 100.0)  # no answer of eight tells as much as that
    assert mri_vit("pretrain", study) == 0
    assert "pretrain fold-1: DINO has collapsed" in capsys.readouterr().out
    assert mri_vit("train", study) == 0
    assert notes(study)["collapsed"].count("DINO has collapsed") == 2
    assert "pretrain fold-2: DINO has collapsed" in notes(study)["collapsed"]


def test_a_masked_autoencoder_cannot_collapse_and_nothing_is_noted(tiny, monkeypatch):
    study = prepared(tiny, Pretrain(method="mae", epochs=1))
    monkeypatch.setattr("mri_vit.pretrain.dino.ALIKE_NATS", 100.0)
    assert mri_vit("train", study) == 0
    assert "collapsed" not in notes(study)


def test_where_nobody_is_pretrained_the_verb_ends_with_2(tiny, capsys):
    study = prepared(tiny, Pretrain(), comparators=(Comparator(name="deep", model={"depth": 3}),))
    assert mri_vit("pretrain", study) == 2
    assert "no network has pretraining enabled" in capsys.readouterr().err
    assert not (study.output / "folds.json").exists()


@pytest.mark.parametrize("method", ["mae", "dino"])
def test_a_loss_without_labels_waits_for_nothing(tiny, method: Literal["mae", "dino"]):
    study = tiny.model_copy(update={"pretrain": Pretrain(method=method, local_crops=1)})
    net = METHODS[method](untrained(study), study)
    shown = views(net, loaded(cohort.read(study.cohort, study.endpoints)[:4], study), np.random.default_rng(0))
    net.begin(1)
    with Waits() as waits:
        net(*shown).backward()
        net.stepped(0.5)
    assert not waits.found
    assert all(math.isfinite(value) for value in net.watched().values())
