"""A small fully connected network (multilayer perceptron) on a table of numbers, one for each binary marker."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from mri_vit.data.cohort import Patient, refuse_labels
from mri_vit.errors import BadNumbers
from mri_vit.predictors.regressions import scaling, varies
from mri_vit.settings.schema import Endpoint

HIDDEN = (32,)  # units; four sequences bring 72 first-order numbers, so that it must summarise them
# Of half the weights' square beside the sum of the patients' losses: a normal prior of variance 1 / penalty, see `tabular`.
PENALTIES = (100.0, 10.0, 1.0, 0.1)  # a decade apart, from weights that can hardly move to ones that can fit any 24 patients
END = 1e-6  # of the gradient: another machine's rounding then moves no patient
MOST = 100_000  # steps to that end, and evaluations of the loss; some hundred are usual


class Perceptron:
    """A Predictor (see `predictions.py`) from a table of covariates with a row per visit id.

    Each penalty's network is optimised to the end of its loss (L-BFGS, which suits so few patients better than small steps);
    that of the least log loss on the validation patients is kept, of the greatest penalty where none of them has a label.
    """

    def __init__(self, covariates: pd.DataFrame, endpoints: Sequence[Endpoint], seed: int) -> None:
        self.covariates, self.seed = covariates, seed
        self.endpoints = [endpoint for endpoint in endpoints if endpoint.kind == "binary"]
        self._networks: dict[str, Pipeline] = {}

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None:
        """Fit on those whose label is known; an endpoint with nothing to learn gets no network.

        Raises BadNumbers when a network does not reach its end.
        """
        for endpoint in self.endpoints:
            rows, flags = self._known(train, endpoint)
            if not (varies(rows) and 0 < flags.sum() < len(flags)):
                continue
            judges = self._known(val, endpoint)
            fitted = [_optimised(rows, flags, penalty, self.seed, endpoint.name) for penalty in PENALTIES]
            self._networks[endpoint.name] = min(fitted, key=lambda network: _loss(network, *judges))  # of equals the first

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        ids = [p.id for p in patients]
        rows = self.covariates.loc[ids]
        scores = [
            {"patient": id_, "endpoint": name, "score": score}
            for name, network in self._networks.items()
            for id_, score in zip(ids, network.predict_proba(rows)[:, 1].tolist(), strict=True)
        ]
        no_survival = pd.DataFrame(columns=pd.Index(["patient", "endpoint", "horizon_days", "survival"]))
        return pd.DataFrame(scores, columns=pd.Index(["patient", "endpoint", "score"])), no_survival

    def _known(self, patients: Sequence[Patient], endpoint: Endpoint) -> tuple[pd.DataFrame, np.ndarray]:
        known = [p for p in patients if p.knows(endpoint)]
        return self.covariates.loc[[p.id for p in known]], np.array([p.labels[endpoint.name] == 1 for p in known], dtype=bool)


def parameters(numbers: int) -> int:
    """Weights and biases of a network of so many inputs."""
    widths = (numbers, *HIDDEN, 1)
    return sum((before + 1) * after for before, after in pairwise(widths))


def _optimised(rows: pd.DataFrame, flags: np.ndarray, penalty: float, seed: int, name: str) -> Pipeline:
    network = MLPClassifier(
        HIDDEN,
        activation="tanh",  # smooth, as L-BFGS takes the loss to be
        solver="lbfgs",
        alpha=penalty,
        random_state=seed,
        tol=END,
        max_iter=MOST,
        max_fun=MOST,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return make_pipeline(scaling(), network).fit(rows, flags)
        except ConvergenceWarning as warning:
            raise BadNumbers(f"{name}: the fully connected network did not converge: {warning}") from None


def _loss(network: Pipeline, rows: pd.DataFrame, flags: np.ndarray) -> float:
    """Log loss on these patients; infinite where there are none."""
    if not len(flags):
        return math.inf
    return float(log_loss(flags, network.predict_proba(rows)[:, 1], labels=[False, True]))
