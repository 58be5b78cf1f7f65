"""Every number of the report: a run in, the content of `metrics.json` out. Undefined is NaN here and null in the file.

Repeats and folds are counted from 0, as in `predictions.csv`; the page counts them from 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.metrics import decision
from mri_vit.report.numbers import (
    against_vit,
    binary,
    comparators,
    compare,
    map_scans,
    maps,
    published,
    site_probe,
    subgroups,
    survival,
)
from mri_vit.report.numbers.judged import chances_alive, in_order, known_rows
from mri_vit.report.reading.run import OWN, Run, subject
from mri_vit.report.verdicts import models as verdict
from mri_vit.settings.models import CLINICAL, CONTROLS, is_candidate
from mri_vit.settings.schema import Endpoint, Study

SCHEMA = 2  # since 0.3.0 a patient of "maps" has a list of maps

Tables = Mapping[str, pd.DataFrame]  # by model, the rows that are judged
Results = Mapping[str, dict[str, Any]]  # by model


def measure(run: Run) -> dict[str, Any]:
    """Compute all that the report shows, from the run's tables alone.

    Returns
    -------
    dict, the content of `metrics.json` with NaN where a figure is undefined and None where it does not apply. The same run
    gives the same numbers: every resampling starts from the study's seed.
    """
    tables = {endpoint.name: _tables(run, endpoint) for endpoint in run.study.endpoints}
    measured = {endpoint.name: _results(run, endpoint, tables[endpoint.name]) for endpoint in run.study.endpoints}
    results = compare.adjusted(measured)
    order = comparators.ranked(run, results)
    shown = comparators.shown(order)
    models = [*order, *(name for name in CONTROLS if name in run.predictions.model.values)]
    results = {name: {model: found[model] for model in models if model in found} for name, found in results.items()}
    endpoints = {e.name: _endpoint(run, e, tables[e.name], results[e.name], shown) for e in run.study.endpoints}
    scored = maps.measure(run, {name: _told(endpoint) for name, endpoint in endpoints.items()})
    external = run.design == "external"
    return {
        "schema": SCHEMA,
        "study": run.study.name,
        "seed": run.study.seed,
        "design": run.design,
        "cohort": _cohort(run),
        # A run that leaves sites out has as many folds as sites; the folds of an evaluated run are not in its predictions.
        "folds": run.study.train.folds if external else int(run.predictions.fold.nunique()),
        "repeats": run.study.train.repeats if external else int(run.predictions.repeat.nunique()),
        "leave_out": None if run.design == "table" else run.study.train.leave_out,
        "folds_sha256": run.folds_sha256,
        "models": models,
        "contenders": comparators.measure(run, results, order),
        "shown": shown,  # of the candidates, those whose curves are drawn
        "transductive": run.notes.get("transductive") or None,
        "rules": verdict.rules(),
        "endpoints": endpoints,
        "site_probe": site_probe.measure(run.probe, run.study.seed),
        "internal": _internal(run.internal) if external else None,
        "maps": maps.told(run.maps, scored),
        "map_settings": dict(run.maps[0].facts["settings"]) if run.maps else None,
        "stale": dict(run.stale),
        "map_scores": scored,
        "map_scans": map_scans.measure(run.maps, run.study.seed),
        "map_groups": [
            {key: entry.get(key) for key in ("method", "endpoint", "groups", "largest", "p")} for entry, _ in run.groups
        ],
        "settings": {} if run.design == "table" else _settings(run.study),
        "environment": dict(run.environment),
        "notes": {key: note for key, note in run.notes.items() if key != "transductive"},
        "preparation": [dict(step) for step in run.preparation],
    }


def _told(endpoint: Mapping[str, Any]) -> str:
    """The kind of the verdict on the model whose maps the run holds."""
    return endpoint["models"].get(maps.MODEL, {"verdict_kind": "undefined"})["verdict_kind"]


def _cohort(run: Run) -> dict[str, Any]:
    """The flow of patients. A patient is excluded when every visit was; then each of the reasons is counted."""
    people, predicted = set(run.cohort.patient), set(run.predictions.patient)
    faults = run.excluded.assign(patient=[subject(name, people) for name in run.excluded.patient])
    faults = faults.loc[~faults.patient.isin(predicted)].drop_duplicates(["patient", "reason"])
    excluded = set(faults.patient)
    return {
        "patients": len(people | excluded),
        "excluded": len(excluded),
        "excluded_reasons": {str(reason): int(count) for reason, count in faults.reason.value_counts(sort=False).items()},
        "predicted": len(predicted),
        "unpredicted": len(people - excluded - predicted),
        "known": {endpoint.name: _known(run.cohort, endpoint) for endpoint in run.study.endpoints},
    }


def _known(cohort: pd.DataFrame, endpoint: Endpoint) -> int:
    if not set(endpoint.columns) <= set(cohort.columns):
        return 0
    return int(np.all([cohort[column].str.strip() != "" for column in endpoint.columns], axis=0).sum())


def _tables(run: Run, endpoint: Endpoint) -> Tables:
    asked = run.predictions.loc[run.predictions.endpoint == endpoint.name]
    tables = {model: known_rows(run, endpoint, model) for model in in_order(asked.model.unique().tolist())}
    return {model: rows for model, rows in tables.items() if len(rows)}


def _results(run: Run, endpoint: Endpoint, tables: Tables) -> Results:
    """Each model by itself; candidates against clinical-only, and comparators against the study's own model."""
    results = {}
    for model, rows in tables.items():
        if endpoint.kind == "binary":
            results[model] = binary.measure(rows, run.study.seed)
            results[model]["recalibrated"] = binary.recalibrated(rows) if run.design == "external" else None
        else:
            results[model] = survival.measure(rows, chances_alive(run, endpoint, rows), run.study.seed, run.design)
        for part, other in zip(compare.COMPARISONS, (CLINICAL, OWN), strict=True):
            held = is_candidate(model) and other in tables and model != other
            results[model][part] = compare.versus(endpoint, rows, tables[other], run.study.seed) if held else None
    return results


def _endpoint(run: Run, endpoint: Endpoint, tables: Tables, results: Results, shown: list[str]) -> dict[str, Any]:
    """What belongs to the endpoint as a whole, and its models with their verdicts; subgroups of the candidates shown."""
    flag = "truth" if endpoint.kind == "binary" else "event"
    honest = [rows for model, rows in tables.items() if model != compare.SHUFFLED]
    labels = pd.concat(honest).drop_duplicates("patient") if honest else pd.DataFrame({flag: np.zeros(0, dtype=bool)})
    verdicts = verdict.of_endpoint(endpoint.kind, results, run.notes)
    models = {
        model: {**result, "verdict": verdicts[model].sentence, "verdict_kind": verdicts[model].kind}
        for model, result in results.items()
    }
    found = {
        "kind": endpoint.kind,
        "known": len(labels),
        "positive" if endpoint.kind == "binary" else "events": int(labels[flag].sum()),
        "published": published.figures(endpoint.name),
        "models": models,
        "rivals": against_vit.told(models),
        "subgroups": subgroups.measure(
            run.cohort, run.study.report.subgroups, endpoint, {m: t for m, t in tables.items() if m in shown}, run.study.seed
        ),
    }
    if endpoint.kind == "binary":
        benefit = decision.net_benefit_of_all(labels[flag].to_numpy(dtype=bool), binary.THRESHOLDS)
        found |= {"thresholds": binary.THRESHOLDS.tolist(), "net_benefit_of_all": benefit.tolist()}
    return found


def _internal(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The run's own out-of-fold estimates, by endpoint and model, from its metrics as they were read from a file."""
    found: dict[str, dict[str, Any]] = {}
    for name, endpoint in metrics.get("endpoints", {}).items():
        measure = "auc" if endpoint["kind"] == "binary" else "harrell_c"
        found[name] = {}
        for model, result in endpoint["models"].items():
            estimate = {key: math.nan if value is None else value for key, value in result[measure].items()}
            found[name][model] = {"measure": measure, **estimate, "n": result["n"]}
    return found


def _settings(study: Study) -> dict[str, Any]:
    """What decides the result; the paths are left out, since they tell of a machine and not of the study."""
    settings = study.model_dump(mode="json", include={"grid", "prepare", "model", "pretrain", "train", "controls", "explain"})
    settings["prepare"]["brain_command"] = [Path(word).name for word in study.prepare.brain_command]  # no folder of anyone's
    settings["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), study.model.shape, strict=True))
    settings["model"]["weights"] = study.model.weights and study.model.weights.name
    if study.pretrain.method == "none":
        settings["pretrain"] = {}  # what did not happen has no settings
    return settings
