"""Attention against a tumour: what is kept, how far it overlaps, what chance gives, and which head is chosen by whom."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from reproductions.segmentation import overlap
from reproductions.segmentation.overlap import (
    CHANCE,
    MASS,
    MOST,
    Subject,
    by_chance,
    chosen_heads,
    halves,
    heaviest,
    jaccard,
    judged,
    largest,
    lines,
    paired,
    values,
)

from mri_vit.metrics.comparison import holm

PLACES, TUMOUR = 40, 10


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def tumour(first: int = 0) -> np.ndarray:
    return np.isin(np.arange(PLACES), np.arange(first, first + TUMOUR))


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=30), seed=st.integers(0, 9))
@examples(100)
def test_the_fewest_places_are_kept_that_hold_sixty_per_cent(values: list[float], seed: int):
    attention = np.array(values) + 1e-3
    kept = heaviest(attention, MASS, random(seed))
    held, total = attention[kept].sum(), attention.sum()
    assert held >= MASS * total - 1e-6
    assert held - attention[kept].min() < MASS * total + 1e-6  # without the lightest of them they hold less
    assert attention[kept].min() >= attention[~kept].max(initial=0)


def test_the_places_kept_are_those_of_the_papers_code():
    for seed in range(20):
        attention = random(seed).gamma(0.3, size=PLACES).astype(np.float32)
        ascending = np.argsort(attention)  # visualize_attention.py: sort, cumulate, keep what lies above 1 - threshold
        above = np.cumsum(attention[ascending] / attention.sum()) > 1 - MASS
        np.testing.assert_array_equal(np.flatnonzero(heaviest(attention, MASS, random())), np.sort(ascending[above]))


@pytest.mark.parametrize("scale", [1e-6, 3.0, 1e6])
def test_what_is_kept_does_not_hang_on_the_scale_of_attention(scale: float):
    attention = random(1).gamma(0.5, size=PLACES)
    np.testing.assert_array_equal(heaviest(attention, MASS, random()), heaviest(scale * attention, MASS, random()))


def test_a_map_without_attention_is_refused():
    with pytest.raises(ValueError, match=r"a sum of 0\.0"):
        heaviest(np.zeros(4), MASS, random())


def test_attention_that_is_the_tumours_share_has_an_index_of_one():
    """By as many places as the tumour has; the places that hold 60 % of an even map are 60 % of the tumour's, and no more."""
    share = np.where(tumour(), random().uniform(0.6, 1, PLACES), 0)
    assert jaccard(largest(share, TUMOUR, random()), tumour()) == 1
    assert jaccard(heaviest(share, 1.0, random()), tumour()) == 1
    even = tumour().astype(float)
    assert jaccard(heaviest(even, MASS, random()), tumour()) == math.ceil(MASS * TUMOUR) / TUMOUR


def test_attention_beside_the_tumour_has_an_index_of_zero():
    assert jaccard(heaviest(tumour(20).astype(float), MASS, random()), tumour()) == 0
    assert math.isnan(jaccard(np.zeros(3, bool), np.zeros(3, bool)))


def test_even_attention_has_the_index_that_counting_gives():
    found = [heaviest(np.ones(PLACES), MASS, random(seed)) for seed in range(3000)]
    kept = math.ceil(MASS * PLACES)
    assert {int(one.sum()) for one in found} == {kept}
    counted = np.mean([jaccard(one, tumour()) for one in found])
    assert counted == pytest.approx(by_chance(PLACES, TUMOUR, kept), abs=0.003)
    whole = np.ones(PLACES, bool)
    assert jaccard(found[0], whole) == kept / PLACES == by_chance(PLACES, PLACES, kept)


def test_chance_is_the_mean_over_every_set_of_so_many_places():
    positions, inside, kept = 6, 2, 3
    sets = [np.array([bits >> i & 1 for i in range(positions)], bool) for bits in range(2**positions) if bits.bit_count() == kept]
    wanted = np.mean([jaccard(one, np.arange(positions) < inside) for one in sets])
    assert by_chance(positions, inside, kept) == pytest.approx(wanted, rel=1e-12)


def subjects(count: int) -> list[Subject]:
    return [
        Subject(f"demo-{i:02d}", tumour(i % 5), {"flair": random(i).normal(size=PLACES) + 3 * tumour(i % 5)})
        for i in range(count)
    ]


def table_of(names: dict[str, float], count: int = 12, starts: int = 3) -> pd.DataFrame:
    """Two heads each: one that attends to the tumour as strongly as is told, and one that attends at random."""
    parts, people = [], subjects(count)
    for number, (name, strength) in enumerate(names.items()):
        for start in range(starts):
            noise = random(100 * number + start)
            maps = [np.stack([noise.gamma(1, size=PLACES) + on * one.tumour for on in (0, strength)]) for one in people]
            parts.append(judged(name, start, maps, people, 0))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return table_of({"random": 0.0, "supervised": 0.0, "dino": 20.0})


def test_a_row_tells_what_equally_many_other_places_would_reach(table):
    row = table[(table.encoder == "dino") & (table["head"] == 1) & (table.rule == "mass")].iloc[0]
    assert row[CHANCE] == by_chance(PLACES, TUMOUR, int(row.kept))
    assert row[MOST] == min(row.kept, TUMOUR) / max(row.kept, TUMOUR)
    sized = table[table.rule == "size"]
    assert (sized.kept == sized.tumour).all()
    assert (sized[MOST] == 1).all()
    assert (table.jaccard <= table[MOST] + 1e-12).all()


def test_a_head_is_chosen_by_the_other_half_alone():
    second = halves(10, 0)
    assert second.sum() == 5
    index = random().uniform(size=(4, 10))
    heads = chosen_heads(index, second)
    for half in (second, ~second):
        (head,) = set(heads[half].tolist())
        assert head == index[:, ~half].mean(axis=1).argmax()
        changed = np.where(half, random(1).uniform(size=(4, 10)) * 100, index)  # whatever the judged half's own indices are
        assert set(chosen_heads(changed, second)[half].tolist()) == {head}


def test_the_head_of_the_same_patients_and_of_each_patient_flatter(table):
    for name in ("random", "dino"):
        here = values(table, name, "mass", 0)
        assert here.own.mean() >= here.same.mean() >= here.chosen.mean()
    assert values(table, "random", "mass", 0).own.mean() > values(table, "random", "mass", 0).chosen.mean()
    assert set(values(table, "dino", "mass", 0).heads.ravel().tolist()) == {1}


def test_picking_among_heads_that_know_nothing_gains_nothing_where_others_choose():
    """Chance is what it is said to be: over many patients the chosen head of random maps has the index of random places."""
    here = values(table_of({"random": 0.0}, count=400, starts=2), "random", "size", 0)
    assert here.chosen.mean() == pytest.approx(here.others[CHANCE].mean(), abs=0.01)
    assert here.own.mean() > here.others[CHANCE].mean() + 0.02


def test_a_lines_figures_are_those_of_the_table(table):
    line = next(one for one in lines(table, 0) if (one.encoder, one.rule) == ("dino", "mass"))
    rows = table[(table.encoder == "dino") & (table.rule == "mass") & (table["head"] == 1)]
    assert line.chosen.value == pytest.approx(rows.jaccard.mean())
    assert line.chosen.low < line.chosen.value < line.chosen.high
    assert line.others["flair"].value == pytest.approx(rows.flair.mean())
    assert line.share == pytest.approx(rows.kept.mean() / PLACES)
    assert line.starts == 3


def test_what_differs_is_found_and_what_does_not_is_not(table):
    found = {(test.one, test.other): test for test in paired(table, 0) if test.rule == "mass"}
    assert set(found) == {
        ("supervised", "random"), ("dino", "random"), ("dino", "supervised"),
        *((name, other) for name in ("random", "supervised", "dino") for other in (CHANCE, "flair")),
    }  # fmt: skip
    assert found["dino", "random"].difference > 0
    assert found["dino", "random"].p_adjusted < 0.001
    assert found["supervised", "random"].p_adjusted > 0.05
    assert found["dino", CHANCE].p_adjusted < 0.001
    adjusted = holm(np.array([test.p for test in found.values()]))
    assert [test.p_adjusted for test in found.values()] == pytest.approx(adjusted.tolist())


def test_a_difference_is_paired_by_patient_and_start(table):
    test = next(one for one in paired(table, 0) if (one.one, one.other, one.rule) == ("dino", "random", "mass"))
    ours, theirs = (values(table, name, "mass", 0).chosen for name in ("dino", "random"))
    assert test.difference == pytest.approx((ours - theirs).mean())
    assert test.high - test.difference == pytest.approx(test.difference - test.low)
    assert overlap.mean(ours).value == pytest.approx(ours.mean())


def test_patients_are_matched_by_name_in_whatever_order_rows_come(table):
    mixed = table.sample(frac=1, random_state=0)
    ordered = pd.concat([mixed[mixed.encoder == name] for name in table.encoder.unique()])  # names in their order
    again, before = ([(test.one, test.other, test.difference, test.p) for test in paired(one, 0)] for one in (ordered, table))
    assert [one[:2] for one in again] == [one[:2] for one in before]
    assert [one[2:] for one in again] == [pytest.approx(one[2:], nan_ok=True) for one in before]
