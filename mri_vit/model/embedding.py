"""From a patch's numbers to a token: one linear map as published, two with a GELU between, or a few strided convolutions.

All three read one patch at a time. A convolution that looked across a patch's border would see masked neighbours when pretraining
hides them, and would miss dropped ones when only some tokens are drawn; and it would have to read what is no foreground.

Letters: b patients, p tokens, k = c·e³ numbers in a patch of c channels and edge e, d width.
"""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn


def embedding(patch_size: int, dim: int, stem: int | None, conv_stem: int | None, channels: int) -> nn.Module:
    """[b p k] to [b p d]: linear, or with `stem` hidden numbers, or convolutions of which the first has `conv_stem` channels."""
    if conv_stem:
        return ConvolutionalStem(round((patch_size / channels) ** (1 / 3)), channels, conv_stem, dim)
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
        e = self.edge
        volumes = rearrange(patches, "b p (c x y z) -> (b p) c x y z", c=self.channels, x=e, y=e, z=e)
        return rearrange(self.layers(volumes), "(b p) d 1 1 1 -> b p d", b=len(patches))
