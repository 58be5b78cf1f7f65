"""A prepared patient as another encoder's cube: the same points of the head, on the scale and axes that are expected."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest
from nibabel.affines import apply_affine

from mri_vit.data import tokens
from mri_vit.errors import UnusablePatient
from mri_vit.features import foreign
from mri_vit.features.foreign import Expected
from mri_vit.settings.sections import GRID_CENTRE_MM, Grid

GRID = Grid(edge=16, spacing_mm=4.0, patch=4)
CHANNELS = ("t1", "t2")


def expected(edge: int = 16, spacing_mm: float = 4.0, intensity: str = "zscore", axes: str = "RAS") -> Expected:
    return Expected(edge, 4, spacing_mm, intensity, axes)  # type: ignore[arg-type]


def prepared(seed: int = 1, empty: str = "") -> tokens.Tokens:
    """A patient whose brain is a box off the centre, z-scored, smooth enough to be interpolated."""
    brain = np.zeros((16, 16, 16), bool)
    brain[3:12, 2:13, 4:12] = True
    generator = np.random.default_rng(seed)
    x = np.stack(np.meshgrid(*[np.linspace(-1, 1, 16)] * 3, indexing="ij"))
    volume = np.stack([np.tensordot(generator.normal(size=3), x, 1) + 0.3 * x[0] * x[1] for _ in CHANNELS])
    for array, name in zip(volume, CHANNELS, strict=True):
        array[brain] = (array[brain] - array[brain].mean()) / array[brain].std()
        array[~brain] = 0
        if name == empty:
            array[:] = 0
    return tokens.from_volume(volume.astype(np.float32), brain, GRID, "-", CHANNELS)


def test_the_prepared_grid_itself_is_read_voxel_by_voxel():
    patient = prepared()
    dense = tokens.to_volume(patient).astype(np.float32)
    found = foreign.expected_scan(patient, expected(), CHANNELS)
    np.testing.assert_allclose(found.volumes, dense, atol=5e-3)  # of float16, standardised once more


def test_a_smaller_cube_of_the_same_voxels_is_a_crop_around_the_same_centre():
    patient = prepared()
    dense = tokens.to_volume(patient).astype(np.float32)
    cut = foreign.on_cube(dense[0], np.array(GRID.affine), expected(edge=8))
    np.testing.assert_array_equal(cut, dense[0, 4:12, 4:12, 4:12])


def test_a_larger_cube_is_the_same_with_nothing_around():
    dense = tokens.to_volume(prepared()).astype(np.float32)
    padded = foreign.on_cube(dense[0], np.array(GRID.affine), expected(edge=24))
    np.testing.assert_array_equal(padded[4:20, 4:20, 4:20], dense[0])
    assert np.count_nonzero(padded) == np.count_nonzero(dense[0])


@pytest.mark.parametrize(("edge", "spacing_mm"), [(16, 4.0), (20, 3.1), (32, 2.0), (8, 8.0)])
def test_a_point_in_the_head_has_the_same_value_on_any_cube(edge: int, spacing_mm: float):
    one = expected(edge, spacing_mm)
    positions = apply_affine(np.array(GRID.affine), np.moveaxis(np.indices((16, 16, 16)), 0, -1))
    ramp = (positions @ np.array([0.5, -0.3, 0.2])).astype(np.float32)  # linear, so that interpolation is exact
    seen = foreign.on_cube(ramp, np.array(GRID.affine), one)
    where = apply_affine(one.affine, np.moveaxis(np.indices((edge, edge, edge)), 0, -1))
    inside = (np.abs(where - np.array(GRID_CENTRE_MM)) <= 7.5 * 4.0).all(axis=-1)
    np.testing.assert_allclose(seen[inside], (where @ np.array([0.5, -0.3, 0.2]))[inside], atol=1e-3)
    assert inside.any()


@pytest.mark.parametrize("axes", ["RAS", "SAR", "LPS", "AIL"])
def test_axes_are_exchanged_and_flipped_as_nibabel_reads_them(axes: str):
    array = np.random.default_rng(1).normal(size=(5, 5, 5)).astype(np.float32)
    found = foreign.turned(array, axes)
    to_ras = nib.orientations.inv_ornt_aff(
        nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.orientations.axcodes2ornt(axes)), array.shape
    )
    assert "".join(nib.aff2axcodes(to_ras)) == axes
    for index in [(0, 0, 0), (4, 1, 2), (3, 3, 0)]:
        x, y, z = (round(float(one)) for one in apply_affine(to_ras, index))
        assert found[index] == array[x, y, z]


@pytest.mark.parametrize(("edge", "spacing_mm"), [(16, 4.0), (12, 4.0), (20, 3.0)])
def test_the_brain_has_mean_0_and_deviation_1_in_the_cube_and_nothing_is_outside_it(edge: int, spacing_mm: float):
    found = foreign.expected_scan(prepared(), expected(edge, spacing_mm), CHANNELS)
    for array in found.volumes:
        brain = array[array != 0]
        assert abs(brain.mean()) < 1e-3
        assert abs(brain.std() - 1) < 1e-3
    assert 0.05 < np.count_nonzero(found.volumes[0]) / edge**3 < 0.7


def test_a_brain_from_0_to_1_is_made_where_that_is_expected():
    (array, _) = foreign.expected_scan(prepared(), expected(intensity="unit"), CHANNELS).volumes
    assert (array.min(), array.max()) == (0, 1)
    assert 0.3 < array[array > 0].mean() < 0.7


def test_a_missing_sequence_is_left_out_and_an_empty_patient_has_none():
    found = foreign.expected_scan(prepared(empty="t1"), expected(), CHANNELS)
    assert found.channels == ("t2",)
    assert found.volumes.shape == (1, 16, 16, 16)
    assert foreign.expected_scan(prepared(empty="t2"), expected(), ("t2",)).volumes.shape == (0, 16, 16, 16)


def test_sequences_come_in_the_order_that_is_asked_for():
    there, back = (foreign.expected_scan(prepared(), expected(), order).volumes for order in (CHANNELS, CHANNELS[::-1]))
    np.testing.assert_array_equal(there, back[::-1])


@pytest.mark.parametrize(("change", "told"), [(lambda x: x * 100, "deviation of"), (lambda x: x + 3, "mean of 3.00")])
def test_a_patient_who_is_not_z_scored_is_refused_by_sequence(change, told: str):
    dense = tokens.to_volume(prepared()).astype(np.float32)
    brain = (dense != 0).any(axis=0)
    dense[1][brain] = change(dense[1][brain])
    other = tokens.from_volume(dense, brain, GRID, "-", CHANNELS)
    with pytest.raises(UnusablePatient, match=rf"t2 has a .*{told}.*expected a z-score"):
        foreign.expected_scan(other, expected(), CHANNELS)


def test_the_share_of_the_brain_in_a_cube_is_counted():
    brain = np.zeros((16, 16, 16), bool)
    brain[4:12, 4:12, :] = True
    assert foreign.share_inside(brain, GRID, expected(edge=16)) == 1
    assert foreign.share_inside(brain, GRID, expected(edge=8)) == 0.5
