"""Findings: the figures of `metrics.json` go in, sentences on how they were measured and what they are come out.

`MEASURES` names every key that has a sentence; a key that is not in the metrics, or holds nothing, is not told of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mri_vit.report.numbers.compare import CLINICAL
from mri_vit.report.reading.run import OWN
from mri_vit.report.words import wording
from mri_vit.report.words.notation import adjusted_p, number, p_value, signed
from mri_vit.report.words.wording import Metrics, escape, estimate, is_known

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
    "site_probe": "A linear probe [@probe] asked how well what the model's heads read tells the site.",
}
COMPARED = {"versus_clinical": CLINICAL, "versus_own": OWN}  # a paired test of a result, and whom it is held against
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
TESTS = {"permutation": "permutation", "logrank": "log-rank"}


def measures(metrics: Metrics) -> dict[str, str]:
    """The sentence of each measure and test that has a figure anywhere in the metrics, by key."""
    present = _keys(metrics)
    return {key: sentence for key, sentence in MEASURES.items() if key in present}


def lines(metrics: Metrics) -> list[str]:
    """A line for each result, comparison, inner estimate of an external evaluation, and site probe."""
    told = []
    for name, model, result in wording.results(metrics):
        kind = metrics["endpoints"][name]["kind"]
        told.append(f"**{escape(name)}**, {escape(model)}: {size(result, kind)}; {'; '.join(_figures(result))}.")
    told += [f"**{escape(name)}**: no result." for name, found in metrics.get("endpoints", {}).items() if not found.get("models")]
    told += [
        comparison(name, model, other, found[part])
        for name, model, found in wording.results(metrics)
        for part, other in COMPARED.items()
        if found.get(part)
    ]
    for name, model, _ in wording.results(metrics):
        if own := (metrics.get("internal") or {}).get(name, {}).get(model):
            where = "out of fold in the run's own cohort"
            told.append(f"**{escape(name)}**, {escape(model)}, {where}: {SHOWN[own['measure']]} {estimate(own)}.")
    probes = (metrics.get("site_probe") or {}).get("models", {})
    return told + [f"**Site probe**, {escape(model)}: {escape(found['sentence'])}." for model, found in probes.items()]


def comparison(name: str, model: str, other: str, test: Mapping[str, Any]) -> str:
    """A model less another, with interval and test."""
    resampled = test.get("nadeau_bengio")
    over = f", over the folds of all repeats one-sided {escape(p_value(resampled['p']))}" if resampled else ""
    return (
        f"**{escape(name)}**, {escape(model)} less {other} ({wording.counted(test['n'], 'patient')}): difference {signed(test)}, "
        f"{escape(p_value(test['p']))}, {escape(adjusted_p(test['p_adjusted']))}{over}."
    )


def size(figures: Mapping[str, Any], kind: str) -> str:
    """51 patients, 20 positive."""
    people = wording.counted(figures.get("n", figures.get("known", 0)), "patient")
    return (
        f"{people}, {figures.get('positive', 0)} positive" if kind == "binary" else f"{people}, {figures.get('events', 0)} died"
    )


def headline(result: Mapping[str, Any]) -> str:
    """The one figure of a result that stands for it."""
    key = "auc" if "auc" in result else "harrell_c"
    return f"{SHOWN[key]} {estimate(result.get(key))}"


def verdict(result: Mapping[str, Any]) -> str:
    """The verdict in its own words; "" without one."""
    return escape(result.get("verdict") or "")


def rates(result: Mapping[str, Any]) -> list[str]:
    """Sensitivity and the like at the threshold, those that are known."""
    found = result.get("operating_point") or {}
    return [f"{words} {estimate(found[key])}" for key, words in POINTS.items() if is_known(found.get(key))]


def _figures(result: Mapping[str, Any]) -> list[str]:
    told = [headline(result)]
    told += [f"{words} {estimate(result[key])}" for key, words in SHOWN.items() if result.get(key) and words not in told[0]]
    told += [f"remark: {escape(result['remark']).rstrip('.')}"] if result.get("remark") else []
    if is_known(result.get("fold_variance")):
        told.append(f"folds {number(result['fold_mean'])} ± {number(result['fold_variance'], 4)} (mean ± sample variance)")
    fit = result.get("calibration") or {}
    told += [f"calibration {key} {estimate(fit[key])}" for key in ("slope", "intercept") if is_known(fit.get(key))]
    told += rates(result)
    told += [f"AUC at {at['days']} days {estimate(at)}" for at in result.get("auc_at") or () if is_known(at)]
    for key, words in TESTS.items():
        if test := result.get(key):
            holm = f" ({escape(adjusted_p(test['p_adjusted']))})" if is_known(test.get("p_adjusted")) else ""
            told.append(f"{words} {escape(p_value(test['p']))}{holm}")
    return [*told, f"verdict: {verdict(result)}"] if verdict(result) else told


def _keys(metrics: Metrics) -> set[str]:
    """Keys with something in them: of the metrics, of endpoints and results and of their tests; of results by kind too."""
    levels: list[Mapping[str, Any]] = [metrics, *metrics.get("endpoints", {}).values()]
    for name, _, result in wording.results(metrics):
        kind = metrics["endpoints"][name]["kind"]
        tests = [result[key] for key in ("permutation", *COMPARED) if isinstance(result.get(key), Mapping)]
        levels += [result, {f"{key}:{kind}": value for key, value in result.items()}, *tests]
    return {key for level in levels for key, value in level.items() if is_known(value)}
