"""Patient: four scans go in, one prepared patient comes out (tokens.safetensors, patient.json, qc.png).

The order of the steps is here; each step says what it did in the record, with a sentence for a Methods section.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from threadpoolctl import threadpool_limits

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, read, resample
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import bias, brain, intensity, outliers, qc, register
from mri_vit.prepare.prepared import CONTENT, SCHEMA, config_sha256, holds, refuse_foreign, verify
from mri_vit.run import files, hashes
from mri_vit.run.atomic import write_bytes
from mri_vit.run.complete_folder import complete
from mri_vit.settings import source
from mri_vit.settings.schema import CHANNELS, REFERENCE, Study

OVERLAP = 0.90  # least share of the T1ce's brain inside every scan's field of view; a tumour must not be in the missing part
MISSED = 0.005  # of the brain outside a scan's field of view or the grid: a rim that nobody need be told of
NEGATIVE_SHARE = 0.01  # of the brain: interpolation leaves fewer negative voxels, standardised scans about half
BRAIN_ML = (700.0, 2100.0)  # adults from atrophy to the largest; outside, someone should look
LEAST_SHARE = 0.05  # of a grid voxel's sources that must be brain for it to have a value; less is rounding
VERSIONS = ("mri-vit", "numpy", "scipy", "SimpleITK", "nibabel", "nilearn")


@dataclass
class Log:
    """What was done, in order, and what someone should look at."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, step: str, methods: str, **figures: Any) -> None:
        self.steps.append({"step": step, "methods": methods, **figures})


def prepare(patient: Patient, study: Study) -> Path:
    """Prepare one patient, unless that was done already with the same settings from the same files.

    Parameters
    ----------
    patient
        With all scans that `prepare.needs` names; one of the others that is missing stays empty, and a warning tells so.
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
    files = {channel: path for channel in CHANNELS if (path := patient.scans[channel])}
    if lacking := [channel for channel in study.prepare.needs if channel not in files]:
        raise UnusablePatient(f"no {' and no '.join(lacking)} scan; {', '.join(study.prepare.needs)} are needed")
    if patient.brain_mask and study.prepare.brain in ("auto", "mask"):
        files["brain_mask"] = patient.brain_mask
    inputs = {name: {"sha256": _file_sha256(path)} for name, path in files.items()}
    settings = config_sha256(study)

    def done(folder: Path) -> bool:
        return holds(folder, settings, inputs)

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
    t1ce = scans[REFERENCE]
    from_t1ce = _to_t1ce(scans, log)
    t1 = resample(scans["t1"], t1ce.shape, t1ce.affine, from_t1ce["t1"]) if "t1" in scans else None
    found = brain.extract(t1ce, t1, str(patient.scans[REFERENCE]), patient.brain_mask, study.prepare, folder)
    brain_ml = brain.volume_ml(found.mask, t1ce)
    log.add("brain", found.methods, source=found.source, brain_ml=round(brain_ml, 1))
    if not BRAIN_ML[0] <= brain_ml <= BRAIN_ML[1]:
        log.warnings.append(f"brain volume {brain_ml:.0f} ml; {BRAIN_ML[0]:.0f} to {BRAIN_ML[1]:.0f} is usual")
    mask = Volume(found.mask.astype(np.float32), t1ce.affine)
    if found.source != "none":  # the head was in view and had its say: scalp, eyes and neck move against the brain
        from_t1ce = _within_brain(scans, from_t1ce, mask, log)
    _check_overlap(patient, scans, from_t1ce, mask, log)
    if study.prepare.bias:
        scans = _unbiased(scans, from_t1ce, mask, log)
    t1ce_from_grid = _to_mni(scans[REFERENCE], found.mask, log)
    from_grid = {channel: matrix @ t1ce_from_grid for channel, matrix in from_t1ce.items()}
    volume, on_grid = _on_grid(scans, mask, from_grid, study, log)
    tokens.save(tokens.from_volume(volume, on_grid, study.grid, record["config_sha256"]), folder / files.TOKENS)
    caption = f"brain {brain_ml:.0f} ml ({found.source})   {len(log.warnings)} warnings   amber: brain outline"
    write_bytes(qc.draw(volume, on_grid, patient.id, caption, _told(log)), folder / files.QC)
    to_grid = {channel: np.linalg.inv(matrix).tolist() for channel, matrix in from_grid.items()}
    record = {
        "schema": SCHEMA,
        "patient": patient.id,
        **record,
        "files": {name: hashes.sha256(folder / name) for name in CONTENT},
        "t1ce_to_grid": to_grid[REFERENCE],
        "to_grid": to_grid,
        "steps": log.steps,
        "brain_ml": round(brain_ml, 1),
        "warnings": log.warnings,
        "versions": _versions(found.source),
    }
    text = json.dumps(record, indent=1, allow_nan=False)
    write_bytes(text.encode(), folder / files.PATIENT)


def _read(patient: Patient, study: Study, log: Log) -> dict[str, Volume]:
    scans: dict[str, Volume] = {}
    content: dict[str, str] = {}
    figures: dict[str, Any] = {}
    for channel in CHANNELS:
        path = patient.scans[channel]
        if path is None:
            log.warnings.append(f"{channel}: no scan; left empty, as prepare.needs = {list(study.prepare.needs)} allows")
            continue
        stored = read(path)
        scan = canonical(stored)
        key = hashlib.sha256(scan.array.tobytes()).hexdigest()
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
    empty = "" if len(scans) == len(CHANNELS) else "; those that a patient lacks were left empty"
    told = f"T1, contrast-enhanced T1 (T1ce), T2 and FLAIR scans were read with their axes laid as RAS+{empty}."
    log.add("read", told, scans=figures)
    return scans


def _to_t1ce(scans: dict[str, Volume], log: Log) -> dict[str, np.ndarray]:
    """For each scan the 4×4 that carries a point of the T1ce to it."""
    matrices: dict[str, np.ndarray] = {}
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        matrices[channel] = np.eye(4)
        if channel == REFERENCE:
            continue
        found = register.to_reference(scans[REFERENCE], scan)
        if not math.isfinite(found.metric):
            raise UnusablePatient(f"{channel} and {REFERENCE} cannot be aligned: they share no space")
        matrices[channel] = found.matrix
        by_header = bool(np.array_equal(found.matrix, np.eye(4)))
        figures[channel] = {
            "metric": found.metric,
            "metric_by_header": _finite(found.first_metric),
            "kept": "header" if by_header else "registration",
        }
    log.add(
        "to_t1ce",
        "T1, T2 and FLAIR were rigidly aligned to T1ce by maximising Mattes mutual information (SimpleITK).",
        copies_mm=register.FINE_MM,
        bins=register.BINS,
        scans=figures,
    )
    return matrices


def _within_brain(scans: dict[str, Volume], from_t1ce: dict[str, np.ndarray], mask: Volume, log: Log) -> dict[str, np.ndarray]:
    """The same 4×4s, settled on the brain and the fluid around it."""
    near = register.around(mask, register.INNER_MARGIN_MM)
    matrices = dict(from_t1ce)
    figures: dict[str, Any] = {}
    for channel in (channel for channel in scans if channel != REFERENCE):
        found = register.refine(scans[REFERENCE], scans[channel], from_t1ce[channel], near)
        matrices[channel] = found.matrix
        figures[channel] = {"metric": _finite(found.metric), "metric_before": _finite(found.first_metric)}
    log.add(
        "within_brain",
        f"These alignments were then refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.",
        bins=register.BINS,
        scans=figures,
    )
    return matrices


def _check_overlap(patient: Patient, scans: dict[str, Volume], from_t1ce: dict[str, np.ndarray], mask: Volume, log: Log) -> None:
    """Share of the T1ce brain's voxels whose centres lie within each scan's outer voxel faces; under `OVERLAP` is unusable."""
    points = mask.affine @ np.vstack([np.argwhere(mask.array > 0).T, np.ones(int((mask.array > 0).sum()))])
    shares = {}
    for channel, scan in scans.items():
        index = (np.linalg.inv(scan.affine) @ from_t1ce[channel] @ points)[:3]
        inside = ((index >= -0.5) & (index <= np.array(scan.shape)[:, None] - 0.5)).all(axis=0)
        shares[channel] = round(float(inside.mean()), 4)
        if shares[channel] < OVERLAP:
            reason = f"field of view of {channel} holds {shares[channel]:.1%} of the T1ce's brain; expected {OVERLAP:.0%} or more"
            raise UnusablePatient(reason, str(patient.scans[channel]))
        if shares[channel] < 1 - MISSED:
            log.warnings.append(f"{channel}: {1 - shares[channel]:.1%} of the brain lies outside its field of view and is 0")
    log.add("overlap", f"Every scan covers at least {OVERLAP:.0%} of the brain.", shares=shares)


def _unbiased(scans: dict[str, Volume], from_t1ce: dict[str, np.ndarray], mask: Volume, log: Log) -> dict[str, Volume]:
    masks: dict[str, Bool[np.ndarray, "..."]] = {}
    for channel, scan in scans.items():
        inside = resample(mask, scan.shape, scan.affine, np.linalg.inv(from_t1ce[channel])).array > 0.5
        share = float((scan.array[inside] < 0).mean())
        if share > NEGATIVE_SHARE:
            log.warnings.append(f"{channel}: {share:.1%} of the brain is negative, so its bias field was not corrected")
        elif (scan.array[inside] > 0).any():  # else it is 0 throughout, which the intensity step refuses
            masks[channel] = inside
    corrected = bias.correct({channel: scans[channel] for channel in masks}, masks, from_t1ce)
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
        "and their surroundings.",
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


def _to_mni(t1ce: Volume, mask: Bool[np.ndarray, "x y z"], log: Log) -> Float[np.ndarray, "4 4"]:
    """The 4×4 that carries a point of the MNI152 frame to the T1ce."""
    low, high = np.percentile(t1ce.array[mask], (intensity.TAIL_PERCENT, 100 - intensity.TAIL_PERCENT))
    shown = (t1ce.array.clip(low, high) - low) / max(high - low, 1e-6) + 0.1  # darkest brain stays apart from background 0
    found = register.to_template(Volume(np.where(mask, shown, 0).astype(np.float32), t1ce.affine))
    log.add(
        "to_mni",
        "The skull-stripped T1ce was rigidly aligned to the MNI152 brain, so that sizes are kept.",
        metric=_finite(found.metric),
        coarse_metrics=[_finite(metric) for metric in found.coarse_metrics],
        bins=register.TEMPLATE_BINS,
    )
    return found.matrix


def _on_grid(
    scans: dict[str, Volume], mask: Volume, from_grid: dict[str, np.ndarray], study: Study, log: Log
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """Every scan resampled once and scaled, and the brain, on the prepared grid."""
    edge, spacing_mm, affine = study.grid.edge, study.grid.spacing_mm, np.array(study.grid.affine)

    def seen(scan: Volume, matrix: np.ndarray, outside: float) -> np.ndarray:
        soft = register.smoothed(scan, [max(spacing_mm, mm) for mm in scan.spacing_mm])
        return resample(soft, (edge, edge, edge), affine, matrix, outside=outside).array

    def brain_only(scan: Volume, matrix: np.ndarray) -> np.ndarray:
        """Means over brain voxels alone: neither skull nor an emptied background reaches into the brain's border."""
        inside = resample(mask, scan.shape, scan.affine, from_grid[REFERENCE] @ np.linalg.inv(matrix)).array > 0.5
        total = seen(Volume(np.where(inside, scan.array, 0), scan.affine), matrix, math.nan)
        share = seen(Volume(inside.astype(np.float32), scan.affine), matrix, math.nan)
        return np.divide(total, share, out=np.full_like(total, math.nan), where=share > LEAST_SHARE)

    on_grid = seen(mask, from_grid[REFERENCE], 0.0) > 0.5
    held = float(on_grid.sum() * spacing_mm**3 / 1000 / brain.volume_ml(mask.array > 0, mask))
    log.add(
        "resample",
        f"All scans were resampled once, from brain voxels alone, to {edge}³ voxels of {spacing_mm:g} mm in the MNI152 frame.",
        brain_on_grid=round(held, 4),
    )
    if not on_grid.any():
        raise UnusablePatient("empty brain: none of it lies on the prepared grid")
    if held < 1 - MISSED:
        log.warnings.append(f"{1 - held:.1%} of the brain lies outside the prepared grid")
    volume = np.zeros((len(CHANNELS), edge, edge, edge), np.float32)
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        scaled = intensity.zscore(brain_only(scan, from_grid[channel]), on_grid)
        if scaled.deviation == 0:
            raise UnusablePatient(f"{channel} is constant inside the brain ({scaled.mean:g})")
        volume[CHANNELS.index(channel)] = scaled.array
        figures[channel] = {"mean": scaled.mean, "deviation": scaled.deviation}
    log.add(
        "intensity",
        f"Intensities were z-scored inside the brain over all but the outer {intensity.TAIL_PERCENT} % at each end.",
        limit=intensity.LIMIT,
        scans=figures,
    )
    return volume, on_grid


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
        return hashes.sha256(path)
    except OSError as error:
        raise UnusablePatient(f"cannot be read: {error.strerror}", str(path)) from None


def _finite(metric: float) -> float | None:
    return metric if math.isfinite(metric) else None  # JSON has no infinity


def _versions(source: str) -> dict[str, str]:
    packages = (*VERSIONS, "deepbet", "torch") if source == "deepbet" else VERSIONS
    return {package: importlib.metadata.version(package) for package in packages}
