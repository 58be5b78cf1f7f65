"""Classes and grades in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mri_vit.report.schema.measured import Caveats, SubgroupFigures
from mri_vit.report.schema.parts import Design, Estimate
from mri_vit.report.words.endpoint_results import Measure, common_rows, rows_of
from mri_vit.report.words.notation import interval, judged, number
from mri_vit.report.words.of_kind import Fields, Row, Tables, Words, labelled
from mri_vit.settings.recipe import Train
from mri_vit.settings.schema import Endpoint


class ClassWords(Words):
    """What classes and grades share."""

    same = "the same probabilities"
    refuses = "no losses and no calibration"
    result_part: type  # of `metrics.json`
    subgroup_part: type
    own_rows: Sequence[Measure] = ()  # behind those on chance

    def counts(self, endpoint: Endpoint, rows: Tables) -> dict[str, int]:
        """Patients by class."""
        labels = labelled(rows, ("label",))
        return {name: int((labels.label == index).sum()) for index, name in enumerate(endpoint.classes or ())}

    def result(self, numbers: Any, sentences: Fields, limits: Caveats, design: Design) -> Any:
        wrong = "the scores of a patient's classes are not probabilities that add up to 1: they rank, and say no more"
        return self.result_part(**dict(numbers), **sentences, not_probability=wrong if limits.outside else None)

    def subgroup(self, endpoint: Endpoint, group: SubgroupFigures, fields: Fields) -> Any:
        return self.subgroup_part(**fields, counts=dict(zip(endpoint.classes or (), group.counts, strict=True)))

    def scaled(self, result: Any) -> Estimate | None:
        return result.brier and result.brier.scaled

    def figures(self, result: Any) -> tuple[list[str], list[str]]:
        return [f"accuracy {interval(result.confusion.accuracy)}"], []

    def measure_rows(self, results: Sequence[Any]) -> list[Row]:
        names = list(results[0].counts)
        return rows_of(
            [
                Measure("Patients (by class)", lambda r: f"{r.n} ({r.tally})"),
                Measure(f"{results[0].symbol}, judged [95 %, corrected for refitting]", judged),
                Measure(f"{results[0].symbol}, all patients [95 %]", lambda r: interval(r.all_pairs, r.n)),
                *common_rows(results[0].symbol),
                *self.own_rows,
                Measure("Log loss [bootstrap 95 %] (shares of the classes alone)", _loss("log_loss")),
                Measure("Scaled log loss, 0 without a model [bootstrap 95 %]", _scaled("log_loss")),
                Measure("Brier score, summed over classes [bootstrap 95 %] (shares alone)", _loss("brier")),
                Measure("Scaled Brier score, 0 without a model [bootstrap 95 %]", _scaled("brier")),
                Measure("Accuracy [Wilson 95 %]", lambda r: interval(r.confusion.accuracy, r.n)),
                Measure("Balanced accuracy", lambda r: number(r.confusion.balanced_accuracy, n=r.n)),
                *(row for name in names for row in _of_class(name)),
            ],
            results,
        )


def _loss(name: str) -> Any:
    def write(result: Any) -> str | None:
        loss = getattr(result, name)
        return loss and f"{interval(loss, result.n)} ({number(loss.reference)})"

    return write


def _scaled(name: str) -> Any:
    def write(result: Any) -> str | None:
        loss = getattr(result, name)
        return loss and interval(loss.scaled, result.n)

    return write


def _of_class(name: str) -> list[Measure]:
    """A class against all others."""

    def calibration(result: Any) -> str | None:
        found = result.classes[name].calibration
        if not found:
            return None
        return f"slope {number(found.slope, 2)}, O:E {interval(found.observed_to_expected, result.n, 2)}"

    return [
        Measure(f"{name} against all others: AUC [95 %]", lambda r: interval(r.classes[name].auc, r.n)),
        Measure(f"{name}: recall [Wilson 95 %]", lambda r: interval(r.confusion.recall[name], r.n)),
        Measure(f"{name}: precision [Wilson 95 %]", lambda r: interval(r.confusion.precision[name], r.n)),
        Measure(f"{name}: calibration of its probability [bootstrap 95 %]", calibration),
    ]


def balanced(train: Train, what: str) -> str:
    """What weights did where classes are of unequal size."""
    return f"{what} were weighted by the inverse of their share of the training patients." if train.class_weights else ""
