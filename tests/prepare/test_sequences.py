"""Other sequences than the four, prepared: a map beside them, another reference, and what is left as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made.prepared import prepared_by
from PIL import Image
from scipy.spatial.transform import Rotation

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import IntegrityError, UnusablePatient
from mri_vit.prepare import patient as preparing
from mri_vit.prepare.prepared import load_record, reference_of, reference_to_grid
from mri_vit.prepare.quality import PANEL_PX
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Explain, Grid, Prepare

GRID = Grid(edge=56, spacing_mm=4.0, patch=4)
FIVE = (*CHANNELS, "adc")


def study(folder: Path, channels: tuple[str, ...], **settings: object) -> Study:
    return Study(
        name="test",
        cohort=folder / "cohort.csv",
        prepared=folder / "prepared",
        output=folder / "run",
        channels=channels,
        grid=GRID,
        prepare=Prepare.model_validate({"bias": False, **settings}),
        explain=Explain(patients=0, scored=0),
    )


@pytest.fixture(scope="module")
def patient(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Patient:
    """A built-in patient with an ADC map: T2's voxels squared, the head moved by some mm and degrees between the two."""
    home = scans.parent / "demo-001"
    t2 = read(home / "t2.nii.gz")
    moved = np.eye(4)
    moved[:3, :3] = Rotation.from_euler("xyz", (2, -1, 3), degrees=True).as_matrix()
    moved[:3, 3] = (3, -2, 4)
    adc = tmp_path_factory.mktemp("adc") / "adc.nii.gz"
    write(Volume((t2.array.astype(np.float32) / 500) ** 2, moved @ t2.affine), adc)
    return Patient("P-1", {**{name: home / f"{name}.nii.gz" for name in CHANNELS}, "adc": adc}, {}, {})


@pytest.fixture(scope="module")
def four(patient: Patient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_by(study(tmp_path_factory.mktemp("four"), CHANNELS), patient)


@pytest.fixture(scope="module")
def five(patient: Patient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_by(study(tmp_path_factory.mktemp("five"), FIVE), patient)


def test_a_fifth_sequence_is_aligned_and_leaves_the_four_as_they_were(four: Path, five: Path):
    alone, beside = (tokens.load(folder / "tokens.safetensors") for folder in (four, five))
    assert (alone.channels, beside.channels) == (CHANNELS, FIVE)
    np.testing.assert_array_equal(alone.position, beside.position)
    np.testing.assert_array_equal(alone.patches, beside.patches[:, : alone.patches.shape[1]])  # to the last bit
    volume = tokens.to_volume(beside).astype(np.float32)
    inside = volume.any(axis=0)
    assert abs(volume[4][inside].mean()) < 0.1  # z-scored like the others
    assert 0.9 < volume[4][inside].std() < 1.2
    assert np.corrcoef(volume[2][inside], volume[4][inside])[0, 1] > 0.9  # it lies where T2 does, of which it was made
    assert list(load_record(five)["inputs"]) == list(FIVE)


def test_the_picture_has_a_column_for_each_sequence(four: Path, five: Path):
    for folder, columns in ((four, 4), (five, 5)):
        with Image.open(folder / "qc.png") as picture:
            assert picture.width == columns * PANEL_PX


def test_no_bias_field_is_taken_from_a_map_of_a_quantity(patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preparing.bias, "LEVELS", 1)  # it is not the field that is looked at
    two = replace(patient, scans={name: patient.scans[name] for name in ("t1ce", "adc")})
    record = load_record(prepared_by(study(tmp_path, ("t1ce", "adc"), bias=True), two))
    (step,) = (step for step in record["steps"] if step["step"] == "bias")
    assert (list(step["scans"]), step["quantitative"]) == (["t1ce"], ["adc"])
    assert "ADC" in step["methods"]


@pytest.mark.parametrize(("reference", "facing", "bar_mm"), [("t1", "T1", 2.0), ("flair", "T1ce", 1.0)])
def test_another_reference_gives_the_same_place_on_the_grid(
    patient: Patient, four: Path, tmp_path: Path, reference: str, facing: str, bar_mm: float
):
    folder = prepared_by(study(tmp_path, CHANNELS, reference=reference), patient)
    assert reference_of(folder) == reference
    own = load_record(folder)["to_grid"]
    np.testing.assert_array_equal(reference_to_grid(folder), np.array(own[reference]))
    said = " ".join(step["methods"] for step in load_record(folder)["steps"])
    others = {"t1": "T1ce, T2 and FLAIR", "flair": "T1, T1ce and T2"}[reference]
    assert f"{others} were rigidly aligned to {reference.upper()} by" in said
    assert f"The MNI152 brain was laid over the skull-stripped {facing} by" in said
    corners = np.array([[x, y, z, 1.0] for x in (-60, 60) for y in (-95, 65) for z in (-40, 70)]).T
    usual = np.array(load_record(four)["to_grid"]["t1ce"])
    apart = np.array(own["t1ce"]) @ np.linalg.inv(usual) - np.eye(4)
    assert np.linalg.norm((apart @ corners)[:3], axis=0).mean() < bar_mm  # a voxel of these scans is 3 to 5 mm


def test_a_patient_without_the_reference_or_a_needed_map_is_refused_by_its_name(patient: Patient, tmp_path: Path):
    with pytest.raises(UnusablePatient, match="no adc scan"):
        prepared_by(study(tmp_path, FIVE), replace(patient, scans={**patient.scans, "adc": None}))
    lacking = replace(patient, scans={**patient.scans, "flair": None})
    with pytest.raises(UnusablePatient, match="no flair scan"):
        prepared_by(study(tmp_path, CHANNELS, reference="flair", needs=("flair",)), lacking)


def test_tokens_of_other_sequences_or_another_order_are_refused(five: Path):
    with pytest.raises(IntegrityError, match="found the sequences t1, t1ce, t2, flair, adc; expected adc, t1"):
        tokens.load(five / "tokens.safetensors", ("adc", *CHANNELS))


def test_a_record_of_a_version_before_has_t1ce_as_its_reference(four: Path, tmp_path: Path):
    record = json.loads((four / "patient.json").read_text())
    assert record.pop("reference") == "t1ce"
    (tmp_path / "patient.json").write_text(json.dumps(record | {"t1ce_to_grid": record["to_grid"]["t1ce"]}))
    assert reference_of(tmp_path) == "t1ce"
    np.testing.assert_array_equal(reference_to_grid(tmp_path), reference_to_grid(four))


def test_one_sequence_alone_is_prepared(patient: Patient, tmp_path: Path):
    alone = replace(patient, scans={"flair": patient.scans["flair"]})
    folder = prepared_by(study(tmp_path, ("flair",), reference="flair"), alone)
    assert tokens.load(folder / "tokens.safetensors", ["flair"]).patches.shape[1] == 4**3
    said = [step["methods"] for step in load_record(folder)["steps"]]
    assert said[0] == "FLAIR scan was read with its axes laid as RAS+."
    assert said[1] == "FLAIR is the only scan, to which no other was aligned."
