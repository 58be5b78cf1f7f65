"""Networks, Vision Transformers or a comparator's, as a predictor: fitted to one fold's patients, predicts others once."""

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
from mri_vit.data.cohort import Patient, refuse_labels
from mri_vit.data.predictions import HORIZONS_DAYS, SCORE, SURVIVAL, score_table, stacked, survival_table
from mri_vit.data.store import all_tokens, token_file
from mri_vit.errors import BadNumbers
from mri_vit.model import heads, network
from mri_vit.model.network import Encode, Network, count_parameters, encoder, flops, state_bytes
from mri_vit.pretrain.encoder import pretrained
from mri_vit.run import files, resource
from mri_vit.run.atomic import write_bytes
from mri_vit.run.resource import naming_lack
from mri_vit.settings.schema import Study
from mri_vit.train.devices import less_memory
from mri_vit.train.loop import Report
from mri_vit.train.supervised import fit, outputs

PRETRAINED = files.PRETRAINED
Tables = tuple[pd.DataFrame, pd.DataFrame]  # scores and survival, as `Predictor.predict` gives them


class Neural:
    """A Predictor (see `predictions.py`) whose weights, checkpoints and history live in `folder`.

    It is `train.seeds` networks, one by default, which differ in their seed alone: initial weights, order and draws. Its scores
    and survival probabilities are the means of theirs. The networks after the first live in folders of their own in `folder`.
    Where the study pretrains, its encoder is learned from the patients that `fit` is given, and kept in `folder` too; every
    network starts from it. `encode` builds the encoders: a study's own, or a variant that no study file names.
    """

    def __init__(self, study: Study, folder: Path, seed: int, report: Report | None = None, encode: Encode = encoder) -> None:
        self.study, self.folder, self.seed, self.report, self.encode = study, folder, seed, report, encode
        self._networks: list[Network] = []

    @classmethod
    def fitted(cls, study: Study, folder: Path, encode: Encode = encoder) -> Neural:
        """The one that an earlier run left in `folder`."""
        predictor = cls(study, folder, seed=0, encode=encode)
        predictor._networks = loaded(folder, study.train.seeds, encode)
        return predictor

    @classmethod
    def of(cls, study: Study, networks: list[Network]) -> Neural:
        """The one of a fold's networks that are in memory already."""
        predictor = cls(study, Path(), seed=0)
        predictor._networks = networks
        return predictor

    @property
    def networks(self) -> list[Network]:
        """What `fit` found, by seed. Raises RuntimeError before that."""
        if not self._networks:
            raise RuntimeError("fit the predictor first")
        return self._networks

    @property
    def network(self) -> Network:
        """The first seed's network, which stands for all where one is looked into."""
        return self.networks[0]

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None:
        study = self.study
        if study.pretrain.method != "none":
            study = pretrained(study, [*train, *val], self.folder / PRETRAINED, self.seed, self.report)
        labelled = [p for p in train if any(p.knows(endpoint) for endpoint in study.endpoints)]  # others have no gradient
        with naming_lack(self.folder, lambda: state_bytes(study), less_memory(study)):
            self._networks = [self._trained(number, labelled or train, val, study) for number in range(study.train.seeds)]
        costs = [self._cost(number, net, val[0]) for number, net in enumerate(self.networks)]
        together = {figure: sum(cost[figure] for cost in costs) for figure in costs[0]}
        write_bytes(json.dumps(together, indent=1).encode(), self.folder / files.COST)

    def _trained(self, number: int, train: Sequence[Patient], val: Sequence[Patient], study: Study) -> Network:
        """The network of a seed, counted from 0; loaded where it was trained before the run was stopped."""
        folder = files.seed_folder(self.folder, number)
        if (folder / files.WEIGHTS).exists():
            return _loaded(folder, self.encode)
        return fit(train, val, study, folder, network_seed(self.seed, number), self.report, self.encode)

    @torch.no_grad()
    def _cost(self, number: int, net: Network, patient: Patient) -> dict[str, int | float]:
        """Parameters; floating-point operations and seconds for one patient's prediction; seconds of training."""
        device = next(net.parameters()).device
        batch = [
            part.to(device)
            for part in all_tokens(tokens.load(token_file(self.study.prepared, patient), self.study.channels), self.study.model)
        ]
        net.eval()(*batch)  # the first call of a shape is slower
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            out = net(*batch)
            _ = [value.cpu() for value in out.values()]  # waits for the device
            seconds.append(time.monotonic() - began)
        history = pd.read_csv(files.seed_folder(self.folder, number) / files.HISTORY)
        return {
            "parameters": count_parameters(net),
            "flops": flops(net, *batch),
            "patient_seconds": float(np.median(seconds)),
            "training_seconds": float(history.seconds.iloc[-1]),
        }

    def predict(self, patients: Sequence[Patient]) -> Tables:
        return mean_tables(self.predict_each(patients))

    def predict_each(self, patients: Sequence[Patient]) -> list[Tables]:
        """As `predict`, by each network alone."""
        refuse_labels(patients)
        return [tables(net, outs, patients) for net, outs in zip(self.networks, self.outputs(patients), strict=True)]

    def outputs(self, patients: Sequence[Patient]) -> list[dict[str, Tensor]]:
        """Each network's raw numbers, by endpoint."""
        resource.keep_freed_memory()
        torch.set_num_threads(self.study.train.threads)
        device = next(self.network.parameters()).device
        return [outputs(net, patients, self.study, device) for net in self.networks]

    @torch.no_grad()
    def represent(self, patients: Sequence[Patient]) -> Float[np.ndarray, "n d"]:
        """What the first seed's heads read of each patient: CLS, and what `model.pool` adds; of another network, its features."""
        torch.set_num_threads(self.study.train.threads)
        device = next(self.network.parameters()).device
        self.network.eval()
        rows = []
        for patient in patients:
            patches, position = all_tokens(
                tokens.load(token_file(self.study.prepared, patient), self.study.channels), self.study.model
            )
            rows.append(self.network.encoder(patches.to(device), position.to(device))[0].float().cpu().numpy())
        return np.stack(rows)


def loaded(folder: Path, seeds: int, encode: Encode = encoder) -> list[Network]:
    """The networks of a fold whose training ended in this folder, by seed."""
    return [_loaded(files.seed_folder(folder, seed), encode) for seed in range(seeds)]


def _loaded(folder: Path, encode: Encode) -> Network:
    """The network whose training ended in this folder."""
    return network.load(folder / files.WEIGHTS, encode).to("cuda" if torch.cuda.is_available() else "cpu")


def network_seed(seed: int, number: int) -> int:
    """The seed of one of a fold's networks, counted from 0: of the first it is the fold's own."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) if number else seed


def mean_tables(each: Sequence[Tables]) -> Tables:
    """The means of several networks' scores and of their survival probabilities, of the same patients in the same order.

    Scores are averaged as they are, risks too: networks of one recipe and the same training patients have one scale. The mean
    of hazard heads' risks is the ensemble mortality of random survival forests (Ishwaran et al. 2008, doi:10.1214/08-AOAS169).
    """
    score, survival = each[0]
    return (
        score.assign(score=np.mean([scores.score for scores, _ in each], axis=0)),
        survival.assign(survival=np.mean([alive.survival for _, alive in each], axis=0)),
    )


def tables(net: Network, outs: dict[str, Tensor], patients: Sequence[Patient]) -> Tables:
    """Scores (patient, endpoint, score) and survival (patient, endpoint, horizon_days, survival) from the heads' raw numbers.

    Raises BadNumbers when a score is NaN or infinite, naming the patient: training has diverged.
    """
    ids = [patient.id for patient in patients]
    scores, survivals = [], []
    for head in net.heads:
        name = head.endpoint.name
        found = heads.scores(head, outs[name]).numpy()
        wrong = np.argwhere(~np.isfinite(found))
        if len(wrong):
            row, column = wrong[0]
            raise BadNumbers(
                f"patient {ids[row]}: the score for {name} is {found[row, column]}; train with a smaller train.learning_rate"
            )
        scores.append(score_table(head.endpoint, ids, found.astype(float)))
        alive = heads.survival(head, outs[name])
        if alive is not None:  # deaths spread evenly within an interval
            ends = (0.0, *head.cuts_days)
            at = np.stack([np.interp(HORIZONS_DAYS, ends, (1.0, *one)) for one in alive.numpy()])
            survivals.append(survival_table(head.endpoint, ids, at))
    return stacked(scores, SCORE), stacked(survivals, SURVIVAL)
