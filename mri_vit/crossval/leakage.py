"""Leakage checks: a model of permuted labels that seems to have learned, and sites that can be predicted from what heads read.

Where sites differ in scanner and in how often a label occurs, a model may learn the site instead of the tumour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mri_vit.data.cohort import Patient
from mri_vit.metrics.within_fold import WithinFold, inflation, p_above_chance, within_fold_auc, within_fold_c
from mri_vit.settings.schema import Endpoint

SITE_PROBE_COLUMNS = ["patient", "repeat", "fold", "site", "predicted"]
LEAST_PATIENTS_OF_A_SITE = 2  # patients of a site; of one alone nothing can be learned and tested
# Of a study without a leak: any endpoint of the first permutation, and then the same endpoint of a fresh one, must both look so.
# With E endpoints and a p of √(0.01 / E) each, both do in E · 0.01 / E = 1 % of such studies.
FALSE_POSITIVES = 0.01


def sites(patients: Sequence[Patient]) -> dict[str, str]:
    """The site of each visit, of sites with enough patients; empty when fewer than two are left or the table has no site."""
    named = {p.id: p.clinical.get("site", "") for p in patients}
    count = Counter(named.values())
    kept = {i: site for i, site in named.items() if site and count[site] >= LEAST_PATIENTS_OF_A_SITE}
    return kept if len(set(kept.values())) > 1 else {}


def probe(
    represent: Callable[[Sequence[Patient]], Float[np.ndarray, "n d"]], train: Sequence[Patient], test: Sequence[Patient]
) -> pd.DataFrame:
    """The site that a linear probe takes each test patient for: (patient, site, predicted).

    The probe is a logistic regression from what the heads read of the training patients, standardised, with scikit-learn's
    default penalty; `represent` gives the vectors of one fold's network, which had not seen the test patients.
    Source: Alain & Bengio 2017, arXiv:1610.01644, for linear probes; Zech et al. 2018, doi:10.1371/journal.pmed.1002683, for
    networks that recognise the hospital.
    """
    of = sites((*train, *test))
    train, test = [p for p in train if p.id in of], [p for p in test if p.id in of]
    found = [of[p.id] for p in train]
    if not test or len(set(found)) < 2:
        return pd.DataFrame(columns=pd.Index(["patient", "site", "predicted"]))
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(represent(train), found)
    predicted = classifier.predict(represent(test))
    return pd.DataFrame({"patient": [p.subject for p in test], "site": [of[p.id] for p in test], "predicted": predicted})


def suspicious(table: pd.DataFrame, endpoints: Sequence[Endpoint]) -> list[str]:
    """The endpoints that a model of permuted labels predicts within the test folds, p at most √(0.01 / E) for each of E.

    `table` holds one model's predictions (`predictions.COLUMNS`) of one repeat.
    """
    level = suspicion(len(endpoints))
    found = {endpoint.name: _found(table.loc[table.endpoint == endpoint.name], endpoint) for endpoint in endpoints}
    inflated = inflation(max(table.fold.nunique(), 1))
    return [name for name, one in found.items() if p_above_chance(one, inflated) <= level]


def suspicion(endpoints: int) -> float:
    """The p of one permutation up to which an endpoint of so many is suspicious."""
    return math.sqrt(FALSE_POSITIVES / max(endpoints, 1))


def _found(rows: pd.DataFrame, endpoint: Endpoint) -> WithinFold:
    """AUC or C within the folds, a row per patient whose label is known: visits count as in the report."""
    if endpoint.kind == "survival":
        rows = rows.dropna(subset=["time_days", "event"]).drop_duplicates("patient")
        days, event, risk = (rows[name].to_numpy(float) for name in ("time_days", "event", "score"))
        return within_fold_c(days, event, risk, rows.fold.to_numpy())
    people = rows.groupby(["fold", "patient"]).agg({"score": "mean", "truth": "first"}).dropna().reset_index()
    return within_fold_auc(people.truth.to_numpy(float), people.score.to_numpy(float), people.fold.to_numpy())
