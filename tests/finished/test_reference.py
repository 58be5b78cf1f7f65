"""At most one in twenty patients like the run's is flagged over all figures together, and one who is not like them is."""

import numpy as np
import pytest

from mri_vit.finished import reference as distribution
from mri_vit.finished.reference import Cloud, Figures, Name, Reference

SCANS = ("t1", "t1ce", "t2", "flair")
PLACES = [(0, 0), (0, 1), (0, 2)]


def patient(generator: np.random.Generator, brain_ml: float = 1300.0, snr: float = 15.0) -> Figures:
    """Figures with tails of several kinds."""
    value: dict[Name, float | None] = {
        Name("brain_ml", ""): float(brain_ml * np.exp(0.1 * generator.normal())),
        Name("tokens", ""): float(700 + 20 * generator.standard_t(3)),
        Name("fluid_contrast", ""): None if generator.random() < 0.2 else float(generator.normal(4, 1)),
        **{Name("signal_to_noise", scan): float(snr * np.exp(0.15 * generator.normal())) for scan in SCANS},
        **{Name("contrast", scan): float(generator.gamma(4) / 20) for scan in SCANS},
    }
    return Figures(value, {scan: np.sort(generator.normal(size=25)).tolist() for scan in SCANS})


def reference(generator: np.random.Generator, n: int) -> Reference:
    clouds = {position: Cloud(np.zeros(8), np.eye(8)) for position in PLACES}
    distance = clouds[0, 0].log_distance(generator.normal(size=(n, 8)))
    return Reference([patient(generator) for _ in range(n)], distance, clouds)


def features(generator: np.random.Generator, scale: float = 1.0) -> dict[tuple[int, int], np.ndarray]:
    return {position: scale * generator.normal(size=8) for position in PLACES}


@pytest.mark.parametrize("n", [19, 60])
def test_at_most_one_in_twenty_patients_like_the_runs_is_flagged(n: int):
    generator = np.random.default_rng(n)
    draws = 300
    found = [distribution.distribution_of(patient(generator), features(generator), reference(generator, n)) for _ in range(draws)]
    share = np.mean([one.placement == "outside" for one in found])
    assert share <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)
    assert share >= 0.005, "flags somebody, so that the bound is no empty one"
    assert all((one.p <= 0.05) == (one.placement == "outside") for one in found)


def test_who_is_unlike_the_run_is_flagged_and_the_figure_is_named_first():
    generator = np.random.default_rng(0)
    known = reference(generator, 60)
    small = distribution.distribution_of(patient(generator, brain_ml=400.0), features(generator), known)
    noisy = distribution.distribution_of(patient(generator, snr=3.0), features(generator), known)
    strange = distribution.distribution_of(patient(generator), features(generator, 20.0), known)
    for one, name in ((small, "brain_ml"), (noisy, "signal_to_noise"), (strange, "features")):
        assert one.placement == "outside"
        assert one.figures[0].name == name
        assert one.figures[0].sentence in one.sentence
        assert [f.is_outside for f in one.figures] == [f.beyond > one.limit for f in one.figures]
        assert [f.beyond for f in one.figures] == sorted((f.beyond for f in one.figures), reverse=True)
    assert "brain volume is" in small.sentence


def test_what_the_patient_or_most_of_the_run_lack_is_left_out():
    generator = np.random.default_rng(0)
    known = reference(generator, 40)
    new = patient(generator)
    lacking = Figures(new.value | {Name("brain_ml", ""): None, Name("likeness", "t1"): 0.5}, {"t1": new.quantiles["t1"]})
    found = distribution.distribution_of(lacking, {}, known)
    names = {(one.name, one.scan) for one in found.figures}
    assert not names & {("brain_ml", ""), ("likeness", "t1"), ("histogram", "t2"), ("features", "")}
    assert ("histogram", "t1") in names


def test_without_patients_enough_or_a_reference_nothing_is_claimed():
    generator = np.random.default_rng(0)
    for known, said in ((reference(generator, 18), "18 patients; 19 are needed"), ("they are gone", "they are gone")):
        found = distribution.distribution_of(patient(generator), features(generator), known)
        assert found.placement == "not known"
        assert said in found.sentence
        assert not found.figures
