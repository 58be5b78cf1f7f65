"""The part of the bench that trains, end to end, in the real loop: feeding, forward, backward, clipping and AdamW.

.venv/bin/python pipelines/bench.py --part training --threads 1

Beside the loop as it is stand the same with its blocks compiled (`torch.compile`, every batch of one shape) and, on a GPU, with
any algorithm that is quickest instead of those that give the same bits each time. A product of two matrices in the same precision
is what the share of the peak is of; AdamW's step also stands alone, fused and not. On a GPU ViT-B and ViT-L at 640 and 2745
tokens; on a CPU ViT-B at 640, where a round takes about 15 s on one thread and compiling a minute, and 4 GB of memory.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.inputs import DEVICE, FOREGROUND, GRID, everybody
from benchmarks.pretraining import write
from mri_vit.model.network import Network, flops
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model, Study, Train
from mri_vit.train.checkpoint import State
from mri_vit.train.devices import one_device
from mri_vit.train.loop import Learner, Schedule, optimiser, steps
from mri_vit.train.supervised import Feed, objective, schedule, untrained

Run = Callable[[], Any]  # what is timed

ON_GPU = DEVICE.type == "cuda"
SIZES = ("B", "L") if ON_GPU else ("B",)
TOKENS = (FOREGROUND, GRID.positions) if ON_GPU else (FOREGROUND,)
BATCH = 16 if ON_GPU else 1  # patients; at 2745 tokens a quarter of them
STEPS = 10 if ON_GPU else 1  # timed together
SIDE = 8192 if ON_GPU else 2048  # of the matrices whose product is the peak
AS_IT_IS, ADAMW, MATMUL = "as it is", "AdamW's step of ViT-B", "product of matrices"


def training(folder: Path) -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    ways = {AS_IT_IS: (as_it_is, ON_GPU), "blocks compiled": (compiled, ON_GPU)}
    ways |= {"any algorithm": (as_it_is, False)} if ON_GPU else {}
    groups: dict[str, dict[str, Callable[[], Run]]] = {
        title(size, tokens): {name: partial(trained, folder, size, tokens, *way) for name, way in ways.items()}
        for size in SIZES
        for tokens in TOKENS
    }
    updates = {name: partial(update, fused) for name, fused in {"by default": None, "fused": True}.items()}
    return groups | {ADAMW: updates, MATMUL: {f"{SIDE}³": product}}


def title(size: str, tokens: int) -> str:
    return f"ViT-{size}, {STEPS} × {patients_of(tokens)} patients, {tokens} tokens"


def patients_of(tokens: int) -> int:
    return max(1, BATCH * FOREGROUND // tokens)


def study_of(folder: Path, size: str, tokens: int) -> Study:
    return Study(
        name="bench", cohort=folder / "none.csv", prepared=folder / "prepared", output=folder / "run",
        model=Model(size=size, tokens="foreground" if tokens == FOREGROUND else "all"),  # type: ignore[arg-type]
        train=Train(batch_size=patients_of(tokens), epochs=10**6, threads=torch.get_num_threads()), endpoints=DEFAULT_ENDPOINTS,
    )  # fmt: skip


def trained(folder: Path, size: str, tokens: int, way: Callable[[Network], None], ordered: bool) -> Run:
    """`STEPS` steps of the loop that `fit` runs, `ordered` where each is to give the same bits on a GPU."""
    study = study_of(folder, size, tokens)
    whom = everybody(max(2, patients_of(tokens)), study)
    write(study, whom)
    net, fabric = untrained(whom, study, seed=0), one_device(study)
    way(net)
    module, adamw = fabric.setup(net, optimiser(net, study))
    feed, plan = Feed(whom, study, fabric.device, seed=0), schedule(len(whom), study, folder, seed=0)
    going = endless(feed, objective(net, module), Learner(fabric, module, adamw), plan)

    def run() -> None:
        torch.use_deterministic_algorithms(ordered)  # the process's: all ways are built before any is timed
        for _ in range(STEPS):
            next(going)

    return run


def endless(feed: Feed, loss: Callable[..., torch.Tensor], learner: Learner, plan: Schedule) -> Any:
    return steps(feed, loss, learner, plan, State())


def as_it_is(net: Network) -> None:
    pass


def compiled(net: Network) -> None:
    torch._dynamo.config.recompile_limit = 2 * len(net.encoder.layers)  # each block has a drop-path of its own
    for block in net.encoder.layers:
        block.compile(dynamic=False)


def update(fused: bool | None) -> Run:
    """AdamW's step alone, as PyTorch chooses to do it or in one pass."""
    weights = list(Network(Model(size="B"), GRID, []).to(DEVICE).parameters())
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return torch.optim.AdamW(weights, fused=fused).step


def product() -> Run:
    dtype = torch.bfloat16 if ON_GPU else torch.float32
    a, b = (torch.randn(SIDE, SIDE, device=DEVICE, dtype=dtype) for _ in range(2))
    return lambda: a @ b


def sentences(groups: dict[str, dict[str, Any]]) -> list[str]:
    """Patients per second, operations per second, and their share of what a product of matrices reaches."""
    (times,) = (found["seconds"] for found in groups[MATMUL].values())
    peak = 2 * SIDE**3 / median(times)
    said = [f"product of matrices: {peak / 1e12:.3g} TFLOP/s"]
    for size in SIZES:
        for tokens in TOKENS:
            with torch.device("meta"):
                net = Network(Model(size=size), GRID, [])  # type: ignore[arg-type]
                batch = torch.empty(1, tokens, len(CHANNELS) * GRID.patch**3), torch.zeros(1, tokens, dtype=torch.long)
            each = 3 * flops(net.encoder, *batch)  # the backward pass costs twice the forward's
            for name, found in groups[title(size, tokens)].items():
                rate = STEPS * patients_of(tokens) / median(found["seconds"])
                said.append(
                    f"ViT-{size}, {tokens} tokens, {name}: {rate:.3g} patients/s of {each / 1e9:.0f} GFLOP each,"
                    f" {each * rate / 1e12:.3g} TFLOP/s, {100 * each * rate / peak:.0f} % of that"
                )
    return said
