"""Findings: the figures of `metrics.json` go in, sentences on how they were measured and what they are come out.

`MEASURES` names every key that has a sentence; a key that holds nothing in the metrics has none.
"""

from __future__ import annotations

import inspect

from mri_vit.metrics import comparison as paired
from mri_vit.metrics.bootstrap import RESAMPLES
from mri_vit.metrics.calibration_curve import expected_calibration_error
from mri_vit.metrics.discrimination import bootstrap_interval
from mri_vit.report.numbers.site_probe import PERMUTATIONS
from mri_vit.report.numbers.survival import TAU_DAYS
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Comparison, Estimate, Part, Value
from mri_vit.report.schema.survival import IntegratedBrier, SurvivalEndpoint, SurvivalResult
from mri_vit.report.words import wording
from mri_vit.report.words.notation import adjusted_p, interval, is_defined, judged, number, p_value, signed, symbol
from mri_vit.report.words.wording import escape, is_known

Result = BinaryResult | SurvivalResult
AUC_RESAMPLES, CALIBRATION_BINS = (
    inspect.signature(function).parameters[name].default  # what the report leaves as it is
    for function, name in (
        (bootstrap_interval, "resamples"),
        (expected_calibration_error, "bins"),
    )
)

MEASURES = {  # a key with a kind behind it ("versus_clinical:binary") is of results of that kind alone
    "auc": "The area under the ROC curve (AUC) has DeLong's 95 % interval [@delong,sunxu].",
    "auc_bootstrap": f"Another interval of the AUC is from a bootstrap of patients, stratified by class ({AUC_RESAMPLES} "
    "resamples) [@bootstrap].",
    "auc_within_folds": "The AUC was also taken over pairs of patients of the same fold [@janes].",
    "average_precision": "Average precision has an interval from the same kind of bootstrap and is read against the share of "
    "positives.",
    "brier": "The Brier score [@brier] was computed from the predicted probabilities; its interval is from a bootstrap of "
    f"patients ({RESAMPLES} resamples) [@bootstrap].",
    "calibration": "Calibration was measured by the slope and intercept of a logistic regression on the log odds [@calibration], "
    "by the ratio of observed to expected positives and by the integrated calibration index [@austin], with intervals from the "
    f"same bootstrap, and by the expected calibration error over {CALIBRATION_BINS} bins of equal width.",
    "operating_point": "Sensitivity, specificity and predictive values at the threshold given for the patient's fold have "
    "Wilson's intervals [@wilson].",
    "net_benefit": "Clinical use was judged by net benefit over thresholds [@vickers], with a pointwise bootstrap band.",
    "recalibrated": "Recalibrated figures were fitted on this cohort's own labels: they describe, and test nothing.",
    "harrell_c": "Survival was measured by Harrell's concordance index C [@harrell] with a 95 % percentile interval from a "
    f"bootstrap of patients ({RESAMPLES} resamples) [@bootstrap].",
    "harrell_c_within_folds": "C was also taken over pairs of patients of the same fold.",
    "uno_c": "Uno's C [@uno] weights by the inverse probability G(t) of not being censored by the day of a death, and counts "
    f"deaths before day {TAU_DAYS:.0f} or the end of follow-up, whichever is first.",
    "auc_at": "The cumulative/dynamic AUC at fixed times [@unoauc] weights by the inverse probability of censoring; its "
    "intervals are Wilson's [@wilson], by the spread of a bootstrap of patients.",
    "brier_at": "The Brier score of predicted survival at fixed times is weighted for censoring [@graf].",
    "integrated_brier": "The Brier score was also integrated over time [@graf], with an interval from a bootstrap of patients.",
    "calibration_at": "Predicted survival was compared with that observed by Kaplan and Meier's method [@kaplan].",
    "groups": "Patients of low and of high risk are shown by Kaplan-Meier curves [@kaplan].",
    "logrank": "The two groups were compared by the log-rank test [@mantel].",
    "hazard": "Hazard ratios, per standard deviation of the risk and of the two groups, are by Cox regression [@cox], with a "
    "test of proportional hazards [@grambsch].",
    "restricted_mean": "The groups' mean survival up to a fixed day is compared too [@rmst].",
    "decision_at": "Clinical use at fixed times was judged by net benefit, positives being estimated by Kaplan and Meier's "
    "method [@vickerssurvival], with a pointwise band from the patients' influence.",
    "fold_variance": "Figures of single folds are given as mean ± sample variance.",
    "judged:binary": "The AUC that is judged is that of pairs of patients whom one model scored, mean over repeats; its 95 % "
    "interval is Wilson's with an effective number of patients, from the larger of DeLong's and Newcombe's variance "
    "[@wilson,newcombe].",
    "judged:survival": "The C that is judged is that of pairs of patients whom one model scored, mean over repeats; its 95 % "
    "interval is Wilson's with an effective number of patients, from the infinitesimal jackknife's variance [@wilson,bootstrap].",
    "refits": "Where models were refitted per fold, that variance is multiplied by 1 + 4 a (1 - a), a the value.",
    "chance_test:refitted": "Regressions were tested against chance by refitting them to labels permuted within the folds of the "
    "first repeat [@phipson], until twenty permutations did as well or the p was small enough for Holm's correction [@besag].",
    "chance_test:within folds": "Other models were tested against chance by the standard error of that value for given scores, "
    "times sqrt(2 (1 - 1/K + 1/(K R))) for K folds and R repeats, because each patient taught the models that scored the others; "
    "the p is one-sided and normal.",
    "chance_test:scores as given": "The AUC and C of these patients, who taught no model, were tested against chance by their "
    "standard error without a signal; the p is one-sided and normal.",
    "retraining": "Where another training of the study would lie is a 95 % prediction interval from the trainings made.",
    "retraining:seeds": "These trainings are a fold's networks of several seeds, one by one; the mean of their scores, which is "
    "the model's, scatters less.",
    "within_sites": "The same figure was taken over pairs of patients of one site whom one model scored.",
    "versus_controls:binary": "The AUCs that are judged were compared with each control's by DeLong's paired test, of pairs "
    "within the folds [@delong]; p are two-sided.",
    "versus_controls:survival": "The Cs that are judged were compared with each control's by the infinitesimal jackknife of "
    "their difference [@bootstrap]; p are two-sided.",
    "versus_best": "A model beats the controls when it beats each of them; the largest p is adjusted over endpoints and models.",
    "versus_own:binary": "AUCs of comparators were compared with the AUC of the own model by the same paired test [@delong].",
    "versus_own:survival": "Cs of comparators were compared with that of the study's own model by the same jackknife "
    "[@bootstrap].",
    "nadeau_bengio": "Over the folds of all repeats the corrected resampled t-test was used too, one-sided for a better model "
    "[@nadeau].",
    "p_adjusted": "Adjusted p are by Holm's method [@holm], over the endpoints and candidates, or the endpoints and controls.",
    "pairs": "All models were compared with each other, two by two, on the patients that both predicted: AUCs by DeLong's "
    "paired test within folds [@delong], Cs by the jackknife, Brier scores by a paired bootstrap of patients "
    f"({paired.PAIRED_RESAMPLES} resamples) [@bootstrap]; all errors allow for refitting, and these p are not adjusted.",
    "subgroups": "AUC and C of the models shown were also computed within subgroups, with intervals; no test compares these.",
    "site_probe": "A linear probe [@probe] measured how well what the model's heads read predicts the site; its p is from "
    f"{PERMUTATIONS} permutations of the sites within the folds [@phipson], its normal quantile divided by what refitting adds.",
}
SHOWN = {
    "auc": "AUC of all scores together",
    "average_precision": "average precision",
    "brier": "Brier score",
    "harrell_c": "Harrell's C of all risks together",
    "uno_c": "Uno's C",
    "integrated_brier": "integrated Brier score",
}
SYMBOLS = {"auc": "AUC", "harrell_c": "C"}
POINTS = {"sensitivity": "sensitivity", "specificity": "specificity", "ppv": "PPV", "npv": "NPV"}


def measures(metrics: Metrics) -> dict[str, str]:
    """The sentence of each measure and test that has a figure anywhere in the metrics, by key."""
    present = _keys(metrics)
    return {key: sentence for key, sentence in MEASURES.items() if key in present}


def lines(metrics: Metrics) -> list[str]:
    """A line for each result, comparison, inner estimate of an external evaluation, and site probe."""
    said = [
        f"**{escape(name)}**, {escape(model)}: {size(result)}; {'; '.join(_figures(result))}."
        for name, model, result in wording.results(metrics)
    ]
    said += [f"**{escape(name)}**: no result." for name, found in metrics.endpoints.items() if not found.models]
    said += [
        comparison(name, model, other, test)
        for name, model, found in wording.results(metrics)
        for other, test in [*found.versus_controls.items(), *([(OWN, found.versus_own)] if found.versus_own else [])]
    ]
    for name, model, _ in wording.results(metrics):
        if own := (metrics.internal or {}).get(name, {}).get(model):
            where = "out of fold in the run's own cohort"
            said.append(f"**{escape(name)}**, {escape(model)}, {where}: {SYMBOLS[own.measure]} {interval(own)}.")
    probes = metrics.site_probe.models if metrics.site_probe else {}
    return said + [f"**Site probe**, {escape(model)}: {escape(found.sentence)}." for model, found in probes.items()]


def comparison(name: str, model: str, other: str, test: Comparison) -> str:
    """A model less another, with interval and test."""
    resampled = test.nadeau_bengio
    over = f", over the folds of all repeats one-sided {escape(p_value(resampled.p))}" if resampled else ""
    return (
        f"**{escape(name)}**, {escape(model)} less {other} ({wording.counted(test.n, 'patient')}): difference {signed(test)}, "
        f"two-sided {escape(p_value(test.p))}, {escape(adjusted_p(test.p_adjusted))}{over}."
    )


def size(found: Result | BinaryEndpoint | SurvivalEndpoint) -> str:
    """51 patients, 20 positive."""
    people = wording.counted(found.n if isinstance(found, BinaryResult | SurvivalResult) else found.known, "patient")
    if isinstance(found, BinaryResult | BinaryEndpoint):
        return f"{people}, {found.positive} positive"
    return f"{people}, {found.events} died"


def headline(result: Result) -> str:
    """The one figure of a result that stands for it."""
    return f"{symbol(result)} {judged(result)}"


def rates(result: Result) -> list[str]:
    """Sensitivity and the like at the threshold, those that are known."""
    point = result.operating_point if isinstance(result, BinaryResult) else None
    if point is None:
        return []
    return [f"{words} {interval(rate)}" for key, words in POINTS.items() if is_known(rate := getattr(point, key))]


def _figures(result: Result) -> list[str]:
    said = [headline(result)]
    for key, words in SHOWN.items():
        if words not in said[0] and (part := getattr(result, key, None)):
            said.append(f"{words} {_figure(part)}")
    said += [f"remark: {escape(result.remark).rstrip('.')}"] if result.remark else []
    if is_defined(result.fold_variance):
        said.append(f"folds {number(result.fold_mean)} ± {number(result.fold_variance, 4)} (mean ± sample variance)")
    if isinstance(result, BinaryResult):
        if fit := result.calibration:
            both = {"slope": fit.slope, "intercept": fit.intercept}
            said += [f"calibration {key} {number(value)}" for key, value in both.items() if is_defined(value)]
        said += rates(result)
    else:
        said += [f"AUC at {at.days} days {interval(at)}" for at in result.auc_at if is_known(at)]
    test = result.chance_test
    adjusted = f" ({escape(adjusted_p(test.p_adjusted))})" if is_defined(test.p_adjusted) else ""
    said.append(f"one-sided against chance {escape(p_value(test.p))}{adjusted}")
    if isinstance(result, SurvivalResult):
        said.append(f"log-rank {escape(p_value(result.logrank.p))}")
        if is_known(ratio := result.hazard.per_sd):
            said.append(f"hazard ratio per standard deviation {interval(ratio, digits=2)}")
    return [*said, f"verdict: {escape(result.verdict)}"] if result.verdict else said


def _figure(part: Estimate | Value | IntegratedBrier) -> str:
    return number(part.value) if isinstance(part, Value) else interval(part)


def _keys(metrics: Metrics) -> set[str]:
    """Keys with something in them: of the metrics, of endpoints and results and of their tests; of results by kind too."""
    keys = _known(metrics)
    for endpoint in metrics.endpoints.values():
        keys |= _known(endpoint)
    for name, _, result in wording.results(metrics):
        kind = metrics.endpoints[name].kind
        keys |= _known(result) | {f"{key}:{kind}" for key in _known(result)}
        keys |= {f"chance_test:{result.chance_test.method}"} | ({"refits"} if result.chance_test.inflation > 1 else set())
        keys |= {f"retraining:{result.retraining.source}"} if result.retraining else set()
        for test in (result.chance_test, *result.versus_controls.values(), result.versus_own):
            keys |= _known(test) if test else set()
    return keys


def _known(part: Part) -> set[str]:
    return {key for key in type(part).model_fields if is_known(getattr(part, key))}
