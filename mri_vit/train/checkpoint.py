"""The state of training in one file, from which a killed run resumes as if nothing had been: no pickle, written atomically."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from mri_vit.errors import IntegrityError
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header

SAVE_SECONDS = 60.0  # between two writes of the state (1.6 GB for ViT-B): what a killed run loses at most, beside its epoch
TRAIN_ANEW = "delete its fold's folder to train the fold anew"


@dataclass
class State:
    """Where training stands: epochs done, the best validation loss, evaluations since it, and each evaluation's figures."""

    epoch: int = 0
    best: float = math.inf
    stale: int = 0
    seconds: float = 0.0  # spent on training so far, over all starts
    history: list[dict[str, Any]] = field(default_factory=list)

    def better(self, loss: float, val_losses: dict[str, float]) -> bool:
        """Note an evaluation; whether it is the best so far."""
        mean = sum(val_losses.values()) / len(val_losses)
        each = {f"tune_{name}": value for name, value in val_losses.items()}
        self.history.append({"epoch": self.epoch, "seconds": self.seconds, "loss": loss, "tune": mean, **each})
        best = mean < self.best
        self.best, self.stale = (mean, 0) if best else (self.best, self.stale + 1)
        return best


def save(state: State, net: torch.nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> None:
    """Weights, AdamW's moments, the random state of what is left out by chance, and `state`, replaced in one step."""
    tensors = {f"net/{name}": tensor for name, tensor in net.state_dict().items()}
    for index, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{index}/{name}": tensor for name, tensor in moments.items()}
    tensors["random/torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    path.parent.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as beside:
        safetensors.torch.save_file(contiguous, beside, {"state": json.dumps(asdict(state))})
        sort_header(beside)


def load(path: Path, net: torch.nn.Module, optimiser: torch.optim.Optimizer) -> State:
    """Put everything back where `save` took it from. Raises IntegrityError when the file is damaged."""
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise IntegrityError(f"{path}: checkpoint cannot be read: {error}; {TRAIN_ANEW}") from None
    with as_written(path, TRAIN_ANEW):
        return _restored(metadata, tensors, net, optimiser)


def _restored(
    metadata: dict[str, str], tensors: dict[str, torch.Tensor], net: torch.nn.Module, optimiser: torch.optim.Optimizer
) -> State:
    try:
        net.load_state_dict({name.removeprefix("net/"): tensor for name, tensor in tensors.items() if name.startswith("net/")})
    except RuntimeError as error:  # tensors of another network
        raise ValueError(error) from None
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser/"):
            _, index, moment = name.split("/")
            moments.setdefault(int(index), {})[moment] = tensor
    optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
    torch.set_rng_state(tensors["random/torch"])
    if "random/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random/cuda"])
    return State(**json.loads(metadata["state"]))


class Clock:
    """Says when the state is to be written again: after `SAVE_SECONDS`, however short an epoch is."""

    def __init__(self) -> None:
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Whether it is time; if so, the next time counts from now."""
        now = time.monotonic()
        due = now - self._saved >= SAVE_SECONDS
        self._saved = now if due else self._saved
        return due
