"""Rotary positions: what two tokens say to each other hangs on how far apart they are, and on nothing else of where they are."""

from __future__ import annotations

import pytest
import torch

from mri_vit.features import fitting

SIDE = 4


@pytest.mark.parametrize("pairs", [fitting.ROTARY_HALVES, fitting.ROTARY_NEIGHBOURS])
def test_a_dot_product_depends_on_the_distance_alone(pairs: str):
    torch.manual_seed(1)
    q, k = torch.randn(12), torch.randn(12)
    angle = fitting.angles(fitting.indices(SIDE), torch.tensor([0.9, 0.2]), 0)
    everywhere = [fitting.turned(x.expand(1, 1, SIDE**3, 12), angle, pairs)[0, 0] for x in (q, k)]
    products = everywhere[0] @ everywhere[1].T
    at = fitting.indices(SIDE).long()
    by_distance: dict[tuple[int, ...], list[float]] = {}
    for i in range(SIDE**3):
        for j in range(SIDE**3):
            by_distance.setdefault(tuple((at[i] - at[j]).tolist()), []).append(float(products[i, j]))
    assert all(max(found) - min(found) < 1e-4 for found in by_distance.values())
    assert len({round(found[0], 3) for found in by_distance.values()}) > 100  # and it does depend on it, along every axis


@pytest.mark.parametrize("pairs", [fitting.ROTARY_HALVES, fitting.ROTARY_NEIGHBOURS])
def test_tokens_without_a_place_stay_exactly_as_they_are_and_no_length_changes(pairs: str):
    x = torch.randn(2, 3, 2 + SIDE**3, 12)
    turned = fitting.turned(x, fitting.angles(fitting.centred(SIDE), torch.tensor([3.0, 1.0]), 2), pairs)
    assert torch.equal(turned[:, :, :2], x[:, :, :2])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert not torch.allclose(turned[:, :, 2:], x[:, :, 2:], atol=0.1)


def test_pairs_are_complex_numbers_times_a_phase():
    x, angle = torch.randn(1, 1, 5, 6), torch.randn(5, 3)
    neighbours = torch.view_as_complex(x.reshape(1, 1, 5, 3, 2)) * torch.polar(torch.ones(5, 3), angle)
    torch.testing.assert_close(
        fitting.turned(x, angle, fitting.ROTARY_NEIGHBOURS), torch.view_as_real(neighbours).reshape(1, 1, 5, 6)
    )
    halves = torch.complex(x[..., :3], x[..., 3:]) * torch.polar(torch.ones(5, 3), angle)
    torch.testing.assert_close(fitting.turned(x, angle, fitting.ROTARY_HALVES), torch.cat([halves.real, halves.imag], dim=-1))


def test_coordinates_are_those_of_the_places_in_the_order_of_the_tokens():
    assert fitting.indices(3)[5].tolist() == [0, 1, 2]  # x slowest, z fastest
    assert fitting.centred(2).unique().tolist() == [-0.5, 0.5]
