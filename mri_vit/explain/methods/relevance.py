"""Every map that a study asks for, as one number per place and method, before it becomes an image.

Letters: b patients, p tokens that are given, k numbers in a patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.explain.methods.gradcam import gradcam_by_place, layer_mm
from mri_vit.explain.methods.gradient import gradient_attention, gradient_rollout, integrated_gradients
from mri_vit.explain.methods.names import METHODS
from mri_vit.explain.methods.occlusion import occlusion, occlusion_by_air
from mri_vit.explain.methods.rollout import cls_attention, rollout
from mri_vit.explain.methods.target import TargetSigns
from mri_vit.model.encoder import Encoder
from mri_vit.model.network import Network
from mri_vit.settings.schema import NO_BLOCK

PER_ENDPOINT = {
    "gradient_attention": gradient_attention,
    "gradient_rollout": gradient_rollout,
    "integrated_gradients": integrated_gradients,
    "occlusion": occlusion,
    "gradcam": gradcam_by_place,
    "occlusion_by_air": occlusion_by_air,
}


def relevances(
    net: Network,
    patches: Float[Tensor, "b p k"],
    place: Int[Tensor, "b p"],
    methods: Sequence[str],
    signs: TargetSigns | None = None,
) -> dict[tuple[str, str], Float[Tensor, "b p"]]:
    """The maps of `methods` (of names.METHODS) by method and endpoint, "" where the map is the same for every endpoint.

    `signs` are what the maps per endpoint are to explain (see gradient.py); the predicted classes where not given.

    Returns
    -------
    dict from (method, endpoint) to float [b p] ≥ 0 on the network's device, each in its own unit; `relative` gives one unit.

    Raises
    ------
    KeyError for a method that is not known; ValueError for a Vision Transformer without a block, which attends to nothing.
    """
    if isinstance(net.encoder, Encoder) and not net.encoder.layers:
        raise ValueError(NO_BLOCK)
    found = {}
    for method in methods:
        if method == "rollout":
            row = rollout(net.encoder, patches, place)
            found[method, ""] = row[:, 1:]  # CLS's own share is no place's
        elif method == "cls_attention":
            found[method, ""] = cls_attention(net.encoder, patches, place)[:, 1:]
        else:
            found |= {(method, name): value for name, value in PER_ENDPOINT[method](net, patches, place, signs).items()}
    return found


def relative(value: Float[Tensor, "b p"]) -> Float[Tensor, "b p"]:
    """Times the uniform map: each patient's mean over places becomes 1; a map that is zero everywhere stays so."""
    mean = value.mean(dim=1, keepdim=True)
    return torch.where(mean > 0, value / mean, value)


def note(method: str, net: Network) -> str:
    """What a map shows; of Grad-CAM also how finely, which is the network's layer's."""
    if method != "gradcam":
        return METHODS[method].meaning
    voxels, edges_mm = layer_mm(net)
    count, size = (" × ".join(f"{value:.0f}" for value in along) for along in (voxels, edges_mm))
    return (
        f"{METHODS[method].meaning} That has {count} voxels of {size} mm over the head: the map points no finer, and may lie "
        "half of one off."
    )
