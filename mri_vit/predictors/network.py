"""A network, the Vision Transformer or a comparator's, as a predictor: fitted on one fold's patients, asked once for others."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.batches import everything, token_file
from mri_vit.data.cohort import Patient, refuse_labels
from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.errors import BadNumbers
from mri_vit.model import heads, network
from mri_vit.model.cost import flops, parameters
from mri_vit.model.network import Network
from mri_vit.pretrain.encoder import pretrained
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.resource import naming_lack
from mri_vit.settings.schema import Study
from mri_vit.train.loop import Report
from mri_vit.train.memory import less_memory, state_bytes
from mri_vit.train.supervised import fit, outputs

PRETRAINED = files.PRETRAINED


class Neural:
    """A Predictor (see `predictions.py`) whose weights, checkpoints and history live in `folder`.

    Where the study pretrains, its encoder is learned from the patients that `fit` is given, and kept there too.
    """

    def __init__(self, study: Study, folder: Path, seed: int, report: Report | None = None) -> None:
        self.study, self.folder, self.seed, self.report = study, folder, seed, report
        self._network: Network | None = None

    @classmethod
    def fitted(cls, study: Study, folder: Path) -> Neural:
        """The one that an earlier run left in `folder`."""
        predictor = cls(study, folder, seed=0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        predictor._network = network.load(folder / files.WEIGHTS).to(device)
        return predictor

    @property
    def network(self) -> Network:
        """What `fit` found. Raises RuntimeError before that."""
        if self._network is None:
            raise RuntimeError("fit the predictor first")
        return self._network

    def fit(self, train: Sequence[Patient], tune: Sequence[Patient]) -> None:
        study = self.study
        if study.pretrain.method != "none":
            study = pretrained(study, [*train, *tune], self.folder / PRETRAINED, self.seed, self.report)
        labelled = [p for p in train if any(p.knows(endpoint) for endpoint in study.endpoints)]  # others have no gradient
        with naming_lack(self.folder, lambda: state_bytes(study), less_memory(study)):
            self._network = fit(labelled or train, tune, study, self.folder, self.seed, self.report)
        write_bytes(json.dumps(self._cost(tune[0]), indent=1).encode(), self.folder / files.COST)

    @torch.no_grad()
    def _cost(self, patient: Patient) -> dict[str, int | float]:
        """Parameters; floating-point operations and seconds for one patient's prediction; seconds of training."""
        device = next(self.network.parameters()).device
        batch = [part.to(device) for part in everything(tokens.load(token_file(self.study, patient)), self.study)]
        self.network.eval()(*batch)  # the first call of a shape is slower
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            out = self.network(*batch)
            _ = [value.cpu() for value in out.values()]  # waits for the device
            seconds.append(time.monotonic() - began)
        return {
            "parameters": parameters(self.network),
            "flops": flops(self.network, *batch),
            "patient_seconds": float(np.median(seconds)),
            "training_seconds": float(pd.read_csv(self.folder / files.HISTORY).seconds.iloc[-1]),
        }

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        torch.set_num_threads(self.study.train.threads)
        device = next(self.network.parameters()).device
        return tables(self.network, outputs(self.network, patients, self.study, device), patients)

    @torch.no_grad()
    def represent(self, patients: Sequence[Patient]) -> Float[np.ndarray, "n d"]:
        """What the heads read of each patient: CLS, and what `model.pool` adds; of another network, its features."""
        torch.set_num_threads(self.study.train.threads)
        device = next(self.network.parameters()).device
        self.network.eval()
        rows = []
        for patient in patients:
            patches, place = everything(tokens.load(token_file(self.study, patient)), self.study)
            rows.append(self.network.encoder(patches.to(device), place.to(device))[0].float().cpu().numpy())
        return np.stack(rows)


def tables(net: Network, outs: dict[str, Tensor], patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores (patient, endpoint, score) and survival (patient, endpoint, horizon_days, survival) from the heads' raw numbers.

    Raises BadNumbers when a score is NaN or infinite, naming the patient: training has diverged.
    """
    scores, survivals = [], []
    for head in net.heads:
        name = head.endpoint.name
        for patient, score in zip(patients, heads.score(head, outs[name]).tolist(), strict=True):
            if not np.isfinite(score):
                raise BadNumbers(f"patient {patient.id}: the score for {name} is {score}; train with a smaller train.rate")
            scores.append({"patient": patient.id, "endpoint": name, "score": score})
        if head.kind == "binary":
            continue
        for patient, alive in zip(patients, heads.survival(head, outs[name]).numpy(), strict=True):
            at = np.interp(HORIZONS_DAYS, (0.0, *head.cuts_days), (1.0, *alive))  # deaths spread evenly within an interval
            survivals += [
                {"patient": patient.id, "endpoint": name, "horizon_days": days, "survival": float(s)}
                for days, s in zip(HORIZONS_DAYS, at, strict=True)
            ]
    columns = pd.Index(["patient", "endpoint", "horizon_days", "survival"])  # also of a table without rows
    return pd.DataFrame(scores), pd.DataFrame(survivals, columns=columns)
