"""What a run answers to the items of a checklist about its results: the content of `metrics.json` goes in, Markdown comes out.

As in `answers`, nothing ("") is said where the metrics do not show the thing.
"""

from __future__ import annotations

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words import findings, maps, methods, people, wording
from mri_vit.report.words.references import uncited
from mri_vit.report.words.wording import Facts, counted, escape, listed, settings, trained


def imbalance(metrics: Metrics) -> str:
    found = trained(metrics)
    if found is None or "binary" not in wording.kinds(metrics):
        return ""
    if not found.train.class_weights:
        return "No method against class imbalance was used."
    return "Positives were weighted by negatives over positives; the shift of the log odds was removed from the probability."


def subgroups(metrics: Metrics) -> str:
    columns = {row.column for found in metrics.endpoints.values() for row in found.subgroups}
    if not columns:
        return ""
    named = listed(sorted(escape(name) for name in columns))
    return (
        f"AUC and C, with intervals, of the models shown within subgroups by {named}; no other figure, and no test compares them."
    )


def errors(metrics: Metrics) -> str:
    """The worst patients, and subgroups."""
    return " ".join(filter(None, (people.failures(metrics), subgroups(metrics))))


def output(metrics: Metrics) -> str:
    if trained(metrics) is None:
        return ""
    words = {"binary": "a probability for a binary endpoint", "survival": "a risk for survival (higher: earlier death)"}
    found = [words[kind] for kind in sorted(wording.kinds(metrics))]
    threshold = methods.THRESHOLDS if "operating_point" in findings.measures(metrics) else ""
    return f"The output is {listed(found)}. {threshold}".strip() if found else ""


def same_cohort(metrics: Metrics) -> str:
    return "None by design: both are folds of one cohort." if trained(metrics) else ""


def versions(metrics: Metrics) -> str:
    return " ".join(methods.software(metrics, Facts())[:-1])


def flow(metrics: Metrics) -> str:
    found = metrics.cohort
    if not found.patients:
        return ""
    said = [f"{counted(found.patients, 'patient')} in the table."]
    said += [methods.excluded(metrics)] if settings(metrics) else []
    return " ".join(
        [*said, f"{counted(found.predicted, 'patient')} predicted.", sizes(metrics), people.follow_up(metrics)]
    ).strip()


def known_labels(metrics: Metrics) -> str:
    return " ".join(methods.labels(metrics))


def sizes(metrics: Metrics) -> str:
    sizes = [f"{escape(name)}: {findings.size(found)}" for name, found in metrics.endpoints.items()]
    return f"In the evaluation, {'; '.join(sizes)}." if sizes else ""


def performance(metrics: Metrics) -> str:
    said = [f"{escape(name)}, {escape(model)}: {findings.headline(found)}" for name, model, found in wording.results(metrics)]
    return " ".join([f"{'; '.join(said)}.", subgroups(metrics)]).strip() if said else ""


def diagnostic(metrics: Metrics) -> str:
    said = [
        f"{escape(name)}, {escape(model)}: {', '.join(rates)}"
        for name, model, found in wording.results(metrics)
        if (rates := findings.rates(found))
    ]
    return f"{'; '.join(said)}." if said else ""


def robustness(metrics: Metrics) -> str:
    ran = wording.controls(metrics)
    said = [f"Controls: {'; '.join(methods.AS_MADE[name] for name in ran)}."] if ran else []
    return " ".join([*said, subgroups(metrics)]).strip()


def explained(metrics: Metrics) -> str:
    return uncited(" ".join(maps.attention(metrics, Facts())[:-1]))


def internal(metrics: Metrics) -> str:
    if trained(metrics) is None:
        return ""
    times = f", {metrics.repeats} times" if metrics.repeats > 1 else ""
    return f"Cross-validation with {metrics.folds} folds by patient{times}."


def external(metrics: Metrics) -> str:
    if metrics.design != "external":
        return ""
    return f"The models of an earlier run were applied without refitting to another cohort. {performance(metrics)}".strip()
