"""Answers to a checklist on how patients were scored, how the scores were measured, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.schema.parts import TABLES
from mri_vit.report.words import (
    endpoint_results,
    map_sentences,
    methods_section,
    of_kind,
    run_facts,
)
from mri_vit.report.words.answering import bearing, of_training
from mri_vit.report.words.answers_on_patients import counts
from mri_vit.report.words.answers_on_training import clusters, disjoint, versions
from mri_vit.report.words.methods_section import measure_sentences
from mri_vit.report.words.notation import counted, escape, is_defined, listed
from mri_vit.report.words.references import without_citations
from mri_vit.report.words.run_facts import Facts
from mri_vit.report.words.utility import UNNAMED
from mri_vit.settings.recipe import SHUFFLED, is_compared


def ensemble(metrics: Metrics) -> str:
    if metrics.design == "external":
        return "Each patient's score is the mean over the models of the run's folds."
    if run_facts.trained(metrics) is None:
        return ""
    if metrics.repeats > 1:
        return f"A patient's scores are averaged over {metrics.repeats} repeats."
    return "None: one model scored each patient."


def predicting(metrics: Metrics) -> str:
    if run_facts.trained(metrics) is None:
        return ensemble(metrics)
    averaged = f" {ensemble(metrics)}" if metrics.repeats > 1 else ""
    unseen = f"had not seen the patient{run_facts.labels_alone(metrics)}"
    return f"Each patient was scored by the model of the patient's test fold, which {unseen}.{averaged}"


def unseen(metrics: Metrics) -> str:
    """Whether a model was judged on patients that it was fitted to; "" for a table whose making is not known."""
    if metrics.design == "held-out":
        return "It was declared that no model was trained on these patients."
    if metrics.design == "external":
        return f"{ensemble(metrics)} None of them was trained on this cohort{run_facts.labels_alone(metrics)}."
    return predicting(metrics)


def as_they_are(metrics: Metrics) -> str:
    """Whether the evaluated patients were resampled; "" for a table from elsewhere, which may have been before it was written."""
    found = counts(metrics) if metrics.design not in TABLES else ""
    return f"{found} No patient was left out, repeated or weighted to even out classes." if found else ""


def no_leakage(metrics: Metrics) -> str:
    """How training and test patients were kept apart, what the model reached on permuted labels, and what warns of a leak."""
    if metrics.design == "external":
        apart = ["The software refuses a cohort that holds a patient of the run, recognised by the scans' hashes."]
    else:
        apart = [disjoint(metrics)]
    if not all(apart):
        return ""
    for name, model, result in run_facts.results(metrics):
        apart += [f"{escape(name)} on permuted labels: {endpoint_results.headline_figure(result)}."] if model == SHUFFLED else []
    apart += [f"Pretraining saw scans of test patients: {escape(metrics.transductive)}."] if metrics.transductive else []
    apart += [
        f"Warning on {escape(name)}: {escape(warning)}."
        for name, endpoint in metrics.endpoints.items()
        for warning in endpoint.warnings
    ]
    return " ".join(apart)


def evaluation_plan(metrics: Metrics) -> str:
    rules = (
        f"Verdicts follow {len(metrics.rules)} rules that were fixed in advance and stand in the report." if metrics.rules else ""
    )
    ran = run_facts.controls(metrics)
    references = f"References: {methods_section.controls_made(metrics, ran)}." if ran else ""
    return " ".join([plan, *filter(None, [rules, references])]) if (plan := unseen(metrics)) else ""


@of_training
def output(metrics: Metrics, settings: Settings) -> str:
    used = [of_kind.of(kind).output for kind in run_facts.kinds(metrics)]
    threshold = methods_section.THRESHOLDS if "operating_point" in measure_sentences(metrics) else ""
    return f"The output is {listed(used)}. {threshold}".strip() if used else ""


def indeterminate(metrics: Metrics) -> str:
    if not metrics.cohort.predicted:
        return ""
    scored = f"Each of {counted(metrics.cohort.predicted, 'predicted patient')} has a score; none is left out as indeterminate."
    sets = [
        f"{escape(name)}, {escape(model)}: {escape(found.sentences[0])}"
        for name, models in metrics.prediction_sets.items()
        for model, found in models.items()
        if not is_defined(found.reach)
    ]
    return " ".join([scored, *sets])


def measured(metrics: Metrics) -> str:
    return without_citations(" ".join(measure_sentences(metrics).values()))


def uncertainty(metrics: Metrics) -> str:
    return bearing(metrics, "uncertainty")


def aspects(metrics: Metrics) -> str:
    """Discrimination, calibration and net benefit of the compared models, and which of these were not measured."""
    compared = [(name, model, result) for name, model, result in run_facts.results(metrics) if is_compared(model)]
    if not compared:
        return ""
    of = [f"{escape(name)}, {escape(model)}" for name, model, _ in compared]
    calibration = [endpoint_results.calibration_figures(result) for _, _, result in compared]
    parts = [
        f"Discrimination: {_listed(of, [endpoint_results.headline_figure(result) for _, _, result in compared])}.",
        f"Calibration: {_listed(of, calibration)}." if any(calibration) else "",
        *utilities(metrics),
    ]
    without = [name for name in ("calibration", "net benefit") if not bearing(metrics, name)]
    return " ".join(filter(None, [*parts, f"Not measured: {listed(without)}." if without else ""]))


def _listed(of: Sequence[str], figures: Sequence[str]) -> str:
    return "; ".join(f"{one}: {figure}" for one, figure in zip(of, figures, strict=True) if figure)


def utility(metrics: Metrics) -> str:
    """How net benefit was measured, and what came out."""
    return " ".join(filter(None, [bearing(metrics, "net benefit"), *utilities(metrics)]))


def utilities(metrics: Metrics) -> list[str]:
    """The net benefit of each endpoint over the study's range, or that it names none."""
    found = [(name, endpoint_results.net_benefits(metrics, name)) for name in metrics.endpoints]
    unnamed = [UNNAMED] if metrics.utility is None and bearing(metrics, "net benefit") else []
    return [f"{escape(name)}, {escape(figures)}." for name, figures in found if figures] or unnamed


def updating(metrics: Metrics) -> str:
    return measure_sentences(metrics).get("recalibrated", "")


def performance(metrics: Metrics) -> str:
    figures = [
        f"{escape(name)}, {escape(model)}: {endpoint_results.headline_figure(result)}"
        for name, model, result in run_facts.results(metrics)
    ]
    return " ".join([f"{'; '.join(figures)}.", subgroups(metrics)]).strip() if figures else ""


def diagnostic(metrics: Metrics) -> str:
    rates = [
        f"{escape(name)}, {escape(model)}: {', '.join(figures)}"
        for name, model, result in run_facts.results(metrics)
        if (figures := of_kind.of(result.kind_of).rates(result))
    ]
    return f"{'; '.join(rates)}." if rates else ""


def between_clusters(metrics: Metrics) -> str:
    """How far figures of single sites differ, what a new one may expect, and intervals that allow for clustering."""
    ranges = [
        f"{escape(name)}, {escape(model)}: {endpoint_results.between_sites(sites)}"
        for name, model, result in run_facts.results(metrics)
        if is_compared(model) and (sites := result.within_sites)
    ]
    ranges += [f"{escape(name)}, {escape(words)}" for name, words in endpoint_results.hospital_figures(metrics)]
    return f"{'; '.join(ranges)}." if ranges else ""


def other_places(metrics: Metrics) -> str:
    """Another cohort, or the sites of this one."""
    return external(metrics) or " ".join(filter(None, [clusters(metrics), between_clusters(metrics)]))


def subgroups(metrics: Metrics) -> str:
    columns = {row.column for endpoint in metrics.endpoints.values() for row in endpoint.subgroups}
    if not columns:
        return ""
    named = listed(sorted(escape(name) for name in columns))
    shown = f"AUC and C, with intervals, of the models shown within subgroups by {named}."
    tested = [f"{escape(name)}: {escape(' '.join(one.sentences))}" for name, one in metrics.interactions.items()]
    return " ".join(filter(None, [shown, bearing(metrics, "subgroups"), *(tested or ["No test compares them."])]))


def failures(metrics: Metrics) -> str:
    """What the worst patients have in common."""
    return " ".join(f"{escape(name)}: {escape(worst.sentence)}" for name, worst in metrics.failures.items() if worst.sentence)


def errors(metrics: Metrics) -> str:
    return " ".join(filter(None, (failures(metrics), subgroups(metrics))))


def robustness(metrics: Metrics) -> str:
    ran = run_facts.controls(metrics)
    controls = [f"Controls: {methods_section.controls_made(metrics, ran)}."] if ran else []
    return " ".join([*controls, subgroups(metrics)]).strip()


def explained(metrics: Metrics) -> str:
    return without_citations(" ".join(map_sentences.map_methods(metrics, Facts())[:-1]))


def maps_judged(metrics: Metrics) -> str:
    """The verdicts on the maps by the checks that the report prints."""
    return without_citations(" ".join(map_sentences.map_result_lines(metrics)))


def external(metrics: Metrics) -> str:
    if metrics.design != "external":
        return ""
    return f"The models of an earlier run were applied without refitting to another cohort. {performance(metrics)}".strip()


def drifted(metrics: Metrics) -> str:
    """How calibration moved from the run's cohort to the evaluated one."""
    return " ".join(
        f"{escape(name)}, {escape(model)}: {escape(found.sentence.removesuffix('.'))}."
        for name, models in metrics.drift.items()
        for model, all_found in models.items()
        if is_compared(model)
        for found in all_found
    )


def new_place(metrics: Metrics) -> str:
    """In which range figures of a further hospital are to be expected."""
    return " ".join(
        f"{escape(name)}, {escape(model)}: {escape(found.sentence.removesuffix('.'))}."
        for name, models in metrics.new_hospital.items()
        for model, found in models.items()
        if is_compared(model)
    )


def documented(metrics: Metrics) -> str:
    made = versions(metrics)
    beside = "A draft of Methods and Results, checklists, tables and every figure (metrics.json) lie beside this file."
    return f"{made} {beside}" if made else ""


def stored(metrics: Metrics) -> str:
    if not metrics.patients:
        return ""
    patients = counted(len(metrics.patients), "patient")
    return f"Score, label and error of each of {patients} are stored in tables/patients.csv, and every figure in metrics.json."


ANSWERS = (
    *(ensemble, predicting, unseen, as_they_are, no_leakage, evaluation_plan, output, indeterminate, measured),
    *(uncertainty, aspects, utility, updating, performance, diagnostic, between_clusters, other_places, subgroups),
    *(failures, errors, robustness, explained, maps_judged, external, drifted, new_place, documented, stored),
)
