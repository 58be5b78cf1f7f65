"""The comparison: which networks take part, what is noted, and what is not asked."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from mri_vit.crossval import comparators, comparison, folds
from mri_vit.data import cohort, predictions
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model import network
from mri_vit.model.weights import label_exposed
from mri_vit.run import integrity
from mri_vit.run.files import PREDICTIONS, SEEDS
from mri_vit.settings.recipe import CONTROLS, Comparator, Train
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls
from mri_vit.train.supervised import fit

pytestmark = [
    pytest.mark.long(18),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


def compared(study: Study, sites: str) -> Study:
    """The tiny study with sites, after its comparison without the volume control, which needs prepared scans."""
    study = study.model_copy(update={"controls": Controls(models=("clinical", "shuffled"))})
    patients = [
        replace(p, clinical={"age": str(50 + i % 9), "site": sites[i % len(sites)]})
        for i, p in enumerate(cohort.read(study.cohort, study.endpoints))
    ]
    study.output.mkdir(exist_ok=True)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    comparison.run(study, patients, splits, study.output, lambda title: lambda *_: None, print)
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


def test_a_run_says_what_check_says_of_a_column_that_is_lost_by_one_cell(tiny):
    study = tiny.model_copy(update={"controls": Controls(models=("clinical",))})
    patients = [
        replace(p, clinical={"age": str(50 + i % 9) if i else ">89", "kps": str(-1 if i == 1 else 60 + i % 4 * 10)})
        for i, p in enumerate(cohort.read(study.cohort, study.endpoints))
    ]
    study.output.mkdir()
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    heard: list[str] = []
    comparison.run(study, patients, splits, study.output, lambda title: lambda *_: None, heard.append)
    age, kps = (sentence for sentence in heard if sentence.startswith("column"))
    assert all(word in age for word in ("column age", "'>89'", "not read", patients[0].id))
    assert all(word in kps for word in ("column kps", "'-1'", "unknown", patients[1].id))
    notes = json.loads((study.output / "notes.json").read_text())
    assert notes["clinical_columns"] == "kps"
    assert notes["clinical_remarks"] == f"{age}; {kps}"
    asked = study.model_copy(update={"controls": Controls(models=("clinical",), columns=("age",))})
    with pytest.raises(UsageError, match="column age"):  # before any network is trained
        comparison.run(asked, patients, splits, study.output / "other", lambda title: lambda *_: None, heard.append)
    assert not (study.output / "other").exists()


def test_a_marker_as_a_clinical_column_is_kept_from_its_own_control_and_from_its_nulls(tiny, monkeypatch):
    """The table's only clinical column is MGMT itself: of MGMT there is then no clinical control at all, of survival there is."""
    given = []
    table = comparison.permutation_null.table
    monkeypatch.setattr(comparison.permutation_null, "table", lambda *of: given.append(table(*of)) or given[-1])
    monkeypatch.setattr(comparison.permutation_null, "DRAWS_PER_RESULT", 5)
    study = tiny.model_copy(update={"controls": Controls(models=("clinical",), columns=("mgmt",))})
    patients = cohort.read(study.cohort, study.endpoints)
    study.output.mkdir()
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    comparison.run(study, patients, splits, study.output, lambda title: lambda *_: None, print)
    made = predictions.load(study.output / "predictions.csv").query("model == 'clinical'")
    assert set(made.endpoint) == {"os"}
    assert set(given[0].endpoint) == {"os"}
    assert json.loads((study.output / "notes.json").read_text())["clinical_withheld"] == (
        "mgmt not for mgmt (it is named after the label itself)"
    )


def test_the_nulls_of_the_regressions_are_made_once_and_hashed(tiny):
    study = compared(tiny, "AB")
    run = study.output
    assert set(predictions.load_nulls(run / "nulls.csv").model) == {"clinical"}
    known = json.loads((run / "hashes.json").read_text())["files"]
    assert known["nulls.csv"] == integrity.sha256(run / "nulls.csv")
    short = predictions.load_nulls(run / "nulls.csv").query("draw < 5")
    predictions.save(short, run / "nulls.csv")
    compared(tiny, "AB")
    assert len(predictions.load_nulls(run / "nulls.csv")) == len(short)  # they are there, so they are not made again


def test_a_suspicious_permutation_is_followed_by_a_fresh_one(tiny, monkeypatch, capsys):
    asked = []

    def always(table: pd.DataFrame, endpoints: tuple) -> list[str]:
        asked.append((set(table.model), set(table.repeat)))
        return ["mgmt"]

    monkeypatch.setattr(comparison, "suspected_leaks", always)
    study = compared(tiny, "AB")
    assert asked == [({"shuffled"}, {0})]
    assert "suspicious: the control on permuted labels predicts mgmt; a fresh permutation is" in capsys.readouterr().out
    table = predictions.load(study.output / "predictions.csv")
    assert (study.output / "controls" / "shuffled-again" / "fold-2" / "predictions.csv").is_file()
    truth = {name: of[of.endpoint == "mgmt"].set_index("patient").truth for name, of in table.groupby("model")}
    assert not truth["shuffled again"].equals(truth["shuffled"])
    assert truth["shuffled again"].sum() == truth["shuffled"].sum()


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


def test_comparators_have_the_studys_seeds_unless_they_say_otherwise_and_each_seeds_scores_are_written(tiny):
    comparators = (Comparator(name="shallow", model={"depth": 1}), Comparator(name="alone", train={"seeds": 1}))
    train = tiny.train.model_copy(update={"epochs": 1, "seeds": 2})
    study = compared(tiny.model_copy(update={"comparators": comparators, "train": train, "fused": True}), "AB")
    table, seeds = (
        load(study.output / name) for load, name in ((predictions.load, PREDICTIONS), (predictions.load_seeds, SEEDS))
    )
    assert set(table.model) == {"vit", "shallow", "alone", "vit+clinical", "clinical", "shuffled"}
    assert set(seeds.model) == {"vit", "shallow"}
    assert not list((study.output / "rivals" / "alone").glob("fold-*/seed*"))
    keys = ["model", "endpoint", "repeat", "fold", "patient", "session"]
    mean = seeds.groupby(keys).score.mean()
    scores = table[table.model.isin(set(seeds.model))].set_index(keys).score.sort_index()
    pd.testing.assert_series_equal(mean, scores, rtol=1e-6)
    before = (study.output / SEEDS).read_bytes()
    (study.output / PREDICTIONS).unlink()
    for weights in (study.output / "rivals").rglob("*.safetensors"):  # as a pipeline may throw them away
        weights.unlink()
    compared(study, "AB")
    assert (study.output / SEEDS).read_bytes() == before


def test_a_change_in_a_further_seeds_weights_or_scores_is_found(tiny):
    study = compared(tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1, "seeds": 2})}), "AB")
    integrity.refuse_changed_run(study.output, Console(quiet=True))
    for name in ("fold-2/seed-2/best.safetensors", "fold-1/seeds.csv", "seeds.csv"):
        file = study.output / name
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(IntegrityError, match=name):
            integrity.refuse_changed_run(study.output, Console(quiet=True))
        file.write_bytes(content)


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


def of_controls(study: Study, names: tuple, sites: str) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """What the study's controls read where its patients come from these sites in turn, and the notes on them."""
    asking = study.model_copy(update={"controls": Controls(models=names)})
    patients = [
        replace(p, clinical={"site": sites[i % len(sites)]})
        for i, p in enumerate(cohort.read(study.cohort, study.endpoints)[: 2 * len(sites) + 2])
    ]
    return comparison._covariates(asking, patients)


def test_the_site_control_reads_the_site_alone_and_needs_two_of_them(tiny):
    tables, notes = of_controls(tiny, ("site",), "AB")
    assert list(tables["site"]) == ["site"]
    assert set(tables["site"].site) == {"A", "B"}
    assert notes == {}
    tables, notes = of_controls(tiny, ("site",), "A")
    assert tables == {}
    assert notes == {"site": "the cohort table has no two sites of 2 patients or more"}


def test_by_default_a_table_without_sites_is_silently_without_that_control(tiny, monkeypatch):
    monkeypatch.setattr(
        comparison, "volume_table", lambda patients, study: pd.DataFrame(index=pd.Index([p.id for p in patients]))
    )
    tables, notes = of_controls(tiny, CONTROLS, "A")
    assert "site" not in tables
    assert "site" not in notes
    assert notes["intensity_columns"].startswith(
        "mean, sd, skewness, kurtosis, p10, p50, p90, p99, max of t1, t1ce, t2, flair in the brain"
    )


def test_there_is_no_site_control_where_sites_are_left_out(tiny):
    tables, notes = of_controls(tiny.model_copy(update={"train": Train(folds=2, leave_out="site")}), ("site",), "AB")
    assert tables == {}
    assert "no training patient" in notes["site"]
