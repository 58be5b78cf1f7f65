"""From a finished run to a ward: a model folder, a prediction of a DICOM exam, its objects in an archive, and a service.

Run from the checkout: .venv/bin/python pipelines/hospital.py     (after `make demo` and `make pacs`; about a minute)

It exports the model of the run, predicts an exam by it, writes the prediction as DICOM objects, puts series and objects into an
Orthanc of its own on loopback, takes them out again and compares them; then it sends the exam to `mri-vit serve` and compares the
scores. It prints sizes and seconds, and ends with an error where anything differs. Without an exam of yours it makes one of a
built-in patient.
"""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import Request

import numpy as np
from orthanc import OPENER, Archive, orthanc
from pydicom import Dataset, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid
from rich.console import Console

from mri_vit import synthetic
from mri_vit.cli import exit_code
from mri_vit.data import cohort, volume
from mri_vit.data.volume import LPS
from mri_vit.errors import UsageError
from mri_vit.finished.export.dicom.dicom_objects import export_dicom
from mri_vit.finished.export.model import export_model
from mri_vit.finished.predict import Allowed, predict

ROOT = Path(__file__).parents[1]
SEED = 20261130  # of the built-in patient, who is none of the demo's
DESCRIPTIONS = {"t1": "t1 mprage", "t1ce": "t1 mprage post", "t2": "t2 tse", "flair": "t2 flair"}
ALLOWED = Allowed(
    untrusted=True, synthetic=True
)  # DICOM drops the mark of a synthetic patient, and the demo's run refuses others


def main(
    run: Path = ROOT / "runs" / "demo",
    folder: Path = ROOT / "runs" / "hospital",
    *,
    exam: Path | None = None,
    reference: str = "t1ce",
) -> None:
    """Take a run to the ward and back.

    Parameters
    ----------
    run
        Folder of a finished run.
    folder
        A new folder for all that is made.
    exam
        Folder with a folder of DICOM files for each series of one visit; by default a built-in patient's.
    reference
        The folder in `exam` of the series that the objects belong to.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; choose a new folder, or delete it first")
    folder.mkdir(parents=True, exist_ok=True)
    console, seconds = Console(), dict[str, float]()

    with timed(seconds, "export model"):
        export_model(run, folder / "model", console)
    exam = exam or built_in_exam(folder)
    with timed(seconds, "predict"):
        excluded = predict(folder / "model", exam, folder / "predicted", 1, ALLOWED, console)
    if excluded:
        raise UsageError(f"the exam was not predicted: {excluded[0]['reason']}")
    (patient,) = (file.parent for file in (folder / "predicted").glob("*/prediction.json"))
    with timed(seconds, "export dicom"):
        objects = export_dicom(patient, exam / reference, folder / "objects", console)

    (folder / "archive").mkdir()
    with orthanc(folder / "archive") as archive:
        with timed(seconds, "into Orthanc and back"):
            archive.store(sorted(file for file in exam.rglob("*") if file.is_file()))
            archive.store(objects)
            compare(archive, objects)
        with served(folder / "model", folder / "sent") as address, timed(seconds, "by the service"):
            state = sent(address, exam)
            scores = json.loads(OPENER.open(address + state["prediction"]).read())["endpoints"]
            made = unpacked(OPENER.open(address + state["dicom"], timeout=120).read(), folder / "served-objects")
        archive.store(made)
        compare(archive, made)
    if scores != json.loads((patient / "prediction.json").read_bytes())["endpoints"]:
        raise ArithmeticError("the service predicts another than `mri-vit predict`")

    sizes = {name: sum(f.stat().st_size for f in (folder / name).rglob("*") if f.is_file()) for name in ("model", "objects")}
    print(
        f"mri-vit {version('mri-vit')}: {len(objects)} objects came back from Orthanc as they went in; the service's scores agree"
    )
    print("; ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items()))
    print("; ".join(f"{name} {took:.1f} s" for name, took in seconds.items()))


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[name] = time.monotonic() - began


def built_in_exam(folder: Path) -> Path:
    """The DICOM series of a built-in patient, a folder for each sequence."""
    (patient,) = cohort.read(synthetic.make(folder / "built-in", seed=SEED, patients=1), ())
    study, frame = generate_uid(entropy_srcs=["study"]), generate_uid(entropy_srcs=["frame"])
    for number, (name, file) in enumerate(patient.scans.items(), start=1):
        if file:
            about = {"StudyInstanceUID": study, "FrameOfReferenceUID": frame, "SeriesNumber": number, "StudyDate": "20260102"}
            write_series(volume.read(file), folder / "exam" / name, about | {"SeriesDescription": DESCRIPTIONS[name]})
    return folder / "exam"


def write_series(scan: volume.Volume, folder: Path, about: dict[str, Any]) -> None:
    """A scan's voxels as MR images in the patient's position, one for each slice of the third axis."""
    folder.mkdir(parents=True)
    lps = LPS @ scan.affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    levels = np.rint(scan.array - scan.array.min()).astype(np.uint16)
    for number in range(levels.shape[2]):
        image, plane = Dataset(), np.ascontiguousarray(levels[:, :, number].T)
        image.file_meta = FileMetaDataset()
        image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID = MRImageStorage
        uid = generate_uid(entropy_srcs=[str(about), str(number)])
        image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID = uid
        values = about | {
            **{"PatientID": "BUILT-IN", "PatientName": "Built^In", "Modality": "MR", "InstanceNumber": number + 1},
            **{"SeriesInstanceUID": generate_uid(entropy_srcs=[str(about)]), "Manufacturer": "mri-vit"},
            **{"ImageType": ["ORIGINAL", "PRIMARY", "M", "NONE"], "Rows": plane.shape[0], "Columns": plane.shape[1]},
            **{"SamplesPerPixel": 1, "PhotometricInterpretation": "MONOCHROME2", "PixelRepresentation": 0},
            **{"BitsAllocated": 16, "BitsStored": 16, "HighBit": 15, "SliceThickness": round(float(spacing[2]), 9)},
            "PixelSpacing": [round(float(spacing[axis]), 9) for axis in (1, 0)],
            "ImagePositionPatient": [round(float(x), 6) for x in (lps @ [0, 0, number, 1])[:3]],
            "ImageOrientationPatient": [round(float(x), 9) for axis in (0, 1) for x in lps[:3, axis] / spacing[axis]],
        }
        for keyword, value in values.items():
            setattr(image, keyword, value)
        image.PixelData = plane.tobytes()
        image["PixelData"].VR = "OW"
        image.save_as(folder / f"{number:04d}.dcm", enforce_file_format=True)


def compare(archive: Archive, objects: list[Path]) -> None:
    """Raise ArithmeticError where an object comes back from the archive as another, or a capture is not rendered."""
    for file in objects:
        sent = dcmread(file)
        path = (str(sent.StudyInstanceUID), str(sent.SeriesInstanceUID), str(sent.SOPInstanceUID))
        back = dcmread(io.BytesIO(archive.instance(*path)))
        if [element for element in back] != [element for element in sent]:
            raise ArithmeticError(f"{file.name} came back from the archive as another")
        if sent.Modality == "OT" and "SecondaryCapture" in sent.SOPClassUID.keyword:
            status, _ = archive.get("studies/{}/series/{}/instances/{}/rendered".format(*path), "image/png")
            if status != 200:
                raise ArithmeticError(f"{file.name} is not rendered: {status}")


@contextmanager
def served(model: Path, folder: Path) -> Iterator[str]:
    """The address of a service in a process of its own."""
    program = Path(sys.executable).with_name("mri-vit")
    options = ["--port", "0", "--folder", folder, "--show-untrusted", "--allow-synthetic"]
    with subprocess.Popen(
        [sys.executable, "-u", program, "serve", model, *options], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            found = re.search(r"(http://\S+?)/ ", process.stdout.readline())
            if found is None:
                raise UsageError("the service did not start")
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)


def sent(address: str, exam: Path) -> dict[str, Any]:
    """The state of an exam that was sent as a zip archive, once it is done."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(exam.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(exam))
    head = '--b0\r\nContent-Disposition: form-data; name="archive"; filename="exam.zip"\r\n\r\n'
    name = f'\r\n--b0\r\nContent-Disposition: form-data; name="name"\r\n\r\n{exam.name}\r\n--b0--\r\n'
    state = asked(f"{address}/patients", head.encode() + packed.getvalue() + name.encode())
    while state["state"] not in ("done", "failed"):
        time.sleep(0.5)
        state = asked(address + state["status"])
    if state["state"] == "failed":
        raise UsageError(f"the service did not predict the exam: {state['words']}")
    return state


def asked(address: str, form: bytes | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "multipart/form-data; boundary=b0"} if form else {}
    return json.loads(OPENER.open(Request(address, form, headers), timeout=120).read())


def unpacked(archive: bytes, folder: Path) -> list[Path]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(folder)
    return sorted(folder.iterdir())


if __name__ == "__main__":
    sys.exit(exit_code.of_script(main))
