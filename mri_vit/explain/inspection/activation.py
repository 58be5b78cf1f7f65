"""Activation maximisation: an input that raises a number of a network as far as an input as strong as a scan can.

After Simonyan et al. 2014 (arXiv:1312.6034) and Olah et al. 2017 ("Feature Visualization", doi:10.23915/distill.00007), in three
dimensions: within a brain, as strong as a prepared scan at most (L2), smooth (total variation), and robust to small shifts.

Letters: c scans, e grid edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

STEPS = 64  # of gradient ascent, whose lengths sum to eight times the way from nothing to an input as strong as a scan
FIRST_STEP = 0.25  # of the largest strength; steps shrink to 0, so that the end is no accident of the last one
START = 0.01  # strength of the noise that it starts from: next to nothing, but no point of symmetry
SMOOTH = 0.01  # in the unit of voxels: below it a difference counts as its square, so that no gradient is infinite
Target = Callable[[Float[Tensor, "c e e e"]], Float[Tensor, ""]]


@dataclass(frozen=True)
class Regularisation:
    """What keeps an optimised input like a scan.

    `strength` is the largest root mean square over the brain's voxels and the scans, 1 for prepared scans, which are z-scored;
    `roughness` is what `roughness` of 1 costs in the target's unit; `jitter` is by how many voxels the input is shifted at most.
    """

    strength: float = 1.0
    roughness: float = 0.0
    jitter: int = 0


def maximise(
    target: Target,
    brain: Bool[Tensor, "e e e"],
    channels: int,
    regularisation: Regularisation,
    generator: torch.Generator,
    steps: int = STEPS,
) -> Float[Tensor, "c e e e"]:
    """The volume that gradient ascent ends with: it maximises target(x) - roughness · TV(x) where x is as strong as allowed.

    The bound is L2 regularisation: a volume that maximises target(x) on it maximises target(x) - λ‖x‖² for some λ. Of a linear
    target w·x without other regularisation it is w/2λ, with λ such that this is as strong as allowed.

    Parameters
    ----------
    target : from float [c e e e] to a number, differentiable.
    brain : voxels that may differ from 0; at least one.
    channels : c.
    regularisation
    generator : on the CPU; its state alone sets the start and the shifts.
    steps

    Returns
    -------
    float [c e e e], 0 outside the brain; as noise at the start where the target is flat.
    """
    x = torch.randn(channels, *brain.shape, generator=generator).to(brain.device) * brain
    x *= START * regularisation.strength / strength(x, brain)
    for step in range(steps):
        shifts = torch.randint(-regularisation.jitter, regularisation.jitter + 1, (3,), generator=generator).tolist()
        x.requires_grad_()
        reached = target(torch.roll(x, shifts, (1, 2, 3)) * brain)
        if regularisation.roughness:
            reached = reached - regularisation.roughness * roughness(x, brain)
        (slope,) = torch.autograd.grad(reached, x)
        steepness = strength(slope, brain)
        with torch.no_grad():
            if steepness > 0:
                x = x + FIRST_STEP * (1 - step / steps) * regularisation.strength * slope / steepness
            x = x * (regularisation.strength / strength(x, brain)).clamp(max=1)
    return x.detach() * brain


def strength(volume: Float[Tensor, "c e e e"], brain: Bool[Tensor, "e e e"]) -> Float[Tensor, ""]:
    """The root mean square over the scans and the brain's voxels."""
    return volume[:, brain].square().mean().sqrt()


def roughness(volume: Float[Tensor, "c e e e"], brain: Bool[Tensor, "e e e"]) -> Float[Tensor, ""]:
    """Total variation: the mean over scans and the brain's voxels of the differences' length from a voxel to its next neighbours.

    Only neighbours within the brain count, so that the brain's border costs nothing. Rudin et al. 1992,
    doi:10.1016/0167-2789(92)90242-F; for images of a network's features Mahendran & Vedaldi 2015, arXiv:1412.0035.
    """
    squares = torch.zeros_like(volume)
    for axis in range(3):
        both = brain.narrow(axis, 1, brain.shape[axis] - 1) & brain.narrow(axis, 0, brain.shape[axis] - 1)
        after = [0, 0] * (2 - axis) + [0, 1]  # zeros behind the last voxel along this axis; F.pad counts from the last axis
        squares = squares + F.pad((volume.diff(dim=1 + axis) * both).square(), after)
    return ((squares + SMOOTH**2).sqrt() - SMOOTH)[:, brain].mean()
