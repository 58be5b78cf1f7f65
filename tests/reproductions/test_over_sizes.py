"""A study over sizes: halves, as many steps at each, and what its folds have left, told in words."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from reproductions import over_sizes

from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study


def test_sizes_are_halved_while_enough_are_left():
    assert over_sizes.halved(577, 24) == [577, 288, 144, 72, 36]
    assert over_sizes.halved(24, 24) == [24]
    assert over_sizes.halved(23, 24) == []


def test_a_quarter_of_the_patients_is_seen_four_times_as_often_and_looked_at_as_often(tiny: Study):
    own = Comparator(name="cnn", model={"architecture": "resnet10"}, train={"epochs": 5})
    whole = tiny.model_copy(update={"comparators": (own,)})
    quarter = over_sizes.as_long(whole, 4)
    for name in ("epochs", "val_every"):
        assert getattr(quarter.train, name) == 4 * getattr(whole.train, name)
        assert getattr(quarter.of(quarter.comparators[0]).train, name) == 4 * getattr(whole.of(own).train, name)
    assert over_sizes.as_long(whole, 1) == whole


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two folds of a network that was still learning in one of them, and one fold of a comparator that was not."""
    losses = {"fold-1": [0.9, 0.7, 0.8], "fold-2": [0.9, 0.8, 0.7], "rivals/cnn/fold-1": [0.6, 0.8, 0.9]}
    for name, val in losses.items():
        (tmp_path / name).mkdir(parents=True)
        pd.DataFrame({"epoch": [1, 2, 3], "tune": val}).to_csv(tmp_path / name / "history.csv", index=False)
        (tmp_path / name / "cost.json").write_text(json.dumps({"parameters": 7, "training_seconds": 2.0}))
    return tmp_path


def test_the_folds_whose_best_look_was_the_last_are_counted(run: Path):
    said = over_sizes.endings([run], {"vit": "ViT", "cnn": "CNN", "absent": "nobody"})
    assert said.endswith("in 1 of 2 folds of ViT, 0 of 1 folds of CNN.")


def test_weights_are_counted_once_and_seconds_of_all_folds_are_added(run: Path):
    spent = over_sizes.spent(over_sizes.costs(run, ["vit", "cnn", "absent"])).set_index("model")
    assert spent.loc["vit"].tolist() == [7, 4.0]
    assert spent.loc["cnn"].tolist() == [7, 2.0]
