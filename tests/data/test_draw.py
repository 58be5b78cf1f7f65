"""Draws: which tokens, mirrored or not, how bright, and that a patient's part hangs on nobody else."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples

from mri_vit.data import draw
from mri_vit.data.draw import Draw, stream
from mri_vit.settings.schema import Study

PLACE = np.arange(3, 43, dtype=np.int16)  # 40 of the tiny grid's 64 places


def changed(study: Study, tokens: str = "foreground", **train: object) -> Study:
    model = study.model.model_copy(update={"tokens": tokens})
    return study.model_copy(update={"model": model, "train": study.train.model_copy(update=train)})


def equal(a: Draw, b: Draw) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(Draw))


def test_a_stream_hangs_on_its_whole_name_alone():
    assert stream(0, "batch", 3, "p1").random(4).tolist() == stream(0, "batch", 3, "p1").random(4).tolist()
    names = [(0, "batch", 3, "p1"), (1, "batch", 3, "p1"), (0, "batch", 4, "p1"), (0, "batch", 3, "p2"), (0, "batch", 31, "p")]
    assert len({tuple(stream(*name).random(4).tolist()) for name in names}) == len(names)


def test_streams_of_neighbouring_names_are_not_correlated():
    drawn = np.stack([stream(0, "batch", epoch, "p1").standard_normal(2000) for epoch in range(20)])
    assert np.abs(np.corrcoef(drawn) - np.eye(20)).max() < 5 / math.sqrt(2000)


def test_tokens_are_drawn_to_the_budget_without_repeats_and_filled_up_with_background(tiny):
    found = draw.drawn(7, PLACE, changed(tiny), 16, stream("a"))
    assert found.row.shape == (1, 16)
    assert len(set(found.position[0].tolist())) == 16
    assert np.array_equal(PLACE[found.row], found.position)
    assert set(found.patient.flatten().tolist()) == {7}
    found = draw.drawn(7, PLACE, changed(tiny), 60, stream("a"))
    assert len(set(found.position[0].tolist())) == 60
    background = ~np.isin(found.position, PLACE)
    assert background.sum() == 20
    assert (found.row[background] == draw.EMPTY_ROW).all()
    assert np.array_equal(PLACE[found.row[~background]], found.position[~background])


def test_all_tokens_are_the_foreground_ones_on_an_empty_grid(tiny):
    found = draw.whole(0, PLACE, changed(tiny, "all"), 64)
    assert found.position[0].tolist() == list(range(64))
    assert found.row[0].tolist() == [i - 3 if 3 <= i < 43 else draw.EMPTY_ROW for i in range(64)]


def test_a_patient_with_fewer_tokens_is_filled_up_with_none(tiny):
    found = draw.whole(0, PLACE, changed(tiny), 50)
    assert found.position[0].tolist() == [*range(3, 43), *[draw.NO_POSITION] * 10]
    assert (found.row[0, 40:] == draw.EMPTY_ROW).all()


def test_half_of_the_patients_are_mirrored_whole_and_none_where_mirroring_is_off(tiny):
    plain = draw.plain(0, np.arange(40), PLACE.astype(np.int64), 4)
    found = [draw.augmented(plain, changed(tiny, flip_lr=True), stream("m", i)) for i in range(400)]
    assert all(one.mirrored.all() or not one.mirrored.any() for one in found)
    assert np.mean([one.mirrored.all() for one in found]) == pytest.approx(0.5, abs=5 * 0.5 / 20)
    side = tiny.grid.side
    for one in found[:20]:
        i, rest = np.divmod(one.position, side * side)
        there = (side - 1 - i) * side * side + rest if one.mirrored.all() else one.position
        assert np.array_equal(there, plain.position)
    assert not any(draw.augmented(plain, changed(tiny, flip_lr=False), stream("m", i)).mirrored.any() for i in range(50))


def test_gain_and_shift_are_one_for_each_scan_with_the_spread_of_the_setting(tiny):
    plain = draw.plain(0, np.arange(40), PLACE.astype(np.int64), 4)
    found = [draw.augmented(plain, changed(tiny, intensity_jitter=0.2), stream("g", i)) for i in range(1000)]
    assert all((one.gain == one.gain[:, :1]).all() and (one.shift == one.shift[:, :1]).all() for one in found)
    gains, shifts = np.stack([one.gain[0, 0] for one in found]), np.stack([one.shift[0, 0] for one in found])
    for values, mean in ((gains, 1.0), (shifts, 0.0)):
        assert np.allclose(values.mean(axis=0), mean, atol=5 * 0.2 / math.sqrt(1000))
        assert np.allclose(values.std(axis=0), 0.2, atol=5 * 0.2 / math.sqrt(2000))
    assert abs(np.corrcoef(gains[:, 0], shifts[:, 0])[0, 1]) < 5 / math.sqrt(1000)


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 0.99])
def test_scans_are_emptied_whole_by_chance_and_never_all_of_a_patient(chance: float):
    kept = np.stack([draw.kept_scans(4, chance, stream("s", i)) for i in range(1500)])
    assert kept.any(axis=1).all()
    error = math.sqrt(chance * (1 - chance) / 6000)
    assert (~kept).mean() == pytest.approx(0.75 * chance, abs=5 * error)  # one of four is spared
    assert np.abs(kept.mean(axis=0) - kept.mean()).max() < 0.06  # whichever it is


def test_an_emptied_scan_has_neither_gain_nor_shift(tiny):
    plain = draw.plain(0, np.arange(40), PLACE.astype(np.int64), 4)
    found = draw.augmented(plain, changed(tiny, modality_dropout=0.9, intensity_jitter=0.2), stream("e"))
    emptied = found.gain[0, 0] == 0
    assert 0 < emptied.sum() < 4
    assert (found.shift[0, 0] == 0).tolist() == emptied.tolist()


@given(seed=st.integers(0, 1000), alpha=st.floats(0.05, 8), batch=st.integers(1, 5))
@examples(40)
def test_mixed_tokens_keep_their_places_and_are_a_patients_own_by_the_share(seed: int, alpha: float, batch: int):
    random = np.random.default_rng(seed)
    parts = [draw.plain(i, np.arange(2000), random.permutation(4096)[:2000], 4) for i in range(batch)]
    before = draw.stacked(parts)
    mix = draw.mixing((batch, 2000), alpha, stream(seed))
    after = draw.mixed(before, mix)
    assert sorted(mix.partner.tolist()) == list(range(batch))
    assert 0 <= mix.share <= 1
    for i in range(batch):
        own = after.patient[i] == i
        assert ((after.patient[i] == mix.partner[i]) | own).all()
        assert np.array_equal(after.position[i], before.position[after.patient[i], np.arange(2000)])
        if mix.partner[i] != i:
            error = math.sqrt(mix.share * (1 - mix.share) / 2000)
            assert abs(own.mean() - mix.share) <= 5 * error + 1e-9


def test_what_is_split_and_put_together_again_is_as_it_was(tiny):
    found = draw.stacked([draw.drawn(i, PLACE, changed(tiny), 16, stream(i)) for i in range(3)])
    first, rest = draw.split(found, 5)
    assert first.row.shape == (3, 5)
    joined = Draw(*(np.concatenate([getattr(part, f.name) for part in (first, rest)], axis=1) for f in fields(Draw)))
    assert equal(joined, found)
