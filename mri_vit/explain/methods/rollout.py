"""Attention rollout (Abnar & Zuidema 2020, arXiv:2005.00928): how much of the CLS token's output each position had a part in.

Per block Â = F + I with rows made to sum to 1, where F is the attention fused over heads (their mean, in which case Â = ½F + ½I,
or their maximum or minimum), multiplied through the blocks. Only the CLS row of the product is wanted, so that row is carried
from the last block to the first: a vector instead of a matrix product.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, k numbers in a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.model.encoder import Block, Encoder, Fuse

# How a block's heads become one matrix. The mean is Abnar & Zuidema's; the others come from Gildenblat's code
# (github.com/jacobgil/vit-explain), to which papers that name them go back.
HEADS: dict[str, Fuse] = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}


@torch.no_grad()
def rollout(
    encoder: Encoder,
    patches: Float[Tensor, "b p k"],
    position: Int[Tensor, "b p"],
    heads: Literal["mean", "max", "min"] = "mean",
    discard: float = 0.0,
    start: int = 0,
) -> Float[Tensor, "b n"]:
    """Each patient's CLS row of the rollout, which sums to 1.

    The fused matrices are taken during one forward pass in blocks of rows; of the last block only the CLS row is computed.
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

    Returns
    -------
    Float[Tensor, "b n"]
        Column 0 is CLS's own share, the others belong to the given grid positions in their order.

    Raises
    ------
    ValueError
        If `discard` or `start` is out of range.

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
    _check_layer(encoder, start)
    x = _entering(encoder, patches, position, start)
    *followed, last = encoder.layers[start:]
    if encoder.pool != "cls":  # the heads read every token, so the last block is followed like the others
        followed.append(last)
    batch, n, _ = x.shape
    fused = x.new_empty(len(followed), batch, n, n)  # in one piece: kept one by one, they scatter over memory and leave holes
    for index, block in enumerate(followed):
        x, matrix = block.weighted(x, HEADS[heads])
        fused[index] = without_weakest(matrix, discard)
    if encoder.pool != "cls":
        return carried(_read(encoder, x), list(fused))
    return chain(_cls_row(last, x, HEADS[heads], discard), list(fused))


def chain(last: Float[Tensor, "b n"], earlier: Sequence[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n"]:
    """The CLS row of the whole rollout, from the last block's fused CLS row and the earlier blocks' matrices (first block first).

    A row of F + I sums to 1 more than F's; divided by that it sums to 1, and so does the result.
    """
    row = last.clone()
    row[:, 0] += 1  # CLS's own residual path
    return carried(row / row.sum(dim=1, keepdim=True), earlier)


def carried(row: Float[Tensor, "b n"], matrices: Sequence[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n"]:
    """A row over the tokens, carried back through blocks' matrices (first block first) to a row over what entered them."""
    for matrix in reversed(matrices):
        row = row / (1 + matrix.sum(dim=2))
        row = row + (row[:, :, None] * matrix).sum(dim=1)  # no matrix product, which autocast would round to bfloat16
    return row


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
    *earlier, last = encoder.layers
    x = _entering(encoder, patches, position, len(earlier))
    return last.attention.cls_weights(last.norm1(x))


def _entering(
    encoder: Encoder, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], layer: int
) -> Float[Tensor, "b n d"]:
    """The tokens as they enter a block."""
    x = encoder.tokens(patches, position)
    for block in encoder.layers[:layer]:
        x = block(x)
    return x


def _read(encoder: Encoder, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
    """Where the heads read the last block's output: half at CLS, half where the features come from that are added to it."""
    return torch.cat([x.new_ones(len(x), 1), encoder.parts(x).mean(dim=2)], dim=1) / 2


def _cls_row(last: Block, x: Float[Tensor, "b n d"], fuse: Fuse, discard: float) -> Float[Tensor, "b n"]:
    """The last block's fused attention of CLS; where weak attention goes, the threshold needs the whole matrix."""
    x = last.norm1(x)
    return without_weakest(last.attention.weighted(x, fuse)[1], discard)[:, 0] if discard else last.attention.cls_weights(x, fuse)


def _check_layer(encoder: Encoder, layer: int) -> None:
    if not 0 <= layer < len(encoder.layers):
        raise ValueError(f"block {layer} is none of the encoder's {len(encoder.layers)}, counted from 0")
