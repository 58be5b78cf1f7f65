"""Converted series against ground truth that others made, and against series of known voxels."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from made import dicom
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from mri_vit.data.volume import Volume, canonical
from mri_vit.importers.dicom import checks, convert, geometry, series
from mri_vit.importers.dicom.fault import Refused
from mri_vit.importers.dicom.series import Series

GOOD = (
    "siemens/anatomical/001",
    "hitachi/anatomical/001",
    "hyperfine/anatomical/001",
    "generic/anatomical/002_non_isotropic",
    "generic/compressed_j2k/001",
)


def only(folder: Path) -> Series:
    """The one series in a folder, which the checks let pass."""
    (found,) = series.find(folder).series
    assert not checks.faults(found)
    return found


@pytest.mark.parametrize("truth", ["ground_truth", "ground_truth_reoriented"])
@pytest.mark.parametrize("name", GOOD)
def test_affine_and_voxels_of_a_series_are_those_of_the_ground_truth(shared: Path, tmp_path: Path, name: str, truth: str) -> None:
    found = canonical(convert.volume(only(shared / "data" / "dicom" / name), tmp_path))
    image = nib.Nifti1Image.from_filename(shared / "data" / "dicom" / f"{name}_{truth}.nii.gz")
    expected = canonical(Volume(image.get_fdata(), np.asarray(image.affine)))
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-4)
    np.testing.assert_allclose(found.array, expected.array, atol=1e-5)  # one is scaled, and stored as float32


@pytest.mark.parametrize("orientation", [dicom.AXIAL, dicom.OBLIQUE])
def test_every_voxel_of_a_made_series_comes_to_its_place(tmp_path: Path, orientation: tuple[float, ...]) -> None:
    dicom.write_series(tmp_path / "in", orientation=orientation)
    found = canonical(convert.volume(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(orientation)))
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-4)
    np.testing.assert_array_equal(found.array, expected.array)


def test_an_enhanced_multi_frame_file_is_one_volume_with_each_frame_in_its_place(tmp_path: Path) -> None:
    dicom.write_enhanced(tmp_path / "in", dicom.head())
    found = canonical(convert.volume(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(dicom.OBLIQUE)))
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-4)
    np.testing.assert_array_equal(found.array, expected.array)


def test_the_order_of_files_and_instances_does_not_matter(tmp_path: Path) -> None:
    order = [3, 0, 5, 1, 4, 2]
    dicom.write_series(tmp_path / "in", dicom.head()[order], steps=order)
    found = canonical(convert.volume(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(dicom.AXIAL)))
    np.testing.assert_array_equal(found.array, expected.array)


def test_affine_of_the_headers_is_the_one_worked_out_by_hand(tmp_path: Path) -> None:
    dicom.write_series(tmp_path, orientation=dicom.OBLIQUE)
    slices = geometry.ordered(only(tmp_path).images)
    np.testing.assert_allclose(geometry.affine(slices), dicom.affine(dicom.OBLIQUE), atol=1e-9)
    assert geometry.shape(slices) == (24, 20, 6)


def test_files_that_dcm2niix_cannot_decode_are_decompressed_first(tmp_path: Path) -> None:
    for path in dicom.write_series(tmp_path / "in"):
        dataset = dcmread(path)
        dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
        dataset.save_as(path)
    found = canonical(convert.volume(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(dicom.AXIAL)))
    np.testing.assert_array_equal(found.array, expected.array)


def test_two_echoes_in_one_series_are_two_volumes(tmp_path: Path) -> None:
    for echo in (12.0, 95.0):
        dicom.write_series(
            tmp_path / f"{echo:g}", dicom.head() + int(echo), EchoTime=echo, SeriesInstanceUID="1.2.3", StudyInstanceUID="1.2"
        )
    found = series.find(tmp_path).series
    assert [one.tags.echo_ms for one in found] == [12.0, 95.0]
    assert len({one.name for one in found}) == 2
    for one in found:
        assert not checks.faults(one)
        assert convert.volume(one, tmp_path).array.min() == 100 + int(one.tags.echo_ms)


def test_a_copy_of_a_file_adds_no_slice(tmp_path: Path) -> None:
    first = dicom.write_series(tmp_path)[0]
    (tmp_path / "copy").write_bytes(first.read_bytes())
    assert len(only(tmp_path).images) == 6


def test_files_are_found_by_content_and_not_by_name(tmp_path: Path) -> None:
    paths = dicom.write_series(tmp_path / "a b" / "한국")
    paths[0].rename(paths[0].with_name("notes.txt"))
    (tmp_path / "scan.dcm").write_bytes(b"no DICOM" * 100)
    assert len(only(tmp_path).images) == 6


def test_a_volume_that_is_not_where_the_headers_say_is_refused(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "in")
    found = only(tmp_path / "in")
    moved = replace(found, images=tuple(replace(one, position_mm=shifted(one.position_mm)) for one in found.images))
    with pytest.raises(Refused, match=r"0\.0050 mm from where the headers do"):
        convert.volume(moved, tmp_path)


def shifted(position_mm: tuple[float, ...]) -> tuple[float, ...]:
    x, y, z = position_mm
    return x + 0.005, y, z


def test_positions_that_a_scanner_rounds_are_no_reason_to_refuse_and_do_not_add_up(tmp_path: Path) -> None:
    up = dicom.normal(dicom.OBLIQUE)

    def rounded(dataset: Dataset, number: int) -> None:
        place = np.array(dicom.ORIGIN_MM) + number * (dicom.STEP_MM + 0.0004) * up
        dataset.ImagePositionPatient = [round(float(x), 3) for x in place]

    voxels = dicom.head(60)
    dicom.write_series(tmp_path / "in", voxels, orientation=dicom.OBLIQUE, edit=rounded)
    found = canonical(convert.volume(only(tmp_path / "in"), tmp_path))
    stretched = dicom.affine(dicom.OBLIQUE)
    stretched[:3, 2] *= 1 + 0.0004 / dicom.STEP_MM
    expected = canonical(Volume(voxels.transpose(2, 1, 0), stretched))
    assert convert.corners_apart_mm(found.affine, expected.affine, expected.shape).max() < 2e-3
    np.testing.assert_array_equal(found.array, expected.array)


def test_a_volume_of_other_size_than_the_headers_say_is_refused(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "in")
    found = only(tmp_path / "in")
    with pytest.raises(Refused, match=r"24 x 20 x 6 voxels; the headers say 24 x 19 x 6"):
        convert.volume(replace(found, images=tuple(replace(one, matrix=(19, 24)) for one in found.images)), tmp_path)


def test_a_converter_that_fails_or_hangs_is_a_reason_and_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dicom.write_series(tmp_path / "in")
    found = only(tmp_path / "in")
    with monkeypatch.context() as patch:
        patch.setattr(convert.dcm2niix, "bin", "/bin/false")
        with pytest.raises(Refused, match="exit code 1"):
            convert.volume(found, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(convert.dcm2niix, "bin", "/bin/true")
        with pytest.raises(Refused, match="made 0 files"):
            convert.volume(found, tmp_path)

    def hangs(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("dcm2niix", 600)

    monkeypatch.setattr(convert.subprocess, "run", hangs)
    with pytest.raises(Refused, match="longer than 600 s"):
        convert.volume(found, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
