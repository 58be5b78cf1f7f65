"""DINO: crops are boxes of the brain's places, the teacher follows without learning, and a collapse is reported."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from made.views import loaded, views

from mri_vit.data import cohort
from mri_vit.data.draw import Member
from mri_vit.data.tokens import Tokens
from mri_vit.model.weights import load_encoder
from mri_vit.pretrain import dino
from mri_vit.pretrain.dino import Dino, Head, box, collapsed, cross_entropy, momentum, moved, probabilities, signs
from mri_vit.pretrain.encoder import Method, pretrain, untrained
from mri_vit.settings.recipe import Pretrain
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


@pytest.fixture
def study(tiny: Study, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setattr(dino, "PROTOTYPES", 16)
    monkeypatch.setattr(dino, "TEACHER_MOMENTUM", 0.9)  # so that the teacher moves within a test
    settings = Pretrain(method="dino", epochs=3, batch_size=8, local_crops=2)
    return tiny.model_copy(update={"pretrain": settings})


def some(study: Study, count: int = 4) -> list[Tokens]:
    return loaded(cohort.read(study.cohort, study.endpoints)[:count], study)


def objective(study: Study) -> Dino:
    torch.manual_seed(0)
    return Dino(untrained(study), study)


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def brain(count: int, seed: int) -> Tokens:
    """`count` places anywhere on a grid of 6³."""
    position = np.sort(np.random.default_rng(seed).permutation(216)[:count]).astype(np.int16)
    return Tokens(np.ones((count, 32), np.float16), position, Grid(edge=12, spacing_mm=10, patch=2), "-")


def member(patient: Tokens, random: np.random.Generator) -> Member:
    return Member(0, patient.position, random)


@given(count=st.integers(1, 216), share=st.floats(0.01, 1), seed=st.integers(0, 50))
@examples(60)
def test_a_crop_holds_as_many_places_as_asked_and_all_of_the_brain_within_its_box_but_for_one_face(
    count: int, share: float, seed: int
):
    patient = brain(count, seed)
    wanted = max(1, round(share * count))
    chosen = box(member(patient, np.random.default_rng(seed)), 6, wanted)
    assert len(set(chosen.tolist())) == len(chosen) == wanted
    at = np.stack(np.unravel_index(patient.position.astype(int), (6, 6, 6)), axis=1)
    low, high = at[chosen].min(axis=0), at[chosen].max(axis=0)
    within = np.flatnonzero(((at >= low) & (at <= high)).all(axis=1))
    left = at[np.setdiff1d(within, chosen)]
    assert not len(left) or (left == low).all(axis=0).any() or (left == high).all(axis=0).any()


def test_a_crop_of_more_places_than_the_brain_has_is_refused():
    with pytest.raises(ValueError, match="found 5 tokens; 6 are asked for"):
        box(member(brain(5, 0), np.random.default_rng(0)), 6, 6)


def test_boxes_differ_and_in_time_reach_every_place():
    patient, generator = brain(150, 0), np.random.default_rng(0)
    crops = [frozenset(box(member(patient, generator), 6, 30).tolist()) for _ in range(100)]
    assert len(set(crops)) > 80
    assert frozenset.union(*crops) == set(range(150))


def test_a_box_is_nearly_a_cube():
    whole = Tokens(np.ones((4096, 4), np.float16), np.arange(4096, dtype=np.int16), Grid(edge=16, spacing_mm=10, patch=1), "-")
    generator, ratios = np.random.default_rng(0), []
    for _ in range(100):
        at = np.stack(np.unravel_index(whole.position[box(member(whole, generator), 16, 216)].astype(int), (16, 16, 16)), axis=1)
        edges = np.sort(np.ptp(at, axis=0) + 1)
        if at.min() > 0 and at.max() < 15:  # not cut off by the grid's border
            ratios.append(edges[2] / edges[0])
    assert len(ratios) > 10
    assert max(ratios) <= (6 * 4 / 3 + 1) / 5  # of whole places, of which an edge of six may hold one more or less


def test_global_and_local_crops_hold_their_share_of_the_brain_at_true_places(study):
    plain = {"flip_lr": False, "intensity_jitter": 0.0, "token_budget": None}
    study = study.model_copy(update={"train": study.train.model_copy(update=plain)})
    patients, net, generator = some(study), objective(study), np.random.default_rng(0)
    smallest = min(len(one.position) for one in patients)
    for _ in range(20):
        shown = views(net, patients, generator)
        for (patches, position), (low, high), number in zip(
            (shown[:2], shown[2:]), (dino.GLOBAL_SHARE, dino.LOCAL_SHARE), (dino.GLOBAL_BOXES, 2), strict=True
        ):
            assert len(position) == number * len(patients)
            assert round(low * smallest) <= position.shape[1] <= round(high * smallest)
            for row, (numbers, where) in enumerate(zip(patches, position, strict=True)):
                one = patients[row % len(patients)]
                stored = {int(p): patch for p, patch in zip(one.position, one.patches, strict=True)}
                np.testing.assert_array_equal(numbers.numpy(), np.stack([stored[int(p)] for p in where]).astype(np.float32))


def test_a_budget_thins_crops_and_does_not_shrink_them(study):
    study = study.model_copy(update={"train": study.train.model_copy(update={"token_budget": 10})})
    patient, net, generator = some(study, 1)[0], objective(study), np.random.default_rng(0)
    shown = [views(net, [patient], generator) for _ in range(30)]
    assert {position.shape[1] for _, position, _, _ in shown} == {10}
    assert max(position.shape[1] for _, _, _, position in shown) <= 10
    extents = [np.ptp(np.stack(np.unravel_index(position[0].numpy(), (4, 4, 4))), axis=1).max() for _, position, _, _ in shown]
    assert np.mean(extents) > 2.5  # a box of ten places alone would reach over two steps or three


def test_the_loss_is_that_of_a_loop_over_pairs_of_different_views():
    teacher = torch.softmax(torch.randn(2, 3, 5, generator=random(0)), dim=2)
    student = torch.randn(4, 3, 5, generator=random(1))
    total, pairs = 0.0, 0
    for t in range(2):
        for s in range(4):
            if s == t:
                continue
            for b in range(3):
                exponentials = [math.exp(float(x) / dino.STUDENT_TEMPERATURE) for x in student[s, b]]
                total -= sum(float(p) * math.log(e / sum(exponentials)) for p, e in zip(teacher[t, b], exponentials, strict=True))
            pairs += 1
    assert cross_entropy(teacher, student).item() == pytest.approx(total / (3 * pairs), rel=1e-5)


def test_a_patients_loss_compares_its_own_views(study, monkeypatch):
    """With a teacher and a student that name the patient whatever the crop, the loss vanishes; another order breaks it."""
    net, patients = objective(study), 4
    named = torch.zeros(8, 16).index_put((torch.arange(8), torch.arange(8) % patients), torch.tensor(50.0))
    monkeypatch.setattr(net, "answer", lambda *_: (named, named))
    monkeypatch.setattr(net.head, "forward", lambda cls: named)
    shown = views(net, some(study, patients), np.random.default_rng(0))
    assert net(*shown) == pytest.approx(0, abs=1e-6)
    monkeypatch.setattr(net.head, "forward", lambda cls: named.flip(0))
    assert net(*shown) > 1


def test_the_centre_is_the_moving_average_of_what_the_teacher_says(study):
    centre, said = torch.randn(5, generator=random(0)), torch.randn(3, 5, generator=random(1))
    by_hand = [0.9 * float(centre[m]) + 0.1 * sum(float(said[b, m]) for b in range(3)) / 3 for m in range(5)]
    assert moved(centre, said).tolist() == pytest.approx(by_hand, rel=1e-5)
    net = objective(study)
    shown = views(net, some(study), np.random.default_rng(0))
    said, _ = net.answer(*shown[:2])
    net(*shown)
    torch.testing.assert_close(net.centre, 0.1 * said.mean(dim=0))


def test_what_is_said_of_everybody_is_taken_away_by_the_centre():
    said, centre, common = torch.randn(3, 5, generator=random(0)), torch.zeros(5), torch.randn(5, generator=random(1))
    torch.testing.assert_close(probabilities(said + common, centre + common), probabilities(said, centre), atol=1e-4, rtol=1e-3)


def test_the_teacher_gets_no_gradient_and_all_of_the_student_does(study):
    net = objective(study)
    net.begin(1)
    net.encoder.cls.requires_grad_()
    net(*views(net, some(study), np.random.default_rng(0))).backward()
    assert all(p.grad is None and not p.requires_grad for p in net.teacher.parameters())
    assert all(p.grad is not None for p in net.learned())
    assert not {id(p) for p in net.learned()} & {id(p) for p in net.teacher.parameters()}
    assert len(net.learned()) == len(list(net.teacher.parameters()))


def test_the_last_layer_rests_in_the_first_epoch(study):
    net = objective(study)
    for epoch, learns in ((0, False), (1, True)):
        net.begin(epoch)
        net.zero_grad()
        net(*views(net, some(study), np.random.default_rng(0))).backward()
        assert (net.head.prototypes.grad is not None) == learns


def test_the_teacher_starts_as_the_student_and_then_is_its_moving_average(study):
    net = objective(study)
    students, teachers = net.learned(), list(net.teacher.parameters())
    assert all(torch.equal(s, t) for s, t in zip(students, teachers, strict=True))
    before = [t.clone() for t in teachers]
    with torch.no_grad():
        for s in students:
            s.add_(torch.randn(s.shape, generator=random(0)))
    net.stepped(0.0)
    for s, t, old in zip(students, teachers, before, strict=True):
        torch.testing.assert_close(t, 0.9 * old + 0.1 * s)
    before = [t.clone() for t in teachers]
    net.stepped(1.0)
    assert all(torch.equal(t, old) for t, old in zip(teachers, before, strict=True))


def test_the_teachers_momentum_rises_from_its_start_to_one():
    values = [momentum(0.9, progress) for progress in np.linspace(0, 1, 20)]
    assert values[0] == pytest.approx(0.9)
    assert values[-1] == pytest.approx(1.0)
    assert values == sorted(values)
    assert momentum(0.9, 0.5) == pytest.approx(0.95)


def test_the_head_gives_cosines_whatever_the_length_of_its_prototypes():
    torch.manual_seed(0)
    head, cls = Head(24, 10), torch.randn(6, 24)
    said = head(cls)
    assert said.abs().max() <= 1 + 1e-6
    with torch.no_grad():
        head.prototypes.mul_(7)
    torch.testing.assert_close(head(cls), said)


def history(said: torch.Tensor, cls: torch.Tensor) -> pd.DataFrame:
    return pd.DataFrame([{"epoch": epoch, **signs(said, cls)} for epoch in range(1, 6)])


def test_every_kind_of_collapse_is_reported_and_health_is_not():
    varied = torch.randn(64, 16, generator=random(0))
    one = torch.zeros(64, 32).index_fill(1, torch.tensor([3]), 1.0)
    even = torch.full((64, 32), 1 / 32)
    various = torch.nn.functional.one_hot(torch.arange(64) % 32).float()
    assert collapsed(history(various, varied)) is None
    assert "same prototype" in (collapsed(history(one, varied)) or "")
    assert "mixture" in (collapsed(history(even, varied)) or "")
    assert "are alike (spread 0.0000" in (collapsed(history(various, torch.ones(64, 16))) or "")


def test_a_collapse_at_the_start_that_passes_is_not_reported():
    good = signs(torch.eye(8), torch.eye(8))
    bad = signs(torch.full((8, 8), 1 / 8), torch.ones(8, 8))
    assert collapsed(pd.DataFrame([bad] * 5 + [good] * 15)) is None
    assert collapsed(pd.DataFrame([good] * 15 + [bad] * 5)) is not None


def test_signs_have_the_values_that_they_are_said_to_have():
    even, sure = torch.full((8, 4), 0.25), torch.eye(4).repeat(2, 1)
    cls = torch.randn(4000, 16, generator=random(0))
    assert signs(even, cls) == pytest.approx({"entropy": math.log(4), "mean_entropy": math.log(4), "spread": 1.0}, abs=0.02)
    assert signs(sure, torch.ones(8, 3)) == pytest.approx({"entropy": 0, "mean_entropy": math.log(4), "spread": 0}, abs=1e-6)


@pytest.mark.parametrize("local_crops", [0, 2])
def test_pretraining_by_dino_leaves_the_students_encoder_and_its_signs(study, tmp_path, local_crops: int):
    study = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"local_crops": local_crops})})
    assert isinstance(objective(study), Method)
    table = pretrain(cohort.read(study.cohort, study.endpoints)[:8], study, tmp_path / "e.safetensors", 0)
    assert list(table.columns) == ["epoch", "loss", "entropy", "mean_entropy", "spread"]
    assert np.isfinite(table.to_numpy()).all()
    assert (table.mean_entropy >= table.entropy - 1e-5).all()
    assert (table.mean_entropy <= math.log(16) + 1e-5).all()
    weights, header = load_encoder(tmp_path / "e.safetensors")
    untrained(study).load_state_dict(weights)
    assert header["pretrain"]["method"] == "dino"


def test_one_patient_is_no_batch_to_centre_on_but_a_masked_autoencoder_learns_from_one():
    with pytest.raises(ValueError, match="batch_size must be 2 or more"):
        Pretrain(method="dino", batch_size=1)
    assert Pretrain(method="mae", batch_size=1).batch_size == 1
