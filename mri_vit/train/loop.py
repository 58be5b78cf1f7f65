"""The only optimisation loop, of supervised and self-supervised learning alike: a loss of a batch in, the optimiser's steps out.

An objective is a function from a batch to a loss. Whoever learns iterates over `steps` and does after each what is its own: a
moving average, an evaluation, writing the state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor, nn

from mri_vit.errors import BadNumbers
from mri_vit.settings.schema import Study
from mri_vit.train.checkpoint import State
from mri_vit.train.optimiser import Rates, set_rates

Objective = Callable[[list[int]], Tensor]  # from a batch, which is the patients with these indices, to its loss
Report = Callable[[int, int, float, float], None]  # epoch, epochs, loss, patients per second


@dataclass(frozen=True)
class Learner:
    """A module as `fabric` has set it up, its optimiser, and the generator of the batches' order and augmentation."""

    fabric: Fabric
    module: nn.Module
    optimiser: torch.optim.Optimizer
    generator: torch.Generator


@dataclass(frozen=True)
class Schedule:
    """How long a learner learns from how many patients, and how fast.

    `section` of the study file sets the rate, and `place` is what is being made; both are for messages.
    """

    patients: int
    batch: int
    epochs: int
    rates: Rates
    clip: float  # largest norm of a gradient
    section: Literal["train", "pretrain"]
    place: Path
    patience: float = math.inf  # evaluations without a better one

    @property
    def per_epoch(self) -> int:
        """Steps in an epoch; the last batch is filled up from the epoch's first patients."""
        return math.ceil(self.patients / self.batch)

    @property
    def steps(self) -> int:
        """Steps in all epochs."""
        return self.epochs * self.per_epoch


@dataclass(frozen=True)
class Step:
    """A step that was made: its number from 0, its rate and loss, the epoch's mean loss so far, whether it ends the epoch."""

    number: int
    rate: float
    loss: float
    mean_loss: float
    ends_epoch: bool


def steps(
    objective: Objective, learner: Learner, schedule: Schedule, state: State, report: Report | None = None
) -> Iterator[Step]:
    """Make the steps that `state` has not made yet, each when it is asked for, until the epochs or the patience run out.

    With an epoch's last step `state.epoch` and `state.seconds` have moved on, and `report` was called.

    Raises BadNumbers when a loss or a gradient is not finite.
    """
    while state.epoch < schedule.epochs and state.stale < schedule.patience:
        learner.module.train()
        began, total, epoch = time.monotonic(), 0.0, state.epoch
        order = torch.randperm(schedule.patients, generator=learner.generator).tolist()
        for index in range(schedule.per_epoch):
            number = epoch * schedule.per_epoch + index
            batch = [order[i % len(order)] for i in range(index * schedule.batch, (index + 1) * schedule.batch)]
            rate = set_rates(learner.optimiser, number, schedule.steps, schedule.rates)
            loss = _stepped(objective, learner, schedule, batch, epoch + 1)
            total += loss
            if ends_epoch := index + 1 == schedule.per_epoch:
                seconds = time.monotonic() - began
                state.epoch, state.seconds = epoch + 1, state.seconds + seconds
                if report:
                    report(state.epoch, schedule.epochs, total / (index + 1), (index + 1) * schedule.batch / seconds)
            yield Step(number, rate, loss, total / (index + 1), ends_epoch)


def _stepped(objective: Objective, learner: Learner, schedule: Schedule, batch: list[int], epoch: int) -> float:
    """Make one step of the optimiser; the batch's loss before it."""
    remedy = f"in epoch {epoch}; try a {schedule.section}.rate below {schedule.rates.peak}"
    loss = objective(batch)
    if not torch.isfinite(loss):
        raise BadNumbers(f"{schedule.place}: the loss became {loss.item()} {remedy}")
    learner.optimiser.zero_grad()
    learner.fabric.backward(loss)
    norm = learner.fabric.clip_gradients(learner.module, learner.optimiser, max_norm=schedule.clip, error_if_nonfinite=False)
    if norm is not None and not torch.isfinite(norm):
        raise BadNumbers(f'{schedule.place}: a gradient became {norm.item()} {remedy}, or train.precision "32-true"')
    learner.optimiser.step()
    return loss.item()


def one_device(study: Study, *loggers: Logger) -> Fabric:
    """Fabric on the GPU where there is one, in the study's precision."""
    return Fabric(
        accelerator="auto",
        devices=1,
        precision=precision(study),
        plugins=LightningEnvironment(),  # one process, also within a cluster's job: Fabric would look for its tasks
        loggers=list(loggers),
    )


def precision(study: Study) -> Literal["32-true", "bf16-mixed"]:
    """Mixed precision where the device computes in bfloat16; on a CPU that is slower than float32."""
    if study.train.precision != "auto":
        return study.train.precision
    return "bf16-mixed" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"
