"""Scans to a prepared patient: made-up heads of the tests' own, and two real patients where ../shared is present."""

import gzip
import json
import math
import re
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from made.prepared import prepared_by
from pydantic import ValidationError
from scipy import ndimage
from scipy.spatial.transform import Rotation

from mri_vit.data import run_cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, itk_transform, read, resample, to_itk, write
from mri_vit.errors import IntegrityError, UnusablePatient, UsageError
from mri_vit.prepare import alignment, bias, register, tumour
from mri_vit.prepare.patient import fault_of
from mri_vit.prepare.prepared import config_sha256, load_record, mask_on_grid, refuse_foreign, verify
from mri_vit.run import files, integrity
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid, Prepare

pytestmark = pytest.mark.long(50)

SHARED = Path(__file__).parents[3] / "shared"
RAW = SHARED / "data" / "raw" / "TCGA-FG-6692"
STRIPPED = SHARED / "data" / "stripped" / "TCGA-DU-7294"
DEMO_GRID = Grid(edge=56, spacing_mm=4.0, patch=4)
COARSE = Grid(edge=28, spacing_mm=8.0, patch=2)
needs_raw = pytest.mark.skipif(not RAW.is_dir(), reason="the raw patient of ../shared is not here")
needs_stripped = pytest.mark.skipif(not STRIPPED.is_dir(), reason="the stripped patient of ../shared is not here")


def rigid(degrees: tuple[float, float, float], shift_mm: tuple[float, float, float]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, 3] = shift_mm
    return matrix


def distance_mm(a: np.ndarray, b: np.ndarray) -> float:
    """Mean distance of two 4×4s over the corners of a brain's box."""
    corners = np.array([[x, y, z, 1.0] for x in (-60, 60) for y in (-95, 65) for z in (-40, 70)]).T
    return float(np.linalg.norm(((a - b) @ corners)[:3], axis=0).mean())


def contrast(t1: np.ndarray, channel: str) -> np.ndarray:
    """A brain of T1 intensities 0 to 1 as another channel would show it."""
    inverse = np.where(t1 > 0, 1.1 - t1, 0)
    made = {"t1": t1, "t1ce": t1**1.2, "t2": inverse, "flair": np.where(t1 > 0, 0.4 + 0.5 * np.sin(3 * t1), 0)}
    return made[channel].astype(np.float32)


HEAD_POSE = rigid((8, -5, 6), (4, -9, 12))  # MNI152 to the scanner
MOVED = {"t1": np.eye(4), "t1ce": np.eye(4), "t2": rigid((2, -3, 2), (2, 1, -2)), "flair": rigid((-1, 1, 2), (-1, 2, 1))}


def made_scan(channel: str, spacing_mm: tuple[float, float, float]) -> Volume:
    """The MNI152 brain in the scanner's frame, on an oblique coarse grid, with noise inside the brain."""
    whole, _ = register.template()
    across, along, up = spacing_mm
    shape = (round(190 / across), round(220 / along), round(190 / up))
    affine = rigid((5, 3, -4), (-92, -125, -80)) @ np.diag([*spacing_mm, 1.0])
    to_mni = np.linalg.inv(MOVED[channel] @ HEAD_POSE)
    source = Volume(contrast(whole.array, channel), whole.affine)
    scan = resample(source, shape, affine, to_mni)
    noise = np.random.default_rng(CHANNELS.index(channel)).normal(0, 0.02, scan.array.shape)
    array = np.where(scan.array > 0.05, 800 * (scan.array + noise).clip(0.05), 0)
    return Volume(array.astype(np.float32), affine)


def made_patient(folder: Path, name: str = "P-1") -> Patient:
    folder.mkdir(parents=True, exist_ok=True)
    spacings = {"t1": (4.0, 4.0, 4.0), "t1ce": (3.5, 3.5, 4.0), "t2": (3.5, 3.5, 5.0), "flair": (4.0, 4.0, 4.5)}
    for channel in CHANNELS:
        write(made_scan(channel, spacings[channel]), folder / f"{channel}.nii.gz")
    return patient_in(folder, name)


def patient_in(folder: Path, name: str, brain_mask: Path | None = None) -> Patient:
    return Patient(name, {c: folder / f"{c}.nii.gz" for c in CHANNELS}, {}, {}, brain_mask)


def hash_of(study: Study) -> str:
    return config_sha256(study.channels, study.grid, study.prepare)


def study_in(folder: Path, grid: Grid = DEMO_GRID, **settings: object) -> Study:
    return Study(
        name="test",
        cohort=folder / "cohort.csv",
        prepared=folder / "prepared",
        output=folder / "runs",
        grid=grid,
        prepare=Prepare.model_validate(settings),
    )


def turned(scan: Volume, codes: str) -> Volume:
    """The same scan stored with other axes, such as "LPS"."""
    turn = nib.orientations.ornt_transform(nib.io_orientation(scan.affine), nib.orientations.axcodes2ornt(codes))
    array = np.ascontiguousarray(nib.apply_orientation(scan.array, turn))
    return Volume(array, scan.affine @ nib.orientations.inv_ornt_aff(turn, scan.shape))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return made_patient(tmp_path_factory.mktemp("made") / "P-1")


@pytest.fixture(scope="module")
def prepared(made: Patient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_by(study_in(tmp_path_factory.mktemp("study")), made)


def test_a_prepared_patient_holds_tokens_record_and_picture(prepared: Path) -> None:
    assert sorted(path.name for path in prepared.iterdir()) == ["patient.json", "qc.png", "tokens.safetensors"]
    record = load_record(prepared)
    assert record["schema"] == 5
    assert record["files"] == {name: integrity.sha256(prepared / name) for name in ("tokens.safetensors", "qc.png")}
    assert record["patient"] == "P-1"
    assert set(record["to_grid"]) == set(record["inputs"]) == set(CHANNELS)
    assert record["reference"] == "t1ce"
    assert all(step["methods"].endswith(".") for step in record["steps"])
    stored = tokens.load(prepared / "tokens.safetensors")
    assert stored.config_sha256 == record["config_sha256"]
    assert 400 < len(stored.position) < 800
    volume = tokens.to_volume(stored).astype(np.float32)
    inside = (volume != 0).any(axis=0)
    assert np.abs(volume[:, inside].mean(axis=1)).max() < 0.1
    assert np.abs(volume[:, inside].std(axis=1) - 1).max() < 0.1


def test_known_poses_are_found_within_a_fraction_of_a_coarse_voxel(prepared: Path) -> None:
    to_grid = {channel: np.array(matrix) for channel, matrix in load_record(prepared)["to_grid"].items()}
    assert distance_mm(np.linalg.inv(to_grid["t1ce"]), HEAD_POSE) < 1
    for channel in CHANNELS:
        assert distance_mm(np.linalg.inv(to_grid[channel]) @ to_grid["t1ce"], MOVED[channel]) < 0.5


def test_the_record_names_no_input_path(made: Patient, prepared: Path) -> None:
    text = (prepared / "patient.json").read_text()
    assert str(made.scans["t1"].parent if made.scans["t1"] else "") not in text
    assert ".nii" not in text


def test_a_rerun_gives_the_same_bytes_and_workers_do_not_matter(made: Patient, prepared: Path, tmp_path: Path) -> None:
    again = prepared_by(study_in(tmp_path, workers=2), made)
    old, new = (tokens.load(folder / "tokens.safetensors") for folder in (prepared, again))
    assert (again / "tokens.safetensors").read_bytes() == (prepared / "tokens.safetensors").read_bytes()
    assert new.config_sha256 == old.config_sha256
    assert hash_of(study_in(tmp_path)) != hash_of(study_in(tmp_path, bias=False))


def test_what_is_prepared_is_skipped_until_an_input_or_a_setting_changes(made: Patient, tmp_path: Path) -> None:
    shutil.copytree(made.scans["t1"].parent if made.scans["t1"] else tmp_path, tmp_path / "scans")
    patient = patient_in(tmp_path / "scans", "P-1")
    folder = prepared_by(study_in(tmp_path, bias=False), patient)
    before = (folder / "patient.json").stat().st_mtime_ns
    prepared_by(study_in(tmp_path, bias=False, workers=2), patient)
    assert (folder / "patient.json").stat().st_mtime_ns == before
    prepared_by(study_in(tmp_path, COARSE, bias=False), patient)
    assert (folder / "patient.json").stat().st_mtime_ns != before
    flair = read(tmp_path / "scans" / "flair.nii.gz")
    write(Volume(flair.array * 2, flair.affine), tmp_path / "scans" / "flair.nii.gz")
    old = load_record(folder)["inputs"]
    prepared_by(study_in(tmp_path, COARSE, bias=False), patient)
    assert [c for c in CHANNELS if load_record(folder)["inputs"][c] != old[c]] == ["flair"]
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == ["P-1"]


def test_a_patient_that_fails_leaves_nothing_and_keeps_what_was_there(made: Patient, tmp_path: Path, monkeypatch) -> None:
    folder = prepared_by(study_in(tmp_path, bias=False), made)
    content = (folder / "tokens.safetensors").read_bytes()

    def fail(*_: object) -> None:
        assert [path.name for path in (tmp_path / "prepared" / ".building").iterdir() if path.name.startswith("P-1.")]
        raise OSError("disk full")

    monkeypatch.setattr("mri_vit.prepare.quality.draw_picture", fail)
    with pytest.raises(OSError, match="disk full"):
        prepared_by(study_in(tmp_path, COARSE, bias=False), made)
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == ["P-1"]
    assert (folder / "tokens.safetensors").read_bytes() == content


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("patient.json", '{"patient": "P-1", "schema": 1}'),
        ("t1.nii.gz", "raw"),
        ("notes.txt", "mine"),
        ("tokens.safetensors", ""),
    ],
)
def test_a_folder_that_is_not_ours_is_refused_and_stays_as_it_is(made: Patient, tmp_path: Path, name: str, content: str) -> None:
    target = tmp_path / "prepared" / "P-1"
    target.mkdir(parents=True)
    (target / name).write_text(content)
    with pytest.raises(UsageError, match=rf"P-1.*{name}|{name}.*P-1|P-1 is no prepared patient"):
        prepared_by(study_in(tmp_path), made)
    assert [(path.name, path.read_text()) for path in target.iterdir()] == [(name, content)]


def test_a_prepared_patient_with_a_file_that_is_not_ours_beside_it_is_not_replaced(
    made: Patient, prepared: Path, tmp_path
) -> None:
    target = tmp_path / "prepared" / "P-1"
    shutil.copytree(prepared, target)
    (target / "t1.nii.gz").write_text("raw")
    with pytest.raises(UsageError, match=r"P-1 holds t1\.nii\.gz, which is no file of a prepared patient"):
        prepared_by(study_in(tmp_path, bias=False), made)
    assert sorted(path.name for path in target.iterdir()) == ["patient.json", "qc.png", "t1.nii.gz", "tokens.safetensors"]
    (target / "t1.nii.gz").unlink()
    (target / ".DS_Store").touch()
    refuse_foreign(target)


def test_a_file_of_another_patient_or_a_flipped_bit_is_found(prepared: Path, tmp_path: Path) -> None:
    target = tmp_path / "P-1"
    shutil.copytree(prepared, target)
    verify(target)
    content = bytearray((target / "tokens.safetensors").read_bytes())
    content[-1] ^= 1
    (target / "tokens.safetensors").write_bytes(content)
    with pytest.raises(IntegrityError, match=r"tokens\.safetensors: it was changed after it was written"):
        verify(target)
    shutil.copytree(prepared, tmp_path / "P-2")
    with pytest.raises(IntegrityError, match=r"P-2/patient\.json: is of patient 'P-1'.*expected 'P-2'"):
        verify(tmp_path / "P-2")


def test_axis_order_and_flips_do_not_change_the_prepared_patient(made: Patient, prepared: Path, tmp_path: Path) -> None:
    """Each of the four scans is stored in another of the 48 orientations; `canonical` is tested on all of them below."""
    expected = tokens.to_volume(tokens.load(prepared / "tokens.safetensors")).astype(np.float32)
    for channel, codes in zip(CHANNELS, ("LPS", "SAR", "PIL", "ARI"), strict=True):
        scan = read(made.scans[channel] or tmp_path)
        write(turned(scan, codes), tmp_path / f"{channel}.nii.gz")
    found = tokens.to_volume(tokens.load(prepared_by(study_in(tmp_path), patient_in(tmp_path, "P-1")) / "tokens.safetensors"))
    assert np.corrcoef(found.astype(np.float32).ravel(), expected.ravel())[0, 1] > 0.999


def test_all_48_orientations_are_laid_out_the_same() -> None:
    scan = made_scan("t1ce", (10.0, 9.0, 8.0))
    expected = canonical(scan)
    for axes in ("RAS", "RSA", "ARS", "ASR", "SRA", "SAR"):
        for signs in range(8):
            codes = "".join(a if signs >> k & 1 else dict(zip("RAS", "LPI", strict=True))[a] for k, a in enumerate(axes))
            found = canonical(turned(scan, codes))
            np.testing.assert_array_equal(found.array, expected.array)
            np.testing.assert_allclose(found.affine, expected.affine, atol=1e-9)


def test_two_scans_with_the_same_voxels_are_refused(made: Patient, tmp_path: Path) -> None:
    t1 = read(made.scans["t1"] or tmp_path)
    write(t1, tmp_path / "copy.nii")
    patient = Patient("P-1", {**made.scans, "t2": tmp_path / "copy.nii"}, {}, {})
    with pytest.raises(UnusablePatient, match="t2 has the same voxels as t1"):
        prepared_by(study_in(tmp_path), patient)
    assert list((tmp_path / "prepared").iterdir()) == []


def test_a_field_of_view_that_misses_much_of_the_brain_is_refused(made: Patient, tmp_path: Path) -> None:
    flair = read(made.scans["flair"] or tmp_path)
    half = Volume(np.ascontiguousarray(flair.array[:, :, : flair.shape[2] // 2]), flair.affine)
    write(half, tmp_path / "half.nii.gz")
    with pytest.raises(UnusablePatient, match=r"field of view of flair holds \d\d\.\d% of the T1ce's brain; expected 90%"):
        prepared_by(study_in(tmp_path), Patient("P-1", {**made.scans, "flair": tmp_path / "half.nii.gz"}, {}, {}))


@pytest.mark.parametrize("fault", ["label", "shape", "place", "empty", "tumour"])
def test_a_brain_mask_that_does_not_fit_is_refused(made: Patient, tmp_path: Path, fault: str) -> None:
    t1ce = read(made.scans["t1ce"] or tmp_path)
    mask, affine = (t1ce.array > 0).astype(np.uint8), t1ce.affine.copy()
    if fault == "label":
        mask[mask > 0] = 2
    elif fault == "shape":
        mask = mask[:-1]
    elif fault == "place":
        affine[0, 3] += 1
    else:
        kept = np.zeros_like(mask)
        edge = {"empty": 1, "tumour": 16}[fault]  # 200 ml
        kept[20 : 20 + edge, 20 : 20 + edge, 15 : 15 + edge] = 1
        mask *= kept
    write(Volume(np.ascontiguousarray(mask), affine), tmp_path / "mask.nii.gz")
    expected = {"label": "labels", "shape": "another grid", "place": r"corners 1\.0 mm apart", "empty": "empty brain"}.get(
        fault, r"\d\d\d\.\d ml \(mask\); expected 250 ml"
    )
    with pytest.raises(UnusablePatient, match=expected):
        prepared_by(study_in(tmp_path), patient_in((made.scans["t1"] or tmp_path).parent, "P-1", tmp_path / "mask.nii.gz"))


def test_what_reading_had_to_settle_is_in_the_record(made: Patient, prepared: Path, tmp_path: Path) -> None:
    scans = {channel: gzip.decompress(file.read_bytes()) for channel, file in made.scans.items() if file}
    scans["t1"] = gzip.compress(scans["t1"], 1)
    metres = nib.Nifti1Image.from_bytes(scans["t2"])
    affine = np.diag([1e-3, 1e-3, 1e-3, 1.0]) @ np.array(metres.affine)
    metres.set_sform(affine, 1)
    metres.set_qform(affine, 1)
    metres.header.set_xyzt_units("meter")
    scans["t2"] = metres.to_bytes()
    scans["flair"] = scans["flair"][:108] + bytes(4) + scans["flair"][112:]  # vox_offset
    for channel, content in scans.items():
        (tmp_path / f"{channel}.nii").write_bytes(content)
    whole = read(tmp_path / "t1ce.nii")
    mask = nib.Nifti1Image((whole.array > 0).astype(np.uint8), whole.affine).to_bytes()
    (tmp_path / "mask.nii").write_bytes(mask[:112] + struct.pack("<2f", 2.0**-32, 0) + mask[120:])
    patient = Patient("P-1", {c: tmp_path / f"{c}.nii" for c in CHANNELS}, {}, {}, tmp_path / "mask.nii")
    folder = prepared_by(study_in(tmp_path), patient)
    record, plain = load_record(folder), load_record(prepared)
    read_step, brain_step = (next(step for step in record["steps"] if step["step"] == name) for name in ("read", "brain"))
    words = {"t1": "read as gzip", "t2": "from metre to mm", "flair": "vox_offset 0"}
    for channel, word in words.items():
        assert word in " ".join(read_step["scans"][channel]["notes"])
    assert "scl_slope 2.32831e-10 was not applied" in " ".join(brain_step["notes"])
    assert record["brain_ml"] == plain["brain_ml"]
    for channel in CHANNELS:
        assert distance_mm(*(np.array(one["to_grid"][channel]) for one in (record, plain))) < 1  # a mask settles it otherwise


def test_a_damaged_and_a_missing_scan_are_refused_by_name(made: Patient, tmp_path: Path) -> None:
    (tmp_path / "bad.nii.gz").write_bytes(b"not an image at all, but long enough to be looked at")
    with pytest.raises(UnusablePatient, match=r"bad\.nii\.gz"):
        prepared_by(study_in(tmp_path), Patient("P-1", {**made.scans, "t2": tmp_path / "bad.nii.gz"}, {}, {}))
    with pytest.raises(UnusablePatient, match="no t2 scan"):
        prepared_by(study_in(tmp_path), Patient("P-1", {**made.scans, "t2": None}, {}, {}))


def test_a_scan_that_is_not_needed_may_be_missing_and_is_then_empty_and_warned_of(
    made: Patient, prepared: Path, tmp_path: Path
) -> None:
    without_t2 = Patient("P-1", {**made.scans, "t2": None}, {}, {})
    untouched = (
        prepared_by(study_in(tmp_path / "all", bias=False), made),
        prepared_by(study_in(tmp_path / "no_t2", bias=False, needs=("t1ce", "flair")), without_t2),
    )
    folder = prepared_by(study_in(tmp_path, needs=("t1ce", "flair")), without_t2)
    corrected = (prepared, folder)  # bias fields share their outliers, and the T1ce so corrected has its place in MNI152
    for (had, has), alike in ((untouched, 1.0), (corrected, 0.99)):
        whole, lacking = (tokens.to_volume(tokens.load(one / "tokens.safetensors")).astype(np.float32) for one in (had, has))
        for channel, before, after in zip(CHANNELS, whole, lacking, strict=True):
            if channel == "t2":
                assert not after.any()
            elif alike == 1:
                np.testing.assert_array_equal(after, before)
            else:
                assert np.corrcoef(after.ravel(), before.ravel())[0, 1] > alike
    record = load_record(folder)
    assert [warning for warning in record["warnings"] if "t2: no scan" in warning]
    assert list(record["to_grid"]) == ["t1", "t1ce", "flair"]
    with pytest.raises(UnusablePatient, match="no t2 scan"):  # another study that needs it, from the same folder
        prepared_by(study_in(tmp_path), Patient("P-1", {**made.scans, "t2": None}, {}, {}))


def test_negative_background_is_found_from_the_border_and_warned_of(made: Patient, prepared: Path, tmp_path: Path) -> None:
    for channel in CHANNELS:
        scan = read(made.scans[channel] or tmp_path)
        inside = scan.array > 0
        standard = (scan.array - scan.array[inside].mean()) / scan.array[inside].std()
        write(Volume(standard.astype(np.float32), scan.affine), tmp_path / f"{channel}.nii.gz")
    record = load_record(prepared_by(study_in(tmp_path), patient_in(tmp_path, "P-1")))
    assert sum("negative intensities" in warning for warning in record["warnings"]) == len(CHANNELS)
    assert sum("bias field was not corrected" in warning for warning in record["warnings"]) == len(CHANNELS)
    assert record["brain_ml"] == pytest.approx(load_record(prepared)["brain_ml"], rel=0.01)
    assert distance_mm(np.linalg.inv(np.array(record["to_grid"]["t1ce"])), HEAD_POSE) < 1


def test_an_external_command_makes_the_mask(made: Patient, tmp_path: Path) -> None:
    script = tmp_path / "copy.py"
    script.write_text("import shutil, sys\nshutil.copy(sys.argv[1], sys.argv[2])\n")
    command = (sys.executable, str(script), "{input}", "{output}")
    record = load_record(prepared_by(study_in(tmp_path, bias=False, brain="command", brain_command=command), made))
    assert [step["source"] for step in record["steps"] if step["step"] == "brain"] == ["command"]
    with pytest.raises(UsageError, match="cannot be run"):
        prepared_by(study_in(tmp_path, bias=False, brain="command", brain_command=("/no/program", "{input}", "{output}")), made)
    with pytest.raises(UnusablePatient, match="ended with 3"):
        prepared_by(study_in(tmp_path, bias=False, brain="command", brain_command=(sys.executable, "-c", "exit(3)")), made)


SEGMENT = """
import sys
from pathlib import Path
import nibabel as nib
import numpy as np
scans = {path.name: nib.load(path) for path in Path(sys.argv[1]).iterdir()}
assert sorted(scans) == ["flair.nii.gz", "t1.nii.gz", "t1ce.nii.gz", "t2.nii.gz"]
t2, t1ce = scans["t2.nii.gz"], scans["t1ce.nii.gz"]
assert t2.shape == t1ce.shape and np.allclose(t2.affine, t1ce.affine)
mask = np.zeros(t2.shape, np.uint8)
if sys.argv[3] == "brain":
    mask[t2.get_fdata() > 0] = 1
elif sys.argv[3] != "none":
    i, j, k = np.argwhere(t2.get_fdata() > 0).mean(axis=0).astype(int)
    mask[i - 3 : i + 3, j - 3 : j + 3, k - 3 : k + 3] = 4
affine = t2.affine.copy()
affine[:3, 3] += 10 if sys.argv[3] == "elsewhere" else 0
nib.save(nib.Nifti1Image(mask, affine), sys.argv[2])
"""


def test_an_external_command_segments_the_tumour_of_who_has_no_mask(made: Patient, tmp_path: Path) -> None:
    script = tmp_path / "segment.py"
    script.write_text(SEGMENT)

    def study_with(way: str) -> Study:
        words = (sys.executable, str(script), "{input}", "{output}", way)
        return study_in(tmp_path / way, bias=False, tumour_command=words)

    folder = prepared_by(study_with("some"), made)
    mask, scan = read(folder / files.TUMOUR), read(made.scans["t1ce"] or tmp_path)
    assert set(np.unique(mask.array)) == {0, 1}
    np.testing.assert_allclose(mask.affine, scan.affine, atol=1e-4)
    tumour.check(folder / files.TUMOUR, folder)  # it lies in the brain
    step = next(one for one in load_record(folder)["steps"] if one["step"] == "tumour")
    assert step["tumour_ml"] == pytest.approx(216 * np.prod(scan.spacing_mm) / 1000, rel=0.01)
    assert sorted(path.name for path in folder.iterdir()) == sorted([files.PATIENT, files.QC, files.TOKENS, files.TUMOUR])
    verify(folder)
    write(Volume(1 - mask.array, mask.affine), folder / files.TUMOUR)
    with pytest.raises(IntegrityError, match=files.TUMOUR):
        verify(folder)
    with pytest.raises(UnusablePatient, match="tumour mask is on another grid than the T1ce"):
        prepared_by(study_with("elsewhere"), made)
    folder = prepared_by(study_with("none"), made)
    assert not (folder / files.TUMOUR).exists()
    assert "tumour: none was found; the patient has no tumour mask" in load_record(folder)["warnings"]


def test_a_command_that_writes_the_brain_as_the_tumour_excludes_the_patient(made: Patient, tmp_path: Path) -> None:
    (script := tmp_path / "segment.py").write_text(SEGMENT)
    study = study_in(tmp_path, bias=False, tumour_command=(sys.executable, str(script), "{input}", "{output}", "brain"))
    with pytest.raises(UnusablePatient, match=r"the tumour mask holds \d+ ml, (9\d|100)% of the brain"):
        prepared_by(study, made)
    assert not (study.prepared / made.id).exists()


def test_a_t2_scan_as_tumour_mask_excludes_with_its_volume_and_share(made: Patient, prepared: Path) -> None:
    study = study_in(prepared.parent.parent)
    assert fault_of(made, study) is None
    fault = fault_of(replace(made, tumour_mask=made.scans["t2"]), study)
    assert fault
    assert re.search(r"the tumour mask holds \d\d\d\d ml, \d\d+% of the brain, and \d+ values", fault["reason"])
    assert fault["file"].endswith("t2.nii.gz")


def test_a_mask_that_the_table_names_is_taken_and_the_command_not_run(made: Patient, tmp_path: Path) -> None:
    study = study_in(tmp_path, bias=False, tumour_command=("/no/program", "{input}", "{output}"))
    named = replace(made, tumour_mask=made.scans["t2"])
    assert not (prepared_by(study, named) / files.TUMOUR).exists()
    with pytest.raises(UsageError, match="tumour command '/no/program' cannot be run"):
        prepared_by(study, made)  # who was prepared while the table named a mask is prepared anew when it names none
    assert run_cohort.segmented([named], study) == [named]


def test_who_was_segmented_has_that_mask_from_then_on(made: Patient, tmp_path: Path) -> None:
    plain, study = study_in(tmp_path), study_in(tmp_path, tumour_command=("seg",))
    (study.prepared / made.id).mkdir(parents=True)
    assert run_cohort.segmented([made], study) == [made]
    (study.prepared / made.id / files.TUMOUR).touch()
    assert run_cohort.segmented([made], study)[0].tumour_mask == study.prepared / made.id / files.TUMOUR
    assert hash_of(plain) != hash_of(study)  # another finder, another mask


def test_what_a_study_learns_from_and_what_maps_are_judged_by_are_as_it_says(made: Patient, tmp_path: Path) -> None:
    given = tmp_path / "given.nii.gz"
    found = study_in(tmp_path).prepared / made.id / files.TUMOUR
    found.parent.mkdir(parents=True)
    found.touch()
    named = replace(made, tumour_mask=given)
    for choice, without, beside in (
        ("auto", (found, found), (given, given)),
        ("given", (None, None), (given, given)),
        ("found", (found, found), (found, given)),
        ("none", (None, None), (None, given)),
    ):
        study = study_in(tmp_path, tumour=choice)
        for patient, masks in ((made, without), (named, beside)):
            (seen,) = run_cohort.segmented([patient], study)
            assert (seen.tumour_mask, seen.judging_mask) == masks, choice


def test_a_program_that_finds_tumours_needs_a_study_that_looks_for_them() -> None:
    with pytest.raises(ValidationError, match='tumour = "given" looks for none'):
        Prepare(tumour="given", tumour_command=("seg",))


def test_another_command_segments_anew(made: Patient, tmp_path: Path) -> None:
    script = tmp_path / "segment.py"
    script.write_text(SEGMENT)
    words = (sys.executable, str(script), "{input}", "{output}")
    folder = prepared_by(study_in(tmp_path, bias=False, tumour_command=(*words, "some")), made)
    assert (folder / files.TUMOUR).exists()
    assert not (prepared_by(study_in(tmp_path, bias=False, tumour_command=(*words, "none")), made) / files.TUMOUR).exists()


def test_scans_are_cut_around_the_tumour_of_the_table_or_of_the_command(made: Patient, tmp_path: Path) -> None:
    script = tmp_path / "segment.py"
    script.write_text(SEGMENT)
    words = (sys.executable, str(script), "{input}", "{output}")
    found = prepared_by(
        study_in(tmp_path / "found", bias=False, tumour_command=(*words, "some"), tumour_crop_margin_mm=12.0), made
    )
    named = replace(made, tumour_mask=found / files.TUMOUR)
    cut = prepared_by(study := study_in(tmp_path / "named", bias=False, tumour_crop_margin_mm=12.0), named)
    whole = prepared_by(study_in(tmp_path / "whole", bias=False), named)
    few, many = (tokens.to_volume(tokens.load(folder / files.TOKENS)) for folder in (cut, whole))
    np.testing.assert_array_equal(tokens.to_volume(tokens.load(found / files.TOKENS)), few)
    outside = ~mask_on_grid(found / files.TUMOUR, whole, study.grid)
    away_mm = np.asarray(ndimage.distance_transform_edt(outside)) * study.grid.spacing_mm
    np.testing.assert_array_equal(few, np.where(away_mm <= 12.0, many, 0))
    assert 0 < (few != 0).sum() < 0.2 * (many != 0).sum()
    assert load_record(cut)["quality"] == load_record(whole)["quality"]  # of the whole scans
    assert (cut / files.QC).read_bytes() == (whole / files.QC).read_bytes()  # which a person judges, too
    step = next(one for one in load_record(cut)["steps"] if one["step"] == "around_tumour")
    assert (step["reach_mm"], step["kept_of_brain"] < 0.2) == (12.0, True)
    assert load_record(cut)["inputs"] == load_record(whole)["inputs"]
    assert "tumour_mask" in load_record(cut)["inputs"]  # another mask, and the patient is prepared anew


def test_who_has_no_tumour_is_not_cut_around_one(made: Patient, tmp_path: Path) -> None:
    with pytest.raises(UnusablePatient, match="no tumour mask, given or found, around which"):
        prepared_by(study_in(tmp_path, tumour="given", tumour_crop_margin_mm=12.0), made)
    script = tmp_path / "segment.py"
    script.write_text(SEGMENT)
    words = (sys.executable, str(script), "{input}", "{output}", "none")
    with pytest.raises(UnusablePatient, match="no tumour mask, given or found, around which"):
        prepared_by(study_in(tmp_path, tumour_command=words, tumour_crop_margin_mm=12.0), made)
    assert hash_of(study_in(tmp_path)) != hash_of(study_in(tmp_path, tumour_crop_margin_mm=12.0))


def test_deepbet_missing_is_said_with_the_remedy(made: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepbet", None)
    with pytest.raises(UsageError, match=r"pip install 'mri-vit\[brain\]'"):
        prepared_by(study_in(tmp_path, brain="deepbet"), made)


def test_itk_transforms_and_4x4s_say_the_same() -> None:
    matrix = rigid((10, -20, 30), (4, 5, -6))
    np.testing.assert_allclose(register.to_ras(register.euler(matrix, np.array([7.0, 8.0, 9.0]))), matrix, atol=1e-12)
    np.testing.assert_allclose(register.to_ras(itk_transform(matrix)), matrix, atol=1e-12)


def test_a_coarse_copy_keeps_its_place_and_does_not_alias() -> None:
    centre = np.indices((64, 64, 32)) - np.array([30, 35, 14]).reshape(3, 1, 1, 1)
    blob = Volume(np.exp(-(centre**2).sum(axis=0) / 18).astype(np.float32), rigid((5, 5, 5), (1, 2, 3)) @ np.diag([1, 1, 2, 1.0]))
    copy = register.coarse_copy(blob, 4.0)
    there, here = ((v.affine @ [*ndimage.center_of_mass(v.array), 1])[:3] for v in (blob, copy))
    np.testing.assert_allclose(here, there, atol=0.05)
    stripes = Volume(np.indices((64, 64, 32))[0].astype(np.float32) % 2, np.eye(4))
    assert register.coarse_copy(stripes, 4.0).array[2:-2].std() < 0.02  # without the blur: 0.5


def test_n4_equals_itk_on_a_head_with_a_planted_field() -> None:
    whole, _ = register.template()
    x, y, z = (axis / n for axis, n in zip(np.indices(whole.shape), whole.shape, strict=True))
    gain = np.exp(0.3 * np.sin(2.5 * x + 1) + 0.25 * y * z)
    noise = np.random.default_rng(0).normal(0, 25, whole.shape)  # one that ITK's float32 does not stop an iteration apart
    scan = Volume((np.where(whole.array > 0.1, 500 * whole.array * gain + noise, 0)).astype(np.float32)[::3, ::3, ::3], np.eye(4))
    inside = scan.array > 30
    field = bias.fit(scan.array, inside, bias.ITK_LEVELS)
    filter_ = sitk.N4BiasFieldCorrectionImageFilter()
    filter_.Execute(to_itk(scan), to_itk(Volume(inside.astype(np.uint8), scan.affine)))
    expected = sitk.GetArrayFromImage(filter_.GetLogBiasFieldAsImage(to_itk(scan)))
    found = bias.evaluate(field.lattice, scan.shape)
    assert expected[inside].std() > 0.05
    assert math.sqrt(((found - expected)[inside] ** 2).mean()) < 1e-3
    assert filter_.GetElapsedIterations() in (field.iterations[-1], field.iterations[-1] + 1)  # ITK counts one past the last


def test_an_outlier_does_not_set_the_scale_and_missing_voxels_are_the_mean() -> None:
    values = np.random.default_rng(0).normal(100, 10, (20, 20, 20)).astype(np.float32)
    inside = np.ones(values.shape, bool)
    clean = alignment.zscore(values, inside)
    spiked = values.copy()
    spiked[0, 0, 0], spiked[1, 1, 1] = 1e6, np.nan
    found = alignment.zscore(spiked, inside)
    assert found.deviation == pytest.approx(clean.deviation, rel=0.01)
    assert found.array[0, 0, 0] == alignment.Z_LIMIT
    assert found.array[1, 1, 1] == 0


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw patient on the full grid, without bias correction as its reference was made."""
    return prepared_by(study_in(tmp_path_factory.mktemp("raw"), Grid(), bias=False), patient_in(RAW, RAW.name))


@needs_raw
def test_the_mask_of_a_raw_head_agrees_with_hd_bet(raw: Path) -> None:
    t1ce, reference = (canonical(read(RAW / name)) for name in ("t1ce.nii.gz", "reference/hdbet_mask_t1ce.nii.gz"))
    stored = tokens.to_volume(tokens.load(raw / "tokens.safetensors"))
    on_grid = Volume((stored != 0).any(axis=0).astype(np.float32), np.array(Grid().affine))
    found = resample(on_grid, t1ce.shape, t1ce.affine, np.array(load_record(raw)["to_grid"]["t1ce"])).array > 0.5
    expected = reference.array > 0
    dice = 2 * (found & expected).sum() / (found.sum() + expected.sum())
    print(f"Dice against HD-BET {dice:.4f}")  # shown by pytest -s
    assert dice >= 0.95


@needs_raw
def test_a_raw_head_lies_as_the_reference_made_by_others_has_it(raw: Path) -> None:
    names = ("brain_mask", *CHANNELS)
    reference = {name: canonical(read(RAW / "reference" / f"sri24_{name}.nii.gz")) for name in names}
    volume = tokens.to_volume(tokens.load(raw / "tokens.safetensors")).astype(np.float32)
    inside, affine = (volume != 0).any(axis=0), np.array(Grid().affine)
    ours = {}
    for index, channel in enumerate(CHANNELS):
        dark = np.percentile(volume[index][inside], 0.5)  # background as dark as the darkest brain, as in the reference
        ours[channel] = Volume(np.where(inside, volume[index] - dark, 0).astype(np.float32), affine)
    target = reference["t1ce"]
    centres = [(v.affine @ [*np.argwhere(v.array > 0).mean(axis=0), 1])[:3] for v in (ours["t1ce"], target)]
    start = np.eye(4)
    start[:3, 3] = centres[0] - centres[1]
    carried = register.align(target, ours["t1ce"], [start]).matrix
    for channel, bar in {"t1": 0.95, "t1ce": 0.95, "t2": 0.95, "flair": 0.91}.items():
        scan = reference[channel].array
        counted = (reference["brain_mask"].array > 0) & (scan > 0)
        pair = [resample(ours[channel], target.shape, target.affine, carried).array, scan]
        pair = [ndimage.gaussian_filter(a.clip(*np.percentile(a[counted], (1, 99))), 1.5) for a in pair]
        reached = np.corrcoef(pair[0][counted], pair[1][counted])[0, 1]
        moved = [np.corrcoef(np.roll(pair[0], n, a)[counted], pair[1][counted])[0, 1] for a in range(3) for n in (1, -1)]
        print(f"{channel}: correlation {reached:.4f}, best one-voxel shift {max(moved):.4f}")
        assert reached >= bar, channel
        assert reached >= max(moved), channel


@needs_raw
def test_a_mark_comes_back_from_the_grid_within_a_millimetre(raw: Path) -> None:
    t1ce = canonical(read(RAW / "t1ce.nii.gz"))
    to_grid, edge = np.array(load_record(raw)["to_grid"]["t1ce"]), Grid().edge
    position = t1ce.affine @ [120, 100, 14, 1]
    points = t1ce.affine @ np.vstack([np.indices(t1ce.shape).reshape(3, -1), np.ones(t1ce.array.size)])
    mark = np.exp(-((points - position[:, None]) ** 2).sum(axis=0) / (2 * 6**2)).reshape(t1ce.shape).astype(np.float32)
    there = resample(Volume(mark, t1ce.affine), (edge, edge, edge), np.array(Grid().affine), np.linalg.inv(to_grid))
    back = resample(there, t1ce.shape, t1ce.affine, to_grid)
    for volume, expected in ((there, to_grid @ position), (back, position)):
        found = volume.affine @ [*ndimage.center_of_mass(np.where(volume.array > 0.05, volume.array, 0)), 1]
        assert np.linalg.norm(found - expected) < 1


@pytest.mark.slow
@needs_stripped
def test_a_stripped_patient_with_only_a_qform_stands_upright_in_the_template(tmp_path: Path) -> None:
    folder = prepared_by(study_in(tmp_path), patient_in(STRIPPED, STRIPPED.name))
    record = load_record(folder)
    assert [step["source"] for step in record["steps"] if step["step"] == "brain"] == ["none"]
    assert record["brain_ml"] == pytest.approx(1252, rel=0.02)
    inside = (tokens.to_volume(tokens.load(folder / "tokens.safetensors")) != 0).any(axis=0)
    whole, _ = register.template()
    expected = resample(whole, inside.shape, np.array(DEMO_GRID.affine)).array > 0.2  # nilearn's threshold for its brain mask
    assert 2 * (inside & expected).sum() / (inside.sum() + expected.sum()) > 0.75  # a small brain in a large one
    assert json.loads((folder / "patient.json").read_text())["warnings"] == []
