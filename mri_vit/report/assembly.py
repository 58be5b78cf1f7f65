"""The whole of `metrics.json`: a run is measured, its results are judged, and the verdicts are put in words."""

from __future__ import annotations

from collections.abc import Mapping

from mri_vit.metrics.added_value import RISK
from mri_vit.report.numbers import everything
from mri_vit.report.numbers.judged import Caveats
from mri_vit.report.numbers.maps import MODEL
from mri_vit.report.reading.run import OWN, Map, Run
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult
from mri_vit.report.schema.maps import ComparatorMaps, EndpointMaps, MapEvaluation, PatientMaps, ShownMap
from mri_vit.report.schema.metrics import Metrics, Result
from mri_vit.report.schema.parts import Kind
from mri_vit.report.schema.patients import Failures
from mri_vit.report.schema.run import Design, Planted, SiteProbe
from mri_vit.report.schema.survival import AddedValue, SurvivalEndpoint
from mri_vit.report.verdicts import maps as map_verdict
from mri_vit.report.verdicts import models as model_verdict
from mri_vit.report.verdicts.models import Verdict
from mri_vit.report.words import added_value as added_value_words
from mri_vit.report.words import map_sentences, model_verdicts, networks, patients
from mri_vit.report.words import model_verdicts as comparator_words
from mri_vit.report.words.caveats import (
    RECALIBRATED,
    not_probability,
    published_figures,
    risk_group_cutoffs,
    score_remark,
    site_probe_sentence,
    too_small,
    with_drift,
    with_expectation,
)
from mri_vit.settings.schema import Study


def metrics(run: Run) -> Metrics:
    """Every number of a run, and every sentence that judges one; `files` are not known yet."""
    measured = everything.measure(run)
    found = measured.metrics
    probes = found.site_probe and site_probes(found.site_probe)
    told = frozenset(model for model, probe in (probes.models if probes else {}).items() if probe.warning)
    leaking = model_verdict.leaking({name: endpoint.models for name, endpoint in found.endpoints.items()})
    endpoints, found_cards = {}, {}
    for name, endpoint in found.endpoints.items():
        judged = model_verdict.of_endpoint(endpoint.models, measured.caveats[name], name in leaking, told)
        endpoints[name] = _endpoint(run, name, endpoint, measured.caveats[name], judged)
        if first := next((model for model in found.shown if model in endpoint.models), None):
            found_cards[name] = model_verdicts.card(first, endpoint.models[first], judged[first])
    scored = found.map_scores and evaluation(found.map_scores, _predicted(endpoints, MODEL), run.study.train.mask_supervised)
    return found.model_copy(
        update={
            "contenders": tuple(networks.described_contender(one, run.study, run.recipes) for one in found.contenders),
            "rules": tuple(model_verdicts.verdict_rules()),
            "endpoints": endpoints,
            "cards": found_cards,
            "failures": {name: _failures(one, endpoints[name]) for name, one in found.failures.items()},
            "drift": {
                name: {model: tuple(map(with_drift, drifts)) for model, drifts in models.items()}
                for name, models in found.drift.items()
            },
            "new_hospital": {
                name: {model: with_expectation(one) for model, one in models.items()}
                for name, models in found.new_hospital.items()
            },
            "planted": planted(run.study.report.expected_verdicts, endpoints),
            "site_probe": probes,
            "maps": tuple(patient(shown, scored) for shown in run.maps),
            "map_scores": scored,
            "comparator_maps": {name: _comparator_maps(run, name, one, endpoints) for name, one in found.comparator_maps.items()},
        }
    )


def _endpoint(
    run: Run,
    name: str,
    endpoint: BinaryEndpoint | SurvivalEndpoint,
    caveats: Mapping[str, Caveats],
    judged: Mapping[str, Verdict],
) -> BinaryEndpoint | SurvivalEndpoint:
    sides = model_verdict.comparator_sides(endpoint.models, judged)
    added = endpoint.added_value if isinstance(endpoint, SurvivalEndpoint) else None
    return endpoint.model_copy(
        update={
            **({"added_value": with_verdict(added)} if added else {}),
            "published": published_figures(name),
            "models": {
                model: _result(result, judged[model], caveats[model], run.notes, run.design)
                for model, result in endpoint.models.items()
            },
            "rivals": sides and comparator_words.comparators(sides, endpoint.models, judged),
            "subgroups": tuple(group.model_copy(update={"warning": too_small(group)}) for group in endpoint.subgroups),
        }
    )


def _result(result: Result, verdict: Verdict, caveats: Caveats, notes: Mapping[str, str], design: Design) -> Result:
    said = {
        "verdict": model_verdicts.verdict_sentence(result, verdict, notes),
        "verdict_kind": verdict.kind,
        "too_good": model_verdicts.too_good(verdict),
    }
    if isinstance(result, BinaryResult):
        label = {"label": RECALIBRATED}
        return result.model_copy(
            update={
                "remark": score_remark("AUC", caveats, result.n),
                "not_probability": not_probability(caveats, result.n),
                "recalibrated": result.recalibrated and result.recalibrated.model_copy(update=label),
                **said,
            }
        )
    return result.model_copy(
        update={
            "remark": score_remark("C", caveats, result.n),
            "cutoffs": risk_group_cutoffs(caveats.has_cutoffs, design, len(result.repeats)),
            **said,
        }
    )


def with_verdict(measured: AddedValue) -> AddedValue:
    """What a risk adds, with its verdict and sentences."""
    analysis = measured.analysis
    kind: Kind = "undefined"
    if not isinstance(analysis, str):
        kind = model_verdict.of_added_value(analysis.both[RISK].value, measured.adjusted_p["risk"])
    judged = measured.model_copy(update={"verdict_kind": kind})
    return judged.model_copy(update={"sentences": tuple(added_value_words.sentences(judged))})


def _failures(found: Failures, endpoint: BinaryEndpoint | SurvivalEndpoint) -> Failures:
    verdict = endpoint.models[found.model].verdict_kind
    return found.model_copy(update={"sentence": patients.failures_sentence(found, verdict)})


def planted(expected: Mapping[str, Kind], endpoints: Mapping[str, BinaryEndpoint | SurvivalEndpoint]) -> dict[str, Planted]:
    """What was planted beside what the study's own model was judged to have found; a coin that looks worse than one is a coin."""
    found = {}
    for name, kind in expected.items():
        result = endpoints[name].models.get(OWN)
        verdict: Kind = result.verdict_kind if result else "undefined"
        alike = verdict == kind or (kind, verdict) == ("chance", "worse")
        found[name] = Planted.model_validate({"planted": kind, "found": verdict, "as_expected": alike})
    return found


def site_probes(found: SiteProbe) -> SiteProbe:
    """The site probe of each model with its verdict."""
    judged = {
        model: probe.model_copy(update={"warning": model_verdict.tells_site(probe)}) for model, probe in found.models.items()
    }
    said = {model: probe.model_copy(update={"sentence": site_probe_sentence(probe)}) for model, probe in judged.items()}
    return found.model_copy(update={"models": said})


def _predicted(endpoints: Mapping[str, BinaryEndpoint | SurvivalEndpoint], model: str) -> dict[str, Kind]:
    """By endpoint the kind of the verdict on the model that maps are of."""
    return {name: one.models[model].verdict_kind if model in one.models else "undefined" for name, one in endpoints.items()}


def _comparator_maps(
    run: Run, model: str, found: ComparatorMaps, endpoints: Mapping[str, BinaryEndpoint | SurvivalEndpoint]
) -> ComparatorMaps:
    """A comparator's maps with their verdicts, by the rules of the own model's."""
    scored = found.scores and evaluation(found.scores, _predicted(endpoints, model), _study_of(run, model).train.mask_supervised)
    shown = tuple(patient(one, scored) for one in run.comparator_maps[model].maps)
    return found.model_copy(update={"maps": shown, "scores": scored})


def _study_of(run: Run, comparator: str) -> Study:
    return next(run.study.of(one) for one in run.study.comparators if one.name == comparator)


def evaluation(found: MapEvaluation, predicted: Mapping[str, Kind], taught: bool) -> MapEvaluation:
    """The maps' evaluation with its verdicts; `predicted` are, by endpoint, the kinds of verdict on the model of the maps, and
    `taught` says whether masks taught it where tumours are.
    """
    endpoints = {name: _endpoint_maps(name, endpoint, predicted[name], taught) for name, endpoint in found.endpoints.items()}
    return found.model_copy(update={"rules": tuple(map_sentences.map_rules()), "endpoints": endpoints})


def _endpoint_maps(name: str, found: EndpointMaps, predicted: Kind, taught: bool) -> EndpointMaps:
    methods = {}
    for method, result in found.methods.items():
        answers = map_verdict.of_method(result, predicted)
        said = {
            "verdict": map_sentences.map_verdict_sentence(result, answers, name, predicted, taught),
            "checks": map_sentences.map_checks(result, answers, taught),
            "verdict_kind": answers.kind,
        }
        methods[method] = result.model_copy(update=said)
    no_finding = None if predicted == "better" else map_sentences.no_finding(name, predicted)
    return found.model_copy(update={"predicted": predicted, "no_finding": no_finding, "taught": taught, "methods": methods})


def patient(shown: Map, scored: MapEvaluation | None) -> PatientMaps:
    """A visit's maps with the verdicts on them, those that carry a finding first."""
    entries = []
    for index, entry in enumerate(shown.facts["maps"]):
        found = map_verdict.of_map(entry["method"], entry["endpoint"], scored)
        keys = ("method", "endpoint", "title", "explains", "unit", "peak", "peak_mm", "by_scan")
        facts = {key: entry.get(key) for key in keys}
        kind = found[0].kind if found else "undefined"
        entries.append(ShownMap.model_validate({**facts, "index": index, "kind": kind, "verdicts": found}))
    entries.sort(key=lambda entry: (map_verdict.ORDER.index(entry.kind), not entry.endpoint))  # ties: the file's order
    head = {key: shown.facts.get(key) for key in ("model", "repeat", "fold", "tokens")}
    return PatientMaps.model_validate({"patient": shown.patient, **head, "maps": entries})
