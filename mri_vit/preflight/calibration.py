"""Calibration: how fast one core of this machine prepares patients and computes a study's networks, from a few seconds of each.

A part of a preparation is timed, and steps and passes of each network, with the study's own tokens and batch as far as they take
a second; of larger ones with fewer tokens, whose operations take about as long each. What was measured is kept for the next check
of the same networks, in a file of the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from importlib.metadata import version
from pathlib import Path

from threadpoolctl import threadpool_limits

from mri_vit.model.sizes import layers
from mri_vit.run.atomic import write_bytes
from mri_vit.run.folder import device, processor
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.resource import free_memory
from mri_vit.settings.schema import Study

TRAINED_BYTES = 16  # a weight: itself, its gradient and two moments, in single precision
STEP_OPERATIONS = 6e10  # of a timed step: about a second on one core
PREPARING_SECONDS = 0.34  # of `_part_of_a_preparation` on the AMD EPYC that preflight/needs.py's seconds were measured on
VERSION = 1  # of what is measured; another one is measured anew


@dataclass(frozen=True)
class Pace:
    """Of one core: a preparation's seconds over those of the core that was measured; and by network, see `NetworkPace`."""

    preparing: float
    networks: dict[str, NetworkPace]
    seconds: float  # that measuring took; 0 where it was kept


@dataclass(frozen=True)
class NetworkPace:
    """Operations a second of a training step without its update of the weights, and of a pass alone; seconds of an update."""

    step: float
    one_pass: float
    update: float


@dataclass(frozen=True)
class Sizes:
    """Of one network: operations of a pass of a patient with the tokens that are drawn, and how many these are; all tokens';
    its weights.
    """

    drawn_operations: int
    drawn: int
    operations: int
    tokens: int
    weights: int


def pace(studies: Mapping[str, Study], sizes: Mapping[str, Sizes]) -> Pace:
    """Of the networks of these studies, as far as they are our own Vision Transformers; from the cache where it has them."""
    kept = _cache()
    key = _key(studies, sizes)
    found = read_json_or_empty(kept) if kept else {}
    try:
        return Pace(found[key]["preparing"], {name: NetworkPace(**one) for name, one in found[key]["networks"].items()}, 0.0)
    except (KeyError, TypeError, AttributeError):  # none is kept, or it is damaged
        pass
    began = time.monotonic()
    measured = Pace(
        _seconds(_part_of_a_preparation) / PREPARING_SECONDS,
        {name: _of_network(study, sizes[name]) for name, study in studies.items() if _fits(study, sizes[name])},
        time.monotonic() - began,
    )
    if kept:
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(json.dumps({**read_json_or_empty(kept), key: asdict(measured)}, indent=1).encode(), kept)
        except OSError:  # a home that cannot be written: the next check measures again
            pass
    return measured


def _cache() -> Path | None:
    """Where paces are kept; None for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mri-vit" / "pace.json"
    except RuntimeError:
        return None


def _fits(study: Study, sizes: Sizes) -> bool:
    """Whether a network is our own, and its weights, gradients and AdamW's moments fit into free memory."""
    return study.model.architecture == "vit" and TRAINED_BYTES * sizes.weights < (free_memory() or math.inf)


def _key(studies: Mapping[str, Study], sizes: Mapping[str, Sizes]) -> str:
    """Of this machine, these libraries, and these networks with the batches that they learn from."""
    networks = [
        [name, of.model.model_dump_json(exclude={"weights"}), of.grid.model_dump_json(), of.train.batch_size, *astuple(size)]
        for (name, of), size in zip(studies.items(), sizes.values(), strict=True)
    ]
    identity = json.dumps([VERSION, processor(), device(), version("mri-vit"), version("torch"), version("SimpleITK"), networks])
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _seconds(run: Callable[[], object]) -> float:
    """Of the processor, for a busy machine gives others the rest; the quicker of two times, once memory was found for it."""
    seconds = []
    with threadpool_limits(1):
        for _ in range(3):
            began = time.process_time()
            run()
            seconds.append(time.process_time() - began)
    return min(seconds[1:])


def _part_of_a_preparation() -> object:
    """The template laid over itself from aside, and a scan blurred: what most of a preparation is."""
    import numpy as np

    from mri_vit.data.volume import Volume
    from mri_vit.prepare import register

    brain, _ = register.template()
    moved = np.eye(4)
    moved[:3, 3] = 6, -8, 10
    register.to_template(Volume(brain.array * 1.0, moved @ brain.affine))
    return register.smoothed(Volume(brain.array, brain.affine), [4.0] * 3)


def _of_network(study: Study, sizes: Sizes) -> NetworkPace:
    """Random patients through the study's own network, on one thread."""
    import torch

    from mri_vit.model.network import Network

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    net = Network(study.model.model_copy(update={"weights": None}), study.grid, [], study.channels).train()
    adamw = torch.optim.AdamW(net.parameters(), fused=True)

    def given(operations: int, tokens: int, times: int) -> tuple[tuple[torch.Tensor, torch.Tensor], float]:
        """A batch of the study's size, or of as many patients as a second holds, or of one with fewer tokens; its operations."""
        patients = max(1, min(study.train.batch_size, int(STEP_OPERATIONS / (times * operations))))
        few = max(1, min(tokens, int(tokens * STEP_OPERATIONS / (times * operations))))
        of_few = sum(layer.operations for layer in layers(study.model, study.grid, len(study.channels), few))
        patches = torch.randn(patients, few, len(study.channels) * study.grid.patch**3)
        position = torch.arange(few).expand(patients, -1)
        return (patches, position), times * patients * of_few

    try:
        batch, of_step = given(sizes.drawn_operations, sizes.drawn, 3)
        step = _seconds(lambda: net.encoder(*batch).square().mean().backward())
        update = _seconds(adamw.step)
        net.eval()
        whole, of_pass = given(sizes.operations, sizes.tokens, 1)
        with torch.no_grad():
            one_pass = _seconds(lambda: net.encoder(*whole))
    finally:
        torch.set_num_threads(threads)
    return NetworkPace(of_step / step, of_pass / one_pass, update)
