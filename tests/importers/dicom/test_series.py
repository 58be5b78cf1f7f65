"""Files whose UIDs or preambles are wrong: they become the volumes of the sound ones, or one reason says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import dicom
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import HTJ2KLossless, generate_uid

from mri_vit.data import volume
from mri_vit.importers.dicom import conversion, header, importer, series
from mri_vit.importers.layout import SourceContents

Edit = Callable[[Dataset, int], None]  # of the data set of a file, and which of all it is


def write_sound(folder: Path) -> list[Path]:
    """Four scans of one patient, each with a protocol of its own."""
    dicom.write_study(folder / "t1", 1, ["t1"], RepetitionTime=1900, EchoTime=3)
    dicom.write_study(folder / "t1ce", 1, ["t1ce"], RepetitionTime=1900, EchoTime=3, SeriesNumber=2)
    dicom.write_study(folder / "t2", 1, ["t2"], RepetitionTime=5000, EchoTime=90, SeriesNumber=3)
    dicom.write_study(folder / "flair", 1, ["flair"], RepetitionTime=9000, EchoTime=95, InversionTime=2500, SeriesNumber=4)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def edited(paths: list[Path], edit: Edit) -> None:
    for number, path in enumerate(paths):
        dataset = dcmread(path)
        edit(dataset, number)
        dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
        dataset.save_as(path)


def bring_in(tmp_path: Path) -> tuple[SourceContents, list[str]]:
    lines: list[str] = []
    return importer.read(tmp_path / "in", tmp_path / "out", say=lines.append), lines


def assert_as_sound(found: SourceContents, tmp_path: Path) -> None:
    """The scans are those of the sound series, voxel by voxel, in their places."""
    write_sound(tmp_path / "sound")
    sound = importer.read(tmp_path / "sound", tmp_path / "out-sound")
    assert not sound.left_out
    (visit,), (expected,) = found.visits, sound.visits
    assert set(visit.scans) == set(expected.scans) == set(dicom.FOUR)
    for channel, path in visit.scans.items():
        one, other = volume.read(path), volume.read(expected.scans[channel])
        np.testing.assert_array_equal(one.array, other.array)
        np.testing.assert_allclose(one.affine, other.affine, atol=1e-6)
        assert one.array.min() == 10_100 + 1000 * list(dicom.FOUR).index(channel)


def series_of_its_own(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID = f"1.9.{number}"


def series_and_description_of_its_own(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID, dataset.SeriesDescription = f"1.9.{number}", f"{dataset.SeriesDescription} {number + 1}"


def series_and_number_of_its_own(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID, dataset.SeriesNumber = f"1.9.{number}", number + 1


def all_uids_of_its_own(dataset: Dataset, number: int) -> None:
    for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID"):
        setattr(dataset, keyword, generate_uid())


def one_series(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID = "1.9"


def one_series_with_running_numbers(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID, dataset.InstanceNumber, dataset.SeriesNumber = "1.9", number + 1, 1


def one_image(dataset: Dataset, number: int) -> None:
    dataset.SOPInstanceUID = "1.9"


def one_of_all(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID = dataset.SOPInstanceUID = "1.9"


def no_series(dataset: Dataset, number: int) -> None:
    dataset.SeriesInstanceUID = ""


UIDS = [series_of_its_own, series_and_description_of_its_own, series_and_number_of_its_own, all_uids_of_its_own]
UIDS += [no_series, one_series, one_series_with_running_numbers, one_image, one_of_all]


@pytest.mark.parametrize("edit", UIDS)
def test_images_with_wrong_uids_become_the_volumes_of_the_sound_ones_and_the_cause_is_named_once(
    tmp_path: Path, edit: Edit
) -> None:
    edited(write_sound(tmp_path / "in"), edit)
    found, lines = bring_in(tmp_path)
    assert_as_sound(found, tmp_path)
    assert not found.left_out
    assert len(lines) == (2 if edit is one_of_all else 1)
    assert all("InstanceUID" in line for line in lines)


def test_sequences_of_one_series_without_descriptions_are_told_apart_by_their_timing(tmp_path: Path) -> None:
    def edit(dataset: Dataset, number: int) -> None:
        del dataset.SeriesDescription
        dataset.SeriesInstanceUID = "1.9"

    paths = [path for path in write_sound(tmp_path / "in") if "t1ce" not in path.parts]
    edited(paths, edit)
    for path in (tmp_path / "in" / "t1ce").rglob("IM*"):
        path.unlink()
    contents = series.find_series(tmp_path / "in")
    assert sorted(str(one.images[0].kind[0]) for one in contents.series) == ["3.0", "90.0", "95.0"]
    assert not [fault for one in contents.series for fault in conversion.conversion_faults(one)]


def test_sequences_of_one_series_whose_slices_lie_between_each_other_are_not_one_volume(tmp_path: Path) -> None:
    both: dict[str, Any] = {"SeriesInstanceUID": "1.9", "StudyInstanceUID": "1.2"}
    dicom.write_series(tmp_path / "a", SeriesDescription="t1 tse", **both)
    dicom.write_series(tmp_path / "b", steps=[k + 0.5 for k in range(6)], SeriesDescription="t2 tse", **both)
    assert [len(one.images) for one in series.find_series(tmp_path).series] == [6, 6]


@pytest.mark.parametrize("shift", [0, 0.5])
def test_a_repeated_sequence_under_one_series_uid_is_told_apart_by_its_number(tmp_path: Path, shift: float) -> None:
    for number in (4, 7):
        steps = [k + shift * (number == 7) for k in range(6)]
        tags: dict[str, Any] = {"SeriesInstanceUID": "1.9", "StudyInstanceUID": "1.2", "SeriesDescription": "t1"}
        dicom.write_series(tmp_path / str(number), steps=steps, SeriesNumber=number, **tags)
    assert sorted((one.tags.number, len(one.images)) for one in series.find_series(tmp_path).series) == [(4, 6), (7, 6)]


def test_a_repeated_sequence_under_one_series_uid_is_told_apart_by_its_time(tmp_path: Path) -> None:
    for time in ("101500", "103000"):
        tags: dict[str, Any] = {"SeriesInstanceUID": "1.9", "StudyInstanceUID": "1.2", "SeriesDescription": "t1"}
        dicom.write_series(tmp_path / time, AcquisitionTime=time, **tags)
    assert [len(one.images) for one in series.find_series(tmp_path).series] == [6, 6]


def test_a_slice_of_another_sequence_in_a_gap_is_refused_as_mixed(tmp_path: Path) -> None:
    def edit(dataset: Dataset, number: int) -> None:
        dataset.SeriesDescription = "t2 tse" if number == 3 else "t1 tse"

    dicom.write_series(tmp_path, edit=edit)
    (one,) = series.find_series(tmp_path).series
    assert "mixed series" in conversion.conversion_faults(one)[0].reason


def test_images_that_nothing_tells_apart_are_refused_with_one_cause(tmp_path: Path) -> None:
    for scan in ("a", "b"):
        dicom.write_series(
            tmp_path / "in" / scan, edit=lambda dataset, number: None, SeriesDescription="t2 tse", StudyInstanceUID="1.2"
        )
    edited(sorted((tmp_path / "in").rglob("IM*")), series_of_its_own)
    found, lines = bring_in(tmp_path)
    assert not found.visits
    assert len([one for one in found.left_out if "SeriesInstanceUID of its own" in one.reason]) == 1
    assert len(lines) == 2


def test_a_repeated_sequence_is_told_apart_by_its_series_number(tmp_path: Path) -> None:
    for number in (4, 7):
        dicom.write_series(tmp_path / str(number), SeriesDescription="t2 tse", StudyInstanceUID="1.2", SeriesNumber=number)
    edited(sorted(tmp_path.rglob("IM*")), series_of_its_own)
    assert sorted((one.tags.number, len(one.images)) for one in series.find_series(tmp_path).series) == [(4, 6), (7, 6)]


def test_stacks_of_two_directions_are_put_together_apart(tmp_path: Path) -> None:
    for orientation in (dicom.AXIAL, dicom.OBLIQUE):
        dicom.write_series(
            tmp_path / str(orientation[0]), orientation=orientation, SeriesDescription="t2", StudyInstanceUID="1.2"
        )
    edited(sorted(tmp_path.rglob("IM*")), series_of_its_own)
    found = series.find_series(tmp_path).series
    assert [len(one.images) for one in found] == [6, 6]
    assert not [fault for one in found for fault in conversion.conversion_faults(one)]


def test_series_of_a_single_image_stay_series_of_their_own(tmp_path: Path) -> None:
    for number in range(3):
        dicom.write_series(tmp_path / str(number), dicom.head(1), SeriesDescription="localizer", StudyInstanceUID="1.2")
    assert len(series.find_series(tmp_path).series) == 3
    assert not series.find_series(tmp_path).oddities


def test_slices_that_were_acquired_in_two_packages_stay_one_volume(tmp_path: Path) -> None:
    def edit(dataset: Dataset, number: int) -> None:
        dataset.AcquisitionNumber = 1 + number % 2

    dicom.write_series(tmp_path, dicom.head(12), edit=edit)
    (one,) = series.find_series(tmp_path).series
    assert not conversion.conversion_faults(one)


def test_a_series_whose_numbers_begin_later_than_those_of_others_is_named(tmp_path: Path) -> None:
    paths = write_sound(tmp_path)
    assert not series.find_series(tmp_path).oddities
    paths[0].unlink()
    (oddity,) = series.find_series(tmp_path).oddities
    assert "from 2 to 6" in oddity.reason


def test_a_series_uid_for_each_two_slices_is_named_once(tmp_path: Path) -> None:
    def edit(dataset: Dataset, number: int) -> None:
        dataset.SeriesInstanceUID = f"1.9.{number // 2}"

    dicom.write_series(tmp_path, edit=edit, StudyInstanceUID="1.2", SeriesDescription="t2 tse")
    assert sum("3 series of one description" in one.reason for one in series.find_series(tmp_path).oddities) == 1


# Files without preamble.


def without_preamble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[132:])


def bare(path: Path, implicit: bool, little: bool) -> None:
    """The data elements alone, without file meta information."""
    dataset = dcmread(path)
    if not little:
        dataset.PixelData = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
    plain = Dataset(dataset)  # without what was read of the file
    plain.save_as(path, implicit_vr=implicit, little_endian=little, enforce_file_format=False)


def bare_explicit(path: Path) -> None:
    bare(path, implicit=False, little=True)


def bare_implicit(path: Path) -> None:
    bare(path, implicit=True, little=True)


def bare_big_endian(path: Path) -> None:
    bare(path, implicit=False, little=False)


def with_prefix_alone(path: Path) -> None:
    path.write_bytes(path.read_bytes()[128:])


@pytest.mark.parametrize("spoil", [with_prefix_alone, without_preamble, bare_explicit, bare_implicit, bare_big_endian])
@pytest.mark.parametrize("every", [1, 2])
def test_files_without_preamble_are_read_as_those_with_one(tmp_path: Path, spoil: Callable[[Path], None], every: int) -> None:
    for path in write_sound(tmp_path / "in")[::every]:
        spoil(path)
        assert path.read_bytes()[128:132] != b"DICM"
    found, _ = bring_in(tmp_path)
    assert_as_sound(found, tmp_path)
    assert not found.left_out


def test_a_compressed_file_that_does_not_say_how_is_refused(tmp_path: Path) -> None:
    for path in dicom.write_series(tmp_path):
        dicom.encapsulate_as(path, HTJ2KLossless)
        content = path.read_bytes()
        path.write_bytes(content[content.index(b"\x08\x00\x08\x00CS") :])
    (one,) = series.find_series(tmp_path).series
    assert "compressed" in conversion.conversion_faults(one)[0].reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a", b"\x02\x00\x00\x00UL\x04\x00\x10\x00\x00\x00\x02\x00\x02\x00UI\x04\x001.2\x00\x02\x00\x03\x00UI\x04\x001.3\x00"),
        ("scan.dcm", b""),
        ("scan.IMA", b"\x1f\x8b" + bytes(200)),
        ("scan.dcm.gz", b"\x1f\x8b" + bytes(200)),
    ],
)
def test_what_looks_like_dicom_and_cannot_be_read_is_counted_and_named(tmp_path: Path, name: str, content: bytes) -> None:
    write_sound(tmp_path / "in")
    (tmp_path / "in" / name).write_bytes(content)
    found, lines = bring_in(tmp_path)
    assert set(found.visits[0].scans) == set(dicom.FOUR)
    assert [one.reason.endswith("cannot be read: 1") for one in found.left_out] == [True]
    assert any(str(tmp_path / "in" / name) in line for line in lines)


@pytest.mark.parametrize("content", [b"", bytes(5000)])
def test_a_damaged_file_that_is_named_as_those_beside_it_is_named(tmp_path: Path, content: bytes) -> None:
    paths = dicom.write_series(tmp_path)
    (tmp_path / "README1").write_bytes(content)
    paths[-1].write_bytes(content)
    assert series.find_series(tmp_path).unreadable == (paths[-1],)


def test_a_file_whose_meta_information_lacks_the_transfer_syntax_is_read(tmp_path: Path) -> None:
    for path in write_sound(tmp_path / "in"):
        content = path.read_bytes()
        at = content.index(b"\x02\x00\x10\x00UI")
        length = int.from_bytes(content[at + 6 : at + 8], "little") + 8
        group = int.from_bytes(content[140:144], "little") - length
        path.write_bytes(content[:140] + group.to_bytes(4, "little") + content[144:at] + content[at + length :])
    assert_as_sound(bring_in(tmp_path)[0], tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"read me" * 100),
        ("zeros", bytes(2000)),
        ("table.csv", b"\x08\x00patient,age\n" * 50),
        ("._scan.dcm", b"\x00\x05\x16\x07" + bytes(200)),
        ("noise", np.random.default_rng(0).bytes(4000)),
        ("once", b"\x08\x00\x05\x00CS\n\x00ISO_IR 100" + bytes(100)),
    ],
)
def test_other_files_are_not_taken_for_dicom(tmp_path: Path, name: str, content: bytes) -> None:
    write_sound(tmp_path / "in")
    (tmp_path / "in" / name).write_bytes(content)
    assert not bring_in(tmp_path)[0].left_out


def test_one_image_uid_drops_no_image_and_a_copy_adds_none(tmp_path: Path) -> None:
    paths = write_sound(tmp_path)
    edited(paths, one_image)
    (tmp_path / "copy").write_bytes(paths[9].read_bytes())
    contents = series.find_series(tmp_path)
    assert [len(one.images) for one in contents.series] == [6] * 4
    assert header.read_header(paths[0]) != header.read_header(paths[9])
