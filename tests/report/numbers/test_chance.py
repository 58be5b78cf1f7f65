"""Chance: the test by refits is that of its permutations, and what a model knows of sites is told from what it knows within."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from made.report import measure
from made.run import make_run
from sklearn.metrics import roc_auc_score

from mri_vit.data.predictions import NULL_COLUMNS, SEED_COLUMNS
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.chance import Background
from mri_vit.report.reading import run
from mri_vit.report.schema.measured import Apart, UnadjustedTest
from mri_vit.report.schema.parts import WithinSites
from mri_vit.settings.schema import Endpoint

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="days", event="died")
NO_NULLS, NO_SEEDS = (pd.DataFrame(columns=pd.Index(columns)) for columns in (NULL_COLUMNS, SEED_COLUMNS))


def people(seed: int = 0, n: int = 240) -> pd.DataFrame:
    """Three folds and two sites, at one of which most patients are positive."""
    generator = np.random.default_rng(seed)
    site = generator.choice(["North", "South"], n)
    truth = generator.random(n) < np.where(site == "North", 0.8, 0.2)
    patient = [f"p{i:03d}" for i in range(n)]
    return pd.DataFrame({"patient": patient, "repeat": 0, "fold": np.arange(n) % 3, "truth": truth, "site": site})


def within_sites(rows: pd.DataFrame) -> WithinSites:
    site_of = dict(zip(rows.patient, rows.site, strict=True))
    judged = rows.drop(columns="site")
    found = chance.measure(MGMT, judged, Background("cross-validation", NO_NULLS, NO_SEEDS, site_of)).within_sites
    assert found is not None
    return found


def refits(values: list[list[float]]) -> pd.DataFrame:
    """A table of null draws: of each, the values of three folds."""
    rows = [("m", "mgmt", d, 0, fold, value) for d, folds in enumerate(values) for fold, value in enumerate(folds)]
    return pd.DataFrame(rows, columns=pd.Index(NULL_COLUMNS))


def against_chance(rows: pd.DataFrame, nulls: pd.DataFrame, family: int = 1) -> UnadjustedTest:
    background = Background("cross-validation", nulls, NO_SEEDS, {}, family)
    return chance.measure(MGMT, rows, background).chance_test


def scored(seed: int = 3) -> pd.DataFrame:
    rows = people(seed)
    return rows.assign(score=0.5 * rows.truth + np.random.default_rng(seed).normal(size=len(rows)))


def test_refits_count_the_draws_that_reach_the_value_folds_weighing_as_they_have_pairs():
    rows, generator = scored(), np.random.default_rng(0)
    values = generator.normal(0.5, 0.1, (300, 3))
    values[generator.random((300, 3)) < 0.2] = np.nan  # a fold that could not be fitted on that draw
    pairs = np.array([here.truth.sum() * (~here.truth).sum() for _, here in rows.groupby("fold")])
    drawn = [np.nansum(v * pairs) / pairs[~np.isnan(v)].sum() for v in values if not np.isnan(v).all()]
    found, free = against_chance(rows, refits(values.tolist())), against_chance(rows, NO_NULLS)
    assert (found.method, found.draws) == ("refitted", len(drawn))
    assert found.p == pytest.approx((np.sum(np.array(drawn) >= found.value) + 1) / (len(drawn) + 1))
    assert 1 / 300 < found.p < 1
    assert found.p_below == free.p_below  # drawing ends at the twentieth that reaches it, which says nothing of low values


@pytest.mark.parametrize(
    ("draws", "family", "method"),
    [(19, 1, "refitted"), (18, 1, "within folds"), (399, 20, "refitted"), (398, 20, "within folds")],
)
def test_refits_that_are_too_few_to_decide_are_not_used(draws: int, family: int, method: str):
    assert against_chance(scored(), refits([[0.5, 0.5, 0.5]] * draws), family).method == method


def test_twenty_draws_that_reach_the_value_are_enough_however_many_results_there_are():
    found = against_chance(scored(), refits([[0.9, 0.9, 0.9]] * 20), family=1000)
    assert (found.method, found.p) == ("refitted", 1.0)


def test_a_model_that_knows_the_site_alone_is_confounded_by_it():
    rows = people()
    found = within_sites(rows.assign(score=(rows.site == "North").astype(float)))
    assert (found.sites, found.value, found.least, found.most) == (2, 0.5, 0.5, 0.5)
    assert found.confounded


def test_a_model_that_knows_the_label_among_patients_of_one_site_is_not():
    rows = people()
    generator = np.random.default_rng(1)
    rows = rows.assign(score=rows.truth + generator.normal(size=len(rows)) + 5 * (rows.site == "South"))
    found = within_sites(rows)
    assert not found.confounded
    won = compared = 0.0
    for _, here in rows.groupby(["fold", "site"]):
        for ours, theirs in itertools.product(here.score[here.truth], here.score[~here.truth]):
            won, compared = won + (ours > theirs), compared + 1
    assert found.value == pytest.approx(won / compared)
    alone = [roc_auc_score(here.truth, here.score) for _, here in rows.groupby("site")]
    assert (found.least, found.most) == pytest.approx((min(alone), max(alone)))


def test_patients_without_a_site_and_a_single_site_say_nothing():
    rows = people().assign(score=0.5, site="North")
    judged = rows.drop(columns="site")
    for site_of in ({}, dict(zip(rows.patient, rows.site, strict=True)), dict.fromkeys(rows.patient, "")):
        background = Background("cross-validation", NO_NULLS, NO_SEEDS, site_of)
        assert chance.measure(MGMT, judged, background).within_sites is None


def test_the_control_that_reads_the_site_is_not_asked_about_it(tmp_path):
    folder = make_run(tmp_path / "sites", patients=60, models=("vit", "site"))
    models = measure(run.read_run(folder))["endpoints"]["mgmt"]["models"]
    assert models["vit"]["within_sites"]["sites"] == 3
    assert models["site"]["within_sites"] is None


@pytest.mark.parametrize("endpoint", [MGMT, OS], ids=lambda one: one.kind)
def test_scales_of_folds_are_said_to_differ_where_their_scores_do_and_not_for_few_patients_or_by_chance(endpoint: Endpoint):
    random, n = np.random.default_rng(4), 90
    outcome = random.random(n) < 0.5
    rows = pd.DataFrame({"patient": [f"p{i:02d}" for i in range(n)], "repeat": 0, "fold": np.arange(n) % 3, "truth": outcome})
    rows = rows.assign(
        event=True, time_days=np.where(outcome, 100.0, 400.0) + np.arange(n), score=outcome + random.normal(size=n)
    )
    assert chance.scales_apart(endpoint, rows, 0.80, 0.75) is None  # no scale differs
    shifted = rows.assign(score=rows.score + 3 * rows.fold)
    found = chance.scales_apart(endpoint, shifted, 0.60, 0.75)
    assert found == Apart(0.60, 0.75, 1)
    assert chance.scales_apart(endpoint, shifted, 0.74, 0.75) is None  # the figures hardly differ
    assert chance.scales_apart(endpoint, shifted.groupby("fold").head(3), 0.60, 0.75) is None


def test_scales_are_not_said_to_differ_where_scores_are_the_outcome():
    rows = pd.DataFrame({"patient": [f"p{i:02d}" for i in range(40)], "repeat": 0, "fold": np.arange(40) % 4})
    event = np.random.default_rng(0).random(40) < 0.6
    rows = rows.assign(event=event, time_days=np.arange(40) + 1.0, score=event.astype(float))
    assert chance.scales_apart(OS, rows, 0.73, 0.5) is None


def sites_of_survival(tied: bool) -> dict[str, pd.DataFrame]:
    """Four sites, the last with risks the wrong way round; the first's are all equal if `tied`."""
    random, sites = np.random.default_rng(2), {}
    for number in range(4):
        days = random.exponential(400, 30)
        risk = -np.log(days) * (-1 if number == 3 else 1) + 0.3 * random.normal(size=30)
        sites[str(number)] = pd.DataFrame({"time_days": days, "event": True, "score": 0.0 if tied and not number else risk})
    return sites


def test_a_site_that_is_worse_is_named_though_another_says_nothing():
    whole, tied = (chance.between_sites(OS, sites_of_survival(one)) for one in (False, True))
    assert (whole["compared_sites"], whole["worse"]) == (4, ("3",))
    assert (tied["compared_sites"], tied["worse"]) == (3, ("3",))
    assert tied["tau"] > 0.5
    alone = chance.between_sites(OS, {"0": sites_of_survival(False)["0"]})
    assert (alone["compared_sites"], alone["worse"], alone["between"]) == (1, (), None)
    assert math.isnan(alone["tau"])
    assert chance.between_sites(OS, {})["compared_sites"] == 0
