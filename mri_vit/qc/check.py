"""Quality check: prepared patients go in; findings, and the patients that they exclude, come out.

A figure outside the study's limits is a finding, and so is a scan unlike those of the other patients. A reviewer's table of
patients to keep or to drop overrides the limits. Letters: n patients, m means of a patient's scans.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from einops import reduce
from jaxtyping import Float
from rich.console import Console

from mri_vit.data import columns, run_cohort, sheet, tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.prepare import agreement, tumour
from mri_vit.prepare.bias import MAD_TO_SD
from mri_vit.prepare.patient import DROPPED_REASON, QC_REASON, Excluded, excluded_table, prepare_cohort, without_excluded
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Quality, Reason

MIN_PATIENTS = 20  # patients from which a median absolute deviation is steady: its standard error is a quarter of it
UNLIKE = {
    "likeness": "agrees less with the reference than in the other patients, by {:.1f} robust standard deviations",
    "histogram": "has a histogram {:.1f} robust standard deviations from the cohort's median",
}
# of patients with tissue at a position that counts, and of a patient's positions that the other must have
MIN_SHARED_TISSUE = 0.5
MIN_PAIRED_PATIENTS = 3  # patients: of two, the median lies between them, and they look opposite
# correlation worth a closer look: copies of two real patients had 0.83 and 0.89, 4560 synthetic pairs up to 0.84
NEAR_CORRELATION = 0.6
PATIENTS_AT_ONCE = 500  # patients compared with all: 20 MB where there are 10,000
ALIKE_MM = 4.0  # voxels on which near-duplicates are compared: those of the coarsest grid in use, so that one limit holds for all
EXCLUDED, FLAGGED, KEPT = "excluded", "flagged", "kept"
SHOWN_NAMES = 5  # names in a line of the terminal
COLUMNS = ("patient", "decision", "who", "why")
KEEP, DROP = "keep", "drop"

Deviations = dict[str, dict[str, dict[str, float]]]  # by figure, scan and patient


@dataclass(frozen=True)
class Finding:
    """Why someone should look at a patient: the reason, the scan (or none), the figure, and a sentence."""

    patient: str
    reason: Reason
    scan: str
    figure: float
    words: str


def findings_of(patient: str, record: Mapping[str, Any], limits: Quality) -> list[Finding]:
    """What is outside the limits in a prepared patient's record, read alone."""
    quality = record["quality"]
    findings = [Finding(patient, *finding) for finding in _of_patient(quality, record["brain_ml"], limits)]
    findings += [Finding(patient, "tumour in doubt", "", *doubt) for doubt in _doubts(tumour.of_record(record))]
    for scan, figures in quality["scans"].items():
        findings += [
            Finding(patient, reason, scan, figure, f"{scan} {words}") for reason, figure, words in _of_scan(figures, limits)
        ]
    return findings


def _of_patient(quality: Mapping[str, Any], brain_ml: float, limits: Quality) -> Iterator[tuple[Reason, str, float, str]]:
    low, high = limits.brain_ml
    if not low <= brain_ml <= high:
        yield "volume", "", brain_ml, f"brain volume {brain_ml:.0f} ml; {low:.0f} to {high:.0f} is usual"
    squeezed = quality["squeezed"]
    missing = {part: share for part, share in quality["coverage"].items() if share < limits.coverage}
    if squeezed < limits.squeezed:
        words = f"part of the brain is missing: the MNI152 brain fits only when squeezed to {squeezed:.0%} along one axis"
        yield "part missing", "", squeezed, words
    elif missing:
        named = ", ".join(f"{part} {share:.0%}" for part, share in missing.items())
        yield "part missing", "", min(missing.values()), f"the brain covers only a part of the MNI152 brain: {named}"
    turned, middle = quality["turned_degrees"], quality["middle_degrees"]
    if turned > limits.turned_degrees:
        words = f"the head was rotated by {turned:.0f}° against the MNI152 brain; check that it is straight now"
        yield "turned", "", turned, words
    if middle > limits.middle_degrees:
        words = f"the brain's midsagittal plane leans by {middle:.1f}° on the grid: the alignment is poor"
        yield "turned", "", middle, words
    for figure, limit, one, other, words in (
        (quality["fluid_contrast"], limits.fluid_contrast, "flair", "t2", "fluid is brighter in FLAIR than in T2"),
        (quality["enhancement"], limits.enhancement, "t1ce", "t1", "enhancing tissue is brighter in T1 than in T1ce"),
    ):
        if figure is None or figure >= limit:
            continue
        usual = f"({figure:.1f} SD; {limit:g} or more is usual)"
        if figure <= -limit:  # as far below 0 as it should be above
            yield "exchanged", f"{one} {other}", figure, f"{one} and {other} are exchanged: {words} {usual}"
        else:
            words = f"{one} cannot be distinguished from {other} {usual}; see the picture"
            yield "indistinguishable", f"{one} {other}", figure, words


def _doubts(found: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """Why the mask of a tumour that was looked for should be looked at."""
    if "tumour_ml" not in found:
        if found["source"] in ("found", "command"):
            yield 0.0, "no tumour was found; the patient has no tumour mask"
    elif found.get("confidence", 1) < tumour.SURE:
        confidence = found["confidence"]
        yield confidence, f"the tumour that was found is doubtful: confidence {confidence:.2f}; {tumour.SURE:g} or more is usual"


def _of_scan(figures: Mapping[str, Any], limits: Quality) -> Iterator[tuple[Reason, float, str]]:
    ratio, flipped = figures.get("own_to_mirrored"), figures.get("reversed")
    if ratio is not None and ratio < limits.own_to_mirrored:
        than = "times as similar to the reference as to its mirror image"
        if flipped is not None and flipped >= limits.own_to_mirrored:
            yield "mirrored", flipped, f"is mirrored (left–right flip): flipped back, it is {flipped:.2f} {than}"
        else:
            words = (
                f"shows another head, or is not aligned: it is {ratio:.2f} {than}; {limits.own_to_mirrored:g} or more is usual"
            )
            yield "another head", ratio, words
    if (filled := figures["filled"]) < limits.filled:
        yield "empty", filled, f"covers {filled:.0%} of the brain; the rest is background"
    if (shading := figures["shading"]) is not None and shading > limits.shading:
        yield "shading", shading, f"has a bias field that is {shading:.1f} times as bright at one end as at the other"
    if (ghosts := figures["ghosts"]) is not None and ghosts > limits.ghosts:
        yield "ghosts", ghosts, f"has ghosts of {ghosts:.1%} of the brain's signal at half the field of view"
    if (snr := figures["signal_to_noise"]) is not None and snr < limits.signal_to_noise:
        yield "noise", snr, f"has a signal-to-noise ratio of {snr:.1f}; {limits.signal_to_noise:g} or more is usual"


def deviations(records: Mapping[str, Mapping[str, Any]]) -> Deviations:
    """How far each patient's scans lie on the bad side of the cohort's median, in robust standard deviations.

    By figure (`likeness` to the reference, which is bad when low, and the `histogram`'s distance from the cohort's median
    histogram), scan and patient; nothing for a scan that fewer than `MIN_PATIENTS` patients have.
    """
    by_figure: Deviations = {"likeness": {}, "histogram": {}}
    for scan in sorted({scan for record in records.values() for scan in record["quality"]["scans"]}):
        of_scan = {name: figures for name, record in records.items() if (figures := record["quality"]["scans"].get(scan))}
        likeness = {name: -value for name, figures in of_scan.items() if (value := figures.get("likeness")) is not None}
        if len(likeness) >= MIN_PATIENTS:
            by_figure["likeness"][scan] = _by_patient(likeness, np.array(list(likeness.values())))
        if len(of_scan) >= MIN_PATIENTS:
            quantiles = np.array([figures["quantiles"] for figures in of_scan.values()])
            apart = np.abs(quantiles - np.median(quantiles, axis=0)).mean(axis=1)  # Wasserstein's distance of two histograms
            by_figure["histogram"][scan] = _by_patient(of_scan, np.log(np.maximum(apart, 1e-3)))
    return by_figure


def _by_patient(names: Iterable[str], bad: Float[np.ndarray, "n"]) -> dict[str, float]:
    return dict(zip(names, robust_z(bad).tolist(), strict=True))


def unlike(far: Deviations, limits: Quality) -> list[Finding]:
    """The `deviations` that are beyond the limit."""
    return [
        Finding(name, "unlike the cohort", scan, z, f"{scan} {UNLIKE[figure].format(z)}")
        for figure, of_scans in far.items()
        for scan, of_patients in of_scans.items()
        for name, z in of_patients.items()
        if z > limits.robust_z
    ]


def robust_z(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Distance from the median in standard deviations estimated from the median absolute deviation; 0 where that is 0."""
    away = values - np.median(values)
    deviation = MAD_TO_SD * np.median(np.abs(away))
    return away / deviation if deviation > 0 else np.zeros_like(away)


def nearest(means: Float[np.ndarray, "n m"]) -> list[tuple[int, int]]:
    """Pairs of patients, one the other's nearest, and near; NaN is not known.

    `means` are a patient's scans at each position of the grid, compared once the cohort's median is taken away: all brains have
    much in common, which is no evidence.
    """
    if len(means) < MIN_PAIRED_PATIENTS:
        return []
    means = means[:, np.isfinite(means).mean(axis=0) > MIN_SHARED_TISSUE]
    away = means - np.nanmedian(means, axis=0)
    known = np.isfinite(away).astype(np.float32)
    filled = np.where(known, away, 0).astype(np.float32)
    squares = filled**2
    pairs = set()
    for start in range(0, len(means), PATIENTS_AT_ONCE):
        part = slice(start, start + PATIENTS_AT_ONCE)
        lengths = np.sqrt((squares[part] @ known.T) * (known[part] @ squares.T))  # each over what the other has too
        correlation = filled[part] @ filled.T / np.maximum(lengths, 1e-6)
        correlation[known[part] @ known.T < MIN_SHARED_TISSUE * known.sum(axis=1)] = -1
        correlation[np.arange(len(correlation)), np.arange(start, start + len(correlation))] = -1
        for i, j in enumerate(correlation.argmax(axis=1).tolist()):
            if correlation[i, j] >= NEAR_CORRELATION:
                pairs.add((min(start + i, j), max(start + i, j)))
    return sorted(pairs)


def _duplicates(study: Study, patients: Sequence[Patient]) -> list[Finding]:
    """Both patients of every pair that looks like one, but for the visits of one patient."""
    means = np.array([_means(study, patient) for patient in patients])
    findings = []
    for i, j in nearest(means.reshape(len(patients), study.grid.positions * len(study.channels))):
        first, second = patients[i], patients[j]
        if first.subject != second.subject and (alike := _likeness(study, first, second)) >= study.qc.duplicate:
            words = f"looks like {{}}: the {study.prepare.reference} of the two agree by {alike:.2f}, as only one person's do"
            findings += [
                Finding(a.id, "near-duplicate", "", alike, words.format(b.id)) for a, b in ((first, second), (second, first))
            ]
    return findings


def _likeness(study: Study, one: Patient, other: Patient) -> float:
    """Likeness of two patients' reference scans as they lie on the grid; see `agreement`."""
    reference = study.prepare.reference
    both = [tokens.to_volume(tokens.load(study.prepared / patient.id / files.TOKENS)) for patient in (one, other)]
    shared = np.logical_and(*((volume != 0).any(axis=0) for volume in both))
    if not shared.any():
        return 0.0
    first, second = (agreement.of_grid(volume, shared, study.channels, study.grid, ALIKE_MM) for volume in both)
    return agreement.similarity(first.scans[reference], second.scans[reference], first.brain, agreement.window(first))


def _means(study: Study, patient: Patient) -> Float[np.ndarray, "positions c"]:
    """Each scan's mean at each grid position; NaN where there is no brain, or no scan."""
    stored = tokens.load(study.prepared / patient.id / files.TOKENS)
    means = np.full((stored.grid.positions, len(study.channels)), np.nan, np.float32)
    means[stored.position] = reduce(stored.patches.astype(np.float32), "f (c v) -> f c", "mean", c=len(study.channels))
    means[:, ~means[stored.position].any(axis=0)] = np.nan
    return means


@dataclass(frozen=True)
class Decision:
    """What a reviewer decided about a patient: keep or drop, who it was and why."""

    patient: str
    keep: bool
    who: str
    why: str


def decisions_of(study: Study, patients: Collection[str], warn: Callable[[str], None]) -> dict[str, Decision]:
    """The decisions that a study follows: of the table that `qc.decisions` names, or else of the one beside the cohort's.

    The latter may belong to another cohort too, whose table lies in the same folder; `warn` gets how many it ignored.
    Raises UsageError as `read_decisions` does.
    """
    if study.qc.decisions:
        return read_decisions(study.qc.decisions, patients)
    beside = study.cohort.parent / files.DECISIONS
    if not beside.exists():
        return {}
    every = read_decisions(beside)
    if others := sorted(every.keys() - set(patients)):
        first = next(iter(columns.counterparts(others, patients)), others[0])
        example = f"{first}{columns.elsewhere(first, patients)}"
        warn(f"{beside.name}: {len(others)} decisions are about patients who are not in this cohort table, such as {example}")
    return {name: decision for name, decision in every.items() if name in patients}


def read_decisions(path: Path, patients: Collection[str] | None = None) -> dict[str, Decision]:
    """The decisions by patient; all must be among `patients` where these are given.

    Raises
    ------
    UsageError
        A column or a cell is missing, a decision is neither keep nor drop, or a patient is unknown or has two.
    """
    header, rows = sheet.read(path)
    if lacking := [name for name in COLUMNS if name not in header]:
        raise UsageError(f"{path}: no column {lacking[0]!r}; expected {', '.join(COLUMNS)} (found {', '.join(header)})")
    decisions: dict[str, Decision] = {}
    for line, row in rows:
        where = f"{path}, row {line}"
        if empty := [name for name in COLUMNS if not row[name]]:
            raise UsageError(f"{where}: {empty[0]} is empty; a decision has {', '.join(COLUMNS)}")
        patient, decision = row["patient"], row["decision"].lower()
        if decision not in (KEEP, DROP):
            raise UsageError(f"{where}: decision {row['decision']!r}; expected keep or drop")
        if patients is not None and patient not in patients:
            like = columns.elsewhere(patient, patients)
            raise UsageError(f"{where}: patient {patient!r} is not in the cohort table{like}")
        if patient in decisions:
            raise UsageError(f"{where}: patient {patient!r} has a decision already")
        decisions[patient] = Decision(patient, decision == KEEP, row["who"], row["why"])
    return decisions


def dump_decisions(decisions: Iterable[Decision]) -> bytes:
    """The table again, as a run keeps it."""
    return sheet.to_csv(COLUMNS, ([row.patient, KEEP if row.keep else DROP, row.who, row.why] for row in decisions))


@dataclass(frozen=True)
class CheckedCohort:
    """A checked cohort: records, findings, distances from the other patients, a reviewer's decisions, and who is excluded."""

    records: dict[str, dict[str, Any]]
    findings: dict[str, list[Finding]]
    deviations: Deviations
    decisions: dict[str, Decision]
    excluded: Excluded


def outcome(finding: Finding, decisions: Mapping[str, Decision], settings: Quality) -> str:
    """What becomes of a finding's patient: kept by a reviewer, excluded or flagged."""
    if (decision := decisions.get(finding.patient)) and decision.keep:
        return KEPT
    return EXCLUDED if finding.reason in settings.exclude else FLAGGED


def prepare(study: Study, patients: list[Patient], folder: Path, console: Console) -> Excluded:
    """Prepare and check every patient; one who cannot be prepared, or exceeds a limit, goes to `excluded.csv` with the reason."""
    checked = prepare_and_check(study, patients, folder, console)
    if any(checked.findings.values()):
        say(console, "`mri-vit qc` writes a page with the findings")
    return checked.excluded


def prepare_and_check(study: Study, patients: list[Patient], folder: Path, console: Console) -> CheckedCohort:
    """Prepare every patient, then check each. A reviewer's decisions are read before the hours that preparing takes."""
    decisions = decisions_of(study, {patient.id for patient in patients}, lambda line: say(console, line, WARNING))
    unprepared = prepare_cohort(study, patients, folder, console)
    return check_cohort(study, patients, unprepared, decisions, folder, console)


def check_cohort(
    study: Study,
    patients: Sequence[Patient],
    unprepared: Excluded,
    decisions: dict[str, Decision],
    folder: Path,
    console: Console,
) -> CheckedCohort:
    """Compare every prepared patient with the study's limits; write qc.csv, and excluded.csv with those that they exclude.

    `unprepared` are the patients who could not be prepared, `decisions` those of `decisions_of`. Raises UsageError, and
    writes nothing, where the run has folds already and others would be excluded now; IntegrityError for a damaged record.
    """
    prepared = without_excluded(patients, unprepared)
    records: dict[str, dict[str, Any]] = {}
    findings: dict[str, list[Finding]] = {}
    for patient in prepared:
        records[patient.id] = load_record(study.prepared / patient.id)
        with as_written(study.prepared / patient.id / files.PATIENT, PREPARE_AGAIN):
            findings[patient.id] = findings_of(patient.id, records[patient.id], study.qc)
    far = deviations(records)
    for finding in (*unlike(far, study.qc), *_duplicates(study, prepared)):
        findings[finding.patient].append(finding)
    order = {patient.id: position for position, patient in enumerate(patients)}
    excluded = sorted([*unprepared, *_excluded(findings, decisions, study)], key=lambda row: order[row["patient"]])
    _refuse_other_patients(excluded, folder)
    table = (
        [row.patient, row.reason, row.scan, f"{row.figure:.4g}", outcome(row, decisions, study.qc), row.words]
        for rows in findings.values()
        for row in rows
    )
    write_bytes(sheet.to_csv(["patient", "reason", "scan", "figure", "became", "words"], table), folder / files.FINDINGS)
    write_bytes(dump_decisions(decisions.values()), folder / files.DECISIONS)
    write_bytes(excluded_table(excluded), folder / files.EXCLUDED)
    _print_counts(findings, decisions, study, console)
    return CheckedCohort(records, findings, far, decisions, excluded)


def _excluded(findings: Mapping[str, Sequence[Finding]], decisions: Mapping[str, Decision], study: Study) -> Excluded:
    rows = []
    for name, of_patient in findings.items():
        decision = decisions.get(name)
        if decision and not decision.keep:
            rows.append({"patient": name, "file": "", "reason": f"{DROPPED_REASON} ({decision.who}: {decision.why})"})
        elif grave := [finding for finding in of_patient if outcome(finding, decisions, study.qc) == EXCLUDED]:
            kinds = ", ".join(dict.fromkeys(f"{finding.scan} {finding.reason}".strip() for finding in grave))
            words = "; ".join(finding.words for finding in grave)
            rows.append({"patient": name, "file": "", "reason": f"{QC_REASON}{kinds} ({words})"})
    return rows


def _refuse_other_patients(excluded: Excluded, folder: Path) -> None:
    """Raise UsageError where folds were made without exactly these patients."""
    if not (folder / files.FOLDS).exists():
        return
    before, now = run_cohort.excluded(folder), {row["patient"] for row in excluded}
    changes = (("excluded", now - before), ("kept", before - now))
    if changed := [f"{', '.join(sorted(names)[:SHOWN_NAMES])} would be {what}" for what, names in changes if names]:
        raise UsageError(
            f"{folder}: this run already has folds for other patients; now {'; '.join(changed)}: choose another output"
        )


def _print_counts(
    findings: Mapping[str, Sequence[Finding]], decisions: Mapping[str, Decision], study: Study, console: Console
) -> None:
    patients: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, of_patient in findings.items():
        for key in {(outcome(finding, decisions, study.qc), finding.reason): None for finding in of_patient}:
            patients[key].append(name)
    for (became, reason), names in sorted(patients.items()):
        some = ", ".join(names[:SHOWN_NAMES]) + (f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else "")
        say(console, f"qc: {len(names)} {became}, {reason}: {some}", WARNING)
    if counts := Counter(decision.keep for decision in decisions.values()):
        say(console, f"a reviewer's decisions were followed: {counts[True]} to keep, {counts[False]} to drop")
