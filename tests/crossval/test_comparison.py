"""The comparison: which networks take part, what is noted, and what is not asked."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mri_vit.crossval import comparators, comparison, folds
from mri_vit.data import cohort, predictions
from mri_vit.errors import UsageError
from mri_vit.model import network
from mri_vit.model.weights import label_exposed
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Controls, Study
from mri_vit.train.supervised import fit

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


def compared(study: Study, sites: str) -> Study:
    """The tiny study with sites, after its comparison without the volume control, which needs prepared scans."""
    study = study.model_copy(update={"controls": Controls(models=("clinical", "shuffled"))})
    patients = [
        replace(p, clinical={"age": str(50 + i % 9), "site": sites[i % len(sites)]})
        for i, p in enumerate(cohort.read(study.cohort, study.endpoints))
    ]
    study.output.mkdir(exist_ok=True)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    comparison.run(study, patients, splits, study.output, lambda title: lambda *_: None)
    return study


def test_model_and_controls_stand_in_one_table_and_the_sites_are_probed(tiny):
    study = compared(tiny, "AB")
    table = predictions.load(study.output / "predictions.csv")
    assert set(table.model) == {"vit", "clinical", "shuffled"}
    assert json.loads((study.output / "notes.json").read_text()) == {"transductive": "", "clinical_columns": "age"}
    probe = pd.read_csv(study.output / "site_probe.csv")
    assert sorted(probe.patient) == sorted(set(table.patient))
    before = (study.output / "predictions.csv").read_bytes()
    compared(tiny, "AB")  # once more: all folds are done
    assert (study.output / "predictions.csv").read_bytes() == before


def test_comparators_stand_on_the_same_folds_and_image_exposed_weights_are_noted(tiny):
    comparators = (
        Comparator(name="shallow", model={"depth": 1}),
        Comparator(name="knowing", pretrain={"method": "mae", "patients": "all", "epochs": 1}, train={"epochs": 1}),
    )
    study = compared(
        tiny.model_copy(update={"comparators": comparators, "train": tiny.train.model_copy(update={"epochs": 2})}), "AB"
    )
    table = predictions.load(study.output / "predictions.csv")
    assert set(table.model) == {"vit", "shallow", "knowing", "clinical", "shuffled"}
    split = {name: sorted(set(zip(of.patient, of.fold, of.repeat, strict=True))) for name, of in table.groupby("model")}
    assert split["shallow"] == split["knowing"] == split["vit"]
    assert json.loads((study.output / "notes.json").read_text())["transductive"] == "knowing (24 patients)"
    depth = {
        folder: network.load(study.output / folder / "fold-1" / "best.safetensors").model.shape[1]
        for folder in (".", "rivals/shallow", "rivals/knowing")
    }
    assert depth == {".": 2, "rivals/shallow": 1, "rivals/knowing": 2}


def test_a_start_from_a_network_that_knows_labels_of_the_tested_is_refused(tiny, tmp_path):
    short = tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1})})
    patients = cohort.read(short.cohort, short.endpoints)
    fit(patients[:8], patients[8:12], short, tmp_path / "before", seed=0)
    weights = tmp_path / "before" / "best.safetensors"
    assert label_exposed(weights) == sorted(p.subject for p in patients[:12])
    begun = short.model_copy(update={"model": short.model.model_copy(update={"weights": weights})})
    with pytest.raises(UsageError, match=r"this network was trained on labels of \d+ patients who have the ids of this study's"):
        compared(begun, "AB")
    assert not list(short.output.glob("fold-*"))
    handed_on = fit(patients[12:18], patients[18:], begun, tmp_path / "after", seed=0)  # it knows those of its start too
    assert set(handed_on.label_exposed) == {p.subject for p in patients}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"weights": "nowhere.safetensors"}, r"late: .*nowhere\.safetensors: no such file"),
        ({"architecture": "densenet121"}, r"late: 3D DenseNet-121 needs 29 "),
    ],
)
def test_a_network_that_cannot_be_made_is_named_before_any_other_is_trained(tiny, model: dict, reason: str):
    study = tiny.model_copy(update={"comparators": (Comparator(name="late", model=model),)})
    with pytest.raises(UsageError, match=reason):
        comparators.check(study, cohort.read(study.cohort, study.endpoints))


def test_with_sites_left_out_each_is_a_fold_and_no_probe_is_asked(tiny):
    study = compared(tiny.model_copy(update={"train": tiny.train.model_copy(update={"leave_out": "site"})}), "AAB")
    table = predictions.load(study.output / "predictions.csv").query("model == 'vit'")
    assert sorted(table.groupby("fold").patient.nunique()) == [8, 16]
    assert not (study.output / "site_probe.csv").exists()
    assert "site_probe" in json.loads((study.output / "notes.json").read_text())
    assert np.isfinite(table.score).all()
