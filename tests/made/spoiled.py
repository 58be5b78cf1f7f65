"""Ways to spoil a desk: each makes what a row of `test_inputs.py` is given, and gives back what is run on it, if not `check`."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import math
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import openpyxl
from filelock import FileLock
from nibabel.nifti1 import Nifti1Extension
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import MPEG2MPML

from made import dicom
from made.inputs import AFFINE, ARRAY, Desk, Make, ended, nifti, patched
from mri_vit import cli
from mri_vit.crossval import folds
from mri_vit.data import cohort, run_cohort
from mri_vit.data.volume import canonical, read, read_mask
from mri_vit.metrics.discrimination import auc
from mri_vit.preflight.scans import inspect
from mri_vit.run import folder as run_folder
from mri_vit.run.resource import naming_lack
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import CHANNELS, Endpoint

ORIENTATIONS = [
    "".join(codes) for axes in itertools.permutations(["RL", "AP", "SI"]) for codes in itertools.product(*axes)
]  # all 48


# Scans: what is wrong with the T1 of the first patient.


def scan(content: bytes, name: str = "bad.nii") -> Make:
    """The first patient's T1 is this file; this patient alone is prepared."""

    def make(desk: Desk) -> list[object]:
        desk.cells(t1=desk.put(content, name))
        header, row, *_ = desk.table.read_text().splitlines()
        desk.put(f"{header}\n{row}\n".encode(), "one.csv")
        return ["prepare", desk.study, "--cohort", "one.csv"]

    return make


def read_alike(*contents: bytes) -> Make:
    """Each file is read, and with its axes laid as RAS+ it is the same scan as the plain one."""

    def make(desk: Desk) -> Callable[[], None]:
        usual = desk.folder / desk.put(nifti(), "usual.nii")
        files = [desk.folder / desk.put(one, f"unusual-{index}.nii") for index, one in enumerate(contents)]

        def run() -> None:
            plain = canonical(read(usual))
            assert not any(header.fault for header in inspect(files).values())
            for file in files:
                unusual = canonical(read(file))
                np.testing.assert_array_equal(unusual.array, plain.array)
                np.testing.assert_allclose(unusual.affine, plain.affine, atol=1e-4)
                print(*unusual.notes)
            print(len(files), "alike")

        return run

    return make


def laid(codes: str) -> bytes:
    """The plain scan with its axes laid otherwise."""
    change = nib.orientations.ornt_transform(nib.io_orientation(AFFINE), nib.orientations.axcodes2ornt(codes))
    array = nib.orientations.apply_orientation(ARRAY, change)
    return nifti(array, AFFINE @ nib.orientations.inv_ornt_aff(change, ARRAY.shape))


def with_nan() -> np.ndarray:
    array = ARRAY.astype(np.float32)
    array[0, 0, 0], array[1, 1, 1] = np.nan, np.inf
    return array


def moved_qform() -> bytes:
    image = nib.Nifti1Image.from_bytes(nifti())
    moved = AFFINE.copy()
    moved[0, 3] += 3
    image.set_qform(moved, 1)
    return image.to_bytes()


def sform_only(affine: np.ndarray) -> bytes:
    """A header whose one frame is this affine."""
    content = bytearray(patched(252, "<2h", 0, 1))
    content[280:328] = affine[:3].astype("<f4").tobytes()
    return bytes(content)


def other_pixdim() -> bytes:
    content = bytearray(sform_only(AFFINE))
    content[76:92] = np.array([1, 0.9, 0.9, 4.0], "<f4").tobytes()
    return bytes(content)


def qfac_of_zero() -> bytes:
    """A right-handed scan, whose pixdim[0] would be 1."""
    content = bytearray(laid("RAS"))
    assert content[76:80] == struct.pack("<f", 1)
    content[76:80] = bytes(4)
    return bytes(content)


def unused_qform() -> bytes:
    content = bytearray(patched(252, "<2h", 0, 1))
    content[256:268] = struct.pack("<3f", *[math.nan] * 3)
    return bytes(content)


def in_unit(code: int, factor: float) -> bytes:
    """The plain scan with its lengths in another unit than mm."""
    scale = np.diag([factor, factor, factor, 1.0])
    image = nib.Nifti1Image.from_bytes(nifti(affine=scale @ AFFINE))
    image.header["xyzt_units"] = code
    return image.to_bytes()


def extended(size: int) -> bytes:
    image = nib.Nifti1Image.from_bytes(nifti())
    image.header.extensions.append(Nifti1Extension("comment", b"x" * size))
    return image.to_bytes()


def mask_of_tiny_slope(desk: Desk) -> Callable[[], None]:
    """As examples of DeepMedic store theirs."""
    content = bytearray(nifti((ARRAY > 500).astype(np.int16)))
    content[112:120] = struct.pack("<2f", 2.0**-32, 0)
    file = desk.folder / desk.put(bytes(content), "mask.nii")
    desk.cells(tumour_mask="mask.nii", brain_mask="mask.nii")

    def run() -> None:
        np.testing.assert_array_equal(read_mask(file).array, ARRAY > 500)
        ended("check", desk.study)

    return run


def mask(content: bytes) -> Make:
    return lambda desk: desk.cells(brain_mask=desk.put(content, "mask.nii"))


def allowed_to_lack_flair(desk: Desk) -> list[object]:
    desk.cells(flair="")
    return ["check", desk.study, "--prepare.needs", '["t1", "t1ce", "t2"]']


def cut_around_tumours(desk: Desk) -> list[object]:
    """All but the first patient have a mask."""
    for row in range(1, 12):
        mask = np.zeros((9, 8, 7), np.int16)
        mask[4, 4, row % 7] = row
        desk.cells(row, tumour_mask=desk.put(nifti(mask), f"p{row:02}/tumour.nii"))
    return ["check", desk.study, "--prepare.tumour-crop-margin-mm", "8", "--prepare.tumour", "given"]


def copied_scan(desk: Desk) -> None:
    desk.cells(1, t1=desk.put((desk.folder / "p00" / "t1.nii.gz").read_bytes(), "copy.nii.gz"))


# DICOM.


def _imported(desk: Desk) -> list[object]:
    return ["import", "dicom", desk.folder / "dicom", "--output", desk.folder / "run"]


def dicom_steps(*steps: float) -> Make:
    def make(desk: Desk) -> list[object]:
        dicom.write_series(desk.folder / "dicom", steps=steps)
        return _imported(desk)

    return make


def dicom_studies(*studies: dict[str, Any]) -> Make:
    """Studies of the patients' four scans, or of `channels`; the first has the number 1."""

    def make(desk: Desk) -> list[object]:
        for number, tags in enumerate(studies, start=1):
            dicom.write_study(desk.folder / "dicom" / str(number), number, **tags)
        return _imported(desk)

    return make


def dicom_thinned(left: slice, **tags: Any) -> Make:
    """A study of series of 12 slices, of each of which only some files are left."""

    def make(desk: Desk) -> list[object]:
        for at, words in enumerate(dicom.FOUR.values()):
            paths = dicom.write_series(
                desk.folder / "dicom" / str(at), dicom.head(12), SeriesDescription=words, StudyInstanceUID="1.2", **tags
            )
            for path in set(paths) - set(paths[left]):
                path.unlink()
        return _imported(desk)

    return make


def dicom_files(change: Callable[[bytes, int], bytes]) -> Make:
    """A study of four scans, of which each file is changed as bytes."""

    def make(desk: Desk) -> list[object]:
        dicom.write_study(desk.folder / "dicom", 1)
        for number, path in enumerate(sorted((desk.folder / "dicom").rglob("IM*"))):
            path.write_bytes(change(path.read_bytes(), number))
        return _imported(desk)

    return make


def dicom_uids(**uids: Callable[[int], str]) -> Make:
    """A study of four scans, in each file of which UIDs are others."""

    def make(desk: Desk) -> list[object]:
        dicom.write_study(desk.folder / "dicom", 1)
        for number, path in enumerate(sorted((desk.folder / "dicom").rglob("IM*"))):
            dataset = dcmread(path)
            for keyword, uid in uids.items():
                setattr(dataset, keyword, uid(number))
            dataset.save_as(path)
        return _imported(desk)

    return make


def dicom_turned(desk: Desk) -> list[object]:
    def turn(dataset: Dataset, number: int) -> None:
        if number == 3:
            dataset.ImageOrientationPatient = [1, 0, 0, 0, math.cos(0.2), math.sin(0.2)]

    dicom.write_series(desk.folder / "dicom", edit=turn)
    return _imported(desk)


def dicom_mpeg(desk: Desk) -> list[object]:
    for path in dicom.write_series(desk.folder / "dicom"):
        dicom.encapsulate_as(path, MPEG2MPML)
    return _imported(desk)


def dicom_t1(*descriptions: str, agent: str = "", protocol: str = "") -> Make:
    def make(desk: Desk) -> list[object]:
        for number, description in enumerate(descriptions):
            dicom.write_series(
                desk.folder / "dicom" / str(number),
                StudyInstanceUID="1.2.3",
                SeriesNumber=number + 1,
                SpecificCharacterSet="ISO_IR 192",
                SeriesDescription=description,
                ProtocolName=protocol,
                ContrastBolusAgent=agent,
            )
        return _imported(desk)

    return make


def bids_t1w(*labels: str) -> Make:
    def make(desk: Desk) -> list[object]:
        for number, label in enumerate(labels):
            desk.put(nifti(ARRAY + np.int16(number)), f"bids/sub-01/anat/sub-01{label}_T1w.nii")
        desk.put(nifti(ARRAY + np.int16(9)), "bids/sub-01/anat/sub-01_T2w.nii")
        return ["import", "bids", desk.folder / "bids", "--output", desk.folder / "run"]

    return make


def dicomdir_outside(desk: Desk) -> list[object]:
    dicom.write_series(desk.folder / "dicom" / "DICOM")
    dicom.dicomdir(desk.folder / "dicom", ["..", "outside"])
    return _imported(desk)


# The table.


def cell(row: int = 0, **cells: str) -> Make:
    return lambda desk: desk.cells(row, **cells)


def patient(name: str) -> Make:
    return cell(patient=name)


def header(old: str, new: str) -> Make:
    """The first place in the table where something stands is changed."""
    return lambda desk: desk.table.write_text(desk.table.read_text().replace(old, new, 1)) and None


def spreadsheet(encoding: str) -> Make:
    """As spreadsheets write it."""
    return lambda desk: _encoded(desk, desk.table.read_text().replace(",", ";").replace("\n", "\r\n"), encoding)


def latin(desk: Desk) -> None:
    _encoded(desk, desk.table.read_text().replace("F", "é"), "latin-1")


def _encoded(desk: Desk, text: str, encoding: str) -> None:
    desk.table.write_bytes(text.encode(encoding))


def workbook(spoil: Callable[[Any], object] = lambda sheet: None, name: str = "cohort.xlsx") -> Make:
    """The table as an Excel workbook, whose sheet is spoiled; cells of digits are numbers in it, as Excel makes them."""

    def make(desk: Desk) -> None:
        book = openpyxl.Workbook()
        sheet = book.worksheets[0]
        for row in csv.reader(desk.table.read_text().splitlines()):
            sheet.append([int(cell) if cell.isdigit() else cell for cell in row])
        spoil(sheet)
        book.save(desk.folder / name)
        desk.settings('"cohort.csv"', f'"{name}"')

    return make


def two_sheets(sheet: Any) -> None:
    sheet.parent.create_sheet("codes").append(["mgmt", "1 is methylated"])


def table_of(content: bytes, name: str) -> Make:
    """The table is this file, which is no text."""

    def make(desk: Desk) -> None:
        desk.put(content, name)
        desk.settings('"cohort.csv"', f'"{name}"')

    return make


def archive(*names: str) -> bytes:
    """A zip archive of empty files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in names:
            file.writestr(name, "")
    return out.getvalue()


def rewritten(change: Callable[[str], str], encoding: str = "utf-8") -> Make:
    """The table's text is changed."""
    return lambda desk: _encoded(desk, change(desk.table.read_text()), encoding)


def quoted_path(desk: Desk) -> None:
    desk.cells(0, t1='"p00/t1.nii.gz"', t2="p00\\t2.nii.gz")


def folder_named_like_a_file(desk: Desk) -> list[object]:
    desk.put(nifti(), "p00/x.nii/x.nii")
    desk.cells(t1="p00/x.nii")
    return ["check", desk.study]


# Folders.


def folders(layout: str, *scans: str, tables: Mapping[str, str] = {}) -> Make:
    """Empty scans and tables in a folder, which is imported."""

    def make(desk: Desk) -> list[object]:
        for name in scans:
            desk.put(b"", f"in/{name}")
        for name, text in tables.items():
            desk.put(text.encode(), f"in/{name}")
        return ["import", layout, desk.folder / "in", "--output", desk.folder / "run"]

    return make


def unlabelled(desk: Desk) -> None:
    desk.cells(mgmt="", os_days="", os_event="")


def visit_twice(desk: Desk) -> None:
    desk.cells(0, session="1")
    desk.cells(1, patient="p00", session="1")


def ids_of_digits(desk: Desk) -> None:
    desk.cells(0, patient="007", t1="gone.nii.gz")
    desk.cells(1, patient="1e5", t1="gone.nii.gz")


def two_missing_labels(desk: Desk) -> None:
    desk.cells(0, mgmt="")
    desk.cells(1, mgmt="NA")


def sites(column: str, value: str) -> Make:
    """Three sites are left out in turn; all patients of the first have one value of a label."""

    def make(desk: Desk) -> None:
        for index in range(12):
            desk.cells(index, site="ABC"[index // 4], **({column: value} if index < 4 else {}))
        desk.settings("folds = 2", 'folds = 2\nleave_out = "site"')

    return make


def column(name: str, cells: Callable[[int], str]) -> Make:
    """A first column that the table has beside its own."""
    return lambda desk: desk.write([{name: cells(row)} | cells_of for row, cells_of in enumerate(desk.rows())])


def labelled(keys: str, *cells: str) -> Make:
    """A further endpoint `added`, and its labels, over and over again."""

    def make(desk: Desk) -> None:
        column("added", lambda row: cells[row % len(cells)])(desk)
        desk.study.write_text(f'{desk.study.read_text()}\n[[endpoints]]\nname = "added"\n{keys}\n')

    return make


def ages(*cells: str) -> Make:
    """The ages of the first patients."""

    def make(desk: Desk) -> None:
        for row, age in enumerate(cells):
            desk.cells(row, age=age)

    return make


def ids_of_one_form(desk: Desk) -> None:
    for row, name in enumerate(("1", "001", "0001")):
        desk.cells(row, patient=name)


def labels_under(table: dict[str, str], *more: str, ids: tuple[str, ...] = ("00012", "00013", "00014")) -> Make:
    """Scans in folders of these ids, imported beside a table that has an age for each of its own ids."""

    def make(desk: Desk) -> list[object]:
        for name in ids:
            for channel in CHANNELS:
                desk.put(nifti(), f"scans/{name}/{channel}.nii")
        rows = "".join(f"{name},{age},1\n" for name, age in table.items())
        desk.put(f"patient,age,mgmt\n{rows}".encode(), "scans/labels.csv")
        return ["import", "plain", desk.folder / "scans", "--output", desk.folder / "run", *more]

    return make


def months_mixed(desk: Desk) -> None:
    """120 patients, of whom every third has months for days."""
    random = np.random.default_rng(0)
    plain, rows = desk.rows()[0], []
    for index in range(120):
        files = {c: desk.put(nifti(random.integers(0, 900, ARRAY.shape).astype(np.int16)), f"q{index}/{c}.nii") for c in CHANNELS}
        days = 1 + 450 * random.weibull(1.3)
        labels = {"mgmt": str(index % 2), "os_days": f"{days / 30.44 if index % 3 == 0 else days:.0f}", "os_event": "1"}
        rows.append(plain | files | labels | {"patient": f"q{index}", "age": str(random.integers(30, 80))})
        rows[-1]["os_days"] = max(rows[-1]["os_days"], "1", key=int)
    desk.write(rows)


# Folds, predictions, weights and settings.


def visits_apart(desk: Desk) -> Callable[[], object]:
    """A file of folds that has a patient's visits in two of them."""
    desk.cells(0, session="1")
    desk.cells(1, patient="p00", session="2")
    patients = cohort.read(desk.table, (Endpoint(name="mgmt", kind="binary"),))
    content = json.dumps({"repeats": [{"folds": [[p.id for p in patients[k::2]] for k in range(2)]}]}).encode()
    file = desk.folder / desk.put(content, "folds.json")
    desk.put(hashlib.sha256(content).hexdigest().encode(), "folds.sha256")
    return lambda: folds.load(file, patients)


def constant_scores(desk: Desk) -> Callable[[], None]:
    return lambda: print(auc(np.array([0, 1, 0, 1]), np.full(4, 0.3)))


def malicious(desk: Desk) -> list[object]:
    """A pickle that makes a file beside the desk when it is loaded."""

    class Payload:
        def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
            return Path.touch, (desk.folder.parent / "stolen",)

    return ["check", desk.study, "--model.weights", desk.put(pickle.dumps(Payload()), "w.safetensors")]


def _saved(desk: Desk, **changes: int) -> Path:
    from mri_vit.model.network import Network, save

    study = study_file.load(desk.study)
    save(Network(study.model.model_copy(update=changes), study.grid, []), desk.folder / "w.safetensors")
    return desk.folder / "w.safetensors"


def weights_cut_off(desk: Desk) -> list[object]:
    file = _saved(desk)
    file.write_bytes(file.read_bytes()[:-100])
    return ["check", desk.study, "--model.weights", file]


def weights_of_another_network(desk: Desk) -> list[object]:
    return ["check", desk.study, "--model.weights", _saved(desk, dim=32)]


def resumed_otherwise(desk: Desk) -> list[object]:
    """A run whose folds were made with another learning rate."""
    with run_folder.claimed(study_file.load(desk.study)) as run:
        (run / "folds.json").write_text("{}")
    return ["prepare", desk.study, "--train.learning_rate", "0.1"]


def resumed_with_others(desk: Desk) -> list[object]:
    """A run whose folds were made of another table: since then one label was changed and one patient left out."""
    study = study_file.load(desk.study)
    with run_folder.claimed(study) as run:
        run_cohort.freeze(study, cohort.of_study(study), run)
        (run / "folds.json").write_text("{}")
    desk.cells(0, mgmt="1")
    desk.write([row for row in desk.rows() if row["patient"] != "p01"])
    return ["run", desk.study]


def devices(count: int) -> Make:
    return lambda desk: ["run", desk.study, "--train.devices", count, "--train.batch_size", count, "--recipe", "no-masks"]


def settings(old: str, new: str) -> Make:
    return lambda desk: desk.settings(old, new)


# The output, and what happens to a process.


def output(value: str) -> Make:
    return lambda desk: ["prepare", desk.study, "--output", value]


def output_link(target: str) -> Make:
    def make(desk: Desk) -> list[object]:
        (desk.folder / "elsewhere").mkdir()
        (desk.folder / "run").symlink_to(target)
        return ["prepare", desk.study]

    return make


def raising(error: BaseException) -> Make:
    """The error comes up where a run writes 400 MB."""

    def make(desk: Desk) -> Callable[[], None]:
        def run() -> None:
            with naming_lack(desk.folder, lambda: 400_000_000, "a smaller train.batch_size"):
                raise error

        return run

    return make


def terminated(desk: Desk) -> Callable[[], object]:
    def run() -> object:
        try:
            cli._terminated(15, None)
        except SystemExit as end:
            return end.code

    return run


def held(desk: Desk) -> list[object]:
    (desk.folder / "run").mkdir()
    (desk.folder / "run" / ".holder").write_text("process 1 on here")
    desk.kept = lock = FileLock(desk.folder / "run" / ".lock")
    lock.acquire()
    return ["prepare", desk.study]


def stale_lock(desk: Desk) -> object:
    """A lock and a holder that a killed run left, and a scan that ends this one soon."""
    (desk.folder / "run").mkdir()
    (desk.folder / "run" / ".lock").touch()
    (desk.folder / "run" / ".holder").write_text("process 1 on here")
    return scan(b"")(desk)


def of_1970(desk: Desk) -> None:
    for path in desk.folder.rglob("*"):
        os.utime(path, (1, 1))


def moved_to(position: str) -> Make:
    def make(desk: Desk) -> None:
        desk.folder = Path(shutil.move(desk.folder, desk.folder.parent / position))

    return make
