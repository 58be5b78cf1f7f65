"""Late fusion: the evidence of a fitted network and that of the clinical columns become one prediction.

Their weights are fitted to a fold's validation patients, which neither was fitted to: on its own training patients an overfitted
network looks perfect, and the clinical columns would get no weight beside it.

Letters: b patients, q numbers of evidence.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.preprocessing import StandardScaler

from mri_vit.data.cohort import Patient, refuse_labels, strata, without_labels
from mri_vit.data.covariates import withheld
from mri_vit.data.predictions import SCORE, SURVIVAL, score_rows, score_table, stacked
from mri_vit.kinds.kind import labels
from mri_vit.model import heads
from mri_vit.predictors.network import Neural, mean_tables, tables
from mri_vit.predictors.regressions import Regressions, Tabular
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json
from mri_vit.settings.recipe import CLINICAL, VIT
from mri_vit.settings.schema import Endpoint

WEIGHTS = files.FUSION  # how each endpoint of a fold was weighed
# With fewer known labels two fitted weights are worse than equal ones. Measured on synthetic evidence, mean test AUC over three
# cases (both are informative, either alone is): 8 labels 0.741 against 0.751 for equal weights, 10: 0.752 and 0.750, 12: 0.764
# and 0.752.
MIN_VALIDATION_PATIENTS = 10


@dataclass(frozen=True)
class Evidence:
    """The network's and the clinical regression's evidence in some patients, by endpoint that both predict.

    `by_model`: a row per visit id with the columns "vit" and "clinical", log odds or log hazards; of classes and grades several
    of each, "vit1", …. `survival`, of survival endpoints: (patient, endpoint, horizon_days, survival), the mean of both models'
    probabilities.
    """

    by_model: dict[str, pd.DataFrame]
    survival: dict[str, pd.DataFrame]


class LateFusion:
    """A Predictor (see `predictions.py`): a penalised regression on two numbers, the network's and the clinical columns'.

    Per endpoint, with n the network's evidence and c that of the regression on the clinical columns, both in log odds or log
    hazards: log odds of 1 = a + w·n + v·c (logistic), log hazard ratio = w·n + v·c (Cox), each w and v with the normal prior of
    `Regressions`. Where the validation patients do not determine the weights, both count the same: the mean of n and c, each in
    its standard deviations over the validation patients, put back on the mean of their scales; survival is then the mean of both
    models'.

    The network is fitted already and stays as it is; the clinical regression is fitted on the training patients, the weights on
    the validation patients. An endpoint that one of the two does not predict has no prediction.
    """

    def __init__(self, network: Neural, covariates: pd.DataFrame, folder: Path) -> None:
        """`covariates` has a row per visit id, see `clinical_table`; how each endpoint was weighed goes into `folder`.

        An endpoint's clinical regression does not read the columns of `withheld`.
        """
        self.network, self.folder = network, folder
        self.endpoints = {endpoint.name: endpoint for endpoint in network.study.endpoints}
        self._clinical = Tabular(covariates, network.study.endpoints, withheld(list(covariates), network.study))
        self._fitted: dict[str, Regressions] = {}
        self._equal: dict[str, StandardScaler] = {}

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None:
        """Fit, and write `fusion.json`: by endpoint "", or why both count the same."""
        self._clinical.fit(train, val)
        why = {}
        for name, evidence in self._evidence([without_labels(p) for p in val]).by_model.items():
            why[name] = lacking(self.endpoints[name], val, evidence)
            if why[name]:
                self._equal[name] = StandardScaler().fit(evidence)
            else:
                self._fitted[name] = Regressions((self.endpoints[name],))
                self._fitted[name].fit(evidence, val)
        write_bytes(json.dumps(why, indent=1).encode(), self.folder / WEIGHTS)

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        both = self._evidence(patients)
        scores, survivals = [], []
        for name, evidence in both.by_model.items():
            if name in self._fitted:
                score, survival = self._fitted[name].predict(evidence.loc[[p.id for p in patients]])
            else:
                endpoint = self.endpoints[name]
                fused = heads.of(endpoint).to_scores(endpoint, equal(self._equal[name], evidence))
                score = score_table(endpoint, evidence.index.tolist(), fused)
                survival = both.survival.get(name, pd.DataFrame())
            scores.append(score)
            survivals.append(survival)
        return stacked(scores, SCORE), stacked(survivals, SURVIVAL)

    def of(self, network: Neural, covariates: pd.DataFrame) -> LateFusion:
        """The same fitted fusion, which reads other patients: `network` where they are prepared, and their covariates."""
        other = LateFusion(network, covariates, self.folder)
        other.endpoints, other._clinical = self.endpoints, self._clinical.of(covariates)
        other._fitted, other._equal = self._fitted, self._equal
        return other

    def _evidence(self, patients: Sequence[Patient]) -> Evidence:
        nets, outs = self.network.networks, self.network.outputs(patients)
        _, networks = mean_tables([tables(net, out, patients) for net, out in zip(nets, outs, strict=True)])
        score, clinicals = self._clinical.predict(patients)
        ids, evidence, survival = [p.id for p in patients], {}, {}
        for same in zip(*(net.heads for net in nets), strict=True):  # one endpoint's heads, a network each
            endpoint = same[0].endpoint
            name, of_kind = endpoint.name, heads.of(endpoint)
            if name not in set(score.endpoint):
                continue
            both = {
                VIT: of_kind.joint_evidence(same, [out[name] for out in outs]),
                CLINICAL: of_kind.from_scores(endpoint, score_rows(score, endpoint, ids)),
            }
            columns = {f"{model}{column or ''}": values for model, own in both.items() for column, values in enumerate(own.T)}
            evidence[name] = pd.DataFrame(columns, index=pd.Index(ids))
            if name in set(clinicals.endpoint):
                survival[name] = _mean(networks.loc[networks.endpoint == name], clinicals.loc[clinicals.endpoint == name])
        return Evidence(evidence, survival)


def lacking(endpoint: Endpoint, val: Sequence[Patient], evidence: pd.DataFrame) -> str:
    """Why these patients do not determine the weights of an endpoint; "" where they do."""
    known = [p for p in val if p.knows(endpoint)]
    if len(known) < MIN_VALIDATION_PATIENTS:
        return f"fewer than {MIN_VALIDATION_PATIENTS} validation patients with a known label"
    if not labels(endpoint).is_learnable(set(strata(known, endpoint))):
        return labels(endpoint).unlearnable
    if (evidence.loc[[p.id for p in known]].nunique() < 2).all():
        return "neither differs between the validation patients"
    return ""


def equal(scaling: StandardScaler, evidence: pd.DataFrame) -> Float[np.ndarray, "b q"]:
    """The mean of both evidences in standard deviations, on a scale with the mean of their means and of their deviations."""
    mean, deviation, scaled = (
        np.asarray(part).reshape(*shape, 2, -1)
        for part, shape in ((scaling.mean_, ()), (scaling.scale_, ()), (scaling.transform(evidence), (len(evidence),)))
    )
    return mean.mean(axis=0) + deviation.mean(axis=0) * scaled.mean(axis=1)


def equally_weighted(folders: Sequence[Path]) -> str:
    """Which endpoints of which folds were fused with equal weights, and why; "" where all weights were fitted."""
    folds: dict[tuple[str, str], list[str]] = defaultdict(list)
    for folder in folders:
        for name, why in read_json(folder / WEIGHTS).items():
            if why:
                folds[name, why].append(folder.name)
    return "; ".join(f"equal weights for {name} in {', '.join(names)}: {why}" for (name, why), names in folds.items())


def _mean(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The mean of two tables of survival, of the same patients at the same horizons."""
    keys = list(SURVIVAL[:-1])
    both = one.merge(other, on=keys, suffixes=("_one", "_other"), validate="one_to_one")
    return both[keys].assign(survival=(both.survival_one + both.survival_other) / 2)
