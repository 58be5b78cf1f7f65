"""The part of the bench that explains: rollout and gradient-weighted attention beside the forward pass that they explain.

.venv/bin/python pipelines/bench.py --part rollout --threads 1 --memory

Of this project only the encoder and rollout are imported at the head, so that a peak is the method's and not that of libraries
for scans and tables.
"""

from collections.abc import Callable
from functools import cache, partial, reduce
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.inputs import DEVICE, FOREGROUND, GRID, autocast, patient
from mri_vit.explain.methods.rollout import rollout
from mri_vit.model.encoder import Encoder
from mri_vit.settings.recipe import SIZES
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model

Groups = dict[str, dict[str, Callable[[], Callable[[], Any]]]]  # what is timed, by group and name, once built

PEAKED = 3.0  # times the initial query and key weights, so that the attention compared is far from uniform


def rollouts() -> Groups:
    ways = {"plain forward": Encoder.__call__, "rollout": rollout, "N×N product": full_product}
    return {
        f"rollout, {positions} places": {name: partial(explained, way, positions) for name, way in ways.items()}
        for positions in (FOREGROUND, GRID.positions)
    }


def explained(way: Callable[..., Tensor], positions: int) -> Callable[[], Tensor]:
    encoder, batch = peaked_encoder(), patient(positions)

    def run() -> Tensor:
        with torch.no_grad(), autocast():
            return way(encoder, *batch).float()

    return run


def difference(positions: int) -> float:
    """The largest difference of the two rollouts' CLS rows in single precision."""
    batch = patient(positions)
    with torch.no_grad():
        return (rollout(peaked_encoder(), *batch) - full_product(peaked_encoder(), *batch)).abs().max().item()


@cache
def peaked_encoder() -> Encoder:
    torch.manual_seed(0)
    return peaked(Encoder(len(CHANNELS) * GRID.patch**3, GRID.positions, *SIZES["B"]).to(DEVICE).eval())


def peaked(encoder: Encoder) -> Encoder:
    for block in encoder.layers:
        block.attention.qkv.weight.data[: 2 * block.attention.qkv.in_features] *= PEAKED
    return encoder


def full_product(encoder: Encoder, patches: Tensor, position: Tensor) -> Tensor:
    """Every matrix kept, then multiplied N×N: Abnar & Zuidema 2020 as it is usually written."""
    means = [attention.mean(dim=1) for attention in encoder.attention(patches, position)]
    mixed = [(mean + torch.eye(mean.shape[-1], device=DEVICE)) / 2 for mean in means]
    return reduce(lambda product, matrix: matrix @ product, mixed)[:, 0]


# Maps per endpoint, for a network with one binary and one survival endpoint.


def maps() -> Groups:
    names = ("plain forward", "rollout", "gradient-weighted attention")
    return {f"maps, {FOREGROUND} places": {name: partial(mapped, name) for name in names}}


def mapped(name: str) -> Callable[[], Any]:
    from mri_vit.explain.methods.gradient import gradient_attention  # here, so that it does not weigh on rollout's own peak

    ways: dict[str, Callable[..., Any]] = {
        "plain forward": torch.no_grad()(nn.Module.__call__),
        "rollout": lambda net, *batch: rollout(net.encoder, *batch),
        "gradient-weighted attention": gradient_attention,
    }
    net, batch = network(), patient(FOREGROUND)

    def run() -> Any:
        with autocast():
            return ways[name](net, *batch)

    return run


@cache
def network() -> nn.Module:
    from mri_vit.model.heads import Head  # here, for the same reason
    from mri_vit.model.network import Network

    torch.manual_seed(0)
    binary, survival = DEFAULT_ENDPOINTS[0], DEFAULT_ENDPOINTS[-1]
    net = Network(Model(size="B", drop_path=0.0), GRID, [Head(binary, "binary"), Head(survival, "hazard", (180.0, 365.0, 730.0))])
    for linear in net.head.values():
        nn.init.normal_(linear.weight, std=0.02)  # type: ignore[arg-type]  # as positions: a head of zeros has no gradient
    peaked(net.encoder)
    return net.to(DEVICE).eval()
