"""The examples of the pages on extending do what the pages say."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from made.network import inputs, made

from mri_vit.crossval import folds
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import cohort
from mri_vit.explain.methods import patient_maps
from mri_vit.predictors.network import Neural
from mri_vit.settings.schema import Kind, Study

PAGES = Path(__file__).parents[1] / "docs/extending"

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


def example(page: str, patch: pytest.MonkeyPatch) -> Any:
    """The Python block of a page, as a module."""
    (code,) = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    module = ModuleType("example")
    patch.setitem(sys.modules, "example", module)
    exec(code, vars(module))
    return module


def one_epoch(study: Study, **changes: Any) -> Study:
    train = study.train.model_dump() | {"epochs": 1}
    return Study.model_validate(study.model_dump() | {"train": train} | changes)


def test_a_study_trains_and_predicts_the_documented_endpoints(tiny: Study):
    text = (PAGES.parent / "howto" / "endpoints.md").read_text(encoding="utf-8")
    study = one_epoch(tiny, **tomllib.loads("\n".join(re.findall(r"^    (\[\[.*|\w+ = .*)$", text, flags=re.MULTILINE))))
    table = pd.read_csv(study.cohort, dtype=str)
    for endpoint in study.endpoints:
        if endpoint.name not in table and endpoint.kind != "survival":
            table[endpoint.name] = np.resize(list(endpoint.classes or map(str, range(len(table)))), len(table))
    table.to_csv(study.cohort, index=False)
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    scores, survival = cross_validate(
        patients, splits, study, study.output, "vit", lambda folder, seed: Neural(study, folder, seed)
    )
    assert {endpoint.kind for endpoint in study.endpoints} == set(get_args(Kind))
    assert set(scores.endpoint) == {endpoint.name for endpoint in study.endpoints}
    assert set(survival.endpoint) == {"os"}


def test_the_documented_encoder_is_trained_in_a_studys_folds_and_predicts_every_patient_once(tiny: Study, monkeypatch):
    study = one_epoch(tiny)
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    scores, _ = example("encoder.md", monkeypatch).out_of_fold(patients, splits, study, study.output)
    assert sorted(scores[scores.endpoint == "mgmt"].patient) == sorted(patient.id for patient in patients)
    assert set(scores.model) == {"patch-mean"}


def test_the_documented_encoder_reads_no_padding(monkeypatch):
    net = example("encoder.md", monkeypatch).PatchMean(size=32, dim=8)
    patches, position = torch.randn(1, 5, 32), torch.arange(5)[None]
    padded = net(torch.cat([patches, torch.ones(1, 2, 32)], 1), torch.arange(7)[None], torch.arange(7)[None] < 5)
    assert torch.allclose(net(patches, position), padded, atol=1e-6)


def test_the_documented_map_method_is_the_gradient_of_each_patch(monkeypatch):
    method = example("map_method.md", monkeypatch).input_gradient
    monkeypatch.setitem(patient_maps.PER_ENDPOINT, "input_gradient", method)
    net = made()
    patches, position = inputs(net, dtype=torch.float32)
    maps = patient_maps.make(net, patches, position, ["input_gradient"]).value
    assert {name for _, name in maps} == {head.endpoint.name for head in net.heads}
    value = maps["input_gradient", "mgmt"]
    step = torch.zeros_like(patches)
    step[0, 3] = torch.randn(patches.shape[2], generator=torch.Generator().manual_seed(0)) * 1e-3
    moved = net(patches + step, position)["mgmt"] - net(patches - step, position)["mgmt"]
    assert value.shape == position.shape
    assert bool((moved.abs() <= 2 * value[0, 3] * step[0, 3].norm() * 1.01).all())  # a directional derivative is at most the norm
