"""The finder's network in PyTorch, for its training; `mri_vit/prepare/finder_network.py` computes the same without it."""

from itertools import pairwise

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.prepare.finder import INPUTS
from mri_vit.prepare.finder_network import NORM_GROUPS

WIDTHS = (16, 32, 64, 96)  # channels at 4, 8, 16 and 32 mm; 0.95 million weights, 1.9 MB


class Block(nn.Module):
    """Two 3×3×3 convolutions, added to what went in."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(width_in, width, 3, padding=1), nn.Conv3d(width, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(NORM_GROUPS, width) for _ in range(2))
        self.skip = nn.Conv3d(width_in, width, 1) if width_in != width else nn.Identity()

    def forward(self, x: Float[Tensor, "b n x y z"]) -> Float[Tensor, "b o x y z"]:
        hidden = F.gelu(self.norms[0](self.first(x)))
        return self.skip(x) + F.gelu(self.norms[1](self.second(hidden)))


class FinderNetwork(nn.Module):
    """Inputs on voxels of 2 mm go in, log odds of tumour come out; within, voxels are of 4 mm, eight of 2 mm to one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv3d(8 * INPUTS, WIDTHS[0], 1)
        self.down = nn.ModuleList(Block(*widths) for widths in pairwise((WIDTHS[0], *WIDTHS)))
        self.across = nn.ModuleList(nn.Conv3d(wide, narrow, 1) for narrow, wide in pairwise(WIDTHS))
        self.up = nn.ModuleList(Block(width, width) for width in WIDTHS[:-1])
        self.out = nn.Conv3d(WIDTHS[0], 8, 1)

    def forward(self, scans: Float[Tensor, "b n x y z"]) -> Float[Tensor, "b x y z"]:
        x = self.stem(rearrange(scans, "b i (x u) (y v) (z w) -> b (i u v w) x y z", u=2, v=2, w=2))
        levels = []
        for depth, block in enumerate(self.down):
            x = block(F.avg_pool3d(x, 2) if depth else x)
            levels.append(x)
        for depth in reversed(range(len(self.up))):
            wide = F.interpolate(self.across[depth](x), scale_factor=2, mode="trilinear", align_corners=False)
            x = self.up[depth](levels[depth] + wide)
        return rearrange(self.out(x), "b (u v w) x y z -> b (x u) (y v) (z w)", u=2, v=2, w=2)
