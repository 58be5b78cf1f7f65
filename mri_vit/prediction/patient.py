"""Patient: one prepared patient's folder, with their prediction, maps and pictures, whole or not there at all."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain.records import RESEARCH
from mri_vit.prediction import distribution, document, endpoints, figures, maps, page
from mri_vit.prediction.document import (
    Binary,
    BinaryValue,
    Known,
    Prediction,
    Preparation,
    QcFinding,
    ReadFile,
    RunFacts,
    Survival,
)
from mri_vit.prediction.endpoints import OfRun
from mri_vit.prediction.networks import Place, Said
from mri_vit.prediction.reference import Reference
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.qc import limits
from mri_vit.report.schema.run import Step
from mri_vit.run import atomic, files, integrity, ownership
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import as_written
from mri_vit.settings.schema import Study

UNLIKE = "verdicts, calibration and percentiles were measured on patients like the run's, and need not hold for this one"
NOTICE = f"{RESEARCH} No decision about a patient may rest on it."


@dataclass(frozen=True, eq=False)
class Basis:
    """What is the same for every patient of one command."""

    facts: RunFacts
    of_run: OfRun
    reference: Reference | str
    weights: Mapping[Place, Path]  # of each fold's first network
    synthetic: Mapping[str, str]  # by patient who is real where the run's patients are not, why nothing of the run holds
    show_untrusted: bool
    home: Path  # from which files are named
    remarks: tuple[str, ...]
    seconds: Mapping[str, float]  # of the stages that were for all patients, for each of them
    versions: Mapping[str, str]


def write(patient: Patient, study: Study, said: Sequence[Said], known: Known, basis: Basis, folder: Path) -> Prediction:
    """Write a prepared patient's `folder`, whole or not at all: `index.html`, `prediction.json`, `maps`, the QC picture.

    `said` is what the run's networks say. Raises UnusablePatient where a scan or the tumour mask can no longer be read,
    UsageError where something else lies at `folder`.
    """
    began = time.monotonic()
    refuse_foreign(folder)
    prepared = study.prepared / patient.id
    record, own_figures = load_record(prepared), figures.of_patient(prepared)
    like = distribution.of_patient(own_figures, {(one.repeat, one.fold): one.features for one in said}, basis.reference)
    compared = time.monotonic()
    doubt = basis.synthetic.get(patient.id)
    told = {
        endpoint.name: endpoints.of_endpoint(endpoint, said, basis.of_run, basis.show_untrusted, doubt)
        for endpoint in study.endpoints
    }
    shown = [name for name, one in told.items() if one.value is not None]
    no_maps = maps.why_none(study, shown)
    with complete(folder, refuse_foreign) as beside:
        of_network, explained = None, maps.chosen(said, told)
        if no_maps is None:
            at, scored = (explained.repeat, explained.fold), basis.of_run.metrics.map_scores
            of_network = maps.write(patient, study, basis.weights[at], at, told, scored, beside)
        if of_network is None:
            no_maps = no_maps or maps.NO_HEAD
        shutil.copyfile(prepared / files.QC, beside / files.QC)
        with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
            preparation = _preparation(patient, study, record, int(own_figures.value[figures.TOKENS] or 0), basis.home)
        seconds = {**basis.seconds, "distribution": compared - began, "maps": time.monotonic() - compared}
        made = Prediction(
            schema=document.SCHEMA,
            notice=NOTICE,
            patient=patient.id,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            run=basis.facts,
            preparation=preparation,
            known=known,
            distribution=like,
            endpoints=told,
            maps=of_network,
            no_maps=no_maps,
            remarks=tuple(_remarks(patient, known, like, preparation, told, basis))
            + (tuple(_opposed(explained, told)) if of_network else ()),
            seconds={name: round(value, 2) for name, value in (seconds | {"total": sum(seconds.values())}).items()},
            versions=dict(basis.versions),
        )
        write_bytes(document.dumps(made).encode(), beside / document.FILE)
        page.write(made, basis.of_run, prepared, patient.tumour_mask, beside)
    return made


def forget(folder: Path) -> None:
    """Delete an earlier prediction of a patient who is excluded now. Raises UsageError where something else lies there."""
    refuse_foreign(folder)
    if folder.exists():
        shutil.rmtree(folder)


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is nothing, or a patient's prediction of ours."""
    atomic.refuse_link(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected a folder for a patient's prediction, or nothing")
    if ownership.entries(folder) and not {"schema", "patient", "endpoints"} <= set(
        integrity.read_json_or_empty(folder / document.FILE)
    ):
        raise UsageError(f"{folder} holds no prediction of ours; it is left alone: choose another output, or delete it first")


def _preparation(patient: Patient, study: Study, record: Mapping[str, Any], tokens: int, home: Path) -> Preparation:
    steps = tuple(Step.model_validate(step) for step in record["steps"])
    given: dict[str, Path | None] = {**patient.scans, "brain_mask": patient.brain_mask, "tumour_mask": patient.tumour_mask}
    read = tuple(
        ReadFile(holds=name, file=_named(file, home), sha256=record["inputs"].get(name, {}).get("sha256"))
        for name, file in given.items()
        if file
    )
    return Preparation(
        read=read,
        missing=tuple(channel for channel in study.channels if not patient.scans.get(channel)),
        reference=record["reference"],
        brain_source=next(step.source or "" for step in steps if step.step == "brain"),
        brain_ml=record["brain_ml"],
        tokens=tokens,
        steps=steps,
        warnings=tuple(record["warnings"]),
        findings=tuple(
            QcFinding(reason=one.reason, scan=one.scan, figure=one.figure, sentence=one.words)
            for one in limits.of_patient(patient.id, record, study.qc)
        ),
        picture=files.QC,
    )


def _named(file: Path, home: Path) -> str:
    return os.path.relpath(file, home.resolve())


def _remarks(
    patient: Patient,
    known: Known,
    like: document.Distribution,
    preparation: Preparation,
    told: Mapping[str, Binary | Survival],
    basis: Basis,
) -> Iterator[str]:
    """What a reader must know before any number, the gravest first."""
    if patient.id in basis.synthetic:
        yield basis.synthetic[patient.id]
    elif basis.facts.synthetic:
        yield f"the run was trained on synthetic patients ({basis.facts.synthetic}), and this patient is synthetic too"
    if known.twin or known.same_id or known.exposed:
        yield known.sentence
    if like.placement != "within":
        yield like.sentence
    if like.placement == "outside":
        yield UNLIKE
    yield from (
        f"{name} is shown on demand alone, and not to be trusted: {one.untrusted}" for name, one in told.items() if one.untrusted
    )
    yield from (f"checked by the run's limits: {finding.sentence}" for finding in preparation.findings)
    yield from (f"{channel}: no scan; left empty" for channel in preparation.missing)
    yield from basis.remarks


def _opposed(explained: Said, told: Mapping[str, Binary | Survival]) -> Iterator[str]:
    """Markers that the network whose maps are shown would by itself call otherwise."""
    for name in maps.opposed(explained, told):
        value = told[name].value
        assert isinstance(value, BinaryValue)
        yield (
            f"the maps of {name} show what speaks for {value.side}, as all networks together call it; the network that they are"
            " of would by itself call it otherwise"
        )
