"""Classes in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mri_vit.kinds.class_words import ClassWords, balanced
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.classes import MulticlassEndpoint, MulticlassResult, MulticlassSubgroup
from mri_vit.report.words.endpoint_results import Measure
from mri_vit.report.words.notation import interval, number
from mri_vit.report.words.of_kind import WEIGHED, Fields, Tables
from mri_vit.settings.recipe import Train
from mri_vit.settings.schema import Endpoint


class MulticlassWords(ClassWords):
    """Classes without an order."""

    kind = "multiclass"
    meaning = "an M (Hand and Till 2001) is the mean AUC of every two classes"
    result_part, subgroup_part = MulticlassResult, MulticlassSubgroup
    undefined = "held one class only; their M is"
    folds_caption = "Hand and Till's M per fold"
    head = f"A head of classes predicts a logit for each and is trained with the cross-entropy of their softmax, {WEIGHED}."
    explained = "classes", "the log odds of the class that is called"
    regression = "multinomial logistic"
    output = "a probability for each class"
    own_rows = (
        Measure("Polytomous discrimination index (PDI) [bootstrap 95 %] (chance)", lambda r: _pdi(r)),
        Measure(
            "AUC of two classes, within folds", lambda r: "; ".join(f"{p.one}, {p.other} {number(p.value)}" for p in r.pairs)
        ),
    )

    def endpoint(self, run: Run, endpoint: Endpoint, rows: Tables, shown: Sequence[str], shared: Fields) -> MulticlassEndpoint:
        return MulticlassEndpoint(kind="multiclass", counts=self.counts(endpoint, rows), **shared)

    def imbalance(self, train: Train) -> str:
        return balanced(train, "Classes")


def _pdi(result: Any) -> str:
    return f"{interval(result.pdi, result.n)} ({number(result.pdi_chance)})"


PART = MulticlassWords()
