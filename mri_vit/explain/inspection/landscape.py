"""The loss on a plane through a network's weights: filter-normalised random directions, and the loss at each point.

After Li et al. 2018, "Visualizing the Loss Landscape of Neural Nets", arXiv:1712.09913, section 4.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

Direction = dict[str, Tensor]  # by the names of the weights that are moved
Loss = Callable[[nn.Module], float]


def random_direction(net: nn.Module, generator: torch.Generator) -> Direction:
    """A random direction whose filters are as long as the network's own.

    Definition: Gaussian numbers, of which each filter's are scaled to the length of the network's filter.
    Formula: d_ij ← d_ij / ‖d_ij‖ · ‖θ_ij‖ for filter j of layer i. A filter is the weights of one output: a row of a matrix, a
    kernel over all channels of a convolution; of a table of vectors (positions, CLS) it is one vector.
    Assumption: biases and the weights of normalisations, which have one axis, stay where they are, as in the authors' code
    (net_plotter.py, "biasbn"); so do batch normalisation's running statistics, which are no weights.
    Source: Li et al. 2018, arXiv:1712.09913, equation 1.

    Parameters
    ----------
    net : is left as it was.
    generator : on the CPU.
    """
    found = {}
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            drawn = torch.randn(weight.shape, generator=generator).to(weight)
            found[name] = drawn * (lengths(weight.detach()) / lengths(drawn))
    return found


def lengths(weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The length of each filter of a weight with two axes or more, to be multiplied with it."""
    axes = (-1,) if weight.dim() == 3 else tuple(range(1, weight.dim()))  # a table of vectors is stored as [1 places width]
    return weight.square().sum(dim=axes, keepdim=True).sqrt()


def surface(
    net: nn.Module, across: Direction, up: Direction, losses: Mapping[str, Loss], steps: Sequence[float]
) -> dict[str, Float[np.ndarray, "s s"]]:
    """Each loss at weights + a · across + b · up, as [b a], for all a and b of `steps`.

    The losses are given a copy that is moved; the network is left as it was, bit for bit.
    """
    moved, weights = copy.deepcopy(net), dict(net.named_parameters())
    found = {name: np.empty((len(steps), len(steps))) for name in losses}
    for row, b in enumerate(steps):
        for column, a in enumerate(steps):
            with torch.no_grad():
                for name, weight in moved.named_parameters():
                    if name in across:
                        weight.copy_(weights[name] + a * across[name] + b * up[name])
            for name, loss in losses.items():
                found[name][row, column] = loss(moved)
    return found
