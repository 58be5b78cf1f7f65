"""The part of the bench that trains, end to end, in the real loop: feeding, forward, backward, clipping and AdamW.

.venv/bin/python pipelines/bench.py --part training --threads 1

ViT-B at 640 tokens, one patient a step. Beside the loop as it is stands the same with its blocks compiled (`torch.compile`); a
product of two matrices is what the share of the peak is of; AdamW's step also stands alone, fused and not. A round takes about
15 s on one thread and compiling a minute, and 4 GB of memory. What a GPU does with a step is in `pipelines/gpu.py`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.inputs import DEVICE, FOREGROUND, GRID, everybody
from benchmarks.pretraining import write
from mri_vit.model.network import Network
from mri_vit.model.sizes import layers
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model, Study, Train
from mri_vit.train.checkpoint import State
from mri_vit.train.devices import one_device
from mri_vit.train.feed import Feed
from mri_vit.train.loop import Learner, optimiser, steps
from mri_vit.train.supervised import objective, schedule, untrained

Run = Callable[[], Any]  # what is timed

MODEL = Model(size="B")
SIDE = 2048  # of the matrices whose product is the peak
LOOP, ADAMW, MATMUL = f"ViT-B, one patient, {FOREGROUND} tokens", "AdamW's step of ViT-B", "product of matrices"


def training(folder: Path) -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    study = study_of(folder, MODEL, FOREGROUND, patients=1)
    ways = {"as it is": as_it_is, "blocks compiled": compiled}
    return {
        LOOP: {name: partial(looped, study, 1, way) for name, way in ways.items()},
        ADAMW: {name: partial(update, fused) for name, fused in {"by default": None, "fused": True}.items()},
        MATMUL: {f"{SIDE}³": product},
    }


def study_of(folder: Path, model: Model, tokens: int, patients: int) -> Study:
    """A study that trains on so many patients a step, with so many tokens of each."""
    model = model.model_copy(update={"tokens": "foreground" if tokens == FOREGROUND else "all"})
    return Study(
        name="bench", cohort=folder / "none.csv", prepared=folder / "prepared", output=folder / "run", model=model,
        train=Train(batch_size=patients, epochs=10**6, threads=torch.get_num_threads()), endpoints=DEFAULT_ENDPOINTS,
    )  # fmt: skip


def as_it_is(net: Network) -> None:
    pass


def compiled(net: Network) -> None:
    torch._dynamo.config.recompile_limit = 2 * len(net.encoder.layers)  # each block has a drop-path of its own
    for block in net.encoder.layers:
        block.compile(dynamic=False)


def looped(study: Study, count: int, way: Callable[[Network], None] = as_it_is) -> Run:
    """So many steps of the loop that `fit` runs."""
    whom = everybody(max(2, study.train.batch_size), study)
    write(study, whom)
    net, fabric = untrained(whom, study, seed=0), one_device(study)
    way(net)
    module, adamw = fabric.setup(net, optimiser(net, study))
    feed, plan = Feed(whom, study, fabric.device, seed=0), schedule(len(whom), study, study.output, seed=0)
    going = steps(feed, objective(net, module), Learner(fabric, module, adamw), plan, State())

    def run() -> None:
        for _ in range(count):
            next(going)

    return run


def update(fused: bool | None) -> Run:
    """AdamW's step alone, as PyTorch chooses to do it or in one pass."""
    weights = list(Network(MODEL, GRID, []).to(DEVICE).parameters())
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return torch.optim.AdamW(weights, fused=fused).step


def product() -> Run:
    a, b = (torch.randn(SIDE, SIDE, device=DEVICE) for _ in range(2))
    return lambda: a @ b


def sentences(groups: dict[str, dict[str, Any]]) -> list[str]:
    """Patients per second, operations per second, and their share of what a product of matrices reaches."""
    (times,) = (found["seconds"] for found in groups[MATMUL].values())
    peak = 2 * SIDE**3 / median(times)
    each = 3 * sum(layer.operations for layer in layers(MODEL, GRID, len(CHANNELS), FOREGROUND))  # backward costs twice forward
    said = [f"product of matrices: {peak / 1e12:.3g} TFLOP/s"]
    for name, found in groups[LOOP].items():
        rate = 1 / median(found["seconds"])
        said.append(
            f"{name}: {rate:.3g} patients/s of {each / 1e9:.0f} GFLOP each, {each * rate / 1e12:.3g} TFLOP/s,"
            f" {100 * each * rate / peak:.0f} % of that"
        )
    return said
