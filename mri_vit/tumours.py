"""Tumours: new patients' scans go in; a mask of each one's tumour, a picture and a table of all come out. No run is needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from mri_vit.data import sheet
from mri_vit.data.cohort import Patient
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.importers.new_patients import CONVERTED, read_new_patients
from mri_vit.run import atomic, files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, printable, progress, say
from mri_vit.settings.recipe import CHANNELS, FLAIR, T1_LIKE
from mri_vit.settings.sections import Prepare, Quality

TABLE = "tumours.csv"
MASK, PICTURE = "_tumour.nii.gz", "_tumour.png"
COLUMNS = ("patient", "space_of", "tumour_ml", "side", "lobes", "ventricles_mm", "confidence", "remark")


def find_tumours(source: Path, output: Path, console: Console) -> int:
    """Write `<patient>_tumour.nii.gz`, a picture of it and `tumours.csv`; returns how many patients could not be read.

    `source` is a table with the columns patient and flair (better with t2), or a folder with one patient's scans.
    A mask lies on the voxels of the T1ce file, or where there is none of T1's, or FLAIR's, as the column space_of says. A mask
    that the table gives is not looked at. Rows of patients who were looked at before stay.

    Raises UsageError where `output` holds something else or its table cannot be read, and as `read_new_patients` does.
    """
    foreign = [name for name in atomic.entries(output) if name not in (TABLE, CONVERTED) and not name.endswith((MASK, PICTURE))]
    if foreign:
        raise UsageError(f"{output} holds {foreign[0]}, which is no mask of a tumour; it is left alone: choose another folder")
    new = read_new_patients(source, CHANNELS, (FLAIR,), output, lambda line: say(console, line, WARNING))
    output.mkdir(parents=True, exist_ok=True)  # not before: what is refused leaves no folder behind
    rows, failed = _rows_before(output), 0
    with progress(console) as bar, TemporaryDirectory(prefix="mri-vit-") as scratch:
        task = bar.add_task("find", total=len(new.patients), note="")
        for patient in new.patients:
            try:
                row = _of_patient(patient, output, Path(scratch))
            except UnusablePatient as fault:
                failed += 1
                row = {"remark": printable(str(fault))}
                say(bar.console, f"no mask of {patient.id}: {printable(str(fault))}", WARNING)
            rows[patient.id] = [patient.id, *(str(row.get(column, "")) for column in COLUMNS[1:])]
            write_bytes(sheet.to_csv(COLUMNS, rows.values()), output / TABLE)  # after each, so that what is stopped has its rows
            bar.update(task, advance=1)
    say(console, f"tumours: {output / TABLE}, and a mask and a picture per patient beside it")
    return failed


def _rows_before(output: Path) -> dict[str, list[str]]:
    """The table's rows of patients who were looked at earlier, by patient."""
    if not (output / TABLE).exists():
        return {}
    _, rows = sheet.read(output / TABLE)
    return {row.get("patient", ""): [row.get(column, "") for column in COLUMNS] for _, row in rows}


def _of_patient(patient: Patient, output: Path, scratch: Path) -> dict[str, Any]:
    """Prepare a patient on the finder's grid, keep mask and picture, and return the patient's row."""
    from mri_vit.prepare import tumour
    from mri_vit.prepare.agreement import GRID
    from mri_vit.prepare.patient import prepare_patient
    from mri_vit.prepare.prepared import load_record
    from mri_vit.qc.check import findings_of

    channels = tuple(channel for channel in CHANNELS if patient.scans.get(channel))
    reference = next((channel for channel in T1_LIKE if channel in channels), FLAIR)
    settings = Prepare(reference=reference, needs=tuple(dict.fromkeys((reference, FLAIR))), tumour="found")
    kept = {files.TUMOUR: output / f"{patient.id}{MASK}", files.QC: output / f"{patient.id}{PICTURE}"}
    for file in kept.values():  # of an earlier look, which may have seen other scans
        file.unlink(missing_ok=True)
    folder = prepare_patient(patient, scratch, channels, GRID, settings)
    for name, file in kept.items():
        if (folder / name).exists():
            shutil.copyfile(folder / name, file)
    record = load_record(folder)
    shutil.rmtree(folder)
    found = tumour.of_record(record)
    lobes = "; ".join(f"{name} {share:.2f}" for name, share in found.get("lobes", {}).items())
    doubts = [finding.words for finding in findings_of(patient.id, record, Quality()) if finding.reason != "tumour in doubt"]
    return found | {"space_of": reference, "lobes": lobes, "remark": "; ".join([*record["warnings"], *doubts])}
