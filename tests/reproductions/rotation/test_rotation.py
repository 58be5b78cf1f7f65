"""Rotation: directions are the patient's own, a quarter turn moves voxels exactly, and preparation undoes a header's rotation."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from made import network as networks
from made.prepared import prepared_by
from reproductions.rotation import __main__ as pipeline
from reproductions.rotation import reading, rotated, rotated_patients, rotation_figures, rotation_page, stability
from reproductions.rotation.reading import ANOTHER, SCANNED, Map, Score, Seen, Subject
from reproductions.rotation.rotated_patients import CONTENT, CONTENT_BACK, GRID, GRID_BACK, HEADER, Lie, Plan

from mri_vit.data import cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, read
from mri_vit.errors import IntegrityError, OutOfResource, UnusablePatient, UsageError
from mri_vit.explain.outputs import map_files
from mri_vit.metrics.discrimination import auc_interval
from mri_vit.model import network
from mri_vit.run import files
from mri_vit.settings.schema import CHANNELS, Endpoint, Model, Study
from mri_vit.settings.sections import Grid, Prepare

pytestmark = pytest.mark.slow  # registrations of turned heads, for one question

CUBE = Grid(edge=16, spacing_mm=8.0, patch=4)
PLANES = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}  # array axes: a positive turn carries the first's end to the second's
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval's ends are told from nothing here but themselves."""
    monkeypatch.setattr(stability, "RESAMPLES", 30)


def middle(grid: Grid) -> np.ndarray:
    """The point about which a quarter turn carries the grid's voxels onto voxels."""
    return (np.array(grid.affine) @ [*[(grid.edge - 1) / 2] * 3, 1])[:3]


def lump(grid: Grid, seed: int = 0) -> Tokens:
    """A brain without a symmetry, off the grid's middle."""
    generator = np.random.default_rng(seed)
    i, j, k = np.indices((grid.edge,) * 3) / grid.edge
    brain = ((i - 0.45) / 0.3) ** 2 + ((j - 0.55) / 0.38) ** 2 + ((k - 0.5) / 0.25) ** 2 < 1
    volume = generator.normal(size=(4, *brain.shape)).astype(np.float32)
    return tokens.from_volume(volume, brain, grid, "-")


# --- directions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "was", "now"), [("x", "y", "z"), ("y", "z", "x"), ("z", "x", "y")])
def test_a_positive_quarter_turn_is_right_handed(axis: str, was: str, now: str):
    unit = dict(zip("xyz", np.eye(3), strict=True))
    centre = np.array([3.0, -17.0, 5.0])
    there = rotated.carried(rotated.about(axis, 90.0, centre), (centre + unit[was])[None])[0]
    assert np.array_equal(there, centre + unit[now])
    assert np.array_equal(rotated.carried(rotated.about(axis, 37.0, centre), centre[None])[0].round(9), centre)


@pytest.mark.parametrize(
    "signs", [(1, 1, 1), (-1, -1, 1), (-1, 1, -1)]
)  # of the scan's own axes: as stored, not as the patient lies
def test_a_marker_on_the_left_stays_on_the_left_and_comes_back(signs: tuple[int, int, int]):
    affine = rotated.about("x", 7.0, np.zeros(3)) @ np.diag([*(np.array(signs) * (3.0, 3.5, 4.0)), 1.0])
    affine[:3, 3] -= affine[:3, :3] @ [29.5, 29.5, 24.5]
    marker = np.array([-40.0, 20.0, 5.0])  # left, in front, up
    points = rotated.carried(affine, np.argwhere(np.ones((60, 60, 50))).astype(float)).reshape(60, 60, 50, 3)
    head = 20.0 * (np.linalg.norm(points / (75, 80, 70), axis=-1) < 1)
    scan = Volume((head + 500 * np.exp(-(((points - marker) / 6) ** 2).sum(axis=-1) / 2)).astype(np.float32), affine)

    def found(volume: Volume) -> np.ndarray:
        bright = np.where(volume.array > 120, volume.array, 0)
        return np.tensordot(bright / bright.sum(), points, axes=3)

    turn = rotated.about("z", 20.0, np.zeros(3))
    there = rotated.scan_turned(scan, turn)
    assert np.linalg.norm(found(there) - rotated.carried(turn, marker[None])[0]) < 1.0
    assert found(there)[0] < -30  # still left, and, as the right goes to the front, less far in front
    assert found(there)[1] < found(scan)[1] - 10
    assert np.linalg.norm(found(rotated.scan_turned(there, np.linalg.inv(turn))) - found(scan)) < 1.0  # a third of a voxel


def test_a_stripped_scan_keeps_its_size_and_no_border_fades():
    points = (np.argwhere(np.ones((40, 40, 40))) - 19.5).reshape(40, 40, 40, 3)
    brain = np.linalg.norm(points / (11, 14, 10), axis=-1) < 1
    scan = Volume(np.where(brain, 100.0, -5.0).astype(np.float32), np.diag([4.0, 4.0, 4.0, 1.0]))
    there = rotated.scan_turned(scan, rotated.about("z", 30.0, rotated.carried(scan.affine, np.full((1, 3), 19.5))[0]))
    assert np.isclose(there.array, 100, atol=0.01).sum() + (there.array == -5).sum() == brain.size
    assert (there.array > 0).sum() == pytest.approx(brain.sum(), rel=0.02)


# --- the grid --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [CUBE, Grid(edge=24, spacing_mm=224 / 24, patch=8), Grid(edge=56, spacing_mm=4.0, patch=4)])
@pytest.mark.parametrize("axis", rotated.AXES)
def test_a_rotation_by_nothing_changes_no_byte(grid: Grid, axis: str):
    before = lump(grid)
    after = rotated.tokens_turned(before, rotated.about(axis, 0.0, rotated.centre_mm(before)))
    assert after.patches.tobytes() == before.patches.tobytes()
    assert after.position.tobytes() == before.position.tobytes()


@pytest.mark.parametrize("axis", rotated.AXES)
def test_a_quarter_turn_is_a_permutation_of_voxels(axis: str):
    before = lump(CUBE)
    after = rotated.tokens_turned(before, rotated.about(axis, 90.0, middle(CUBE)))
    expected = np.stack([np.rot90(one, 1, PLANES[axis]) for one in tokens.to_volume(before)])
    assert np.array_equal(tokens.to_volume(after), expected)


@pytest.mark.parametrize("axis", rotated.AXES)
def test_a_map_of_a_quarter_turned_brain_lies_exactly_where_it_lay(axis: str):
    before, matrix = lump(CUBE), rotated.about(axis, 90.0, middle(CUBE))
    after = rotated.tokens_turned(before, matrix)
    by_place = np.random.default_rng(1).random(CUBE.positions)
    value, turned = (
        by_place[before.position],
        np.rot90(by_place.reshape((CUBE.side,) * 3), 1, PLANES[axis]).ravel()[after.position],
    )
    brains = [(tokens.to_volume(one) != 0).any(axis=0) for one in (before, after)]
    shape, affine = (CUBE.edge, CUBE.edge, CUBE.edge), np.array(CUBE.affine)
    straight = map_files.on_scan(value, map_files.space(shape, affine, np.eye(4), brains[0], before.position, CUBE))
    back = map_files.on_scan(turned, map_files.space(shape, affine, matrix, brains[1], after.position, CUBE))
    assert np.array_equal(back.array != 0, straight.array != 0)
    np.testing.assert_allclose(back.array, straight.array, atol=1e-6)


def test_turning_there_and_back_loses_little_and_turning_the_other_way_is_seen():
    before = lump(Grid(edge=56, spacing_mm=4.0, patch=4))
    matrix = rotated.about("z", 20.0, rotated.centre_mm(before))
    there = rotated.tokens_turned(before, matrix)
    back, wrong = (rotated.tokens_turned(there, one) for one in (np.linalg.inv(matrix), matrix))
    dice = [_dice(before, one) for one in (back, wrong, there)]
    assert dice[0] > 0.97 > dice[2] > dice[1]


def _dice(one: Tokens, other: Tokens) -> float:
    a, b = ((tokens.to_volume(each) != 0).any(axis=0) for each in (one, other))
    return float(2 * (a & b).sum() / (a.sum() + b.sum()))


# --- one patient -----------------------------------------------------------------------------------------------------------

ENDPOINTS = (Endpoint(name="mgmt", kind="binary"), Endpoint(name="os", kind="survival", time="os_days", event="os_event"))
SMALL = Grid(edge=32, spacing_mm=7.0, patch=8)


@pytest.fixture(scope="module")
def of(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A prepared synthetic patient, read by a network of random weights."""
    folder = tmp_path_factory.mktemp("rotation")
    study = Study(
        name="r", cohort=scans, prepared=folder / "prepared", output=folder / "run", grid=SMALL, prepare=Prepare(bias=False),
        model=Model(dim=16, depth=2, heads=2, mlp=32, tokens="foreground"), endpoints=ENDPOINTS,
    )  # fmt: skip
    patient = cohort.read(scans, ENDPOINTS)[0]
    prepared_by(study, patient)
    torch.manual_seed(0)
    heads = [networks.HEADS[0], dataclasses.replace(networks.HEADS[2], endpoint=ENDPOINTS[1])]
    net = network.Network(study.model, study.grid, heads)
    for weights in net.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    return rotated_patients.subject(patient, net.eval(), study)


@pytest.fixture(scope="module")
def rows(of: Subject, tmp_path_factory: pytest.TempPathFactory) -> list[Lie | Score | Map]:
    scratch = tmp_path_factory.mktemp("scratch")
    found = list(rotated_patients.rows(of, of.seen.prepared, Plan((20.0,), ("z",), "z"), scratch))
    assert not list(scratch.iterdir())  # scans are deleted when they were read
    return found


def some(rows: list, kind: type, road: str, degrees: float) -> list:
    return [row for row in rows if type(row) is kind and row.road == road and row.degrees == degrees]


def test_preparation_undoes_a_headers_rotation_and_that_of_the_content(rows: list):
    for road, degrees_left, mm_left in ((HEADER, 1.0, 1.0), (CONTENT, 2.0, 2.0)):  # measured: 0.1 and 0.4 degrees
        (lie,) = some(rows, Lie, road, 20.0)
        assert lie.failed == ""
        assert lie.error_degrees < degrees_left, road
        assert lie.error_mm < mm_left, road
    assert some(rows, Lie, HEADER, 20.0)[0].lost == 0


def test_nobody_undoes_the_rotation_of_the_grid(rows: list):
    (turned,), (back,) = some(rows, Lie, GRID, 20.0), some(rows, Lie, GRID_BACK, 20.0)
    assert turned.error_degrees == pytest.approx(20)
    assert back.error_degrees == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("road", [GRID, CONTENT])
def test_at_no_angle_nothing_moves_exactly(rows: list, road: str):
    for score in some(rows, Score, road, 0.0):
        (first,) = (one for one in some(rows, Score, SCANNED, 0.0) if one.endpoint == score.endpoint)
        assert score.evidence == first.evidence
    maps = some(rows, Map, road, 0.0)
    assert {(one.method, one.endpoint) for one in maps} == {
        ("rollout", ""), ("gradient_attention", "mgmt"), ("gradient_attention", "os"),
    }  # fmt: skip
    assert all((one.similarity, one.hot_spot_mm, one.peak_mm) == (pytest.approx(1), 0, 0) for one in maps)
    assert some(rows, Lie, road, 0.0)[0].error_mm < 1e-6


def test_a_patient_in_their_own_place_differs_in_nothing_and_has_no_tumour_of_theirs(rows: list):
    maps = [row for row in rows if type(row) is Map and row.road == ANOTHER]
    assert maps
    assert all(one.similarity == pytest.approx(1) and math.isnan(one.energy) for one in maps)


def test_maps_of_the_whole_road_stay_nearer_than_those_of_the_network_alone(rows: list):
    alike = {
        road: np.mean([one.similarity for one in some(rows, Map, road, 20.0)])
        for road in (HEADER, CONTENT, GRID, GRID_BACK, CONTENT_BACK)
    }
    assert alike[HEADER] > alike[GRID]
    assert min(alike[GRID_BACK], alike[CONTENT_BACK]) > alike[GRID]


def test_energy_and_hit_follow_the_tumour_that_turns_with_the_grid(of: Subject):
    """A map that is the tumour's own share, on whichever grid, has its peak on the tumour and no energy elsewhere."""
    matrix = rotated.about("z", 25.0, rotated.centre_mm(of.seen.prepared))
    there = Seen(rotated.tokens_turned(of.seen.prepared, matrix), matrix @ of.seen.to_grid)
    assert of.tumour
    for seen in (of.seen, there):
        given = reading.given_of(of, seen)
        mask = reading.tumour_shares(of.tumour, seen.to_grid, seen.prepared)[given.at]
        value = (mask == mask.max()).astype(np.float32)
        hit, energy, chance = reading._on_tumour(of, seen, given, {("m", ""): value})["m", ""]
        assert (hit, chance) == (1.0, pytest.approx(mask.mean()))
        assert energy == pytest.approx(mask.max())


def test_who_cannot_be_prepared_is_a_row_that_says_why(of: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(patient: Patient, *_: object) -> Path:
        raise UnusablePatient(HOSTILE, str(patient.scans["t1"]))

    monkeypatch.setattr(rotated_patients, "prepare_patient", refused)
    found = list(rotated_patients.rows(of, None, Plan((20.0,), ("z",), "z"), tmp_path))
    (lie,) = some(found, Lie, CONTENT, 20.0)
    assert lie.failed == HOSTILE
    assert math.isnan(lie.error_degrees)
    assert not some(found, Map, CONTENT, 20.0)


def test_what_leaves_the_field_of_view_is_counted(of: Subject):
    centre = rotated.carried(np.linalg.inv(of.seen.to_grid), rotated.centre_mm(of.seen.prepared)[None])[0]
    far = np.eye(4)
    far[0, 3] = 1000
    assert rotated_patients._lost(of, rotated.about("z", 0.0, centre)) == 0
    assert rotated_patients._lost(of, far) == 1


# --- numbers ---------------------------------------------------------------------------------------------------------------


def planted(patients: int = 12, moves: float = 0.2) -> rotated_patients.Tables:
    """Rows whose maps and scores on the grid move by more than interpolation does, and on the whole road by as much."""
    generator = np.random.default_rng(0)
    lies, scores, maps = [], [], []
    for index in range(patients):
        at = {"patient": f"p{index:02d}", "fold": index % 2}
        own = 3.0 * (index // 2) * (1 + 0.1 * (index % 2)) + 100 * (index % 2)  # the two folds' networks have other scales
        scores.append({**dataclasses.asdict(Score(SCANNED, "", 0.0, "mgmt", own)), **at})
        for road in stability.ROADS:
            for degrees in (0.0, 10.0, 30.0):
                noise = 0.01 * generator.normal() * (degrees > 0)
                by = moves * degrees / 30 * (road == GRID)
                scores.append({**dataclasses.asdict(Score(road, "x", degrees, "mgmt", own + 0.05 + noise + 20 * by)), **at})
                lies.append({**dataclasses.asdict(Lie(road, "x", degrees, by * 10, by, by * 10, 0.0, "", "")), **at})
                for method in reading.METHODS:
                    one = Map(road, "x", degrees, method, "", 0.95 + noise - by, 1.0, 2.0, 1.0, 0.3, 0.1)
                    maps.append({**dataclasses.asdict(one), **at})
        for method in reading.METHODS:
            for road, degrees, alike in ((SCANNED, 0.0, 1.0), (ANOTHER, math.nan, 0.4)):
                one = Map(road, "", degrees, method, "", alike, 0.0, 0.0, 1.0, 0.3, 0.1)
                maps.append({**dataclasses.asdict(one), **at})
        scores.append({**dataclasses.asdict(Score(ANOTHER, "", math.nan, "mgmt", own + 3)), **at})
    return rotated_patients.Tables(pd.DataFrame(lies), pd.DataFrame(scores), pd.DataFrame(maps), 60.0 * patients)


def dealt(tables: rotated_patients.Tables) -> rotated_patients.Tables:
    """The same with a control axis for each patient in turn, and about all three axes in what is no control."""
    control = dict(zip(sorted(set(tables.scores.patient)), itertools.cycle("xyz"), strict=False))
    once = tables.scores.assign(
        axis=[control[p] if axis else "" for p, axis in zip(tables.scores.patient, tables.scores.axis, strict=True)]
    )
    whole = ((once.road == GRID) | ((once.road == CONTENT) & (once.degrees > 0))).to_numpy()
    scores = pd.concat([once[~whole], *(once[whole].assign(axis=axis) for axis in "xyz")], ignore_index=True)
    return dataclasses.replace(tables, scores=scores)


def test_changes_are_in_standard_deviations_within_folds():
    scores = stability.changes(planted().scores)
    deviation = 3.0 * np.arange(6).std(ddof=1) * math.sqrt((1 + 1.1**2) / 2)
    here = stability.some(scores, road=GRID, degrees=30.0)
    assert here["change"].mean() == pytest.approx(4.05 / deviation, rel=0.01)
    assert stability.some(scores, road=SCANNED)["change"].max() == 0
    assert abs(stability.some(scores, road=SCANNED)["now"].mean()) < 1e-9


def test_means_are_over_patients_with_students_interval():
    values = [1.0, 2.0, 4.0]
    rows = pd.DataFrame({"road": "r", "degrees": 5.0, "patient": ["a", "a", "b", "c"], "v": [0.5, 1.5, *values[1:]]})
    (line,) = stability.means(rows, "v").to_dict("records")
    reach = 4.302653 * np.std(values, ddof=1) / math.sqrt(3)  # t of 2 degrees of freedom at 97.5 %
    assert line["value"] == pytest.approx(7 / 3)
    assert (line["low"], line["high"]) == (0.0, pytest.approx(7 / 3 + reach))  # cut at 0
    assert math.isnan(stability.means(rows.head(3), "v")["low"].iloc[0])


def test_ranks_are_one_where_the_order_stays_and_minus_one_where_it_turns_round():
    tables = planted(moves=0.0)
    scanned = stability.some(tables.scores, road=SCANNED)
    flipped = stability.some(tables.scores, road=GRID, degrees=30.0)
    middles = [scanned[scanned.fold == fold].evidence.mean() for fold in flipped.fold]
    tables.scores.loc[flipped.index, "evidence"] = 2 * np.array(middles) - flipped.evidence
    found = stability.ranks(stability.changes(tables.scores), 0)
    at = {(row["road"], row["degrees"]): row["value"] for row in found.to_dict("records")}
    assert at[CONTENT, 30.0] == pytest.approx(1)
    assert at[GRID, 30.0] == pytest.approx(-1)


def test_a_road_that_moves_more_than_interpolation_is_told_from_one_that_does_not():
    tables = planted()
    found = stability.tests({"rollout": (tables.maps.query("method == 'rollout'"), "similarity")})
    p = {(row["road"], row["degrees"]): row for row in found.to_dict("records")}
    assert len(found) == 6
    assert p[GRID, 30.0]["p_adjusted"] < 0.001
    assert p[GRID, 30.0]["difference"] == pytest.approx(-0.2, abs=0.02)
    assert p[CONTENT, 30.0]["p_adjusted"] > 0.05
    assert p[GRID, 30.0]["p_adjusted"] >= p[GRID, 30.0]["p"]


def test_auc_is_of_pairs_within_a_fold_and_of_known_labels():
    tables = planted(moves=0.0)
    patients = [Patient(f"p{i:02d}", {}, {"mgmt": float(i >= 6) if i < 10 else math.nan}, {}) for i in range(12)]
    found = stability.aucs(stability.changes(tables.scores), patients, ENDPOINTS)
    assert set(found["value"]) == {1.0}  # though the folds' scales are 100 apart
    assert set(found["patients"]) == {10}
    unknown = [dataclasses.replace(patient, labels={"mgmt": math.nan}) for patient in patients]
    assert stability.aucs(stability.changes(tables.scores), unknown, ENDPOINTS).empty


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_an_auc_of_few_patients_without_or_with_every_error_has_a_wide_interval(right: float):
    tables = planted(moves=0.0)
    labels = [float((i >= 6) == bool(right)) if 4 <= i < 8 else math.nan for i in range(12)]
    patients = [Patient(f"p{i:02d}", {}, {"mgmt": label}, {}) for i, label in enumerate(labels)]
    found = stability.aucs(stability.changes(tables.scores), patients, ENDPOINTS)
    assert set(found["value"]) == {right}
    assert set(found["patients"]) == {4}
    assert (found["high"] - found["low"]).min() > 0.4


def test_of_one_endpoint_and_fold_the_auc_has_the_houses_own_interval():
    truth = np.arange(12) % 3 == 0
    now, names = np.random.default_rng(0).normal(size=12) + truth, [f"p{i:02d}" for i in range(12)]
    at = {"endpoint": "mgmt", "axis": "", "road": SCANNED, "degrees": 0.0, "fold": 0}
    rows = pd.DataFrame({"patient": names, "now": now}).assign(**at)
    patients = [Patient(name, {}, {"mgmt": float(one)}, {}) for name, one in zip(names, truth, strict=True)]
    (row,) = stability.aucs(rows, patients, ENDPOINTS).to_dict("records")
    assert (row["low"], row["high"]) == pytest.approx(auc_interval(truth, now))


def test_at_no_angle_auc_and_ranks_are_those_of_the_patients_as_scanned_though_axes_are_dealt():
    tables = dealt(planted(moves=0.0))
    patients = [Patient(f"p{i:02d}", {}, {"mgmt": float((i // 2) % 3 == 0)}, {}) for i in range(12)]
    scored = stability.changes(tables.scores)
    found = stability.aucs(scored, patients, ENDPOINTS)
    at = {
        (row["road"], row["degrees"]): (row["value"], row["low"], row["high"], row["patients"])
        for row in found.to_dict("records")
    }
    assert 0 < at[SCANNED, 0.0][0] < 1
    for road in (CONTENT, GRID):
        assert at[road, 0.0] == pytest.approx(at[SCANNED, 0.0])
    ranks = stability.ranks(scored, 0)
    assert set(ranks["value"].round(9)) == {1.0}
    assert set(ranks["patients"]) == {12}


# --- the page, and the way to it -------------------------------------------------------------------------------------------


def test_the_vertical_axis_is_named_beside_the_middle_of_the_panels():
    maps = {str(method): rows for method, rows in planted().maps.groupby("method")}
    drawn = rotation_figures.over_angle(maps, "similarity", "Rank correlation", {}, "", (None, 1.02))
    ends = [axes.get_position() for axes in drawn.axes]
    (label,) = (text for text in drawn.texts if text.get_text() == "Rank correlation")
    assert label.get_position()[1] == pytest.approx((ends[0].y1 + ends[-1].y0) / 2, abs=0.01)


def test_the_page_says_what_was_planted_and_escapes_what_files_say(tmp_path: Path):
    tables = planted()
    tables.lies.loc[tables.lies.index[5], "failed"] = HOSTILE
    study = Study(name="r", cohort=tmp_path / "c", prepared=tmp_path / "p", output=tmp_path / "o", endpoints=ENDPOINTS)
    patients = [Patient(f"p{i:02d}", {}, {"mgmt": float(i % 4 > 1)}, {}) for i in range(12)]
    (tmp_path / "page").mkdir()
    text = rotation_page.write(tables, patients, study, "", tmp_path / "page").read_text()
    assert "<script" not in text
    assert (
        "More than by interpolation alone the map moves on the whole road at no angle; for the network alone at 10°, 30°" in text
    )
    assert "12 patients have a tumour mask" in text
    assert "These patients are synthetic" not in text
    names = {file.stem for file in (tmp_path / "page").glob("*.csv")}
    assert names == {"alignment", "scores", "maps", "ranks", "auc", "tests", "curves"}
    assert {file.stem for file in (tmp_path / "page").glob("*.svg")} == {
        "alignment",
        "scores",
        "maps",
        "hot_spot",
        "energy",
        "hits",
    }


@pytest.fixture(scope="module")
def road(finished: Path, tmp_path_factory: pytest.TempPathFactory, in_this_process: None) -> Path:
    """A run of twelve synthetic patients, and a table of four others."""
    return shutil.copytree(finished, tmp_path_factory.mktemp("road") / "finished")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine
@pytest.mark.usefixtures("in_this_process", "sketched")
def test_a_finished_run_is_rotated_and_goes_on_where_it_was(road: Path, monkeypatch: pytest.MonkeyPatch):
    asked = {"limit": 2, "degrees": (20.0,), "axes": ("z",), "workers": 1}
    pipeline.main(road / "run", **asked)
    home = road / "run" / "rotation"
    done = {file: file.read_bytes() for file in (home / "patients").glob("*.json")}
    assert len(done) == 2
    assert "These patients are synthetic" in (home / "index.html").read_text()
    for file in done:
        exposed = network.load(Path(_weights(road, file.stem))).label_exposed
        assert file.stem not in exposed  # read by the fold's network that was not trained on them

    made = []
    monkeypatch.setattr(rotated_patients, "make", lambda job: made.append(job.patient.id))
    pipeline.main(road / "run", **asked)
    assert made == []
    with pytest.raises(UsageError, match="--axes: found q"):
        pipeline.main(road / "run", axes=("q",))
    with pytest.raises(OutOfResource, match="/proc/x cannot be written"):
        pipeline.main(road / "run", output=Path("/proc/x"))


@pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")
@pytest.mark.usefixtures("in_this_process", "sketched")
def test_patients_of_another_table_are_prepared_and_no_label_of_theirs_is_read(road: Path, tmp_path: Path):
    pipeline.main(
        road / "run", patients=road / "others.csv", output=tmp_path / "out", limit=1, degrees=(20.0,), axes=("x",), workers=1
    )
    assert len(list((tmp_path / "out" / "patients").glob("*.json"))) == 1
    assert not (tmp_path / "out" / "auc.csv").exists()


def _weights(road: Path, patient: str) -> Path:
    split = json.loads((road / "run" / files.FOLDS).read_text())["repeats"][0]["folds"]
    (fold,) = (index for index, names in enumerate(split) if patient in names)
    return files.fold_folder(road / "run", 0, fold) / files.WEIGHTS


@pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")
def test_a_network_that_was_trained_on_the_patient_is_refused(road: Path, tmp_path: Path):
    from mri_vit.finished.trained_run import open_run

    study = open_run(road / "run").study
    patients = cohort.read(study.cohort, study.endpoints)[:2]
    split = json.loads((road / "run" / files.FOLDS).read_text())["repeats"][0]["folds"]
    wrong = {name: 1 - fold for fold, names in enumerate(split) for name in names}  # the other of two folds
    jobs = rotated_patients.jobs(patients, wrong, study, road / "run", [Plan((20.0,), ("z",), "z")], tmp_path)
    with pytest.raises(IntegrityError, match="was trained on patient"):
        rotated_patients.make(jobs[patients[0].id])


def test_another_patient_is_of_the_same_fold_and_controls_axes_go_round(tmp_path: Path):
    patients = [Patient(f"p{i}", {}, {}, {}) for i in range(5)]
    folds = {"p0": 0, "p1": 1, "p2": 0, "p3": 1, "p4": 2}
    study = Study(name="r", cohort=tmp_path / "c", prepared=tmp_path / "p", output=tmp_path / "o")
    plans = [Plan((5.0,), ("x", "y"), axis) for axis in ("x", "y")]
    jobs = rotated_patients.jobs(patients, folds, study, tmp_path, plans, tmp_path)
    assert [job.another and job.another.id for job in jobs.values()] == ["p2", "p3", "p0", "p1", None]
    assert [job.plan.control for job in jobs.values()] == ["x", "y", "x", "y", "x"]
    assert [job.fold for job in jobs.values()] == [0, 1, 0, 1, 2]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("axis", rotated.AXES)
def test_a_real_head_turned_by_its_header_is_laid_straight(shared: Path, tmp_path: Path, axis: str):
    folder = shared / "data" / "stripped" / "TCGA-DU-7294"
    patient = Patient("TCGA-DU-7294", {c: folder / f"{c}.nii.gz" for c in CHANNELS}, {}, {})
    study = Study(name="x", cohort=tmp_path / "c", prepared=tmp_path / "p", output=tmp_path / "o", grid=SMALL)
    first = np.array(json.loads((prepared_by(study, patient) / "patient.json").read_text())["to_grid"]["t1ce"])
    turn = rotated.about(axis, 30.0, rotated.carried(read(patient.scans["t1ce"] or Path()).affine, np.full((1, 3), 100.0))[0])
    other = study.model_copy(update={"prepared": tmp_path / "turned"})
    turned = rotated.header_turned(patient, turn, tmp_path / "scans")
    found = np.array(json.loads((prepared_by(other, turned) / "patient.json").read_text())["to_grid"]["t1ce"])
    assert rotated_patients.turn(found @ turn @ np.linalg.inv(first)) < 2.0
