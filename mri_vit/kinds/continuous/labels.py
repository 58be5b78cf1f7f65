"""Labels that are numbers, in the unit of the study file; an empty cell where missing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import skew

from mri_vit.data.columns import MISSING_CODES
from mri_vit.kinds.kind import LabelRows, Scored, Side
from mri_vit.kinds.ordered import OrderedLabels
from mri_vit.metrics.decision import Threshold
from mri_vit.settings.schema import Endpoint

QUARTERS = (0.25, 0.5, 0.75)  # over which folds are balanced: of 80 patients in five folds, four of each in every fold
MIN_BESIDE = 5  # other values beside which a code for a missing one is recognised
MAX_PROPORTION = 1.0  # of a value that may be a proportion among per cents
SKEWED = 1.5  # skewness from which a slope's interval misses too often (null_studies/README.md); an exponential one has 2
MIN_SKEWED = 20  # values, below which skewness is no more than a value or two
SOME_SHARE = 0.1  # of the values: so many proportions among per cents are no coincidence


class ContinuousLabels(OrderedLabels):
    """Patients of different values, compared in pairs."""

    rarer = "patients beside the commonest value"

    def read(self, endpoint: Endpoint, column: str, cell: str) -> float:
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            cure = ""
            if re.fullmatch(r"-?\d+,\d+", cell):
                cure = "; write numbers with a decimal point, and without a comma"
            elif not any(letter.isdigit() for letter in cell):
                cure = '; names of classes are kind = "multiclass" or "ordinal"'
            unit = f" in {endpoint.unit}" if endpoint.unit else ""
            raise ValueError(f"expected a number{unit}, or empty when missing{cure}")
        if endpoint.log and value <= 0:
            raise ValueError("expected a number above 0, of which the logarithm is learned (log = true)")
        return value

    def column_faults(self, endpoint: Endpoint, values: Float[np.ndarray, " n"]) -> dict[int, str]:
        """Codes for missing values that lie outside the range of the others: -1, 999, …"""
        known = values[~np.isnan(values)]
        faults = {}
        for code in (code for code in MISSING_CODES if (known == code).any()):
            rest = known[~np.isin(known, MISSING_CODES)]
            far = len(rest) >= MIN_BESIDE and not (2 * rest.min() - rest.max() <= code <= 2 * rest.max() - rest.min())
            if far or (code < 0 and len(rest) >= MIN_BESIDE and rest.min() >= 0):
                words = f"{code:g} stands for a missing value, as the others lie between {rest.min():g} and {rest.max():g}"
                faults |= dict.fromkeys(np.flatnonzero(values == code).tolist(), f"{words}; leave the cell empty")
        return faults

    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        """Those above the median, and the others."""
        value = labels[:, 0]
        median = float(np.median(value)) if len(value) else math.nan
        high, low = np.flatnonzero(value > median).tolist(), np.flatnonzero(value <= median).tolist()
        words = f"{median:g}{f' {endpoint.unit}' if endpoint.unit else ''}"
        return ("high", f"{endpoint.name} above {words}", high), ("low", f"{endpoint.name} up to {words}", low)

    def strata(self, endpoint: Endpoint, labels: LabelRows) -> list[str]:
        if not len(labels):
            return []
        return [str(quarter) for quarter in np.searchsorted(np.quantile(labels[:, 0], QUARTERS), labels[:, 0], side="left")]

    def needed(self, count: Counter[str]) -> set[str]:
        return set()

    def counted(self, endpoint: Endpoint, count: Counter[str]) -> str:
        return f"{count.total()} patients with a number"

    def lacking(self, endpoint: Endpoint, count: Counter[str]) -> str:
        return "patients with a number"

    unlearnable = "the validation patients have one value"

    def is_learnable(self, strata: set[str]) -> bool:
        return len(strata) > 1

    def remarks(
        self, endpoint: Endpoint, labels: LabelRows, groups: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, list[int]]]:
        """Proportions among per cents, and numbers so skew that their logarithm is better learned."""
        values = labels[:, 0]
        small = (values > 0) & (values < MAX_PROPORTION)
        if endpoint.unit == "%" and len(values) and values.max() > MAX_PROPORTION and small.mean() >= SOME_SHARE:
            some = f"{small.sum()} of {len(values)} values lie between 0 and 1, the largest is {values.max():g}"
            yield f"{endpoint.name}: {some}; expected %: are these proportions?", np.flatnonzero(small).tolist()
        if not endpoint.log and len(values) >= MIN_SKEWED and values.min() > 0:
            skewness, of_logs = float(skew(values)), float(skew(np.log(values)))
            if skewness > SKEWED and abs(of_logs) < skewness / 2:
                ends = f"median {np.median(values):g}, largest {values.max():g}"
                cure = "log = true learns their logarithm, by which slopes and limits hold what they should"
                yield f"{endpoint.name}: values are skew ({ends}); {cure}", [int(values.argmax())]

    truths = "a finite number, or empty when missing"

    def is_truth(self, truth: pd.Series) -> pd.Series:
        return truth.abs() < math.inf

    def threshold(self, training: Scored, validation: Scored) -> Threshold | None:
        """The mean of the numbers outside the test fold: what a model has to be better than."""
        values = np.concatenate([training.labels[:, 0], validation.labels[:, 0]])
        return Threshold(float(values.mean()), frozenset((*training.subjects, *validation.subjects))) if len(values) else None


PART = ContinuousLabels()
