"""Does one kind of endpoint drown the others? Each head's share of what a mixed study's trunk is moved by.

    .venv/bin/mri-vit demo configs/kinds.toml --kinds
    .venv/bin/python pipelines/reproduce.py simulated_effects/loss_weights

The study's six endpoints with MGMT and survival beside them are trained on two thirds of the cohort. After some epochs the
gradient of each head's loss with respect to the encoder is taken over all training patients: its norm with the weights of
`Head.loss_weight`, and without them. Measured of type, grade, number, MGMT and survival: after 2 epochs 0.015, 0.014, 0.037,
0.013 and 0.004 (without weights 0.024, 0.026, 0.017, 0.013, 0.004), after 50 epochs 3.9, 2.8, 2.8, 4.9 and 2.0 (6.2, 5.2, 1.3,
4.9, 2.0): each is between a third and three times MGMT's, as is survival's, which has no weight.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table

from mri_vit.cli.arguments import Seed
from mri_vit.data import cohort, run_cohort, tokens
from mri_vit.data.store import all_tokens, token_file
from mri_vit.model import heads
from mri_vit.model.network import Network
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Study
from mri_vit.train import supervised

STUDY = Path(__file__).parents[3] / "configs" / "kinds.toml"
BESIDE = ("mgmt", "os")
EPOCHS = (2, 10, 50)


def norms(net: Network, study: Study, patients: list[cohort.Patient], weighted: bool) -> dict[str, float]:
    """By endpoint the norm of its loss's gradient with respect to the encoder."""
    inputs = [all_tokens(tokens.load(token_file(study.prepared, patient)), study.model) for patient in patients]
    outputs = [net(*one) for one in inputs]
    found = {}
    for head in net.heads:
        name = head.endpoint.name
        of = head if weighted else replace(head, loss_weight=1.0)
        loss = heads.loss(of, torch.cat([one[name] for one in outputs]), supervised.labels(patients, head.endpoint))
        moved = torch.autograd.grad(loss, list(net.encoder.parameters()), retain_graph=True, allow_unused=True)
        found[name] = float(torch.stack([one.norm() for one in moved if one is not None]).norm())
    return found


def main(*, seed: Seed = 0) -> None:
    """Print the norms after each number of epochs."""
    study = study_file.load(STUDY)
    beside = tuple(endpoint for endpoint in DEFAULT_ENDPOINTS if endpoint.name in BESIDE)
    study = study.model_copy(update={"endpoints": (*study.endpoints, *beside)})
    patients = run_cohort.segmented(cohort.of_study(study), study)
    patients = [patient for patient in patients if token_file(study.prepared, patient).exists()]
    train, val = patients[len(patients) // 3 :], patients[: len(patients) // 3]
    for epochs in EPOCHS:
        of = study.model_copy(update={"train": study.train.model_copy(update={"epochs": epochs})})
        with TemporaryDirectory() as folder:
            net = supervised.fit(train, val, of, Path(folder), seed).eval()
        table = Table("endpoint", "kind", "weight", "norm", "without weights", title=f"after {epochs} epochs")
        with_weights, without = (norms(net, study, train, weighted) for weighted in (True, False))
        for head in net.heads:
            name = head.endpoint.name
            figures = (head.loss_weight, with_weights[name], without[name])
            table.add_row(name, head.endpoint.kind, *(f"{figure:.3f}" for figure in figures))
        Console().print(table)
