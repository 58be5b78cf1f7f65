"""Graphs of a run's networks compute in another runtime what the networks compute."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from whole_road import mri_vit

from mri_vit import load_run, load_tokens, read_cohort, rollout
from mri_vit.data.store import all_tokens
from mri_vit.finished.export import onnx_files
from mri_vit.model import network
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.recipe import Model
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.sections import Grid

pytestmark = [
    pytest.mark.long(30),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),  # of the exporter
]


@pytest.fixture(scope="module")
def graphs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("graphs") / "onnx"
    assert mri_vit("export", "onnx", finished / "run", "-o", home) == 0
    return home


def test_scores_of_patients_and_their_rollout_are_those_of_the_run(finished: Path, graphs: Path, tmp_path: Path, in_this_process):
    run = load_run(finished / "run")
    patients = read_cohort(finished / "others.csv")[:2]
    expected = run.predict(patients, tmp_path / "prepared")
    files = sorted(graphs.glob("*.onnx"))
    assert [file.name for file in files] == ["fold-1.onnx", "fold-2.onnx"]
    rows = []
    for patient in patients:
        patches, position = all_tokens(load_tokens(tmp_path / "prepared" / patient.id / "tokens.safetensors"), run.study.model)
        given = {"patches": patches.float().numpy(), "position": position.numpy()}
        for file in files:
            session = onnxruntime.InferenceSession(file)
            names = [output.name for output in session.get_outputs()]
            found = dict(zip(names, map(np.asarray, session.run(None, given)), strict=True))
            rows += [(patient.id, name, found[name].item()) for name in ("mgmt", "os")]
            net = network.load(finished / "run" / file.stem / "best.safetensors").eval()
            row = rollout(net.encoder, patches, position).numpy()
            assert found["rollout"].shape == row.shape == (1, patches.shape[1] + 1)
            assert np.abs(found["rollout"] - row).max() < 1e-4 * row.max()
            assert found["rollout"].sum() == pytest.approx(1, abs=1e-5)
    mean = pd.DataFrame(rows, columns=pd.Index(["patient", "endpoint", "score"])).groupby(["patient", "endpoint"]).score.mean()
    both = expected.set_index(["patient", "endpoint"]).score.to_frame().join(mean, rsuffix="_of_graphs")
    assert len(both) == 4
    assert np.abs(both.score - both.score_of_graphs).max() < 1e-4


KINDS = (
    Head(Endpoint(name="mgmt", kind="binary"), "binary", positive_weight=2.0),
    Head(Endpoint(name="os", kind="survival", time="t", event="e"), "hazard", cuts_days=(105.0, 210.0, 315.0)),
    Head(Endpoint(name="ki67", kind="continuous", log=True), "number", centre=2.0, spread=0.5),
)


@pytest.mark.parametrize(
    "settings", [{"stem": 12}, {"conv_stem": 4, "pool": "mean"}, {"conv_stem": 4, "texture": 5, "pool": "max"}]
)
def test_every_stem_readout_and_kind_of_head_is_computed_alike_on_any_number_of_tokens(settings: dict, tmp_path: Path):
    torch.manual_seed(0)
    model = Model(dim=24, depth=2, heads=2, mlp=32, zero_head=False, **settings)
    net = Network(model, Grid(edge=32, spacing_mm=7.0, patch=4), list(KINDS)).eval()
    onnx_files.write(net, tmp_path / "net.onnx")
    assert onnx_files.difference(net, tmp_path / "net.onnx") < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    assert [value.name for value in session.get_outputs()] == ["mgmt", "os", "ki67", "rollout"]
    assert isinstance(session.get_inputs()[0].shape[1], str), "the number of tokens is free"
    texts = {prop.key: prop.value for prop in onnx.load(tmp_path / "net.onnx").metadata_props}
    assert "not a medical device" in texts["notice"]
    assert "pickle" not in str(texts)
    with torch.no_grad():
        net.head["mgmt"].weight *= 2  # type: ignore[operator]
    with pytest.raises(ArithmeticError, match=r"net\.onnx: mgmt of 7 tokens differs"):
        onnx_files.difference(net, tmp_path / "net.onnx")


def test_networks_without_a_rollout_and_foreign_folders_are_refused(finished: Path, graphs: Path, tmp_path: Path, capsys):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    assert mri_vit("export", "onnx", finished / "run", "-o", foreign) == 2
    assert "notes.txt, which is no file of an ONNX export" in capsys.readouterr().err
    (foreign / "notes.txt").rename(foreign / "fold-1.onnx")
    assert mri_vit("export", "onnx", finished / "run", "-o", foreign) == 2
    assert (foreign / "fold-1.onnx").read_text() == "mine"
    run = shutil.copytree(finished / "run", tmp_path / "run", ignore=shutil.ignore_patterns("report"))
    text = (run / "study.toml").read_text()
    (run / "study.toml").write_text(text.replace("[model]\n", '[model]\narchitecture = "densenet121"\n', 1))
    code = mri_vit("export", "onnx", run, "-o", tmp_path / "none")
    assert code == 2
    assert not (tmp_path / "none").exists()
