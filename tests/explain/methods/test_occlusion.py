"""Occlusion against one block left out at a time, and the maps of all methods together."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from made.network import inputs, linear, made
from made.volumes import LINEAR, contributions, plant, weighing

from mri_vit.explain.faithfulness import reader
from mri_vit.explain.methods import occlusion as module
from mri_vit.explain.methods import target
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.methods.gradient import gradient_by_scan
from mri_vit.explain.methods.occlusion import blocks, occlusion, occlusion_by_air
from mri_vit.explain.methods.patient_maps import make, relative
from mri_vit.explain.methods.rollout import cls_attention, rollout
from mri_vit.explain.methods.target import in_air, predicted
from mri_vit.model import heads
from mri_vit.model.encoder import Attention
from mri_vit.model.network import Network
from mri_vit.settings.sections import Grid, MapMethod


def block_of(position: int, side: int) -> tuple[int, int, int]:
    """The block's index from the place's: place = (i·side + j)·side + k."""
    return position // side // side // 2, position // side % side // 2, position % side // 2


def one_at_a_time(net: Network, patches: torch.Tensor, position: torch.Tensor) -> dict[str, torch.Tensor]:
    """One patient's maps [p]: the network run once without each block."""
    found = {}
    with torch.no_grad():
        full = net(patches[None], position[None])
        for head in net.heads:
            name, at = head.endpoint.name, [block_of(one, net.grid.side) for one in position.tolist()]
            value = {}
            for block in set(at):
                kept = torch.tensor([other != block for other in at])
                rest = net(patches[None, kept], position[None, kept])[name]
                fall = heads.evidence(head, full[name]) - heads.evidence(head, rest)
                value[block] = (heads.question(head, full[name]) * fall).clamp(min=0)
            found[name] = torch.cat([value[block] for block in at])
    return found


@pytest.mark.parametrize("side", [3, 4])  # with an odd side the last blocks are thinner
@pytest.mark.parametrize("n", [1, 5, 20, None])
def test_a_places_value_is_the_fall_when_its_block_alone_is_left_out(side: int, n: int | None):
    net = made(side=side).double()
    patches, position = inputs(net, batch=2, n=n, dtype=torch.float64)
    found = occlusion(net, patches, position)
    for i in range(2):
        for name, expected in one_at_a_time(net, patches[i], position[i]).items():
            torch.testing.assert_close(found[name][i], expected, atol=1e-10, rtol=1e-10)


def test_small_passes_give_what_one_pass_gives(monkeypatch: pytest.MonkeyPatch):
    net = made(side=4)
    patches, position = inputs(net, n=40)
    whole = occlusion(net, patches, position)
    monkeypatch.setattr(module, "PASS_TOKENS", 90)  # two blocks at a time
    for name, value in occlusion(net, patches, position).items():
        torch.testing.assert_close(value, whole[name], atol=1e-5, rtol=1e-4)


def test_the_only_block_of_a_patient_is_compared_with_cls_alone():
    net = made(side=4)
    position = torch.tensor([[0, 1, 4, 21]])  # 0, 1 and 4 share the first block with 21 = (1, 1, 1)
    patches = inputs(net, batch=1, n=4)[0]
    found = occlusion(net, patches, position)["pfs"][0]
    with torch.no_grad():
        full, alone = net(patches, position)["pfs"][0, 0], net(patches[:, :0], position[:, :0])["pfs"][0, 0]
    torch.testing.assert_close(found, (full - alone).clamp(min=0).expand(4))


def test_the_blocks_tile_the_grid():
    tiles = blocks(torch.arange(14**3), side=14)
    assert tiles.shape == (7**3, 14**3)
    assert (tiles.sum(dim=0) == 1).all()
    assert (tiles.sum(dim=1) == 8).all()
    corner = torch.tensor([0, 1, 14, 15, 196, 197, 210, 211])  # (0 or 1)·196 + (0 or 1)·14 + (0 or 1)
    assert tiles[0].nonzero()[:, 0].tolist() == corner.tolist()


def test_only_what_the_network_reads_is_missed():
    net = linear(side=4)
    patches, position = torch.zeros(1, 64, 32), torch.arange(64)[None]
    read = slice(0, 2)  # two places of the first block
    (slope,) = torch.autograd.grad(net(patches.requires_grad_(), position)["pfs"].sum(), patches)
    patches = patches.detach()
    patches[:, read] = 100 * slope[:, read].sign()
    found = occlusion(net, patches, position)["pfs"][0]
    assert found[blocks(position[0], 4)[0]].min() > 10 * found[~blocks(position[0], 4)[0]].max()


# --- All methods together ----------------------------------------------------------------------------------------------------


def test_every_named_method_has_a_map_for_each_endpoint_or_one_for_all():
    net = made()
    patches, position = inputs(net, batch=2, n=9)
    asked = get_args(MapMethod)
    found = make(net, patches, position, asked).value
    names = {head.endpoint.name for head in net.heads}
    assert set(found) == {(m, name) for m in asked for name in (names if METHODS[m].per_endpoint else {""})}
    for value in found.values():
        assert value.shape == (2, 9)
        assert (value >= 0).all()
        assert not value.requires_grad


def test_rollout_is_as_published_and_leaves_clss_own_share_out():
    net = made()
    patches, position = inputs(net, n=9)
    found = make(net, patches, position, ["rollout", "cls_attention"]).value
    assert found["rollout", ""].equal(rollout(net.encoder, patches, position)[:, 1:])
    torch.testing.assert_close(
        found["cls_attention", ""], cls_attention(net.encoder, patches, position)[:, 1:], atol=1e-6, rtol=0
    )


def test_an_unknown_method_is_refused():
    net = made()
    with pytest.raises(KeyError, match="smoothgrad"):
        make(net, *inputs(net, n=3), ["smoothgrad"])


def test_relative_maps_have_a_mean_of_one_and_an_empty_one_stays_empty():
    value = torch.tensor([[1.0, 3, 0, 0], [0, 0, 0, 0]])
    assert relative(value).tolist() == [[1, 3, 0, 0], [0, 0, 0, 0]]
    assert relative(7 * value).tolist() == relative(value).tolist()


# --- Networks of volumes -----------------------------------------------------------------------------------------------------


def test_occlusion_of_a_linear_network_of_volumes_is_the_sum_of_its_weights_times_the_input_over_the_block(
    monkeypatch: pytest.MonkeyPatch,
):
    plant(monkeypatch)
    grid = Grid(edge=28, spacing_mm=8.0, patch=2)  # 14³ places, of which the network's box leaves some out
    net = weighing(grid)
    patches, position = torch.randn(2, 700, 4 * 2**3), torch.stack([torch.randperm(grid.positions)[:700] for _ in range(2)])
    found = occlusion_by_air(net, patches, position)
    with torch.no_grad():
        outputs = net(patches, position)
    outside = net.encoder.box.slot(position) == math.prod(net.encoder.box.sides)
    assert 0 < outside.sum() < outside.numel() / 2
    for head in LINEAR:
        name = head.endpoint.name
        sign = heads.question(head, outputs[name])
        with torch.no_grad():
            worth = F.pad(contributions(net, patches, position, name).flatten(1), (0, 1)).gather(
                1, net.encoder.box.slot(position)
            )
        for i in range(2):
            tiles = blocks(position[i], grid.side).float()
            expected = tiles.T @ (sign[i] * (tiles @ worth[i])).clamp(min=0)
            torch.testing.assert_close(found[name][i], expected, atol=1e-6, rtol=1e-4)
    assert any((found[head.endpoint.name] > 0).any() for head in LINEAR)


def test_what_a_network_of_volumes_is_not_given_is_air_to_it(monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    net = weighing(Grid(edge=8, spacing_mm=10.0, patch=2))
    patches, position = torch.randn(1, 30, 32), torch.randperm(64)[None, :30]
    given = torch.rand(7, 30) > 0.4
    found = in_air(net, patches[0], position[0], given, {head.endpoint.name: torch.ones(1) for head in net.heads})
    for row, kept in enumerate(given):
        left = patches * kept[None, :, None]
        with torch.no_grad():
            expected = target.evidences(net, net.encoder(left, position))
            without = target.evidences(net, net.encoder(patches[:, kept], position[:, kept]))
        for name, value in expected.items():
            torch.testing.assert_close(found[name][row], value[0])
            torch.testing.assert_close(found[name][row], without[name][0])  # a place that is not given lies in no volume


def test_deletion_of_a_network_of_volumes_takes_away_what_the_places_are_worth(monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    net = weighing(Grid(edge=8, spacing_mm=10.0, patch=2))
    position = torch.arange(64)[None]
    patches = torch.randn(1, 64, 32)
    brain = np.arange(10, 50)  # the other places are always given
    evidence = reader(net, patches, position, brain)
    worth = contributions(net, patches, position, "mgmt").flatten(1)[0].detach()
    sign = predicted(net, patches, position)["mgmt"]
    kept = torch.stack([torch.randperm(40)[:15] for _ in range(3)])
    fall = evidence(torch.arange(40)[None])["mgmt"] - evidence(kept)["mgmt"]
    gone = torch.stack([torch.tensor([i for i in range(40) if i not in row.tolist()]) for row in kept])
    torch.testing.assert_close(fall, sign * worth[torch.from_numpy(brain)[gone]].sum(dim=1), atol=1e-5, rtol=1e-4)


def test_maps_that_follow_attention_share_a_pass_forward_and_one_back(monkeypatch: pytest.MonkeyPatch):
    net, project = made(depth=3), Attention.project
    patches, position = inputs(net, n=9)
    runs = []
    monkeypatch.setattr(Attention, "project", lambda self, x: runs.append(self) or project(self, x))
    found = make(net, patches, position, ["rollout", "cls_attention", "gradient_attention", "gradient_rollout"])
    assert len(runs) == 2 * 3 + 2  # the blocks forward and back; the last block's row of CLS, and what the heads read of it
    shared = gradient_by_scan(net, patches, position, found.way_back)
    assert len(runs) == 2 * 3 + 2
    for name, apart in gradient_by_scan(net, patches, position).items():
        torch.testing.assert_close(shared[name], apart, atol=1e-6, rtol=1e-4)
