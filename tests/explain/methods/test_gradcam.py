"""Grad-CAM against a closed form and against the definition written out on MONAI's ResNet-10."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from made.volumes import LINEAR, plant, weighing
from torch import nn

from mri_vit.explain.methods.catalogue import METHODS, WITHOUT_MEAN, methods_of
from mri_vit.explain.methods.gradient import gradcam, gradcam_by_place, layer_mm
from mri_vit.explain.methods.patient_maps import note
from mri_vit.model import heads
from mri_vit.model.baselines import BASELINES, HYBRIDS
from mri_vit.model.network import Network
from mri_vit.settings.recipe import Architecture
from mri_vit.settings.schema import Model
from mri_vit.settings.sections import Grid, MapMethod, VolumeMethod


class Pooled(nn.Module):
    """Channels from 2³ voxels each, their mean over the volume, and a linear map: its Grad-CAM is known."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv3d(4, 5, 2, stride=2)
        self.out = nn.Linear(5, 3)

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        return self.out(self.features(volume).mean(dim=(2, 3, 4)))


@pytest.mark.filterwarnings("ignore")  # MONAI's own, at import
@pytest.mark.parametrize("output", [0, 2])
def test_after_a_global_mean_the_map_is_the_outputs_own_sum_of_channels(output: int):
    torch.manual_seed(0)
    network, volume = Pooled(), torch.randn(2, 4, 8, 8, 8)
    with torch.no_grad():
        weighted = torch.einsum("c,bcxyz->bxyz", network.out.weight[output], network.features(volume)) / 4**3
    expected = F.interpolate(weighted.clamp(min=0)[:, None], size=(8, 8, 8), mode="trilinear", align_corners=False)[:, 0]
    found = gradcam(network, "features", volume, output)
    assert found.max() > 0
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore")
def test_a_resnets_map_is_the_definition_and_the_network_is_left_as_it_was():
    from monai.networks.nets.resnet import resnet10

    torch.manual_seed(0)
    network = resnet10(spatial_dims=3, n_input_channels=4, num_classes=2, conv1_t_size=3).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    volume = torch.randn(2, 4, 24, 24, 24)
    volume[:, :, :8, :8, :8] += 3  # a bright corner
    found = gradcam(network, "layer2", volume, output=1)
    assert found.shape == (2, 24, 24, 24)
    assert network.training
    assert not any(module._forward_hooks or module._backward_hooks for module in network.modules())
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())  # running means too
    held = []
    network.eval().layer2.register_forward_hook(lambda _, __, features: held.append(features))
    score = network(volume)[:, 1].sum()
    (slope,) = torch.autograd.grad(score, held[0])
    cam = (slope.mean(dim=(2, 3, 4), keepdim=True) * held[0]).sum(dim=1, keepdim=True).clamp(min=0)
    expected = F.interpolate(cam, size=(24, 24, 24), mode="trilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(found, expected.detach(), atol=1e-6, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_network_that_learned_a_bright_cube_is_found_to_look_at_it():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv3d(4, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool3d(1), nn.Flatten(), nn.Linear(6, 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    corners = torch.randint(0, 7, (16, 3))
    volume, truth = torch.randn(16, 4, 10, 10, 10), torch.arange(16) % 2
    for index, (x, y, z) in enumerate(corners.tolist()):
        volume[index, 1, x : x + 4, y : y + 4, z : z + 4] += 3 * truth[index]
    for _ in range(40):
        optimiser.zero_grad()
        F.binary_cross_entropy_with_logits(network(volume)[:, 0], truth.float()).backward()
        optimiser.step()
    positive = truth == 1
    found = gradcam(network, "1", volume[positive], output=0)
    share = []
    for heat, (x, y, z) in zip(found, corners[positive].tolist(), strict=True):
        share.append((heat[x : x + 4, y : y + 4, z : z + 4].sum() / heat.sum()).item())
    assert sum(share) / len(share) > 4 * 4**3 / 10**3  # four times the cube's part of the volume


@pytest.mark.filterwarnings("ignore")
def test_a_frozen_network_has_the_same_map_and_an_unknown_layer_is_refused():
    torch.manual_seed(0)
    network, volume = Pooled(), torch.randn(1, 4, 8, 8, 8)
    expected = gradcam(network, "features", volume, 0)
    network.requires_grad_(False)
    with torch.no_grad():
        assert gradcam(network, "features", volume, 0).equal(expected)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    with pytest.raises(ValueError, match=r"no layer 'layer4'; the network has features, out"):
        gradcam(network, "layer4", volume, 0)


# --- Comparators' networks, place by place -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["resnet10", "efficientnet_b0"])
def test_it_is_monais(architecture: Architecture):
    from monai.visualize.class_activation_maps import GradCAM

    torch.manual_seed(0)
    layer = BASELINES[architecture].layer
    assert layer
    features = BASELINES[architecture].build(Model(architecture=architecture), 4, (64, 64, 64), 4)
    network = nn.Sequential(OrderedDict(features=features, out=nn.Linear(BASELINES[architecture].width or 0, 2))).eval()
    volume = torch.randn(2, 4, 64, 64, 64)
    theirs = GradCAM(network, f"features.{layer}", postprocessing=lambda map: map)(volume, class_idx=1)[:, 0]
    torch.testing.assert_close(gradcam(network, f"features.{layer}", volume, 1), theirs, atol=1e-6, rtol=1e-4)
    assert theirs.max() > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["resnet10", "densenet121", "efficientnet_b0", "seresnext50"])
def test_of_a_linear_head_it_is_the_exact_class_activation_map_and_speaks_for_the_predicted_class(architecture: Architecture):
    grid = Grid(edge=56, spacing_mm=4.0, patch=4)
    torch.manual_seed(1)
    net = Network(Model(architecture=architecture, tokens="foreground"), grid, LINEAR).eval()
    for linear in net.head.values():
        torch.nn.init.normal_(linear.weight)  # type: ignore[arg-type]
    patches, position = torch.randn(2, 300, 4 * 4**3), torch.stack([torch.randperm(grid.positions)[:300] for _ in range(2)])
    held = []
    layer = net.encoder.net.get_submodule(BASELINES[architecture].layer)
    handle = layer.register_forward_hook(lambda _, __, features: held.append(features))
    with torch.no_grad():
        outputs = net(patches, position)
    handle.remove()
    found = gradcam_by_place(net, patches, position)
    slot = net.encoder.box.slot(position)
    inside = slot < math.prod(net.encoder.box.sides)
    for head in LINEAR:
        name = head.endpoint.name
        assert (found[name][~inside] == 0).all()
        (weight,) = net.get_parameter(f"head.{name}.weight")
        sign = heads.question(head, outputs[name])
        whole = torch.einsum("f,bfxyz->bxyz", weight.detach(), held[0]) * sign[:, None, None, None]
        bias = net.get_parameter(f"head.{name}.bias")[0]
        torch.testing.assert_close(sign * whole.mean(dim=(1, 2, 3)) + bias, outputs[name][:, 0], atol=1e-4, rtol=1e-3)
        cam = (whole / held[0][0, 0].numel()).clamp(min=0)
        up = F.interpolate(cam[:, None], size=net.encoder.box.size, mode="trilinear", align_corners=False)
        expected = F.pad(F.avg_pool3d(up, 4).flatten(1), (0, 1)).gather(1, slot)
        torch.testing.assert_close(found[name], expected, atol=1e-6, rtol=1e-3)
    assert not layer._forward_hooks


def test_the_layers_size_is_told_in_mm(monkeypatch: pytest.MonkeyPatch):
    grid = Grid(edge=56, spacing_mm=4.0, patch=4)
    net = Network(Model(architecture="resnet10", tokens="foreground"), grid, LINEAR).eval()
    assert net.encoder.box.size == (48, 56, 48)
    assert layer_mm(net) == ((2, 2, 2), (96.0, 112.0, 96.0))  # five strides of 2, rounded up
    assert "2 × 2 × 2 voxels of 96 × 112 × 96 mm" in note("gradcam", net)
    plant(monkeypatch)
    fine = weighing(grid)
    assert layer_mm(fine) == (fine.encoder.box.sides, (16.0, 16.0, 16.0))


@pytest.mark.parametrize("architecture", ["hybrid_resnet10", "monai_vit", "resnet10_max"])
def test_a_network_whose_heads_read_no_mean_of_a_map_has_none(architecture: Architecture):
    grid = Grid(edge=56, spacing_mm=4.0, patch=4)
    net = Network(Model(architecture=architecture, dim=16, depth=1, heads=2, mlp=16), grid, LINEAR).eval()
    with pytest.raises(ValueError, match=f"{architecture} has no last convolutional map that is averaged"):
        gradcam_by_place(net, torch.randn(1, 5, 256), torch.arange(5)[None])


def test_who_has_grad_cam_is_told_alike_where_networks_are_built_and_where_maps_are_asked_for():
    assert set(WITHOUT_MEAN) == {name for name, one in BASELINES.items() if one.layer is None or not one.averaged} | set(HYBRIDS)
    for architecture in get_args(Architecture):
        expected = ("occlusion_by_air",) if architecture in WITHOUT_MEAN else ("gradcam", "occlusion_by_air")
        assert methods_of(architecture, ("rollout",)) == (("rollout",) if architecture == "vit" else expected)
    assert set(METHODS) == set(get_args(MapMethod)) | set(get_args(VolumeMethod))
