"""Grades in words."""

from __future__ import annotations

from collections.abc import Sequence

from mri_vit.kinds.class_words import ClassWords
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.classes import OrdinalEndpoint, OrdinalResult, OrdinalSubgroup
from mri_vit.report.words.endpoint_results import Measure
from mri_vit.report.words.notation import interval
from mri_vit.report.words.of_kind import WEIGHED, Fields, Tables
from mri_vit.settings.schema import Endpoint


class OrdinalWords(ClassWords):
    """Classes in an order."""

    kind = "ordinal"
    meaning = "a C of grades is the share of pairs of unequal grade that are ranked correctly"
    result_part, subgroup_part = OrdinalResult, OrdinalSubgroup
    undefined = "held one grade only; their C is"
    folds_caption = "C per fold"
    head = (
        "A head of grades predicts cumulative logits that fall from grade to grade, trained with the sum of the cuts' "
        f"cross-entropies [@coral], {WEIGHED}."
    )
    explained = "grades", "the expected grade"
    regression = "proportional-odds"
    output = "a probability for each grade"
    own_rows = (
        Measure("Somers' D, of pairs within a fold [95 %]", lambda r: interval(r.somers_d, r.n)),
        Measure("Cohen's kappa, quadratic weights [95 %]", lambda r: interval(r.weighted_kappa, r.n)),
    )

    def endpoint(self, run: Run, endpoint: Endpoint, rows: Tables, shown: Sequence[str], shared: Fields) -> OrdinalEndpoint:
        return OrdinalEndpoint(kind="ordinal", counts=self.counts(endpoint, rows), **shared)


PART = OrdinalWords()
