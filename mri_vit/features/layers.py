"""Parts of transformers that others have trained: LayerScale, and rotary positions over three axes.

LayerScale: each number of a residual branch's output has a weight of its own (Touvron et al. 2021, arXiv:2103.17239). Rotary:
each pair of a query's numbers is turned by an angle that grows along one axis.

The dot product of a turned query and a turned key then depends on how far apart their places are, and on nothing else of
where they are (Su et al. 2021, arXiv:2104.09864). Axial: a third of the pairs belongs to each axis.

Letters: b volumes, h heads, n tokens, e numbers of a head, a = e/2 pairs, f = a/3 frequencies of an axis, s side, p = s³
places.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

HALVES = "b h n (two a)"  # pair i is numbers i and a + i: DINOv3's
NEIGHBOURS = "b h n (a two)"  # pair i is numbers 2i and 2i + 1: timm's, and so EVA's and Primus'


def indices(side: int) -> Float[Tensor, "p 3"]:
    """Each place's index along x, y, z, of which the last runs fastest."""
    along = torch.arange(float(side))
    return rearrange(torch.stack(torch.meshgrid(along, along, along, indexing="ij")), "three x y z -> (x y z) three")


def centred(side: int) -> Float[Tensor, "p 3"]:
    """Each place's middle in a cube from -1 to 1: DINOv3's coordinates, the same for a volume of any size."""
    return 2 * (indices(side) + 0.5) / side - 1


def angles(coordinates: Float[Tensor, "p 3"], rates: Float[Tensor, " f"], before: int) -> Float[Tensor, "n a"]:
    """By how much each pair of a token is turned, pairs ordered by axis, then frequency.

    `rates` are radians per unit of the coordinate. `before` tokens (CLS, registers) have no place: they come first, and an angle
    of 0 leaves them exactly as they are.
    """
    turned = rearrange(coordinates[:, :, None] * rates, "p three f -> p (three f)")
    return F.pad(turned, (0, 0, before, 0))


def turned(x: Float[Tensor, "b h n e"], angle: Float[Tensor, "n a"], pairs: str) -> Float[Tensor, "b h n e"]:
    """Queries or keys, each pair turned by its angle; `pairs` says which numbers make one."""
    first, second = rearrange(x, f"{pairs} -> two b h n a", two=2)
    cos, sin = angle.cos(), angle.sin()
    return rearrange(torch.stack([first * cos - second * sin, second * cos + first * sin]), f"two b h n a -> {pairs}")


class LayerScale(nn.Module):
    """A branch's output [b n d] times `gamma` [d]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma
