"""Nulls: what the controls that are regressions reach on permuted labels, each fitted again; a table of test folds' values out.

Labels change hands within the test folds of the first repeat, so that folds, parts, features and their scaling stay as they
were: a patient keeps its fold, and the label moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import expit
from scipy.stats import rankdata

from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import read_by
from mri_vit.data.predictions import NULL_COLUMNS
from mri_vit.errors import BadNumbers
from mri_vit.metrics.concordance import count_from, in_line
from mri_vit.metrics.within_fold import ENOUGH_EXCEEDANCES
from mri_vit.predictors import refit
from mri_vit.predictors.regressions import NOTHING, Apart, scaling, varies
from mri_vit.settings.schema import Endpoint, Study

BLOCK_DRAWS = 200  # draws at a time
# Of each result that is tested together: the least p, corrected for all of them, is 1/200 = 0.005, a tenth of the usual level.
DRAWS_PER_RESULT = 200
# Above 50 results the least corrected p grows instead, up to half the level at 400 results, and stays there; else a study of 52
# models and four endpoints draws 41,600 times, four times as long, for a p whose verdict is the same.
ENOUGH_DRAWS, MIN_DRAWS_PER_RESULT = 10_000, 40
STREAM = 0x6E756C6C  # "null": of the seed's random streams, the one of these draws
SCORE_DIGITS = 8  # of a score; equal rows have equal scores whatever a matrix product rounds

Givers = Int[np.ndarray, "b s"]  # for each draw and patient, who gives the labels


def most_draws(results: int) -> int:
    """The cap on draws where so many results, of models and endpoints, are tested together."""
    return min(DRAWS_PER_RESULT * results, max(ENOUGH_DRAWS, MIN_DRAWS_PER_RESULT * results))


def table(
    covariates: Mapping[str, pd.DataFrame],
    study: Study,
    patients: Sequence[Patient],
    split: Split,
    results: int,
    apart: Mapping[str, Apart] = MappingProxyType({}),
) -> pd.DataFrame:
    """A row for each model, endpoint, draw and test fold: AUC or Harrell's C of the refitted regression on permuted labels.

    A model and endpoint is drawn until the within-fold value of 20 draws has reached that of the real labels, which ends the
    table at that draw, or up to `most_draws(results)`. Draws count from 0, and are the same permutations for every model.
    A fold is NaN where its training or test patients have one class, or no two of them can be compared.

    Parameters
    ----------
    covariates : a table per model, with a row per visit id.
    split : test folds of the first repeat.
    results : how many results of the study, of models and endpoints, are tested together.
    apart : by model the columns that each endpoint's regression does not read.
    """
    found = [pd.DataFrame(columns=pd.Index(NULL_COLUMNS))]
    for number, endpoint in enumerate(study.endpoints):
        known = Known.of(patients, split, endpoint)
        own = {name: read_by(endpoint, one, apart.get(name, NOTHING)) for name, one in covariates.items()}
        regressions = {name: Refitted.of(known, one, study, patients, split) for name, one in own.items()}
        running = {name: Drawn(one, observed) for name, one in regressions.items() if (observed := one.observed()) is not None}
        drawn = dict(running)
        for start in range(0, most_draws(results), BLOCK_DRAWS):
            if not running:
                break
            generator = np.random.default_rng([study.seed, STREAM, number, start])
            givers = known.permuted(generator, min(BLOCK_DRAWS, most_draws(results) - start))
            for name, one in list(running.items()):
                try:
                    ended = one.draw(givers)
                except BadNumbers:  # no test by refits, then: the report uses the one that needs none, and says so
                    del drawn[name]
                    ended = True
                if ended:
                    del running[name]
        found.extend(_rows(np.concatenate(one.values), name, endpoint.name) for name, one in drawn.items())
    return pd.concat(found[1:], ignore_index=True) if len(found) > 1 else found[0]


@dataclass(eq=False)
class Drawn:
    """A regression of one endpoint, and what it reached on the permutations so far."""

    regression: Refitted
    observed: float  # within-fold value of the real labels
    values: list[Float[np.ndarray, "b folds"]] = field(default_factory=list)
    reached: int = 0  # draws whose value was no less

    def draw(self, givers: Givers) -> bool:
        """Fit to more permutations; whether those up to the last that is needed are there now."""
        values = self.regression.values(givers)
        hits = np.flatnonzero(self.regression.within_fold(values) >= self.observed - 1e-9)  # beyond rounding of a sum of halves
        ended = self.reached + len(hits) >= ENOUGH_EXCEEDANCES
        self.values.append(values[: hits[ENOUGH_EXCEEDANCES - self.reached - 1] + 1] if ended else values)
        self.reached += len(hits)
        return ended


def _rows(values: Float[np.ndarray, "b folds"], model: str, endpoint: str) -> pd.DataFrame:
    draw, fold = np.divmod(np.arange(values.size), values.shape[1])
    places = {"model": model, "endpoint": endpoint, "draw": draw, "repeat": 0, "fold": fold}
    return pd.DataFrame(places | {"value": values.ravel()}, columns=pd.Index(NULL_COLUMNS))


@dataclass(frozen=True, eq=False)
class Known:
    """The visits whose label of one endpoint is known, those of a patient behind each other, and which may be exchanged.

    s patients, v visits.
    """

    endpoint: Endpoint
    visits: list[str]
    subject: Int[np.ndarray, " v"]
    number: Int[np.ndarray, " v"]  # which of the patient's known visits it is
    first: Int[np.ndarray, " s"]  # the patient's first known visit
    count: Int[np.ndarray, " s"]  # known visits of the patient
    subjects: list[str]
    folds: list[Int[np.ndarray, " _"]]  # the patients of each test fold
    labels: Float[np.ndarray, "v columns"]  # 0 or 1; or days and the event

    @classmethod
    def of(cls, patients: Sequence[Patient], split: Split, endpoint: Endpoint) -> Known:
        """The known visits among these patients."""
        visits: dict[str, list[Patient]] = {}
        for p in patients:
            if p.knows(endpoint):
                visits.setdefault(p.subject, []).append(p)
        rows = [p for own in visits.values() for p in own]
        count = np.array([len(own) for own in visits.values()], dtype=int)
        first = np.cumsum(count) - count
        subject = np.repeat(np.arange(len(count)), count)
        home = {i: fold for fold, ids in enumerate(split) for i in ids}
        where = np.array([home[own[0].id] for own in visits.values()], dtype=int)
        return cls(
            endpoint=endpoint,
            visits=[p.id for p in rows],
            subject=subject,
            number=np.arange(len(rows)) - first[subject],
            first=first,
            count=count,
            subjects=list(visits),
            folds=[np.flatnonzero(where == fold) for fold in range(len(split))],
            labels=np.array([[p.labels[c] for c in endpoint.columns] for p in rows]).reshape(-1, len(endpoint.columns)),
        )

    @property
    def as_they_are(self) -> Givers:
        """One draw, in which all keep their labels."""
        return np.arange(len(self.first))[None]

    def permuted(self, generator: np.random.Generator, draws: int) -> Givers:
        """Draws in which the patients of a test fold exchange their labels."""
        givers = np.tile(np.arange(len(self.first)), (draws, 1))
        for members in self.folds:
            givers[:, members] = generator.permuted(givers[:, members], axis=1)
        return givers

    def of_visits(self, givers: Givers, visits: Int[np.ndarray, " n"]) -> Float[np.ndarray, "b n columns"]:
        """The labels that visits get: of the giver's visit of the same number, or of the last where there are fewer."""
        giver = givers[:, self.subject[visits]]
        return self.labels[self.first[giver] + np.minimum(self.number[visits], self.count[giver] - 1)]


@dataclass(frozen=True, eq=False)
class _Fold:
    """One test fold of one model: its regression's training rows, scaled, and the rows of those who are scored.

    `people` are patients by their place among the known ones, and each row of `scored` is a visit of one of them.
    """

    trained: Int[np.ndarray, " n"]  # among the known visits
    train: Float[np.ndarray, "n k"]
    scored: Float[np.ndarray, "t k"]
    of: Int[np.ndarray, " t"]  # the row's place in `people`
    people: Int[np.ndarray, " m"]


@dataclass(frozen=True, eq=False)
class Refitted:
    """One model and endpoint: its folds, None where nothing varies among the training patients."""

    known: Known
    folds: list[_Fold | None]
    pairs: Float[np.ndarray, " folds"]  # of patients of the test fold who can be compared; no permutation within it changes them

    @classmethod
    def of(cls, known: Known, covariates: pd.DataFrame, study: Study, patients: Sequence[Patient], split: Split) -> Refitted:
        """The folds as the control itself had them."""
        place, folds = {visit: row for row, visit in enumerate(known.visits)}, []
        for fold, ids in enumerate(split):
            train, _, test = parts(patients, ids, study, fold_seed(study.seed, 0, fold))
            trained = np.array([place[p.id] for p in train if p.id in place], dtype=int)
            rows = covariates.loc[[known.visits[row] for row in trained]]
            if not len(rows) or not varies(rows):
                folds.append(None)
                continue
            fitted = scaling().fit(rows)
            people = known.folds[fold]
            seat = {known.subjects[person]: index for index, person in enumerate(people)}
            judged = [p for p in test if p.subject in seat and (known.endpoint.kind == "binary" or p.id in place)]
            if known.endpoint.kind == "survival":  # time counts from a visit, so the first known one speaks alone
                judged = [p for p in judged if known.number[place[p.id]] == 0]
            folds.append(
                _Fold(
                    trained,
                    np.asarray(fitted.transform(rows)),
                    np.asarray(fitted.transform(covariates.loc[[p.id for p in judged]])) if judged else np.zeros((0, 0)),
                    np.array([seat[p.subject] for p in judged], dtype=int),
                    people,
                )
            )
        return cls(known, folds, np.array([_pairs(known, members) for members in known.folds], dtype=float))

    def values(self, givers: Givers) -> Float[np.ndarray, "b folds"]:
        """The test folds' AUC or C, refitted to each draw's labels."""
        found = np.full((len(givers), len(self.folds)), np.nan)
        for index, fold in enumerate(self.folds):
            if fold is None or not self.pairs[index]:
                continue
            labels = self.known.of_visits(givers, fold.trained)
            if self.known.endpoint.kind == "binary":
                odds = refit.logistic(fold.train, labels[:, :, 0] == 1, fold.scored)
                score = np.stack([np.bincount(fold.of, one, len(fold.people)) for one in expit(odds)])
                score = score / np.bincount(fold.of, minlength=len(fold.people))  # a patient's is the mean over the visits
                truth = self.known.of_visits(givers, self.known.first[fold.people])[:, :, 0] == 1
                found[:, index] = _auc(truth, score.round(SCORE_DIGITS))
            else:
                risk = refit.cox(fold.train, labels[:, :, 0], labels[:, :, 1] == 1, fold.scored)
                risk = risk[:, np.argsort(fold.of)].round(SCORE_DIGITS)  # in the order of `people`
                found[:, index] = _c(self.known, fold.people, givers[:, fold.people], risk)
        return found

    def observed(self) -> float | None:
        """The within-fold value of the real labels; None where there is none, or the regression does not converge."""
        try:
            value = float(self.within_fold(self.values(self.known.as_they_are)[0]))
        except BadNumbers:
            return None
        return None if math.isnan(value) else value

    def within_fold(self, values: Float[np.ndarray, "b folds"] | Float[np.ndarray, " folds"]) -> Float[np.ndarray, "*b"]:
        """The mean over folds by their comparable pairs; NaN where no fold has a value."""
        weight = np.where(np.isnan(values), 0.0, self.pairs)
        total = weight.sum(axis=-1)
        return np.where(total > 0, (weight * np.nan_to_num(values)).sum(axis=-1) / np.maximum(total, 1), np.nan)


def _pairs(known: Known, members: Int[np.ndarray, " m"]) -> int:
    """How many pairs of a fold's patients can be compared."""
    label = known.labels[known.first[members]]
    if known.endpoint.kind == "binary":
        positive = int((label[:, 0] == 1).sum())
        return positive * (len(label) - positive)
    _, start = in_line(label[:, 0], label[:, 1] == 1)
    return int((len(label) - start).sum())


def _auc(truth: Bool[np.ndarray, "b m"], score: Float[np.ndarray, "b m"]) -> Float[np.ndarray, " b"]:
    """The AUC of each row, ties counting one half; NaN where a score is."""
    positive = truth.sum(axis=1)
    above = np.where(truth, rankdata(score, axis=1), 0).sum(axis=1) - positive * (positive + 1) / 2
    return above / (positive * (truth.shape[1] - positive))


def _c(known: Known, people: Int[np.ndarray, " m"], givers: Givers, risk: Float[np.ndarray, "b m"]) -> Float[np.ndarray, " b"]:
    """Harrell's C of each row: outcomes stay in line, and the risks of those who got them change hands; NaN where a risk is."""
    label = known.labels[known.first[people]]
    event = label[:, 1] == 1
    order, start = in_line(label[:, 0], event)
    seat = np.searchsorted(people, givers)  # `people` rise: who gives what is in their place
    rank = np.empty(risk.shape, dtype=int)
    np.put_along_axis(rank, seat, rankdata(np.nan_to_num(risk), method="dense", axis=1).astype(int), axis=1)
    lower, equal = count_from(rank[:, order], start, rank[:, event])
    c = (lower.sum(axis=1) + equal.sum(axis=1) / 2) / (len(people) - start).sum()
    return np.where(np.isnan(risk).any(axis=1), np.nan, c)
