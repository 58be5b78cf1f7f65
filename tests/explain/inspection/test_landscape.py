"""Loss landscapes against surfaces that are known, and filter normalisation against what it is for."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from mri_vit.explain.inspection.learned import lengths, random_direction, surface

STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv3d(2, 5, 3), nn.BatchNorm3d(5), nn.ReLU(), nn.Conv3d(5, 1, 1), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 3)
    ).eval()


def test_least_squares_has_the_paraboloid_of_its_definition():
    torch.manual_seed(1)
    net = nn.Linear(6, 2, bias=False).double()
    x, y = torch.randn(40, 6, dtype=torch.float64), torch.randn(40, 2, dtype=torch.float64)
    across, up = random_direction(net, seeded(1)), random_direction(net, seeded(2))

    def loss(moved: nn.Module) -> float:
        with torch.no_grad():
            return float((moved(x) - y).square().mean())

    found = surface(net, across, up, {"mse": loss}, STEPS)["mse"]
    residual = (x @ net.weight.T - y).detach()
    a, b = (x @ direction["weight"].T for direction in (across, up))
    for row, beta in enumerate(STEPS):
        for column, alpha in enumerate(STEPS):
            exact = residual.square() + (alpha * a + beta * b).square() + 2 * residual * (alpha * a + beta * b)
            assert found[row, column] == pytest.approx(float(exact.mean()), rel=1e-12)


def test_the_middle_is_the_network_itself_and_that_is_left_bit_for_bit(convolutional):
    before = copy.deepcopy(convolutional.state_dict())
    volumes = torch.randn(3, 2, 4, 4, 4)

    def loss(moved: nn.Module) -> float:
        with torch.no_grad():
            return float(moved(volumes).square().sum())

    across, up = (random_direction(convolutional, seeded(seed)) for seed in (0, 1))
    found = surface(convolutional, across, up, {"loss": loss}, STEPS)["loss"]
    assert found[2, 2] == loss(convolutional)
    assert len(np.unique(found)) == len(STEPS) ** 2
    for name, tensor in convolutional.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_each_filter_of_a_direction_is_as_long_as_the_networks_own(convolutional):
    direction = random_direction(convolutional, seeded())
    for name, filters in (("0.weight", 5), ("3.weight", 1), ("6.weight", 3)):
        weight = convolutional.state_dict()[name]
        own, drawn = weight.reshape(filters, -1).norm(dim=1), direction[name].reshape(filters, -1).norm(dim=1)
        torch.testing.assert_close(drawn, own)
        assert lengths(weight).numel() == filters


def test_biases_and_the_weights_of_normalisations_stay(convolutional):
    assert set(random_direction(convolutional, seeded())) == {"0.weight", "3.weight", "6.weight"}


def test_of_a_table_of_positions_each_vector_keeps_its_length():
    table = torch.randn(1, 7, 4)
    assert lengths(table).shape == (1, 7, 1)
    torch.testing.assert_close(lengths(table)[0, :, 0], table[0].norm(dim=1))


def test_a_filter_of_zeros_is_not_moved():
    net = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(net.weight)
    assert (random_direction(net, seeded())["weight"] == 0).all()


def test_a_network_that_is_rescaled_and_says_the_same_has_the_same_landscape():
    """Li et al. 2018, section 4: a layer ten times as large before one a tenth as large is the same network behind a ReLU."""
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)).double()
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled.get_parameter("0.weight").mul_(10)
        scaled.get_parameter("2.weight").div_(10)
    x = torch.randn(30, 5, dtype=torch.float64)

    def loss(moved: nn.Module) -> float:
        with torch.no_grad():
            return float((moved(x) - 1).square().mean())

    surfaces, plain = [], []
    for one in (net, scaled):
        across, up = (random_direction(one, seeded(seed)) for seed in (0, 1))
        surfaces.append(surface(one, across, up, {"loss": loss}, STEPS)["loss"])
        drawn = seeded(0)
        across, up = ({name: torch.randn(w.shape, generator=drawn).to(w) for name, w in one.named_parameters()} for _ in range(2))
        plain.append(surface(one, across, up, {"loss": loss}, STEPS)["loss"])
    np.testing.assert_allclose(surfaces[0], surfaces[1], rtol=1e-9)
    assert np.abs(plain[0] / plain[1] - 1).max() > 0.5  # what would be seen without filter normalisation
