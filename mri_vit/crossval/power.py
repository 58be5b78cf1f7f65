"""Power: what a study's folds can show, before any training. The error of scores without a signal follows from the labels and
the folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.metrics import sample_size
from mri_vit.metrics.sample_size import Detection
from mri_vit.metrics.within_fold import inflation, within_fold_auc, within_fold_c
from mri_vit.settings.schema import Endpoint

Kind = Literal["binary", "survival"]
SYMBOL = {"binary": "AUC", "survival": "C"}
PARAMETERS = 10  # predictor parameters of a regression that is spoken of where none is made: age, sex, grade, markers
PUBLISHED_DISCRIMINATION = {  # by kind, about the best that models of images alone reach
    "binary": 0.80,  # TERTp 0.79 (meta-analysis, PMID 42265510), PTEN 0.79 (doi:10.1007/s00234-019-02244-7); MGMT is far below
    "survival": 0.74,  # Lee et al. 2026, doi:10.1148/ryai.250675: 0.73 where the model was made
}


@dataclass(frozen=True)
class Outcomes:
    """Known labels of one endpoint, a row per patient, and where each patient is tested and was treated."""

    kind: Kind
    labels: Float[np.ndarray, "n columns"]  # 0 or 1; or days and 0 or 1
    folds: Int[np.ndarray, "repeats n"]
    site: Int[np.ndarray, " n"]  # -1 where it is not known

    @property
    def sites(self) -> int:
        """Known ones."""
        return len(np.unique(self.site[self.site >= 0]))

    @property
    def marked(self) -> float:
        """The share of positives, or of the deaths."""
        return float((self.labels[:, -1] == 1).mean()) if len(self.labels) else math.nan

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
        score = np.arange(len(group), dtype=float)
        if self.kind == "binary":
            return within_fold_auc(labels[:, 0] == 1, score, group).error
        return within_fold_c(labels[:, 0], labels[:, 1] == 1, score, group).error


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
        np.array([[patient.labels[column] for column in endpoint.columns] for patient in judged], float).reshape(
            len(judged), len(endpoint.columns)
        ),
        np.array([[of[patient.id] for patient in judged] for of in folds], int).reshape(len(folds), len(judged)),
        np.unique(sites, return_inverse=True)[1].reshape(-1) - ("" in sites),  # "" is the first, and then -1
    )


def nominal(kind: Kind, patients: int, marked: float, folds: int, repeats: int, sites: int) -> Outcomes:
    """A cohort of which only so much is known: classes spread evenly over folds, and within these to sites of one size.

    The share `marked` is positive, or dies. Of survival every follow-up is as likely to end in death as any other (Koziol & Green
    1976, doi:10.1093/biomet/63.3.465); where those who live are followed longest, more pairs can be compared.
    """
    order = np.arange(patients)
    share = round(patients * marked) / patients
    flag = np.floor((order + 1) * share + 1e-9) > np.floor(order * share + 1e-9)
    rank = np.where(flag, np.cumsum(flag), np.cumsum(~flag)) - 1  # among those of the same flag
    labels = flag[:, None].astype(float) if kind == "binary" else np.stack([order + 1.0, flag], axis=1)
    fold, site = rank % folds, np.empty(patients, int)
    site[np.lexsort((rank, fold, flag))] = order % sites
    return Outcomes(kind, labels, np.tile(fold, (repeats, 1)), site)


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
        if limit > PUBLISHED_DISCRIMINATION[endpoint.kind]:
            yield f"{endpoint.name}: {len(one.labels)} patients: {power_sentence(SYMBOL[endpoint.kind], limit)}"


def minima(
    kind: Kind, share: float, expected: float, parameters: int, null_variance: float
) -> tuple[sample_size.Minimum, sample_size.ExternalMinimum]:
    """Patients for a regression of so many parameters and for its validation, for an `expected` AUC or C.

    `share`: positive, or who die; `null_variance`: n times the squared error of C without a signal.
    """
    if kind == "binary":
        r_squared, most = sample_size.r_squared_of_auc(expected, share), sample_size.largest_r_squared(share)
        risk, elsewhere = sample_size.marker_risk(share), sample_size.external_marker(expected, share)
    else:
        r_squared, most = sample_size.r_squared_of_c(expected, share), sample_size.largest_r_squared_of_survival(share)
        risk, elsewhere = sample_size.survival_risk(share), sample_size.external_survival(expected, share, null_variance)
    return sample_size.development(parameters, r_squared, most, risk), elsewhere


def found_sentence(symbol: str, found_80: float, found_90: float) -> str:
    """With which power a study finds which AUC or C; NaN where none is found."""
    later = "" if math.isnan(found_90) else f", one of {found_90:.2f} in 90"
    return f"a model whose true {symbol} is {found_80:.2f} is found in 80 of 100 such studies{later}"


def power_sentence(symbol: str, limit: float) -> str:
    """What a study of such a limit can show."""
    if limit > 1:
        return f"no {symbol}, not even 1, can be distinguished from chance"
    return f"{'an' if symbol == 'AUC' else 'a'} {symbol} below about {limit:.2f} cannot be distinguished from chance"
