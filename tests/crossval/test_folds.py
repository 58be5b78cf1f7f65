"""Folds are fair, hashed, and never part a patient."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples

from mri_vit.crossval import folds
from mri_vit.data.cohort import Patient, visit_id
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.settings.schema import Endpoint, Train

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
ENDPOINTS = (MGMT, OS)


def patient(index: int, mgmt: float, event: float, session: str = "", site: str = "A") -> Patient:
    days = math.nan if math.isnan(event) else 100.0 + index
    labels = {"mgmt": float(mgmt), "os_days": days, "os_event": float(event)}
    return Patient(visit_id(f"p{index}", session), {}, labels, {"site": site}, session=session)


label = st.sampled_from([0.0, 1.0, math.nan])


@pytest.mark.long
@examples(60)
@given(st.lists(st.tuples(label, label), min_size=12, max_size=60), st.integers(2, 4), st.integers(0, 99))
def test_folds_hold_everyone_once_and_balance_the_classes(labels: list[tuple[float, float]], k: int, seed: int):
    patients = [patient(i, mgmt, event) for i, (mgmt, event) in enumerate(labels)]
    ones = [sum(m == value for m, _ in labels) for value in (0, 1)]
    deaths = sum(e == 1 for _, e in labels)
    censored = sum(e == 0 for _, e in labels)
    train = Train(folds=k, repeats=2)
    if not sum(ones) + deaths + censored:
        with pytest.raises(UsageError, match="nothing to learn"):
            folds.make(patients, ENDPOINTS, train, seed)
        return
    if (sum(ones) and min(ones) < k) or (deaths + censored and deaths < k):
        with pytest.raises(UsageError, match=f"{k} folds"):
            folds.make(patients, ENDPOINTS, train, seed)
        return
    splits = folds.make(patients, ENDPOINTS, train, seed)
    for split in splits:
        assert sorted(i for fold in split for i in fold) == sorted(p.id for p in patients)
        assert max(map(len, split)) - min(map(len, split)) <= 1
        for fold in split:
            here = [labels[int(i[1:])] for i in fold]
            assert not sum(ones) or {0, 1} <= {m for m, _ in here}
            assert not deaths + censored or 1 in {e for _, e in here}
    assert splits == folds.make(patients, ENDPOINTS, train, seed)


@examples(40)
@given(st.lists(st.integers(1, 4), min_size=16, max_size=40), st.integers(2, 4), st.integers(0, 99))
def test_all_visits_of_a_patient_share_a_fold_and_a_validation_part(visits: list[int], k: int, seed: int):
    patients = [patient(i, i % 2, 1.0, str(v)) for i, n in enumerate(visits) for v in range(n)]
    for split in folds.make(patients, ENDPOINTS, Train(folds=k), seed):
        subjects = [{i.split("_")[0] for i in fold} for fold in split]
        assert sum(map(len, subjects)) == len(set().union(*subjects)) == len(visits)
        assert sorted(i for fold in split for i in fold) == sorted(p.id for p in patients)
    train, val = folds.validation_split(patients, ENDPOINTS, 0.2, seed)
    assert not {p.subject for p in train} & {p.subject for p in val}
    assert len(train) + len(val) == len(patients)


def test_each_fold_has_its_share_of_ones():
    patients = [patient(i, float(i % 3 == 0), float(i % 2)) for i in range(96)]
    for fold in folds.make(patients, ENDPOINTS, Train(folds=4), seed=3)[0]:
        assert len(fold) == 24
        assert abs(sum(int(i[1:]) % 3 == 0 for i in fold) - 8) <= 1
        assert abs(sum(int(i[1:]) % 2 for i in fold) - 12) <= 1


def test_what_two_labels_share_by_chance_in_other_folds_says_nothing_of_a_fold():
    """A coin beside a label that scans tell: dealt over both at once, all folds would share their chance association."""
    random, k = np.random.default_rng(0), 3
    gains = []
    for cohort in range(150):
        mgmt, coin = random.permutation(np.arange(60) % 2), random.permutation(np.arange(60) % 2)
        patients = [patient(i, m, c) for i, (m, c) in enumerate(zip(mgmt, coin, strict=True))]
        (split,) = folds.make(patients, ENDPOINTS, Train(folds=k), seed=cohort)
        of = np.empty(60, int)
        for number, fold in enumerate(split):
            of[[int(i[1:]) for i in fold]] = number
        shared = (2 * mgmt - 1) * (2 * coin - 1)
        gains.append(sum(np.sign(shared[of != fold].sum()) * shared[of == fold].sum() for fold in range(k)))
    error = np.std(gains) / len(gains) ** 0.5
    assert abs(np.mean(gains)) < 3 * error


def test_classes_of_as_many_patients_as_folds_are_spread():
    """Two classes of ten in ten folds: no random deal is likely to spread them, and there is one."""
    patients = [patient(i, float(i < 10), float(10 <= i < 20)) for i in range(200)]
    (split,) = folds.make(patients, ENDPOINTS, Train(folds=10), seed=0)
    assert {len(fold) for fold in split} == {20}
    assert all(sum(int(i[1:]) < 10 for i in fold) == 1 for fold in split)
    assert all(sum(10 <= int(i[1:]) < 20 for i in fold) == 1 for fold in split)


def test_a_label_of_second_visits_alone_is_none_to_learn_from():
    patients = [patient(i, label, math.nan, session) for i in range(9) for session, label in (("1", math.nan), ("2", i % 2))]
    for make_or_check in (folds.check, lambda *given: folds.make(*given, seed=0)):
        with pytest.raises(UsageError, match="nothing to learn"):
            make_or_check(patients, ENDPOINTS, Train(folds=2))


def test_leaving_sites_out_makes_a_fold_of_each():
    patients = [patient(i, i % 2, 1.0, site="ABC"[i % 3]) for i in range(30)]
    split = folds.make(patients, ENDPOINTS, Train(leave_out="site"), seed=0)[0]
    assert [{int(i[1:]) % 3 for i in fold} for fold in split] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    ("patients", "column", "message"),
    [
        ([patient(0, 1, 1), patient(1, 0, 1, site="")], "site", "patient p1 has no 'site'"),
        ([patient(0, 1, 1), patient(1, 0, 1)], "centre", r"no 'centre' \(columns: site\)"),
        ([patient(0, 1, 1), patient(1, 0, 1)], "site", "the one value 'A'"),
        ([patient(0, 1, 1, "1", "A"), patient(0, 1, 1, "2", "B")], "site", "patient p0 has two values of site"),
    ],
)
def test_sites_that_cannot_be_left_out_are_refused(patients: list[Patient], column: str, message: str):
    with pytest.raises(UsageError, match=message):
        folds.make(patients, ENDPOINTS, Train(leave_out=column), seed=0)


def test_the_validation_split_takes_its_share_and_shares_nobody():
    patients = [patient(i, float(i % 2), 1.0) for i in range(40)]
    train, val = folds.validation_split(patients, ENDPOINTS, 0.2, seed=1)
    assert (len(train), len(val)) == (32, 8)
    assert not {p.id for p in train} & {p.id for p in val}
    assert sum(p.labels["mgmt"] for p in val) == 4


@pytest.mark.parametrize("seed", range(20))
def test_validation_patients_take_no_class_that_is_there_from_the_training_patients(seed: int):
    """One of a class in six: a draw by chance takes half of the six, and him with them, every second time."""
    patients = [patient(i, float(i == 2), 1.0) for i in range(6)]
    train, val = folds.validation_split(patients, ENDPOINTS, 0.5, seed)
    assert (len(train), len(val)) == (3, 3)
    assert {p.labels["mgmt"] for p in train} == {0.0, 1.0}


def test_folds_are_hashed_and_a_change_is_refused(tmp_path):
    patients = [patient(0, 1, 1), patient(1, 0, 1)]
    first = folds.save([[["p0"], ["p1"]]], 0, tmp_path / "folds.json")
    assert first == folds.save([[["p0"], ["p1"]]], 0, tmp_path / "folds.json")
    assert folds.load(tmp_path / "folds.json", patients) == [[["p0"], ["p1"]]]
    assert first != folds.save([[["p1"], ["p0"]]], 0, tmp_path / "folds.json")
    (tmp_path / "folds.json").write_text(json.dumps({"repeats": [{"folds": [["p0"], ["p1"]]}]}))
    with pytest.raises(IntegrityError, match="was changed after"):
        folds.load(tmp_path / "folds.json", patients)


@pytest.mark.parametrize("split", [[["p0_1"], ["p0_2"]], [["p0_1", "p0_2"], ["p0_2"]], [["p0_1", "p0_1", "p0_2"], []]])
def test_planted_visits_of_one_patient_in_two_folds_are_refused(tmp_path, split):
    folds.save([split], 0, tmp_path / "folds.json")
    with pytest.raises(UsageError, match="patient p0 sits in two folds"):
        folds.load(tmp_path / "folds.json", [patient(0, 1, 1, "1"), patient(0, 1, 1, "2")])


def test_folds_of_other_patients_are_refused(tmp_path):
    folds.save([[["p0"], ["p1"]]], 0, tmp_path / "folds.json")
    with pytest.raises(UsageError, match="made without or with p2"):
        folds.load(tmp_path / "folds.json", [patient(0, 1, 1), patient(1, 1, 1), patient(2, 1, 1)])


def test_folds_tables_and_checkpoints_are_imported_without_an_imaging_library():
    modules = "import mri_vit.crossval.folds, mri_vit.data.predictions, mri_vit.train.checkpoint"
    imaging = "{'SimpleITK', 'nibabel', 'monai', 'nilearn', 'lightning_fabric', 'lifelines', 'matplotlib'}"
    subprocess.run([sys.executable, "-c", f"import sys\n{modules}\nassert not {imaging} & set(sys.modules)"], check=True)
