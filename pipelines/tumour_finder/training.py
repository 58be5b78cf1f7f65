"""Training of the tumour finder on random heads; no real scan is learned from."""

from __future__ import annotations

import copy
import multiprocessing
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from mri_vit.prepare.finder import SEQUENCES, inputs
from tumour_finder.network import FinderNetwork
from tumour_finder.random_heads import Drawn, draw

BATCH = 2
HEADS = 800  # kept to draw from, 6 GB: a head is seen some four times, each time with other scales and sides
AHEAD = 8  # heads drawn before they are needed
HEADS_FIRST, STEPS_PER_HEAD = 24, 2
WITH_T2 = 0.6  # of the times that a head is seen
TRAINING, TEST = 0, 1  # first number of a head's seed
PEAK_RATE, WEIGHT_DECAY, WARMUP = 2.5e-3, 1e-2, 100
EMA = 0.998  # decay of the weights' moving average, which is what is stored
CROSS_ENTROPY_WEIGHT, DICE_EPS = 8.0, 200.0  # of a cross-entropy over a brain that is nearly all without tumour; voxels


def train_finder(steps: int, out: Path) -> None:
    """Train the finder's network on random heads and write its weights, every 500 steps and at the end."""
    out.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the other core draws heads
    with multiprocessing.get_context("spawn").Pool(1, torch.set_num_threads, (1,)) as pool:
        _train(_ahead(pool, HEADS_FIRST + steps // STEPS_PER_HEAD + 1), steps, out)


def _ahead(pool: Pool, count: int) -> Iterator[Drawn]:
    """Heads in the order of their numbers, a few drawn ahead."""
    waiting: deque[AsyncResult[Drawn]] = deque()
    for number in range(count):
        waiting.append(pool.apply_async(draw, ((TRAINING, number),)))
        if len(waiting) == AHEAD:
            yield waiting.popleft().get()
    yield from (drawn.get() for drawn in waiting)


def _train(heads: Iterator[Drawn], steps: int, out: Path) -> None:
    rng = np.random.default_rng(0)
    network = FinderNetwork().to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    torch.nn.init.constant_(network.out.bias, -3.0)  # type: ignore[arg-type]
    average = copy.deepcopy(network)
    optimiser = torch.optim.AdamW(network.parameters(), PEAK_RATE, weight_decay=WEIGHT_DECAY)
    kept = [next(heads) for _ in range(HEADS_FIRST)]
    begun, dices = time.monotonic(), []
    for step in range(steps):
        if step % STEPS_PER_HEAD == 0:
            kept.append(next(heads))
            kept = kept[-HEADS:]
        for group in optimiser.param_groups:
            group["lr"] = PEAK_RATE * min(1, (step + 1) / WARMUP) * (0.5 + 0.5 * np.cos(np.pi * step / steps))
        shown = [augmented(kept[rng.integers(len(kept))], rng) for _ in range(BATCH)]
        scans, tumour = (torch.from_numpy(np.stack(part)) for part in zip(*shown, strict=True))
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(scans.contiguous(memory_format=torch.channels_last_3d))
        loss = loss_of(logits.float(), tumour.float())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), network.parameters(), strict=True):
                mean.lerp_(weight, max(1 - EMA, 10 / (step + 10)))
        dices += dice(logits > 0, tumour).tolist()
        if (step + 1) % 100 == 0:
            print(f"{step + 1} steps, {time.monotonic() - begun:.0f} s: Dice {np.mean(dices[-200:]):.3f}", flush=True)
        if (step + 1) % 500 == 0 or step + 1 == steps:
            save_file({name: weight.half().contiguous() for name, weight in average.state_dict().items()}, out)


def augmented(head: Drawn, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and tumour of a head as it is or mirrored, with all sequences or some, each on a scale that is off a little."""
    names = SEQUENCES if rng.random() < WITH_T2 else ("flair",)
    scans = {name: head.scans[name] for name in names}
    if rng.random() < 0.5:
        scans = {name: (scan * rng.uniform(0.9, 1.1) + rng.normal(0, 0.08)) * head.brain for name, scan in scans.items()}
    side = -1 if rng.random() < 0.5 else 1
    scans = {name: scan[::side] for name, scan in scans.items()}
    return inputs(scans, head.brain[::side], head.tissue[:, ::side]), head.tumour[::side].copy()


def loss_of(logits: Tensor, tumour: Tensor) -> Tensor:
    """Cross-entropy, and one less the soft Dice (Milletari et al. 2016, arXiv:1606.04797) of each head."""
    chance, axes = logits.sigmoid(), (1, 2, 3)
    overlap = 2 * (chance * tumour).sum(axes) + DICE_EPS
    soft_dice = overlap / (chance.sum(axes) + tumour.sum(axes) + DICE_EPS)
    return CROSS_ENTROPY_WEIGHT * F.binary_cross_entropy_with_logits(logits, tumour) + (1 - soft_dice).mean()


def dice(found: Tensor, tumour: Tensor) -> Tensor:
    """Of each head; 1 where neither has a voxel."""
    axes = (1, 2, 3)
    return (2 * (found & tumour.bool()).sum(axes) + 1) / (found.sum(axes) + tumour.sum(axes) + 1)
