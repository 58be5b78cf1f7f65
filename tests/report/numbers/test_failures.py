"""The worst patients: who they are by the errors of all, and what they have in common where that was planted, and only there."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made.metrics import part
from made.run import make_run
from scipy.stats import fisher_exact

from mri_vit.report.numbers import patients
from mri_vit.report.reading import run as reading
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import Worst
from mri_vit.report.schema.patients import Association, Patient
from mri_vit.report.words import run_facts


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return reading.read_run(make_run(tmp_path_factory.mktemp("runs") / "made", models=("vit",)))


@pytest.fixture(scope="module")
def people(run) -> tuple[Patient, ...]:
    return patients.measure(run, {one.name: "vit" for one in run.study.endpoints})


def made(count: int, **traits) -> list[Patient]:
    """Patients p0, p1, … of falling error."""
    return [
        part(
            Patient,
            {
                "patient": f"p{place}",
                "endpoints": {"mgmt": {"error": 1 - place / count, "rank": 0.9, "pairs": 20, "wrong": 1.0}},
                **{name: value(place) for name, value in traits.items()},
            },
        )
        for place in range(count)
    ]


def test_the_worst_are_those_of_the_largest_errors(people):
    for name in ("mgmt", "os"):
        found = patients.measure_failures(people, {name: "vit"}, 0)[name]
        errors = {one.patient: one.endpoints[name].error for one in people if one.endpoints[name].pairs >= 5}
        assert len(found.patients) == 10
        assert found.ranked == len(errors)
        least = min(errors[patient] for patient in found.patients)
        assert [errors[patient] for patient in found.patients] == sorted((errors[p] for p in found.patients), reverse=True)
        assert all(error <= least for patient, error in errors.items() if patient not in found.patients)


def test_who_was_censored_early_is_not_among_the_worst(run, people):
    early = [one.patient for one in people if 0 < one.endpoints["os"].pairs < patients.MIN_PAIRS]
    assert early  # some are in a pair or two, where one wrong pair is an error of 1
    assert not {one.patient for one in patients.ranked(people, "os")} & set(early)


def test_of_few_patients_a_quarter_are_worst():
    assert patients.measure_failures(made(12), {"mgmt": "vit"}, 0)["mgmt"].patients == ("p0", "p1", "p2")
    assert patients.measure_failures(made(3), {"mgmt": "vit"}, 0) == {}


def test_who_is_wrong_in_no_pair_is_not_among_the_worst():
    right = [
        one.model_copy(update={"endpoints": {"mgmt": one.endpoints["mgmt"].model_copy(update={"error": 0.0, "wrong": 0.0})}})
        for one in made(60)[4:]
    ]
    assert patients.measure_failures([*made(60)[:4], *right], {"mgmt": "vit"}, 0)["mgmt"].patients == ("p0", "p1", "p2", "p3")


def test_an_endpoint_without_a_label_has_no_worst(people):
    assert "tertp" not in patients.measure_failures(people, {"mgmt": "vit", "tertp": "vit"}, 0)


def test_a_planted_finding_is_told_by_fishers_test():
    found = patients.measure_failures(
        made(60, findings=lambda place: ("noise",) if place < 8 or place == 30 else ()), {"mgmt": "vit"}, 0
    )
    (test,) = found["mgmt"].associations
    assert (test.trait, test.of_worst, test.of_others, test.apart) == ("finding", 0.8, 0.02, True)
    assert test.p == pytest.approx(fisher_exact([[8, 1], [2, 49]])[1])
    said = run_facts.failures_sentence(found["mgmt"], "better")
    assert (
        "The 10 worst differ from the other 50 in findings of quality control (8 of 10 against 1 of 50, adjusted p < 0.001)"
        in said
    )


def test_planted_sites_and_volumes_are_told_and_adjusted_for_each_other():
    traits = {"site": lambda place: "North" if place < 10 else "South", "brain_ml": lambda place: 1500.0 - place}
    found = patients.measure_failures(made(60, **traits), {"mgmt": "vit"}, 0)["mgmt"]
    assert [(test.trait, test.level, test.apart) for test in found.associations] == [
        ("site", "North", True),
        ("brain_ml", "", True),
    ]
    assert all(test.p_adjusted >= test.p for test in found.associations)


def test_traits_that_go_with_nothing_are_told_apart_in_one_cohort_of_twenty_at_most():
    generator = np.random.default_rng(0)
    told = 0
    for _ in range(200):
        flags, site, volume = generator.random(60) < 0.3, generator.choice(["N", "S", "W"], 60), generator.normal(size=60)
        people = made(
            60,
            findings=lambda place, flags=flags: ("noise",) if flags[place] else (),
            site=lambda place, site=site: str(site[place]),
            brain_ml=lambda place, volume=volume: float(volume[place]),
        )
        told += any(test.apart for test in patients.measure_failures(people, {"mgmt": "vit"}, 0)["mgmt"].associations)
    assert told <= 20  # 5 % of 200, and three standard deviations


def test_the_sentence_claims_nothing_where_nothing_is_told_apart():
    test = part(
        Association, {"trait": "finding", "worst": 10, "others": 72, "of_worst": 0.1, "of_others": 0.0, "p_adjusted": 0.24}
    )
    worst = Worst("vit", tuple(f"p{n}" for n in range(10)), 82, (test,))
    said = run_facts.failures_sentence(worst, "better")
    assert said.startswith("There is no evidence that the 10 worst differ from the other 72")
    assert "findings of quality control (1 of 10 against 0 of 72, adjusted p = 0.24)" in said
    assert run_facts.failures_sentence(worst, "chance").startswith("There is no evidence that the model beats chance")
    assert "no quality finding, site or volume" in run_facts.failures_sentence(replace(worst, associations=()), "better")


def test_a_volume_that_few_have_says_in_how_many(run):
    test = part(
        Association, {"trait": "tumour_share", "worst": 3, "others": 20, "of_worst": 0.05, "of_others": 0.04, "p_adjusted": 1.0}
    )
    worst = Worst("vit", tuple("abcdefghij"), 82, (test,))
    assert "median 0.050 against 0.040, known in 3 and 20" in run_facts.failures_sentence(worst, "better")


def test_no_finding_in_anybody_is_no_comparison(people):
    assert "finding" not in {test.trait for test in patients.measure_failures(people, {"mgmt": "vit"}, 0)["mgmt"].associations}
    assert all(math.isnan(one.brain_ml) or one.brain_ml > 0 for one in people)


def test_sites_are_compared_where_the_table_has_them(run, people):
    tests = patients.measure_failures(people, {"mgmt": "vit"}, 0)["mgmt"].associations
    assert [test.trait for test in tests] == ["site"]
    bare = patients.measure(
        replace(run, cohort=run.cohort.drop(columns="site")), {one.name: "vit" for one in run.study.endpoints}
    )
    assert patients.measure_failures(bare, {"mgmt": "vit"}, 0)["mgmt"].associations == ()
