"""First-order intensities: each number against scipy's, the right region, and what is missing is NaN."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from made.prepared import add_records
from scipy import stats

from mri_vit.data import cohort, tokens
from mri_vit.data.volume import Volume, write
from mri_vit.errors import IntegrityError
from mri_vit.predictors.patient_tables import STATISTICS, intensity_table
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid


def expected(values: np.ndarray) -> list[float]:
    percentiles = [float(np.percentile(values, percent)) for percent in (10, 50, 90, 99)]
    return [values.mean(), values.std(), stats.skew(values), stats.kurtosis(values), *percentiles, values.max()]


def voxels(study: Study, name: str) -> np.ndarray:
    """A prepared patient's volume, [c, x, y, z]."""
    return tokens.to_volume(tokens.load(study.prepared / name / "tokens.safetensors")).astype(float)


def test_each_sequence_has_nine_statistics_over_the_brain_as_scipy_has_them(tiny):
    table = intensity_table(cohort.read(tiny.cohort, tiny.endpoints), tiny)
    assert list(table) == [f"{channel}_{name}" for channel in CHANNELS for name in STATISTICS]
    assert table.shape == (24, 36)
    dense = voxels(tiny, "p03")
    brain = (dense != 0).any(axis=0)
    for index, channel in enumerate(CHANNELS):
        found = table.loc["p03", [f"{channel}_{name}" for name in STATISTICS]].to_numpy(float)
        np.testing.assert_allclose(found, expected(dense[index][brain]), rtol=1e-9, atol=1e-12)


def test_the_tumour_is_found_in_the_t1ces_own_space_and_one_without_a_mask_is_missing(tiny, tmp_path):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:3]
    add_records(tiny, [p.id for p in patients])
    moved = np.eye(4)  # the T1ce's space lies 20 mm behind and 10 mm to the left of the grid's
    moved[:3, 3] = [10.0, 20.0, 0.0]
    record = tiny.prepared / "p01" / "patient.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"to_grid": {"t1ce": moved.tolist()}}))
    on_grid = np.zeros((8, 8, 8), np.uint8)
    on_grid[2:5, 3:6, 1:7] = 2  # of which 1 to 6 is brain
    write(Volume(on_grid, np.linalg.inv(moved) @ np.array(tiny.grid.affine)), tmp_path / "mask.nii.gz")
    patients[1] = replace(patients[1], tumour_mask=tmp_path / "mask.nii.gz")
    table = intensity_table(patients, tiny)
    assert table.loc[["p00", "p02"]].filter(like="tumour").isna().all(axis=None)
    dense = voxels(tiny, "p01")
    region = (on_grid > 0) & (dense != 0).any(axis=0)
    assert 0 < region.sum() < (on_grid > 0).sum()
    found = table.loc["p01", [f"tumour_flair_{name}" for name in STATISTICS]].to_numpy(float)
    np.testing.assert_allclose(found, expected(dense[3][region]), rtol=1e-9, atol=1e-12)


def test_a_sequence_that_was_not_acquired_is_missing(tiny):
    patient = cohort.read(tiny.cohort, tiny.endpoints)[0]
    dense = voxels(tiny, patient.id).astype(np.float32)
    brain = (dense != 0).any(axis=0)
    dense[2] = 0
    made = tokens.from_volume(dense, brain, Grid.model_validate(tiny.grid.model_dump()), "-")
    tokens.save(made, tiny.prepared / patient.id / "tokens.safetensors")
    row = intensity_table([patient], tiny).loc[patient.id]
    assert row.filter(like="t2_").isna().all()
    assert row.drop(row.filter(like="t2_").index).notna().all()


@pytest.mark.parametrize("lost", ["tokens", "mask"])
def test_a_file_that_is_gone_names_the_patient(tiny, tmp_path, lost: str):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:2]
    add_records(tiny, [p.id for p in patients])
    if lost == "tokens":
        (tiny.prepared / "p01" / "tokens.safetensors").unlink()
    else:
        patients[1] = replace(patients[1], tumour_mask=tmp_path / "gone.nii.gz")
    with pytest.raises(IntegrityError, match="patient p01: no intensities"):
        intensity_table(patients, tiny)
