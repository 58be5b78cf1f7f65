"""A file of features says what it was read from, and one that is damaged or something else is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.features import extraction
from mri_vit.features.extraction import Features, Origin

ORIGIN = Origin(
    "w.ckpt",
    "0" * 64,
    "CC-BY-NC-4.0",
    "MONAI ViT",
    "arXiv:2010.11929",
    ("t1", "t2"),
    "concatenate",
    12,
    {"edge": 96},
    ("a",),
    ("b",),
)


def features(patients: tuple[str, ...] = ("p1", "p2")) -> Features:
    return Features(ORIGIN, patients, {"CLS": np.random.default_rng(1).normal(size=(2, 5)).astype(np.float32)})


def test_what_is_written_is_read_back(tmp_path: Path):
    written = features()
    extraction.save_features(written, tmp_path / "f.safetensors")
    found = extraction.load_features(tmp_path / "f.safetensors")
    assert (found.origin, found.patients) == (ORIGIN, ("p1", "p2"))
    np.testing.assert_array_equal(found.vectors["CLS"], written.vectors["CLS"])
    extraction.save_features(written, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "f.safetensors").read_bytes()


def test_an_encoder_is_called_by_its_architecture_and_file():
    assert ORIGIN.name == "MONAI ViT (w)"
    assert dataclasses.replace(ORIGIN, weights="ours.safetensors", architecture="our vit").name == "our vit (ours)"


def test_anything_else_is_refused_by_its_name(tmp_path: Path):
    with pytest.raises(UsageError, match=r"none\.safetensors: no such file"):
        extraction.load_features(tmp_path / "none.safetensors")
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(IntegrityError, match=r"x\.safetensors: not a file of features"):
        extraction.load_features(tmp_path / "x.safetensors")
    save_file({"a": np.ones(2)}, tmp_path / "y.safetensors")
    with pytest.raises(IntegrityError, match=r"y\.safetensors: found None; expected mri-vit features 1"):
        extraction.load_features(tmp_path / "y.safetensors")
    extraction.save_features(features(("p1", "p2", "p3")), tmp_path / "z.safetensors")
    with pytest.raises(IntegrityError, match=r"z\.safetensors: damaged \(features of shape .* for 3 patients"):
        extraction.load_features(tmp_path / "z.safetensors")
