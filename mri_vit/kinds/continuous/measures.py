"""What is measured of a number: order, correlation, error, calibration and agreement."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.kinds.class_measures import estimate, wide
from mri_vit.metrics import continuous, interaction
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.interaction import Heterogeneity
from mri_vit.metrics.within_fold import PairErrors, survival_errors
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.judged import averaged, by_fold, first_repeat, floats, fold_of, fold_summary, has_folds, tied
from mri_vit.report.numbers.measures import Background, Ends, Measures
from mri_vit.report.numbers.paired import MeasuredFigure, Shared, Tables, measure_figure
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.continuous import Agreement, ContinuousFigures, ContinuousFold, Line
from mri_vit.report.schema.measured import Caveats, Measurement
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Estimate, Value
from mri_vit.settings.schema import Endpoint


class ContinuousMeasures(Measures):
    """C of pairs of unequal value within a fold."""

    kind, alike = "continuous", ""

    def measure(self, run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> Measurement:
        people, once = averaged(rows), first_repeat(rows)
        tested = chance.measure(endpoint, rows, background)
        inflated = chance.inflation(once, background.design)
        refits = background.design not in NOT_TRAINED_ON
        value, low, high = self.part_of_cohort(people, refits)
        folds = tuple(self._fold(repeat, fold, here) for repeat, fold, here in by_fold(rows))
        truth, score, reference = floats(people.truth), floats(people.score), reference_of(rows)
        errors = continuous.errors(truth, score, reference, np.random.default_rng(run.study.seed))
        on_scale = scaled(endpoint, truth), scaled(endpoint, score)
        line, agreement = continuous.calibration(*on_scale), continuous.agreement(*on_scale)
        observed, predicted, group = floats(once.truth), floats(once.score), fold_of(once)
        figures = ContinuousFigures(
            n=len(people),
            commonest=int(np.unique(truth, return_counts=True)[1].max(initial=0)),
            median=float(np.median(truth)),
            judged=tested.judged,
            retraining=tested.retraining,
            within_sites=tested.within_sites,
            all_pairs=Estimate(value=value, low=low, high=high),
            within_folds=Value(value=self.within(rows, fold_of(rows)).value) if has_folds(rows) else None,
            spearman=estimate(continuous.within_fold_spearman(observed, predicted, group, inflated)),
            pearson=estimate(
                continuous.within_fold_correlation(scaled(endpoint, observed), scaled(endpoint, predicted), group, inflated)
            ),
            r_squared=wide(errors.r_squared, inflated, most=1.0),
            mae=wide(errors.mae, inflated, least=0.0),
            rmse=wide(errors.rmse, inflated, least=0.0),
            mean_mae=estimate(errors.reference_mae),
            log=bool(endpoint.log),
            line=Line(
                slope=wide(line.slope, inflated),
                intercept=wide(line.intercept, inflated),
                in_the_large=estimate(line.in_the_large),
            ),
            agreement=Agreement(
                bias=estimate(agreement.bias),
                sd=wide(agreement.sd, inflated, least=0.0),
                lower=wide(agreement.lower, inflated),
                upper=wide(agreement.upper, inflated),
            ),
            folds=folds,
            **vars(fold_summary(folds, [fold.figure for fold in folds])),
        )
        return Measurement(figures, tested.chance_test, self._caveats(endpoint, rows))

    def _fold(self, repeat: int, fold: int, here: pd.DataFrame) -> ContinuousFold:
        return ContinuousFold(repeat=repeat, fold=fold, n=len(here), tied=tied(floats(here.score)), figure=self.estimate(here))

    def _caveats(self, endpoint: Endpoint, rows: pd.DataFrame) -> Caveats:
        people = averaged(rows)
        return Caveats(
            tied=tied(floats(people.score)),
            apart=None,  # no two patients have one outcome, at which scores of folds could be compared
            outside=0,
            like_truth=bool((floats(people.score) == floats(people.truth)).all()),
            gap=math.nan,
            has_cutoffs=False,
        )

    def label(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.Series:
        unit = f" {endpoint.unit}" if endpoint.unit else ""
        return rows.truth.map(lambda value: f"{value:g}{unit}")

    def predicted(self, endpoint: Endpoint, people: pd.DataFrame) -> pd.Series:
        return people.score.map(lambda value: f"{value:.3g}{f' {endpoint.unit}' if endpoint.unit else ''}").astype(object)

    def levels(self, endpoint: Endpoint) -> tuple[str, ...]:
        return ()

    def beside(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, inflated: float
    ) -> dict[str, Ends]:
        error = scaled(endpoint, floats(people.score)) - scaled(endpoint, floats(people.truth))
        mean, variance = interaction.group_means(error, np.zeros(len(people)))
        reach = Z_95 * inflated * np.sqrt(variance)
        return {"mean_error": Ends(float(mean[0]), float((mean - reach)[0]), float((mean + reach)[0]))}

    def differences(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, level: np.ndarray, seed: int
    ) -> dict[str, Heterogeneity]:
        error = scaled(endpoint, floats(people.score)) - scaled(endpoint, floats(people.truth))
        found = super().differences(endpoint, people, once, alive, level, seed)
        return found | {"mean_error": interaction.cochran_q(*interaction.group_means(error, level))}

    def errors(self, rows: pd.DataFrame, group: np.ndarray) -> PairErrors:
        return survival_errors(-floats(rows.truth), np.ones(len(rows), bool), floats(rows.score), group)

    def evidence(self, endpoint: Endpoint, scores: pd.DataFrame) -> Float[np.ndarray, " n"]:
        """The number, or its logarithm."""
        return scaled(endpoint, floats(scores.score))

    def paired_loss(self, both: Shared, alive: Tables, pair: tuple[str, str], seed: int) -> MeasuredFigure | None:
        """Of the mean absolute error."""
        if "mae" not in both.measured:
            errors = {name: abs(score - floats(both.people.truth)) for name, score in both.scores.items()}
            both.measured["mae"] = measure_figure(
                {name: lambda drawn, error=error: drawn @ error / len(error) for name, error in errors.items()},
                np.array([error.mean() for error in errors.values()]),
                len(both.people),
                seed,
            )
        return both.measured["mae"]


def scaled(endpoint: Endpoint, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """On the scale on which the endpoint is learned: of a number whose logarithm is learned, that."""
    return np.log(values) if endpoint.log else values


def reference_of(rows: pd.DataFrame) -> Float[np.ndarray, " n"]:
    """By patient, in the order of `averaged`, what a model has to be better than: the mean of the training fold's numbers.

    It is the threshold of the table of predictions; where that has none, the mean of the other folds' patients, and of a single
    fold that of all.
    """
    once = first_repeat(rows).sort_values("patient")
    if once.threshold.notna().all():
        return floats(once.threshold)
    if once.fold.nunique() < 2:
        return np.full(len(once), float(once.truth.mean()))
    means = {fold: float(once.truth[once.fold != fold].mean()) for fold in once.fold.unique()}
    return floats(once.fold.map(means))


PART = ContinuousMeasures()
