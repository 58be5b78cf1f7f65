"""Files of weights as others publish them, of tiny widths, with the networks that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

State = dict[str, Tensor]


def monai_vit(edge: int = 16, patch: int = 8, channels: int = 1, **more: Any) -> Any:
    """MONAI's ViT as BrainIAC makes it, with random weights everywhere."""
    from monai.networks.nets.vit import ViT

    torch.manual_seed(1)
    net = ViT(channels, (edge,) * 3, (patch,) * 3, 24, 48, 2, 4, **more)
    return shaken(net)


def dino_state(rotary: bool = True, swiglu: bool = False, dim: int = 24, heads: int = 2) -> State:
    """A 3D DINO ViT's weights under the names of DINOv2's code; two blocks, three registers, patches of 4³ voxels."""
    torch.manual_seed(2)
    draw, hidden = torch.randn, 2 * dim
    state = {
        "cls_token": draw(1, 1, dim), "register_tokens": draw(1, 3, dim), "mask_token": draw(1, dim),
        "patch_embed.proj.weight": draw(dim, 1, 4, 4, 4) / 8, "patch_embed.proj.bias": draw(dim),
        "norm.weight": draw(dim), "norm.bias": draw(dim),
    }  # fmt: skip
    width = dim // heads
    state |= {"rope_embed.periods": 100.0 ** (torch.arange(width // 6) / (width // 6))} if rotary else {}
    state |= {} if rotary else {"pos_embed": draw(1, 1 + 64, dim)}
    for block in ("blocks.0.", "blocks.1."):
        shapes = {
            "norm1.weight": (dim,), "norm1.bias": (dim,), "norm2.weight": (dim,), "norm2.bias": (dim,),
            "attn.qkv.weight": (3 * dim, dim), "attn.qkv.bias": (3 * dim,), "attn.proj.weight": (dim, dim),
            "attn.proj.bias": (dim,), "ls1.gamma": (dim,), "ls2.gamma": (dim,),
        }  # fmt: skip
        shapes |= (
            {"mlp.w12.weight": (64, dim), "mlp.w12.bias": (64,), "mlp.w3.weight": (dim, 32), "mlp.w3.bias": (dim,)}
            if swiglu
            else {
                "mlp.fc1.weight": (hidden, dim),
                "mlp.fc1.bias": (hidden,),
                "mlp.fc2.weight": (dim, hidden),
                "mlp.fc2.bias": (dim,),
            }
        )
        state |= {block + key: draw(shape) / shape[-1] ** 0.5 for key, shape in shapes.items()}
    return state


def shaken(net: Any) -> Any:
    """The network with every weight drawn, also those that begin at 0 or 1: so that none can be left out unnoticed."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.3)
    return net.eval()


def written(state: State, path: Path, prefix: str = "") -> Path:
    """The weights as a file, each key behind a prefix: .safetensors, or a training's checkpoint."""
    keys = {prefix + key: value.contiguous() for key, value in state.items()}
    if path.suffix == ".safetensors":
        save_file(keys, path)
    else:
        torch.save({"epoch": 3, "state_dict": keys}, path)
    return path
