"""Which of two T1-weighted scans enhances: on real patients in both orders, and on pairs of which neither does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mri_vit.data import volume
from mri_vit.data.volume import Volume
from mri_vit.importers.dicom import channel

pytestmark = pytest.mark.long(8)

THIN = [f"tumours/BraTS2021_{number}" for number in ("01476", "01477", "01479", "01480", "01482", "01483", "01484")]
THICK = ["raw/TCGA-FG-6692", "stripped/TCGA-DU-7294"]  # slices of 5 mm, which may be told wrongly and are told not at all


def scan(patient: Path, name: str) -> Volume:
    return volume.read(next(patient.glob(f"{name}.nii*")))


@pytest.mark.parametrize("patient", [*THIN[:2], *(pytest.param(patient, marks=pytest.mark.slow) for patient in THIN[2:])])
def test_the_t1ce_of_a_real_patient_enhances_and_the_t1_does_not(shared: Path, patient: str) -> None:
    t1, t1ce = (scan(shared / "data" / patient, name) for name in ("t1", "t1ce"))
    assert channel.shows_agent(t1ce, t1)
    assert not channel.shows_agent(t1, t1ce)
    moved = Volume(np.roll(t1.array, 1, axis=0) ** np.float64(1.2), t1.affine)  # a move of 1 mm and another weighting
    assert not channel.shows_agent(moved, t1)
    assert not channel.shows_agent(t1, moved)


@pytest.mark.parametrize("patient", THICK)
def test_thick_slices_settle_nothing(shared: Path, patient: str) -> None:
    t1, t1ce = (scan(shared / "data" / patient, name) for name in ("t1", "t1ce"))
    assert not channel.shows_agent(t1, t1ce)
    assert not channel.shows_agent(t1ce, t1)


def test_scans_that_hold_no_head_or_hardly_any_settle_nothing() -> None:
    dark = Volume(np.zeros((30, 30, 30)), np.eye(4))
    small = Volume(np.full((30, 30, 30), 5.0), np.eye(4))
    assert not channel.shows_agent(dark, small)
    assert not channel.shows_agent(small, dark)
