"""Attention rollout (Abnar & Zuidema 2020, arXiv:2005.00928): how much of the CLS token's output each position had a part in.

Per block Â = F + I with rows made to sum to 1, where F is the attention fused over heads (their mean, in which case Â = ½F + ½I,
or their maximum or minimum), multiplied through the blocks. Only the CLS row of the product is wanted, so that row is carried
from the last block to the first: a vector instead of a matrix product.

F has n² numbers. Where they are few they are held from the forward pass, which costs next to no time; otherwise what entered each
block is held, which has n·d, and a block's rows of F are made again as the row is carried through it. docs/rollout.md has the
derivation, and what each costs.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, k numbers in a patch, d width, h heads, e = d/h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mri_vit.explain.methods.target import attended
from mri_vit.model.encoder import Block, Encoder, Fuse, Mask, attention_weights, key_mask, row_blocks

# How a block's heads become one matrix. The mean is Abnar & Zuidema's; the others come from Gildenblat's code
# (github.com/jacobgil/vit-explain), to which papers that name them go back.
HEADS: dict[str, Fuse] = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}
MATRIX_BYTES = 2**30  # of matrices that a CPU holds: as much as all else in a pass of ViT-B, whose blocks have 30 MB at 2744
# Rows that a CPU makes again at a time, and of which it holds the MLP's hidden numbers: so many that a pass with the blocks'
# inputs held needs no more memory than one without, whose peak is these (measured: pipelines/bench.py --part rollout --memory).
AGAIN_ROWS, MLP_ROWS = 64, 256


@dataclass(frozen=True, eq=False)
class Passed:
    """What a forward pass leaves to make maps of: of each block from `start` on what entered it, and its matrix where held.

    `output` is what left the last block, where the heads read every token; where they read CLS alone it is None, and the last
    block has no matrix: of its attention one row is wanted.
    """

    encoder: Encoder
    start: int
    present: Bool[Tensor, "b p"] | None
    inputs: Float[Tensor, "m b n d"]
    matrices: Float[Tensor, "l b n n"] | None  # None where they are made again
    output: Float[Tensor, "b n d"] | None

    @property
    def blocks(self) -> list[Block]:
        """Those that are followed."""
        return self.encoder.layers[self.start :]

    @torch.no_grad()
    def readout(self) -> Float[Tensor, "b d"]:
        """What the heads read."""
        output = self.output
        if output is None:
            output = attended(self.blocks[-1], self.inputs[-1], 1, key_mask(self.present))[0]
        return self.encoder.readout(output, self.present)


@torch.no_grad()
def rollout(
    encoder: Encoder,
    patches: Float[Tensor, "b p k"],
    position: Int[Tensor, "b p"],
    heads: Literal["mean", "max", "min"] = "mean",
    discard: float = 0.0,
    start: int = 0,
    present: Bool[Tensor, "b p"] | None = None,
    matrices: bool | None = None,
) -> Float[Tensor, "b n"]:
    """Each patient's CLS row of the rollout, which sums to 1.

    Where the heads read other tokens beside CLS (`encoder.pool`), the readout is one more step: a feature's largest value is
    attention with all its weight at one grid position, their mean is attention that is even, and CLS counts as much as these.

    Parameters
    ----------
    encoder : Encoder
    patches, position : the given grid positions of each patient
    heads : {"mean", "max", "min"}
        How a block's heads are fused.
    discard : float, at least 0 and below 1
        Share of each block's fused attention that is set to 0, see `without_weakest`; 0 as published.
    start : int
        The first block that is followed, counted from 0, as `start_layer` in the code of Chefer et al. 2021
        (arXiv:2012.09838); what earlier blocks mixed stays with the token that holds it.
    present : Bool[Tensor, "b p"], optional
        What it does not mark is no token: it fills up a patient who has fewer, and has a share of 0.
    matrices : bool, optional
        Whether the blocks' matrices are held (n² numbers a block) or their rows made again (memory linear in tokens); by default
        held on a CPU up to `MATRIX_BYTES`, and where weak attention is discarded, which needs them.

    Returns
    -------
    Float[Tensor, "b n"]
        Column 0 is CLS's own share, the others belong to the given grid positions in their order.

    Raises
    ------
    ValueError
        If `discard` or `start` is out of range, or `discard` comes with `present` or without matrices.

    References
    ----------
    Abnar & Zuidema 2020, "Quantifying attention flow in transformers", ACL, doi:10.18653/v1/2020.acl-main.385.

    Examples
    --------
    >>> import torch
    >>> from mri_vit import ViT, rollout
    >>> vit = ViT(patch_size=8, positions=27, dim=16, depth=2, heads=2, mlp=32).eval()
    >>> row = rollout(vit, torch.randn(1, 10, 8), torch.arange(10)[None])  # ten of 27 grid positions
    >>> row.shape, round(row.sum().item(), 5)
    (torch.Size([1, 11]), 1.0)
    """
    if not 0 <= discard < 1:
        raise ValueError(f"discard {discard} is no share from 0 to below 1")
    if discard and (present is not None or matrices is False):
        raise ValueError(
            "discard judges weakness over a block's whole matrix: not without matrices, nor where tokens are missing"
        )
    if matrices is None:
        matrices = bool(discard) or held_by_default(encoder, patches)
    passed = forward_pass(encoder, patches, position, start, HEADS[heads] if matrices else None, present)
    return carried_back(passed, HEADS[heads], discard)


def held_by_default(encoder: Encoder, patches: Float[Tensor, "b p k"]) -> bool:
    """Whether these patients' matrices are few enough to be held."""
    b, p, _ = patches.shape
    return patches.is_cpu and b * (p + 1) ** 2 * len(encoder.layers) * patches.element_size() <= MATRIX_BYTES


@torch.no_grad()
def forward_pass(
    encoder: Encoder,
    patches: Float[Tensor, "b p k"],
    position: Int[Tensor, "b p"],
    start: int = 0,
    fuse: Fuse | None = None,
    present: Bool[Tensor, "b p"] | None = None,
) -> Passed:
    """One pass, without drop-path; `fuse`, how a block's heads become one matrix, where the matrices are to be held."""
    _check_layer(encoder, start)
    x, mask, followed = encoder.tokens(patches, position), key_mask(present), encoder.layers[start:]
    for block in encoder.layers[:start]:
        x = _leaving(block, x, mask, torch.empty_like(x))
    inputs = x.new_empty(len(followed), *x.shape)  # in one piece: kept one by one, they scatter over memory and leave holes
    inputs[0] = x
    outputs = list(inputs[1:]) if encoder.pool == "cls" else [*inputs[1:], torch.empty_like(x)]
    matrices = x.new_empty(len(outputs), len(x), x.shape[1], x.shape[1]) if fuse else None
    for index, output in enumerate(outputs):
        if fuse and matrices is not None:
            left, matrices[index] = followed[index].weighted(inputs[index], fuse, mask)
            output.copy_(left)
        else:
            _leaving(followed[index], inputs[index], mask, output)
    return Passed(encoder, start, present, inputs, matrices, None if encoder.pool == "cls" else outputs[-1])


def _leaving(block: Block, x: Float[Tensor, "b n d"], mask: Mask, output: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """What leaves a block, in `output`; on a CPU the MLP, whose hidden numbers are the most of a pass, takes rows by turns."""
    torch.add(x, block.attention(block.norm1(x), mask), out=output)
    for rows in output.split(MLP_ROWS if x.is_cpu else x.shape[1], dim=1):
        rows += block.mlp(block.norm2(rows))
    return output


@torch.no_grad()
def carried_back(passed: Passed, fuse: Fuse = torch.mean, discard: float = 0.0) -> Float[Tensor, "b n"]:
    """The rollout of a pass, whose matrices, where held, are fused by `fuse`; parameters are those of `rollout`."""
    if passed.output is None:
        row = with_residual(cls_row(passed, fuse, discard))
    else:
        row = _read(passed.encoder, passed.output, passed.present)
    if passed.matrices is not None:
        return carried(row, (without_weakest(matrix, discard) for matrix in reversed(passed.matrices.unbind())))
    mask, last = key_mask(passed.present), len(passed.blocks) - (passed.output is None)
    for block, x in zip(reversed(passed.blocks[:last]), reversed(passed.inputs[:last].unbind()), strict=True):
        row = _carried_through(block, x, mask, row, fuse)
    return row


def with_residual(row: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
    """CLS's row of F + I from its row of F, made to sum to 1."""
    row = row.clone()
    row[:, 0] += 1
    return row / row.sum(dim=1, keepdim=True)


def carried(row: Float[Tensor, "b n"], matrices: Iterable[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n"]:
    """A row over the tokens, carried back through blocks' matrices (last block first) to a row over what entered them.

    A row of F + I sums to 1 more than F's; divided by that it sums to 1, and so does the result.
    """
    for matrix in matrices:
        row = row / (1 + matrix.sum(dim=2))
        row = row + (row[:, :, None] * matrix).sum(dim=1)  # no matrix product, which autocast would round to bfloat16
    return row


def _carried_through(block: Block, x: Float[Tensor, "b n d"], mask: Mask, row: Float[Tensor, "b n"], fuse: Fuse) -> Tensor:
    """The same through one block, of whose matrix no more than some rows are made at a time, from what entered it."""
    q, k, _ = block.attention.project(block.norm1(x))
    carried_row = torch.zeros_like(row)
    for rows in row_blocks(q, k, AGAIN_ROWS):
        matrix = fuse(attention_weights(q[:, :, rows], k, mask), dim=1).to(row.dtype)  # [b r n]
        part = row[:, rows] / (1 + matrix.sum(dim=2))
        carried_row[:, rows] += part
        carried_row += (part[:, :, None] * matrix).sum(dim=1)
    return carried_row


def without_weakest(fused: Float[Tensor, "b n n"], discard: float) -> Float[Tensor, "b n n"]:
    """A block's attention with the weakest share of its entries set to 0; entries as weak as the strongest of these go as well.

    Weak is judged over the whole matrix, as in the code that brought the option up (Gildenblat's vit-explain): a row that
    spreads its attention thinly loses more than one with a clear aim. CLS's attention to itself stays, so that no map is
    left without the token it explains. Each patient of a batch has a threshold of its own.
    """
    count = int(discard * fused[0].numel())
    if count == 0:
        return fused
    threshold = fused.flatten(start_dim=1).kthvalue(count).values
    kept = fused.masked_fill(fused <= threshold[:, None, None], 0)
    kept[:, 0, 0] = fused[:, 0, 0]
    return kept


@torch.no_grad()
def cls_attention(encoder: Encoder, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b n"]:
    """What the last block's CLS token attended to, averaged over heads (Caron et al. 2021, arXiv:2104.14294); sums to 1.

    Column 0 is what CLS gave to itself. Raises ValueError for an encoder without a block.
    """
    _check_layer(encoder, 0)
    return cls_row(forward_pass(encoder, patches, position, len(encoder.layers) - 1))


@torch.no_grad()
def cls_row(passed: Passed, fuse: Fuse = torch.mean, discard: float = 0.0) -> Float[Tensor, "b n"]:
    """The last block's fused attention of CLS; where weak attention goes, the threshold needs the whole matrix."""
    block, mask = passed.blocks[-1], key_mask(passed.present)
    x = block.norm1(passed.inputs[-1])
    if discard:
        return without_weakest(block.attention.weighted(x, fuse, mask)[1], discard)[:, 0]
    return block.attention.cls_weights(x, fuse, mask)


def _read(encoder: Encoder, x: Float[Tensor, "b n d"], present: Bool[Tensor, "b p"] | None) -> Float[Tensor, "b n"]:
    """Where the heads read the last block's output: half at CLS, half where the features come from that are added to it."""
    if x.shape[1] == 1:
        return x.new_ones(len(x), 1)  # no position adds anything
    return torch.cat([x.new_ones(len(x), 1), encoder.parts(x, present).mean(dim=2)], dim=1) / 2


def _check_layer(encoder: Encoder, layer: int) -> None:
    if not 0 <= layer < len(encoder.layers):
        raise ValueError(f"block {layer} is none of the encoder's {len(encoder.layers)}, counted from 0")
