"""Power: what a study's folds can show, before any training. The error of scores without a signal follows from the labels and
the folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient, label_rows
from mri_vit.kinds.kind import Labels, part, with_article
from mri_vit.metrics.sample_size import Detection
from mri_vit.metrics.within_fold import inflation
from mri_vit.settings.schema import Endpoint, Kind

PARAMETERS = 10  # predictor parameters of a regression that is spoken of where none is made: age, sex, grade, markers


@dataclass(frozen=True)
class Outcomes:
    """Known labels of one endpoint, a row per patient, and where each patient is tested and was treated."""

    kind: Kind
    labels: Float[np.ndarray, "n columns"]
    folds: Int[np.ndarray, "repeats n"]
    site: Int[np.ndarray, " n"]  # -1 where it is not known

    @property
    def of_kind(self) -> Labels:
        return part(self.kind, "labels")

    @property
    def sites(self) -> int:
        """Known ones."""
        return len(np.unique(self.site[self.site >= 0]))

    @property
    def marked(self) -> float:
        """The share of positives, or of the deaths."""
        return self.of_kind.count_marked(self.labels) / len(self.labels) if len(self.labels) else math.nan

    def detection(self, results: int = 1, refits: bool = True, within_sites: bool = False) -> Detection:
        """The test that the report will make, of pairs within a fold (and a site that is known)."""
        of = self.site >= 0 if within_sites else np.ones(len(self.labels), bool)
        cells = self.folds * (self.sites + 1) + self.site if within_sites else self.folds
        errors = [self._error(self.labels[of], cell[of].astype(float)) for cell in cells] if of.any() else []
        folds = len(np.unique(self.folds[0])) if errors else 1
        inflated = inflation(folds, len(self.folds)) if refits else 1.0
        return Detection(float(np.mean(errors)) if errors else math.nan, inflated, results)

    def _error(self, labels: Float[np.ndarray, "m columns"], group: Float[np.ndarray, " m"]) -> float:
        """The error that the report's own test has where no two scores are equal, whatever they are."""
        return self.of_kind.within(labels, self.of_kind.untied(labels), group).error


def of_patients(
    patients: Sequence[Patient], endpoint: Endpoint, splits: Sequence[Split], site_of: Mapping[str, str] | None = None
) -> Outcomes:
    """The first visit of each patient whose label is known; `site_of` by patient, "" where it is not known."""
    first: dict[str, Patient] = {}
    for patient in patients:
        if patient.knows(endpoint):
            first.setdefault(patient.subject, patient)
    folds = [{name: fold for fold, ids in enumerate(split) for name in ids} for split in splits]
    judged = [patient for patient in first.values() if all(patient.id in of for of in folds)]
    sites = [(site_of or {}).get(patient.subject, "") for patient in judged]
    return Outcomes(
        endpoint.kind,
        label_rows(judged, endpoint),
        np.array([[of[patient.id] for patient in judged] for of in folds], int).reshape(len(folds), len(judged)),
        np.unique(sites, return_inverse=True)[1].reshape(-1) - ("" in sites),  # "" is the first, and then -1
    )


def nominal(kind: Kind, patients: int, marked: float, folds: int, repeats: int, sites: int) -> Outcomes:
    """A cohort of which only so much is known: classes spread evenly over folds, and within these to sites of one size.

    The share `marked` is positive, or dies.
    """
    order = np.arange(patients)
    share = round(patients * marked) / patients
    flag = np.floor((order + 1) * share + 1e-9) > np.floor(order * share + 1e-9)
    rank = np.where(flag, np.cumsum(flag), np.cumsum(~flag)) - 1  # among those of the same flag
    fold, site = rank % folds, np.empty(patients, int)
    site[np.lexsort((rank, fold, flag))] = order % sites
    return Outcomes(kind, part(kind, "labels").nominal(flag), np.tile(fold, (repeats, 1)), site)


def power_cautions(
    patients: Sequence[Patient], endpoints: Sequence[Endpoint], splits: Sequence[Split], models: int
) -> Iterator[str]:
    """A sentence for each endpoint for which even the results of published models would be no evidence against chance, where so
    many models are judged.
    """
    outcomes = {endpoint: of_patients(patients, endpoint, splits) for endpoint in endpoints if splits}
    results = models * sum(one.detection().error > 0 for one in outcomes.values())
    for endpoint, one in outcomes.items():
        limit = one.detection(results).critical if results else math.nan
        if limit > one.of_kind.expected:
            yield f"{endpoint.name}: {len(one.labels)} patients: {power_sentence(one.of_kind.symbol, limit)}"


def found_sentence(symbol: str, found_80: float, found_90: float) -> str:
    """With which power a study finds which AUC or C; NaN where none is found."""
    later = "" if math.isnan(found_90) else f", one of {found_90:.2f} in 90"
    return f"a model whose true {symbol} is {found_80:.2f} is found in 80 of 100 such studies{later}"


def power_sentence(symbol: str, limit: float) -> str:
    """What a study of such a limit can show."""
    if limit > 1:
        return f"no {symbol}, not even 1, can be distinguished from chance"
    return f"{with_article(symbol)} below about {limit:.2f} cannot be distinguished from chance"
