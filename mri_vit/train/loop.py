"""The only optimisation loop, of supervised and self-supervised learning alike: a loss of a batch in, the optimiser's steps out.

A feed gives what each turn asks for, an objective makes a loss of it. Whoever learns iterates over `steps` and does after each
what is its own: a moving average, an evaluation, writing the state. Nothing in a step waits for the device; its numbers are read
every `READ_EVERY` steps.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
from torch import Tensor, nn

from mri_vit.data.draw import stream
from mri_vit.errors import BadNumbers
from mri_vit.settings.schema import Study
from mri_vit.train.checkpoint import State

if TYPE_CHECKING:
    from lightning_fabric import Fabric

EMBEDDING = ("encoder.embed.", "encoder.cls", "encoder.position")
BLOCKS = "encoder.blocks."
MASK_SUPERVISED = "network."  # before the names of a network whose training has auxiliary heads (mask_supervision.py)
FUSED = True  # one pass over all weights, a few times as fast on a CPU (pipelines/bench.py --part training)
DECAYED = (2, 5)  # axes of a weight of a linear map and of a 3D convolution


@dataclass(frozen=True)
class Rates:
    """The schedule of a training: warm-up for that share of the steps to the `peak`; for the share `frozen` heads learn alone."""

    peak: float
    warmup: float
    frozen: float = 0.0


def rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Learning rate: for that share of the steps a linear warm-up to the peak, then half a cosine to zero (Loshchilov & Hutter
    2017).
    """
    first = max(1, round(warmup * steps))
    if step < first:
        return peak * (step + 1) / first
    return peak * 0.5 * (1 + math.cos(math.pi * (step - first) / max(1, steps - first)))


def optimiser(net: nn.Module, study: Study) -> torch.optim.AdamW:
    """AdamW; biases, norms and positions are not decayed (as in nanoGPT and He et al. 2021).

    Each group of parameters has a `share` of the learning rate, see `share`, and says whether it is of the `head`.
    """
    named = [(name.removeprefix(MASK_SUPERVISED), parameter) for name, parameter in net.named_parameters()]
    depth = 1 + max((int(name.split(".")[2]) for name, _ in named if name.startswith(BLOCKS)), default=-1)
    groups: dict[tuple[float, bool, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in named:
        decay = study.train.weight_decay if parameter.ndim in DECAYED else 0.0
        groups[share(name, depth, study), name.startswith("head."), decay].append(parameter)
    listed = [
        {"params": parameters, "weight_decay": decay, "share": of, "head": head}
        for (of, head, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(listed, lr=study.train.learning_rate, betas=study.train.betas, fused=FUSED)


def even_optimiser(parameters: Sequence[nn.Parameter], study: Study) -> torch.optim.AdamW:
    """AdamW with the same rate for all parameters, as pretraining has it; the same are not decayed (He et al. 2022)."""
    listed = [
        {"params": [p for p in parameters if p.ndim in DECAYED], "weight_decay": study.train.weight_decay},
        {"params": [p for p in parameters if p.ndim not in DECAYED], "weight_decay": 0.0},
    ]
    groups = [group | {"share": 1.0, "head": False} for group in listed]
    return torch.optim.AdamW(groups, lr=study.pretrain.learning_rate, betas=study.train.betas, fused=FUSED)


def share(name: str, depth: int, study: Study) -> float:
    """A parameter's share of the learning rate: `layer_decay` to the number of blocks behind it, as in Bao et al. 2022
    (arXiv:2106.08254) with the embedding before the first block and the heads behind the last; for the patch embedding times
    `embedding_lr_factor` (`patch_embed_lr_mult` of DINOv2's code, Oquab et al. 2023, arXiv:2304.07193).
    """
    settings = study.train
    if name.startswith(EMBEDDING):
        of = settings.embedding_lr_factor if name.startswith(EMBEDDING[0]) else 1.0
        return of * settings.layer_decay ** (depth + 1)
    if name.startswith(BLOCKS):
        return settings.layer_decay ** (depth - int(name.split(".")[2]))
    return 1.0


def set_rates(optimiser: torch.optim.Optimizer, step: int, steps: int, rates: Rates) -> float:
    """Before a step: the schedule's rate, which is returned, by each group's share; for the frozen steps the heads' alone."""
    now, frozen = rate(step, steps, rates.peak, rates.warmup), step < rates.frozen * steps
    for group in optimiser.param_groups:
        group["lr"] = 0.0 if frozen and not group["head"] else now * group["share"]
    return now


READ_EVERY = 16  # steps between two readings of the loss: a bad number is noticed soon, and a GPU is rarely waited for
T = TypeVar("T")  # what an objective is given
Report = Callable[[int, int, float, float], None]  # epoch, epochs, loss, patients per second


@dataclass(frozen=True)
class Turn:
    """What a step learns from: the patients with these indices, and how often the epoch has been through all patients before
    each; epoch and `number`, the step's among all, are counted from 0.
    """

    epoch: int
    number: int
    patients: tuple[int, ...]
    laps: tuple[int, ...]


Feed = Callable[[Sequence[Turn]], Iterator[T]]  # what is given in each of an epoch's turns
Objective = Callable[[T], Tensor]  # from what is given to the loss


@dataclass(frozen=True)
class Learner:
    """A module as `fabric` has set it up, and its optimiser."""

    fabric: Fabric
    module: nn.Module
    optimiser: torch.optim.Optimizer


@dataclass(frozen=True)
class Schedule:
    """How long a learner learns from how many patients, in which order, and how fast.

    `section` of the study file sets the rate, and `place` is what is being made; both are for messages.
    """

    patients: int
    batch: int
    epochs: int
    seed: int
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

    def turns(self, epoch: int) -> list[Turn]:
        """The turns of an epoch: every patient once, in an order of the epoch's own."""
        order = stream(self.seed, "order", epoch).permutation(self.patients).tolist()
        turns = []
        for index in range(self.per_epoch):
            at = range(index * self.batch, (index + 1) * self.batch)
            patients, laps = tuple(order[i % len(order)] for i in at), tuple(i // len(order) for i in at)
            turns.append(Turn(epoch, epoch * self.per_epoch + index, patients, laps))
        return turns


@dataclass(frozen=True)
class Step:
    """A step that was made: its number from 0, its rate, and whether it ends the epoch.

    `loss` is the mean since the last reading, and None where it was not read; `mean_loss` is the epoch's, at its end.
    """

    number: int
    rate: float
    ends_epoch: bool
    loss: float | None
    mean_loss: float | None


def steps(
    feed: Feed[T],
    objective: Objective[T],
    learner: Learner,
    schedule: Schedule,
    state: State,
    report: Report | None = None,
) -> Iterator[Step]:
    """Make the steps that `state` has not made yet, each when it is asked for, until the epochs or the patience run out.

    With an epoch's last step `state.epoch` and `state.seconds` have moved on, and `report` was called.

    Raises BadNumbers when a loss or a gradient is not finite, before the epoch's end and at most `READ_EVERY` steps after it.
    """
    while state.epoch < schedule.epochs and state.stale < schedule.patience:
        learner.module.train()
        began, turns, sums = time.monotonic(), schedule.turns(state.epoch), Sums(learner.fabric.device)
        for made, (turn, given) in enumerate(zip(turns, feed(turns), strict=True), start=1):
            rate = set_rates(learner.optimiser, turn.number, schedule.steps, schedule.rates)
            sums.add(*stepped(objective(given), learner, schedule.clip))
            ends_epoch, loss = made == len(turns), None
            if ends_epoch or made % READ_EVERY == 0:
                loss = sums.read(schedule, turn.epoch + 1)
            if ends_epoch:
                seconds = time.monotonic() - began
                state.epoch, state.seconds = turn.epoch + 1, state.seconds + seconds
                if report:
                    report(state.epoch, schedule.epochs, sums.total / made, made * schedule.batch / seconds)
            yield Step(turn.number, rate, ends_epoch, loss, sums.total / made if ends_epoch else None)


def stepped(loss: Tensor, learner: Learner, clip: float) -> tuple[Tensor, Tensor]:
    """Make one step of the optimiser; the loss before it and its gradient's norm, both on the device."""
    learner.optimiser.zero_grad()
    learner.fabric.backward(loss)
    norm = learner.fabric.clip_gradients(learner.module, learner.optimiser, max_norm=clip, error_if_nonfinite=False)
    assert norm is not None  # only clipping by value gives none
    learner.optimiser.step()
    return loss.detach(), norm.detach()


@dataclass
class Sums:
    """An epoch's sum of losses, of which what came since the last reading is on the device."""

    device: torch.device
    total: float = 0.0
    _since: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._since = torch.zeros(4, dtype=torch.float64, device=self.device)

    def add(self, loss: Tensor, norm: Tensor) -> None:
        """A step's loss, and the norm of its gradient."""
        self._since += torch.stack([loss, ~loss.isfinite(), ~norm.isfinite(), torch.ones_like(loss)]).double()

    def read(self, schedule: Schedule, epoch: int) -> float:
        """The mean loss since the last reading. Raises BadNumbers when a loss or a gradient was not finite."""
        loss, bad_losses, bad_gradients, count = self._since.tolist()
        self._since.zero_()
        remedy = f"in epoch {epoch}; try a {schedule.section}.learning_rate below {schedule.rates.peak}"
        if bad_gradients > bad_losses:  # the gradient was the first: the loss followed in the next step
            raise BadNumbers(f'{schedule.place}: a gradient became infinite {remedy}, or train.precision "32-true"')
        if bad_losses:
            raise BadNumbers(f"{schedule.place}: the loss became {loss} {remedy}")
        self.total += loss
        return loss / count
