"""Supervised learning: prepared patients and their labels in, the network of the best validation epoch out.

`fit` trains on what a `Feed` gives each step, and evaluates on the validation patients.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import stream
from mri_vit.data.store import all_tokens, labels, token_file
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.model import heads, network
from mri_vit.model.network import Encode, Network, encoder
from mri_vit.model.weights import fill, image_exposed, label_exposed
from mri_vit.run import files, resource
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.schema import Study
from mri_vit.train import checkpoint
from mri_vit.train.devices import Gather, gathering, of_one, on_devices, part, share_out
from mri_vit.train.feed import Feed, LabelledBatch, Labels, training_draw
from mri_vit.train.loop import Learner, Objective, Rates, Report, Schedule, Turn, optimiser, steps
from mri_vit.train.mask_supervision import MaskSupervised

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# patients whose mean and variance of a batch-normalised number are known to a tenth of its spread (1/√64 and less)
SETTLED_PATIENTS = 64


# --- outputs and losses -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def outputs(net: torch.nn.Module, patients: Sequence[Patient], study: Study, device: torch.device) -> dict[str, Tensor]:
    """Every head's raw numbers for each patient, all tokens, one patient at a time."""
    net.eval()
    rows = []
    for patient in patients:
        patches, position = all_tokens(tokens.load(token_file(study.prepared, patient), study.channels), study.model)
        rows.append(net(patches.to(device), position.to(device)))
    return {name: torch.cat([row[name] for row in rows]).float().cpu() for name in rows[0]}


@torch.no_grad()
def batch_outputs(net: torch.nn.Module, feed: Feed, batch: int) -> dict[str, Tensor]:
    """Every head's raw numbers for each of the feed's patients, all tokens, so many patients at a time; on the device."""
    net.eval()
    rows = [net(given.patches, given.position, given.present) for given in feed.evaluated(batch)]
    return {name: torch.cat([row[name] for row in rows]).float() for name in rows[0]}


@torch.no_grad()
def settle(net: Network, feed: Feed) -> None:
    """Batch normalisation's means and variances taken anew, of the weights as they are, over batches of the feed's patients.

    Moving averages still hold the output of earlier weights, after few steps enough to make all outputs equal (measured: every
    EfficientNet after 5 steps). These are the "precise" ones of Wu & Johnson 2021, arXiv:2105.07576, section 3.
    """
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm3d)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # for PyTorch a plain mean over batches
    net.train()
    some = min(len(feed.ids), SETTLED_PATIENTS)
    with torch.random.fork_rng():  # drop-path draws from PyTorch's own generator, whose state training needs unchanged
        for turn in settling_turns(len(feed.ids), some, feed.study.train.batch_size):
            given = feed.store.take(training_draw(turn, feed.ids, feed.store.position, feed.study, feed.seed))
            net(given.patches, given.position)


def settling_turns(patients: int, some: int, batch: int) -> list[Turn]:
    """Whole batches of `some` of the patients, or the only one; the same every time."""
    order = stream("settle").permutation(patients)[:some].tolist()  # a table may be sorted by site
    starts = range(0, some - some % batch or 1, batch)
    chosen = [tuple(order[start : start + batch]) for start in starts]
    return [Turn(-1, -1 - number, patients, (0,) * len(patients)) for number, patients in enumerate(chosen)]


def losses(net: Network, outs: dict[str, Tensor], truth: Labels) -> dict[str, Tensor]:
    """Each endpoint's loss over the patients whose label is known."""
    return {head.endpoint.name: heads.loss(head, outs[head.endpoint.name], truth[head.endpoint.name]) for head in net.heads}


def total_loss(net: Network, outs: dict[str, Tensor], truth: Labels) -> Tensor:
    """The sum of the endpoints' losses."""
    return torch.stack(list(losses(net, outs, truth).values())).sum()


def _evaluated(
    net: Network, train: Feed, val: Feed, start: dict[str, Tensor], folder: Path, state: checkpoint.State
) -> dict[str, float]:
    """Each validation loss of the network as a share of that at the `start`.

    Raises BadNumbers naming the endpoint whose validation loss is not a number.
    """
    settle(net, train)
    settings = train.study.train
    now = losses(net, batch_outputs(net, val, settings.batch_size), val.labels)
    for name, loss in now.items():
        if not torch.isfinite(loss):
            raise BadNumbers(
                f"{folder}: the validation loss of {name} became {loss.item()} in epoch {state.epoch}; try a "
                f"train.learning_rate below {settings.learning_rate}"
            )
    return shares(now, start)


def shares(now: dict[str, Tensor], start: dict[str, Tensor]) -> dict[str, float]:
    """Each validation loss as a share of its value at the start of training; of several, each is at most 1.

    Unless heads start at random, the initial output is the best constant, so 1 means "no better than a constant". The limit
    keeps an endpoint that cannot be learned, whose loss only grows, from stopping those that can; a single endpoint needs none,
    and would be stopped at its first evaluation by it.
    """
    most = 1.0 if len(now) > 1 else math.inf
    return {name: min(most, float(now[name] / start[name])) if start[name] > 0 else 1.0 for name in now}


def fit(
    train: Sequence[Patient],
    val: Sequence[Patient],
    study: Study,
    folder: Path,
    seed: int,
    report: Report | None = None,
    encode: Encode = encoder,
) -> Network:
    """Train until the epochs or the patience run out; the folder then holds `best.safetensors` and `history.csv`.

    The whole state is written from time to time: a killed run resumes from there and ends with the same bytes. On several
    devices nothing is reported meanwhile. `encode` builds the encoder: a study's own, or a variant of it.
    """
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger  # here, because predicting needs nothing of it

    logger = TensorBoardLogger(folder, name="tensorboard", version="")
    local_report = report if study.train.devices == 1 else None  # what it calls lives in this process
    on_devices(study, fit_on, train, val, study, folder, seed, local_report, encode, loggers=(logger,))
    return network.load(folder / files.WEIGHTS, encode).to("cuda" if torch.cuda.is_available() else "cpu")


def fit_on(
    fabric: Fabric,
    train: Sequence[Patient],
    val: Sequence[Patient],
    study: Study,
    folder: Path,
    seed: int,
    report: Report | None = None,
    encode: Encode = encoder,
) -> None:
    """As `fit`, in each device's process; the first writes."""
    settings = study.train
    torch.set_num_threads(settings.threads)
    resource.keep_freed_memory()
    plain = untrained(train, study, seed, encode)
    share_out(plain, fabric)
    plain.label_exposed += tuple(patient.subject for patient in (*train, *val))
    learner = MaskSupervised(plain, settings) if settings.uses_tumour_masks else plain
    net, adamw = fabric.setup(learner, optimiser(learner, study))
    best = copy.deepcopy(plain)
    average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(settings.ema), use_buffers=True) if settings.ema else None
    kept = nn.ModuleList([learner, best, average] if average else [learner, best])  # what a killed run resumes from
    judged: Network = average.module if average else plain  # type: ignore[assignment]
    feed = Feed(train, study, fabric.device, seed, partial(part, fabric=fabric))
    val_feed = Feed(val, study, fabric.device, seed)
    start = losses(plain, batch_outputs(net, val_feed, settings.batch_size), val_feed.labels)
    state, clock, unfinished = checkpoint.State(), checkpoint.Clock(), folder / files.STATE
    if unfinished.exists():
        state = checkpoint.load(unfinished, kept, adamw)
    plan = schedule(len(train), study, folder, seed)
    loss = (
        mask_supervised_objective(plain, net, fabric) if settings.uses_tumour_masks else objective(plain, net, gathering(fabric))
    )
    for step in steps(feed, loss, Learner(fabric, net, adamw), plan, state, report):
        if average:
            average.update_parameters(plain)
        if step.loss is not None:
            fabric.log_dict({"train/loss": step.loss, "train/rate": step.rate}, step=step.number)
        if step.mean_loss is None:
            continue
        if state.epoch % settings.val_every == 0 or state.epoch == settings.epochs:
            with fabric.autocast():  # as precise as in a step, for the network itself and an average are not Fabric's
                val_losses = _evaluated(judged, feed, val_feed, start, folder, state)
            val_losses = fabric.broadcast(val_losses)  # so that all stop together
            fabric.log_dict({f"tune/{name}": value for name, value in val_losses.items()}, step=step.number + 1)
            if state.better(step.mean_loss, val_losses):
                best.load_state_dict(judged.state_dict())
            history = pd.DataFrame(state.history)
            if fabric.is_global_zero:
                write_bytes(history.to_csv(index=False, float_format="%.6g").encode(), folder / files.HISTORY)
        if fabric.is_global_zero and clock.due():
            checkpoint.save(state, kept, adamw, unfinished)
    fabric.logger.finalize("success")
    if fabric.is_global_zero:
        network.save(_completed(best, train, study, fabric.device), folder / files.WEIGHTS)


def objective(plain: Network, net: nn.Module, gather: Gather = of_one) -> Objective[LabelledBatch]:
    """The loss of a batch; with mixup a patient's own labels and the partner's count by their shares."""

    def loss(given: LabelledBatch) -> Tensor:
        outs = {name: gather(out) for name, out in net(given.batch.patches, given.batch.position).items()}
        own = total_loss(plain, outs, given.labels)
        if given.partners is None:
            return own
        return given.share * own + (1 - given.share) * total_loss(plain, outs, given.partners)

    return loss


def mask_supervised_objective(plain: Network, net: nn.Module, fabric: Fabric) -> Objective[LabelledBatch]:
    """The loss of a batch and the auxiliary losses of its tumour masks; `net` is a `MaskSupervised` that `fabric` set up."""
    net.mark_forward_method("with_auxiliary_loss")  # type: ignore[operator]

    def loss(given: LabelledBatch) -> Tensor:
        with fabric.autocast():  # on one device Fabric hands over a marked method as it is, in single precision
            outs, auxiliary = net.with_auxiliary_loss(given.batch.patches, given.batch.position, given.tumour, given.labels)  # type: ignore[operator]
        return total_loss(plain, outs, given.labels) + auxiliary

    return loss


def schedule(patients: int, study: Study, folder: Path, seed: int) -> Schedule:
    """The schedule of `fit` for that many patients."""
    settings = study.train
    rates = Rates(settings.learning_rate, settings.warmup, settings.freeze_fraction)
    patience = float(settings.patience)
    return Schedule(
        patients, settings.batch_size, settings.epochs, seed, rates, settings.grad_clip_norm, "train", folder, patience
    )


def untrained(train: Sequence[Patient], study: Study, seed: int, encode: Encode = encoder) -> Network:
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
        raise UsageError(f"no endpoint has both classes, or an event, among {len(train)} training patients; add labels")
    net = Network(model, study.grid, [head for head in fitted if head], study.channels, encode)
    for head in net.heads:
        net.head[head.endpoint.name].bias.data.copy_(heads.bias(head, labels(train, head.endpoint)))  # type: ignore[union-attr]
    if model.weights:
        fill(net.encoder, model.weights, model, study.grid)
        net.label_exposed, net.image_exposed = tuple(label_exposed(model.weights)), tuple(image_exposed(model.weights))
    return net


def _completed(net: Network, train: Sequence[Patient], study: Study, device: torch.device) -> Network:
    """The network ready to predict: on the device, Cox heads with the training fold's baseline hazard."""
    net = net.to(device)
    if any(heads.of(head.endpoint).needs_outputs(head) for head in net.heads):
        outs = outputs(net, train, study, device)
        net.heads = [heads.of(h.endpoint).completed(h, outs[h.endpoint.name], labels(train, h.endpoint)) for h in net.heads]
    return net
