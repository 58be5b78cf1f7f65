"""Radiomics of the true tumour: nyxus where it is installed, and what is said where it is not."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from made.prepared import add_records
from scipy.ndimage import gaussian_filter

from mri_vit.crossval import comparators, comparison
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.predictors import patient_tables
from mri_vit.predictors.patient_tables import LOWEST, STEP, features, radiomics_table
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls


def asking(study: Study) -> Study:
    return study.model_copy(update={"controls": Controls(models=(), radiomics=True)})


def test_without_nyxus_it_is_said_before_anything_is_trained_how_to_get_it(tiny: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "nyxus", None)
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    with pytest.raises(UsageError, match=r"nyxus is not installed, which computes it: pip install 'mri-vit\[radiomics\]'"):
        comparators.check(asking(tiny), patients)
    comparators.check(tiny, patients)  # nobody else needs it


def test_intensity_features_are_those_of_the_tumours_voxels():
    pytest.importorskip("nyxus")
    rng = np.random.default_rng(0)
    sequence = rng.normal(size=(24, 24, 24)).astype(np.float32)
    tumour = np.zeros(sequence.shape, bool)
    tumour[5:12, 6:15, 7:16] = True
    found = features(sequence, tumour, 2.0)
    levels = np.rint((sequence[tumour] - LOWEST) / STEP)
    assert found["3MEAN"] == pytest.approx(levels.mean(), rel=1e-6)
    assert found["3STANDARD_DEVIATION_BIASED"] == pytest.approx(levels.std(), rel=1e-6)
    assert found["3MAX"] == levels.max()
    outside = np.where(tumour, sequence, 3 * sequence)
    assert features(outside, tumour, 2.0) == pytest.approx(found, nan_ok=True)
    assert len(found) > 150


def test_texture_that_intensity_does_not_see_is_a_feature():
    """The same voxels, once in order and once shuffled, have the same intensities and other grey-level co-occurrences."""
    pytest.importorskip("nyxus")
    rng = np.random.default_rng(1)
    tumour = np.zeros((20, 20, 20), bool)
    tumour[4:16, 4:16, 4:16] = True
    smooth = 4 * gaussian_filter(rng.normal(size=tumour.shape), 1.5).astype(np.float32)
    rough = smooth.copy()
    rough[tumour] = rng.permutation(smooth[tumour])
    one, other = features(smooth, tumour, 1.0), features(rough, tumour, 1.0)
    assert one["3MEAN"] == pytest.approx(other["3MEAN"])
    assert other["3GLCM_CONTRAST"] > 1.5 * one["3GLCM_CONTRAST"]


def test_co_occurrences_are_those_of_neighbours_in_the_thirteen_directions_at_the_levels_that_are_handed_over():
    """nyxus' contrast: the mean over directions of the mean squared difference of two neighbours, counted here by numpy."""
    pytest.importorskip("nyxus")
    sequence = gaussian_filter(np.random.default_rng(2).normal(size=(14, 14, 14)), 1.0).astype(np.float32) * 4
    tumour = np.zeros(sequence.shape, bool)
    tumour[3:11, 3:10, 3:12] = True
    tumour[3:6, 3:6, 3:6] = False
    levels = np.where(tumour, np.rint((sequence - LOWEST) / STEP), np.nan)
    directions = [shift for shift in product((-1, 0, 1), repeat=3) if shift > (0, 0, 0)]
    apart = [np.nanmean((levels - np.roll(levels, shift, (0, 1, 2))) ** 2) for shift in directions]
    assert len(directions) == 13
    assert features(sequence, tumour, 2.0)["3GLCM_CONTRAST_AVE"] == pytest.approx(np.mean(apart), rel=1e-5)


def stood_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of nyxus, mean and number of the tumour's voxels."""
    monkeypatch.setattr(patient_tables, "installed", lambda: SimpleNamespace(__version__="0"))
    monkeypatch.setattr(patient_tables, "features", lambda s, t, mm: {"mean": float(s[t].mean()), "voxels": float(t.sum())})


def with_masks(study: Study, tmp_path: Path, count: int) -> list[Patient]:
    patients = cohort.read(study.cohort, study.endpoints)
    add_records(study, [p.id for p in patients])
    masks = []
    for patient in patients[:count]:
        drawn = np.zeros((8, 8, 8), np.uint8)
        drawn[2:5, 2:5, 2:4] = 1
        masks.append(tmp_path / f"{patient.id}.nii.gz")
        write(Volume(drawn, np.array(study.grid.affine)), masks[-1])
    return [replace(p, tumour_mask=mask) for p, mask in zip(patients, [*masks, *[None] * 24], strict=False)]


def test_each_sequence_has_its_features_in_the_true_tumour_and_without_a_mask_they_are_missing(
    tiny: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stood_in(monkeypatch)
    patients = with_masks(tiny, tmp_path, 2)[:3]
    table = radiomics_table(patients, tiny)
    assert list(table) == [f"{channel}_{name}" for channel in tiny.channels for name in ("mean", "voxels")]
    assert table.t1_voxels.tolist()[:2] == [18, 18]
    assert table.iloc[2].isna().all()
    patients[1].tumour_mask.unlink()  # type: ignore[union-attr]
    with pytest.raises(IntegrityError, match=f"patient {patients[1].id}: no radiomics: "):
        radiomics_table(patients, tiny)


def test_features_are_computed_once_and_anew_where_mask_or_patient_has_changed(
    tiny: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stood_in(monkeypatch)
    (patient,) = with_masks(tiny, tmp_path, 1)[:1]
    assert patient.tumour_mask
    first = radiomics_table([patient], tiny)
    monkeypatch.setattr(patient_tables, "features", lambda s, t, mm: {"mean": math.nan, "voxels": float(t.sum())})
    pd.testing.assert_frame_equal(radiomics_table([patient], tiny), first)
    smaller = read(patient.tumour_mask)
    write(Volume(smaller.array * (np.indices(smaller.shape)[2] < 3), smaller.affine), patient.tumour_mask)
    changed = radiomics_table([patient], tiny)
    assert changed.t1_voxels.tolist() == [9]
    assert changed.t1_mean.isna().all()
    pd.testing.assert_frame_equal(radiomics_table([patient], tiny), changed)


def test_without_any_mask_there_is_no_such_reference_and_it_is_noted(tiny: Study, monkeypatch: pytest.MonkeyPatch):
    stood_in(monkeypatch)
    tables, notes = comparison._covariates(asking(tiny), cohort.read(tiny.cohort, tiny.endpoints))
    assert tables == {}
    assert notes == {"radiomics": "no patient has a tumour_mask"}


def test_where_masks_are_its_columns_are_noted(tiny: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stood_in(monkeypatch)
    tables, notes = comparison._covariates(asking(tiny), with_masks(tiny, tmp_path, 24))
    assert isinstance(tables["radiomics"], pd.DataFrame)
    assert json.dumps(notes) == '{"radiomics_columns": "8 features of t1, t1ce, t2, flair"}'
