"""What a check finds beside the rows of `test_inputs.py`: counts, unlikely values, needs, and how all of it is printed."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from made.inputs import Desk, checked, ended, nifti, sound

from mri_vit.cli import file_verbs, study_verbs
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.preflight import calibration, check, needs, scans
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Comparator, Endpoint, Study

OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(sound(tmp_path / "study"))


def said(found: dict, severity: str = "noticed") -> str:
    return "\n".join(one["said"] for one in found["findings"] if one["severity"] == severity)


def test_a_sound_study_has_no_finding_but_its_size_and_its_document_follows_the_schema(desk: Desk, capsys):
    found = checked(desk, capsys)
    assert (found["exit_code"], found["excluded"]) == (0, [])
    assert [one["severity"] for one in found["findings"]] == ["noticed", "noticed"]
    assert all("12 patients" in one["said"] and "distinguished from chance" in one["said"] for one in found["findings"])
    assert [(one["endpoint"], one["positive"], one["rarest"]) for one in found["labels"]] == [("mgmt", 6, 6), ("os", 9, 9)]
    for one in found["labels"]:
        assert sum(fold["positive"] for fold in one["folds"]) == one["positive"]
    assert found["needs"]["hours"] > 0
    file_verbs.schema(of="check")
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema).validate(found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(found | {"more": 1})


def test_a_check_states_for_each_endpoint_what_the_report_will_hold_to(desk: Desk, capsys: pytest.CaptureFixture[str]):
    marker, survival = checked(desk, capsys)["power"]
    assert (marker["endpoint"], marker["patients"], marker["marked"], marker["results"]) == ("mgmt", 12, 6, 2)
    assert marker["least"] > 0.9  # 12 patients, two results
    assert (survival["kind"], survival["marked"]) == ("survival", 9)
    assert marker["development"]["needed"]["risk"] == 385  # half of them positive


def test_a_plan_says_before_any_data_what_a_check_says_of_them(capsys: pytest.CaptureFixture[str]):
    study_verbs.plan(82, positive=0.5, deaths=0.6, folds=3, results=4, sites=8, json=True)
    marker, survival = json.loads(capsys.readouterr().out)
    assert (marker["marked"], survival["marked"]) == (41, 49)
    assert 0.70 < marker["least"] < marker["found_80"] < marker["found_90"] < 0.8 < marker["high"]
    study_verbs.plan(82, positive=0.5, folds=3, json=True)
    (alone,) = json.loads(capsys.readouterr().out)
    assert alone["found_80"] < marker["found_within_sites"]
    study_verbs.plan(82, positive=0.5, folds=3, external=True, json=True)
    (external,) = json.loads(capsys.readouterr().out)
    assert external["found_80"] < alone["found_80"]
    study_verbs.plan(13, folds=3)
    assert "13 patients (6 positive): the least AUC that is called better than\nchance is 0.92" in capsys.readouterr().out
    study_verbs.plan(8, folds=2)
    assert "nothing is judged with fewer than 5 patients of the rarer class" in " ".join(capsys.readouterr().out.split())
    study_verbs.plan(12, folds=3, results=20)
    assert "no AUC can be called better than chance" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("patients", "share"), [(1, 0.5), (40, 0.001), (40, 0.999), (8, 0.5)])
def test_a_plan_with_more_folds_than_patients_of_a_class_is_refused_as_the_study_would_be(patients: int, share: float):
    with pytest.raises(UsageError, match="5 folds, but"):
        study_verbs.plan(patients, positive=share)
    with pytest.raises(UsageError, match="10 folds, but 4 deaths"):
        study_verbs.plan(8, deaths=0.5, folds=10)


def test_every_fault_is_told_at_once_the_gravest_first(desk: Desk, capsys):
    desk.cells(0, t1=desk.put(b"", "empty.nii"))
    desk.cells(1, mgmt="yes")
    desk.cells(2, flair="")
    desk.cells(3, age="620")
    desk.cells(5, t2="p04/t2.nii.gz")
    found = checked(desk, capsys)
    assert found["exit_code"] == 2
    told = [one["about"] for one in found["findings"] if one["about"] != "labels"]  # these are of the size of the study
    assert told == ["table", "duplicates", "scans", "scans", "plausibility"]
    assert found["excluded"] == ["p00", "p02"]


def test_equal_faults_are_one_line_that_fits_the_terminal(desk: Desk, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for index in range(2, 10):
        desk.cells(index, t2="")
    assert ended("check", desk.study) in (2, 3)
    lines = capsys.readouterr().out.splitlines()
    assert sum("no scan: t2" in line for line in lines) == 1
    assert "8 patients: no scan: t2" in "\n".join(lines)
    assert max(map(len, lines)) <= 80


def test_a_gzip_file_of_two_members_is_no_fault_and_one_that_is_cut_is(desk: Desk, capsys):
    content = nifti(np.random.default_rng(9).integers(0, 900, (9, 8, 7)).astype(np.int16))
    whole = gzip.compress(content[:700]) + gzip.compress(content[700:])
    desk.cells(0, t1=desk.put(whole, "two.nii.gz"))
    assert checked(desk, capsys)["exit_code"] == 0
    desk.cells(0, t1=desk.put(whole[:-9], "cut.nii.gz"))
    assert "damaged gzip stream" in said(checked(desk, capsys), "excluded")


def test_every_clinical_column_has_its_fate_and_its_reason(desk: Desk, capsys):
    desk.write([{"": str(row), **cells, "site": "AB"[row % 2], "pfs_days": str(row)} for row, cells in enumerate(desk.rows())])
    desk.cells(3, age=">89")
    found = checked(desk, capsys)
    assert found["covariates"] == ["sex"]
    fates = {column["name"]: (column["kind"], bool(column["why_not"])) for column in found["columns"]}
    assert fates == {
        "": (None, True),
        "age": (None, True),
        "sex": ("category", False),
        **dict.fromkeys(("site", "pfs_days"), (None, True)),
    }
    (odd,) = (one for one in found["findings"] if one["about"] != "labels")
    assert (odd["severity"], odd["rows"], odd["patients"]) == ("noticed", [5], ["p03"])
    assert "column age" in odd["said"]
    assert "'>89'" in odd["said"]


def test_a_column_that_is_asked_for_and_has_an_odd_cell_is_refused(desk: Desk, capsys):
    desk.cells(3, age=">89")
    found = checked(desk, capsys, "--controls.columns", '["age"]')
    assert found["exit_code"] == 2
    assert "controls.columns: patient p03, column age: 1 of 12 filled cells" in said(found, "refused")


def test_ids_that_differ_only_in_zeros_are_named_with_their_rows(desk: Desk, capsys):
    for row, name in enumerate(("1", "001", "2")):
        desk.cells(row, patient=name)
    (found,) = (one for one in checked(desk, capsys)["findings"] if one["about"] == "table")
    assert (found["severity"], found["rows"]) == ("noticed", [2, 3])
    assert "001, 1 differ only in form" in found["said"]


def people(days: np.ndarray, **columns: list[str]) -> list[Patient]:
    cells = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] or [{}] * len(days)
    labels = [{"os_days": float(day), "os_event": float(i % 4 > 0)} for i, day in enumerate(days)]
    return [Patient(f"p{i}", {}, label, cell) for i, (label, cell) in enumerate(zip(labels, cells, strict=True))]


@pytest.mark.parametrize("shape", [0.8, 1.0, 1.5, 2.5])
def test_times_in_days_alone_raise_no_warning(shape: float):
    for seed in range(10):
        days = np.ceil(450 * np.random.default_rng(seed).weibull(shape, 300))
        assert not list(check.plausibility_findings(people(days), [OS], []))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_months_among_days_are_named_patient_by_patient(share: float):
    for seed in range(5):
        random = np.random.default_rng(seed)
        months = random.random(300) < share
        days = np.maximum(1, 450 * random.weibull(1.5, 300))
        (found,) = check.plausibility_findings(people(np.where(months, days / 30.44, days)), [OS], [])
        named = np.isin([f"p{i}" for i in range(300)], found.patients)
        assert (named == months).mean() > 0.9


def test_times_all_in_months_or_of_one_site_are_named():
    days = 450 * np.random.default_rng(0).weibull(1.5, 30) + 1
    (found,) = check.plausibility_findings(people(days / 30.44), [OS], [])
    assert "are these months?" in found.said
    sites = ["A"] * 12 + ["B"] * 18
    days[:12] /= 30.44
    (found,) = check.plausibility_findings(people(days, site=sites), [OS], [])
    assert "the median of site A is" in found.said


def test_a_column_that_is_a_copy_of_a_label_is_named_and_others_are_not():
    random = np.random.default_rng(0)
    days = np.ceil(450 * random.weibull(1.5, 200))
    columns = {"months": [f"{day / 30.44:.1f}" for day in days], "age": [f"{age:.0f}" for age in random.normal(60, 9, 200)]}
    (found,) = check.plausibility_findings(people(days, **columns), [OS], ["months", "age"])
    assert "column months gives os_days away" in found.said


def test_rows_of_two_ids_that_are_equal_in_every_cell_are_named_where_chance_makes_none():
    random = np.random.default_rng(0)
    days = np.ceil(450 * random.weibull(1.5, 200))
    ages = [f"{age:.2f}" for age in random.normal(60, 9, 200)]
    assert not scans.duplicate_persons(people(days, age=ages))
    weights = [f"{weight:.1f}" for weight in random.normal(75, 15, 200)]
    assert not scans.duplicate_persons(people(days, age=ages, weight=weights))
    days[7], ages[7], weights[7] = days[3], ages[3], weights[3]
    patients = people(days, age=ages, weight=weights)
    patients[7].labels.update(patients[3].labels)
    assert [[p.id for p in group] for group in scans.duplicate_persons(patients)] == [["p3", "p7"]]
    assert not scans.duplicate_persons(people(np.full(200, 100.0), age=["60"] * 200))


def test_the_disk_for_maps_is_that_of_each_methods_maps_and_of_the_scans_voxels(tiny: Study):
    """Six maps of four bytes a voxel took 41 and 45 MB on BraTS' scans, of two bytes a quarter less; the demo's 2.4 to 3.2 MB."""
    usual = float(needs.USUAL_VOXELS)
    four = tiny.model_copy(update={"endpoints": DEFAULT_ENDPOINTS})
    asked = four.explain.model_copy(update={"methods": ("rollout", "cls_attention", "gradient_attention"), "comparators": ()})
    four = four.model_copy(update={"explain": asked})
    assert 0.75 * 41e6 < needs._maps_bytes(four, usual) < 0.75 * 45e6
    one = four.model_copy(update={"endpoints": DEFAULT_ENDPOINTS[:1]})
    assert needs._maps_bytes(one, usual) == needs._maps_bytes(four, usual) // 2
    assert needs._maps_bytes(four, usual / 56) == pytest.approx(2.9e6, rel=0.15)


def test_a_machine_is_measured_once_for_each_network(tiny: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    timed = []
    monkeypatch.setattr(calibration, "_seconds", lambda run: timed.append(run) or 0.5)

    def pace(study: Study) -> calibration.Pace:
        return calibration.pace({"vit": study}, {"vit": needs._sizes(study)})

    first = pace(tiny)
    assert len(timed) == 4  # a part of a preparation, a step, an update, a pass
    assert replace(pace(tiny), seconds=first.seconds) == first
    assert len(timed) == 4
    pace(tiny.model_copy(update={"train": tiny.train.model_copy(update={"batch_size": 3})}))
    assert len(timed) == 8
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mri-vit" / "pace.json"))  # no folder: nothing is kept there
    assert pace(tiny).networks == pace(tiny).networks
    assert len(timed) == 16


def test_hours_are_by_the_pace_of_the_machine(tiny: Study, monkeypatch: pytest.MonkeyPatch):
    patients = cohort.read(tiny.cohort, tiny.endpoints)

    def hours(times: float) -> dict[str, float]:
        slow = calibration.NetworkPace(1e9 / times, 2e9 / times, 0.001 * times)
        monkeypatch.setattr(calibration, "pace", lambda *_: calibration.Pace(times, {"vit": slow}, 0.0))
        return {one.stage: one.hours for one in needs.estimate(tiny, patients, 2, 1e6).stages}

    usual, twice = hours(1.0), hours(2.0)
    assert {"train", "explain", "report"} <= usual.keys()
    assert twice == pytest.approx({stage: 2 * one for stage, one in usual.items()})
    train, (_, forward, _) = tiny.train, needs._by_arithmetic(tiny, needs._tokens(tiny)[1])
    learning = 24 * (1 - 1 / 2) * (1 - train.val_fraction)  # of 24 patients in two folds
    steps = train.epochs * math.ceil(learning / train.batch_size)
    least = 2 * train.repeats * needs.LOOP_SHARE * steps * (3 * forward * train.batch_size / 1e9 + 0.001)
    assert least < 3600 * usual["train"] < 1.5 * least  # and evaluations


def test_dino_of_a_network_of_volumes_is_counted_by_whole_volumes_and_holds_all_its_views(tiny: Study):
    def figures(pretrain: dict[str, object]) -> needs._Figures:
        of = tiny.of(Comparator(name="cnn", model={"architecture": "resnet10"}, pretrain=pretrain))
        return needs._of_network(of, patients=10, labelled=10, folds=2)

    none, two, six = (
        figures(pretrain)
        for pretrain in (
            {},
            {"method": "dino", "epochs": 4, "batch_size": 4, "local_crops": 0},
            {"method": "dino", "epochs": 4, "batch_size": 4, "local_crops": 4},
        )
    )
    assert none.pretraining_seconds == 0
    of_each = 4 * 10 * 2  # epochs, patients, folds
    assert two.pretraining_seconds == pytest.approx(of_each * (3 * 2 + 2) * two.pass_seconds)  # student twice, and its teacher
    assert six.pretraining_seconds == pytest.approx(of_each * (3 * 6 + 2) * six.pass_seconds)
    assert none.memory_bytes < two.memory_bytes < six.memory_bytes
    held = (one.memory_bytes - needs.WEIGHT_COPIES * one.weight_bytes for one in (two, six))
    assert next(held) * 3 == next(held)
