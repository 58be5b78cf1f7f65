"""A real patient at full size: ViT-B/16 over all 2744 places, and its maps on the voxels of every scan."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from made.prepared import prepared_by

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.explain.methods.rollout import rollout
from mri_vit.explain.outputs.map_files import explain
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model, Study
from mri_vit.settings.sections import Explain

pytestmark = pytest.mark.long(16)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")  # deepbet's weights are TorchScript
def test_a_stripped_real_patient_goes_through_vit_b_and_a_map_lies_on_every_scans_own_head(shared: Path, tmp_path: Path):
    folder = shared / "data" / "stripped" / "TCGA-DU-7294"
    patient = Patient("TCGA-DU-7294", {c: folder / f"{c}.nii.gz" for c in CHANNELS}, {}, {})
    study = Study(name="x", cohort=tmp_path / "none.csv", prepared=tmp_path / "prepared", output=tmp_path / "run")
    prepared_by(study, patient)
    stored = tokens.load(token_file(study.prepared, patient))
    assert 400 <= len(stored.position) <= 800  # a brain fills about a quarter of the 2744 places
    torch.manual_seed(0)
    two_blocks = study.model.model_copy(update={"depth": 2})  # of ViT-B's twelve, all of which model/test_network.py goes through
    net = Network(two_blocks, study.grid, [Head(DEFAULT_ENDPOINTS[0], "binary")]).eval()
    patches, position = all_tokens(stored, study.model)
    assert net.encoder.tokens(patches, position).shape == (1, 2745, 768)
    row = rollout(net.encoder, patches, position)
    assert row.shape == (1, 2745)
    assert float(row.sum()) == pytest.approx(1, abs=1e-5)
    small = Model(dim=48, depth=2, heads=2, mlp=48, tokens="foreground")  # where a map lies does not depend on the network
    study = study.model_copy(update={"model": small, "explain": Explain(methods=("rollout",))})
    net = Network(small, study.grid, [Head(DEFAULT_ENDPOINTS[0], "binary")]).eval()
    explain(patient, net, study, tmp_path / "map", NetworkId("vit", 0, 0))
    listed = json.loads((tmp_path / "map" / "map.json").read_text())
    assert listed["tokens"] == len(stored.position)
    (found,) = listed["maps"]
    for channel in CHANNELS:
        heat = nib.Nifti1Image.from_filename(tmp_path / "map" / found["files"][channel])
        scan = nib.Nifti1Image.from_filename(folder / f"{channel}.nii.gz")
        assert heat.shape == scan.shape
        np.testing.assert_allclose(np.array(heat.affine), np.array(scan.affine), atol=1e-3)
        inside, brain = heat.get_fdata() > 0, scan.get_fdata() > 0
        assert 2 * (inside & brain).sum() / (inside.sum() + brain.sum()) > 0.9, channel  # Dice of map and brain
    heat = nib.Nifti1Image.from_filename(tmp_path / "map" / found["files"]["t1ce"])
    assert found["peak"] == pytest.approx(heat.get_fdata().max(), abs=1e-3)
    at = np.rint(np.linalg.inv(np.array(heat.affine)) @ [*found["peak_mm"], 1])[:3].astype(int)
    assert heat.get_fdata()[tuple(at)] == pytest.approx(found["peak"], abs=1e-3)
    own = float(rollout(net.encoder, *all_tokens(stored, study.model))[0, 0])
    assert found["cls_share"] == pytest.approx(own, abs=1e-3)
    assert (tmp_path / "map" / found["overlay"]).is_file()
    assert (tmp_path / "map" / listed["brain"]).is_file()
