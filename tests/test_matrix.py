"""Every option through every verb: pairs of readout, stem, tokens, pretraining and survival head, each with all map methods.

A study is taken from the README itself, and made small by `whole_road.SHRUNKEN`; what is run is what a user runs.
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
from matplotlib.figure import Figure
from whole_road import SHRUNKEN, every_verb, mri_vit, parted, words

from mri_vit import look
from mri_vit.config import MapMethod
from mri_vit.explain.names import METHODS

README = Path(__file__).parents[1] / "README.md"
READOUT = {"cls": {}, "mean": {}, "max": {}}
STEM = {
    "linear": {"model.conv_stem": 0},
    "two layers": {"model.conv_stem": 0, "model.stem": 8},
    "convolutions": {"model.conv_stem": 4},
}
PRETRAINING = {"none": {}, "mae": {}, "dino": {}}
TOKENS = {"all": {}, "foreground": {}}
SURVIVAL = {"hazard": {}, "cox": {}}
ROWS = (  # each pair of two options' values stands in a row; the first three columns are a Latin square
    ("cls", "linear", "none", "all", "hazard"),
    ("cls", "two layers", "mae", "all", "hazard"),
    ("cls", "convolutions", "dino", "foreground", "cox"),
    ("mean", "linear", "mae", "foreground", "cox"),
    ("mean", "two layers", "dino", "all", "hazard"),
    ("mean", "convolutions", "none", "foreground", "hazard"),
    ("max", "linear", "dino", "foreground", "hazard"),
    ("max", "two layers", "none", "foreground", "cox"),
    ("max", "convolutions", "mae", "all", "cox"),
)

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


@pytest.fixture(scope="module")
def prepared(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's study, two cohorts, and all their patients prepared on the small grid."""
    folder = tmp_path_factory.mktemp("matrix")
    _, name, after = README.read_text().partition('name = "mine"')
    end = re.search(r"\n {0,7}\S", after)  # where indentation ends
    assert end
    (folder / "study.toml").write_text(name + after[: end.start()])
    parted(scans, folder)
    options = {**SHRUNKEN, "cohort": scans, "output": folder / "everybody"}
    assert mri_vit("prepare", folder / "study.toml", *words(options)) == 0
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not put into pixels, which no option changes and which is most of a report's time."""
    one = {"svg": look.to_bytes(Figure(), "svg"), "png": look.to_bytes(Figure(), "png")}
    monkeypatch.setattr(look, "to_bytes", lambda figure, kind: one[kind])


def test_every_pair_of_options_stands_in_a_row():
    values = [list(options) for options in (READOUT, STEM, PRETRAINING, TOKENS, SURVIVAL)]
    for a, b in combinations(range(len(values)), 2):
        assert {(row[a], row[b]) for row in ROWS} == set(product(values[a], values[b]))


@pytest.mark.parametrize(("readout", "stem", "pretraining", "tokens", "survival"), ROWS)
@pytest.mark.usefixtures("in_this_process", "undrawn")
def test_a_study_of_any_two_options_goes_through_every_verb(
    prepared: Path, tmp_path: Path, readout: str, stem: str, pretraining: str, tokens: str, survival: str
):
    overrides = {
        **SHRUNKEN,
        **STEM[stem],
        "model.pool": readout,
        "model.tokens": tokens,
        "model.survival": survival,
        "pretrain.method": pretraining,
        "explain.methods": json.dumps(get_args(MapMethod)),
    }
    skip = () if pretraining != "none" else ("pretrain",)
    every_verb(prepared / "study.toml", overrides, prepared / "others.csv", tmp_path / "run", prepared / "prepared", skip)
    assert_whole(tmp_path / "run", get_args(MapMethod))


@pytest.mark.usefixtures("in_this_process")
def test_the_readmes_own_study_goes_through_every_verb(prepared: Path, tmp_path: Path):
    every_verb(prepared / "study.toml", SHRUNKEN, prepared / "others.csv", tmp_path / "run", prepared / "prepared", ("pretrain",))
    assert_whole(tmp_path / "run", ("rollout", "cls_attention", "gradient_attention"))


def assert_whole(run: Path, methods: tuple[MapMethod, ...]) -> None:
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
    assert len(scores) == SHRUNKEN["explain.scored"]
    for score in scores:
        assert {row["method"] for row in score["rows"]} == set(methods)
        assert all(value is not None for row in score["curves"] for value in row["value"])
    metrics = json.loads((run / "report" / "metrics.json").read_text())
    assert set(metrics["endpoints"]) == {"mgmt", "os"}
    for page in (run / "report", Path(f"{run}-external") / "report", run / "inspect"):
        assert (page / "index.html").stat().st_size > 10_000
