"""Supervised learning: prepared patients and their labels in, the network of the best tuning epoch out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mri_vit.data import tokens
from mri_vit.data.batches import everything, labels, mixed, token_file, training_batch
from mri_vit.data.cohort import Patient
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.model import heads, network
from mri_vit.model.network import Network
from mri_vit.model.weights import fill, image_exposed, label_exposed
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.schema import Study
from mri_vit.train import checkpoint
from mri_vit.train.loop import Learner, Objective, Report, Schedule, one_device, steps
from mri_vit.train.optimiser import Rates, optimiser

SETTLED = 64  # patients whose mean and variance of a batch-normalised number are known to a tenth of its spread (1/√64 and less)


@torch.no_grad()
def outputs(net: torch.nn.Module, patients: Sequence[Patient], study: Study, device: torch.device) -> dict[str, Tensor]:
    """Every head's raw numbers for each patient, all tokens, one patient at a time."""
    net.eval()
    rows = []
    for patient in patients:
        patches, place = everything(tokens.load(token_file(study, patient)), study)
        rows.append(net(patches.to(device), place.to(device)))
    return {name: torch.cat([row[name] for row in rows]).float().cpu() for name in rows[0]}


@torch.no_grad()
def settle(net: Network, patients: Sequence[Patient], study: Study, device: torch.device) -> None:
    """Batch normalisation's means and variances taken anew, of the weights as they are, over batches of `patients`.

    Moving averages still hold what earlier weights put out, after few steps enough to make all outputs one (measured: every
    EfficientNet after 5 steps). These are the "precise" ones of Wu & Johnson 2021, arXiv:2105.07576, section 3.
    """
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm3d)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # PyTorch's word for a plain mean over batches
    net.train()
    batch, generator = study.train.batch, torch.Generator().manual_seed(0)  # patients, tokens, augmentation: the same every time
    order = torch.randperm(len(patients), generator=generator).tolist()  # a table may be sorted by site
    some = [patients[i] for i in order[:SETTLED]]
    with torch.random.fork_rng():  # drop-path draws from PyTorch's own generator, whose state training needs unchanged
        for start in range(0, len(some) - len(some) % batch or 1, batch):  # whole batches, or the only one
            patches, place = training_batch(some[start : start + batch], study, generator)
            net(patches.to(device), place.to(device))


def losses(net: Network, outs: dict[str, Tensor], patients: Sequence[Patient]) -> dict[str, Tensor]:
    """Each endpoint's loss over the patients whose label is known."""
    return {
        h.endpoint.name: heads.loss(h, (out := outs[h.endpoint.name]), labels(patients, h.endpoint).to(out)) for h in net.heads
    }


def total_loss(net: Network, outs: dict[str, Tensor], patients: Sequence[Patient]) -> Tensor:
    """The sum of the endpoints' losses."""
    return torch.stack(list(losses(net, outs, patients).values())).sum()


def _refuse_bad_numbers(tuned: dict[str, Tensor], folder: Path, state: checkpoint.State, study: Study) -> None:
    """Raise BadNumbers naming the endpoint whose tuning loss is not a number."""
    for name, loss in tuned.items():
        if not torch.isfinite(loss):
            raise BadNumbers(
                f"{folder}: the tuning loss of {name} became {loss.item()} in epoch {state.epoch}; try a train.rate below"
                f" {study.train.rate}"
            )


def shares(now: dict[str, Tensor], start: dict[str, Tensor]) -> dict[str, float]:
    """Each tuning loss as a share of its value at the start of training; of several, each is at most 1.

    Unless heads start at random, the output is then the best constant, so 1 means "no better than knowing nothing". The limit
    keeps an endpoint that cannot be learned, whose loss only grows, from stopping those that can; one alone needs none, and
    would be held at its first evaluation by it.
    """
    most = 1.0 if len(now) > 1 else math.inf
    return {name: min(most, float(now[name] / start[name])) if start[name] > 0 else 1.0 for name in now}


def fit(
    train: Sequence[Patient], tune: Sequence[Patient], study: Study, folder: Path, seed: int, report: Report | None = None
) -> Network:
    """Train until the epochs or the patience run out; the folder then holds `best.safetensors` and `history.csv`.

    After every evaluation the whole state is written: a killed run resumes from there and ends with the same bytes.
    """
    settings = study.train
    torch.set_num_threads(settings.threads)
    fabric = one_device(study, TensorBoardLogger(folder, name="tensorboard", version=""))
    plain = untrained(train, study, seed)
    plain.label_exposed += tuple(patient.subject for patient in (*train, *tune))
    net, adamw = fabric.setup(plain, optimiser(plain, study))
    learner = Learner(fabric, net, adamw, torch.Generator().manual_seed(seed))
    average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(settings.ema), use_buffers=True) if settings.ema else None
    kept = nn.ModuleList([plain, average] if average else [plain])  # what a killed run resumes from
    judged: Network = average.module if average else plain  # type: ignore[assignment]
    start = losses(plain, outputs(net, tune, study, fabric.device), tune)
    state = checkpoint.State()
    if (folder / checkpoint.FILE).exists():
        state = checkpoint.load(folder / checkpoint.FILE, kept, adamw, learner.generator)
    for step in steps(objective(plain, train, study, learner), learner, schedule(len(train), study, folder), state, report):
        if average:
            average.update_parameters(plain)
        fabric.log_dict({"train/loss": step.loss, "train/rate": step.rate}, step=step.number)
        if not step.ends_epoch or (state.epoch % settings.tune_every and state.epoch < settings.epochs):
            continue
        settle(judged, train, study, fabric.device)
        now = losses(judged, outputs(judged, tune, study, fabric.device), tune)
        _refuse_bad_numbers(now, folder, state, study)
        tuned = shares(now, start)
        fabric.log_dict({f"tune/{name}": value for name, value in tuned.items()}, step=step.number + 1)
        if state.better(step.mean_loss, tuned):
            network.save(judged, folder / files.WEIGHTS)
        write_bytes(pd.DataFrame(state.history).to_csv(index=False, float_format="%.6g").encode(), folder / files.HISTORY)
        checkpoint.save(state, kept, adamw, learner.generator, folder / checkpoint.FILE)
    fabric.logger.finalize("success")
    finished = _completed(network.load(folder / files.WEIGHTS), train, study, fabric.device)
    network.save(finished, folder / files.WEIGHTS)
    return finished


def objective(plain: Network, train: Sequence[Patient], study: Study, learner: Learner) -> Objective:
    """The loss of a batch of `train`, whose tokens are drawn, augmented and, with mixup, mixed with a partner's."""

    def loss(batch: list[int]) -> Tensor:
        chosen = [train[index] for index in batch]
        patches, place = (part.to(learner.fabric.device) for part in training_batch(chosen, study, learner.generator))
        patches, place, partner, share = mixed(patches, place, study.train.mixup, learner.generator)
        outs, partners = learner.module(patches, place), [chosen[i] for i in partner]
        return share * total_loss(plain, outs, chosen) + ((1 - share) * total_loss(plain, outs, partners) if partners else 0)

    return loss


def schedule(patients: int, study: Study, folder: Path) -> Schedule:
    """The schedule of `fit` for that many patients."""
    settings = study.train
    rates = Rates(settings.rate, settings.warmup, settings.frozen)
    return Schedule(patients, settings.batch, settings.epochs, rates, settings.clip, "train", folder, float(settings.patience))


def untrained(train: Sequence[Patient], study: Study, seed: int) -> Network:
    """The network that `fit` starts from: the same patients, study and seed give the same weights.

    Its heads are fitted to the training fold's labels; endpoints with nothing to learn get none.
    """
    torch.manual_seed(seed)  # initial weights and, drawn after them, drop-path
    model = study.model
    fitted = [
        heads.from_labels(e, labels(train, e), model.survival, heads.INTERVALS, study.train.class_weights)
        for e in study.endpoints
    ]
    if not any(fitted):
        raise UsageError(f"no endpoint has both classes, or an event, among {len(train)} training patients; use fewer folds")
    net = Network(model, study.grid, [head for head in fitted if head])
    for head in net.heads:
        net.head[head.endpoint.name].bias.data.copy_(heads.bias(head, labels(train, head.endpoint)))  # type: ignore[union-attr]
    if model.weights:
        fill(net.encoder, model.weights, model, study.grid)
        net.label_exposed, net.image_exposed = tuple(label_exposed(model.weights)), tuple(image_exposed(model.weights))
    return net


def _completed(net: Network, train: Sequence[Patient], study: Study, device: torch.device) -> Network:
    """The network ready to predict: on the device, Cox heads with the training fold's baseline hazard."""
    net = net.to(device)
    if any(head.kind == "cox" for head in net.heads):
        outs = outputs(net, train, study, device)
        net.heads = [
            heads.with_baseline(h, outs[h.endpoint.name], labels(train, h.endpoint)) if h.kind == "cox" else h for h in net.heads
        ]
    return net
