"""Frozen encoders: random weights, or weights learned from so many scans; what they read of patients, and what probes make of it.

Who is compared are a study's own network and its comparators: those that pretrain are learned from patients without any label, at
several numbers of scans, for as many steps each; the others keep their random weights. No label reaches an encoder.

Before it is read, a network that normalises over a batch takes its running statistics anew from the whole scans that it learned
from: those of its training are of augmented ones. One of random weights takes them from the same scans, so that the two differ in
what was learned. Features from files, which `mri-vit features` wrote, are read by the same probes on the same patients, folds and
labels; they have no random weights that they began with here, and so no test against them.

Letters: n patients, d numbers of each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient, first_visits
from mri_vit.data.store import all_tokens, token_file
from mri_vit.errors import UsageError
from mri_vit.features import extraction
from mri_vit.features.extraction import Features, Origin
from mri_vit.model.baselines import VolumeEncoder
from mri_vit.model.weights import fill
from mri_vit.pretrain.dino import collapsed
from mri_vit.pretrain.encoder import pretrained, untrained
from mri_vit.settings import source
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Endpoint, Study
from reproductions.probes import COLUMNS, SHARES, table

OWN = VIT  # the study's own network, which keeps its random weights
FILE = "encoder.safetensors"  # its history lies beside it
QUARTERS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the scans, for the few-shot curve
# Random weights to begin with. Measured on 192 synthetic patients: what heads read of random weights gives the linear probe an
# AUC of 0.53 to 0.79, by the start alone. Those who are tested have six: Student's t of six, 2.6, is near the normal 2.0.
# The points of a few-shot curve have two, which is what the time of one command allows.
STARTS, FEWER_STARTS = 6, 2
DRAWS = 5  # of the labels of a small share; single draws of a handful of patients differ by 0.1 for no reason
SCORES = ["encoder", "scans", "start", *COLUMNS, "draw"]


@dataclass(frozen=True)
class Frozen:
    """An encoder that is judged: its name, the study that makes it, those whose scans it learns from (nobody: random weights),
    which random weights it begins with, counted from 0, and over whose scans these are normalised.
    """

    name: str
    study: Study
    learned_from: tuple[Patient, ...]
    start: int = 0
    normalised_over: tuple[Patient, ...] = ()

    @property
    def scans(self) -> int:
        return len(self.learned_from)

    @property
    def id(self) -> str:
        """A folder's name."""
        return f"{self.name}-{self.scans}-{self.start}"


def parted(patients: Sequence[Patient], endpoint: Endpoint) -> tuple[list[Patient], list[Patient]]:
    """Who has the label and is judged, and who has it at no visit and is learned from. Of each patient one visit."""
    labelled = first_visits([p for p in patients if p.knows(endpoint)])
    judged = {p.subject for p in labelled}
    return labelled, first_visits([p for p in patients if p.subject not in judged])


def encoders_compared(study: Study, unlabelled: Sequence[Patient], starts: Mapping[float, int] | None = None) -> list[Frozen]:
    """The study's own network and its comparators; each of those that pretrain at the shares of the scans that `starts` names,
    the largest first, as often as it says, `every_share()` where it is not given; with the same random weights to begin with at
    every number of scans.

    The patients of a smaller number are among those of a larger one. A network of another architecture than the study's own
    learns from all scans alone: a few-shot curve is of one network, and others take many times as long.

    Raises UsageError when there are fewer than two patients to learn from at the smallest number.
    """
    starts = starts or every_share()
    whole, own = range(starts[1.0]), study.model_copy(update={"comparators": ()})
    found = [Frozen(OWN, own, (), start, tuple(unlabelled)) for start in whole]
    order = np.random.default_rng(study.seed).permutation(len(unlabelled)).tolist()
    for comparator in study.comparators:
        of = study.of(comparator)
        if of.pretrain.method == "none":
            found += [Frozen(comparator.name, of, (), start, tuple(unlabelled)) for start in whole]
            continue
        shares = starts if of.model.architecture == study.model.architecture else {1.0: starts[1.0]}
        if len(unlabelled) * min(shares) < 2:
            needed = math.ceil(2 / min(shares))
            raise UsageError(
                f"{study.cohort}: found {len(unlabelled)} patients without a label; pretraining needs {needed} or more"
            )
        for share, times in sorted(shares.items(), reverse=True):
            some = tuple(unlabelled[i] for i in order[: int(share * len(unlabelled))])
            found += [Frozen(comparator.name, as_long(of, len(some), len(unlabelled)), some, start) for start in range(times)]
    return sorted(found, key=lambda frozen: -frozen.scans)  # what takes longest begins first


def every_share() -> dict[float, int]:
    """How often each share of the scans is learned from, for the table and the few-shot curve."""
    return {share: STARTS if share == max(QUARTERS) else FEWER_STARTS for share in QUARTERS}


def beginnings(study: Study) -> dict[str, str]:
    """For each comparator that pretrains the encoder of the same network that keeps the random weights it begins with; where a
    study has none it is left out.
    """
    plain = {OWN: study} | {one.name: study.of(one) for one in study.comparators}
    kept = [name for name, of in plain.items() if name == OWN or of.pretrain.method == "none"]
    found = {name: [other for other in kept if plain[other].model == of.model] for name, of in plain.items() if name not in kept}
    return {name: others[0] for name, others in found.items() if others}


def as_long(study: Study, some: int, all_of_them: int) -> Study:
    """The study with as many epochs on `some` patients as make the steps of `pretrain.epochs` on `all_of_them`."""

    def steps_an_epoch(patients: int) -> int:
        return math.ceil(patients / min(study.pretrain.batch_size, patients))

    epochs = max(1, round(study.pretrain.epochs * steps_an_epoch(all_of_them) / steps_an_epoch(some)))
    return study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"epochs": epochs})})


def scored(
    frozen: Frozen, patients: Sequence[Patient], folds: Sequence[Sequence[str]], endpoint: Endpoint, folder: Path, seed: int
) -> tuple[pd.DataFrame, str]:
    """Out-of-fold scores of the probes on what a frozen encoder reads of `patients`, as `probes.table` gives them.

    The encoder's file is kept in `folder` and not learned again. Shares below 1 are drawn `DRAWS` times, for all
    encoders alike.

    Returns
    -------
    Columns encoder, scans, start, features (how it was read), probe, share, labelled, patient, fold, score, draw; and a sentence
    when DINO had collapsed, else "".
    """
    with threadpool_limits(frozen.study.train.threads):
        vectors = readings(made(frozen, folder, seed), patients, frozen.study)
        found = probed(vectors, patients, folds, endpoint, seed)
    history = folder / frozen.id / "encoder.csv"
    note = (collapsed(pd.read_csv(history)) if frozen.study.pretrain.method == "dino" else None) or ""
    found = found.assign(encoder=frozen.name, scans=frozen.scans, start=frozen.start)
    return found.reindex(columns=SCORES), note


def probed(
    vectors: Mapping[str, Float[np.ndarray, "n _"]],
    patients: Sequence[Patient],
    folds: Sequence[Sequence[str]],
    endpoint: Endpoint,
    seed: int,
) -> pd.DataFrame:
    """Out-of-fold scores of the probes at every share of the labels, as `probes.table` gives them, and of which draw."""
    truth = np.array([p.labels[endpoint.name] for p in patients])
    small, whole = [share for share in SHARES if share < 1], [share for share in SHARES if share == 1]
    parts = [
        table(vectors, [p.id for p in patients], truth, folds, seed + draw, shares).assign(draw=draw)
        for draw, shares in enumerate([SHARES, *[small] * (DRAWS - 1)] if whole else [small] * DRAWS)
    ]
    return pd.concat(parts, ignore_index=True)


def made(frozen: Frozen, folder: Path, seed: int) -> nn.Module:
    """The encoder, learned where it is not there yet. Each start is of the same random weights for all, which some keep."""
    torch.set_num_threads(frozen.study.train.threads)
    start = int(np.random.SeedSequence([seed, frozen.start]).generate_state(1)[0])  # no two cohorts share one
    torch.manual_seed(start)
    encoder = untrained(frozen.study)
    if frozen.learned_from:
        file = folder / frozen.id / FILE
        pretrained(frozen.study, frozen.learned_from, file, start)
        fill(encoder, file, frozen.study.model, frozen.study.grid)
    normalise(encoder, frozen.learned_from or frozen.normalised_over, frozen.study)
    return encoder


@torch.no_grad()
def normalise(encoder: nn.Module, patients: Sequence[Patient], study: Study) -> None:
    """Let a network of volumes that normalises over a batch take its running statistics from patients' whole scans.

    They are the means over batches of as many patients as pretraining has; a patient alone in the last batch is left out.
    Nothing is done to any other network, or without patients.
    """
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.BatchNorm3d)]
    if not layers or not isinstance(encoder, VolumeEncoder):
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()  # whatever a training left
        layer.momentum = None  # the mean of all batches
    encoder.train()
    size = study.pretrain.batch_size
    for some in (patients[first : first + size] for first in range(0, len(patients) - 1, size)):
        shown = (all_tokens(tokens.load(token_file(study.prepared, patient), study.channels), study.model) for patient in some)
        encoder.net(torch.cat([encoder.volume(*one) for one in shown]))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def readings(encoder: nn.Module, patients: Sequence[Patient], study: Study) -> dict[str, Float[np.ndarray, "n d"]]:
    """What an encoder says of each patient, by the way it is read (`ours.readings`); every token of a patient is shown."""
    encoder.eval()
    rows: dict[str, list[Tensor]] = defaultdict(list)
    for patient in patients:
        shown = all_tokens(tokens.load(token_file(study.prepared, patient), study.channels), study.model)
        for name, vectors in extraction.readings(encoder, *shown).items():
            rows[name].append(vectors)
    return {name: torch.cat(found).numpy() for name, found in rows.items()}


DIGITS = 8  # of a SHA-256, where two files would have one name


def read(paths: Sequence[Path], patients: Sequence[Patient], taken: Sequence[str]) -> dict[str, Features]:
    """The files by the name of their encoder, which is none of those `taken`.

    Raises UsageError where a file lacks one of the patients, or its encoder has learned the label of one.
    """
    files = {path: extraction.load_features(path) for path in paths}
    counts = Counter(found.origin.name for found in files.values())
    named: dict[str, Features] = {}
    for path, found in files.items():
        refuse(found, patients, path)
        name = found.origin.name
        if counts[name] > 1 or name in taken:
            name += f" {found.origin.weights_sha256[:DIGITS]}"
        if name in named:
            raise UsageError(f"{path}: features of {name} are given twice")
        named[name] = found
    return named


def refuse(found: Features, patients: Sequence[Patient], path: Path) -> None:
    """Raise UsageError where a patient has no features there, or was learned from with the label."""
    there = set(found.patients)
    if lacking := [p.id for p in patients if p.id not in there]:
        raise UsageError(f"{path}: no features of {len(lacking)} patients who are judged, the first {lacking[0]}; make them anew")
    if known := sorted({p.subject for p in patients} & set(found.origin.taught)):
        raise UsageError(
            f"{path}: its encoder was trained on labels of {len(known)} patients who are judged, the first {known[0]}; only an"
            " encoder that knows none of their labels can be compared"
        )


def scored_from_files(
    files: Mapping[str, Features], patients: Sequence[Patient], folds: Sequence[Sequence[str]], endpoint: Endpoint, seed: int
) -> pd.DataFrame:
    """Out-of-fold scores of the probes on each file's features, in the columns of `encoders.scored`; no scans, one start."""
    parts = []
    for name, found in files.items():
        row = {patient: index for index, patient in enumerate(found.patients)}
        at = np.array([row[patient.id] for patient in patients])
        vectors = {reading: rows[at] for reading, rows in found.vectors.items()}
        parts.append(probed(vectors, patients, folds, endpoint, seed).assign(encoder=name, scans=0, start=0))
    return pd.concat(parts, ignore_index=True).reindex(columns=SCORES)


def notes(files: Mapping[str, Features], patients: Sequence[Patient]) -> list[str]:
    """What has to be known of the files: licences that forbid something, and whose scans an encoder has seen."""
    said = []
    for name, found in files.items():
        if caution := source.licence_caution(found.origin.weights, found.origin.licence):
            said.append(f"{caution}.")
        if seen := sorted({p.subject for p in patients} & set(found.origin.seen)):
            said.append(f"Transductive: {name} was pretrained on scans, without labels, of {len(seen)} of those who are judged.")
    return said


def described(origin: Origin) -> str:
    """What an encoder of others was given, in words: 96³ voxels of 2.33 mm, axes RAS, zscore; each sequence by itself, …"""
    fused = {"none": "at once", "concatenate": "each by itself, put side by side", "mean": "each by itself, their mean"}
    given = f"{', '.join(origin.channels)} {fused[origin.fusion]}"
    if origin.expected is None:
        return given
    cube = origin.expected
    return f"{given}; {cube['edge']}³ voxels of {cube['spacing_mm']:.3g} mm, axes {cube['axes']}, {cube['intensity']}"
