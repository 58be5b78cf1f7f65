"""Every number of an inspected Vision Transformer, before and after training: an `InspectedFold` goes in, `VitNumbers` come out.

Filters, positions, attention distances, and one head step by step, after Dosovitskiy et al. 2021 (arXiv:2010.11929), Figure 7,
carried to three dimensions and to millimetres.

Letters: p tokens that are given, n = p + 1 with CLS first, k numbers in a patch, f filters, c channels, s patch edge,
m components, g places of the whole grid, e grid edge (of a head: numbers in its vectors), l layers, h heads, q queries, r rows at
a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import Inputs, all_tokens, token_file
from mri_vit.errors import UsageError
from mri_vit.explain.methods.rollout import rollout
from mri_vit.model.encoder import ATTENTION_ROWS, Attention, ConvolutionalStem, Encoder, TexturedStem, attention_weights
from mri_vit.model.network import Network
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

# over which attention distances are averaged: heads differ by more than patients do, and 2744 positions take time
DISTANCE_PATIENTS = 4
TOKENS_SHOWN = 3  # of the step-by-step table, beside the position itself and CLS: a table that fits a page
NUMBERS_SHOWN = 3  # of each vector, likewise
COMPONENTS = 28  # as many as Dosovitskiy et al. 2021 show in Figure 7 (left)
UNIT_PATCHES = 256  # at a time through a convolutional stem: 16 MB of input at 16³ voxels in four scans
Point = tuple[float, float, float]  # RAS+ mm of the grid's frame


@dataclass(frozen=True, eq=False)
class InspectedFold:
    """What is inspected: a fold's network as training started and as it ended, and patients that it was not trained on.

    The first patient's scan is the one that attention is shown on. `study` is the network's own, as `comparators.networks` has
    it, and `name` is by what the run's tables know it.
    """

    study: Study
    title: str  # such as "demo, fold 1"
    before: Network
    after: Network
    patients: Sequence[Patient]
    train: Sequence[Patient] = ()
    name: str = VIT


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


@dataclass(frozen=True, eq=False)
class StageNumbers:
    """Numbers of one network, before training or after. Attention rows sum to 1, CLS first; `rolled` is rollout's CLS row."""

    components: dict[str, Components]  # by scan
    similarity: Float[np.ndarray, "g"]
    distance_mm: Float[np.ndarray, "l h"]
    of_place: Float[np.ndarray, "l h n"]
    of_cls: Float[np.ndarray, "l h n"]
    rolled: Float[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class VitNumbers:
    """All that the page shows. `layer` and `head` are counted from 1; `head` is None where maps show the heads' mean."""

    stages: dict[str, StageNumbers]  # "before", "after"
    kept: dict[str, float]  # by scan: how much of their start the filters kept
    moved: Bool[np.ndarray, "g"]
    uniform_mm: float
    patients: int  # over which distances are averaged
    tokens: Integer[np.ndarray, "p"]  # grid positions of the first patient's tokens
    token: int  # the one inspected, counted from 0 without CLS
    position: int
    position_mm: Point
    asked_mm: Point | None
    layer: int
    head: int | None
    steps: HeadSteps
    scan: Float[np.ndarray, "e e e"]


def measure_vit(
    subject: InspectedFold, position_mm: Point | None = None, layer: int | None = None, head: int | None = None
) -> VitNumbers:
    """Every number of the page; grid position in mm, layer and head counted from 1."""
    study, nets = subject.study, {"before": subject.before.eval(), "after": subject.after.eval()}
    _, depth, heads, _ = subject.after.model.shape
    shown_layer, shown_head = _counted("layer", layer, depth) or depth, _counted("head", head, heads)
    prepared = [tokens.load(token_file(study.prepared, p), study.channels) for p in subject.patients[:DISTANCE_PATIENTS]]
    batches = [all_tokens(patient, study.model) for patient in prepared]
    positions = batches[0][1][0].numpy()
    rolled = {stage: rollout(net.encoder, *_on(net, batches[0]))[0].float().cpu().numpy() for stage, net in nets.items()}
    peak = positions[int(rolled["after"][1:].argmax())]
    token = nearest_token(positions, position_mm or _point(centres_mm(study.grid)[peak]), study.grid)
    position = int(positions[token])
    query = (shown_layer - 1, (shown_head or 1) - 1, token + 1)
    cubes = {stage: filters(net.encoder, study.grid) for stage, net in nets.items()}
    return VitNumbers(
        stages={stage: _stage(net, cubes[stage], batches, token, rolled[stage], study) for stage, net in nets.items()},
        kept={scan: kept_direction(cubes["before"][:, c], cubes["after"][:, c]) for c, scan in enumerate(study.channels)},
        moved=moved_positions(subject.before.encoder, subject.after.encoder),
        uniform_mm=float(np.mean([uniform_distance(given, study.grid) for _, given in batches])),
        patients=len(batches),
        tokens=positions,
        token=token,
        position=position,
        position_mm=_point(centres_mm(study.grid)[position]),
        asked_mm=position_mm,
        layer=shown_layer,
        head=shown_head,
        steps=head_steps(subject.after.encoder, *_on(subject.after, batches[0]), *query),
        scan=tokens.to_volume(prepared[0])[study.channels.index(study.prepare.reference)].astype(np.float32),
    )


def _stage(
    net: Network,
    cubes: Float[np.ndarray, "f c s s s"],
    batches: Sequence[tuple[Float[Tensor, "_ _ k"], Integer[Tensor, "_ _"]]],  # as many grid positions as each patient has
    token: int,
    rolled: Float[np.ndarray, "n"],
    study: Study,
) -> StageNumbers:
    encoder, (first, *_) = net.encoder, batches
    far = [attention_distances(encoder, *_on(net, batch), study.grid) for batch in batches]
    of_cls, of_place = attention_rows(encoder, *_on(net, first), [0, token + 1])
    return StageNumbers(
        components={scan: principal_components(cubes[:, c]) for c, scan in enumerate(study.channels)},
        similarity=position_similarity(encoder, int(first[1][0, token])),
        distance_mm=np.mean(far, axis=0),
        of_place=of_place,
        of_cls=of_cls,
        rolled=rolled,
    )


def step_rows(numbers: VitNumbers, grid: Grid) -> list[dict[str, Any]]:
    """The step-by-step table: the position itself, CLS, those most attended to, the rest together, and the sum of all.

    A row has `label`, `key`, `product`, `scaled`, `weight`, `value` and `weighted`; of vectors the first numbers, and None
    where a row has none.
    """
    steps, own = numbers.steps, numbers.token + 1
    order = [int(i) for i in np.argsort(-steps.weights, kind="stable") if i not in (0, own)]
    shown = [own, 0, *order[:TOKENS_SHOWN]]
    weighted = steps.weights[:, None] * steps.values
    rows = []
    for index in shown:
        label = "CLS" if index == 0 else millimetres(_point(centres_mm(grid)[numbers.tokens[index - 1]]))
        rows.append(
            {
                "label": f"{label}, the position itself" if index == own else label,
                "key": steps.keys[index, :NUMBERS_SHOWN],
                "product": steps.products[index],
                "scaled": steps.scaled[index],
                "weight": steps.weights[index],
                "value": steps.values[index, :NUMBERS_SHOWN],
                "weighted": weighted[index, :NUMBERS_SHOWN],
            }
        )
    sums = [("sum", steps.weights.sum(), steps.output)]
    rest = np.setdiff1d(np.arange(len(steps.weights)), shown)
    if len(rest):
        sums.insert(0, (f"the other {len(rest)} tokens together", steps.weights[rest].sum(), weighted[rest].sum(axis=0)))
    blank = dict.fromkeys(("key", "product", "scaled", "value"))
    return rows + [{"label": label, **blank, "weight": sum, "weighted": out[:NUMBERS_SHOWN]} for label, sum, out in sums]


def millimetres(point: Point) -> str:
    """A point as "(12, −30, 41)"."""
    return "(" + ", ".join(f"{round(x):d}".replace("-", "−") for x in point) + ")"


def chosen(rows: Float[np.ndarray, "l h n"], numbers: VitNumbers) -> Float[np.ndarray, "n"]:
    """The shown layer's row of the shown head, or the mean over its heads."""
    layer = rows[numbers.layer - 1]
    return layer.mean(axis=0) if numbers.head is None else layer[numbers.head - 1]


def relative(rows: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... p"]:
    """Attention rows without CLS relative to a uniform map: the mean over grid positions is 1."""
    patches = rows[..., 1:]
    even = patches.mean(axis=-1, keepdims=True)
    return np.divide(patches, even, out=np.zeros_like(patches), where=even > 0)


def _counted(name: str, value: int | None, most: int) -> int | None:
    """A layer or head counted from 1. Raises UsageError when there is no such one."""
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{name} {value}: the network has {name}s 1 to {most}")
    return value


def _on(net: Network, batch: Inputs) -> Inputs:
    """The batch on the network's device."""
    patches, position = batch
    return patches.to(net.encoder.cls.device), position.to(net.encoder.cls.device)


def _point(centre: Float[np.ndarray, "3"]) -> Point:
    return float(centre[0]), float(centre[1]), float(centre[2])


# --- what is measured ----------------------------------------------------------------------------------------------------------


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
    """The mean cosine of each filter with itself before training; 1 is unchanged."""
    a, b = (rearrange(cubes, "f x y z -> f (x y z)").astype(np.float64) for cubes in (before, after))
    return float(((a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).mean())


def centres_mm(grid: Grid) -> Float[np.ndarray, "g 3"]:
    """The centre of every grid position in RAS+ mm of the grid's frame."""
    affine = np.array(grid.affine)
    index = np.stack(np.unravel_index(np.arange(grid.positions), (grid.side,) * 3), axis=1)
    return affine[:3, 3] + grid.spacing_mm * (index * grid.patch + (grid.patch - 1) / 2)


def nearest_token(position: Int[np.ndarray, "p"], point_mm: tuple[float, float, float], grid: Grid) -> int:
    """Which of the given tokens has its centre nearest to a point of the grid's frame.

    Raises UsageError when the point lies outside the grid.
    """
    affine, point = np.array(grid.affine), np.array(point_mm, float)
    low = affine[:3, 3] - grid.spacing_mm / 2
    high = low + grid.spacing_mm * grid.edge
    if ((point < low) | (point > high)).any():
        ranges = ", ".join(f"{axis} {a:.0f} to {b:.0f}" for axis, a, b in zip("xyz", low, high, strict=True))
        words = ", ".join(f"{x:g}" for x in point_mm)
        raise UsageError(f"position ({words}) mm lies outside the grid; expected mm with {ranges}")
    return int(np.linalg.norm(centres_mm(grid)[position] - point, axis=1).argmin())


def position_similarity(encoder: Encoder, position: int) -> Float[np.ndarray, "g"]:
    """Cosine of the angle between one position embedding and every other (CLS has no position)."""
    embeddings = encoder.position[0, 1:].detach().double().cpu().numpy()
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings @ embeddings[position]


def moved_positions(before: Encoder, after: Encoder) -> np.ndarray:
    """Which position embeddings training changed, [g] of bool: only those at which a training token lay."""
    old, new = (encoder.position[0, 1:].detach().cpu() for encoder in (before, after))
    return (old != new).any(dim=1).numpy()


@torch.no_grad()
def attention_distances(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], position: Int[Tensor, "1 p"], grid: Grid
) -> Float[np.ndarray, "l h"]:
    """Each head's attention distance in mm: from query to key, weighted by attention, its mean over the queries.

    Distances are between the centres of grid positions. CLS has none: its row and its column are left out, and each row's other
    weights are made to sum to 1 again. Rows are taken in blocks, so that no [p p] matrix of a head is held.
    """
    centre = torch.from_numpy(centres_mm(grid)).to(patches)[position[0]]  # [p 3]
    means = []
    for attention, x in _inputs(encoder, patches, position):
        q, k, _ = attention.project(x)
        total = q.new_zeros(attention.heads)
        for start in range(0, len(centre), ATTENTION_ROWS):
            rows = slice(start, start + ATTENTION_ROWS)
            weights = attention_weights(q[:, :, 1:][:, :, rows], k[:, :, 1:])  # a softmax without CLS sums to 1 without it
            total += (weights[0] * _distance(centre[rows], centre)).sum(dim=(1, 2))
        means.append((total.double() / len(centre)).cpu().numpy())
    return np.stack(means)


def uniform_distance(position: Int[Tensor, "1 p"], grid: Grid) -> float:
    """What `attention_distances` gives, in mm, for uniform attention."""
    centre = torch.from_numpy(centres_mm(grid))[position[0].cpu()]
    return float(np.mean([_distance(centre[None, token], centre).mean().item() for token in range(len(centre))]))


def _distance(a: Float[Tensor, "r 3"], b: Float[Tensor, "p 3"]) -> Float[Tensor, "r p"]:
    return (a[:, None] - b[None]).norm(dim=2)  # cdist's matrix product would leave a grid position some micrometres from itself


@torch.no_grad()
def attention_rows(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], position: Int[Tensor, "1 p"], queries: Sequence[int]
) -> Float[np.ndarray, "q l h n"]:
    """Attention rows of these tokens in every layer and head; query 0 is CLS, token i of `position` is i + 1. Rows sum to 1."""
    rows = []
    for attention, x in _inputs(encoder, patches, position):
        q, k, _ = attention.project(x)
        rows.append(attention_weights(q[:, :, list(queries)], k)[0].float().cpu().numpy())
    return rearrange(np.stack(rows), "l h q n -> q l h n")


@torch.no_grad()
def head_steps(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], position: Int[Tensor, "1 p"], layer: int, head: int, query: int
) -> HeadSteps:
    """One head's attention for one token, step by step in double precision from the model's own q, k and v.

    `layer` and `head` are counted from 0; `query` as in `attention_rows`.
    """
    attention, x = next(islice(_inputs(encoder, patches, position), layer, None))
    projected = attention.project(x)
    model_output = F.scaled_dot_product_attention(*projected)[0, head, query]
    q, k, v = (part[0, head].double().cpu().numpy() for part in projected)
    products = k @ q[query]
    scaled = products / np.sqrt(q.shape[1])
    raised = np.exp(scaled - scaled.max())  # the largest taken off, which changes no weight and keeps exp finite
    weights = raised / raised.sum()
    return HeadSteps(q[query], k, v, products, scaled, weights, weights @ v, model_output.double().cpu().numpy())


def _inputs(
    encoder: Encoder, patches: Float[Tensor, "1 p k"], position: Int[Tensor, "1 p"]
) -> Iterator[tuple[Attention, Float[Tensor, "1 n d"]]]:
    """Each layer's attention and what it reads."""
    x, before = encoder.tokens(patches, position), None
    for block in encoder.layers:
        x = before(x) if before else x  # a block's output is computed when the next block asks for it
        yield block.attention, block.norm1(x)
        before = block
