"""The part of the bench that explains: rollout, and all maps of a prediction, beside the forward pass that they explain.

.venv/bin/python pipelines/bench.py --part rollout --threads 1 --memory
.venv/bin/python pipelines/bench.py --part tokens --threads 2 --repeats 1 --warm-up 0 --memory

`tokens` goes up to 27,000 (30³ patches of 8³ voxels, 240 mm at 1 mm) and takes half an hour and 4 GB.
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


WITHOUT = {"plain forward": Encoder.__call__, "rollout without matrices": partial(rollout, matrices=False)}
SMALL_PATCH, SMALL_SIDE = 8, 30  # of 240 mm at 1 mm: 27,000 positions
COUNTS = (686, 1372, 2744, 5488, 10976, 27000)  # tokens; a quarter of the grid, and on


def rollouts() -> Groups:
    ways = WITHOUT | {"rollout": rollout, "N×N product": full_product}
    return {
        f"rollout, {positions} places": {name: partial(explained, way, positions) for name, way in ways.items()}
        for positions in (FOREGROUND, GRID.positions)
    }


def explained(way: Callable[..., Tensor], positions: int) -> Callable[[], Tensor]:
    return timed(way, peaked_encoder(), patient(positions))


def by_tokens() -> Groups:
    """Small patches, so that the tokens and not the voxels are what grows."""
    return {f"{count} tokens": {name: partial(of_small_patches, way, count) for name, way in WITHOUT.items()} for count in COUNTS}


def of_small_patches(way: Callable[..., Tensor], count: int) -> Callable[[], Tensor]:
    patches = torch.randn(1, count, len(CHANNELS) * SMALL_PATCH**3, device=DEVICE)
    return timed(way, small_patch_encoder(), (patches, torch.arange(count, device=DEVICE)[None]))


@cache
def small_patch_encoder() -> Encoder:
    torch.manual_seed(0)
    return peaked(Encoder(len(CHANNELS) * SMALL_PATCH**3, SMALL_SIDE**3, *SIZES["B"]).to(DEVICE).eval())


def timed(way: Callable[..., Tensor], encoder: Encoder, batch: tuple[Tensor, Tensor]) -> Callable[[], Tensor]:
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


# What a prediction computes of one patient's maps: a network with one binary and one survival endpoint, the default methods.


def maps() -> Groups:
    return {
        f"maps, {positions} places": {
            name: partial(way, positions) for name, way in {"plain forward": passed, "maps": mapped}.items()
        }
        for positions in (FOREGROUND, GRID.positions)
    }


def passed(positions: int) -> Callable[[], Any]:
    net, batch = network(), patient(positions)

    def run() -> Any:
        with torch.no_grad(), autocast():
            return net(*batch)

    return run


def mapped(positions: int) -> Callable[[], Any]:
    from mri_vit.explain.methods.gradient import gradient_by_scan  # here, so that they do not weigh on rollout's own peak
    from mri_vit.explain.methods.patient_maps import make
    from mri_vit.settings.sections import Explain

    net, batch = network(), patient(positions)

    def run() -> Any:
        with autocast():
            made = make(net, *batch, Explain().methods)
            return made, gradient_by_scan(net, *batch, made.way_back)

    return run


@cache
def network() -> Any:
    from mri_vit.model.heads import Head  # here, for the same reason
    from mri_vit.model.network import Network

    torch.manual_seed(0)
    binary, survival = DEFAULT_ENDPOINTS[0], DEFAULT_ENDPOINTS[-1]
    net = Network(Model(size="B", drop_path=0.0), GRID, [Head(binary, "binary"), Head(survival, "hazard", (180.0, 365.0, 730.0))])
    for linear in net.head.values():
        nn.init.normal_(linear.weight, std=0.02)  # type: ignore[arg-type]  # as positions: a head of zeros has no gradient
    peaked(net.encoder)
    return net.to(DEVICE).eval()
