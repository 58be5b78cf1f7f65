"""Preflight: a study goes in; everything that is wrong with it comes out at once, before it costs hours. Nothing is written but
how fast this machine is, in the user's cache.

Faults of the study file, and a table that cannot be read, are raised; all others are collected. They include values that can be
read and are yet unlikely: months among days, and columns that give a label away.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np

from mri_vit.crossval import comparators, folds
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort, columns
from mri_vit.data.cohort import Examined, Patient
from mri_vit.data.columns import MISSING
from mri_vit.data.covariates import clinical_columns, examined
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.kinds import kind
from mri_vit.preflight import plan, scans
from mri_vit.preflight.document import SCHEMA, About, Check, Column, Finding, Fold, Labels, Needs, Severity
from mri_vit.preflight.plan import Power
from mri_vit.preflight.scans import FileInfo
from mri_vit.qc.check import decisions_of
from mri_vit.run.files import path_from
from mri_vit.run.screen import printable
from mri_vit.settings.recipe import CLINICAL, FLAIR
from mri_vit.settings.schema import Endpoint, Study, Train
from mri_vit.settings.sections import Prepare
from mri_vit.settings.source import ABSENT, shown

# Of 1-2 a spreadsheet in English makes 2-Jan or Jan-02.
LIKE_A_DATE = re.compile(r"(?i)(\d{1,2}-)?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-\d{1,2})?|\d{4}-\d\d-\d\d")
MIN_INFORMATIVE = 10  # patients from which a column's agreement with a label is informative
ORIGINS = ("site", "cohort")  # columns that name where a patient comes from
FOLDS_NAMED = 8  # test folds that a sentence names


def check(study: Study) -> Check:
    """Check table, files, labels, folds and networks, and estimate what the study needs.

    Raises UsageError where there is no table; IntegrityError for damaged weights.
    """
    began = time.perf_counter()
    table = cohort.examine(study.cohort, study.endpoints, study.prepare.needs, study.channels)
    findings = [*_of_table(table), *_of_decisions(study, table)]
    info = scans.inspect(file for p in table.patients for file in _files(p, study.prepare).values())
    findings += _of_files(study, table, info)
    findings += _of_copies(study, _without_excluded(table.patients, findings), info)
    kept = _without_excluded(table.patients, findings)
    covariates, columns, faults = _covariates(study, table)
    findings += faults
    splits, faults = _splits(study, table.patients, kept)
    findings += faults
    counted = kept if splits else table.patients
    labels = count_labels(counted, study.endpoints, splits)
    findings += _of_labels(counted, labels, splits, study.train)
    clinical = [name for name in covariates if name in table.patients[0].clinical]  # without those that are labels of the study
    findings += plausibility_findings(table.patients, study.endpoints, clinical)
    needs = None
    # Every study file that is right describes Vision Transformers from random weights; other networks may fail by themselves.
    models = [network.model for network in comparators.networks(study).values()]
    plain = all(model.architecture == "vit" and not model.weights for model in models)
    if not (plain and any(finding.severity == "refused" for finding in findings)):
        needs, faults = _networks(study, table.patients, kept, splits, scans.usual_voxels(info))
        findings += faults
    powers: tuple[Power, ...] = ()
    if not any(finding.severity == "refused" for finding in findings):
        findings += [_finding("noticed", "labels", words) for words in plan.cautions(study, kept, splits, covariates)]
        powers = plan.of_study(study, kept, splits, covariates)
    findings.sort(key=lambda one: (get_args(Severity).index(one.severity), get_args(About).index(one.about)))
    gravest = findings[0].severity if findings else "noticed"
    return Check(
        schema=SCHEMA,
        study=study.name,
        cohort=study.cohort.name,
        exit_code=2 if gravest == "refused" else 3 if len(kept) < len(table.patients) else 0,
        visits=len(table.patients),
        patients=len({p.subject for p in table.patients}),
        excluded=tuple(sorted({p.id for p in table.patients} - {p.id for p in kept})),
        scans=len(info),
        scan_bytes=scans.total_bytes(info),
        covariates=covariates if CLINICAL in study.controls.models else None,
        columns=columns,
        labels=labels,
        power=powers,
        findings=tuple(findings),
        needs=needs,
        seconds=round(time.perf_counter() - began, 2),
    )


def _finding(severity: Severity, about: About, words: str, **where: Any) -> Finding:
    return Finding(severity=severity, about=about, said=printable(words), **where)


def _refused(about: About, error: Exception, before: str = "") -> list[Finding]:
    """A finding for each line of an error's message."""
    return [_finding("refused", about, before + line) for line in str(error).splitlines()]


def _without_excluded(patients: Sequence[Patient], findings: Sequence[Finding]) -> list[Patient]:
    excluded = {name for finding in findings if finding.severity == "excluded" for name in finding.patients}
    return [p for p in patients if p.id not in excluded]


def _of_table(table: Examined) -> Iterator[Finding]:
    """Faults of the table's rows, equal ones together."""
    rows: dict[str, list[int]] = defaultdict(list)
    for fault in table.faults:
        rows[f"column {fault.column}: {fault.problem}" if fault.column else fault.problem] += [fault.row] if fault.row else []
    for words, lines in rows.items():
        yield _finding("refused", "table", words, rows=tuple(lines))
    row_of = {p.subject: row for row, p in zip(reversed(table.rows), reversed(table.patients), strict=True)}
    for ids in columns.alike(row_of):
        words = f"the ids {', '.join(sorted(ids))} differ only in form: one patient?"
        yield _finding("noticed", "table", words, rows=tuple(sorted(row_of[name] for name in ids)), patients=tuple(ids))
    for note in table.notes:
        yield _finding("noticed", "table", note)
    if dated := [p.subject for p in table.patients if LIKE_A_DATE.fullmatch(p.subject)]:
        words = "the id looks like a date, which a spreadsheet makes of 1-2: is it as you wrote it?"
        yield _finding("noticed", "table", words, patients=tuple(dict.fromkeys(dated)))


def _of_decisions(study: Study, table: Examined) -> Iterator[Finding]:
    """What is wrong with a reviewer's table, which is read before any patient is prepared."""
    warnings: list[str] = []
    try:
        decisions_of(study, {p.id for p in table.patients}, warnings.append)
    except UsageError as error:
        yield _finding("refused", "table", str(error))
    yield from (_finding("noticed", "table", words) for words in warnings)


def _files(patient: Patient, settings: Prepare) -> dict[str, Path]:
    """The files of a patient that the study reads, by column."""
    masks = {"tumour_mask": patient.tumour_mask}  # maps are judged by it, whatever `prepare.tumour` says
    if settings.brain in ("auto", "mask"):
        masks["brain_mask"] = patient.brain_mask
    return {name: file for name, file in (patient.scans | masks).items() if file}


def _of_files(study: Study, table: Examined, info: Mapping[Path, FileInfo]) -> Iterator[Finding]:
    """Scans that a patient lacks, and files that are not as they should be; equal faults together."""
    patients: dict[tuple[Severity, str], list[str]] = defaultdict(list)
    files: dict[tuple[Severity, str], list[str]] = defaultdict(list)
    reference = study.prepare.reference
    for p in table.patients:
        own = _files(p, study.prepare)
        empty = [name for name in study.channels if name in table.header and name not in own]
        if empty:
            needed = any(name in study.prepare.needs for name in empty)
            then = "the patient will be excluded" if needed else "it is left empty"
            patients["excluded" if needed else "noticed", f"no scan: {', '.join(empty)}; {then}"].append(p.id)
        finds = study.prepare.finds_tumours and (FLAIR in own or study.prepare.tumour_command)
        if study.prepare.tumour_crop_margin_mm is not None and not finds and "tumour_mask" not in own:
            words = "no tumour mask, which prepare.tumour_crop_margin_mm needs; the patient will be excluded"
            patients["excluded", words].append(p.id)
        faults = {name: info[file].fault for name, file in own.items() if info[file].fault}
        if {"brain_mask", reference} <= own.keys():
            grid_fault = scans.off_grid(info[own["brain_mask"]], info[own[reference]], reference)
            faults |= {"brain_mask": grid_fault} if grid_fault else {}
        for name, fault in faults.items():
            key: tuple[Severity, str] = ("excluded", printable(f"{name}: {fault}"))
            patients[key].append(p.id)
            absent = fault.startswith(ABSENT)  # then the place where it was expected matters
            files[key].append(printable(shown(own[name])) if absent else _relative(own[name], study.cohort))
        if doubtful := [name for name, file in own.items() if info[file].doubtful]:
            words = f"{', '.join(doubtful)}: the file's size differs from what its header announces; `prepare` reads it whole"
            patients["noticed", words].append(p.id)
    for (severity, words), ids in patients.items():
        yield _finding(severity, "scans", words, patients=tuple(ids), files=tuple(files.get((severity, words), ())))


def _relative(file: Path, cohort: Path) -> str:
    """A file by its place beside the table, short and fit to be printed."""
    return printable(shown(path_from(os.path.realpath(cohort.parent), file)))


def _of_copies(study: Study, patients: Sequence[Patient], info: Mapping[Path, FileInfo]) -> Iterator[Finding]:
    """One scan of two patients or visits, which would be on both sides of a fold; or of one patient under two columns."""
    uses: dict[Path, list[tuple[Patient, str]]] = defaultdict(list)
    for p in patients:
        for channel, file in p.scans.items():
            if file:
                uses[file].append((p, channel))
    groups = [*scans.duplicate_files({path: one for path, one in info.items() if path in uses}), *([path] for path in uses)]
    reported: set[frozenset[str]] = set()
    for group in groups:
        users = [use for path in group for use in uses[path]]
        ids = tuple(dict.fromkeys(p.id for p, _ in users))
        if len(users) < 2 or frozenset(ids) in reported:
            continue
        reported.add(frozenset(ids))
        which = ", ".join(f"{p.id} {channel}" for p, channel in users)
        severity, expected = ("refused", "each scan once: keep one") if len(ids) > 1 else ("excluded", "two different scans")
        words = f"the same scan is listed twice ({which}); expected {expected}"
        files = tuple(_relative(path, study.cohort) for path in group)
        yield _finding(severity, "duplicates", words, patients=ids, files=files)
    for group in scans.duplicate_persons(patients):
        words = "labels and clinical columns are all equal: one person under several ids?"
        yield _finding("noticed", "duplicates", words, patients=tuple(p.id for p in group))


def _covariates(study: Study, table: Examined) -> tuple[tuple[str, ...], tuple[Column, ...], list[Finding]]:
    """The columns that a control reads as covariates, how every other is treated, and what is odd in their cells."""
    if not table.patients:
        return (), (), []
    try:
        columns = examined(table.patients, study)
        names = clinical_columns(table.patients, study)
    except UsageError as error:
        return (), (), [_finding("refused", "table", str(error))]
    odd = []
    for column in columns:
        if column.remark:
            rows = tuple(table.rows[row] for row in column.contents.rows)
            ids = tuple(table.patients[row].id for row in column.contents.rows)
            odd.append(_finding("noticed", "plausibility", column.remark, rows=rows, patients=ids))
    named = tuple(
        Column(name=column.name, kind=column.contents.kind, why_not="")
        if column.name in names
        else Column(name=column.name, kind=None, why_not=printable(column.why_not))
        for column in columns
    )
    return tuple(names), named, odd


def _splits(study: Study, patients: Sequence[Patient], kept: Sequence[Patient]) -> tuple[list[Split], list[Finding]]:
    """The study's test folds of the patients who are not excluded; none where they cannot be made, and why."""
    if not patients:
        return [], []
    try:
        folds.check(patients, study.endpoints, study.train)
    except UsageError as error:
        return [], _refused("folds", error)
    if not kept:
        return [], [_finding("refused", "folds", "no patient is left: all of them would be excluded")]
    try:
        return folds.make(kept, study.endpoints, study.train, study.seed), []
    except UsageError as error:
        return [], _refused("folds", error, f"without the excluded, {len(kept)} patients: " * (len(kept) < len(patients)))


def _networks(
    study: Study, patients: Sequence[Patient], kept: Sequence[Patient], splits: Sequence[Split], voxels: float
) -> tuple[Needs | None, list[Finding]]:
    """What the study needs; or which of its networks cannot be built."""
    try:
        comparators.check(study, patients)
    except IntegrityError:
        raise
    except UsageError as error:
        return None, _refused("networks", error)
    findings = [_finding("noticed", "networks", words) for words in comparators.cautions(study)]
    if not splits:
        return None, findings
    from mri_vit.preflight import needs  # here, because it imports torch

    estimate = needs.estimate(study, kept, max(map(len, splits)), voxels)
    lacking = needs.lacking(estimate, study.prepared, study.output)
    return estimate, [*findings, *(_finding("noticed", "resources", words) for words in lacking)]


def count_labels(patients: Sequence[Patient], endpoints: Sequence[Endpoint], splits: Sequence[Split]) -> tuple[Labels, ...]:
    """What is known of each endpoint, in all and in each test fold."""
    counts = []
    for endpoint in endpoints:
        of_all = dict(zip((p.id for p in patients), cohort.strata(patients, endpoint), strict=True))
        whole = _counts(endpoint, of_all.values())
        rare = kind.labels(endpoint).rarest_stratum(Counter(one for one in of_all.values() if one != "?"))
        parts = [
            (repeat, fold, [of_all[i] for i in ids]) for repeat, split in enumerate(splits) for fold, ids in enumerate(split)
        ]
        of_folds = []
        for repeat, fold, here in parts:
            found = _counts(endpoint, here)
            rarest = here.count(rare) if rare else found["known"]
            of_folds.append(Fold(repeat=repeat, fold=fold, **found, rarest=rarest))
        missing, rarest = len(patients) - whole["known"], kind.labels(endpoint).rarest(folds.known_strata(patients, endpoint))
        about = {"endpoint": endpoint.name, "kind": endpoint.kind, "missing": missing, "rarest": rarest}
        counts.append(Labels(**about, **whole, folds=tuple(of_folds)))
    return tuple(counts)


def _counts(endpoint: Endpoint, strata: Iterable[str]) -> dict[str, Any]:
    count = Counter(stratum for stratum in strata if stratum != "?")
    names = ("censored", "the event", endpoint.competing) if endpoint.competing else endpoint.classes or ()
    of_classes = {name: count[str(index)] for index, name in enumerate(names)}
    return {"known": count.total(), "positive": count["1"], "negative": count["0"], "classes": of_classes}


def _strata(fold: Fold) -> Counter[str]:
    """A fold's counts, as folds are balanced over them."""
    of_classes = {str(index): count for index, count in enumerate(fold.classes.values())}
    return +Counter(of_classes or {"0": fold.negative, "1": fold.positive})


def _of_labels(patients: Sequence[Patient], labels: Sequence[Labels], splits: Sequence[Split], train: Train) -> Iterator[Finding]:
    """Endpoints that no patient has, patients without a label, and test folds in which a metric is undefined."""

    def named(fold: Fold) -> str:
        if train.leave_out:
            first = splits[fold.repeat][fold.fold][0]
            return next(p.clinical[train.leave_out] for p in patients if p.id == first)
        return f"fold {fold.fold + 1}" + f" of repeat {fold.repeat + 1}" * (train.repeats > 1)

    for one in labels:
        if not one.known:
            yield _finding("noticed", "labels", f"no patient has a label of {one.endpoint}, so {one.endpoint} is not trained")
            continue
        gaps = {("no known label", "no patient is evaluated there"): [fold for fold in one.folds if not fold.known]}
        for fold in one.folds:
            if fold.known and (gap := kind.part(one.kind, "labels").fold_gap(_strata(fold))):
                gaps.setdefault(gap, []).append(fold)
        for (lack, then), of_folds in gaps.items():
            if of_folds:
                where = ", ".join(map(named, of_folds[:FOLDS_NAMED])) + ", …" * (len(of_folds) > FOLDS_NAMED)
                words = f"{one.endpoint}: {len(of_folds)} of {len(one.folds)} test folds have {lack}; {then} ({where})"
                yield _finding("noticed", "folds", words)
    without = [p.id for p in patients if all(value != value for value in p.labels.values())]
    if without and len(without) < len(patients):
        yield _finding("noticed", "labels", "no label is known; only predictions are made", patients=tuple(without))


def plausibility_findings(
    patients: Sequence[Patient], endpoints: Sequence[Endpoint], columns: Sequence[str]
) -> Iterator[Finding]:
    """All that is unlikely; `columns` are those that a model may read as covariates."""
    for endpoint in endpoints:
        known = [p for p in patients if p.knows(endpoint)]
        rows, origins = cohort.label_rows(known, endpoint), {name: [p.clinical.get(name, "") for p in known] for name in ORIGINS}
        for words, odd in kind.labels(endpoint).remarks(endpoint, rows, origins):
            yield _finding("noticed", "plausibility", words, patients=tuple(known[row].id for row in odd))
        if len(known) > 1 and len(values := np.unique(rows[:, -1])) == 1:
            value = known[0].classes.get(endpoint.name, f"{values[0]:g}")
            words = f"{endpoint.columns[-1]} is {value} in all {len(known)} patients who have it"
            yield _finding("noticed", "plausibility", words)
        column = endpoint.columns[0]
        for name in columns:
            both = [p for p in known if p.clinical[name].strip().lower() not in MISSING]
            if len(both) >= MIN_INFORMATIVE and _determines(
                [p.clinical[name] for p in both], [str(p.labels[column]) for p in both]
            ):
                words = f"column {name} gives {column} away in all {len(both)} patients who have both: is it a copy?"
                yield _finding("noticed", "plausibility", words)
    for first, second in combinations(endpoints, 2):
        both = [p for p in patients if p.knows(first) and p.knows(second)]
        pairs = {(p.labels[first.columns[0]], p.labels[second.columns[0]]) for p in both}
        if len(both) >= MIN_INFORMATIVE and len(pairs) > 1 and all(a == b for a, b in pairs):
            words = f"{first.name} and {second.name} are equal in all {len(both)} patients who have both"
            yield _finding("noticed", "plausibility", words)


def _determines(cells: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether a column's few values determine the label, or its numbers rise with the label's many.

    With few values each stands for several patients, so that none of them is a name.
    """
    values, classes = len(set(cells)), len(set(labels))
    if classes < 2 or values < 2:
        return False
    if classes == 2:
        return values * 5 <= len(cells) and len(set(zip(cells, labels, strict=True))) == values
    return 2 * values > classes and scans.follows(labels, cells)
