"""The comparators' networks, how a prepared patient reaches them, and what they cost."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from mri_vit.data import tokens
from mri_vit.data.tokens import Tokens
from mri_vit.model import network
from mri_vit.model.baselines import BASELINES, BRAIN_MM, HYBRIDS, MARGIN_MM, Box, HybridEncoder, VolumeEncoder
from mri_vit.model.encoder import Encoder
from mri_vit.prepare.register import template
from mri_vit.settings.recipe import Architecture, Model
from mri_vit.settings.schema import CHANNELS
from mri_vit.settings.sections import Grid

SMALL = Grid(edge=40, spacing_mm=6.0, patch=4)  # 10³ places, of which the box has 8 × 10 × 8: as much as DenseNet needs
TINY = Grid(edge=24, spacing_mm=10.0, patch=2)  # 12³ places, of which the box has 10 × 12 × 10
DEMO = Grid(edge=56, spacing_mm=4.0, patch=4)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recipe(architecture: str, channels: tuple[str, ...] = CHANNELS) -> Model:
    small = Model(dim=24, depth=2, heads=3, mlp=48, drop_path=0.0)
    return small.model_copy(update={"architecture": architecture, "channels": channels})


def made(architecture: str, channels: tuple[str, ...] = CHANNELS, grid: Grid = SMALL) -> Any:
    torch.manual_seed(0)
    kind = HybridEncoder if architecture in HYBRIDS else VolumeEncoder
    return kind(recipe(architecture, channels), grid, CHANNELS).eval()


def patient(seed: int = 0, grid: Grid = SMALL) -> Tokens:
    """Noise in a ball in the middle of the grid."""
    rng = np.random.default_rng(seed)
    index = np.stack(np.meshgrid(*[np.arange(grid.edge) - grid.edge / 2] * 3, indexing="ij"))
    brain = np.linalg.norm(index, axis=0) < 0.34 * grid.edge
    return tokens.from_volume(rng.normal(size=(4, *brain.shape)).astype(np.float32), brain, grid, "-")


def batch(*patients: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
    patches, position = np.stack([p.patches for p in patients]), np.stack([p.position for p in patients])
    return torch.from_numpy(patches).float(), torch.from_numpy(position.astype(np.int64))


def test_every_architecture_of_a_recipe_but_our_own_has_a_builder():
    assert set(get_args(Architecture)) - {"vit"} <= BASELINES.keys() | HYBRIDS.keys()
    assert not BASELINES.keys() & HYBRIDS.keys()
    labels = [entry.label for entry in (*BASELINES.values(), *HYBRIDS.values())]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("grid", [Grid(), DEMO, SMALL, Grid(edge=96, spacing_mm=2.5, patch=8)])
def test_the_box_holds_the_templates_brain_with_its_margin_and_is_the_same_for_a_mirrored_head(grid: Grid):
    box = Box.of_head(grid, CHANNELS, CHANNELS)
    affine = np.array(grid.affine)
    outer = affine[:3, 3] - grid.spacing_mm / 2  # the outer corner of the first voxel
    low = outer + np.array(box.start) * grid.patch * grid.spacing_mm
    high = outer + np.array(box.end) * grid.patch * grid.spacing_mm
    brain, _ = template()
    at = np.argwhere(np.asarray(brain.array) > 0) @ brain.affine[:3, :3].T + brain.affine[:3, 3]
    spare_mm = MARGIN_MM - 4  # this template has voxels of 2 mm, smoothed outwards
    assert (low <= at.min(axis=0) - spare_mm).all()
    assert (high >= at.max(axis=0) + spare_mm).all()
    for axis, (start, end) in enumerate(BRAIN_MM):
        assert low[axis] <= start - MARGIN_MM < low[axis] + grid.patch * grid.spacing_mm or box.start[axis] == 0
        assert high[axis] >= end + MARGIN_MM > high[axis] - grid.patch * grid.spacing_mm or box.end[axis] == grid.side
    assert box.start[0] + box.end[0] == grid.side


def test_the_box_of_the_default_grid_and_of_the_demos_are_the_same_places():
    assert Box.of_head(Grid(), CHANNELS, CHANNELS).sides == Box.of_head(DEMO, CHANNELS, CHANNELS).sides == (12, 14, 12)


@pytest.mark.parametrize("channels", [CHANNELS, ("t1ce",), ("flair", "t1")])
def test_the_volume_is_the_box_of_the_dense_volume_to_the_last_digit(channels: tuple[str, ...]):
    prepared = [patient(0), patient(1)]
    patches, position = batch(*prepared)
    shuffled = torch.randperm(position.shape[1])
    found = made("resnet10", channels).volume(patches[:, shuffled], position[:, shuffled])
    box = Box.of_head(SMALL, channels, CHANNELS)
    (x, y, z), (x_end, y_end, z_end) = np.array(box.start) * 4, np.array(box.end) * 4
    chosen = [CHANNELS.index(channel) for channel in channels]
    for volume, one in zip(found.numpy(), prepared, strict=True):
        assert volume.any()
        assert np.array_equal(volume, tokens.to_volume(one)[chosen, x:x_end, y:y_end, z:z_end].astype(np.float32))


def test_patches_outside_the_box_and_empty_ones_change_nothing():
    patches, position = batch(patient())
    net = made("resnet10")
    outside = torch.tensor([[0, SMALL.side - 1, SMALL.positions - 1]])  # in the grid's first and last planes along x
    empty = torch.from_numpy(np.setdiff1d(np.arange(SMALL.positions), position[0].numpy())[None, 300:340])
    more = torch.cat([patches, torch.ones(1, 3, patches.shape[2]), torch.zeros(1, 40, patches.shape[2])], dim=1)
    assert net.volume(more, torch.cat([position, outside, empty], dim=1)).equal(net.volume(patches, position))
    slots = net.box.slot(torch.arange(SMALL.positions)[None])
    inside = math.prod(net.box.sides)
    assert sorted(slots[slots < inside].tolist()) == list(range(inside))  # each slot of the box belongs to one place
    assert (slots[0, outside[0]] == inside).all()


@pytest.mark.parametrize("architecture", ["resnet10", "monai_vit", "hybrid_resnet10"])
def test_the_order_of_tokens_does_not_matter_and_each_patient_is_read_alone(architecture: str):
    patches, position = batch(patient(0), patient(1))
    net, shuffled = made(architecture), torch.randperm(position.shape[1])
    with torch.no_grad():
        together = net(patches, position)
        torch.testing.assert_close(net(patches[:, shuffled], position[:, shuffled]), together, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(net(patches[:1], position[:1]), together[:1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


# one of each kind
NETWORKS = ["resnet10", "resnet10_max", "resnet10_dilated", "densenet121", "efficientnet_b0", "monai_vit", "swin_vit", *HYBRIDS]


@pytest.mark.parametrize(
    ("architecture", "channels"),
    [*itertools.product(NETWORKS, [CHANNELS]), ("resnet10", ("t2",)), ("monai_vit", ("t2",)), ("hybrid_resnet10", ("t2",))],
)
def test_features_have_their_width_and_depend_on_every_channel_that_is_read(architecture: str, channels: tuple[str, ...]):
    grid = SMALL if architecture == "densenet121" else TINY
    net = made(architecture, channels, grid)
    patches, position = batch(patient(0, grid), patient(1, grid))
    patches.requires_grad_()
    features = net.train()(patches, position)  # batch normalisation in training, which is where small maps fail
    assert features.shape == (2, net.dim)
    assert features.isfinite().all()
    (features * torch.randn_like(features)).sum().backward()
    assert patches.grad is not None
    read = patches.grad.unflatten(2, (4, -1)).abs().sum(dim=(0, 1, 3)) > 0
    assert [channel for channel, seen in zip(CHANNELS, read.tolist(), strict=True) if seen] == [
        channel for channel in CHANNELS if channel in channels
    ]
    assert all(parameter.grad is not None for parameter in net.parameters())  # nothing of a classifier is left over


@pytest.mark.parametrize("architecture", list(BASELINES))
def test_the_width_that_is_told_is_the_networks(architecture: str):
    baseline, model = BASELINES[architecture], recipe(architecture)
    with torch.device("meta"):
        net = baseline.build(model, 1, (32, 40, 32), 4).eval()
    net, volume = net.to("meta"), torch.empty(1, 1, 32, 40, 32, device="meta")
    held = []
    if baseline.layer:
        net.get_submodule(baseline.layer).register_forward_hook(lambda _, __, features: held.append(features.shape))
    assert net(volume).shape == (1, baseline.width or 24)
    if baseline.layer:
        assert len(held) == 1  # Grad-CAM needs a module that is passed once
        assert held[0][:2] == (1, baseline.width)
        assert len(held[0]) == 5


@pytest.mark.parametrize("architecture", ["resnet10", "resnet10_dilated", "densenet121", "efficientnet_b0", "seresnext50"])
def test_the_features_are_the_mean_of_the_map_that_grad_cam_reads(architecture: str):
    net, held = made(architecture), []
    layer = BASELINES[architecture].layer
    assert layer
    net.net.get_submodule(layer).register_forward_hook(lambda _, __, features: held.append(features))
    with torch.no_grad():
        features = net(*batch(patient()))
    torch.testing.assert_close(features, held[0].mean(dim=(2, 3, 4)))


@pytest.mark.parametrize("architecture", ["resnet10_dilated", "resnet10_dilated_max"])
def test_the_dilated_resnet_has_a_quarter_of_the_channels_and_a_voxel_of_its_map_for_each_8_cubed(architecture: str):
    with torch.device("meta"):
        plain, net = (BASELINES[name].build(recipe(name), 4, (32, 40, 32), 4).eval() for name in ("resnet10", architecture))
        held = []
        net.get_submodule("layer4").register_forward_hook(lambda _, __, features: held.append(tuple(features.shape)))
        net(torch.empty(1, 4, 32, 40, 36))
    assert held == [(1, 128, 4, 5, 5)]
    wide, narrow = plain.state_dict(), net.state_dict()
    assert list(wide) == list(narrow)
    assert all(narrow[name].shape[:1].numel() * 4 == wide[name].shape[:1].numel() for name in wide if wide[name].dim())
    cubes = [
        (name, module) for name, module in net.named_modules() if isinstance(module, nn.Conv3d) and module.kernel_size[0] == 3
    ]
    rates = {(name.split(".")[0], module.dilation) for name, module in cubes}
    assert rates == {("layer1", (1,) * 3), ("layer2", (1,) * 3), ("layer3", (2,) * 3), ("layer4", (4,) * 3)}


def test_read_by_a_maximum_the_features_are_the_largest_values_of_the_same_networks_last_map():
    mean, largest, held = made("resnet10"), made("resnet10_max"), []
    largest.load_state_dict(mean.state_dict())
    mean.net.get_submodule("layer4").register_forward_hook(lambda _, __, features: held.append(features))
    patches, position = batch(patient(0), patient(1))
    with torch.no_grad():
        averages, features = mean(patches, position), largest(patches, position)
    assert features.equal(held[0].amax(dim=(2, 3, 4)))
    assert (features > averages).any()


PUBLISHED = {  # parameters of the 2D networks for 3 channels and 1000 classes
    "resnet18": 11_689_512,  # torchvision's table of models, as are those below
    "resnet34": 21_797_672,
    "densenet121": 7_978_856,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "efficientnet_b0": 5_288_548,
    "efficientnet_b1": 7_794_184,
    "efficientnet_b3": 12_233_232,
    "seresnext50": 27_559_896,  # Cadene's pretrained-models.pytorch, se_resnext50_32x4d
}


@pytest.mark.parametrize("architecture", list(PUBLISHED))
def test_with_one_slice_of_each_kernel_a_network_has_its_published_number_of_parameters(architecture: str):
    baseline = BASELINES[architecture]
    with torch.device("meta"):
        net = baseline.build(recipe(architecture), 3, (32, 32, 32), 4)
    flat = sum(p.numel() // p.shape[-1] if p.dim() == 5 else p.numel() for p in net.parameters())
    assert baseline.width
    assert flat + 1000 * (baseline.width + 1) == PUBLISHED[architecture]


def test_resnet_18_is_the_published_3d_one_but_for_its_first_convolution_and_classes():
    with torch.device("meta"):
        count = network.count_parameters(BASELINES["resnet18"].build(recipe("resnet18"), 4, (32, 32, 32), 4))
    published = 33_371_472  # torchvision's r3d_18 (Tran et al. 2018): 3 channels, kernel 3 × 7 × 7, 400 classes of Kinetics
    assert count - 64 * 4 * 7**3 == published - 64 * 3 * 3 * 7 * 7 - 400 * (512 + 1)


def test_monais_vit_has_the_recipes_shape():
    count = network.count_parameters(made("monai_vit"))
    d, depth, mlp, positions = 24, 2, 48, 8 * 10 * 8
    block = 3 * d * d + (d * d + d) + (d * mlp + mlp) + (mlp * d + d) + 2 * 2 * d  # its query, key and value have no bias
    assert count == (4 * 4**3 * d + d) + positions * d + d + depth * block + 2 * d


@pytest.mark.parametrize("architecture", list(HYBRIDS))
def test_the_hybrids_tokens_are_the_voxels_of_the_trunks_map(architecture: str):
    net = made(architecture)
    patches, position = batch(patient(0), patient(1))
    with torch.no_grad():
        map, (voxels, positions) = net.trunk(net.volume(patches, position)), net.tokens(patches, position)
    hybrid = HYBRIDS[architecture]
    assert map.shape[2:] == net.map_size == tuple(math.ceil(edge / hybrid.stride) for edge in (32, 40, 32))
    assert voxels.shape == (2, math.prod(net.map_size), hybrid.width)
    assert positions.tolist() == [list(range(math.prod(net.map_size)))] * 2
    for i, j, k in [(0, 0, 0), (1, 2, 0), tuple(side - 1 for side in net.map_size)]:
        assert voxels[:, (i * net.map_size[1] + j) * net.map_size[2] + k].equal(map[:, :, i, j, k])
    assert isinstance(net.encoder.embed, nn.Linear)
    assert net.encoder.embed.in_features == hybrid.width
    by_convolution = torch.nn.functional.conv3d(map, net.encoder.embed.weight[..., None, None, None], net.encoder.embed.bias)
    with torch.no_grad():
        torch.testing.assert_close(net.encoder.embed(voxels), by_convolution.flatten(2).transpose(1, 2), atol=1e-4, rtol=1e-4)
    assert net.get_submodule(f"trunk.{hybrid.layer}") is list(net.trunk)[-1]


def test_the_resnet_hybrid_has_some_dozens_of_tokens_on_the_demos_grid():
    with torch.device("meta"):
        assert made("hybrid_resnet10", grid=DEMO).map_size == (6, 7, 6)
        assert made("hybrid", grid=DEMO).map_size == (3, 4, 3)


@pytest.mark.parametrize("architecture", ["efficientnet_b0", "swin_vit", "hybrid_resnet10"])
def test_a_network_made_without_memory_is_filled_by_anothers_weights(architecture: str):
    net, inputs = made(architecture, grid=TINY), batch(patient(grid=TINY))
    with torch.device("meta"):
        other = made(architecture, grid=TINY)
    other.load_state_dict(net.state_dict(), assign=True)
    with torch.no_grad():
        assert other(*inputs).equal(net(*inputs))


def test_efficientnets_maps_keep_the_border_whatever_the_volumes_size():
    with torch.device("meta"):
        net = BASELINES["efficientnet_b0"].build(recipe("efficientnet_b0"), 1, (32, 32, 32), 4).eval()
        held = []
        net.get_submodule("_bn1").register_forward_hook(lambda _, __, features: held.append(tuple(features.shape[2:])))
        net(torch.empty(1, 1, 48, 56, 33))
    assert held == [(2, 2, 2)]  # 48, 56 and 33 halved five times, rounded up


@pytest.mark.parametrize("architecture", ["resnet10", "resnet10_dilated", "densenet121", "efficientnet_b0", "seresnext50"])
def test_the_smallest_volume_that_is_told_can_be_read_and_a_smaller_one_is_refused(architecture: str):
    smallest = BASELINES[architecture].smallest
    with torch.device("meta"):
        net = BASELINES[architecture].build(recipe(architecture), 1, (32, 32, 32), 4).eval()
        assert net(torch.empty(1, 1, smallest, smallest, smallest)).shape == (1, BASELINES[architecture].width)
        if smallest > 1:
            with pytest.raises(RuntimeError):
                net(torch.empty(1, 1, *[smallest - 1] * 3))


def test_a_grid_too_coarse_for_a_network_is_refused_by_name():
    with pytest.raises(
        ValueError, match=r"3D DenseNet-121 needs 29 .* on a grid of 28³ voxels of 8 mm it would get 28 × 28 × 28"
    ):
        VolumeEncoder(recipe("densenet121"), Grid(edge=28, spacing_mm=8.0, patch=4), CHANNELS)


class OnPatches(nn.Module):
    """A module that is called with patches and places and passes the patches on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, patches: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.inner(patches)


def test_flops_of_a_linear_map_and_of_convolutions_are_those_counted_by_hand():
    patches, position = torch.zeros(2, 5, 32), torch.zeros(2, 5, dtype=torch.int64)
    assert network.flops(OnPatches(nn.Linear(32, 7)), patches, position) == 2 * (2 * 5 * 32 * 7)
    assert network.activation_bytes(OnPatches(nn.Linear(32, 7)), patches, position) == 4 * (patches.numel() + 2 * 5 * 7)
    volume = nn.Sequential(nn.Unflatten(2, (2, 2, 8)), nn.Conv3d(5, 6, 1, bias=False))
    assert network.flops(OnPatches(volume), patches, position) == 2 * (2 * 32 * 5 * 6)
    grouped = nn.Sequential(nn.Unflatten(1, (5, 1)), nn.Unflatten(3, (4, 8)), nn.Conv3d(5, 10, (1, 3, 3), padding=1, groups=5))
    assert network.flops(OnPatches(grouped), patches, position) == 2 * (
        2 * (3 * 4 * 8) * 10 * 9
    )  # padding adds a plane on each side


def test_flops_of_the_vision_transformer_are_those_counted_by_hand():
    k, d, depth, mlp, p = 32, 24, 3, 48, 20
    n = p + 1
    encoder = Encoder(patch_size=k, positions=27, dim=d, depth=depth, heads=4, mlp=mlp)
    projections, products, mlps = n * d * 4 * d, 2 * n * n * d, n * 2 * d * mlp
    by_hand = 2 * (p * k * d + depth * (projections + products + mlps))
    inputs = torch.zeros(3, p, k), torch.arange(p).repeat(3, 1)
    assert network.flops(encoder, *inputs) == 3 * by_hand
    assert network.count_parameters(encoder) == sum(parameter.numel() for parameter in encoder.parameters())


def test_counting_leaves_a_network_as_it_was():
    net, inputs = made("resnet10").train(), batch(patient())
    net.net.bn1.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    once, twice = network.flops(net, *inputs), network.flops(net, *(torch.cat([part, part]) for part in inputs))
    assert twice == 2 * once > 0
    assert [module.training for module in net.modules()] == modes
    assert all(value.equal(before[name]) for name, value in net.state_dict().items())
