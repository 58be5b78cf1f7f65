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
from mri_vit.metrics.sample_size import Detection
from mri_vit.metrics.within_fold import inflation, within_fold_auc, within_fold_c
from mri_vit.settings.schema import Endpoint

Kind = Literal["binary", "survival"]
SYMBOL = {"binary": "AUC", "survival": "C"}
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
    site: Int[np.ndarray, " n"]  # one number for all without sites

    @property
    def marked(self) -> float:
        """The share of positives, or of the deaths."""
        return float((self.labels[:, -1] == 1).mean()) if len(self.labels) else math.nan

    def detection(self, results: int = 1, refits: bool = True, within_sites: bool = False) -> Detection:
        """The test that the report will make, of pairs within a fold (and a site)."""
        cells = self.folds * (self.site.max() + 1) + self.site if within_sites else self.folds
        errors = [self._error(cell.astype(float)) for cell in cells] if len(self.labels) else []
        folds = len(np.unique(self.folds[0])) if errors else 1
        return Detection(
            float(np.mean(errors)) if errors else math.nan, inflation(folds, len(self.folds)) if refits else 1.0, results
        )

    def _error(self, group: Float[np.ndarray, " n"]) -> float:
        """The error that the report's own test has where no two scores are equal, whatever they are."""
        score = np.arange(len(group), dtype=float)
        if self.kind == "binary":
            return within_fold_auc(self.labels[:, 0] == 1, score, group).error
        return within_fold_c(self.labels[:, 0], self.labels[:, 1] == 1, score, group).error


def of_patients(
    patients: Sequence[Patient], endpoint: Endpoint, splits: Sequence[Split], site_of: Mapping[str, str] | None = None
) -> Outcomes:
    """The first visit of each patient whose label is known; `site_of` by patient, and without it all are of one site."""
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
        np.unique(sites, return_inverse=True)[1].reshape(-1),
    )


def nominal(kind: Kind, patients: int, marked: float, folds: int, repeats: int, sites: int) -> Outcomes:
    """A cohort of which only so much is known: classes dealt evenly to folds, and within these to sites of one size.

    The share `marked` is positive, or dies. Of survival every follow-up is as likely to end in death as any other (Koziol & Green
    1976, doi:10.1093/biomet/63.3.465); where those who live are followed longest, more pairs can be compared.
    """
    order = np.arange(patients)
    share = round(patients * marked) / patients
    flag = np.floor((order + 1) * share + 1e-9) > np.floor(order * share + 1e-9)
    rank = np.where(flag, np.cumsum(flag), np.cumsum(~flag)) - 1  # among those of the same flag
    labels = flag[:, None].astype(float) if kind == "binary" else np.stack([order + 1.0, flag], axis=1)
    return Outcomes(kind, labels, np.tile(rank % folds, (repeats, 1)), rank // folds % sites)


def power_cautions(patients: Sequence[Patient], endpoints: Sequence[Endpoint], splits: Sequence[Split]) -> Iterator[str]:
    """A sentence for each endpoint for which even the results of published models would be no evidence against chance."""
    for endpoint in endpoints if splits else ():
        outcomes = of_patients(patients, endpoint, splits)
        limit = outcomes.detection().critical
        if limit > PUBLISHED_DISCRIMINATION[endpoint.kind]:
            yield f"{endpoint.name}: {len(outcomes.labels)} patients: {power_sentence(SYMBOL[endpoint.kind], limit)}"


def found_sentence(symbol: str, found_80: float, found_90: float) -> str:
    """With which power a study finds which AUC or C; NaN where none is found."""
    later = "" if math.isnan(found_90) else f", one of {found_90:.2f} in 90"
    return f"a model whose true {symbol} is {found_80:.2f} is found in 80 of 100 such studies{later}"


def power_sentence(symbol: str, limit: float) -> str:
    """What a study of such a limit can show."""
    if limit > 1:
        return f"no {symbol}, not even 1, can be distinguished from chance"
    return f"{'an' if symbol == 'AUC' else 'a'} {symbol} below about {limit:.2f} cannot be distinguished from chance"
