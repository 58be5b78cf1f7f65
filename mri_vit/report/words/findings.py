"""Findings: the figures of `metrics.json` go in, sentences on how they were measured and what they are come out.

`MEASURES` names every key that has a sentence; a key that holds nothing in the metrics has none.
"""

from __future__ import annotations

from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult, Brier
from mri_vit.report.schema.comparison import Comparison
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.part import Estimate, Part, Value
from mri_vit.report.schema.survival import BrierScore, SurvivalEndpoint, SurvivalResult
from mri_vit.report.words import wording
from mri_vit.report.words.notation import adjusted_p, interval, is_defined, number, p_value, signed
from mri_vit.report.words.wording import escape, is_known
from mri_vit.settings.models import CLINICAL

Result = BinaryResult | SurvivalResult

MEASURES = {  # a key with a kind behind it ("versus_clinical:binary") is of results of that kind alone
    "auc": "The area under the ROC curve (AUC) has DeLong's 95 % interval [@delong,sunxu].",
    "auc_bootstrap": "A second interval of the AUC is from a bootstrap of patients, stratified by class [@bootstrap].",
    "auc_within_folds": "The AUC was also taken over pairs of patients of the same fold [@janes].",
    "average_precision": "Average precision has an interval from the same kind of bootstrap and is read against the share of "
    "positives.",
    "brier": "The Brier score [@brier] was computed from the predicted probabilities.",
    "calibration": "Calibration was measured by the slope and intercept of a logistic regression on the log odds [@calibration] "
    "and by the expected calibration error.",
    "operating_point": "Sensitivity, specificity and predictive values at the threshold given for the patient's fold have "
    "Wilson's intervals [@wilson].",
    "net_benefit": "Clinical use was judged by net benefit over thresholds [@vickers].",
    "recalibrated": "Recalibrated figures were fitted on this cohort's own labels: they describe, and test nothing.",
    "harrell_c": "Survival was measured by Harrell's concordance index C [@harrell] with a 95 % percentile interval from a "
    "bootstrap of patients [@bootstrap].",
    "harrell_c_within_folds": "C was also taken over pairs of patients of the same fold.",
    "uno_c": "Uno's C [@uno] weights by the inverse probability of censoring.",
    "auc_at": "The cumulative/dynamic AUC at fixed times [@unoauc] weights by the inverse probability of censoring.",
    "brier_at": "The Brier score of predicted survival at fixed times is weighted for censoring [@graf].",
    "integrated_brier": "The Brier score was also integrated over time [@graf].",
    "calibration_at": "Predicted survival was compared with that observed by Kaplan and Meier's method [@kaplan].",
    "groups": "Patients of low and of high risk are shown by Kaplan-Meier curves [@kaplan].",
    "logrank": "The two groups were compared by the log-rank test [@mantel].",
    "fold_variance": "Figures of single folds are given as mean ± sample variance.",
    "permutation": "One-sided p against chance come from permutations [@phipson].",
    "versus_clinical:binary": "AUCs were compared with the clinical model's by DeLong's paired test [@delong].",
    "versus_clinical:survival": "Cs were compared with the clinical model's by a paired bootstrap of patients [@bootstrap].",
    "versus_own:binary": "AUCs of comparators were compared with the AUC of the own model by DeLong's paired test [@delong].",
    "versus_own:survival": "Cs of comparators were compared with that of the study's own model by a paired bootstrap of patients "
    "[@bootstrap].",
    "nadeau_bengio": "Over the folds of all repeats the corrected resampled t-test was used too, one-sided for a better model "
    "[@nadeau].",
    "p_adjusted": "Adjusted p are adjusted over endpoints and models by Holm's method [@holm].",
    "subgroups": "The same figures were computed within subgroups; no test compares these.",
    "site_probe": "A linear probe [@probe] measured how well what the model's heads read predicts the site.",
}
SHOWN = {
    "auc": "AUC",
    "auc_within_folds": "AUC within folds",
    "average_precision": "average precision",
    "brier": "Brier score",
    "harrell_c": "Harrell's C",
    "harrell_c_within_folds": "C within folds",
    "uno_c": "Uno's C",
    "integrated_brier": "integrated Brier score",
}
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
        for other, test in ((CLINICAL, found.versus_clinical), (OWN, found.versus_own))
        if test
    ]
    for name, model, _ in wording.results(metrics):
        if own := (metrics.internal or {}).get(name, {}).get(model):
            where = "out of fold in the run's own cohort"
            said.append(f"**{escape(name)}**, {escape(model)}, {where}: {SHOWN[own.measure]} {interval(own)}.")
    probes = metrics.site_probe.models if metrics.site_probe else {}
    return said + [f"**Site probe**, {escape(model)}: {escape(found.sentence)}." for model, found in probes.items()]


def comparison(name: str, model: str, other: str, test: Comparison) -> str:
    """A model less another, with interval and test."""
    resampled = test.nadeau_bengio
    over = f", over the folds of all repeats one-sided {escape(p_value(resampled.p))}" if resampled else ""
    return (
        f"**{escape(name)}**, {escape(model)} less {other} ({wording.counted(test.n, 'patient')}): difference {signed(test)}, "
        f"{escape(p_value(test.p))}, {escape(adjusted_p(test.p_adjusted))}{over}."
    )


def size(found: Result | BinaryEndpoint | SurvivalEndpoint) -> str:
    """51 patients, 20 positive."""
    people = wording.counted(found.n if isinstance(found, BinaryResult | SurvivalResult) else found.known, "patient")
    if isinstance(found, BinaryResult | BinaryEndpoint):
        return f"{people}, {found.positive} positive"
    return f"{people}, {found.events} died"


def headline(result: Result) -> str:
    """The one figure of a result that stands for it."""
    return f"{SHOWN['auc' if isinstance(result, BinaryResult) else 'harrell_c']} {interval(result.estimate)}"


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
    test = result.permutation
    adjusted = f" ({escape(adjusted_p(test.p_adjusted))})" if is_defined(test.p_adjusted) else ""
    said.append(f"permutation {escape(p_value(test.p))}{adjusted}")
    if isinstance(result, SurvivalResult):
        said.append(f"log-rank {escape(p_value(result.logrank.p))}")
    return [*said, f"verdict: {escape(result.verdict)}"] if result.verdict else said


def _figure(part: Estimate | Value | Brier | BrierScore) -> str:
    return interval(part) if isinstance(part, Estimate) else number(part.value)


def _keys(metrics: Metrics) -> set[str]:
    """Keys with something in them: of the metrics, of endpoints and results and of their tests; of results by kind too."""
    keys = _known(metrics)
    for endpoint in metrics.endpoints.values():
        keys |= _known(endpoint)
    for name, _, result in wording.results(metrics):
        kind = metrics.endpoints[name].kind
        keys |= _known(result) | {f"{key}:{kind}" for key in _known(result)}
        for test in (result.permutation, result.versus_clinical, result.versus_own):
            keys |= _known(test) if test else set()
    return keys


def _known(part: Part) -> set[str]:
    return {key for key in type(part).model_fields if is_known(getattr(part, key))}
