"""A patient's maps by one network: computed once, before anything is written, for pictures and for scores alike.

Letters: b patients, p tokens that are given, k numbers in a patch, f those of a patient's grid positions that hold brain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import Inputs, all_tokens, token_file
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, read_mask
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.explain.methods.gradient import (
    WEIGHTS,
    WayBack,
    gradcam_by_place,
    gradient_by_scan,
    integrated_gradients,
    layer_mm,
    way_back,
)
from mri_vit.explain.methods.occlusion import occlusion, occlusion_by_air, scores_by_scan
from mri_vit.explain.methods.rollout import HEADS, carried_back, cls_row, forward_pass, held_by_default
from mri_vit.explain.methods.target import Questions, predicted, questions_of
from mri_vit.model import heads
from mri_vit.model.encoder import Encoder
from mri_vit.model.heads import Head
from mri_vit.model.network import Network, with_heads
from mri_vit.settings.schema import NO_BLOCK, Study
from mri_vit.settings.sections import Explain

Key = tuple[str, str]  # method and endpoint, "" where the map is the same for every endpoint
PER_ENDPOINT = {
    "integrated_gradients": integrated_gradients,
    "occlusion": occlusion,
    "gradcam": gradcam_by_place,
    "occlusion_by_air": occlusion_by_air,
}
SHARES = ("rollout", "cls_attention")  # their row over CLS and the grid positions sums to 1, so CLS's own share is known


@dataclass(frozen=True, eq=False)
class NetworkInput:
    """What a network reads of a patient, the indices of the brain's positions in it, and these positions on the grid."""

    batch: Inputs
    brain: Integer[np.ndarray, "f"]
    at: Int[np.ndarray, "f"]


@dataclass(frozen=True, eq=False)
class MapResult:
    """One map: its value relative to a uniform map at each grid position, CLS's share where it has one, each sequence's share."""

    method: str
    endpoint: str
    explains: str  # the prediction that it explains, such as "mgmt = 1"
    of_class: str  # the class that was asked for beside the prediction; "" of the prediction's own maps
    value: Float[np.ndarray, "f"]
    cls_share: float | None
    by_scan: dict[str, float] | None  # None where there is nothing to share
    note: str  # what a reader may take from it

    @property
    def title(self) -> str:
        return f"{METHODS[self.method].title}{' for ' if self.explains else ''}{self.explains}"

    @property
    def place(self) -> tuple[str, str, str]:
        """What no other map of the patient shares: method, endpoint and class."""
        return self.method, self.endpoint, self.of_class


@dataclass(frozen=True, eq=False)
class Made:
    """Maps by method and endpoint, what those of an endpoint explain, and the way back that they share, where one was made."""

    value: dict[Key, Float[Tensor, "b p"]]
    questions: Questions
    way_back: WayBack | None


@dataclass(frozen=True, eq=False)
class PatientMaps:
    """One patient's maps by the network that is explained, for what `questions` name."""

    patient: Patient
    net: Network
    prepared: Tokens
    input: NetworkInput
    made: Made  # on all grid positions that the network reads
    asked: Explain

    @property
    def questions(self) -> Questions:
        return self.made.questions

    @property
    def value(self) -> dict[Key, Float[Tensor, "1 p"]]:
        return self.made.value

    @cached_property
    def tumour(self) -> Volume | None:
        """The tumour mask, read once for pictures and scores; None where there is none."""
        return read_mask(self.patient.judging_mask) if self.patient.judging_mask else None

    @cached_property
    def results(self) -> list[MapResult]:
        """The maps on the grid positions with brain, in the order of the study's methods, as they are written; then, where the
        study asks for every class, those of the classes that are not predicted.
        """
        return [*self._results(self.net, self.made), *(self._of_other_classes() if self.asked.every_class else ())]

    def _results(self, net: Network, made: Made, of_class: str = "") -> Iterator[MapResult]:
        attributions = gradient_by_scan(net, *self.input.batch, made.way_back, made.questions)
        by_scan = maps_by_scan(made.value, attributions, net.channels)
        explains = {head.endpoint.name: _explains(head, made.questions) for head in net.heads}
        for (method, endpoint), value in made.value.items():
            shares = _numbers(by_scan[method, endpoint])
            yield MapResult(
                method,
                endpoint,
                explains.get(endpoint, ""),
                of_class,
                relative(value[:, torch.from_numpy(self.input.brain).to(value.device)])[0].cpu().numpy(),
                round(1 - float(value.sum()), 4) if method in SHARES else None,
                None if any(map(math.isnan, shares.values())) else shares,
                note(method, net),
            )

    def _of_other_classes(self) -> Iterator[MapResult]:
        """By those methods alone whose maps depend on the endpoint."""
        methods = [method for method in self.asked.methods if METHODS[method].per_endpoint]
        for head in self.net.heads if methods else ():
            name, net = head.endpoint.name, with_heads(self.net, [head.endpoint.name])
            for of_class, question in heads.of(head.endpoint).asked(head).items():
                if question != float(self.questions[name][0]):
                    asked = {name: torch.full_like(self.questions[name], question)}
                    yield from self._results(net, make(net, *self.input.batch, methods, asked), of_class)

    @cached_property
    def score_by_scan(self) -> dict[str, dict[str, float]]:
        """By endpoint each sequence's part of the evidence, by `scores_by_scan`."""
        return {name: _numbers(parts) for name, parts in scores_by_scan(self.net, *self.input.batch).items()}


def of_patient(patient: Patient, net: Network, study: Study, called: Mapping[str, int] | None = None) -> PatientMaps:
    """The maps of the study's methods; the patient is prepared and the network in evaluation mode, on any device.

    `called` are questions by endpoint (`heads.question`) that the maps answer instead of what this network predicts.
    """
    prepared = tokens.load(token_file(study.prepared, patient), study.channels)
    device = next(net.parameters()).device
    read = network_input(prepared, study, device)
    wanted = {name: torch.tensor([float(question)], device=device) for name, question in (called or {}).items()}
    return PatientMaps(patient, net, prepared, read, make(net, *read.batch, study.explain.methods, wanted), study.explain)


def network_input(prepared: Tokens, study: Study, device: torch.device) -> NetworkInput:
    """What the network reads of a patient; a network on all positions reads air as well, on which no map is judged."""
    patches, position = all_tokens(prepared, study.model)
    brain = np.flatnonzero(np.isin(position[0].numpy(), prepared.position))
    return NetworkInput((patches.to(device), position.to(device)), brain, position[0].numpy()[brain])


def on_brain(value: dict[Key, Float[Tensor, "1 p"]], read: NetworkInput) -> dict[Key, Float[np.ndarray, "f"]]:
    """Maps on the brain's positions alone."""
    return {key: relevance[0].detach().cpu().numpy()[read.brain] for key, relevance in value.items()}


def make(
    net: Network,
    patches: Float[Tensor, "b p k"],
    position: Int[Tensor, "b p"],
    methods: Sequence[str],
    questions: Questions | None = None,
) -> Made:
    """The maps of `methods` (of catalogue.METHODS) by method and endpoint, "" where the map is the same for every endpoint.

    `questions` are what the maps per endpoint are to explain (see target.py); what is predicted where not given. Maps are ≥ 0,
    each in its own unit; `relative` gives one unit. Raises ValueError for a Vision Transformer without a block, which has no
    attention.
    Methods that follow attention share a pass forward, and one back.
    """
    value: dict[Key, Float[Tensor, "b p"]] = {}
    passed = back = None
    if isinstance(net.encoder, Encoder):
        if not net.encoder.layers:
            raise ValueError(NO_BLOCK)
        held = "rollout" in methods and held_by_default(net.encoder, patches)
        passed = forward_pass(net.encoder, patches, position, fuse=HEADS["mean"] if held else None)
        questions = questions_of(net, passed.readout(), questions)
        if not WEIGHTS.keys().isdisjoint(methods):
            back = way_back(net, passed, questions, methods)
    else:
        questions = predicted(net, patches, position, questions)
    for method in methods:
        if passed and method in SHARES:
            row = carried_back(passed) if method == "rollout" else cls_row(passed)
            value[method, ""] = row[:, 1:]  # CLS's own share belongs to no grid position
        elif back and method in WEIGHTS:
            value |= {key: row[:, 1:] for key, row in back.rows.items() if key[0] == method}
        else:
            value |= {(method, name): each for name, each in PER_ENDPOINT[method](net, patches, position, questions).items()}
    return Made(value, questions, back)


def maps_by_scan(
    maps: Mapping[Key, Float[Tensor, "b p"]],
    attributions: Mapping[str, Float[Tensor, "b p c"]],
    channels: Sequence[str],
) -> dict[Key, dict[str, Float[Tensor, "b"]]]:
    """How much of each map comes from each scan.

    Definition: a grid position's value is split among its scans in proportion to the size of their attributions there,
    and each scan's part is summed over the grid positions. A map that belongs to no endpoint ("") is split by the mean of the
    endpoints' proportions. Places at which no scan has an attribution, as background has none, are left out.
    Assumption: what makes a position matter to the map also makes its voxels matter to the evidence. The shares describe where
    both meet; they are no part of the map's method.

    `maps` are by method and endpoint, as `make` gives them; `attributions` of the same grid positions are as
    `gradient.gradient_by_scan` or `integrated_gradients_by_scan` give them. The shares add up to 1; NaN where the map is zero
    throughout.
    """
    proportion = {}
    for name, attribution in attributions.items():
        total = attribution.abs().sum(dim=2, keepdim=True)
        proportion[name] = torch.where(total > 0, attribution.abs() / total, 0)
    proportion[""] = torch.stack(list(proportion.values())).mean(dim=0)
    shares = {}
    for (method, endpoint), value in maps.items():
        part = torch.einsum("bp,bpc->bc", value, proportion[endpoint])
        share = part / part.sum(dim=1, keepdim=True)  # 0/0 is NaN
        shares[method, endpoint] = dict(zip(channels, share.unbind(dim=1), strict=True))
    return shares


def relative(value: Float[Tensor, "b p"]) -> Float[Tensor, "b p"]:
    """Relative to a uniform map: each patient's mean over positions becomes 1; a map that is zero everywhere stays so."""
    mean = value.mean(dim=1, keepdim=True)
    return torch.where(mean > 0, value / mean, value)


def note(method: str, net: Network) -> str:
    """What a map shows; of Grad-CAM also how finely, which is the network's layer's."""
    if method != "gradcam":
        return METHODS[method].meaning
    voxels, edges_mm = layer_mm(net)
    count, size = (" × ".join(f"{value:.0f}" for value in along) for along in (voxels, edges_mm))
    return (
        f"{METHODS[method].meaning} The layer has {count} voxels of {size} mm over the head: the map is no finer, and may be off "
        "by half a voxel."
    )


def _explains(head: Head, questions: Questions) -> str:
    """What an endpoint's maps explain, such as "mgmt = 1" or "higher risk (os)"."""
    return heads.of(head.endpoint).explains(head, float(questions[head.endpoint.name][0]))


def _numbers(tensors: Mapping[str, Float[Tensor, "1"]]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in tensors.items()}
