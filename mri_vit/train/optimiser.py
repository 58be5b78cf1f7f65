"""AdamW and its learning rates: the schedule, and each part of a network's own share of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mri_vit.settings.schema import Study

EMBEDDING = ("encoder.embed.", "encoder.cls", "encoder.position")
BLOCKS = "encoder.blocks."
GUIDED = "network."  # before the names of a network that is guided (guide.py), whose training has heads of its own
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
    named = [(name.removeprefix(GUIDED), parameter) for name, parameter in net.named_parameters()]
    depth = 1 + max((int(name.split(".")[2]) for name, _ in named if name.startswith(BLOCKS)), default=-1)
    groups: dict[tuple[float, bool, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in named:
        decay = study.train.weight_decay if parameter.ndim in DECAYED else 0.0
        groups[share(name, depth, study), name.startswith("head."), decay].append(parameter)
    listed = [
        {"params": parameters, "weight_decay": decay, "share": of, "head": head}
        for (of, head, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(listed, lr=study.train.rate, betas=study.train.betas, fused=FUSED)


def even_optimiser(parameters: Sequence[nn.Parameter], study: Study) -> torch.optim.AdamW:
    """AdamW with the same rate for all parameters, as pretraining has it; the same are not decayed (He et al. 2022)."""
    listed = [
        {"params": [p for p in parameters if p.ndim in DECAYED], "weight_decay": study.train.weight_decay},
        {"params": [p for p in parameters if p.ndim not in DECAYED], "weight_decay": 0.0},
    ]
    groups = [group | {"share": 1.0, "head": False} for group in listed]
    return torch.optim.AdamW(groups, lr=study.pretrain.rate, betas=study.train.betas, fused=FUSED)


def share(name: str, depth: int, study: Study) -> float:
    """A parameter's share of the learning rate: `layer_decay` to the number of blocks behind it, as in Bao et al. 2022
    (arXiv:2106.08254) with the embedding before the first block and the heads behind the last; for the patch embedding times
    `embedding_rate` (`patch_embed_lr_mult` of DINOv2's code, Oquab et al. 2023, arXiv:2304.07193).
    """
    settings = study.train
    if name.startswith(EMBEDDING):
        of = settings.embedding_rate if name.startswith(EMBEDDING[0]) else 1.0
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
