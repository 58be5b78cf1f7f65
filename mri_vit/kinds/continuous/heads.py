"""Heads of a number: the number in robust standard deviations from the training fold's median. Letters as in `model/heads.py`."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mri_vit.model.heads import Head, HeadKind, KnownLabels
from mri_vit.settings.schema import Endpoint

QUARTILES_APART = 1.349  # standard deviations of a normal distribution
# Huber 1964, doi:10.1214/aoms/1177703732: squares up to here and linear beyond has 95 % of the squares' efficiency where errors
# are normal, and an outlier's pull ends.
LINEAR_FROM = 1.345


class ContinuousHeads(HeadKind):
    """Huber's loss of a number, or with `log` of its logarithm."""

    unit = "number"

    def fitted(self, endpoint: Endpoint, known: KnownLabels, survival: str, intervals: int, weighted: bool) -> Head | None:
        """None where all values are equal."""
        value = _scale(endpoint, known[:, 0].double())
        if value.unique().numel() < 2:
            return None
        low, centre, high = torch.quantile(value, value.new_tensor([0.25, 0.5, 0.75])).tolist()
        spread = (high - low) / QUARTILES_APART or float(value.std())  # where most values are equal
        constant = float(F.huber_loss((value - centre) / spread, torch.zeros_like(value), delta=LINEAR_FROM))
        return Head(endpoint, "number", centre=centre, spread=spread, loss_weight=math.log(2) / constant)

    def bias(self, head: Head, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
        """The median."""
        return torch.zeros(1)

    def losses(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:
        value = labels[:, 0].to(output.dtype)
        value = value.clamp_min(torch.finfo(value.dtype).tiny) if head.endpoint.log else value  # of who is masked, log 0
        target = (_scale(head.endpoint, value) - head.centre) / head.spread
        return F.huber_loss(output[:, 0], target, reduction="none", delta=LINEAR_FROM)

    def scores(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
        value = output[:, :1] * head.spread + head.centre
        return value.exp() if head.endpoint.log else value

    def evidence(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        """The number, or its logarithm where that is learned."""
        return output[:, 0] * head.spread + head.centre

    def from_scores(self, endpoint: Endpoint, scores: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b q"]:
        return np.log(scores) if endpoint.log else scores

    def to_scores(self, endpoint: Endpoint, evidence: Float[np.ndarray, "b q"]) -> Float[np.ndarray, "b k"]:
        return np.exp(evidence) if endpoint.log else evidence

    def explains(self, head: Head, question: float) -> str:
        return f"higher {head.endpoint.name}"


def _scale(endpoint: Endpoint, value: Float[Tensor, "b"]) -> Float[Tensor, "b"]:
    return value.log() if endpoint.log else value


PART = ContinuousHeads()
