"""The only optimisation loop: prepared patients and their labels in, the network of the best tuning epoch out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mri_vit.data import tokens
from mri_vit.data.batches import everything, labels, mixed, token_file, training_batch
from mri_vit.data.cohort import Patient
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.model import heads, network
from mri_vit.model.network import Network
from mri_vit.model.weights import fill, seen, taught
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.schema import Study
from mri_vit.train import checkpoint
from mri_vit.train.optimiser import optimiser, rate, set_rates

SETTLED = 64  # patients whose mean and variance of a batch-normalised number are known to a tenth of its spread (1/√64 and less)
Report = Callable[[int, int, float, float], None]  # epoch, epochs, loss, patients per second


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
    batch, generator = study.train.batch, torch.Generator().manual_seed(0)  # whom, tokens, augmentation: the same every time
    order = torch.randperm(len(patients), generator=generator).tolist()  # a table may be sorted by site
    some = [patients[i] for i in order[:SETTLED]]
    with torch.random.fork_rng():  # drop-path draws from PyTorch's own numbers, and training goes on with these
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


def _numbers(tuned: dict[str, Tensor], folder: Path, state: checkpoint.State, study: Study) -> dict[str, Tensor]:
    """The same losses. Raises BadNumbers naming the endpoint of one that is not a number."""
    for name, loss in tuned.items():
        if not torch.isfinite(loss):
            raise BadNumbers(
                f"{folder}: the tuning loss of {name} became {loss.item()} in epoch {state.epoch}; try a train.rate below"
                f" {study.train.rate}"
            )
    return tuned


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

    After every evaluation the whole state is written: a killed run goes on from there and ends with the same bytes.
    """
    settings = study.train
    torch.set_num_threads(settings.threads)
    fabric = Fabric(
        accelerator="auto",
        devices=1,
        precision=precision(study),
        plugins=LightningEnvironment(),  # one process, also within a cluster's job: Fabric would look for its tasks
        loggers=TensorBoardLogger(folder, name="tensorboard", version=""),
    )
    plain = untrained(train, study, seed)
    plain.taught += tuple(patient.subject for patient in (*train, *tune))
    generator = torch.Generator().manual_seed(seed)  # order, tokens and augmentation
    net, adamw = fabric.setup(plain, optimiser(plain, study))
    average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(settings.ema), use_buffers=True) if settings.ema else None
    kept = nn.ModuleList([plain, average] if average else [plain])  # what a killed run goes on from
    judged: Network = average.module if average else plain  # type: ignore[assignment]
    per_epoch = math.ceil(len(train) / settings.batch)
    start = losses(plain, outputs(net, tune, study, fabric.device), tune)
    state = checkpoint.State()
    if (folder / checkpoint.FILE).exists():
        state = checkpoint.load(folder / checkpoint.FILE, kept, adamw, generator)
    while state.epoch < settings.epochs and state.stale < settings.patience:
        net.train()
        began, total = time.monotonic(), 0.0
        order = torch.randperm(len(train), generator=generator).tolist()
        for index in range(per_epoch):
            step = state.epoch * per_epoch + index
            chosen = [train[order[i % len(train)]] for i in range(index * settings.batch, (index + 1) * settings.batch)]
            patches, place = (part.to(fabric.device) for part in training_batch(chosen, study, generator))
            patches, place, partner, share = mixed(patches, place, settings.mixup, generator)
            set_rates(adamw, step, settings.epochs * per_epoch, study)
            outs, partners = net(patches, place), [chosen[i] for i in partner]
            loss = share * total_loss(plain, outs, chosen) + ((1 - share) * total_loss(plain, outs, partners) if partners else 0)
            if not torch.isfinite(loss):
                raise BadNumbers(
                    f"{folder}: the loss became {loss.item()} in epoch {state.epoch + 1}; try a train.rate below {settings.rate}"
                )
            adamw.zero_grad()
            fabric.backward(loss)
            norm = fabric.clip_gradients(net, adamw, max_norm=settings.clip, error_if_nonfinite=False)
            if norm is not None and not torch.isfinite(norm):
                raise BadNumbers(
                    f"{folder}: a gradient became {norm.item()} in epoch {state.epoch + 1}; try a train.rate below"
                    f' {settings.rate}, or train.precision "32-true"'
                )
            adamw.step()
            if average:
                average.update_parameters(plain)
            total += loss.item()
            now = rate(step, settings.epochs * per_epoch, settings.rate, settings.warmup)
            fabric.log_dict({"train/loss": loss.item(), "train/rate": now}, step=step)
        state.epoch += 1
        state.seconds += time.monotonic() - began
        if report:
            report(state.epoch, settings.epochs, total / per_epoch, per_epoch * settings.batch / (time.monotonic() - began))
        if state.epoch % settings.tune_every and state.epoch < settings.epochs:
            continue
        settle(judged, train, study, fabric.device)
        tuned = shares(_numbers(losses(judged, outputs(judged, tune, study, fabric.device), tune), folder, state, study), start)
        fabric.log_dict({f"tune/{name}": value for name, value in tuned.items()}, step=state.epoch * per_epoch)
        if state.better(total / per_epoch, tuned):
            network.save(judged, folder / files.WEIGHTS)
        write_bytes(pd.DataFrame(state.history).to_csv(index=False, float_format="%.6g").encode(), folder / files.HISTORY)
        checkpoint.save(state, kept, adamw, generator, folder / checkpoint.FILE)
    fabric.logger.finalize("success")
    finished = _completed(network.load(folder / files.WEIGHTS), train, study, fabric.device)
    network.save(finished, folder / files.WEIGHTS)
    return finished


def state_bytes(study: Study) -> int:
    """Size of what is written while a network learns: its weights, AdamW's two moments and the weights' moving average."""
    with torch.device("meta"):
        weights = sum(weight.numel() * weight.element_size() for weight in Network(study.model, study.grid, []).parameters())
    return weights * (4 if study.train.ema else 3)


def less_memory(study: Study) -> str:
    """Settings with which the same network learns in less memory."""
    settings, net = study.train, study.model
    ways = [f"a train.batch below {settings.batch}"] if settings.batch > 1 else []
    if net.architecture == "vit":
        ways += [f"a train.token_budget below {settings.token_budget}" if settings.token_budget else "a train.token_budget"]
        ways += ['model.tokens = "foreground"'] if net.tokens != "foreground" else []
    return " or ".join(ways) or "a smaller network"


def precision(study: Study) -> Literal["32-true", "bf16-mixed"]:
    """Mixed precision where the device computes in bfloat16; on a CPU that is slower than float32."""
    if study.train.precision != "auto":
        return study.train.precision
    return "bf16-mixed" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"


def untrained(train: Sequence[Patient], study: Study, seed: int) -> Network:
    """The network that `fit` starts from: the same patients, study and seed give the same weights.

    Its heads are fitted to the training fold's labels; endpoints with nothing to learn get none.
    """
    torch.manual_seed(seed)  # initial weights and, drawn after them, drop-path
    model = study.model
    fitted = [
        heads.from_labels(e, labels(train, e), model.survival, model.intervals, study.train.class_weights)
        for e in study.endpoints
    ]
    if not any(fitted):
        raise UsageError(f"no endpoint has both classes, or an event, among {len(train)} training patients; use fewer folds")
    net = Network(model, study.grid, [head for head in fitted if head])
    for head in net.heads:
        net.head[head.endpoint.name].bias.data.copy_(heads.bias(head, labels(train, head.endpoint)))  # type: ignore[union-attr]
    if model.weights:
        fill(net.encoder, model.weights, model, study.grid)
        net.taught, net.seen = tuple(taught(model.weights)), tuple(seen(model.weights))
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
