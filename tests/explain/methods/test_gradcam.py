"""Grad-CAM against a closed form and against the definition written out on MONAI's ResNet-10."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mri_vit.explain.methods.gradcam import gradcam


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
