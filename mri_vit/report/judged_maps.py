"""Maps in `metrics.json`: a visit's own, and a model's evaluation, with the verdicts on them in words."""

from __future__ import annotations

from collections.abc import Mapping

from mri_vit.report import verdicts
from mri_vit.report.numbers import maps
from mri_vit.report.numbers.maps import EndpointMapFigures, MapEvaluationFigures
from mri_vit.report.reading.run import Map, Run
from mri_vit.report.schema.kinds import AnyEndpoint
from mri_vit.report.schema.parts import Kind
from mri_vit.report.schema.patients import ComparatorMaps, EndpointMaps, MapEvaluation, MapResult, PatientMaps, ShownMap
from mri_vit.report.words import map_sentences


def predicted(endpoints: Mapping[str, AnyEndpoint], model: str) -> dict[str, Kind]:
    """By endpoint the kind of the verdict on the model that maps are of."""
    return {name: one.models[model].verdict_kind if model in one.models else "undefined" for name, one in endpoints.items()}


def of_comparator(run: Run, model: str, predicted: Mapping[str, Kind]) -> ComparatorMaps:
    """A comparator's maps with their verdicts, by the rules of the own model's."""
    study = next(run.study.of(one) for one in run.study.comparators if one.name == model)
    figures, shown = maps.measure(run, model), run.comparator_maps[model].maps
    evaluated = figures and evaluation(figures, predicted, study.train.mask_supervised)
    notes = {entry["method"]: entry["note"] for entry in (shown[0].facts["maps"] if shown else ())}
    return ComparatorMaps(maps=tuple(patient(one, evaluated) for one in shown), scores=evaluated, notes=notes)


def evaluation(figures: MapEvaluationFigures, predicted: Mapping[str, Kind], mask_supervised: bool) -> MapEvaluation:
    """The maps' evaluation with its verdicts; `predicted` are, by endpoint, the kinds of verdict on the model of the maps, and
    `mask_supervised` is whether its training was supervised with tumour masks.
    """
    return MapEvaluation(
        patients=figures.patients,
        settings=figures.settings,
        rules=tuple(map_sentences.map_rules()),
        endpoints={name: _endpoint_maps(name, one, predicted[name], mask_supervised) for name, one in figures.endpoints.items()},
    )


def _endpoint_maps(name: str, figures: EndpointMapFigures, predicted: Kind, mask_supervised: bool) -> EndpointMaps:
    methods = {}
    for method, one in figures.methods.items():
        answers = verdicts.map_answers(one, predicted)
        methods[method] = MapResult(
            **dict(one),
            verdict=map_sentences.map_verdict_sentence(one, answers, name, predicted, mask_supervised),
            checks=map_sentences.map_checks(one, answers, mask_supervised),
            verdict_kind=answers.kind,
        )
    return EndpointMaps(
        predicted=predicted,
        no_finding=None if predicted == "better" else map_sentences.no_finding(name, predicted),
        with_tumour=figures.with_tumour,
        mask_supervised=mask_supervised,
        methods=methods,
        curves=figures.curves,
        agreement=figures.agreement,
    )


def patient(shown: Map, scored: MapEvaluation | None) -> PatientMaps:
    """A visit's maps with the verdicts on them, those that carry a finding first."""
    entries = []
    for index, entry in enumerate(shown.facts["maps"]):
        found = verdicts.map_verdicts(entry["method"], entry["endpoint"], scored)
        keys = ("method", "endpoint", "title", "explains", "unit", "peak", "peak_mm", "by_scan")
        facts = {key: entry.get(key) for key in keys} | {"of_class": entry.get("of_class", "")}
        kind = found[0].kind if found else "undefined"
        if entry.get("of_class"):  # maps of the prediction alone are scored
            found, kind = (), "none" if kind == "none" else "undefined"
        entries.append(ShownMap.model_validate({**facts, "index": index, "kind": kind, "verdicts": found}))
    entries.sort(key=lambda entry: (verdicts.MAP_ORDER.index(entry.kind), not entry.endpoint))  # ties: the file's order
    head = {key: shown.facts.get(key) for key in ("model", "repeat", "fold", "tokens")}
    return PatientMaps.model_validate({"patient": shown.patient, **head, "maps": entries})
