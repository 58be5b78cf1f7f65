"""Labels of grades: the name of one, in the order of the study file, or an empty cell."""

from __future__ import annotations

from collections import Counter

import numpy as np
from jaxtyping import Float

from mri_vit.kinds.classes import ClassLabels
from mri_vit.kinds.kind import LabelRows, Side
from mri_vit.kinds.ordered import OrderedLabels, expected
from mri_vit.settings.schema import Endpoint


class OrdinalLabels(OrderedLabels, ClassLabels):
    """Patients of different grade, compared in pairs."""

    rarer = "patients beside the commonest grade"

    def one_number(self, scores: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b"]:
        return expected(scores)

    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        """The highest grade that occurs and the lowest."""
        ends = [int(labels[:, 0].max(initial=0)), int(labels[:, 0].min(initial=len(endpoint.classes or ()) - 1))]
        names = [(endpoint.classes or ())[end] for end in ends]
        rows = [np.flatnonzero(labels[:, 0] == end).tolist() for end in ends]
        return ("high", f"{endpoint.name} {names[0]}", rows[0]), ("low", f"{endpoint.name} {names[1]}", rows[1])

    def needed(self, count: Counter[str]) -> set[str]:
        """The two commonest grades: a fold without a rare one still has pairs."""
        return {stratum for stratum, _ in count.most_common(2)}

    def fold_gap(self, count: Counter[str]) -> tuple[str, str] | None:
        return None if len(count) > 1 else ("only one grade", "C is undefined there")


PART = OrdinalLabels()
