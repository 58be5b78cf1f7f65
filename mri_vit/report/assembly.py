"""The whole of `metrics.json`, in one pass: a run is measured, the tests are adjusted, the results judged and put in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mri_vit.report import judged_maps, verdicts
from mri_vit.report.numbers import (
    chance,
    characteristics,
    comparisons,
    hospitals,
    instability,
    maps,
    oddities,
    patients,
    prediction_sets,
    results,
    sites,
    subgroups,
)
from mri_vit.report.numbers.judged import THRESHOLDS, chances_alive, first_repeat
from mri_vit.report.numbers.maps import MODEL
from mri_vit.report.numbers.patients import MIN_PAIRS
from mri_vit.report.numbers.prediction_sets import Absent, Sets
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.hospitals import Hospitals
from mri_vit.report.schema.instability import Instability, PredictionSets
from mri_vit.report.schema.kinds import AnyEndpoint, Numbers, Result
from mri_vit.report.schema.measured import Caveats, ProbeFigures, SubgroupFigures, Worst
from mri_vit.report.schema.metrics import (
    SCHEMA,
    CalibrationDrift,
    ExpectedVerdict,
    Metrics,
    NewHospital,
    Probe,
    Settings,
    SiteProbe,
)
from mri_vit.report.schema.parts import OWN, TABLES, Kind, Nothing
from mri_vit.report.schema.patients import Failures, GroupMaps, MapSettings
from mri_vit.report.verdicts import Verdict
from mri_vit.report.words import (
    caveats,
    interactions,
    margins,
    model_verdicts,
    networks,
    of_kind,
    unlabelled,
    utility,
)
from mri_vit.report.words import instability as instability_words
from mri_vit.report.words.hospitals import hospital_sentences
from mri_vit.report.words.run_facts import failures_sentence
from mri_vit.settings.recipe import NOT_COMPARED, PERMUTED, Model, is_compared
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.settings.sections import Prepare

TRANSDUCTIVE = "transductive"  # the note that names models whose pretraining saw scans of patients judged here


@dataclass(frozen=True)
class Judged:
    """An endpoint whose models are measured and judged; each mapping is by model."""

    settings: Endpoint
    rows: Mapping[str, pd.DataFrame]
    numbers: Mapping[str, Numbers]
    caveats: Mapping[str, Caveats]
    verdicts: Mapping[str, Verdict]

    @property
    def honest(self) -> dict[str, pd.DataFrame]:
        """The rows of the models whose labels are the patients' own."""
        return {model: rows for model, rows in self.rows.items() if model not in PERMUTED}


def metrics(run: Run) -> Metrics:
    """Every number of a run, and every sentence that judges one; `files` are not known yet.

    The same run gives the same numbers: every resampling starts from the study's seed.
    """
    study, seed, external = run.study, run.study.seed, run.design == "external"
    rows = {e.name: results.judged_rows(run, e) for e in study.endpoints}
    sizes = results.family_sizes(study.endpoints, rows)
    measured = {e.name: results.measure(run, e, rows[e.name], sizes) for e in study.endpoints}
    compared = {e.name: results.compare(run, e, rows[e.name], measured[e.name]) for e in study.endpoints}
    numbers = results.adjusted(measured, compared)
    compared = results.ranked(run, numbers)
    shown = results.shown(compared)
    models = [*compared, *(name for name in NOT_COMPARED if name in run.predictions.model.values)]
    numbers = {name: {model: found[model] for model in models if model in found} for name, found in numbers.items()}
    probes = sites.probe_figures(run.probe, seed)
    sited = frozenset(model for model, probe in probes.items() if verdicts.tells_site(probe))
    leaking = verdicts.leaking(numbers)
    judged = {}
    for e in study.endpoints:
        models_of = numbers[e.name]
        limits = {model: measured[e.name][model].caveats for model in models_of}
        judged[e.name] = Judged(
            settings=e,
            rows=rows[e.name],
            numbers=models_of,
            caveats=limits,
            verdicts=verdicts.of_endpoint(models_of, limits, e.name in leaking, sited),
        )
    outcome_of = oddities.outcomes({name: one.honest for name, one in judged.items()})
    endpoints = {name: _endpoint(run, one, shown, outcome_of) for name, one in judged.items()}
    first = {name: model for name, one in judged.items() for model in reversed(shown) if model in one.numbers}
    whose = {name: first.get(name, compared[0]) for name in judged} if compared else {}
    people = patients.measure(run, whose) if compared else ()
    retrained = {
        name: {model: instability.trainings(run, one.settings, model) for model in _drawn(one, shown)}
        for name, one in judged.items()
    }
    sets: dict[str, dict[str, Sets | Absent]] = {
        name: {model: prediction_sets.measure(run, one.settings, model, one.rows[model]) for model in _drawn(one, shown)}
        for name, one in judged.items()
    }
    people = instability.beside(people, whose, retrained, sets)
    worst = patients.measure_failures(people, whose, seed)
    figures = maps.measure(run)
    evaluated = figures and judged_maps.evaluation(figures, judged_maps.predicted(endpoints, MODEL), study.train.mask_supervised)
    folds, repeats = _split(run)
    return Metrics(
        schema=SCHEMA,
        study=study.name,
        seed=seed,
        design=run.design,
        cohort=characteristics.flow(run),
        table1=characteristics.table1(run),
        folds=folds,
        repeats=repeats,
        leave_out=None if run.design in TABLES else study.train.leave_out,
        folds_sha256=run.folds_sha256,
        models=tuple(models),
        compared_models=tuple(
            networks.compared_model(one, study, run.recipes) for one in results.model_costs(run, numbers, compared)
        ),
        shown=tuple(shown),
        transductive=run.notes.get(TRANSDUCTIVE) or None,
        rules=tuple(model_verdicts.verdict_rules()),
        endpoints=endpoints,
        cards={
            name: model_verdicts.card(model, judged[name].numbers[model], judged[name].verdicts[model])
            for name, model in first.items()
        },
        patients=people,
        failures={name: _failures(one, endpoints[name].models[one.model].verdict_kind) for name, one in worst.items()},
        expected_verdicts=expected_verdicts(study.report.expected_verdicts, endpoints),
        site_probe=site_probes(probes) if probes else None,
        internal=run.internal,
        drift={name: _drifts(run, one) for name, one in judged.items()} if external else {},
        new_hospital={name: _new_hospitals(run, one) for name, one in judged.items()} if external else {},
        instability=_instability(judged, retrained, seed),
        prediction_sets={name: made for name, found in sets.items() if (made := _sets(judged[name], found))},
        no_sets={
            name: instability_words.absent_sets(one)
            for name, found in sets.items()
            for one in list(found.values())[:1]
            if not isinstance(one, Sets)
        },
        hospitals={name: found for name, one in judged.items() if (found := _hospitals(run, one))},
        margin=study.report.margin,
        margins=margins.margins(numbers, {name: one.verdicts for name, one in judged.items()}, study.report.margin),
        utility=utility.of_run(run, {name: one.honest for name, one in judged.items()}, numbers, shown, leaking),
        interactions=interactions.of_run(run, {name: one.honest for name, one in judged.items()}, first),
        unlabelled=unlabelled.of_run(run, {name: one.honest for name, one in judged.items()}, first),
        maps=tuple(judged_maps.patient(shown_maps, evaluated) for shown_maps in run.maps),
        map_settings=MapSettings.model_validate(run.maps[0].facts["settings"]) if run.maps else None,
        stale=run.stale,
        map_scores=evaluated,
        map_scans=maps.scan_shares(run.maps, study.channels, seed),
        map_groups=tuple(
            GroupMaps.model_validate({key: entry.get(key) for key in GroupMaps.model_fields}) for entry, _ in run.groups
        ),
        comparator_maps={
            name: judged_maps.of_comparator(run, name, judged_maps.predicted(endpoints, name))
            for name in models
            if name in run.comparator_maps
        },
        settings=Nothing() if run.design in TABLES else _settings(study),
        environment=run.environment,
        tumours=dict(run.located),
        notes={key: note for key, note in run.notes.items() if key != TRANSDUCTIVE},
        preparation=run.preparation,
        files=(),
    )


def _split(run: Run) -> tuple[int, int]:
    """Folds, of which a run that leaves sites out has as many as sites, and repeats; an evaluation has those of its run."""
    if run.design == "external":
        return run.study.train.folds, run.study.train.repeats
    return int(run.predictions.fold.nunique()), int(run.predictions.repeat.nunique())


def _settings(study: Study) -> Settings:
    """What decides the result; the paths are left out, since they are of a machine and not of the study."""
    shape = dict(zip(("dim", "depth", "heads", "mlp"), study.model.shape, strict=True))
    weights = study.model.weights and Path(study.model.weights.name)
    commands = {  # no folder of anyone's
        key: tuple(Path(word).name for word in getattr(study.prepare, key)) for key in ("brain_command", "tumour_command")
    }
    return Settings(
        channels=study.channels,
        grid=study.grid,
        prepare=Prepare.model_validate(dict(study.prepare) | commands),
        model=Model.model_validate(dict(study.model) | shape | {"weights": weights}),
        pretrain=Nothing() if study.pretrain.method == "none" else study.pretrain,  # what did not happen has no settings
        train=study.train,
        controls=study.controls,
        explain=study.explain,
    )


def _endpoint(run: Run, judged: Judged, shown: Sequence[str], outcome_of: Mapping[str, str]) -> AnyEndpoint:
    """What belongs to the endpoint as a whole, and its models; subgroups of the models shown."""
    settings, numbers, seed = judged.settings, judged.numbers, run.study.seed
    words = of_kind.of(settings.kind)
    known = of_kind.labelled(judged.rows, ("patient",))
    ordered = {model: judged.rows[model] for model in numbers}
    alive = {model: chances_alive(run.survival, settings, rows) for model, rows in ordered.items()} if len(run.survival) else {}
    inflated = max((chance.inflation(rows, run.design) for rows in ordered.values()), default=1.0)
    of_one = max((chance.inflation(first_repeat(rows), run.design) for rows in ordered.values()), default=1.0)
    sides = verdicts.comparator_sides(numbers, judged.verdicts)
    drawn = {model: rows for model, rows in judged.rows.items() if model in shown}
    groups = subgroups.subgroup_figures(settings, run.cohort, run.study.report.subgroups, drawn, run.design, alive)
    models: dict[str, Any] = {
        model: _result(run, numbers[model], judged.verdicts[model], judged.caveats[model]) for model in numbers
    }
    shared: dict[str, Any] = {
        "known": len(known),
        "warnings": tuple(_oddities(run, judged, outcome_of)),
        "published": caveats.published_figures(settings.name),
        "comparators": sides and model_verdicts.comparators(sides, numbers, judged.verdicts),
        "pairs": comparisons.pairs_of_endpoint(settings, ordered, alive, inflated, of_one, seed),
        "thresholds": tuple(THRESHOLDS.tolist()),
        "models": models,
        "subgroups": tuple(words.subgroup(settings, group, _subgroup(group, words)) for group in groups),
    }
    return words.endpoint(run, settings, judged.rows, shown, shared)


def _oddities(run: Run, judged: Judged, outcome_of: Mapping[str, str]) -> Iterator[str]:
    """Signs that rows are not what they seem, of compared models; those of the patients alone once."""
    endpoint, orders, site_of = judged.settings, oddities.positions(run.cohort), results.site_of(run)
    compared = {model: rows for model, rows in judged.rows.items() if is_compared(model)}
    tests = len(compared) * len(run.study.endpoints)
    copies: list[tuple[str, ...]] = []
    for model, rows in compared.items():
        if orders and (found := oddities.ordered(endpoint, rows, orders, site_of, tests)):
            yield caveats.ordered_sentence(model, found)
        if apart := oddities.contradiction(rows, tests):
            yield caveats.contradiction_sentence(model, apart)
        copies = copies or oddities.copies(rows, outcome_of, tests)
    if copies:
        yield caveats.copies_sentence(copies)
    if compared and (groups := oddities.scans_of_one(next(iter(compared.values())), site_of)):
        yield caveats.scans_of_one_sentence(groups)


def _subgroup(group: SubgroupFigures, words: of_kind.Words) -> dict[str, Any]:
    fields = {key: getattr(group, key) for key in ("column", "level", "model", "n", "value", "low", "high", "small")}
    beside = {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in group.beside.items()}
    return fields | {"warning": words.too_small(group), "beside": beside}


def _result(run: Run, numbers: Numbers, verdict: Verdict, limits: Caveats) -> Result:
    sentences: dict[str, Any] = {
        "remark": caveats.score_remark(numbers.symbol, limits, numbers.n),
        "too_good": model_verdicts.too_good(verdict),
        "verdict": model_verdicts.verdict_sentence(numbers, verdict, run.notes),
        "verdict_kind": verdict.kind,
        "probabilities": model_verdicts.probabilities(numbers, verdict),
    }
    return of_kind.of_result(numbers).result(numbers, sentences, limits, run.design)


def _drawn(judged: Judged, shown: Sequence[str]) -> list[str]:
    return [model for model in shown if model in judged.numbers]


def _instability(
    judged: Mapping[str, Judged], retrained: Mapping[str, Mapping[str, Sequence[instability.Trainings]]], seed: int
) -> dict[str, dict[str, tuple[Instability, ...]]]:
    """By endpoint and model that was trained several times."""
    found = {
        name: {
            model: tuple(instability_words.instability(instability.figures(judged[name].settings, one, seed)) for one in several)
            for model, several in models.items()
            if several
        }
        for name, models in retrained.items()
    }
    return {name: models for name, models in found.items() if models}


def _sets(judged: Judged, found: Mapping[str, Sets | Absent]) -> dict[str, PredictionSets]:
    return {
        model: instability_words.prediction_sets(one.figures, judged.verdicts[model].kind)
        for model, one in found.items()
        if isinstance(one, Sets)
    }


def _failures(worst: Worst, verdict: Kind) -> Failures:
    return Failures(**vars(worst), fewest_pairs=MIN_PAIRS, sentence=failures_sentence(worst, verdict))


def expected_verdicts(expected: Mapping[str, Kind], endpoints: Mapping[str, AnyEndpoint]) -> dict[str, ExpectedVerdict]:
    """The expected verdicts beside those on the study's own model; “worse than chance” counts as chance."""
    found = {}
    for name, kind in expected.items():
        result = endpoints[name].models.get(OWN)
        verdict: Kind = result.verdict_kind if result else "undefined"
        alike = verdict == kind or (kind, verdict) == ("chance", "worse")
        found[name] = ExpectedVerdict.model_validate({"expected": kind, "found": verdict, "as_expected": alike})
    return found


def site_probes(probes: Mapping[str, ProbeFigures]) -> SiteProbe:
    """The site probe of each model with its verdict."""
    models = {}
    for model, probe in probes.items():
        warning = verdicts.tells_site(probe)
        models[model] = Probe(**vars(probe), warning=warning, sentence=caveats.site_probe_sentence(probe, warning))
    return SiteProbe(site_column=results.SITE_COLUMN, models=models)


def _drifts(run: Run, judged: Judged) -> dict[str, tuple[CalibrationDrift, ...]]:
    return {
        model: tuple(
            CalibrationDrift(**vars(drift), sentence=caveats.drift_sentence(drift, bool(judged.settings.competing)))
            for drift in drifts
        )
        for model, drifts in sites.calibration_drift(run, judged.settings, judged.honest).items()
    }


def _new_hospitals(run: Run, judged: Judged) -> dict[str, NewHospital]:
    expected = {model: sites.new_hospital(judged.settings, rows, run.cohort) for model, rows in judged.honest.items()}
    return {model: NewHospital(**vars(one), sentence=caveats.expectation_sentence(one)) for model, one in expected.items() if one}


def _hospitals(run: Run, judged: Judged) -> dict[str, Hospitals]:
    """Of each compared model by hospital."""
    compared = {model: rows for model, rows in judged.rows.items() if model in judged.numbers and is_compared(model)}
    found = {model: hospitals.measure(run, judged.settings, rows) for model, rows in compared.items()}
    return {
        model: Hospitals(**vars(one), sentences=hospital_sentences(judged.numbers[model], one))
        for model, one in found.items()
        if one
    }
