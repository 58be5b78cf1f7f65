"""The optimisation loop: which batches an objective is asked for, what a step says, and where a started training goes on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from mri_vit.errors import BadNumbers
from mri_vit.train.checkpoint import State
from mri_vit.train.loop import Learner, Schedule, Step, steps
from mri_vit.train.optimiser import Rates, set_rates

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


def a_schedule(place: Path, patients: int = 5, epochs: int = 3, patience: float = math.inf) -> Schedule:
    return Schedule(patients, 2, epochs, Rates(0.1, 0.2), 1.0, "train", place, patience)


def made(schedule: Schedule, state: State, batches: list[list[int]], scale: float = 1.0) -> list[Step]:
    """All steps of a linear map that learns to put out 0."""
    torch.manual_seed(0)
    fabric, linear = Fabric(accelerator="cpu", devices=1), torch.nn.Linear(1, 1)
    groups = [{"params": list(linear.parameters()), "share": 1.0, "head": False}]
    net, sgd = fabric.setup(linear, torch.optim.SGD(groups, lr=0.1))

    def objective(batch: list[int]) -> torch.Tensor:
        batches.append(batch)
        return scale * net(torch.tensor(batch)[:, None].float()).square().mean()

    return list(steps(objective, Learner(fabric, net, sgd, torch.Generator().manual_seed(0)), schedule, state))


def test_every_patient_is_in_each_epoch_and_the_last_batch_is_filled_up_from_the_first(tmp_path):
    batches: list[list[int]] = []
    found = made(a_schedule(tmp_path), State(), batches)
    assert [step.number for step in found] == list(range(9))
    assert [step.ends_epoch for step in found] == [False, False, True] * 3
    for epoch in (batches[:3], batches[3:6], batches[6:]):
        order = [index for batch in epoch for index in batch]
        assert sorted(order[:5]) == list(range(5))
        assert order[5] == order[0]
    assert found[2].mean_loss == pytest.approx(sum(step.loss for step in found[:3]) / 3)


def test_a_started_training_goes_on_with_the_epochs_that_are_left_at_their_rates(tmp_path):
    schedule, state = a_schedule(tmp_path), State(epoch=2)
    found = made(schedule, state, [])
    assert [step.number for step in found] == [6, 7, 8]
    optimiser = torch.optim.SGD([{"params": [torch.zeros(1)], "share": 1.0, "head": False}], lr=0.1)
    assert [step.rate for step in found] == [set_rates(optimiser, number, 9, schedule.rates) for number in (6, 7, 8)]
    assert state.epoch == 3
    assert state.seconds > 0


def test_without_patience_or_epochs_left_no_step_is_made(tmp_path):
    assert made(a_schedule(tmp_path, patience=2.0), State(epoch=1, stale=2), []) == []
    assert made(a_schedule(tmp_path), State(epoch=3), []) == []


@pytest.mark.parametrize(("scale", "what"), [(math.inf, "the loss became inf"), (math.nan, "the loss became nan")])
def test_a_loss_that_is_not_finite_names_the_place_the_epoch_and_the_remedy(tmp_path, scale: float, what: str):
    with pytest.raises(BadNumbers, match=rf"{tmp_path}: {what} in epoch 1; try a train\.rate below 0\.1"):
        made(a_schedule(tmp_path), State(), [], scale)
