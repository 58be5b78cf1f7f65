"""What classes and grades have in common among what is measured: losses, confusion, and each class against the others."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from mri_vit.kinds.classes import SUM_TOL, shares
from mri_vit.metrics import multiclass, within_fold
from mri_vit.metrics.continuous import Estimate as Bounds
from mri_vit.metrics.discrimination import auc, delong_variance, wilson_of_auc
from mri_vit.metrics.intervals import Rate
from mri_vit.metrics.within_fold import PairErrors, label_errors
from mri_vit.report.numbers import binary, chance
from mri_vit.report.numbers.judged import averaged, by_fold, first_repeat, fold_of, fold_summary, has_folds, tied, widened
from mri_vit.report.numbers.measures import Background, Measures
from mri_vit.report.numbers.paired import MeasuredFigure, Shared, Tables, measure_figure
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.classes import ClassFold, Confusion, Loss, OneClass
from mri_vit.report.schema.measured import Caveats, Measurement
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Estimate, Value
from mri_vit.settings.schema import Endpoint


class ClassMeasures(Measures):
    """Losses, confusion and single classes; `figures_of` adds what a kind has beside them."""

    alike = "label"

    @abstractmethod
    def figures_of(self, endpoint: Endpoint, rows: pd.DataFrame, common: dict[str, Any], seed: int, inflated: float) -> Any:
        """The kind's figures: `common` and its own."""

    @abstractmethod
    def called(self, people: pd.DataFrame) -> Int[np.ndarray, " n"]:
        """The class that each patient is called."""

    def measure(self, run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> Measurement:
        seed, people = run.study.seed, averaged(rows)
        tested = chance.measure(endpoint, rows, background)
        inflated = chance.inflation(first_repeat(rows), background.design)
        refits = background.design not in NOT_TRAINED_ON
        value, low, high = self.part_of_cohort(people, refits)
        folds = tuple(self._fold(endpoint, repeat, fold, here) for repeat, fold, here in by_fold(rows))
        are_shares = probabilities(people)
        common: dict[str, Any] = {
            "n": len(people),
            "counts": counts(endpoint, people),
            "judged": tested.judged,
            "retraining": tested.retraining,
            "within_sites": tested.within_sites,
            "all_pairs": Estimate(value=value, low=low, high=high),
            "within_folds": Value(value=self.within(rows, fold_of(rows)).value) if has_folds(rows) else None,
            **(_losses(people, seed, inflated) if are_shares else {"log_loss": None, "brier": None}),
            "confusion": _confusion(endpoint, people, self.called(people), inflated),
            "classes": _classes(endpoint, people, seed, inflated, refits, are_shares),
            "folds": folds,
            **vars(fold_summary(folds, [fold.figure for fold in folds])),
        }
        figures = self.figures_of(endpoint, rows, common, seed, within_fold.interval_inflation(tested.judged.value, inflated))
        return Measurement(figures, tested.chance_test, self._caveats(endpoint, rows))

    def _fold(self, endpoint: Endpoint, repeat: int, fold: int, here: pd.DataFrame) -> ClassFold:
        columns = shares(here)
        return ClassFold(
            repeat=repeat,
            fold=fold,
            n=len(here),
            counts=counts(endpoint, here),
            tied=len(here) > 1 and bool((columns == columns[0]).all()),
            figure=self.estimate(here),
        )

    def _caveats(self, endpoint: Endpoint, rows: pd.DataFrame) -> Caveats:
        once, people = first_repeat(rows), averaged(rows)
        pooled = self.estimate(once)
        return Caveats(
            tied=all(tied(column) for column in shares(people).T),
            apart=chance.scales_apart(endpoint, rows, pooled, self.within(once, fold_of(once)).value),
            outside=0 if probabilities(people) else len(people),
            like_truth=bool((shares(people)[np.arange(len(people)), people.label] == 1).all()),
            gap=math.nan,
            has_cutoffs=False,
        )

    def label(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.Series:
        return rows.label.map(dict(enumerate(endpoint.classes or ())))

    def score_groups(self, endpoint: Endpoint, people: pd.DataFrame) -> dict[str, Bool[np.ndarray, " n"]]:
        return {name: people.label.to_numpy(int) == index for index, name in enumerate(endpoint.classes or ())}

    def predicted(self, endpoint: Endpoint, people: pd.DataFrame) -> pd.Series:
        """The class that each patient is called, with its probability."""
        called, columns = self.called(people), shares(people)
        names = endpoint.classes or ()
        words = [f"{names[index]} ({100 * columns[row, index]:.0f} %)" for row, index in enumerate(called.tolist())]
        return pd.Series(words, index=people.index, dtype=object)

    def levels(self, endpoint: Endpoint) -> tuple[str, ...]:
        return endpoint.classes or ()

    def level_counts(self, endpoint: Endpoint, known: Float[np.ndarray, "n c"]) -> tuple[int, ...]:
        return tuple(np.bincount(known[:, 0].astype(int), minlength=len(endpoint.classes or ())).tolist())

    def errors(self, rows: pd.DataFrame, group: np.ndarray) -> PairErrors:
        """Of every two classes, by either's probability: half a pair each."""
        label, columns = rows.label.to_numpy(int), shares(rows)
        wrong, pairs = np.zeros(len(rows)), np.zeros(len(rows))
        for one, other in combinations(range(columns.shape[1]), 2):
            both = (label == one) | (label == other)
            if both.any():
                for of in (one, other):
                    found = label_errors(label[both] == of, columns[both, of], group[both])
                    wrong[both] += found.wrong / 2
                    pairs[both] += found.pairs / 2
        return PairErrors(wrong, pairs.round().astype(int))

    def paired_loss(self, both: Shared, alive: Tables, pair: tuple[str, str], seed: int) -> MeasuredFigure | None:
        """Of the Brier score, summed over classes; None unless all models' scores are probabilities."""
        if not all(probabilities(both.tables[name]) for name in pair):
            return None
        if "brier" not in both.measured:
            known = np.eye(shares(both.people).shape[1])[both.people.label.to_numpy(int)]
            errors = {name: ((shares(one) - known) ** 2).sum(axis=1) for name, one in both.tables.items()}
            both.measured["brier"] = measure_figure(
                {name: lambda drawn, error=error: drawn @ error / len(error) for name, error in errors.items()},
                np.array([error.mean() for error in errors.values()]),
                len(known),
                seed,
            )
        return both.measured["brier"]


def counts(endpoint: Endpoint, people: pd.DataFrame) -> dict[str, int]:
    """Patients by class."""
    found = np.bincount(people.label.to_numpy(int), minlength=len(endpoint.classes or ()))
    return dict(zip(endpoint.classes or (), found.tolist(), strict=True))


def probabilities(people: pd.DataFrame) -> bool:
    """Whether every patient's scores are probabilities that add up to 1."""
    columns = shares(people)
    return bool((columns >= 0).all() and (abs(columns.sum(axis=1) - 1) <= SUM_TOL).all())


def _normed(people: pd.DataFrame) -> Float[np.ndarray, "n k"]:
    columns = shares(people)
    return columns / columns.sum(axis=1, keepdims=True)


def estimate(found: Bounds | Rate) -> Estimate:
    """A value with its interval, as `metrics.json` has it."""
    return Estimate(value=found.value, low=found.low, high=found.high)


def wide(found: Bounds | Rate, inflated: float, least: float = -math.inf, most: float = math.inf) -> Estimate:
    """The same, its interval `inflated` times as wide."""
    return Estimate(**widened(found.value, (found.low, found.high), inflated, least, most))


def _losses(people: pd.DataFrame, seed: int, inflated: float) -> dict[str, Loss]:
    found = multiclass.losses(people.label.to_numpy(int), _normed(people), np.random.default_rng(seed))
    parts = {
        "log_loss": (found.log_loss, found.log_loss_of_shares, found.scaled_log_loss),
        "brier": (found.brier, found.brier_of_shares, found.scaled_brier),
    }
    return {
        name: Loss(**dict(wide(loss, inflated, least=0.0)), reference=of_shares.value, scaled=wide(scaled, inflated, most=1.0))
        for name, (loss, of_shares, scaled) in parts.items()
    }


def _confusion(endpoint: Endpoint, people: pd.DataFrame, called: Int[np.ndarray, " n"], inflated: float) -> Confusion:
    names = endpoint.classes or ()
    found = multiclass.confusion(people.label.to_numpy(int), called, len(names))
    return Confusion(
        counts=tuple(tuple(row) for row in found.counts.tolist()),
        recall={name: wide(share, inflated, 0.0, 1.0) for name, share in zip(names, found.recall, strict=True)},
        precision={name: wide(share, inflated, 0.0, 1.0) for name, share in zip(names, found.precision, strict=True)},
        accuracy=wide(found.accuracy, inflated, 0.0, 1.0),
        balanced_accuracy=found.balanced_accuracy,
    )


def _classes(
    endpoint: Endpoint, people: pd.DataFrame, seed: int, inflated: float, refits: bool, are_shares: bool
) -> dict[str, OneClass]:
    found, label, columns = {}, people.label.to_numpy(int), shares(people)
    for index, name in enumerate(endpoint.classes or ()):
        here, score = label == index, columns[:, index]
        n, value = int(here.sum()), auc(here, score)
        low, high = wilson_of_auc(value, delong_variance(here, score), n, len(here) - n, refits)
        judged = are_shares and 0 < n < len(here)
        calibrated = binary.of_probabilities(here, score.clip(0, 1), seed, inflated).calibration if judged else None
        found[name] = OneClass(n=n, auc=Estimate(value=value, low=low, high=high), calibration=calibrated)
    return found


def pair_figures(names: Sequence[str], rows: pd.DataFrame) -> list[tuple[str, str, float]]:
    """The AUC within folds of every two classes, the mean of that by either's probability."""
    label, columns, group = rows.label.to_numpy(int), shares(rows), fold_of(rows)
    found = []
    for one, other in combinations(range(len(names)), 2):
        both = (label == one) | (label == other)
        each = [within_fold.within_fold_auc(label[both] == of, columns[both, of], group[both]).value for of in (one, other)]
        found.append((names[one], names[other], float(np.mean(each))))
    return found
