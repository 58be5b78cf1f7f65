"""The part of the bench that times convolutional stems: a patch's voxels as they are stored, and with channels last in memory.

Each reads the places that a step of its study draws of a few patients, forward and backward.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from einops import rearrange
from torch import Tensor

from benchmarks.inputs import DEVICE, autocast
from benchmarks.preparation import HERE
from mri_vit.model import encoder
from mri_vit.run import resource
from mri_vit.settings import file as study_file

Run = Callable[[], Any]  # what is timed
Layout = Callable[[Tensor, int, int], Tensor]  # [b p k], channels and edge of a patch to [b·p c x y z]

PATIENTS = 4
RECIPES = ("no-masks", "mask-supervision")  # those with a convolutional stem


def as_stored(patches: Tensor, channels: int, edge: int) -> Tensor:
    return rearrange(patches, "b p (c x y z) -> (b p) c x y z", c=channels, x=edge, y=edge, z=edge)


def stems() -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    layouts: dict[str, Layout] = {"as stored": as_stored, "channels last": encoder.cubes}
    return {
        f"stem of {name}, {PATIENTS} patients": {way: partial(passed, name, lay) for way, lay in layouts.items()}
        for name in RECIPES
    }


def passed(name: str, layout: Layout) -> Run:
    """A step's patches through the stem and back, in memory that is kept, as training keeps it."""
    resource.keep_freed_memory()
    study = study_file.load(HERE / "configs" / "gbm.toml", {"recipe": name})
    model, (numbers, positions) = study.model, (len(study.channels) * study.grid.patch**3, study.train.token_budget)
    stem = encoder.embedding(numbers, model.shape[0], model.stem, model.conv_stem, len(study.channels), model.texture).to(DEVICE)
    patches = torch.randn(PATIENTS, positions or study.grid.positions, numbers, device=DEVICE)

    def run() -> None:
        with patch.object(encoder, "cubes", layout), autocast():
            tokens = stem(patches)
        tokens.float().square().sum().backward()

    return run
