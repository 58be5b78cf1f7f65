"""A masked autoencoder on foreground tokens: a quarter of a patient's patches go in, the hidden ones' contents come out.

The encoder that is to be trained later sees the visible tokens only; a small decoder, thrown away afterwards, gets what it
made of them and reconstructs the voxels of the hidden places (He et al. 2022, arXiv:2111.06377).

Letters: b patients, p tokens of each, v of them visible and h hidden, n = v + 1 with CLS, c channels, x voxels of a patch,
k = c·x numbers in a patch, d the encoder's width, w the decoder's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mri_vit.data.draw import Draw, Member, split, stacked, view
from mri_vit.model.encoder import POSITION_STD, Block, Encoder
from mri_vit.settings.schema import Study
from mri_vit.train.devices import Gather, at_least_float32, of_one

# Added to a patch's variance before dividing by its root. Scans are z-scored in the brain, so a spread of 0.1 is a tenth of
# the brain's: what varies less than this is mostly noise, which without a floor would count as much as any structure.
VARIANCE_FLOOR = 0.01
VISIBLE_SHARE = 0.25  # share of a patient's tokens that the encoder sees; He et al. 2022, figure 5
DECODER_DEPTH = 1  # blocks; one is enough to fine-tune (He et al. 2022, Table 1a)
DECODER_WIDTH = 0.5  # of the encoder's; He et al. 2022: 512 of 1024
HEAD_WIDTH = 32  # of the decoder's attention: 512 / 16 in He et al. 2022, appendix A.1
MLP_RATIO = 4  # of the decoder's blocks; Dosovitskiy et al. 2021, Table 1
RECONSTRUCTED_SHARE = 1 / 3  # of the hidden tokens, drawn anew in each step; half in Wang et al. 2023, arXiv:2303.16727
# The decoder's positions are stored as 1/50 of what they are, so that a step of the optimiser moves them 50 times as far. They
# then know within tens of steps what a position looks like on average, and what is left to learn is what differs between
# patients. Measured on 40 synthetic patients after 100 steps: 69 % of the variance unexplained, not 98 % (mean image: 60 %).
POSITION_GAIN = 50.0


class MaskedAutoencoder(nn.Module):
    """The encoder, its decoder, and their loss on a batch; a `Method` of `pretrain.encoder`."""

    def __init__(self, encoder: Encoder, study: Study) -> None:
        super().__init__()
        self.study, self.gather = study, of_one
        self.encoder = encoder
        numbers = len(study.channels) * study.grid.patch**3
        width = round(DECODER_WIDTH * encoder.dim)
        self.decoder = Decoder(encoder.dim, numbers, study.grid.positions, width, DECODER_DEPTH)
        self._sums: list[Tensor] = []  # of each batch since `watched` was asked: its loss, and the loss of knowing nothing

    def learned(self) -> list[nn.Parameter]:
        """Every weight, the decoder's too."""
        return list(self.parameters())

    def draws(self, members: Sequence[Member], shared: np.random.Generator) -> tuple[Draw, ...]:
        """Visible tokens, and hidden ones to be reconstructed; none is in both."""
        smallest = min(len(member.position) for member in members)  # no patient lacks a token, so none is filled up
        v = visible(smallest, VISIBLE_SHARE)
        count = v + math.ceil(RECONSTRUCTED_SHARE * (smallest - v))
        return split(stacked([view(member, scattered(member, count), self.study) for member in members]), v)

    def forward(
        self, seen: Float[Tensor, "b v k"], at: Int[Tensor, "b v"], hidden: Float[Tensor, "b h k"], position: Int[Tensor, "b h"]
    ) -> Float[Tensor, ""]:
        """The loss of reconstructing the `hidden` patches from those that are `seen`."""
        predicted = self.decoder(*self.known(seen, at), position)
        wanted, brain = target(hidden.to(predicted.dtype), self.study.pretrain.target, len(self.study.channels))
        loss = masked_error(predicted, wanted, brain, self.gather)
        nothing = masked_error(wanted.new_zeros(()), wanted, brain, self.gather)
        self._sums.append(torch.stack([loss.detach(), nothing]))
        return loss

    def known(self, seen: Float[Tensor, "b v k"], at: Int[Tensor, "b v"]) -> tuple[Float[Tensor, "b _ d"], Int[Tensor, "b _"]]:
        """What the decoder gets by `pretrain.decoder_reads`: CLS or the readout, then tokens; and the positions of these."""
        if self.study.pretrain.decoder_reads == "readout":
            return rearrange(self.encoder(seen, at), "b d -> b 1 d"), at[:, :0]
        return encoded(self.encoder, seen, at), at

    def begin(self, epoch: int) -> None:
        """Every epoch is the same."""

    def stepped(self, progress: float) -> None:
        """Nothing follows the weights."""

    def watched(self) -> dict[str, float]:
        """`unexplained`: the mean loss as a share of that of 0 for every hidden voxel, the mean of its patch or scan."""
        loss, nothing = torch.stack(self._sums).double().sum(dim=0).tolist() if self._sums else (0.0, 0.0)
        self._sums = []
        return {"unexplained": loss / nothing if nothing else math.nan}


class Decoder(nn.Module):
    """From encoded visible tokens to the numbers of the hidden patches."""

    def __init__(self, dim: int, numbers: int, positions: int, width: int, depth: int) -> None:
        super().__init__()
        heads = max(h for h in range(1, max(1, width // HEAD_WIDTH) + 1) if width % h == 0)
        self.embed = nn.Linear(dim, width)
        self.mask = nn.Parameter(torch.empty(1, 1, width).normal_(std=POSITION_STD))
        self.position = nn.Parameter(torch.empty(1, positions, width).normal_(std=POSITION_STD / POSITION_GAIN))
        self.blocks = nn.ModuleList(Block(width, heads, MLP_RATIO * width, drop_path=0.0) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, numbers)

    def forward(
        self, known: Float[Tensor, "b n d"], at: Int[Tensor, "b v"], position: Int[Tensor, "b h"]
    ) -> Float[Tensor, "b h k"]:
        """`known` are CLS and the tokens seen, `at` the grid positions of these; `position` are those to be reconstructed."""
        x = self.embed(known)
        x = torch.cat([x[:, :1], x[:, 1:] + self._positions(at), self.mask + self._positions(position)], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.predict(self.norm(x[:, known.shape[1] :]))

    def _positions(self, position: Int[Tensor, "b p"]) -> Float[Tensor, "b p w"]:
        return POSITION_GAIN * F.embedding(position, self.position[0])


def scattered(member: Member, count: int) -> Int[np.ndarray, " p"]:
    """Indices of `count` tokens drawn from the whole brain, in random order."""
    return member.random.permutation(len(member.position))[:count]


def visible(count: int, share: float) -> int:
    """How many of `count` tokens the encoder sees: about `share`, at least one, and never all.

    Raises ValueError for fewer than two tokens, of which none could be hidden.
    """
    if count < 2:
        raise ValueError(f"found {count} tokens; at least 2 are needed to see one and hide one")
    return min(max(1, round(share * count)), count - 1)


def encoded(encoder: Encoder, patches: Float[Tensor, "b v k"], position: Int[Tensor, "b v"]) -> Float[Tensor, "b n d"]:
    """Every token after the encoder's last block, normalised, CLS first."""
    x = encoder.tokens(patches, position)
    for block in encoder.layers:
        x = block(x)
    return encoder.norm(x)


def target(
    patches: Float[Tensor, "b h k"], kind: Literal["patch", "scan"], channels: int
) -> tuple[Float[Tensor, "b h k"], Bool[Tensor, "b h k"]]:
    """What is to be reconstructed of the hidden patches, and which of their numbers are of the brain.

    For "patch" each channel of each patch has its mean taken away and is divided by √(variance + VARIANCE_FLOOR), both over the
    patch's brain voxels; for "scan" they stay as they are. Outside the brain every channel is exactly zero; these voxels are 0
    here too, and do not count; nor does a sequence that the patient lacks.
    """
    x = rearrange(patches, "b h (c x) -> b h c x", c=channels)
    brain = (x != 0).any(dim=2, keepdim=True)  # (b, h, 1, x)
    there = (x != 0).any(dim=3, keepdim=True).any(dim=1, keepdim=True)  # (b, 1, c, 1): a scan that is missing is empty everywhere
    counted = rearrange(brain & there, "b h c x -> b h (c x)")
    if kind == "scan":
        return patches, counted
    count = brain.sum(dim=3, keepdim=True).clamp(min=1)
    centred = torch.where(brain, x - x.sum(dim=3, keepdim=True) / count, 0.0)
    variance = centred.square().sum(dim=3, keepdim=True) / count
    normalised = centred / (variance + VARIANCE_FLOOR).sqrt()
    return rearrange(normalised, "b h c x -> b h (c x)"), counted


def masked_error(
    predicted: Float[Tensor, "*b_h_k"], wanted: Float[Tensor, "b h k"], brain: Bool[Tensor, "b h k"], gather: Gather = of_one
) -> Float[Tensor, ""]:
    """Mean squared error over the numbers of the brain; every one counts the same, whichever patient or patch it is of.

    `predicted` may be one number for all; `wanted` is 0 outside the brain, as `target` gives it.
    """
    squares = F.mse_loss(at_least_float32(predicted) * brain, wanted, reduction="sum")
    return gather(squares[None]).sum() / gather(brain.sum()[None]).sum().clamp(min=1)
