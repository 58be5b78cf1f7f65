"""Feed: training patients go in; the batch of each step, its labels and tumour masks come out, on the network's device.

Letters: b patients, p tokens, c columns of a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int16
from torch import Tensor

from mri_vit.data import draw
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import Draw, Mixing, stream
from mri_vit.data.store import Batch, Store, labels, sent, store, token_file
from mri_vit.settings.schema import Study
from mri_vit.train.loop import Turn
from mri_vit.train.mask_supervision import Masks

Labels = dict[str, Float[Tensor, "b c"]]  # by endpoint; NaN where missing


@dataclass(frozen=True)
class LabelledBatch:
    """A batch and its labels; with mixup also the partners' labels, and the share that a patient's own count.

    `tumour` is each token's share of tumour, with mask supervision.
    """

    batch: Batch
    labels: Labels
    partners: Labels | None = None
    share: float = 1.0
    tumour: Float[Tensor, "b p"] | None = None


def whole_batch(drawn: Draw) -> Draw:
    """The share of a single device."""
    return drawn


class Feed:
    """The training patients of one fit, their tokens and labels on the network's device.

    Each of several devices gets its share of a batch's tokens, and the labels of all.
    """

    def __init__(
        self,
        patients: Sequence[Patient],
        study: Study,
        device: torch.device,
        seed: int,
        share: Callable[[Draw], Draw] = whole_batch,
    ) -> None:
        self.patients, self.ids = patients, [patient.id for patient in patients]
        self.study, self.device, self.seed, self.share = study, device, seed, share
        self.store: Store = store([token_file(study.prepared, patient) for patient in patients], device)
        self.labels: Labels = {e.name: labels(patients, e).to(device) for e in study.endpoints}

    @cached_property
    def masks(self) -> Masks:
        """The patients' tumour masks, read on first use, as only training needs them."""
        return Masks(self.patients, self.study)

    def __call__(self, turns: Iterable[Turn]) -> Iterator[LabelledBatch]:
        """The batch of each of these turns; it lasts until the next is asked for."""
        drawn = ((turn, self.draw(turn)) for turn in turns)
        for (turn, shown), (batch,) in self.store.each((pair, (self.share(pair[1]),)) for pair in drawn):
            own, mix = np.array(turn.patients), self._mixing(turn, batch.position.shape[1])
            if mix is None:
                tumour = self.masks(shown).to(self.device) if self.study.train.uses_tumour_masks else None
                yield LabelledBatch(batch, self._unmirrored(self._labels(own), shown), tumour=tumour)
            else:
                yield LabelledBatch(batch, self._labels(own), self._labels(own[mix.partner]), mix.share)

    def draw(self, turn: Turn) -> Draw:
        """The tokens of a turn, augmented and, with mixup, mixed with a partner's."""
        kept = self.masks.holds if self.study.train.tumour_tokens_first else None
        drawn = training_draw(turn, self.ids, self.store.position, self.study, self.seed, kept)
        mix = self._mixing(turn, drawn.position.shape[1])
        return drawn if mix is None else draw.mixed(drawn, mix)

    def evaluated(self, batch: int) -> Iterator[Batch]:
        """Every patient with every token that the encoder reads, as stored, in the patients' order: so many at a time, or fewer,
        so that together they have no more tokens than a step of training, whose memory is there.
        """
        position, study, patients = self.store.position, self.study, range(len(self.ids))
        widths = [len(draw.shown(at, study)[0]) for at in position]
        most = max(widths)
        together = max(1, batch * min(most, study.train.token_budget or most) // most)
        asked = []
        for some in (patients[start : start + together] for start in patients[::together]):
            width = max(widths[i] for i in some)
            asked.append((some, [draw.stacked([draw.whole(i, position[i], study, width) for i in some])]))
        for _, (patients_batch,) in self.store.each(asked):
            yield patients_batch

    def _labels(self, patients: np.ndarray) -> Labels:
        index = sent(patients, self.device)
        return {name: column[index] for name, column in self.labels.items()}

    def _unmirrored(self, labels: Labels, drawn: Draw) -> Labels:
        """Labels of a draw; those that depend on laterality are missing for flipped patients."""
        sided = [name for name in labels if name in self.study.train.laterality_endpoints]
        if not sided:
            return labels
        mirrored = sent(drawn.mirrored[:, :1], self.device)  # the first token's: without mixup a patient is mirrored whole
        return labels | {name: labels[name].masked_fill(mirrored, torch.nan) for name in sided}

    def _mixing(self, turn: Turn, tokens: int) -> Mixing | None:
        alpha = self.study.train.mixup
        if not alpha:
            return None
        return draw.mixing((len(turn.patients), tokens), alpha, stream(self.seed, "mix", turn.number))


def training_draw(
    turn: Turn,
    ids: Sequence[str],
    position: Sequence[Int16[np.ndarray, " _"]],
    study: Study,
    seed: int,
    kept: Sequence[Bool[np.ndarray, " _"]] | None = None,
) -> Draw:
    """Each patient of a turn with as many tokens as `train.token_budget`, or as the one with the most; perhaps moved, mirrored,
    and changed in intensity. Of each patient the rows that are `kept` are drawn first.

    What is drawn of a patient depends on seed, epoch and patient alone, and on the lap where an epoch has several.
    """
    most = max(len(draw.shown(position[i], study)[0]) for i in turn.patients)
    budget = min(study.train.token_budget or most, study.grid.positions)
    parts = []
    for patient, lap in zip(turn.patients, turn.laps, strict=True):
        random = stream(seed, "batch", turn.epoch, lap, ids[patient])
        parts.append(
            draw.augmented(
                draw.drawn(patient, position[patient], study, budget, random, kept[patient] if kept else None), study, random
            )
        )
    return draw.stacked(parts)
