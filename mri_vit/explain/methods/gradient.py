"""Maps of one endpoint from gradients: the attention, the voxels or, by Grad-CAM, the convolutional features that supported
the prediction.

A block's matrix of gradient-weighted attention is Ā = mean over heads of (∇A ⊙ A)⁺, where ∇A is the gradient of the target
(see target.py) by the attention matrix A. A attends to the values, so ∇A = ∇O·Vᵀ with O = A·V: the gradient by O, which
fused attention gives, is enough, and Ā is made in blocks of rows. The blocks are followed from the last to the first. Each is
computed a second time from its stored input, so that one block's gradients are held at a time, and the CLS row of the
product is carried along, so that a vector is held and no [b h n n]. What the last step leaves, the target's gradient by the
tokens, is one product away from the voxels' (`gradient_by_scan`), so that all of these maps share one way back.

Grad-CAM weighs the channels of a layer by their gradient.

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, r query rows, k numbers in a patch, c scans; of Grad-CAM e
grid edge, f channels of the layer, x y z its voxels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor, nn

from mri_vit.explain.methods.rollout import Passed, forward_pass
from mri_vit.explain.methods.target import Questions, attended, features, predicted, questions_of, rows_read, targets
from mri_vit.model.baselines import BASELINES
from mri_vit.model.encoder import attention_weights, row_blocks
from mri_vit.model.network import Network

STEPS = 24  # nodes on integrated gradients' path: on the built-in cohort 0.4 % of the map is missed at most, with 16 2.5 %
PASS_NUMBERS = 2**22  # voxel values in one pass of integrated gradients: 16 MB; more are no faster on a CPU

# With what weight each row of Ā + I counts, by method.
WEIGHTS: dict[str, Callable[[Float[Tensor, "b r"], Float[Tensor, "b r n"]], Float[Tensor, "b r"]]] = {
    "gradient_attention": lambda row, spoke: row,
    "gradient_rollout": lambda row, spoke: row / (1 + spoke.sum(dim=2)),
}
Rows = dict[tuple[str, str], Float[Tensor, "b n"]]  # CLS's, by method and endpoint


@dataclass(frozen=True, eq=False)
class WayBack:
    """What one way back through an encoder leaves: CLS's rows, and each target's gradient by the tokens that entered it."""

    rows: Rows
    pull: dict[str, Float[Tensor, "b n d"]]


def gradient_attention(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Gradient-weighted attention of every endpoint.

    Definition: the CLS row of R, which starts as the identity and takes in each block, first to last.
    Formula: R ← R + Ā·R, with Ā = mean over heads of (∇A ⊙ A)⁺; for one row, last block to first, row ← row + row·Ā.
    Assumption: attention that the target would gain from more of is what it drew on; MLPs and norms move nothing between
    tokens, so attention alone shows where information came from.
    Source: Chefer, Gur & Wolf 2021, arXiv:2103.15679, equations 5 and 6, doi:10.1109/ICCV48922.2021.00045.

    The network may be in training or evaluation mode; not under `torch.inference_mode`, which allows no gradient. `questions` are
    what the maps are to explain, by default what the network predicts. Maps are ≥ 0, in units of
    the target; all zero where no attention supported the prediction.
    """
    return _alone("gradient_attention", net, patches, position, questions)


def gradient_rollout(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Attention rollout along attention that supported the prediction.

    Definition: the CLS row of the blocks' product, where each block's matrix is Ā + I with every row divided by its sum.
    Formula: row ← w + w·Ā with w_i = row_i / (1 + sum_j Ā_ij), last block to first, from the CLS token's unit vector.
    Assumption: as for `gradient_attention`. The row with CLS's own share sums to 1, so without it the map sums to less.
    Source: Abnar & Zuidema 2020, arXiv:2005.00928, with Ā of Chefer et al. 2021, arXiv:2103.15679, for the attention.
    Parameters are those of `gradient_attention`.
    """
    return _alone("gradient_rollout", net, patches, position, questions)


def integrated_gradients(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Integrated gradients of every endpoint by grid position, ≥ 0 and in units of the target.

    Definition: the positive part of the sum, over a patch's numbers, of `integrated_gradients_by_scan`'s attributions: what
    supports the prediction, less what contradicts it there.
    """
    by_scan = integrated_gradients_by_scan(net, patches, position, questions)
    return {name: scans.sum(dim=2).clamp_min(0) for name, scans in by_scan.items()}


def integrated_gradients_by_scan(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p c"]]:
    """Integrated gradients of every endpoint, summed over the voxels of each grid position's patch in each scan, with their sign.

    Definition: how much each voxel moves the target on the path from empty patches (0, the brain's mean brightness) at the
    same grid positions to the patient's.
    Formula: x · ∫₀¹ ∇f(αx) dα by Gauss-Legendre with `STEPS` nodes.
    Assumption: the straight path between the two is a fair one; the brain's outline, given by the positions, is never taken away.
    Places, scans and voxels together add up to f(x) − f(0), but for the rule's error.
    Source: Sundararajan, Taly & Yan 2017, arXiv:1703.01365, section 3; the sum is their completeness.
    Parameters are those of `gradient_attention`; scans are in the order of the network's channels, values in units of the target.
    """
    questions = predicted(net, patches, position, questions)
    nodes, weights = np.polynomial.legendre.leggauss(STEPS)  # on −1 to 1
    at_once = max(1, PASS_NUMBERS // patches[0].numel() // len(patches))
    total = dict.fromkeys(questions, torch.zeros_like(patches))
    for start in range(0, STEPS, at_once):
        alphas = 0.5 * (1 + nodes[start : start + at_once])
        weight = torch.from_numpy(0.5 * weights[start : start + at_once]).to(patches)
        count = len(alphas)
        path = torch.cat([alpha * patches for alpha in alphas.tolist()])  # [count·b p k]
        slopes = _slopes(net, path, position.repeat(count, 1), {name: one.repeat(count) for name, one in questions.items()})
        for name, slope in slopes.items():
            mean = (slope.reshape(count, -1) * weight[:, None]).reshape(count, *patches.shape).sum(dim=0)
            total[name] = total[name] + mean * patches
    return {name: _by_scan(attributed, net) for name, attributed in total.items()}


def gradient_by_scan(
    net: Network,
    patches: Float[Tensor, "b p k"],
    position: Int[Tensor, "b p"],
    way_back: WayBack | None = None,
    questions: Questions | None = None,
) -> dict[str, Float[Tensor, "b p c"]]:
    """Gradient × input of every endpoint, summed over the voxels of each grid position's patch in each scan, with their sign.

    Definition: how fast the target moves with each voxel at the patient's own scan, times the voxel.
    Formula: x · ∇f(x): one node of the path of `integrated_gradients_by_scan`, at the cost of one backward pass.
    Assumption: the target is near enough to linear between an empty patch and the patient's that its slope there stands for
    the path; equal to integrated gradients where it is linear, and without their sum elsewhere.
    Source: Shrikumar et al. 2016, arXiv:1605.01713.
    Parameters and result are those of `integrated_gradients_by_scan`; with the `way_back` of the same patients nothing but the
    patch embedding is run again.
    """
    if way_back is None:
        slopes = _slopes(net, patches, position, questions)
    else:
        with torch.enable_grad():
            x = patches.detach().requires_grad_()
            tokens = net.encoder.tokens(x, position)
        slopes = {name: _pulled(tokens, (x,), pull)[0] for name, pull in way_back.pull.items()}
    return {name: _by_scan(patches * slope, net) for name, slope in slopes.items()}


def _slopes(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p k"]]:
    """Every endpoint's target's gradient by the voxels."""
    with torch.enable_grad():
        x = patches.detach().requires_grad_()
        summary = features(net, x, position)
        questions = questions_of(net, summary, questions)
        return {
            name: torch.autograd.grad(value.sum(), x, retain_graph=True)[0]
            for name, value in targets(net, summary, questions).items()
        }


def _by_scan(attributed: Float[Tensor, "b p k"], net: Network) -> Float[Tensor, "b p c"]:
    return reduce(attributed, "b p (c voxels) -> b p c", "sum", c=len(net.channels))


def _alone(
    method: str, net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None
) -> dict[str, Float[Tensor, "b p"]]:
    rows = way_back(net, forward_pass(net.encoder, patches, position), questions, [method]).rows
    return {name: row[:, 1:] for (_, name), row in rows.items()}


def way_back(net: Network, passed: Passed, questions: Questions | None, methods: Collection[str]) -> WayBack:
    """From the targets to the tokens that entered the encoder, for those of `WEIGHTS` that are in `methods`.

    `passed` followed all blocks; `questions` are as in `gradient_attention`.
    """
    rows: Rows = {}
    pull: dict[str, Float[Tensor, "b r d"]] = {}  # each target's gradient by the block's output
    read = rows_read(net.encoder, passed.inputs[0])
    for block, entered in zip(reversed(passed.blocks), reversed(passed.inputs.unbind()), strict=True):
        with torch.enable_grad():
            x = entered.detach().requires_grad_()
            output, mixed, (q, k, v) = attended(block, x, read)
            if not pull:
                pull, rows = _read(net, output, x.shape[1], questions, methods)
        slopes = {name: _pulled(output, (mixed, x), by) for name, by in pull.items()}
        toward = {name: slope for name, (slope, _) in slopes.items()}
        rows = _followed(rows, toward, q.detach(), k.detach(), v.detach())
        pull, read = {name: slope for name, (_, slope) in slopes.items()}, x.shape[1]
    return WayBack(rows, pull)


def _pulled(output: Tensor, sources: tuple[Tensor, ...], by: Tensor) -> tuple[Tensor, ...]:
    """The sources' gradients where `by` is the output's: of a sum, because with `by` handed over torch first imports sympy."""
    with torch.enable_grad():
        target = (output * by).sum()
    return torch.autograd.grad(target, sources, retain_graph=True)


def _read(
    net: Network, output: Float[Tensor, "b r d"], n: int, questions: Questions | None, methods: Collection[str]
) -> tuple[dict[str, Float[Tensor, "b r d"]], Rows]:
    """Each target's gradient by the last block's output, and the rows of n that are carried from there: CLS's unit vector.

    Where the heads read other tokens beside CLS, these are attended to by the readout, a head for each feature, and the row
    is CLS's of Ā + I.
    """
    summary = net.encoder.readout(output)
    questions = questions_of(net, summary, questions)
    pull: dict[str, Float[Tensor, "b r d"]] = {}
    rows: Rows = {}
    unit = output.new_zeros(len(output), n)
    unit[:, 0] = 1
    for name, value in targets(net, summary, questions).items():
        by, pull[name] = torch.autograd.grad(value.sum(), (summary, output), retain_graph=True)
        spoke = torch.zeros_like(unit)
        if net.encoder.pool != "cls":
            with torch.no_grad():
                parts = by[:, None] * net.encoder.norm(output[:, 1:]) * net.encoder.parts(output)
                spoke = F.pad(parts.clamp_min(0).mean(dim=2), (1, 0))
        for method in WEIGHTS.keys() & methods:
            rows[method, name] = WEIGHTS[method](unit[:, :1], spoke[:, None]) * (unit + spoke)
    return pull, rows


def _followed(
    rows: Rows,
    toward: dict[str, Float[Tensor, "b h r e"]],
    q: Float[Tensor, "b h r e"],
    k: Float[Tensor, "b h n e"],
    v: Float[Tensor, "b h n e"],
) -> Rows:
    """The rows times Ā + I of one block, whose query rows beyond the first r have no weight; ∇A = `toward`·Vᵀ."""
    carried = {key: torch.zeros_like(row) for key, row in rows.items()}
    for queries in row_blocks(q, k) if rows else ():
        attention = attention_weights(q[:, :, queries], k)  # [b h r n]
        for name, by in toward.items():
            spoke = (by[:, :, queries] @ v.transpose(-2, -1)).mul_(attention).clamp_min_(0).mean(dim=1)
            for method, _ in [key for key in rows if key[1] == name]:
                weight = WEIGHTS[method](rows[method, name][:, : q.shape[2]][:, queries], spoke)
                carried[method, name][:, queries.start : queries.start + weight.shape[1]] += weight
                carried[method, name] += torch.bmm(weight[:, None], spoke)[:, 0]
    return carried


# --- Grad-CAM ------------------------------------------------------------------------------------------------------------------


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
    layer : the name of a module of it (`named_modules`) that puts out float [b f x y z], such as "layer4"; else ValueError.
    output : which of the m numbers; for a logit below 0, that is a predicted zero, explain the negated network instead.
    """
    if layer not in dict(network.named_modules()):
        known = ", ".join(name for name, _ in network.named_modules() if name)
        raise ValueError(f"no layer {layer!r}; the network has {known}")
    copy = deepcopy(network).eval()  # whose modules may be in any mode
    with torch.enable_grad(), _put_out(copy, layer) as held:
        return _cam(copy(volume)[:, output], held[0], tuple(volume.shape[2:]))


def gradcam_by_place(
    net: Network, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], questions: Questions | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Grad-CAM of every endpoint's target, of one of `BASELINES` that has a last convolutional map, as means over positions.

    Definition: `gradcam` of the target of target.py at the network's `layer`, in the mean over the voxels of each position. The
    layer is coarser than the places (`layer_mm`), so that these lose nothing of it.
    Assumption: as for `gradcam`, which is exact for a binary endpoint and for Cox: their evidence is linear in the layer's mean.
    The layer's voxels are taken to tile the volume evenly, as in the source; padding may move what they saw by half of one.

    Parameters are those of `gradient_attention`, the network in evaluation mode. Values are in units of target and layer; 0 where
    a grid position lies outside the box that is read. Raises ValueError when the network has no such map.
    """
    layer = _layer(net)
    with torch.enable_grad(), _put_out(net.encoder.net, layer) as held:
        summary = features(net, patches, position)
        questions = questions_of(net, summary, questions)
        box = net.encoder.box
        cams = {name: _cam(value, held[0], box.size) for name, value in targets(net, summary, questions).items()}
    by_place = {name: F.avg_pool3d(cam, box.grid.patch).flatten(start_dim=1) for name, cam in cams.items()}
    # The last is for what lies outside the box.
    return {name: F.pad(value, (0, 1)).gather(1, box.slot(position)) for name, value in by_place.items()}


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


def _cam(target: Float[Tensor, "b"], layer: Float[Tensor, "b f x y z"], size: tuple[int, ...]) -> Float[Tensor, "b i j k"]:
    """The map on a volume of this size."""
    (slope,) = torch.autograd.grad(target.sum(), layer, retain_graph=True)
    cam = (slope.mean(dim=(2, 3, 4), keepdim=True) * layer.detach()).sum(dim=1, keepdim=True).clamp_min(0)
    return F.interpolate(cam, size=size, mode="trilinear", align_corners=False)[:, 0]
