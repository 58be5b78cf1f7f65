"""Attention rollout (Abnar & Zuidema 2020, arXiv:2005.00928): how much of the CLS token's output each place had a part in.

Per block Â = ½·mean over heads(A) + ½·I, multiplied through the blocks. Only the CLS row of the product is wanted, so that
row is carried from the last block to the first: row ← ½·(row + row·A), a vector instead of a matrix product.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, k numbers in a patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.model.encoder import Encoder


def chain(last: Float[Tensor, "b n"], earlier: Sequence[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n"]:
    """The CLS row of the whole rollout, from the last block's CLS row and the earlier blocks' matrices (first block first).

    Both are attention averaged over heads, with rows that sum to 1; so does the result.
    """
    row = last / 2
    row[:, 0] += 0.5  # CLS's own residual path
    for attention in reversed(earlier):
        row = (row + torch.bmm(row[:, None], attention)[:, 0]) / 2
    return row


@torch.no_grad()
def rollout(encoder: Encoder, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> Float[Tensor, "b n"]:
    """Each patient's CLS row: column 0 is CLS's own share, the others belong to the given places in their order.

    The heads' means are taken during one forward pass in blocks of rows; of the last block only the CLS row is computed.
    """
    x, means = encoder.tokens(patches, place), []
    *blocks, last = encoder.layers
    for block in blocks:
        x, mean = block.weighted(x)
        means.append(mean)
    return chain(last.attention.cls_weights(last.norm1(x)), means)
