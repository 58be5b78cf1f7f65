"""Measures: every number of an inspection, of a network before and after training; a Subject goes in, Numbers come out.

Letters: p tokens that are given, n = p + 1 with CLS first, f filters, c channels, s patch edge, g places of the whole grid,
e grid edge, l layers, h heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.store import Inputs, all_tokens, token_file
from mri_vit.errors import UsageError
from mri_vit.explain.inspection import network as inspection
from mri_vit.explain.inspection.network import Components, HeadSteps
from mri_vit.explain.inspection.subject import Subject
from mri_vit.explain.methods.rollout import rollout
from mri_vit.model.network import Network
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

PATIENTS = 4  # over whom attention distances are averaged: heads differ by far more than patients do, and 2744 places take time
TOKENS_SHOWN = 3  # of the step-by-step table, beside the place itself and CLS: a table that fits a page
NUMBERS_SHOWN = 3  # of each vector, likewise
Point = tuple[float, float, float]  # RAS+ mm of the grid's frame


@dataclass(frozen=True, eq=False)
class Stage:
    """What one network says: before training, or after. Attention rows sum to 1, CLS first; `rolled` is rollout's CLS row."""

    components: dict[str, Components]  # by scan
    similarity: Float[np.ndarray, "g"]
    distance_mm: Float[np.ndarray, "l h"]
    of_place: Float[np.ndarray, "l h n"]
    of_cls: Float[np.ndarray, "l h n"]
    rolled: Float[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class Numbers:
    """All that the page shows. `layer` and `head` are counted from 1; `head` is None where maps show the heads' mean."""

    stages: dict[str, Stage]  # "before", "after"
    kept: dict[str, float]  # by scan: how much of their start the filters kept
    moved: Bool[np.ndarray, "g"]
    uniform_mm: float
    patients: int  # over whom distances are averaged
    tokens: Integer[np.ndarray, "p"]  # places of the first patient's tokens
    token: int  # the one inspected, counted from 0 without CLS
    place: int
    place_mm: Point
    asked_mm: Point | None
    layer: int
    head: int | None
    steps: HeadSteps
    scan: Float[np.ndarray, "e e e"]


def measure(subject: Subject, place_mm: Point | None = None, layer: int | None = None, head: int | None = None) -> Numbers:
    """Every number of the page; parameters as of `page.write`."""
    study, nets = subject.study, {"before": subject.before.eval(), "after": subject.after.eval()}
    _, depth, heads, _ = subject.after.model.shape
    shown_layer, shown_head = _counted("layer", layer, depth) or depth, _counted("head", head, heads)
    prepared = [tokens.load(token_file(study, p), study.channels) for p in subject.patients[:PATIENTS]]
    batches = [all_tokens(one, study) for one in prepared]
    places = batches[0][1][0].numpy()
    rolled = {stage: rollout(net.encoder, *_on(net, batches[0]))[0].float().cpu().numpy() for stage, net in nets.items()}
    peak = places[int(rolled["after"][1:].argmax())]
    token = inspection.nearest_token(places, place_mm or _point(inspection.centres_mm(study.grid)[peak]), study.grid)
    place = int(places[token])
    query = (shown_layer - 1, (shown_head or 1) - 1, token + 1)
    cubes = {stage: inspection.filters(net.encoder, study.grid) for stage, net in nets.items()}
    return Numbers(
        stages={stage: _stage(net, cubes[stage], batches, token, rolled[stage], study) for stage, net in nets.items()},
        kept={
            scan: inspection.kept_direction(cubes["before"][:, c], cubes["after"][:, c]) for c, scan in enumerate(study.channels)
        },
        moved=inspection.moved_positions(subject.before.encoder, subject.after.encoder),
        uniform_mm=float(np.mean([inspection.uniform_distance(given, study.grid) for _, given in batches])),
        patients=len(batches),
        tokens=places,
        token=token,
        place=place,
        place_mm=_point(inspection.centres_mm(study.grid)[place]),
        asked_mm=place_mm,
        layer=shown_layer,
        head=shown_head,
        steps=inspection.head_steps(subject.after.encoder, *_on(subject.after, batches[0]), *query),
        scan=tokens.to_volume(prepared[0])[study.channels.index(study.prepare.reference)].astype(np.float32),
    )


def _stage(
    net: Network,
    cubes: Float[np.ndarray, "f c s s s"],
    batches: Sequence[tuple[Float[Tensor, "_ _ k"], Integer[Tensor, "_ _"]]],  # as many places as each patient has
    token: int,
    rolled: Float[np.ndarray, "n"],
    study: Study,
) -> Stage:
    encoder, (first, *_) = net.encoder, batches
    far = [inspection.attention_distances(encoder, *_on(net, batch), study.grid) for batch in batches]
    of_cls, of_place = inspection.attention_rows(encoder, *_on(net, first), [0, token + 1])
    return Stage(
        components={scan: inspection.principal_components(cubes[:, c]) for c, scan in enumerate(study.channels)},
        similarity=inspection.position_similarity(encoder, int(first[1][0, token])),
        distance_mm=np.mean(far, axis=0),
        of_place=of_place,
        of_cls=of_cls,
        rolled=rolled,
    )


def step_rows(numbers: Numbers, grid: Grid) -> list[dict[str, Any]]:
    """The step-by-step table: the place itself, CLS, those most attended to, the rest together, and the sum of all.

    A row has `label`, `key`, `product`, `scaled`, `weight`, `value` and `weighted`; of vectors the first numbers, and None
    where a row has none.
    """
    steps, own = numbers.steps, numbers.token + 1
    order = [int(i) for i in np.argsort(-steps.weights, kind="stable") if i not in (0, own)]
    shown = [own, 0, *order[:TOKENS_SHOWN]]
    centre = inspection.centres_mm(grid)
    weighted = steps.weights[:, None] * steps.values
    rows = []
    for index in shown:
        label = "CLS" if index == 0 else millimetres(_point(centre[numbers.tokens[index - 1]]))
        rows.append(
            {
                "label": f"{label}, the place itself" if index == own else label,
                "key": steps.keys[index, :NUMBERS_SHOWN],
                "product": steps.products[index],
                "scaled": steps.scaled[index],
                "weight": steps.weights[index],
                "value": steps.values[index, :NUMBERS_SHOWN],
                "weighted": weighted[index, :NUMBERS_SHOWN],
            }
        )
    blank = dict.fromkeys(("key", "product", "scaled", "value"))
    rest = np.setdiff1d(np.arange(len(steps.weights)), shown)
    if len(rest):
        label = f"the other {len(rest)} tokens together"
        rows.append(
            {"label": label, **blank, "weight": steps.weights[rest].sum(), "weighted": weighted[rest].sum(axis=0)[:NUMBERS_SHOWN]}
        )
    rows.append({"label": "sum", **blank, "weight": steps.weights.sum(), "weighted": steps.output[:NUMBERS_SHOWN]})
    return rows


def millimetres(point: Point) -> str:
    """A point as "(12, −30, 41)"."""
    return "(" + ", ".join(f"{round(x):d}".replace("-", "−") for x in point) + ")"


def chosen(rows: Float[np.ndarray, "l h n"], numbers: Numbers) -> Float[np.ndarray, "n"]:
    """The shown layer's row of the shown head, or the mean over its heads."""
    layer = rows[numbers.layer - 1]
    return layer.mean(axis=0) if numbers.head is None else layer[numbers.head - 1]


def relative(rows: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... p"]:
    """The places' part of attention rows in times the uniform map: its mean over places is 1."""
    places = rows[..., 1:]
    even = places.mean(axis=-1, keepdims=True)
    return np.divide(places, even, out=np.zeros_like(places), where=even > 0)


def _counted(name: str, value: int | None, most: int) -> int | None:
    """A layer or head counted from 1. Raises UsageError when there is none such."""
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{name} {value}: the network has {name}s 1 to {most}")
    return value


def _on(net: Network, batch: Inputs) -> Inputs:
    """The batch on the network's device."""
    patches, place = batch
    return patches.to(net.encoder.cls.device), place.to(net.encoder.cls.device)


def _point(centre: Float[np.ndarray, "3"]) -> Point:
    return float(centre[0]), float(centre[1]), float(centre[2])
