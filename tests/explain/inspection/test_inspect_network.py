"""The verb `inspect` on runs with comparators: whose page it is, what stands beside it, and what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from mri_vit.crossval.comparators import networks
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.explain.inspection import costs, inspect_network, learned
from mri_vit.explain.inspection.request import Request
from mri_vit.model import network
from mri_vit.run import files
from mri_vit.settings.schema import Comparator, Study
from mri_vit.train.supervised import untrained

pytestmark = [
    pytest.mark.long(19),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]
CNN = Comparator(name="cnn", model={"architecture": "resnet10"})
SMALLER = Comparator(name="smaller", model={"dim": 8, "depth": 1})
STEM = Comparator(name="stem-max", model={"depth": 0, "pool": "max"})
UNTRAINED = Comparator(name="later", model={"architecture": "resnet10"})


@pytest.fixture
def run(tiny, monkeypatch) -> tuple[Study, Split]:
    """A run whose first fold has three networks as they start, and whose comparator `later` has none yet."""
    monkeypatch.setattr(learned, "LANDSCAPE_POINTS", 3)
    monkeypatch.setattr(learned, "ENCODER_UNITS", 1)
    monkeypatch.setattr(
        inspect_network.prepared, "refuse_changed_patients", lambda *_: None
    )  # nothing was trained: there are no hashes
    study = tiny.model_copy(update={"comparators": (CNN, SMALLER, UNTRAINED, STEM)})
    patients = cohort.read(study.cohort, study.endpoints)
    split = [[p.id for p in patients[:12]], [p.id for p in patients[12:]]]
    for name in ("vit", "cnn", "smaller"):
        home = inspect_network.comparator_folder(study.output, name) / "fold-1"
        home.mkdir(parents=True)
        network.save(untrained(patients[12:], networks(study)[name], 0), home / files.WEIGHTS)
    return study, split


def inspected(run: tuple[Study, Split], wanted: Request, output: Path | None = None) -> Path:
    study, split = run
    patients = cohort.read(study.cohort, study.endpoints)
    return inspect_network.run(study, patients, split, study.output, wanted, output, Console(quiet=True))


def test_convolutional_comparators_that_are_trained_stand_beside_the_studys_own_network(run):
    page = inspected(run, Request())
    assert page == run[0].output / "inspect" / "index.html"
    html = page.read_text(encoding="utf-8")
    assert re.findall('<p class="stage">(vit|cnn|smaller|later)</p>', html) == ["vit", "cnn"]


def test_a_comparators_page_lies_beside_its_folds(run):
    page = inspected(run, Request("cnn"))
    assert page == run[0].output / "rivals" / "cnn" / "inspect" / "index.html"
    html = page.read_text(encoding="utf-8")
    assert re.findall('<section id="([a-z]+)">', html) == ["features", "landscape", "limits"]
    assert "tiny, fold 1, cnn" in html


def test_a_comparator_that_is_a_vision_transformer_has_its_attention_shown(run, tmp_path):
    html = inspected(run, Request("smaller", layer=1, minutes=0.0), tmp_path / "out").read_text()
    assert "1 layers of 2 heads, 8 numbers per token" in html
    with pytest.raises(UsageError, match="layer 2: the network has layers 1 to 1"):
        inspected(run, Request("smaller", layer=2), tmp_path / "out")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Request("resnet"), "--model resnet: the run has vit, cnn, smaller, later, stem-max"),
        (Request("stem-max"), r"--model stem-max: it has no block whose attention could be shown \(model\.depth 0\)"),
        (Request("cnn", layer=1), "--layer: cnn is a resnet10, which has no attention of ours; leave it out"),
        (Request("cnn", position_mm=(0.0, 0.0, 0.0)), "--position: cnn is a resnet10"),
        (Request(minutes=-1.0), "--minutes -1: expected 0 or more"),
    ],
)
def test_what_a_network_has_not_is_refused(run, tmp_path, wanted: Request, message: str):
    with pytest.raises(UsageError, match=message):
        inspected(run, wanted, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_would_take_too_long_is_left_out_with_the_time_that_it_takes(run, tmp_path, monkeypatch, capsys, sketched):
    study, split = run
    patients = cohort.read(study.cohort, study.endpoints)
    slow = {"vit": costs.Pace(0.0, 12.0), "cnn": costs.Pace(0.0, 0.0)}
    monkeypatch.setattr(costs, "pace", lambda subject, _: slow[subject.name])
    inspect_network.run(study, patients, split, study.output, Request(), tmp_path / "out", Console(width=300))
    landscape = (9 + 1) * (10 + 12) * 12.0  # points and the one before training, training and test patients, seconds of each
    features = (2 * 3 * 9 + 3 * 12) * 12.0  # searches in two networks, of each the inputs of noise and its own; patients
    said = capsys.readouterr().out
    expected = f"left out: features (about {features / 60:.0f} min), loss landscape of vit (about {landscape / 60:.0f} min)"
    assert f"{expected}; --minutes {math.ceil((features + landscape) * 1.25 / 60)} shows all" in said
    html = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert 'id="features"' not in html
    assert re.findall('<p class="stage">(vit|cnn|smaller|later)</p>', html) == ["cnn"]
