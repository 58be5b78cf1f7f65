"""Maps: a prepared patient and the endpoints that may be shown go in; maps in every space of the patient come out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch

from mri_vit.data.cohort import Patient
from mri_vit.explain.methods import patient_maps
from mri_vit.explain.outputs import map_files as images
from mri_vit.explain.outputs.records import MapRecord, NetworkId, parse
from mri_vit.finished import predicted_endpoints
from mri_vit.finished.prediction_document import Binary, BinaryValue, Maps, ShownMap, Survival
from mri_vit.finished.trained_run import FoldOutputs, Place
from mri_vit.model import network
from mri_vit.report import verdicts
from mri_vit.report.schema.patients import MapEvaluation
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import NO_BLOCK, Study

NO_ENDPOINT = "every endpoint is withheld, and a map of what drove a prediction that says nothing says nothing either"
NO_HEAD = "the network whose maps are shown has learned none of the endpoints that are shown"
NOT_VIT = "maps are of Vision Transformers; the run's network is {}"


def why_none(study: Study, shown: Collection[str]) -> str | None:
    """Why a patient gets no maps; None where maps are made."""
    if not study.model.attends:
        return NO_BLOCK if study.model.architecture == "vit" else NOT_VIT.format(study.model.architecture)
    return None if shown else NO_ENDPOINT


def chosen(said: Sequence[FoldOutputs], told: Mapping[str, Binary | Survival]) -> FoldOutputs:
    """The fold whose first network makes by itself most of the calls that all make together; of equals the first."""
    return max(said, key=lambda fold: len(_markers(told)) - len(opposed(fold, told)))


def opposed(fold: FoldOutputs, told: Mapping[str, Binary | Survival]) -> list[str]:
    """The markers that a fold's first network would by itself call otherwise than all together do."""
    return [
        name
        for name, value in _markers(told).items()
        if name in fold.scores[0] and predicted_endpoints.network_side(fold, name, value) != value.side
    ]


def _markers(told: Mapping[str, Binary | Survival]) -> dict[str, BinaryValue]:
    """The markers of which something is shown and called."""
    return {name: one.value for name, one in told.items() if isinstance(one.value, BinaryValue) and one.value.side}


def write_maps(
    patient: Patient,
    study: Study,
    weights: Path,
    at: Place,
    told: Mapping[str, Binary | Survival],
    scored: MapEvaluation | None,
    folder: Path,
) -> Maps | None:
    """Write the maps of one network into `folder`/maps, of the endpoints that are shown alone; None without a head.

    A marker's maps explain what is called, whatever this network would call. It has no other heads meanwhile, so that nothing in
    a map, its title or its shares tells what is withheld. `scored` is the run's evaluation of its maps.
    """
    shown = [name for name, one in told.items() if one.value is not None]
    whole = network.load(weights).to("cuda" if torch.cuda.is_available() else "cpu").eval()
    net = network.with_heads(whole, shown)
    if not net.heads:
        return None
    called = {name: 1 if value.side == "positive" else -1 for name, value in _markers(told).items()}
    images.write_maps(patient_maps.of_patient(patient, net, study, called), study, folder / files.MAPS, NetworkId(VIT, *at))
    file = folder / files.MAPS / files.MAP
    with as_written(file):
        record = parse(MapRecord, read_json(file))
    return _told(record, shown, scored)


def _told(record: MapRecord, shown: Collection[str], scored: MapEvaluation | None) -> Maps:
    """The record with paths as seen from the patient's folder, and with the run's verdicts on each method."""

    def here(name: str) -> str:
        return f"{files.MAPS}/{name}"

    told = []
    for entry in record.maps:
        judged = tuple(one for one in verdicts.map_verdicts(entry.method, entry.endpoint, scored) if one.endpoint in shown)
        told.append(
            ShownMap(
                method=entry.method,
                endpoint=entry.endpoint,
                title=entry.title,
                explains=entry.explains,
                meaning=entry.note,
                source=entry.source,
                unit=entry.unit,
                files={space: here(name) for space, name in entry.files.items()},
                overlay=here(entry.overlay),
                minimum=entry.minimum,
                peak=entry.peak,
                peak_mm=(entry.peak_mm[0], entry.peak_mm[1], entry.peak_mm[2]),
                cls_share=entry.cls_share,  # type: ignore[arg-type]  # None is read as undefined
                by_scan=entry.by_scan,
                kind=judged[0].kind if judged else "undefined",
                verdicts=judged,
            )
        )
    told.sort(key=lambda one: verdicts.MAP_ORDER.index(one.kind))
    return Maps(
        repeat=record.repeat,
        fold=record.fold,
        brain=here(record.brain) if record.brain else None,
        mask=here(record.mask),
        tumour=record.tumour,
        evidence_by_scan=record.score_by_scan,
        maps=tuple(told),
    )
