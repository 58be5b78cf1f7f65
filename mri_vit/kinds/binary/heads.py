"""Heads of a binary marker: one number, the log odds of 1 in classes that are weighted alike. Letters as in `model/heads.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.special import expit, logit
from torch import Tensor

from mri_vit.model.heads import Head, HeadKind, KnownLabels
from mri_vit.settings.schema import Endpoint

PROBABILITY_EPS = float(np.finfo(float).eps)  # to 0 and to 1 that a regression's probability is taken: its log odds stay finite


class BinaryHeads(HeadKind):
    """Logistic loss."""

    unit = "log odds"

    def fitted(self, endpoint: Endpoint, known: KnownLabels, survival: str, intervals: int, weighted: bool) -> Head | None:
        positive = int(known.sum())
        if positive in (0, len(known)):
            return None
        return Head(endpoint, "binary", positive_weight=(len(known) - positive) / positive if weighted else 1.0)

    def bias(self, head: Head, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
        """The weighted share of ones."""
        return torch.logit(known.mean(dim=0)) + math.log(head.positive_weight)

    def losses(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:
        weight, target = output.new_full((), head.positive_weight), labels[:, 0].to(output.dtype)
        return F.binary_cross_entropy_with_logits(output[:, 0], target, pos_weight=weight, reduction="none")

    def scores(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
        """The weight shifted the log odds by its logarithm; take that back, so that it is a probability."""
        return torch.sigmoid(output[:, 0] - math.log(head.positive_weight))[:, None]

    def evidence(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        return output[:, 0]

    def question(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        return torch.where(output[:, 0] < 0, -1.0, 1.0)

    def joint_evidence(self, heads: Sequence[Head], outputs: Sequence[Float[Tensor, "b m"]]) -> Float[np.ndarray, "b q"]:
        """The log odds of the networks' mean probability; of one network its own log odds, to the bit.

        With probabilities p = 1 / (1 + exp(-x)), the odds against are the mean of exp(-x) weighted by p, so that no p is rounded
        to 0 or 1.
        """
        each = [output[:, 0] - math.log(head.positive_weight) for head, output in zip(heads, outputs, strict=True)]
        evidence = torch.stack(each)
        log_weight = F.logsigmoid(evidence).log_softmax(dim=0)
        return -(log_weight - evidence).logsumexp(dim=0).double().numpy()[:, None]

    def from_scores(self, endpoint: Endpoint, scores: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b q"]:
        """Log odds."""
        return logit(scores.clip(PROBABILITY_EPS, 1 - PROBABILITY_EPS))

    def to_scores(self, endpoint: Endpoint, evidence: Float[np.ndarray, "b q"]) -> Float[np.ndarray, "b k"]:
        return expit(evidence)

    def explains(self, head: Head, question: float) -> str:
        return f"{head.endpoint.name} = {int(question > 0)}"


PART = BinaryHeads()
