"""Cross-validation: every patient is predicted by a model that has never seen it.

Folds come in written and hashed; out come one table of predictions and one of survival, a fold at a time, so that a
run that was stopped resumes with the fold it was in.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.crossval.folds import Split, validation_split
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient, first_visits, label_rows, refuse_labels, without_labels
from mri_vit.data.predictions import Ensemble, Predictor, score_rows
from mri_vit.errors import IntegrityError
from mri_vit.kinds.kind import Scored, labels
from mri_vit.metrics.decision import Threshold
from mri_vit.metrics.within_fold import WithinFold, inflation, leak_level, p_above_chance
from mri_vit.run import files, integrity
from mri_vit.run.atomic import file_lock
from mri_vit.run.folder import environment, remember
from mri_vit.settings.schema import Endpoint, Study

LEARNED = (files.WEIGHTS, files.FUSION, files.PRETRAINED)  # what a predictor may leave in a folder
MIN_SITE_PATIENTS = 2  # patients of a site; of one alone nothing can be learned and tested
Builder = Callable[[Path, int], Predictor]  # (folder of the fold, seed) -> an unfitted predictor
Tables = tuple[pd.DataFrame, pd.DataFrame]  # predictions.COLUMNS and predictions.SURVIVAL_COLUMNS


class Guarded:
    """A Predictor that can be fitted once, and that is then handed no label and no patient it was fitted on."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._fitted_on: frozenset[str] = frozenset()

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None:
        """Fit. Raises IntegrityError when it was fitted before, or a patient is in both parts."""
        if self._fitted_on:
            raise IntegrityError("a fitted predictor was to be fitted again; each fold has one of its own")
        both = sorted({p.subject for p in train} & {p.subject for p in val})
        if both:
            raise IntegrityError(f"patient {both[0]} is in the training and in the validation part of one fold")
        self._predictor.fit(train, val)
        self._fitted_on = frozenset(p.subject for p in (*train, *val))

    def predict(self, patients: Sequence[Patient]) -> Tables:
        """Predict. Raises IntegrityError when a patient brings a label, or was fitted on."""
        self._refuse(patients)
        return self._predictor.predict(patients)

    def predict_each(self, patients: Sequence[Patient]) -> list[Tables]:
        """Predict by each network alone, of a predictor that has networks. Raises as `predict`."""
        self._refuse(patients)
        return self._predictor.predict_each(patients) if isinstance(self._predictor, Ensemble) else []

    def _refuse(self, patients: Sequence[Patient]) -> None:
        refuse_labels(patients)
        for patient in patients:
            if patient.subject in self._fitted_on:
                raise IntegrityError(f"patient {patient.subject} was fitted on and cannot be a test of that fit")


def cross_validate(
    patients: Sequence[Patient], splits: Sequence[Split], study: Study, home: Path, model: str, build: Builder
) -> Tables:
    """Fit and predict each fold, whose folder in `home` then holds its tables; all folds' tables are returned."""
    scores, survivals = [], []
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            folder = fit_fold(patients, ids, study, home, model, repeat, fold, build)
            scores.append(predictions.load(folder / files.PREDICTIONS, study.endpoints))
            survivals.append(predictions.load_survival(folder / files.SURVIVAL))
    return stacked(scores), stacked(survivals)


def fit_fold(
    patients: Sequence[Patient],
    ids: Sequence[str],
    study: Study,
    home: Path,
    model: str,
    repeat: int,
    fold: int,
    build: Builder,
) -> Path:
    """Fit one fold, whose test visits are `ids`, and predict them, unless that was done; returns the folder with its tables."""
    folder = files.fold_folder(home, repeat, fold)
    if not done(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock(folder):
            _fit_fold(patients, ids, study, folder, {"model": model, "repeat": repeat, "fold": fold}, build)
    for here in _folders(folder):
        shutil.rmtree((here / files.STATE).parent, ignore_errors=True)  # four times the weights, and no longer needed to resume
    return folder


def _fit_fold(
    patients: Sequence[Patient], ids: Sequence[str], study: Study, folder: Path, place: dict[str, str | int], build: Builder
) -> None:
    """As `fit_fold`, by the only process that is at it; `place` is the fold's in the tables."""
    if done(folder):  # by another process, which this one waited for
        return
    remember(environment(study), folder / files.ENVIRONMENT)
    seed = fold_seed(study.seed, int(place["repeat"]), int(place["fold"]))
    train, val, test = parts(patients, ids, study, seed)
    score, survival, seeds = _one_fold(build(folder, seed), train, val, test, study)
    tables = {
        files.SURVIVAL: survival.assign(**place).reindex(columns=predictions.SURVIVAL_COLUMNS),
        files.PREDICTIONS: score.assign(**place).reindex(columns=predictions.COLUMNS),
    }
    if len(seeds):
        tables = {files.SEEDS: seeds.assign(**place).reindex(columns=predictions.SEED_COLUMNS), **tables}
    learned = [(here / name).relative_to(folder).as_posix() for here in _folders(folder) for name in LEARNED]
    integrity.write_hashed(folder, learned, {name: predictions.dumps(table) for name, table in tables.items()})


def done(fold: Path) -> bool:
    """Whether a fold's folder holds its predictions, which are written last."""
    return (fold / files.PREDICTIONS).exists()


def _folders(fold: Path) -> list[Path]:
    """The folder of a fold and those of its further seeds."""
    return [fold, *sorted(fold.glob(files.SEED_GLOB))]


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other; pandas takes the columns' types of those that have rows, and of an empty one it will not."""
    return pd.concat([table for table in tables if len(table)] or tables[:1])


def fold_seed(seed: int, repeat: int, fold: int) -> int:
    """The seed of all that is random in one fold, apart for every fold and repeat."""
    return int(np.random.SeedSequence([seed, repeat, fold]).generate_state(1)[0])


def parts(
    patients: Sequence[Patient], ids: Sequence[str], study: Study, seed: int
) -> tuple[list[Patient], list[Patient], list[Patient]]:
    """(train, val, test) of the fold whose test visits are `ids`."""
    held_out = set(ids)
    rest = [p for p in patients if p.id not in held_out]
    train, val = validation_split(rest, study.endpoints, study.train.val_fraction, seed)
    return train, val, [p for p in patients if p.id in held_out]


def _one_fold(
    predictor: Predictor,
    train: Sequence[Patient],
    val: Sequence[Patient],
    test: Sequence[Patient],
    study: Study,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Scores, survival, and each seed's own scores; of one seed the last is empty."""
    guarded = Guarded(predictor)
    guarded.fit(train, val)
    chosen = thresholds(predictor, train, val, study.endpoints)
    asked = [without_labels(p) for p in test]
    score, survival = guarded.predict(asked)
    each = guarded.predict_each(asked) if study.train.seeds > 1 else []
    for threshold in chosen.values():
        threshold.refuse([p.subject for p in test])
    score = with_truth(score, test, study.endpoints)
    at = score.endpoint.map({name: threshold.value for name, threshold in chosen.items()})
    seeds = [by_patient(own, test).assign(seed=seed) for seed, (own, _) in enumerate(each)]
    return (
        by_patient(score.assign(threshold=at.astype(float)), test),
        by_patient(survival, test),
        pd.concat(seeds) if seeds else pd.DataFrame(),
    )


def thresholds(
    predictor: Predictor, train: Sequence[Patient], val: Sequence[Patient], endpoints: Sequence[Endpoint]
) -> dict[str, Threshold]:
    """By endpoint the number that test patients' scores are held against, chosen by the others (see `Labels.threshold`)."""
    both = any(labels(endpoint).needs_training_scores for endpoint in endpoints)
    asked = [*(train if both else ()), *val]
    table = predictor.predict([without_labels(p) for p in asked])[0]
    chosen = {}
    for endpoint in endpoints:
        predicted = set(table.loc[table.endpoint == endpoint.name, "patient"])
        found = {name: _scored(endpoint, one, table, predicted) for name, one in (("training", train), ("validation", val))}
        if predicted and (threshold := labels(endpoint).threshold(**found)):
            chosen[endpoint.name] = threshold
    return chosen


def _scored(endpoint: Endpoint, patients: Sequence[Patient], table: pd.DataFrame, predicted: set[str]) -> Scored:
    """The first visits of those patients whose label is known and who have a score; without scores where none was asked for."""
    known = first_visits(
        [p for p in patients if p.knows(endpoint) and (p.id in predicted or not labels(endpoint).needs_training_scores)]
    )
    return Scored([p.subject for p in known], label_rows(known, endpoint), score_rows(table, endpoint, [p.id for p in known]))


def permuted(patients: Sequence[Patient], split: Split, seed: int, draw: int) -> list[Patient]:
    """The same patients with permuted labels: each gets all labels of another of the same test fold.

    Permuted within a fold, so that every fold keeps its classes; a patient's visits get the same patient's labels. Another
    `draw` (from 0) is another permutation.
    """
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(draw,) if draw else ()))
    first = {p.subject: p for p in reversed(patients)}
    home = {p.id: p.subject for p in patients}
    given: dict[str, dict[str, float]] = {}
    for ids in split:
        subjects = sorted({home[i] for i in ids})
        givers = generator.permutation(len(subjects))
        given |= {name: first[subjects[giver]].labels for name, giver in zip(subjects, givers, strict=True)}
    return [replace(p, labels=given[p.subject]) for p in patients]


def with_truth(scores: pd.DataFrame, patients: Sequence[Patient], endpoints: Sequence[Endpoint]) -> pd.DataFrame:
    """Scores beside the labels, which are joined only after predicting."""
    by_id = {p.id: p for p in patients}
    of_name = {endpoint.name: endpoint for endpoint in endpoints}
    classes = scores["class"] if "class" in scores else [""] * len(scores)
    rows = []
    for name, visit, of_class in zip(scores["endpoint"], scores["patient"], classes, strict=True):
        endpoint = of_name[name]
        rows.append(labels(endpoint).truth(endpoint, [by_id[visit].labels[column] for column in endpoint.columns], of_class))
    truth = pd.DataFrame(rows, index=scores.index, columns=pd.Index(["truth", "time_days", "event"]), dtype=float)
    return pd.concat([scores, truth], axis=1)


def by_patient(table: pd.DataFrame, patients: Sequence[Patient]) -> pd.DataFrame:
    """A predictor's table with the visit's id in `patient` parted into `patient` and `session`."""
    visits = {p.id: p for p in patients}
    named = [visits[visit] for visit in table["patient"]]
    return table.assign(patient=[p.subject for p in named], session=[p.session for p in named])


# Leakage checks. Where sites differ in scanner and in how often a label occurs, a model may learn the site, not the tumour.


def sites(patients: Sequence[Patient]) -> dict[str, str]:
    """The site of each visit, of sites with enough patients; empty when fewer than two are left or the table has no site."""
    named = {p.id: p.clinical.get("site", "") for p in patients}
    count = Counter(named.values())
    kept = {i: site for i, site in named.items() if site and count[site] >= MIN_SITE_PATIENTS}
    return kept if len(set(kept.values())) > 1 else {}


def site_probe(
    represent: Callable[[Sequence[Patient]], Float[np.ndarray, "n d"]], train: Sequence[Patient], test: Sequence[Patient]
) -> pd.DataFrame:
    """The site that a linear probe takes each test patient for: (patient, site, predicted).

    The probe is a logistic regression from what the heads read of the training patients, standardised, with scikit-learn's
    default penalty; `represent` gives the vectors of one fold's network, which had not seen the test patients.
    Source: Alain & Bengio 2017, arXiv:1610.01644, for linear probes; Zech et al. 2018, doi:10.1371/journal.pmed.1002683, for
    networks that recognise the hospital.
    """
    from sklearn.linear_model import LogisticRegression  # here, because it takes a second to import, and predicting needs none
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    of = sites((*train, *test))
    train, test = [p for p in train if p.id in of], [p for p in test if p.id in of]
    found = [of[p.id] for p in train]
    if not test or len(set(found)) < 2:
        return pd.DataFrame(columns=pd.Index(["patient", "site", "predicted"]))
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(represent(train), found)
    predicted = classifier.predict(represent(test))
    return pd.DataFrame({"patient": [p.subject for p in test], "site": [of[p.id] for p in test], "predicted": predicted})


def suspected_leaks(table: pd.DataFrame, endpoints: Sequence[Endpoint]) -> list[str]:
    """The endpoints that a model of permuted labels predicts within the test folds, p at most √(0.01 / E) for each of E.

    `table` holds one model's predictions (`predictions.COLUMNS`) of one repeat.
    """
    level = leak_level(len(endpoints))
    found = {endpoint.name: _found(table.loc[table.endpoint == endpoint.name], endpoint) for endpoint in endpoints}
    inflated = inflation(max(table.fold.nunique(), 1))
    return [name for name, one in found.items() if p_above_chance(one, inflated) <= level]


def _found(rows: pd.DataFrame, endpoint: Endpoint) -> WithinFold:
    """The judged figure within the folds, a row per patient whose label is known: visits count as in the report."""
    people = labels(endpoint).known_rows(endpoint, rows)
    return labels(endpoint).within(*labels(endpoint).arrays(people), people.fold.to_numpy())
