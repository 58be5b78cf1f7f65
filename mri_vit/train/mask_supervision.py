"""Mask supervision: auxiliary losses from the training patients' tumour masks, beside labels. Prediction needs none of it.

A hundred labels do not show where among hundreds of grid positions a marker is visible; masks do. Three targets, each with a
weight: CLS attends to tumour, and the tumour's tokens predict the patient's labels, both as they are embedded and as CLS reads
them in the last block, where they have attended to each other.

Letters: b patients, f stored positions of one, v voxels of a patch, p positions that are given, r regions, h heads, d width of a
region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Float16, Int, Int16
from torch import Tensor, nn

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import EMPTY_ROW, Draw, neighbours
from mri_vit.data.store import Held, token_file
from mri_vit.errors import UsageError
from mri_vit.model import heads
from mri_vit.model.baselines import BASELINES, VolumeEncoder
from mri_vit.model.encoder import Encoder
from mri_vit.model.network import Network
from mri_vit.prepare.prepared import mask_on_grid
from mri_vit.settings.recipe import Train
from mri_vit.settings.schema import Study


def refuse_without_regions(network: Network) -> None:
    """Raise UsageError for a network without regions to supervise."""
    encoder, architecture = network.encoder, network.model.architecture
    if not isinstance(encoder, Encoder) and not (isinstance(encoder, VolumeEncoder) and BASELINES[architecture].layer):
        raise UsageError(
            f"train.mask_supervision_… needs tokens, or the voxels of a last convolutional map: {architecture} has neither"
        )


class Masks:
    """Where some patients' tumours are, on the grid, as patches of one channel that are drawn as the scans' are.

    Only patches with tumour and their neighbours are held, a tenth of a brain's: no other shows tumour however a patient is
    translated. Raises UsageError where no patient has a mask, as where none was found.
    """

    def __init__(self, patients: Sequence[Patient], study: Study) -> None:
        if not any(patient.tumour_mask for patient in patients):
            raise UsageError(
                f"train.mask_supervision_… needs tumour masks, and none of {len(patients)} training patients has one"
            )
        positions, rows, held = [], [], []
        self.holds: list[Bool[np.ndarray, " f"]] = []  # by patient, which stored places have tumour
        for patient in patients:
            position = tokens.load_place(token_file(study.prepared, patient))
            tumour = self._of(patient, position, study)
            self.holds.append((tumour != 0).any(dim=1).numpy())
            around = np.append(self.holds[-1], False)[neighbours(position, study.grid.side)].any(axis=(1, 2, 3))  # NONE is last
            held.append(np.where(around, np.cumsum(around) - 1, EMPTY_ROW))
            rows.append(tumour[torch.from_numpy(around)])
            positions.append(position[around])
        empty = torch.zeros(1, study.grid.patch**3, dtype=torch.float16)
        self._masks = Held(torch.cat([*rows, empty]), positions, study.grid)
        self._held, self._first = np.concatenate(held), np.cumsum([0, *map(len, held)])[:-1]
        self._unknown = np.array([patient.tumour_mask is None for patient in patients])

    @staticmethod
    def _of(patient: Patient, position: Int16[np.ndarray, " f"], study: Study) -> Float16[Tensor, "f v"]:
        if patient.tumour_mask is None:
            return torch.zeros(len(position), study.grid.patch**3, dtype=torch.float16)
        tumour = mask_on_grid(patient.tumour_mask, study.prepared / patient.id, study.grid)
        return torch.from_numpy(tokens.patchify(tumour[None].astype(np.float16), study.grid.patch)[position])

    def __call__(self, draw: Draw) -> Float[Tensor, "b p"]:
        """The share of tumour in each of a draw's tokens, as it is moved and mirrored; NaN of a patient without a mask."""
        row = np.where(draw.row == EMPTY_ROW, EMPTY_ROW, self._held[self._first[draw.patient] + np.maximum(draw.row, 0)])
        unchanged = {"gain": np.ones_like(draw.gain[..., :1]), "shift": np.zeros_like(draw.shift[..., :1])}
        share = self._masks.take(replace(draw, row=row, **unchanged)).patches.float().mean(dim=-1)
        return share.masked_fill(torch.from_numpy(self._unknown[draw.patient]), torch.nan)


@dataclass(frozen=True)
class NetworkPass:
    """A network's pass over a batch: what its heads read, its regions and their tumour, and how CLS attends in the last block.

    `share` is NaN for a patient without a mask; `attention` holds logits of every head, CLS's own first, or is None where a
    network has no CLS that attends. `encoded` are the regions as they enter the last block, where CLS reads them, None of a
    convolutional network, whose regions have been encoded.
    """

    readout: Float[Tensor, "b m"]
    regions: Float[Tensor, "b r d"]
    share: Float[Tensor, "b r"]
    attention: Float[Tensor, "b h n"] | None
    encoded: Float[Tensor, "b r d"] | None


class MaskSupervised(nn.Module):
    """A network with the additional heads of its training. Called, it is the network."""

    def __init__(self, network: Network, train: Train) -> None:
        super().__init__()
        self.network, self.settings = network, train
        width = int(network.encoder.dim)  # of a token, or features of a convolutional network's last map
        self.norm, self.norm_encoded = nn.LayerNorm(width), nn.LayerNorm(width)
        # by patch; an unfinished training's state file has this name
        self.told = nn.ModuleDict({head.endpoint.name: nn.Linear(width, head.width) for head in network.heads})
        encoded = train.mask_supervision_token_labels and isinstance(network.encoder, Encoder)
        self.encoded = nn.ModuleDict({h.endpoint.name: nn.Linear(width, h.width) for h in network.heads} if encoded else {})
        for linear in (*self.told.values(), *self.encoded.values()):
            nn.init.zeros_(linear.weight)  # type: ignore[arg-type]
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]

    def forward(self, *batch: Tensor | None) -> dict[str, Tensor]:
        return self.network(*batch)

    def with_auxiliary_loss(
        self,
        patches: Float[Tensor, "b p k"],
        position: Int[Tensor, "b p"],
        share: Float[Tensor, "b p"],
        labels: dict[str, Float[Tensor, "b c"]],
    ) -> tuple[dict[str, Tensor], Float[Tensor, ""]]:
        """The heads' raw numbers, and the weighted sum of the auxiliary losses."""
        outputs, settings = network_pass(self.network, patches, position, share), self.settings
        outs = {name: linear(outputs.readout) for name, linear in self.network.head.items()}
        loss = outputs.readout.new_zeros(())
        if settings.mask_supervision_patch_labels:
            regions = self.norm(outputs.regions)
            loss = loss + settings.mask_supervision_patch_labels * self._of_labels(self.told, regions, outputs.share, labels)
        if settings.mask_supervision_token_labels and outputs.encoded is not None:
            loss = loss + settings.mask_supervision_token_labels * self._of_labels(
                self.encoded, self.norm_encoded(outputs.encoded), outputs.share, labels
            )
        if settings.mask_supervision_attention and outputs.attention is not None:
            loss = loss + settings.mask_supervision_attention * attention_loss(outputs.attention, outputs.share)
        return outs, loss

    def _of_labels(
        self, linears: nn.ModuleDict, regions: Float[Tensor, "b r d"], share: Float[Tensor, "b r"], labels: dict[str, Tensor]
    ) -> Float[Tensor, ""]:
        """The loss of labels predicted from the mean of the tumour's regions; patients without tumour are ignored."""
        has = (share > 0).any(dim=1)  # NaN is no tumour
        of_tumour = {name: values.masked_fill(~has[:, None], torch.nan) for name, values in labels.items()}
        mean = within(regions, share)
        named = ((head, head.endpoint.name) for head in self.network.heads)
        return torch.stack([heads.loss(head, linears[name](mean), of_tumour[name]) for head, name in named]).sum()


def attention_loss(logits: Float[Tensor, "b h n"], share: Float[Tensor, "b r"]) -> Float[Tensor, ""]:
    """Cross-entropy between where tumour is and where CLS attends, the mean over heads and over patients with tumour; 0 of none.

    Formula: -Σ wⱼ log aⱼ with w the `emphasis`, 0 for CLS itself. Its least is the entropy of w.
    Source: attention supervised by where people looked, Qiao et al. 2018, arXiv:1709.06308; here by the tumour's mask.
    """
    target = F.pad(emphasis(share), (1, 0))
    each = -(target[:, None] * logits.float().log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)
    return each.sum() / (target.sum(dim=1) > 0).sum().clamp_min(1)


def emphasis(share: Float[Tensor, "b r"]) -> Float[Tensor, "b r"]:
    """Weights of regions that sum to 1, as the square of their share of tumour; zeros where there is none, or no mask.

    The square, because a region at the tumour's edge shows the edge: two that are half tumour are worth half a whole one.
    """
    tumour = share.nan_to_num() ** 2
    return tumour / tumour.sum(dim=1, keepdim=True).clamp_min(torch.finfo(tumour.dtype).tiny)


def within(regions: Float[Tensor, "b r d"], share: Float[Tensor, "b r"]) -> Float[Tensor, "b d"]:
    """The mean over regions, weighted by `emphasis`; zeros where there is no tumour."""
    return (emphasis(share)[..., None] * regions).sum(dim=1)


def network_pass(
    network: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], share: Float[Tensor, "b p"]
) -> NetworkPass:
    """Of our encoder the regions are the embedded patches; of a convolutional network the voxels of its last map."""
    encoder = network.encoder
    if isinstance(encoder, Encoder):
        return _of_tokens(encoder, patches, position, share)
    layer = BASELINES[network.model.architecture].layer
    assert layer  # see `refuse_without_regions`
    return _of_map(encoder, layer, patches, position, share)


def _of_tokens(
    encoder: Encoder, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], share: Float[Tensor, "b p"]
) -> NetworkPass:
    regions = encoder.embed(patches.to(encoder.position.dtype))
    x = encoder.placed(regions, position)
    if not encoder.layers:
        return NetworkPass(encoder.readout(x), regions, share, None, x[:, 1:])
    *earlier, last = encoder.layers
    for block in earlier:
        x = block(x)
    encoded = x[:, 1:]
    q, k, _ = last.attention.project(last.norm1(x))
    logits = (q[:, :, :1] * q.shape[-1] ** -0.5 @ k.transpose(-2, -1))[:, :, 0]
    x = last(x)
    return NetworkPass(encoder.readout(x), regions, share, logits, encoded)


def _of_map(
    encoder: VolumeEncoder, layer: str, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], share: Float[Tensor, "b p"]
) -> NetworkPass:
    """The share of a map's voxel is the mean over the part of the box that it stands for; the map tiles the box evenly."""
    held: list[Tensor] = []

    def hold(module: nn.Module, given: object, output: Tensor) -> None:
        held.append(output)

    hook = encoder.net.get_submodule(layer).register_forward_hook(hold)
    try:
        readout = encoder(patches, position)
    finally:
        hook.remove()
    (layer_output,) = held
    (i, j, k), (x, y, z) = encoder.box.sides, (int(size) for size in layer_output.shape[2:])
    positions = share.new_zeros(len(share), i * j * k + 1)  # the last takes what lies outside the box
    positions = positions.scatter(1, encoder.box.slot(position), share)[:, :-1]
    tumour = F.adaptive_avg_pool3d(rearrange(positions, "b (i j k) -> b 1 i j k", i=i, j=j, k=k), (x, y, z))
    tumour = torch.where(share.isnan().all(dim=1)[:, None], torch.nan, tumour.flatten(1))
    return NetworkPass(readout, rearrange(layer_output, "b f x y z -> b (x y z) f"), tumour, None, None)
