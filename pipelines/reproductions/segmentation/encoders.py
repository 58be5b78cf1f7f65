"""Whose attention is held against a tumour: encoders of random weights, learned with labels and without, and what they attend to.

All learn from the same patients and begin with the same random weights; the patients who are judged are others.

Letters: b patients, k numbers in a patch, p places that are given, h heads, x voxels of a patch, c sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import read_mask
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model.encoder import Encoder, attention_weights
from mri_vit.model.weights import fill, image_exposed, label_exposed
from mri_vit.predictors.network import PRETRAINED, Neural
from mri_vit.prepare.prepared import reference_to_grid
from mri_vit.prepare.tumour import tumour_shares
from mri_vit.pretrain.dino import collapsed
from mri_vit.pretrain.encoder import pretrained, untrained
from mri_vit.settings.schema import Study
from reproductions.segmentation.overlap import HELD, Subject

RANDOM, SUPERVISED = "random", "supervised"  # the study's own network; comparators that pretrain go by their own names
# Random weights to begin with. Measured on 48 synthetic patients: DINO's index was 0.158 from one start and 0.015 from another,
# so that two starts tell next to nothing. Student's t of five is 2.8; the time of one command allows no more.
STARTS = 5
BRIGHT = ("t1ce", "flair")  # sequences in which a tumour is bright: of enhancement, and of oedema


@dataclass(frozen=True)
class EncoderRun:
    """An encoder: its name, the study that makes it, and which random weights it begins with, counted from 0."""

    name: str
    study: Study
    start: int

    @property
    def id(self) -> str:
        """A folder's name."""
        return f"{self.name}-{self.start}"


def encoder_runs(study: Study) -> list[EncoderRun]:
    """The study's own network with random weights and trained on its labels, and each comparator that pretrains, `STARTS` times.

    Raises UsageError for a network whose CLS token does not attend to places, and for a comparator that does not pretrain, or
    goes by the name of another.
    """
    own = study.model_copy(update={"comparators": ()})
    named = {RANDOM: own, SUPERVISED: own} | {one.name: study.of(one) for one in study.comparators}
    if len(named) < 2 + len(study.comparators):
        raise UsageError(f"comparators may not be called {RANDOM} or {SUPERVISED}, as the study's own network is")
    for name, of in named.items():
        if not of.model.attends:
            raise UsageError(f"{name}: attention is of architecture vit, found {of.model.architecture} of depth {of.model.depth}")
        if name not in (RANDOM, SUPERVISED) and of.pretrain.method == "none":
            raise UsageError(f"comparators.{name}: expected a pretrain.method")
    return [EncoderRun(name, of, start) for start in range(STARTS) for name, of in named.items()]


def attentions(
    one: EncoderRun, learners: tuple[Sequence[Patient], Sequence[Patient]], judged: Sequence[Patient], folder: Path
) -> tuple[list[Float[np.ndarray, "h _"]], str]:
    """Each judged patient's attention, and a sentence when DINO had collapsed, else ""; the encoder's files stay in `folder`.

    `learners` are those to train on and those to choose the epoch by; learning without labels takes both alike.

    Raises IntegrityError where a file that is there was learned from somebody who is judged.
    """
    encoder = made(one, learners, folder).eval()
    for file in (folder / one.id).glob("*.safetensors"):
        known = {*label_exposed(file), *image_exposed(file)}
        if met := sorted({patient.subject for patient in judged} & known):
            raise IntegrityError(f"{file}: was learned from patient {met[0]}, who is judged")
    shown = (tokens.load(token_file(one.study.prepared, patient), one.study.channels) for patient in judged)
    found = [of_brain(encoder, prepared, one.study) for prepared in shown]
    history = (folder / one.id / PRETRAINED).with_suffix(".csv")
    note = (collapsed(pd.read_csv(history)) if one.study.pretrain.method == "dino" else None) or ""
    return found, note


def made(one: EncoderRun, learners: tuple[Sequence[Patient], Sequence[Patient]], folder: Path) -> Encoder:
    """The encoder, learned where it is not there yet."""
    torch.set_num_threads(one.study.train.threads)
    seed = int(np.random.SeedSequence([one.study.seed, one.start]).generate_state(1)[0])
    home, (train, val) = folder / one.id, learners
    if one.name == SUPERVISED:
        home.mkdir(parents=True, exist_ok=True)
        predictor = Neural(one.study.model_copy(update={"pretrain": type(one.study.pretrain)()}), home, seed)
        predictor.fit(train, val)
        return predictor.network.encoder.cpu()
    torch.manual_seed(seed)
    encoder: Encoder = untrained(one.study)
    if one.name != RANDOM:
        file = home / PRETRAINED
        pretrained(one.study, [*train, *val], file, seed)
        fill(encoder, file, one.study.model, one.study.grid)
    return encoder


@torch.no_grad()
def of_cls(encoder: Encoder, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b h p"]:
    """The CLS token's attention to places in the last block, by head; what is left to 1 went to CLS itself."""
    x = encoder.tokens(patches, position)
    *earlier, last = encoder.layers
    for block in earlier:
        x = block(x)
    q, k, _ = last.attention.project(last.norm1(x))
    return attention_weights(q[:, :, :1], k)[:, :, 0, 1:]


def of_brain(encoder: Encoder, prepared: Tokens, study: Study) -> Float[np.ndarray, "h p"]:
    """Attention to the places that hold brain, in the order in which they are stored."""
    patches, position = all_tokens(prepared, study.model)
    found = of_cls(encoder, patches, position)[0].numpy()
    return found[:, np.searchsorted(position[0].numpy(), prepared.position)]  # a network on all places is given air too


def subject(patient: Patient, study: Study) -> Subject | None:
    """What a patient's attention is held against; None without a tumour mask, or where no place is mostly tumour."""
    if patient.tumour_mask is None:
        return None
    prepared = tokens.load(token_file(study.prepared, patient), study.channels)
    share = tumour_shares(read_mask(patient.tumour_mask), reference_to_grid(study.prepared / patient.id), prepared)
    tumour = share[prepared.position] > HELD
    return Subject(patient.id, tumour, brightness(prepared)) if tumour.any() else None


def brightness(prepared: Tokens) -> dict[str, Float[np.ndarray, " p"]]:
    """The mean over each place's brain voxels, in those of the sequences `BRIGHT` that there are."""
    x = rearrange(prepared.patches.astype(np.float32), "p (c x) -> c p x", c=len(prepared.channels))
    count = (x != 0).any(axis=0).sum(axis=1).clip(min=1)
    return {name: x[prepared.channels.index(name)].sum(axis=1) / count for name in BRIGHT if name in prepared.channels}
