"""The jobs of a run's maps: what is done for a patient, and that no map is computed twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mri_vit.data import cohort
from mri_vit.explain import map_jobs, map_scores
from mri_vit.explain.methods import patient_maps, target
from mri_vit.explain.outputs import map_files as images
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.finished.predicted_patient import why_no_maps
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import NO_BLOCK, Study


def test_a_patient_who_is_drawn_and_scored_has_the_maps_computed_once(tiny: Study, tmp_path: Path, monkeypatch):
    patient = cohort.read(tiny.cohort, tiny.endpoints)[0]
    net = Network(tiny.model, tiny.grid, [Head(tiny.endpoints[0], "binary")]).eval()
    handed, made = [], []
    monkeypatch.setattr(map_jobs, "_network", lambda folder: net)
    monkeypatch.setattr(map_jobs, "_references", lambda *_: None)
    monkeypatch.setattr(images, "write_maps", lambda one, *_: handed.append(one))
    monkeypatch.setattr(map_scores, "scores", lambda one, *_: handed.append(one) or NetworkId("vit", 0, 0))
    make = patient_maps.make
    monkeypatch.setattr(patient_maps, "make", lambda *given: made.append(given) or make(*given))
    map_jobs._do_job(map_jobs.Job(patient, tmp_path, 0, 2, drawn=True, scored=True), tiny, tmp_path)
    assert len(made) == 1
    assert handed[0] is handed[1]


def test_a_network_without_a_block_has_no_maps_and_says_why(tiny: Study):
    study = tiny.model_copy(update={"model": tiny.model.model_copy(update={"depth": 0, "pool": "max"})})
    patient = cohort.read(study.cohort, study.endpoints)[0]
    net = Network(study.model, study.grid, [Head(tiny.endpoints[0], "binary")]).eval()
    with pytest.raises(ValueError, match=r"maps need a block to attend, and model\.depth 0 has none"):
        patient_maps.of_patient(patient, net, study)
    assert why_no_maps(study.model, {"mgmt"}) == NO_BLOCK
    assert why_no_maps(tiny.model, {"mgmt"}) is None


def test_maps_of_the_predicted_classes_are_the_maps_that_answer_for_them(tiny: Study):
    """What was made for pictures, each map by the sign that it found itself, is what is scored, to the last bit."""
    patient = cohort.read(tiny.cohort, tiny.endpoints)[0]
    torch.manual_seed(1)
    net = Network(tiny.model, tiny.grid, [Head(tiny.endpoints[0], "binary")]).eval()
    for weights in net.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    everything = ("rollout", "cls_attention", "gradient_attention", "gradient_rollout", "integrated_gradients", "occlusion")
    study = tiny.model_copy(update={"explain": tiny.explain.model_copy(update={"methods": everything})})
    made = patient_maps.of_patient(patient, net, study)
    alone = patient_maps.make(net, *made.input.batch, everything).value
    assert list(made.value) == list(alone)
    assert all(torch.equal(made.value[key], alone[key]) for key in alone)


def test_a_network_whose_predictions_are_known_is_not_run_for_them_again(tiny: Study, monkeypatch):
    patient = cohort.read(tiny.cohort, tiny.endpoints)[0]
    net = Network(tiny.model, tiny.grid, [Head(tiny.endpoints[0], "binary")]).eval()
    made = patient_maps.of_patient(patient, net, tiny)
    monkeypatch.setattr(target, "features", lambda *_: pytest.fail("the network was run"))
    questions = target.predicted(net, *made.input.batch, made.questions | {"another network's": made.questions["mgmt"]})
    assert questions == made.questions
