"""What is shown of a new patient's class or grade: the probability of each, as the networks have it, and the call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.of_kind import Shown, Strip
from mri_vit.finished.out_of_fold import OutOfFold
from mri_vit.finished.predicted_endpoints import shared
from mri_vit.finished.prediction_document import ClassValue, Multiclass, Ordinal, Spread
from mri_vit.kinds.class_measures import ClassMeasures
from mri_vit.kinds.kind import part
from mri_vit.settings.schema import Endpoint


class ClassShown(Shown):
    """Probabilities that are not recalibrated: the run's report says how far they can be relied on."""

    def __init__(self, document: type[Multiclass] | type[Ordinal], kind: str, ordered: bool) -> None:
        """Of classes that are not `ordered` a patient's score is the probability of the class that is called."""
        self.document, self.kind, self.ordered = document, kind, ordered

    def shown(
        self,
        endpoint: Endpoint,
        outputs: Sequence[FoldOutputs] | None,
        run: OutOfFold,
        untrusted: str | None,
        about: dict[str, Any],
    ) -> Multiclass | Ordinal:
        value = None if outputs is None else self._value(endpoint, outputs, run)
        return self.document(kind=self.kind, classes=endpoint.classes or (), value=value, **about)  # type: ignore[arg-type]

    def _value(self, endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: OutOfFold) -> ClassValue:
        names = endpoint.classes or ()
        each = np.array([scores[endpoint.name] for fold in outputs for scores in fold.scores])  # (networks, classes)
        mean = np.mean([fold.mean(endpoint.name) for fold in outputs], axis=0)
        called = names[self._called(mean)]
        spread = {
            name: Spread(
                networks=len(each),
                deviation=float(each[:, k].std(ddof=1)) if len(each) > 1 else math.nan,
                minimum=float(each[:, k].min()),
                maximum=float(each[:, k].max()),
            )
            for k, name in enumerate(names)
        }
        how = ", next to the expected grade" if self.ordered else ""
        agreeing = sum(names[self._called(one)] == called for one in each)
        return ClassValue(
            side=called,
            call=f"Called {called}{how}: {100 * mean[names.index(called)]:.0f} %; {agreeing} of {len(each)} networks call it so.",
            probabilities=dict(zip(names, mean.tolist(), strict=True)),
            spreads=spread,
            **shared(endpoint, outputs, run, None if self.ordered else names.index(called)),
        )

    def _called(self, probabilities: np.ndarray) -> int:
        measures: ClassMeasures = part(self.kind, "measures")
        columns = {f"p{k}": [value] for k, value in enumerate(probabilities.tolist())}
        expected = float(probabilities @ np.arange(len(probabilities)))
        return int(measures.called(pd.DataFrame({**columns, "score": [expected]}))[0])

    def on_strip(self, result: Multiclass | Ordinal) -> Strip:
        value = result.value
        assert value is not None
        if self.ordered:
            return Strip(value.score, math.nan, f"expected grade, 0 is {result.classes[0]}")
        place = result.classes.index(value.side or "")
        return Strip(value.score, math.nan, f"probability of {value.side}", f"p{place}")

    def question(self, value: ClassValue) -> int | None:
        return None if self.ordered else list(value.probabilities).index(value.side or "")

    def called_otherwise(self, endpoint: str, fold: FoldOutputs, value: ClassValue) -> bool:
        names = list(value.probabilities)
        return names[self._called(fold.scores[0][endpoint])] != value.side

    def score_cells(self, result: Multiclass | Ordinal) -> Iterable[dict[str, Any]]:
        """A row for each class."""
        value = result.value
        return [
            {
                "class": name,
                "score": value.probabilities[name] if value else math.nan,
                "probability": math.nan,
                "call": (value.side if value else "") or "",
            }
            for name in result.classes
        ]
