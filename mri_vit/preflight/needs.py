"""Needs: hours, disk and memory that a study will take, estimated before any of it is done.

Seconds are of one core and were measured where their lines say; they are scaled by how fast this machine multiplies matrices.
A step of a network is not run here: the largest take half a minute and gigabytes. Its operations are counted instead, of our own
Vision Transformer by arithmetic and of others by torch, and divided by the measured rate of its kind.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mri_vit.crossval.comparators import networks
from mri_vit.data.cohort import Patient
from mri_vit.explain.methods.catalogue import BLOCK_EDGE, METHODS
from mri_vit.explain.methods.catalogue import explained as explained_networks
from mri_vit.model import sizes
from mri_vit.preflight.document import Hours, Needs
from mri_vit.run.resource import free_disk, free_memory
from mri_vit.settings.recipe import SHUFFLED, VIT, Model
from mri_vit.settings.schema import Study

FOREGROUND_SHARE = 640 / 2744  # share of the grid positions that hold brain: of real brains 490 to 721 (docs/howto/hardware.md)
PREPARING_SECONDS = 16.0  # a patient's scans of USUAL_VOXELS with a skull, one core of an AMD EPYC (docs/howto/hardware.md)
USUAL_VOXELS = 240 * 240 * 155  # of a scan of BraTS (Baid et al. 2021, arXiv:2107.02314)
MIN_PREPARING_SHARE = 0.1  # of these seconds, however small a scan is
PREPARING_BYTES = 4_000_000_000  # at most, of a patient at a time (docs/howto/hardware.md)
MAP_SECONDS = 8.4 / 3  # a patient's maps by one method of the default three, the same core (docs/howto/hardware.md)
SCORED_PASSES = 300  # forward passes by which one patient's maps are evaluated: "some hundred"
OCCLUDED_SHARE = 110 / 343  # share of the blocks of positions that hold brain: of the demo's patients
# maps by occlusion when a comparator's are evaluated, the curves of deletion and insertion counted as one more
OCCLUSION_MAPS = 15
REPORT_SECONDS = 14 / 600  # a patient, the same core (docs/howto/hardware.md)
# Operations per second of a training step on one core of the same machine when nothing else ran: ViT-B/16 813 GFLOP forward,
# 35 s (configs/vit_b16.toml); the network of recipe "no-masks" 1.55 GFLOP, 0.17 s (docs/howto/hardware.md).
VIT_RATE = 3 * 813e9 / 35
SMALL_RATE = 3 * 1.55e9 / 0.17  # a network narrower than ViT-S, whose time goes into its stem and not into products
CONVOLUTION_RATE = 130e9  # ResNet-10 and DenseNet-121 at 56³, forward and backward, measured likewise
OF_PRODUCTS = ("vit", "monai_vit", "swin_vit", "hybrid", "hybrid_resnet10")  # architectures that spend their time in blocks
MATRIX_EDGE = 512  # edge of the matrices whose product measures how fast a core is
MATRIX_RATE = 120e9  # operations per second on that core
QC_BYTES = 400_000  # of a prepared patient's picture
# A map on four scans of USUAL_VOXELS and on the grid; its picture, with its share of the brain's file. Values of the demo's
# trained networks on positions of two patients of BraTS gave 41 and 45 MB for six maps, and on the demo's scans, of a 56th of the
# voxels, 3.0 to 3.6 MB. Maps that are nearly even take half.
MAP_BYTES, MAP_PICTURE_BYTES = 6_700_000, 400_000
WEIGHT_COPIES = 4  # copies of the weights while a network learns: themselves, gradients, AdamW's two moments


def estimate(study: Study, patients: Sequence[Patient], folds: int, voxels: float) -> Needs:
    """What the study needs with these patients, whose scans have so many `voxels`, and `folds` test folds in a repeat."""
    speed = core_speed()
    todo = sum(not (study.prepared / p.id).exists() for p in patients)
    labelled = sum(any(p.knows(endpoint) for endpoint in study.endpoints) for p in patients)
    figures = {name: _of_network(of, len(patients), labelled, folds) for name, of in networks(study).items()}
    own = figures[VIT]
    training = sum(one.training_seconds for one in figures.values())
    shuffled = own.training_seconds / study.train.repeats if SHUFFLED in study.controls.models else 0.0
    explained, scored = (
        len(patients) if limit is None else min(limit, len(patients)) for limit in (study.explain.patients, study.explain.scored)
    )
    methods = len(study.explain.methods)
    mapping = explained * methods * MAP_SECONDS + scored * methods / 3 * SCORED_PASSES * own.pass_seconds
    occlusion = (
        OCCLUDED_SHARE
        * (study.grid.side / BLOCK_EDGE) ** 3
        * sum(figures[name].pass_seconds for name in study.explain.comparators)
    )
    mapping += (explained + OCCLUSION_MAPS * scored) * occlusion
    seconds = {
        "prepare": todo * PREPARING_SECONDS * max(MIN_PREPARING_SHARE, voxels / USUAL_VOXELS),
        "pretrain": sum(one.pretraining_seconds for one in figures.values()),
        "train": training,
        "permuted labels": shuffled,
        "explain": mapping,
        "report": len(patients) * REPORT_SECONDS,
    }
    at_a_time = {"prepare": study.prepare.workers, "explain": study.prepare.workers, "report": 1}
    hours = {stage: one / speed / 3600 for stage, one in seconds.items()}
    weights = sum(one.weight_bytes for one in figures.values()) * folds * study.train.repeats * study.train.seeds
    weights += own.weight_bytes * folds * (shuffled > 0)
    memory = {f"preparing {study.prepare.workers} at a time": PREPARING_BYTES * study.prepare.workers}
    memory |= {f"training {name}": one.memory_bytes * study.train.workers for name, one in figures.items()}
    most = max(memory, key=lambda stage: memory[stage])
    return Needs(
        stages=tuple(Hours(stage=stage, hours=one) for stage, one in hours.items() if one),
        hours=sum(one / at_a_time.get(stage, study.train.threads * study.train.workers) for stage, one in hours.items()),
        speed=speed,
        prepared_bytes=todo * _prepared_bytes(study),
        prepared_free_bytes=free_disk(study.prepared),
        output_bytes=weights + WEIGHT_COPIES * own.weight_bytes + explained * _maps_bytes(study, voxels),
        output_free_bytes=free_disk(study.output),
        memory_bytes=memory[most],
        memory_of=most,
        memory_free_bytes=free_memory(),
    )


@dataclass(frozen=True)
class _Figures:
    """What one network needs on the core that was measured."""

    training_seconds: float
    pretraining_seconds: float
    pass_seconds: float  # a forward pass of a patient's every token
    weight_bytes: int
    memory_bytes: int


def _of_network(study: Study, patients: int, labelled: int, folds: int) -> _Figures:
    train, model = study.train, study.model
    present = study.grid.positions if model.tokens == "all" else max(1, round(FOREGROUND_SHARE * study.grid.positions))
    drawn = min(train.token_budget or present, present)
    counted = _by_arithmetic if model.architecture == "vit" else _by_shapes
    (weights, forward, _), (_, drawn_forward, held) = counted(study, present), counted(study, drawn)
    rate = _rate(study.model)
    learning = labelled * (1 - 1 / folds)
    steps = train.epochs * learning * (1 - train.val_fraction) * 3 * drawn_forward  # the backward pass costs twice the forward's
    evaluations = train.epochs / train.val_every * learning * train.val_fraction * forward
    apart = folds if study.pretrain.patients == "others" else 1
    pretrained = study.pretrain.epochs * patients * apart * _pretraining_passes(study) * forward
    together = max(train.batch_size, study.pretrain.batch_size * _views(study))
    return _Figures(
        training_seconds=(steps + evaluations) * folds * train.repeats * train.seeds / rate,
        pretraining_seconds=pretrained / rate,
        pass_seconds=forward / rate,
        weight_bytes=4 * weights,
        memory_bytes=4 * (WEIGHT_COPIES * weights + together * held),
    )


def _by_arithmetic(study: Study, tokens: int) -> tuple[int, int, int]:
    """Weights, operations of a patient's pass, and numbers that it keeps for the way back, of our own Vision Transformer."""
    layers = list(sizes.layers(study.model, study.grid, len(study.channels), tokens))
    kept = tokens * len(study.channels) * study.grid.patch**3 + sum(layer.kept for layer in layers)
    return sum(layer.weights for layer in layers), sum(layer.operations for layer in layers), kept


def _by_shapes(study: Study, tokens: int) -> tuple[int, int, int]:
    """The same of any network, of which nothing is computed."""
    import torch

    from mri_vit.model import network
    from mri_vit.model.network import Network

    with torch.device("meta"):
        net = Network(study.model, study.grid, [], study.channels)
        patches = torch.empty(1, tokens, len(study.channels) * study.grid.patch**3)
        position = torch.zeros(1, tokens, dtype=torch.long)
    kept = network.activation_bytes(net.encoder, patches, position) // 4
    return network.count_parameters(net), network.flops(net.encoder, patches, position), kept


def _views(study: Study) -> int:
    """Whole volumes of a patient that DINO's student computes together; 0 of a Vision Transformer, whose crops are few tokens."""
    if study.pretrain.method != "dino" or study.model.architecture == "vit":
        return 0
    from mri_vit.pretrain.dino import GLOBAL_BOXES

    return GLOBAL_BOXES + study.pretrain.local_crops


def _pretraining_passes(study: Study) -> int:
    """The cost of pretraining per patient and epoch, in forward passes of a whole patient.

    A backward pass costs twice a forward one. The views of a Vision Transformer have about as many tokens as a patient; those of
    a network of volumes are whole volumes, however much of them is air, and the teacher computes some without a backward pass.
    """
    if study.pretrain.method == "none":
        return 0
    if not (views := _views(study)):
        return 3
    from mri_vit.pretrain.dino import GLOBAL_BOXES

    return 3 * views + GLOBAL_BOXES


def _rate(settings: Model) -> float:
    if settings.architecture not in OF_PRODUCTS:
        return CONVOLUTION_RATE
    return VIT_RATE if settings.shape[0] >= 384 else SMALL_RATE  # 384: ViT-S


def _maps_bytes(study: Study, voxels: float) -> int:
    """A patient's maps by every network that is explained, scans having so many voxels."""
    maps = sum(
        len(study.endpoints) if METHODS[method].per_endpoint else 1
        for of in explained_networks(study).values()
        for method in of.explain.methods
    )
    return round(maps * (MAP_PICTURE_BYTES + MAP_BYTES * voxels / USUAL_VOXELS))


def _prepared_bytes(study: Study) -> int:
    """A prepared patient on disk: half-precision tokens of the positions that hold brain, and the picture."""
    return round(FOREGROUND_SHARE * study.grid.positions * len(study.channels) * study.grid.patch**3 * 2) + QC_BYTES


def core_speed() -> float:
    """How fast a core of this machine multiplies matrices now, as a share of the core that was measured: 20 ms."""
    one = np.random.default_rng(0).random((MATRIX_EDGE, MATRIX_EDGE), np.float32)
    seconds = []
    with threadpool_limits(1):
        for _ in range(10):
            began = time.process_time()  # of a busy machine other processes take the rest
            np.matmul(one, one)
            seconds.append(time.process_time() - began)
    return 2 * MATRIX_EDGE**3 / min(seconds) / MATRIX_RATE


def lacking(needs: Needs, prepared: Path, output: Path) -> list[str]:
    """Resources that this machine lacks now, with what is needed and what is free."""
    lacks = []
    for place, need, free in (
        (f"{prepared}: prepared patients need", needs.prepared_bytes, needs.prepared_free_bytes),
        (f"{output}: the run needs", needs.output_bytes, needs.output_free_bytes),
        (f"memory: {needs.memory_of} needs", needs.memory_bytes, needs.memory_free_bytes or needs.memory_bytes),
    ):
        if need > free:
            lacks.append(f"{place} about {need / 1e9:,.1f} GB; {free / 1e9:,.1f} GB are free here")
    return lacks
