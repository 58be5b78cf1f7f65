"""Grad-CAM, for convolutional networks: where a layer's features spoke for an output.

Letters: b patients, c scans, e grid edge.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn


def gradcam(network: nn.Module, layer: str, volume: Float[Tensor, "b c e e e"], output: int) -> Float[Tensor, "b e e e"]:
    """The map of one of a convolutional network's outputs, on the voxels of its input.

    Definition: the layer's channels, each weighted by the mean over its voxels of the output's gradient, summed; the positive
    part, interpolated trilinearly to the input's voxels. By MONAI, without its stretching to 0..1.
    Formula: (sum_j a_j A_j)⁺ with a_j = mean over voxels of ∂output/∂A_j.
    Assumption: the mean gradient stands for the channel's part at every voxel, which is exact when the layer is followed by a
    global mean and a linear map. The resolution is the layer's; zero is the same in every map, but the unit is the layer's.
    Source: Selvaraju et al. 2017, arXiv:1610.02391, equations 1 and 2, doi:10.1109/ICCV.2017.74.

    Parameters
    ----------
    network : takes `volume` and puts out float [b m]; it is left as it was.
    layer : the name of a module of it (`named_modules`) that puts out float [b channels x y z], such as "layer4".
    volume : float [b c e e e].
    output : which of the m numbers; for a logit below 0, that is a predicted zero, explain the negated network instead.

    Returns
    -------
    float [b e e e] ≥ 0.

    Raises
    ------
    ValueError when the network has no such layer.
    """
    from monai.visualize.class_activation_maps import GradCAM  # here, because its import takes seconds

    if layer not in dict(network.named_modules()):
        known = ", ".join(name for name, _ in network.named_modules() if name)
        raise ValueError(f"found no layer {layer!r}; the network has {known}")
    copy = deepcopy(network).eval()  # MONAI hooks into what it is given, and stops it from working in place
    for parameter in copy.parameters():
        parameter.requires_grad_()  # a frozen layer would pass no gradient
    with torch.enable_grad():
        cam = GradCAM(copy, layer, postprocessing=lambda map: map)(volume, class_idx=output)
    return cam[:, 0].detach()
