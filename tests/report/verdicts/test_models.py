"""What the report concludes from its numbers: tests over many results, verdicts, subgroups, the site probe, designs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made.report import measure
from made.run import MODELS, REASON, make_run
from scipy.stats import t as student
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from mri_vit.report import assembly
from mri_vit.report.numbers import site_probe, subgroups
from mri_vit.report.numbers.pooled import Caveats
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.comparison import Comparison, Permutation, ResampledTest
from mri_vit.report.schema.part import Estimate
from mri_vit.report.verdicts import models as verdict
from mri_vit.report.words import published, verdicts
from mri_vit.settings import models


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return reports.read(make_run(tmp_path_factory.mktemp("runs") / "made-up"))


@pytest.fixture(scope="module")
def metrics(run) -> dict:
    return measure(run)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Run:
    return reports.read(make_run(tmp_path_factory.mktemp("runs") / "small", patients=50, models=("vit", "clinical", "shuffled")))


def alone(run: Run, endpoint: str) -> Run:
    """The run with one endpoint, which is measured in a fraction of the time."""
    kept = tuple(e for e in run.study.endpoints if e.name == endpoint)
    return replace(run, study=run.study.model_copy(update={"endpoints": kept}))


def changed(run: Run, model: str, score) -> Run:
    table = run.predictions.copy()
    table.loc[table.model == model, "score"] = score(table)
    return replace(run, predictions=table)


# --- against clinical-only, and Holm's correction --------------------------------------------------------------------------


def test_candidates_stand_first_and_no_control_is_compared(metrics):
    assert metrics["models"] == ["vit", *models.CONTROLS] == list(metrics["endpoints"]["mgmt"]["models"])
    for endpoint in metrics["endpoints"].values():
        for model, result in endpoint["models"].items():
            assert (result["versus_clinical"] is None) == (model in models.CONTROLS)


def test_holm_runs_over_endpoints_and_models_but_keeps_the_shuffled_control_apart(metrics):
    results = {(name, model): r for name, e in metrics["endpoints"].items() for model, r in e["models"].items()}
    for family in ([k for k in results if k[1] != "shuffled"], [k for k in results if k[1] == "shuffled"]):
        left, floor = len(family), 0.0
        for key in sorted(family, key=lambda key: results[key]["permutation"]["p"]):
            floor = max(floor, min(1.0, left * results[key]["permutation"]["p"]))
            assert results[key]["permutation"]["p_adjusted"] == pytest.approx(floor)
            left -= 1
    assert {len([k for k in results if k[1] == "shuffled"]), len([k for k in results if k[1] != "shuffled"])} == {4, 12}


def test_the_difference_from_clinical_only_is_that_of_the_two_figures(metrics):
    for name, figure in (("mgmt", "auc"), ("idh1", "auc"), ("os", "harrell_c")):
        models = metrics["endpoints"][name]["models"]
        test = models["vit"]["versus_clinical"]
        assert test["difference"] == pytest.approx(models["vit"][figure]["value"] - models["clinical"][figure]["value"])
        assert test["low"] <= test["difference"] <= test["high"]
        assert test["n"] == models["vit"]["n"]
        assert test["p_adjusted"] >= test["p"]
        assert test["nadeau_bengio"] is None  # one repeat


@pytest.mark.parametrize("endpoint", ["mgmt", "os"])
def test_a_model_that_is_the_clinical_one_is_not_better_than_it(small, endpoint):
    copied = small.predictions[small.predictions.model == "vit"].assign(model="clinical")
    others = small.predictions[small.predictions.model != "clinical"]
    found = measure(alone(replace(small, predictions=pd.concat([others, copied])), endpoint))
    result = found["endpoints"][endpoint]["models"]["vit"]
    assert result["versus_clinical"] | {"nadeau_bengio": None} == {
        **dict.fromkeys(("difference", "low", "high", "z"), 0),
        **{"p": 1, "p_adjusted": 1, "n": result["n"], "nadeau_bengio": None},
    }
    assert "not better than clinical-only (age, sex; difference 0.000" in result["verdict"]


def test_over_repeats_the_t_test_is_corrected_for_shared_training_patients(tmp_path):
    folder = make_run(tmp_path / "thrice", repeats=3, patients=60, models=("vit", "clinical"))
    run = alone(reports.read(folder), "mgmt")
    models = measure(run)["endpoints"]["mgmt"]["models"]
    values = {m: np.array([fold["auc"] for fold in models[m]["folds"]]) for m in models}
    d, n = values["vit"] - values["clinical"], models["vit"]["n"]
    n_test = round(n / 3)
    t = d.mean() / math.sqrt((1 / len(d) + n_test / (n - n_test)) * d.var(ddof=1))
    found = models["vit"]["versus_clinical"]["nadeau_bengio"]
    assert (found["t"], found["p"], found["splits"]) == pytest.approx((t, student.sf(t, len(d) - 1), 9))


# --- verdicts --------------------------------------------------------------------------------------------------------------


def result(value=0.7, low=0.6, high=0.8, p=0.01, below=0.99, n=100, positive=40, versus=None) -> BinaryResult:
    """A result of the fields that a verdict rests on."""
    return BinaryResult.model_construct(
        n=n,
        positive=positive,
        auc=Estimate(value=value, low=low, high=high),
        permutation=Permutation.model_construct(p_adjusted=p, p_below_adjusted=below),
        versus_clinical=versus,
    )


def judged(models: dict[str, BinaryResult], notes: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The kind and the sentence of each model's verdict."""
    caveats = Caveats(tied=False, apart=None, outside=0, has_cutoffs=False)
    found = verdict.of_endpoint(models, dict.fromkeys(models, caveats))
    return {model: (found[model].kind, verdicts.sentence(models[model], found[model], notes)) for model in models}


VERSUS = Comparison(difference=0.12, low=0.03, high=0.21, z=2.6, p=0.009, p_adjusted=0.009, n=100, nadeau_bengio=None)
COLUMNS = {"clinical_columns": "age, sex"}


@pytest.mark.parametrize(
    ("case", "kind", "sentence"),
    [
        (result(), "better", "better than chance (AUC 0.700 [0.600, 0.800], permutation test, adjusted p = 0.010)"),
        (
            result(0.54, 0.47, 0.61, 0.21),
            "chance",
            "indistinguishable from chance (AUC 0.540 [0.470, 0.610], permutation test, adjusted p = 0.21)",
        ),
        (result(0.6, 0.51, 0.69, 0.06), "chance", "permutation test, adjusted p = 0.060"),
        (
            result(0.3, 0.2, 0.4, 1.0, 0.002),
            "worse",
            "permutation test of so low a value, adjusted p = 0.002): without a signal, cross-validation often falls below 0.5",
        ),
        (result(0.3, 0.2, 0.4, 1.0, 0.2), "chance", "indistinguishable from chance"),
        (result(positive=4), "undefined", "cannot be judged (n = 100, 4 positive)"),
        (result(positive=96), "undefined", "cannot be judged (n = 100, 96 positive)"),
        (result(low=math.nan), "undefined", "cannot be judged"),
        (result(p=math.nan), "undefined", "cannot be judged"),
        (result(1.0, 1.0, 1.0, 0.0001), "better", "AUC 1.000 [1.000, 1.000], permutation test, adjusted p < 0.001"),
        (result(0.9991, 0.998, 1.0, 0.0001), "better", "AUC 0.999 [0.998, 1.000],"),
    ],
)
def test_the_verdict_follows_its_rules(case, kind, sentence):
    found = judged({"clinical": case}, {})["clinical"]
    assert found[0] == kind
    assert sentence in found[1]


@pytest.mark.parametrize(
    ("versus", "notes", "models", "ending"),
    [
        (
            VERSUS,
            COLUMNS,
            1,
            ", and better than clinical-only (age, sex; difference +0.120 [+0.030, +0.210], adjusted p = 0.009)",
        ),
        (
            VERSUS.model_copy(update={"p_adjusted": 0.06}),
            {},
            1,
            ", not better than clinical-only (difference +0.120 [+0.030, +0.210], adjusted p = 0.060)",
        ),
        (
            VERSUS.model_copy(update={"difference": -0.12}),
            {},
            1,
            ", not better than clinical-only (difference −0.120 [+0.030, +0.210], adjusted p = 0.009)",
        ),
        (
            VERSUS.model_copy(update={"nadeau_bengio": ResampledTest(t=1.36, p=0.098, splits=9)}),
            {},
            1,
            ", not better than clinical-only (difference +0.120 [+0.030, +0.210], adjusted p = 0.009; "
            "corrected resampled t-test, one-sided p = 0.098)",
        ),
        (None, {"clinical": "no column varies"}, 0, ", clinical-only could not be made: no column varies"),
        (None, {}, 0, ", clinical-only was not run"),
    ],
)
def test_a_candidate_better_than_chance_is_held_against_clinical_only(versus, notes, models, ending):
    beside = {"clinical": result()} if models else {}
    found = judged({"vit": result(versus=versus), **beside}, notes)
    assert found["vit"][1] == judged({"clinical": result()}, {})["clinical"][1] + ending
    assert all("clinical-only" not in found[name][1] for name in beside)


def test_beating_a_clinical_control_that_knows_nothing_is_said_to_be_no_more_than_beating_chance():
    beside = {"clinical": result(0.31, 0.2, 0.43, 1.0, 0.02)}
    found = judged({"vit": result(versus=VERSUS), **beside}, COLUMNS)
    assert "better than clinical-only (age, sex; itself no better than chance; difference +0.12" in found["vit"][1]


def test_a_model_that_scores_all_alike_has_an_auc_of_a_half_and_a_warning(small):
    alike = changed(small, "vit", lambda t: t.score[t.model == "vit"] * 0 + 0.3)
    found = measure(alone(alike, "pten"))["endpoints"]["pten"]["models"]["vit"]
    assert (found["auc"]["value"], found["verdict_kind"]) == (0.5, "chance")
    assert found["remark"].startswith("Warning: all ")
    assert found["verdict"].endswith(verdicts.ALIKE)


def test_a_shuffled_control_that_is_better_than_chance_condemns_its_endpoint(small):
    leaking = changed(small, "shuffled", lambda t: (t.truth.fillna(0) + np.arange(len(t)) / len(t))[t.model == "shuffled"])
    models = measure(alone(leaking, "pten"))["endpoints"]["pten"]["models"]
    assert models["shuffled"]["verdict_kind"] == "better"
    assert all(result["verdict"].startswith(verdicts.LEAK) for result in models.values())
    assert models["vit"]["verdict_kind"] == models["clinical"]["verdict_kind"] == "undefined"


def test_what_is_planted_is_found_and_what_is_not_is_not(metrics):
    kinds = {name: e["models"]["vit"]["verdict_kind"] for name, e in metrics["endpoints"].items() if e["models"]}
    assert kinds == {"mgmt": "better", "pten": "chance", "idh1": "better", "os": "better"}
    assert metrics["endpoints"]["tertp"]["models"] == {}


def test_the_rules_that_the_report_prints_name_the_limits_that_it_uses():
    rules = " ".join(verdicts.rules())
    assert all(str(number) in rules for number in (verdict.ALPHA, verdict.FEWEST, verdict.CHANCE))


@pytest.mark.parametrize("seed", range(3))
def test_nothing_known_is_said_of_a_cohort_without_deaths_or_positives(tmp_path, seed):
    run = reports.read(make_run(tmp_path / "tiny", patients=9, seed=seed))
    table = run.predictions.assign(score=0.5, truth=run.predictions.truth * 0, event=run.predictions.event * 0)
    found = measure(replace(run, predictions=table))
    for name, endpoint in found["endpoints"].items():
        for told in endpoint["models"].values():
            assert told["verdict_kind"] == "undefined"
            figure = "auc" if endpoint["kind"] == "binary" else "harrell_c"
            assert all(math.isnan(value) for value in told[figure].values()), name
            said = f"cannot be judged (n = {told['n']}, 0 {'positive' if figure == 'auc' else 'died'})"
            assert told["verdict"] == (said if told["n"] < 2 else f"{said}; {verdicts.ALIKE}")
    assert "Infinity" not in json.dumps(found)


# --- subgroups -------------------------------------------------------------------------------------------------------------


def test_every_patient_stands_in_one_level_of_each_column(metrics):
    for name, marked in (("mgmt", "positive"), ("os", "events")):
        endpoint = metrics["endpoints"][name]
        rows = pd.DataFrame(endpoint["subgroups"])
        assert set(rows.model) == {"vit"}
        sums = rows.groupby("column")[["n", marked]].sum()
        assert set(sums.index) == {"sex", "age", "site"}
        assert (sums.n == endpoint["models"]["vit"]["n"]).all()
        assert (sums[marked] == endpoint["models"]["vit"][marked]).all()


def test_a_subgroup_is_the_estimate_of_its_patients_alone(run, metrics):
    old = set(p for p, age in zip(run.cohort.patient, run.cohort.age, strict=True) if age and int(age) >= 65)
    rows = run.predictions.query("endpoint == 'mgmt' and model == 'vit'").dropna(subset=["truth"])
    rows = rows[rows.patient.isin(old)].groupby("patient")[["truth", "score"]].mean()
    found = next(row for row in metrics["endpoints"]["mgmt"]["subgroups"] if row["level"] == "65 and over")
    assert (found["n"], found["value"]) == (len(rows), pytest.approx(roc_auc_score(rows.truth, rows.score)))
    assert found["low"] <= found["value"] <= found["high"]


def test_a_subgroup_with_few_of_the_rarer_class_carries_a_warning(metrics):
    rows = [row for e in metrics["endpoints"].values() for row in e["subgroups"]]
    assert {row["small"] for row in rows} == {True, False}
    for row in rows:
        rarer = row["events"] if "events" in row else min(row["positive"], row["n"] - row["positive"])
        assert row["small"] == (rarer < subgroups.FEWEST_EVENTS) == (row["warning"] is not None)
        assert row["warning"] is None or f"{rarer} " in row["warning"]


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        (
            "age",
            ["64", "65", "70", "80", "50", "", "30"],
            ["under 65"] + ["65 and over"] * 3 + ["under 65", "missing", "under 65"],
        ),
        ("volume", ["1", "2", "3", "4", "5", "6.5"], ["under 3.5"] * 3 + ["3.5 and over"] * 3),
        ("grade", ["1", "2", "2", "NA"], ["1", "2", "2", "missing"]),
        ("site", [*"aabbccddeeffgghh", "i", "j"], [*"aabbccddeeffgghh", "other", "other"]),
    ],
)
def test_levels_are_halves_of_numbers_or_frequent_words(name, cells, expected):
    assert subgroups.levels(pd.Series(cells, name=name)).tolist() == expected


# --- site probe ------------------------------------------------------------------------------------------------------------


def probe_table(predicted) -> pd.DataFrame:
    site = np.repeat(["A", "B", "C"], [60, 30, 10])
    folds = np.arange(100) % 5
    return pd.DataFrame(
        {"patient": [f"p{i}" for i in range(100)], "repeat": 0, "fold": folds, "site": site, "predicted": predicted(site)}
    )


def probed(table: pd.DataFrame) -> dict:
    found = site_probe.measure(table, seed=0)
    assert found is not None
    judged = assembly.site_probes(found)
    return judged.model_dump()["models"]["vit"]


def test_a_probe_that_tells_the_site_is_a_warning():
    generator = np.random.default_rng(0)
    table = probe_table(lambda site: np.where(generator.random(100) < 0.5, site, generator.choice(["A", "B", "C"], 100)))
    found = probed(table)
    balanced = found["balanced_accuracy"]
    assert balanced["value"] == pytest.approx(balanced_accuracy_score(table.site, table.predicted))
    assert balanced["low"] < balanced["value"] < balanced["high"]
    assert found["warning"]
    assert "a shortcut is possible where site and label go together" in found["sentence"]


def test_a_probe_that_always_names_the_largest_site_is_at_chance_whatever_its_size():
    found = probed(probe_table(lambda site: np.full(100, "A")))
    assert found["balanced_accuracy"]["value"] == pytest.approx(found["chance"]) == pytest.approx(1 / 3)
    assert (found["p"], found["warning"]) == (1, False)


def test_repeats_of_the_probe_count_a_patient_once():
    once = probe_table(lambda site: np.roll(site, 20))
    both = pd.concat([once, once.assign(repeat=1, fold=0)])
    assert site_probe.measure(both, seed=0) == site_probe.measure(once, seed=0)


def test_one_site_has_nothing_to_tell():
    assert site_probe.measure(probe_table(lambda site: site).query("site == 'A'"), seed=0) is None


# --- the whole -------------------------------------------------------------------------------------------------------------


def test_an_external_evaluation_stands_beside_the_runs_own_figures(small, tmp_path):
    internal = json.loads(json.dumps(measure(alone(small, "mgmt"))), parse_constant=lambda undefined: None)
    outside = reports.read(make_run(tmp_path / "outside", seed=3, models=("vit", "clinical"), internal=internal))
    found = measure(alone(outside, "mgmt"))
    own = internal["endpoints"]["mgmt"]["models"]["vit"]
    assert found["internal"]["mgmt"]["vit"] == {"measure": "auc", **own["auc"], "n": own["n"]}
    assert (found["design"], found["folds_sha256"]) == ("external", None)
    told = found["endpoints"]["mgmt"]["models"]["vit"]
    again = told["recalibrated"]
    assert again["label"].startswith("fitted on this cohort's own labels")
    assert (again["slope"], again["intercept"]) == pytest.approx((1, 0), abs=1e-4)
    assert again["brier"] <= told["brier"]["value"]
    assert measure(alone(small, "mgmt"))["endpoints"]["mgmt"]["models"]["vit"]["recalibrated"] is None


def test_a_table_from_elsewhere_claims_no_settings_and_no_folds(tmp_path):
    n = 60
    truth, age = np.arange(n) % 2, 40 + np.arange(n)
    people = pd.DataFrame({"patient": [f"p{i}" for i in range(n)], "age": age, "mgmt": truth})
    people.to_csv(tmp_path / "cohort.csv", index=False)
    scores = people[["patient"]].assign(endpoint="mgmt", score=truth + np.random.default_rng(0).normal(size=n))
    scores.to_csv(tmp_path / "scores.csv", index=False)
    found = measure(reports.from_tables(tmp_path / "scores.csv", tmp_path / "cohort.csv", tmp_path))
    assert (found["design"], found["settings"], found["folds_sha256"], found["environment"]) == ("table", {}, None, {})
    told = found["endpoints"]["mgmt"]["models"]["model"]
    assert told["auc"]["value"] == pytest.approx(roc_auc_score(truth, scores.score))
    assert told["verdict"].endswith(", clinical-only was not run")
    assert [row["n"] for row in found["endpoints"]["mgmt"]["subgroups"]] == [25, 35]


def test_the_flow_of_patients_adds_up_and_a_lost_visit_loses_no_patient(run, metrics):
    flow = metrics["cohort"]
    assert [flow[key] for key in ("patients", "excluded", "predicted", "unpredicted")] == [62, 2, 60, 0]
    assert flow["excluded_reasons"][REASON] == 1
    assert flow["known"]["mgmt"] == metrics["endpoints"]["mgmt"]["known"]
    lost = pd.concat([run.excluded, pd.DataFrame([{"patient": "A_b.c-D_c", "file": "", "reason": "dark"}])])
    assert measure(alone(replace(run, excluded=lost), "tertp"))["cohort"]["excluded"] == 2


def test_the_same_run_gives_the_same_numbers_and_plain_json(small):
    first, second = (json.dumps(measure(alone(small, "os"))) for _ in range(2))
    assert first == second


def test_published_figures_name_their_source(metrics):
    assert [f["figure"] for f in metrics["endpoints"]["mgmt"]["published"]][:3] == ["AUC 0.6309", "AUC 0.5698", "AUC 0.5491"]
    for figure in (figure for endpoint in published.FIGURES for figure in published.figures(endpoint)):
        assert re.search(r"doi:10\.\d{4,}/\S+$|PMID \d{8}$|arXiv:\d{4}\.\d{4,5}$", figure.source), figure
        assert re.search(r"\d", figure.n), figure
        assert figure.validation in ("internal", "external", "pooled"), figure
    assert metrics["endpoints"]["idh1"]["published"] == []


def test_figures_of_others_say_on_whom_they_were_validated():
    found = {(f.figure, f.validation, f.n) for f in published.figures("os")}
    assert {("C 0.709", "external", "708"), ("C 0.677", "external", "132")} <= found  # SNUH and Severance, Lee et al. 2023
    assert {(figure, validation) for figure, validation, _ in found} >= {("C 0.73", "internal"), ("C 0.65 and 0.60", "external")}
    assert published.figures("pten")[0].n == "40"
    assert "13 studies" in published.figures("tertp")[0].n


def test_every_model_that_is_no_control_is_a_candidate():
    assert [model for model in MODELS if models.is_candidate(model)] == ["vit"]
