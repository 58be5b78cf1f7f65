"""Preflight: a study goes in; everything that is wrong with it comes out at once, before hours go into it. Nothing is written.

Faults of the study file, and a table that is none, are raised; all others are collected.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from mri_vit.crossval import comparators, folds
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort, columns
from mri_vit.data.cohort import Examined, Patient
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.preflight import labels, scans
from mri_vit.preflight.document import SCHEMA, About, Check, Column, Finding, Needs, Severity
from mri_vit.preflight.scans import Seen
from mri_vit.qc.check import decisions_of
from mri_vit.run.screen import printable
from mri_vit.settings.recipe import CLINICAL
from mri_vit.settings.schema import Study
from mri_vit.settings.source import ABSENT, shown

# Of 1-2 a spreadsheet in English makes 2-Jan or Jan-02.
LIKE_A_DATE = re.compile(r"(?i)(\d{1,2}-)?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-\d{1,2})?|\d{4}-\d\d-\d\d")


def check(study: Study) -> Check:
    """Look at table, files, labels, folds and networks, and estimate what the study needs.

    Raises UsageError where there is no table; IntegrityError for damaged weights.
    """
    began = time.perf_counter()
    table = cohort.examine(study.cohort, study.endpoints, study.prepare.needs, study.channels)
    found = [*_of_table(table), *_of_decisions(study, table)]
    seen = scans.look(file for p in table.patients for file in _files(p, study).values())
    found += _of_files(study, table, seen)
    found += _of_copies(study, _without_excluded(table.patients, found), seen)
    kept = _without_excluded(table.patients, found)
    covariates, columns, wrong = _covariates(study, table)
    found += wrong
    splits, wrong = _splits(study, table.patients, kept)
    found += wrong
    counted = kept if splits else table.patients
    of_labels = labels.count(counted, study.endpoints, splits)
    found += labels.fold_findings(counted, of_labels, splits, study.train)
    found += labels.plausibility_findings(table.patients, study.endpoints, _of_the_table(covariates, table))
    needs = None
    if not (_plain(study) and any(one.severity == "refused" for one in found)):
        needs, wrong = _networks(study, table.patients, kept, splits, scans.usual_voxels(seen))
        found += wrong
    if not any(one.severity == "refused" for one in found):  # SciPy's statistics take a second to load
        found += _too_few(study, kept, splits)
    found = sorted(found, key=lambda one: (get_args(Severity).index(one.severity), get_args(About).index(one.about)))
    gravest = found[0].severity if found else "noticed"
    return Check(
        schema=SCHEMA,
        study=study.name,
        cohort=study.cohort.name,
        exit_code=2 if gravest == "refused" else 3 if len(kept) < len(table.patients) else 0,
        visits=len(table.patients),
        patients=len({p.subject for p in table.patients}),
        excluded=tuple(sorted({p.id for p in table.patients} - {p.id for p in kept})),
        scans=len(seen),
        scan_bytes=scans.total_bytes(seen),
        covariates=covariates if CLINICAL in study.controls.models else None,
        columns=columns,
        labels=of_labels,
        findings=tuple(found),
        needs=needs,
        seconds=round(time.perf_counter() - began, 2),
    )


def _without_excluded(patients: Sequence[Patient], found: Sequence[Finding]) -> list[Patient]:
    out = {name for one in found if one.severity == "excluded" for name in one.patients}
    return [p for p in patients if p.id not in out]


def _refused(about: About, said: str) -> Finding:
    return Finding(severity="refused", about=about, said=printable(said))


def _of_table(table: Examined) -> Iterator[Finding]:
    """Faults of the table's rows, equal ones together."""
    rows: dict[str, list[int]] = defaultdict(list)
    for fault in table.faults:
        rows[f"column {fault.column}: {fault.said}" if fault.column else fault.said] += [fault.row] if fault.row else []
    for said, lines in rows.items():
        yield Finding(severity="refused", about="table", said=printable(said), rows=tuple(lines))
    of_patient = {p.subject: row for row, p in zip(reversed(table.rows), reversed(table.patients), strict=True)}
    for ids in columns.alike(of_patient):
        said = f"the ids {', '.join(sorted(ids))} differ only in form: one patient?"
        at = tuple(sorted(of_patient[name] for name in ids))
        yield Finding(severity="noticed", about="table", said=printable(said), rows=at, patients=tuple(ids))
    for note in table.notes:
        yield Finding(severity="noticed", about="table", said=printable(note))
    if dated := [p.subject for p in table.patients if LIKE_A_DATE.fullmatch(p.subject)]:
        said = "the id looks like a date, which a spreadsheet makes of 1-2: is it as you wrote it?"
        yield Finding(severity="noticed", about="table", said=said, patients=tuple(dict.fromkeys(dated)))


def _of_decisions(study: Study, table: Examined) -> Iterator[Finding]:
    """What is wrong with a reviewer's table, which is read before anybody is prepared."""
    passed_over: list[str] = []
    try:
        decisions_of(study, {p.id for p in table.patients}, passed_over.append)
    except UsageError as fault:
        yield _refused("table", str(fault))
    for said in passed_over:
        yield Finding(severity="noticed", about="table", said=printable(said))


def _files(patient: Patient, study: Study) -> dict[str, Path]:
    """The files of a patient that the study reads, by column."""
    masks = {"tumour_mask": patient.tumour_mask}
    if study.prepare.brain in ("auto", "mask"):
        masks["brain_mask"] = patient.brain_mask
    return {name: file for name, file in (patient.scans | masks).items() if file}


def _of_files(study: Study, table: Examined, seen: Mapping[Path, Seen]) -> Iterator[Finding]:
    """Scans that a patient lacks, and files that are not as they should be; equal faults together."""
    patients: dict[tuple[Severity, str], list[str]] = defaultdict(list)
    files: dict[tuple[Severity, str], list[str]] = defaultdict(list)
    for p in table.patients:
        mine = _files(p, study)
        empty = [name for name in study.channels if name in table.header and name not in mine]
        if empty:
            needed = [name for name in empty if name in study.prepare.needs]
            then = "the patient will be excluded" if needed else "it is left empty"
            patients["excluded" if needed else "noticed", f"no scan: {', '.join(empty)}; {then}"].append(p.id)
        if study.prepare.tumour_crop_margin_mm is not None and not study.prepare.tumour_command and "tumour_mask" not in mine:
            said = "no tumour mask, around which prepare.tumour_crop_margin_mm keeps the scans; the patient will be excluded"
            patients["excluded", said].append(p.id)
        faults = {name: seen[file].fault for name, file in mine.items() if seen[file].fault}
        if (
            "brain_mask" in mine
            and study.prepare.reference in mine
            and (off := scans.off_grid(seen[mine["brain_mask"]], seen[mine[study.prepare.reference]], study.prepare.reference))
        ):
            faults["brain_mask"] = off
        for name, said in faults.items():
            one: tuple[Severity, str] = ("excluded", printable(f"{name}: {said}"))
            patients[one].append(p.id)
            absent = said.startswith(ABSENT)  # then it matters where it was looked for
            files[one].append(printable(shown(mine[name])) if absent else _relative(mine[name], study))
        if doubtful := [name for name, file in mine.items() if seen[file].doubtful]:
            said = f"{', '.join(doubtful)}: ends with another size than its header announces; preparing will read it whole"
            patients["noticed", said].append(p.id)
    for (severity, said), ids in patients.items():
        yield Finding(
            severity=severity, about="scans", said=said, patients=tuple(ids), files=tuple(files.get((severity, said), ()))
        )


def _relative(file: Path, study: Study) -> str:
    """A file by its place beside the table, short and fit to be printed."""
    return printable(shown(os.path.relpath(file, os.path.realpath(study.cohort.parent))))


def _of_copies(study: Study, patients: Sequence[Patient], seen: Mapping[Path, Seen]) -> Iterator[Finding]:
    """One scan of two patients or visits, which would sit on both sides of a fold; or of one patient under two columns."""
    names: dict[Path, list[tuple[Patient, str]]] = defaultdict(list)
    for p in patients:
        for channel, file in p.scans.items():
            if file:
                names[file].append((p, channel))
    once = {path: one for path, one in seen.items() if path in names}
    groups = [*scans.duplicate_files(once), *([path] for path in names)]  # a file that two rows name is alone in its group
    told: set[frozenset[str]] = set()
    for group in groups:
        whose = [one for path in group for one in names[path]]
        ids = tuple(dict.fromkeys(p.id for p, _ in whose))
        if len(whose) < 2 or frozenset(ids) in told:
            continue
        told.add(frozenset(ids))
        which = ", ".join(f"{p.id} {channel}" for p, channel in whose)
        severity: Severity = "refused" if len(ids) > 1 else "excluded"
        said = f"the same scan stands twice ({which}); expected " + (
            "each scan once: keep one of them" if len(ids) > 1 else "two different scans"
        )
        files = tuple(_relative(path, study) for path in group)
        yield Finding(severity=severity, about="duplicates", said=said, patients=ids, files=files)
    for persons in scans.duplicate_persons(patients):
        said = "labels and clinical columns are all equal: one person under several ids?"
        yield Finding(severity="noticed", about="duplicates", said=said, patients=tuple(p.id for p in persons))


def _covariates(study: Study, table: Examined) -> tuple[tuple[str, ...], tuple[Column, ...], list[Finding]]:
    """The columns that a control reads as covariates, what becomes of every other, and what is odd in their cells."""
    if not table.patients:
        return (), (), []
    from mri_vit.data.covariates import clinical_columns, examined  # here, because pandas takes half a second

    try:
        columns = examined(table.patients, study)
        names = clinical_columns(table.patients, study)
    except UsageError as error:
        return (), (), [_refused("table", str(error))]
    odd = [
        Finding(
            severity="noticed",
            about="plausibility",
            said=printable(column.remark),
            rows=tuple(table.rows[row] for row in column.contents.rows),
            patients=tuple(table.patients[row].id for row in column.contents.rows),
        )
        for column in columns
        if column.remark
    ]
    named = tuple(
        Column(name=column.name, kind=column.contents.kind, why_not="")
        if column.name in names
        else Column(name=column.name, kind=None, why_not=printable(column.why_not))
        for column in columns
    )
    return tuple(names), named, odd


def _of_the_table(covariates: Sequence[str], table: Examined) -> list[str]:
    """Those covariates that are no label of the study; a label that is a covariate is one by name."""
    return [name for name in covariates if name in table.patients[0].clinical]


def _splits(study: Study, patients: Sequence[Patient], kept: Sequence[Patient]) -> tuple[list[Split], list[Finding]]:
    """The study's test folds of the patients who are not excluded; none where they cannot be made, and why."""
    if not patients:
        return [], []
    try:
        folds.check(patients, study.endpoints, study.train)
    except UsageError as error:
        return [], [_refused("folds", line) for line in str(error).splitlines()]
    if not kept:
        return [], [_refused("folds", "no patient is left when all are excluded who must be")]
    try:
        return folds.make(kept, study.endpoints, study.train, study.seed), []
    except UsageError as error:
        but = f"of the {len(kept)} patients who would not be excluded: " if len(kept) < len(patients) else ""
        return [], [_refused("folds", but + line) for line in str(error).splitlines()]


def _too_few(study: Study, kept: Sequence[Patient], splits: Sequence[Split]) -> list[Finding]:
    """Endpoints of which these patients can show too little."""
    from mri_vit.crossval import power

    return [Finding(severity="noticed", about="labels", said=said) for said in power.cautions(kept, study.endpoints, splits)]


def _plain(study: Study) -> bool:
    """Whether every network is a Vision Transformer from random weights, which any study file that is right describes."""
    models = [of.model for of in comparators.networks(study).values()]
    return all(model.architecture == "vit" and not model.weights for model in models)


def _networks(
    study: Study, patients: Sequence[Patient], kept: Sequence[Patient], splits: Sequence[Split], voxels: float
) -> tuple[Needs | None, list[Finding]]:
    """What the study needs; or which of its networks cannot be made."""
    try:
        comparators.check(study, patients)
    except IntegrityError:
        raise
    except UsageError as error:
        return None, [_refused("networks", line) for line in str(error).splitlines()]
    licences = [Finding(severity="noticed", about="networks", said=printable(said)) for said in comparators.cautions(study)]
    if not splits:
        return None, licences
    from mri_vit.preflight import needs  # here, because it imports torch

    estimate = needs.estimate(study, kept, max(map(len, splits)), voxels)
    lacking = needs.lacking(estimate, study.prepared, study.output)
    return estimate, [*licences, *(Finding(severity="noticed", about="resources", said=said) for said in lacking)]
