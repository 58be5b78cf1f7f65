"""Heads of classes: a number each, of which softmax makes probabilities. Letters as in `model/heads.py`."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.special import softmax
from torch import Tensor

from mri_vit.kinds.binary.heads import PROBABILITY_EPS
from mri_vit.model.heads import Head, HeadKind, KnownLabels, filled
from mri_vit.settings.schema import Endpoint


class MulticlassHeads(HeadKind):
    """Cross entropy of several classes, each as heavy as the others where `train.class_weights` says so."""

    unit = "log odds"

    def fitted(self, endpoint: Endpoint, known: KnownLabels, survival: str, intervals: int, weighted: bool) -> Head | None:
        """None with fewer than two classes; a class that no training patient has keeps a probability near 0."""
        count = _counts(endpoint, known)
        if (count > 0).sum() < 2:
            return None
        share = count / count.sum()
        weights = (
            torch.where(count > 0, 1 / (share.clamp_min(1e-9) * (count > 0).sum()), 1.0) if weighted else torch.ones_like(share)
        )
        weighted_share = share * weights / (share * weights).sum()
        constant = float(-(share * weights * weighted_share.clamp_min(1e-9).log()).sum())  # loss of the best constant
        return Head(endpoint, "softmax", class_weights=tuple(weights.tolist()), loss_weight=math.log(2) / constant)

    def width(self, head: Head) -> int:
        return len(head.class_weights)

    def bias(self, head: Head, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
        """The logarithms of the weighted shares, half a patient added to each class so that none is minus infinity."""
        count = _counts(head.endpoint, known)
        return ((count + 0.5) / (count.sum() + 0.5 * len(count))).log() + torch.tensor(head.class_weights).log()

    def losses(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:
        target = F.one_hot(labels[:, 0].long(), len(head.class_weights)).to(output.dtype)
        return -(target * filled(head.class_weights, output) * output.log_softmax(dim=1)).sum(dim=1)

    def scores(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
        """Weights shifted each number by their logarithm; take that back, so that these are probabilities."""
        return (output - filled(head.class_weights, output).log()).softmax(dim=1)

    def evidence(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        """The log odds of the class that is called against all others, before the classes' weights are taken back."""
        return self.target(head, output, self.question(head, output))

    def question(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        """The place of the class that is called: the most probable once the classes' weights are taken back."""
        return (output - filled(head.class_weights, output).log()).argmax(dim=1).to(output.dtype)

    def target(self, head: Head, output: Float[Tensor, "b m"], question: Float[Tensor, "q"]) -> Float[Tensor, "b"]:
        """The log odds of the class that `question` names, whatever else is predicted."""
        return log_odds(output).gather(1, question.long().expand(len(output))[:, None])[:, 0]

    def of_score(self, question: Float[Tensor, "q"]) -> Float[Tensor, "q"]:
        """The same: every class has a score."""
        return question

    def asked(self, head: Head) -> dict[str, float]:
        return {name: float(place) for place, name in enumerate(head.endpoint.classes or ())}

    def from_scores(self, endpoint: Endpoint, scores: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b q"]:
        """Logarithms of the ratios to the first class's probability."""
        logs = np.log(scores.clip(PROBABILITY_EPS))
        return logs[:, 1:] - logs[:, :1]

    def to_scores(self, endpoint: Endpoint, evidence: Float[np.ndarray, "b q"]) -> Float[np.ndarray, "b k"]:
        return softmax(np.column_stack([np.zeros(len(evidence)), evidence]), axis=1)

    def explains(self, head: Head, question: float) -> str:
        return f"{head.endpoint.name} = {(head.endpoint.classes or ())[int(question)]}"


def log_odds(output: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
    """Of each class against all others."""
    own = torch.eye(output.shape[1], dtype=torch.bool, device=output.device)
    return output - output[:, None].masked_fill(own, -torch.inf).logsumexp(dim=2)


def _counts(endpoint: Endpoint, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
    return torch.bincount(known[:, 0].long(), minlength=len(endpoint.classes or ())).float()


PART = MulticlassHeads()
