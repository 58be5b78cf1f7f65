"""Needs: hours, disk and memory that a study will take, estimated before any of it is done.

Seconds are of one core of this machine, by `calibration`: of preparation and of our own Vision Transformers as measured there,
whose operations are counted by arithmetic; of other networks, a step of which may take half a minute and gigabytes, by a rate
that was measured elsewhere and by how fast this machine multiplies matrices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mri_vit.crossval.comparators import networks
from mri_vit.data.cohort import Patient
from mri_vit.errors import UnusablePatient
from mri_vit.explain.methods.catalogue import BLOCK_EDGE, METHODS
from mri_vit.explain.methods.catalogue import explained as explained_networks
from mri_vit.model import sizes
from mri_vit.preflight import calibration
from mri_vit.preflight.calibration import NetworkPace, Sizes
from mri_vit.preflight.document import Hours, Needs
from mri_vit.run.resource import free_disk, free_memory
from mri_vit.settings.recipe import SHUFFLED, VIT, Model
from mri_vit.settings.schema import Study

FOREGROUND_SHARE = 640 / 2744  # share of the grid positions that hold brain: of real brains 490 to 721 (docs/howto/hardware.md)
# A patient's preparation on one core of an AMD EPYC, in a process that prepares many: stripped scans of 10 million voxels 4.7 s,
# with a skull and 1.5 million 5.1, stripped and 0.15 million on a coarse grid 1.6.
PREPARING_SECONDS = 1.5  # whatever the scans are
FINE_SECONDS, FINE_VOXELS = 1.2, 1e6  # of scans of so many voxels and more, whose copies for registration are not coarser
VOXEL_SECONDS = 0.21e-6  # of each voxel of a scan, its three companions included
SKULL_SECONDS = 2.2  # to find the brain, and to align scans within it
USUAL_VOXELS = 240 * 240 * 155  # of a scan of BraTS (Baid et al. 2021, arXiv:2107.02314)
PREPARING_BYTES = 4_000_000_000  # at most, of a patient at a time (docs/howto/hardware.md)
MAP_PASSES = 6  # forward passes that a patient's maps by the default methods take (pipelines/bench.py --part maps)
MAP_VOXEL_SECONDS = 0.04e-6  # of a map's writing on four scans and the grid, for each voxel of a scan, the same core
SCORED_PASSES = 200  # by which a patient's maps of three methods are evaluated: 56 core-seconds of the demo's 24, a pass 0.012
OCCLUDED_SHARE = 110 / 343  # share of the blocks of positions that hold brain: of the demo's patients
# maps by occlusion when a comparator's are evaluated, the curves of deletion and insertion counted as one more
OCCLUSION_MAPS = 15
REPORT_SECONDS = 14 / 600  # a patient, the same core (docs/howto/hardware.md)
# Operations per second of a training step on one core of the same machine when nothing else ran.
VIT_RATE = 3 * 813e9 / 35  # ViT-B/16: 813 GFLOP forward, 35 s (configs/vit_b16.toml)
CONVOLUTION_RATE = 130e9  # ResNet-10 and DenseNet-121 at 56³, forward and backward
OF_PRODUCTS = ("vit", "monai_vit", "swin_vit", "hybrid", "hybrid_resnet10")  # architectures that spend their time in blocks
MATRIX_EDGE = 512  # edge of the matrices whose product measures how fast a core is
MATRIX_RATE = 120e9  # operations per second on that core
QC_BYTES = 400_000  # of a prepared patient's picture
# A map on four scans of USUAL_VOXELS and on the grid; its picture, with its share of the brain's file. Values of the demo's
# trained networks on positions of two patients of BraTS gave 41 and 45 MB for six maps of four bytes a voxel; of two bytes six
# maps of a real patient have 15 MB instead of 20. Maps that are nearly even take half.
MAP_BYTES, MAP_PICTURE_BYTES = 5_000_000, 400_000
LOOP_SHARE = 1.2  # times a step alone: feeding, clipping and sums make 1.13 of the recommended study's and 1.3 of the demo's
WEIGHT_COPIES = 4  # copies of the weights while a network learns: themselves, gradients, AdamW's two moments


def estimate(study: Study, patients: Sequence[Patient], folds: int, voxels: float) -> Needs:
    """What the study needs with these patients, whose scans have so many `voxels`, and `folds` test folds in a repeat."""
    taking_part = networks(study)
    pace = calibration.pace(taking_part, {name: _sizes(of) for name, of in taking_part.items()})
    todo = sum(not (study.prepared / p.id).exists() for p in patients)
    labelled = sum(any(p.knows(endpoint) for endpoint in study.endpoints) for p in patients)
    figures = {name: _of_network(of, len(patients), labelled, folds, pace.networks.get(name)) for name, of in taking_part.items()}
    own = figures[VIT]
    training = sum(one.training_seconds for one in figures.values())
    shuffled = own.training_seconds / study.train.repeats if SHUFFLED in study.controls.models else 0.0
    explained, scored = (
        len(patients) if limit is None else min(limit, len(patients)) for limit in (study.explain.patients, study.explain.scored)
    )
    methods = len(study.explain.methods)
    writing = _maps(study) * MAP_VOXEL_SECONDS * voxels * pace.preparing
    mapping = explained * (MAP_PASSES * own.pass_seconds + writing) + scored * methods / 3 * SCORED_PASSES * own.pass_seconds
    occlusion = (
        OCCLUDED_SHARE
        * (study.grid.side / BLOCK_EDGE) ** 3
        * sum(figures[name].pass_seconds for name in study.explain.comparators)
    )
    mapping += (explained + OCCLUSION_MAPS * scored) * occlusion
    seconds = {
        "prepare": todo * _preparing_seconds(study, patients[0], voxels) * pace.preparing if todo else 0.0,
        "pretrain": sum(one.pretraining_seconds for one in figures.values()),
        "train": training,
        "permuted labels": shuffled,
        "explain": mapping,
        "report": len(patients) * REPORT_SECONDS * pace.preparing,
    }
    at_a_time = {"prepare": study.prepare.workers, "explain": study.prepare.workers, "report": 1}
    hours = {stage: one / 3600 for stage, one in seconds.items()}
    weights = sum(one.weight_bytes for one in figures.values()) * folds * study.train.repeats * study.train.seeds
    weights += own.weight_bytes * folds * (shuffled > 0)
    memory = {f"preparing {study.prepare.workers} at a time": PREPARING_BYTES * study.prepare.workers}
    memory |= {f"training {name}": one.memory_bytes * study.train.workers for name, one in figures.items()}
    most = max(memory, key=lambda stage: memory[stage])
    return Needs(
        stages=tuple(Hours(stage=stage, hours=one) for stage, one in hours.items() if one),
        hours=sum(one / at_a_time.get(stage, study.train.threads * study.train.workers) for stage, one in hours.items()),
        calibration_seconds=round(pace.seconds, 1),
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
    """What one network needs on one core of this machine."""

    training_seconds: float
    pretraining_seconds: float
    pass_seconds: float  # a forward pass of a patient's every token
    weight_bytes: int
    memory_bytes: int


def _tokens(study: Study) -> tuple[int, int]:
    """A usual patient's tokens that the encoder reads, and those of them that a step draws."""
    all_read = study.grid.positions if study.model.tokens == "all" else max(1, round(FOREGROUND_SHARE * study.grid.positions))
    return all_read, min(study.train.token_budget or all_read, all_read)


def _sizes(study: Study) -> Sizes:
    """What a calibration computes of our own network; nothing of others."""
    present, drawn = _tokens(study)
    if study.model.architecture != "vit":
        return Sizes(0, drawn, 0, present, 0)
    weights, operations, _ = _by_arithmetic(study, present)
    return Sizes(_by_arithmetic(study, drawn)[1], drawn, operations, present, weights)


def _preparing_seconds(study: Study, first: Patient, voxels: float) -> float:
    """Of a patient, if all have their skulls, or were stripped or have masks, as the first one."""
    skull = SKULL_SECONDS if _has_skull(study, first) else 0.0
    return PREPARING_SECONDS + FINE_SECONDS * min(1.0, voxels / FINE_VOXELS) + VOXEL_SECONDS * voxels + skull


def _has_skull(study: Study, patient: Patient) -> bool:
    """Whether a patient's brain will have to be found; as a preparation decides it."""
    from mri_vit.data.volume import canonical, read
    from mri_vit.prepare import brain

    file = patient.scans.get(study.prepare.reference)
    try:
        return file is None or brain.way(canonical(read(file)), patient.brain_mask, study.prepare) not in ("none", "mask")
    except UnusablePatient:
        return True


def _of_network(study: Study, patients: int, labelled: int, folds: int, pace: NetworkPace | None = None) -> _Figures:
    train = study.train
    present, drawn = _tokens(study)
    counted = _by_arithmetic if study.model.architecture == "vit" else _by_shapes
    (weights, forward, _), (_, drawn_forward, held) = counted(study, present), counted(study, drawn)
    pace = pace or _pace_elsewhere(study.model)
    steps = LOOP_SHARE * train.epochs * math.ceil(labelled * (1 - 1 / folds) * (1 - train.val_fraction) / train.batch_size)
    step = 3 * drawn_forward * train.batch_size / pace.step + pace.update  # of a whole batch; backward costs twice forward
    evaluated = train.epochs / train.val_every * labelled * (1 - 1 / folds) * train.val_fraction
    apart = folds if study.pretrain.patients == "others" else 1
    pretrained = study.pretrain.epochs * patients * apart * _pretraining_passes(study) * forward
    together = max(train.batch_size, study.pretrain.batch_size * _views(study))
    return _Figures(
        training_seconds=(steps * step + evaluated * forward / pace.one_pass) * (folds * train.repeats * train.seeds),
        pretraining_seconds=pretrained / pace.step,
        pass_seconds=forward / pace.one_pass,
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


def _pace_elsewhere(settings: Model) -> NetworkPace:
    """Of a network that is not measured here."""
    rate = (VIT_RATE if settings.architecture in OF_PRODUCTS else CONVOLUTION_RATE) * core_speed()
    return NetworkPace(rate, rate, 0.0)


def _maps_bytes(study: Study, voxels: float) -> int:
    """A patient's maps by every network that is explained, scans having so many voxels."""
    return round(_maps(study) * (MAP_PICTURE_BYTES + MAP_BYTES * voxels / USUAL_VOXELS))


def _maps(study: Study) -> int:
    """How many a patient has."""
    return sum(
        len(study.endpoints) if METHODS[method].per_endpoint else 1
        for of in explained_networks(study).values()
        for method in of.explain.methods
    )


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
