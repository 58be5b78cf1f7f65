"""Every number of the report: a run in, `metrics.json` without its verdicts and words out.

Repeats and folds are counted from 0, as in `predictions.csv`; the page counts them from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit.metrics import decision
from mri_vit.qc.stage import kind
from mri_vit.report.numbers import (
    added_value,
    binary,
    chance,
    comparators,
    compare,
    drift,
    failures,
    follow_up,
    map_scans,
    maps,
    new_hospital,
    pairwise,
    patients,
    site_probe,
    subgroups,
    survival,
    table1,
)  # fmt: skip
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import chances_alive, in_order, known_rows
from mri_vit.report.numbers.pooled import Caveats
from mri_vit.report.reading.run import OWN, Run, subject
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult
from mri_vit.report.schema.elsewhere import NewHospital
from mri_vit.report.schema.maps import ComparatorMaps, GroupMaps, MapSettings
from mri_vit.report.schema.metrics import SCHEMA, Metrics, Result
from mri_vit.report.schema.run import Cohort, Nothing, Settings
from mri_vit.report.schema.survival import SurvivalEndpoint, SurvivalResult
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.models import NO_CANDIDATES, PERMUTED, SITE, is_bar, is_candidate
from mri_vit.settings.schema import Study

RIVALLED = tuple(name for name in NO_CANDIDATES if is_bar(name))  # the controls that a candidate must beat
SITE_COLUMN = "site"  # of the cohort table
TRANSDUCTIVE = "transductive"  # the note that names models whose pretraining saw scans of patients judged here

Tables = Mapping[str, pd.DataFrame]  # by model, the rows that are judged
Results = Mapping[str, Result]  # by model


@dataclass(frozen=True)
class Measured:
    """All that is measured, before it is judged: verdicts are "undefined", and sentences are empty."""

    metrics: Metrics
    caveats: Mapping[str, Mapping[str, Caveats]]  # of each result, by endpoint and model


def measure(run: Run) -> Measured:
    """Compute all that the report shows, from the run's tables alone.

    The same run gives the same numbers: every resampling starts from the study's seed.
    """
    asked = run.study.endpoints
    tables = {endpoint.name: _tables(run, endpoint) for endpoint in asked}
    results = compare.adjusted({endpoint.name: _results(run, endpoint, tables[endpoint.name]) for endpoint in asked})
    order = comparators.ranked(run, results)
    shown = comparators.shown(order)
    models = [*order, *(name for name in NO_CANDIDATES if name in run.predictions.model.values)]
    results = {name: {model: found[model] for model in models if model in found} for name, found in results.items()}
    folds, repeats = _split(run)
    chief = {name: next((model for model in shown if model in found), order[0]) for name, found in results.items() if order}
    people = patients.measure(run, chief) if order else ()
    abroad = run.design == "external"
    metrics = Metrics(
        schema=SCHEMA,
        study=run.study.name,
        seed=run.study.seed,
        design=run.design,
        cohort=_cohort(run),
        table1=table1.measure(run),
        folds=folds,
        repeats=repeats,
        leave_out=None if run.design == "table" else run.study.train.leave_out,
        folds_sha256=run.folds_sha256,
        models=tuple(models),
        contenders=comparators.measure(run, results, order),
        shown=tuple(shown),
        transductive=run.notes.get(TRANSDUCTIVE) or None,
        rules=(),
        endpoints={e.name: _endpoint(run, e, tables[e.name], results[e.name], shown) for e in asked},
        cards={},
        patients=people,
        failures=failures.measure(people, chief, run.study.seed),
        planted={},
        site_probe=site_probe.measure(run.probe, run.study.seed),
        internal=run.internal,
        drift={e.name: drift.measure(run, e, _honest(tables[e.name])) for e in asked} if abroad else {},
        new_hospital={e.name: _new_hospitals(run, e, tables[e.name]) for e in asked} if abroad else {},
        maps=(),
        map_settings=MapSettings.model_validate(run.maps[0].facts["settings"]) if run.maps else None,
        stale=run.stale,
        map_scores=maps.measure(run),
        map_scans=map_scans.measure(run.maps, run.study.channels, run.study.seed),
        map_groups=tuple(_group_maps(entry) for entry, _ in run.groups),
        comparator_maps={name: _comparator_maps(run, name) for name in models if name in run.comparator_maps},
        settings=Nothing() if run.design == "table" else _settings(run.study),
        environment=run.environment,
        notes={key: note for key, note in run.notes.items() if key != TRANSDUCTIVE},
        preparation=run.preparation,
        files=(),
    )
    return Measured(metrics, {endpoint.name: _caveats(endpoint, tables[endpoint.name]) for endpoint in asked})


def _honest(tables: Tables) -> Tables:
    """Of the models whose labels are the patients' own."""
    return {model: rows for model, rows in tables.items() if model not in PERMUTED}


def _new_hospitals(run: Run, endpoint: Endpoint, tables: Tables) -> dict[str, NewHospital]:
    found = {model: new_hospital.measure(endpoint, rows, run.cohort) for model, rows in _honest(tables).items()}
    return {model: one for model, one in found.items() if one}


def _split(run: Run) -> tuple[int, int]:
    """Folds, of which a run that leaves sites out has as many as sites, and repeats; an evaluation has those of its run."""
    if run.design == "external":
        return run.study.train.folds, run.study.train.repeats
    return int(run.predictions.fold.nunique()), int(run.predictions.repeat.nunique())


def _cohort(run: Run) -> Cohort:
    """The flow of patients. A patient is excluded when every visit was; then each of the reasons is counted."""
    people, predicted = set(run.cohort.patient), set(run.predictions.patient)
    named = [subject(name, people) for name in run.excluded.patient]
    faults = run.excluded.assign(patient=named, reason=[kind(reason) for reason in run.excluded.reason])
    faults = faults.loc[~faults.patient.isin(predicted)].drop_duplicates(["patient", "reason"])
    excluded = set(faults.patient)
    return Cohort(
        patients=len(people | excluded),
        excluded=len(excluded),
        excluded_reasons={str(reason): int(count) for reason, count in faults.reason.value_counts(sort=False).items()},
        predicted=len(predicted),
        unpredicted=len(people - excluded - predicted),
        known={endpoint.name: _known(run.cohort, endpoint) for endpoint in run.study.endpoints},
    )


def _known(cohort: pd.DataFrame, endpoint: Endpoint) -> int:
    if not set(endpoint.columns) <= set(cohort.columns):
        return 0
    return int(np.all([cohort[column].str.strip() != "" for column in endpoint.columns], axis=0).sum())


def _tables(run: Run, endpoint: Endpoint) -> Tables:
    asked = run.predictions.loc[run.predictions.endpoint == endpoint.name]
    tables = {model: known_rows(run, endpoint, model) for model in in_order(asked.model.unique().tolist())}
    return {model: rows for model, rows in tables.items() if len(rows)}


def _results(run: Run, endpoint: Endpoint, tables: Tables) -> dict[str, Result]:
    """Each model by itself; candidates against every control, and comparators against the study's own model."""
    results: dict[str, Result] = {}
    for model, rows in tables.items():
        background = _background(run, endpoint, model)
        measured = _of_binary if endpoint.kind == "binary" else _of_survival
        results[model] = measured(run, endpoint, rows, background)
    for model in tables:
        if is_candidate(model):
            results[model] = _compared(run, endpoint, model, tables, results)
    return results


def _compared(run: Run, endpoint: Endpoint, model: str, tables: Tables, results: Results) -> Result:
    """A candidate's result with its paired tests."""
    rows = tables[model]
    inflated = chance.inflation(rows, run.design)
    controls = [name for name in RIVALLED if name in tables]
    tests = {name: compare.versus(endpoint, rows, tables[name], inflated) for name in controls}
    own = compare.versus(endpoint, rows, tables[OWN], inflated) if OWN in tables and model != OWN else None
    told = {name: test for name, test in tests.items() if test}
    best = compare.best_control(told, results)
    return results[model].model_copy(update={"versus_controls": told, "versus_best": best, "versus_own": own})


def _background(run: Run, endpoint: Endpoint, model: str) -> Background:
    nulls = run.nulls.loc[(run.nulls.endpoint == endpoint.name) & (run.nulls.model == model)]
    seeds = run.seeds.loc[(run.seeds.endpoint == endpoint.name) & (run.seeds.model == model)]
    sited = SITE_COLUMN in run.cohort and model != SITE  # among patients of one site, the site says nothing by its definition
    site_of = dict(zip(run.cohort.patient, run.cohort[SITE_COLUMN], strict=True)) if sited else {}
    return Background(run.design, nulls, seeds, site_of, _family(run, model))


def _family(run: Run, model: str) -> int:
    """How many results are corrected together with this model's (see `compare.adjusted`)."""
    results = run.predictions[["endpoint", "model"]].drop_duplicates().model
    return int((results.map(_kind) == _kind(model)).sum())


def _kind(model: str) -> str:
    """Of which family a result is; each permuted model and the upper reference is one of its own."""
    return "candidate" if is_candidate(model) else "control" if is_bar(model) else model


def _of_binary(run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> BinaryResult:
    result = binary.measure(endpoint, rows, background, run.study.seed)
    return result.model_copy(update={"recalibrated": binary.recalibrated(rows)}) if run.design == "external" else result


def _of_survival(run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> SurvivalResult:
    return survival.measure(endpoint, rows, chances_alive(run, endpoint, rows), background, run.study.seed)


def _caveats(endpoint: Endpoint, tables: Tables) -> dict[str, Caveats]:
    of_kind = binary.caveats if endpoint.kind == "binary" else survival.caveats
    return {model: of_kind(rows) for model, rows in tables.items()}


def _endpoint(
    run: Run, endpoint: Endpoint, tables: Tables, results: Results, shown: list[str]
) -> BinaryEndpoint | SurvivalEndpoint:
    """What belongs to the endpoint as a whole, and its models; subgroups of the candidates shown."""
    columns, drawn = run.study.report.subgroups, {model: rows for model, rows in tables.items() if model in shown}
    flag = "truth" if endpoint.kind == "binary" else "event"
    honest = [rows for model, rows in tables.items() if model not in PERMUTED]
    labels = pd.concat(honest).drop_duplicates("patient") if honest else pd.DataFrame({flag: np.zeros(0, dtype=bool)})
    marked = labels[flag].to_numpy(dtype=bool)
    ordered = {model: tables[model] for model in results}
    alive = {} if endpoint.kind == "binary" else {model: chances_alive(run, endpoint, rows) for model, rows in ordered.items()}
    inflated = max((chance.inflation(rows, run.design) for rows in ordered.values()), default=1.0)
    pairs = pairwise.of_endpoint(endpoint, ordered, alive, inflated, run.study.seed)
    if endpoint.kind == "survival":
        time_days = labels.time_days.to_numpy(dtype=float) if len(labels) else np.zeros(0)
        return SurvivalEndpoint(
            kind="survival",
            known=len(marked),
            events=int(marked.sum()),
            follow_up=follow_up.of_patients(time_days, marked),
            published=(),
            models={model: result for model, result in results.items() if isinstance(result, SurvivalResult)},
            rivals=None,
            subgroups=subgroups.of_survival(run.cohort, columns, drawn, run.study.seed),
            pairs=pairs,
            thresholds=tuple(survival.THRESHOLDS.tolist()),
            added_value=added_value.measure(run, endpoint, tables, shown),
        )
    return BinaryEndpoint(
        kind="binary",
        known=len(marked),
        positive=int(marked.sum()),
        published=(),
        models={model: result for model, result in results.items() if isinstance(result, BinaryResult)},
        rivals=None,
        subgroups=subgroups.of_binary(run.cohort, columns, drawn),
        pairs=pairs,
        thresholds=tuple(binary.THRESHOLDS.tolist()),
        net_benefit_of_all=tuple(decision.net_benefit_of_all(marked, binary.THRESHOLDS).tolist()),
    )


def _group_maps(entry: Mapping[str, object]) -> GroupMaps:
    return GroupMaps.model_validate({key: entry.get(key) for key in GroupMaps.model_fields})


def _comparator_maps(run: Run, model: str) -> ComparatorMaps:
    shown = run.comparator_maps[model].maps
    notes = {entry["method"]: entry["note"] for entry in (shown[0].facts["maps"] if shown else ())}
    return ComparatorMaps(maps=(), scores=maps.measure(run, model), notes=notes)


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
        prepare=study.prepare.model_copy(update=commands),
        model=study.model.model_copy(update={**shape, "weights": weights}),
        pretrain=Nothing() if study.pretrain.method == "none" else study.pretrain,  # what did not happen has no settings
        train=study.train,
        controls=study.controls,
        explain=study.explain,
    )
