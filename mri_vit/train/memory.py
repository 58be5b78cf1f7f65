"""Memory: how much a study's network needs on disk while it learns, and what would make it need less."""

from __future__ import annotations

import torch

from mri_vit.model.network import Network
from mri_vit.settings.schema import Study


def state_bytes(study: Study) -> int:
    """Size of what is written while a network learns: weights, the best so far, AdamW's two moments, the moving average."""
    with torch.device("meta"):
        net = Network(study.model, study.grid, [], study.channels)
        weights = sum(weight.numel() * weight.element_size() for weight in net.parameters())
    return weights * (5 if study.train.ema else 4)


def less_memory(study: Study) -> str:
    """Settings with which the same network learns in less memory."""
    settings, model = study.train, study.model
    smaller = [f"a train.batch below {settings.batch}"] if settings.batch > 1 else []
    if model.architecture == "vit":
        smaller += [f"a train.token_budget below {settings.token_budget}" if settings.token_budget else "a train.token_budget"]
        smaller += ['model.tokens = "foreground"'] if model.tokens != "foreground" else []
    return " or ".join(smaller) or "a smaller network"
