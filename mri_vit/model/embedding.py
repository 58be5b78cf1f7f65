"""From a patch's numbers to a token: one linear map as published, two with a GELU between, or a few strided convolutions, to
which the energy of filters over the patch may be added.

All read one patch at a time. A convolution that looked across a patch's border would see masked neighbours when pretraining hides
them, and would miss dropped ones when only some tokens are drawn; and it would have to read what is no foreground.

Letters: b patients, p tokens, k = c·e³ numbers in a patch of c channels and edge e, d width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

FLAT = 1e-2  # added to a patch's variance: of voxels in standard deviations of the brain, a tenth of one is taken for noise
FAINT = 1e-3  # added to an energy before its logarithm: a response of 3 % of such a standard deviation


def embedding(patch_size: int, dim: int, stem: int | None, conv_stem: int | None, channels: int, texture: int = 0) -> nn.Module:
    """[b p k] to [b p d]: linear, or with `stem` hidden numbers, or convolutions of which the first has `conv_stem` channels, and
    beside them the energy of as many filters as `texture` says.
    """
    edge = round((patch_size / channels) ** (1 / 3))
    if texture:
        return TexturedStem(edge, channels, conv_stem or 1, texture, dim)
    if conv_stem:
        return ConvolutionalStem(edge, channels, conv_stem, dim)
    if stem:
        return nn.Sequential(nn.Linear(patch_size, stem), nn.GELU(), nn.Linear(stem, dim))
    return nn.Linear(patch_size, dim)


class ConvolutionalStem(nn.Module):
    """Strided 3D convolutions within each patch (Xiao et al. 2021, arXiv:2106.14881, in 3D and patch by patch).

    Each 3³ convolution halves the edge and doubles the channels until 2 voxels are left, which the last one makes a token.
    The same weights serve every voxel of every patch, which a linear map has to learn for each voxel apart.
    """

    def __init__(self, edge: int, channels: int, width: int, dim: int) -> None:
        super().__init__()
        self.edge, self.channels = edge, channels
        layers: list[nn.Module] = []
        while edge > 2:
            layers += [nn.Conv3d(channels, width, 3, stride=2, padding=1), nn.GELU()]
            channels, width, edge = width, 2 * width, (edge + 1) // 2
        self.layers = nn.Sequential(*layers, nn.Conv3d(channels, dim, edge))

    def forward(self, patches: Float[Tensor, "b p k"]) -> Float[Tensor, "b p d"]:
        return rearrange(self.layers(cubes(patches, self.channels, self.edge)), "(b p) d 1 1 1 -> b p d", b=len(patches))


class TexturedStem(nn.Module):
    """A convolutional stem, and a linear map of the logarithm of each filter's energy over the patch, added up.

    A filter's energy is its response's mean square over the patch (Laws 1980, "Rapid texture identification", there with fixed
    filters; here they are learned). Every filter's weights have a mean of 0 in each channel, so that brightness gives no energy.
    Both parts read each sequence twice: as it is, and less its mean, over its standard deviation within the patch, so that a
    grain's form does not hang on its contrast.
    """

    def __init__(self, edge: int, channels: int, width: int, filters: int, dim: int) -> None:
        super().__init__()
        self.edge, self.channels = edge, channels
        self.stem = ConvolutionalStem(edge, 2 * channels, width, dim)
        self.filters = nn.Conv3d(2 * channels, filters, min(3, edge), bias=False)
        self.energy = nn.Linear(filters, dim)

    def forward(self, patches: Float[Tensor, "b p k"]) -> Float[Tensor, "b p d"]:
        voxels = cubes(patches, self.channels, self.edge)
        apart = voxels - voxels.mean(dim=(2, 3, 4), keepdim=True)
        variance = apart.square().sum(dim=(2, 3, 4), keepdim=True) / (self.edge**3 - 1)
        even = apart * (variance + FLAT).rsqrt()
        both = torch.cat([voxels, even], dim=1)
        weight = self.filters.weight - self.filters.weight.mean(dim=(2, 3, 4), keepdim=True)
        energy = (F.conv3d(both, weight).square().mean(dim=(2, 3, 4)) + FAINT).log()
        tokens = self.stem.layers(both).flatten(1) + self.energy(energy)
        return rearrange(tokens, "(b p) d -> b p d", b=len(patches))


def cubes(patches: Float[Tensor, "b p k"], channels: int, edge: int) -> Float[Tensor, "n c x y z"]:
    """The patches of all patients as volumes, n = b·p, with channels last in memory: on a CPU seven to eight tenths of the
    time (`pipelines/bench.py --part stems`).
    """
    volumes = rearrange(patches, "b p (c x y z) -> (b p) c x y z", c=channels, x=edge, y=edge, z=edge)
    return volumes.contiguous(memory_format=torch.channels_last_3d)
