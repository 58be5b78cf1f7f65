"""A probe for shortcuts: can the site be predicted from what the heads read?

Where sites differ in scanner and in how often a label occurs, a model may learn the site instead of the tumour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mri_vit.data.cohort import Patient

COLUMNS = ["patient", "repeat", "fold", "site", "predicted"]
FEWEST = 2  # patients of a site; of one alone nothing can be learned and tested


def sites(patients: Sequence[Patient]) -> dict[str, str]:
    """The site of each visit, of sites with enough patients; empty when fewer than two are left or the table has no site."""
    named = {p.id: p.clinical.get("site", "") for p in patients}
    count = Counter(named.values())
    kept = {i: site for i, site in named.items() if site and count[site] >= FEWEST}
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
