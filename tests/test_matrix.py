"""Every option through every verb: pairs of readout, stem, tokens, pretraining, survival head and map methods.

A study is taken from the documentation itself, and made small by `whole_road.SHRUNKEN`; what is run is what a user runs.
"""

from __future__ import annotations

import json
import math
import re
from itertools import combinations, product
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
from whole_road import SHRUNKEN, every_verb, hurry, mri_vit, parted, words

from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.settings import file as study_file
from mri_vit.settings.sections import MapMethod

PAGE = Path(__file__).parents[1] / "docs/howto/own_cohort.md"
READOUT = {"cls": {}, "mean": {}, "max": {}}
STEM = {
    "linear": {"model.conv_stem": 0},
    "two layers": {"model.conv_stem": 0, "model.stem": 8},
    "convolutions": {"model.conv_stem": 4},
}
PRETRAINING = {"none": {}, "mae": {}, "dino": {}}
TOKENS = {"all": {}, "foreground": {}}
SURVIVAL = {"hazard": {}, "cox": {}}
MAPS: dict[str, tuple[MapMethod, ...]] = {  # in two groups, each of which meets every value of the other options
    "a": ("rollout", "gradient_attention", "integrated_gradients"),
    "b": ("cls_attention", "gradient_rollout", "occlusion"),
}
ROWS = (  # each pair of two options' values stands in a row; the first three columns are a Latin square
    ("cls", "linear", "mae", "all", "cox", "a"),
    ("cls", "two layers", "none", "all", "cox", "a"),
    ("cls", "convolutions", "dino", "foreground", "hazard", "b"),
    ("mean", "linear", "none", "foreground", "hazard", "b"),
    ("mean", "two layers", "dino", "all", "cox", "b"),
    ("mean", "convolutions", "mae", "foreground", "cox", "a"),
    ("max", "linear", "dino", "foreground", "cox", "a"),
    ("max", "two layers", "mae", "foreground", "hazard", "b"),
    ("max", "convolutions", "none", "all", "hazard", "a"),
)
QUICK = (ROWS[0], ROWS[4], ROWS[7])  # with the documented study, every value of every option

pytestmark = [
    pytest.mark.long(75),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


def recommended() -> str:
    """The documented study file."""
    _, name, after = PAGE.read_text().partition('name = "mine"')
    end = re.search(r"\n {0,3}\S", after)  # where indentation ends
    assert end
    return name + after[: end.start()]


@pytest.fixture(scope="module")
def prepared(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the documented study, two cohorts, and all their patients prepared on the small grid."""
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "study.toml").write_text(recommended())
    parted(scans, folder)
    options = {**SHRUNKEN, "cohort": scans, "output": folder / "everybody"}
    assert mri_vit("prepare", folder / "study.toml", *words(options)) == 0
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def test_every_pair_of_options_stands_in_a_row():
    values = [list(options) for options in (READOUT, STEM, PRETRAINING, TOKENS, SURVIVAL, MAPS)]
    assert sorted(method for group in MAPS.values() for method in group) == sorted(get_args(MapMethod))
    for a, b in combinations(range(len(values)), 2):
        assert {(row[a], row[b]) for row in ROWS} == set(product(values[a], values[b]))


def test_every_value_stands_in_a_row_that_is_run_by_default(tmp_path: Path):
    (tmp_path / "study.toml").write_text(recommended())
    study = study_file.load(tmp_path / "study.toml")
    own = {study.model.pool, study.pretrain.method, study.model.tokens, study.model.survival}
    assert study.model.conv_stem
    values = {value for row in QUICK for value in row} | own | {"convolutions"}
    assert values == {value for row in ROWS for value in row}


@pytest.mark.parametrize(
    ("readout", "stem", "pretraining", "tokens", "survival", "maps"),
    [row if row in QUICK else pytest.param(*row, marks=pytest.mark.slow) for row in ROWS],  # 8 s each
)
@pytest.mark.usefixtures("in_this_process", "quick")
def test_a_study_of_any_two_options_goes_through_every_verb(
    prepared: Path, tmp_path: Path, readout: str, stem: str, pretraining: str, tokens: str, survival: str, maps: str
):
    overrides = {
        **SHRUNKEN,
        **STEM[stem],
        "controls.models": [],  # no option changes them; the documented study has all three
        "explain.scored": 1,
        "model.pool": readout,
        "model.tokens": tokens,
        "model.survival": survival,
        "pretrain.method": pretraining,
        "explain.methods": json.dumps(MAPS[maps]),
    }
    skip = () if pretraining != "none" else ("pretrain",)
    every_verb(prepared / "study.toml", overrides, prepared / "others.csv", tmp_path / "run", prepared / "prepared", skip)
    assert_whole(tmp_path / "run", MAPS[maps], scored=1)


@pytest.mark.usefixtures("in_this_process", "quick")
def test_the_readmes_own_study_goes_through_every_verb(prepared: Path, tmp_path: Path):
    every_verb(prepared / "study.toml", SHRUNKEN, prepared / "others.csv", tmp_path / "run", prepared / "prepared", ("pretrain",))
    assert_whole(tmp_path / "run", ("rollout", "cls_attention", "gradient_attention"), scored=2)


def assert_whole(run: Path, methods: tuple[MapMethod, ...], scored: int) -> None:
    """Every verb left what it promises, and no number is missing that is defined."""
    for table in (run / "predictions.csv", Path(f"{run}-new") / "predictions.csv", Path(f"{run}-external") / "predictions.csv"):
        found = pd.read_csv(table)
        assert len(found)
        assert set(found.endpoint) == {"mgmt", "os"}
        assert found.score.map(math.isfinite).all()
    (maps,) = (run / "maps").glob("*/map.json")
    listed = json.loads(maps.read_text())["maps"]
    assert {one["method"] for one in listed} == set(methods)
    assert len(listed) == sum(2 if METHODS[method].per_endpoint else 1 for method in methods)
    scores = [json.loads(file.read_text()) for file in (run / "scores").glob("*.json")]
    assert len(scores) == scored
    for score in scores:
        assert {row["method"] for row in score["rows"]} == set(methods)
        assert all(value is not None for row in score["curves"] for value in row["value"])
    metrics = json.loads((run / "report" / "metrics.json").read_text())
    assert set(metrics["endpoints"]) == {"mgmt", "os"}
    for page in (run / "report", Path(f"{run}-external") / "report", run / "inspect"):
        assert (page / "index.html").stat().st_size > 10_000
