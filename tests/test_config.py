"""The study file: known keys, sensible values, and errors that say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from mri_vit import config
from mri_vit.errors import UsageError

PLAIN = 'name = "x"\ncohort = "in/cohort.csv"\nprepared = "prepared"\noutput = "runs/x"\n'


def study(folder: Path, more: str = "") -> Path:
    (folder / "study.toml").write_text(PLAIN + more)
    return folder / "study.toml"


def test_paths_are_relative_to_the_study_file_and_defaults_are_the_designs(tmp_path):
    loaded = config.load(study(tmp_path))
    assert loaded.cohort == tmp_path / "in" / "cohort.csv"
    assert (loaded.grid.edge, loaded.grid.patch, loaded.grid.places) == (224, 16, 2744)
    assert loaded.model.shape == (768, 12, 12, 3072)
    assert loaded.model.tokens == "all"
    assert [e.name for e in loaded.endpoints] == ["mgmt", "pten", "tertp", "os"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("sead = 3\n", "line 5: unknown key 'sead'; the nearest known one is 'seed'"),
        ("[train]\nepoch = 3\n", r"line 6: unknown key 'train\.epoch'; the nearest known one is 'epochs'"),
        ('[[endpoints]]\nname = "a"\nkid = "binary"\n', "unknown key.*'kind'"),
        ('seed = "many"\n', r"line 5: seed: .* \(found 'many'\)"),
        ("[grid]\nedge = 224\npatch = 4\n", "makes 175616 places; at most 32768"),
        ("[grid]\nedge = 225\n", "edge 225 is not a multiple of patch 16"),
        ("[model]\nheads = 7\n", "dim 768 is not a multiple of heads 7"),
        ('[[endpoints]]\nname = "os"\nkind = "survival"\n', '"time" and "event" name the columns'),
        ('[prepare]\nbrain = "command"\n', "brain_command goes with"),
        ("[explain]\nstart = 12\n", "explain.start 12 leaves no block of the encoder's 12"),
        ('[explain]\nmethods = ["rollout", "rollout"]\n', "methods must be one or more that differ"),
        ("[explain]\nmethods = []\n", "patients = 0 makes no maps"),
        ("seed = \n", "not a TOML file"),
    ],
)
def test_a_wrong_study_file_is_refused_with_line_and_remedy(tmp_path, more: str, message: str):
    with pytest.raises(UsageError, match=message):
        config.load(study(tmp_path, more))


def test_a_missing_study_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.toml: no such study file"):
        config.load(tmp_path / "nothing.toml")


def test_the_command_line_overrides_any_key(tmp_path):
    loaded = config.load(study(tmp_path), {"train.epochs": "5", "model.tokens": "foreground", "seed": "9"})
    assert (loaded.train.epochs, loaded.model.tokens, loaded.seed) == (5, "foreground", 9)
    with pytest.raises(UsageError, match="unknown key"):
        config.load(study(tmp_path), {"train.epoch": "5"})


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[1] / "configs").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_study_loads_and_survives_being_written(tmp_path, file: Path):
    loaded = config.load(file)
    (tmp_path / "again.toml").write_text(config.dumps(loaded))
    assert config.load(tmp_path / "again.toml") == loaded
