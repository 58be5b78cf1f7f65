"""An encoder that is learned without labels: prepared patients in, its weights in a file and the study that starts from it out.

A `Method` turns patients into a batch and a batch into a loss; `train.loop` makes the steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from mri_vit.data.cohort import Patient
from mri_vit.data.draw import Draw, Member, stream
from mri_vit.data.store import Store, store, token_file
from mri_vit.errors import UsageError
from mri_vit.model.network import Network, state_bytes
from mri_vit.model.weights import fill, image_exposed, label_exposed, load_encoder, save_encoder
from mri_vit.pretrain.dino import Dino
from mri_vit.pretrain.mae import MaskedAutoencoder
from mri_vit.run import resource
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import Model, Pretrain
from mri_vit.settings.schema import MAE_IS_FOR_VIT, Study
from mri_vit.settings.sections import Grid
from mri_vit.train import checkpoint
from mri_vit.train.devices import Gather, gathering, less_memory, on_devices, part
from mri_vit.train.loop import Learner, Objective, Rates, Report, Schedule, Turn, even_optimiser, steps

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SHARED = {"betas", "weight_decay", "warmup", "grad_clip_norm", "token_budget", "flip_lr", "intensity_jitter"}  # of [train]


@runtime_checkable
class Method(Protocol):
    """What a method of learning without labels offers; it is an `nn.Module` that holds all of its state."""

    encoder: Any  # what is kept: an `Encoder` for architecture "vit", see `model.network.encoder`
    gather: Gather  # puts what a batch's shares on several devices have together

    def learned(self) -> list[nn.Parameter]:
        """The weights that the optimiser changes."""
        ...

    def begin(self, epoch: int) -> None:
        """A batch of this epoch, counted from 0, comes next."""
        ...

    def draws(self, members: Sequence[Member], shared: np.random.Generator) -> tuple[Draw, ...]:
        """What is shown of a batch's patients, augmented; `shared` draws what they have in common."""
        ...

    def __call__(self, *views: Tensor) -> Tensor:
        """The loss of a batch: patches and grid positions of the first draw, of the second, and so on."""
        ...

    def stepped(self, progress: float) -> None:
        """The optimiser has made a step; `progress` is the share of all steps that are done."""
        ...

    def watched(self) -> dict[str, float]:
        """Figures of the batches since the last call, for the history."""
        ...


METHODS: dict[str, Callable[[Any, Study], Any]] = {"mae": MaskedAutoencoder, "dino": Dino}  # no type says: module and Method


def pretrain(patients: Sequence[Patient], study: Study, file: Path, seed: int, report: Report | None = None) -> pd.DataFrame:
    """Learn an encoder from patients' scans by `study.pretrain`, without a look at any label.

    The state is written beside the file while it runs, and taken away at the end; a killed run resumes from there and ends
    with the same weights. Optimisation is as in `study.train` (betas, weight decay, warm-up, clipping); augmentation too.
    The encoder starts from `study.model.weights` where there are any; the patients of these are then named in the header too.

    The history (epoch, loss, and the method's own figures, see its `watched`) is returned and written beside `file` as `.csv`.
    `report` is called after each epoch with (epoch, epochs, loss, patients per second).

    Raises UsageError without a method, for an architecture that the method cannot train, or with fewer than two patients;
    BadNumbers when the loss is no longer a number.
    """
    method = study.pretrain.method
    if method == "none" or len(patients) < 2:
        raise UsageError(f"pretraining by {method!r} on {len(patients)} patients; choose a method, and at least two")
    if method == "mae" and study.model.architecture != "vit":
        raise UsageError(MAE_IS_FOR_VIT.format(method, study.model.architecture))
    if (batch := min(study.pretrain.batch_size, len(patients))) % study.train.devices:
        raise UsageError(f"pretraining in batches of {batch} cannot be divided evenly among train.devices {study.train.devices}")
    file.parent.mkdir(parents=True, exist_ok=True)
    local_report = report if study.train.devices == 1 else None  # what it calls lives in this process
    return on_devices(study, pretrain_on, patients, study, file, seed, local_report)


def pretrain_on(
    fabric: Fabric, patients: Sequence[Patient], study: Study, file: Path, seed: int, report: Report | None = None
) -> pd.DataFrame:
    """As `pretrain`, in each device's process; the first writes."""
    torch.set_num_threads(study.train.threads)
    resource.keep_freed_memory()
    header, plan = header_of(study, patients, seed), schedule(len(patients), study, file, seed)
    torch.manual_seed(seed)  # initial weights and, drawn after them, drop-path
    encoder = untrained(study)
    if study.model.weights:
        fill(encoder, study.model.weights, study.model, study.grid)
    method = METHODS[study.pretrain.method](encoder, study)
    method.gather = gathering(fabric)
    net, adamw = fabric.setup(method, even_optimiser(method.learned(), study))
    sha256 = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    unfinished = file.with_suffix(f".{sha256[:12]}.state")  # of another pretraining it has another name, and is not resumed
    state, clock = checkpoint.State(), checkpoint.Clock()
    if unfinished.exists():
        state = checkpoint.load(unfinished, method, adamw)
    held = store([token_file(study.prepared, patient) for patient in patients], fabric.device)
    feed = partial(views, [patient.id for patient in patients], held, method, seed, partial(part, fabric=fabric))
    for step in steps(feed, objective(method, net, state), Learner(fabric, net, adamw), plan, state, report):
        method.stepped((step.number + 1) / plan.steps)
        if step.mean_loss is None:
            continue
        state.history.append({"epoch": state.epoch, "loss": step.mean_loss, **method.watched()})
        if fabric.is_global_zero and clock.due():
            checkpoint.save(state, method, adamw, unfinished)
    history = pd.DataFrame(state.history)
    if fabric.is_global_zero:
        write_bytes(history.to_csv(index=False, float_format="%.6g").encode(), file.with_suffix(".csv"))
        save_encoder(encoder, header, file)
        for state_file in file.parent.glob(f"{file.stem}.*.state"):
            state_file.unlink()
    return history


def schedule(patients: int, study: Study, file: Path, seed: int) -> Schedule:
    """The schedule of `pretrain` for that many patients."""
    settings, train = study.pretrain, study.train
    rates, batch = Rates(settings.learning_rate, train.warmup), min(settings.batch_size, patients)
    return Schedule(patients, batch, settings.epochs, seed, rates, train.grad_clip_norm, "pretrain", file)


def views(
    ids: Sequence[str], held: Store, method: Method, seed: int, share: Callable[[Draw], Draw], turns: Iterable[Turn]
) -> Iterator[list[Tensor]]:
    """The method's views in each of an epoch's turns; what is drawn of a patient depends on seed, epoch and patient alone."""

    def drawn(turn: Turn) -> tuple[Turn, tuple[Draw, ...]]:
        members = [
            Member(patient, held.position[patient], stream(seed, "pretrain", turn.epoch, lap, ids[patient]))
            for patient, lap in zip(turn.patients, turn.laps, strict=True)
        ]
        return turn, tuple(map(share, method.draws(members, stream(seed, "shared", turn.number))))

    for _, batches in held.each(map(drawn, turns)):
        yield [part for batch in batches for part in (batch.patches, batch.position)]


def objective(method: Method, net: nn.Module, state: checkpoint.State) -> Objective[list[Tensor]]:
    """The method's loss of what it is shown."""

    def loss(shown: list[Tensor]) -> Tensor:
        method.begin(state.epoch)
        return net(*shown)

    return loss


def header_of(study: Study, patients: Sequence[Patient], seed: int) -> dict[str, Any]:
    """What an encoder depends on, as its file's header has it (see `load_encoder`): recipe, seed, and who was exposed."""
    weights = study.model.weights
    return {
        "channels": list(study.channels),
        "model": study.model.model_copy(update={"weights": None}).model_dump(mode="json"),  # a path may give a machine away
        "start": hashlib.sha256(weights.read_bytes()).hexdigest() if weights else None,
        "grid": study.grid.model_dump(mode="json"),
        "pretrain": study.pretrain.model_dump(mode="json"),
        "train": study.train.model_dump(mode="json", include=SHARED),
        "seed": seed,
        "seen": sorted({patient.subject for patient in patients} | set(image_exposed(weights) if weights else [])),
        "taught": label_exposed(weights) if weights else [],
    }


def pretrained(study: Study, patients: Sequence[Patient], file: Path, seed: int, report: Report | None = None) -> Study:
    """The study that starts from an encoder learned from these patients, which is learned where the file is not there yet.

    Raises UsageError when the file is there and comes from another pretraining.
    """
    if file.exists():
        wanted, written = header_of(study, patients, seed), load_encoder(file)[1]
        for key, section in (("model", Model), ("grid", Grid), ("pretrain", Pretrain)):  # a key newer than the file: its default
            written[key] = section.model_validate(written[key]).model_dump(mode="json")
        differing = [key for key in wanted if key in written and wanted[key] != written[key]]
        if differing:
            raise UsageError(f"{file}: holds an encoder of another {differing[0]}; delete it, or choose another output")
    else:
        smaller = f"a pretrain.batch_size below {study.pretrain.batch_size}, or {less_memory(study)}"
        with resource.naming_lack(file.parent, lambda: state_bytes(study), smaller):
            pretrain(patients, study, file, seed, report)
    return starting_from(file, study)


def starting_from(file: Path, study: Study) -> Study:
    """The study that starts from an encoder's file, without a pretraining of its own."""
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
    return Network(study.model.model_copy(update={"drop_path": 0.0}), study.grid, [], study.channels).encoder
