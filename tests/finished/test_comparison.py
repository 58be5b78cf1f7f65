"""Differences of two runs: the same as within one report, as DeLong's where folds are one, and right where they differ."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.pair import as_vit, copied, divided_anew, make_a, opened

from mri_vit.finished import comparison as compared_runs
from mri_vit.finished.comparison import Compared
from mri_vit.finished.paired_runs import Rows
from mri_vit.metrics import comparison
from mri_vit.metrics.discrimination import delong_paired
from mri_vit.metrics.within_fold import interval_inflation, within_fold_auc
from mri_vit.report.numbers import chance, comparisons
from mri_vit.report.numbers.judged import flags, floats, known_rows
from mri_vit.report.schema.parts import Design
from mri_vit.settings.schema import Endpoint

pytestmark = pytest.mark.long(23)

MARKER = Endpoint(name="mgmt", kind="binary")
SURVIVAL = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
BOTH: tuple[Design, Design] = ("cross-validation", "cross-validation")
OUTSIDE: tuple[Design, Design] = ("external", "external")


def numbers_of(found: Compared) -> tuple[float, ...]:
    return found.difference, found.low, found.high, found.z, found.p


@pytest.mark.parametrize("repeats", [1, 3])
def test_two_runs_differ_as_two_models_of_one_report_do(tmp_path: Path, repeats: int):
    a = make_a(tmp_path / "a", repeats)
    both = opened(a, copied(a, "b", as_vit("twin")))
    found = compared_runs.compared_endpoints(both)
    for endpoint in both.endpoints:
        own, twin = (known_rows(both.a.run.predictions, endpoint, model) for model in ("vit", "twin"))
        if not len(own):
            assert endpoint.name not in found
            continue
        expected = comparisons.versus(endpoint, own, twin, chance.inflation(own, "cross-validation"))
        assert expected is not None
        said = expected.difference, expected.low, expected.high, expected.z, expected.p
        assert numbers_of(found[endpoint.name].models["vit"]) == pytest.approx(said, nan_ok=True, rel=1e-12)
        assert found[endpoint.name].models["vit"].n == expected.n
    assert set(found) == {"mgmt", "pten", "idh1", "os"}


def test_each_runs_figure_is_the_one_that_its_report_judges(tmp_path: Path):
    a = make_a(tmp_path / "a", 2)
    both = opened(a, copied(a, "b", as_vit("twin")))
    for endpoint, models in compared_runs.compared_endpoints(both).items():
        asked = next(one for one in both.endpoints if one.name == endpoint)
        for model, one in models.models.items():
            rows = known_rows(both.a.run.predictions, asked, model)
            within = [part.value for part in chance.within_folds(asked, rows)]
            assert one.a.value == pytest.approx(np.mean(within))
            assert one.difference == pytest.approx(one.a.value - one.b.value)


def test_a_run_beside_itself_has_equal_predictions_and_nothing_is_tested(tmp_path: Path):
    a = make_a(tmp_path / "a", 2)
    found = [one for models in compared_runs.compared_endpoints(opened(a, a)).values() for one in models.models.values()]
    assert len(found) == 4 * 3  # vit, twin and clinical; labels of the shuffled control are nobody's
    for one in found:
        assert (one.kind, one.difference, one.p) == ("same", 0.0, 1.0)
        assert one.agreement == pytest.approx(1)
        assert math.isnan(one.p_adjusted)


def test_p_are_adjusted_over_all_that_is_tested_and_over_nothing_else(tmp_path: Path):
    a = make_a(tmp_path / "a")
    found = compared_runs.compared_endpoints(opened(a, copied(a, "b", as_vit("twin"))))
    every = [one for models in found.values() for one in models.models.values()]
    tested = [one for one in every if not math.isnan(one.p_adjusted)]
    assert {one.role for one in every if one.kind == "same"} == {"control"}
    assert len(tested) == len([one for one in every if one.role == "own"]) == 4
    assert [one.p_adjusted for one in tested] == pytest.approx(comparison.holm(np.array([one.p for one in tested])).tolist())
    strong = copied(
        a, "strong", lambda table: table.assign(score=table.score.where(table.model != "vit", table.truth.fillna(0.5)))
    )
    assert compared_runs.compared_endpoints(opened(a, strong))["pten"].models["vit"].kind == "b"
    assert compared_runs.compared_endpoints(opened(strong, a))["pten"].models["vit"].kind == "a"


def test_fewer_than_five_of_a_class_are_not_compared(tmp_path: Path):
    a = make_a(tmp_path / "a", patients=30)
    for few, kind in ((0, "undefined"), (4, "undefined"), (5, "alike")):

        def rare(table: pd.DataFrame, few: int = few) -> pd.DataFrame:
            kept = sorted(table.patient[(table.endpoint == "mgmt") & (table.model == "vit") & (table.truth == 1)].unique())[:few]
            lost = (table.endpoint == "mgmt") & (table.truth == 1) & ~table.patient.isin(kept)
            return table.loc[~lost]

        one = copied(a, f"a{few}", rare)
        other = copied(one, f"b{few}", lambda table: table.assign(score=table.score * np.linspace(0.9, 1, len(table))))
        endpoint = compared_runs.compared_endpoints(opened(one, other))["mgmt"]
        found = endpoint.models["vit"]
        assert (found.marked, found.kind) == (few, kind)
        assert ("fewer than 5 patients of the rarer class" in found.verdict) == (kind == "undefined")


def rows(seed: int, n: int = 120, folds: tuple[int, int] = (4, 4), worth: float = 1.0) -> Rows:
    """Scores of two models of a marker, given by nobody's training, in folds of their own."""
    generator = np.random.default_rng(seed)
    truth = generator.random(n) < 0.4
    shared = generator.normal(size=n)
    tables = []
    for count in folds:
        score = worth * truth + 0.6 * shared + 0.8 * generator.normal(size=n)
        fold = generator.permutation(n) % count
        people = [f"p{i:03d}" for i in range(n)]
        tables.append(pd.DataFrame({"patient": people, "repeat": 0, "fold": fold, "score": score, "truth": truth}))
    return Rows("vit", *tables)


def test_two_evaluations_are_compared_by_delongs_paired_test():
    made = rows(1, folds=(1, 1))
    found = compared_runs.test(MARKER, made, OUTSIDE)
    expected = delong_paired(flags(made.a.truth), floats(made.a.score), floats(made.b.score))
    assert (found.difference, found.z, found.p) == pytest.approx((expected.difference, expected.z, expected.p), rel=1e-9)


@pytest.mark.parametrize("endpoint", [MARKER, SURVIVAL], ids=["binary", "survival"])
@pytest.mark.parametrize("folds", [(4, 4), (3, 5), (5, 1)])
def test_where_folds_differ_the_error_is_that_of_leaving_out_patient_by_patient(endpoint: Endpoint, folds: tuple[int, int]):
    made, n = rows(2, 100, folds), 100
    generator = np.random.default_rng(8)
    followed = {"time_days": generator.exponential(400, n) * np.exp(-made.a.score), "event": generator.random(n) < 0.7}
    a, b = (table.assign(**followed) for table in (made.a, made.b))

    def difference(kept: np.ndarray) -> float:
        one, other = (chance.within_folds(endpoint, table.loc[kept])[0].value for table in (a, b))
        return one - other

    left_out = np.array([difference(np.arange(n) != i) for i in range(n)])
    jackknife = math.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    found = compared_runs.test(endpoint, Rows("vit", a, b), BOTH)
    assert found.difference == pytest.approx(difference(np.full(n, True)))
    middle = np.mean([chance.within_folds(endpoint, table)[0].value for table in (a, b)])
    factor = interval_inflation(float(middle), math.sqrt(2))
    assert found.difference / found.z == pytest.approx(factor * jackknife, rel=0.05)  # the two differ by order 1 / n


def test_patients_are_paired_where_folds_differ():
    """Whoever took the two figures for independent would claim far more variance than there is."""
    spread, claimed, independent = [], [], []
    for seed in range(80):
        made = rows(seed, 120)
        tables = [within_fold_auc(flags(t.truth), floats(t.score), t.fold.to_numpy()) for t in (made.a, made.b)]
        spread.append(tables[0].value - tables[1].value)
        independent.append(tables[0].variance + tables[1].variance)
        paired = compared_runs.test(MARKER, made, BOTH)
        factor = interval_inflation(sum(table.value for table in tables) / 2, math.sqrt(2))
        claimed.append((paired.difference / paired.z / factor) ** 2)  # without it, for these scores were not trained
    assert np.mean(claimed) == pytest.approx(np.var(spread), rel=0.25)  # of 80 a variance is known to 16 %
    assert np.mean(independent) > 1.3 * np.mean(claimed)


def refitted(generator: np.random.Generator, features: np.ndarray, truth: np.ndarray, repeats: int) -> pd.DataFrame:
    """Out-of-fold scores of ridge regressions, each repeat in folds of its own."""
    n, parts = len(truth), []
    for repeat in range(repeats):
        fold, score = generator.permutation(n) % 3, np.empty(n)
        for k in range(3):
            train = fold != k
            x, y = features[train] - features[train].mean(0), truth[train] - truth[train].mean()
            weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ y)
            score[~train] = features[~train] @ weights
        people = [f"p{i:02d}" for i in range(n)]
        parts.append(pd.DataFrame({"patient": people, "repeat": repeat, "fold": fold, "score": score, "truth": truth}))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [(1, 1), (2, 3)])
def test_two_refitted_models_that_know_nothing_seldom_differ_whatever_their_folds(repeats: tuple[int, int]):
    """Of 150 studies on noise 7.5 are expected at 0.05; 16 or more has a chance of 0.4 %. As scores given they are too many."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(150):
        truth = generator.permutation(60) < 27
        made = [refitted(generator, generator.normal(size=(60, 8)), truth, count) for count in repeats]
        found.append(compared_runs.test(MARKER, Rows("vit", *made), BOTH))
    assert sum(one.p <= 0.05 for one in found) < 16
    if repeats == (1, 1):
        assert sum(abs(one.z) * math.sqrt(2) >= 1.96 for one in found) >= 16


def test_ranks_are_of_each_fold_and_of_the_mean_of_repeats():
    table = pd.DataFrame(
        {
            "patient": ["a", "b", "c", "d", "a", "b", "c", "d"],
            "repeat": [0, 0, 0, 0, 1, 1, 1, 1],
            "fold": [0, 0, 1, 1, 0, 1, 0, 1],
            "score": [5.0, 6.0, 0.2, 0.1, 1.0, 3.0, 2.0, 3.0],
        }
    )
    assert compared_runs.ranks(table).tolist() == [0.0, 0.75, 1.0, 0.25]


def test_folds_are_known_to_be_others(tmp_path: Path):
    a = make_a(tmp_path / "a", 2)
    assert compared_runs.same_folds(opened(a, copied(a, "b", as_vit("twin"))))
    other = opened(a, divided_anew(a, "other"))
    assert not compared_runs.same_folds(other)
    assert compared_runs.inflation(other) == pytest.approx(math.sqrt(2))
    found = compared_runs.compared_endpoints(other)["mgmt"].models["vit"]
    assert found.kind == "alike"  # the same scores, but of other pairs of patients
    assert not found.same_predictions
