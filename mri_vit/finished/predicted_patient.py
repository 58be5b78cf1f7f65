"""Predicted patient: one prepared patient's folder, with prediction, maps, pictures and page, complete or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mri_vit import style
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain.methods.catalogue import UNIT
from mri_vit.explain.outputs.overlays import OPACITY, SCALE
from mri_vit.explain.outputs.records import RESEARCH
from mri_vit.finished import predicted_endpoints, predicted_maps, prediction_document
from mri_vit.finished import reference as distribution
from mri_vit.finished import reference as figures
from mri_vit.finished.predicted_endpoints import RunResults, on_line
from mri_vit.finished.prediction_document import (
    Binary,
    BinaryValue,
    Known,
    Prediction,
    Preparation,
    QcFinding,
    ReadFile,
    RunFacts,
    ShownMap,
    Survival,
)
from mri_vit.finished.reference import Reference
from mri_vit.finished.trained_run import FoldOutputs, Place
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.qc.check import findings_of
from mri_vit.report.pages import patient_drawings, patient_pages
from mri_vit.report.reading.run_files import Map
from mri_vit.report.schema.metrics import Step
from mri_vit.report.words import map_sentences, notation
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import as_written
from mri_vit.settings import recipe
from mri_vit.settings.schema import Study

UNLIKE = "verdicts, calibration and percentiles were measured on patients like the run's, and need not hold for this one"
NOTICE = f"{RESEARCH} No decision about a patient may rest on it."
VOLUMES = "scans.js"
MASKS = {"brain_mask": "a mask of the brain", "tumour_mask": "a mask of the tumour"}
FIGURES_SHOWN = 6  # of those by which a patient is compared with the run's; the others are folded


@dataclass(frozen=True, eq=False)
class Basis:
    """What is the same for every patient of one command."""

    facts: RunFacts
    of_run: RunResults
    reference: Reference | str
    weights: Mapping[Place, Path]  # of each fold's first network
    synthetic: Mapping[str, str]  # by patient who is real where the run's patients are not, why nothing of the run holds
    show_untrusted: bool
    home: Path  # from which files are named
    remarks: tuple[str, ...]
    seconds: Mapping[str, float]  # of the stages that were for all patients, for each of them
    versions: Mapping[str, str]


def write_patient(
    patient: Patient, study: Study, said: Sequence[FoldOutputs], known: Known, basis: Basis, folder: Path
) -> Prediction:
    """Write a prepared patient's `folder`, whole or not at all: `index.html`, `prediction.json`, `maps`, the QC picture.

    `said` is what the run's networks say. Raises UnusablePatient where a scan or the tumour mask can no longer be read,
    UsageError where something else lies at `folder`.
    """
    began = time.monotonic()
    refuse_foreign(folder)
    prepared = study.prepared / patient.id
    record, own_figures = load_record(prepared), figures.figures_of(prepared)
    like = distribution.distribution_of(own_figures, {(one.repeat, one.fold): one.features for one in said}, basis.reference)
    compared = time.monotonic()
    doubt = basis.synthetic.get(patient.id)
    told = {
        endpoint.name: predicted_endpoints.of_endpoint(endpoint, said, basis.of_run, basis.show_untrusted, doubt)
        for endpoint in study.endpoints
    }
    shown = [name for name, one in told.items() if one.value is not None]
    no_maps = predicted_maps.why_none(study, shown)
    with complete(folder, refuse_foreign) as beside:
        of_network, explained = None, predicted_maps.chosen(said, told)
        if no_maps is None:
            at, scored = (explained.repeat, explained.fold), basis.of_run.metrics.map_scores
            of_network = predicted_maps.write_maps(patient, study, basis.weights[at], at, told, scored, beside)
        if of_network is None:
            no_maps = no_maps or predicted_maps.NO_HEAD
        shutil.copyfile(prepared / files.QC, beside / files.QC)
        with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
            preparation = _preparation(patient, study, record, int(own_figures.value[figures.TOKENS] or 0), basis.home)
        seconds = {**basis.seconds, "distribution": compared - began, "maps": time.monotonic() - compared}
        made = Prediction(
            schema=prediction_document.SCHEMA,
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
        write_bytes(prediction_document.dumps(made).encode(), beside / prediction_document.FILE)
        write_page(made, basis.of_run, prepared, patient.tumour_mask, beside)
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
    if atomic.entries(folder) and not {"schema", "patient", "endpoints"} <= set(
        integrity.read_json_or_empty(folder / prediction_document.FILE)
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
            for one in findings_of(patient.id, record, study.qc)
        ),
        picture=files.QC,
    )


def _named(file: Path, home: Path) -> str:
    return os.path.relpath(file, home.resolve())


def _remarks(
    patient: Patient,
    known: Known,
    like: prediction_document.Distribution,
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


def _opposed(explained: FoldOutputs, told: Mapping[str, Binary | Survival]) -> Iterator[str]:
    """Markers that the network whose maps are shown would by itself call otherwise."""
    for name in predicted_maps.opposed(explained, told):
        value = told[name].value
        assert isinstance(value, BinaryValue)
        yield (
            f"the maps of {name} show what speaks for {value.side}, as all networks together call it; the network that they are"
            " of would by itself call it otherwise"
        )


def write_page(made: Prediction, run: RunResults, prepared: Path, tumour: Path | None, folder: Path) -> None:
    """Write `index.html`, the volumes that it shows and `viewer/` into a patient's folder, which may then be handed on alone.

    Parameters
    ----------
    made
        The document, whose maps and picture lie in `folder` already.
    run
        Whose out-of-fold scores stand beside the patient's, of the endpoints that are shown alone.
    prepared, tumour
        The prepared patient, and the tumour's mask in the reference's space if there is one.
    """
    maps = made.maps.maps if made.maps else ()
    facts = {"brain": made.maps and made.maps.brain, "maps": [one.model_dump(mode="json") for one in maps]}
    found = Map(made.patient, folder, facts)
    reference = made.preparation.reference
    can_draw = patient_drawings.drawable(found, reference)
    drawn = patient_drawings.viewer_volumes(prepared, found if can_draw else None, tumour, facts["maps"], reference)
    write_bytes(f"window.patientVolumes = {json.dumps(drawn)};\n".encode(), folder / VOLUMES)
    patient_pages.write_viewer(folder / "viewer")
    templates = style.templates("mri_vit.report.pages")
    templates.filters.update(
        per_cent=predicted_endpoints.per_cent,
        number=notation.number,
        title=notation.title,
        sequence=recipe.title,
        interval=notation.interval,
    )
    templates.tests.update(known=notation.is_defined)
    templates.globals.update(kinds=notation.KINDS, marks=notation.MARKS)
    text = templates.get_template("prediction.html").render(
        p=made,
        policy=patient_pages.POLICY,
        name=made.patient,
        volumes=VOLUMES,
        qc=files.QC,
        given=[MASKS.get(one.holds) or recipe.title(one.holds) for one in made.preparation.read],
        strips={name: _strip(run, name, one) for name, one in made.endpoints.items() if one.value},
        curves={name: _curve(run, name, one) for name, one in made.endpoints.items() if isinstance(one, Survival) and one.value},
        strip_width=patient_drawings.STRIP_WIDTH,
        curve_size=(patient_drawings.CURVE_WIDTH, patient_drawings.CURVE_HEIGHT),
        figures_shown=FIGURES_SHOWN,
        maps=[_of_map(one, made) for one in maps],
        unit=UNIT,
        scale=SCALE,
        opacity=OPACITY,
    )
    write_bytes(text.encode(), folder / files.PAGE)


def _strip(run: RunResults, name: str, one: Binary | Survival) -> patient_drawings.ScoreStrip:
    """On the scale on which the call is made, so that the patient lies on its side of the dashed line."""
    assert one.value is not None
    rows = run.of_endpoint(name)
    if isinstance(one, Binary) and one.value.probability:
        line = one.value.probability
        rows = rows.assign(score=on_line(line.slope, line.intercept, rows.score.to_numpy(float)))
        return patient_drawings.score_strip(rows, one.kind, line.value, predicted_endpoints.EVEN, "calibrated probability")
    return patient_drawings.score_strip(rows, one.kind, one.value.score, one.value.threshold)


def _curve(run: RunResults, name: str, one: Survival) -> patient_drawings.SurvivalCurve:
    assert one.value is not None
    known = run.of_endpoint(name).dropna(subset=["time_days", "event"]).drop_duplicates("patient")
    of_all = patient_drawings.cohort_curve(known.time_days.to_numpy(dtype=float), known.event.to_numpy(dtype=bool))
    return patient_drawings.survival_curve([(at.days, at.survival) for at in one.value.horizons], of_all)


def _of_map(one: ShownMap, made: Prediction) -> dict[str, object]:
    """What the page says of a map."""
    assert made.maps is not None
    head = notation.title(one.endpoint) if one.endpoint else "Every endpoint"
    network = {"model": "the run's Vision Transformer", "repeat": made.maps.repeat, "fold": made.maps.fold}
    shares = one.by_scan and {scan: share for scan, share in one.by_scan.items() if not np.isnan(share)}
    return {
        "label": f"{head}: {one.title}",
        "facts": map_sentences.map_facts(network, one.model_dump() | {"by_scan": shares}),
        "verdicts": [f"{notation.title(verdict.endpoint)}: {verdict.sentence}" for verdict in one.verdicts],
        "note": one.meaning,
        "picture": one.overlay,
    }
