"""DICOM objects: a patient's prediction and the series that it was made of go in; a folder of files for an archive comes out.

`summary.dcm` and `overlay-1.dcm` … (Secondary Capture), `map-1-rollout.dcm` … (Parametric Map), `tumour.dcm` (Segmentation) and
`report.dcm` (Structured Report).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydicom import Dataset, dcmread
from pydicom.errors import InvalidDicomError
from rich.console import Console

from mri_vit.errors import UsageError
from mri_vit.finished.export.dicom.common_modules import MANUFACTURER, Export, seed_of
from mri_vit.finished.export.dicom.parametric_map import parametric_map
from mri_vit.finished.export.dicom.predicted_scans import PredictedScans, read_prediction, scan_of, tumour_mask
from mri_vit.finished.export.dicom.secondary_capture import map_capture, summary_capture
from mri_vit.finished.export.dicom.segmentation import segmentation, why_no_segmentation
from mri_vit.finished.export.dicom.source_series import ALWAYS_THERE, SourceSeries, anonymous_series, read_source_series
from mri_vit.finished.export.dicom.structured_report import structured_report
from mri_vit.finished.export.dicom.summary import summary_of
from mri_vit.importers.dicom.header import lenient
from mri_vit.run import atomic
from mri_vit.run.atomic import complete
from mri_vit.run.screen import WARNING, counted, say
from mri_vit.settings.recipe import title

OURS = re.compile(r"(summary|tumour|report|overlay-\d+|map-\d+-[A-Za-z0-9_-]+)\.dcm")
NAMES = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID")  # by which one object refers to another
CAPTURES, REPORT, TUMOUR, MAPS = 0, 1, 2, 3  # places of the series in a study; maps have one each


def export_dicom(prediction: Path, source: Path | None, output: Path, console: Console) -> list[Path]:
    """Write a prediction as DICOM objects, in the study of the series that it was made of.

    Parameters
    ----------
    prediction
        A patient's folder of `mri-vit predict`.
    source
        Folder of the DICOM series of one of the scans that were predicted; it is known by its voxels. Objects have its patient
        and study, and lie on its voxels. None: objects without person and date, on the voxels of the reference's NIfTI file.
    output
        Folder for the files, complete or absent.

    Returns
    -------
    The files, in the order of their names.

    Raises
    ------
    UsageError
        No prediction; no single MR series; voxels that are those of no predicted scan; a map that lies elsewhere; or something
        else at `output`.
    IntegrityError
        A file of the prediction is damaged or gone.
    """
    predicted = read_prediction(prediction)
    for folder in filter(None, (prediction, source)):
        if output.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"output {output} lies in {folder}, which is left as it is; choose a folder outside it")
    refuse_foreign(output)
    series, scan = _source(predicted, source)
    export = Export(predicted, series, scan, seed_of(predicted, series.sha256))
    if series.remark:
        say(console, series.remark, WARNING)
    whose = "without a person" if series.is_anonymous else "in the study of the series"
    with complete(output, refuse_foreign) as beside, lenient():
        for name, dataset in _objects(export, console):
            dataset.save_as(beside / name, enforce_file_format=True)
    say(console, f"{output}: objects on the voxels of {title(scan)}, {whose}")
    return sorted(output.glob("*.dcm"))


def _source(predicted: PredictedScans, folder: Path | None) -> tuple[SourceSeries, str]:
    if folder is not None:
        series = read_source_series(folder)
        return series, scan_of(series, predicted, folder)
    stored = predicted.scans[predicted.reference]
    return anonymous_series(stored.shape, stored.affine, seed_of(predicted, "anonymous")), predicted.reference


def _objects(export: Export, console: Console) -> Iterator[tuple[str, Dataset]]:
    """File names and objects; the report is the last, because it names the others."""
    predicted, made = export.predicted, list[Dataset]()
    summary, mask, drawn = summary_of(predicted.document), tumour_mask(predicted), None

    def add(name: str, dataset: Dataset) -> tuple[str, Dataset]:
        made.append(_named(dataset))
        return f"{name}.dcm", dataset

    yield add("summary", summary_capture(summary, export, CAPTURES))
    for number, entry in enumerate(predicted.maps, start=1):
        capture = map_capture(entry, mask, export, number + 1, CAPTURES)
        if capture is None:
            say(console, f"no picture of “{entry.title}”: the prediction has no brain without a face to draw it on", WARNING)
        else:
            yield add(f"overlay-{number}", capture)
        of = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join(filter(None, (entry.method, entry.endpoint))))
        yield add(f"map-{number}-{of}", parametric_map(entry, export, number, MAPS + number - 1))
    if not predicted.maps:
        say(console, f"no parametric map: {predicted.document.no_maps or 'the prediction has none'}")
    if reason := why_no_segmentation(mask, export):
        say(console, f"no segmentation: {reason}", "" if mask is None else WARNING)
    elif mask is not None:
        name, drawn = add("tumour", segmentation(mask, export, TUMOUR))
        yield name, drawn
    say(console, f"{counted(len(made) + 1, 'object')} for {counted(len(summary.endpoints), 'endpoint')}")
    yield add("report", structured_report(summary, export, drawn, made, REPORT))


def _named(dataset: Dataset) -> Dataset:
    """An object as the report names it; the pixels of all of them would fill the memory."""
    named = Dataset()
    for keyword in (*ALWAYS_THERE, *NAMES):
        setattr(named, keyword, dataset.get(keyword) if keyword in NAMES else "")
    return named


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent, empty, or an export of ours: nothing else is replaced."""
    atomic.refuse_strangers(folder, lambda name: bool(OURS.fullmatch(name)) and _is_ours(folder / name), "an export of mri-vit")


def _is_ours(file: Path) -> bool:
    """Whether a DICOM file was written here; a series that is named as the output is not."""
    try:
        with lenient():
            return dcmread(file, specific_tags=["Manufacturer"], stop_before_pixels=True).get("Manufacturer") == MANUFACTURER
    except (InvalidDicomError, OSError, ValueError):
        return False
