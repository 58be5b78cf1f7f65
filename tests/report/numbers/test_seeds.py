"""Where another training would lie, from the networks of several seeds: planted scores, their spread by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.utils import concordance_index
from made.report import measure
from made.run import make_run
from scipy.stats import t as student

from mri_vit.data import predictions
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.report.numbers.judged import known_rows
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.run import Run

SEEDS = 3


def with_seeds(folder: Path, repeats: int = 1) -> Run:
    """A run whose scores are the means of three networks', which are normal about them."""
    make_run(folder, patients=40, repeats=repeats, models=("vit", "clinical"))
    table = predictions.load(folder / "predictions.csv").query("model == 'vit'")
    noise = np.random.default_rng(0).normal(scale=0.3, size=(SEEDS, len(table)))
    noise -= noise.mean(axis=0)
    parts = [table.assign(seed=seed, score=table.score + noise[seed]) for seed in range(SEEDS)]
    predictions.save(pd.concat(parts).reindex(columns=predictions.SEED_COLUMNS), folder / "seeds.csv")
    return reports.read_run(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return with_seeds(tmp_path_factory.mktemp("runs") / "seeds")


@pytest.fixture(scope="module")
def metrics(run) -> dict:
    return measure(run)


def of_seed(run: Run, seed: int) -> Run:
    """The run as if that seed's network had been the only one."""
    own = run.seeds.loc[run.seeds.seed == seed].drop(columns=["seed", "class"])
    keys = ["model", "endpoint", "repeat", "fold", "patient", "session"]
    other = run.predictions.drop(columns="score").merge(own, on=keys)
    return replace(run, predictions=other[predictions.COLUMNS])


def auc_of_pairs_within_folds(rows: pd.DataFrame) -> float:
    won = pairs = 0.0
    for _, here in rows.groupby("fold"):
        positive, negative = (here.score[here.truth == told].to_numpy() for told in (True, False))
        won += ((positive[:, None] > negative).sum() + (positive[:, None] == negative).sum() / 2).item()
        pairs += len(positive) * len(negative)
    return won / pairs


def c_of_pairs_within_folds(rows: pd.DataFrame) -> float:
    won = pairs = 0.0
    for _, here in rows.groupby("fold"):
        time, event = here.time_days.to_numpy(), here.event.to_numpy()
        comparable = sum(float(((time > time[i]) | ((time == time[i]) & ~event)).sum()) for i in np.flatnonzero(event))
        won += comparable * concordance_index(time, -here.score, event)
        pairs += comparable
    return won / pairs


@pytest.mark.parametrize(("endpoint", "figure"), [("mgmt", auc_of_pairs_within_folds), ("os", c_of_pairs_within_folds)])
def test_the_prediction_interval_is_of_each_seeds_own_figure_and_the_value_stays_that_of_the_mean_score(
    run, metrics, endpoint, figure
):
    (asked,) = (one for one in run.study.endpoints if one.name == endpoint)
    result = metrics["endpoints"][endpoint]["models"]["vit"]
    values = [figure(known_rows(of_seed(run, seed).predictions, asked, "vit")) for seed in range(SEEDS)]
    assert len(set(values)) == SEEDS
    reach = student.ppf(0.975, SEEDS - 1) * np.std(values, ddof=1) * math.sqrt(1 + 1 / SEEDS)
    found = result["retraining"]
    assert (found["source"], found["trainings"]) == ("seeds", SEEDS)
    assert found["deviation"] == pytest.approx(np.std(values, ddof=1))
    ends = max(0, np.mean(values) - reach), min(1, np.mean(values) + reach)
    assert (found["low"], found["high"]) == pytest.approx(ends)
    assert result["judged"]["value"] == pytest.approx(figure(known_rows(run.predictions, asked, "vit")))


def test_a_model_without_seeds_of_its_own_has_no_such_interval(metrics):
    for endpoint in ("mgmt", "os"):
        assert metrics["endpoints"][endpoint]["models"]["clinical"]["retraining"] is None


def test_seeds_change_no_other_number(run, metrics):
    without = measure(replace(run, seeds=run.seeds.iloc[:0]))
    for name, endpoint in metrics["endpoints"].items():
        for model, result in endpoint["models"].items():
            mine, other = (dict(one) for one in (result, without["endpoints"][name]["models"][model]))
            for one in (mine, other):
                del one["retraining"], one["verdict"]  # which says the same interval
            np.testing.assert_equal(mine, other)


def test_with_several_repeats_the_repeats_say_where_another_training_would_lie(tmp_path):
    result = measure(with_seeds(tmp_path / "twice", repeats=2))["endpoints"]["mgmt"]["models"]["vit"]
    assert (result["retraining"]["source"], result["retraining"]["trainings"]) == ("repeats", 2)


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("seed", "1", UsageError, "row 4: patient a has seed 1 twice"),
        ("seed", "-1", UsageError, "row 2, column seed: '-1'; expected a whole number from 0"),
        ("seed", "9", UsageError, "does not have all seeds"),
        ("score", "", BadNumbers, "row 2 has no score"),
        ("score", "high", UsageError, "row 2, column score: 'high'; expected a finite number"),
        ("patient", "", UsageError, "row 2: no patient"),
    ],
)
def test_a_damaged_table_of_seeds_is_refused_with_its_row(tmp_path, column, value, error, message):
    rows = [{"patient": p, "seed": str(seed), "score": "0.5"} for seed in range(2) for p in ("a", "b")]
    table = pd.DataFrame(rows).assign(model="vit", endpoint="mgmt", repeat=0, fold=0, session="")
    predictions.save(table.reindex(columns=predictions.SEED_COLUMNS), tmp_path / "seeds.csv")
    assert len(predictions.load_seeds(tmp_path / "seeds.csv")) == 4
    table.loc[0, column] = value
    predictions.save(table.reindex(columns=predictions.SEED_COLUMNS), tmp_path / "seeds.csv")
    with pytest.raises(error, match=message):
        predictions.load_seeds(tmp_path / "seeds.csv")
