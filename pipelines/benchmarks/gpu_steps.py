"""Ways to make a training step of ViT, each by itself on one batch that stays on the device, and what each should take.

A step is forward, the endpoints' losses, backward, clipping and AdamW. Each way starts from the same weights, so that its loss
after `WARM_UP` steps says whether it makes the same step. Letters: b patients, p tokens, k numbers in a patch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from benchmarks.inputs import DEVICE, FOREGROUND, GRID
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.model.sizes import layers
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model
from mri_vit.train.supervised import total_loss

WARM_UP = 3  # steps before timing: allocation, compilation, the optimiser's moments; a graph is recorded after them
CLIP, RATE = 1.0, 1e-4  # as a training's defaults are, near enough: neither costs more or less for its value


@dataclass(frozen=True)
class Way:
    """How a step is made; the defaults are PyTorch's plain way under bfloat16 autocast."""

    patients: int = 16
    tokens: int = FOREGROUND
    masked: bool = False  # attention gets a mask, though it leaves every token
    cast: bool = False  # patches go from half precision to bfloat16 at once, not by way of single precision
    masters: bool = False  # weights are bfloat16, and AdamW updates copies in single precision
    fused: bool = True  # AdamW in one kernel; else in many, each over all weights
    compiled: Literal["no", "blocks", "all"] = "no"  # by torch.compile: each block, or the loss and AdamW
    graph: bool = False  # the whole step is one CUDA graph
    ordered: bool = False  # sums in one order, as a training has them


def step_of(way: Way, model: Model) -> Callable[[], Tensor]:
    """A function that makes a step and gives its loss, on the device. The first `WARM_UP` calls compile, and record a graph."""
    torch.manual_seed(0)
    net = Network(model.model_copy(update={"drop_path": 0.0}), GRID, [Head(e, "binary") for e in DEFAULT_ENDPOINTS[:1]])
    net = net.to(DEVICE).train()
    weights = masters = list(net.parameters())
    if way.masters:
        masters = [weight.detach().clone().requires_grad_() for weight in weights]
        net.bfloat16()
    rate = torch.tensor(RATE, device=DEVICE) if way.graph else RATE  # a number would be recorded once and for all
    adamw = torch.optim.AdamW(masters, lr=rate, fused=way.fused, foreach=not way.fused, capturable=way.graph)
    loss_of, update = loss_function(net, way), adamw.step
    if way.compiled == "blocks":
        for block in net.encoder.layers:
            block.compile(dynamic=False)
    if way.compiled == "all":
        loss_of, update = torch.compile(loss_of, dynamic=False), torch.compile(update)

    def step() -> Tensor:
        loss = loss_of()
        loss.backward()
        if way.masters:
            for master, weight in zip(masters, weights, strict=True):
                master.grad, weight.grad = weight.grad.float(), None  # type: ignore[union-attr]
        nn.utils.clip_grad_norm_(masters, CLIP)
        update()
        if way.masters:
            copies = [weight.data for weight in weights], [master.data for master in masters]
            torch._foreach_copy_(*copies)  # pyright: ignore[reportPrivateImportUsage]
        return loss.detach()

    def plain() -> Tensor:
        adamw.zero_grad()
        return step()

    return Recorded(adamw, step) if way.graph else plain


class Recorded:
    """A step that is recorded as one CUDA graph at its first call, after `WARM_UP` steps on a stream of their own."""

    def __init__(self, adamw: torch.optim.Optimizer, step: Callable[[], Tensor]) -> None:
        self.adamw, self.step = adamw, step
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss: Tensor | None = None

    def __call__(self) -> Tensor:
        if self.graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.adamw.zero_grad()
                    self.loss = self.step()
            torch.cuda.current_stream().wait_stream(side)
            self.adamw.zero_grad()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.step()
        self.graph.replay()
        assert self.loss is not None
        return self.loss


def loss_function(net: Network, way: Way) -> Callable[[], Tensor]:
    """The loss of one batch of random patches in half precision, as a training is fed."""
    generator = torch.Generator().manual_seed(0)
    numbers = len(CHANNELS) * GRID.patch**3
    patches = torch.randn(way.patients, way.tokens, numbers, generator=generator).half().to(DEVICE)
    position = torch.arange(way.tokens, device=DEVICE).expand(way.patients, -1) % GRID.positions
    present = torch.ones_like(position, dtype=torch.bool) if way.masked else None
    truth = {head.endpoint.name: (torch.arange(way.patients, device=DEVICE) % 2)[:, None].float() for head in net.heads}

    def loss() -> Tensor:
        half = nullcontext() if way.masters else torch.autocast(DEVICE.type, torch.bfloat16)
        with half:
            if not way.cast:
                return total_loss(net, net(patches, position, present), truth)
            tokens = net.encoder.placed(net.encoder.embed(patches.bfloat16()), position)
            for block in net.encoder.layers:
                tokens = block(tokens)
            cls = net.encoder.readout(tokens)
            return total_loss(net, {name: linear(cls) for name, linear in net.head.items()}, truth)

    return loss


# --- what a step should take, by arithmetic -----------------------------------------------------------------------------------

# Of one H200. Its data sheet: 989 TFLOP/s dense in bfloat16, 4.8 TB/s. Measured with PyTorch 2.11: a product of matrices
# of 8192³ at 764 TFLOP/s; a step of ViT-B on one patient, which waits for the processor alone, in 41 ms.
PRODUCT = 764e12  # operations a second
BANDWIDTH = 0.8 * 4.8e12  # bytes a second: what copies reach of the data sheet's
LAUNCHING = 0.041  # seconds in which a processor launches a step without a graph
FLASH, EFFICIENT = 0.45, 0.2  # attention's share of a product's rate: 350 of 764 (Shah et al. 2024, arXiv:2407.08608), a guess
WIDE = {False: 250, True: 140}  # bytes moved between matrix products per token, feature and block, from autocast's casts or none
ADAM_BYTES = 28  # a weight: itself, both moments read and written, its gradient read, in single precision


def expected_seconds(way: Way, model: Model) -> float:
    """A lower estimate: what is computed at the rates above, or the launches, whichever takes longer.

    Per token, feature and block the residual path, both norms, GELU, casts and their backward passes move some 250 bytes under
    autocast, 140 with bfloat16 weights, and half of that where compilation fuses them; attention is computed again backward.
    """
    dim, depth, _, _ = model.shape
    n = way.tokens + 1
    forward = sum(layer.operations for layer in layers(model, GRID, len(CHANNELS), way.tokens))
    attention = depth * 4 * n * n * dim
    matrices = 3 * (forward - attention) / PRODUCT
    attended = 3.5 * attention / (PRODUCT * (EFFICIENT if way.masked else FLASH))  # backward 2.5 times the forward pass
    patches = way.tokens * len(CHANNELS) * GRID.patch**3 * (4 if way.cast or way.masters else 12)  # read and written
    wide = WIDE[way.masters] * (0.5 if way.compiled != "no" else 1) * n * dim * depth
    weights = sum(layer.weights for layer in layers(model, GRID, len(CHANNELS), way.tokens))
    update = weights * (ADAM_BYTES + 8 + (10 if way.masters else 6)) / BANDWIDTH  # clipping, and casts of weights or gradients
    one_kernel = way.fused or way.compiled == "all"
    computed = way.patients * (matrices + attended + (patches + wide) / BANDWIDTH) + update * (1 if one_kernel else 2)
    return computed if way.graph else max(computed, LAUNCHING * (0.5 if way.compiled != "no" else 1))
