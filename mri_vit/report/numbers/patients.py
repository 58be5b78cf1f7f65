"""Every predicted patient: what became of each, what the model said, and how wrong it was.

A patient's error is the share of the pairs with others of the same fold that the model ranks the wrong way. Scores of different
folds share no scale, and risks have none at all; the order within a fold is what the report judges (`judged`), and the errors of
all patients, weighted by their pairs, add up to 1 less that figure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pandas as pd

from mri_vit.metrics.within_fold import PairErrors, label_errors, survival_errors
from mri_vit.report.numbers.judged import flags, floats, fold_of, known_rows
from mri_vit.report.reading.run import Run, subject
from mri_vit.report.schema.patients import Patient, PatientResult
from mri_vit.settings.endpoint import Endpoint

SITE = "site"  # column of the cohort table


def measure(run: Run, models: Mapping[str, str]) -> tuple[Patient, ...]:
    """The patients who were predicted by the model of an endpoint, given by endpoint, in the order of the cohort table."""
    rows = run.predictions.loc[run.predictions.model == run.predictions.endpoint.map(models)]
    first = rows.loc[rows.repeat == rows.repeat.min()]
    results = {endpoint.name: _results(run, endpoint, models[endpoint.name]) for endpoint in run.study.endpoints}
    predicted = set(rows.patient)
    people = [name for name in run.cohort.patient if name in predicted]
    found, maps, brain_ml, share = _findings(run), _maps(run), _brain_ml(run), _tumour_share(run)
    site = dict(zip(run.cohort.patient, run.cohort[SITE], strict=True)) if SITE in run.cohort else {}
    sessions = first.groupby("patient").session.unique()
    fold = first.groupby("patient").fold.first()
    return tuple(
        Patient(
            patient=name,
            sessions=tuple(sessions[name].tolist()),
            site=site.get(name, ""),
            fold=int(fold[name]),
            endpoints={key: of_endpoint[name] for key, of_endpoint in results.items() if name in of_endpoint},
            findings=tuple(found[name]),
            maps=tuple(maps[name]),
            brain_ml=brain_ml.get(name, math.nan),
            tumour_share=share.get(name, math.nan),
        )
        for name in people
    )


def _results(run: Run, endpoint: Endpoint, model: str) -> dict[str, PatientResult]:
    """Each patient's result on an endpoint."""
    known = known_rows(run, endpoint, model)
    binary = endpoint.kind == "binary"
    errors = _errors(known, binary)
    known = known.assign(wrong=errors.wrong, pairs=errors.pairs, label=known.truth if binary else known.event)
    rows = _everybody(run, endpoint, model, known)
    if not len(rows):
        return {}
    of_fold = rows.groupby(["repeat", "fold"]).score
    rows["rank"] = (of_fold.rank() - 0.5) / of_fold.transform("size")
    told = {"score": "mean", "rank": "mean", "wrong": "sum", "pairs": "sum", "label": "first", "time_days": "first"}
    people = rows.groupby("patient").agg(told).reset_index()
    return dict(zip(people.patient.tolist(), map(_result, people.itertuples()), strict=True))


def _errors(known: pd.DataFrame, binary: bool) -> PairErrors:
    if binary:
        return label_errors(flags(known.truth), floats(known.score), fold_of(known))
    return survival_errors(floats(known.time_days), flags(known.event), floats(known.score), fold_of(known))


def _everybody(run: Run, endpoint: Endpoint, model: str, known: pd.DataFrame) -> pd.DataFrame:
    """A row per patient and repeat: those whose label is known as they are judged, the others with their scores alone."""
    rows = run.predictions.loc[(run.predictions.endpoint == endpoint.name) & (run.predictions.model == model)]
    visits = rows.astype({"score": float}).groupby(["repeat", "fold", "patient"], sort=False).score
    scores = (visits.mean() if endpoint.kind == "binary" else visits.first()).reset_index()
    columns = ["label", "wrong", "pairs", *(["time_days"] if endpoint.kind == "survival" else [])]
    judged = known.assign(judged=known.score)[["repeat", "patient", "judged", *columns]]
    table = scores.merge(judged, on=["repeat", "patient"], how="left")
    table["score"] = table.judged.fillna(table.score)  # of survival, of the visit whose time is counted
    return table if "time_days" in table else table.assign(time_days=math.nan)


def _result(row: Any) -> PatientResult:
    pairs = int(row.pairs)
    return PatientResult(
        truth=None if pd.isna(row.label) else bool(row.label),
        time_days=row.time_days,
        score=row.score,
        rank=row.rank,
        pairs=pairs,
        wrong=row.wrong if pairs else math.nan,
        error=row.wrong / pairs if pairs else math.nan,
    )


def _findings(run: Run) -> dict[str, list[str]]:
    """Reasons by patient, each once."""
    people, found = set(run.cohort.patient), defaultdict(dict)
    for visit, reason in zip(run.findings.patient, run.findings.reason, strict=True):
        found[subject(visit, people)][reason] = None
    return defaultdict(list, {name: list(reasons) for name, reasons in found.items()})


def _maps(run: Run) -> dict[str, list[str]]:
    found = defaultdict(list)
    for shown in run.maps:
        found[shown.subject].append(shown.patient)
    return found


def _brain_ml(run: Run) -> dict[str, float]:
    people = set(run.cohort.patient)
    return {subject(visit, people): volume for visit, volume in reversed(list(run.brain_ml.items()))}


def _tumour_share(run: Run) -> dict[str, float]:
    """By patient; every row of a visit's scores has the same."""
    told = {str(one["subject"]): [row.get("tumour_share") for row in one["rows"]] for one in reversed(run.scores)}
    return {name: shares[0] for name, shares in told.items() if shares and shares[0] is not None}
