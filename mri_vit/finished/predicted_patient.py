"""Predicted patient: one prepared patient's folder, with prediction, maps, pictures and page, complete or absent."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mri_vit import style
from mri_vit.data import volume
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read_mask
from mri_vit.errors import UsageError
from mri_vit.explain.methods import patient_maps
from mri_vit.explain.methods.catalogue import UNIT
from mri_vit.explain.outputs import map_files
from mri_vit.explain.outputs.overlays import OPACITY, SCALE
from mri_vit.explain.outputs.records import RESEARCH, MapRecord, NetworkId, parse
from mri_vit.finished import of_kind, predicted_endpoints, prediction_document, reference
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.out_of_fold import MONTH_DAYS, OutOfFold
from mri_vit.finished.prediction_document import (
    AnyPredicted,
    Distribution,
    Known,
    Maps,
    Prediction,
    Preparation,
    QcFinding,
    ReadFile,
    ShownMap,
    Survival,
)
from mri_vit.finished.reference import Reference
from mri_vit.finished.trained_model import TrainedModel
from mri_vit.finished.trained_run import Place
from mri_vit.model import network
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.prepare.tumour import described, of_record
from mri_vit.qc.check import findings_of
from mri_vit.report import verdicts
from mri_vit.report.numbers import measures
from mri_vit.report.pages import page_pictures, patient_pages
from mri_vit.report.reading.run_files import Map
from mri_vit.report.schema.parts import Step, Tumour
from mri_vit.report.words import instability, map_sentences, notation
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings import recipe
from mri_vit.settings.recipe import VIT, Model
from mri_vit.settings.schema import NO_BLOCK, Endpoint, Study

UNLIKE = "verdicts, calibration and percentiles were measured on patients like the run's, and may not hold for this one"
NOTICE = f"{RESEARCH} No decision about a patient may rest on it."
VOLUMES = "scans.js"
MASKS = {"brain_mask": "a mask of the brain", "tumour_mask": "a mask of the tumour"}
MEASURES_SHOWN = 6  # of the comparison with the run's patients; the others are folded
NO_ENDPOINT = "all endpoints are withheld, and a map of an unreliable prediction is unreliable too"
NO_HEAD = "the network chosen for maps has not learned any endpoint that is shown"
NOT_VIT = "maps need a Vision Transformer; the run's network is {}"
Endpoints = Mapping[str, AnyPredicted]  # by name


@dataclass(frozen=True, eq=False)
class Basis:
    """What is the same for every patient of one command."""

    model: TrainedModel
    reference: Reference | str
    synthetic: Mapping[str, str]  # by real patient of a run of synthetic ones, why nothing of the run holds
    show_untrusted: bool
    home: Path  # from which files are named
    remarks: tuple[str, ...]
    seconds: Mapping[str, float]  # per patient, of the stages that were for all patients
    versions: Mapping[str, str]


def write_patient(
    patient: Patient, study: Study, outputs: Sequence[FoldOutputs], known: Known, basis: Basis, folder: Path
) -> Prediction:
    """Write a prepared patient's `folder`, complete or not at all: `index.html`, `prediction.json`, `maps`, the QC picture.

    Raises UnusablePatient where a scan or the tumour mask can no longer be read, UsageError where something else lies at
    `folder`.
    """
    began = time.monotonic()
    refuse_foreign(folder)
    prepared = study.prepared / patient.id
    record, measures = load_record(prepared), reference.figures_of(prepared)
    features = {(fold.repeat, fold.fold): fold.features for fold in outputs}
    distribution = reference.distribution_of(measures, features, basis.reference)
    compared = time.monotonic()
    doubt = basis.synthetic.get(patient.id)
    endpoints = {
        endpoint.name: predicted_endpoints.of_endpoint(
            endpoint, outputs, basis.model.endpoints[endpoint.name], basis.show_untrusted, doubt
        )
        for endpoint in study.endpoints
    }
    no_maps = why_no_maps(study.model, [name for name, endpoint in endpoints.items() if endpoint.value is not None])
    with complete(folder, refuse_foreign) as beside:
        maps, explained = None, explained_fold(outputs, endpoints)
        if no_maps is None:
            place = (explained.repeat, explained.fold)
            maps = _write_maps(patient, study, basis.model, place, endpoints, beside)
            no_maps = NO_HEAD if maps is None else None
        shutil.copyfile(prepared / files.QC, beside / files.QC)
        with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
            preparation = _preparation(patient, study, record, int(measures.value[reference.TOKENS] or 0), basis.home)
        if patient.tumour_mask:  # so that the folder, passed on by itself, has it
            tumour = read_mask(patient.tumour_mask)
            volume.write(Volume((tumour.array != 0).astype(np.uint8), tumour.affine), beside / files.TUMOUR)
        seconds = {**basis.seconds, "distribution": compared - began, "maps": time.monotonic() - compared}
        remarks = [*_remarks(patient, known, distribution, preparation, endpoints, basis)]
        remarks += [
            f"the maps of {name} come from one network, which by itself calls it otherwise; the average of all networks calls it"
            f" {getattr(endpoints[name].value, 'side', None)}"
            for name in (opposed(explained, endpoints) if maps else ())
        ]
        made = Prediction(
            schema=prediction_document.SCHEMA,
            notice=NOTICE,
            patient=patient.id,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            run=basis.model.facts,
            preparation=preparation,
            known=known,
            distribution=distribution,
            endpoints=endpoints,
            maps=maps,
            no_maps=no_maps,
            remarks=tuple(remarks),
            seconds={name: round(value, 2) for name, value in (seconds | {"total": sum(seconds.values())}).items()},
            versions=dict(basis.versions),
        )
        write_bytes(prediction_document.dumps(made).encode(), beside / prediction_document.FILE)
        write_page(made, study, basis.model.endpoints, prepared, patient.tumour_mask or patient.drawn_mask, beside)
    return made


def forget(folder: Path) -> None:
    """Delete the earlier prediction of a patient who is now excluded. Raises UsageError where something else lies there."""
    refuse_foreign(folder)
    if folder.exists():
        shutil.rmtree(folder)


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent, or a patient's prediction of ours."""
    atomic.refuse_link(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected a folder for a patient's prediction, or nothing")
    if atomic.entries(folder) and not {"schema", "patient", "endpoints"} <= set(
        integrity.read_json_or_empty(folder / prediction_document.FILE)
    ):
        raise UsageError(
            f"{folder} holds no prediction of mri-vit; it is left unchanged: choose another output, or delete it first"
        )


def _preparation(patient: Patient, study: Study, record: Mapping[str, Any], tokens: int, home: Path) -> Preparation:
    steps = tuple(Step.model_validate(step) for step in record["steps"])
    found = of_record(record)
    given = patient.tumour_mask if found["source"] == "given" else patient.drawn_mask
    inputs: dict[str, Path | None] = {**patient.scans, "brain_mask": patient.brain_mask, "tumour_mask": given}
    read = tuple(
        ReadFile(holds=name, file=files.path_from(home.resolve(), file), sha256=record["inputs"].get(name, {}).get("sha256"))
        for name, file in inputs.items()
        if file
    )
    return Preparation(
        read=read,
        missing=tuple(channel for channel in study.channels if not patient.scans.get(channel)),
        reference=record["reference"],
        brain_source=next(step.source or "" for step in steps if step.step == "brain"),
        brain_ml=record["brain_ml"],
        tumour=Tumour.model_validate({name: found[name] for name in Tumour.model_fields if name in found}),
        tokens=tokens,
        steps=steps,
        warnings=tuple(record["warnings"]),
        findings=tuple(
            QcFinding(reason=finding.reason, scan=finding.scan, figure=finding.figure, sentence=finding.words)
            for finding in findings_of(patient.id, record, study.qc)
        ),
        picture=files.QC,
    )


def _remarks(
    patient: Patient, known: Known, distribution: Distribution, preparation: Preparation, endpoints: Endpoints, basis: Basis
) -> Iterator[str]:
    """What a reader must know before any number, the most serious first."""
    if patient.id in basis.synthetic:
        yield basis.synthetic[patient.id]
    elif basis.model.facts.synthetic:
        yield f"the run was trained on synthetic patients ({basis.model.facts.synthetic}), and this patient is synthetic too"
    if known.twin or known.same_id or known.exposed:
        yield known.sentence
    if distribution.placement != "within":
        yield distribution.sentence
    if distribution.placement == "outside":
        yield UNLIKE
    for name, endpoint in endpoints.items():
        if endpoint.untrusted:
            yield f"{notation.title(name)} is shown only on request and is unreliable: {endpoint.untrusted}"
    yield from (f"outside the run's quality limits: {finding.sentence}" for finding in preparation.findings)
    yield from (f"{channel}: no scan; left empty" for channel in preparation.missing)
    yield from basis.remarks


def why_no_maps(settings: Model, shown: Collection[str]) -> str | None:
    """Why a patient gets no maps; None where maps are made."""
    if not settings.attends:
        return NO_BLOCK if settings.architecture == "vit" else NOT_VIT.format(settings.architecture)
    return None if shown else NO_ENDPOINT


def explained_fold(outputs: Sequence[FoldOutputs], endpoints: Endpoints) -> FoldOutputs:
    """The fold whose first network agrees with most calls of all networks together; of equals the first."""
    return min(outputs, key=lambda fold: len(opposed(fold, endpoints)))


def opposed(fold: FoldOutputs, endpoints: Endpoints) -> list[str]:
    """The markers that a fold's first network alone would call otherwise than all networks together."""
    return [
        name
        for name, endpoint in endpoints.items()
        if endpoint.value and name in fold.scores[0] and of_kind.of(endpoint.kind).called_otherwise(name, fold, endpoint.value)
    ]


def _write_maps(
    patient: Patient,
    study: Study,
    model: TrainedModel,
    place: Place,
    endpoints: Endpoints,
    folder: Path,
) -> Maps | None:
    """Write one network's maps of the shown endpoints into `folder`/maps; None where the network has none of their heads.

    Maps explain the call of a marker or class, whatever this network alone would call. Heads of withheld endpoints are
    removed first, so that no map, title or share reveals them.
    """
    shown = [name for name, endpoint in endpoints.items() if endpoint.value is not None]
    net = network.with_heads(model.of_fold(place)[0].eval(), shown)
    if not net.heads:
        return None
    asked = {name: of_kind.of(one.kind).question(one.value) for name, one in endpoints.items() if one.value}
    questions = {name: question for name, question in asked.items() if question is not None}
    computed = patient_maps.of_patient(patient, net, study, questions)
    map_files.write_maps(computed, study, folder / files.MAPS, NetworkId(VIT, *place))
    file = folder / files.MAPS / files.MAP
    with as_written(file):
        record = parse(MapRecord, read_json(file))
    maps = []
    for entry in record.maps:
        found = () if entry.of_class else model.maps.get(entry.method, ())  # which no run scores
        judged = tuple(row for row in found if row.endpoint in shown and entry.endpoint in ("", row.endpoint))
        maps.append(
            ShownMap(
                method=entry.method,
                endpoint=entry.endpoint,
                title=entry.title,
                explains=entry.explains,
                meaning=entry.note,
                source=entry.source,
                unit=entry.unit,
                files={space: f"{files.MAPS}/{name}" for space, name in entry.files.items()},
                overlay=f"{files.MAPS}/{entry.overlay}",
                minimum=entry.minimum,
                peak=entry.peak,
                peak_mm=(entry.peak_mm[0], entry.peak_mm[1], entry.peak_mm[2]),
                cls_share=entry.cls_share,  # type: ignore[arg-type]  # None is read as undefined
                by_scan=entry.by_scan,
                kind=judged[0].kind if judged else "undefined",
                verdicts=judged,
            )
        )
    return Maps(
        repeat=record.repeat,
        fold=record.fold,
        brain=f"{files.MAPS}/{record.brain}" if record.brain else None,
        mask=f"{files.MAPS}/{record.mask}",
        tumour=record.tumour,
        maps=tuple(sorted(maps, key=lambda shown: verdicts.MAP_ORDER.index(shown.kind))),
    )


def write_page(
    made: Prediction, study: Study, run: Mapping[str, OutOfFold], prepared: Path, tumour: Path | None, folder: Path
) -> None:
    """Write `index.html`, its volumes and `viewer/` into a patient's folder, which can then be passed on by itself.

    Parameters
    ----------
    made
        The document; its maps and picture are in `folder` already.
    study, run
        The endpoints, and the out-of-fold scores of each, which are drawn beside the patient's, for shown endpoints only.
    prepared, tumour
        The prepared patient, and the tumour's mask in the reference's space if there is one.
    """
    maps = made.maps.maps if made.maps else ()
    facts = {"brain": made.maps and made.maps.brain, "maps": [shown.model_dump(mode="json") for shown in maps]}
    patient_map = Map(made.patient, folder, facts)
    channel = made.preparation.reference
    drawable = page_pictures.drawable(patient_map, channel)
    shown = {name for name, one in made.endpoints.items() if one.value}
    drawn = page_pictures.viewer_volumes(prepared, patient_map if drawable else None, tumour, facts["maps"], channel)
    write_bytes(f"window.patientVolumes = {json.dumps(drawn)};\n".encode(), folder / VOLUMES)
    patient_pages.write_viewer(folder / "viewer")
    templates = style.templates("mri_vit.report.pages")
    templates.filters.update(
        per_cent=predicted_endpoints.per_cent,
        number=notation.number,
        counted=notation.counted,
        title=notation.title,
        sequence=recipe.title,
        interval=notation.interval,
        answer=instability.answer_in_words,
    )
    templates.tests.update(known=notation.is_defined)
    templates.globals.update(kinds=notation.KINDS, marks=notation.MARKS, symbols=notation.SYMBOLS)
    text = templates.get_template("prediction.html").render(
        p=made,
        policy=patient_pages.POLICY,
        name=made.patient,
        volumes=VOLUMES,
        qc=files.QC,
        tumour=described(made.preparation.tumour.model_dump(exclude_none=True)),
        given=[MASKS.get(file.holds) or recipe.title(file.holds) for file in made.preparation.read],
        strips={one.name: _strip(run[one.name], one, made.endpoints[one.name]) for one in study.endpoints if one.name in shown},
        scales={name: _on_strip(one).scale for name, one in made.endpoints.items() if name in shown},
        curves={name: _curve(run[name], one) for name, one in made.endpoints.items() if isinstance(one, Survival) and one.value},
        strip_width=page_pictures.STRIP_WIDTH,
        curve_size=(page_pictures.CURVE_WIDTH, page_pictures.CURVE_HEIGHT),
        figures_shown=MEASURES_SHOWN,
        maps=[_of_map(one, made) for one in maps],
        unit=UNIT,
        scale=SCALE,
        opacity=OPACITY,
    )
    write_bytes(text.encode(), folder / files.PAGE)


def _on_strip(one: AnyPredicted) -> of_kind.Strip:
    return of_kind.of(one.kind).on_strip(one)


def _strip(run: OutOfFold, endpoint: Endpoint, one: AnyPredicted) -> page_pictures.ScoreStrip:
    found = _on_strip(one)
    ends = measures.of(endpoint).score_ends
    return page_pictures.score_strip(run.groups.get(found.column, {}), ends, found.own, found.threshold, found.scale)


def _curve(run: OutOfFold, one: Survival) -> page_pictures.SurvivalCurve:
    assert one.value is not None
    of_all = [(month * MONTH_DAYS, alive) for month, alive in enumerate(run.alive)]
    points = [(at.days, at.survival) for at in one.value.horizons]
    return page_pictures.survival_curve(points, page_pictures.polyline(of_all), competing=one.competing is not None)


def _of_map(one: ShownMap, made: Prediction) -> dict[str, object]:
    """The page's text and picture of a map."""
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
