"""What a Vision Transformer has learned, as numbers: filters, positions, how far heads look, and one head step by step.

After Dosovitskiy et al. 2021 (arXiv:2010.11929), Figure 7, carried to three dimensions and to millimetres.

Letters: p tokens that are given, n = p + 1 with CLS first, k numbers in a patch, f filters, c channels, s patch edge,
m components, g places of the whole grid, l layers, h heads, q queries, r rows at a time, e numbers in a head's vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.model.encoder import ROWS, Attention, ConvolutionalStem, Encoder, TexturedStem, attention_weights
from mri_vit.settings.sections import Grid

COMPONENTS = 28  # as many as Dosovitskiy et al. 2021 show in Figure 7 (left)
UNIT_PATCHES = 256  # at a time through a convolutional stem: 16 MB of input at 16³ voxels in four scans


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of a scan's filters: `cubes` of length 1, and each one's `share` of the filters' variance."""

    cubes: Float[np.ndarray, "m s s s"]
    share: Float[np.ndarray, "m"]


@dataclass(frozen=True, eq=False)
class HeadSteps:
    """One head's attention for one query token, as every number that it takes; row 0 of what has n rows is CLS.

    `products` are q·k, `scaled` q·k/√e, `weights` their softmax, and `output` is the sum of weights × values.
    `model_output` is the same as the model itself computes it, by PyTorch's fused attention.
    """

    query: Float[np.ndarray, "e"]
    keys: Float[np.ndarray, "n e"]
    values: Float[np.ndarray, "n e"]
    products: Float[np.ndarray, "n"]
    scaled: Float[np.ndarray, "n"]
    weights: Float[np.ndarray, "n"]
    output: Float[np.ndarray, "e"]
    model_output: Float[np.ndarray, "e"]


def filters(encoder: Encoder, grid: Grid) -> Float[np.ndarray, "f c s s s"]:
    """The patch embedding as cubes, one per filter and scan.

    Of a linear embedding they are its weights, of a two-layer one those of its first map. A convolutional stem has no weight of
    its own for each voxel of a patch: there, one per number of the token, they are its response to unit patches.
    """
    embed = encoder.embed
    if isinstance(embed, ConvolutionalStem | TexturedStem):
        weight = unit_responses(embed)
    else:
        weight = cast("nn.Linear", embed[0] if isinstance(embed, nn.Sequential) else embed).weight
    weight = weight.detach().float().cpu().numpy()
    return rearrange(weight, "f (c x y z) -> f c x y z", c=encoder.channels, x=grid.patch, y=grid.patch, z=grid.patch)


@torch.no_grad()
def unit_responses(stem: ConvolutionalStem | TexturedStem) -> Float[Tensor, "f k"]:
    """What each voxel alone adds to a token: the stem's output for a patch that is 1 there and 0 elsewhere, less that for 0.

    Of a linear embedding this would be its weights. GELUs, and the logarithm of an energy, make it differ from the slope at
    another patch, and the sum over a patch's voxels is not the patch's token.
    """
    weight = next(stem.parameters())
    size = stem.channels * stem.edge**3
    empty = stem(weight.new_zeros(1, 1, size))[0]
    units = (F.one_hot(voxels, size).to(weight) for voxels in torch.arange(size).split(UNIT_PATCHES))
    return torch.cat([stem(some[None])[0] - empty for some in units]).T


def principal_components(cubes: Float[np.ndarray, "f s s s"]) -> Components:
    """The directions in which the filters of one scan differ most from each other, strongest first.

    Filters are the samples and voxels the variables; the mean filter is taken off. At most 28 components are kept. A
    component's sign means nothing: it is turned so that its largest number is positive.
    """
    rows = rearrange(cubes, "f x y z -> f (x y z)").astype(np.float64)
    _, spread, directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    count = min(COMPONENTS, len(rows) - 1, rows.shape[1])  # centred rows span one dimension less
    directions, variance = directions[:count], spread**2
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    share = variance[:count] / variance.sum()
    return Components((directions * np.sign(largest)).reshape(count, *cubes.shape[1:]), share)


def kept_direction(before: Float[np.ndarray, "f s s s"], after: Float[np.ndarray, "f s s s"]) -> float:
    """How much of their start the filters kept: the mean cosine of each filter with itself before training; 1 is all."""
    a, b = (rearrange(cubes, "f x y z -> f (x y z)").astype(np.float64) for cubes in (before, after))
    return float(((a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).mean())


def centres_mm(grid: Grid) -> Float[np.ndarray, "g 3"]:
    """The centre of every place in RAS+ mm of the grid's frame, in the order of places."""
    affine = np.array(grid.affine)
    index = np.stack(np.unravel_index(np.arange(grid.places), (grid.side,) * 3), axis=1)
    return affine[:3, 3] + grid.spacing_mm * (index * grid.patch + (grid.patch - 1) / 2)


def nearest_token(place: Int[np.ndarray, "p"], point_mm: tuple[float, float, float], grid: Grid) -> int:
    """Which of the given tokens has its centre nearest to a point of the grid's frame.

    Raises UsageError when the point lies outside the grid.
    """
    affine, point = np.array(grid.affine), np.array(point_mm, float)
    low = affine[:3, 3] - grid.spacing_mm / 2
    high = low + grid.spacing_mm * grid.edge
    if ((point < low) | (point > high)).any():
        ranges = ", ".join(f"{axis} {a:.0f} to {b:.0f}" for axis, a, b in zip("xyz", low, high, strict=True))
        words = ", ".join(f"{x:g}" for x in point_mm)
        raise UsageError(f"place ({words}) mm lies outside the grid; expected mm with {ranges}")
    return int(np.linalg.norm(centres_mm(grid)[place] - point, axis=1).argmin())


def position_similarity(encoder: Encoder, place: int) -> Float[np.ndarray, "g"]:
    """Cosine of the angle between one place's position embedding and every place's (CLS has none of these)."""
    positions = encoder.position[0, 1:].detach().double().cpu().numpy()
    positions /= np.linalg.norm(positions, axis=1, keepdims=True)
    return positions @ positions[place]


def moved_positions(before: Encoder, after: Encoder) -> np.ndarray:
    """Which places' position embeddings training changed, [g] of bool; it changes none that no training token sat at."""
    old, new = (encoder.position[0, 1:].detach().cpu() for encoder in (before, after))
    return (old != new).any(dim=1).numpy()


@torch.no_grad()
def attention_distances(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], place: Int[Tensor, "1 p"], grid: Grid
) -> Float[np.ndarray, "l h"]:
    """How far each head looks, in mm: the distance between query and key, weighted by attention, its mean over the queries.

    Distances are between the centres of places. CLS has no place: its row and its column are left out, and each row's other
    weights are made to sum to 1 again. Rows are taken in blocks, so that no [p p] matrix of a head is held.
    """
    centre = torch.from_numpy(centres_mm(grid)).to(patches)[place[0]]  # [p 3]
    means = []
    for attention, x in _inputs(encoder, patches, place):
        q, k, _ = attention.project(x)
        total = q.new_zeros(attention.heads)
        for start in range(0, len(centre), ROWS):
            rows = slice(start, start + ROWS)
            weights = attention_weights(q[:, :, 1:][:, :, rows], k[:, :, 1:])  # a softmax without CLS sums to 1 without it
            total += (weights[0] * _distance(centre[rows], centre)).sum(dim=(1, 2))
        means.append((total.double() / len(centre)).cpu().numpy())
    return np.stack(means)


def uniform_distance(place: Int[Tensor, "1 p"], grid: Grid) -> float:
    """What `attention_distances` gives, in mm, where every token attends to all alike."""
    centre = torch.from_numpy(centres_mm(grid))[place[0].cpu()]
    return float(np.mean([_distance(centre[None, token], centre).mean().item() for token in range(len(centre))]))


def _distance(a: Float[Tensor, "r 3"], b: Float[Tensor, "p 3"]) -> Float[Tensor, "r p"]:
    return (a[:, None] - b[None]).norm(dim=2)  # cdist's matrix product would leave a place some micrometres from itself


@torch.no_grad()
def attention_rows(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], place: Int[Tensor, "1 p"], queries: Sequence[int]
) -> Float[np.ndarray, "q l h n"]:
    """What these tokens attend to, in every layer and head; query 0 is CLS, token i of `place` is i + 1. Rows sum to 1."""
    rows = []
    for attention, x in _inputs(encoder, patches, place):
        q, k, _ = attention.project(x)
        rows.append(attention_weights(q[:, :, list(queries)], k)[0].float().cpu().numpy())
    return rearrange(np.stack(rows), "l h q n -> q l h n")


@torch.no_grad()
def head_steps(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], place: Int[Tensor, "1 p"], layer: int, head: int, query: int
) -> HeadSteps:
    """One head's attention for one token, step by step in double precision from the model's own q, k and v.

    `layer` and `head` are counted from 0; `query` as in `attention_rows`.
    """
    attention, x = next(islice(_inputs(encoder, patches, place), layer, None))
    projected = attention.project(x)
    model_output = F.scaled_dot_product_attention(*projected)[0, head, query]
    q, k, v = (part[0, head].double().cpu().numpy() for part in projected)
    products = k @ q[query]
    scaled = products / np.sqrt(q.shape[1])
    raised = np.exp(scaled - scaled.max())  # the largest taken off, which changes no weight and keeps exp finite
    weights = raised / raised.sum()
    return HeadSteps(q[query], k, v, products, scaled, weights, weights @ v, model_output.double().cpu().numpy())


def _inputs(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], place: Int[Tensor, "1 p"]
) -> Iterator[tuple[Attention, Float[Tensor, "1 n d"]]]:
    """Each layer's attention and what it reads."""
    x, before = encoder.tokens(patches, place), None
    for block in encoder.layers:
        x = before(x) if before else x  # a block's output is computed when the next block asks for it
        yield block.attention, block.norm1(x)
        before = block
