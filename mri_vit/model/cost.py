"""What a network costs: its parameters, and the floating-point operations of a patient.

Letters: b patients, p tokens of each, k numbers in a patch.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def parameters(net: nn.Module) -> int:
    """How many numbers the network learns; the running means of batch normalisation are not learned."""
    return sum(parameter.numel() for parameter in net.parameters())


@torch.no_grad()
def flops(net: nn.Module, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> int:
    """Floating-point operations of one forward pass in evaluation, for the whole batch.

    Definition: the operations of convolutions, linear maps and attention's two products, a multiply-add being 2; papers that
    count multiply-adds (He et al. 2016, Tan & Le 2019) print half of it. Norms, activations, softmax and pooling are left out,
    as is usual: they are a few per cent.
    Assumption: as many as the published formulas of each operation say; a convolution's zeros at the border are counted, and
    nothing is saved by patches that are empty.
    Source: torch.utils.flop_counter, which counts the shapes that pass by. It knows the attention that a GPU fuses and not
    the one that a CPU does (PyTorch 2.13), so attention is held to its two plain products here, whatever is chosen for it.

    Parameters
    ----------
    net : called with (patches, place); nothing is computed, so a network of any size takes less than a second or two, and it is
        left as it was.
    patches, place : a batch as the training loop makes it; only the shapes matter.

    Returns
    -------
    Operations, for all b patients.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        _in_shapes(net, patches, place)
    return counter.get_total_flops()


@torch.no_grad()
def activation_bytes(net: nn.Module, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> int:
    """What a forward pass keeps for the backward pass, about: the batch and every layer's output, in single precision.

    Assumption: attention keeps no weights (PyTorch's fused one), and functions between layers keep nothing of their own.
    """
    kept = [patches]

    def keep(layer: nn.Module, given: object, output: object) -> None:
        if isinstance(output, Tensor):
            kept.append(output)

    hooks = [module.register_forward_hook(keep) for module in net.modules() if not any(True for _ in module.children())]
    try:
        _in_shapes(net, patches, place)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(tensor.numel() for tensor in kept) * 4


def _in_shapes(net: nn.Module, patches: Float[Tensor, "b p k"], place: Int[Tensor, "b p"]) -> None:
    """A forward pass in evaluation of which nothing is computed; the network is left as it was."""
    modes = {module: module.training for module in net.modules()}
    net.eval()  # batch normalisation in training refuses a batch of one
    weights = {name: tensor.to("meta") for name, tensor in (*net.named_parameters(), *net.named_buffers())}  # shapes alone
    try:
        torch.func.functional_call(net, weights, (patches.to("meta"), place.to("meta")))
    finally:
        for module, mode in modes.items():
            module.training = mode
