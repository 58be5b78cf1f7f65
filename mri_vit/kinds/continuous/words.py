"""A number in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mri_vit.report.reading.run import Run
from mri_vit.report.schema.continuous import (
    ContinuousEndpoint,
    ContinuousNumbers,
    ContinuousResult,
    ContinuousSubgroup,
)
from mri_vit.report.schema.measured import Caveats, SubgroupFigures
from mri_vit.report.schema.parts import Design, Estimate
from mri_vit.report.words.endpoint_results import Measure, common_rows, rows_of
from mri_vit.report.words.notation import interval, judged, number
from mri_vit.report.words.of_kind import WEIGHED, Fields, Row, Tables, Words
from mri_vit.settings.schema import Endpoint


class ContinuousWords(Words):
    """Values, errors and agreement."""

    kind = "continuous"
    meaning = "a C of numbers is the share of pairs of unequal value that are ranked correctly"
    same, predicted = "the mean of the training patients", "Predicted numbers"
    below = ", and here the mean was nearer"
    undefined = "held patients of one value only; their C is"
    folds_caption = "C per fold"
    loss = "mean absolute error"
    one_class = "all patients have the same value"
    head = (
        "A head of a number predicts it in robust standard deviations from the training patients' median, trained with Huber's "
        f"loss [@huber], {WEIGHED}."
    )
    explained = "numbers", "the predicted number"
    regression = "linear"
    output = "a number"

    def endpoint(self, run: Run, endpoint: Endpoint, rows: Tables, shown: Sequence[str], shared: Fields) -> ContinuousEndpoint:
        return ContinuousEndpoint(kind="continuous", unit=endpoint.unit or "", **shared)

    def result(self, numbers: ContinuousNumbers, sentences: Fields, limits: Caveats, design: Design) -> ContinuousResult:
        return ContinuousResult(**dict(numbers), **sentences)

    def subgroup(self, endpoint: Endpoint, group: SubgroupFigures, fields: Fields) -> ContinuousSubgroup:
        return ContinuousSubgroup(**fields)

    def scaled(self, result: ContinuousNumbers) -> Estimate | None:
        return result.r_squared

    def gain(self) -> str:
        return "R²"

    def figures(self, result: ContinuousResult) -> tuple[list[str], list[str]]:
        found = {"Spearman's ρ within folds": result.spearman, "mean absolute error": result.mae}
        return [f"{name} {interval(one)}" for name, one in found.items()], []

    def measure_rows(self, results: Sequence[ContinuousResult]) -> list[Row]:
        of_logs = ", of logarithms" if results and results[0].log else ""
        limits = "predicted / observed" if of_logs else "predicted − observed"
        return rows_of(
            [
                Measure("Patients (median)", lambda r: f"{r.n} ({number(r.median, 1)})"),
                Measure("C, judged [95 %, corrected for refitting]", judged),
                Measure("C, all patients [95 %]", lambda r: interval(r.all_pairs, r.n)),
                *common_rows("C"),
                Measure("Spearman's ρ within folds [95 %]", lambda r: interval(r.spearman, r.n)),
                Measure(f"Pearson's r within folds{of_logs} [95 %]", lambda r: interval(r.pearson, r.n)),
                Measure("R², 0 for the training patients' mean [bootstrap 95 %]", lambda r: interval(r.r_squared, r.n)),
                Measure("Mean absolute error [bootstrap 95 %] (training patients' mean)", _error),
                Measure("Root mean squared error [bootstrap 95 %]", lambda r: interval(r.rmse, r.n)),
                Measure(f"Calibration slope{of_logs} [95 %]", lambda r: interval(r.line.slope, r.n)),
                Measure(f"Calibration intercept{of_logs} [95 %]", lambda r: interval(r.line.intercept, r.n)),
                Measure(
                    f"Calibration in the large: observed − predicted{of_logs} [95 %]",
                    lambda r: interval(r.line.in_the_large, r.n),
                ),
                Measure(f"Limits of agreement, {limits}", _limits),
            ],
            results,
        )


def _error(result: ContinuousResult) -> str:
    return f"{interval(result.mae, result.n)} ({number(result.mean_mae.value)})"


def _limits(result: ContinuousResult) -> str:
    found = result.agreement
    if result.log:
        lower, upper, mean = (number(math.exp(one.value)) for one in (found.lower, found.upper, found.bias))
        return f"{lower} to {upper} times, mean {mean} times"
    return f"{number(found.lower.value)} to {number(found.upper.value)}, mean {interval(found.bias, result.n)}"


PART = ContinuousWords()
