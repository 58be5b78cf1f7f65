"""The optimisation loop: which batches an objective is asked for, what a step says, and where a started training goes on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment

from mri_vit.errors import BadNumbers
from mri_vit.train import loop
from mri_vit.train.checkpoint import State
from mri_vit.train.loop import Learner, Rates, Schedule, Step, Turn, set_rates, steps

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


def a_schedule(position: Path, patients: int = 5, epochs: int = 3, patience: float = math.inf) -> Schedule:
    return Schedule(patients, 2, epochs, 0, Rates(0.1, 0.2), 1.0, "train", position, patience)


def made(schedule: Schedule, state: State, given: list[Turn], scale: float = 1.0, power: float = 2.0) -> list[Step]:
    """All steps of a linear map that learns to put out 0."""
    torch.manual_seed(0)
    fabric, linear = Fabric(accelerator="cpu", devices=1, plugins=LightningEnvironment()), torch.nn.Linear(1, 1)
    groups = [{"params": list(linear.parameters()), "share": 1.0, "head": False}]
    net, sgd = fabric.setup(linear, torch.optim.SGD(groups, lr=0.1))

    def objective(turn: Turn) -> torch.Tensor:
        given.append(turn)
        return scale * net(torch.tensor(turn.patients)[:, None].float()).abs().pow(power).mean()

    return list(steps(iter, objective, Learner(fabric, net, sgd), schedule, state))


def test_every_patient_is_in_each_epoch_and_the_last_batch_is_filled_up_from_the_first(tmp_path):
    given: list[Turn] = []
    found = made(a_schedule(tmp_path), State(), given)
    assert [step.number for step in found] == list(range(9))
    assert [step.ends_epoch for step in found] == [False, False, True] * 3
    orders = []
    for epoch in range(3):
        turns = given[3 * epoch : 3 * epoch + 3]
        order = [index for turn in turns for index in turn.patients]
        assert sorted(order[:5]) == list(range(5))
        assert order[5] == order[0]
        assert [lap for turn in turns for lap in turn.laps] == [0, 0, 0, 0, 0, 1]
        assert {turn.epoch for turn in turns} == {epoch}
        orders.append(order)
    assert len({tuple(order) for order in orders}) == 3
    assert [turn.number for turn in given] == list(range(9))


def test_the_loss_is_read_every_few_steps_and_at_an_epochs_end(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "READ_EVERY", 2)
    found = made(a_schedule(tmp_path, patients=9), State(), [])[:5]
    monkeypatch.setattr(loop, "READ_EVERY", 1)
    each = [step.loss or 0.0 for step in made(a_schedule(tmp_path, patients=9), State(), [])[:5]]
    assert [step.loss for step in found] == [
        None,
        pytest.approx((each[0] + each[1]) / 2),
        None,
        pytest.approx((each[2] + each[3]) / 2),
        pytest.approx(each[4]),
    ]
    assert [step.mean_loss for step in found] == [None] * 4 + [pytest.approx(sum(each) / 5)]


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


@pytest.mark.parametrize("scale", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_names_the_place_the_epoch_and_the_remedy(tmp_path, scale: float):
    with pytest.raises(
        BadNumbers, match=rf"{tmp_path}: the loss became (inf|nan) in epoch 1; try a train\.learning_rate below 0\.1"
    ):
        made(a_schedule(tmp_path), State(), [], scale)


def test_a_gradient_that_is_not_finite_before_any_loss_is_named_as_such_and_the_epoch_does_not_count(tmp_path):
    state = State()
    remedy = r'in epoch 1; try a train\.learning_rate below 0\.1, or train\.precision "32-true"'
    with pytest.raises(BadNumbers, match=rf"{tmp_path}: a gradient became infinite {remedy}"):
        made(a_schedule(tmp_path), state, [], scale=1e37, power=4.0)  # the loss is a number yet, its gradient's norm is none
    assert state == State()
