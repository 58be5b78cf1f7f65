"""What the answers to a checklist share: a run's settings where it has them, and the Methods' sentences on a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.words import run_facts
from mri_vit.report.words.methods_section import measure_sentences
from mri_vit.report.words.references import without_citations

Answer = Callable[[Metrics], str]
BEARING: Mapping[str, tuple[str, ...]] = {  # keys of `methods_section.MEASURE_SENTENCES` by the question that they bear on
    "calibration": ("calibration", "calibration_at", "calibration_at:competing", "log_loss", "r_squared"),
    "competing risks": ("competing", "competing:combined", "competing:given"),
    "clusters": ("within_sites", "hospitals:clustered", "hospitals:pooled"),
    "instability": ("retraining", "retraining:seeds", "instability"),
    "missing": ("unlabelled", "added_value:imputed"),
    "net benefit": ("net_benefit", "decision_at", "decision_at:competing", "utility"),
    "sets": (
        *("prediction_sets:classes", "prediction_sets:numbers"),
        *("prediction_sets:other patients", "prediction_sets:other sites"),
    ),
    "subgroups": ("interactions",),
    "uncertainty": (
        *("judged", "judged:binary", "judged:survival", "judged:pairs", "refits", "refits:survival", "refits:competing"),
        *("refits:pairs", "retraining", "retraining:seeds", "within_sites", "hospitals:clustered", "hospitals:pooled"),
        *("instability", "prediction_sets:classes", "prediction_sets:numbers"),
        *("auc", "harrell_c", "uno_c", "uno_c:competing", "operating_point", "brier:binary", "calibration", "auc_at"),
        *("integrated_brier", "integrated_brier:competing", "hazard", "restricted_mean", "logrank", "competing"),
        *("chance_test:refitted", "chance_test:within folds", "chance_test:scores as given"),
        *("versus_controls:binary", "versus_controls:survival", "versus_controls:pairs", "versus_best", "versus_own"),
        *("nadeau_bengio", "p_adjusted", "pairs", "margins", "margins:every control", "interactions", "utility"),
    ),
}


def _needing(settings_of: Callable[[Metrics], Settings | None]) -> Callable[[Callable[[Metrics, Settings], str]], Answer]:
    """Make an answer of the metrics and the settings to one of the metrics alone: "" where there are no settings."""

    def without_settings(answer: Callable[[Metrics, Settings], str]) -> Answer:
        @wraps(answer)
        def answered(metrics: Metrics) -> str:
            settings = settings_of(metrics)
            return answer(metrics, settings) if settings else ""

        return answered

    return without_settings


with_settings = _needing(run_facts.settings)  # "" for a table from elsewhere
of_training = _needing(run_facts.trained)  # and for an external evaluation


def bearing(metrics: Metrics, question: str) -> str:
    """The sentences on what of this run bears on a question; "" where nothing does."""
    sentences = measure_sentences(metrics)
    return without_citations(" ".join(sentences[key] for key in BEARING[question] if key in sentences))
