"""What the report concludes from its numbers: tests over many results, verdicts, subgroups, the site probe, designs."""

from __future__ import annotations

import json
import math
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.report import measure
from made.run import MODELS, REASON, make_run
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from mri_vit.data import predictions
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.predictions import NULL_COLUMNS, SEED_COLUMNS
from mri_vit.errors import UsageError
from mri_vit.metrics import within_fold
from mri_vit.metrics.decision import youden_threshold
from mri_vit.metrics.discrimination import delong_interval
from mri_vit.metrics.survival import drawn_survival
from mri_vit.metrics.within_fold import FALSE_POSITIVES, leak_level
from mri_vit.predictors.regressions import Tabular
from mri_vit.report import assembly
from mri_vit.report import verdicts as verdict
from mri_vit.report.numbers import binary, chance, results, sites, subgroups
from mri_vit.report.numbers import survival as survival_numbers
from mri_vit.report.numbers.chance import Background
from mri_vit.report.reading import foreign_table
from mri_vit.report.reading import run as reports
from mri_vit.report.reading.run import Run
from mri_vit.report.schema import measured
from mri_vit.report.schema.binary import BinaryFigures, BinaryResult
from mri_vit.report.schema.measured import Caveats
from mri_vit.report.schema.parts import BestControl, ChanceTest, Comparison, Estimate, ResampledTest, Retraining, WithinSites
from mri_vit.report.words import caveats, model_verdicts
from mri_vit.settings import recipe
from mri_vit.settings.schema import Endpoint

pytestmark = pytest.mark.long(24)


@pytest.fixture(scope="module")
def run(made_up: Path) -> Run:
    return reports.read_run(made_up / "run")


@pytest.fixture(scope="module")
def metrics(made_up: Path) -> dict:
    return pickle.loads((made_up / "measured").read_bytes())


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Run:
    return reports.read_run(
        make_run(tmp_path_factory.mktemp("runs") / "small", patients=50, models=("vit", "clinical", "shuffled"))
    )


def alone(run: Run, *endpoints: str) -> Run:
    """The run with these endpoints, which are measured in a fraction of the time."""
    kept = tuple(e for e in run.study.endpoints if e.name in endpoints)
    return replace(run, study=run.study.model_copy(update={"endpoints": kept}))


def changed(run: Run, model: str, score) -> Run:
    table = run.predictions.copy()
    table.loc[table.model == model, "score"] = score(table)
    return replace(run, predictions=table)


# --- against the controls, and Holm's correction ---------------------------------------------------------------------------


def test_candidates_stand_first_and_no_control_is_compared(metrics):
    assert metrics["models"] == ["vit", *MODELS[1:]] == list(metrics["endpoints"]["mgmt"]["models"])
    for endpoint in metrics["endpoints"].values():
        for model, result in endpoint["models"].items():
            assert list(result["versus_controls"]) == (["clinical", "volume"] if model == "vit" else [])
            assert (result["versus_best"] is None) == (model != "vit")


def test_holm_runs_over_candidates_over_controls_and_over_permuted_labels_each_apart(metrics):
    results = {(name, model): r for name, e in metrics["endpoints"].items() for model, r in e["models"].items()}
    families = [[k for k in results if k[1] in models] for models in (("vit",), ("clinical", "volume"), ("shuffled",))]
    for family in families:
        left, floor = len(family), 0.0
        for key in sorted(family, key=lambda key: results[key]["chance_test"]["p"]):
            floor = max(floor, min(1.0, left * results[key]["chance_test"]["p"]))
            assert results[key]["chance_test"]["p_adjusted"] == pytest.approx(floor)
            left -= 1
    assert [len(family) for family in families] == [4, 8, 4]


def test_the_difference_from_a_control_is_that_of_the_two_figures_and_its_error_allows_for_refitting(run, metrics):
    for name in ("mgmt", "idh1", "os"):
        models = metrics["endpoints"][name]["models"]
        for control, found in models["vit"]["versus_controls"].items():
            assert found["difference"] == pytest.approx(models["vit"]["judged"]["value"] - models[control]["judged"]["value"])
            assert found["n"] == models["vit"]["n"]
            assert found["p"] == pytest.approx(2 * norm.sf(abs(found["z"])))
    table = (
        run.predictions.loc[run.predictions.endpoint == "mgmt"]
        .groupby(["model", "patient"])
        .agg({"score": "mean", "truth": "max", "fold": "first"})
    )
    people = table.loc["vit"].dropna(subset="truth")
    truth, fold = (people.truth == 1).to_numpy(), people.fold.to_numpy()
    ours, theirs = (
        within_fold.within_fold_auc(truth, table.loc[model].score.loc[people.index].to_numpy(), fold)
        for model in ("vit", "clinical")
    )
    plain = within_fold.within_fold_comparison([ours], [theirs], 1.0)
    found = metrics["endpoints"]["mgmt"]["models"]["vit"]["versus_controls"]["clinical"]
    factor = within_fold.interval_inflation((ours.value + theirs.value) / 2, math.sqrt(2))
    assert found["z"] == pytest.approx(plain.z / factor)


def test_the_best_control_is_the_strongest_and_to_beat_them_all_is_to_beat_each(metrics):
    for endpoint in metrics["endpoints"].values():
        for result in endpoint["models"].values():
            if best := result["versus_best"]:
                tests = result["versus_controls"]
                values = {name: endpoint["models"][name]["judged"]["value"] for name in tests}
                assert best["strongest"] == max(values, key=lambda name: values[name])
                assert best["p"] == max(test["p"] if test["difference"] > 0 else 1.0 for test in tests.values())


def test_over_repeats_the_t_test_is_corrected_for_shared_training_patients(tmp_path):
    folder = make_run(tmp_path / "thrice", repeats=3, patients=60, models=("vit", "clinical"))
    run = alone(reports.read_run(folder), "mgmt")
    models = measure(run)["endpoints"]["mgmt"]["models"]
    values = {m: np.array([fold["auc"] for fold in models[m]["folds"]]) for m in models}
    d, n = values["vit"] - values["clinical"], models["vit"]["n"]
    n_test = round(n / 3)
    t = d.mean() / math.sqrt((1 / len(d) + n_test / (n - n_test)) * d.var(ddof=1))
    found = models["vit"]["versus_controls"]["clinical"]["nadeau_bengio"]
    assert (found["t"], found["p"], found["splits"]) == pytest.approx((t, student.sf(t, len(d) - 1), 9))


# --- verdicts --------------------------------------------------------------------------------------------------------------


def result(value=0.7, low=0.6, high=0.8, p=0.01, below=0.99, n=100, positive=40, versus=None, raw=None, **more) -> BinaryResult:
    """A result of the fields that a verdict rests on; `versus` are its tests against the controls."""
    tests = versus or {}
    best = None
    if tests:
        least = max(tests, key=lambda name: tests[name].p_adjusted)
        beaten = all(test.p_adjusted <= verdict.ALPHA and test.difference > 0 for test in tests.values())
        best = BestControl(strongest=next(iter(tests)), least=least, p=0.5, p_adjusted=tests[least].p_adjusted, beaten=beaten)
    fields = {"retraining": None, "within_sites": None, "operating_point": None, "repeats": ()}
    return BinaryResult.model_construct(
        n=n,
        positive=positive,
        judged=Estimate(value=value, low=low, high=high),
        chance_test=ChanceTest(
            method="within folds", value=value, error=0.05, inflation=1.414, draws=None,
            p=p if raw is None else raw, p_adjusted=p, p_below=below, p_below_adjusted=below,
        ),
        versus_controls=tests,
        versus_best=best,
        **(fields | more),
    )  # fmt: skip


CAVEATS = Caveats(tied=False, apart=None, outside=0, like_truth=False, gap=0.1, has_cutoffs=False)


def judged(models: dict[str, BinaryResult], notes: dict[str, str], caveats=CAVEATS, **more) -> dict[str, tuple[str, str]]:
    """The kind and the sentence of each model's verdict."""
    found = verdict.of_endpoint(models, dict.fromkeys(models, caveats), more.pop("leaks", False), **more)
    return {model: (found[model].kind, model_verdicts.verdict_sentence(models[model], found[model], notes)) for model in models}


VERSUS = Comparison(difference=0.12, low=0.03, high=0.21, z=2.6, p=0.009, p_adjusted=0.009, n=100, nadeau_bengio=None)
COLUMNS = {"clinical_columns": "age, sex"}


@pytest.mark.parametrize(
    ("case", "kind", "sentence"),
    [
        (
            result(),
            "better",
            "better than chance (AUC 0.700 [0.600, 0.800], one-sided test, corrected for refitting, p = 0.010, adjusted p = "
            "0.010)",
        ),
        (
            result(0.54, 0.47, 0.61, 0.21),
            "chance",
            "no evidence that it beats chance (AUC 0.540 [0.470, 0.610], one-sided test, corrected for refitting, p = 0.21, "
            "adjusted p = 0.21)",
        ),
        (result(0.6, 0.51, 0.69, 0.06), "chance", "one-sided test, corrected for refitting, p = 0.060, adjusted p = 0.060"),
        (result(0.6, 0.49, 0.69, 0.04), "better", "better than chance"),  # the p alone decides
        (
            result(0.3, 0.2, 0.4, 1.0, 0.002),
            "worse",
            "below chance, corrected for refitting, p = 0.002, adjusted p = 0.002): without a signal",
        ),
        (result(0.3, 0.2, 0.4, 1.0, 0.2), "chance", "no evidence that it beats chance"),
        (result(0.3, 0.2, 0.4, 1.0, 0.03), "chance", "no evidence that it beats chance"),  # below needs half the level
        (result(positive=4), "undefined", "cannot be judged: fewer than 5 patients of the rarer class (n = 100, 4 positive)"),
        (result(positive=96), "undefined", "cannot be judged: fewer than 5 patients of the rarer class (n = 100, 96 positive)"),
        (result(positive=0), "undefined", "cannot be judged: all patients have the same label (n = 100, 0 positive)"),
        (result(low=math.nan), "undefined", "cannot be judged: the interval is undefined"),
        (result(p=math.nan), "undefined", "cannot be judged: no fold has two patients to compare"),
        (
            result(0.9991, 0.954, 1.0, 0.0001),
            "better",
            "AUC 0.999 [0.954, 1.000], one-sided test, corrected for refitting, p < 0.001, adjusted p < 0.001",
        ),
    ],
)
def test_the_verdict_follows_its_rules(case, kind, sentence):
    found = judged({"clinical": case}, {})["clinical"]
    assert found[0] == kind
    assert sentence in found[1]
    if kind == "undefined":
        assert "[" not in found[1]  # no interval beside what cannot be judged


NOT_SHOWN = VERSUS.model_copy(update={"p_adjusted": 0.06})
DOUBTED = VERSUS.model_copy(update={"nadeau_bengio": ResampledTest(t=0.5, p=0.30, splits=9)})
UNSHOWN = "difference +0.120 [+0.030, +0.210], two-sided p = 0.009, adjusted p = 0.060"
FIGURES = "difference +0.120 [+0.030, +0.210], two-sided p = 0.009, adjusted p = 0.009"


@pytest.mark.parametrize(
    ("versus", "notes", "ending"),
    [
        ({"clinical": VERSUS}, COLUMNS, f", and better than clinical (age, sex; {FIGURES})"),
        ({"clinical": NOT_SHOWN}, {}, f", but not shown to beat clinical ({UNSHOWN})"),
        (
            {"clinical": VERSUS.model_copy(update={"difference": -0.12})},
            {},
            ", but not shown to beat clinical (difference −0.120 [+0.030, +0.210], two-sided p = 0.009, adjusted p = 0.009)",
        ),
        (
            {"clinical": VERSUS.model_copy(update={"nadeau_bengio": ResampledTest(t=1.36, p=0.098, splits=9)})},
            {},
            f", but not shown to beat clinical ({FIGURES}; corrected resampled t-test, one-sided p = 0.098)",
        ),
        ({"clinical": VERSUS.model_copy(update={"n": 60})}, {}, f", and better than clinical ({FIGURES}; on 60 of 100 patients)"),
        ({"volume": VERSUS, "clinical": VERSUS}, {}, f", and better than every control (strongest: volume; {FIGURES})"),
        (
            {"volume": NOT_SHOWN, "clinical": VERSUS},
            {},
            f", but not shown to beat the strongest control, volume ({UNSHOWN})",
        ),
        (
            {"volume": VERSUS, "clinical": NOT_SHOWN},
            {},
            f", and better than the strongest control, volume ({FIGURES}), but not shown to beat clinical ({UNSHOWN})",
        ),
        (
            {"volume": DOUBTED, "clinical": NOT_SHOWN},  # the strongest is not beaten, whatever of the others
            {},
            f", but not shown to beat the strongest control, volume ({FIGURES}; corrected resampled t-test, one-sided p = 0.30)",
        ),
        (
            {"volume": VERSUS, "clinical": DOUBTED},
            {},
            f", and better than the strongest control, volume ({FIGURES}), but not shown to beat clinical ({FIGURES}; corrected "
            "resampled t-test, one-sided p = 0.30)",
        ),
        ({}, {"clinical": "no column varies"}, "; no control was made: no column varies"),
        ({}, {}, "; no control was run"),
    ],
)
def test_a_candidate_better_than_chance_is_held_against_the_best_control(versus, notes, ending):
    found = judged({"vit": result(versus=versus), **{name: result() for name in versus}}, notes)
    assert found["vit"][1] == judged({"clinical": result()}, {})["clinical"][1] + ending


def test_a_verdict_shows_the_p_that_decides_where_the_control_by_itself_would_be_beaten():
    one = result(versus={"clinical": VERSUS})
    assert one.versus_best
    one = one.model_copy(update={"versus_best": one.versus_best.model_copy(update={"p_adjusted": 0.065, "beaten": False})})
    said = judged({"vit": one, "clinical": result()}, {})["vit"][1]
    assert said.endswith(f", but not shown to beat clinical ({FIGURES}; beating every control decides: adjusted p = 0.065)")


def test_beating_a_control_that_knows_nothing_is_said_to_be_no_more_than_beating_chance():
    beside = {"clinical": result(0.31, 0.2, 0.43, 1.0, 0.02)}
    found = judged({"vit": result(versus={"clinical": VERSUS}), **beside}, COLUMNS)
    assert "and better than clinical (age, sex; itself no better than chance; difference +0.12" in found["vit"][1]


def test_what_other_trainings_would_give_stands_beside_the_interval():
    again = Retraining(source="repeats", trainings=5, deviation=0.03, low=0.6, high=0.78)
    assert "; another training is expected in [0.600, 0.780])" in judged({"vit": result(retraining=again)}, {})["vit"][1]


def test_a_site_that_explains_it_is_in_the_verdict():
    sites = WithinSites(sites=3, value=0.51, error=0.05, p=0.44, least=0.4, most=0.6, i_squared=0.1, confounded=True)
    said = judged({"vit": result(within_sites=sites)}, {})["vit"][1]
    assert "within sites it is 0.510, one-sided p = 0.44, not adjusted" in said
    of_nothing = result(0.54, 0.47, 0.61, 0.21, within_sites=sites)
    assert "confound" not in judged({"vit": of_nothing}, {})["vit"][1]  # of what is no better than chance, no site is to blame
    assert "confound" not in judged({"vit": result(within_sites=sites.model_copy(update={"confounded": False}))}, {})["vit"][1]
    told = frozenset({"vit"})
    assert model_verdicts.SITE_WARNING in judged({"vit": result()}, {}, site_told=told)["vit"][1]
    assert (
        model_verdicts.SITE_WARNING not in judged({"vit": result(p=0.5)}, {}, site_told=told)["vit"][1]
    )  # nothing was found by any way
    holds = result(within_sites=sites.model_copy(update={"confounded": False, "p": 0.01, "value": 0.68}))
    said = judged({"vit": holds}, {}, site_told=told)["vit"][1]
    assert "predicts the site, but the result holds within sites (AUC 0.680, one-sided p = 0.010, not" in said


@pytest.mark.parametrize(
    ("caveats", "models", "said"),
    [
        (replace(CAVEATS, like_truth=True), {}, "reproduce the labels exactly"),
        (replace(CAVEATS, gap=0.95), {}, "at least 0.9 apart"),
        (CAVEATS, {"clinical": result(0.55), "volume": result(0.41)}, "every control is at most 0.6"),
        (CAVEATS, {}, "no control was compared"),
    ],
)
def test_a_result_too_good_to_be_true_asks_for_a_check(caveats, models, said):
    found = judged({"vit": result(value=1.0), **models}, {}, caveats)
    assert "warning: too good to believe" in found["vit"][1]
    assert said in found["vit"][1]


def test_a_perfect_result_of_too_few_to_judge_is_not_called_too_good():
    found = judged({"vit": result(value=1.0, positive=2), "clinical": result(0.5)}, {}, replace(CAVEATS, like_truth=True))
    assert "cannot be judged" in found["vit"][1]
    assert "too good" not in found["vit"][1]


def test_a_perfect_result_beside_a_control_that_knows_as_much_asks_for_none():
    found = judged({"vit": result(value=1.0), "intensity": result(0.996)}, {})
    assert "too good" not in found["vit"][1]
    assert "too good" not in judged({"intensity": result(0.996)}, {})["intensity"][1]  # of a control there is none


def test_a_label_among_the_columns_is_caught_in_each_of_twenty_studies():
    """Under a name that tells nothing, beside the age; what a control reads so asks for a check like what a network does."""
    nulls, seeds = (pd.DataFrame(columns=pd.Index(columns)) for columns in (NULL_COLUMNS, SEED_COLUMNS))
    endpoint, study = Endpoint(name="mgmt", kind="binary"), Background("cross-validation", nulls, seeds, {})
    for seed in range(20):
        generator = np.random.default_rng(seed)
        truth, fold = generator.permutation(np.arange(82) % 2 == 0), np.arange(82) % 3
        patients = [Patient(f"p{i:02d}", {}, {"mgmt": float(truth[i])}, {}) for i in range(82)]
        columns = {"age": generator.normal(60, 10, 82), "panel_3": truth.astype(float)}
        table = pd.DataFrame(columns, index=pd.Index([p.id for p in patients]))
        score = np.zeros(82)
        for k in range(3):
            regression = Tabular(table, (endpoint,))
            regression.fit([p for p, f in zip(patients, fold, strict=True) if f != k], [])
            test = [without_labels(p) for p, f in zip(patients, fold, strict=True) if f == k]
            score[fold == k] = regression.predict(test)[0].score
        rows = pd.DataFrame({"patient": [p.id for p in patients], "repeat": 0, "fold": fold, "truth": truth, "score": score})
        found = result(value=chance.measure(endpoint, rows, study).judged.value)
        said = judged({"clinical": found, "volume": result(0.55)}, {})["clinical"][1]
        assert "warning: too good to believe" in said


def test_a_model_that_scores_all_alike_has_an_auc_of_a_half_and_a_warning(small):
    alike = changed(small, "vit", lambda t: t.score[t.model == "vit"] * 0 + 0.3)
    found = measure(alone(alike, "pten"))["endpoints"]["pten"]["models"]["vit"]
    assert (found["auc"]["value"], found["verdict_kind"]) == (0.5, "chance")
    assert found["remark"].startswith("Warning: all ")
    assert model_verdicts.ALIKE in found["verdict"]


def leaked(first: float, second: float | None, endpoints: int = 4) -> frozenset[str]:
    """The endpoints that leak when one endpoint's permuted labels are found with these p, and the others' are not."""
    models = {f"e{i}": {"shuffled": result(raw=0.5)} for i in range(endpoints)}
    models["e0"] = {"shuffled": result(raw=first)}
    if second is not None:
        models["e0"]["shuffled again"] = result(raw=second)
    return verdict.leaking(models)


def test_an_endpoint_leaks_when_two_permutations_in_a_row_are_found_and_not_before():
    assert leak_level(4) == pytest.approx(0.05)
    assert leaked(0.04, 0.04) == {"e0"}
    assert leaked(0.0001, None) == leaked(0.0001, 0.06) == leaked(0.06, 0.0001) == frozenset()
    assert leaked(math.nan, 0.01) == leaked(0.01, math.nan) == frozenset()
    assert leaked(0.09, 0.09, endpoints=1) == {"e0"}  # sqrt(0.01) each


def test_thresholds_that_are_their_own_folds_best_throughout_were_chosen_there(small):
    ours = small.predictions
    leaking = []
    for _, fold in ours.loc[(ours.model == "shuffled") & (ours.endpoint != "os")].groupby(["endpoint", "fold"]):
        known = fold.dropna(subset=["truth"])
        both = known.truth.nunique() == 2
        best = youden_threshold(known.truth.to_numpy(float), known.score.to_numpy(float)) if both else math.nan
        leaking.append(fold.assign(threshold=best))
    honest = measure(alone(small, "mgmt"))["endpoints"]["mgmt"]["models"]["vit"]
    rest = ours.loc[~((ours.model == "shuffled") & (ours.endpoint != "os"))]
    found = measure(replace(small, predictions=pd.concat([rest, *leaking])))["endpoints"]
    assert not honest["verdict"].startswith(model_verdicts.LEAK)
    assert all(r["verdict"].startswith(model_verdicts.LEAK) for name in ("mgmt", "pten") for r in found[name]["models"].values())
    assert not found["os"]["models"]["vit"]["verdict"].startswith(model_verdicts.LEAK)


def test_labels_found_twice_after_permutation_withdraw_their_endpoints_verdicts(small):
    known = changed(small, "shuffled", lambda t: (t.truth.fillna(0) + np.arange(len(t)) / len(t))[t.model == "shuffled"])
    again = known.predictions.loc[known.predictions.model == "shuffled"].assign(model="shuffled again")
    leaking = replace(known, predictions=pd.concat([known.predictions, again]))
    models = measure(alone(leaking, "pten"))["endpoints"]["pten"]["models"]
    assert all(result["verdict"].startswith(model_verdicts.LEAK) for result in models.values())
    assert models["vit"]["verdict_kind"] == models["clinical"]["verdict_kind"] == "undefined"
    once = measure(alone(known, "pten"))["endpoints"]["pten"]["models"]
    assert not once["vit"]["verdict"].startswith(model_verdicts.LEAK)


def test_what_is_planted_is_found_and_what_is_not_is_not(metrics):
    kinds = {name: e["models"]["vit"]["verdict_kind"] for name, e in metrics["endpoints"].items() if e["models"]}
    assert kinds == {"mgmt": "better", "pten": "chance", "idh1": "better", "os": "better"}
    assert metrics["endpoints"]["tertp"]["models"] == {}


def test_what_a_made_up_cohort_holds_stands_beside_what_was_found(run):
    planted = {"mgmt": "better", "pten": "better", "os": "chance"}
    asked = run.study.report.model_copy(update={"expected_verdicts": planted})
    found = measure(alone(replace(run, study=run.study.model_copy(update={"report": asked})), *planted))["expected_verdicts"]
    assert {name: one["as_expected"] for name, one in found.items()} == {"mgmt": True, "pten": False, "os": False}


def test_the_rules_that_the_report_prints_name_the_limits_that_it_uses():
    rules = " ".join(model_verdicts.verdict_rules())
    assert all(str(number) in rules for number in (verdict.ALPHA, verdict.MIN_RARER_GROUP))
    assert f"√({FALSE_POSITIVES}/E)" in rules


@pytest.mark.parametrize("seed", range(3))
def test_nothing_known_is_said_of_a_cohort_without_deaths_or_positives(tmp_path, seed):
    run = reports.read_run(make_run(tmp_path / "tiny", patients=9, seed=seed))
    table = run.predictions.assign(score=0.5, truth=run.predictions.truth * 0, event=run.predictions.event * 0)
    found = measure(replace(run, predictions=table))
    for name, endpoint in found["endpoints"].items():
        for told in endpoint["models"].values():
            assert told["verdict_kind"] == "undefined"
            figure = "auc" if endpoint["kind"] == "binary" else "harrell_c"
            assert all(math.isnan(value) for value in told[figure].values()), name
            why = "all patients have the same label" if figure == "auc" else "no patient died"
            said = f"cannot be judged: {why} (n = {told['n']}, 0 {'positive' if figure == 'auc' else 'died'})"
            assert told["verdict"] == (said if told["n"] < 2 else f"{said}; {model_verdicts.ALIKE}")
    assert "Infinity" not in json.dumps(found)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.1, 0.6, "Probabilities are better than"), (-0.3, 0.2, "No evidence that"), (-0.6, -0.1, "Probabilities are worse than")],
)
def test_probabilities_are_judged_by_the_interval_of_the_scaled_brier_score_and_not_by_the_verdict(metrics, low, high, said):
    found = BinaryResult.model_validate(metrics["endpoints"]["mgmt"]["models"]["vit"])
    assert found.brier
    scaled = Estimate(value=(low + high) / 2, low=low, high=high)
    found = found.model_copy(update={"brier": found.brier.model_copy(update={"scaled": scaled})})
    judged_as = verdict.Verdict(kind="chance", against_chance="chance", unjudged=None, is_tied=False, leaks=False)
    sentence = model_verdicts.probabilities(found, judged_as)
    assert sentence
    assert sentence.startswith(said)
    assert "the same probability for every patient" in sentence
    assert model_verdicts.probabilities(found.model_copy(update={"brier": None}), judged_as) is None
    assert (
        model_verdicts.probabilities(found, replace(judged_as, kind="undefined")) is None
    )  # of what is not judged nothing is said


def test_ranks_may_be_perfect_where_probabilities_are_worse_than_none():
    truth = np.arange(40) % 2 == 0
    score = np.where(truth, 0.09, 0.01)  # in order, and far too low
    found = binary.of_probabilities(truth, score, 0, 1.0)
    assert found.brier
    assert found.brier.scaled
    assert found.brier.scaled.high < 0
    assert found.calibration
    assert found.calibration.ici.value == pytest.approx(np.abs(truth - score).mean(), abs=1e-3)


def seen_survival(seed, n=80):
    """Patients of whom some are censored."""
    random = np.random.default_rng(seed)
    dies, ends = random.exponential(400, n), random.uniform(200, 1700, n)
    people = pd.DataFrame({"time_days": np.minimum(dies, ends), "event": dies <= ends, "score": random.normal(size=n)})
    return people.assign(patient=[f"p{i:04d}" for i in range(n)])


def of_survival(people, chances, inflated=1.0):
    alive = pd.DataFrame(chances, index=pd.Index(people.patient), columns=pd.Index(HORIZONS))
    return survival_numbers.of_probabilities(people, alive, 0, inflated)


HORIZONS = np.array([182.0, 365.0, 730.0])


@pytest.mark.parametrize("inflated", [1.0, math.sqrt(2)])
def test_one_curve_for_every_patient_is_not_called_worse_than_one_curve(inflated):
    worse = 0
    for seed in range(40):
        people, fold, chances = seen_survival(seed), np.arange(80) % 3, np.empty((80, 3))
        for k in range(3):  # of each fold the Kaplan-Meier curve of the others
            others = people.loc[fold != k]
            outcome = others.time_days.to_numpy(), others.event.to_numpy()
            chances[fold == k] = drawn_survival(*outcome, np.ones((1, len(others))), HORIZONS)
        found = of_survival(people, chances, inflated).integrated_brier
        assert found
        assert found.scaled
        assert found.scaled.low <= found.scaled.value <= found.scaled.high
        worse += found.scaled.high < -model_verdicts.OWN_SHARE / 80
    assert worse <= 4


def test_predictions_that_no_patient_dies_have_no_ratio_and_cut_no_report_short():
    found = of_survival(seen_survival(0), np.tile([1.0, 0.7, 0.4], (80, 1))).calibration_at
    none, ratio, slope = found[0].observed_to_expected, found[1].observed_to_expected, found[1].slope
    assert none
    assert ratio
    assert slope
    assert math.isnan(none.value)
    assert ratio.low < ratio.value < ratio.high
    assert math.isnan(slope.value)  # all curves are one


def test_slope_of_survival_is_that_of_the_log_hazard():
    risk = np.random.default_rng(2).normal(size=2000)
    dies = np.random.default_rng(3).exponential(500 * np.exp(-risk))
    chances = np.exp(-np.exp(0.5 * risk)[:, None] * HORIZONS / 500)
    slope = of_survival(seen_survival(1, 2000).assign(time_days=dies, event=True), chances).calibration_at[1].slope
    assert slope
    assert slope.low < 2 < slope.high  # the prediction has half the log hazard
    assert slope.value == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("design", ["cross-validation", "external"])
def test_intervals_are_wider_by_the_factor_for_refitting_alone(design):
    truth, score = np.arange(60) % 2 == 0, np.random.default_rng(0).uniform(0.2, 0.8, 60)
    rows = pd.DataFrame({"patient": [f"p{i:02d}" for i in range(60)], "repeat": 0, "fold": np.arange(60) % 3, "truth": truth})
    nulls, seeds = (pd.DataFrame(columns=pd.Index(columns)) for columns in (NULL_COLUMNS, SEED_COLUMNS))
    background = Background(design, nulls, seeds, {})
    marker = Endpoint(name="marker", kind="binary")
    found = binary.measure(marker, rows.assign(score=score, threshold=np.nan), background, 0).figures
    given = binary.of_probabilities(truth, score, 0, 1.0)
    assert isinstance(found, BinaryFigures)
    assert found.calibration
    assert given.calibration
    wide, narrow = (one.high - one.low for one in (found.calibration.slope_interval, given.calibration.slope_interval))
    assert wide == pytest.approx(narrow * (math.sqrt(2) if design == "cross-validation" else 1))
    low, high = delong_interval(truth, score)
    assert (found.auc.high - found.auc.low > high - low + 1e-9) == (design == "cross-validation")


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
        assert row["small"] == (rarer < measured.MIN_EVENTS) == (row["warning"] is not None)
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
    return assembly.site_probes(sites.probe_figures(table, seed=0)).model_dump()["models"]["vit"]


def test_a_probe_that_tells_the_site_is_a_warning():
    generator = np.random.default_rng(0)
    table = probe_table(lambda site: np.where(generator.random(100) < 0.5, site, generator.choice(["A", "B", "C"], 100)))
    found = probed(table)
    balanced = found["balanced_accuracy"]
    assert balanced["value"] == pytest.approx(balanced_accuracy_score(table.site, table.predicted))
    assert balanced["low"] < balanced["value"] < balanced["high"]
    assert found["warning"]
    assert "a shortcut is possible" in found["sentence"]


def test_a_probe_that_always_names_the_largest_site_is_at_chance_whatever_its_size():
    found = probed(probe_table(lambda site: np.full(100, "A")))
    assert found["balanced_accuracy"]["value"] == pytest.approx(found["chance"]) == pytest.approx(1 / 3)
    assert (found["p"], found["warning"]) == (1, False)


def test_repeats_of_the_probe_count_a_patient_once():
    once = probe_table(lambda site: np.roll(site, 20))
    both = pd.concat([once, once.assign(repeat=1, fold=0)])
    assert sites.probe_figures(both, seed=0) == sites.probe_figures(once, seed=0)


def test_one_site_has_nothing_to_tell():
    assert sites.probe_figures(probe_table(lambda site: site).query("site == 'A'"), seed=0) == {}


# --- the whole -------------------------------------------------------------------------------------------------------------


def test_an_external_evaluation_stands_beside_the_runs_own_figures(small, tmp_path):
    internal = json.loads(json.dumps(measure(alone(small, "mgmt"))), parse_constant=lambda undefined: None)
    outside = reports.read_run(make_run(tmp_path / "outside", seed=3, models=("vit", "clinical"), internal=internal))
    found = measure(alone(outside, "mgmt"))
    own = internal["endpoints"]["mgmt"]["models"]["vit"]
    assert found["internal"]["mgmt"]["vit"] == {"measure": "auc", **own["judged"], "n": own["n"]}
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
    found = measure(foreign_table.run_from_tables(tmp_path / "scores.csv", tmp_path / "cohort.csv", tmp_path))
    assert (found["design"], found["settings"], found["folds_sha256"], found["environment"]) == ("table", {}, None, {})
    told = found["endpoints"]["mgmt"]["models"]["model"]
    assert told["auc"]["value"] == pytest.approx(roc_auc_score(truth, scores.score))
    assert told["verdict"].endswith("; no control was run")
    assert [row["n"] for row in found["endpoints"]["mgmt"]["subgroups"]] == [25, 35]


def test_a_table_of_patients_on_whom_no_model_was_trained_is_judged_as_given_and_has_one_fold(tmp_path):
    random, n = np.random.default_rng(0), 80
    people = pd.DataFrame({"patient": [f"p{i}" for i in range(n)], "mgmt": np.arange(n) % 2})
    people = people.assign(os_days=random.exponential(400, n).round() + 1, os_event=1)
    people.to_csv(tmp_path / "cohort.csv", index=False)
    scores = [people[["patient"]].assign(endpoint=name, score=people.mgmt + random.normal(size=n)) for name in ("mgmt", "os")]
    table = pd.concat(scores).assign(fold=0)
    table.to_csv(tmp_path / "scores.csv", index=False)
    asked = tmp_path / "scores.csv", tmp_path / "cohort.csv", tmp_path
    unknown, held_out = (
        measure(foreign_table.run_from_tables(*asked, foreign_table.Declared(held_out=one))) for one in (False, True)
    )
    assert (unknown["design"], held_out["design"]) == ("table", "held-out")
    assert (held_out["settings"], held_out["leave_out"]) == ({}, None)
    before, now = (found["endpoints"]["mgmt"]["models"]["model"] for found in (unknown, held_out))
    assert now["chance_test"]["inflation"] == 1.0
    assert now["judged"]["high"] - now["judged"]["low"] < before["judged"]["high"] - before["judged"]["low"]
    assert held_out["endpoints"]["os"]["models"]["model"]["logrank"]["inflation"] == 1.0
    table.assign(fold=np.arange(len(table)) % 2).to_csv(tmp_path / "scores.csv", index=False)
    with pytest.raises(UsageError, match="2 folds; patients that no model was trained on are of one fold"):
        foreign_table.run_from_tables(*asked, foreign_table.Declared(held_out=True))


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
    for figure in (figure for endpoint in caveats.PUBLISHED for figure in caveats.published_figures(endpoint)):
        assert re.search(r"doi:10\.\d{4,}/\S+$|PMID \d{8}$|arXiv:\d{4}\.\d{4,5}$", figure.source), figure
        assert re.search(r"\d", figure.n), figure
        assert figure.validation in ("internal", "external", "pooled"), figure
    assert metrics["endpoints"]["idh1"]["published"] == []


def test_figures_of_others_say_on_whom_they_were_validated():
    found = {(f.figure, f.validation, f.n) for f in caveats.published_figures("os")}
    assert {("C 0.709", "external", "708"), ("C 0.677", "external", "132")} <= found  # SNUH and Severance, Lee et al. 2023
    assert {(figure, validation) for figure, validation, _ in found} >= {("C 0.73", "internal"), ("C 0.65 and 0.60", "external")}
    assert caveats.published_figures("pten")[0].n == "40"
    assert "13 studies" in caveats.published_figures("tertp")[0].n


def test_every_model_that_is_no_control_is_compared():
    assert [model for model in MODELS if recipe.is_compared(model)] == ["vit"]


def test_an_upper_reference_is_neither_judged_nor_a_bar():
    assert not recipe.is_compared("radiomics")
    assert [name for name in recipe.NOT_COMPARED if recipe.is_bar(name)] == ["clinical", "volume", "intensity", "slices", "site"]
    assert results.family("radiomics") not in ("compared", "control")


def test_with_an_upper_reference_nobody_elses_result_or_verdict_changes(tmp_path):
    """It ranks everybody without an error; as a control that would take every finding away."""
    folder = make_run(tmp_path / "run", models=("vit", "clinical", "shuffled"))
    before = measure(alone(reports.read_run(folder), "mgmt", "os"))
    table = predictions.load(folder / "predictions.csv")
    own = table.loc[table.model == "vit"]
    score = np.where(own.endpoint == "os", -own.time_days.fillna(0), 0.1 + 0.8 * own.truth.fillna(0.5))
    predictions.save(pd.concat([table, own.assign(model="radiomics", score=score)]), folder / "predictions.csv")
    after = measure(alone(reports.read_run(folder), "mgmt", "os"))
    for name, endpoint in before["endpoints"].items():
        others = after["endpoints"][name]["models"]
        assert others.pop("radiomics", None) is not None or not endpoint["models"]
        assert json.dumps(others, sort_keys=True) == json.dumps(endpoint["models"], sort_keys=True)
    assert after["endpoints"]["mgmt"]["models"]["vit"]["versus_best"]["strongest"] == "clinical"
    assert after["shown"] == before["shown"]
