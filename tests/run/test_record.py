"""Files of ours that somebody has damaged: each is named, with exit code 6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from made.run import make_run

from mri_vit.cli import exit_code
from mri_vit.crossval import folds
from mri_vit.data import tokens
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.explain import map_list
from mri_vit.model import network
from mri_vit.model.weights import image_exposed, load_encoder
from mri_vit.prepare.prepared import load_record, voxels
from mri_vit.report.pages import page_pictures
from mri_vit.report.reading import run as reports
from mri_vit.run.integrity import read_json
from mri_vit.settings.recipe import Model
from mri_vit.train import checkpoint

DAMAGED = [b"", b"\xff\xfe\x00", b"[1]", b"null", b"[" * 100_000, b'{"a": 1', b"{}"]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_json_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "patient.json").write_bytes(content)
    with pytest.raises(IntegrityError, match=r"patient\.json: .*prepare` again"):
        load_record(tmp_path)
    (tmp_path / "map.json").write_bytes(content)
    if content != b"{}":  # of an earlier layout: made anew
        with pytest.raises(IntegrityError, match=r"map\.json"):
            map_list._made(tmp_path / "map.json", 3, {})
        with pytest.raises(IntegrityError, match=r"map\.json"):
            read_json(tmp_path / "map.json")


@pytest.mark.parametrize("steps", [17, [17], [{"step": "read"}], [{"step": "read", "scans": 3}], []])
def test_a_record_of_other_things_is_named(tmp_path: Path, steps: object):
    record = {"config_sha256": "", "inputs": {}, "to_grid": {"t1ce": torch.eye(4).tolist()}, "steps": steps}
    (tmp_path / "patient.json").write_text(json.dumps(record))
    with pytest.raises(IntegrityError, match=r"patient\.json: damaged"):
        voxels(tmp_path)
    (tmp_path / "patient.json").write_text(json.dumps(record | {"to_grid": {"t1ce": 17}}))
    with pytest.raises(IntegrityError, match="a matrix that is not 4×4"):
        load_record(tmp_path)


@pytest.mark.parametrize("name", ["notes.json", "environment.json", "folds.json"])
def test_a_report_of_a_damaged_run_ends_with_6(tmp_path: Path, name: str):
    run = make_run(tmp_path / "run")
    (run / name).write_text({"folds.json": '{"repeats": 17}', "environment.json": '{"versions": 17}'}.get(name, "[17]"))
    assert exit_code.of(lambda: reports.read_run(run)) == 6


@pytest.mark.parametrize("name", ["excluded.csv", "cohort.csv", "site_probe.csv"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00\xfe,", b"a,b\n1,2\n"])
def test_a_damaged_table_of_a_run_is_named(tmp_path: Path, name: str, content: bytes):
    run = make_run(tmp_path / "run")
    (run / name).write_bytes(content)
    with pytest.raises((IntegrityError, UsageError), match=name.replace(".", r"\.")):
        reports.read_run(run)


def test_folds_without_their_hash_are_named(tmp_path: Path):
    (tmp_path / "folds.json").write_text("{}")
    with pytest.raises(IntegrityError, match=r"folds\.json: the folds or their hash"):
        folds.load(tmp_path / "folds.json", [])


def test_a_damaged_picture_is_named(tmp_path: Path):
    (tmp_path / "qc.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    with pytest.raises(IntegrityError, match=r"qc\.png: damaged picture"):
        page_pictures.shrunk([tmp_path / "qc.png"], 100, 50, 10_000)


def header_of(path: Path, **changed: str | None) -> Path:
    """The same weights under another header; None takes a key out."""
    with safetensors.safe_open(str(path), "pt") as file:
        header, weights = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    new = {key: value for key, value in (header | changed).items() if value is not None}
    safetensors.torch.save_file(weights, path, new)
    return path


@pytest.mark.parametrize("key", ["channels", "model", "grid", "heads", "norm_eps", "taught", "seen"])
@pytest.mark.parametrize("value", ["nonsense", "17", '"x"', None])
def test_a_wrong_key_in_a_weights_header_is_named(tiny, tmp_path: Path, key: str, value: str | None):
    path = tmp_path / "best.safetensors"
    network.save(network.Network(Model(dim=16, depth=1, heads=2, mlp=16), tiny.grid, []), path)
    header_of(path, **{key: value})
    if (key, value) in [("norm_eps", "17"), ("norm_eps", None), ("taught", None), ("seen", None)] + [
        (names, '"x"') for names in ("taught", "seen")
    ]:
        network.load(path)  # as good as any
        return
    with pytest.raises(IntegrityError, match=r"best\.safetensors: (damaged|found)"):
        network.load(path)
    if key == "seen":
        with pytest.raises(IntegrityError):
            image_exposed(path)


def test_an_encoder_tokens_and_a_checkpoint_of_other_things_are_named(tiny, tmp_path: Path):
    file = tmp_path / "a.safetensors"
    safetensors.torch.save_file(
        {"a": torch.zeros(1)}, file, {"schema": "mri-vit encoder 1", "channels": '["t1","t1ce","t2","flair"]'}
    )
    with pytest.raises(IntegrityError, match="damaged"):
        load_encoder(file)
    safetensors.torch.save_file(
        {"patches": torch.zeros(1), "place": torch.zeros(1)},
        file,
        {"schema": tokens.SCHEMA, "channels": '["t1","t1ce","t2","flair"]'},
    )
    with pytest.raises(IntegrityError, match="damaged"):
        tokens.load(file)
    net = torch.nn.Linear(2, 2)
    adamw = torch.optim.AdamW(net.parameters())
    for state in ("{}", '{"nonsense": 1}', "["):
        safetensors.torch.save_file({"net/a": torch.zeros(1)}, file, {"state": state})
        with pytest.raises(IntegrityError, match="damaged"):
            checkpoint.load(file, net, adamw)
