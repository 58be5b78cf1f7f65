"""Rollout whose attention is carried by a fused kernel: no matrix and no row of one is ever made.

The CLS row r is carried from the last block to the first, r ← (r + mean_h r·A_h)/2, with A_h[i, j] = exp(s·qᵢ·kⱼ − lseᵢ). So
(r·A_h)[j] = Σᵢ exp(s·kⱼ·qᵢ + log rᵢ − lseᵢ): attention with queries and keys exchanged and log r − lse added to its scores has
the logarithm of the answer as its log-sum-exp. Fused kernels give that; of the value, which is not used, they get as little as
they take. lse is what the forward pass's own attention gives.

Letters: b patients, n tokens with CLS, d width, h heads, e = d/h.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.model.encoder import Encoder

Scores = Float[Tensor, "b h n e"]
# from queries, keys, values and what is added to every query's score of a key: attention, and each query's log-sum-exp
Kernel = Callable[[Scores, Scores, Scores, Float[Tensor, "b h n"] | None], tuple[Scores, Float[Tensor, "b h n"]]]
ALIGNED = 8  # the memory-efficient kernel reads a bias from rows of a multiple of so many numbers
NARROW = 8  # numbers of a value that is not used: the fewest that it takes


@torch.no_grad()
def carried_by(kernel: Kernel, encoder: Encoder, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Tensor:
    """CLS's row of rollout [b n], which sums to 1; heads by their mean, for a readout of CLS alone."""
    x, kept = encoder.tokens(patches, position), []
    for block in encoder.layers:
        q, k, v = block.attention.project(block.norm1(x))
        attended, lse = kernel(q, k, v, None)
        kept.append((q, k, lse))
        x = x + block.attention.out(rearrange(attended, "b h n e -> b n (h e)"))
        x = x + block.mlp(block.norm2(x))
    row = torch.zeros_like(x[..., 0], dtype=torch.float32)
    row[:, 0] = 1
    for q, k, lse in reversed(kept):
        bias = row.log()[:, None] - lse  # log 0 = -inf is right: such a token hands nothing on
        row = (row + kernel(k.float(), q.float(), q.float(), bias)[1].exp().mean(dim=1)) / 2
    return row


def efficient(q: Scores, k: Scores, v: Scores, bias: Float[Tensor, "b h n"] | None) -> tuple[Scores, Tensor]:
    """The memory-efficient kernel, which CUDA alone has."""
    b, h, n, _ = q.shape
    added = None
    if bias is not None:
        room = bias.new_zeros(b, h, 1, -(-n // ALIGNED) * ALIGNED)
        room[..., 0, :n] = bias
        added, v = room[..., :n].expand(b, h, n, n), v[..., :NARROW].contiguous()
    attended, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, added, True)
    return attended, lse[..., :n]


def on_processor(q: Scores, k: Scores, v: Scores, bias: Float[Tensor, "b h n"] | None) -> tuple[Scores, Tensor]:
    """The kernel of a CPU: what the way is tried with where there is no GPU."""
    added = None if bias is None else bias[:, :, None].expand(*q.shape[:3], q.shape[2])
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=added)


def flexible(q: Scores, k: Scores, v: Scores, bias: Float[Tensor, "b h n"] | None) -> tuple[Scores, Tensor]:
    """FlexAttention; compiled on a GPU, where alone it is fused."""

    def added(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score if bias is None else score + bias[b, h, key]

    attend, request = flex(q.is_cuda)
    attended, more = attend(q, k, v, score_mod=added, return_aux=request)
    return attended, more.lse


@cache
def flex(compiled: bool) -> tuple[Callable[..., Any], Any]:
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention  # here, because it imports PyTorch's compiler

    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention, AuxRequest(lse=True)
