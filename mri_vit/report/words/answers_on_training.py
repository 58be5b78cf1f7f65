"""Answers to a checklist on how patients were divided and the model was trained: from the content of `metrics.json`."""

from __future__ import annotations

from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.words import (
    methods_section,
    networks,
    of_kind,
    run_facts,
)
from mri_vit.report.words.answering import bearing, of_training, with_settings
from mri_vit.report.words.notation import escape, listed
from mri_vit.report.words.protocol import partition_sentences
from mri_vit.report.words.references import without_citations
from mri_vit.report.words.run_facts import Facts
from mri_vit.settings.recipe import CLINICAL, SITE


@of_training
def partitions(metrics: Metrics, settings: Settings) -> str:
    validation = f"{settings.train.val_fraction:.0%} of the others were set aside for early stopping."
    return " ".join([*partition_sentences(metrics, settings.train), validation])


@of_training
def disjoint(metrics: Metrics, settings: Settings) -> str:
    return partition_sentences(metrics, settings.train)[-1]


@of_training
def same_cohort(metrics: Metrics, settings: Settings) -> str:
    return "None by design: both are folds of one cohort."


@of_training
def internal(metrics: Metrics, settings: Settings) -> str:
    times = f", {metrics.repeats} times" if metrics.repeats > 1 else ""
    return f"Cross-validation with {metrics.folds} folds by patient{times}."


def clusters(metrics: Metrics) -> str:
    """How hospitals were kept apart; a probe that predicts the site keeps none apart."""
    settings = run_facts.trained(metrics)
    column = settings.train.leave_out if settings else None
    sentences = [f"Each value of {escape(column)} was a test fold of its own."] if column else []
    sentences += [bearing(metrics, "clusters")]
    sentences += ["A regression on the site alone was a control."] if SITE in run_facts.controls(metrics) else []
    return " ".join(filter(None, sentences))


@of_training
def not_categorised(metrics: Metrics, settings: Settings) -> str:
    read = "Intensities are z-scored inside the brain and read as numbers; none was cut into categories."
    columns = "Of clinical columns numbers enter scaled and uncut, words by one indicator each."
    return f"{read} {columns}" if CLINICAL in run_facts.controls(metrics) else read


@of_training
def overfitting(metrics: Metrics, settings: Settings) -> str:
    """What held the network back, and how far another training would differ."""
    train = settings.train
    held = (
        f"Early stopping on {train.val_fraction:.0%} of the training patients, weight decay {train.weight_decay:g}, gradients "
        f"clipped at norm {train.grad_clip_norm:g}; figures are of patients left out of training."
    )
    return " ".join(filter(None, [held, bearing(metrics, "instability")]))


def architecture(metrics: Metrics) -> str:
    return without_citations(" ".join(networks.model_sentences(metrics, Facts())[:3]))


@of_training
def initialised(metrics: Metrics, settings: Settings) -> str:
    return networks.initial_weights(settings)


@of_training
def optimised(metrics: Metrics, settings: Settings) -> str:
    train = settings.train
    return (
        f"AdamW, peak learning rate {train.learning_rate:g}, weight decay {train.weight_decay:g}, batches of {train.batch_size} "
        f"patients, at most {train.epochs} epochs, early stopping after {train.patience} evaluations without a better one "
        "(Methods: training)."
    )


def building(metrics: Metrics) -> str:
    steps = [architecture(metrics), optimised(metrics), internal(metrics)]
    return " ".join(steps) if all(steps) else ""


@of_training
def imbalance(metrics: Metrics, settings: Settings) -> str:
    balanced = settings.train.model_copy(update={"class_weights": True})
    if not any(of_kind.of(kind).imbalance(balanced) for kind in run_facts.kinds(metrics)):
        return ""
    done = [words for kind in run_facts.kinds(metrics) if (words := of_kind.of(kind).imbalance(settings.train))]
    return " ".join(done) or "No method against class imbalance was used."


@of_training
def chosen(metrics: Metrics, settings: Settings) -> str:
    return "In each fold, the weights of the evaluation with the lowest validation loss; the test fold took no part."


@of_training
def repeated_steps(metrics: Metrics, settings: Settings) -> str:
    """What was learned anew in each fold."""
    controls = run_facts.controls(metrics)
    imputed = without_citations(" ".join(methods_section.imputed(controls)))
    regressions = [f"Regressions of the controls too: {imputed}"] if imputed else []
    seen = [f"Pretraining saw scans of test patients: {escape(metrics.transductive)}."] if metrics.transductive else []
    anew = f"Weights, the epoch that is kept and thresholds are made anew in each fold. {chosen(metrics)}"
    return " ".join([anew, *seen, *regressions])


@with_settings
def withheld(metrics: Metrics, settings: Settings) -> str:
    sentence = (
        "The study's own model read the scans alone; the software withheld the labels of the patients that a model predicted."
    )
    readers = [model for model in metrics.models if model.rpartition("+")[2] == CLINICAL]  # the control, and fused with it
    columns = metrics.notes.get("clinical_columns")
    return sentence + (
        f" Clinical columns were read by {listed(readers)} alone: {escape(columns)}." if readers and columns else ""
    )


def versions(metrics: Metrics) -> str:
    return " ".join(methods_section.software_sentences(metrics, Facts())[:-1])


ANSWERS = (
    *(partitions, disjoint, same_cohort, internal, clusters, not_categorised, overfitting, architecture, initialised),
    *(optimised, building, imbalance, chosen, repeated_steps, withheld, versions),
)
