"""The part of the bench that learns: a step of MAE beside steps of supervised training on every token, with equal batches.

.venv/bin/python pipelines/bench.py --part pretraining --threads 1

Steps are whole: patients are drawn from memory as in the real loops, augmented, and the optimiser's step is made. MAE
reconstructs a third of the hidden places in a step (`mae.RECONSTRUCTED`). The encoders are those of the study files. On one
thread a round takes about a minute, and 5 GB of memory.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.inputs import DEVICE, FOREGROUND, autocast
from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import store, token_file
from mri_vit.pretrain.encoder import untrained as untrained_encoder
from mri_vit.pretrain.encoder import views
from mri_vit.pretrain.mae import MaskedAutoencoder
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid
from mri_vit.train.feed import Feed, whole_batch
from mri_vit.train.loop import Turn, optimiser
from mri_vit.train.supervised import objective, untrained

Run = Callable[[], Any]  # what is timed

CONFIGS = Path(__file__).parents[2] / "configs"
BATCHES = {"demo": 16, "gbm": 4, "vit_b16": 1}  # patients, by study file: so many that a step of any takes seconds
MAE = "MAE"


def pretraining(folder: Path) -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    return {title(name, batch): steps(name, batch, folder / name) for name, batch in BATCHES.items()}


def title(name: str, batch: int) -> str:
    return f"{name}, {batch} patient{'s' * (batch > 1)}"


def steps(name: str, batch: int, folder: Path) -> dict[str, Callable[[], Run]]:
    """A step of each way, on the same patients with the same encoder."""
    alone = {} if name == "vit_b16" else {"recipe": "no-masks"}  # these patients have no masks
    study = study_file.load(CONFIGS / f"{name}.toml", alone)
    everybody = [
        Patient(f"p{i}", dict.fromkeys(CHANNELS), {c: float(i % 2) for e in study.endpoints for c in e.columns}, {})
        for i in range(batch)
    ]
    return {
        f"supervised, {study.grid.positions}": partial(supervised, of(study, "all", folder), everybody),
        f"supervised, {FOREGROUND}": partial(supervised, of(study, "foreground", folder), everybody),
        MAE: partial(masked, of(study, "foreground", folder), everybody),
    }


def of(study: Study, shown: str, folder: Path) -> Study:
    """The study with every token of a kind, for one endpoint, on patients in `folder`."""
    model = study.model.model_copy(update={"tokens": shown, "drop_path": 0.0})
    train = study.train.model_copy(update={"token_budget": None})
    return study.model_copy(update={"model": model, "train": train, "prepared": folder, "endpoints": study.endpoints[:1]})


def supervised(study: Study, patients: Sequence[Patient]) -> Run:
    write(study, patients)
    two_classes = [*patients, *(Patient(c, patients[0].scans, {study.endpoints[0].name: float(c)}, {}) for c in "01")]
    net = untrained(two_classes, study, seed=0).to(DEVICE).train()
    feed, loss_of = Feed(patients, study, DEVICE, seed=0), objective(net, net)

    def loss() -> Tensor:
        (given,) = feed([everybody(patients)])
        with autocast():
            return loss_of(given)

    return partial(stepped, net, optimiser(net, study), loss, study)


def masked(study: Study, patients: Sequence[Patient]) -> Run:
    write(study, patients)
    torch.manual_seed(0)
    net = MaskedAutoencoder(untrained_encoder(study), study).to(DEVICE).train()
    adamw = torch.optim.AdamW(net.learned(), lr=study.pretrain.learning_rate, betas=study.train.betas)
    held = store([token_file(study.prepared, patient) for patient in patients], DEVICE)

    def loss() -> Tensor:
        (shown,) = views([patient.id for patient in patients], held, net, 0, whole_batch, [everybody(patients)])
        with autocast():
            return net(*shown)

    return partial(stepped, net, adamw, loss, study)


def everybody(patients: Sequence[Patient]) -> Turn:
    return Turn(0, 0, tuple(range(len(patients))), (0,) * len(patients))


def stepped(net: nn.Module, adamw: torch.optim.Optimizer, loss: Callable[[], Tensor], study: Study) -> None:
    """Batch, forward, backward, clipping and AdamW's step."""
    adamw.zero_grad()
    loss().backward()
    nn.utils.clip_grad_norm_(net.parameters(), study.train.grad_clip_norm)
    adamw.step()


def write(study: Study, patients: Sequence[Patient]) -> None:
    """Prepared patients of random patches at random places, where they are not there yet."""
    grid: Grid = study.grid
    generator = np.random.default_rng(0)
    for patient in patients:
        path = token_file(study.prepared, patient)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            position = np.sort(generator.permutation(grid.positions)[:FOREGROUND]).astype(np.int16)
            patches = generator.normal(size=(FOREGROUND, len(CHANNELS) * grid.patch**3)).astype(np.float16)
            tokens.save(tokens.Tokens(patches, position, grid, "-"), path)


def sentences(groups: dict[str, dict[str, Any]]) -> list[str]:
    """For each study file: patients per second of each way, and MAE's as times those of others, the median over the rounds."""
    sentences = []
    for name, batch in BATCHES.items():
        seconds = {way: found["seconds"] for way, found in groups[title(name, batch)].items()}
        rates = ", ".join(f"{way} {batch / median(times):.3g}" for way, times in seconds.items())
        faster = ", ".join(
            f"{median(theirs / ours for theirs, ours in zip(times, seconds[MAE], strict=True)):.1f} times {way}"
            for way, times in seconds.items()
            if way != MAE
        )
        sentences.append(f"{name}, patients per second: {rates}; {MAE} learns from {faster}")
    return sentences
