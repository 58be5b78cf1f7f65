"""DICOM objects of a prediction: where they lie, whose they are, and what must never be in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import highdicom as hd
import nibabel as nib
import numpy as np
import pytest
from made import dicom
from made.exported import PERSON, Predicted, edited, make_predicted, write_prediction
from made.prediction import EXAMPLE
from pydicom import Dataset, dcmread
from pydicom.sr.codedict import codes
from rich.console import Console
from whole_road import mri_vit

from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import UsageError
from mri_vit.finished.export.dicom.dicom_objects import export_dicom
from mri_vit.importers.dicom.conversion import convert_series
from mri_vit.importers.dicom.header import lenient
from mri_vit.importers.dicom.series import find_series

pytestmark = pytest.mark.long(30)

TURNED = (0.0, 1.0, 0.0, 0.0, 0.0, -1.0)  # sagittal
NAME = "Müller^Jörg"


def exported(predicted: Predicted, output: Path, source: str | None = "t1ce") -> dict[str, Path]:
    """The files by their stems."""
    series = predicted.series[source] if source else None
    return {file.stem: file for file in export_dicom(predicted.folder, series, output, Console(quiet=True))}


def frames(file: Path, keyword: str = "FloatPixelData") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Position (LPS+ mm) and pixels of each frame, by pydicom alone."""
    dataset = dcmread(file)
    pixels = np.frombuffer(dataset[keyword].value, np.float32).reshape(-1, dataset.Rows, dataset.Columns)
    for group, plane in zip(dataset.PerFrameFunctionalGroupsSequence, pixels, strict=True):
        yield np.array(group.PlanePositionSequence[0].ImagePositionPatient, float), plane


def texts(dataset: Dataset) -> str:
    """All text of a report."""
    found = []

    def collect(_: Dataset, element) -> None:
        if element.VR in ("UT", "LO", "LT", "ST", "DS", "SH"):
            found.append(str(element.value))

    dataset.walk(collect)
    return "\n".join(found)


def measurement_report(file: Path) -> hd.sr.MeasurementReport:
    content = hd.sr.srread(file).content
    assert isinstance(content, hd.sr.MeasurementReport)
    return content


def beside(program: str) -> str:
    """A program of dcmqi, whose wheel puts it beside Python."""
    return str(Path(sys.executable).with_name(program))


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    return make_predicted(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def objects(predicted: Predicted, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return exported(predicted, tmp_path_factory.mktemp("objects") / "out")


@pytest.mark.parametrize("orientation", [dicom.AXIAL, dicom.OBLIQUE, TURNED], ids=["axial", "oblique", "sagittal"])
@pytest.mark.parametrize("stored", ["RAS", "LAS", "PIR"])
def test_a_map_lies_where_the_scan_lies_to_the_last_bit(tmp_path, orientation, stored):
    made = make_predicted(tmp_path, orientation, stored)
    files = exported(made, tmp_path / "out")
    planes = {tuple(np.round(position, 3)): plane for position, plane in frames(files["map-1-occlusion-mgmt"])}
    assert len(planes) == made.map.shape[2]
    scans = [dcmread(file) for file in made.series["t1ce"].iterdir()]
    for scan in scans:
        number = int(scan.InstanceNumber) - 1
        plane = planes[tuple(np.round(np.array(scan.ImagePositionPatient, float), 3))]
        assert np.array_equal(plane, made.map[:, :, number].T)
    shared = dcmread(files["map-1-occlusion-mgmt"]).SharedFunctionalGroupsSequence[0]
    assert np.allclose(shared.PlaneOrientationSequence[0].ImageOrientationPatient, scans[0].ImageOrientationPatient)
    assert np.allclose(shared.PixelMeasuresSequence[0].PixelSpacing, dicom.SPACING_MM)


def test_the_order_of_slices_and_files_does_not_matter(tmp_path):
    made = make_predicted(tmp_path)
    for file in sorted(made.series["t1ce"].iterdir()):  # numbered against their positions, in names that say nothing
        dataset = dcmread(file)
        dataset.InstanceNumber = made.map.shape[2] + 1 - int(dataset.InstanceNumber)
        dataset.save_as(file)
        file.rename(file.with_name(f"x{hash(file.name) % 10**9}"))
    files = exported(made, tmp_path / "out")
    places = np.array([position for position, _ in frames(files["map-1-occlusion-mgmt"])])
    assert np.abs(np.abs(np.diff(places @ dicom.normal(dicom.OBLIQUE))) - dicom.STEP_MM).max() < 1e-6
    for position, plane in frames(files["map-1-occlusion-mgmt"]):
        number = round(float((position - np.array(dicom.ORIGIN_MM)) @ dicom.normal(dicom.OBLIQUE)) / dicom.STEP_MM)
        assert np.array_equal(plane, made.map[:, :, number].T)


@pytest.mark.parametrize("backwards", [False, True])
def test_frames_of_a_multi_frame_series_are_referred_to_one_by_one(tmp_path, backwards):
    made = make_predicted(tmp_path)
    voxels = np.stack([dcmread(file).pixel_array for file in sorted(made.series["t1ce"].iterdir())])
    enhanced = tmp_path / "enhanced"
    order = slice(None, None, -1) if backwards else slice(None)
    file = dicom.write_enhanced(enhanced, voxels, SeriesDescription="t1 post", **PERSON)
    dataset = dcmread(file)
    dataset.PixelData = voxels[order].tobytes()
    dataset.PerFrameFunctionalGroupsSequence = list(dataset.PerFrameFunctionalGroupsSequence)[order]
    dataset.save_as(file)
    files = export_dicom(made.folder, enhanced, tmp_path / "out", Console(quiet=True))
    (found,) = [file for file in files if file.name.startswith("map")]
    groups = dcmread(found).PerFrameFunctionalGroupsSequence
    for (position, plane), group in zip(frames(found), groups, strict=True):
        number = round(float((position - np.array(dicom.ORIGIN_MM)) @ dicom.normal(dicom.OBLIQUE)) / dicom.STEP_MM)
        assert np.array_equal(plane, made.map[:, :, number].T)
        reference = group.DerivationImageSequence[0].SourceImageSequence[0]
        assert reference.ReferencedSOPInstanceUID == dataset.SOPInstanceUID
        source = dataset.PerFrameFunctionalGroupsSequence[int(reference.ReferencedFrameNumber) - 1]
        assert np.allclose(source.PlanePositionSequence[0].ImagePositionPatient, position)


def test_an_independent_reader_finds_the_same_map_and_tumour(predicted, objects, tmp_path):
    for program, stem, expected, kind in (
        ("paramap2itkimage", "map-1-occlusion-mgmt", predicted.folder / "maps/t1ce_map.nii.gz", "map"),
        ("segimage2itkimage", "tumour", predicted.folder / "tumour.nii.gz", "tumour"),
    ):
        home = tmp_path / kind
        home.mkdir()
        command = [beside(program), "--inputDICOM", str(objects[stem]), "--outputDirectory", str(home), "--outputType", "nifti"]
        subprocess.run(command, check=True, capture_output=True)
        (image,) = home.glob("*.nii.gz")
        found = nib.as_closest_canonical(nib.Nifti1Image.load(image))
        wanted = nib.as_closest_canonical(nib.Nifti1Image.load(expected))
        values, target = np.asarray(found.dataobj), np.asarray(wanted.dataobj)
        assert found.affine is not None
        assert wanted.affine is not None
        offset = (np.linalg.inv(wanted.affine) @ found.affine)[:3, 3]  # frames without tumour are left out
        assert np.abs(offset - np.rint(offset)).max() < 0.01
        assert np.abs(found.affine[:3, :3] - wanted.affine[:3, :3]).max() < 1e-5
        x, y, z = (slice(int(o), int(o) + n) for o, n in zip(np.rint(offset), values.shape, strict=True))
        assert np.array_equal(values.astype(np.float32), target[x, y, z].astype(np.float32))
        assert values.sum() == pytest.approx(target.sum(), rel=1e-6)


def test_a_map_of_an_unreliable_prediction_says_so(tmp_path, objects):
    assert "not reliable" in dcmread(objects["map-1-occlusion-mgmt"]).SeriesDescription  # the example's patient is outside
    made = make_predicted(tmp_path)
    edited(made, distribution=EXAMPLE["distribution"] | {"placement": "within"})  # type: ignore[operator]
    assert "not reliable" not in dcmread(exported(made, tmp_path / "out")["map-1-occlusion-mgmt"]).SeriesDescription


def test_highdicom_reads_the_tumour_with_its_codes(predicted, objects):
    seg = hd.seg.segread(objects["tumour"])
    segment = seg.get_segment_description(1)
    assert segment.segmented_property_type == codes.SCT.Neoplasm
    assert segment.segmented_property_category == codes.SCT.MorphologicallyAbnormalStructure
    assert segment.AnatomicRegionSequence[0].CodeValue == codes.SCT.Brain.value
    assert segment.algorithm_type.value == "AUTOMATIC"
    assert seg.get_volume().array.sum() == predicted.tumour.sum()
    assert seg.FrameOfReferenceUID == PERSON["FrameOfReferenceUID"]
    pm = hd.pm.ParametricMap.from_file(objects["map-1-occlusion-mgmt"])
    assert pm.ContentQualification == "RESEARCH"
    mapping = pm.SharedFunctionalGroupsSequence[0].RealWorldValueMappingSequence[0]
    assert (mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept) == (1, 0)
    assert mapping.MeasurementUnitsCodeSequence[0].CodeValue == "1"


def test_a_given_mask_is_not_called_automatic(tmp_path):
    made = make_predicted(tmp_path)
    preparation = json.loads((made.folder / "prediction.json").read_text())["preparation"]
    edited(made, preparation=preparation | {"tumour": preparation["tumour"] | {"source": "given", "confidence": None}})
    segment = hd.seg.segread(exported(made, tmp_path / "out")["tumour"]).get_segment_description(1)
    assert segment.algorithm_type.value == "MANUAL"


def test_another_scan_gets_its_own_map_and_no_tumour_of_the_reference(predicted, tmp_path, capsys):
    output = tmp_path / "out"
    assert mri_vit("export", "dicom", predicted.folder, "--source", predicted.series["flair"], "-o", output) == 0
    assert "name the T1ce series" in capsys.readouterr().out
    assert not (output / "tumour.dcm").exists()
    flair = {str(dcmread(file).SOPInstanceUID) for file in predicted.series["flair"].iterdir()}
    source = dcmread(output / "map-1-occlusion-mgmt.dcm").SourceImageSequence
    assert {str(one.ReferencedSOPInstanceUID) for one in source} == flair


def test_every_object_has_the_patient_and_the_study_of_the_series(predicted, objects):
    source = dcmread(next(predicted.series["t1ce"].iterdir()))
    for file in objects.values():
        dataset = dcmread(file)
        for keyword in (
            "PatientName",
            "PatientID",
            "PatientBirthDate",
            "PatientSex",
            "StudyInstanceUID",
            "StudyDate",
            "StudyTime",
        ):
            assert str(dataset[keyword].value) == str(source[keyword].value), (file.name, keyword)
        assert dataset.AccessionNumber == "ACC-77123"
        assert dataset.StudyDescription == "Schädel MRT"
        assert dataset.SeriesInstanceUID != source.SeriesInstanceUID
        assert "Not a medical device" in texts(dataset) or dataset.Modality != "SR"
    assert len({dcmread(file).SOPInstanceUID for file in objects.values()}) == len(objects)


def test_the_same_command_writes_the_same_bytes_and_another_prediction_other_uids(predicted, objects, tmp_path):
    again = exported(predicted, tmp_path / "again")
    assert {name: file.read_bytes() for name, file in again.items()} == {n: file.read_bytes() for n, file in objects.items()}
    other = shutil.copytree(predicted.folder, tmp_path / "other")
    edited(Predicted(other, {}, predicted.affine, predicted.map, predicted.tumour), made="2026-11-24T18:30:00+00:00")
    files = export_dicom(other, predicted.series["t1ce"], tmp_path / "out", Console(quiet=True))
    known = {dcmread(file).SOPInstanceUID for file in objects.values()}
    assert not known & {dcmread(file).SOPInstanceUID for file in files}


def test_dates_are_the_sources_and_the_predictions_and_never_todays(objects):
    for file in objects.values():
        dataset = dcmread(file)
        dates = {str(element.value) for element in dataset.iterall() if element.VR in ("DA", "DT") and element.value}
        assert dates <= {"20240131", "19600203", "20261123"}


@pytest.mark.parametrize(
    "name", ["generic/anatomical", "generic/compressed_j2k", "siemens/anatomical", "hitachi/anatomical", "hyperfine/anatomical"]
)
def test_a_map_lies_on_the_series_of_real_scanners(shared, tmp_path, name):
    folder = shared / "data" / "dicom" / name
    (series,) = find_series(folder).series
    volume = convert_series(series, tmp_path)
    made = write_prediction(tmp_path / "P001", {"t1ce": volume}, {"t1ce": folder})
    files = exported(made, tmp_path / "out")
    scans = [dcmread(file) for file in folder.rglob("*") if file.is_file() and file.suffix != ".gz"]
    slices = [one for scan in scans for one in slices_of(scan)]
    planes = {tuple(np.round(position, 2)): plane for position, plane in frames(files["map-1-occlusion-mgmt"])}
    assert len(planes) == len(slices)
    to_index = np.linalg.inv(made.affine)
    for position, row, column, (between_rows, between_columns) in slices:
        plane = planes[tuple(np.round(position, 2))]
        rows, columns = plane.shape
        for i, j in ((0, 0), (rows // 3, columns // 2), (rows // 2, columns // 3)):
            lps = position + i * between_rows * column + j * between_columns * row
            index = (to_index @ [-lps[0], -lps[1], lps[2], 1])[:3]
            assert np.linalg.norm(made.affine[:3, :3] @ (index - np.rint(index))) < 0.1
            assert plane[i, j] == made.map[tuple(np.rint(index).astype(int))]
    assert dcmread(files["report"]).StudyInstanceUID == scans[0].StudyInstanceUID


def slices_of(scan: Dataset) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, float]]]:
    """Position, directions of row and column, and spacing of each slice of a classic or multi-frame file, by pydicom alone."""
    shared = scan.get("SharedFunctionalGroupsSequence", [scan])[0]
    for own in scan.get("PerFrameFunctionalGroupsSequence", [scan]):
        found = {}
        for group in (shared, own):
            for item in (group, *(element.value[0] for element in group if element.VR == "SQ" and element.value)):
                for keyword in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing"):
                    if keyword in item:
                        found[keyword] = np.array(item[keyword].value, float)
        orientation, spacing = found["ImageOrientationPatient"], found["PixelSpacing"]
        yield found["ImagePositionPatient"], orientation[:3], orientation[3:], (float(spacing[0]), float(spacing[1]))


def test_odd_headers_are_copied_as_they_are(tmp_path):
    with lenient():
        made = make_predicted(
            tmp_path,
            SpecificCharacterSet=["", "ISO 2022 IR 87"],
            PatientName="Yamada^Tarou=山田^太郎=やまだ^たろう",
            PatientSex="W",
            PatientBirthDate="1960",
            StudyDate="31.01.2024",
            AccessionNumber="longer than sixteen characters",
            TimezoneOffsetFromUTC="+0900",
        )
        files = exported(made, tmp_path / "out")
        for file in files.values():
            dataset = dcmread(file)
            assert str(dataset.PatientName) == "Yamada^Tarou=山田^太郎=やまだ^たろう"
            assert (dataset.PatientSex, dataset.PatientBirthDate, dataset.StudyDate) == ("W", "1960", "31.01.2024")
            assert dataset.AccessionNumber == "longer than sixteen characters"
            assert (dataset.ContentDate, dataset.ContentTime) == ("20261124", "033000")  # of 18:30 UTC
            assert dataset.TimezoneOffsetFromUTC == "+0900"


# --- another patient's series -------------------------------------------------------------------------------------------------


def refused(made: Predicted, source: Path, output: Path) -> str:
    with pytest.raises(UsageError) as found:
        export_dicom(made.folder, source, output, Console(quiet=True))
    assert not output.exists()
    return str(found.value)


def rewrite(series: Path, edit) -> Path:
    for number, file in enumerate(sorted(series.iterdir())):
        dataset = dcmread(file)
        edit(dataset, number)
        dataset.save_as(file)
    return series


def test_a_series_with_other_voxels_at_the_same_place_is_refused_loudly(predicted, tmp_path):
    series = shutil.copytree(predicted.series["t1ce"], tmp_path / "series")

    def one_voxel(dataset: Dataset, number: int) -> None:
        if number == 5:
            pixels = dataset.pixel_array.copy()
            pixels[10, 12] += 60
            dataset.PixelData = pixels.tobytes()

    message = refused(predicted, rewrite(series, one_voxel), tmp_path / "out")
    assert "ANOTHER PATIENT" in message


def test_a_series_of_another_size_or_place_is_refused(predicted, tmp_path):
    dicom.write_series(tmp_path / "small", dicom.head(8), dicom.OBLIQUE, **PERSON)
    assert "ANOTHER PATIENT" in refused(predicted, tmp_path / "small", tmp_path / "out")

    def moved(dataset: Dataset, number: int) -> None:
        dataset.ImagePositionPatient = [float(x) + 0.2 for x in dataset.ImagePositionPatient]

    series = rewrite(shutil.copytree(predicted.series["t1ce"], tmp_path / "moved"), moved)
    assert "0.35 mm away" in refused(predicted, series, tmp_path / "out")


def test_a_mirrored_series_is_refused(predicted, tmp_path):
    def mirrored(dataset: Dataset, number: int) -> None:
        dataset.PixelData = np.ascontiguousarray(dataset.pixel_array[:, ::-1]).tobytes()

    series = rewrite(shutil.copytree(predicted.series["t1ce"], tmp_path / "mirrored"), mirrored)
    refused(predicted, series, tmp_path / "out")


@pytest.mark.parametrize("slope", [1.0, 2.5])
def test_a_scan_that_was_stripped_before_the_prediction_is_known_by_its_brain(tmp_path, slope):
    made = make_predicted(tmp_path)
    preparation = json.loads((made.folder / "prediction.json").read_text())["preparation"]
    for scan in preparation["steps"][0]["scans"].values():
        scan["voxels_sha256"] = "of a stripped scan"
    edited(made, preparation=preparation)
    rewrite(made.series["t1ce"], lambda dataset, _: dataset.update({"RescaleSlope": slope, "RescaleIntercept": 0}))
    assert "map-1-occlusion-mgmt" in exported(made, tmp_path / "out")
    assert "ANOTHER PATIENT" in refused(made, made.series["flair"], tmp_path / "other")
    brain = read(made.folder / "maps/brain.nii.gz")
    turned = np.where(brain.array > 0, 256 - brain.array, 0).astype(np.uint8)
    write(Volume(turned, brain.affine), made.folder / "maps/brain.nii.gz")
    assert "ANOTHER PATIENT" in refused(made, made.series["t1ce"], tmp_path / "third")


@pytest.mark.parametrize(
    ("keyword", "values", "words"),
    [
        ("PatientName", ["Doe^Jane", "Roe^Rita"], "2 values of PatientName"),
        ("PatientBirthDate", ["19600203", "19610203"], "PatientBirthDate"),
        ("PatientID", ["1", "2"], "2 series"),
        ("StudyInstanceUID", ["1.2.3.4", "1.2.3.5"], "2 studies"),
        ("SeriesInstanceUID", ["1.2.3.4.5", "1.2.3.4.6"], "one series"),
        ("FrameOfReferenceUID", ["1.2", "1.3"], "FrameOfReferenceUID"),
        ("StudyInstanceUID", ["", ""], "StudyInstanceUID"),
        ("Modality", ["CT", "CT"], "modality CT"),
    ],
)
def test_files_of_several_persons_studies_or_kinds_are_refused(predicted, tmp_path, keyword, values, words):
    series = shutil.copytree(predicted.series["t1ce"], tmp_path / "series")
    rewrite(series, lambda dataset, number: setattr(dataset, keyword, values[number % 2]))
    assert words in refused(predicted, series, tmp_path / "out")


def test_no_series_no_prediction_and_a_lacking_slice_are_refused(predicted, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no DICOM image" in refused(predicted, tmp_path / "empty", tmp_path / "out")
    assert "no folder" in refused(predicted, tmp_path / "absent", tmp_path / "out")
    series = shutil.copytree(predicted.series["t1ce"], tmp_path / "series")
    (series / "IM0004").unlink()
    assert "missing slice" in refused(predicted, series, tmp_path / "out")
    assert mri_vit("export", "dicom", tmp_path / "empty", "-o", tmp_path / "out") == 2


@pytest.mark.parametrize("name", ["maps/t1ce_map.nii.gz", "maps/brain.nii.gz", "tumour.nii.gz", "prediction.json"])
def test_a_damaged_prediction_is_named_and_nothing_is_exported(tmp_path, capsys, name):
    made = make_predicted(tmp_path)
    (made.folder / name).write_bytes(b"damaged")
    command = ("export", "dicom", made.folder, "--source", made.series["t1ce"], "-o", tmp_path / "out")
    assert mri_vit(*command) == 6
    assert name in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (made.folder / name).unlink()
    assert mri_vit(*command) in (2, 6)
    assert not (tmp_path / "out").exists()


def test_a_map_that_lies_elsewhere_is_never_resampled(tmp_path):
    made = make_predicted(tmp_path)
    file = made.folder / "maps/t1ce_map.nii.gz"
    volume = read(file)
    shifted = volume.affine.copy()
    shifted[:3, 3] += 0.2
    write(Volume(volume.array, shifted), file)
    assert "lies 0.35 mm from" in refused(made, made.series["t1ce"], tmp_path / "out")


# --- the output ---------------------------------------------------------------------------------------------------------------


def test_only_an_earlier_export_is_replaced(predicted, tmp_path):
    output = tmp_path / "out"
    exported(predicted, output)
    assert len(exported(predicted, output)) == 5
    (output / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="notes"):
        exported(predicted, output)
    assert (output / "notes.txt").read_text() == "mine"
    series = tmp_path / "series"
    series.mkdir()
    shutil.copy(next(predicted.series["t1ce"].iterdir()), series / "report.dcm")
    with pytest.raises(UsageError, match=r"report\.dcm"):
        exported(predicted, series)
    for inside in (predicted.folder / "out", predicted.series["t1ce"] / "out", predicted.series["t1ce"]):
        with pytest.raises(UsageError, match="lies in"):
            exported(predicted, inside)


def test_a_withheld_endpoint_has_no_number_and_no_map(predicted, objects):
    content = measurement_report(objects["report"])
    groups = {group[0].ContentSequence[0].TextValue: group for group in content.get_image_measurement_groups()}
    assert not groups["PTEN alteration"].get_measurements()
    assert "did not tell it from chance" in texts(groups["PTEN alteration"][0])
    shown = {m.name.meaning: m.value for m in groups["MGMT promoter methylation"].get_measurements()}
    assert shown["Calibrated probability"] == pytest.approx(0.67)
    assert shown["Score"] == pytest.approx(0.71)
    alive = {m.name.value: m.value for m in groups["Overall survival"].get_measurements()}
    assert alive["alive-365d"] == pytest.approx(0.6)
    assert not [name for name in objects if "pten" in name]


def test_a_prediction_without_maps_mask_or_shown_endpoint_is_a_summary_and_a_report(tmp_path):
    made = make_predicted(tmp_path)
    endpoints = {"pten": EXAMPLE["endpoints"]["pten"]}  # type: ignore[index]
    preparation = json.loads((made.folder / "prediction.json").read_text())["preparation"]
    edited(made, endpoints=endpoints, maps=None, no_maps="withheld", preparation=preparation | {"tumour": {"source": "none"}})
    (made.folder / "tumour.nii.gz").unlink()
    for source in ("t1ce", None):
        files = exported(made, tmp_path / f"out-{source}", source)
        assert set(files) == {"summary", "report"}
        assert not list(dcmread(files["report"]).get("FloatPixelData") or [])


# --- reports and validators ---------------------------------------------------------------------------------------------------


def test_the_report_has_volume_verdicts_quality_and_model(predicted, objects):
    report, content = hd.sr.srread(objects["report"]), measurement_report(objects["report"])
    (tumour,) = content.get_volumetric_roi_measurement_groups()
    assert tumour.finding_type == codes.SCT.Neoplasm
    (volume,) = tumour.get_measurements()
    voxel_ml = np.prod([*dicom.SPACING_MM, dicom.STEP_MM]) / 1000
    assert volume.value == pytest.approx(predicted.tumour.sum() * voxel_ml, abs=1e-3)
    assert tumour.referenced_segment is not None
    assert tumour.referenced_segment.referenced_sop_instance_uid == dcmread(objects["tumour"]).SOPInstanceUID
    said = texts(report)
    for words in (
        "Better than chance (AUC 0.88 …); 82 patients",
        "Flair is noisy.",
        "demo",
        "3 networks",
    ):
        assert words in said
    assert "Not a medical device" in said
    assert (report.VerificationFlag, report.PreliminaryFlag) == ("UNVERIFIED", "PRELIMINARY")


def test_every_code_is_as_short_as_the_standard_wants(objects):
    for element in dcmread(objects["report"]).iterall():
        if element.keyword == "CodeValue":
            assert len(str(element.value).encode()) <= 16
        if element.keyword == "CodeMeaning":
            assert len(str(element.value)) <= 64


@pytest.mark.parametrize("source", ["t1ce", None])
def test_validators_of_others_find_no_fault(predicted, tmp_path, source):
    validator, dump = shutil.which("dciodvfy"), shutil.which("dsrdump")
    if not validator or not dump:
        pytest.skip("dciodvfy or dsrdump is not installed (Debian: apt-get install dicom3tools dcmtk)")
    files = exported(predicted, tmp_path / "out", source)
    for file in files.values():
        done = subprocess.run([validator, str(file)], capture_output=True, text=True)
        assert not [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Error")], file.name
    done = subprocess.run([dump, str(files["report"])], capture_output=True, text=True)
    assert done.returncode == 0
    assert '"Calibrated probability")="0.67"' in done.stdout


def test_dcmqi_reads_the_report(objects, tmp_path):
    target = tmp_path / "report.json"
    command = [beside("tid1500reader"), "--inputDICOM", str(objects["report"]), "--outputMetadata", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    assert len(json.loads(target.read_text(errors="replace"))["Measurements"]) >= 4


# --- personal data ------------------------------------------------------------------------------------------------------------

PLANTED = ("Zanzibar", "Quetzal", "Ybbs")


def header(dataset: Dataset) -> str:
    """Every value of a file but pixels and UIDs, file meta information too."""
    elements = [*dataset.file_meta, *dataset.iterall()]
    return "\n".join(str(one.value) for one in elements if "PixelData" not in one.keyword and one.VR not in ("SQ", "UI"))


def planted(tmp_path: Path) -> Predicted:
    """A prediction in which persons are named wherever a name may come: folder, id, files, twin, remarks."""
    made = make_predicted(tmp_path)
    document = json.loads((made.folder / "prediction.json").read_text())
    read = [{"holds": "t1ce", "file": "Zanzibar_t1ce.nii.gz", "sha256": None}]
    folder = made.folder.rename(made.folder.with_name("Zanzibar"))
    made = Predicted(folder, made.series, made.affine, made.map, made.tumour)
    edited(
        made,
        patient="Zanzibar",
        preparation=document["preparation"] | {"read": read, "warnings": ["Zanzibar_t1ce.nii.gz: odd"]},
        known={"twin": "Quetzal", "same_id": True, "exposed": True, "sentence": "the run's patient Quetzal has the same voxels"},
        remarks=["the patient is called Zanzibar", "the run's patient Quetzal has the same voxels"],
    )
    return made


@pytest.mark.parametrize("source", ["t1ce", None])
def test_no_object_has_a_person_whom_the_series_did_not_have(tmp_path, source):
    made = planted(tmp_path)
    rewrite(made.series["t1ce"], lambda dataset, _: dataset.update({"OperatorsName": "Ybbs^Olga", "InstitutionName": "Ybbs"}))
    files = exported(made, tmp_path / "out", source)
    for file in files.values():
        content = file.read_bytes()
        for name in PLANTED:
            assert name.encode() not in content, (file.name, name)
            assert name.encode("utf-16-le") not in content
        dataset = dcmread(file)
        assert not dataset.group_dataset(0x0009)
        if source is None:
            for value in (NAME, "MRN-4711", "1960", "20240131", "77123", "2026"):
                assert value not in header(dataset), (file.name, value)
            assert not [one for one in dataset.iterall() if one.VR == "UI" and str(one.value).startswith("1.2.3.")]
            assert dataset.PatientID == dataset.PatientName == "ANONYMOUS"
            assert dataset.PatientIdentityRemoved == "YES"
            assert "StudyDate" not in dataset or not dataset.StudyDate


def test_pictures_do_not_depend_on_what_the_patient_is_called(tmp_path):
    first = exported(make_predicted(tmp_path / "a"), tmp_path / "out-a")
    made = planted(tmp_path / "b")
    edited(made, known=EXAMPLE["known"])
    second = exported(made, tmp_path / "out-b")
    for name in ("summary", "overlay-1"):
        assert dcmread(first[name]).PixelData == dcmread(second[name]).PixelData
        assert dcmread(first[name]).BurnedInAnnotation == "NO"


def test_an_anonymous_map_lies_where_its_nifti_file_lies(predicted, tmp_path):
    files = exported(predicted, tmp_path / "out", None)
    wanted = nib.Nifti1Image.load(predicted.folder / "maps/t1ce_map.nii.gz")
    assert wanted.affine is not None
    values = wanted.get_fdata().astype(np.float32)
    found = list(frames(files["map-1-occlusion-mgmt"]))
    assert len(found) == values.shape[2]
    for position, plane in found:
        index = np.linalg.inv(wanted.affine) @ [-position[0], -position[1], position[2], 1]
        assert np.abs(index[:2]).max() < 0.01
        assert np.array_equal(plane, values[:, :, round(float(index[2]))].T)
