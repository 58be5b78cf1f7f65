"""Networks of dense volumes behind the encoder's interface: patches and their places in, features out.

So the one training loop serves every comparator. The patches are laid out on the grid, and the same box of it is read in every
patient: what lies outside it is air, on which a convolution would spend a fourth of its time.

Letters: b patients, p tokens of each, k numbers in a patch, c channels that are read, x y z voxels of the box, d width,
f channels of a trunk's map, n its voxels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mri_vit.model.baselines import BASELINES, HYBRIDS
from mri_vit.model.encoder import Encoder
from mri_vit.settings.recipe import Model
from mri_vit.settings.sections import GRID_CENTRE_MM, Grid

BRAIN_MM = ((-72.0, 72.0), (-107.0, 73.0), (-72.0, 82.0))  # the MNI152 brain's box, see GRID_CENTRE_MM in settings/grid.py
MARGIN_MM = 16.0  # alignment is rigid, so a head keeps its size: room for one a fifth longer than the template's


class VolumeEncoder(nn.Module):
    """A comparator's network, of `baselines.BASELINES`; `dim` is the width of its features.

    Raises ValueError when the network cannot read a volume as small as the grid's box.
    """

    def __init__(self, model: Model, grid: Grid, channels: tuple[str, ...]) -> None:
        super().__init__()
        baseline = BASELINES[model.architecture]
        self.box = Box.of_head(grid, model.channels, channels)
        if min(self.box.size) < baseline.smallest:
            size = " × ".join(map(str, self.box.size))
            raise ValueError(
                f"{baseline.label} needs {baseline.smallest} voxels along each axis; on a grid of {grid.edge}³ voxels of"
                f" {grid.spacing_mm:g} mm it would get {size}"
            )
        self.dim = baseline.width or model.shape[0]
        self.net = baseline.build(model, len(model.channels), self.box.size, grid.patch)

    def volume(self, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> Float[Tensor, "b c x y z"]:
        """What the network reads."""
        return laid_out(patches, place, self.box)

    def forward(
        self, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> Float[Tensor, "b d"]:
        """The features. What is not `present` lies at no place, and so in no volume."""
        volume = self.volume(patches, place)
        return self.net(
            volume.contiguous(memory_format=torch.channels_last_3d)
        )  # a fifth to a third faster (ResNet-10, AMD EPYC)


class HybridEncoder(nn.Module):
    """A convolutional trunk, of `baselines.HYBRIDS`, whose map's voxels are the tokens of the study's Vision Transformer.

    The encoder's linear embedding is the 1×1 convolution from the map's channels to the width (Dosovitskiy et al. 2021,
    section 3.1); its places are the map's voxels, place = (x·Y + y)·Z + z for a map of X × Y × Z, which is `map_size`.
    """

    def __init__(self, model: Model, grid: Grid, channels: tuple[str, ...]) -> None:
        super().__init__()
        hybrid, read = HYBRIDS[model.architecture], len(model.channels)
        self.box = Box.of_head(grid, model.channels, channels)
        with torch.device("meta"):  # the map's size, found without computing the map
            probe = hybrid.trunk(read).eval()(torch.empty(1, read, *self.box.size))
        self.map_size = tuple(probe.shape[2:])
        self.trunk = hybrid.trunk(read)
        self.dim, depth, heads, mlp = model.shape
        places = math.prod(self.map_size)
        how = {"drop_path": model.drop_path, "pool": model.pool, "channels": hybrid.width}  # a patch is one voxel of the map
        self.encoder = Encoder(hybrid.width, places, self.dim, depth, heads, mlp, **how)

    def volume(self, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> Float[Tensor, "b c x y z"]:
        """What the trunk reads."""
        return laid_out(patches, place, self.box)

    def tokens(
        self, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]
    ) -> tuple[Float[Tensor, "b n f"], Int[Tensor, "b n"]]:
        """What the Vision Transformer reads: the map's voxels and their places."""
        voxels = rearrange(self.trunk(self.volume(patches, place)), "b f x y z -> b (x y z) f")
        return voxels, torch.arange(voxels.shape[1], device=voxels.device).expand(len(voxels), -1)

    def forward(
        self, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> Float[Tensor, "b d"]:
        """The features. What is not `present` lies at no place, and so in no volume."""
        return self.encoder(*self.tokens(patches, place))


@dataclass(frozen=True)
class Box:
    """A box of the grid's places, and the `channels` that are read in it of those that are `stored`.

    `start` and `end` (exclusive) are along i, j, k.
    """

    grid: Grid
    channels: tuple[str, ...]
    stored: tuple[str, ...]
    start: tuple[int, int, int]
    end: tuple[int, int, int]

    @classmethod
    def of_head(cls, grid: Grid, channels: tuple[str, ...], stored: tuple[str, ...]) -> Box:
        """The box that holds any brain aligned to the MNI152 frame: the template's and a margin, in whole places of the grid."""
        place_mm = grid.patch * grid.spacing_mm
        start, end = [], []
        for centre, (low, high) in zip(GRID_CENTRE_MM, BRAIN_MM, strict=True):
            outer = centre - grid.side * place_mm / 2  # the outer face of the first place
            start.append(max(0, math.floor((low - MARGIN_MM - outer) / place_mm)))
            end.append(min(grid.side, math.ceil((high + MARGIN_MM - outer) / place_mm)))
        return cls(grid, channels, stored, (start[0], start[1], start[2]), (end[0], end[1], end[2]))

    @property
    def sides(self) -> tuple[int, int, int]:
        """Places along i, j, k."""
        (i, j, k), (i_end, j_end, k_end) = self.start, self.end
        return i_end - i, j_end - j, k_end - k

    @property
    def size(self) -> tuple[int, int, int]:
        """Voxels along x, y, z."""
        i, j, k = self.sides
        return i * self.grid.patch, j * self.grid.patch, k * self.grid.patch

    def slot(self, place: Int[Tensor, "b p"]) -> Int[Tensor, "b p"]:
        """A place of the grid counted within the box as places are in the grid; one past the last for all that lie outside."""
        side, (i, j, k), (rows, columns, layers) = self.grid.side, self.start, self.sides
        i, j, k = place // side**2 - i, place // side % side - j, place % side - k
        inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns) & (k >= 0) & (k < layers)
        return torch.where(inside, (i * columns + j) * layers + k, rows * columns * layers)


def laid_out(patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], box: Box) -> Float[Tensor, "b c x y z"]:
    """The box's volume: each patch at its place, zero elsewhere; patches outside the box are left out.

    Equal to the box of `tokens.to_volume`, number by number.
    """
    chosen = [box.stored.index(channel) for channel in box.channels]
    (i, j, k), patch = box.sides, box.grid.patch
    flat = rearrange(rearrange(patches, "b p (c v) -> b p c v", c=len(box.stored))[:, :, chosen], "b p c v -> b p (c v)")
    slots = flat.new_zeros(len(flat), i * j * k + 1, flat.shape[2])  # the last takes what lies outside
    slots = slots.scatter(1, box.slot(place)[:, :, None].expand_as(flat), flat)[:, :-1]
    volume = rearrange(slots, "b (i j k) (c x y z) -> b c (i x) (j y) (k z)", i=i, j=j, k=k, x=patch, y=patch, z=patch)
    return volume.to(torch.promote_types(volume.dtype, torch.float32))  # patches may be stored in half precision
