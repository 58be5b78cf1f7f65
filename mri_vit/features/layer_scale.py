"""LayerScale: each number of a residual branch's output has a weight of its own (Touvron et al. 2021, arXiv:2103.17239)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerScale(nn.Module):
    """A branch's output [b n d] times `gamma` [d]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma
