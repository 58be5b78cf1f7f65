"""A binary marker in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mri_vit.metrics import decision
from mri_vit.report.numbers.judged import THRESHOLDS
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryNumbers, BinaryResult, BinarySubgroup, OperatingPoint
from mri_vit.report.schema.measured import Caveats, SubgroupFigures
from mri_vit.report.schema.parts import Design, Estimate
from mri_vit.report.words import caveats
from mri_vit.report.words.endpoint_results import (
    ADJUSTED,
    RETRAINED,
    TEST,
    Measure,
    chance_test_in_words,
    distances,
    retrained,
    rows_of,
    scaled_in_words,
    spread,
)
from mri_vit.report.words.notation import adjusted_p, between, interval, is_defined, is_known, judged, number
from mri_vit.report.words.of_kind import EXPLAINED_CLASS, Fields, Row, Tables, Words, labelled
from mri_vit.settings.recipe import Train
from mri_vit.settings.schema import Endpoint

RATES = {"sensitivity": "sensitivity", "specificity": "specificity", "ppv": "PPV", "npv": "NPV"}


class BinaryWords(Words):
    """Positive and negative."""

    kind, same = "binary", "the same probability"
    meaning = "an AUC is the share of pairs, one positive and one negative patient, that are ranked correctly"
    undefined = "held one class only; their AUC is"
    folds_caption = "AUC per fold in the form of Saeed et al. 2023, Table 4"
    head = "A binary head predicts a logit and is trained with cross-entropy."
    explained = "a binary endpoint", f"the log odds of {EXPLAINED_CLASS}"
    regression = "logistic"
    output = "a probability for a binary endpoint"
    paired_test = "DeLong's"
    has_chance_row = True
    refuses = "no calibration, no Brier score and no net benefit"

    def endpoint(self, run: Run, endpoint: Endpoint, rows: Tables, shown: Sequence[str], shared: Fields) -> BinaryEndpoint:
        labels = labelled(rows, ("truth",))
        positive = labels.truth.to_numpy(dtype=bool)
        return BinaryEndpoint(
            kind="binary",
            positive=int(positive.sum()),
            net_benefit_of_all=tuple(decision.net_benefit(positive, np.ones(len(positive)), THRESHOLDS).tolist()),
            **shared,
        )

    def result(self, numbers: BinaryNumbers, sentences: Fields, limits: Caveats, design: Design) -> BinaryResult:
        return BinaryResult(**dict(numbers), **sentences, not_probability=caveats.not_probability(limits, numbers.n))

    def subgroup(self, endpoint: Endpoint, group: SubgroupFigures, fields: Fields) -> BinarySubgroup:
        return BinarySubgroup(**fields, positive=group.counts[0])

    def tallied(self, tally: str) -> str:
        return f", {tally.replace(' ', ' of them ')}"

    def scaled(self, result: BinaryNumbers) -> Estimate | None:
        return result.brier and result.brier.scaled

    def imbalance(self, train: Train) -> str:
        if not train.class_weights:
            return ""
        return (
            "Positives were weighted by negatives over positives of the training patients; the resulting shift of the log "
            "odds was removed from the predicted probability."
        )

    def figures(self, result: BinaryResult) -> tuple[list[str], list[str]]:
        found = []
        if fit := result.calibration:
            both = {"slope": fit.slope, "intercept": fit.intercept}
            found += [f"calibration {key} {number(value)}" for key, value in both.items() if is_defined(value)]
        return [*found, *threshold_rates(result)], []

    def rates(self, result: BinaryResult) -> list[str]:
        return threshold_rates(result)

    def measure_rows(self, results: Sequence[BinaryResult]) -> list[Row]:
        return rows_of(MEASURES, results)


def threshold_rates(result: BinaryResult) -> list[str]:
    """Sensitivity and the like at the threshold, those that are known."""
    point = result.operating_point
    if point is None:
        return []
    return [f"{words} {interval(rate)}" for key, words in RATES.items() if is_known(rate := getattr(point, key))]


def _rate(label: str, of: Callable[[OperatingPoint], Estimate]) -> Measure:
    return Measure(label, lambda r: r.operating_point and interval(of(r.operating_point), r.operating_point.n))


def _line(name: str) -> Measure:
    def write(r: BinaryResult) -> str | None:
        if not (fit := r.calibration):
            return None
        bounds = getattr(fit, f"{name}_interval")
        return between(getattr(fit, name), bounds.low, bounds.high, r.n)

    return Measure(f"Calibration {name} [bootstrap 95 %]", write)


MEASURES: tuple[Measure, ...] = (
    Measure("Patients (positive)", lambda r: f"{r.n} ({r.positive})"),
    Measure("AUC, judged [95 %, corrected for refitting]", judged),
    Measure("AUC, all patients [DeLong 95 %]", lambda r: interval(r.auc, r.n)),
    Measure("AUC, mean ± variance over folds", spread),
    Measure(TEST, chance_test_in_words),
    Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
    Measure(RETRAINED, retrained),
    Measure("Average precision [bootstrap 95 %]", lambda r: interval(r.average_precision, r.n)),
    Measure("Prevalence, the average precision of chance", lambda r: number(r.average_precision.chance)),
    Measure("Brier score [bootstrap 95 %]", lambda r: r.brier and interval(r.brier, r.n, 4)),
    Measure("Scaled Brier score, 0 without a model [bootstrap 95 %]", lambda r: r.brier and scaled_in_words(r.brier.scaled, r.n)),
    Measure("Brier score: reliability (lower is better)", lambda r: r.brier and number(r.brier.reliability, 4, r.n)),
    Measure("Brier score: resolution (higher is better)", lambda r: r.brier and number(r.brier.resolution, 4, r.n)),
    Measure("Brier score: uncertainty", lambda r: r.brier and number(r.brier.uncertainty, 4, r.n)),
    Measure("Brier score: within bins", lambda r: r.brier and number(r.brier.within, 4, r.n)),
    _line("slope"),
    _line("intercept"),
    Measure("Calibration in the large", lambda r: r.calibration and number(r.calibration.in_the_large, n=r.n)),
    Measure(
        "Observed to expected positives (O:E) [bootstrap 95 %]",
        lambda r: r.calibration and interval(r.calibration.observed_to_expected, r.n),
    ),
    Measure("Integrated calibration index (ICI) [bootstrap 95 %]", lambda r: r.calibration and interval(r.calibration.ici, r.n)),
    Measure("E50, E90: median and 90th percentile of that distance", lambda r: r.calibration and distances(r.calibration, r.n)),
    Measure("Expected calibration error", lambda r: r.calibration and number(r.calibration.ece, n=r.n)),
    _rate("Sensitivity at the fold's threshold", lambda point: point.sensitivity),
    _rate("Specificity", lambda point: point.specificity),
    _rate("Positive predictive value", lambda point: point.ppv),
    _rate("Negative predictive value", lambda point: point.npv),
)

PART = BinaryWords()
