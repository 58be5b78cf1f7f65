"""Each scan's part in a score against all orders of adding scans, and in a map against networks that read one scan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import permutations

import pytest
import torch
from made.network import inputs, linear, made

from mri_vit.explain.methods.gradient import integrated_gradients_by_scan
from mri_vit.explain.methods.occlusion import scores_by_scan
from mri_vit.explain.methods.patient_maps import maps_by_scan
from mri_vit.model import heads
from mri_vit.model.network import Network
from mri_vit.settings.schema import CHANNELS

VOXELS = 8  # of a patch in one scan


def evidence(net: Network, name: str, patches: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    (head,) = [head for head in net.heads if head.endpoint.name == name]
    with torch.no_grad():
        return heads.evidence(head, net(patches, position)[name])


def only(patches: torch.Tensor, scans: Iterable[str]) -> torch.Tensor:
    """The patches with every other scan empty."""
    left = torch.zeros_like(patches)
    for scan in scans:
        start = CHANNELS.index(scan) * VOXELS
        left[..., start : start + VOXELS] = patches[..., start : start + VOXELS]
    return left


def reading_only(scan: str) -> Network:
    """A network whose patch embedding has no weight on the other scans."""
    net = made()
    net.encoder.embed.weight.data = only(net.encoder.embed.weight.data, (scan,))  # type: ignore[union-attr, arg-type]
    return net


@pytest.mark.parametrize("name", ["mgmt", "os", "pfs"])
def test_a_scans_value_is_its_mean_gain_over_all_orders_of_adding_scans(name: str):
    net = made().double()
    patches, position = inputs(net, n=9, dtype=torch.float64)

    @cache
    def worth(scans: frozenset[str]) -> torch.Tensor:
        return evidence(net, name, only(patches, scans), position)

    gain = {scan: torch.zeros(2, dtype=torch.float64) for scan in CHANNELS}
    for order in permutations(CHANNELS):
        for rank, scan in enumerate(order):
            gain[scan] += (worth(frozenset(order[: rank + 1])) - worth(frozenset(order[:rank]))) / 24
    found = scores_by_scan(net, patches, position)[name]
    for scan in CHANNELS:
        torch.testing.assert_close(found[scan], gain[scan], atol=1e-10, rtol=0)


def test_the_values_are_those_of_captums_enumeration():
    from captum.attr import ShapleyValues

    net = made().double()
    patches, position = inputs(net, batch=1, n=5, dtype=torch.float64)
    scan_of = torch.arange(4).repeat_interleave(VOXELS).repeat(1, 5, 1)
    theirs = ShapleyValues(lambda x: evidence(net, "os", x, position)).attribute(patches, feature_mask=scan_of)
    found = scores_by_scan(net, patches, position)["os"]
    for index, scan in enumerate(CHANNELS):
        assert found[scan].item() == pytest.approx(theirs[0, 0, index * VOXELS].item(), rel=1e-6)  # captum sums in float32


def test_the_scans_values_add_up_to_the_evidence_above_that_of_an_empty_brain():
    net = made().double()
    patches, position = inputs(net, batch=3, n=9, dtype=torch.float64)
    for name, found in scores_by_scan(net, patches, position).items():
        torch.testing.assert_close(found["evidence"], evidence(net, name, patches, position))
        torch.testing.assert_close(found["empty"], evidence(net, name, torch.zeros_like(patches), position))
        torch.testing.assert_close(sum(found[scan] for scan in CHANNELS), found["evidence"] - found["empty"])


def test_in_a_linear_network_a_scans_value_is_what_it_adds():
    net = linear().double()
    patches, position = inputs(net, n=9, dtype=torch.float64)
    found = scores_by_scan(net, patches, position)["pfs"]
    for scan in CHANNELS:
        torch.testing.assert_close(found[scan], evidence(net, "pfs", only(patches, (scan,)), position) - found["empty"])


@pytest.mark.parametrize("scan", CHANNELS)
def test_a_network_that_reads_one_scan_gives_it_everything(scan: str):
    net = reading_only(scan)
    patches, position = inputs(net, n=9)
    scores = scores_by_scan(net, patches, position)
    maps = {("a method", "mgmt"): torch.rand(2, 9), ("one for all", ""): torch.rand(2, 9)}
    shares = maps_by_scan(maps, integrated_gradients_by_scan(net, patches, position), CHANNELS)
    for other in CHANNELS:
        for found in scores.values():
            whole = found["evidence"] - found["empty"]
            torch.testing.assert_close(found[other], whole if other == scan else torch.zeros(2), atol=1e-5, rtol=1e-4)
        for found in shares.values():
            torch.testing.assert_close(found[other], torch.full((2,), float(other == scan)))


def test_a_place_is_split_by_the_size_of_its_attributions_whatever_their_sign():
    attributions = {"mgmt": torch.tensor([[[3.0, -1, 0, 0], [0, 0, -2, 2], [0, 0, 0, 0]]])}
    found = maps_by_scan({("a method", "mgmt"): torch.tensor([[4.0, 2, 7]])}, attributions, CHANNELS)["a method", "mgmt"]
    # 4 is split 3 : 1, 2 is split 1 : 1; the 7 of a place without attribution takes no part
    assert [found[scan].item() for scan in CHANNELS] == pytest.approx([3 / 6, 1 / 6, 1 / 6, 1 / 6])


def test_a_map_of_no_endpoint_is_split_by_the_mean_of_the_endpoints():
    attributions = {"mgmt": torch.tensor([[[9.0, 0, 0, 0]]]), "os": torch.tensor([[[0, -1.0, 1, 0]]])}
    found = maps_by_scan({("rollout", ""): torch.ones(1, 1)}, attributions, CHANNELS)["rollout", ""]
    assert [found[scan].item() for scan in CHANNELS] == [0.5, 0.25, 0.25, 0]


def test_an_empty_map_has_no_shares():
    attributions = {"mgmt": torch.ones(2, 3, 4)}
    found = maps_by_scan({("a method", "mgmt"): torch.tensor([[0.0, 0, 0], [1, 0, 0]])}, attributions, CHANNELS)[
        "a method", "mgmt"
    ]
    for share in found.values():
        assert share[0].isnan()
        assert share[1] == 0.25
