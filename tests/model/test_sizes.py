"""Sizes by arithmetic against those that shapes show as they pass through the network."""

from __future__ import annotations

import pytest
import torch

from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.model.sizes import layers
from mri_vit.settings.recipe import Model
from mri_vit.settings.schema import CHANNELS
from mri_vit.settings.sections import Grid

SMALL = Model(dim=24, depth=2, heads=4, mlp=48)


@pytest.mark.parametrize(
    "model",
    [
        Model(size="B"),
        Model(size="S", stem=64),
        *(SMALL.model_copy(update={"pool": pool}) for pool in ("cls", "mean", "max")),
        SMALL.model_copy(update={"conv_stem": 6}),
        SMALL.model_copy(update={"conv_stem": 6, "texture": 5, "pool": "max"}),
        SMALL.model_copy(update={"depth": 0, "pool": "max", "conv_stem": 3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("patch", [2, 7, 8, 16])
def test_weights_operations_and_what_is_kept_are_those_of_the_network(model: Model, patch: int):
    grid, tokens = Grid(edge=patch * 4, patch=patch, spacing_mm=1.0), 11
    with torch.device("meta"):
        net = Network(model, grid, [], CHANNELS)
    patches = torch.empty(1, tokens, len(CHANNELS) * patch**3, device="meta")
    position = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    found = list(layers(model, grid, len(CHANNELS), tokens))
    assert sum(layer.weights for layer in found) == network.count_parameters(net)
    assert sum(layer.operations for layer in found) == network.flops(net.encoder, patches, position)
    assert 4 * (patches.numel() + sum(layer.kept for layer in found)) == network.activation_bytes(net.encoder, patches, position)
