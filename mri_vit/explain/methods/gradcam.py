"""Grad-CAM, for convolutional networks: where a layer's features spoke for an output.

Letters: b patients, c scans, e grid edge, f channels of the layer, x y z its voxels, p places given, k numbers in a patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mri_vit.explain.methods.target import TargetSigns, evidences, features, target_signs
from mri_vit.model.baselines import BASELINES, Box
from mri_vit.model.network import Network


def gradcam(network: nn.Module, layer: str, volume: Float[Tensor, "b c e e e"], output: int) -> Float[Tensor, "b e e e"]:
    """The map of one of a convolutional network's outputs, on the voxels of its input.

    Definition: the layer's channels, each weighted by the mean over its voxels of the output's gradient, summed; the positive
    part, interpolated trilinearly to the input's voxels.
    Formula: (sum_j a_j A_j)⁺ with a_j = mean over voxels of ∂output/∂A_j.
    Assumption: the mean gradient stands for the channel's part at every voxel, which is exact when the layer is followed by a
    global mean and a linear map. The resolution is the layer's; zero is the same in every map, but the unit is the layer's.
    Source: Selvaraju et al. 2017, arXiv:1610.02391, equations 1 and 2, doi:10.1109/ICCV.2017.74.

    Parameters
    ----------
    network : takes `volume` and puts out float [b m]; it is left as it was.
    layer : the name of a module of it (`named_modules`) that puts out float [b f x y z], such as "layer4".
    volume : float [b c e e e].
    output : which of the m numbers; for a logit below 0, that is a predicted zero, explain the negated network instead.

    Returns
    -------
    float [b e e e] ≥ 0.

    Raises
    ------
    ValueError when the network has no such layer.
    """
    if layer not in dict(network.named_modules()):
        known = ", ".join(name for name, _ in network.named_modules() if name)
        raise ValueError(f"no layer {layer!r}; the network has {known}")
    copy = deepcopy(network).eval()  # whose modules may be in any mode
    with torch.enable_grad(), _put_out(copy, layer) as held:
        cam = _cam(copy(volume)[:, output], held[0])
    return _on_voxels(cam, (volume.shape[2], volume.shape[3], volume.shape[4]))


def gradcam_by_place(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Grad-CAM of every endpoint's target, of a network of `BASELINES` that has a last convolutional map, as means over places.

    Definition: `gradcam` of the target of target.py at the network's `layer`, in the mean over the voxels of each place. The
    layer is coarser than the places (`layer_mm`), so that these lose nothing of it.
    Assumption: as for `gradcam`, which is exact for a binary endpoint and for Cox: their evidence is linear in the layer's mean.
    The layer's voxels are taken to tile the volume evenly, as in the source; padding may move what they saw by half of one.

    Parameters
    ----------
    net : in evaluation mode; not under `torch.inference_mode`, which allows no gradient.
    patches : float [b p k], the given places' patches.
    place : int [b p], where they sit.
    signs : by endpoint 1 or -1 for each patient, what the maps are to explain; the predicted classes where not given.

    Returns
    -------
    dict from endpoint to float [b p] ≥ 0, in units of target and layer; 0 where a place lies outside the box that is read.

    Raises
    ------
    ValueError when the network has no such map.
    """
    layer = _layer(net)
    with torch.enable_grad(), _put_out(net.encoder.net, layer) as held:
        summary = features(net, patches, place)
        signs = target_signs(net, summary, signs)
        cams = {name: _cam(signs[name] * value, held[0]) for name, value in evidences(net, summary).items()}
    return {name: _on_places(cam, place, net.encoder.box) for name, cam in cams.items()}


@torch.no_grad()
def layer_mm(net: Network) -> tuple[tuple[int, int, int], tuple[float, float, float]]:
    """Voxels of the map that `gradcam_by_place` reads along x, y, z, and the edges of one in mm. Raises as that does."""
    layer, parameter, box = _layer(net), next(net.parameters()), net.encoder.box
    nothing = parameter.new_zeros(1, 0, len(net.channels) * net.grid.patch**3)
    with _put_out(net.encoder.net, layer) as held:
        features(net, nothing, torch.zeros(1, 0, dtype=torch.long, device=parameter.device))
    x, y, z = (int(count) for count in held[0].shape[2:])
    wide, deep, high = (box.grid.spacing_mm * size / count for size, count in zip(box.size, (x, y, z), strict=True))
    return (x, y, z), (wide, deep, high)


def _layer(net: Network) -> str:
    baseline = BASELINES.get(net.model.architecture)
    if baseline is None or baseline.layer is None or not baseline.averaged:
        raise ValueError(f"{net.model.architecture} has no last convolutional map that is averaged, and so no Grad-CAM")
    return baseline.layer


@contextmanager
def _put_out(network: nn.Module, layer: str) -> Iterator[list[Float[Tensor, "b f x y z"]]]:
    """What the layer puts out while the network runs, cut off from what lies before it, where no gradient is wanted."""
    held: list[Tensor] = []

    def hold(_: nn.Module, __: object, output: Tensor) -> Tensor:
        held.append(output.detach().requires_grad_())
        return held[-1].clone()  # what follows may work in place

    handle = network.get_submodule(layer).register_forward_hook(hold)
    try:
        yield held
    finally:
        handle.remove()


def _cam(target: Float[Tensor, "b"], layer: Float[Tensor, "b f x y z"]) -> Float[Tensor, "b x y z"]:
    (slope,) = torch.autograd.grad(target.sum(), layer, retain_graph=True)
    return (slope.mean(dim=(2, 3, 4), keepdim=True) * layer.detach()).sum(dim=1).clamp_min(0)


def _on_voxels(cam: Float[Tensor, "b x y z"], size: tuple[int, int, int]) -> Float[Tensor, "b i j k"]:
    return F.interpolate(cam[:, None], size=size, mode="trilinear", align_corners=False)[:, 0]


def _on_places(cam: Float[Tensor, "b x y z"], place: Int[Tensor, "b p"], box: Box) -> Float[Tensor, "b p"]:
    by_place = F.avg_pool3d(_on_voxels(cam, box.size), box.grid.patch).flatten(start_dim=1)
    return F.pad(by_place, (0, 1)).gather(1, box.slot(place))  # the last is for what lies outside the box
