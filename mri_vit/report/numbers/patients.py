"""Each patient's results and errors; of each endpoint the patients most wrong, and what they have in common.

Errors are shares of pairs, which no scale of scores and no follow-up makes larger than they are.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact, mannwhitneyu

from mri_vit.kinds.kind import labels
from mri_vit.metrics.comparison import holm
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.judged import fold_of, known_rows
from mri_vit.report.reading.run import Run, subject
from mri_vit.report.schema.measured import ALPHA, Worst
from mri_vit.report.schema.patients import Association, Patient, PatientResult, Trait
from mri_vit.settings.schema import Endpoint

SITE = "site"  # column of the cohort table
WORST_PATIENTS = 10  # patients that a reader looks at one by one
MAX_WORST_SHARE = 0.25  # of the ranked at most: the worst of a small cohort are still its tail
MIN_PAIRS = 5  # of fewer, all are wrong by chance more than once in 20: a patient censored early is in one or two
RESAMPLES = 9999  # a p of a permutation test is then 0.0001 at least


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
    known, of_kind = known_rows(run.predictions, endpoint, model), measures.of(endpoint)
    errors = of_kind.errors(known, fold_of(known))
    known = known.assign(wrong=errors.wrong, pairs=errors.pairs, flag=of_kind.flag(known), words=of_kind.label(endpoint, known))
    rows = _all_patients(run, endpoint, model, known)
    if not len(rows):
        return {}
    of_fold = rows.groupby(["repeat", "fold"]).score
    rows["rank"] = (of_fold.rank() - 0.5) / of_fold.transform("size")
    combined = {"score": "mean", "rank": "mean", "wrong": "sum", "pairs": "sum", "time_days": "first"}
    shares = {column: "mean" for column in rows if re.fullmatch(r"p\d+", column)}
    people = rows.groupby("patient").agg({**combined, **shares, "flag": "first", "words": "first"}).reset_index()
    people = people.assign(predicted=of_kind.predicted(endpoint, people))
    return dict(zip(people.patient.tolist(), map(_result, people.itertuples()), strict=True))


def _all_patients(run: Run, endpoint: Endpoint, model: str, known: pd.DataFrame) -> pd.DataFrame:
    """A row per patient and repeat: those whose label is known as they are judged, the others with their scores alone."""
    rows = run.predictions.loc[(run.predictions.endpoint == endpoint.name) & (run.predictions.model == model)]
    rows, patient = rows.astype({"score": float}), ["repeat", "fold", "patient"]
    of_visit = labels(endpoint).of_visit
    scores = rows.groupby(patient, sort=False).score.first() if of_visit else labels(endpoint).scores_by(endpoint, rows, patient)
    scores = scores.reset_index()
    columns = ["flag", "words", "wrong", "pairs", *(["time_days"] if of_visit else [])]
    judged = known.assign(judged=known.score)[["repeat", "patient", "judged", *columns]]
    table = scores.merge(judged, on=["repeat", "patient"], how="left")
    table["score"] = table.judged.fillna(table.score)  # of survival, of the visit whose time is counted
    return table if "time_days" in table else table.assign(time_days=math.nan)


def _result(row: Any) -> PatientResult:
    pairs = int(row.pairs)
    return PatientResult(
        truth=None if pd.isna(row.flag) else bool(row.flag),
        label=None if pd.isna(row.words) else row.words,
        predicted=None if pd.isna(row.predicted) else row.predicted,
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
    shares_of = {str(score["subject"]): [row.get("tumour_share") for row in score["rows"]] for score in reversed(run.scores)}
    return {name: shares[0] for name, shares in shares_of.items() if shares and shares[0] is not None}


@dataclass(frozen=True)
class Trial:
    """Whether the worst patients differ from the others in one respect: an `Association`, not yet adjusted for others."""

    trait: Trait
    level: str
    worst: int
    others: int
    of_worst: float
    of_others: float
    p: float


def measure_failures(patients: Sequence[Patient], models: Mapping[str, str], seed: int) -> dict[str, Worst]:
    """The worst patients of each endpoint that has any; `models` are, by endpoint, those whose scores the patients have.

    All p are adjusted together: among many traits one differs by chance.
    """
    sides = {name: _sides(ranked(patients, name), name) for name in models}
    sides = {name: side for name, side in sides.items() if side[0]}
    trials = {name: _trials(*side, seed) for name, side in sides.items()}
    p = np.array([trial.p for of_endpoint in trials.values() for trial in of_endpoint])
    adjusted = iter(holm(p).tolist() if len(p) else [])
    return {
        name: Worst(
            model=models[name],
            patients=tuple(patient.patient for patient in worst),
            ranked=len(worst) + len(others),
            associations=tuple(
                Association(**vars(trial), p_adjusted=p_adjusted, apart=p_adjusted <= ALPHA)
                for trial, p_adjusted in zip(trials[name], itertools.islice(adjusted, len(trials[name])), strict=True)
            ),
        )
        for name, (worst, others) in sides.items()
    }


def ranked(patients: Sequence[Patient], endpoint: str) -> list[Patient]:
    """Who is in pairs enough, the worst first; of the equally wrong, who lies further out among the scores of the fold."""
    known = [one for one in patients if endpoint in one.endpoints and one.endpoints[endpoint].pairs >= MIN_PAIRS]

    def order(one: Patient) -> tuple[float, float]:
        result = one.endpoints[endpoint]
        return -result.error, -abs(result.rank - 0.5)

    return sorted(known, key=order)


def _sides(people: list[Patient], endpoint: str) -> tuple[list[Patient], list[Patient]]:
    """The worst of the ranked patients and the others."""
    most = min(WORST_PATIENTS, int(MAX_WORST_SHARE * len(people)))
    worst = [patient for patient in people[:most] if patient.endpoints[endpoint].wrong > 0]  # a model may be wrong in fewer
    return worst, people[len(worst) :]


def _trials(worst: Sequence[Patient], others: Sequence[Patient], seed: int) -> list[Trial]:
    trials = [
        _of_findings(worst, others),
        _of_sites(worst, others, seed),
        _of_volumes("brain_ml", worst, others),
        _of_volumes("tumour_share", worst, others),
    ]
    return [trial for trial in trials if trial]


def _of_findings(worst: Sequence[Patient], others: Sequence[Patient]) -> Trial | None:
    """None where no patient has a finding: whether anybody looked for one is then not known."""
    n, m = len(worst), len(others)
    here, there = (sum(bool(patient.findings) for patient in people) for people in (worst, others))
    if not here + there or not n or not m:
        return None
    p = float(np.asarray(fisher_exact([[here, there], [n - here, m - there]]))[1])
    return Trial("finding", "", n, m, here / n, there / m, p)


def _of_sites(worst: Sequence[Patient], others: Sequence[Patient], seed: int) -> Trial | None:
    """A permutation test, because the counts of ten patients are too small for the law of chi-squared."""
    here, there = (Counter(one.site for one in people if one.site) for people in (worst, others))
    sites = sorted(here | there)
    if len(sites) < 2 or not here or not there:
        return None
    total = np.array([here[site] + there[site] for site in sites])
    expected = total * here.total() / total.sum()
    draws = np.random.default_rng(seed).multivariate_hypergeometric(total, here.total(), size=RESAMPLES)
    own = np.array([here[site] for site in sites])
    statistic, by_chance = ((((counts - expected) ** 2) / expected).sum(axis=-1) for counts in (own, draws))
    p = (1 + int((by_chance >= statistic - 1e-9).sum())) / (1 + RESAMPLES)  # 1e-9: sums in another order are equal
    level = min(here, key=lambda site: (-here[site], site))
    n, other = here.total(), there.total()
    return Trial("site", level, n, other, here[level] / n, there[level] / other, p)


def _of_volumes(trait: Trait, worst: Sequence[Patient], others: Sequence[Patient]) -> Trial | None:
    volumes = (np.array([getattr(patient, trait) for patient in people], dtype=float) for people in (worst, others))
    here, there = (values[np.isfinite(values)] for values in volumes)
    if not len(here) or not len(there):
        return None
    p = float(np.asarray(mannwhitneyu(here, there))[1]) if len(np.unique(np.concatenate([here, there]))) > 1 else 1.0
    return Trial(trait, "", len(here), len(there), float(np.median(here)), float(np.median(there)), p)
