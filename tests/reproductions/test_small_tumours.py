"""The built-in cohort with small tumours: sizes, rims and labels are as promised, and nothing else tells the label."""

from __future__ import annotations

import csv
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reproductions import small_tumours
from rich.console import Console
from scipy.ndimage import binary_dilation
from sklearn.metrics import roc_auc_score

from mri_vit import study, synthetic
from mri_vit.data import cohort, run_cohort
from mri_vit.run import folder as run_folder
from mri_vit.settings import file as study_file
from mri_vit.settings import schema
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.sections import Quality
from mri_vit.synthetic import TISSUE, scan

pytestmark = pytest.mark.slow  # a cohort of its own

REPRODUCTIONS = Path(__file__).parents[2] / "pipelines" / "reproductions"
CASES = small_tumours.draw_small_cases(300, 100, np.random.default_rng(11))
BRIGHT: np.ndarray = np.array([case.rim_signal > 1.5 for case in CASES])  # halfway between the two kinds


def test_tumours_are_small_and_all_have_a_thin_rim_around_a_core():
    across = np.array([2 * case.radius_mm for case in CASES])
    assert 10 <= across.min() < 11
    assert 21 < across.max() <= 22
    assert np.histogram(across, bins=4, range=(10, 22))[0].min() > 400 / 4 * 0.6  # of all sizes between
    assert not any(case.solid for case in CASES)
    assert all(0 < case.rim_mm < case.radius_mm for case in CASES)  # some core is left in the smallest


def test_mgmt_is_the_rims_brightness_and_its_only_label():
    assert all(list(case.labels) == ["mgmt"] for case in CASES)
    truth = np.array([case.labels["mgmt"] == "1" for case in CASES[:300]])
    assert (truth == BRIGHT[:300]).all()
    assert 0.4 < truth.mean() < 0.6
    signal = np.array([case.rim_signal for case in CASES])
    assert signal[BRIGHT].min() - signal[~BRIGHT].max() > 0.3  # apart, with some spread among equals
    assert signal[~BRIGHT].min() > TISSUE["t1ce"][2]  # seen to enhance against white matter
    assert len(set(signal)) == 400


def test_the_last_patients_have_no_label_and_both_kinds_of_rim():
    assert all(case.labels["mgmt"] in ("0", "1") for case in CASES[:300])
    assert all(case.labels["mgmt"] == "" for case in CASES[300:])
    assert 0.3 < BRIGHT[300:].mean() < 0.7


@pytest.mark.parametrize("told", ["age", "sex", "site", "radius_mm", "wide_oedema", "centre_mm", "id"])
def test_nothing_but_the_rim_tells_mgmt(told: str):
    found = [getattr(case, told) for case in CASES]
    numbers = {"sex": [value == "F" for value in found], "id": range(400)}.get(told, found)
    if told == "site":
        numbers = [[value == site for site in "ABC"] for value in found]
    for column in np.array(numbers, float).reshape(400, -1).T:
        assert abs(roc_auc_score(BRIGHT, column) - 0.5) < 0.1  # more than three standard errors of a coin


def test_only_the_rim_in_t1ce_differs_between_patients_of_both_kinds():
    case = CASES[0]
    pair = [
        scan(replace(case, rim_signal=small_tumours.RIM_SIGNAL[bright]), np.random.default_rng(3)) for bright in (True, False)
    ]
    (bright, truth), (faint, same) = pair
    np.testing.assert_array_equal(truth.array, same.array)
    for channel in ("t1", "t2", "flair"):
        np.testing.assert_array_equal(bright[channel].array, faint[channel].array)
    more = bright["t1ce"].array.astype(float) - faint["t1ce"].array
    around = np.asarray(binary_dilation(truth.array == 2, iterations=2), bool)  # voxels with some share of the rim
    assert more.max() > 0
    assert not more[~around].any()
    assert (more >= 0).all()


def test_a_cohort_is_written_with_its_labels_and_made_anew_when_more_is_asked_for(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(synthetic, "_write", lambda case, folder, seed, scan: written.append((case.id, seed)))
    monkeypatch.setattr(synthetic, "ProcessPoolExecutor", lambda workers, *_: ThreadPoolExecutor(workers))
    table = small_tumours.make(tmp_path, seed=3, labelled=4, unlabelled=2)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["mgmt"]) for row in rows] == [True] * 4 + [False] * 2
    columns = {"patient", *schema.CHANNELS, "tumour_mask", "age", "sex", "site", "mgmt"}
    assert set(rows[0]) == columns
    assert sorted(written) == [(f"demo-{i + 1:03d}", [3, i]) for i in range(6)]
    patients = cohort.read(table, (Endpoint(name="mgmt", kind="binary"),))
    assert [math.isnan(patient.labels["mgmt"]) for patient in patients] == [False] * 4 + [True] * 2
    small_tumours.make(tmp_path, seed=3, labelled=4, unlabelled=2)
    assert len(written) == 6
    small_tumours.make(tmp_path, seed=3, labelled=5, unlabelled=1)  # as many patients, another cohort
    assert len(written) == 12
    synthetic.make(tmp_path, seed=3, patients=6)
    assert len(written) == 18
    assert "hard" not in (tmp_path / "README.md").read_text()


def test_no_patient_is_excluded_because_nothing_but_a_thin_rim_enhances(tmp_path: Path):
    hard = [
        study_file.load(REPRODUCTIONS / name)
        for name in ("learning_curve/learning_curve.toml", "ablation/ablation.toml", "features/features_hard.toml")
    ]
    assert all(one.qc == Quality() for one in hard)
    table = small_tumours.make(tmp_path / "cohort", 1, 4, 0)
    paths = {"cohort": table, "prepared": tmp_path / "prepared", "output": tmp_path / "run"}
    of = hard[0].model_copy(update=paths)
    with run_folder.claimed(of) as run:
        study.prepare(of, run_cohort.freeze(of, cohort.read(table, of.endpoints), run), run, Console(quiet=True))
        assert len(run_cohort.included(of, run)) == 4
