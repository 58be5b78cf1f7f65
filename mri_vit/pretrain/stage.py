"""Learning without labels: prepared patients in, an encoder's weights in a file out, whatever the method.

A method is an `Objective`: it turns patients into a batch and a batch into a loss. The loop knows nothing else of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor, nn

from mri_vit.data import tokens
from mri_vit.data.batches import token_file
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.model.encoder import Encoder
from mri_vit.model.network import Network
from mri_vit.model.weights import fill, load_encoder, save_encoder, seen, taught
from mri_vit.pretrain.dino import Dino
from mri_vit.pretrain.mae import MaskedAutoencoder
from mri_vit.run import resource
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import Model, Pretrain
from mri_vit.settings.schema import Grid, Study
from mri_vit.train import checkpoint
from mri_vit.train.loop import Report, less_memory, precision, state_bytes
from mri_vit.train.optimiser import rate

HELD_BYTES = 2 * 2**30  # patients are kept in memory up to this size, some six thousand of the demo's or a hundred full ones
SHARED = {
    "betas",
    "weight_decay",
    "warmup",
    "clip",
    "token_budget",
    "mirror",
    "intensity",
}  # keys of [train] that pretraining uses
SAVE_SECONDS = 60.0  # between two writes of the state: what a killed run loses at most, beside the epoch that it was in


@runtime_checkable
class Objective(Protocol):
    """What a method of learning without labels offers; it is an `nn.Module` that holds all of its state."""

    encoder: Encoder  # what is kept

    def learned(self) -> list[nn.Parameter]:
        """The weights that the optimiser changes."""
        ...

    def views(self, patients: Sequence[Tokens], generator: torch.Generator) -> tuple[Tensor, ...]:
        """A batch, augmented; random choices follow the generator."""
        ...

    def __call__(self, *views: Tensor) -> Tensor:
        """The loss of a batch."""
        ...

    def begin(self, epoch: int) -> None:
        """An epoch begins, counted from 0."""
        ...

    def stepped(self, progress: float) -> None:
        """The optimiser has made a step; `progress` is the share of all steps that are done."""
        ...

    def watched(self) -> dict[str, float]:
        """Figures of the batches since the last call, for the history."""
        ...


METHODS: dict[str, Callable[[Encoder, Study], nn.Module]] = {"mae": MaskedAutoencoder, "dino": Dino}


def pretrain(patients: Sequence[Patient], study: Study, file: Path, seed: int, report: Report | None = None) -> pd.DataFrame:
    """Learn an encoder from patients' scans by `study.pretrain`, without a look at any label.

    The state is written beside the file while it runs, and taken away at the end; a killed run goes on from there and ends
    with the same weights. Optimisation is as in `study.train` (betas, weight decay, warm-up, clipping); augmentation too.
    The encoder starts from `study.model.weights` where there are any, and those whom these know are named too.

    Parameters
    ----------
    patients : visits whose prepared folders are read; two or more.
    file : where the encoder goes; its history goes beside it, under the same name with `.csv`.
    report : called after each epoch with (epoch, epochs, loss, patients per second).

    Returns
    -------
    The history: epoch, loss, and the method's own figures, see its `watched`.

    Raises
    ------
    UsageError without a method, for another architecture, or with fewer than two patients; BadNumbers when the loss is no
    longer a number.
    """
    settings = study.pretrain
    if settings.method == "none" or len(patients) < 2:
        raise UsageError(f"pretraining by {settings.method!r} on {len(patients)} patients; choose a method, and at least two")
    if study.model.architecture != "vit":
        raise UsageError(f'pretrain.method {settings.method!r} goes with architecture "vit", found {study.model.architecture!r}')
    torch.set_num_threads(study.train.threads)
    file.parent.mkdir(parents=True, exist_ok=True)
    fabric = Fabric(accelerator="auto", devices=1, precision=precision(study), plugins=LightningEnvironment())  # see train.fit
    torch.manual_seed(seed)  # initial weights and, drawn after them, drop-path
    encoder, header = untrained(study), told(study, patients, seed)
    if study.model.weights:
        fill(encoder, study.model.weights, study.model, study.grid)
    method = METHODS[settings.method](encoder, study)
    objective: Any = method  # the type checker cannot say "a module that is an Objective"
    generator = torch.Generator().manual_seed(seed)  # order, views and augmentation
    net, optimiser = fabric.setup(method, _optimiser(objective, study))
    read = reader(patients, study)
    batch = min(settings.batch, len(patients))
    per_epoch = math.ceil(len(patients) / batch)
    steps = settings.epochs * per_epoch
    state, saved = checkpoint.State(), time.monotonic()
    sha256 = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    unfinished = file.with_suffix(f".{sha256[:12]}.state")  # another pretraining's is not gone on from
    if unfinished.exists():
        state = checkpoint.load(unfinished, method, optimiser, generator)  # type: ignore[arg-type]
    while state.epoch < settings.epochs:
        method.train()
        objective.begin(state.epoch)
        began, total = time.monotonic(), 0.0
        order = torch.randperm(len(patients), generator=generator).tolist()
        for index in range(per_epoch):
            step = state.epoch * per_epoch + index
            chosen = [read(order[i % len(order)]) for i in range(index * batch, (index + 1) * batch)]
            for group in optimiser.param_groups:
                group["lr"] = rate(step, steps, settings.rate, study.train.warmup)
            loss = net(*(part.to(fabric.device) for part in objective.views(chosen, generator)))
            if not torch.isfinite(loss):
                raise BadNumbers(
                    f"{file}: the loss became {loss.item()} in epoch {state.epoch + 1}; try a pretrain.rate below {settings.rate}"
                )
            optimiser.zero_grad()
            fabric.backward(loss)
            norm = fabric.clip_gradients(net, optimiser, max_norm=study.train.clip, error_if_nonfinite=False)
            if norm is not None and not torch.isfinite(norm):
                raise BadNumbers(
                    f"{file}: a gradient became {norm.item()} in epoch {state.epoch + 1}; try a pretrain.rate below"
                    f' {settings.rate}, or train.precision "32-true"'
                )
            optimiser.step()
            objective.stepped((step + 1) / steps)
            total += loss.item()
        state.epoch += 1
        state.history.append({"epoch": state.epoch, "loss": total / per_epoch, **objective.watched()})
        if report:
            report(state.epoch, settings.epochs, total / per_epoch, per_epoch * batch / (time.monotonic() - began))
        if time.monotonic() - saved >= SAVE_SECONDS:
            checkpoint.save(state, method, optimiser, generator, unfinished)  # type: ignore[arg-type]
            saved = time.monotonic()
    history = pd.DataFrame(state.history)
    write_bytes(history.to_csv(index=False, float_format="%.6g").encode(), file.with_suffix(".csv"))
    save_encoder(encoder, header, file)
    for state_file in file.parent.glob(f"{file.stem}.*.state"):
        state_file.unlink()
    return history


def told(study: Study, patients: Sequence[Patient], seed: int) -> dict[str, Any]:
    """What an encoder depends on, as its file's header tells it (see `load_encoder`): recipe, seed, whom it knows."""
    weights = study.model.weights
    return {
        "model": study.model.model_copy(update={"weights": None}).model_dump(mode="json"),  # a path may tell of a machine
        "start": hashlib.sha256(weights.read_bytes()).hexdigest() if weights else None,
        "grid": study.grid.model_dump(mode="json"),
        "pretrain": study.pretrain.model_dump(mode="json"),
        "train": study.train.model_dump(mode="json", include=SHARED),
        "seed": seed,
        "seen": sorted({patient.subject for patient in patients} | set(seen(weights) if weights else [])),
        "taught": taught(weights) if weights else [],
    }


def pretrained(study: Study, patients: Sequence[Patient], file: Path, seed: int, report: Report | None = None) -> Study:
    """The study that starts from an encoder learned from these patients, which is learned where the file is not there yet.

    Raises UsageError when the file is there and tells of another pretraining.
    """
    if file.exists():
        asked, found = told(study, patients, seed), load_encoder(file)[1]
        for key, section in (("model", Model), ("grid", Grid), ("pretrain", Pretrain)):  # a key newer than the file: its default
            found[key] = section.model_validate(found[key]).model_dump(mode="json")
        differing = [key for key in asked if key in found and asked[key] != found[key]]
        if differing:
            raise UsageError(f"{file}: holds an encoder of another {differing[0]}; delete it, or choose another output")
    else:
        smaller = f"a pretrain.batch below {study.pretrain.batch}, or {less_memory(study)}"
        with resource.told(file.parent, lambda: state_bytes(study), smaller):
            pretrain(patients, study, file, seed, report)
    return begun(study, file)


def begun(study: Study, file: Path) -> Study:
    """The study that starts from an encoder's file and pretrains no more."""
    return study.model_copy(
        update={
            "model": study.model.model_copy(update={"weights": file}),
            "pretrain": study.pretrain.model_copy(update={"method": "none"}),
        }
    )


def untrained(study: Study) -> Any:
    """The study's encoder (an `Encoder` for architecture "vit") with fresh weights.

    No block is left out: hiding tokens or cropping is regularisation enough.
    """
    return Network(study.model.model_copy(update={"drop_path": 0.0}), study.grid, []).encoder


def reader(patients: Sequence[Patient], study: Study) -> Callable[[int], Tokens]:
    """Gives a patient's tokens by index: from memory when all of them fit, else from disk each time."""
    files = [token_file(study, patient) for patient in patients]
    if sum(file.stat().st_size for file in files if file.exists()) > HELD_BYTES:
        return lambda index: tokens.load(files[index])
    return [tokens.load(file) for file in files].__getitem__


def _optimiser(objective: Objective, study: Study) -> torch.optim.AdamW:
    """AdamW; biases, norms, positions and tokens are not decayed (He et al. 2022, as in `train`)."""
    matrices = [p for p in objective.learned() if p.ndim in (2, 5)]  # of linear maps and of 3D convolutions
    others = [p for p in objective.learned() if p.ndim not in (2, 5)]
    groups = [{"params": matrices, "weight_decay": study.train.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=study.pretrain.rate, betas=study.train.betas)
