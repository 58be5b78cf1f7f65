"""Patient: a study's scans go in, one prepared patient comes out (tokens.safetensors, patient.json, qc.png).

The order of the steps is here; each step says what it did in the record, with a sentence for a Methods section.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from threadpoolctl import threadpool_limits

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, read, resample
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import agreement, alignment, bias, box, brain, outliers, picture, quality, tumour
from mri_vit.prepare.alignment import on_grid
from mri_vit.prepare.prepared import CONTENT, SCHEMA, Log, config_sha256, holds, refuse_foreign, verify
from mri_vit.run import files, integrity
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.settings import source
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import BRAIN_ML
from mri_vit.settings.sequences import is_quantitative, like_the_template, named, titles

VERSIONS = ("mri-vit", "numpy", "scipy", "SimpleITK", "nibabel", "nilearn")


def prepare_patient(patient: Patient, study: Study) -> Path:
    """Prepare one patient, unless that was done already with the same settings from the same files.

    Parameters
    ----------
    patient
        With all scans that `prepare.needs` names; one of the others that is missing stays empty, and a warning says so.
    study
        Its `grid` and `prepare` sections say how, `prepared` is the folder that the patient's folder goes into.

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
    target = study.prepared / patient.id
    refuse_foreign(target)
    files = {channel: path for channel in study.channels if (path := patient.scans.get(channel))}
    if lacking := [channel for channel in study.prepare.needs if channel not in files]:
        raise UnusablePatient(f"no {' and no '.join(lacking)} scan; {', '.join(study.prepare.needs)} are needed")
    if patient.brain_mask and study.prepare.brain in ("auto", "mask"):
        files["brain_mask"] = patient.brain_mask
    if study.prepare.tumour_crop_margin_mm is not None:
        if patient.tumour_mask:
            files["tumour_mask"] = patient.tumour_mask
        elif not study.prepare.tumour_command:
            raise UnusablePatient(
                "no tumour mask; prepare.tumour_crop_margin_mm needs one, or prepare.tumour_command, which makes it"
            )
    inputs = {name: {"sha256": _file_sha256(path)} for name, path in files.items()}
    settings = config_sha256(study)

    segmented = tumour.command_sha256(study.prepare) if patient.tumour_mask is None else ""

    def done(folder: Path) -> bool:
        return holds(folder, settings, inputs, segmented)

    if done(target):
        verify(target)
        return target
    with complete(target, refuse_foreign, done) as beside, _one_thread():
        _build(patient, study, beside, {"config_sha256": settings, "inputs": inputs})
    return target


def _build(patient: Patient, study: Study, folder: Path, record: dict[str, Any]) -> None:
    """The steps in order; writes the three files into `folder`."""
    log = Log()
    scans = _read(patient, study, log)
    reference = study.prepare.reference
    own = scans[reference]

    def brain_of(t1: Volume | None) -> brain.Brain:
        return brain.extract(own, t1, str(patient.scans[reference]), patient.brain_mask, study.prepare, folder)

    if brain.way(own, patient.brain_mask, study.prepare) == "none":  # nothing but the brain is there to align by
        found = brain_of(None)
        from_reference = alignment.to_reference(scans, reference, log, found.mask)
    else:
        from_reference = alignment.to_reference(scans, reference, log)
        beside = "t1" in scans and reference != "t1"
        found = brain_of(resample(scans["t1"], own.shape, own.affine, from_reference["t1"]) if beside else None)
    brain_ml = brain.volume_ml(found.mask, own)
    log.add("brain", found.methods, source=found.source, brain_ml=round(brain_ml, 1), notes=found.notes)
    if not BRAIN_ML[0] <= brain_ml <= BRAIN_ML[1]:
        log.warnings.append(f"brain volume {brain_ml:.0f} ml; {BRAIN_ML[0]:.0f} to {BRAIN_ML[1]:.0f} is usual")
    mask = Volume(found.mask.astype(np.float32), own.affine)
    if found.source != "none":  # the head was in view and had its say: scalp, eyes and neck move against the brain
        from_reference = alignment.within_brain(scans, reference, from_reference, mask, log)
    block, margin_mm, wholes = box.around(found.mask), 2 * study.grid.spacing_mm, scans
    alignment.check_overlap(patient, scans, reference, from_reference, mask, block, log)
    if study.prepare.tumour_command and patient.tumour_mask is None:
        tumour.found_by_command(scans, mask, from_reference, study.prepare, folder, log)
    parts = {channel: box.of_brain(scan, mask, block, from_reference[channel], margin_mm) for channel, scan in scans.items()}
    scans, brains = {c: part for c, (part, _) in parts.items()}, {c: inside for c, (_, inside) in parts.items()}
    taken = scans
    if study.prepare.bias:
        scans = _unbiased(scans, brains, from_reference, log)
    facing = like_the_template(scans, reference)
    pose = alignment.to_mni(scans[facing], facing, brains[facing], wholes[facing], log).seen_from(from_reference[facing])
    from_grid = {channel: matrix @ pose.rigid for channel, matrix in from_reference.items()}
    volume, inside = on_grid(scans, study.channels, reference, brains, from_grid, study.grid, log)
    kept, near = volume, inside
    if (reach_mm := study.prepare.tumour_crop_margin_mm) is not None:
        drawn = patient.tumour_mask or folder / files.TUMOUR
        kept, near = _around_tumour(drawn, volume, inside, reach_mm, from_grid[reference], study, log)
    stored = tokens.from_volume(kept, near, study.grid, record["config_sha256"], study.channels)
    tokens.save(stored, folder / files.TOKENS)
    of_scans = {
        channel: quality.of_scan(wholes[channel], part, scans[channel], brains[channel], mask, from_reference[channel])
        for channel, part in taken.items()
    }
    on_copies = on_grid(scans, study.channels, reference, brains, from_grid, agreement.GRID, Log())  # limits hold for every grid
    looked = agreement.of_grid(*on_copies, study.channels, agreement.GRID)
    caption = f"brain {brain_ml:.0f} ml ({found.source})   {len(log.warnings)} warnings   amber: brain outline"
    write_bytes(picture.draw(volume, inside, patient.id, caption, _told(log), study.channels), folder / files.QC)
    to_grid = {channel: np.linalg.inv(matrix).tolist() for channel, matrix in from_grid.items()}
    record = {
        "schema": SCHEMA,
        "patient": patient.id,
        **record,
        "files": {name: integrity.sha256(folder / name) for name in (*CONTENT, files.TUMOUR) if (folder / name).exists()},
        "reference": reference,
        "to_grid": to_grid,
        "steps": log.steps,
        "quality": quality.of_patient(looked, mask, pose, reference, wholes, of_scans),
        "brain_ml": round(brain_ml, 1),
        "warnings": log.warnings,
        "versions": _versions(found.source),
    }
    text = json.dumps(record, indent=1, allow_nan=False)
    write_bytes(text.encode(), folder / files.PATIENT)


def _around_tumour(
    mask: Path,
    volume: Float[np.ndarray, "c e e e"],
    brain: Bool[np.ndarray, "e e e"],
    reach_mm: float,
    from_grid: Float[np.ndarray, "4 4"],
    study: Study,
    log: Log,
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """What is kept of the scans on the grid, and of the brain there. Raises UnusablePatient where no tumour is known."""
    if not mask.exists():
        raise UnusablePatient(
            "prepare.tumour_command found no tumour, around which prepare.tumour_crop_margin_mm keeps the scans"
        )
    kept, near = tumour.around(mask, volume, brain, reach_mm, from_grid, study.grid, study.prepare.reference)
    log.add(
        "around_tumour",
        f"Voxels further than {reach_mm:g} mm from the tumour mask were set to 0.",
        reach_mm=reach_mm,
        kept_of_brain=round(float(near.sum() / brain.sum()), 4),
    )
    return kept, near


def _read(patient: Patient, study: Study, log: Log) -> dict[str, Volume]:
    scans: dict[str, Volume] = {}
    content: dict[str, str] = {}
    figures: dict[str, Any] = {}
    for channel in study.channels:
        path = patient.scans.get(channel)
        if path is None:
            log.warnings.append(f"{channel}: no scan; left empty, as prepare.needs = {list(study.prepare.needs)} allows")
            continue
        stored = read(path)
        scan = canonical(stored)
        key = hashlib.sha256(scan.array.data).hexdigest()
        if key in content:
            raise UnusablePatient(f"{channel} has the same voxels as {content[key]}; expected two different scans", str(path))
        content[key] = channel
        if scan.array.min() < 0:
            border = brain.border_value(scan.array)
            log.warnings.append(f"{channel}: negative intensities down to {scan.array.min():.4g}; background is {border:.4g}")
        scans[channel] = scan
        spacing = [round(mm, 4) for mm in scan.spacing_mm]
        as_stored = {"shape": stored.shape, "affine": stored.affine.tolist()}  # before its axes are laid as RAS+: where maps lie
        figures[channel] = {"shape": scan.shape, "spacing_mm": spacing, "notes": scan.notes, "voxels_sha256": key}
        figures[channel]["stored"] = as_stored
    empty = "" if len(scans) == len(study.channels) else "; those that a patient lacks were left empty"
    scan = "scan was read with its" if len(study.channels) == 1 else "scans were read with their"
    methods = f"{named(study.channels)} {scan} axes laid as RAS+{empty}."
    log.add("read", methods, scans=figures)
    return scans


def _unbiased(
    scans: dict[str, Volume], brains: dict[str, Bool[np.ndarray, "..."]], from_reference: dict[str, np.ndarray], log: Log
) -> dict[str, Volume]:
    masks: dict[str, Bool[np.ndarray, "..."]] = {}
    quantities = [channel for channel in scans if is_quantitative(channel)]
    for channel, scan in scans.items():
        if channel in quantities:
            continue
        values = scan.array[brains[channel]]
        share = float((values < 0).mean())
        if share > quality.NEGATIVE_SHARE:
            log.warnings.append(f"{channel}: {share:.1%} of the brain is negative, so its bias field was not corrected")
        elif (values > 0).any():  # else it is 0 throughout, which the intensity step refuses
            masks[channel] = brains[channel]
    corrected = bias.correct({channel: scans[channel] for channel in masks}, masks, from_reference)
    figures: dict[str, Any] = {}
    for channel, one in corrected.items():
        figures[channel] = {"iterations": one.field.iterations, "change": one.field.change, "used": round(one.used, 4)}
        figures[channel]["lesion_like_contrast"] = one.contrast and [round(value, 2) for value in one.contrast]
        if one.contrast and one.contrast[1] / one.contrast[0] < 1 - outliers.LOST:
            before, after = one.contrast
            log.warnings.append(
                f"{channel}: lesion-like contrast was {before:.2f} SD before bias correction and is {after:.2f} after it; "
                "see whether a lesion was taken for bias"
            )
    log.add(
        "bias",
        f"Intensity inhomogeneity was corrected with N4 (Tustison et al. 2010; {bias.LEVELS} levels) inside the brain, "
        f"estimated without voxels that lie more than {outliers.CORE:g} robust standard deviations from the median in any scan "
        f"and their surroundings{f'; {titles(quantities)}, a map of a quantity each, left out' if quantities else ''}.",
        quantitative=quantities,
        levels=bias.LEVELS,
        iterations=bias.ITERATIONS,
        tolerance=bias.TOLERANCE,
        working_mm=bias.WORKING_MM,
        outlier_deviations=[outliers.CORE, outliers.FRINGE],
        rounds=bias.ROUNDS,
        scans=figures,
    )
    return {**scans, **{channel: one.volume for channel, one in corrected.items()}}


def _told(log: Log) -> str:
    """Lesion-like contrast before and after bias correction, for the picture."""
    scans = next((step["scans"] for step in log.steps if step["step"] == "bias"), None)
    if scans is None:
        return "bias field not corrected"
    found = {channel: figures["lesion_like_contrast"] for channel, figures in scans.items()}
    cells = [f"{c} {pair[0]:.2f} to {pair[1]:.2f}" if pair else f"{c} none" for c, pair in found.items()]
    return f"lesion-like contrast in SD, before to after bias correction:   {'   '.join(cells)}"


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


def _versions(source: str) -> dict[str, str]:
    packages = (*VERSIONS, "deepbet", "torch") if source == "deepbet" else VERSIONS
    return {package: importlib.metadata.version(package) for package in packages}
