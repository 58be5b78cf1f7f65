"""Networks of several seeds: each is what a training of its seed alone gives, and what is predicted is their mean."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from mri_vit.crossval import folds
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import cohort, predictions
from mri_vit.data.cohort import without_labels
from mri_vit.finished.network_outputs import mean_of_folds
from mri_vit.predictors import network as predictors
from mri_vit.predictors.network import Neural, network_seed
from mri_vit.run import files
from mri_vit.settings.schema import Study
from mri_vit.train import checkpoint
from mri_vit.train.supervised import fit

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

SEED = 11


def of(tiny: Study, seeds: int, **model: str) -> Study:
    """The tiny study with so many networks per fold, each trained for an epoch."""
    train = tiny.train.model_copy(update={"seeds": seeds, "epochs": 1})
    return tiny.model_copy(update={"train": train, "model": tiny.model.model_copy(update=model)})


def fitted(study: Study, folder: Path) -> Neural:
    patients = cohort.read(study.cohort, study.endpoints)
    predictor = Neural(study, folder, SEED)
    predictor.fit(patients[:12], patients[12:16])
    return predictor


def by_key(table: pd.DataFrame, value: str) -> pd.Series:
    keyed = table.set_index([name for name in table if name != value])
    return pd.Series(keyed[value], dtype=float)


@pytest.mark.parametrize("survival", ["hazard", "cox"])
def test_scores_and_survival_are_the_means_of_the_seeds_own(tiny, tmp_path, survival):
    study = of(tiny, 2, survival=survival)
    asked = [without_labels(p) for p in cohort.read(study.cohort, study.endpoints)[16:]]
    mean = fitted(study, tmp_path / "fold").predict(asked)
    alone = [Neural.fitted(of(tiny, 1), tmp_path / "fold" / name).predict(asked) for name in ("", "seed-2")]
    for which, value in enumerate(("score", "survival")):
        one, other = (by_key(tables[which], value) for tables in alone)
        assert (one != other).any()
        pd.testing.assert_series_equal(by_key(mean[which], value), (one + other) / 2)
    again = Neural.fitted(study, tmp_path / "fold").predict(asked)
    pd.testing.assert_frame_equal(again[0], mean[0])


def test_a_seeds_network_is_what_a_training_of_that_seed_gives_and_the_first_is_the_only_one_of_a_study_with_one(tiny, tmp_path):
    fitted(of(tiny, 2), tmp_path / "two")
    fitted(of(tiny, 1), tmp_path / "one")
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    fit(patients[:12], patients[12:16], of(tiny, 1), tmp_path / "second", network_seed(SEED, 1))
    assert network_seed(SEED, 0) == SEED != network_seed(SEED, 1)
    assert not (tmp_path / "one" / "seed-2").exists()
    for folder, alone in ((tmp_path / "two", "one"), (tmp_path / "two" / "seed-2", "second")):
        assert (folder / files.WEIGHTS).read_bytes() == (tmp_path / alone / files.WEIGHTS).read_bytes()
    costs = [json.loads((tmp_path / name / files.COST).read_text()) for name in ("one", "two")]
    assert [costs[1][figure] / costs[0][figure] for figure in ("parameters", "flops")] == [2, 2]


def test_a_stopped_training_goes_on_with_the_seed_it_was_in(tiny, tmp_path, monkeypatch):
    study, trained = of(tiny, 3), []

    def stopping(*arguments):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(arguments[3].name)
        return fit(*arguments)

    whole = fitted(study, tmp_path / "whole")
    monkeypatch.setattr(predictors, "fit", stopping)
    with pytest.raises(KeyboardInterrupt):
        fitted(study, tmp_path / "stopped")
    assert trained == ["stopped", "seed-2"]
    trained.clear()
    again = fitted(study, tmp_path / "stopped")
    assert trained == ["seed-3"]
    asked = [without_labels(p) for p in cohort.read(study.cohort, study.endpoints)[16:]]
    pd.testing.assert_frame_equal(again.predict(asked)[0], whole.predict(asked)[0])
    for name in ("best.safetensors", "seed-2/best.safetensors", "seed-3/best.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_other_patients_are_predicted_by_the_mean_over_folds_of_the_mean_over_seeds(tiny):
    study = of(tiny, 2)
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    cross_validate(patients, splits, study, study.output, "vit", lambda folder, seed: Neural(study, folder, seed))
    asked = [without_labels(p) for p in patients[:3]]
    found, _ = mean_of_folds(study.output, study, asked, lambda done, of: None)
    every = [
        by_key(Neural.fitted(of(tiny, 1), study.output / fold / seed).predict(asked)[0], "score")
        for fold in ("fold-1", "fold-2")
        for seed in ("", "seed-2")
    ]
    assert set(found.models) == {2}  # folds
    expected = pd.Series(pd.concat(every, axis=1).mean(axis=1)).droplevel("class")  # which no endpoint here has
    pd.testing.assert_series_equal(by_key(found.drop(columns="models"), "score"), expected, check_names=False)


def test_a_fold_writes_each_seeds_scores_and_the_hashes_of_all_weights(tiny, monkeypatch):
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    study = of(tiny, 2)
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    table, _ = cross_validate(patients, splits, study, study.output, "vit", lambda folder, seed: Neural(study, folder, seed))
    for fold, folder in enumerate((study.output / "fold-1", study.output / "fold-2")):
        seeds = predictions.load_seeds(folder / files.SEEDS)
        assert list(seeds.columns) == predictions.SEED_COLUMNS
        mean = seeds.groupby(["endpoint", "patient"]).score.mean()
        scores = table.loc[table.fold == fold].set_index(["endpoint", "patient"]).score
        pd.testing.assert_series_equal(mean.sort_index(), scores.sort_index(), rtol=1e-6)
        hashed = json.loads((folder / files.HASHES).read_text())["files"]
        assert set(hashed) == {"best.safetensors", "seed-2/best.safetensors", "seeds.csv", "survival.csv", "predictions.csv"}
        assert not list(folder.rglob("state.safetensors"))
