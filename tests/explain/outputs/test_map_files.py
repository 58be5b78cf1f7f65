"""What a patient's folder of maps holds: a map on every scan for each method and endpoint, told by sidecars and one list."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from made.prepared import prepared_by
from nibabel.affines import apply_affine
from PIL import Image

from mri_vit.data import cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.data.volume import Volume, read, read_mask
from mri_vit.errors import IntegrityError
from mri_vit.explain.methods import patient_maps
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.methods.patient_maps import of_patient
from mri_vit.explain.methods.rollout import rollout
from mri_vit.explain.outputs import map_files
from mri_vit.explain.outputs.map_files import write_maps
from mri_vit.explain.outputs.records import MapRecord, NetworkId, parse
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import CHANNELS, Endpoint, Model, Study
from mri_vit.settings.sections import Explain, Grid

ENDPOINTS = (
    Endpoint(name="mgmt", kind="binary"),
    Endpoint(name="os", kind="survival", time="os_days", event="os_event"),
)
FITTED = NetworkId("vit", 0, 1)


@pytest.fixture(scope="module")
def made(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Patient, Network, Path]:
    """A patient of the built-in cohort, with maps of a network of random weights that predicts no MGMT for anyone."""
    folder = tmp_path_factory.mktemp("explained")
    study = Study(
        name="x",
        cohort=scans,
        prepared=folder / "prepared",
        output=folder,
        grid=Grid(edge=56, spacing_mm=4.0, patch=4),
        model=Model(dim=16, depth=2, heads=2, mlp=16, tokens="foreground"),
        explain=Explain(methods=("rollout", "gradient_attention", "integrated_gradients")),
        endpoints=ENDPOINTS,
    )
    patient = cohort.read(scans, ENDPOINTS)[0]
    prepared_by(study, patient)
    torch.manual_seed(0)
    network = Network(
        study.model, study.grid, [Head(ENDPOINTS[0], "binary"), Head(ENDPOINTS[1], "hazard", (100.0, 400.0))]
    ).eval()
    torch.nn.init.normal_(network.get_parameter("head.mgmt.weight"))
    torch.nn.init.constant_(network.get_parameter("head.mgmt.bias"), -50.0)  # the head of os stays at zero: its maps are empty
    maps = of_patient(patient, network, study)
    write_maps(maps, study, folder / "maps" / patient.id, FITTED, maps.score_by_scan)
    return study, patient, network, folder / "maps" / patient.id


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that explaining reads, as it reads them."""
    found = []
    for module in (map_files, map_files):
        monkeypatch.setattr(module, "read", lambda path: found.append(path) or read(path))
    monkeypatch.setattr(patient_maps, "read_mask", lambda path: found.append(path) or read_mask(path))
    return found


def test_each_method_and_endpoint_has_a_map_on_every_scan_and_on_the_grid(made: tuple):
    study, patient, _, folder = made
    listed = json.loads((folder / "map.json").read_text())
    assert asdict(parse(MapRecord, listed)) == listed
    assert (listed["schema"], listed["patient"], listed["fold"], listed["tumour"]) == (3, patient.id, 1, True)
    assert listed["settings"] == study.explain.of_maps  # by which a run tells whether maps must be made anew
    pairs = [(one["method"], one["endpoint"]) for one in listed["maps"]]
    assert pairs == [("rollout", ""), *((m, e) for m in study.explain.methods[1:] for e in ("mgmt", "os"))]
    for one in listed["maps"]:
        assert list(one["files"]) == [*CHANNELS, "grid"]
        for channel in CHANNELS:
            scan = read(patient.scans[channel])
            heat = nib.Nifti1Image.from_filename(folder / one["files"][channel])
            assert heat.shape == scan.shape
            np.testing.assert_allclose(np.array(heat.affine), scan.affine, atol=1e-3)
    mentioned = {"map.json", listed["brain"], listed["mask"], *(one["overlay"] for one in listed["maps"])}
    nifti = {file for one in listed["maps"] for file in one["files"].values()}
    sidecars = {file.removesuffix(".nii.gz") + ".json" for file in nifti}
    assert {path.name for path in folder.iterdir()} == mentioned | nifti | sidecars


def test_the_list_tells_what_a_map_explains_and_how_strong_it_is(made: tuple):
    study, patient, network, folder = made
    maps = {(one["method"], one["endpoint"]): one for one in json.loads((folder / "map.json").read_text())["maps"]}
    assert maps["rollout", ""]["explains"] == ""
    assert maps["gradient_attention", "mgmt"]["explains"] == "mgmt = 0"  # as predicted
    assert maps["gradient_attention", "os"]["explains"] == "higher risk (os)"
    for (method, _), one in maps.items():
        assert (one["title"], one["note"]) == (METHODS[method].title, METHODS[method].meaning)
        assert one["unit"] == "relative to a uniform map"
    found = maps["rollout", ""]
    heat = read(folder / found["files"]["t1ce"])
    assert found["peak"] == pytest.approx(heat.array.max(), abs=1e-3)
    index = np.rint(apply_affine(np.linalg.inv(heat.affine), found["peak_mm"])).astype(int)
    assert heat.array[tuple(index)] == heat.array.max()
    batch = all_tokens(tokens.load(token_file(study.prepared, patient)), study.model)
    assert found["cls_share"] == pytest.approx(float(rollout(network.encoder, *batch)[0, 0]), abs=1e-3)
    assert maps["gradient_attention", "mgmt"]["cls_share"] is None


def test_the_mean_over_places_is_one_so_the_grids_mean_is_near_it(made: tuple):
    _, _, _, folder = made
    listed = json.loads((folder / "map.json").read_text())
    brain = read(folder / listed["mask"]).array > 0
    assert read(folder / listed["maps"][0]["files"]["grid"]).array[brain].mean() == pytest.approx(1, abs=0.15)


def test_a_map_of_nothing_is_zero_everywhere_and_says_so(made: tuple):
    _, _, _, folder = made
    maps = {(one["method"], one["endpoint"]): one for one in json.loads((folder / "map.json").read_text())["maps"]}
    empty = maps["gradient_attention", "os"]
    assert (empty["minimum"], empty["peak"], empty["by_scan"]) == (0, 0, None)
    with Image.open(folder / empty["overlay"]) as picture:
        assert picture.width > 500


def test_scores_and_maps_are_divided_among_the_scans(made: tuple):
    _, _, _, folder = made
    listed = json.loads((folder / "map.json").read_text())
    assert set(listed["score_by_scan"]) == {"mgmt", "os"}
    mgmt = listed["score_by_scan"]["mgmt"]
    assert sum(mgmt[channel] for channel in CHANNELS) == pytest.approx(mgmt["evidence"] - mgmt["empty"], abs=1e-3)
    for one in listed["maps"]:
        assert one["by_scan"] is None or sum(one["by_scan"].values()) == pytest.approx(1, abs=1e-3)
    assert listed["maps"][0]["by_scan"] is not None


def test_a_sidecar_tells_unit_range_model_and_space(made: tuple):
    _, _, _, folder = made
    one = json.loads((folder / "map.json").read_text())["maps"][1]
    words = {"t2": "own T2 scan", "grid": "56³ voxels of 4 mm"}
    for space, expected in words.items():
        file = one["files"][space]
        sidecar = json.loads((folder / (file.removesuffix(".nii.gz") + ".json")).read_text())
        assert sidecar["Units"] == "relative to a uniform map"
        assert expected in sidecar["SpatialReference"]
        assert sidecar["Model"] == asdict(FITTED)
        assert sidecar["Explains"] == "mgmt = 0"
        assert sidecar["Range"][1] == pytest.approx(read(folder / file).array.max(), abs=1e-2)
        assert "not a medical device" in sidecar["Note"]


def test_the_same_maps_are_made_again_to_the_byte_and_only_what_is_drawn_is_read(made: tuple, tmp_path: Path, files_read: list):
    study, patient, network, folder = made
    maps = of_patient(patient, network, study)
    write_maps(maps, study, tmp_path / "again", FITTED, maps.score_by_scan)
    assert files_read == [patient.scans["t1ce"], patient.tumour_mask]
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_scans_that_an_older_record_does_not_describe_are_read_and_lie_where_it_would_say(
    made: tuple, tmp_path: Path, files_read: list
):
    study, patient, *_ = made
    older = study.model_copy(update={"prepared": tmp_path})
    (tmp_path / patient.id).mkdir()
    record = json.loads((study.prepared / patient.id / "patient.json").read_text())
    for scan in next(step["scans"] for step in record["steps"] if step["step"] == "read").values():
        del scan["stored"]
    (tmp_path / patient.id / "patient.json").write_text(json.dumps(record))
    scan = read(patient.scans["t1ce"])
    found = map_files.frames_of_patient(patient, scan, older)
    assert files_read == [patient.scans[name] for name in ("t1", "t2", "flair")]
    assert set(map_files.scans_read(patient, older)) == {patient.scans[name] for name in CHANNELS}
    assert map_files.scans_read(patient, study) == [patient.scans["t1ce"]]
    recorded = map_files.frames_of_patient(patient, scan, study)
    assert list(found) == list(recorded) == list(CHANNELS)
    for name in CHANNELS:
        assert found[name].shape == recorded[name].shape
        assert np.array_equal(found[name].affine, recorded[name].affine)
        assert np.array_equal(found[name].to_grid, recorded[name].to_grid)


@pytest.mark.parametrize("stored", [{"shape": [1, 2]}, {"shape": [3, 3, 3], "affine": [[1.0]]}, 7])
def test_a_damaged_frame_is_named(made: tuple, tmp_path: Path, stored: object):
    study, patient, *_ = made
    (tmp_path / patient.id).mkdir()
    record = json.loads((study.prepared / patient.id / "patient.json").read_text())
    next(step for step in record["steps"] if step["step"] == "read")["scans"]["t2"]["stored"] = stored
    (tmp_path / patient.id / "patient.json").write_text(json.dumps(record))
    with pytest.raises(IntegrityError, match=r"patient\.json: damaged"):
        map_files.scans_read(patient, study.model_copy(update={"prepared": tmp_path}))


@pytest.mark.parametrize(("shells", "published"), [((60,), True), ((60, 66, 72), False)], ids=["brain", "head"])
def test_where_no_one_checked_that_scans_were_stripped_a_small_head_is_not_published(
    made: tuple, shells: tuple[int, ...], published: bool
):
    """Of 1.6 litres, which a brain may have: its size does not tell it from one."""
    study, *_ = made
    unchecked = study.model_copy(update={"prepare": study.prepare.model_copy(update={"brain": "none"})})
    radius = np.sqrt(((np.indices((80, 80, 80)) - 39.5) ** 2).sum(axis=0)) * 2  # mm
    values = np.select([radius < shell for shell in shells], (100.0, 8.0, 160.0)[: len(shells)], 0.0)
    scan = Volume(values.astype(np.float32), np.diag([2.0, 2.0, 2.0, 1.0]))
    assert map_files._is_brain(scan, values > 0, unchecked.prepare) == published
    assert map_files._is_brain(
        scan, values > 0, study.prepare
    )  # "auto" has looked for a skull before it took the scan for stripped
    assert not map_files._is_brain(Volume(scan.array, np.diag([4.0, 4.0, 4.0, 1.0])), values > 0, study.prepare)
