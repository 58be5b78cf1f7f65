"""What a kind of endpoint measures of a model's rows, as `judged.known_rows` gives them; n patients, b sets of weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.kinds.kind import Labels, part
from mri_vit.metrics.benefit import Policy
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.discrimination import wilson_of_c
from mri_vit.metrics.interaction import Heterogeneity, cochran_q
from mri_vit.metrics.site_calibration import Normal, log_observed_to_expected
from mri_vit.metrics.transportability import on_arcsine
from mri_vit.metrics.within_fold import PairErrors, WithinFold
from mri_vit.report.numbers.paired import MeasuredFigure, Shared, Tables
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import DriftFigures, Measurement
from mri_vit.report.schema.parts import Design
from mri_vit.settings.schema import Endpoint


class Figure(NamedTuple):
    """A judged figure with its 95 % interval, and the number of patients at which a share has the same variance."""

    value: float
    low: float
    high: float
    patients: float

    @property
    def on_arcsine(self) -> tuple[float, float]:
        """Value and variance on the scale on which sites are pooled (`transportability.on_arcsine`); NaN where undefined."""
        return on_arcsine(self.value, self.patients)


class Ends(NamedTuple):
    """An estimate with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Background:
    """What is known of a model's scores beside the rows."""

    design: Design
    nulls: pd.DataFrame  # predictions.NULL_COLUMNS, of this model and endpoint; empty where nothing was refitted
    seeds: pd.DataFrame  # predictions.SEED_COLUMNS, likewise; empty where a fold had one network
    site_of: Mapping[str, str]  # by patient; empty without sites
    family: int = 1  # results whose p are corrected together


class Measures(ABC):
    """What is measured of a kind of endpoint. `people` are rows with one per patient, `rows` one per patient and repeat."""

    kind: ClassVar[str]
    alike: ClassVar[str]  # the column of rows by which patients have one outcome; "" where hardly two have

    without_risks: ClassVar[str] = "its kind has none"  # why no net benefit can be measured where `risks` is empty

    @property
    def labels(self) -> Labels:
        return part(self.kind, "labels")

    def rare(self, endpoint: Endpoint) -> str:
        """What there must not be too few of, in words."""
        return self.labels.rarer

    @abstractmethod
    def measure(self, run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> Measurement:
        """One model by itself."""

    def within(self, rows: pd.DataFrame, group: np.ndarray) -> WithinFold:
        """The judged figure of pairs within a group."""
        return self.labels.within(*self.labels.arrays(rows), group)

    def interval(self, value: float, variance: float, error: float, people: pd.DataFrame, refits: bool) -> tuple[float, float]:
        """Of a judged figure, `variance` that of scores as given, `error` the standard error without a signal."""
        return wilson_of_c(value, variance, error**2, refits)

    def estimate(self, people: pd.DataFrame) -> float:
        """The figure of all pairs."""
        return self.within(people, np.zeros(len(people))).value

    def figure(self, people: pd.DataFrame) -> Figure:
        """The figure of all pairs of some patients with its interval."""
        found = self.within(people, np.zeros(len(people)))
        low, high = wilson_of_c(found.value, found.variance, found.error**2)
        if np.isnan(low):
            return Figure(found.value, np.nan, np.nan, np.nan)
        patients = 1 / (4 * found.error**2)
        if found.variance > 0:
            patients = min(patients, found.value * (1 - found.value) / found.variance)
        return Figure(found.value, low, high, patients)

    def rarer(self, people: pd.DataFrame) -> int:
        """Patients of what must not be rare."""
        return self.labels.count_rarer(self.labels.arrays(people)[0])

    def marked(self, people: pd.DataFrame) -> Bool[np.ndarray, " n"]:
        """Who is counted beside the number of patients; all where a kind marks none."""
        return np.ones(len(people), dtype=bool)

    def part_of_cohort(self, people: pd.DataFrame, refits: bool) -> tuple[float, float, float]:
        """The figure of all pairs with its interval, of the patients of a subgroup."""
        found = self.within(people, np.zeros(len(people)))
        low, high = self.interval(found.value, found.variance, found.error, people, refits)
        return found.value, low, high

    def site_calibration(self, endpoint: Endpoint, people: pd.DataFrame, alive: pd.DataFrame) -> dict[str, Normal]:
        """Of probabilities of one site's patients: `slope`, and the logarithm of O:E; nothing of a kind without a rule.

        `alive` are predicted probabilities of survival, as `judged.chances_alive` gives them.
        """
        return {}

    def beside(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, inflated: float
    ) -> dict[str, Ends]:
        """What is measured of a subgroup beside `part_of_cohort`: value, and ends of the 95 % interval.

        `once` are the rows of the first repeat, `alive` as `judged.chances_alive` gives them, `inflated` multiplies errors.
        """
        return {}

    def differences(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, level: np.ndarray, seed: int
    ) -> dict[str, Heterogeneity]:
        """Whether figures differ between the levels of `people`: the judged one as "figure", and those of `beside`.

        `Heterogeneity.groups` are positions in the sorted levels.
        """
        figures = [self.figure(people.loc[level == name]).on_arcsine for name in np.unique(level)]
        return {"figure": cochran_q(*np.array(figures).T)}

    def risks(self, endpoint: Endpoint, rows: pd.DataFrame, alive: pd.DataFrame) -> dict[float, pd.DataFrame]:
        """By day (NaN for a marker), patients with a probability on which one may act, as `score`, and their outcome."""
        return {}

    def policy(self, people: pd.DataFrame, thresholds: Float[np.ndarray, " t"], day: float) -> Policy:
        """Acting on those of a table of `risks` whose score reaches the threshold."""
        raise NotImplementedError(f"{self.kind} has no probability on which one may act")

    @abstractmethod
    def errors(self, rows: pd.DataFrame, group: np.ndarray) -> PairErrors:
        """Each patient's pairs within a group, and how many of them are wrong."""

    def flag(self, rows: pd.DataFrame) -> pd.Series | None:
        """Whether each row's patient is positive, or died; None of a kind that has no such thing."""
        return None

    def label(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.Series:
        """The label of each row in words, where `flag` does not say it."""
        return pd.Series(None, index=rows.index, dtype=object)

    def predicted(self, endpoint: Endpoint, people: pd.DataFrame) -> pd.Series:
        """The prediction in words, where a score is none."""
        return pd.Series(None, index=people.index, dtype=object)

    score_ends: ClassVar[tuple[float, float] | None] = None  # of the scale of scores; None is that of the scores themselves

    def score_groups(self, endpoint: Endpoint, people: pd.DataFrame) -> dict[str, Bool[np.ndarray, " n"]]:
        """Patients by outcome, in words, whose scores are drawn apart."""
        return {"patients": np.ones(len(people), dtype=bool)}

    def levels(self, endpoint: Endpoint) -> tuple[str, ...]:
        """What is counted of known labels in a table of characteristics; none where their median is given."""
        return (self.labels.marked_as,)

    def level_counts(self, endpoint: Endpoint, known: Float[np.ndarray, "n c"]) -> tuple[int, ...]:
        """Patients of each level."""
        return (self.labels.count_marked(known),)

    def paired_loss(self, both: Shared, alive: Tables, pair: tuple[str, str], seed: int) -> MeasuredFigure | None:
        """The loss of probabilities (or of numbers) by which two models are compared beside their figures; None without any.

        `alive` are by model the predicted probabilities of survival, as `judged.chances_alive` gives them.
        """
        return None

    def drift(
        self, inside: Run, run: Run, endpoint: Endpoint, before: pd.DataFrame, now: pd.DataFrame
    ) -> tuple[DriftFigures, ...]:
        """How probabilities drift from the run's cohort; nothing of a kind without a rule."""
        return ()

    def evidence(self, endpoint: Endpoint, scores: pd.DataFrame) -> Float[np.ndarray, " n"]:
        """Scores, in the columns of `known_rows`, on the scale of what maps explain."""
        return scores.score.to_numpy(float)


def of(endpoint: Endpoint) -> Measures:
    """The part of an endpoint's kind that is measured."""
    return part(endpoint.kind, "measures")


def ratio_with_ends(observed: Float[np.ndarray, " n"], expected: Float[np.ndarray, " n"], inflated: float) -> Ends:
    """O:E of some patients with its interval on the logarithm, errors times `inflated`; without ends where none is observed."""
    value = float(observed.sum() / expected.sum()) if expected.sum() > 0 else np.nan
    factor = float(np.exp(Z_95 * inflated * np.sqrt(log_observed_to_expected(observed, expected).variance)))
    return Ends(value, value / factor, value * factor)
