"""Baselines: published 3D networks, all of them MONAI's, from a dense volume to features, behind the encoder's interface
(patches and their grid positions go in).

A builder gives a module without its classifier; the study's own heads read the features, as they read the Vision Transformer's.
Every network is the published one with its kernels made cubes, and starts from random weights. The patches are laid out on the
grid, and the same box of it is read in every patient: what lies outside it is air, on which a convolution would spend a fourth
of its time.

Letters: b patients, p tokens of each, k numbers in a patch, c channels that are read, x y z voxels of the box, d width,
f channels of a trunk's map, n its voxels, or tokens.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mri_vit.model.encoder import Encoder
from mri_vit.settings.recipe import Model
from mri_vit.settings.sections import GRID_CENTRE_MM, Grid

Size = tuple[int, int, int]  # voxels along x, y, z
Build = Callable[[Model, int, Size, int], nn.Module]  # the recipe, channels of the volume, its size, edge of a patch
# MONAI is imported inside the builders: its import takes 8 s
HE = "He et al. 2016, arXiv:1512.03385"
CHEN = "Chen et al. 2019, arXiv:1904.00625"
HUANG = "Huang et al. 2017, arXiv:1608.06993"
TAN = "Tan & Le 2019, arXiv:1905.11946"
DOSOVITSKIY = "Dosovitskiy et al. 2021, arXiv:2010.11929"
HATAMIZADEH = "Hatamizadeh et al. 2022, arXiv:2201.01266"
HU = "Hu et al. 2018, arXiv:1709.01507"
BRAIN_MM = ((-72.0, 72.0), (-107.0, 73.0), (-72.0, 82.0))  # the MNI152 brain's box, see GRID_CENTRE_MM in settings/sections.py
MARGIN_MM = 16.0  # alignment is rigid, so a head keeps its size: room for one a fifth longer than the template's


@dataclass(frozen=True)
class Baseline:
    """A network of others.

    `label` is its name for people; `build` gives a module from float [b c x y z] to features [b d]; `width` is d, or None where
    the recipe's `dim` sets it; `layer` names the module that puts out the last map of a convolutional network, and `averaged`
    says whether its mean over voxels is the features, which Grad-CAM needs; `smallest` is the fewest voxels along an axis that it
    can read.
    """

    label: str
    build: Build
    width: int | None
    layer: str | None
    smallest: int
    source: str
    averaged: bool = True


@dataclass(frozen=True)
class Hybrid:
    """A convolutional trunk whose map's voxels are a Vision Transformer's tokens (Dosovitskiy et al. 2021, section 3.1).

    `trunk` gives, for a number of channels of the volume, a module from float [b c x y z] to a map of `width` channels;
    `stride` is how many voxels of the volume lie between two of the map's; `layer` names the module that puts the map out.
    """

    label: str
    trunk: Callable[[int], nn.Module]
    width: int
    stride: int
    layer: str
    source: str


class ClassToken(nn.Module):
    """Of what MONAI's ViT puts out, the normalised class token."""

    def __init__(self, vit: nn.Module) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, volume: Float[Tensor, "b c x y z"]) -> Float[Tensor, "b d"]:
        return self.vit(volume)[0]


class MeanOfLastStage(nn.Module):
    """Of what MONAI's Swin Transformer puts out, the mean of the last stage's normalised tokens, as Liu et al. 2021 classify."""

    def __init__(self, swin: nn.Module) -> None:
        super().__init__()
        self.swin = swin

    def forward(self, volume: Float[Tensor, "b c x y z"]) -> Float[Tensor, "b d"]:
        return self.swin(volume)[-1].mean(dim=(2, 3, 4))


def _resnet(depth: int, channels: int, widen: float = 1.0) -> Any:
    """As in He et al. 2016: the first convolution has stride 2 (MONAI's default is 1), projections (option B) have no bias."""
    from monai.networks.nets import resnet

    made = {10: resnet.resnet10, 18: resnet.resnet18, 34: resnet.resnet34}[depth]
    return made(
        spatial_dims=3, n_input_channels=channels, conv1_t_stride=2, bias_downsample=False, feed_forward=False, widen_factor=widen
    )


def _resnet10_dilated(channels: int) -> Any:
    """Med3D's ResNet-10: the last two stages dilate by 2 and 4 and have stride 1, so that its map has a voxel for each 8³, where
    it has one for 32³ without. A quarter of its channels, 16 to 128, for a few hundred patients on a processor.
    """
    net = _resnet(10, channels, widen=0.25)
    for stage, dilation in ((net.layer3, 2), (net.layer4, 4)):
        for convolution in (module for module in stage.modules() if isinstance(module, nn.Conv3d)):
            convolution.stride = (1, 1, 1)
            if convolution.kernel_size != (1, 1, 1):  # those are projections
                convolution.dilation = convolution.padding = (dilation,) * 3
    return net


def _max_pooled(net: Any) -> nn.Module:
    """A ResNet whose features are each channel's largest value over the last map, so that one position of many counts."""
    net.avgpool = nn.AdaptiveMaxPool3d(1)
    return net


def _densenet(depth: int, channels: int) -> nn.Module:
    from monai.networks.nets import densenet

    made = {121: densenet.DenseNet121, 169: densenet.DenseNet169, 201: densenet.DenseNet201}[depth]
    net = made(spatial_dims=3, in_channels=channels, out_channels=1)
    cast(Any, net).class_layers.out = nn.Identity()
    return net


def _efficientnet(size: str, channels: int) -> nn.Module:
    """Convolutions are padded alike on all sides: MONAI's own padding is worked out for a cube of 224³ or so, and cuts off the
    border of maps of another size. The map that is averaged, which no module of MONAI's puts out, goes through one of that name.
    """
    from monai.networks.nets.efficientnet import EfficientNetBN

    net = EfficientNetBN(f"efficientnet-{size}", pretrained=False, spatial_dims=3, in_channels=channels, num_classes=1)
    cast(Any, net)._fc = nn.Identity()
    net._avg_pooling = cast(Any, nn.Sequential(OrderedDict(map=nn.Identity(), mean=net._avg_pooling)))
    for module in net.modules():
        if isinstance(module, nn.Conv3d):
            module.padding = tuple(edge // 2 for edge in module.kernel_size)
        if isinstance(module, nn.ConstantPad3d):
            module.padding = (0, 0, 0, 0, 0, 0)
    return net


def _seresnext50(channels: int) -> nn.Module:
    from monai.networks.nets.senet import SEResNext50

    net = SEResNext50(spatial_dims=3, in_channels=channels, num_classes=1)
    net.last_linear = cast(Any, nn.Identity())
    return net


def _monai_vit(model: Model, channels: int, size: Size, patch: int) -> nn.Module:
    """The study's width, depth, heads and MLP; it sees every position of the box, empty or not."""
    from monai.networks.nets.vit import ViT

    dim, depth, heads, mlp = model.shape
    vit = ViT(channels, size, patch, dim, mlp, depth, heads, classification=True, num_classes=1, post_activation="none")
    vit.classification_head = cast(Any, nn.Identity())
    for block in vit.blocks:
        cast(Any, block).norm_cross_attn = nn.Identity()  # it has no cross-attention, and would count weights that nothing reads
    return ClassToken(vit)


def _swin_vit(model: Model, channels: int, size: Size, patch: int) -> nn.Module:
    """The encoder of Swin UNETR with that paper's settings: patches of 2³, windows of 7³, two blocks in each of four stages."""
    from monai.networks.nets.swin_unetr import SwinTransformer

    with torch.device("cpu"):  # it reads numbers off a tensor while it is built, which a tensor without memory cannot give
        swin = SwinTransformer(
            in_chans=channels,
            embed_dim=48,
            window_size=(7, 7, 7),
            patch_size=(2, 2, 2),
            depths=(2, 2, 2, 2),
            num_heads=(3, 6, 12, 24),
            drop_path_rate=model.drop_path,
        )
    return MeanOfLastStage(swin)


def _fixed(build: Callable[[int], nn.Module]) -> Build:
    """A builder for a network that the recipe and the volume's size have no say in."""
    return lambda model, channels, size, patch: build(channels)


def _first_modules(net: Any, names: str) -> nn.Module:
    """A network's first modules, under their own names."""
    return nn.Sequential(OrderedDict((name, getattr(net, name)) for name in names.split()))


BASELINES: dict[str, Baseline] = {
    "resnet10": Baseline("3D ResNet-10", _fixed(partial(_resnet, 10)), 512, "layer4", 1, HE),
    "resnet10_max": Baseline(
        "3D ResNet-10 read by its maximum", _fixed(lambda c: _max_pooled(_resnet(10, c))), 512, "layer4", 1, HE, averaged=False
    ),
    "resnet10_dilated": Baseline("3D dilated ResNet-10", _fixed(_resnet10_dilated), 128, "layer4", 1, CHEN),
    "resnet10_dilated_max": Baseline(
        "3D dilated ResNet-10 read by its maximum",
        _fixed(lambda c: _max_pooled(_resnet10_dilated(c))),
        128,
        "layer4",
        1,
        CHEN,
        averaged=False,
    ),
    "resnet18": Baseline("3D ResNet-18", _fixed(partial(_resnet, 18)), 512, "layer4", 1, HE),
    "resnet34": Baseline("3D ResNet-34", _fixed(partial(_resnet, 34)), 512, "layer4", 1, HE),
    "densenet121": Baseline("3D DenseNet-121", _fixed(partial(_densenet, 121)), 1024, "class_layers.relu", 29, HUANG),
    "densenet169": Baseline("3D DenseNet-169", _fixed(partial(_densenet, 169)), 1664, "class_layers.relu", 29, HUANG),
    "densenet201": Baseline("3D DenseNet-201", _fixed(partial(_densenet, 201)), 1920, "class_layers.relu", 29, HUANG),
    "efficientnet_b0": Baseline("3D EfficientNet-b0", _fixed(partial(_efficientnet, "b0")), 1280, "_avg_pooling.map", 1, TAN),
    "efficientnet_b1": Baseline("3D EfficientNet-b1", _fixed(partial(_efficientnet, "b1")), 1280, "_avg_pooling.map", 1, TAN),
    "efficientnet_b3": Baseline("3D EfficientNet-b3", _fixed(partial(_efficientnet, "b3")), 1536, "_avg_pooling.map", 1, TAN),
    "monai_vit": Baseline("MONAI's ViT", _monai_vit, None, None, 1, DOSOVITSKIY),
    "swin_vit": Baseline("SwinViT", _swin_vit, 768, None, 1, HATAMIZADEH),
    "seresnext50": Baseline("3D SE-ResNeXt-50", _fixed(_seresnext50), 2048, "layer4", 3, HU),
}

HYBRIDS: dict[str, Hybrid] = {
    "hybrid": Hybrid(
        "Hybrid of SE-ResNeXt-50 and ViT",
        lambda c: _first_modules(_seresnext50(c), "layer0 layer1 layer2 layer3"),
        *(1024, 16, "layer3", f"{DOSOVITSKIY}; {HU}"),
    ),
    "hybrid_resnet10": Hybrid(
        "Hybrid of ResNet-10 and ViT",
        lambda c: _first_modules(_resnet(10, c), "conv1 bn1 act maxpool layer1 layer2"),
        *(128, 8, "layer2", f"{DOSOVITSKIY}; {HE}"),
    ),
}


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

    def volume(self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b c x y z"]:
        """What the network reads."""
        return laid_out(patches, position, self.box)

    def forward(
        self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> Float[Tensor, "b d"]:
        """The features. What is not `present` lies at no grid position, and so in no volume."""
        volume = self.volume(patches, position)
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
        positions = math.prod(self.map_size)
        how = {"drop_path": model.drop_path, "pool": model.pool, "channels": hybrid.width}  # a patch is one voxel of the map
        self.encoder = Encoder(hybrid.width, positions, self.dim, depth, heads, mlp, **how)

    def volume(self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b c x y z"]:
        """What the trunk reads."""
        return laid_out(patches, position, self.box)

    def tokens(
        self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]
    ) -> tuple[Float[Tensor, "b n f"], Int[Tensor, "b n"]]:
        """What the Vision Transformer reads: the map's voxels and their positions."""
        voxels = rearrange(self.trunk(self.volume(patches, position)), "b f x y z -> b (x y z) f")
        return voxels, torch.arange(voxels.shape[1], device=voxels.device).expand(len(voxels), -1)

    def forward(
        self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> Float[Tensor, "b d"]:
        """The features. What is not `present` lies at no grid position, and so in no volume."""
        return self.encoder(*self.tokens(patches, position))


@dataclass(frozen=True)
class Box:
    """A box of the grid's positions, and the `channels` that are read in it of those that are `stored`.

    `start` and `end` (exclusive) are along i, j, k.
    """

    grid: Grid
    channels: tuple[str, ...]
    stored: tuple[str, ...]
    start: tuple[int, int, int]
    end: tuple[int, int, int]

    @classmethod
    def of_head(cls, grid: Grid, channels: tuple[str, ...], stored: tuple[str, ...]) -> Box:
        """The box that holds any brain aligned to the MNI152 frame: the template's and a margin, in whole grid positions."""
        patch_mm = grid.patch * grid.spacing_mm
        start, end = [], []
        for centre, (low, high) in zip(GRID_CENTRE_MM, BRAIN_MM, strict=True):
            outer = centre - grid.side * patch_mm / 2  # the outer face of the first grid position
            start.append(max(0, math.floor((low - MARGIN_MM - outer) / patch_mm)))
            end.append(min(grid.side, math.ceil((high + MARGIN_MM - outer) / patch_mm)))
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

    def slot(self, position: Int[Tensor, "b p"]) -> Int[Tensor, "b p"]:
        """A grid position counted within the box as in the grid; one past the last for all that lie outside."""
        side, (i, j, k), (rows, columns, layers) = self.grid.side, self.start, self.sides
        i, j, k = position // side**2 - i, position // side % side - j, position % side - k
        inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns) & (k >= 0) & (k < layers)
        return torch.where(inside, (i * columns + j) * layers + k, rows * columns * layers)


def laid_out(patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], box: Box) -> Float[Tensor, "b c x y z"]:
    """The box's volume: each patch at its place, zero elsewhere; patches outside the box are left out.

    Equal to the box of `tokens.to_volume`, number by number.
    """
    chosen = [box.stored.index(channel) for channel in box.channels]
    (i, j, k), patch = box.sides, box.grid.patch
    flat = rearrange(rearrange(patches, "b p (c v) -> b p c v", c=len(box.stored))[:, :, chosen], "b p c v -> b p (c v)")
    slots = flat.new_zeros(len(flat), i * j * k + 1, flat.shape[2])  # the last takes what lies outside
    slots = slots.scatter(1, box.slot(position)[:, :, None].expand_as(flat), flat)[:, :-1]
    volume = rearrange(slots, "b (i j k) (c x y z) -> b c (i x) (j y) (k z)", i=i, j=j, k=k, x=patch, y=patch, z=patch)
    return volume.to(torch.promote_types(volume.dtype, torch.float32))  # patches may be stored in half precision
