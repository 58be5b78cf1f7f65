"""Devices: one training on one device or, data-parallel, on several, each in a process of its own.

Every process draws the whole batch, reads its share, and gathers the outputs of all: the loss is that of the whole batch, whose
masked means and risk sets are no means of the shares' own. So several devices learn what one does, but for rounding.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from mri_vit.data.draw import Draw
from mri_vit.errors import MriVitError
from mri_vit.model.encoder import Block
from mri_vit.run.resource import require_gpus
from mri_vit.settings.recipe import Model, Train
from mri_vit.settings.schema import Study

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.loggers.logger import Logger

Gather = Callable[[Tensor], Tensor]  # from what a process has for its share of a batch to that of the whole batch
T = TypeVar("T")


def on_devices(study: Study, function: Callable[..., T], *arguments: Any, loggers: tuple[Logger, ...] = ()) -> T:
    """`function` of Fabric and the arguments, on the study's devices; of several it gives what the first process gave.

    These start anew: arguments and result are pickled. Raises UsageError where there are fewer GPUs than `train.devices`, and
    what the function raises.
    """
    if study.train.devices == 1:
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        try:
            return function(one_device(study, *loggers), *arguments)
        finally:  # whoever predicts or explains later in this process may pool
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    fabric = several_devices(study, *loggers)
    begun = partial(_begun, function, *arguments)  # whole, or Fabric would look for modules in each argument
    call = partial(_guarded, study, begun)
    fault, result = fabric.launch(call)
    os.environ.pop("MASTER_PORT", None)  # the next training looks for one that is free
    if fault:
        raise fault
    return result


def one_device(study: Study, *loggers: Logger) -> Fabric:
    """Fabric on the GPU where there is one, in the study's precision; there with algorithms that give the same bits each time."""
    fabric = _fabric(study, loggers, devices=1)
    _deterministic(fabric.device, study.model)
    return fabric


def several_devices(study: Study, *loggers: Logger) -> Fabric:
    """Fabric on `train.devices` GPUs; it still has to be launched. Raises UsageError where there are fewer."""
    from lightning_fabric.strategies.ddp import DDPStrategy

    require_gpus(study.train.devices)
    strategy = DDPStrategy(start_method="spawn", find_unused_parameters=study.pretrain.method != "none")
    return _fabric(study, loggers, devices=study.train.devices, strategy=strategy)


def _fabric(study: Study, loggers: tuple[Logger, ...], **options: Any) -> Fabric:
    from lightning_fabric import Fabric  # here, because it takes twice as long to import as torch, and predicting needs none
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # its tips on cards and precision, once for each fold
    one_process = LightningEnvironment()  # also within a cluster's job, where Fabric would look for its tasks
    return Fabric(accelerator="auto", precision=precision(study.train), plugins=one_process, loggers=list(loggers), **options)


def _begun(function: Callable[..., T], *rest: Any) -> T:
    *arguments, fabric = rest
    return function(fabric, *arguments)


def _guarded(study: Study, call: Callable[[Fabric], T], fabric: Fabric) -> tuple[MriVitError | None, T | None]:
    """In each process. What is raised there would reach the first as text."""
    _deterministic(fabric.device, study.model)
    try:
        return None, call(fabric)
    except MriVitError as error:
        return error, None


def _deterministic(device: torch.device, settings: Model) -> None:
    """On a GPU, ask for algorithms that give the same bits each time.

    Attention adds up its gradients in one order only where operations without such an algorithm are errors (measured on an H200:
    as warnings, two trainings of 20 steps gave other weights). Our own encoder has none of those; others pool.
    """
    if device.type == "cuda":
        ordered = os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (":4096:8", ":16:8")  # else products of matrices would be refused
        torch.use_deterministic_algorithms(True, warn_only=not ordered or settings.architecture != "vit")


def precision(settings: Train) -> Literal["32-true", "bf16-mixed"]:
    """Mixed precision where the device computes in bfloat16; on a CPU that is slower than float32."""
    if settings.precision != "auto":
        return settings.precision
    return "bf16-mixed" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"


def part(draw: Draw, fabric: Fabric) -> Draw:
    """A process's share of a batch: every patient whose number in it leaves the process's own as a remainder."""
    if fabric.world_size == 1:
        return draw
    own = slice(fabric.global_rank, None, fabric.world_size)
    return Draw(*(getattr(draw, field.name)[own] for field in fields(Draw)))


def gathering(fabric: Fabric) -> Gather:
    """Puts the shares together again, in the batch's order. The gradient of a share is that of the whole batch's loss.

    Gathering sums gradients over the processes and data-parallel training takes their mean, so that both together are exact.
    """
    return partial(_gathered, fabric) if fabric.world_size > 1 else of_one


def _gathered(fabric: Fabric, mine: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated", FutureWarning)  # the functional gather that Fabric calls
        every: Any = fabric.all_gather(mine, sync_grads=mine.requires_grad)
    return every.transpose(0, 1).flatten(0, 1)


def of_one(mine: Tensor) -> Tensor:
    """What an only device has is that of the whole batch."""
    return mine


def share_out(net: nn.Module, fabric: Fabric) -> None:
    """Let every block draw the patients that it drops for the whole batch, and take its process's share of these."""
    for module in net.modules():
        if isinstance(module, Block):
            module.share = (fabric.global_rank, fabric.world_size)


def at_least_float32(x: Tensor) -> Tensor:
    """Sums over a batch want more than bfloat16's eight bits; what has more is left as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def less_memory(study: Study) -> str:
    """Settings with which the same network learns in less memory."""
    settings, model = study.train, study.model
    smaller = [f"a train.batch_size below {settings.batch_size}"] if settings.batch_size > 1 else []
    if model.architecture == "vit":
        smaller += [f"a train.token_budget below {settings.token_budget}" if settings.token_budget else "a train.token_budget"]
        smaller += ['model.tokens = "foreground"'] if model.tokens != "foreground" else []
    return " or ".join(smaller) or "a smaller network"
