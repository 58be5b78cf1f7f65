"""Heads of grades: cumulative logits, which fall from grade to grade by construction. Letters as in `model/heads.py`.

The first number is the log odds of more than the lowest grade; each further one makes the step down to the next cut, of which
softplus keeps the sign. So probabilities of grades are never negative, as in Cao et al. 2020 (doi:10.1016/j.patrec.2020.11.008);
unlike theirs, steps may differ between patients, because a head is one linear map.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.special import expit, logit
from torch import Tensor

from mri_vit.kinds.binary.heads import PROBABILITY_EPS
from mri_vit.model.heads import Head, HeadKind, KnownLabels
from mri_vit.settings.schema import Endpoint

SMALLEST_STEP = 1e-3  # between the log odds of two cuts at the start, where a grade is missing in the training fold


class OrdinalHeads(HeadKind):
    """The sum of the logistic losses of "more than this grade", over all cuts."""

    unit = "expected grade"

    def fitted(self, endpoint: Endpoint, known: KnownLabels, survival: str, intervals: int, weighted: bool) -> Head | None:
        """None with fewer than two grades."""
        above = _above(endpoint, known)
        share = above.double().mean(dim=0).clamp(1e-9, 1 - 1e-9)  # in single precision the upper end would be 1
        constant = float(-(share * share.log() + (1 - share) * (1 - share).log()).sum())  # loss of the best constant
        if known[:, 0].unique().numel() < 2:
            return None
        return Head(endpoint, "cumulative", loss_weight=math.log(2) / constant)

    def width(self, head: Head) -> int:
        return len(head.endpoint.classes or ()) - 1

    def bias(self, head: Head, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
        """The log odds of each cut, half a patient on either side."""
        above = _above(head.endpoint, known)
        cuts = torch.logit((above.sum(dim=0) + 0.5) / (len(above) + 1))
        steps = (cuts[:-1] - cuts[1:]).clamp_min(SMALLEST_STEP)
        return torch.cat([cuts[:1], steps + torch.log(-torch.expm1(-steps))])  # the inverse of softplus

    def losses(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:
        above = _above(head.endpoint, labels).to(output.dtype)
        return F.binary_cross_entropy_with_logits(cut_log_odds(output), above, reduction="none").sum(dim=1)

    def scores(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
        above = F.pad(cut_log_odds(output).sigmoid(), (1, 0), value=1.0)
        return above - F.pad(above[:, 1:], (0, 1))

    def evidence(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        """The expected grade, counted from 0."""
        return cut_log_odds(output).sigmoid().sum(dim=1)

    def from_scores(self, endpoint: Endpoint, scores: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b q"]:
        """The log odds of more than each grade but the highest."""
        above = scores[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        return logit(above.clip(PROBABILITY_EPS, 1 - PROBABILITY_EPS))

    def to_scores(self, endpoint: Endpoint, evidence: Float[np.ndarray, "b q"]) -> Float[np.ndarray, "b k"]:
        """Of a mean of two models' log odds, which fall from grade to grade as theirs do."""
        ends = np.ones((len(evidence), 1)), expit(evidence), np.zeros((len(evidence), 1))
        return -np.diff(np.minimum.accumulate(np.column_stack(ends), axis=1), axis=1)

    def explains(self, head: Head, question: float) -> str:
        return f"higher grade ({head.endpoint.name})"


def cut_log_odds(output: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
    """The log odds of more than each grade but the highest."""
    return torch.cat([output[:, :1], output[:, :1] - F.softplus(output[:, 1:]).cumsum(dim=1)], dim=1)


def _above(endpoint: Endpoint, labels: Float[Tensor, "b c"]) -> Float[Tensor, "b m"]:
    """1 where the grade is higher than that of a cut."""
    cuts = torch.arange(len(endpoint.classes or ()) - 1, device=labels.device)
    return (labels[:, :1] > cuts).float()


PART = OrdinalHeads()
