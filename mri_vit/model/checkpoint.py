"""Checkpoint: the tensors in a file of weights that somebody else wrote. No code in a file is ever run."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.settings import source

PICKLED = (".pth", ".pt", ".bin", ".ckpt")
INSIDE = ("model", "state_dict", "network_weights", "teacher")  # MAE's and DeiT's; Lightning's; nnssl's; DINO's own files


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every floating-point tensor of a file by its key, as float32.

    The formats are .safetensors, .npz, and .pth, .pt, .bin and .ckpt of tensors alone; where such a file holds the weights under
    a key beside others (an optimiser's state, the number of epochs), these are taken.

    Raises
    ------
    UsageError when there is no such file, or it is of another format.
    IntegrityError when the file is damaged, or holds objects whose making would run code.
    """
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong}; a file of weights is expected")
    try:
        named = {key: value for key, value in _read(path).items() if isinstance(key, str) and isinstance(value, Tensor)}
        numbers = {key: value for key, value in named.items() if value.is_floating_point()}
        if not numbers:
            raise ValueError("there is no tensor of floating-point numbers in it")
        return {key: value.float() for key, value in numbers.items()}
    except pickle.UnpicklingError:  # PyTorch's own words advise to load it with the code that is in it
        raise IntegrityError(
            f"{path}: weights cannot be read: found damage, or objects whose making would run code; expected tensors alone."
            " Whoever trusts the file can save its state_dict as .safetensors"
        ) from None
    except (
        *(safetensors.SafetensorError, zipfile.BadZipFile, zlib.error),
        *(OSError, EOFError, ValueError, RuntimeError, AttributeError, TypeError),
    ) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise IntegrityError(f"{path}: weights cannot be read: {said}") from None


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        with safetensors.safe_open(str(path), "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    if path.suffix == ".npz":
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {key: torch.from_numpy(file[key]) for key in file.files}
    if path.suffix in PICKLED:
        found = torch.load(path, map_location="cpu", weights_only=True)
        for key in INSIDE:
            if isinstance(found.get(key), dict):
                return found[key]
        return found
    raise UsageError(f"{path}: found {path.suffix or 'no suffix'}; expected .safetensors, .npz, {', '.join(PICKLED)}")
