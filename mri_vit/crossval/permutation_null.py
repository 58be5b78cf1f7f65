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
from jaxtyping import Float, Int

from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data.cohort import Patient, label_rows
from mri_vit.data.covariates import read_by
from mri_vit.data.predictions import NULL_COLUMNS
from mri_vit.errors import BadNumbers
from mri_vit.kinds.kind import labels as labels_of
from mri_vit.metrics.within_fold import ENOUGH_EXCEEDANCES
from mri_vit.predictors import regressions
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
    labels: Float[np.ndarray, "v columns"]

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
            labels=label_rows(rows, endpoint),
        )

    @property
    def of_people(self) -> Float[np.ndarray, "s columns"]:
        """Each patient's labels: those of the first known visit."""
        return self.labels[self.first]

    @property
    def fold_of_people(self) -> Int[np.ndarray, " s"]:
        fold = np.empty(len(self.first), dtype=int)
        for number, members in enumerate(self.folds):
            fold[members] = number
        return fold

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

    def by_person(self, score: Float[np.ndarray, "b t p"]) -> Float[np.ndarray, "b m p"]:
        """The mean over a patient's visits, in the order of `people`."""
        total = np.zeros((len(score), len(self.people), score.shape[2]))
        for row, person in enumerate(self.of.tolist()):
            total[:, person] += score[:, row]
        return total / np.bincount(self.of, minlength=len(self.people))[None, :, None]


@dataclass(frozen=True, eq=False)
class Refitted:
    """One model and endpoint: its folds, None where nothing varies among the training patients."""

    known: Known
    folds: list[_Fold | None]
    weights: Float[np.ndarray, " folds"]  # of the folds' figures in that within folds; no permutation within a fold changes them

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
            judged = [p for p in test if p.subject in seat]
            if labels_of(known.endpoint).of_visit:  # time counts from a visit, so the first known one speaks alone
                judged = [p for p in judged if p.id in place and known.number[place[p.id]] == 0]
            folds.append(
                _Fold(
                    trained,
                    np.asarray(fitted.transform(rows)),
                    np.asarray(fitted.transform(covariates.loc[[p.id for p in judged]])) if judged else np.zeros((0, 0)),
                    np.array([seat[p.subject] for p in judged], dtype=int),
                    people,
                )
            )
        weight = labels_of(known.endpoint).fold_weights(known.of_people, known.fold_of_people)
        return cls(known, folds, np.array([weight.get(fold, 0.0) for fold in range(len(split))], dtype=float))

    def values(self, givers: Givers) -> Float[np.ndarray, "b folds"]:
        """The test folds' figures, refitted to each draw's labels."""
        found, of_kind = np.full((len(givers), len(self.folds)), np.nan), labels_of(self.known.endpoint)
        for index, fold in enumerate(self.folds):
            if fold is None or not self.weights[index]:
                continue
            labels = self.known.of_visits(givers, fold.trained)
            score = regressions.of(self.known.endpoint).refit(self.known.endpoint, fold.train, labels, fold.scored)
            score = fold.by_person(score).round(SCORE_DIGITS)
            # Outcomes stay in line, and the scores of those who got them change hands; `people` rise, so who gives is in place.
            seat = np.searchsorted(fold.people, givers[:, fold.people])
            held = np.empty_like(score)
            np.put_along_axis(held, seat[:, :, None], score, axis=1)
            own = self.known.of_people[fold.people]
            found[:, index] = of_kind.figures(own, held, self.known.of_people, self.known.fold_of_people)
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
        weight = np.where(np.isnan(values), 0.0, self.weights)
        total = weight.sum(axis=-1)
        with np.errstate(invalid="ignore"):
            return np.where(total > 0, (weight * np.nan_to_num(values)).sum(axis=-1) / total, np.nan)
