"""Power: what a study's folds can show, before any training. The error of scores without a signal follows from the labels and
the folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.metrics.within_fold import inflation, least_above_chance, within_fold_auc, within_fold_c
from mri_vit.settings.schema import Endpoint

SYMBOL = {"binary": "AUC", "survival": "C"}
PUBLISHED_DISCRIMINATION = {  # by kind, about the best that models of images alone reach
    "binary": 0.80,  # TERTp 0.79 (meta-analysis, PMID 42265510), PTEN 0.79 (doi:10.1007/s00234-019-02244-7); MGMT is far below
    "survival": 0.74,  # Lee et al. 2026, doi:10.1148/ryai.250675: 0.73 where the model was made
}


def least_detectable(patients: Sequence[Patient], endpoint: Endpoint, splits: Sequence[Split]) -> float:
    """The least AUC or C of pairs within a fold that can be better than chance; above 1 where none can, NaN without a pair.

    It is that of one test. Where several results are corrected together, the least is higher.
    """
    errors = [_error(_judged(patients, endpoint), endpoint, split) for split in splits]
    return least_above_chance(float(np.mean(errors)), inflation(len(splits[0]), len(splits)))


def power_cautions(patients: Sequence[Patient], endpoints: Sequence[Endpoint], splits: Sequence[Split]) -> Iterator[str]:
    """A sentence for each endpoint for which even the results of published models would be no evidence against chance."""
    for endpoint in endpoints:
        limit = least_detectable(patients, endpoint, splits) if splits else math.nan
        if limit > PUBLISHED_DISCRIMINATION[endpoint.kind]:
            known = len(_judged(patients, endpoint))
            yield f"{endpoint.name}: {known} patients: {power_sentence(SYMBOL[endpoint.kind], limit)}"


def power_sentence(symbol: str, limit: float) -> str:
    """What a study of such a limit can show."""
    if limit > 1:
        return f"no {symbol}, not even 1, can be distinguished from chance"
    return f"{'an' if symbol == 'AUC' else 'a'} {symbol} below about {limit:.2f} cannot be distinguished from chance"


def _judged(patients: Sequence[Patient], endpoint: Endpoint) -> Mapping[str, Patient]:
    """The first visit of each patient whose label is known, by the visit's id."""
    first: dict[str, Patient] = {}
    for patient in patients:
        if patient.knows(endpoint):
            first.setdefault(patient.subject, patient)
    return {patient.id: patient for patient in first.values()}


def _error(judged: Mapping[str, Patient], endpoint: Endpoint, split: Split) -> float:
    """The error that the report's own test has where no two scores are equal, whatever they are."""
    rows = [(judged[name], fold) for fold, ids in enumerate(split) for name in ids if name in judged]
    labels = np.array([[patient.labels[column] for column in endpoint.columns] for patient, _ in rows], float)
    group, score = np.array([fold for _, fold in rows], float), np.arange(len(rows), dtype=float)
    if not rows:
        return math.nan
    if endpoint.kind == "binary":
        return within_fold_auc(labels[:, 0] == 1, score, group).error
    return within_fold_c(labels[:, 0], labels[:, 1] == 1, score, group).error
