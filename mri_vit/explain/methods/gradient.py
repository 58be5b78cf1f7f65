"""Maps of one endpoint from gradients: which attention, and which voxels, spoke for the prediction.

A block's matrix of gradient-weighted attention is Ā = mean over heads of (∇A ⊙ A)⁺, where ∇A is the gradient of the target
(see target.py) by the attention matrix A. A attends to the values, so ∇A = ∇O·Vᵀ with O = A·V: the gradient by O, which
fused attention gives, is enough, and Ā is made in blocks of rows. The blocks are followed from the last to the first. Each is
computed a second time from its stored input, so that one block's gradients are held at a time, and the CLS row of the
product is carried along, so that a vector is held and no [b h n n].

Letters: b patients, p tokens that are given, n = p + 1 with CLS first, r query rows, k numbers in a patch, c scans.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor

from mri_vit.explain.methods.target import TargetSigns, attended, evidences, features, predicted, rows_read, target_signs
from mri_vit.model.encoder import ROWS, attention_weights
from mri_vit.model.network import Network

STEPS = 24  # nodes on integrated gradients' path: on the built-in cohort 0.4 % of the map is missed at most, with 16 2.5 %
PASS_NUMBERS = 2**22  # voxel values in one pass of integrated gradients: 16 MB; more are no faster on a CPU

Weigh = Callable[[Float[Tensor, "b r"], Float[Tensor, "b r n"]], Float[Tensor, "b r"]]


def gradient_attention(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Gradient-weighted attention of every endpoint.

    Definition: the CLS row of R, which starts as the identity and takes in each block, first to last.
    Formula: R ← R + Ā·R, with Ā = mean over heads of (∇A ⊙ A)⁺; for one row, last block to first, row ← row + row·Ā.
    Assumption: attention that the target would gain from more of is what it drew on; MLPs and norms move nothing between
    tokens, so attention alone shows where information came from.
    Source: Chefer, Gur & Wolf 2021, arXiv:2103.15679, equations 5 and 6, doi:10.1109/ICCV48922.2021.00045.

    Parameters
    ----------
    net : the network, in training or evaluation mode; not under `torch.inference_mode`, which allows no gradient.
    patches : float [b p k], the given places' patches.
    place : int [b p], where they sit.
    signs : by endpoint 1 or -1 for each patient, what the maps are to explain; the predicted classes where not given.

    Returns
    -------
    dict from endpoint to float [b p] ≥ 0, in units of the target; all zero where no attention spoke for the prediction.
    """
    return _carried(net, patches, place, signs, lambda row, spoke: row)


def gradient_rollout(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Attention rollout along attention that spoke for the prediction.

    Definition: the CLS row of the blocks' product, where each block's matrix is Ā + I with every row divided by its sum.
    Formula: row ← w + w·Ā with w_i = row_i / (1 + sum_j Ā_ij), last block to first, from the CLS token's unit vector.
    Assumption: as for `gradient_attention`. The row with CLS's own share sums to 1, so without it the map sums to less.
    Source: Abnar & Zuidema 2020, arXiv:2005.00928, with Ā of Chefer et al. 2021, arXiv:2103.15679, for the attention.

    Parameters
    ----------
    net, patches, place, signs : as for `gradient_attention`.

    Returns
    -------
    dict from endpoint to float [b p], shares between 0 and 1.
    """
    return _carried(net, patches, place, signs, lambda row, spoke: row / (1 + spoke.sum(dim=2)))


def integrated_gradients(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p"]]:
    """Integrated gradients of every endpoint, by place.

    Definition: the positive part of the sum, over a patch's numbers, of `integrated_gradients_by_scan`'s attributions.

    Parameters
    ----------
    net, patches, place, signs : as for `gradient_attention`.

    Returns
    -------
    dict from endpoint to float [b p] ≥ 0, in units of the target.
    """
    return {name: by_place(scans) for name, scans in integrated_gradients_by_scan(net, patches, place, signs).items()}


def by_place(scans: Float[Tensor, "b p c"]) -> Float[Tensor, "b p"]:
    """Integrated gradients by place from those by scan: what supports the prediction, less what contradicts it there."""
    return scans.sum(dim=2).clamp_min(0)


def integrated_gradients_by_scan(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p c"]]:
    """Integrated gradients of every endpoint, summed over the voxels of each place's patch in each scan, with their sign.

    Definition: how much each voxel moves the target on the path from empty patches (0, the brain's mean brightness) at the
    same places to the patient's.
    Formula: x · ∫₀¹ ∇f(αx) dα by Gauss-Legendre with `STEPS` nodes.
    Assumption: the straight path between the two is a fair one; the brain's outline, given by the places, is never taken away.
    Places, scans and voxels together add up to f(x) − f(0), but for the rule's error.
    Source: Sundararajan, Taly & Yan 2017, arXiv:1703.01365, section 3; the sum is their completeness.

    Parameters
    ----------
    net, patches, place, signs : as for `gradient_attention`.

    Returns
    -------
    dict from endpoint to float [b p c], scans in the order of the network's channels, in units of the target.
    """
    signs = predicted(net, patches, place, signs)
    nodes, weights = np.polynomial.legendre.leggauss(STEPS)  # on −1 to 1
    at_once = max(1, PASS_NUMBERS // patches[0].numel() // len(patches))
    total = dict.fromkeys(signs, torch.zeros_like(patches))
    for start in range(0, STEPS, at_once):
        alphas = 0.5 * (1 + nodes[start : start + at_once])
        weight = torch.from_numpy(0.5 * weights[start : start + at_once]).to(patches)
        count = len(alphas)
        path = torch.cat([alpha * patches for alpha in alphas.tolist()])  # [count·b p k]
        slopes = _slopes(net, path, place.repeat(count, 1), {name: sign.repeat(count) for name, sign in signs.items()})
        for name, slope in slopes.items():
            mean = (slope.reshape(count, -1) * weight[:, None]).reshape(count, *patches.shape).sum(dim=0)
            total[name] = total[name] + mean * patches
    return {name: _by_scan(attributed, len(net.channels)) for name, attributed in total.items()}


def gradient_by_scan(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]
) -> dict[str, Float[Tensor, "b p c"]]:
    """Gradient × input of every endpoint, summed over the voxels of each place's patch in each scan, with their sign.

    Definition: how fast the target moves with each voxel at the patient's own scan, times the voxel.
    Formula: x · ∇f(x): one node of the path of `integrated_gradients_by_scan`, at the cost of one backward pass.
    Assumption: the target is near enough to linear between an empty patch and the patient's that its slope there stands for
    the path; equal to integrated gradients where it is linear, and without their sum elsewhere.
    Source: Shrikumar et al. 2016, arXiv:1605.01713.

    Parameters
    ----------
    net, patches, place : as for `gradient_attention`.

    Returns
    -------
    dict from endpoint to float [b p c], scans in the order of the network's channels, in units of the target.
    """
    return {name: _by_scan(patches * slope, len(net.channels)) for name, slope in _slopes(net, patches, place).items()}


def _slopes(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None = None
) -> dict[str, Float[Tensor, "b p k"]]:
    """Every endpoint's target's gradient by the voxels."""
    with torch.enable_grad():
        x = patches.detach().requires_grad_()
        summary = features(net, x, place)
        signs = target_signs(net, summary, signs)
        return {
            name: torch.autograd.grad((signs[name] * value).sum(), x, retain_graph=True)[0]
            for name, value in evidences(net, summary).items()
        }


def _by_scan(attributed: Float[Tensor, "b p k"], channels: int) -> Float[Tensor, "b p c"]:
    """Summed over the voxels of each place's patch in each scan."""
    return reduce(attributed, "b p (c voxels) -> b p c", "sum", c=channels)


def _carried(
    net: Network, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"], signs: TargetSigns | None, weigh: Weigh
) -> dict[str, Float[Tensor, "b p"]]:
    """Every endpoint's CLS row without CLS itself; `weigh` says with what weight each row of Ā + I counts."""
    *earlier, _ = layers = net.encoder.layers
    with torch.no_grad():
        inputs = [net.encoder.tokens(patches, place)]
        for block in earlier:
            inputs.append(attended(block, inputs[-1], inputs[-1].shape[1])[0])
    row, pull, rows = {}, {}, rows_read(net.encoder, inputs[0])  # pull: the targets' gradients by the block's output
    for block, x in zip(reversed(layers), reversed(inputs), strict=True):
        with torch.enable_grad():
            output, mixed, (q, k, v) = attended(block, x.requires_grad_(), rows)
            if not pull:
                pull, row = _read(net, output, x.shape[1], signs, weigh)
        sources = (mixed,) if x is inputs[0] else (mixed, x)
        slopes = {name: torch.autograd.grad(output, sources, by, retain_graph=True) for name, by in pull.items()}
        toward = {name: slope[0] for name, slope in slopes.items()}
        row = _followed(row, toward, q.detach(), k.detach(), v.detach(), weigh)
        pull, rows = {name: slope[-1] for name, slope in slopes.items()}, x.shape[1]
    return {name: value[:, 1:] for name, value in row.items()}


def _read(
    net: Network, output: Float[Tensor, "b r d"], n: int, signs: TargetSigns | None, weigh: Weigh
) -> tuple[dict[str, Float[Tensor, "b r d"]], dict[str, Float[Tensor, "b n"]]]:
    """Each target's gradient by the last block's output, and the row of n that is carried from there: CLS's unit vector.

    Where the heads read other tokens beside CLS, these are attended to by the readout, a head for each feature, and the row
    is CLS's of Ā + I.
    """
    summary = net.encoder.readout(output)
    signs = target_signs(net, summary, signs)
    pull, row = {}, {}
    unit = output.new_zeros(len(output), n)
    unit[:, 0] = 1
    for name, value in evidences(net, summary).items():
        by, pull[name] = torch.autograd.grad((signs[name] * value).sum(), (summary, output), retain_graph=True)
        row[name] = unit
        if net.encoder.pool != "cls":
            with torch.no_grad():
                spoke = (by[:, None] * net.encoder.norm(output[:, 1:]) * net.encoder.parts(output)).clamp_min(0).mean(dim=2)
                weight = weigh(unit[:, :1], F.pad(spoke, (1, 0))[:, None])
                row[name] = weight * (unit + F.pad(spoke, (1, 0)))
    return pull, row


def _followed(
    row: dict[str, Float[Tensor, "b n"]],
    toward: dict[str, Float[Tensor, "b h r e"]],
    q: Float[Tensor, "b h r e"],
    k: Float[Tensor, "b h n e"],
    v: Float[Tensor, "b h n e"],
    weigh: Weigh,
) -> dict[str, Float[Tensor, "b n"]]:
    """The rows times Ā + I of one block, whose query rows beyond the first r have no weight; ∇A = `toward`·Vᵀ."""
    carried = {name: torch.zeros_like(value) for name, value in row.items()}
    for start in range(0, q.shape[2], ROWS):
        rows = slice(start, start + ROWS)
        attention = attention_weights(q[:, :, rows], k)  # [b h r n]
        for name, by in toward.items():
            spoke = (by[:, :, rows] @ v.transpose(-2, -1)).mul_(attention).clamp_min_(0).mean(dim=1)
            weight = weigh(row[name][:, : q.shape[2]][:, rows], spoke)
            carried[name][:, start : start + weight.shape[1]] += weight
            carried[name] += torch.bmm(weight[:, None], spoke)[:, 0]
    return carried
