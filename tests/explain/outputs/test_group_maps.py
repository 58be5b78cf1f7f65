"""The cohort's mean maps: who is in which group, what a mean is made of, and what may be said of a difference."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, write
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.outputs import group_maps
from mri_vit.explain.outputs.records import MAP_SCHEMA, GroupRecord, file_name, parse
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.sections import Grid

GRID = Grid(edge=16, spacing_mm=10.0, patch=4)
MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
ENDPOINTS = (MGMT, OS)
MAPS = (("rollout", ""), ("gradient_attention", "mgmt"), ("gradient_attention", "os"))
SETTINGS = {"methods": ["rollout"]}


def person(name: str, mgmt: float = math.nan, days: float = math.nan, event: float = math.nan, session: str = "") -> Patient:
    labels = {"mgmt": float(mgmt), "os_days": float(days), "os_event": float(event)}
    return Patient(name, {}, labels, {}, session=session)


def brain_of(size: int) -> np.ndarray:
    brain = np.zeros((16, 16, 16), bool)
    brain[8 - size : 8 + size, 8 - size : 8 + size, 8 - size : 8 + size] = True
    return brain


def explained(folder: Path, patient: Patient, values: dict[tuple[str, str], float], size: int = 5) -> None:
    """What `patient.explain` leaves behind, with maps that are one value throughout the brain."""
    home, brain = folder / patient.id, brain_of(size)
    home.mkdir(parents=True)
    mask = file_name(patient, "brain", "", "", "grid", "mask.nii.gz")
    write(Volume(brain.astype(np.uint8), np.array(GRID.affine)), home / mask)
    maps = []
    for (method, endpoint), value in values.items():
        file = file_name(patient, method, endpoint, "", "grid", "map.nii.gz")
        write(Volume(np.where(brain, value, 0).astype(np.float32), np.array(GRID.affine)), home / file)
        maps.append({"method": method, "endpoint": endpoint, "peak": value, "files": {"grid": file}})
    (home / "map.json").write_text(json.dumps({"schema": MAP_SCHEMA, "settings": SETTINGS, "mask": mask, "maps": maps}))


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Patient], list[dict]]:
    """Five patients with MGMT 1, whose maps are 1 to 5, and four with 0, whose maps are all 2; the folder of the group."""
    maps = tmp_path_factory.mktemp("run") / "maps"
    ones = [person(f"a{i}", 1, 100 + i, 1) for i in range(5)]
    zeros = [person(f"b{i}", 0, 500 + i, 0) for i in range(4)]
    for value, patient in enumerate(ones, 1):
        explained(maps, patient, dict.fromkeys(MAPS, float(value)), size=6 if value > 3 else 5)
    for patient in zeros:
        explained(maps, patient, dict.fromkeys(MAPS, 2.0))
    patients = [*ones, *zeros, person("unexplained", 1), person("unlabelled")]
    explained(maps, patients[-1], dict.fromkeys(MAPS, 1000.0))
    entries = group_maps.write_group_maps(maps, patients, ENDPOINTS, GRID, maps / "group", SETTINGS)
    assert parse(GroupRecord, json.loads((maps / "group" / "group.json").read_text())).entries == entries
    return maps, patients, [asdict(entry) for entry in entries]


def entry(entries: list[dict], method: str, endpoint: str) -> dict:
    (found,) = (one for one in entries if (one["method"], one["endpoint"]) == (method, endpoint))
    return found


def test_a_binary_endpoint_divides_by_its_label_and_leaves_out_who_has_none():
    one, zero = group_maps.groups([person("a", 1), person("b", 0), person("c"), person("d", 1)], MGMT)
    assert (one.label, one.ids) == ("1", {"a", "d"})
    assert (zero.label, zero.ids) == ("0", {"b"})


def test_survival_divides_at_the_median_death_and_who_was_censored_before_it_belongs_to_neither():
    patients = [
        person("died100", days=100, event=1),
        person("died200", days=200, event=1),
        person("died300", days=300, event=1),
        person("lost150", days=150, event=0),
        person("alive900", days=900, event=0),
        person("lost200", days=200, event=0),
        person("unknown"),
    ]
    early, late = group_maps.groups(patients, OS)
    assert early.ids == {"died100", "died200"}
    assert late.ids == {"died300", "alive900"}
    assert "200 days" in early.title


def test_where_nobody_died_there_are_no_groups_of_survival():
    assert [len(found.ids) for found in group_maps.groups([person("a", days=100, event=0)], OS)] == [0, 0]


def test_every_method_is_divided_by_every_endpoint_that_it_explains(cohort: tuple):
    _, _, entries = cohort
    listed = [(one["method"], one["endpoint"]) for one in entries]
    assert sorted(listed) == sorted(
        [("rollout", "mgmt"), ("rollout", "os"), ("gradient_attention", "mgmt"), ("gradient_attention", "os")]
    )
    assert all(one["title"] == METHODS[one["method"]].title for one in entries)


def test_a_mean_is_taken_over_those_with_the_label_who_have_brain_at_the_voxel(cohort: tuple):
    maps, _, entries = cohort
    one, zero = entry(entries, "gradient_attention", "mgmt")["groups"]
    assert (one["n"], zero["n"]) == (5, 4)  # neither the unexplained nor the unlabelled
    mean, count = (read(maps / "group" / one[key]).array for key in ("file", "count_file"))
    assert mean[8, 8, 8] == pytest.approx(3)  # of 1 to 5
    assert count[8, 8, 8] == 5
    assert (count[2, 8, 8], mean[2, 8, 8]) == (2, 0)  # only two brains reach here: no group
    assert count[0, 8, 8] == mean[0, 8, 8] == 0
    np.testing.assert_allclose(np.unique(read(maps / "group" / zero["file"]).array), [0, 2])


def test_the_difference_is_first_less_second_where_both_are_known(cohort: tuple):
    maps, _, entries = cohort
    found = entry(entries, "gradient_attention", "mgmt")
    difference = read(maps / "group" / found["difference"]).array
    assert difference[8, 8, 8] == pytest.approx(1)
    assert not difference[~brain_of(5)].any()
    assert found["largest"] == pytest.approx(1)
    assert 0.1 < found["p"] <= 1  # 1 to 5 against 2s is what exchanged labels give often


def test_every_nifti_has_a_sidecar_that_says_how_many_and_that_it_is_no_device(cohort: tuple):
    maps, _, entries = cohort
    files = sorted((maps / "group").glob("*.nii.gz"))
    assert len(files) == len(entries) * 5
    for file in files:
        told = json.loads(file.with_name(file.name.removesuffix(".nii.gz") + ".json").read_text())
        assert told["Patients"], file.name
        assert told["Units"] in ("relative to a uniform map", "patients")
        assert "not a medical device" in told["Note"]
    differing = json.loads((maps / "group" / "group_space-grid_desc-rolloutMgmtDifference_map.json").read_text())
    assert differing["Patients"] == "5 with mgmt = 1, 4 with mgmt = 0"
    assert "permutations" in differing["Note"]


def test_the_index_lists_what_lies_in_the_folder(cohort: tuple):
    maps, _, entries = cohort
    index = json.loads((maps / "group" / "group.json").read_text())
    assert index["schema"] == 1
    assert index["entries"] == entries
    named = [one[key] for one in entries for key in ("difference", "picture")]
    named += [part[key] for one in entries for part in one["groups"] for key in ("file", "count_file")]
    assert all((maps / "group" / name).is_file() for name in named)
    with Image.open(maps / "group" / entries[0]["picture"]) as picture:
        assert picture.width > 500


def test_a_group_of_two_has_no_mean_and_no_difference(tmp_path: Path):
    patients = [person(f"a{i}", 1) for i in range(3)] + [person(f"b{i}", 0) for i in range(2)]
    for patient in patients:
        explained(tmp_path, patient, {("rollout", ""): 1.0})
    (found,) = map(asdict, group_maps.write_group_maps(tmp_path, patients, (MGMT,), GRID, tmp_path / "group", SETTINGS))
    assert [(one["n"], one["file"] is None) for one in found["groups"]] == [(3, False), (2, True)]
    assert found["difference"] is found["picture"] is found["p"] is None


def test_a_patient_with_two_visits_counts_once(tmp_path: Path):
    patients = [person(f"a{i}", 1) for i in range(3)] + [person("c_one", 1, session="one"), person("c_two", 1, session="two")]
    for patient, value in zip(patients, (1.0, 1.0, 1.0, 5.0, 1000.0), strict=True):
        explained(tmp_path, patient, {("rollout", ""): value})
    (found,) = map(asdict, group_maps.write_group_maps(tmp_path, patients, (MGMT,), GRID, tmp_path / "group", SETTINGS))
    assert found["groups"][0]["n"] == 4
    assert read(tmp_path / "group" / found["groups"][0]["file"]).array.max() == pytest.approx(2)


def test_a_map_of_zeros_counts_as_zeros(tmp_path: Path):
    patients = [person(f"a{i}", 1) for i in range(3)]
    for patient, value in zip(patients, (0.0, 3.0, 6.0), strict=True):
        explained(tmp_path, patient, {("rollout", ""): value})
    (found,) = map(asdict, group_maps.write_group_maps(tmp_path, patients, (MGMT,), GRID, tmp_path / "group", SETTINGS))
    assert found["groups"][0]["n"] == 3
    assert read(tmp_path / "group" / found["groups"][0]["file"]).array.max() == pytest.approx(3)


@pytest.mark.parametrize("content", [{"schema": 1}, {"schema": MAP_SCHEMA, "settings": {"heads": "max"}}])
def test_maps_of_an_older_layout_or_of_other_settings_are_left_out(tmp_path: Path, content: dict):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "map.json").write_text(json.dumps(content))
    assert group_maps.write_group_maps(tmp_path, [person("a", 1)], (MGMT,), GRID, tmp_path / "group", SETTINGS) == []


def test_the_p_of_a_difference_is_the_exact_one_of_all_permutations():
    first, second = np.array([[9.0, 0.0], [8.0, 1.0], [7.0, 0.5]]), np.array([[1.0, 0.4], [2.0, 0.1], [3.0, 0.7]])
    largest, p = group_maps.largest_difference(first, second, np.random.default_rng(0))
    assert largest == pytest.approx(6)
    assert p == pytest.approx(2 / 20, abs=0.03)  # of 20 ways to choose three, two keep the groups apart


def test_without_a_difference_p_is_below_a_twentieth_a_twentieth_of_the_time():
    rng = np.random.default_rng(3)
    pairs = [rng.exponential(size=(2, 12, 40)) for _ in range(200)]
    found = np.array([group_maps.largest_difference(first, second, rng)[1] for first, second in pairs])
    assert 0.01 <= (found <= 0.05).mean() <= 0.10
    assert 0.4 < found.mean() < 0.6


def test_a_difference_of_nothing_is_clear_and_its_signs_have_two_colours():
    grey = np.full((1, 3), 0.5)
    none, more, less = group_maps.blend_difference(
        grey, np.array([[0.0, group_maps.DIFFERENCE_LIMIT, -group_maps.DIFFERENCE_LIMIT]])
    )[0].astype(int)
    assert none.tolist() == [128] * 3
    assert more[0] > more[2] + 30
    assert less[2] > less[0] + 30
    faint = group_maps.blend_difference(grey, np.full((1, 3), 0.5))[0, 0].astype(int)
    assert np.abs(faint - 128).max() < 20
