"""Signs that rows are not what they seem: each is found where it was planted, and sound rows show none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from mri_vit.report.numbers import oddities
from mri_vit.report.schema.measured import Contradiction, Ordered
from mri_vit.report.words import caveats
from mri_vit.settings.schema import Endpoint

MARKER = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
NAMES = [f"p{i:03d}" for i in range(60)]
TABLE = {"the rows of the cohort table": dict(zip(NAMES, range(60), strict=True))}


def rows(seed: int = 0, **columns: object) -> pd.DataFrame:
    """Sixty patients of three folds; scores know a little of a marker that alternates."""
    random = np.random.default_rng(seed)
    truth = np.arange(60) % 2 == 0
    return pd.DataFrame(
        {"repeat": 0, "fold": np.arange(60) % 3, "patient": NAMES, "truth": truth, "score": random.normal(size=60) + truth}
        | columns
    )


def survivors(seed: int = 0, score: np.ndarray | None = None) -> pd.DataFrame:
    """Sixty patients whose time is their place in the table."""
    random = np.random.default_rng(seed)
    risk = random.normal(size=60) if score is None else score
    return rows(score=risk, time_days=np.arange(1.0, 61), event=random.random(60) < 0.7).drop(columns="truth")


def test_scores_in_the_order_of_the_table_are_found_though_no_label_follows_it():
    found = oddities.ordered(MARKER, rows(score=np.arange(60) + np.random.default_rng(0).normal(size=60)), TABLE, {}, 4)
    assert found
    assert (found.order, found.correlation > 0.9) == ("the rows of the cohort table", True)
    assert "rise or fall with the rows of the cohort table" in caveats.ordered_sentence("vit", found)
    assert oddities.ordered(MARKER, rows(), TABLE, {}, 1) is None


def test_scores_that_follow_the_label_in_a_table_sorted_by_it_are_no_leak_through_the_order():
    sorted_table = rows(truth=np.arange(60) < 30, score=np.random.default_rng(2).normal(size=60) + 3 * (np.arange(60) < 30))
    assert oddities.ordered(MARKER, sorted_table, TABLE, {}, 1) is None


def test_what_the_site_explains_is_no_order():
    site = {name: str(place // 20) for place, name in enumerate(NAMES)}
    by_site = rows(score=np.random.default_rng(1).normal(size=60) + 5 * (np.arange(60) // 20))
    assert oddities.ordered(MARKER, by_site, TABLE, {}, 1) is not None
    assert oddities.ordered(MARKER, by_site, TABLE, site, 1) is None


def test_risks_that_follow_the_time_are_no_order_where_the_table_follows_it_too():
    risk = -np.arange(60.0) + 10 * np.random.default_rng(3).normal(size=60)
    assert oddities.ordered(OS, survivors(score=risk), TABLE, {}, 1) is None
    by_place = survivors(score=np.arange(60.0)).assign(time_days=np.random.default_rng(4).permutation(60) + 1.0)
    assert oddities.ordered(OS, by_place, TABLE, {}, 1) is not None


def test_in_one_stratum_the_correlation_is_spearmans():
    one = rows(truth=True, fold=0, score=np.arange(60) + 10 * np.random.default_rng(5).normal(size=60))
    found = oddities.ordered(MARKER, one, TABLE, {}, 1)
    assert found
    assert found.correlation == pytest.approx(spearmanr(one.score, range(60))[0])


def outcome_of(table: pd.DataFrame, endpoint: str = "os") -> dict[str, str]:
    return oddities.outcomes({endpoint: {"vit": table}})


def twin(table: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """The table with the second patient a copy of the first under another id."""
    columns = [name for name in table if name not in ("patient", "fold")]
    table = table.copy()
    table.loc[table.patient == second, columns] = table.loc[table.patient == first, columns].to_numpy()
    return table.astype({"score": float})


def test_a_copy_is_found_by_its_score_and_its_time_and_ties_of_other_outcomes_are_not():
    copied = twin(survivors(), "p003", "p009")  # of one fold
    assert oddities.copies(copied, outcome_of(copied), 4) == [("p003", "p009")]
    assert "patients p003, p009 have the same score" in caveats.copies_sentence([("p003", "p009")])
    later = copied.assign(time_days=np.arange(1.0, 61))
    assert oddities.copies(later, outcome_of(later), 4) == []
    assert oddities.copies(survivors(), outcome_of(survivors()), 4) == []


def test_a_marker_copied_throughout_is_found_and_ties_of_coarse_scores_are_not():
    twice = pd.concat([rows(), rows().assign(patient=[f"q{name}" for name in NAMES])], ignore_index=True)
    assert len(oddities.copies(twice, outcome_of(twice, "mgmt"), 1)) == 60
    random, accused = np.random.default_rng(0), 0
    for seed in range(200):
        age, sex, severe = random.integers(40, 70, 60), random.random(60) < 0.5, random.random(60) < 0.3
        nomogram = 0.03 * age + 0.4 * sex + 0.7 * severe  # a regression on covariates of few values
        truth = random.random(60) < 1 / (1 + np.exp(2 - nomogram))
        for score in (nomogram, random.normal(size=60).round(1), random.integers(0, 100, 60) / 100, np.full(60, 0.5)):
            table = rows(seed, score=score, truth=truth)
            accused += bool(oddities.copies(table, outcome_of(table, "mgmt"), 1))
    assert accused <= 0.02 * 800


def test_ids_that_differ_in_their_last_part_are_scans_of_one_where_their_labels_agree():
    visits = [f"s{place // 2:02d}_{place % 2}" for place in range(60)]
    agreeing = rows(patient=visits, truth=np.arange(60) // 2 % 2 == 0)
    found = oddities.scans_of_one(agreeing, {})
    assert (len(found), found[0]) == (30, ("s00_0", "s00_1"))
    assert "and 27 more groups" in caveats.scans_of_one_sentence(found)
    one_differs = agreeing.assign(truth=agreeing.truth ^ (agreeing.patient == "s07_1"))
    assert len(oddities.scans_of_one(one_differs, {})) == 29
    assert oddities.scans_of_one(agreeing.assign(truth=np.random.default_rng(0).random(60) < 0.5), {}) == []
    assert oddities.scans_of_one(agreeing.assign(patient=NAMES), {}) == []


def test_ids_of_hospitals_whose_patients_have_one_label_are_not_scans_of_one():
    large = rows(patient=[f"TCGA-{place // 30:02d}-{place:04d}" for place in range(60)], truth=np.arange(60) < 30)
    assert oddities.scans_of_one(large, {}) == []
    small = rows(patient=[f"H{place // 4:02d}-{place:04d}" for place in range(60)], truth=np.arange(60) // 4 % 2 == 0)
    assert len(oddities.scans_of_one(small, {})) == 15
    assert oddities.scans_of_one(small, {name: name[:3] for name in small.patient}) == []


def test_one_late_death_with_nearly_all_the_weight_is_a_contradiction_too():
    event, score = np.r_[np.ones(10), np.zeros(48), 1, 0] == 1, np.r_[np.arange(60.0, 2, -1), 0, 1]
    found = oddities.contradiction(survivors(score=score).assign(event=event), 1)
    assert found
    assert found.harrell > 0.95 > 0.5 > found.uno


@pytest.mark.parametrize("late", [1, 3])
def test_where_late_deaths_decide_unos_c_against_harrells_that_is_said(late: int):
    died = np.r_[np.ones(20), np.zeros(36 - late), np.ones(late), 0, 0, 0, 0] == 1
    table = survivors().assign(
        time_days=np.r_[np.arange(1.0, 57 - late), 100.0 + np.arange(late + 4)],
        event=died,
        score=np.r_[np.arange(60.0, 4 + late, -1), 1 - 0.1 * np.arange(late)[::-1], 2, 3, 4, 5][:60],
    )
    found = oddities.contradiction(table, 1)
    assert found
    assert found.harrell - found.uno > 0.1
    assert "contradict each other" in caveats.contradiction_sentence("vit", found)
    assert oddities.contradiction(survivors(), 1) is None
    assert oddities.contradiction(survivors().assign(event=False), 1) is None


def test_an_order_that_a_column_explains_is_none_and_p9_stands_before_p10():
    people = [f"p{place}" for place in np.random.default_rng(0).permutation(60)]
    cohort = pd.DataFrame({"patient": people, "age": np.sort(np.random.default_rng(1).normal(50, 9, 60)).round().astype(str)})
    assert list(oddities.positions(cohort)) == ["the ids"]
    assert oddities.positions(cohort)["the ids"]["p9"] == 9
    assert "the rows of the cohort table" in oddities.positions(cohort.assign(age=[str(place) for place in range(60)]))


def test_the_sentences_name_what_was_found():
    assert caveats.ordered_sentence("vit", Ordered("the ids", -0.5, 1e-5)).startswith("scores of vit rise or fall with the ids")
    assert "(0.970) and Uno's (0.330)" in caveats.contradiction_sentence("vit", Contradiction(0.97, 0.33, 1e-4))
