"""What an evaluation adds: how calibration drifts from the run, and what a hospital in neither cohort may expect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made.report import measure, read_metrics, seen
from made.run import make_run
from scipy.special import expit, logit

from mri_vit.metrics.calibration import observed_to_expected
from mri_vit.metrics.transportability import of_arcsine, prediction_interval
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.judged import averaged, known_rows
from mri_vit.report.pages import report_files
from mri_vit.report.reading import run as reading
from mri_vit.report.reading.run import Run

pytestmark = pytest.mark.long(12)

HOSTILE = '<img src=x onerror="alert(1)">'  # a site's name


@dataclass(frozen=True)
class Inside:
    """The run that is evaluated, and what its metrics.json holds."""

    run: Run
    metrics: dict[str, Any]


def of_two(run: Run) -> Run:
    """The run with a marker and survival alone: each endpoint takes a second to measure."""
    two = tuple(endpoint for endpoint in run.study.endpoints if endpoint.name in ("mgmt", "os"))
    return replace(run, study=run.study.model_copy(update={"endpoints": two}))


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    folder = tmp_path_factory.mktemp("runs") / "inside"
    run = of_two(reading.read_run(make_run(folder, patients=120, models=("vit", "clinical", "shuffled"))))
    return Inside(run, json.loads(json.dumps(measure(run)), parse_constant=lambda undefined: None))


def evaluated(inside: Inside, folder: Path, patients: int, shift: float = 0.0, sites: Sequence[str] = ()) -> Run:
    """The run's evaluation on another cohort, whose probabilities of markers are `shift` higher on the logit scale."""
    models, internal = ("vit", "clinical"), inside.metrics
    run = of_two(reading.read_run(make_run(folder / "outside", patients=patients, seed=3, models=models, internal=internal)))
    named = run.cohort.assign(site=[sites[i % len(sites)] for i in range(len(run.cohort))]) if sites else run.cohort
    marker = run.predictions.endpoint != "os"
    higher = expit(logit(run.predictions.score.astype(float).clip(1e-9, 1 - 1e-9)) + shift)
    told = run.predictions.assign(score=run.predictions.score.where(~marker, higher))
    return replace(run, cohort=named, predictions=told, inside=inside.run.predictions, inside_survival=inside.run.survival)


def test_the_drift_is_of_out_of_fold_scores_there_and_of_the_means_here(inside, tmp_path):
    run = evaluated(inside, tmp_path, 80, shift=2.0)
    found = measure(run)["drift"]
    assert set(found["mgmt"]) == {"vit", "clinical"}
    (drift,) = found["mgmt"]["vit"]
    endpoint = next(one for one in run.study.endpoints if one.name == "mgmt")
    for side, of in (("internal", replace(run, predictions=run.inside)), ("external", run)):
        people = averaged(known_rows(of.predictions, endpoint, "vit"))
        ratio = observed_to_expected(people.truth.to_numpy(bool), people.score.to_numpy(float))
        assert drift["observed_to_expected"][side]["value"] == pytest.approx(ratio)
        assert drift[f"n_{side}"] == len(people)
    assert drift["excess"]["difference"]["low"] > 0
    assert " points too high here [" in drift["sentence"]
    assert drift["sentence"].endswith("so calibration changed")


def test_survival_drifts_by_its_probabilities_at_one_and_two_years(inside, tmp_path):
    drifts = measure(evaluated(inside, tmp_path, 80))["drift"]["os"]["vit"]
    assert [drift["days"] for drift in drifts] == [365, 730]
    assert [drift["slope"] for drift in drifts] == [None, None]
    assert all(drift["sentence"].startswith("Probabilities to die within") for drift in drifts)


def test_few_patients_are_not_judged_however_alike_they_are(inside, tmp_path):
    """Two of one class would have an interval without width, and vouch for a change."""
    run = evaluated(inside, tmp_path, 60)
    few = run.predictions.groupby(["model", "endpoint"]).head(4)
    found = measure(replace(run, predictions=few))
    assert not any(found["drift"].values())
    assert not any(found["new_hospital"].values())


def test_several_sites_give_the_interval_and_one_an_assumption(inside, tmp_path):
    names = [HOSTILE, "A", "B", "C", "D", "E"]
    run = evaluated(inside, tmp_path, 360, sites=names)
    expected = measure(run)["new_hospital"]
    found, of_c = expected["mgmt"]["vit"], expected["os"]["vit"]
    assert (found["method"], found["measure"], found["left_out"]) == ("sites", "auc", 0)
    assert [site["site"] for site in found["sites"]] == sorted(names)
    assert found["low"] < found["value"] < found["high"]
    endpoint = next(one for one in run.study.endpoints if one.name == "mgmt")
    people = averaged(known_rows(run.predictions, endpoint, "vit"))
    figures = [measures.of(endpoint).figure(here) for _, here in people.groupby(people.patient.map(site_of(run)))]
    values, variances = np.array([one.on_arcsine for one in figures]).T
    np.testing.assert_allclose([found["low"], found["high"]], of_arcsine(np.array(prediction_interval(values, variances))))
    assert (of_c["measure"], of_c["method"]) == ("harrell_c", "sites")
    alone = measure(replace(run, cohort=run.cohort.drop(columns="site")))["new_hospital"]["mgmt"]["vit"]
    assert (alone["method"], alone["sites"], alone["tau"]) == ("assumed", [], 0.055)
    assert "by assumption" in alone["sentence"]


def site_of(run: Run) -> dict[str, str]:
    return dict(zip(run.cohort.patient, run.cohort.site, strict=True))


def test_a_site_without_an_error_has_a_value_with_a_variance(inside, tmp_path):
    endpoint = evaluated(inside, tmp_path, 20).study.endpoints[0]
    people = pd.DataFrame({"truth": [True] * 6 + [False] * 8, "score": np.r_[np.full(6, 0.9), np.full(8, 0.1)]})
    value, variance = measures.of(endpoint).figure(people).on_arcsine
    assert 1.2 < value < np.pi / 2
    assert 0.01 < variance < 0.1


@pytest.mark.usefixtures("sketched")
def test_the_page_tells_drift_and_expectation_and_names_an_assumption_as_one(inside, tmp_path):
    run = evaluated(inside, tmp_path, 80, shift=2.0)
    written = report_files.write_report(run, tmp_path / "report")
    said = seen(tmp_path / "report")
    assert "An assumption, not a result." in said
    assert "points too high here" in said
    assert "calibration drift" in said
    assert (tmp_path / "report" / "tables" / "drift.csv").exists()
    assert read_metrics(tmp_path / "report")["new_hospital"]["mgmt"]["vit"]["method"] == "assumed"
    assert written.metrics.drift["mgmt"]["vit"][0].slope


@pytest.mark.usefixtures("sketched")
def test_a_hostile_name_of_a_site_is_text(inside, tmp_path):
    report_files.write_report(evaluated(inside, tmp_path, 360, sites=[HOSTILE, "A", "B", "C", "D"]), tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "<img src=x" not in page
    assert "how 5 sites differ" in page
