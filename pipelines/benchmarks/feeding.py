"""The part of the bench that feeds: batches for training, beside the way they were made before, and beside a step of training.

.venv/bin/python pipelines/bench.py --part feeding --threads 1

`before` is the loader up to version 0.4: every file read and mirrored whole, then tokens drawn, in single precision. It stays
here as what the bars are measured against. The second group is a step of the recipe "no-masks" at 1 mm, of which feeding may take
a tenth. On one thread a round takes about 20 s, and 3 GB of memory.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from benchmarks.inputs import DEVICE, FOREGROUND, autocast, everybody
from benchmarks.pretraining import CONFIGS, stepped, write
from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import mirrored_place
from mri_vit.data.store import Read, Store, held, token_file
from mri_vit.data.tokens import Tokens
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.train.feed import Feed, LabelledBatch
from mri_vit.train.loop import Turn, optimiser
from mri_vit.train.supervised import batch_outputs, objective, untrained

Run = Callable[[], Any]  # what is timed

PATIENTS = 32
BATCH = 16  # patients, as in the recipe "no-masks"
BUDGET = 320  # tokens of each, likewise
AT_1_MM = {"recipe": "no-masks", "grid.edge": "224", "grid.spacing_mm": "1.0", "grid.patch": "16"}
BATCHES = 4  # timed together, because the first one from disk is not read ahead
BEFORE, FEEDING = "before, from disk", f"{BATCHES} batches of {BATCH} patients, {BUDGET} of {FOREGROUND} tokens"
WHOLE, STEP = "a step", f"no-masks at 1 mm, {BATCH} patients, {BUDGET} of {FOREGROUND} tokens"


def feeding(folder: Path) -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    study = recommended(folder)
    some = everybody(PATIENTS, study)
    near = ("from memory" if DEVICE.type == "cpu" else "from the GPU", partial(held, device=DEVICE))
    ways = dict([near, ("from disk", partial(Read, device=DEVICE))])
    return {
        FEEDING: {
            BEFORE: partial(fed_before, study, some),
            **{name: partial(fed, study, some, way, BATCHES) for name, way in ways.items()},
        },
        STEP: {
            WHOLE: partial(step, study, some, near[1]),
            "its feeding": partial(fed, study, some, near[1], 1),
        },
    }


def recommended(folder: Path) -> Study:
    """The study "no-masks" at 1 mm."""
    return study_file.load(CONFIGS / "gbm.toml", AT_1_MM).model_copy(update={"prepared": folder})


def trained_and_evaluated(folder: Path, patients: int) -> dict[str, Run]:
    """A step of a batch of so many patients, and their evaluation with all tokens."""
    study = recommended(folder)
    study = study.model_copy(update={"train": study.train.model_copy(update={"batch_size": patients})})
    write(study, whom := everybody(patients, study))
    net, feed = untrained(whom, study, seed=0).to(DEVICE), Feed(whom, study, DEVICE, seed=0)
    adamw, loss_of, turn = optimiser(net, study), objective(net, net), Turn(0, 0, tuple(range(patients)), (0,) * patients)

    def loss() -> Tensor:
        (given,) = feed([turn])
        with autocast():
            return loss_of(given)

    def evaluated() -> None:
        with autocast():
            batch_outputs(net, feed, patients)

    return {"training": partial(stepped, net.train(), adamw, loss, study), "evaluation": evaluated}


def turns() -> Iterator[Turn]:
    """Every patient in turn, for ever."""
    for number in count():
        first = number * BATCH % PATIENTS
        yield Turn(number * BATCH // PATIENTS, number, tuple(range(first, first + BATCH)), (0,) * BATCH)


def ready(study: Study, patients: Sequence[Patient], way: Callable[[Sequence[Path]], Store]) -> Iterator[LabelledBatch]:
    """What the steps of a training are given."""
    write(study, patients)
    feed = Feed(patients, study, DEVICE, seed=0)
    feed.store = way([token_file(study.prepared, patient) for patient in patients])
    return feed(turns())


def fed(study: Study, patients: Sequence[Patient], way: Callable[[Sequence[Path]], Store], batches: int) -> Run:
    given = ready(study, patients, way)

    def run() -> None:
        for _ in range(batches):
            next(given)

    return run


def step(study: Study, patients: Sequence[Patient], way: Callable[[Sequence[Path]], Store]) -> Run:
    """Feeding, forward, backward, clipping and AdamW's step."""
    given, net = ready(study, patients, way), untrained(patients, study, seed=0).to(DEVICE).train()
    loss_of = objective(net, net)

    def loss() -> Tensor:
        with autocast():
            return loss_of(next(given))

    return partial(stepped, net, optimiser(net, study), loss, study)


def sentences(groups: dict[str, dict[str, Any]]) -> list[str]:
    """Patients per second of each way and as times those of before; and feeding's share of a step."""
    seconds = {way: found["seconds"] for way, found in groups[FEEDING].items()}
    rates = [f"{way} {BATCHES * BATCH / median(times):.3g}" for way, times in seconds.items()]
    faster = [
        f"{median(b / t for b, t in zip(seconds[BEFORE], times, strict=True)):.1f} times {way}"
        for way, times in seconds.items()
        if way != BEFORE
    ]
    share = groups[STEP]["its feeding"]["ratio"]
    return [
        f"patients per second: {', '.join(rates)}; that is {', '.join(faster)}",
        f"feeding is {100 * share:.1f} % of a step of no-masks at 1 mm",
    ]


# The way before, as it was.


def fed_before(study: Study, patients: Sequence[Patient]) -> Run:
    write(study, patients)
    generator, at = torch.Generator().manual_seed(0), turns()

    def run() -> None:
        for _ in range(BATCHES):
            batch = batch_before([patients[i] for i in next(at).patients], study, generator)
            [part.to(DEVICE) for part in batch]

    return run


def batch_before(patients: Sequence[Patient], study: Study, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    loaded = [tokens.load(token_file(study.prepared, patient)) for patient in patients]
    parts = []
    for prepared in loaded:
        flip = study.train.flip_lr and torch.rand((), generator=generator) < 0.5
        parts.append(drawn_before(mirror_before(prepared) if flip else prepared, BUDGET, generator))
    patches, position = (torch.cat(part) for part in zip(*parts, strict=True))
    return augmented_before(patches, study.train.intensity_jitter, generator), position


def mirror_before(prepared: Tokens) -> Tokens:
    patches = rearrange(prepared.patches, "f (c x yz) -> f c x yz", c=len(CHANNELS), x=prepared.grid.patch)[:, :, ::-1]
    position = mirrored_place(prepared.position, prepared.grid.side).astype(np.int16)
    return Tokens(np.ascontiguousarray(rearrange(patches, "f c x yz -> f (c x yz)")), position, prepared.grid, "-")


def drawn_before(prepared: Tokens, budget: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    chosen = torch.randperm(len(prepared.position), generator=generator)[:budget].numpy()
    patches, position = prepared.patches[chosen], prepared.position[chosen].astype(np.int64)
    return torch.from_numpy(patches).float()[None], torch.from_numpy(position)[None]


def augmented_before(patches: Tensor, spread: float, generator: torch.Generator) -> Tensor:
    shape = (len(patches), 1, len(CHANNELS))
    voxels = patches.shape[2] // len(CHANNELS)
    gain = 1 + spread * torch.randn(shape, generator=generator)
    shift = spread * torch.randn(shape, generator=generator)
    changed = patches * gain.repeat_interleave(voxels, dim=2) + shift.repeat_interleave(voxels, dim=2)
    return torch.where(patches == 0, patches, changed)
