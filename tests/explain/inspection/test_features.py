"""Activation maximisation against targets whose best input is known."""

from __future__ import annotations

import pytest
import torch

from mri_vit.explain.inspection.learned import START_NOISE, Regularisation, maximise, roughness, strength

EDGE = 6


@pytest.fixture
def brain() -> torch.Tensor:
    inside = torch.zeros(EDGE, EDGE, EDGE, dtype=torch.bool)
    inside[1:5, 1:6, 0:4] = True
    return inside


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(brain: torch.Tensor) -> torch.Tensor:
    return torch.randn(4, *brain.shape, generator=seeded(7))


def test_of_a_linear_network_the_input_is_its_weights_over_two_lambda(brain):
    """The maximum of w·x - λ‖x‖² is w/2λ; λ is the one of which the maximum is as strong as allowed."""
    weight = linear(brain)
    found = maximise(lambda x: (weight * x).sum(), brain, 4, Regularisation(strength=2.0), seeded())
    within = weight * brain
    two_lambda = strength(within, brain) / 2.0
    torch.testing.assert_close(found, within / two_lambda, atol=1e-3, rtol=1e-3)


def test_a_scan_that_the_target_does_not_read_gets_nothing(brain):
    weight = linear(brain)
    weight[[0, 2, 3]] = 0
    found = maximise(lambda x: (weight * x).sum(), brain, 4, Regularisation(roughness=0.1, jitter=1), seeded())
    energy = found.square().sum(dim=(1, 2, 3))
    assert energy[1] / energy.sum() > 1 - START_NOISE**2


def test_an_input_is_no_stronger_than_a_scan_and_lies_within_the_brain(brain):
    weight = linear(brain)
    found = maximise(lambda x: (weight * x).sum() ** 3, brain, 4, Regularisation(jitter=1), seeded())
    assert strength(found, brain) == pytest.approx(1.0, abs=1e-5)
    assert (found[:, ~brain] == 0).all()


def test_a_target_with_a_maximum_inside_the_bound_is_found_there(brain):
    """A number that falls with the distance from a faint scan: what is strongest is not best."""
    best = 0.3 * linear(brain) * brain
    found = maximise(lambda x: -(x - best).square().sum(), brain, 4, Regularisation(), seeded(), steps=400)
    torch.testing.assert_close(found, best, atol=0.02, rtol=0)


def test_total_variation_makes_inputs_smooth_and_costs_some_of_the_target(brain):
    weight = linear(brain)
    reached, rough = [], []
    for cost in (0.0, 30.0, 300.0):
        found = maximise(lambda x: (weight * x).sum(), brain, 4, Regularisation(roughness=cost), seeded())
        reached.append(float((weight * found).sum()))
        rough.append(float(roughness(found, brain)))
    assert reached[0] > reached[1] > reached[2] > 0
    assert rough[0] > rough[1] > rough[2]


def test_roughness_is_the_mean_length_of_the_differences_to_the_next_voxels(brain):
    x, y, z = torch.meshgrid(*[torch.arange(float(EDGE))] * 3, indexing="ij")
    assert float(roughness(torch.ones(2, EDGE, EDGE, EDGE), brain)) == pytest.approx(0)  # the brain's border costs nothing
    whole = torch.ones_like(brain)
    found = float(roughness((3 * x + 4 * y)[None], whole))
    last = EDGE - 1  # the last voxel along an axis has no next one
    expected = (5 * last**2 + 3 * last + 4 * last) * EDGE / EDGE**3
    assert found == pytest.approx(expected, rel=0.01)
    assert float(roughness(z[None], brain)) == pytest.approx(3 / 4, rel=0.02)  # three of the brain's four layers have a next one


def test_a_search_is_decided_by_its_seed(brain):
    def search(seed: int) -> torch.Tensor:
        return maximise(lambda x: x.square().sum(), brain, 2, Regularisation(jitter=1), seeded(seed))

    assert torch.equal(search(3), search(3))
    assert not torch.equal(search(3), search(4))


def test_where_a_target_is_flat_the_noise_of_the_start_stays(brain):
    found = maximise(lambda x: (0 * x).sum(), brain, 2, Regularisation(), seeded())
    assert float(strength(found, brain)) == pytest.approx(START_NOISE)
