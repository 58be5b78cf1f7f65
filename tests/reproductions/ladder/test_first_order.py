"""First-order numbers: IBSI's published ones of its phantom, scipy's of random voxels, and nothing of where a voxel lies."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions.ladder.first_order import BINS, NUMBERS, first_order, first_order_table
from scipy import stats

from mri_vit.data import cohort, tokens
from mri_vit.errors import IntegrityError
from mri_vit.settings.schema import CHANNELS, Study

PHANTOM = np.repeat([1.0, 3.0, 4.0, 6.0], [50, 1, 16, 7])  # the grey levels of IBSI's digital phantom (arXiv:1612.07003, 5.2)
PUBLISHED = {  # the reference values of that phantom, with the three digits that the manual gives
    "mean": 2.15,
    "skewness": 1.08,
    "kurtosis": -0.355,
    "p50": 1.0,
    "min": 1.0,
    "p10": 1.0,
    "p90": 4.0,
    "max": 6.0,
    "iqr": 3.0,
    "range": 5.0,
    "mad": 1.55,
    "rmad": 1.11,
    "medad": 1.15,
    "rms": 2.77,
    "entropy": 1.27,
    "uniformity": 0.512,
}


def of(values: np.ndarray) -> dict[str, float]:
    return {name.removeprefix("t1_"): number for name, number in first_order(values[None], ("t1",)).items()}


def test_the_numbers_of_the_initiatives_phantom_are_those_that_it_published():
    found = of(PHANTOM)
    assert {name: float(f"{found[name]:.3g}") for name in PUBLISHED} == PUBLISHED
    assert round(found["sd"] ** 2, 2) == 3.05  # the manual gives the variance


def test_random_voxels_have_the_numbers_that_scipy_gives_them():
    values = np.random.default_rng(0).gamma(2, 1.5, 4000) - 1
    found = of(values)
    inner = values[(values >= np.percentile(values, 10)) & (values <= np.percentile(values, 90))]
    share = np.bincount(np.minimum((BINS * (values - values.min()) / np.ptp(values)).astype(int), BINS - 1)) / 4000
    expected = {
        "sd": stats.tstd(values, ddof=0),
        "skewness": stats.skew(values),
        "kurtosis": stats.kurtosis(values),
        "iqr": stats.iqr(values),
        "medad": np.mean(np.abs(values - stats.scoreatpercentile(values, 50))),
        "rmad": np.mean(np.abs(inner - inner.mean())),
        "rms": np.linalg.norm(values) / np.sqrt(4000),
        "entropy": stats.entropy(share, base=2),
        "uniformity": share @ share,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-10)


def test_one_value_alone_has_no_spread_and_no_entropy():
    found = of(np.full(20, 3.0))
    assert [found[name] for name in ("sd", "range", "iqr", "mad", "rmad", "medad", "entropy")] == [0.0] * 7
    assert (found["uniformity"], found["rms"]) == (1.0, 3.0)
    assert np.isnan(found["skewness"])


def test_permuted_voxels_have_the_same_numbers_to_the_last_digit():
    generator = np.random.default_rng(1)
    voxels = generator.normal(size=(4, 5000)).astype(np.float32)
    assert first_order(generator.permuted(voxels, axis=1), CHANNELS) == first_order(voxels, CHANNELS)


def test_a_mirrored_patient_has_the_same_numbers_and_another_patient_others(tiny: Study):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:3]
    before = first_order_table(patients, tiny)
    assert set(before) == {f"{channel}_{name}" for channel in CHANNELS for name in NUMBERS}
    for patient in patients:
        file = tiny.prepared / patient.id / "tokens.safetensors"
        dense = tokens.to_volume(tokens.load(file)).astype(np.float32)
        mirrored = dense[:, ::-1].copy()
        assert not np.array_equal(mirrored, dense)
        tokens.save(tokens.from_volume(mirrored, (mirrored != 0).any(axis=0), tiny.grid, "-"), file)
    after = first_order_table(patients, tiny)
    assert after.equals(before)
    assert not before.loc["p00"].equals(before.loc["p01"])


def test_a_sequence_that_was_not_acquired_is_missing():
    voxels = np.random.default_rng(2).normal(size=(2, 50))
    voxels[1] = 0
    found = first_order(voxels, ("t1", "t2"))
    assert all(np.isnan(number) == name.startswith("t2_") for name, number in found.items())


def test_tokens_that_are_gone_name_the_patient(tiny: Study):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:2]
    (tiny.prepared / "p01" / "tokens.safetensors").unlink()
    with pytest.raises(IntegrityError, match="patient p01: no first-order numbers"):
        first_order_table(patients, tiny)
