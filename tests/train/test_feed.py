"""The feed: whose batch a step gets, the same wherever patients lie, and all patients at once for an evaluation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from waits import Waits

from mri_vit.data import cohort, store
from mri_vit.data.store import Batch
from mri_vit.settings.schema import Study
from mri_vit.train.devices import one_device
from mri_vit.train.feed import Feed, LabelledBatch, training_draw
from mri_vit.train.loop import Learner, Sums, Turn, optimiser, stepped
from mri_vit.train.supervised import batch_outputs, objective, outputs, schedule, untrained

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine
CPU = torch.device("cpu")


def changed(study: Study, model: dict[str, Any] | None = None, **train: Any) -> Study:
    settings = {"model": study.model.model_copy(update=model or {}), "train": study.train.model_copy(update=train)}
    return study.model_copy(update=settings)


def patients(study: Study) -> list[cohort.Patient]:
    return cohort.read(study.cohort, study.endpoints)


def a_turn(*chosen: int, epoch: int = 0, laps: tuple[int, ...] | None = None) -> Turn:
    return Turn(epoch, 7 * epoch, chosen, laps or (0,) * len(chosen))


def taken(feed: Feed, turn: Turn) -> torch.Tensor:
    return feed.store.take(training_draw(turn, feed.ids, feed.store.position, feed.study, feed.seed)).patches


def test_what_a_patient_shows_hangs_on_seed_epoch_lap_and_patient_alone(tiny):
    study = changed(tiny, token_budget=16)
    feed, other = Feed(patients(study), study, CPU, 0), Feed(patients(study)[::-1], study, CPU, 0)
    shown = taken(feed, a_turn(3, 5))
    assert torch.equal(taken(feed, a_turn(5, 1, 3))[2], shown[0])
    assert torch.equal(taken(other, a_turn(23 - 3))[0], shown[0])  # the same patient in another table
    assert not torch.equal(taken(feed, a_turn(3, epoch=1))[0], shown[0])
    assert not torch.equal(taken(feed, a_turn(3, 3, laps=(1, 2)))[0], shown[0])
    assert not torch.equal(taken(Feed(patients(study), study, CPU, 1), a_turn(3))[0], shown[0])


@pytest.mark.parametrize("options", [{}, {"mixup": 0.8, "modality_dropout": 0.3}], ids=["plain", "mixed"])
def test_an_epoch_is_the_same_from_memory_and_from_disk(tiny, monkeypatch, options: dict[str, Any]):
    study = changed(tiny, **options)
    turns = schedule(24, study, tiny.output, 0).turns(2)
    held = [copy.deepcopy(given) for given in Feed(patients(study), study, CPU, 0)(turns)]
    monkeypatch.setattr(store, "free_memory", lambda: 0)
    feed = Feed(patients(study), study, CPU, 0)
    assert isinstance(feed.store, store.Read)
    for a, b in zip(held, feed(turns), strict=True):
        assert torch.equal(a.batch.patches, b.batch.patches)
        assert torch.equal(a.batch.position, b.batch.position)
        assert a.share == b.share
        for mine, theirs in ((a.labels, b.labels), (a.partners, b.partners)):
            assert (mine is None) == (theirs is None)
            for name in mine or {}:
                torch.testing.assert_close((mine or {})[name], (theirs or {})[name], rtol=0, atol=0, equal_nan=True)


def test_labels_are_those_of_the_patients_and_with_mixup_of_their_partners(tiny):
    study = changed(tiny, mixup=0.8)
    feed, turn = Feed(patients(study), study, CPU, 0), a_turn(2, 9, 4)
    (given,) = feed([turn])
    for name, column in feed.labels.items():
        torch.testing.assert_close(given.labels[name], column[[2, 9, 4]], equal_nan=True)
    assert given.partners is not None
    whose = feed.draw(turn).patient
    for row in range(3):
        (partner,) = {int(i) for i in whose[row]} - {turn.patients[row]} or {turn.patients[row]}
        torch.testing.assert_close(given.partners["os"][row], feed.labels["os"][partner], equal_nan=True)


@pytest.mark.parametrize("mirror", [True, False])
def test_a_mirrored_patient_teaches_nothing_of_an_endpoint_that_may_hang_on_the_side(tiny, mirror: bool):
    name, *others = [endpoint.name for endpoint in tiny.endpoints]
    study = changed(tiny, flip_lr=mirror, laterality_endpoints=(name,))
    feed, turn = Feed(patients(study), study, CPU, 0), a_turn(*range(24))
    turned = torch.from_numpy(feed.draw(turn).mirrored[:, 0])
    assert (0 < turned.sum() < 24) == mirror
    (given,) = feed([turn])
    assert given.labels[name][turned].isnan().all()
    torch.testing.assert_close(given.labels[name][~turned], feed.labels[name][~turned], equal_nan=True)
    for other in others:
        torch.testing.assert_close(given.labels[other], feed.labels[other], equal_nan=True)
    of_others = study.model_copy(update={"endpoints": tuple(e for e in study.endpoints if e.name != name)})
    (given,) = Feed(patients(study), of_others, CPU, 0)([turn])  # as where a network learns another label first
    assert set(given.labels) == set(others)


@pytest.mark.parametrize(
    "model",
    [
        *({"pool": pool} for pool in ("cls", "mean", "max")),
        {"tokens": "all"},
        *({"architecture": a} for a in ("resnet10", "hybrid")),
    ],
    ids=str,
)
def test_patients_evaluated_together_get_what_each_gets_alone(tiny, model: dict[str, Any]):
    study = changed(tiny, {**model, "zero_head": False})
    whom = patients(study)
    net = untrained(whom, study, 0)
    feed = Feed(whom, study, CPU, 0)
    if model.get("tokens") != "all":
        assert len({len(position) for position in feed.store.position}) > 1  # some are filled up
    together, alone = batch_outputs(net, feed, 5), outputs(net, whom, study, CPU)
    for name, expected in alone.items():
        assert expected.std() > 0
        torch.testing.assert_close(together[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("survival", ["hazard", "cox"])
def test_a_whole_step_waits_for_nothing(tiny, survival: str):
    study = changed(tiny, {"survival": survival}, mixup=0.8, modality_dropout=0.3)
    whom = patients(study)
    feed, net = Feed(whom, study, CPU, 0), untrained(whom, study, 0).train()
    fabric = one_device(study)
    module, adamw = fabric.setup(net, optimiser(net, study))
    learner, sums = Learner(fabric, module, adamw), Sums(CPU)
    plan = schedule(len(whom), study, tiny.output, 0)
    given = feed(plan.turns(0))
    for _ in range(3):
        with Waits() as waits:
            one = next(given)
        assert set(waits.found) == {"lift_fresh"}  # arrays of the host, which `sent` copies without waiting
        with Waits() as waits:
            sums.add(*stepped(objective(net, module)(one), learner, plan.clip))
        assert not waits.found
    assert sums.read(plan, 1) > 0


def test_an_epoch_on_another_kind_of_device_copies_nothing_back(tiny):
    """Of tensors on "meta" no number can be read, so anything that is asked of the device is an error."""
    study = changed(tiny, mixup=0.8)
    whom = patients(study)
    feed, net = Feed(whom, study, CPU, 0), untrained(whom, study, 0).to("meta").train()
    (given,) = feed([a_turn(0, 1, 2, 3)])
    there = LabelledBatch(
        Batch(given.batch.patches.to("meta"), given.batch.position.to("meta")),
        {name: column.to("meta") for name, column in given.labels.items()},
        {name: column.to("meta") for name, column in (given.partners or {}).items()},
        given.share,
    )
    objective(net, net)(there).backward()
    assert all(parameter.grad is not None for parameter in net.head.parameters())
