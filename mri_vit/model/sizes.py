"""Sizes of our own Vision Transformer by arithmetic: weights, operations, what a pass keeps. No torch, so that `check` is quick.

`network.flops` and `network.activation_bytes` count the same by running shapes through the network, for any network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mri_vit.settings.recipe import Model
from mri_vit.settings.sections import Grid


@dataclass(frozen=True)
class Layer:
    """One layer on one patient; a function without weights has neither these nor operations, as `network.flops` counts."""

    weights: int = 0
    operations: int = 0
    kept: int = 0  # numbers that it puts out, kept for the backward pass


def layers(model: Model, grid: Grid, channels: int, tokens: int) -> Iterator[Layer]:
    """The encoder's layers on a patient of so many grid positions, in the order of `model.encoder.Encoder`."""
    dim, depth, _, mlp = model.shape
    n = tokens + 1  # with CLS
    yield from _embedding(model, grid, channels, tokens)
    yield Layer(weights=dim + (grid.positions + 1) * dim)  # CLS, and the embeddings of all positions
    for _ in range(depth):
        yield _norm(dim, n)
        yield _linear(dim, 3 * dim, n)
        yield Layer(operations=2 * 2 * n * n * dim)  # queries by keys, and weights by values
        yield _linear(dim, dim, n)
        yield _norm(dim, n)
        yield _linear(dim, mlp, n)
        yield Layer(kept=n * mlp)  # GELU
        yield _linear(mlp, dim, n)
    yield _norm(dim, 1 if model.pool == "cls" or not tokens else n)


def _embedding(model: Model, grid: Grid, channels: int, tokens: int) -> Iterator[Layer]:
    dim, _, _, _ = model.shape
    if not model.conv_stem:
        size = channels * grid.patch**3
        if model.stem:
            yield _linear(size, model.stem, tokens)
            yield Layer(kept=tokens * model.stem)
        yield _linear(model.stem or size, dim, tokens)
        return
    read = channels * (2 if model.texture else 1)  # a textured stem reads each sequence as it is and evened
    given, edge, width = read, grid.patch, model.conv_stem
    while edge > 2:
        edge = (edge + 1) // 2
        yield _convolution(given, width, 3, edge, tokens)
        yield Layer(kept=tokens * width * edge**3)
        given, width = width, 2 * width
    yield _convolution(given, dim, edge, 1, tokens)
    if model.texture:
        kernel = min(3, grid.patch)
        filters = _convolution(read, model.texture, kernel, grid.patch - kernel + 1, tokens)
        yield Layer(filters.weights - model.texture, filters.operations)  # no bias; their responses are squared at once
        yield _linear(model.texture, dim, tokens)


def _linear(given: int, out: int, rows: int) -> Layer:
    return Layer((given + 1) * out, 2 * rows * given * out, rows * out)


def _convolution(given: int, out: int, kernel: int, edge: int, patches: int) -> Layer:
    """Its output has an edge of so many voxels."""
    return Layer((given * kernel**3 + 1) * out, 2 * patches * edge**3 * given * kernel**3 * out, patches * edge**3 * out)


def _norm(dim: int, rows: int) -> Layer:
    return Layer(weights=2 * dim, kept=rows * dim)
