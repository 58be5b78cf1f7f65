"""Methods: the content of `metrics.json` goes in, Markdown for a paper's Methods and Results comes out.

A stage writes sentences only when settings or figures show that it happened. What a run cannot know is a gap, **[author: …]**.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from mri_vit.metrics import comparison
from mri_vit.metrics.calibration_curve import expected_calibration_error
from mri_vit.metrics.intervals import RESAMPLES
from mri_vit.report.schema.measured import PERMUTATIONS, TAU_DAYS
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import NOT_TRAINED_ON, TABLES, Environment, Part
from mri_vit.report.schema.survival import AddedValue
from mri_vit.report.words import endpoint_results, map_sentences, networks, of_kind, run_facts
from mri_vit.report.words.notation import counted, escape, is_known, listed
from mri_vit.report.words.protocol import preparation_sentences, training_sentences
from mri_vit.report.words.references import with_references
from mri_vit.report.words.run_facts import Facts
from mri_vit.settings.recipe import CLINICAL, CONTROLS, INTENSITY, RADIOMICS, RESHUFFLED, SHUFFLED, SITE, SLICES, VOLUME

CALIBRATION_BINS = inspect.signature(expected_calibration_error).parameters["bins"].default  # what the report leaves as it is

# A key with a kind behind it ("versus_controls:binary") is of that kind alone; "pairs" are classes, grades and numbers.
MEASURE_SENTENCES = {
    "auc": "The area under the ROC curve (AUC) has DeLong's 95 % interval [@delong,sunxu].",
    "auc_within_folds": "The AUC was also computed over pairs of patients of the same fold [@janes].",
    "average_precision": "Average precision has an interval from a bootstrap of patients, stratified by class, and is read "
    "against the share of positives.",
    "brier:binary": "The Brier score [@brier] was computed from the predicted probabilities, and scaled by that of a model that "
    f"gives every patient the share of positives here [@ipa]; intervals are from a bootstrap of patients ({RESAMPLES} "
    "resamples) [@bootstrap].",
    "calibration": "Calibration was measured by the slope and intercept of a logistic regression on the log odds [@calibration], "
    "by the ratio of observed to expected positives, by a smooth curve (local regression as R's loess has it, drawn between the "
    "ends of its cells) and the mean, median and 90th percentile of the distance from it, ICI, E50 and E90 [@austin], with "
    f"intervals from the same bootstrap, and by the expected calibration error over {CALIBRATION_BINS} bins of equal width.",
    "operating_point": "Sensitivity, specificity and predictive values at the threshold given for a patient have "
    "Wilson's intervals [@wilson].",
    "net_benefit": "Clinical utility was measured by net benefit over thresholds [@vickers], with a pointwise bootstrap band.",
    "pdi": "Classes were measured by Hand and Till's M, the mean over pairs of classes of the AUC by either's probability "
    "[@handtill], over pairs of patients of the same fold, and by the polytomous discrimination index [@pdi], whose "
    "interval is from a bootstrap of patients within their class.",
    "confusion": "Each patient was called one class (of grades, that next to the expected one); accuracy, recall and precision "
    "have Wilson's intervals [@wilson].",
    "log_loss": "The logarithmic score and the Brier score [@brier] of all classes' probabilities were computed, and scaled by "
    "those of the shares of the classes here, with intervals from a bootstrap of patients [@bootstrap]; each class's AUC "
    "and calibration are against all others.",
    "somers_d": "Grades were judged by the generalised C over pairs of patients of the same fold and of unequal grade, of which "
    "Somers' D is 2 C − 1 [@somers].",
    "weighted_kappa": "Agreement of grades was measured by Cohen's kappa with quadratic weights [@fleiss].",
    "r_squared": "Numbers were judged by the C over pairs of patients of the same fold and of unequal value; Pearson's and "
    "Spearman's correlations are within folds, R² and the mean absolute error against the mean of the training patients, with "
    "intervals from a bootstrap of patients [@bootstrap], calibration is by the line of the observed on the predicted and their "
    "mean difference, agreement by Bland and Altman's limits [@bland]; where the logarithm of a number is learned, Pearson's "
    "correlation, calibration and agreement are of logarithms.",
    "recalibrated": "Recalibrated figures were fitted on this cohort's own labels: they describe this cohort and test nothing.",
    "harrell_c": "Survival was measured by Harrell's concordance index C [@harrell]. Its 95 % interval over all patients is "
    "Wilson's with an effective number of patients, from the infinitesimal jackknife's variance [@wilson,bootstrap].",
    "harrell_c_within_folds": "C was also computed over pairs of patients of the same fold.",
    "uno_c": "Uno's C [@uno] weights each death by 1 / G(t)², G(t) the probability of not being censored by then, and "
    f"counts deaths before day {TAU_DAYS:.0f} or the end of follow-up, whichever is first; its interval is of the same kind.",
    "uno_c:competing": "Wolbers's C [@wolbers] takes Uno's place where an event has a competing one: patients with that count as "
    f"never having the event; events until day {TAU_DAYS:.0f} count, and its interval is of the same kind.",
    "auc_at": "The cumulative/dynamic AUC at fixed times [@unoauc] weights by the inverse probability of censoring; its "
    "intervals are Wilson's [@wilson], by the spread of a bootstrap of patients.",
    "brier_at": "The Brier score of predicted survival at fixed times is weighted for censoring [@graf].",
    "integrated_brier": "The Brier score was also integrated over time [@graf], and scaled by that of the Kaplan-Meier curve of "
    "these patients [@ipa], with intervals from a bootstrap of patients.",
    "integrated_brier:competing": "Brier scores count patients with the competing event as without the event [@schoop]; the "
    "integrated one was scaled by that of the cumulative incidence [@ipa], with intervals from a bootstrap of patients.",
    "calibration_at": "Predicted survival was compared with observed survival by the Kaplan-Meier method [@kaplan], by the slope "
    "of a Cox regression on its complementary log-log [@crowson], and by a smooth curve of pseudo-values [@gerds], with the "
    "mean, median and 90th percentile of the distance from it, ICI, E50 and E90 [@austin].",
    "calibration_at:competing": "Predicted probabilities of an event that has a competing one were compared with its cumulative "
    "incidence [@aalen], and by a smooth curve of its pseudo-values [@gerds] with ICI, E50 and E90 [@austin].",
    "groups": "Patients of low and of high risk are shown by Kaplan-Meier curves [@kaplan].",
    "logrank": "Patients of low and of high risk were compared by the log-rank test [@mantel].",
    "hazard": "Hazard ratios, per standard deviation of the risk and of the two groups, are by Cox regression [@cox], with a "
    "test of proportional hazards [@grambsch].",
    "competing": "Where a competing event may come first, patients with it are not censored: shares with either event are the "
    "cumulative incidence [@aalen]; AUC(t) counts these patients as without the event [@blanche]; Harrell's C, hazard ratios and "
    "the log-rank test are of the cause-specific hazard; the groups' cumulative incidences were compared by Gray's test [@gray].",
    "competing:combined": "Predicted probabilities combine the model's cause-specific hazard with the training patients' hazard "
    "of the competing event.",
    "competing:given": "Predicted probabilities are the table's, taken as those of the event where the competing one may come "
    "first.",
    "restricted_mean": "The restricted mean survival of the two groups was compared too [@rmst].",
    "decision_at": "Clinical utility at fixed times was measured by net benefit, with positives estimated by the Kaplan-Meier "
    "method [@vickerssurvival], with a pointwise band from the patients' influence.",
    "decision_at:competing": "Where an event has a competing one, positives of the net benefit at fixed times were estimated by "
    "its cumulative incidence [@vickerssurvival], with a pointwise band from the patients' influence.",
    "fold_variance": "Figures of single folds are given as mean ± sample variance.",
    "judged": "The judged figure is over pairs of patients scored by the same model, mean over repeats; its 95 % interval is "
    "Wilson's with an effective number of patients [@wilson].",
    "judged:binary": "The variance of a judged AUC is the larger of DeLong's and Newcombe's [@newcombe].",
    "judged:survival": "The variance of a judged C of survival is the infinitesimal jackknife's [@bootstrap].",
    "judged:pairs": "The variance of a judged M or C of classes, grades or numbers is the jackknife's too [@bootstrap].",
    "refits": "Where models were refitted per fold, that variance is multiplied by 1 + 4 a (1 - a), where a is the AUC or C, and "
    "so are those of pooled and subgroup figures of rank; intervals of Brier scores, slopes, calibration curves and net benefit "
    "are sqrt(2) times as wide as for scores as given.",
    "refits:survival": "So are the variances of log hazard ratios and restricted means, and the log-rank statistic is halved.",
    "refits:competing": "So are the variances of cause-specific log hazard ratios; log-rank and Gray's statistics are halved.",
    "refits:pairs": "Intervals of all other figures of classes, grades and numbers but calibration in the large are wider by "
    "the same factor as the standard error of the test against chance.",
    "chance_test:refitted": "Regressions were tested against chance by refitting them to labels permuted within the folds of the "
    "first repeat [@phipson], until twenty permutations did as well or the p was small enough for Holm's correction [@besag].",
    "chance_test:within folds": "Other models were tested against chance by the standard error of that value for given scores, "
    "times sqrt(2 (1 - 1/K + 1/(K R))) for K folds and R repeats, because each patient was used to train the models that "
    "scored the others; the p is one-sided and normal.",
    "chance_test:scores as given": "No model was trained on these patients, so their AUC and C were tested by their "
    "standard error without a signal; the p is one-sided and normal.",
    "retraining": "The expected range of another training is a 95 % prediction interval from the trainings made.",
    "retraining:seeds": "These trainings are the single networks of several seeds in a fold; the model's score is their "
    "mean, which varies less.",
    "instability": "Instability of single predictions was measured over these trainings [@rileyinstability]: by the mean "
    "absolute difference of two trainings' predictions of a patient (MAPE; in its source, of retrained models from the original "
    "one), compared with that of two patients, and by how often two trainings call a patient differently.",
    "prediction_sets:classes": "Sets of classes that hold the right one with a probability of 90 %, in each class, are by "
    "cross-conformal prediction [@vovk,vovkclasses]: a class is ruled out for a patient where nine in ten of its other patients "
    "have a score that fits it better.",
    "prediction_sets:numbers": "Intervals that hold a number with a probability of 90 % are the prediction, less and more the "
    "error that nine in ten of the other patients do not exceed [@vovk].",
    "prediction_sets:other patients": "Sites were compared by an exact test, within classes, of how many of their sets miss.",
    "prediction_sets:other sites": "Sites, which were left out in turn, were compared by Student's t of how many sets miss.",
    "within_sites": "The judged figure was computed within sites too, over pairs of patients scored by the same model, and "
    "compared with that of all pairs by a paired test; sites with enough patients were compared with the mean of the others.",
    "versus_controls:binary": "The judged AUCs were compared with each control's by DeLong's paired test, of pairs "
    "within the folds [@delong]; p are two-sided.",
    "versus_controls:survival": "The judged Cs were compared with each control's by the infinitesimal jackknife of "
    "their difference [@bootstrap]; p are two-sided.",
    "versus_controls:pairs": "The judged M and C of classes, grades and numbers were compared with each control's, and two by "
    "two, by the infinitesimal jackknife of their difference [@bootstrap]; p are two-sided. Two models of a number are compared "
    "by their mean absolute errors as others are by Brier scores.",
    "hospitals:clustered": "An interval of the judged figure that allows for clustering by hospital is from a jackknife of "
    "hospitals, with as many degrees of freedom less one [@obuchowski,cameron].",
    "hospitals:left out": "Each hospital was predicted by models that were trained on none of its patients (internal–external "
    "validation [@debray]).",
    "hospitals:pooled": "Figures of patients' mean scores were pooled on the arcsine scale, slopes as they are, O:E as "
    "logarithms, by random effects (REML) with Hartung and Knapp's interval [@hartung]; the 95 % prediction interval of a "
    "further hospital is over the confidence distribution of the standard deviation between hospitals [@nagashima].",
    "margins": "A model is not inferior to another where the 95 % interval of their paired difference lies above minus the "
    "study's margin, and equivalent where it lies within the margin either side [@schuirmann,piaggio].",
    "margins:every control": "Non-inferiority to all controls is by the largest p, adjusted over endpoints and models [@holm].",
    "versus_best": "A model beats the controls when it beats each of them; the largest p is adjusted over endpoints and models.",
    "versus_own": "Comparators were compared with the study's own model by paired tests: AUCs by DeLong's in folds [@delong], "
    "others by the infinitesimal jackknife [@bootstrap].",
    "nadeau_bengio": "Over the folds of all repeats the corrected resampled t-test was used too, one-sided for a better model "
    "[@nadeau].",
    "p_adjusted": "Adjusted p are by Holm's method [@holm], over endpoints and compared models, or endpoints and controls.",
    "pairs": "All models were compared two by two on the patients that both predicted: AUCs by DeLong's paired test within folds "
    f"[@delong], Cs by the jackknife, Brier scores by a paired bootstrap of patients ({comparison.PAIRED_RESAMPLES} resamples) "
    "[@bootstrap]; where models were refitted per fold, errors allow for it. These p are not adjusted.",
    "subgroups": "AUC and C of the models shown were also computed within subgroups, with intervals.",
    "interactions": "Whether the judged figure and those beside it differ between the groups of a column was tested by Cochran's "
    "Q [@cochran], of rates by Pearson's chi² against random tables with the same sums, in groups with at least ten of the rarer "
    "class; p are adjusted by Holm's method over endpoints, columns and measures.",
    "unlabelled": "Patients with and without a label were compared by standardised differences [@austinbalance]; those above "
    "0.25 [@rubin] at an adjusted p of at most 0.05 are named (by ranks, or random tables with the same sums).",
    "utility": "Over the thresholds that the study names, net benefit less that of acting on all patients, on none, on the "
    "better of both and on each control with probabilities was averaged, and is given with a normal interval and a simultaneous "
    "95 % band [@vickersrange]; where models were refitted per fold, errors allow for it.",
    "added_value": "Whether the risk adds to covariates was tested by Cox regressions without and with it, stratified by the "
    "network that scored a patient where there are several [@cox]. C without and with the risk is of those with every covariate.",
    "added_value:imputed": "For the added value, covariates that some patients lack were imputed several times, by chained "
    "equations with each event and its cumulative hazard among their columns; results were pooled by Rubin's rules [@white].",
    "site_probe": "A linear probe [@probe] measured how well the input of the model's heads predicts the site; its p is from "
    f"{PERMUTATIONS} permutations of the sites within the folds [@phipson]; "
    "the normal quantile of p is divided by the factor by which refitting enlarges the standard error.",
}


def measure_sentences(metrics: Metrics) -> dict[str, str]:
    """The sentence of each measure and test that has a figure anywhere in the metrics, by key."""
    present = _keys(metrics)
    return {key: sentence for key, sentence in MEASURE_SENTENCES.items() if key in present}


def _keys(metrics: Metrics) -> set[str]:
    """Keys with something in them: of the metrics, of endpoints and results and of their tests; of results by kind too."""
    keys = _known(metrics) - {name for name, found in _tried(metrics).items() if not any(found)}
    for endpoint in metrics.endpoints.values():
        keys |= _known(endpoint) - {"added_value"} | _of_added_value(getattr(endpoint, "added_value", None))
    by_hospital = [found for models in metrics.hospitals.values() for found in models.values()]
    keys |= {f"hospitals:{key}" for key in ("clustered", "pooled") if any(getattr(found, key) for found in by_hospital)}
    keys |= {"margins:every control" for of in metrics.margins.values() for found in of.values() if found.every_control}
    for sets in (found for models in metrics.prediction_sets.values() for found in models.values()):
        keys.add("prediction_sets:numbers" if is_known(sets.reach) else "prediction_sets:classes")
        keys |= {f"prediction_sets:{sets.calibrated_on}" for site in sets.sites if is_known(site.p)}
    keys |= {f"hospitals:{found.unseen}" for found in by_hospital if found.pooled}
    for name, _, result in run_facts.results(metrics):
        known, kind = _known(result), metrics.endpoints[name].kind
        if getattr(result, "others", None) is not None:
            known, kind = {_of_kind(key, "competing") for key in known - {"groups"}}, "competing"
            with_probabilities = "integrated_brier:competing" in known
            keys |= {f"competing:{'given' if metrics.design in TABLES else 'combined'}"} if with_probabilities else set()
        keys |= known | {_of_kind(key, kind) for key in known}
        keys |= {f"chance_test:{result.chance_test.method}"}
        keys |= {"refits", _of_kind("refits", kind)} if metrics.design not in NOT_TRAINED_ON else set()
        keys |= {f"retraining:{result.retraining.source}"} if result.retraining else set()
        for test in (result.chance_test, *result.versus_controls.values(), result.versus_own):
            keys |= _known(test) if test else set()
    return keys


def _tried(metrics: Metrics) -> dict[str, list[object]]:
    """What may have been tried without a figure: nothing to compare, or no group that is large enough."""
    return {
        "interactions": [found.tests for found in metrics.interactions.values()],
        "unlabelled": [found.characteristics for found in metrics.unlabelled.values()],
        "utility": [metrics.utility and metrics.utility.endpoints],
    }


def _of_added_value(found: AddedValue | None) -> set[str]:
    if found is None or isinstance(found.analysis, str):
        return set()
    return {"added_value", "added_value:imputed"} if found.imputations else {"added_value"}


def _of_kind(key: str, kind: str) -> str:
    """The key of a kind, of survival with a competing event too; classes, grades and numbers share theirs."""
    own = {"binary": (kind,), "survival": (kind,), "competing": (kind, "survival")}.get(kind, (kind, "pairs"))
    return next((f"{key}:{one}" for one in own if f"{key}:{one}" in MEASURE_SENTENCES), key)


def _known(part: Part) -> set[str]:
    return {key for key in type(part).model_fields if is_known(getattr(part, key))}


REGRESSIONS = (CLINICAL, VOLUME, INTENSITY, SLICES, SITE, RADIOMICS)
CONTROLS_MADE = {
    CLINICAL: "clinical (penalised {regressions} regression on clinical columns)",
    VOLUME: "volume (the same regressions on the volume of the brain and, where there was a mask, of the tumour)",
    INTENSITY: "intensity (the same regressions on mean, SD, skewness, kurtosis, percentiles and maximum of each sequence in the "
    "brain and, where there was a mask, in the tumour)",
    SLICES: "slices (the same regressions on principal components of a frozen 2D network's features, their number chosen on the "
    "validation patients)",
    RADIOMICS: "radiomics, an upper reference that no model has to beat (the same regressions on principal components of "
    "each sequence's radiomic features, by nyxus, in the tumour mask)",
    SITE: "site (the same regressions on the site alone)",
    SHUFFLED: "shuffled (the model itself, once over the folds, trained and tested on labels permuted within the folds)",
    RESHUFFLED: "shuffled again (the same on a fresh permutation, because the first one looked suspicious)",
}
THRESHOLDS = "Thresholds were chosen on the validation patients of each fold; of several repeats the first is shown."
FITTED = "In each fold the regressions were fitted on the training patients alone{thresholds}."
FITTED_THRESHOLDS = ", and the thresholds of their probabilities chosen on the validation patients, like the model's"
COVARIATES = (
    "Covariates were scaled, from the training patients alone; missing ones were imputed by the linear prediction from the "
    "patient's other covariates, which is the mean over multiple imputations of a linear predictor [@wood], and flagged."
)
MEDIANS = "Missing numbers of {named} were imputed by their median over the training patients."


def methods_and_results(metrics: Metrics, facts: Facts) -> str:
    """Methods and Results as Markdown: headed sections, then the references that they cite and no others.

    A table from elsewhere has no settings, and the stages before evaluation are left out.
    """
    stages = (
        ("Cohort", cohort_sentences),
        ("Preparation of the images", preparation_sentences),
        ("Model", networks.model_sentences),
        ("Pretraining", networks.pretraining_sentences),
        ("Training and cross-validation", training_sentences),
        ("Comparators", networks.comparator_sentences),
        ("Controls", control_sentences),
        ("Evaluation", evaluation_sentences),
        ("Maps", map_sentences.map_methods),
        ("Software", software_sentences),
    )
    parts = [f"# Methods and results of “{escape(metrics.study)}”"]
    parts.append("Written from the run's own settings and figures. What a run cannot know is marked **[author: …]**.")
    parts += [f"## {title}\n\n{' '.join(found)}" for title, stage in stages if (found := stage(metrics, facts))]
    if found := [*endpoint_results.result_lines(metrics), *map_sentences.map_result_lines(metrics)]:
        parts.append("## Results\n\nBrackets hold 95 % intervals.\n\n" + "\n".join(f"- {line}" for line in found))
    return with_references("\n\n".join(parts)) + "\n"


def cohort_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """Who was in the table, who was left out and why, and whose labels are known."""
    cohort = metrics.cohort
    if metrics.design in TABLES:
        return []
    sentences = [
        facts.gap("source", "where the patients come from: setting, centres, dates"),
        facts.gap("eligibility", "who was eligible, and treatments"),
        facts.gap("ethics", "ethics approval and consent"),
        f"The cohort table held {counted(cohort.patients, 'patient')}.",
        excluded_sentence(metrics),
        f"{counted(cohort.predicted, 'patient')} got a prediction.",
    ]
    if cohort.unpredicted:
        sentences.append(f"{counted(cohort.unpredicted, 'patient')} in the table got none without being excluded.")
    how = facts.gap("labels", "how, when and by whom each label was determined")
    return [*sentences, *label_counts(metrics), how, "A missing label was left out and never imputed."]


def excluded_sentence(metrics: Metrics) -> str:
    """How many patients were excluded, counted by reason."""
    reasons = sorted(metrics.cohort.excluded_reasons.items(), key=lambda reason: -reason[1])
    why = "; ".join(f"{escape(reason)} (n = {count})" for reason, count in reasons)
    number = counted(metrics.cohort.excluded, "patient")
    return f"Excluded, because their scans could not or should not be used: {number}{f' ({why})' if why else ''}."


def label_counts(metrics: Metrics) -> list[str]:
    """Of each endpoint: labels known in the table and in the evaluation, and how many are positive or died."""
    cohort, sentences = metrics.cohort, []
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.known:
            sentences.append(f"No label of {escape(name)} entered the evaluation.")
            continue
        known = cohort.known.get(name)
        in_table = "" if known is None else f" was known for {known} of {cohort.patients} patients in the table and"
        sentences.append(
            f"The label of {escape(name)}{in_table} entered the evaluation for {endpoint_results.patients_and_events(endpoint)}."
        )
    return sentences


def control_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """What the model has to beat: controls that have results, and those that could not be made with the reason."""
    run, notes = run_facts.controls(metrics), metrics.notes
    where = "On the same folds" if metrics.design == "cross-validation" else "Fitted on the earlier run's patients"
    sentences = [f"{where}, these controls were made: {controls_made(metrics, run)}."] if run else []
    for name in REGRESSIONS:
        if name in run and notes.get(f"{name}_columns"):
            sentences.append(f"The {name} model read {escape(notes[f'{name}_columns'])}.")
    if CLINICAL in run and notes.get(f"{CLINICAL}_withheld"):
        sentences.append(f"Of these columns not all were read for every endpoint: {escape(notes[f'{CLINICAL}_withheld'])}.")
    if notes.get(f"{CLINICAL}_remarks"):
        sentences.append(f"Of the clinical columns: {escape(notes[f'{CLINICAL}_remarks'])}.")
    if set(REGRESSIONS) & set(run):
        thresholds = FITTED_THRESHOLDS if "operating_point" in _keys(metrics) else ""
        sentences += [FITTED.format(thresholds=thresholds), *imputed(run)]
    return sentences + [f"No {name} control: {escape(notes[name])}." for name in (*CONTROLS, RADIOMICS) if notes.get(name)]


def imputed(names: Iterable[str]) -> list[str]:
    """How these controls fill in what a patient lacks."""
    by_median = [name for name in names if name in (SLICES, RADIOMICS)]
    covariates = [COVARIATES] if {CLINICAL, VOLUME, INTENSITY, SITE} & set(names) else []
    return covariates + ([MEDIANS.format(named=listed(by_median))] if by_median else [])


def controls_made(metrics: Metrics, names: Iterable[str]) -> str:
    """Each control with how it was made."""
    regressions = listed([of_kind.of(kind).regression for kind in run_facts.kinds(metrics)])
    return "; ".join(CONTROLS_MADE[name].format(regressions=regressions) for name in names)


def evaluation_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """Every measure and test that has a figure, with its source."""
    measures = measure_sentences(metrics)
    if not measures:
        return []
    repeated = ["Pooled figures use each patient's mean score over the repeats."] if metrics.repeats > 1 else []
    labels = label_counts(metrics) if metrics.design in TABLES else []
    sentences = [_scored(metrics, facts), *repeated, *labels, *measures.values()]
    cutoffs = (getattr(result, "cutoffs", "") for _, _, result in run_facts.results(metrics))
    sentences += sorted({escape(words) for words in cutoffs if words})
    if metrics.design == "cross-validation" and "operating_point" in measures:
        sentences.append(THRESHOLDS)
    sentences.append("A figure that cannot be computed (one class only, no event) is reported as undefined and never imputed.")
    if metrics.rules:
        rules = " ".join(f"({i}) {escape(rule)}" for i, rule in enumerate(metrics.rules, 1))
        sentences.append(f"Verdicts follow rules that were fixed in advance: {rules}")
    return sentences


def _scored(metrics: Metrics, facts: Facts) -> str:
    """Who scored the patients."""
    unseen = run_facts.labels_alone(metrics)
    if metrics.design == "cross-validation":
        return (
            f"Each patient was scored by a model that had not seen the patient{unseen}, and the scores of all folds were pooled."
        )
    if metrics.design == "external":
        trained = f"none of which was trained on this cohort{unseen}"
        return f"Each patient's score is the mean over the models of an earlier run, {trained}."
    declared = " It was declared that no model was trained on these patients." if metrics.design in NOT_TRAINED_ON else ""
    return (
        f"The scores were taken from a table made elsewhere: {facts.gap('scores', 'who or what made them, and how')}.{declared}"
    )


def software_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """Versions, commit, device and threads."""
    environment = metrics.environment
    if not isinstance(environment, Environment) or not environment.versions:
        return []
    versions = ", ".join(f"{escape(name)} {escape(version)}" for name, version in environment.versions.items())
    sentences = [f"The software was {versions}."]
    if environment.git_commit is not None:
        sentences.append(f"It was run from commit {escape(environment.git_commit)}.")
    sentences += [f"The device was {escape(environment.device)}.", f"The number of CPU threads was {environment.threads}."]
    return [*sentences, facts.gap("availability", "where code, weights and data can be had")]
