"""Nulls: the identity gives the run's own values, labels stay within their test fold, and drawing ends by its rule."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from mri_vit.crossval import permutation_null
from mri_vit.crossval.folds import make
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.metrics.concordance import harrell_c
from mri_vit.predictors import refit
from mri_vit.predictors.regressions import Tabular
from mri_vit.settings.schema import Endpoint, Study, Train

pytestmark = pytest.mark.long(12)

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
STUDY = Study(
    name="nulls",
    cohort=Path("cohort.csv"),
    prepared=Path("prepared"),
    output=Path("run"),
    train=Train(folds=3, repeats=2),
    endpoints=(MGMT, OS),
)


def people(n: int = 90, seed: int = 0) -> list[Patient]:
    """Patients some of whose labels are missing, who die on shared days; every ninth has two visits."""
    generator = np.random.default_rng(seed)
    made = []
    for i in range(n):
        mgmt = float("nan") if i % 8 == 5 else float(generator.random() < 0.4)
        days = float("nan") if i % 11 == 3 else 30 * np.ceil(generator.exponential(12))
        labels = {"mgmt": mgmt, "os_days": days, "os_event": float("nan") if np.isnan(days) else float(i % 4 > 0)}
        made.append(Patient(f"p{i:02d}_a" if i % 9 == 0 else f"p{i:02d}", {}, labels, {}, session="a" if i % 9 == 0 else ""))
        if i % 9 == 0:
            later = labels | {"os_days": labels["os_days"] + 60, "mgmt": labels["mgmt"] if i % 2 else float("nan")}
            made.append(Patient(f"p{i:02d}_b", {}, later, {}, session="b"))
    return made


def covariates(patients: list[Patient], seed: int = 1) -> pd.DataFrame:
    """A number that goes with MGMT, one with survival, both at times missing, and a site."""
    generator = np.random.default_rng(seed)
    of = {name: np.array([p.labels[name] for p in patients]) for name in ("mgmt", "os_days")}
    x = generator.normal(size=len(patients)) + 0.8 * np.nan_to_num(of["mgmt"])
    y = generator.normal(size=len(patients)) - np.nan_to_num(of["os_days"]) / 400
    x[generator.random(len(x)) < 0.1] = np.nan
    site = generator.choice(np.array(["A", "B", None], dtype=object), len(patients))
    return pd.DataFrame({"x": x.round(1), "y": y, "site": site}, index=pd.Index([p.id for p in patients]))


def own_values(folder: Path, table: pd.DataFrame, patients: list[Patient], split: list[list[str]]) -> pd.Series:
    """AUC or C of each endpoint and test fold, by the control as a run fits it; visits count as in a report."""
    scores, _ = cross_validate(patients, [split], STUDY, folder, "own", lambda *_: Tabular(table, STUDY.endpoints))
    found = {}
    for fold, of in scores.groupby("fold"):
        rows = of.loc[of.endpoint == "mgmt"].groupby("patient").agg({"score": "mean", "truth": "first"}).dropna()
        found["mgmt", fold] = roc_auc_score(rows.truth, rows.score)
        rows = of.loc[of.endpoint == "os"].dropna(subset=["time_days"]).drop_duplicates("patient")
        found["os", fold] = harrell_c(rows.time_days.to_numpy(), rows.event.to_numpy(), rows.score.to_numpy())
    return pd.Series(found)


@pytest.mark.parametrize("columns", [["x", "y", "site"], ["site"]])
def test_labels_that_stay_where_they_are_give_the_values_of_the_run(tmp_path, columns: list[str]):
    patients = people()
    split = make(patients, STUDY.endpoints, STUDY.train, STUDY.seed)[0]
    table = covariates(patients).loc[:, columns]
    expected = own_values(tmp_path, table, patients, split)
    for endpoint in STUDY.endpoints:
        known = permutation_null.Known.of(patients, split, endpoint)
        found = permutation_null.Refitted.of(known, table, STUDY, patients, split).values(known.as_they_are)[0]
        np.testing.assert_allclose(found, expected[endpoint.name], atol=1e-9)


@pytest.mark.parametrize("endpoint", [MGMT, OS])
def test_a_draw_is_the_run_on_labels_that_changed_hands(tmp_path, endpoint: Endpoint):
    patients = [p for p in people() if not p.session]
    split = make(patients, STUDY.endpoints, STUDY.train, STUDY.seed)[0]
    table = covariates(patients)
    known = permutation_null.Known.of(patients, split, endpoint)
    givers = known.permuted(np.random.default_rng(3), 2)
    found = permutation_null.Refitted.of(known, table, STUDY, patients, split).values(givers)
    by_id = {p.id: p for p in patients}
    for draw, givers_of_one in enumerate(givers):
        given = {known.subjects[i]: by_id[known.subjects[g]].labels for i, g in enumerate(givers_of_one)}
        moved = [
            replace(p, labels=p.labels | {c: given[p.id][c] for c in endpoint.columns} if p.id in given else p.labels)
            for p in patients
        ]
        parts = permutation_null.parts

        def as_before(_, ids, study, seed, moved=moved, parts=parts):
            """The parts of the true labels, of the patients with the moved ones."""
            of = {p.id: p for p in moved}
            return tuple([of[p.id] for p in part] for part in parts(patients, ids, study, seed))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mri_vit.crossval.loop.parts", as_before)
            expected = own_values(tmp_path / f"{draw}", table, moved, split)
        np.testing.assert_allclose(found[draw], expected[endpoint.name], atol=1e-9)


def test_labels_change_hands_within_the_test_fold_alone_and_none_is_lost():
    patients = people()
    split = make(patients, STUDY.endpoints, STUDY.train, STUDY.seed)[0]
    known = permutation_null.Known.of(patients, split, MGMT)
    givers = known.permuted(np.random.default_rng(0), 50)
    for members in known.folds:
        assert (np.sort(givers[:, members], axis=1) == members).all()
    assert (givers != np.arange(len(known.subjects))).any(axis=0).all()


def drawn(results: int, seed: int = 0, **columns: str) -> pd.DataFrame:
    """The nulls of models that read one column each."""
    patients = people(60)
    split = make(patients, STUDY.endpoints, STUDY.train, STUDY.seed)[0]
    tables = {model: covariates(patients).loc[:, [column]] for model, column in columns.items()}
    return permutation_null.table(tables, STUDY.model_copy(update={"seed": seed}), patients, split, results)


def test_a_model_is_drawn_to_its_twentieth_hit_or_to_the_cap():
    table = drawn(2, volume="y", site="site")
    assert list(table) == predictions.NULL_COLUMNS
    draws = table.groupby(["model", "endpoint"]).draw.max() + 1
    assert (
        draws["volume", "os"] == permutation_null.most_draws(2) == 400
    )  # survival shortens with it, which few permutations reach
    assert 20 <= draws["site", "mgmt"] < 400
    assert (table.groupby(["model", "endpoint", "draw"]).size() == 3).all()
    again = drawn(2, volume="y")
    pd.testing.assert_frame_equal(again, table[table.model == "volume"].reset_index(drop=True))  # whoever stands beside it
    assert not drawn(2, seed=1, volume="y").value.equals(again.value)


def test_the_twentieth_hit_is_the_last_draw():
    patients = people(60)
    split = make(patients, STUDY.endpoints, STUDY.train, STUDY.seed)[0]
    cells = covariates(patients).loc[:, ["site"]]
    table = permutation_null.table({"site": cells}, STUDY, patients, split, 3).query("endpoint == 'mgmt'")
    known = permutation_null.Known.of(patients, split, MGMT)
    one = permutation_null.Refitted.of(known, cells, STUDY, patients, split)
    reached = one.within_fold(table.pivot(index="draw", columns="fold", values="value").to_numpy()) >= one.within_fold(
        one.values(known.as_they_are)[0]
    )
    assert reached.sum() == permutation_null.ENOUGH_EXCEEDANCES
    assert reached[-1]


def test_the_cap_resolves_the_corrected_p_of_a_small_study_and_half_the_level_of_a_large_one():
    assert [results / (permutation_null.most_draws(results) + 1) <= 0.005 for results in (1, 20, 50)] == [True] * 3
    assert [results / (permutation_null.most_draws(results) + 1) <= 0.025 for results in (208, 400, 2000)] == [True] * 3


@pytest.mark.slow
def test_permuted_labels_are_at_chance():
    table = drawn(20, volume="y", clinical="x")
    mean = table[table.draw < 200].groupby(["model", "endpoint"]).value.agg(["mean", "sem"])
    assert (abs(mean["mean"] - 0.5) < 5 * mean["sem"].clip(lower=0.005)).all()


def test_an_endpoint_that_cannot_be_fitted_has_no_nulls():
    patients = [replace(p, labels=p.labels | {"mgmt": 1.0}) for p in people(40)]
    split = [[p.id for p in patients if int(p.subject[1:]) % 3 == fold] for fold in range(3)]
    table = permutation_null.table({"volume": covariates(patients).loc[:, ["y"]]}, STUDY, patients, split, 1)
    assert set(table.endpoint) == {"os"}
    unvarying = covariates(patients).loc[:, ["y"]].assign(y=1.0)
    assert list(permutation_null.table({"volume": unvarying}, STUDY, patients, split, 1)) == predictions.NULL_COLUMNS


def test_a_regression_that_does_not_converge_has_no_nulls_and_takes_none_from_the_others(monkeypatch):
    whole, fit = drawn(2, volume="y", clinical="x"), refit.cox

    def failing(train, time, event, other):
        """Fails from the second block of draws on, which `volume` alone comes to."""
        if len(time) > 1 and (blocks := next(calls)) > 3 * 2:  # three folds of two models
            raise BadNumbers(f"block {blocks}")
        return fit(train, time, event, other)

    calls = itertools.count(1)
    monkeypatch.setattr(refit, "cox", failing)
    rest = drawn(2, volume="y", clinical="x")
    assert set(whole.model + whole.endpoint) - set(rest.model + rest.endpoint) == {"volumeos"}
    kept = whole[(whole.model != "volume") | (whole.endpoint != "os")].reset_index(drop=True)
    pd.testing.assert_frame_equal(rest, kept)
    monkeypatch.setattr(refit, "MAX_STEPS", 1)
    assert not len(drawn(2, volume="y", clinical="x"))


GOOD = "model,endpoint,draw,repeat,fold,value\nvolume,os,0,0,0,0.5\nvolume,os,0,0,1,\nvolume,os,1,0,0,0.25\n"


def test_a_table_of_nulls_is_read_as_it_was_written(tmp_path):
    table = drawn(1, site="site")
    predictions.save(table, tmp_path / "nulls.csv")
    pd.testing.assert_frame_equal(predictions.load_nulls(tmp_path / "nulls.csv"), table, atol=1e-9)
    (tmp_path / "nulls.csv").write_text(GOOD)
    assert predictions.load_nulls(tmp_path / "nulls.csv").value.isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("draw,", "number,", r"nulls\.csv: no column draw"),
        ("0.25", "1.25", r"nulls\.csv, row 4, column value: .*1\.25.*; expected an AUC or a C"),
        ("0.25", "much", r"nulls\.csv, row 4, column value: 'much'"),
        ("os,1,0,0", "os,0,0,0", r"nulls\.csv, row 4: model volume, endpoint os, draw 0, repeat 0, fold 0 is there twice"),
        ("os,1,0,0", "os,2,0,0", r"nulls\.csv, row 4, column draw: .*2.*; expected 1, the next of its fold"),
        ("os,1,0,0", "os,1,0,-1", r"nulls\.csv, row 4, column fold: .*-1.*; expected a whole number"),
        ("os,1,0,0", "os,,0,0", r"nulls\.csv, row 4: no draw"),
        ("volume,os,1", ",os,1", r"nulls\.csv, row 4: no model"),
    ],
)
def test_a_damaged_table_of_nulls_is_refused_with_file_and_row(tmp_path, old: str, new: str, message: str):
    (tmp_path / "nulls.csv").write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=message):
        predictions.load_nulls(tmp_path / "nulls.csv")
