"""The built-in cohort: what is planted is there, what is not is not, and it comes as a hospital has it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from lifelines.utils import concordance_index
from made.study import made_here
from rich.console import Console
from scipy.ndimage import binary_dilation, distance_transform_edt, map_coordinates
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from mri_vit import study, synthetic
from mri_vit.errors import UsageError
from mri_vit.report.words.model_verdicts import LEAK
from mri_vit.run.folder import claimed
from mri_vit.settings import file as study_file
from mri_vit.settings import schema
from mri_vit.synthetic import anatomy

ROOT = Path(__file__).parents[2]
CASES = synthetic.draw_cases(synthetic.PATIENTS, np.random.default_rng(synthetic.SEED))


def known(name: str) -> tuple[np.ndarray, list[synthetic.Case]]:
    cases = [case for case in CASES if case.labels[name]]
    return np.array([float(case.labels[name]) for case in cases]), cases


def test_labels_are_missing_and_survival_is_censored_as_promised():
    for name in ("mgmt", "tertp", "pten", "os_days"):
        assert 0.10 <= 1 - len(known(name)[1]) / len(CASES) <= 0.20
    assert 0.2 <= 1 - known("os_event")[0].mean() <= 0.4
    assert all(bool(case.labels["os_days"]) == bool(case.labels["os_event"]) for case in CASES)


def test_mgmt_is_what_takes_up_contrast_tertp_where_a_tumour_lies_and_pten_a_coin():
    mgmt, cases = known("mgmt")
    assert (mgmt == [case.solid for case in cases]).all()
    tertp, cases = known("tertp")
    assert (tertp == [case.centre_mm[0] < 0 for case in cases]).all()
    for cause in ("solid", "wide_oedema", "radius_mm", "age"):  # none of which tells it
        assert abs(roc_auc_score(tertp, [getattr(case, cause) for case in cases]) - 0.5) < 0.2
    pten, cases = known("pten")
    for cause in ("solid", "wide_oedema", "radius_mm", "age"):
        auc = roc_auc_score(pten, [getattr(case, cause) for case in cases])
        assert abs(auc - 0.5) < 0.2  # about three standard errors of a coin


def test_the_halves_of_the_head_are_mirror_images_so_that_brightness_does_not_tell_the_side():
    maps, affine = anatomy()
    assert affine[0, 3] == -affine[0, 0] * (maps["t1"].shape[0] - 1) / 2  # x = 0 is the plane between them
    for name, array in maps.items():
        np.testing.assert_allclose(array, array[::-1], atol=1e-12, err_msg=name)


def test_uptake_by_the_whole_tumour_lengthens_survival_and_size_shortens_it():
    days, cases = known("os_days")
    event = [int(case.labels["os_event"]) for case in cases]
    assert concordance_index(days, [float(case.solid) for case in cases], event) > 0.65
    assert concordance_index(days, [-case.radius_mm for case in cases], event) > 0.55


def test_scans_lie_on_different_grids_and_hold_the_tumour_where_it_was_put(scans: Path):
    folder = scans.parent / "demo-003"
    images = {c: nib.Nifti1Image.from_filename(folder / f"{c}.nii.gz") for c in schema.CHANNELS}
    assert len({image.shape for image in images.values()}) > 1
    assert len({nib.aff2axcodes(nib.Nifti1Image.from_filename(f).affine) for f in scans.parent.glob("demo-*/*.nii.gz")}) > 10
    for image in images.values():
        assert all(2.9 <= mm <= 5.1 for mm in image.header.get_zooms())
    truth = nib.Nifti1Image.from_filename(scans.parent / "truth" / "demo-003.nii.gz")
    np.testing.assert_array_equal(np.array(truth.affine), np.array(images["t1ce"].affine))
    label, t1ce = np.asarray(truth.dataobj), images["t1ce"].get_fdata()
    brain = (t1ce > 0) & (label == 0)
    assert t1ce[label == 2].mean() > 1.3 * t1ce[brain].mean()  # enhancing tumour is bright after contrast


def test_the_true_tumour_stands_in_the_table_as_the_tumour_mask_alone(scans: Path):
    with scans.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all((scans.parent / row["tumour_mask"]).is_file() for row in rows)
    assert not any("truth" in cell for row in rows for column, cell in row.items() if column != "tumour_mask")


def test_the_same_seed_gives_the_same_bytes_and_a_whole_cohort_is_left_alone(tmp_path, monkeypatch):
    first = synthetic.make(tmp_path / "a", seed=3, patients=2)
    made_here(monkeypatch)
    second = synthetic.make(tmp_path / "b", seed=3, patients=2)  # nor does it matter in which process
    files = sorted(p.relative_to(first.parent) for p in first.parent.rglob("*") if p.is_file())
    assert len(files) == 2 * 5 + 2
    assert all((first.parent / f).read_bytes() == (second.parent / f).read_bytes() for f in files)
    times = {f: (first.parent / f).stat().st_mtime_ns for f in files}
    synthetic.make(tmp_path / "a", seed=3, patients=2)
    assert {f: (first.parent / f).stat().st_mtime_ns for f in files} == times


def test_the_last_patients_may_be_without_labels_and_are_otherwise_the_same(tmp_path, monkeypatch):
    made_here(monkeypatch)
    known, unknown = (
        synthetic.make(tmp_path / f"{n}", seed=3, patients=2, unlabelled=n).read_text().splitlines() for n in (0, 1)
    )
    assert known[:2] == unknown[:2]
    assert unknown[2].endswith(",,,,,")
    assert known[2].startswith(unknown[2].rstrip(","))


def test_a_folder_with_somebodys_own_cohort_is_left_alone(tmp_path):
    (tmp_path / "cohort.csv").write_text("patient,t1\nmine,a.nii\n")
    with pytest.raises(UsageError, match="is not the built-in cohort"):
        synthetic.make(tmp_path, seed=3, patients=2)
    assert (tmp_path / "cohort.csv").read_text() == "patient,t1\nmine,a.nii\n"


OF_KINDS = synthetic.with_kinds(CASES, np.random.default_rng(synthetic.SEED))
CLASSES = [("who_type", name) for name in synthetic.TYPES] + [("grade", "2"), ("grade", "4")]
NULLS = [("null_type", name) for name in synthetic.TYPES] + [("null_grade", "2"), ("null_grade", "4")]


MANY = synthetic.with_kinds(synthetic.draw_cases(2000, np.random.default_rng(1)), np.random.default_rng(2))  # few by chance


@cache
def seen() -> dict[str, np.ndarray]:
    """What simple statistics see of tumours and brains; inside tumours in units of the brain around the tumour."""
    each = [_seen(case) for case in OF_KINDS[:48]]
    return {name: np.array([one[name] for one in each]) for name in each[0]}


def _seen(case: synthetic.Case) -> dict[str, float]:
    scans, truth = synthetic.scan(case, np.random.default_rng([3, int(case.id[-3:])]))
    near = np.asarray(binary_dilation(truth.array > 0, iterations=5), bool)
    lesion, tumour = truth.array[near] > 0, (truth.array[near] > 0) & (truth.array[near] < 3)
    spacing, points = np.linalg.norm(truth.affine[:3, :3], axis=0), synthetic.points_of(truth)[near.ravel()]
    depth = np.asarray(distance_transform_edt((truth.array == 1) | (truth.array == 2), sampling=spacing))
    core = depth[near] > synthetic.RIM_MM
    at, found = {}, {"volume": tumour.sum() * spacing.prod()}
    for channel, volume in scans.items():
        to_voxel = np.linalg.inv(volume.affine)
        signal = map_coordinates(volume.array.astype(float), to_voxel[:3, :3] @ points.T + to_voxel[:3, 3:], order=1)
        at[channel] = signal / np.median(signal[~lesion & (signal > 0)])
        found |= {channel: np.median(at[channel][tumour]), f"brain {channel}": volume.array[volume.array > 0].mean()}
    bright, dark = np.percentile(at["t1ce"][tumour], 90), at["t1ce"] < synthetic.FLUID + 0.15
    rest = np.median(at["t1ce"][core & ~dark]) / bright
    return found | {"uptake": bright, "necrosis": dark[core].mean(), "rest of the core": rest}


def auc(name: str, value: str, statistic: Sequence[float] | np.ndarray, cases: Sequence[synthetic.Case] = OF_KINDS) -> float:
    """How well a statistic tells the patients of a value from the others, of those whose label is known."""
    rows = [i for i in range(len(statistic)) if cases[i].labels[name]]
    return float(roc_auc_score([cases[i].labels[name] == value for i in rows], [statistic[i] for i in rows]))


def correlation(name: str, statistic: Sequence[float] | np.ndarray, cases: Sequence[synthetic.Case] = OF_KINDS) -> float:
    """How a statistic's ranks go with those of a number, of those whose label is known."""
    rows = [i for i in range(len(statistic)) if cases[i].labels[name]]
    result = spearmanr([float(cases[i].labels[name]) for i in rows], [statistic[i] for i in rows])
    return float(np.asarray(result)[0])


def test_the_cohort_without_labels_of_further_kinds_is_the_one_that_it_was():
    rows = repr([(case.id, case.age, case.sex, case.site, *case.labels.items()) for case in CASES])
    assert hashlib.sha256(rows.encode()).hexdigest().startswith("c32ba3aea691b6ce")
    assert not any(case.look for case in CASES)


def test_labels_of_further_kinds_stand_behind_the_others_and_leave_people_and_places_as_they_were(tmp_path, monkeypatch):
    made_here(monkeypatch)
    without, with_them = (
        synthetic.make(tmp_path / f"{kinds}", seed=3, patients=3, unlabelled=1, kinds=kinds).read_text().splitlines()
        for kinds in (False, True)
    )
    assert with_them[0] == ",".join([without[0], *synthetic.ADDED])
    assert all(row.startswith(f"{old},") for old, row in zip(without, with_them, strict=True))
    assert with_them[3] == without[3] + "," * len(synthetic.ADDED)  # no label at all
    assert "| `who_type`" in (tmp_path / "True" / "README.md").read_text()
    assert all(0.10 <= np.mean([not case.labels[name] for case in OF_KINDS]) <= 0.20 for name in synthetic.ADDED)


def test_a_type_is_told_by_comparing_scans_inside_the_tumour_and_by_no_scan_alone():
    scaled = {channel: seen()[channel] * synthetic.TISSUE[channel][2] for channel in synthetic.LEVEL}  # around lies white matter
    for name, own in synthetic.TYPES.items():
        assert auc("who_type", name, sum(scaled.values()) - 3 * scaled[own]) > 0.95
        assert all(0.1 < auc("who_type", name, seen()[channel]) < 0.9 for channel in schema.CHANNELS)


def test_grade_is_how_bright_the_uptake_is_and_necrosis_how_much_of_the_core_is_dark_whatever_mgmt_is():
    assert auc("grade", "2", -seen()["uptake"]) > 0.95
    assert auc("grade", "4", seen()["uptake"]) > 0.95
    assert correlation("necrosis_share", seen()["necrosis"]) > 0.9


def test_neither_volume_nor_the_brightness_of_the_brain_tells_a_label_of_a_further_kind():
    for name in ("volume", *(f"brain {channel}" for channel in schema.CHANNELS)):
        assert all(abs(auc(*label, seen()[name]) - 0.5) < 0.2 for label in CLASSES), name
        assert abs(correlation("necrosis_share", seen()[name])) < 0.4, name  # 2.5 standard errors


def test_labels_of_further_kinds_have_nothing_to_do_with_other_labels_and_their_nulls_with_nothing():
    causes = {name: [getattr(case, name) for case in MANY] for name in ("solid", "wide_oedema", "radius_mm", "age")}
    causes |= {"left": [case.centre_mm[0] < 0 for case in MANY]} | {site: [case.site == site for case in MANY] for site in "ABC"}
    for name, values in causes.items():
        assert all(abs(auc(*label, values, MANY) - 0.5) < 0.06 for label in (*CLASSES, *NULLS)), name
        assert all(abs(correlation(number, values, MANY)) < 0.1 for number in ("necrosis_share", "null_number")), name
    looks = [case.look for case in MANY if case.look]
    planted = {channel: [look.level[channel] for look in looks] for channel in synthetic.LEVEL}
    planted |= {"grade": [case.rim_signal for case in MANY], "necrosis": [look.necrotic for look in looks]}
    for name, values in planted.items():
        assert all(abs(auc(*label, values, MANY) - 0.5) < 0.06 for label in NULLS), name
        assert abs(correlation("null_number", values, MANY)) < 0.1, name


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [synthetic.SEED, 7, 8])
def test_the_study_finds_what_is_planted_in_every_cohort(tmp_path, seed: int):
    settings = study_file.load(ROOT / "configs" / "demo.toml")
    table = synthetic.make(tmp_path / "cohort", seed=seed)
    settings = settings.model_copy(update={"cohort": table, "prepared": tmp_path / "prepared", "output": tmp_path / "run"})
    with claimed(settings) as run:
        study.prepare(settings, study.check(settings, run), run, Console())
        study.train(settings, run, Console())
        study.explain(settings, run, Console())
        metrics = study.report(run, Console()).metrics
    own = {name: endpoint.models["vit"] for name, endpoint in metrics.endpoints.items()}
    found = {name: one.found for name, one in metrics.expected_verdicts.items()}
    assert (found["mgmt"], found["os"]) == ("better", "better")
    assert not any(result.verdict.startswith(LEAK) for result in own.values())
    if seed == synthetic.SEED:  # what chance may do to another cohort is no fault
        assert all(one.as_expected for one in metrics.expected_verdicts.values())
