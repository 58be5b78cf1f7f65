"""A hand-made network of volumes whose maps are known: what it weighs is linear in the voxels, and its last map is averaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from made.network import HEADS
from mri_vit.model import baselines
from mri_vit.model.baselines import Baseline
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import CHANNELS, Model
from mri_vit.settings.sections import Grid

FEATURES = 3
LINEAR = [HEADS[0], HEADS[2]]  # the log odds of mgmt, and Cox's risk of pfs: linear in the features


class Weighing(nn.Module):
    """Each voxel of each scan times a weight for each feature, as means over places: its map, whose mean is its features."""

    def __init__(self, channels: int, size: tuple[int, int, int], patch: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, channels, *size))
        self.patch, self.map = patch, nn.Identity()

    def forward(self, volume: Tensor) -> Tensor:
        return self.map(F.avg_pool3d(torch.einsum("bcxyz,fcxyz->bfxyz", volume, self.weight), self.patch)).mean(dim=(2, 3, 4))


def plant(patch: pytest.MonkeyPatch, architecture: str = "resnet10") -> None:
    """Networks of this architecture are hand-made from now on."""
    made: Callable[..., nn.Module] = lambda model, channels, size, edge: Weighing(channels, size, edge)  # noqa: E731
    patch.setitem(baselines.BASELINES, architecture, Baseline("hand-made", made, FEATURES, "map", 1, "nobody"))


def weighing(grid: Grid, heads: list[Head] | None = None, seed: int = 0) -> Network:
    """A planted network with heads whose weights are not zero."""
    torch.manual_seed(seed)
    net = Network(Model(architecture="resnet10", tokens="foreground"), grid, heads or LINEAR, CHANNELS).eval()
    for linear in net.head.values():
        torch.nn.init.normal_(linear.weight)  # type: ignore[arg-type]
    return net


def contributions(net: Network, patches: Tensor, position: Tensor, endpoint: str) -> Tensor:
    """What the voxels of each place of the box add to an endpoint's evidence [b i j k], from the weights alone."""
    box, module = net.encoder.box, net.encoder.net
    volume = net.encoder.volume(patches, position)
    (weight,) = net.get_parameter(f"head.{endpoint}.weight")
    each = torch.einsum("bcxyz,fcxyz,f->bxyz", volume, module.weight, weight)
    summed = F.avg_pool3d(each[:, None], box.grid.patch)[:, 0] * box.grid.patch**3
    return summed / each[0].numel()
