"""Patient: a study's scans go in, one prepared patient comes out (tokens.safetensors, patient.json, qc.png); and the stage that
prepares a cohort, and says who is excluded and why.

The order of the steps is here; each step says what it did in the record, with a sentence for a Methods section.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console
from threadpoolctl import threadpool_limits

from mri_vit.data import sheet, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, bounding_box, brain_box, canonical, read, read_mask, resample
from mri_vit.errors import Killed, UnusablePatient, UsageError
from mri_vit.prepare import agreement, alignment, bias, brain, quality, tumour
from mri_vit.prepare.alignment import on_grid
from mri_vit.prepare.prepared import CONTENT, SCHEMA, Log, config_sha256, drawn_on_grid, holds, refuse_foreign, verify, voxels
from mri_vit.run import atomic, executors, files, integrity, resource
from mri_vit.run.atomic import complete, refuse_link, write_bytes
from mri_vit.run.jobs import Workplace, close_ledger
from mri_vit.run.screen import WARNING, counted, printable, progress, say
from mri_vit.settings import source
from mri_vit.settings.recipe import named, template_sequence
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import BRAIN_ML, Grid, Prepare
from mri_vit.settings.source import shown

VERSIONS = ("mri-vit", "numpy", "scipy", "SimpleITK", "nibabel", "nilearn")
Fault = dict[str, str]  # file and reason
DROPPED_REASON, QC_REASON = "dropped by a reviewer", "qc: "  # how the reasons begin that quality control gives
Excluded = list[dict[str, str]]  # rows of excluded.csv: patient, file, reason


def prepare_patient(patient: Patient, folder: Path, channels: tuple[str, ...], grid: Grid, settings: Prepare) -> Path:
    """Prepare one patient, unless that was done already with the same settings from the same files.

    Parameters
    ----------
    patient
        With all scans that `prepare.needs` names; one of the others that is missing stays empty, and a warning says so.
    folder
        Where the patient's folder goes.
    channels, grid, settings
        The scans to prepare and how.

    Returns
    -------
    The patient's folder. A folder of that name is always complete: it is built beside and renamed.

    Raises
    ------
    UnusablePatient
        Something is wrong with the scans; nothing is left behind.
    UsageError
        Something else lies where the patient's folder would be; it is left alone.
    IntegrityError
        The folder is a link, or its files are not those that were written.
    """
    target = folder / patient.id
    refuse_foreign(target)
    inputs = {name: {"sha256": _file_sha256(path)} for name, path in _input_files(patient, channels, settings).items()}
    config = config_sha256(channels, grid, settings)

    def done(folder: Path) -> bool:
        return holds(folder, config, inputs)

    if done(target):
        verify(target)
        return target
    resource.keep_freed_memory()
    with complete(target, refuse_foreign, done) as beside, _one_thread():
        _build(patient, grid, channels, settings, beside, {"config_sha256": config, "inputs": inputs})
    return target


def _input_files(patient: Patient, channels: Sequence[str], settings: Prepare) -> dict[str, Path]:
    """The files that a prepared patient depends on. Raises UnusablePatient where one that is needed is not named."""
    paths = {channel: path for channel in channels if (path := patient.scans.get(channel))}
    if lacking := [channel for channel in settings.needs if channel not in paths]:
        raise UnusablePatient(f"no {' and no '.join(lacking)} scan; {', '.join(settings.needs)} are needed")
    if patient.brain_mask and settings.brain in ("auto", "mask"):
        paths["brain_mask"] = patient.brain_mask
    if patient.tumour_mask and settings.takes_given_masks:
        paths["tumour_mask"] = patient.tumour_mask
    return paths


def _build(
    patient: Patient, grid: Grid, channels: tuple[str, ...], settings: Prepare, folder: Path, record: dict[str, Any]
) -> None:
    """The steps in order; writes the three files into `folder`."""
    log = Log()
    reference = settings.reference
    wholes = _read_scans(patient, channels, settings.needs, log)
    found, from_reference = _find_brain(patient, wholes, settings, folder, log)
    brain_ml = brain.volume_ml(found.mask, wholes[reference])
    mask = Volume(found.mask.astype(np.float32), wholes[reference].affine)
    block = bounding_box(found.mask)
    alignment.check_overlap(patient, wholes, reference, from_reference, mask, block, log)

    boxes = {
        channel: brain_box(scan, mask, block, from_reference[channel], 2 * grid.spacing_mm) for channel, scan in wholes.items()
    }
    uncorrected, brains = {c: scan for c, (scan, _) in boxes.items()}, {c: inside for c, (_, inside) in boxes.items()}
    scans = bias.correct_scans(uncorrected, brains, from_reference, log) if settings.bias else uncorrected
    facing = template_sequence(scans, reference)
    pose = alignment.to_mni(scans[facing], facing, brains[facing], wholes[facing], log).seen_from(from_reference[facing])
    from_grid = {channel: matrix @ pose.rigid for channel, matrix in from_reference.items()}

    volume, inside = on_grid(scans, channels, reference, brains, from_grid, grid, log)
    # limits of quality and the tumour finder hold for every grid, so both see one
    copies = agreement.of_grid(
        *on_grid(scans, channels, reference, brains, from_grid, agreement.GRID, Log()), channels, agreement.GRID
    )
    drawn = tumour.mask_of(patient, wholes, mask, from_reference, copies, pose, settings, folder, log)
    kept = (volume, inside)
    if settings.tumour_crop_margin_mm is not None:
        kept = tumour.around(drawn, volume, inside, settings.tumour_crop_margin_mm, from_grid[reference], grid, reference, log)
    tokens.save(tokens.from_volume(*kept, grid, record["config_sha256"], channels), folder / files.TOKENS)

    of_scans = {
        channel: quality.of_scan(wholes[channel], scan, scans[channel], brains[channel], mask, from_reference[channel])
        for channel, scan in uncorrected.items()
    }
    figures = quality.of_patient(copies, mask, pose, reference, wholes, of_scans)
    on_picture = None if drawn is None else drawn_on_grid(read_mask(drawn), from_grid[reference], grid)
    of_brain = f"brain {brain_ml:.0f} ml ({found.source}), outlined in amber; {counted(len(log.warnings), 'warning')}"
    below = (of_brain, tumour.described(tumour.of_record({"steps": log.steps})), bias.contrast_caption(log))
    picture = quality.draw_picture(volume, inside, patient.id, below, channels, on_picture)
    write_bytes(picture, folder / files.QC)
    packages = (*VERSIONS, "deepbet", "torch") if found.source == "deepbet" else VERSIONS
    record = {
        "schema": SCHEMA,
        "patient": patient.id,
        **record,
        "files": {name: integrity.sha256(folder / name) for name in (*CONTENT, files.TUMOUR) if (folder / name).exists()},
        "reference": reference,
        "to_grid": {channel: np.linalg.inv(matrix).tolist() for channel, matrix in from_grid.items()},
        "steps": log.steps,
        "quality": figures,
        "brain_ml": round(brain_ml, 1),
        "warnings": log.warnings,
        "versions": {package: importlib.metadata.version(package) for package in packages},
    }
    write_bytes(json.dumps(record, indent=1, allow_nan=False).encode(), folder / files.PATIENT)


def _read_scans(patient: Patient, channels: Sequence[str], needs: Sequence[str], log: Log) -> dict[str, Volume]:
    """The patient's scans by channel, axes laid as RAS+. Raises UnusablePatient where two are the same."""
    scans: dict[str, Volume] = {}
    channel_of: dict[str, str] = {}  # by hash of the voxels
    figures: dict[str, Any] = {}
    for channel in channels:
        path = patient.scans.get(channel)
        if path is None:
            log.warnings.append(f"{channel}: no scan; left empty, as prepare.needs = {list(needs)} allows")
            continue
        stored = read(path)
        scan = scans[channel] = canonical(stored)
        sha256 = hashlib.sha256(scan.array.data).hexdigest()
        if sha256 in channel_of:
            raise UnusablePatient(
                f"{channel} has the same voxels as {channel_of[sha256]}; expected two different scans", str(path)
            )
        channel_of[sha256] = channel
        if scan.array.min() < 0:
            border = brain.border_value(scan.array)
            log.warnings.append(f"{channel}: negative intensities down to {scan.array.min():.4g}; background is {border:.4g}")
        figures[channel] = {
            "shape": scan.shape,
            "spacing_mm": [round(mm, 4) for mm in scan.spacing_mm],
            "notes": scan.notes,
            "voxels_sha256": sha256,
            "stored": {"shape": stored.shape, "affine": stored.affine.tolist()},  # where maps lie, before axes are laid as RAS+
        }
    empty = "" if len(scans) == len(channels) else "; those that a patient lacks were left empty"
    were = "scan was read with its" if len(channels) == 1 else "scans were read with their"
    log.add("read", f"{named(channels)} {were} axes laid as RAS+{empty}.", scans=figures)
    return scans


def _find_brain(
    patient: Patient, scans: dict[str, Volume], settings: Prepare, scratch: Path, log: Log
) -> tuple[brain.Brain, dict[str, Float[np.ndarray, "4 4"]]]:
    """The brain on the reference's voxels, and for each scan the 4×4 that carries a point of the reference to it.

    Scans are aligned first, so that T1 can help to find the brain; where the reference was stripped, the brain is known before
    and the alignment looks at it alone.
    """
    reference = scans[settings.reference]

    def extract(t1: Volume | None) -> brain.Brain:
        file = str(patient.scans[settings.reference])
        return brain.extract(reference, t1, file, patient.brain_mask, settings, scratch)

    if brain.way(reference, patient.brain_mask, settings) == "none":
        found = extract(None)
        from_reference = alignment.to_reference(scans, settings.reference, log, found.mask)
    else:
        from_reference = alignment.to_reference(scans, settings.reference, log)
        beside = "t1" in scans and settings.reference != "t1"
        found = extract(resample(scans["t1"], reference.shape, reference.affine, from_reference["t1"]) if beside else None)
    brain_ml = brain.volume_ml(found.mask, reference)
    log.add("brain", found.methods, source=found.source, brain_ml=round(brain_ml, 1), notes=found.notes)
    if not BRAIN_ML[0] <= brain_ml <= BRAIN_ML[1]:
        log.warnings.append(f"brain volume {brain_ml:.0f} ml; {BRAIN_ML[0]:.0f} to {BRAIN_ML[1]:.0f} is usual")
    if found.source != "none":  # the whole head was aligned: scalp, eyes and neck move against the brain
        mask = Volume(found.mask.astype(np.float32), reference.affine)
        from_reference = alignment.within_brain(scans, settings.reference, from_reference, mask, log)
    return found, from_reference


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for ITK and for linear algebra: the last bits must not depend on the machine, and workers share its cores."""
    import SimpleITK as sitk  # its import takes 120 MB

    threads = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)


def _file_sha256(path: Path) -> str:
    if wrong := source.fault(path):
        raise UnusablePatient(wrong, str(path))
    try:
        return integrity.sha256(path)
    except OSError as error:
        raise UnusablePatient(f"cannot be read: {error.strerror}", str(path)) from None


def prepare_cohort(study: Study, patients: Sequence[Patient], folder: Path, console: Console) -> Excluded:
    """Prepare every patient; gives those who cannot be, with file and reason.

    Before that the run's `excluded.csv` goes, unless its folds are made: it is written again when all have been looked at, and a
    run that is stopped before then has none. Raises UsageError where `prepared` is no folder, or two patients share a scan.
    """
    try:
        study.prepared.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"prepared {study.prepared}: not a folder; choose another place for prepared patients") from None
    if not (folder / files.FOLDS).exists():
        (folder / files.EXCLUDED).unlink(missing_ok=True)
    for patient in patients:
        refuse_link(study.prepared / patient.id)
    atomic.sweep_older(study.prepared, {patient.id for patient in patients})
    faults = _prepare_all(study, patients, folder, console)
    excluded = [{"patient": patient.id, **faults[patient.id]} for patient in patients if patient.id in faults]
    _refuse_twins(study, without_excluded(patients, excluded))
    return excluded


def without_excluded(patients: Sequence[Patient], excluded: Excluded) -> list[Patient]:
    """The patients who were not excluded."""
    out = {row["patient"] for row in excluded}
    return [patient for patient in patients if patient.id not in out]


def _prepare_all(study: Study, patients: Sequence[Patient], folder: Path, console: Console) -> dict[str, Fault]:
    """Prepare the patients, several at a time, under a progress bar; the faults by patient."""
    faults: dict[str, Fault] = {}
    at = executors.workplace(study, folder, "prepare", study.prepare.workers, study.executor.bundle)
    with progress(console) as bar:
        task = bar.add_task("prepare", total=len(patients), note="")
        for name, fault in faults_of({patient.id: (patient, study) for patient in patients}, at):
            if fault:
                faults[name] = fault
                say(bar.console, f"excluded {name}: {fault['file']} {fault['reason']}", WARNING)
            bar.update(task, advance=1, note=f"{len(faults)} excluded" if faults else "")
    return faults


def faults_of(jobs: Mapping[str, tuple[Patient, Study]], at: Workplace) -> Iterator[tuple[str, Fault | None]]:
    """Prepare patients in processes of their own; each one's fault, or None.

    A patient whose process is killed even when it works on nothing else is excluded like others.
    """
    try:
        yield from executors.each(fault_of, jobs, at)
    except Killed as end:
        if not at.here:  # a machine or a disk may be at fault as well, and many patients lost at once
            raise
        for patient, how in end.how.items():
            yield patient, {"file": "", "reason": how}
        if at.home:
            close_ledger(at.home)  # who failed stands among the excluded


def fault_of(patient: Patient, study: Study) -> Fault | None:
    """Prepare one patient, in a process of the executor: None when prepared, else file and reason."""
    found = [channel for channel in study.channels if patient.scans.get(channel)]
    if lacking := [channel for channel in study.channels if channel in study.prepare.needs and channel not in found]:
        return {"file": "", "reason": f"found {', '.join(found) or 'no scan'}; need {', '.join(lacking)} as well"}
    try:
        if patient.tumour_mask:
            read_mask(patient.tumour_mask)  # a damaged one is reported before the minutes that preparing takes
        folder = prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare)
        if patient.tumour_mask:
            tumour.check(patient.tumour_mask, folder)  # the volume control and the evaluation of maps come hours later
    except UnusablePatient as fault:  # the table's own name for the file: a report must not say where it lay
        file = files.path_from(study.cohort.parent, fault.file) if fault.file else ""
        return {"file": shown(printable(file)), "reason": printable(fault.reason)}
    return None


def _refuse_twins(study: Study, patients: Sequence[Patient]) -> None:
    """Raise UsageError when two patients share a scan, which would sit on both sides of a fold."""
    seen: dict[str, list[str]] = defaultdict(list)
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            seen[sha256].append(patient.id)
    twins = next((ids for ids in seen.values() if len(ids) > 1), None)
    if twins:
        raise UsageError(f"{study.cohort}: patients {' and '.join(twins)} share a scan's voxels; keep one of them")


def excluded_table(excluded: Excluded) -> bytes:
    """The rows of excluded.csv."""
    names = ("patient", "file", "reason")
    return sheet.to_csv(names, ([row[name] for name in names] for row in excluded))


def kind_of_reason(reason: str) -> str:
    """A reason for exclusion without the details of one patient, so that equal reasons can be counted."""
    return reason.partition(" (")[0] if reason.startswith((DROPPED_REASON, QC_REASON)) else reason
