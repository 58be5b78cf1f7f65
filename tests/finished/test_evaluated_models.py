"""Every model of a run on another cohort: what each says there, that it was not taught there, and why one says nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.study import make_tiny
from rich.console import Console

from mri_vit.crossval import comparison, folds
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.covariates import clinical_table
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.finished import evaluated_models
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.predictors import late_fusion
from mri_vit.predictors.late_fusion import LateFusion
from mri_vit.predictors.network import Neural
from mri_vit.predictors.regressions import Tabular
from mri_vit.run import files
from mri_vit.settings.recipe import CLINICAL, FUSED, SHUFFLED, SITE, Comparator, Control
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls

pytestmark = [
    pytest.mark.long(15),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]
CONSOLE = Console(quiet=True)
ASKED_CONTROLS: tuple[Control, ...] = (CLINICAL, SITE, SHUFFLED)
ASKED = 6  # patients of the other cohort


@pytest.fixture(scope="module", params=[10, 2], ids=["equal weights", "fitted weights"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, list[Patient]]]:
    """A run with a comparator of two seeds, late fusion and controls; late fusion fits weights on so many validation patients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_fusion, "MIN_VALIDATION_PATIENTS", request.param)
        study = make_tiny(tmp_path_factory.mktemp("run"))
        deep = Comparator(name="deep", model={"depth": 3}, train={"seeds": 2, "epochs": 1})
        learning = study.train.model_copy(update={"val_fraction": 0.4, "epochs": 1})
        changed = {"fused": True, "comparators": (deep,), "controls": Controls(models=ASKED_CONTROLS), "train": learning}
        study = study.model_copy(update=changed)
        patients = [
            replace(p, clinical={"age": str(40 + 7 * i % 30), "site": "AB"[i % 2]})
            for i, p in enumerate(cohort.read(study.cohort, study.endpoints))
        ]
        run = study.output
        run.mkdir()
        run_cohort.freeze(study, patients, run)
        (run / files.EXCLUDED).write_text("patient,file,reason\n")
        for patient in patients:
            (study.prepared / patient.id / files.PATIENT).write_text("{}")  # as of a prepared patient, whom nobody reads here
        splits = folds.make(patients, study.endpoints, study.train, study.seed)
        folds.save(splits, study.seed, run / files.FOLDS)
        comparison.run(study, patients, splits, run, lambda title: lambda *_: None, print)
        yield study, patients


@pytest.fixture
def asked(trained: tuple[Study, list[Patient]], tmp_path: Path) -> tuple[Study, Study, list[Patient]]:
    """The run's study, that of another cohort, and its patients, who have ids of the run's and other scans and ages."""
    past, inside = trained
    study = past.model_copy(update={"output": tmp_path / "evaluation", "prepared": tmp_path / "prepared"})
    others = []
    for index in range(ASKED):
        shutil.copytree(past.prepared / inside[-1 - index].id, study.prepared / inside[index].id)
        others.append(replace(inside[index], clinical={"age": str(45 + 3 * index), "site": "AC"[index % 2]}))
    return past, study, others


def by_key(table: pd.DataFrame, value: str) -> pd.Series:
    keys = [name for name in ("patient", "endpoint", "horizon_days") if name in table]
    return pd.Series(table.set_index(keys)[value], dtype=float).sort_index()


def of(found: list[tuple[pd.DataFrame, pd.DataFrame]], model: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    return next(tables for tables in found if set(tables[0].model) == {model})


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_model_is_judged_in_one_form_and_the_run_is_not_written_to(asked):
    past, study, others = asked
    before = content(past.output)
    found, notes = evaluated_models.tables(TrainedRun(past.output, past), study, others, CONSOLE)
    assert content(past.output) == before
    assert [scores.model.iloc[0] for scores, _ in found] == ["vit", "deep", FUSED, "clinical", "site"]
    made = predictions.load(past.output / files.PREDICTIONS)
    for scores, survival in found:
        assert list(scores) == predictions.COLUMNS
        assert list(survival) == predictions.SURVIVAL_COLUMNS
        for name, rows in scores.groupby("endpoint"):
            assert sorted(rows.patient) == sorted(p.id for p in others)
            own = made.loc[(made.model == scores.model.iloc[0]) & (made.endpoint == name)]
            thresholds = own.groupby("fold").threshold.first()
            np.testing.assert_allclose(rows.threshold.astype(float), thresholds.mean())
    assert notes["shuffled"] == evaluated_models.NO_LEAK
    assert "deep" not in notes


def test_a_comparator_says_the_mean_over_folds_of_the_mean_over_seeds(asked):
    past, study, others = asked
    found, _ = evaluated_models.tables(TrainedRun(past.output, past), study, others, CONSOLE)
    blind = [without_labels(p) for p in others]
    one = networks(study)["deep"].model_copy(update={"train": networks(study)["deep"].train.model_copy(update={"seeds": 1})})
    homes = [comparator_folder(past.output, "deep") / fold / seed for fold in ("fold-1", "fold-2") for seed in ("", "seed-2")]
    every = [by_key(Neural.fitted(one, home).predict(blind)[0], "score") for home in homes]
    pd.testing.assert_series_equal(by_key(of(found, "deep")[0], "score"), sum(every) / 4, check_dtype=False)


def test_late_fusion_and_controls_say_what_those_of_the_run_would_have_said_of_these_patients(asked, tmp_path):
    """Here both cohorts lie in one folder and one table, under names of their own, so that nothing has to be handed over."""
    past, study, others = asked
    inside = run_cohort.included(past, past.output)
    together = past.model_copy(update={"prepared": tmp_path / "together"})
    shutil.copytree(past.prepared, together.prepared)
    renamed = [replace(p, id=f"x{p.id}") for p in others]
    for old, new in zip(others, renamed, strict=True):
        shutil.copytree(study.prepared / old.id, together.prepared / new.id)
    ages = clinical_table([*inside, *renamed], ["age"])
    split = folds.load(past.output / files.FOLDS, inside)[0]
    said: dict[str, list[tuple[pd.DataFrame, pd.DataFrame]]] = {FUSED: [], "clinical": []}
    for fold, ids in enumerate(split):
        train, val, _ = parts(inside, ids, past, fold_seed(past.seed, 0, fold))
        own = networks(together)["vit"]
        for name, predictor in (
            (FUSED, LateFusion(Neural.fitted(own, files.fold_folder(past.output, 0, fold)), ages, tmp_path)),
            ("clinical", Tabular(ages, past.endpoints)),
        ):
            predictor.fit(train, val)
            said[name].append(predictor.predict([without_labels(p) for p in renamed]))
    found, notes = evaluated_models.tables(TrainedRun(past.output, past), study, others, CONSOLE)
    for name, folds_said in said.items():
        for which, value in enumerate(("score", "survival")):
            each = pd.concat([by_key(tables[which], value) for tables in folds_said], axis=1)
            mine = of(found, name)[which].assign(patient=lambda table: "x" + table.patient)
            pd.testing.assert_series_equal(by_key(mine, value), pd.Series(each.mean(axis=1)).sort_index(), check_names=False)
    equal = late_fusion.MIN_VALIDATION_PATIENTS == 10
    assert (FUSED in notes) == equal
    assert ("equal weights for mgmt" in notes.get(FUSED, "")) == equal


def test_a_run_whose_late_fusion_was_weighed_otherwise_than_its_patients_say_is_refused(asked, tmp_path):
    past, study, others = asked
    shutil.copytree(past.output, tmp_path / "run")
    (tmp_path / "run" / files.COMPARATORS / FUSED / "fold-1" / files.FUSION).write_text('{"mgmt": "other"}')
    with pytest.raises(IntegrityError, match="fitted again"):
        evaluated_models.tables(TrainedRun(tmp_path / "run", past), study, others, CONSOLE)


def test_a_model_whose_files_are_gone_is_noted_with_its_reason_and_the_others_are_judged(asked, tmp_path):
    past, study, others = asked
    run = tmp_path / "run"
    shutil.copytree(past.output, run)
    (comparator_folder(run, "deep") / "fold-2" / "seed-2" / files.WEIGHTS).unlink()
    found, notes = evaluated_models.tables(TrainedRun(run, past), study, others, CONSOLE)
    assert [scores.model.iloc[0] for scores, _ in found] == ["vit", FUSED, "clinical", "site"]
    assert notes["deep"] == "not judged here: the weights of fold-2 no longer exist"
    for fold in ("fold-1", "fold-2"):
        (run / fold / files.WEIGHTS).unlink()
    found, notes = evaluated_models.tables(TrainedRun(run, past), study, others, CONSOLE)
    assert [scores.model.iloc[0] for scores, _ in found] == ["clinical", "site"]
    assert notes["vit"] == notes[FUSED] == "not judged here: the weights of fold-1, fold-2 no longer exist"


def test_without_the_runs_own_prepared_patients_late_fusion_is_noted(asked, tmp_path):
    past, study, others = asked
    elsewhere = past.model_copy(update={"prepared": tmp_path / "nowhere"})
    found, notes = evaluated_models.tables(TrainedRun(past.output, elsewhere), study, others, CONSOLE)
    assert [scores.model.iloc[0] for scores, _ in found] == ["vit", "deep", "clinical", "site"]
    assert notes[FUSED].startswith("not made: the prepared patient p00")


def test_a_marker_that_is_an_endpoint_of_one_cohort_and_a_column_of_the_other_is_the_same_covariate(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / files.NOTES).write_text('{"clinical_columns": "age, mgmt"}')
    study = make_tiny(tmp_path)
    trained = TrainedRun(run, study)
    ours = [replace(p, clinical={"age": "60"}) for p in cohort.read(study.cohort, study.endpoints)]
    theirs = [
        replace(p, clinical={"age": "60", "mgmt": "" if np.isnan(p.labels["mgmt"]) else f"{p.labels['mgmt']:.0f}"}, labels={})
        for p in ours
    ]
    pd.testing.assert_frame_equal(evaluated_models.clinical(trained, ours), evaluated_models.clinical(trained, theirs))
    with pytest.raises(UsageError, match="the cohort table has no column mgmt"):
        evaluated_models.clinical(trained, [replace(p, labels={}) for p in ours])


def test_the_site_is_asked_only_where_it_could_tell_patients_apart(asked):
    past, study, others = asked
    at = [replace(p, clinical=p.clinical | {"site": "A"}) for p in others]
    with pytest.raises(UsageError, match="all patients here are of one site"):
        evaluated_models.control("site", TrainedRun(past.output, past), study, at)
    strangers = [replace(p, clinical=p.clinical | {"site": "C"}) for p in others]
    with pytest.raises(UsageError, match="no patient here is of a site that the run was trained on"):
        evaluated_models.control("site", TrainedRun(past.output, past), study, strangers)
    scores, _ = evaluated_models.control("site", TrainedRun(past.output, past), study, others)
    assert scores.assign(score=scores.score.astype(float).round(9)).groupby("endpoint").score.nunique().tolist() == [2, 2]


def test_a_column_that_one_cell_loses_in_another_cohort_is_named(asked):
    past, study, others = asked
    spoiled = [replace(p, clinical=p.clinical | {"age": ">89" if i == 0 else p.clinical["age"]}) for i, p in enumerate(others)]
    with pytest.raises(UsageError, match=r"have another type \(numbers or words\) in this cohort: age"):
        evaluated_models.covariates("clinical", TrainedRun(past.output, past), study, spoiled)


def test_columns_that_the_other_cohort_lacks_are_named_as_missing(asked, monkeypatch):
    past, study, others = asked
    run = TrainedRun(past.output, past)
    names = ["tumour_ml", *(f"tumour_t1_p{n}" for n in range(6))]

    def table(name, run, of, patients):
        return pd.DataFrame({column: [1.0] for column in ("brain_ml", *(names if of is run.study else ()))})

    monkeypatch.setattr(evaluated_models, "covariate_table", table)
    said = "this cohort lacks columns of the run's patients: tumour_ml, .*_p3 and 2 more; tumour columns need tumour masks"
    with pytest.raises(UsageError, match=said):
        evaluated_models.covariates("volume", run, study, others)
