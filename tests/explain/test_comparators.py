"""Maps of comparators: where they lie, whose they are, that they are judged, and that a stopped run goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pydantic
import pytest
import torch
from made.network import HEADS
from made.volumes import plant
from nibabel.affines import apply_affine
from rich.console import Console

from mri_vit.crossval import folds
from mri_vit.data import cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import UsageError
from mri_vit.explain import faithfulness, map_jobs
from mri_vit.explain.methods import patient_maps
from mri_vit.explain.methods.catalogue import explained
from mri_vit.explain.methods.patient_maps import PatientMaps
from mri_vit.explain.outputs.map_files import write_maps
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.model import network
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.run import files, integrity
from mri_vit.settings.recipe import Architecture
from mri_vit.settings.schema import CHANNELS, Comparator, Endpoint, Model, Study
from mri_vit.settings.sections import Explain, Grid

MGMT = Endpoint(name="mgmt", kind="binary")
GRID = Grid(edge=56, spacing_mm=4.0, patch=4)


def rotation(degrees: tuple[float, float, float]) -> np.ndarray:
    """About x, then y, then z."""
    turned = np.eye(4)
    for axis, angle in enumerate(np.radians(degrees)):
        one, (i, j) = np.eye(4), [a for a in range(3) if a != axis]
        one[i, i], one[i, j], one[j, i], one[j, j] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        turned = one @ turned
    return turned


@pytest.fixture
def oblique(tmp_path: Path) -> tuple[Study, Patient]:
    """A prepared patient whose scan is oblique, of long voxels, and stored from right to left, of a head that lies turned."""
    study = Study(
        name="oblique",
        cohort=tmp_path / "cohort.csv",
        prepared=tmp_path / "prepared",
        output=tmp_path / "run",
        grid=GRID,
        model=Model(dim=16, depth=1, heads=2, mlp=16, tokens="foreground"),
        endpoints=(MGMT,),
        comparators=(Comparator(name="toy", model={"architecture": "resnet10"}),),
        explain=Explain(methods=("gradient_attention",), comparators=("toy",)),
    )
    generator = np.random.default_rng(0)
    centre = np.array(GRID.affine) @ [27.5, 27.5, 27.5, 1]
    index = np.moveaxis(np.indices((56, 56, 56)), 0, -1)
    brain = (((apply_affine(np.array(GRID.affine), index) - centre[:3]) / [60, 80, 60]) ** 2).sum(axis=-1) < 1
    volume = generator.uniform(0.5, 1.5, size=(4, 56, 56, 56)).astype(np.float32)
    home = study.prepared / "P1"
    home.mkdir(parents=True)
    tokens.save(tokens.from_volume(volume, brain, GRID, "-"), home / "tokens.safetensors")
    to_grid = rotation((12, -8, 20))
    to_grid[:3, 3] = 6.0, -9.0, 4.0
    stored = rotation((-25, 15, 10)) @ np.diag([-3.0, 3.5, 5.0, 1])  # x falls: the left is stored last
    stored[:3, 3] = apply_affine(np.linalg.inv(to_grid), centre[:3]) - stored[:3, :3] @ [40, 38, 26]  # its middle is the grid's
    write(Volume(generator.uniform(1, 9, size=(80, 76, 52)).astype(np.float32), stored), tmp_path / "t1ce.nii.gz")
    frame = {"stored": {"shape": [80, 76, 52], "affine": stored.tolist()}}
    record = {
        "patient": "P1", "inputs": {}, "config_sha256": "-", "versions": {}, "warnings": [], "brain_ml": 1000.0,
        "to_grid": {name: to_grid.tolist() for name in CHANNELS}, "reference": "t1ce", "files": {},
        "steps": [{"step": "read", "scans": dict.fromkeys(CHANNELS, frame)}],
    }  # fmt: skip
    (home / "patient.json").write_text(json.dumps(record))
    return study, Patient("P1", dict.fromkeys(CHANNELS, tmp_path / "t1ce.nii.gz"), {"mgmt": 1.0}, {})


def octant(grid: Grid) -> Network:
    """A network that sums the brightness of all scans in the left, front, upper octant, and calls it a one."""
    net = Network(Model(architecture="resnet10", tokens="foreground"), grid, [HEADS[0]], CHANNELS).eval()
    x, y, z = net.encoder.box.size
    net.encoder.net.weight.data.zero_()
    net.encoder.net.weight.data[:, :, : x // 2, y // 2 :, z // 2 :] = 1.0  # RAS+: small x is left
    net.get_parameter("head.mgmt.weight").data.fill_(100.0)
    return net


def test_both_maps_peak_in_the_octant_that_a_network_reads_on_an_oblique_scan_and_left_is_left(
    oblique: tuple[Study, Patient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    plant(monkeypatch)
    study, patient = oblique
    net, of = octant(GRID), explained(study)["toy"]
    write_maps(patient_maps.of_patient(patient, net, of), of, tmp_path / "maps", NetworkId("toy", 0, 1))
    record = json.loads((tmp_path / "maps" / "map.json").read_text())
    assert (record["model"], record["fold"], record["settings"]) == ("toy", 1, {"methods": ["gradcam", "occlusion_by_air"]})
    assert [(one["method"], one["explains"]) for one in record["maps"]] == [
        ("gradcam", "mgmt = 1"),
        ("occlusion_by_air", "mgmt = 1"),
    ]
    to_grid = np.array(json.loads((study.prepared / "P1" / "patient.json").read_text())["to_grid"]["t1ce"])
    box = net.encoder.box
    corner = apply_affine(np.array(GRID.affine), np.array(box.start) * GRID.patch - 0.5)
    middle = corner + np.array(box.size) * GRID.spacing_mm / 2
    for one in record["maps"]:
        heat = read(tmp_path / "maps" / one["files"]["t1ce"])
        assert heat.shape == (80, 76, 52)
        peak = np.array(np.unravel_index(heat.array.argmax(), heat.shape))
        left, front, up = apply_affine(to_grid @ heat.affine, peak) - middle
        assert left < 0 < min(front, up), one["method"]
        at = apply_affine(to_grid @ heat.affine, np.argwhere(heat.array > 1)) - middle
        inside = (at[:, 0] < 32) & (at[:, 1] > -32) & (at[:, 2] > -32)  # half a block, and a place of interpolation
        assert inside.mean() > 0.99, one["method"]
        np.testing.assert_allclose(apply_affine(heat.affine, peak), one["peak_mm"], atol=0.06)
        on_grid = read(tmp_path / "maps" / one["files"]["grid"]).array
        assert on_grid[28:].max() < on_grid[:28].max()  # left on the grid too
        assert (tmp_path / "maps" / one["overlay"]).is_file()


def test_the_same_relevance_of_two_kinds_of_network_is_written_voxel_for_voxel_alike(
    oblique: tuple[Study, Patient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    plant(monkeypatch)
    study, patient = oblique
    own = Network(study.model, GRID, [Head(MGMT, "binary")]).eval()
    made = patient_maps.of_patient(patient, own, study)
    relevance = torch.from_numpy(
        np.random.default_rng(1).exponential(size=made.value["gradient_attention", "mgmt"].shape)
    ).float()
    of = explained(study)["toy"]
    theirs = patient_maps.of_patient(patient, octant(GRID), of)
    methods = {"vit": ("gradient_attention", made, study), "toy": ("gradcam", theirs, of)}
    for name, (method, one, settings) in methods.items():
        planted: PatientMaps = replace(one, made=replace(one.made, value={(method, "mgmt"): relevance}))
        write_maps(planted, settings, tmp_path / name, NetworkId(name, 0, 0))
    for space in ("T1", "T1ce", "T2", "FLAIR", "grid"):
        ours = read(tmp_path / "vit" / f"sub-P1_space-{space}_desc-gradientAttentionMgmt_map.nii.gz")
        other = read(tmp_path / "toy" / f"sub-P1_space-{space}_desc-gradcamMgmt_map.nii.gz")
        assert ours.array.max() > 1
        np.testing.assert_array_equal(ours.array, other.array)
        np.testing.assert_array_equal(ours.affine, other.affine)


# --- The stage ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fitted(tiny: Study, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The tiny cohort with a run in which each fold's network, the own and a hand-made comparator's, knows who trained it."""
    plant(monkeypatch)
    study = Study.model_validate(
        tiny.model_dump()
        | {"endpoints": [MGMT.model_dump()]}
        | {"comparators": [{"name": "toy", "model": {"architecture": "resnet10"}}]}
        | {"explain": {"methods": ["gradient_attention"], "patients": 0, "scored": 5, "comparators": ["toy"]}}
    )
    patients = cohort.read(study.cohort, study.endpoints)
    split = folds.make(patients, study.endpoints, study.train, study.seed)[0]
    for name, of in explained(study).items():
        for fold, ids in enumerate(split):
            torch.manual_seed(10 * fold)
            net = Network(of.model, of.grid, [Head(MGMT, "binary")])
            torch.nn.init.normal_(net.get_parameter("head.mgmt.weight"))
            net.label_exposed = tuple(patient.subject for patient in patients if patient.id not in ids)
            home = files.fold_folder(study.output if name == "vit" else study.output / files.COMPARATORS / name, 0, fold)
            home.mkdir(parents=True)
            network.save(net, home / files.WEIGHTS)
    monkeypatch.setattr(integrity, "refuse_changed_run", lambda *_: None)
    monkeypatch.setattr(map_jobs.prepared, "refuse_changed_patients", lambda *_: None)
    return SimpleNamespace(study=study, patients=patients, split=split, run=study.output)


def explain(fitted: SimpleNamespace) -> None:
    map_jobs.run(fitted.study, fitted.patients, fitted.split, fitted.run, Console(quiet=True))


def scores(fitted: SimpleNamespace, home: str = "") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (fitted.run / home / files.SCORES).glob("*.json")}


def test_a_comparators_maps_are_by_the_folds_network_that_was_not_trained_on_the_patient(
    fitted: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    seen, make = [], patient_maps.of_patient
    monkeypatch.setattr(
        map_jobs, "of_patient", lambda patient, net, study: seen.append((patient, net)) or make(patient, net, study)
    )
    explain(fitted)
    assert sorted(net.model.architecture for _, net in seen) == ["resnet10"] * 5 + ["vit"] * 5
    for patient, net in seen:
        assert patient.subject not in net.label_exposed
        assert len(net.label_exposed) > len(fitted.patients) / 3
    for name, content in scores(fitted, f"{files.COMPARATORS}/toy").items():
        record = json.loads(content)
        assert name.removesuffix(".json") in fitted.split[record["fold"]]
        assert [row["method"] for row in record["rows"]] == ["gradcam", "occlusion_by_air"]
        assert record["settings"] == {"methods": ["gradcam", "occlusion_by_air"]}
        for row in record["rows"]:
            assert row["shuffled"] is None  # no comparator is trained on permuted labels
            assert all(row[key] is not None for key in ("folds", "noise", "shift"))
        assert [step["stage"] for step in record["cascade"]] == 2 * ["heads", "the half before", "the first half"]
        assert {curve["method"] for curve in record["curves"]} == {"gradcam", "occlusion_by_air", "random"}


def test_maps_of_comparators_that_were_stopped_go_on_and_the_own_maps_are_what_they_are_without_them(
    fitted: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    make, made = patient_maps.of_patient, []

    def stopped(patient: Patient, net: Network, study: Study) -> PatientMaps:
        if len(made) == 7:
            raise KeyboardInterrupt
        made.append(patient.id)
        return make(patient, net, study)

    monkeypatch.setattr(map_jobs, "of_patient", stopped)
    with pytest.raises(KeyboardInterrupt):
        explain(fitted)
    assert len(scores(fitted)) == 5
    assert len(scores(fitted, f"{files.COMPARATORS}/toy")) == 2
    assert len(map_jobs.jobs(fitted.study, fitted.patients, fitted.split, fitted.run)) == 3
    monkeypatch.setattr(map_jobs, "of_patient", lambda *given: made.append("") or make(*given))
    explain(fitted)
    assert len(made) == 10
    whole, own = scores(fitted, f"{files.COMPARATORS}/toy"), scores(fitted)
    for folder in (fitted.run / files.SCORES, fitted.run / files.COMPARATORS / "toy" / files.SCORES):
        for path in folder.iterdir():
            path.unlink()
    explain(fitted)
    assert (scores(fitted, f"{files.COMPARATORS}/toy"), scores(fitted)) == (whole, own)
    for path in (fitted.run / files.SCORES).iterdir():
        path.unlink()
    alone = fitted.study.model_copy(update={"explain": fitted.study.explain.model_copy(update={"comparators": ()})})
    assert list(explained(alone)) == ["vit"]
    assert sum(job.model == "vit" for job in map_jobs.jobs(alone, fitted.patients, fitted.split, fitted.run).values()) == 5
    map_jobs.run(alone, fitted.patients, fitted.split, fitted.run, Console(quiet=True))
    assert scores(fitted) == own


def test_a_comparator_whose_weights_are_gone_is_named(fitted: SimpleNamespace):
    (fitted.run / files.COMPARATORS / "toy" / "fold-2" / files.WEIGHTS).unlink()
    with pytest.raises(UsageError, match=r"explain\.comparators: .*fold-2.* of toy"):
        explain(fitted)


def test_a_name_that_is_no_comparator_is_refused_and_a_study_without_any_has_the_keys_that_it_always_had(tiny: Study):
    plain = tiny.model_dump()
    assert "comparators" not in plain["explain"]
    assert tiny.explain.of_maps == {"methods": list(tiny.explain.methods)}
    with pytest.raises(pydantic.ValidationError, match=r"explain\.comparators names 'toy', which is no comparator"):
        Study.model_validate(plain | {"explain": {"comparators": ["toy"]}})


def test_a_comparator_of_whom_no_patient_has_a_map_is_refused(tiny: Study):
    named = {"comparators": [{"name": "toy", "model": {"architecture": "resnet10"}}]}
    asked = {"methods": ["rollout"], "patients": 0, "scored": 0, "comparators": ["toy"]}
    with pytest.raises(pydantic.ValidationError, match=r"explain\.comparators names 'toy', but .* no map is made"):
        Study.model_validate(tiny.model_dump() | named | {"explain": asked})
    assert Study.model_validate(tiny.model_dump() | named | {"explain": asked | {"scored": 1}}).explained


def test_a_vision_transformer_among_the_comparators_is_explained_as_the_study_asks(tiny: Study):
    study = Study.model_validate(
        tiny.model_dump()
        | {"comparators": [{"name": "deep", "model": {"depth": 3}}, {"name": "cnn", "model": {"architecture": "resnet10"}}]}
        | {"explain": {"methods": ["rollout"], "comparators": ["cnn", "deep"]}}
    )
    assert {name: of.explain.methods for name, of in explained(study).items()} == {
        "vit": ("rollout",),
        "deep": ("rollout",),
        "cnn": ("gradcam", "occlusion_by_air"),
    }
    assert all(of.prepared == study.prepared for of in explained(study).values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["resnet10", "efficientnet_b0", "hybrid_resnet10"])
def test_the_halves_of_a_network_of_volumes_hold_every_weight_once(architecture: Architecture):
    net = Network(Model(architecture=architecture, dim=16, depth=1, heads=2, mlp=16), GRID, [Head(MGMT, "binary")]).eval()
    found = faithfulness.stages(net)
    assert list(found) == ["heads", "the half before", "the first half"]
    assert sorted(name for names in found.values() for name in names) == sorted(net.state_dict())
    *_, last = faithfulness.cascade(net, faithfulness.randomised(net, np.random.default_rng(0))).values()
    patches, position = torch.randn(1, 200, 256), torch.randperm(GRID.positions)[None, :200]
    with torch.no_grad():
        assert last(patches, position)["mgmt"].isfinite().all()
