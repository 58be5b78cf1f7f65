"""Signs that rows are not what they seem: each is found where it was planted, and sound rows show none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from mri_vit.report.numbers import oddities
from mri_vit.report.schema.measured import Decisive, Ordered
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


def test_one_score_and_label_under_two_ids_is_found_and_votes_and_roundings_are_not():
    twins = rows()
    twins.loc[twins.patient == "p009", "score"] = float(twins.score[3])
    twins.loc[twins.patient == "p009", "truth"] = bool(twins.truth[3])
    assert oddities.copies(twins) == [("p003", "p009")]  # of one fold
    assert "patients p003, p009 have the same score" in caveats.copies_sentence(oddities.copies(twins))
    assert oddities.copies(twins.assign(truth=twins.truth ^ (twins.patient == "p009"))) == []
    random = np.random.default_rng(0)
    for score in (random.integers(0, 500, 60) / 500, random.normal(size=60).round(2), np.full(60, 0.123456789)):
        assert oddities.copies(rows(score=score)) == []
    died = survivors().assign(time_days=5.0, event=True)
    died.loc[died.patient == "p009", "score"] = float(died.score[3])
    assert oddities.copies(died) == [("p003", "p009")]


def test_ids_that_differ_in_their_last_part_are_scans_of_one_where_their_labels_agree():
    visits = [f"s{place // 2:02d}_{place % 2}" for place in range(60)]
    agreeing = rows(patient=visits, truth=np.arange(60) // 2 % 2 == 0)
    found = oddities.scans_of_one(agreeing)
    assert (len(found), found[0]) == (30, ("s00_0", "s00_1"))
    assert "and 27 more groups" in caveats.scans_of_one_sentence(found)
    assert oddities.scans_of_one(agreeing.assign(truth=np.random.default_rng(0).random(60) < 0.5)) == []
    assert oddities.scans_of_one(agreeing.assign(patient=[f"{name}" for name in NAMES])) == []
    hospitals = rows(patient=[f"TCGA-{place // 30:02d}-{place:04d}" for place in range(60)], truth=np.arange(60) < 30)
    assert oddities.scans_of_one(hospitals) == []


def test_where_one_death_decides_unos_c_against_harrells_that_is_said():
    table = (
        survivors()
        .iloc[:31]
        .assign(
            time_days=np.r_[np.arange(1.0, 30), 100, 101],
            event=np.r_[np.ones(10), np.zeros(19), 1, 0] == 1,
            score=np.r_[np.arange(30.0, 1, -1), 1, 2],
        )
    )
    found = oddities.decisive(table)
    assert found
    assert found.harrell - found.uno > 0.2
    assert "contradict each other" in caveats.decisive_sentence("vit", found)
    assert oddities.decisive(survivors()) is None
    assert oddities.decisive(survivors().assign(event=False)) is None


def test_the_sentences_name_what_was_found():
    assert caveats.ordered_sentence("vit", Ordered("the ids", -0.5, 1e-5)).startswith("scores of vit rise or fall with the ids")
    assert "(0.970) and Uno's (0.330)" in caveats.decisive_sentence("vit", Decisive(0.97, 0.33, 0.8))
