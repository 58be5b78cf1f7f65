"""What the parts of the bench are given: the device, the sizes and one patient. Quick to import, because it weighs on peaks."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from mri_vit.data.cohort import Patient
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid

GRID = Grid()
FOREGROUND = 640  # real brains fill 490 to 721 of the 2744 places
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def autocast() -> torch.autocast:
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda")


@cache
def patient(positions: int) -> tuple[Tensor, Tensor]:
    """One patient of random patches at random places."""
    position = torch.randperm(GRID.positions)[:positions].sort().values
    return torch.randn(1, positions, len(CHANNELS) * GRID.patch**3).to(DEVICE), position[None].to(DEVICE)


def everybody(count: int, study: Study) -> Sequence[Patient]:
    """Patients whose labels take turns; their scans are nowhere."""
    columns = [column for endpoint in study.endpoints for column in endpoint.columns]
    return [Patient(f"p{i}", dict.fromkeys(CHANNELS), {c: float(i % 2) for c in columns}, {}) for i in range(count)]
