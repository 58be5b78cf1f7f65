"""What is refused before conversion and why, and converted series against ground truth that others made."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from made import dicom
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import HEVCMP51, MPEG2MPML, DeflatedExplicitVRLittleEndian, HTJ2KLossless

from mri_vit.data.nifti import corners_apart_mm
from mri_vit.data.volume import Volume, canonical
from mri_vit.errors import IntegrityError
from mri_vit.importers.dicom import conversion, series
from mri_vit.importers.dicom.identity import Fault, Refused
from mri_vit.importers.dicom.series import Series

FAILING = {
    "gantrytilting/001": "tilted gantry: slices are stacked 14.0 degrees off their normal",
    "notavolume/001": "no volume: all 4 images lie at the same position",
    "slicecount/001": "too few slices for a volume: 2; expected 4 or more",
    "sliceincrement/001": "missing slice: from 28.11 to 38.11 mm along the normal",
    "sliceincrement/002": "missing slice: from -133.75 to -132.25 mm along the normal",
    "sliceorientation/001": "mixed orientation, slices 90.0 degrees apart",
}


def faults(folder: Path) -> list[Fault]:
    """Of the one series in a folder."""
    (found,) = series.find_series(folder).series
    return conversion.conversion_faults(found)


def reason(folder: Path) -> str:
    return "; ".join(fault.reason for fault in faults(folder))


@pytest.mark.parametrize("name", FAILING)
def test_every_failing_series_of_the_reference_data_is_refused_with_its_reason(shared: Path, name: str) -> None:
    assert FAILING[name] in reason(shared / "data" / "dicom" / "failing" / name)


def test_a_missing_slice_is_told_with_its_place_and_the_uids_of_its_neighbours(tmp_path: Path) -> None:
    paths = dicom.write_series(tmp_path, steps=[0, 1, 2, 4, 5, 6])
    (fault,) = faults(tmp_path)
    uids = [dcmread(path).SOPInstanceUID for path in paths]
    below, above = dicom.ORIGIN_MM[2] + 2 * dicom.STEP_MM, dicom.ORIGIN_MM[2] + 4 * dicom.STEP_MM
    assert fault.uids == (uids[2], uids[3])
    assert fault.with_uids().startswith(f"missing slice: from {below:.2f} to {above:.2f} mm along the normal ({uids[2]} and")


def test_several_missing_slices_and_a_shift_are_told_apart(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "gap", steps=[0, 1, 2, 6, 7, 8])
    dicom.write_series(tmp_path / "shift", steps=[0, 1, 2, 3.4, 4.4, 5.4])
    assert reason(tmp_path / "gap").startswith("3 missing slices")
    assert reason(tmp_path / "shift").startswith("unevenly spaced slices")


def test_steps_that_differ_by_rounding_pass(tmp_path: Path) -> None:
    dicom.write_series(tmp_path, steps=[0, 1.004, 2, 2.996, 4, 5])
    assert not faults(tmp_path)


def thinned(folder: Path, every: slice, slices: int = 24, **tags: Any) -> str:
    """What is said of a series of which only some files are left."""
    paths = dicom.write_series(folder, dicom.head(slices), **tags)
    for path in set(paths) - set(paths[every]):
        path.unlink()
    return reason(folder)


def renumbered(dataset: Dataset, number: int) -> None:
    """Numbers that run on after every second or third slice is gone."""
    dataset.InstanceNumber = 1 + number // 2


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"SpacingBetweenSlices": 3}, "23 or more"),
        ({"SpacingBetweenSlices": 3, "SliceThickness": 3}, "23 or more"),  # contiguous: no gap as wide as a slice
        ({"SpacingBetweenSlices": 3, "SliceThickness": 2.5}, "23 or more"),
        ({"SpacingBetweenSlices": 3, "SliceThickness": 6}, "23 or more"),  # overlapping, as 3D slabs are
        ({"SpacingBetweenSlices": 3, "edit": renumbered}, "23 or more"),
        ({"SliceThickness": 3}, "23 or more"),  # by InstanceNumber
        ({}, "23 or more"),
        ({"ImagesInAcquisition": 24}, "12 images; expected 24"),
        ({"ImagesInAcquisition": 24, "edit": renumbered}, "12 images; expected 24"),
    ],
)
def test_every_second_slice_gone_is_refused_with_both_counts(tmp_path: Path, tags: dict[str, Any], expected: str) -> None:
    told = thinned(tmp_path, slice(0, None, 2), **tags)
    assert "missing slices" in told
    assert "12" in told
    assert expected in told


def test_two_of_three_slices_gone_are_refused(tmp_path: Path) -> None:
    assert "expected 22 or more" in thinned(tmp_path, slice(0, None, 3), SpacingBetweenSlices=3)


@pytest.mark.parametrize("left", [slice(0, 15), slice(9, 24), slice(0, 12)])
@pytest.mark.parametrize("field", ["ImagesInAcquisition", "ImagesInSeries", "NumberOfSeriesRelatedInstances"])
def test_an_end_cut_off_is_refused_with_both_counts(tmp_path: Path, left: slice, field: str) -> None:
    count = left.stop - left.start
    assert f"{count} images; expected 24" in thinned(tmp_path, left, **{field: 24, "SpacingBetweenSlices": 3})


@pytest.mark.parametrize(
    "tags",
    [
        {"SpacingBetweenSlices": 3, "SliceThickness": 2.5, "ImagesInAcquisition": 6},
        {"SpacingBetweenSlices": 0.5, "SliceThickness": 2.5},  # the gap, which some scanners write
        {"SpacingBetweenSlices": 1.0, "SliceThickness": 2.0},
        {"SpacingBetweenSlices": 1, "SliceThickness": 3, "ImageType": ["DERIVED", "SECONDARY", "MPR"]},  # of the source
        {"SpacingBetweenSlices": 0, "SliceThickness": 0},
        {"SpacingBetweenSlices": -3},  # as some write it
        {"SpacingBetweenSlices": 2.97},
        {"SpacingBetweenSlices": 4.0},  # neither a multiple nor explained
        {"SpacingBetweenSlices": 6.0},
        {"ImagesInAcquisition": 0},
        {"ImagesInAcquisition": 1},
        {"ImagesInAcquisition": 48, "ImageType": ["DERIVED", "SECONDARY"]},
        {"ImagesInAcquisition": 12, "EchoNumbers": 2},
        {"ImagesInAcquisition": 30, "NumberOfTemporalPositions": 5},
    ],
)
def test_a_whole_series_passes_whatever_its_scanner_declares(tmp_path: Path, tags: dict[str, Any]) -> None:
    dicom.write_series(tmp_path, **tags)
    assert not faults(tmp_path)


@pytest.mark.parametrize(
    "tags", [{"SpacingBetweenSlices": 3}, {"SliceThickness": 2.8}, {"SpacingBetweenSlices": 0.5, "SliceThickness": 2.5}]
)
def test_instance_numbers_of_every_second_echo_speak_of_no_gap(tmp_path: Path, tags: dict[str, Any]) -> None:
    def odd(dataset: Dataset, number: int) -> None:
        dataset.InstanceNumber = 2 * number + 1

    dicom.write_series(tmp_path, edit=odd, **tags)
    assert not faults(tmp_path)


def test_echoes_that_were_stored_as_one_series_fill_each_others_numbers_and_counts(tmp_path: Path) -> None:
    for echo in (1, 2):

        def interleave(dataset: Dataset, number: int, echo: int = echo) -> None:
            dataset.InstanceNumber = 2 * number + echo

        tags: dict[str, Any] = {"SeriesInstanceUID": "1.2.3", "StudyInstanceUID": "1.2", "ImagesInAcquisition": 12}
        dicom.write_series(tmp_path / str(echo), edit=interleave, EchoTime=50 * echo, **tags)
    found = series.find_series(tmp_path).series
    assert len(found) == 2
    assert not [fault for one in found for fault in conversion.conversion_faults(one)]


def test_echoes_of_one_acquisition_in_series_of_their_own_make_up_its_count(tmp_path: Path) -> None:
    tags: dict[str, Any] = {
        "StudyInstanceUID": "1.2",
        "AcquisitionTime": "101500",
        "RepetitionTime": 3000,
        "ImagesInAcquisition": 12,
    }
    for echo in (1, 2):
        dicom.write_series(tmp_path / str(echo), EchoTime=50 * echo, **tags)
    assert not [fault for one in series.find_series(tmp_path).series for fault in conversion.conversion_faults(one)]


def test_four_scans_that_were_cut_off_alike_do_not_make_up_each_others_counts(tmp_path: Path) -> None:
    for at in range(4):
        tags: dict[str, Any] = {
            "StudyInstanceUID": "1.2",
            "AcquisitionTime": f"10{at}500",
            "AcquisitionNumber": 1,
            "ImagesInAcquisition": 24,
        }
        dicom.write_series(tmp_path / str(at), dicom.head(12), **tags)
    assert all("expected 24" in conversion.conversion_faults(one)[0].reason for one in series.find_series(tmp_path).series)


def test_a_volume_that_is_spread_over_several_files_is_refused(tmp_path: Path) -> None:
    dicom.write_enhanced(tmp_path, dicom.head(), InConcatenationTotalNumber=2, InConcatenationNumber=1)
    assert "concatenation" in reason(tmp_path)


def test_a_duplicate_slice_is_refused(tmp_path: Path) -> None:
    dicom.write_series(tmp_path, steps=[0, 1, 2, 2, 3, 4])
    assert reason(tmp_path).startswith("duplicate slice: 1 of 6 lie where another does")


def test_a_slice_of_another_direction_is_refused(tmp_path: Path) -> None:
    def turn(dataset: Dataset, number: int) -> None:
        if number == 3:
            dataset.ImageOrientationPatient = [1, 0, 0, 0, math.cos(0.2), math.sin(0.2)]

    dicom.write_series(tmp_path, edit=turn)
    assert reason(tmp_path).startswith("mixed orientation, slices 11.5 degrees apart")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"PixelSpacing": [1.5, 1.26]}, "mixed spacing, 1.5 x 1.25 and 1.5 x 1.26 mm"),
        ({"Rows": 24, "Columns": 20}, "mixed matrix, 20 x 24 and 24 x 20"),
        ({"ImagePositionPatient": None}, "image {} has no usable ImagePositionPatient"),
        ({"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]}, "no pair of perpendicular directions"),
        ({"PixelSpacing": [0.0, 0.0]}, "has pixels of 0 x 0 mm"),
        ({"PixelData": b"\0" * 100}, "holds 100 bytes of pixels where its header announces 960: it is cut off"),
        ({"SamplesPerPixel": 3}, "has 3 samples per pixel (colour)"),
        ({"NumberOfFrames": 2, "PixelData": bytes(1920)}, "announces 2 frames and gives the position of 1"),
    ],
)
def test_one_slice_that_differs_is_enough(tmp_path: Path, change: dict[str, object], expected: str) -> None:
    def edit(dataset: Dataset, number: int) -> None:
        for keyword, value in change.items() if number == 3 else ():
            setattr(dataset, keyword, value)

    dicom.write_series(tmp_path, edit=edit)
    assert any(
        expected in fault.reason for one in series.find_series(tmp_path).series for fault in conversion.conversion_faults(one)
    )


def test_a_multi_frame_file_with_fewer_places_than_frames_is_refused(tmp_path: Path) -> None:
    dicom.write_enhanced(tmp_path, dicom.head(), NumberOfFrames=7, PixelData=bytes(7 * 960))
    assert reason(tmp_path) == "image {} announces 7 frames and gives the position of 6"


def test_a_file_that_breaks_off_is_refused(tmp_path: Path) -> None:
    path = dicom.write_enhanced(tmp_path, dicom.head())
    path.write_bytes(path.read_bytes()[:-2000])
    assert "holds 3,760 bytes of pixels where its header announces 5,760: it is cut off" in reason(tmp_path)


@pytest.mark.parametrize("syntax", [MPEG2MPML, HEVCMP51])
def test_a_series_that_no_codec_decodes_is_refused_with_its_transfer_syntax(tmp_path: Path, syntax: str) -> None:
    for path in dicom.write_series(tmp_path):
        dicom.encapsulate_as(path, syntax)
    assert f"({syntax}); no codec here decodes it" in reason(tmp_path)


def test_a_transfer_syntax_that_no_standard_knows_is_told_as_a_uid_and_not_as_text(tmp_path: Path) -> None:
    for path in dicom.write_series(tmp_path):
        path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.1", b"1.2.3.4".ljust(19, b"\0")))
    (fault,) = faults(tmp_path)
    assert "1.2.3.4" in fault.with_uids()
    assert "1.2.3.4" not in fault.with_hashes(lambda uid: "U0")


def test_what_pydicom_decodes_and_dcm2niix_does_not_is_decompressed_first(tmp_path: Path) -> None:
    for path in dicom.write_series(tmp_path):
        dicom.encapsulate_as(path, HTJ2KLossless)
    (found,) = series.find_series(tmp_path).series
    assert conversion.decompress_first(found)
    assert not conversion.conversion_faults(found)


def test_another_modality_is_refused_and_its_text_not_repeated(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "ct", Modality="CT")
    dicom.write_series(tmp_path / "text", Modality="JANE DOE")
    assert reason(tmp_path / "ct") == "modality CT; expected MR"
    assert reason(tmp_path / "text") == "modality other than MR; expected MR"


def test_a_file_that_only_starts_as_dicom_is_listed_as_unreadable(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0" * 128 + b"DICM" + b"\xff" * 50)
    contents = series.find_series(tmp_path)
    assert contents.unreadable == (tmp_path / "x",)
    assert not contents.series


def test_a_dicomdir_is_followed_inside_the_folder_only(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "disc" / "DICOM")
    (tmp_path / "outside").write_bytes(b"")
    dicom.dicomdir(tmp_path / "disc", ["DICOM", "IM0000"], ["dicom", "im0001"], ["DICOM", "GONE"])
    contents = series.find_series(tmp_path / "disc")
    assert len(contents.series) == 1
    assert contents.missing == (tmp_path / "disc" / "DICOM" / "GONE",)
    for outside in (["..", "outside"], ["DICOM", "..", "..", "outside"], [str(tmp_path / "outside")], ["..\\outside"]):
        dicom.dicomdir(tmp_path / "disc", outside)
        with pytest.raises(IntegrityError, match="lists a file outside"):
            series.find_series(tmp_path / "disc")


def test_a_dicomdir_without_preamble_is_held_to_the_same(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "DICOM")
    dicom.dicomdir(tmp_path, ["..", "outside"])
    (tmp_path / "DICOMDIR").write_bytes((tmp_path / "DICOMDIR").read_bytes()[132:])
    with pytest.raises(IntegrityError, match="lists a file outside"):
        series.find_series(tmp_path)


def test_a_dicomdir_that_leads_outside_by_a_link_is_refused(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "elsewhere")
    (tmp_path / "disc").mkdir()
    (tmp_path / "disc" / "DICOM").symlink_to(tmp_path / "elsewhere")
    dicom.dicomdir(tmp_path / "disc", ["DICOM", "IM0000"])
    with pytest.raises(IntegrityError):
        series.find_series(tmp_path / "disc")


def test_a_header_that_announces_nothing_does_not_hide_what_the_others_announce(tmp_path: Path) -> None:
    def edit(dataset: Dataset, number: int) -> None:
        dataset.ImagesInAcquisition = "" if number == 3 else 24

    dicom.write_series(tmp_path, dicom.head(15), edit=edit)
    (one,) = series.find_series(tmp_path).series
    assert "15 images; expected 24" in conversion.conversion_faults(one)[0].reason


@pytest.mark.parametrize("stride", [1, 2])
def test_frames_of_every_second_position_in_a_stack_are_refused(tmp_path: Path, stride: int) -> None:
    path = dicom.write_enhanced(tmp_path, dicom.head(12))
    dataset = dcmread(path)
    dataset.PerFrameFunctionalGroupsSequence = dataset.PerFrameFunctionalGroupsSequence[::stride]
    dataset.NumberOfFrames = len(dataset.PerFrameFunctionalGroupsSequence)
    dataset.save_as(path)
    (one,) = series.find_series(tmp_path).series
    assert bool(conversion.conversion_faults(one)) == (stride > 1)


GOOD = (
    "siemens/anatomical/001",
    "hitachi/anatomical/001",
    "hyperfine/anatomical/001",
    "generic/anatomical/002_non_isotropic",
    "generic/compressed_j2k/001",
)


def only(folder: Path) -> Series:
    """The one series in a folder, which the checks let pass."""
    (found,) = series.find_series(folder).series
    assert not conversion.conversion_faults(found)
    return found


@pytest.mark.parametrize("truth", ["ground_truth", "ground_truth_reoriented"])
@pytest.mark.parametrize("name", GOOD)
def test_affine_and_voxels_of_a_series_are_those_of_the_ground_truth(shared: Path, tmp_path: Path, name: str, truth: str) -> None:
    found = canonical(conversion.convert_series(only(shared / "data" / "dicom" / name), tmp_path))
    image = nib.Nifti1Image.from_filename(shared / "data" / "dicom" / f"{name}_{truth}.nii.gz")
    expected = canonical(Volume(image.get_fdata(), np.asarray(image.affine)))
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-4)
    np.testing.assert_allclose(found.array, expected.array, atol=1e-5)  # one is scaled, and stored as float32


@pytest.mark.parametrize("orientation", [dicom.AXIAL, dicom.OBLIQUE])
def test_every_voxel_of_a_made_series_comes_to_its_place(tmp_path: Path, orientation: tuple[float, ...]) -> None:
    dicom.write_series(tmp_path / "in", orientation=orientation)
    found = canonical(conversion.convert_series(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(orientation)))
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-4)
    np.testing.assert_array_equal(found.array, expected.array)


def test_a_disk_without_links_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dicom.write_series(tmp_path / "in")
    linked = conversion.convert_series(only(tmp_path / "in"), tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(1314, "a required privilege is not held")  # as Windows has it

    monkeypatch.setattr(Path, "symlink_to", refuse)
    copied = conversion.convert_series(only(tmp_path / "in"), tmp_path)
    assert np.array_equal(linked.array, copied.array)


def test_an_enhanced_multi_frame_file_is_one_volume_with_each_frame_in_its_place(tmp_path: Path) -> None:
    dicom.write_enhanced(tmp_path / "in", dicom.head())
    found = canonical(conversion.convert_series(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(dicom.OBLIQUE)))
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-4)
    np.testing.assert_array_equal(found.array, expected.array)


def test_the_order_of_files_and_instances_does_not_matter(tmp_path: Path) -> None:
    order = [3, 0, 5, 1, 4, 2]
    dicom.write_series(tmp_path / "in", dicom.head()[order], steps=order)
    found = canonical(conversion.convert_series(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(dicom.AXIAL)))
    np.testing.assert_array_equal(found.array, expected.array)


def test_affine_of_the_headers_is_the_one_worked_out_by_hand(tmp_path: Path) -> None:
    dicom.write_series(tmp_path, orientation=dicom.OBLIQUE)
    slices = series.ordered_slices(only(tmp_path).images)
    np.testing.assert_allclose(series.volume_affine(slices), dicom.affine(dicom.OBLIQUE), atol=1e-9)
    assert series.volume_shape(slices) == (24, 20, 6)


def test_files_that_dcm2niix_cannot_decode_are_decompressed_first(tmp_path: Path) -> None:
    for path in dicom.write_series(tmp_path / "in"):
        dataset = dcmread(path)
        dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
        dataset.save_as(path)
    found = canonical(conversion.convert_series(only(tmp_path / "in"), tmp_path))
    expected = canonical(Volume(dicom.head().transpose(2, 1, 0), dicom.affine(dicom.AXIAL)))
    np.testing.assert_array_equal(found.array, expected.array)


def test_two_echoes_in_one_series_are_two_volumes(tmp_path: Path) -> None:
    for echo in (12.0, 95.0):
        dicom.write_series(
            tmp_path / f"{echo:g}", dicom.head() + int(echo), EchoTime=echo, SeriesInstanceUID="1.2.3", StudyInstanceUID="1.2"
        )
    found = series.find_series(tmp_path).series
    assert [one.tags.echo_ms for one in found] == [12.0, 95.0]
    assert len({one.name for one in found}) == 2
    for one in found:
        assert not conversion.conversion_faults(one)
        assert conversion.convert_series(one, tmp_path).array.min() == 100 + int(one.tags.echo_ms)


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
        conversion.convert_series(moved, tmp_path)


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
    found = canonical(conversion.convert_series(only(tmp_path / "in"), tmp_path))
    stretched = dicom.affine(dicom.OBLIQUE)
    stretched[:3, 2] *= 1 + 0.0004 / dicom.STEP_MM
    expected = canonical(Volume(voxels.transpose(2, 1, 0), stretched))
    assert corners_apart_mm(found.affine, expected.affine, expected.shape).max() < 2e-3
    np.testing.assert_array_equal(found.array, expected.array)


def test_a_volume_of_other_size_than_the_headers_say_is_refused(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "in")
    found = only(tmp_path / "in")
    with pytest.raises(Refused, match=r"24 x 20 x 6 voxels; the headers say 24 x 19 x 6"):
        conversion.convert_series(replace(found, images=tuple(replace(one, matrix=(19, 24)) for one in found.images)), tmp_path)


def test_a_converter_that_fails_or_hangs_is_a_reason_and_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dicom.write_series(tmp_path / "in")
    found = only(tmp_path / "in")
    with monkeypatch.context() as patch:
        patch.setattr(conversion.dcm2niix, "bin", "/bin/false")
        with pytest.raises(Refused, match="exit code 1"):
            conversion.convert_series(found, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(conversion.dcm2niix, "bin", "/bin/true")
        with pytest.raises(Refused, match="made 0 files"):
            conversion.convert_series(found, tmp_path)

    def hangs(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("dcm2niix", 600)

    monkeypatch.setattr(conversion.subprocess, "run", hangs)
    with pytest.raises(Refused, match="longer than 600 s"):
        conversion.convert_series(found, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
