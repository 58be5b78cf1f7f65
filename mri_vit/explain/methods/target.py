"""What a map of one endpoint explains: the evidence for the class that the network predicts, or for another that is asked for; of
survival the risk, of a grade the expected one, of a number the number.

The forward pass here takes the last block for what the heads read, CLS alone or every token, and leaves drop-path out, so a
network is explained as it predicts, in whichever mode it is; a network of volumes, which may normalise over a batch, is in
evaluation mode.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, r ≤ n first tokens, k numbers in a patch, d width,
h heads, e = d/h, o sets of grid positions.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mri_vit.model import heads
from mri_vit.model.encoder import Block, Encoder, Mask
from mri_vit.model.network import Network

PASS_NUMBERS = 2**20  # voxel values in one pass of a network of volumes: two of 56³ with four scans; more are no faster on a CPU

# By endpoint what is explained of each patient: 1 or -1, of several classes the place of one. See `heads.question`.
Questions = dict[str, Float[Tensor, "b"]]


def attended(
    block: Block, x: Float[Tensor, "b n d"], rows: int, mask: Mask = None
) -> tuple[Float[Tensor, "b r d"], Float[Tensor, "b h r e"], tuple[Tensor, Tensor, Tensor]]:
    """A block's output for the first `rows` tokens, which attend to all; what their attention mixed; query, key and value."""
    q, k, v = block.attention.project(block.norm1(x))
    q = q[:, :, :rows]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    x = x[:, :rows] + block.attention.out(rearrange(mixed, "b h r e -> b r (h e)"))
    return x + block.mlp(block.norm2(x)), mixed, (q, k, v)


def cls(encoder: Encoder, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
    """The encoder's output for embedded tokens, so that some can be left out."""
    if not encoder.layers:
        return encoder.readout(x)
    *earlier, last = encoder.layers
    for block in earlier:
        x = attended(block, x, x.shape[1])[0]
    return encoder.readout(attended(last, x, rows_read(encoder, x))[0])


def rows_read(encoder: Encoder, x: Float[Tensor, "b n d"]) -> int:
    """How many of the last block's first tokens the heads read."""
    return 1 if encoder.pool == "cls" else x.shape[1]


def features(net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> Float[Tensor, "b d"]:
    """What the heads of any network read of patients."""
    if isinstance(net.encoder, Encoder):
        return cls(net.encoder, net.encoder.tokens(patches, position))
    return net.encoder(patches, position)


@torch.no_grad()
def in_air(
    net: Network, patches: Float[Tensor, "p k"], position: Int[Tensor, "p"], given: Bool[Tensor, "o p"], questions: Questions
) -> dict[str, Float[Tensor, "o"]]:
    """Each endpoint's target by a network of volumes, which is given only some grid positions of a patient in each of o rows.

    The voxels of the others are 0, as outside the brain.
    """
    passes = [
        targets(net, features(net, patches.masked_fill(~rows[..., None], 0), position.expand(len(rows), -1)), questions)
        for rows in given.split(max(1, PASS_NUMBERS // patches.numel()))
    ]
    return {name: torch.cat([values[name] for values in passes]) for name in passes[0]}


def evidences(net: Network, cls: Float[Tensor, "b d"]) -> dict[str, Float[Tensor, "b"]]:
    """Each endpoint's evidence, as `heads.evidence`."""
    return {head.endpoint.name: heads.evidence(head, _linear(net, head)(cls)) for head in net.heads}


def targets(net: Network, cls: Float[Tensor, "b d"], questions: dict[str, Float[Tensor, "q"]]) -> dict[str, Float[Tensor, "b"]]:
    """Each endpoint's evidence for what is asked, of one patient's question for every row or a question for each."""
    return {head.endpoint.name: heads.target(head, _linear(net, head)(cls), questions[head.endpoint.name]) for head in net.heads}


def questions_of(net: Network, cls: Float[Tensor, "b d"], questions: Questions | None = None) -> Questions:
    """What maps are to explain: `questions`, of an endpoint that these lack what the network itself predicts.

    So two networks' maps are compared on the same question.
    """
    own = {head.endpoint.name: heads.question(head, _linear(net, head)(cls)) for head in net.heads}
    return {name: (questions or {}).get(name, one) for name, one in own.items()}


@torch.no_grad()
def predicted(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> Questions:
    """`questions_of` of whole patients: of the classes that the network predicts for them.

    Where `questions` has every endpoint of the network already, the network is not run again.
    """
    if questions and all(head.endpoint.name in questions for head in net.heads):
        return {head.endpoint.name: questions[head.endpoint.name] for head in net.heads}
    return questions_of(net, features(net, patches, position), questions)


def _linear(net: Network, head: heads.Head) -> nn.Linear:
    return cast(nn.Linear, net.head[head.endpoint.name])
