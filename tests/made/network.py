"""A small network with something to explain: heads of all three kinds whose weights are not zero."""

from __future__ import annotations

import torch

from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import Endpoint, Model
from mri_vit.settings.sections import Grid

HEADS = [
    Head(Endpoint(name="mgmt", kind="binary"), "binary", positive_weight=2.0),
    Head(Endpoint(name="os", kind="survival", time="os_days", event="os_event"), "hazard", cuts_days=(100.0, 300.0, 900.0)),
    Head(
        Endpoint(name="pfs", kind="survival", time="pfs_days", event="pfs_event"),
        "cox",
        cuts_days=(100.0, 300.0),
        baseline_hazard=(0.3, 0.9),
    ),
]


def made(depth: int = 2, heads: int = 2, seed: int = 0, side: int = 3, drop_path: float = 0.0) -> Network:
    """A network of patches of 2³ voxels, with weights large enough for attention that is not uniform."""
    torch.manual_seed(seed)
    model = Model(dim=16, depth=depth, heads=heads, mlp=24, drop_path=drop_path, stem=12 if seed % 2 else None)
    net = Network(model, Grid(edge=2 * side, spacing_mm=8.0, patch=2), HEADS)
    for linear in net.head.values():
        torch.nn.init.normal_(linear.weight)  # type: ignore[arg-type]
        torch.nn.init.normal_(linear.bias)  # type: ignore[arg-type]
    torch.nn.init.normal_(net.encoder.cls)
    for block in net.encoder.layers:
        block.attention.qkv.weight.data.mul_(3)
    return net.eval()


def linear(seed: int = 0, side: int = 3) -> Network:
    """A network whose CLS is linear in the patches: one block without norms or MLP that attends to all tokens alike."""
    net = made(depth=1, seed=2 * seed, side=side)
    (block,) = net.encoder.layers
    net.encoder.norm, block.norm1 = torch.nn.Identity(), torch.nn.Identity()  # type: ignore[assignment]
    dim = block.attention.out.in_features
    for parameter in (block.attention.qkv.weight[: 2 * dim], block.attention.qkv.bias[: 2 * dim], *block.mlp[2].parameters()):
        parameter.data.zero_()
    return net


def inputs(
    net: Network, batch: int = 2, n: int | None = None, seed: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Patches at n places of the grid (all of them when not given), other places for each patient."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.stack([torch.randperm(net.grid.positions, generator=generator)[:n] for _ in range(batch)])
    return torch.randn(*position.shape, 32, generator=generator, dtype=dtype), position
