"""Ten minutes on a GPU: where the time of a training step goes, which way of making one is quickest, and the same for rollout.

.venv/bin/python pipelines/gpu.py gpu.json             # on a GPU
.venv/bin/python pipelines/gpu.py small.json --small   # what of it a CPU can do, of a network of two blocks, in two minutes

Parts: a profile of the loop's step; feeding beside a step; the memory of evaluation beside that of training; ways of rollout
beside a forward pass and the product of matrices in double precision; ways of a step, each beside what arithmetic expects of it
(docs/howto/gpu.md). A way that fails says why and the next one follows; once the minutes are over, the rest says so. The file is
written anew after every figure.
"""

import gc
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import cyclopts
import torch
from benchmarks import feeding
from benchmarks.gpu_rollout import carried_by, efficient, flexible, on_processor
from benchmarks.gpu_steps import WARM_UP, Way, expected_seconds, step_of
from benchmarks.inputs import DEVICE, FOREGROUND, GRID, autocast
from benchmarks.rollout import full_product, peaked
from benchmarks.training import looped, study_of
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from mri_vit.explain.methods.rollout import rollout
from mri_vit.model.encoder import Encoder
from mri_vit.model.sizes import layers
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.schema import CHANNELS, Model

ON_GPU = DEVICE.type == "cuda"
STEPS, ROUNDS = 10, 3  # timed together, and how often
WHOLE = GRID.positions
SMALL = Model(size="S", depth=2, dim=48, heads=4, mlp=96)
SIDE = 8192  # of the matrices whose product is the peak
SHOWN = 25  # kernels of a profile

# The order is by what a choice depends on first, should the minutes run out.
PLAIN = Way()
COMPILED = replace(PLAIN, compiled="all", fused=False)  # the compiler makes one kernel of many, and leaves a fused one alone
BEST = replace(COMPILED, graph=True, masters=True)
WAYS = (
    PLAIN, replace(PLAIN, masked=True), replace(PLAIN, cast=True), replace(PLAIN, graph=True), replace(PLAIN, masters=True),
    replace(PLAIN, masters=True, graph=True), replace(PLAIN, fused=False), replace(PLAIN, ordered=True),
    replace(PLAIN, ordered=True, graph=True), replace(PLAIN, compiled="blocks"), replace(PLAIN, compiled="blocks", graph=True),
    replace(PLAIN, patients=32, graph=True), replace(PLAIN, patients=64, graph=True), replace(PLAIN, patients=128, graph=True),
    replace(PLAIN, patients=32), replace(PLAIN, patients=64), replace(PLAIN, patients=128),
    replace(PLAIN, patients=4, tokens=WHOLE), replace(PLAIN, patients=4, tokens=WHOLE, masked=True),
    replace(PLAIN, patients=4, tokens=WHOLE, graph=True), replace(PLAIN, patients=16, tokens=WHOLE, graph=True),
    COMPILED, replace(COMPILED, graph=True), BEST, replace(BEST, patients=64),
    replace(BEST, patients=4, tokens=WHOLE),
)  # fmt: skip


@dataclass
class Record:
    """What was found so far, in a file."""

    path: Path
    ends: float  # by the monotonic clock
    found: dict[str, Any]
    console: Console

    def add(self, part: str, what: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure, unless the time is over; a failure is a finding."""
        if time.monotonic() > self.ends:
            figures: dict[str, Any] = {"left_out": "no minutes left"}
        else:
            began = time.monotonic()
            try:
                figures = measure()
            except Exception as error:  # whatever a kernel or a compiler raises: the other ways are still worth their time
                figures = {"failed": f"{type(error).__name__}: {error}"[:500]}
            figures["took_s"] = round(time.monotonic() - began, 1)
        clear()
        self.found.setdefault(part, {})[what] = figures
        write_bytes(json.dumps(self.found, indent=1).encode() + b"\n", self.path)
        self.console.print(f"{part}: {what}: {short(figures)}", highlight=False)


def main(output: Path, *, small: bool = False, minutes: float = 9.5) -> None:
    """Measure, and write the figures as JSON to OUTPUT.

    `--small` takes a network of two blocks, few tokens and one round: it shows that everything runs, not how fast.
    """
    record = Record(output, time.monotonic() + 60 * minutes, {"machine": machine(small)}, Console())
    model = SMALL if small else Model(size="B")
    ways = [replace(way, patients=2, tokens=20) for way in WAYS] if small else WAYS
    with TemporaryDirectory() as folder:
        record.add("profile", "the loop's step", partial(profiled, Path(folder), model, small))
        record.add("loop", "a step with its feeding", partial(timed_loop, Path(folder), model, small))
        record.add("loop", "feeding alone", partial(timed_feeding, Path(folder), small))
        record.add("memory", "training and evaluation", partial(memory, Path(folder), small))
    for tokens in (20,) if small else (FOREGROUND, WHOLE):
        for name, measure in rollouts(model, tokens).items():
            record.add("rollout", f"{name}, {tokens} tokens", measure)
    for way in dict.fromkeys(ways):
        record.add("step", words(way), partial(timed_step, way, model, small))


def machine(small: bool) -> dict[str, Any]:
    """The device, and how fast it multiplies."""
    name = torch.cuda.get_device_name() if ON_GPU else "CPU"
    side, dtype = (512 if small else SIDE), torch.bfloat16 if ON_GPU else torch.float32
    a, b = (torch.randn(side, side, device=DEVICE, dtype=dtype) for _ in range(2))
    found = timed(lambda: a @ b, 1 if small else ROUNDS)
    return {"device": name, "torch": torch.__version__, "product_tflops": 2 * side**3 / found["median_s"] / 1e12}


def timed(run: Callable[[], Any], rounds: int = ROUNDS, steps: int = STEPS) -> dict[str, Any]:
    """Seconds of a call, the median over rounds of some calls after `WARM_UP` others, and the device's peak memory."""
    for _ in range(WARM_UP):
        run()
    synchronise()
    if ON_GPU:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(steps):
            run()
        synchronise()
        seconds.append((time.perf_counter() - began) / steps)
    return {"seconds": seconds, "median_s": median(seconds), "peak_bytes": torch.cuda.max_memory_allocated() if ON_GPU else None}


def synchronise() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def clear() -> None:
    """What one way held is not to be counted to the next."""
    gc.collect()
    torch._dynamo.reset()
    torch.use_deterministic_algorithms(False)
    if ON_GPU:
        torch.cuda.empty_cache()


def short(figures: dict[str, Any]) -> str:
    """Those of one number, for a person who waits."""
    numbers = {name: value for name, value in figures.items() if value is not None and not isinstance(value, list | dict)}
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in numbers.items())


# --- steps of a training ------------------------------------------------------------------------------------------------------


def words(way: Way) -> str:
    """What is not PyTorch's plain way."""
    said = [name if value is True else f"{name} {value}" for name, value in asdict(way).items() if value != getattr(PLAIN, name)]
    return ", ".join(said) or f"plain, patients {way.patients}, tokens {way.tokens}"


def timed_step(way: Way, model: Model, small: bool) -> dict[str, Any]:
    """Seconds, patients a second, the share of a product's rate, the loss after the same steps, and what was expected."""
    torch.use_deterministic_algorithms(way.ordered)
    step = step_of(way, model)
    first = [step().item() for _ in range(WARM_UP)]  # a graph makes its `WARM_UP` steps in the first call
    loss = first[0] if way.graph else step().item()
    found = timed(step, *((1, 1) if small else ()))
    operations = 3 * sum(layer.operations for layer in layers(model, GRID, len(CHANNELS), way.tokens)) * way.patients
    return found | {
        "patients_per_s": way.patients / found["median_s"],
        "tflops": operations / found["median_s"] / 1e12,
        "loss": loss,
        "expected_patients_per_s": way.patients / expected_seconds(way, model),
    }


def timed_loop(folder: Path, model: Model, small: bool) -> dict[str, Any]:
    """The loop that `fit` runs, with its feeding, clipping and checks of numbers, in algorithms of one order."""
    patients = 2 if small else PLAIN.patients
    found = timed(looped(study_of(folder / "loop", model, FOREGROUND, patients), 1), *((1, 1) if small else ()))
    return found | {"patients_per_s": patients / found["median_s"]}


def timed_feeding(folder: Path, small: bool) -> dict[str, Any]:
    """A step of the recommended study, and its feeding from the device's memory alone."""
    group = feeding.feeding(folder / "feeding")[feeding.STEP]
    names = ("its feeding",) * 2 if small else (feeding.WHOLE, "its feeding")  # a step of it takes a CPU seconds
    whole, alone = (timed(group[name](), 1, 1 if small else STEPS)["median_s"] for name in names)
    return {"step_s": whole, "feeding_s": alone, "share": alone / whole}


def memory(folder: Path, small: bool) -> dict[str, Any]:
    """Peak memory of a step of the recommended study at 1 mm, and of its evaluation of as many patients."""
    found = {}
    for name, run in feeding.trained_and_evaluated(folder / "memory", 2 if small else feeding.BATCH).items():
        found[name] = timed(run, 1, 1)["peak_bytes"]
        clear()
    return found


def profiled(folder: Path, model: Model, small: bool) -> dict[str, Any]:
    """Kernels of a step by their time, how many there are, and which share of the step the device is busy."""
    steps = 1 if small else 3
    run = looped(study_of(folder / "profile", model, FOREGROUND, 2 if small else PLAIN.patients), steps)
    run()
    synchronise()
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if ON_GPU else [])]) as profiler:
        began = time.perf_counter()
        run()
        synchronise()
        wall = time.perf_counter() - began
    times, counts = Counter[str](), Counter[str]()
    for event in profiler.events() or ():
        on_gpu = event.device_type.name == "CUDA"
        if on_gpu == ON_GPU and not event.is_user_annotation:
            times[event.name] += (event.self_device_time_total if ON_GPU else event.self_cpu_time_total) / 1e6 / steps
            counts[event.name] += 1
    kernels = {name: {"seconds": seconds, "calls": counts[name] / steps} for name, seconds in times.most_common(SHOWN)}
    busy = sum(times.values())
    return {"step_s": wall / steps, "busy_share": busy * steps / wall, "calls": sum(counts.values()) / steps, "kernels": kernels}


# --- rollout ------------------------------------------------------------------------------------------------------------------


def rollouts(model: Model, tokens: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """Ways of rollout of one patient under autocast, beside a forward pass; and how far each is, in single precision."""
    kernels = {"memory-efficient kernel": efficient} if ON_GPU else {"kernel of a CPU": on_processor}
    ways: dict[str, Callable[..., torch.Tensor]] = {
        "forward": Encoder.__call__,
        "rollout by default": rollout,
        "matrices held": partial(rollout, matrices=True),
        "rows made again": partial(rollout, matrices=False),
        **{name: partial(carried_by, kernel) for name, kernel in kernels.items()},
        "FlexAttention": partial(carried_by, flexible),
    }
    return {name: partial(timed_rollout, way, model, tokens) for name, way in ways.items()}


def timed_rollout(way: Callable[..., torch.Tensor], model: Model, tokens: int) -> dict[str, Any]:
    torch.manual_seed(0)
    encoder = peaked(Encoder(len(CHANNELS) * GRID.patch**3, GRID.positions, *model.shape).to(DEVICE).eval())
    patches = torch.randn(1, tokens, len(CHANNELS) * GRID.patch**3, device=DEVICE)
    position = torch.arange(tokens, device=DEVICE)[None]

    def run(precise: bool = False) -> torch.Tensor:
        with torch.no_grad(), nullcontext() if precise else autocast():
            return way(encoder, patches, position)

    far = None
    if way is not Encoder.__call__:
        row = run(precise=True).double()
        far = (row - full_product(encoder.double(), patches.double(), position)).abs().max().item()
        encoder.float()
    return timed(run) | {"difference": far}


if __name__ == "__main__":
    cyclopts.run(main)
