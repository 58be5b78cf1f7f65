"""A patient's maps by one network: computed once, before anything is written, for pictures and for scores alike.

Letters: b patients, p tokens that are given, k numbers in a patch, f those of a patient's grid positions that hold brain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from mri_vit.explain.methods.target import TargetSigns, predicted, target_signs
from mri_vit.model import heads
from mri_vit.model.encoder import Encoder
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import NO_BLOCK, Study

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
    value: Float[np.ndarray, "f"]
    cls_share: float | None
    by_scan: dict[str, float] | None  # None where there is nothing to share
    note: str  # what a reader may take from it

    @property
    def title(self) -> str:
        return f"{METHODS[self.method].title}{' for ' if self.explains else ''}{self.explains}"


@dataclass(frozen=True, eq=False)
class Made:
    """Maps by method and endpoint, what those of an endpoint explain, and the way back that they share, where one was made."""

    value: dict[Key, Float[Tensor, "b p"]]
    signs: TargetSigns
    way_back: WayBack | None


@dataclass(frozen=True, eq=False)
class PatientMaps:
    """One patient's maps by the network that is explained, for the classes that `signs` name."""

    patient: Patient
    net: Network
    prepared: Tokens
    input: NetworkInput
    made: Made  # on all grid positions that the network reads

    @property
    def signs(self) -> TargetSigns:
        return self.made.signs

    @property
    def value(self) -> dict[Key, Float[Tensor, "1 p"]]:
        return self.made.value

    @cached_property
    def tumour(self) -> Volume | None:
        """The tumour mask, read once for pictures and scores; None where there is none."""
        return read_mask(self.patient.judging_mask) if self.patient.judging_mask else None

    @cached_property
    def results(self) -> list[MapResult]:
        """The maps on the grid positions with brain, in the order of the study's methods, as they are written."""
        attributions = gradient_by_scan(self.net, *self.input.batch, self.made.way_back)
        by_scan = maps_by_scan(self.value, attributions, self.net.channels)
        explains = {head.endpoint.name: _explains(head, self.signs) for head in self.net.heads}
        results = []
        for (method, endpoint), value in self.value.items():
            shares = _numbers(by_scan[method, endpoint])
            results.append(
                MapResult(
                    method,
                    endpoint,
                    explains.get(endpoint, ""),
                    relative(value[:, torch.from_numpy(self.input.brain).to(value.device)])[0].cpu().numpy(),
                    round(1 - float(value.sum()), 4) if method in SHARES else None,
                    None if any(map(math.isnan, shares.values())) else shares,
                    note(method, self.net),
                )
            )
        return results

    @cached_property
    def score_by_scan(self) -> dict[str, dict[str, float]]:
        """By endpoint each sequence's part of the evidence, by `scores_by_scan`."""
        return {name: _numbers(parts) for name, parts in scores_by_scan(self.net, *self.input.batch).items()}


def of_patient(patient: Patient, net: Network, study: Study, called: Mapping[str, int] | None = None) -> PatientMaps:
    """The maps of the study's methods; the patient is prepared and the network in evaluation mode, on any device.

    `called` are classes by endpoint, 1 or -1, that the maps explain instead of the classes which this network predicts.
    """
    prepared = tokens.load(token_file(study.prepared, patient), study.channels)
    device = next(net.parameters()).device
    read = network_input(prepared, study, device)
    wanted = {name: torch.tensor([float(sign)], device=device) for name, sign in (called or {}).items()}
    return PatientMaps(patient, net, prepared, read, make(net, *read.batch, study.explain.methods, wanted))


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
    signs: TargetSigns | None = None,
) -> Made:
    """The maps of `methods` (of catalogue.METHODS) by method and endpoint, "" where the map is the same for every endpoint.

    `signs` are what the maps per endpoint are to explain (see target.py); the predicted classes where not given. Maps are ≥ 0,
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
        signs = target_signs(net, passed.readout(), signs)
        if not WEIGHTS.keys().isdisjoint(methods):
            back = way_back(net, passed, signs, methods)
    else:
        signs = predicted(net, patches, position, signs)
    for method in methods:
        if passed and method in SHARES:
            row = carried_back(passed) if method == "rollout" else cls_row(passed)
            value[method, ""] = row[:, 1:]  # CLS's own share belongs to no grid position
        elif back and method in WEIGHTS:
            value |= {key: row[:, 1:] for key, row in back.rows.items() if key[0] == method}
        else:
            value |= {(method, name): each for name, each in PER_ENDPOINT[method](net, patches, position, signs).items()}
    return Made(value, signs, back)


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


def _explains(head: Head, signs: TargetSigns) -> str:
    """What an endpoint's maps explain: a class of a marker, or for survival the risk."""
    return heads.of(head.endpoint).explains(head, float(signs[head.endpoint.name][0]))


def _numbers(tensors: Mapping[str, Float[Tensor, "1"]]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in tensors.items()}
