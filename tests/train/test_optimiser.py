"""Who learns how fast: the schedule, each parameter's share of it, and who is not decayed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import Endpoint, Model, Study
from mri_vit.settings.sections import Grid
from mri_vit.train.loop import Rates, optimiser, rate, set_rates

MODEL = Model(dim=16, depth=3, heads=2, mlp=24, conv_stem=4)
GRID = Grid(edge=8, spacing_mm=10.0, patch=4)


@pytest.fixture
def net() -> Network:
    torch.manual_seed(0)
    return Network(MODEL, GRID, [Head(Endpoint(name="mgmt", kind="binary"), "binary")])


def trained_with(study: Study, **changes: Any) -> Study:
    return study.model_copy(update={"train": study.train.model_copy(update=changes)})


def groups(net: nn.Module, study: Study, step: int | None = None, steps: int = 100) -> dict[str, dict[str, Any]]:
    """Each parameter's group, by the parameter's name."""
    adamw = optimiser(net, study)
    if step is not None:
        set_rates(adamw, step, steps, Rates(study.train.learning_rate, study.train.warmup, study.train.freeze_fraction))
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    listed = [(names[id(parameter)], group) for group in adamw.param_groups for parameter in group["params"]]
    assert sorted(name for name, _ in listed) == sorted(names.values())  # each once
    return dict(listed)


def test_the_rate_rises_to_its_peak_and_falls_to_zero(tiny):
    rates = [rate(step, 100, tiny.train.learning_rate, tiny.train.warmup) for step in range(101)]
    assert max(rates) == rates[9] == tiny.train.learning_rate
    assert rates[100] == pytest.approx(0, abs=1e-12)
    assert all(a < b for a, b in itertools.pairwise(rates[:10]))
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))


def test_each_block_learns_slower_than_the_one_behind_it_and_the_patch_embedding_slowest(tiny, net):
    found = groups(net, trained_with(tiny, layer_decay=0.5, embedding_lr_factor=0.2))
    expected = {
        "head.mgmt.weight": 1,
        "head.mgmt.bias": 1,
        "encoder.norm.weight": 1,
        "encoder.blocks.2.mlp.0.weight": 1 / 2,
        "encoder.blocks.1.norm1.bias": 1 / 4,
        "encoder.blocks.0.attention.qkv.weight": 1 / 8,
        "encoder.position": 1 / 16,
        "encoder.cls": 1 / 16,
        "encoder.embed.layers.0.weight": 0.2 / 16,
        "encoder.embed.layers.2.bias": 0.2 / 16,
    }
    assert {name: found[name]["share"] for name in expected} == pytest.approx(expected)


def test_with_the_options_off_everything_learns_at_the_schedules_rate(tiny, net):
    assert {group["lr"] for group in groups(net, tiny, step=30).values()} == {
        rate(30, 100, tiny.train.learning_rate, tiny.train.warmup)
    }


def test_a_first_step_moves_each_weight_by_its_share_of_the_rate(tiny, net):
    study = trained_with(tiny, layer_decay=0.5, embedding_lr_factor=0.2, weight_decay=0.0, learning_rate=1e-3)
    adamw = optimiser(net, study)
    shares = {id(parameter): group["share"] for group in adamw.param_groups for parameter in group["params"]}
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    set_rates(adamw, 40, 100, Rates(study.train.learning_rate, study.train.warmup))
    adamw.step()  # Adam's first step is the rate itself, whatever the size of the gradient
    for name, parameter in net.named_parameters():
        moved = torch.full_like(parameter, rate(40, 100, study.train.learning_rate, study.train.warmup) * shares[id(parameter)])
        torch.testing.assert_close(before[name] - parameter.detach(), moved, rtol=1e-2, atol=1e-7)


def test_weights_of_linear_maps_and_convolutions_are_decayed_and_nothing_else(tiny, net):
    decayed = {
        f"{name}.weight" for name, module in net.named_modules() if isinstance(module, nn.Linear | nn.Conv3d)
    }  # "position" and "cls" belong to the encoder itself
    found = groups(net, trained_with(tiny, weight_decay=0.05))
    assert {name for name, group in found.items() if group["weight_decay"]} == decayed
    assert {group["weight_decay"] for group in found.values()} == {0.0, 0.05}


@pytest.mark.parametrize(("frozen", "first"), [(0.0, 0), (0.25, 3), (0.5, 5), (1.0, 10)])  # of ten steps
def test_for_the_frozen_share_of_steps_the_heads_learn_alone(tiny, net, frozen: float, first: int):
    study = trained_with(tiny, freeze_fraction=frozen)
    for step in range(10):
        of_heads, of_others = set(), set()
        for name, group in groups(net, study, step, steps=10).items():
            (of_heads if name.startswith("head.") else of_others).add(group["lr"])
        assert of_heads == {rate(step, 10, study.train.learning_rate, study.train.warmup)}
        assert of_others == ({rate(step, 10, study.train.learning_rate, study.train.warmup)} if step >= first else {0.0})


def test_a_network_without_blocks_has_one_rate_but_for_its_frozen_share(tiny):
    trunk = nn.Sequential(nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2))
    net = nn.ModuleDict({"encoder": nn.ModuleDict({"net": trunk}), "head": nn.Linear(2, 1)})
    found = groups(net, trained_with(tiny, layer_decay=0.5, embedding_lr_factor=0.2))
    assert {group["share"] for group in found.values()} == {1.0}
    assert {name for name, group in found.items() if group["head"]} == {"head.weight", "head.bias"}
