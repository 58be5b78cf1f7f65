"""Networks that first learned another label, of other patients, then the target of few: fine-tuned, or frozen and probed.

The study's first endpoint is the target; each of the others is a label to pretrain on. It is learned from patients whose target
is not known, at several numbers of them, for as many steps each. Nobody is in both parts.

Letters: n patients, d numbers of each.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from threadpoolctl import threadpool_limits

from mri_vit.crossval.comparators import networks, refuse_label_exposed
from mri_vit.crossval.folds import Split, validation_split
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient, first_visits
from mri_vit.errors import UsageError
from mri_vit.features.fitting import CLS, HEADS
from mri_vit.model import network
from mri_vit.predictors.network import Neural, network_seed
from mri_vit.predictors.patient_tables import intensity_table
from mri_vit.predictors.regressions import Tabular
from mri_vit.pretrain.encoder import untrained
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import INTENSITY
from mri_vit.settings.schema import Endpoint, Study
from reproductions.features.encoders import normalise, readings
from reproductions.probes import balanced_order, linear_probe

SHARES = (1 / 9, 1 / 3, 1.0)  # of the patients to pretrain on: about as far apart as Dosovitskiy et al. 2021, Figure 4, has them
SHOTS = 5  # of each class, for the probe: the same figure
FEWEST = 18  # patients to pretrain on: two, one to learn from and one to validate on, at the smallest share
FINE_TUNED, PROBE, CONTROL = "fine-tuned", "linear probe", "control"  # how a score was made
COLUMNS = ["how", "network", "label", "patients", "run", "patient", "fold", "truth", "score"]
SCORES, COSTS = "scores.csv", "costs.json"  # of a start; the former is written last


@dataclass(frozen=True)
class Start:
    """Where a network's learning of the target starts: from the weights that these patients' `label` gave it, or from scratch.

    `study` is the network's own, and predicts the target alone. `most` is the largest number of patients that have the label.
    A network that normalises over a batch does so, before it is probed, over `normalised_over`: all who are pretrained on.
    """

    network: str
    study: Study
    label: Endpoint | None = None
    learned_from: tuple[Patient, ...] = ()
    most: int = 0
    normalised_over: tuple[Patient, ...] = ()

    @property
    def id(self) -> str:
        """A folder's name."""
        return f"{self.network}-{self.label.name}-{len(self.learned_from)}" if self.label else f"{self.network}-scratch"


def parted(study: Study, patients: Sequence[Patient]) -> tuple[list[Patient], dict[Endpoint, list[Patient]]]:
    """Who has the target; and by label who has it and no target at any visit. Of each patient one visit, the first with it.

    Raises UsageError when there is no label to pretrain on, a target that is no binary marker, or too few patients for one.
    """
    target, *labels = study.endpoints
    if target.kind != "binary" or not labels:
        raise UsageError(
            f"{study.name}: the first of [[endpoints]] is the target, a binary marker, and the others are pretrained on; found"
            f" {', '.join(f'{e.name} ({e.kind})' for e in study.endpoints)}"
        )
    targets = first_visits([p for p in patients if p.knows(target)])
    theirs = {p.subject for p in targets}
    others = {label: first_visits([p for p in patients if p.knows(label) and p.subject not in theirs]) for label in labels}
    for label, found in others.items():
        if len(found) < FEWEST:
            raise UsageError(
                f"{study.cohort}: {label.name} is known of {len(found)} patients without {target.name};"
                f" pretraining needs {FEWEST} or more"
            )
    return targets, others


def starts(study: Study, others: Mapping[Endpoint, Sequence[Patient]]) -> list[Start]:
    """Each network of the study from scratch, and after each label at `SHARES` of its patients; the longest to make first.

    The patients of a smaller number are among those of a larger one; labels that are known of the same patients have the same.
    """
    by_id = {p.id: p for patients in others.values() for p in patients}
    everyone = sorted(by_id)
    order = {name: i for i, name in enumerate(np.random.default_rng(study.seed).permutation(everyone).tolist())}
    scans = tuple(by_id[i] for i in everyone)
    found = []
    for name, of in networks(study).items():
        own = of.model_copy(update={"endpoints": study.endpoints[:1]})
        for label, patients in others.items():
            ranked = sorted(patients, key=lambda p: order[p.id])
            for share in reversed(SHARES):
                some = tuple(ranked[: round(share * len(ranked))])
                found.append(Start(name, own, label, some, len(ranked), scans))
        found.append(Start(name, own, normalised_over=scans))
    return sorted(found, key=lambda start: start.study.model.architecture == "vit")  # a convolution takes longest


def pretraining(start: Start) -> Study:
    """The study by which the label is learned: as many epochs as make the steps of `train.epochs` on the most patients."""
    assert start.label
    train = start.study.train
    longer = _steps_an_epoch(start.most, start.study) / _steps_an_epoch(len(start.learned_from), start.study)
    as_long = {
        "epochs": max(1, round(train.epochs * longer)),
        "val_every": max(1, round(train.val_every * longer)),
        "seeds": 1,
    }
    return start.study.model_copy(update={"endpoints": (start.label,), "train": train.model_copy(update=as_long)})


def steps(study: Study, patients: int) -> int:
    """Steps that the study makes on so many patients."""
    return study.train.epochs * _steps_an_epoch(patients, study)


def _steps_an_epoch(patients: int, study: Study) -> int:
    """Of so many patients, of whom some are held out for early stopping."""
    return math.ceil((patients - max(1, round(patients * study.train.val_fraction))) / study.train.batch_size)


def scored(start: Start, targets: Sequence[Patient], split: Split, folder: Path) -> pd.DataFrame:
    """Out-of-fold scores of the target, fine-tuned and probed, in each run; all that is learned is kept, but fine-tuned weights.

    A run of fine-tuning is another seed (`train.seeds` of them) from the same pretrained weights, or, from scratch, from weights
    of its own. A run of the probe is another draw of the few labels.

    Raises UsageError when pretrained patients are among the targets.
    """
    home = folder / start.id
    if not (home / SCORES).exists():
        with threadpool_limits(start.study.train.threads):
            weights = pretrained(start, home / "pretrained")
            tables = [
                fine_tuned(start, weights, targets, split, home / "tuned"),
                probed(start, weights, targets, split, home / "pretrained"),
            ]
        write_bytes(json.dumps(_cost(start, home)).encode(), home / COSTS)
        shutil.rmtree(home / "tuned")  # of a ResNet-10 half a gigabyte
        write_bytes(pd.concat(tables).to_csv(index=False).encode(), home / SCORES)
    return pd.read_csv(home / SCORES, dtype={"patient": str}, keep_default_na=False, converters={"score": float})


def _cost(start: Start, home: Path) -> dict[str, int | float]:
    """Parameters of the network; seconds of its pretraining, and of its fine-tuning in all folds and runs."""
    first, tuned = (
        [json.loads(file.read_text()) for file in home.glob(f"{part}/**/{files.COST}")] for part in ("pretrained", "tuned")
    )
    seconds = [sum(cost["training_seconds"] for cost in part) for part in (first, tuned)]
    return {
        "parameters": tuned[0]["parameters"] // start.study.train.seeds,  # a fold's cost is of all its networks together
        "pretraining_seconds": seconds[0],
        "training_seconds": seconds[1],
    }


def pretrained(start: Start, home: Path) -> Path | None:
    """The file of the network that has learned the label; None from scratch."""
    if not start.label:
        return None
    study = pretraining(start)
    home.mkdir(parents=True, exist_ok=True)
    train, val = validation_split(start.learned_from, study.endpoints, study.train.val_fraction, study.seed)
    Neural(study, home, study.seed).fit(train, val)
    return home / files.WEIGHTS


def fine_tuned(start: Start, weights: Path | None, targets: Sequence[Patient], split: Split, home: Path) -> pd.DataFrame:
    """Out-of-fold scores of all weights trained on the target, a run for each seed."""
    study = start.study.model_copy(update={"model": start.study.model.model_copy(update={"weights": weights})})
    refuse_label_exposed(study, targets)
    cross_validate(targets, [split], study, home, start.network, partial(Neural, study))
    seeds = pd.concat([predictions.load_seeds(files.fold_folder(home, 0, fold) / files.SEEDS) for fold in range(len(split))])
    return table(start, FINE_TUNED, seeds.rename(columns={"seed": "run"}), targets)


def probed(start: Start, weights: Path | None, targets: Sequence[Patient], split: Split, home: Path) -> pd.DataFrame:
    """Out-of-fold scores of a linear probe on what heads read of frozen weights, learned from `SHOTS` patients of each class.

    The draws of the few are the same for every start. From scratch each run has random weights of its own.
    """
    study, rows = start.study, []
    truth = np.array([p.labels[study.endpoints[0].name] for p in targets])
    position = {p.id: i for i, p in enumerate(targets)}
    kept = features(start, weights, targets, 0)
    for run in range(study.train.seeds):
        x = kept if weights or run == 0 else features(start, weights, targets, run)
        for number, ids in enumerate(split):
            tested: Bool[np.ndarray, " n"] = np.isin(np.arange(len(targets)), [position[i] for i in ids])
            draw = np.random.default_rng([study.seed, number, run])
            few = np.concatenate([one[:SHOTS] for one in balanced_order(np.flatnonzero(~tested), truth, draw)])
            score = linear_probe(x[few], truth[few] == 1, x[tested], study.seed)
            asked = [targets[i].subject for i in np.flatnonzero(tested).tolist()]
            rows.append(pd.DataFrame({"run": run, "fold": number, "patient": asked, "score": score}))
    return table(start, PROBE, pd.concat(rows), targets)


def features(start: Start, weights: Path | None, patients: Sequence[Patient], run: int) -> Float[np.ndarray, "n d"]:
    """What heads read of each patient; from scratch of the random weights of a run.

    Running statistics of a network that normalises over a batch are those of whole scans for every start, learned or not: they
    would else be of augmented scans after pretraining, and none at all from scratch.
    """
    torch.set_num_threads(start.study.train.threads)
    if weights:
        encoder = network.load(weights).encoder
    else:
        torch.manual_seed(network_seed(start.study.seed, run))
        encoder = untrained(start.study)
    normalise(encoder.cpu(), start.normalised_over, start.study)
    read = readings(encoder, patients, start.study)
    return read[HEADS] if HEADS in read else read[CLS]


def controlled(study: Study, targets: Sequence[Patient], split: Split, folder: Path) -> pd.DataFrame:
    """Out-of-fold scores of the simplest baseline on the same folds, which sees no place: a regression on brightness."""
    own = study.model_copy(update={"endpoints": study.endpoints[:1], "comparators": ()})
    brightness = intensity_table(targets, study)
    found, _ = cross_validate(targets, [split], own, folder / INTENSITY, INTENSITY, lambda *_: Tabular(brightness, own.endpoints))
    return table(Start(INTENSITY, own), CONTROL, found.assign(run=0), targets)


def table(start: Start, how: str, found: pd.DataFrame, targets: Sequence[Patient]) -> pd.DataFrame:
    """A start's scores with what they are of, as `COLUMNS`."""
    truth = {p.subject: p.labels[start.study.endpoints[0].name] for p in targets}
    label = start.label.name if start.label else ""
    own = {"how": how, "network": start.network, "label": label, "patients": len(start.learned_from)}
    return found.assign(**own, truth=found.patient.map(truth)).reindex(columns=COLUMNS)
