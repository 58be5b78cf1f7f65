"""What this project costs beside the usual way: the network, maps, learning without labels, reading and feeding, a report.

.venv/bin/python pipelines/bench.py --part model --threads 1 --repeats 2 --memory
.venv/bin/python pipelines/bench.py --part preparation --patient scans/P-001 --before ../older-worktree

Variants take turns within every round, so that a busy machine slows all of them alike; a ratio is the median over the rounds of
a variant's time by the first row's. Ratios travel between machines, seconds do not. On a GPU the same code runs under bfloat16
autocast. On one thread a round of `model` takes about 3 minutes, one of `rollout` a minute and 6 GB of memory.
"""

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import cyclopts
import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.inputs import DEVICE, FOREGROUND, GRID, autocast, patient
from benchmarks.preparation import children_cpu_seconds, preparation, preparation_unstripped
from benchmarks.rollout import by_tokens, difference, maps, rollouts
from benchmarks.stems import stems
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from mri_vit.run import files
from mri_vit.run.resource import keep_freed_memory
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model

Run = Callable[[], Any]  # what is timed
Variants = dict[str, Callable[[], Run]]  # by name: builds what it needs, untimed, and returns what is timed

ENDPOINT = DEFAULT_ENDPOINTS[0]
READS = 20  # timed together, because one takes milliseconds
WEIGHED = ("model", "rollout", "maps", "tokens", "training")  # the parts whose peak memory is of interest
STEPS = ("model", "training")  # of these, those that take an optimiser's steps, whose moments exist from the second one on


def main(
    *,
    part: Literal[
        "model",
        "stems",
        "rollout",
        "maps",
        "tokens",
        "pretraining",
        "storage",
        "feeding",
        "training",
        "folds",
        "evaluation",
        "report",
        "preparation",
        "unstripped",
        "all",
    ] = "all",
    threads: Literal[1, 2] = 1,
    repeats: int = 3,
    warm_up: int = 1,
    memory: bool = False,
    output: Path | None = None,
    peak_of: str | None = None,
    patient: tuple[Path, ...] = (),
    before: tuple[Path, ...] = (),
) -> None:
    """Measure and print a table; `--memory` adds each network variant's peak, in a process of its own.

    `--patient` is a folder with t1, t1ce, t2 and flair .nii.gz that `preparation` and `unstripped` prepare, `--before` a worktree
    of older code beside which `preparation`, `folds` and `report` are timed; both may be given several times. Processor time is
    of processes which a variant starts and waits for. `--warm-up` rounds are not counted. `--output` also writes the figures as
    JSON. `--peak-of GROUP/VARIANT` is what those processes are started with.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()  # as wherever maps are made
    with TemporaryDirectory() as folder:
        parts = {
            "model": models,
            "stems": stems,
            "rollout": rollouts,
            "maps": maps,
            "tokens": by_tokens,
            "pretraining": partial(learned, Path(folder)),
            "storage": partial(storage, Path(folder)),
            "feeding": partial(fed, Path(folder)),
            "training": partial(trained, Path(folder)),
            "folds": partial(side_by_side, Path(folder), before),
            "evaluation": partial(evaluated, Path(folder)),
            "report": partial(reported, Path(folder), before),
            "preparation": partial(preparation, Path(folder), patient, before),
            "unstripped": partial(preparation_unstripped, Path(folder), patient),
        }
        asked = [name for name in parts if name != "tokens"] if part == "all" else [part]  # an hour is not taken unasked
        chosen = {name: parts[name]() for name in asked}
        if peak_of:
            group, _, name = peak_of.partition("/")
            print(peak_bytes(chosen[part][group][name](), runs=2 if part in STEPS else 1))
            return
        peaks = {
            group: peaks_apart(key, group, variants, threads)
            for key, groups in chosen.items()
            for group, variants in groups.items()
            if memory and key in WEIGHED
        }  # first: a child inherits our peak as its own
        figures = {
            group: measured(variants, repeats, warm_up, peaks.get(group, {}))
            for groups in chosen.values()
            for group, variants in groups.items()
        }
    table = Table(box=SIMPLE_HEAD, title=f"{DEVICE.type}, {threads} thread(s), {repeats} round(s), torch {torch.__version__}")
    table.add_column("", no_wrap=True)
    for column in ("median s", "range s", "÷ first", "CPU s", "÷ first", "peak GB", "÷ first"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, rows in figures.items():
        add_rows(table, name, rows)
    console = Console()
    console.print(table)
    if part in ("rollout", "all"):
        for positions in (FOREGROUND, GRID.positions):
            console.print(f"at {positions} places the two rollouts' CLS rows differ by at most {difference(positions):.1e}")
    for name in ("pretraining", "feeding", "training"):
        if part in (name, "all"):
            for sentence in importlib.import_module(f"benchmarks.{name}").sentences(figures):
                console.print(sentence, highlight=False)
    if output:
        settings = {"device": DEVICE.type, "threads": threads, "repeats": repeats, "torch": torch.__version__}
        output.write_text(json.dumps({**settings, "groups": figures}, indent=1) + "\n")


def measured(variants: Variants, repeats: int, warm_up: int, peaks: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Each variant's seconds in every round, and the median of their ratios to the first variant's."""
    runs = {name: build() for name, build in variants.items()}
    rounds = [{name: seconds(run) for name, run in runs.items()} for _ in range(warm_up + repeats)][warm_up:]
    first = next(iter(runs))
    return {
        name: {
            "seconds": [times[name][0] for times in rounds],
            "ratio": median(times[name][0] / times[first][0] for times in rounds),
            "cpu_seconds": [times[name][1] for times in rounds],
            "cpu_ratio": median(times[name][1] / times[first][1] for times in rounds) if rounds[0][first][1] else None,
            "peak_bytes": peaks.get(name),
        }
        for name in runs
    }


def seconds(run: Run) -> tuple[float, float]:
    """By the clock, and of the processors in processes that the run started and waited for."""
    synchronise()
    began, cpu_began = time.perf_counter(), children_cpu_seconds()
    run()
    synchronise()
    return time.perf_counter() - began, children_cpu_seconds() - cpu_began


def synchronise() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def peaks_apart(part: str, group: str, variants: Variants, threads: int) -> dict[str, int]:
    """Each variant's peak memory in bytes, from a process that does nothing else."""
    command = [sys.executable, __file__, "--part", part, "--threads", str(threads), "--peak-of"]
    return {name: int(subprocess.check_output([*command, f"{group}/{name}"], text=True)) for name in variants}


def peak_bytes(run: Run, runs: int) -> int:
    """Of the GPU, else of the process."""
    for _ in range(runs):
        run()
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kibibytes


def add_rows(table: Table, group: str, variants: dict[str, dict[str, Any]]) -> None:
    table.add_row(f"[bold]{group}[/bold]")
    first = next(iter(variants.values()))["peak_bytes"]
    for name, figures in variants.items():
        times, peak = figures["seconds"], figures["peak_bytes"]
        cpu = figures["cpu_ratio"]
        processors = (f"{median(figures['cpu_seconds']):.3g}", f"{cpu:.3f}") if cpu else ("–", "–")
        weight = (f"{peak / 1e9:.2f}", f"{peak / first:.2f}") if first else ("–", "–")
        table.add_row(
            f"  {name}",
            f"{median(times):.3g}",
            f"{min(times):.3g}–{max(times):.3g}",
            f"{figures['ratio']:.3f}",
            *processors,
            *weight,
        )


# The network: ViT-B/16³ on one patient of 4×224³. Ours is given patches, as a prepared patient holds them.


def models() -> dict[str, Variants]:
    ways: dict[str, tuple[Any, ...]] = {  # network, its input, where its output holds the logit
        "MONAI as it comes": (partial(monai_vit, flash=False), volume, 0),
        "MONAI, flash by hand": (partial(monai_vit, flash=True), volume, 0),
        f"ours, {GRID.positions} places": (our_network, partial(patient, GRID.positions), ENDPOINT.name),
        f"ours, {FOREGROUND} places": (our_network, partial(patient, FOREGROUND), ENDPOINT.name),
    }
    return {
        step.__name__.replace("_", " "): {k: partial(step, *way) for k, way in ways.items()} for step in (forward, training_step)
    }


def forward(network: Callable[[], nn.Module], batch: Callable[[], tuple[Tensor, ...]], key: Any) -> Run:
    net, inputs = network(), batch()

    def run() -> None:
        with torch.no_grad(), autocast():
            net(*inputs)[key]

    return run


def training_step(network: Callable[[], nn.Module], batch: Callable[[], tuple[Tensor, ...]], key: Any) -> Run:
    """Forward, backward and AdamW's step."""
    net, inputs = network(), batch()
    optimiser = adamw(net)

    def run() -> None:
        optimiser.zero_grad()
        with autocast():
            logit = net(*inputs)[key]
        F.binary_cross_entropy_with_logits(logit.float(), torch.ones(1, 1, device=DEVICE)).backward()
        optimiser.step()

    return run


@cache  # both variants of one network share its optimiser
def adamw(network: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(network.parameters(), lr=1e-5)


@cache
def monai_vit(flash: bool) -> nn.Module:
    from monai.networks.nets.vit import ViT  # here, so that it does not weigh on our own peak memory

    edge, patch = (GRID.edge,) * 3, (GRID.patch,) * 3
    network = ViT(len(CHANNELS), edge, patch, classification=True, num_classes=1, post_activation="", qkv_bias=True)
    blocks: Any = network.blocks
    for block in blocks:
        block.attn.use_flash_attention = flash
    return network.to(DEVICE)


@cache
def our_network() -> nn.Module:
    from mri_vit.model.heads import Head  # here, so that it does not weigh on the peak of rollout
    from mri_vit.model.network import Network

    torch.manual_seed(0)
    return Network(Model(size="B", drop_path=0.0), GRID, [Head(ENDPOINT, "binary")]).to(DEVICE)


@cache
def volume() -> tuple[Tensor]:
    return (torch.randn(1, len(CHANNELS), GRID.edge, GRID.edge, GRID.edge, device=DEVICE),)


# A prepared patient from disk, warm in the page cache.


def storage(folder: Path) -> dict[str, Variants]:
    variants: Variants = {"PersistentDataset": partial(dense_reads, folder), "tokens.load": partial(token_reads, folder)}
    return {f"{READS} reads": variants}


def dense_reads(folder: Path) -> Run:
    """MONAI's PersistentDataset with the float32 volume of one patient in its cache."""
    from monai.data.dataset import PersistentDataset  # here, because its import takes seconds
    from monai.transforms.utility.array import Lambda

    kept: Any = PersistentDataset(["patient"], Lambda(lambda _: {"image": volume()[0][0].cpu()}), cache_dir=folder)
    assert kept[0]["image"].dtype == torch.float32  # fills the cache
    return partial(one_after_another, lambda: kept[0])


def token_reads(folder: Path) -> Run:
    from mri_vit.data import tokens  # here, for the same reason as the network

    patches, position = (array[0].cpu().numpy() for array in patient(FOREGROUND))
    path = folder / files.TOKENS
    tokens.save(tokens.Tokens(patches.astype(np.float16), position.astype(np.int16), GRID, "-"), path)
    return partial(one_after_another, lambda: tokens.load(path))


def one_after_another(read: Run) -> None:
    """Each patient goes before the next one comes, as in training: kept, their fresh memory would be timed too."""
    for _ in range(READS):
        read()


# Learning with and without labels, and predictions to figures: in files of their own.


def learned(folder: Path) -> dict[str, Variants]:
    from benchmarks.pretraining import pretraining  # here: its libraries weigh on the other parts' peaks

    return pretraining(folder)


def fed(folder: Path) -> dict[str, Variants]:
    from benchmarks.feeding import feeding  # here, for the same reason

    return feeding(folder)


def trained(folder: Path) -> dict[str, Variants]:
    from benchmarks.training import training  # here, for the same reason

    return training(folder)


def side_by_side(folder: Path, before: tuple[Path, ...]) -> dict[str, Variants]:
    from benchmarks.folds import folds  # here, for the same reason

    return folds(folder, before)


def evaluated(folder: Path) -> dict[str, Variants]:
    from benchmarks.evaluation import evaluation  # here: its libraries for tables weigh 130 MB

    return evaluation(folder)


def reported(folder: Path, before: tuple[Path, ...]) -> dict[str, Variants]:
    from benchmarks.report import reports  # here, for the same reason

    return reports(folder, before)


if __name__ == "__main__":
    cyclopts.run(main)
