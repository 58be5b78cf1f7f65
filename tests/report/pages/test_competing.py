"""The report of an endpoint with a competing event, from a table of 240 patients whose days are whole months."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made.report import read_metrics, seen
from made.study import sketch

from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.errors import UsageError
from mri_vit.metrics import competing_risks
from mri_vit.report.pages import report_files
from mri_vit.report.reading import foreign_table
from mri_vit.report.reading.foreign_table import Declared

pytestmark = pytest.mark.long(15)

DECLARED = Declared(competing=("os",), thresholds=(0.1, 0.4))
N = 240


def tables(folder: Path) -> tuple[Path, Path]:
    """A cohort table and predictions of a model that knows the event, with probabilities."""
    random = np.random.default_rng(1)
    risk = random.normal(size=N)
    event, other, left = random.exponential(700 * np.exp(-0.8 * risk)), random.exponential(1400, N), random.uniform(200, 1600, N)
    days = (30 * np.ceil(np.minimum.reduce([event, other, left]) / 30)).astype(int)
    code = np.select([event < np.minimum(other, left), other < left], [1, 2])
    names = [f"P{i:03d}" for i in range(N)]
    age = random.integers(40, 80, N)
    pd.DataFrame({"patient": names, "age": age, "os_days": days, "os_event": code}).to_csv(folder / "cohort.csv", index=False)
    fold = np.arange(N) % 5
    pd.DataFrame({"patient": names, "endpoint": "os", "fold": fold, "score": risk}).to_csv(folder / "scores.csv", index=False)
    own = np.exp(0.8 * risk) / 700
    rate = own + 1 / 1400
    alive = {day: 1 - own / rate * (1 - np.exp(-rate * day)) for day in HORIZONS_DAYS}
    long = (
        pd.DataFrame(alive, index=pd.Index(names, name="patient")).reset_index().melt("patient", None, "horizon_days", "survival")
    )
    long.assign(endpoint="os", fold=long.patient.map(dict(zip(names, fold, strict=True)))).to_csv(
        folder / "survival.csv", index=False
    )
    return folder / "scores.csv", folder / "cohort.csv"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("competing")
    with pytest.MonkeyPatch.context() as patch:
        sketch(patch)
        run = foreign_table.run_from_tables(*tables(folder), folder / "report", DECLARED)
        return report_files.write_report(run, folder / "report").page.parent


@pytest.fixture(scope="module")
def measured(home: Path) -> dict[str, Any]:
    return read_metrics(home)["endpoints"]["os"]


@pytest.fixture(scope="module")
def people(home: Path) -> pd.DataFrame:
    return pd.read_csv(home.parent / "cohort.csv")


def test_both_events_are_counted_and_end_follow_up(measured: dict[str, Any], people: pd.DataFrame):
    count = Counter(people.os_event)
    result = measured["models"]["model"]
    assert (measured["events"], measured["others"], result["events"], result["others"]) == (count[1], count[2]) * 2
    assert measured["follow_up"]["events"] == count[1] + count[2]
    assert sum(fold["others"] for fold in result["folds"]) == count[2]
    assert all(group["others"] is not None for group in measured["subgroups"])


def test_incidence_and_not_kaplan_and_meiers_curve_is_reported(home: Path, measured: dict[str, Any], people: pd.DataFrame):
    days, event, other = people.os_days.to_numpy(float), people.os_event.to_numpy() == 1, people.os_event.to_numpy() == 2
    for at in measured["competing"]["incidence"]:
        for key, pair in (("event", (event, other)), ("other", (other, event))):
            assert at[key]["value"] == pytest.approx(competing_risks.incidence_at(days, *pair, float(at["days"]))[0])
    result = measured["models"]["model"]
    assert result["restricted_mean"]["difference"]["value"] is None
    assert all(group["median_days"] is None for group in result["groups"].values())
    assert (home / "figures" / "incidence_os_model.svg").is_file()
    assert not list((home / "figures").glob("km_*"))
    curves = pd.read_csv(home / "tables" / "cumulative_incidence.csv")
    assert set(curves.of) == {"event", "competing event"}
    assert not (home / "tables" / "kaplan_meier.csv").exists()


def test_probabilities_of_the_event_are_calibrated_against_its_incidence(measured: dict[str, Any]):
    """They are the truth here; held against Kaplan and Meier's curve, which censors the other event, they would be too low."""
    for at in measured["models"]["model"]["calibration_at"]:
        assert at["observed_to_expected"]["low"] < 1 < at["observed_to_expected"]["high"]
        assert at["slope"] is None
    assert measured["models"]["model"]["integrated_brier"]["scaled"]["value"] > 0


def test_who_had_the_other_event_is_a_control_of_auc(measured: dict[str, Any], people: pd.DataFrame):
    at = measured["models"]["model"]["auc_at"][1]
    by_then = people.os_days <= at["days"]
    assert at["cases"] == (by_then & (people.os_event == 1)).sum()
    assert at["controls"] == (~by_then | (people.os_event == 2)).sum()


def test_grays_test_allows_for_refitting_as_the_log_rank_does(measured: dict[str, Any]):
    result = measured["models"]["model"]
    grays, logrank = result["competing"]["grays_test"], result["logrank"]
    assert grays["inflation"] == logrank["inflation"] > 1
    assert grays["given_p"] < grays["p"]
    assert grays["chi2"] != logrank["chi2"]


def test_no_patient_with_the_other_event_is_called_dead_or_alive(home: Path, people: pd.DataFrame):
    page = seen(home)
    who = people.loc[people.os_event == 2].iloc[0]
    patient = re.sub(r"<[^>]*>", " ", (home / "patients" / f"{who.patient}.html").read_text(encoding="utf-8"))
    assert f"another event after {who.os_days} days" in patient
    assert f"{who.os_days} other" in page
    assert not re.search(r"\d+ died|dies sooner|Uno's C \[|[Dd]eaths? within|[Aa]live after", page)
    assert "alive" not in patient
    methods = (home / "methods.md").read_text(encoding="utf-8")
    for words in ("cumulative incidence [", "Gray's test [", "Wolbers's C ["):
        assert words in methods
    assert "shown by Kaplan-Meier curves" not in methods


def test_the_section_is_folded_and_begins_with_the_finding(home: Path):
    text = (home / "index.html").read_text(encoding="utf-8")
    section = text[text.index("<summary>Competing event</summary>") :]
    first = re.sub(r"<[^>]*>|\s+", " ", section[section.index("<li>") : section.index("</li>")])
    assert re.search(r"Of\W+240 patients, \d+\W+%", first), first
    assert '<details class="sub"><summary>Competing event</summary>' in text


def test_a_competing_event_is_named_and_a_wrong_name_refused(tmp_path: Path):
    asked = tables(tmp_path)
    run = foreign_table.run_from_tables(*asked, tmp_path / "report", Declared(competing=("os=death of another cause",)))
    assert run.study.endpoints[0].competing == "death of another cause"
    for wrong in (("os=",), ("=death",), ("os", "os=death"), ("os=" + 61 * "x",)):
        with pytest.raises(UsageError, match="--competing"):
            foreign_table.run_from_tables(*asked, tmp_path / "report", Declared(competing=wrong))


def test_undeclared_or_declared_of_something_else_a_table_is_refused(tmp_path: Path):
    asked = tables(tmp_path)
    with pytest.raises(UsageError, match="column os_event: '2'; expected 0, 1, or empty"):
        foreign_table.run_from_tables(*asked, tmp_path / "report")
    with pytest.raises(UsageError, match="no endpoint 'mgmt'"):
        foreign_table.run_from_tables(*asked, tmp_path / "report", Declared(competing=("mgmt",)))
    scores = pd.read_csv(asked[0]).assign(endpoint="mgmt", score=0.5, truth=1)
    scores.to_csv(asked[0], index=False)
    with pytest.raises(UsageError, match="endpoint mgmt is no survival"):
        foreign_table.run_from_tables(*asked, tmp_path / "report", Declared(competing=("mgmt",)))


def test_rs_codes_are_suspected_on_the_page(tmp_path: Path):
    """Of survival::lung's codes, 1 censored and 2 dead, none is 0."""
    scores, cohort = tables(tmp_path)
    people = pd.read_csv(cohort)
    people.assign(os_event=np.where(people.os_event == 1, 2, 1)).to_csv(cohort, index=False)
    with pytest.MonkeyPatch.context() as patch:
        sketch(patch)
        run = foreign_table.run_from_tables(scores, cohort, tmp_path / "report", DECLARED)
        page = seen(report_files.write_report(run, tmp_path / "report", 0).page.parent)
    assert "os_event: no patient has 0, censored" in page
    assert "R's codes" in page
