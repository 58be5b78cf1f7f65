"""The report on several compared models: costs beside scores, who beats whom, what is shown of many, pretraining in words."""

from __future__ import annotations

import json
import math
import re
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from made.metrics import attributes, filled
from made.report import leaves, measure, plain, read_metrics, seen
from made.run import add_comparators, make_run, write_cost

from mri_vit.data import predictions
from mri_vit.errors import IntegrityError
from mri_vit.metrics import comparison, within_fold
from mri_vit.report import verdicts as beside_own
from mri_vit.report.numbers import results
from mri_vit.report.pages import report_files
from mri_vit.report.reading import run as run_folder
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.kinds import Result
from mri_vit.report.schema.parts import Comparators, Comparison, Kind, ResampledTest
from mri_vit.report.verdicts import Unjudged, Verdict
from mri_vit.report.words import checklists, model_verdicts, networks, notation, of_kind
from mri_vit.report.words.run_facts import Facts
from mri_vit.run import files
from mri_vit.settings import recipe
from mri_vit.settings.schema import Study

pytestmark = pytest.mark.long(13)

FOLDS = 3
COMPARATORS = {  # signal of the made-up scores, in standard deviations between the classes, and recipe
    "resnet10": (6.0, 'model = {architecture = "resnet10", channels = ["t1ce"]}'),
    "slow": (0.8, "train = {learning_rate = 0.0001, epochs = 100}"),  # 100 is the study's own
    "blind": (-2.0, 'model = {architecture = "swin_vit"}\npretrain = {method = "none"}'),
}
PRETRAINED = '[pretrain]\nmethod = "mae"\npatients = "all"\nepochs = 30\n'


def one(run: Run, endpoint: str) -> Run:
    return replace(
        run, study=run.study.model_copy(update={"endpoints": tuple(e for e in run.study.endpoints if e.name == endpoint)})
    )


def score_again(folder: Path, model: str, signal: float, seed: int) -> None:
    """Give a model scores of another signal."""
    table = predictions.load(folder / "predictions.csv")
    own = (table.model == model) & (table.endpoint == "mgmt")
    noise = np.random.default_rng(seed).normal(size=own.sum())
    table.loc[own, "score"] = 1 / (1 + np.exp(-noise - signal * (table.truth[own].fillna(0.5) - 0.5)))
    predictions.save(table, folder / "predictions.csv")


def write_history(home: Path, repeat: int, fold: int, last: float) -> None:
    """A validation loss that fell to half, and in the last epoch to something else."""
    folder = files.fold_folder(home, repeat, fold)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / files.HISTORY).write_text(
        "epoch,seconds,loss,tune\n" + "".join(f"{e},1,1,0.5\n" for e in range(1, 10)) + f"10,1,1,{last}\n"
    )


def benchmark(folder: Path, repeats: int = 1) -> Path:
    make_run(folder, patients=110, repeats=repeats, models=("vit", *COMPARATORS, "clinical", "shuffled"))
    for seed, (name, signal) in enumerate([("vit", 0.8), *((name, signal) for name, (signal, _) in COMPARATORS.items())]):
        score_again(folder, name, signal, seed)
    add_comparators(
        folder, {name: lines for name, (_, lines) in COMPARATORS.items()}, PRETRAINED + "[explain]\npatients = 0\nscored = 0\n"
    )
    (folder / "notes.json").write_text(json.dumps({"transductive": "vit (51 patients), slow (51 patients)"}))
    for repeat in range(repeats):
        for fold in range(FOLDS):
            write_history(folder, repeat, fold, last=0.5 if fold else 0.4)
            write_history(folder / "rivals" / "resnet10", repeat, fold, last=0.1)
            write_cost(
                folder,
                "vit",
                repeat,
                fold,
                parameters=1234567,
                flops=2.5e9 + fold,
                patient_seconds=0.01 * (fold + 1),
                training_seconds=1300.4,
            )
            write_cost(
                folder, "resnet10", repeat, fold, parameters=14_000_000, flops=3e11, patient_seconds=0.7, training_seconds=4000
            )
            if fold:
                write_cost(folder, "slow", repeat, fold, parameters=1, flops=1, patient_seconds=1, training_seconds=1)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return one(run_folder.read_run(benchmark(tmp_path_factory.mktemp("runs") / "benchmark")), "mgmt")


@pytest.fixture(scope="module")
def home(run, tmp_path_factory) -> Path:
    return report_files.write_report(run, tmp_path_factory.mktemp("report")).page.parent


@pytest.fixture(scope="module")
def metrics(home) -> dict[str, Any]:
    return read_metrics(home)


@pytest.fixture(scope="module")
def words(home) -> str:
    return seen(home)


# --- what each is, and what it costs ---------------------------------------------------------------------------------------


def test_a_compared_model_costs_the_median_of_its_folds_and_the_sum_of_their_training(metrics):
    found = {entry["model"]: entry for entry in metrics["compared_models"]}
    own = found["vit"]
    assert (own["parameters"], own["gflops"], own["patient_seconds"]) == (1234567, 2.5 + 1e-9, 0.02)
    assert own["training_seconds"] == pytest.approx(3 * 1300.4)
    assert found["resnet10"]["training_seconds"] == 12000


def test_it_is_said_in_how_many_trainings_of_each_model_the_validation_loss_was_flat(metrics, words):
    found = {entry["model"]: (entry["trainings"], entry["flat"]) for entry in metrics["compared_models"]}
    assert found == {"vit": (3, 2), "resnet10": (3, 0), "slow": (None, None), "blind": (None, None)}
    assert "2 of 3" in words[words.index("Vision Transformer, 12 blocks") : words.index("3D ResNet-10")]
    assert "0 of 3" in words[words.index("3D ResNet-10; T1ce only") :]


def test_costs_of_every_repeat_count(tmp_path):
    found = run_folder.read_run(benchmark(tmp_path / "twice", repeats=2))
    told = results.model_costs(found, {}, ["vit", "slow"])
    assert told[0].training_seconds == pytest.approx(6 * 1300.4)


def test_a_cost_that_not_every_fold_wrote_down_is_an_empty_cell(metrics):
    found = {entry["model"]: entry for entry in metrics["compared_models"]}
    for model in ("slow", "blind"):  # of one fold, and of all
        assert {found[model][key] for key in ("parameters", "gflops", "patient_seconds", "training_seconds")} == {None}


def test_a_damaged_cost_is_named(tmp_path):
    write_cost(tmp_path, "vit", 0, 1, parameters=1)
    assert run_files.costs({"vit": tmp_path}, [(0, 0), (0, 1)])[["repeat", "fold", "parameters"]].values.tolist() == [[0, 1, 1]]
    (tmp_path / "fold-2" / "cost.json").write_text("{")
    with pytest.raises(IntegrityError, match=re.escape(str(tmp_path / "fold-2" / "cost.json"))):
        run_files.costs({"vit": tmp_path}, [(0, 1)])


def test_score_and_cost_stand_in_one_line_of_the_page(metrics, words):
    result = metrics["endpoints"]["mgmt"]["models"]["resnet10"]
    line = words[words.index("resnet10 3D ResNet-10; T1ce only") :]
    figures = [notation.interval(attributes(result["judged"]), result["n"]), "14,000,000", "300", "0.700", "3:20:00"]
    positions = [line.index(text) for text in figures]
    assert positions == sorted(positions)
    assert max(positions) < line.index("slow Vision Transformer")


def test_every_decimal_of_the_compared_models_stands_in_metrics_json(metrics, words):
    part = words[words.index("results and cost Every model") : words.index("Costs were measured in this run")]
    known = [float(value) for value in leaves(metrics) if isinstance(value, int | float)]
    known += [float(found) for value in leaves(metrics) if isinstance(value, str) for found in re.findall(r"\d+\.\d+", value)]
    shown = re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\w\.)", part)
    assert len(shown) > 12
    for found in shown:
        assert any(f"{value:.{len(found.split('.')[1])}f}" == found for value in known), found


def test_a_comparator_is_told_by_its_architecture_and_by_what_differs_from_the_study(run):
    study = run.study
    by_name = {comparator.name: comparator for comparator in study.comparators}
    assert networks.architecture_in_words(study) == "Vision Transformer, 12 blocks of width 768"
    assert networks.architecture_in_words(study.of(by_name["resnet10"])) == "3D ResNet-10; T1ce only"
    stem = study.model_copy(update={"model": study.model.model_copy(update={"depth": 0, "pool": "max"})})
    assert networks.architecture_in_words(stem) == (
        "the Vision Transformer's patch embedding and positions, of width 768, and their largest values over the grid positions, "
        "without a block"
    )
    assert networks.changes_in_words(study, by_name["resnet10"]) == ""
    assert networks.changes_in_words(study, by_name["slow"]) == "train.learning_rate 0.0001 (not 0.0003)"
    assert networks.changes_in_words(study, by_name["blind"]) == ""  # how its weights begin is told by its beginning
    assert [bool(networks.weights_origin(study.of(comparator))) for comparator in study.comparators] == [False, True, False]
    assert "test patients too, 30 epochs" in networks.weights_origin(study)


def test_every_architecture_has_a_name_and_a_source(run):
    for architecture in ("vit", "hybrid", "seresnext50", "monai_vit"):
        assert networks.architecture_name(architecture) != architecture
        assert re.search(r"20\d\d", networks.architecture_source(architecture))


def test_the_network_beside_the_clinical_columns_is_told_by_its_own_name(run):
    assert recipe.FUSED == recipe.FUSED
    fused = run.predictions[run.predictions.model == "vit"].assign(model=recipe.FUSED)
    study = run.study.model_copy(update={"fused": True, "comparators": ()})
    both = replace(run, study=study, predictions=pd.concat([run.predictions, fused], ignore_index=True))
    told = [networks.compared_model(one, study, both.recipes) for one in results.model_costs(both, {}, ["vit", recipe.FUSED])]
    assert (told[1].architecture, told[1].parameters) == (networks.FUSION, None)
    metrics = filled({"compared_models": [plain(one.model_dump()) for one in told], "settings": measure(both)["settings"]})
    assert f"{recipe.FUSED}: {networks.FUSION}." in " ".join(networks.comparator_sentences(metrics, Facts()))


def test_no_folder_of_a_machine_is_told_with_the_weights(run):
    plain = run.study.model_dump(exclude={"comparators"}) | {"pretrain": {"method": "none"}}
    plain["model"] |= {"weights": "/home/somebody/b16.npz"}
    study = Study.model_validate(plain)
    assert networks.weights_origin(study) == "started from the weights of b16.npz (licence not stated)"
    told = measure(replace(run, study=study, predictions=run.predictions[run.predictions.model == "vit"]))
    assert told["settings"]["model"]["weights"] == "b16.npz"
    assert "somebody" not in json.dumps(told)
    said = " ".join(networks.pretraining_sentences(filled(told), Facts()))
    assert "vit was started from the weights of b16.npz (licence not stated)." in said
    assert "**[author: on which data those weights were trained" in said


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3599, "0:59:59"), (360061, "100:01:01"), (None, "")]
)
def test_a_duration_is_hours_minutes_and_seconds(seconds, written):
    assert notation.duration(seconds) == written


@pytest.mark.parametrize(
    ("cost", "written"),
    [(0.03124, "0.0312"), (0.00002, "0.0000"), (0.0, "0"), (4.555, "4.55"), (78.94, "78.9"), (1234.5, "1,234"), (None, "")],
)
def test_a_cost_has_three_digits(cost, written):
    assert notation.significant(cost) == written


# --- who beats whom --------------------------------------------------------------------------------------------------------


def test_comparators_are_held_against_the_study_s_own_model_by_the_paired_test_with_holm(run, metrics):
    models = metrics["endpoints"]["mgmt"]["models"]
    rows = run.predictions.query("endpoint == 'mgmt'").dropna(subset=["truth"])
    wide = rows.pivot_table(index="patient", columns="model", values="score")
    truth = rows[rows.model == "vit"].groupby("patient").truth.first().reindex(wide.index).to_numpy(bool)
    fold = rows[rows.model == "vit"].groupby("patient").fold.first().reindex(wide.index).to_numpy()
    figures = {name: [within_fold.within_fold_auc(truth, wide[name].to_numpy(), fold)] for name in ("vit", *COMPARATORS)}
    refitted = math.sqrt(2)  # three folds, one repeat
    tests = {name: within_fold.refitted_comparison(figures[name], figures["vit"], refitted) for name in COMPARATORS}
    adjusted = comparison.holm(np.array([test.p for test in tests.values()]))
    for (name, test), p in zip(tests.items(), adjusted, strict=True):
        found = models[name]["versus_own"]
        assert (found["difference"], found["p"], found["p_adjusted"]) == pytest.approx((test.difference, test.p, p))
    assert models["vit"]["versus_own"] is models["clinical"]["versus_own"] is None


def test_a_comparator_that_wins_is_said_at_the_top_and_in_the_terminal(home, metrics, words):
    told = metrics["endpoints"]["mgmt"]["comparators"]
    assert (told["better"], told["worse"]) == (["resnet10"], ["blind"])
    assert told["sentence"].startswith("resnet10 (difference of AUC +0.")
    assert "is better than vit; vit is better than blind (difference of AUC +0." in told["sentence"]
    assert told["sentence"].endswith(", slow)") or "vit does not differ significantly from the other one" in told["sentence"]
    assert f"Beaten: {told['sentence']}" in words[: words.index("Controls are baselines")]
    assert f"MGMT promoter methylation, comparators: {told['sentence']}" in report_files.verdict_lines(filled(metrics))
    assert "resnet10 minus vit (" in (home / "methods.md").read_text()


def versus(difference: float, p: float, resampled: float | None = None) -> Comparison:
    return Comparison(
        difference=difference,
        low=difference - 0.1,
        high=difference + 0.1,
        z=0.0,
        p=p,
        p_adjusted=p,
        n=50,
        nadeau_bengio=None if resampled is None else ResampledTest(t=0.0, p=resampled, splits=6),
    )


@pytest.mark.parametrize(
    ("test", "standing"),
    [
        (versus(0.2, 0.05), "better"),
        (versus(-0.2, 0.05), "worse"),
        (versus(0.2, 0.051), "alike"),
        (versus(0.2, 0.01, 0.05), "better"),
        (versus(0.2, 0.01, 0.06), "alike"),
        (versus(-0.2, 0.01, 0.97), "worse"),
        (versus(-0.2, 0.01, 0.5), "alike"),
        (versus(0.2, 0.01, math.nan), "alike"),
        (versus(0.2, math.nan), "undefined"),
        (versus(math.nan, 0.5), "undefined"),
    ],
)
def test_a_comparator_s_standing_follows_its_rules(test, standing):
    assert beside_own.comparator_standing(test) == standing


def told_of(tests: dict[str, Comparison], leaks: bool = False, unjudged: Unjudged | None = None) -> Comparators:
    """What is said of comparators with these tests against a study's own model that is better than chance."""
    models: dict[str, Result] = {name: BinaryResult.model_construct(versus_own=test, n=50) for name, test in tests.items()}
    models["vit"] = BinaryResult.model_construct(versus_own=None)
    verdicts = {name: Verdict("chance", "chance", None, is_tied=False, leaks=leaks) for name in tests}
    kind: Kind = "undefined" if unjudged else "better"
    verdicts["vit"] = Verdict(kind, kind, unjudged, is_tied=False, leaks=leaks)
    sides = beside_own.comparator_sides(models, verdicts)
    assert sides is not None
    return model_verdicts.comparators(sides, models, verdicts)


def test_a_difference_is_told_from_the_side_of_who_is_better():
    told = told_of({"a": versus(-0.3, 0.001), "b": versus(0.2, 0.01)})
    assert told.sentence == (
        "b (difference of AUC +0.200 [+0.100, +0.300], two-sided p = 0.010, adjusted p = 0.010; itself not better than chance) "
        "is better than vit; vit is better than a (difference of AUC +0.300 [+0.200, +0.400], two-sided p = 0.001, "
        "adjusted p = 0.001)"
    )


def test_of_many_who_win_three_have_figures_eight_a_name_and_the_rest_a_number():
    told = told_of({f"m{index}": versus(0.4 - index / 100, 0.001) for index in range(12)})
    assert told.better == tuple(f"m{index}" for index in range(12))
    assert told.sentence.count("difference") == 3
    assert "m3, m4, m5, m6, m7 and 4 more are better than vit" in told.sentence


@pytest.mark.parametrize("p", [0.001, 0.9, math.nan])
@pytest.mark.parametrize("why", get_args(Unjudged))
def test_no_difference_is_stated_or_denied_where_the_own_model_cannot_be_judged(p: float, why: Unjudged):
    told = told_of({"a": versus(0.3, p), "b": versus(-0.3, p)}, unjudged=why)
    assert (told.better, told.worse) == ((), ())
    assert "differ" not in told.sentence
    assert of_kind.of("binary").unjudged[why] in told.sentence


def test_nobody_wins_where_the_design_leaks():
    told = told_of({"a": versus(0.3, 0.001)}, leaks=True)
    assert told == Comparators(better=(), worse=(), sentence="vit is not compared with its comparators, because labels may leak")


def test_a_table_without_the_study_s_own_model_compares_nobody(run, tmp_path):
    found = measure(replace(run, predictions=run.predictions[run.predictions.model.isin(["slow", "blind"])]))
    assert found["endpoints"]["mgmt"]["comparators"] is None
    assert [entry["model"] for entry in found["compared_models"]] == ["slow", "blind"]


# --- many ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(run, tmp_path_factory) -> Path:
    """Eight compared models: copies of one another, of which each knows some patients fewer than the one before."""
    own = run.predictions[(run.predictions.model == "vit") & (run.predictions.endpoint == "mgmt")]
    parts = [run.predictions[run.predictions.model.isin(["vit", "clinical"])]]
    for index in range(7):
        worse = own.score.where(np.arange(len(own)) % 12 >= index, 0.5)
        parts.append(own.assign(model=f"comparator-{index:02d}", score=worse))
    study = run.study.model_copy(update={"comparators": ()})
    crowd = replace(run, study=study, predictions=pd.concat(parts, ignore_index=True))
    return report_files.write_report(crowd, tmp_path_factory.mktemp("many")).page.parent


def test_of_many_compared_models_the_curves_show_the_study_s_own_and_the_best(many):
    metrics = read_metrics(many)
    order = [entry["model"] for entry in metrics["compared_models"]]
    assert order[0] == "vit"
    scores = [entry["mean_score"] for entry in metrics["compared_models"][1:]]
    assert scores == sorted(scores, reverse=True)
    assert metrics["shown"] == order[: results.MAX_SHOWN_MODELS]
    assert metrics["models"] == [*order, "clinical"] == list(metrics["endpoints"]["mgmt"]["models"])
    curves = {path.stem.removeprefix("roc_mgmt_") for path in (many / "figures").glob("roc_mgmt_*.svg")}
    assert curves == {*metrics["shown"], "clinical"}
    assert {row["model"] for row in metrics["endpoints"]["mgmt"]["subgroups"]} == set(metrics["shown"])


def test_of_many_compared_models_the_page_says_who_is_shown_and_has_everybody_s_result(many):
    metrics, words = read_metrics(many), seen(many)
    assert "8 models are too many for one figure" in words
    assert "selected by these same results" in words
    table = words[words.index("results and cost Every model") : words.index("MGMT promoter methylation: every model")]
    for name, result in metrics["endpoints"]["mgmt"]["models"].items():
        if name != "clinical":
            line = table[table.index(f" {name} ", table.index("h:mm:ss")) :]
            assert line.index(notation.interval(attributes(result["judged"]), result["n"])) < 200
    assert (many / "figures" / "compared_models_mgmt.svg").is_file()


def test_of_many_compared_models_the_terminal_shows_few_and_counts_the_rest(many):
    rows = report_files.result_rows(filled(read_metrics(many)))
    assert [row.model for row in rows] == [*read_metrics(many)["shown"], "clinical", "2 more"]
    assert all(sum(map(len, astuple(row))) + 2 * len(report_files.RESULT_COLUMNS) <= 80 for row in rows)


# --- pretraining -----------------------------------------------------------------------------------------------------------


def test_who_saw_the_scans_of_those_whom_it_is_judged_on_is_warned_of(home, metrics, words):
    who = "vit (51 patients), slow (51 patients)"
    assert words.index(f"Transductive. While pretraining without labels, {who} used scans") < words.index(
        "Verdicts in full every p-value"
    )
    assert report_files.verdict_lines(filled(metrics))[0].endswith(who)
    written = (home / "methods.md").read_text()
    assert f"Transductive: a model was pretrained on scans of patients who are also evaluated: {who}" in written
    for text in (words, written, *(checklists.filled_checklist(name, filled(metrics)) for name in checklists.CHECKLISTS)):
        assert not re.search(r"(never|not) seen the patient(?!'s labels)|trained without them", text)


def test_nobody_is_warned_of_where_nobody_is_named(run):
    for notes in ({}, {"transductive": ""}):
        study = run.study.model_copy(update={"comparators": ()})
        few = run.predictions[run.predictions.model == "vit"]
        found = measure(replace(run, notes=notes, study=study, predictions=few))
        assert found["transductive"] is None
        assert "transductive" not in found["notes"]


def test_pretraining_and_comparators_are_told_in_the_methods(home):
    written = (home / "methods.md").read_text()
    part = written[written.index("## Pretraining") : written.index("## Training")]
    assert "vit was pretrained without labels by a masked autoencoder, once for all folds, on all patients, test" in part
    assert "slow was pretrained" in part
    assert "resnet10 was" not in part
    assert part.count("read 25% of a patient's tokens") == 1  # of two who share it
    assert "started from pretraining without labels" in written[written.index("## Model") : written.index("## Pretraining")]
    part = written[written.index("## Comparators") : written.index("## Controls")]
    assert "3 comparators were trained and evaluated on the same folds" in part
    never_flat = "validation loss flat at the end of 0 of 3 trainings."
    assert f"resnet10: 3D ResNet-10; T1ce only (He et al. 2016, arXiv:1512.03385); {never_flat}" in part
    assert part.strip().endswith("vit: validation loss flat at the end of 2 of 3 trainings.")
    assert notation.escape("train.learning_rate 0.0001 (not 0.0003)") in part


def test_of_a_run_that_does_not_pretrain_nothing_is_said_of_it(tmp_path):
    found = measure(one(run_folder.read_run(make_run(tmp_path / "plain", patients=30, models=("vit",))), "mgmt"))
    assert networks.pretraining_sentences(filled(found), Facts()) == networks.comparator_sentences(filled(found), Facts()) == []
    assert "random numbers" in networks.model_sentences(filled(found), Facts())[-1]
    assert found["settings"]["pretrain"] == {}
    assert found["endpoints"]["mgmt"]["comparators"] is None
