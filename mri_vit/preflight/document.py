"""Document: the result of a check of a study, as `mri-vit check --json` prints it and as the terminal shows it.

`json_schema` describes it. A finding with severity "refused" stops the study (exit code 2), "excluded" leaves patients out (3),
"noticed" does neither. In the terminal every line fits into 80 columns unless a single name does not; of many patients or
findings the first are named, and `--json` prints all.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from mri_vit.kinds.kind import part
from mri_vit.preflight import plan
from mri_vit.report.schema.parts import Number, Part
from mri_vit.run.screen import WARNING, counted
from mri_vit.settings.schema import Kind

SCHEMA: Final = 1
Severity = Literal["refused", "excluded", "noticed"]
About = Literal["table", "labels", "folds", "networks", "scans", "duplicates", "plausibility", "resources"]
WIDTH = 80
SHOWN_NAMES = 5  # of patients, rows or files that are named
SHOWN_FINDINGS = 8  # findings about one thing that are shown
SHOWN_FOLDS = 10  # of which each has a figure; of more the range is given
HEADS: dict[Severity, str] = {
    "refused": "Stops the study:",
    "excluded": "Excludes patients:",
    "noticed": "Please check:",
}


class Finding(Part):
    """One thing that is wrong, and the patients, rows and files that it concerns."""

    severity: Severity = Field(description="refused stops the study, excluded leaves the patients out, noticed is to be checked")
    about: About
    said: str = Field(description="what was found and what is expected, as a sentence")
    rows: tuple[int, ...] = Field(default=(), description="lines of the cohort table, the header's being 1")
    patients: tuple[str, ...] = Field(default=(), description="ids, with the session where a patient has several visits")
    files: tuple[str, ...] = Field(
        default=(), description="relative to the cohort table; whole paths of files that are not there"
    )


class Column(Part):
    """A clinical column of the cohort table, and how it is used."""

    name: str
    kind: Literal["number", "category"] | None = Field(description="how the control `clinical` reads it; null where it does not")
    why_not: str = Field(description="why it is not read; empty where it is")


class Fold(Part):
    """An endpoint in one test fold, over all visits that are not excluded."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    known: int = Field(description="visits whose label is known")
    positive: int = Field(description="of these with 1; for survival, with an event; no sense for other kinds")
    negative: int = Field(description="of these with 0; for survival, censored; likewise")
    classes: dict[str, int] = Field(default={}, description="of these by class or grade; empty for other kinds")
    rarest: int = Field(description="of these of the class that is rarest over all folds; for numbers, all")


class Labels(Part):
    """How many labels of one endpoint are known."""

    endpoint: str
    kind: Kind
    known: int = Field(description="visits whose label is known")
    missing: int = Field(description="visits whose label is not known")
    positive: int = Field(description="visits with 1; for survival, with an event; no sense for other kinds")
    negative: int = Field(description="visits with 0; for survival, censored; likewise")
    classes: dict[str, int] = Field(default={}, description="visits by class or grade; empty for other kinds")
    rarest: int = Field(description="the smaller of the two; of survival the events; of classes the rarest; of numbers all")
    folds: tuple[Fold, ...] = Field(description="the study's own test folds; none where they cannot be made")


class Hours(Part):
    """The time of one stage on one CPU core of this machine."""

    stage: str
    hours: float = Field(description="core-hours; patients who are prepared already are not counted")


class Needs(Part):
    """Estimates for a CPU, by a calibration of this machine; training that stops early takes less. A GPU is not estimated."""

    stages: tuple[Hours, ...]
    hours: float = Field(
        description="wall-clock hours with the study's prepare.workers, train.workers and train.threads, on cores of their own"
    )
    calibration_seconds: float = Field(description="that this machine was measured for now; 0 where an earlier check did")
    prepared_bytes: int = Field(description="that patients still to be prepared will take on disk")
    prepared_free_bytes: int = Field(description="free where prepared patients go")
    output_bytes: int = Field(description="that the run will take on disk")
    output_free_bytes: int = Field(description="free where the run goes")
    memory_bytes: int = Field(description="that the most demanding stage needs at a time")
    memory_of: str = Field(description="that stage")
    memory_free_bytes: int = Field(description="available to a process now; 0 where unknown")


class Check(Part):
    """All results of a check; `exit_code` is the command's own."""

    layout: Literal[1] = Field(alias="schema", description="version of this layout")
    study: str = Field(description="name of the study")
    cohort: str = Field(description="file name of the cohort table")
    exit_code: Literal[0, 2, 3]
    visits: int = Field(description="rows of the table that could be read; each visit of a patient is one")
    patients: int = Field(description="patients whose visits these are")
    excluded: tuple[str, ...] = Field(description="visits that would be left out")
    scans: int = Field(description="files that the table names")
    scan_bytes: int = Field(description="that these take on disk")
    covariates: tuple[str, ...] | None = Field(description="columns of the control `clinical`; null without that control")
    columns: tuple[Column, ...] = Field(description="every clinical column, as a covariate or with the reason why not")
    labels: tuple[Labels, ...]
    power: tuple[plan.Power, ...] = Field(description="what each endpoint can show; none where the study cannot run")
    findings: tuple[Finding, ...] = Field(description="the gravest first")
    needs: Needs | None = Field(description="null where faulty networks or folds leave nothing to estimate")
    seconds: Number = Field(description="that the check took")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    schema = Check.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "mri-vit check --json"}


def lines(check: Check) -> Iterator[tuple[str, str]]:
    """The lines and the style of each."""
    several = f" ({check.visits} visits)" * (check.visits != check.patients)
    out = f", {len(check.excluded)} would be excluded" * bool(check.excluded)
    size = f"{check.scans:,} file{'' if check.scans == 1 else 's'}, {_size(check.scan_bytes)}"
    yield from _wrapped(f"{check.study}: {counted(check.patients, 'patient')}{several} in {check.cohort}, {size}{out}", "", "")
    known = ", ".join(f"{one.endpoint} {one.known}" for one in check.labels)
    yield from _wrapped(f"labels known: {known}", "", "")
    if check.covariates is not None:
        kinds = {column.name: f" ({column.kind})" for column in check.columns if column.kind}
        read = ", ".join(name + kinds.get(name, "") for name in check.covariates)
        yield from _wrapped(f"the clinical control reads {read or 'no column, so it will not run'}", "", "")
        others = [f"{column.name or 'a column without a name'} ({column.why_not})" for column in check.columns if column.why_not]
        if others:
            yield from _wrapped(f"it does not read {', '.join(others)}", "", "")
    for severity, head in HEADS.items():
        findings = [finding for finding in check.findings if finding.severity == severity]
        if findings:
            yield "", ""
            yield head, WARNING
            yield from _listed(findings)
    if check.labels:
        yield "", ""
        yield from ((line, "") for line in _table(check.labels))
    for power in check.power:
        yield "", ""
        yield from power_lines(power)
    if check.needs:
        yield "", ""
        yield from _needed(check.needs)


def power_lines(power: plan.Power) -> Iterator[tuple[str, str]]:
    """What an endpoint can show, in sentences of which all but the first are indented."""
    for place, sentence in enumerate(plan.sentences(power)):
        yield from _wrapped(sentence, "  " * (place > 0), "")


def _listed(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """The findings; of many about one thing the first, and how many more there are."""
    shown: Counter[str] = Counter()
    for one in findings:
        shown[one.about] += 1
        if shown[one.about] > SHOWN_FINDINGS:
            continue
        yield from _wrapped(_sentence(one), "- ", WARNING)
    for about, count in shown.items():
        if count > SHOWN_FINDINGS:
            yield from _wrapped(f"and {count - SHOWN_FINDINGS} more about {about}; --json lists all", "- ", WARNING)


def _sentence(finding: Finding) -> str:
    """Rows or patients first, then what it is: "3 patients: no scan: t1; … (P001, P002, P003)"."""
    if finding.rows:
        return f"{'row' if len(finding.rows) == 1 else 'rows'} {_named(finding.rows)}: {finding.said}"
    if len(finding.patients) == 1 and finding.about == "scans":
        file = f" ({finding.files[0]})" if finding.files else ""
        return f"{finding.patients[0]}: {finding.said}{file}"
    if finding.patients and finding.about != "duplicates":
        count = f"{len(finding.patients)} patient" + "s" * (len(finding.patients) > 1)
        first = f"; the first is {finding.files[0]}" if finding.files else ""
        return f"{count}: {finding.said} ({_named(finding.patients)}){first}"
    if finding.patients and finding.severity == "noticed":
        return f"{_named(finding.patients)}: {finding.said}"
    return finding.said


def _named(names: Sequence[object]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(map(str, names[:SHOWN_NAMES])) + f" and {more} more" * (more > 0)


def _wrapped(text: str, mark: str, style: str) -> Iterator[tuple[str, str]]:
    """The text in lines of 80 columns, which break between words alone: a path can be copied."""
    for line in text.splitlines():
        wrapped = textwrap.wrap(
            line, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_long_words=False, break_on_hyphens=False
        )
        yield from ((one, style) for one in wrapped)


def _table(labels: Sequence[Labels]) -> Iterator[str]:
    """Counts by endpoint; of every test fold those of the rarer class."""
    width = max(8, *(len(one.endpoint) for one in labels))
    yield f"{'endpoint':<{width}}  {'known':>6} {'missing':>7} {'1/event':>7} {'0/cens.':>7}  rarer class by test fold"
    for one in labels:
        flags = f"{one.positive:>7} {one.negative:>7}" if part(one.kind, "labels").marked_as else f"{'–':>7} {'–':>7}"
        classes = ", ".join(f"{name} {count}" for name, count in one.classes.items())
        by_fold = _by_fold(one) + (f" ({classes})" if classes else "")
        yield f"{one.endpoint:<{width}}  {one.known:>6} {one.missing:>7} {flags}  {by_fold}"


def _by_fold(labels: Labels) -> str:
    counts = [fold.rarest for fold in labels.folds]
    if len(counts) > SHOWN_FOLDS:
        return f"{min(counts)} to {max(counts)} in {len(counts)} folds"
    return " ".join(map(str, counts)) or "no folds"


def _needed(needs: Needs) -> Iterator[tuple[str, str]]:
    """Hours, disk and memory."""
    each = ", ".join(f"{one.stage} {_hours(one.hours)}" for one in needs.stages)
    yield from _wrapped(
        f"about {_hours(needs.hours)} on the CPU, if no training stops early (on one core: {each}); a GPU trains faster",
        "",
        "",
    )
    disk = (
        f"disk: {_size(needs.prepared_bytes)} for prepared patients ({_size(needs.prepared_free_bytes)} free), "
        f"{_size(needs.output_bytes)} for the run ({_size(needs.output_free_bytes)} free)"
    )
    yield from _wrapped(disk, "", "")
    free = f" ({_size(needs.memory_free_bytes)} free)" * bool(needs.memory_free_bytes)
    yield from _wrapped(f"memory: {_size(needs.memory_bytes)} for {needs.memory_of}{free}", "", "")


def _hours(hours: float) -> str:
    if hours < 1:
        return f"{max(1, round(60 * hours))} min"
    return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"
