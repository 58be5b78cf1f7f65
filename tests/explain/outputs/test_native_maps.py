"""Maps against known places in the world: on the grid, on every scan of a patient, in whatever orientation it was stored."""

from __future__ import annotations

import itertools

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from nibabel.affines import apply_affine
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume, resample
from mri_vit.explain.outputs.map_files import on_scan, space
from mri_vit.settings.schema import CHANNELS
from mri_vit.settings.sections import Grid

GRID = Grid(edge=56, spacing_mm=4.0, patch=4)
FRAME = np.array(GRID.affine)
PLACE_MM = GRID.patch * GRID.spacing_mm
EVERYWHERE = np.ones((GRID.edge,) * 3, bool)
MARK = np.array([37.0, -50.0, 20.0])  # to the right, at the back, above
ORIENTATIONS = [
    tuple(codes)
    for order in itertools.permutations(("RL", "AP", "SI"))
    for codes in itertools.product(*order)  # 6 orders of the axes, 8 ways to flip them
]


def on_grid(value: np.ndarray, position: np.ndarray, brain: np.ndarray, grid: Grid) -> Volume:
    """The map on the prepared grid."""
    edge = grid.edge
    return on_scan(value, space((edge, edge, edge), np.array(grid.affine), np.eye(4), brain, position, grid))


def place_of(point_mm: np.ndarray) -> tuple[int, np.ndarray]:
    """The place that holds a point of the grid's space, and the centre of that place."""
    corner = FRAME[:3, 3] - GRID.spacing_mm / 2
    index = ((point_mm - corner) // PLACE_MM).astype(int)
    return int(np.ravel_multi_index(tuple(index), (GRID.side,) * 3)), corner + (index + 0.5) * PLACE_MM


def hot(position: int) -> np.ndarray:
    value = np.zeros(GRID.positions, np.float32)
    value[position] = 1
    return value


def rigid(degrees: tuple[float, float, float], shift_mm: tuple[float, float, float]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, 3] = shift_mm
    return matrix


def scanned(codes: tuple[str, ...], spacing_mm: tuple[float, float, float], oblique: float) -> tuple[tuple, np.ndarray]:
    """Shape and affine of a scan that holds the whole head, its axes turned and stored in an orientation."""
    shape = tuple(int(np.ceil(220 / mm)) for mm in spacing_mm)
    affine = rigid((0, oblique / 2, oblique), (0, 0, 0)) @ np.diag([*spacing_mm, 1.0])
    affine[:3, 3] = -affine[:3, :3] @ (np.array(shape) / 2) + [0, -20, 0]
    turn = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.orientations.axcodes2ornt(codes))
    stored = nib.orientations.apply_orientation(np.empty(shape, np.uint8), turn).shape
    return stored, affine @ nib.orientations.inv_ornt_aff(turn, shape)


def centre_mm(volume: Volume) -> np.ndarray:
    """The centre of a map's mass in its scan's world."""
    points = np.argwhere(volume.array > 0)
    return np.average(apply_affine(volume.affine, points), axis=0, weights=volume.array[tuple(points.T)])


def test_there_are_48_ways_to_store_a_scan():
    assert len(set(ORIENTATIONS)) == 48


@pytest.mark.parametrize("oblique", [0, 17])
@pytest.mark.parametrize("codes", ORIENTATIONS, ids="".join)
def test_a_hot_place_lands_at_its_world_position_in_every_scan_of_a_patient(codes: tuple[str, ...], oblique: int):
    position, centre = place_of(MARK)
    spacings = {"t1": (6.0, 6.0, 9.0), "t1ce": (6.0, 7.0, 8.0), "t2": (9.0, 7.0, 6.0), "flair": (7.0, 7.0, 7.0)}
    moved = {  # every scan has its own way to the grid
        "t1": rigid((5, -7, 4), (3, -12, 8)),
        "t1ce": rigid((-3, 2, 9), (-6, 5, 0)),
        "t2": rigid((0, 0, -12), (10, 0, -4)),
        "flair": np.eye(4),
    }
    for channel in CHANNELS:
        shape, affine = scanned(codes, spacings[channel], oblique)
        assert oblique or nib.orientations.aff2axcodes(affine) == codes
        heat = on_scan(hot(position), space(shape, affine, moved[channel], EVERYWHERE, np.arange(GRID.positions), GRID))
        expected = apply_affine(np.linalg.inv(moved[channel]), centre)
        peak = apply_affine(affine, np.array(np.unravel_index(heat.array.argmax(), heat.shape)))
        assert np.linalg.norm(peak - expected) < PLACE_MM  # one patch
        assert np.linalg.norm(centre_mm(heat) - expected) < 2  # and its middle far nearer than that
        assert peak[0] > 0  # the right stays right


def test_a_value_lies_on_its_own_place_of_the_grid():
    position, centre = place_of(MARK)
    volume = on_grid(hot(position), np.arange(GRID.positions), EVERYWHERE, GRID)
    np.testing.assert_allclose(centre_mm(volume), centre, atol=0.01)


@examples(15)
@given(seed=st.integers(0, 1000), count=st.integers(30, 600))
def test_a_constant_map_stays_constant_up_to_the_brains_border(seed: int, count: int):
    position = np.sort(np.random.default_rng(seed).choice(GRID.positions, count, replace=False))
    brain = np.zeros(GRID.positions, bool)
    brain[position] = True
    dense = brain.reshape((GRID.side,) * 3).repeat(4, 0).repeat(4, 1).repeat(4, 2)
    volume = on_grid(np.full(count, 3.0, np.float32), position, dense, GRID)
    np.testing.assert_allclose(volume.array[dense], 3.0, rtol=1e-5)
    assert not volume.array[~dense].any()


def test_between_places_a_map_is_what_itk_interpolates():
    value = np.random.default_rng(0).exponential(size=GRID.positions).astype(np.float32)
    coarse = FRAME @ np.diag([GRID.patch] * 3 + [1.0])
    coarse[:3, 3] = FRAME[:3, 3] + GRID.spacing_mm * (GRID.patch - 1) / 2
    laid = Volume(value.reshape((GRID.side,) * 3), coarse)
    shape, affine = (20, 18, 22), rigid((10, 20, 30), (4, -19, 9)) @ np.diag([4.0, 5.0, 3.0, 1.0])
    affine[:3, 3] -= affine[:3, :3] @ (np.array(shape) / 2)  # wholly between the outermost centres
    to_grid = rigid((3, -2, 5), (1, 2, 3))
    heat = on_scan(value, space(shape, affine, to_grid, EVERYWHERE, np.arange(GRID.positions), GRID))
    np.testing.assert_allclose(heat.array, resample(laid, shape, affine, to_source=to_grid).array, atol=1e-4)


def test_the_order_in_which_places_are_given_does_not_matter():
    rng = np.random.default_rng(1)
    position, value = rng.permutation(GRID.positions), rng.exponential(size=GRID.positions).astype(np.float32)
    ordered = np.argsort(position)
    mixed, sorted_ = on_grid(value, position, EVERYWHERE, GRID), on_grid(value[ordered], position[ordered], EVERYWHERE, GRID)
    np.testing.assert_allclose(mixed.array, sorted_.array, atol=1e-5)


def test_outside_the_brain_and_outside_the_grid_a_map_is_zero():
    brain = np.zeros((GRID.edge,) * 3, bool)
    brain[20:36, 20:36, 20:36] = True
    shape, affine = scanned(("L", "P", "S"), (4.0, 4.0, 4.0), 0)
    affine = affine.copy()
    affine[0, 3] += 200  # most of this scan lies beside the head
    where = space(shape, affine, np.eye(4), brain, np.arange(GRID.positions), GRID)
    heat = on_scan(np.ones(GRID.positions, np.float32), where)
    index = np.rint(apply_affine(np.linalg.inv(FRAME) @ affine, np.argwhere(np.ones(shape, bool)))).astype(int)
    held = ((index >= 0) & (index < GRID.edge)).all(axis=1)
    expected = np.zeros(len(index), bool)
    expected[held] = brain[tuple(index[held].T)]
    np.testing.assert_array_equal(where.inside.ravel(), expected)
    np.testing.assert_array_equal(heat.array.ravel() > 0, expected)
