"""Results of a finished job: the patient's folder, and DICOM objects in the study of the series that was sent."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from mri_vit.errors import UsageError
from mri_vit.finished.export import dicom
from mri_vit.finished.serve.jobs import DICOM, RESULT, SENT, Job, Jobs
from mri_vit.importers.layout import files_below
from mri_vit.run.atomic import replacing


def patient_folder(jobs: Jobs, job: Job) -> Path:
    """The folder that `predict` wrote for the patient. Raises UsageError while there is none."""
    found = [file.parent for file in (jobs.home(job) / RESULT).glob("*/prediction.json")]
    if job.state != "done" or len(found) != 1:
        raise UsageError("there is no result of this patient")
    return found[0]


def dicom_archive(jobs: Jobs, job: Job) -> Path:
    """A zip archive of the prediction's DICOM objects, made when it is first asked for.

    Where DICOM series were sent, the objects belong to the patient and study of the reference's series, which is found by its
    voxels; else they are anonymous. Raises UsageError where there is no result, or no series is that of a predicted scan.
    """
    writer, prediction, archive = dicom.writer(), patient_folder(jobs, job), jobs.home(job) / DICOM
    if archive.is_file():
        return archive
    sent = jobs.home(job) / SENT / job.name
    with TemporaryDirectory(prefix="dicom-", dir=jobs.home(job)) as scratch:
        source = None if files_below(sent)[0] else _source(sent, prediction, Path(scratch) / "series")
        made = writer.export_dicom(prediction, source, Path(scratch) / "objects", Console(quiet=True))
        with replacing(archive) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            for file in made:
                packed.write(file, file.name)
    return archive


def _source(sent: Path, prediction: Path, scratch: Path) -> Path:
    """The folder of the series that the objects belong to: the reference's, or else that of another scan that was predicted."""
    from mri_vit.finished.export.dicom.predicted_scans import read_prediction, scan_of
    from mri_vit.finished.export.dicom.source_series import read_source_series

    predicted, found, reasons = read_prediction(prediction), dict[str, Path](), list[str]()
    for folder in _series(sent, scratch):
        try:
            found.setdefault(scan_of(read_source_series(folder), predicted, folder), folder)
        except UsageError as error:
            reasons.append(str(error).replace(f"{folder}: ", ""))
        if predicted.reference in found:
            break
    if not found:
        raise UsageError(f"no series that was sent is one of the predicted scans: {'; '.join(reasons)}")
    return found.get(predicted.reference) or next(iter(found.values()))


def _series(sent: Path, scratch: Path) -> Iterator[Path]:
    """A folder for each series among the files that were sent, by links to these."""
    from mri_vit.importers.dicom.series import find_series

    for number, series in enumerate(find_series(sent).series):
        folder = scratch / f"{number}"
        folder.mkdir(parents=True)
        for place, file in enumerate(dict.fromkeys(one.path for one in series.files)):
            try:
                os.link(file, folder / f"{place:06d}")
            except OSError:  # of a file system without hard links
                shutil.copyfile(file, folder / f"{place:06d}")
        yield folder
