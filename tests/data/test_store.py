"""The store: wherever patches lie, a draw gives the same batch, which is what it says of the dense volumes."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made.views import flipped, in_memory, loaded
from torch import Tensor

from mri_vit.data import cohort, draw, store, tokens
from mri_vit.data.draw import Draw, stream
from mri_vit.data.store import Held, Read, ahead, token_file
from mri_vit.data.tokens import Tokens
from mri_vit.errors import IntegrityError
from mri_vit.settings.schema import Study

CPU = torch.device("cpu")


def files(study: Study) -> list[Path]:
    return [token_file(study.prepared, patient) for patient in cohort.read(study.cohort, study.endpoints)]


def patients(study: Study) -> list[Tokens]:
    return loaded(cohort.read(study.cohort, study.endpoints), study)


def augmented(study: Study, held: store.Store, chosen: tuple[int, ...], budget: int, mixup: bool = True) -> Draw:
    """A draw with all that can be in one: mirrored, brighter, a scan emptied, filled up with background, mixed."""
    study = study.model_copy(update={"train": study.train.model_copy(update={"modality_dropout": 0.3})})
    parts = []
    for i in chosen:
        random = stream("test", i)
        parts.append(draw.augmented(draw.drawn(i, held.position[i], study, budget, random), study, random))
    drawn = draw.stacked(parts)
    return draw.mixed(drawn, draw.mixing(drawn.row.shape, 1.0, stream("mix"))) if mixup else drawn


def same(a: store.Batch, b: store.Batch) -> bool:
    return torch.equal(a.patches, b.patches) and torch.equal(a.position, b.position) and a.patches.dtype == b.patches.dtype


@pytest.mark.parametrize("budget", [16, 60])
def test_patients_in_memory_and_on_disk_give_the_same_batch_to_the_last_bit(tiny, budget: int):
    held, read = store.held(files(tiny), CPU), Read(files(tiny), CPU)
    for chosen in ((0, 1, 2, 3), (5, 5, 7), (9,)):
        asked = augmented(tiny, held, chosen, budget)
        assert same(held.take(asked), read.take(asked))
        assert same(held.take(asked), in_memory(patients(tiny)).take(asked))
    asked = [((i,), [augmented(tiny, held, (i, i + 1), budget), augmented(tiny, held, (i + 2,), budget)]) for i in range(9)]
    ways = [[(given, copy.deepcopy(batches)) for given, batches in way.each(asked)] for way in (held, read)]
    for (given, batches), (given_then, batches_then) in zip(*ways, strict=True):
        assert given == given_then
        assert all(same(a, b) for a, b in zip(batches, batches_then, strict=True))


def test_a_patients_part_is_the_same_whoever_else_is_in_the_batch(tiny):
    held = store.held(files(tiny), CPU)
    together = held.take(augmented(tiny, held, (3, 8, 4), 16, mixup=False))
    for row, patient in enumerate((3, 8, 4)):
        alone = held.take(augmented(tiny, held, (patient,), 16, mixup=False))
        assert torch.equal(together.patches[row], alone.patches[0])
        assert torch.equal(together.position[row], alone.position[0])


def test_a_mirrored_draw_is_of_the_mirrored_volume(tiny):
    held, whole = store.held(files(tiny), CPU), patients(tiny)[2]
    plain = draw.whole(2, whole.position, tiny, len(whole.position))
    at = draw.mirrored_place(plain.position, tiny.grid.side)
    batch = held.take(replace(plain, position=at, mirrored=np.ones_like(plain.mirrored)))
    again = Tokens(batch.patches[0].numpy(), batch.position[0].numpy().astype(np.int16), tiny.grid, "-")
    np.testing.assert_array_equal(tokens.to_volume(again), tokens.to_volume(flipped(whole)))
    np.testing.assert_array_equal(tokens.to_volume(again), tokens.to_volume(whole)[:, ::-1])


def test_voxels_get_their_scans_gain_and_shift_and_the_background_stays_exactly_zero(tiny):
    held, whole = store.held(files(tiny), CPU), patients(tiny)[0]
    plain = draw.whole(0, whole.position, tiny, len(whole.position))
    gain, shift = np.array([[1.25, 0.5, 0.0, 2.0], [0.5, -0.25, 0.0, 0.125]], np.float32)
    found = held.take(replace(plain, gain=plain.gain * gain, shift=plain.shift + shift)).patches[0].numpy()
    x = whole.patches.reshape(len(whole.position), 4, -1).astype(np.float32)
    expected = np.where(x == 0, 0, x * gain[:, None] + shift[:, None])
    np.testing.assert_allclose(found.reshape(x.shape), expected, rtol=2e-3, atol=1e-4)  # half precision keeps 11 bits
    assert (x == 0).any()
    assert not found.reshape(x.shape)[x == 0].any()
    assert not found.reshape(x.shape)[:, 2].any()


def test_stored_patches_do_not_change_when_a_batch_does(tiny):
    held = store.held(files(tiny), CPU)
    plain = draw.whole(0, held.position[0], tiny, len(held.position[0]))
    before = held.take(plain).patches.clone()
    held.take(plain).patches.add_(1)
    held.take(augmented(tiny, held, (0, 1), 16))
    assert torch.equal(held.take(plain).patches, before)


def test_whom_a_batch_fills_up_with_none_is_marked(tiny):
    held = store.held(files(tiny), CPU)
    few = len(held.position[0])
    batch = held.take(draw.stacked([draw.whole(i, held.position[i], tiny, 64) for i in (0, 1)]))
    assert batch.present is not None
    assert batch.present[0].tolist() == [True] * few + [False] * (64 - few)
    assert not batch.patches[0, few:].any()
    assert held.take(draw.whole(0, held.position[0], tiny, few)).present is None


def test_a_cohort_is_held_where_it_fits_and_read_where_it_does_not(tiny, monkeypatch):
    assert isinstance(store.store(files(tiny), CPU), Held)
    size = sum(file.stat().st_size for file in files(tiny))
    monkeypatch.setattr(store, "free_memory", lambda: round((size - 1) / store.CPU_SHARE))
    assert isinstance(store.store(files(tiny), CPU), Read)


@pytest.mark.parametrize("way", [store.held, Read], ids=["held", "read"])
def test_a_damaged_patient_is_named(tiny, way):
    wrong = files(tiny)[3]
    wrong.write_bytes(wrong.read_bytes()[:-7])
    with pytest.raises(IntegrityError, match=str(wrong)):
        way(files(tiny), CPU)


def test_a_patient_damaged_while_others_are_read_is_named(tiny):
    read, wrong = Read(files(tiny), CPU), files(tiny)[3]
    wrong.write_bytes(wrong.read_bytes()[:-7])
    asked = ((i, [draw.whole(i, read.position[i], tiny, 64)]) for i in range(6))
    with pytest.raises(IntegrityError, match=str(wrong)):
        list(read.each(asked))


def test_what_is_worked_out_ahead_comes_in_order_and_before_it_is_asked_for():
    started: list[int] = []

    def slow_first(item: int) -> int:
        started.append(item)
        time.sleep(0.05 if item == 0 else 0)
        return 10 * item

    results = ahead(slow_first, iter(range(20)))
    assert next(results) == 0
    assert len(started) <= store.PREFETCHED_BATCHES + 1  # no more are held than that
    assert list(results) == [10 * item for item in range(1, 20)]


def test_reading_overlaps_with_whoever_uses_what_was_read():
    arrived = threading.Event()

    def work(item: int) -> int:
        if item == 1:
            arrived.set()
        return item

    results: Iterator[int] = ahead(work, range(3))
    assert next(results) == 0
    assert arrived.wait(5)  # the next one is worked on although nobody has asked for it


def test_what_was_sent_is_what_was_given():
    sent: Tensor = store.sent(np.arange(6).reshape(2, 3)[:, ::-1], CPU)
    assert sent.tolist() == [[2, 1, 0], [5, 4, 3]]
