"""What is measured of a binary marker: AUC, probabilities and rates; the whole is in `report/numbers/binary.py`."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.special import logit

from mri_vit.metrics import benefit, calibration, decision, discrimination, interaction, transportability
from mri_vit.metrics.benefit import Policy
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.discrimination import newcombe_variance, wilson_of_auc
from mri_vit.metrics.interaction import Heterogeneity
from mri_vit.metrics.site_calibration import Normal, log_observed_to_expected
from mri_vit.metrics.within_fold import PairErrors, label_errors
from mri_vit.report.numbers import binary
from mri_vit.report.numbers.judged import averaged, flags, floats, outside
from mri_vit.report.numbers.measures import Background, Ends, Figure, Measures, ratio_with_ends
from mri_vit.report.numbers.paired import MeasuredFigure, Shared, Tables, measure_figure
from mri_vit.report.numbers.sites import drift_of
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import DriftFigures, Measurement
from mri_vit.settings.schema import Endpoint

MIN_OF_SLOPE = 100  # of each class, for a calibration slope: Collins et al. 2016, doi:10.1002/sim.6787
PROBABILITY_EPS = 1e-7  # of a probability to 0 and 1, about single precision's step: a score of exactly 1 has no log odds


class BinaryMeasures(Measures):
    """AUC of pairs of a positive and a negative."""

    kind, alike, score_ends = "binary", "truth", (0.0, 1.0)
    without_risks = "no model gives probabilities"

    def measure(self, run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> Measurement:
        return binary.measure(endpoint, rows, background, run.study.seed)

    def interval(self, value: float, variance: float, error: float, people: pd.DataFrame, refits: bool) -> tuple[float, float]:
        truth = flags(people.truth)
        variance = 0.0 if math.isnan(variance) else variance  # one patient of a class has none; Newcombe's is left
        return wilson_of_auc(value, variance, int(truth.sum()), int((~truth).sum()), refits)

    def estimate(self, people: pd.DataFrame) -> float:
        return discrimination.auc(flags(people.truth), floats(people.score))

    def figure(self, people: pd.DataFrame) -> Figure:
        truth, score = flags(people.truth), floats(people.score)
        positives, negatives = int(truth.sum()), int((~truth).sum())
        if not positives or not negatives:
            return Figure(math.nan, math.nan, math.nan, math.nan)
        value, variance = discrimination.auc(truth, score), discrimination.delong_variance(truth, score)
        low, high = wilson_of_auc(value, variance, positives, negatives)
        shrunk = (value * positives * negatives + 0.5) / (positives * negatives + 1)
        variance = max(variance, newcombe_variance(shrunk, positives, negatives))
        return Figure(value, low, high, shrunk * (1 - shrunk) / variance)

    def marked(self, people: pd.DataFrame) -> Bool[np.ndarray, " n"]:
        return flags(people.truth)

    def part_of_cohort(self, people: pd.DataFrame, refits: bool) -> tuple[float, float, float]:
        """An undefined value has no interval."""
        truth, score = flags(people.truth), floats(people.score)
        value, positive = discrimination.auc(truth, score), int(truth.sum())
        variance = discrimination.delong_variance(truth, score)
        return value, *wilson_of_auc(value, variance, positive, len(people) - positive, refits=refits)

    def site_calibration(self, endpoint: Endpoint, people: pd.DataFrame, alive: pd.DataFrame) -> dict[str, Normal]:
        truth, score = flags(people.truth), floats(people.score)
        if outside(score):
            return {}
        slope, low, high = calibration.slope_interval(truth, score)
        of_slope = Normal(slope, ((high - low) / 2 / Z_95) ** 2)
        return {"slope": of_slope, "observed_to_expected": log_observed_to_expected(truth.astype(float), score)}

    def beside(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, inflated: float
    ) -> dict[str, Ends]:
        truth, score, found = flags(people.truth), floats(people.score), {}
        if not outside(score):
            found["observed_to_expected"] = ratio_with_ends(truth.astype(float), score, inflated)
            if min(truth.sum(), (~truth).sum()) >= MIN_OF_SLOPE:
                found["slope"] = Ends(*calibration.slope_interval(truth, score, inflated))
        if len(once := _called(once)):
            point = decision.operating_point(flags(once.truth), flags(once.called))
            found |= {"sensitivity": Ends(*point.sensitivity), "specificity": Ends(*point.specificity)}
        return found

    def differences(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, level: np.ndarray, seed: int
    ) -> dict[str, Heterogeneity]:
        found = super().differences(endpoint, people, once, alive, level, seed)
        truth, score = flags(people.truth), floats(people.score)
        if not outside(score):
            ratios = interaction.group_ratios(truth.astype(float), score, level)
            found["observed_to_expected"] = interaction.cochran_q(ratios.ratio, ratios.variance)
        if len(once := _called(once)):
            level_of = once.patient.map(dict(zip(people.patient, level, strict=True)))
            right = once.called == flags(once.truth)
            for name, here in (("sensitivity", flags(once.truth)), ("specificity", ~flags(once.truth))):
                counts = pd.crosstab(level_of[here], right[here]).reindex(np.unique(level), columns=[True, False], fill_value=0)
                found[name] = interaction.rates_differ(counts.to_numpy(), np.random.default_rng(seed))
        return found

    def risks(self, endpoint: Endpoint, rows: pd.DataFrame, alive: pd.DataFrame) -> dict[float, pd.DataFrame]:
        people = averaged(rows).set_index("patient")
        return {} if outside(floats(people.score)) else {math.nan: people.loc[:, ["truth", "score"]]}

    def policy(self, people: pd.DataFrame, thresholds: Float[np.ndarray, " t"], day: float) -> Policy:
        return benefit.of_markers(flags(people.truth), floats(people.score), thresholds)

    def errors(self, rows: pd.DataFrame, group: np.ndarray) -> PairErrors:
        return label_errors(flags(rows.truth), floats(rows.score), group)

    def score_groups(self, endpoint: Endpoint, people: pd.DataFrame) -> dict[str, Bool[np.ndarray, " n"]]:
        return {"positive": flags(people.truth), "negative": ~flags(people.truth)}

    def flag(self, rows: pd.DataFrame) -> pd.Series:
        return rows.truth

    def paired_loss(self, both: Shared, alive: Tables, pair: tuple[str, str], seed: int) -> MeasuredFigure | None:
        """Of the Brier score; None unless both models' scores are probabilities."""
        model, other = pair
        if outside(both.scores[model]) or outside(both.scores[other]):
            return None
        if "brier" not in both.measured:
            truth = flags(both.people.truth)
            errors = {name: (score - truth) ** 2 for name, score in both.scores.items()}
            both.measured["brier"] = measure_figure(
                {name: lambda drawn, error=error: drawn @ error / len(error) for name, error in errors.items()},
                np.array([error.mean() for error in errors.values()]),
                len(truth),
                seed,
            )
        return both.measured["brier"]

    def drift(
        self, inside: Run, run: Run, endpoint: Endpoint, before: pd.DataFrame, now: pd.DataFrame
    ) -> tuple[DriftFigures, ...]:
        people = [averaged(rows) for rows in (before, now)]
        if any(((one.score < 0) | (one.score > 1)).any() for one in people):
            return ()
        first, other = (transportability.of_markers(flags(one.truth), floats(one.score)) for one in people)
        slope, intercept, ratio, excess = map(drift_of, transportability.drift(first, other, run.study.seed))
        return (DriftFigures(math.nan, first.n, other.n, slope, intercept, ratio, excess),)

    def evidence(self, endpoint: Endpoint, scores: pd.DataFrame) -> Float[np.ndarray, " n"]:
        """Log odds."""
        return logit(floats(scores.score).clip(PROBABILITY_EPS, 1 - PROBABILITY_EPS))


def _called(once: pd.DataFrame) -> pd.DataFrame:
    """The rows with a threshold, and whether they are `called` positive."""
    here = once.loc[once.threshold.notna()]
    return here.assign(called=floats(here.score) >= floats(here.threshold))


PART = BinaryMeasures()
