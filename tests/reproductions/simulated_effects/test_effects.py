"""The cohort of hidden causes: each is there, and changes nothing that a histogram shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reproductions.simulated_effects import effects
from reproductions.simulated_effects.effects import (
    BLUR_MM,
    ENHANCING,
    GRAIN,
    LATTICE_MM,
    PREVAILS,
    SIGNAL,
    Hidden,
    Tumour,
    draw_cases,
    grown,
)
from scipy.ndimage import gaussian_filter, label

PLAIN = replace(draw_cases(1, np.random.default_rng(0))[0], centre_mm=(30.0, -30.0, 25.0), volume_mm3=20_000.0)
PLAIN = replace(PLAIN, texture=False, mismatch=False, inward=False, border=False, foci=False)
CAUSES = ("texture", "mismatch", "inward", "border", "foci")


def of(case: Hidden, seed: int = 0) -> Tumour:
    return grown(case, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def plain() -> Tumour:
    return of(PLAIN)


@pytest.fixture(scope="module", params=CAUSES)
def changed(request: pytest.FixtureRequest) -> Tumour:
    return of(replace(PLAIN, **{request.param: True}))


def test_no_cause_changes_a_tumours_volume_its_bright_halves_or_how_much_takes_up_contrast(plain: Tumour, changed: Tumour):
    for tumour in (plain, changed):
        inside = tumour.share > 0.5
        assert inside.sum() * LATTICE_MM**3 == pytest.approx(PLAIN.volume_mm3, rel=1e-3)
        assert (tumour.signal["t1ce"][inside] > SIGNAL["t1ce"]).mean() == pytest.approx(ENHANCING, abs=1e-3)
        for channel in ("t2", "flair"):
            assert set(np.unique(tumour.signal[channel])) == set(SIGNAL[channel])
            assert (tumour.signal[channel][inside] == max(SIGNAL[channel])).mean() == pytest.approx(0.5, abs=1e-3)


def test_t1_inside_has_the_same_mean_and_as_blurred_by_a_scan_the_same_spread_with_either_grain(plain: Tumour, changed: Tumour):
    for tumour in (plain, changed):
        inside = tumour.share > 0.5
        assert tumour.signal["t1"][inside].mean() == pytest.approx(SIGNAL["t1"], abs=1e-6)
        assert gaussian_filter(tumour.signal["t1"], BLUR_MM / LATTICE_MM)[inside].std() == pytest.approx(GRAIN, rel=1e-3)


def test_a_coarse_grain_reaches_further_than_a_fine_one(plain: Tumour):
    coarse = of(replace(PLAIN, texture=True))

    def alike(tumour: Tumour, lag: int) -> float:
        inside = tumour.share > 0.5
        both = inside[lag:] & inside[:-lag]
        return float(np.corrcoef(tumour.signal["t1"][lag:][both], tumour.signal["t1"][:-lag][both])[0, 1])

    assert alike(coarse, 3) > 0.5 > 0.3 > alike(plain, 3)  # over 4.5 mm


def test_a_mismatch_turns_flair_round_and_leaves_every_other_scan(plain: Tumour):
    mismatched = of(replace(PLAIN, mismatch=True))
    for channel in ("t1", "t1ce", "t2"):
        np.testing.assert_array_equal(mismatched.signal[channel], plain.signal[channel])
    bright = {name: tumour.signal["flair"] == max(SIGNAL["flair"]) for name, tumour in (("no", plain), ("yes", mismatched))}
    np.testing.assert_array_equal(bright["yes"], ~bright["no"])


def test_most_of_a_tumour_shows_whether_it_has_a_mismatch_and_the_rest_the_opposite(plain: Tumour):
    share = PREVAILS["mismatch"]
    for tumour, agreeing in ((plain, share), (of(replace(PLAIN, mismatch=True)), 1 - share)):
        inside = tumour.share > 0.5
        bright = [tumour.signal[name][inside] == max(SIGNAL[name]) for name in ("t2", "flair")]
        assert (bright[0] == bright[1]).mean() == pytest.approx(agreeing, abs=1e-3)


@pytest.mark.parametrize("side", [-1, 1])
def test_contrast_lies_towards_the_middle_of_the_brain_or_away_from_it_on_either_side(side: int):
    here = replace(PLAIN, centre_mm=(side * 30.0, -30.0, 25.0))
    for inward, sign in ((True, -1), (False, 1)):
        tumour = of(replace(here, inward=inward))
        across = np.argwhere(tumour.share > 0.5)[:, 0].mean()
        enhancing = np.argwhere((tumour.share > 0.5) & (tumour.signal["t1ce"] > SIGNAL["t1ce"]))[:, 0].mean()
        assert sign * side * (enhancing - across) * LATTICE_MM > 1


def test_three_foci_that_lie_apart_are_three_and_run_together_one(plain: Tumour):
    def large(tumour: Tumour) -> int:
        found: Any = label(tumour.share > 0.5)
        sizes = np.bincount(found[0].ravel())[1:]
        return int((sizes * LATTICE_MM**3 > 1000).sum())

    assert large(plain) == 1
    assert large(of(replace(PLAIN, foci=True))) == 3


def faces(tumour: Tumour) -> int:
    inside = tumour.share > 0.5
    return sum(int(np.diff(inside, axis=axis).sum()) for axis in range(3))


def test_three_foci_have_about_as_much_surface_apart_as_run_together(plain: Tumour):
    assert faces(of(replace(PLAIN, foci=True))) == pytest.approx(faces(plain), rel=0.15)


def corners(tumour: Tumour) -> int:
    inside = tumour.share > 0.5
    return int((inside != (gaussian_filter(inside.astype(float), 1) > 0.5)).sum())


def test_an_irregular_border_has_more_surface_and_more_corners_which_foci_have_not(plain: Tumour):
    irregular = of(replace(PLAIN, border=True))
    assert faces(irregular) > 1.15 * faces(plain)
    assert corners(irregular) > 2 * corners(plain)
    assert corners(of(replace(PLAIN, foci=True))) < 1.2 * corners(plain)


def test_every_label_is_its_cause_and_a_coin_apart_from_all_others():
    cases = draw_cases(600, np.random.default_rng(1))
    labels = {name: np.array([float(case.labels[name]) for case in cases]) for name in effects.LABELS}
    for name in CAUSES:
        assert (labels[name] == [getattr(case, name) for case in cases]).all()
    assert (labels["side"] == [case.centre_mm[0] < 0 for case in cases]).all()
    assert (labels["interaction"] == (labels["mismatch"] == labels["side"])).all()
    at_b = np.array([case.site == "B" for case in cases])
    assert 0.8 < (labels["scanner"] == at_b).mean() < 0.9
    others = [[case.volume_mm3 for case in cases], [float(case.age) for case in cases]]
    table = np.corrcoef(np.array([*(values.tolist() for values in labels.values()), *others]))
    assert abs(table - np.eye(len(table))).max() < 0.14  # 3.4 standard errors of a correlation of nothing


def test_the_last_patients_have_no_label_and_are_otherwise_the_same():
    some, all_of_them = (draw_cases(6, np.random.default_rng(2), unlabelled) for unlabelled in (2, 0))
    assert [set(case.labels.values()) == {""} for case in some] == [False] * 4 + [True] * 2
    assert [replace(case, labels={}) for case in some] == [replace(case, labels={}) for case in all_of_them]


def test_scans_hold_the_tumour_where_the_truth_has_it_and_one_site_has_more_noise():
    scans, truth = effects.scan(replace(PLAIN, site="A"), np.random.default_rng(3))
    noisy, _ = effects.scan(replace(PLAIN, site="B"), np.random.default_rng(3))
    assert truth.array.sum() * abs(np.linalg.det(truth.affine[:3, :3])) == pytest.approx(PLAIN.volume_mm3, rel=0.1)
    t1ce = scans["t1ce"].array
    assert np.percentile(t1ce[truth.array > 0], 95) > 1.3 * np.percentile(t1ce[(truth.array == 0) & (t1ce > 0)], 50)

    def unlike_neighbours(array: np.ndarray) -> float:
        inside = (array[1:] > 1) & (array[:-1] > 1)
        return float(np.diff(array.astype(float), axis=0)[inside].std() / array[array > 1].mean())

    assert unlike_neighbours(noisy["flair"].array) > 1.15 * unlike_neighbours(scans["flair"].array)
