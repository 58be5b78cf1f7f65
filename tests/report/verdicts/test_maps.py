"""Whether maps can be believed: planted scores in, the report's figures and words held to what was planted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from made import maps as made_maps
from made.maps import METHODS_MADE, entry, facts, score, write_maps, write_scores
from made.metrics import filled, read, sample
from made.metrics import part as completed
from made.report import plain
from made.run import make_run
from scipy.special import expit

from mri_vit import style
from mri_vit.data import predictions
from mri_vit.data.cohort import visit_id
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.report import judged_maps, verdicts
from mri_vit.report.figures import map_figures
from mri_vit.report.figures import map_figures as figures
from mri_vit.report.numbers import maps
from mri_vit.report.pages import report_files
from mri_vit.report.reading import run as run_folder
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run import Map, Run
from mri_vit.report.schema.binary import BinaryEndpoint
from mri_vit.report.schema.parts import Kind, Mean, Nothing
from mri_vit.report.schema.patients import EndpointMaps, MapEvaluation, MapResult
from mri_vit.report.words import map_sentences, of_kind
from mri_vit.report.words.notation import escape
from mri_vit.report.words.run_facts import Facts
from mri_vit.settings.schema import CHANNELS, Endpoint, Study
from mri_vit.settings.sections import Explain

ENDPOINTS = ("mgmt", "pten")
KINDS: dict[str, Kind] = {"mgmt": "better", "pten": "chance"}
SPREAD = 2.0  # standard deviation of the evidence in every fold, planted


def made(patients: int = 40, spread: float = SPREAD, **changes: Any) -> Run:
    """A run in memory: scores, and predictions whose log odds have a known deviation in each of two folds."""
    generator = np.random.default_rng(0)
    names = [f"P{index:02d}" for index in range(patients)]
    scores = tuple(score(name, index % 2, ENDPOINTS, generator, **changes) for index, name in enumerate(names))
    fold = np.arange(patients) % 2
    evidence = np.empty(patients)
    for k in (0, 1):
        own = generator.normal(size=int((fold == k).sum()))
        evidence[fold == k] = spread * (own - own.mean()) / own.std(ddof=1) + 3 * k  # folds need not share a scale
    rows = {"patient": names, "session": "", "model": "vit", "repeat": 0, "fold": fold, "score": expit(evidence)}
    table = pd.concat([pd.DataFrame(rows).assign(endpoint=name) for name in ENDPOINTS], ignore_index=True)
    return Run(
        design="cross-validation",
        study=Study(
            name="made",
            cohort=Path("cohort.csv"),
            prepared=Path("prepared"),
            output=Path("out"),
            endpoints=tuple(Endpoint(name=name, kind="binary") for name in ENDPOINTS),
        ),
        environment=Nothing(),
        cohort=pd.DataFrame({"patient": names}),
        excluded=pd.DataFrame(),
        folds_sha256=None,
        predictions=table.reindex(columns=pd.Index(predictions.COLUMNS)),
        survival=pd.DataFrame(),
        probe=pd.DataFrame(),
        scores=scores,
    )


def measured(run: Run) -> dict[str, Any]:
    """The evaluation as metrics.json would have it, NaN where it is undefined."""
    return plain(evaluated(run).model_dump())


def evaluated(run: Run) -> MapEvaluation:
    found = maps.measure(run)
    assert found is not None
    return judged_maps.evaluation(found, KINDS, mask_supervised=False)


@pytest.fixture(scope="module")
def scored() -> dict[str, Any]:
    return measured(made())


def estimate(value: float, half: float = 0.1, n: int = 40) -> Mean:
    return Mean(value=value, low=value - half, high=value + half, n=n)


def result(**changes: Mean) -> MapResult:
    """A method's figures that pass everything, and these changes."""
    good = {
        "randomised": estimate(0.0),
        "shuffled": estimate(0.1),
        "folds": estimate(0.6),
        "label_gain": estimate(0.5),
        "deletion": estimate(0.31),
        "deletion_random": estimate(0.22),
        "deletion_gain": estimate(0.09, 0.05),
        "insertion": estimate(0.2),
        "insertion_random": estimate(0.3),
        "insertion_gain": estimate(0.1, 0.05),
        "energy_ratio": estimate(2.4, 0.4),
        "shift": estimate(0.43),
        "noise": estimate(0.98, 0.01),
    }
    return MapResult.model_construct(None, **(good | changes))


NOBODY = Mean(value=math.nan, low=math.nan, high=math.nan, n=0)


@given(arrays(float, some.integers(2, 30), elements=some.floats(-100, 100)))
def test_an_interval_of_a_mean_lies_within_the_values_and_holds_the_mean_of_equal_ones(values):
    found = maps.mean(values, seed=3)
    assert values.min() - 1e-9 <= found.low <= found.high <= values.max() + 1e-9
    same = maps.mean(np.full(len(values), values[0]), seed=3)
    assert (same.low, same.high) == pytest.approx((values[0], values[0]))


def test_an_interval_of_a_mean_is_about_as_wide_as_its_standard_error_says():
    values = np.random.default_rng(0).normal(size=200)
    found = maps.mean(values, seed=1)
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(200), rel=0.1)


def test_who_is_not_known_is_left_out_and_nobody_is_undefined():
    assert maps.mean(np.array([1.0, math.nan, 3.0]), 0).n == 2
    assert maps.mean(np.array([1.0, math.nan, 3.0]), 0).value == 2
    assert math.isnan(maps.mean(np.array([math.nan]), 0).value)
    assert math.isnan(maps.ratio(np.array([1.0]), np.array([0.0]), 0).value)


def test_a_ratio_of_means_is_one_when_both_are_the_same_and_is_not_the_mean_of_ratios():
    below = np.array([0.01, 0.2, 0.3])
    assert maps.ratio(below, below, 0).value == pytest.approx(1)
    assert maps.ratio(below, below, 0).low == pytest.approx(1)
    assert maps.ratio(np.array([0.1, 0.2, 0.3]), below, 0).value == pytest.approx(0.6 / 0.51)


def test_a_fall_is_the_area_of_the_curve_in_standard_deviations_of_the_folds_evidence(scored):
    # From 0 straight to the middle and straight on to the end: the area is a quarter of the end and half of the middle.
    found = scored["endpoints"]["mgmt"]["methods"]["gradient_attention"]
    expected = -(0.5 * made_maps.FALL + 0.25 * made_maps.EMPTY) / SPREAD
    assert found["deletion"]["value"] == pytest.approx(expected, abs=0.02)
    assert found["deletion_random"]["value"] == pytest.approx(-(0.5 * made_maps.RANDOM_FALL - 0.25) / SPREAD, abs=0.02)
    difference = found["deletion"]["value"] - found["deletion_random"]["value"]
    assert found["deletion_gain"]["value"] == pytest.approx(difference)
    assert found["insertion_gain"]["value"] == pytest.approx(-difference, abs=0.02)  # this made map comes back late


def test_a_model_of_doubled_evidence_falls_the_same_in_its_own_deviations():
    once = measured(made(spread=1.0))["endpoints"]["mgmt"]["methods"]["rollout"]
    run = made(spread=2.0)
    for told in run.scores:
        for part in told["curves"]:
            part["value"] = [2 * value for value in part["value"]]
    twice = measured(run)["endpoints"]["mgmt"]["methods"]["rollout"]
    assert twice["deletion"]["value"] == pytest.approx(once["deletion"]["value"], rel=1e-6)


def test_a_fold_without_spread_has_no_unit_and_its_patients_no_curve():
    run = made()
    table = run.predictions
    flat = replace(run, predictions=table.assign(score=table.score.where(table.fold == 0, 0.7)))
    assert set(maps.spread(flat.predictions, run.study.endpoints[0])) == {0}
    assert measured(flat)["endpoints"]["mgmt"]["methods"]["rollout"]["deletion"]["n"] == 20
    sure = replace(run, predictions=table.assign(score=(table.score > 0.5).astype(float)))
    assert all(math.isfinite(value) for value in maps.spread(sure.predictions, run.study.endpoints[0]).values())


def test_what_lies_on_the_tumour_is_held_against_chance(scored):
    for method in METHODS_MADE:
        found = scored["endpoints"]["mgmt"]["methods"][method]
        assert found["energy_ratio"]["value"] == pytest.approx(made_maps.TIMES[method], rel=0.05)
        assert found["energy_randomised"]["value"] == pytest.approx(1, abs=0.05)  # its share, and no more
        assert found["hit_randomised"]["n"] == found["energy_randomised"]["n"] == 2 * made_maps.NETWORKS
        assert found["hit_randomised"]["low"] < 0.35 < found["hit_randomised"]["high"]  # networks of 0.2 and of 0.5
        assert found["hits"]["low"] < 0.9 < found["hits"]["high"]
        assert (found["hit_chance"]["value"], found["hit_simulated"]["value"]) == pytest.approx((0.3, 0.31))


def test_without_masks_nothing_is_said_of_the_tumour():
    figures_of_tumour = ("hit", "hit_chance", "hit_simulated", "hit_randomised", "energy", "tumour_share", "energy_randomised")
    absent = dict.fromkeys(figures_of_tumour)
    endpoint = measured(made(**absent))["endpoints"]["mgmt"]
    assert endpoint["with_tumour"] == 0
    assert endpoint["methods"]["gradient_attention"]["verdict_kind"] == "passes"
    assert "tumour" not in endpoint["methods"]["gradient_attention"]["verdict"]


def test_a_map_that_stays_when_all_weights_are_randomised_fails_and_says_so(scored):
    found = scored["endpoints"]["mgmt"]["methods"]
    assert found["rollout"]["verdict_kind"] == "fails"
    assert found["rollout"]["randomised"]["value"] == pytest.approx(made_maps.AFTER_RANDOMISING["rollout"], abs=0.02)
    randomised = {key: value for key, value in found["rollout"]["randomised"].items() if key != "stage"}
    proof = map_sentences.rank_interval(Mean(**randomised))
    assert f"depends on the weights: no (rank correlation {proof})" in found["rollout"]["verdict"]
    assert "which may not come from what the model learned" in found["rollout"]["verdict"]
    assert found["gradient_attention"]["verdict_kind"] == "passes"
    assert [stage["stage"] for stage in found["rollout"]["cascade"]] == ["heads", "block 1", "embedding"]


def test_no_finding_without_a_prediction_even_where_the_map_lies_on_the_tumour(scored):
    pten = scored["endpoints"]["pten"]
    assert pten["methods"]["gradient_attention"]["energy_ratio"]["low"] > 5
    for found in pten["methods"].values():
        assert found["verdict_kind"] == "none"
        assert "no finding: the prediction shows no evidence of beating chance" in found["verdict"]
        assert "not where PTEN alteration is visible" in found["verdict"]
        assert "tumour" not in found["verdict"]
    assert verdicts.best_method(EndpointMaps.model_validate(pten)) is None
    assert verdicts.best_method(EndpointMaps.model_validate(scored["endpoints"]["mgmt"])) == "gradient_attention"


def test_where_masks_taught_the_network_the_best_map_is_not_the_one_on_the_tumour():
    nearest = result(energy_ratio=estimate(9.0)).model_copy(update={"verdict_kind": "passes"})
    weightiest = result(deletion_gain=estimate(0.3)).model_copy(update={"verdict_kind": "passes"})
    found = EndpointMaps(
        predicted="better",
        no_finding=None,
        with_tumour=20,
        methods={"rollout": nearest, "gradient_attention": weightiest},
        curves={},
        agreement=(),
    )
    assert verdicts.best_method(found) == "rollout"
    assert verdicts.best_method(found.model_copy(update={"mask_supervised": True})) == "gradient_attention"


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (
            {},
            "passes",
            "depends on the labels: yes (rank correlation 0.10 with the map of a network trained on permuted labels, 0.60 with",
        ),
        ({}, "passes", "better than random deletion: yes (fall of 0.31 vs 0.22 SD); after a shift of one voxel"),
        ({}, "passes", "; on the tumour: 2.4× the share of a uniform map [2.0, 2.8]"),
        ({"randomised": estimate(0.45)}, "fails", "depends on the weights: no (rank correlation 0.45 [0.35, 0.55])"),
        ({"shuffled": estimate(0.6)}, "fails", "depends on the labels: no (rank correlation 0.60"),
        ({"shuffled": estimate(0.45)}, "fails", "depends on the labels: no (rank correlation 0.45"),  # its interval reaches 0.55
        (  # true labels' networks differ as much
            {"shuffled": estimate(0.06), "folds": estimate(0.03), "label_gain": estimate(-0.03)},
            "unsettled",
            "network trained on permuted labels, 0.03 with maps of other folds)",
        ),
        ({"label_gain": estimate(0.05), "deletion_gain": estimate(0.02)}, "fails", "labels: unsettled (rank correlation 0.10"),
        ({"label_gain": estimate(0.05), "randomised": NOBODY}, "undefined", "labels: unsettled (rank correlation 0.10"),
        ({"shuffled": NOBODY, "label_gain": NOBODY}, "passes", "depends on the weights: yes; better than random deletion"),
        (
            {"folds": NOBODY, "label_gain": NOBODY},
            "unsettled",
            "unsettled (rank correlation 0.10 with the map of a network trained on permuted labels);",
        ),
        ({}, "passes", "after a shift of one voxel: rank correlation 0.43; after small noise: rank correlation 0.98; on the"),
        ({"shift": NOBODY}, "passes", "0.22 SD); after small noise: rank correlation 0.98; on the"),
        ({"deletion_gain": estimate(0.02)}, "fails", "better than random deletion: no (fall of 0.31 vs 0.22 SD)"),
        ({"insertion_gain": estimate(-0.2)}, "passes", "SD); but worse than random insertion (gap of 0.20 vs 0.30 SD)"),
        ({"energy_ratio": estimate(1.2, 0.3)}, "passes", "on the tumour: no more than a uniform map (1.2× [0.9, 1.5])"),
        ({"energy_ratio": estimate(0.5)}, "passes", "on the tumour: less than a uniform map (0.5× [0.4, 0.6])"),
        ({"randomised": estimate(0.0, n=4)}, "undefined", "depends on the weights: not judged"),
        ({"deletion_gain": NOBODY}, "undefined", "better than random deletion: not judged"),
    ],
)
def test_the_verdict_follows_its_rules(changes, kind, words):
    found = verdicts.map_answers(result(**changes), "better")
    assert found.kind == kind
    assert words in map_sentences.map_verdict_sentence(result(**changes), found, "mgmt", "better", False)


def test_a_map_on_the_tumour_of_a_network_that_masks_supervised_is_said_to_be_supervised():
    found = verdicts.map_answers(result(), "better")
    plain, supervised = (map_sentences.map_verdict_sentence(result(), found, "mgmt", "better", masks) for masks in (False, True))
    assert plain.endswith("on the tumour: 2.4× the share of a uniform map [2.0, 2.8]")
    assert supervised == f"{plain}; the network was trained with tumour masks"


@pytest.mark.parametrize(
    ("predicted", "words"),
    [("chance", "no evidence of beating chance"), ("worse", "is worse than chance"), ("undefined", "cannot be judged")],
)
def test_why_there_is_no_finding_is_said(predicted, words):
    found = verdicts.map_answers(result(), predicted)
    sentence = map_sentences.map_verdict_sentence(result(), found, "os", predicted, False)
    assert found.kind == "none"
    assert words in sentence
    assert "not where overall survival is visible" in sentence
    assert "share" not in sentence


def test_every_threshold_of_a_verdict_stands_in_the_rules():
    told = " ".join(map_sentences.map_rules())
    for number in (verdicts.MIN_MAP_CORRELATION, verdicts.MIN_SCORED_PATIENTS):
        assert str(number) in told


def test_of_several_visits_the_first_is_judged_and_a_patient_counts_once():
    run = made(6)
    generator = np.random.default_rng(1)
    later = [score(f"a_{told['patient']}_b", told["fold"], ENDPOINTS, generator, energy=1.0) for told in run.scores]
    visits = [
        visit for told, again in zip(run.scores, later, strict=True) for visit in (told, again | {"subject": told["subject"]})
    ]
    assert measured(replace(run, scores=tuple(visits))) == measured(run)


def test_of_several_visits_the_first_tells_which_scan_it_comes_from():
    first = [Map(name, Path(name), facts(name, [entry("rollout", "", name)])) for name in ("b", "c")]
    changed = {"subject": "b", "score_by_scan": {"mgmt": {"t1": 9.0, "t1ce": 0.0, "t2": 0.0, "flair": 0.0}}}
    later = Map("a_2_b", Path("later"), {**first[0].facts, **changed})
    assert maps.scan_shares([first[0], later, first[1]], CHANNELS, 0) == maps.scan_shares(first, CHANNELS, 0)


def test_the_interval_of_randomised_weights_is_over_networks_and_not_over_patients():
    # Two folds of two networks; one network hits everybody, the others nobody, however many patients there are.
    for patients in (12, 40):
        run = made(patients, energy_randomised=[0.1, 0.3], tumour_share=0.1)
        for told in run.scores:
            for row in told["rows"]:
                row["hit_randomised"] = [1 if told["fold"] else 0, 0]
        found = measured(run)["endpoints"]["mgmt"]["methods"]["rollout"]
        assert found["hit_randomised"] == pytest.approx({"value": 0.25, "low": 0, "high": 0.75, "n": 4})
        assert found["energy_randomised"] == pytest.approx({"value": 2, "low": 1, "high": 3, "n": 4})


def test_a_networks_energy_is_a_ratio_of_sums_over_the_patients_of_its_fold_whose_tumour_is_known():
    table = pd.DataFrame(
        {
            "fold": [0, 0, 0, 1],
            "tumour_share": [0.1, 0.3, math.nan, 0.2],
            "energy_randomised": [[0.3, 0.1], [0.1, None], None, [0.2, 0.4]],
            "hit_randomised": [[1, 0], [0, None], None, [1, 1]],
        }
    )
    found = maps.networks(table, 0)
    assert found.energy_randomised.n == found.hit_randomised.n == 4
    assert found.energy_randomised.value == pytest.approx(np.mean([0.4 / 0.4, 0.1 / 0.1, 1, 2]))
    assert found.hit_randomised.value == pytest.approx(np.mean([0.5, 0, 1, 1]))
    empty = maps.networks(table.assign(energy_randomised=None, hit_randomised=None), 0)
    assert (empty.hit_randomised.n, empty.energy_randomised.n) == (0, 0)


def test_scores_at_other_fractions_are_refused_by_name():
    run = made(6)
    run.scores[3]["curves"][0]["fraction"] = [0.0, 0.2, 0.5, 0.75, 1.0]
    with pytest.raises(UsageError, match="P03"):
        measured(run)


def test_without_scores_nothing_is_measured():
    assert maps.measure(replace(made(4), scores=())) is None


def test_of_a_patients_maps_what_carries_a_finding_comes_first(scored):
    listed = [entry("rollout", "", "P00"), *(entry("gradient_attention", name, "P00") for name in ("pten", "mgmt"))]
    shown = Map("P00", Path("maps/P00"), facts("P00", listed))
    told = judged_maps.patient(shown, MapEvaluation.model_validate(scored)).model_dump()["maps"]
    assert [(one["method"], one["endpoint"], one["kind"]) for one in told] == [
        ("gradient_attention", "mgmt", "passes"),
        ("rollout", "", "fails"),
        ("gradient_attention", "pten", "none"),
    ]
    assert [listed[one["index"]]["endpoint"] for one in told] == [one["endpoint"] for one in told]
    assert [verdict["endpoint"] for verdict in told[1]["verdicts"]] == ["mgmt", "pten"]
    assert {one.kind for one in judged_maps.patient(shown, None).maps} == {"undefined"}


def test_a_scans_share_is_that_of_its_size_whether_it_speaks_for_or_against():
    shown = [Map(name, Path(name), facts(name, [entry("rollout", "", name)])) for name in ("a", "b")]
    found = maps.scan_shares(shown, CHANNELS, 0)
    assert found is not None
    shares = {scan: part.value for scan, part in found.scores["mgmt"].scans.items()}
    assert shares == pytest.approx({"t1": 0.5 / 3, "t1ce": 2 / 3, "t2": 0.5 / 3, "flair": 0})
    assert found.maps[0].scans["t1ce"].value == pytest.approx(0.6)
    assert maps.scan_shares([], CHANNELS, 0) is None


def test_the_figures_are_drawn_of_what_is_undefined_too(scored):
    undefined = measured(made(4, **dict.fromkeys(("hit", "energy", "shuffled", "folds"))))
    for found in (scored, undefined):
        endpoint = completed(MapEvaluation, found).endpoints["mgmt"]
        drawn = [
            map_figures.deletion_insertion(endpoint.curves),
            map_figures.tumour_overlap([("MGMT", endpoint.methods)]),
            map_figures.randomisation_cascade(endpoint.methods),
            map_figures.method_agreement(list(endpoint.methods), endpoint.agreement),
        ]
        assert all(style.to_bytes(figure, "svg").startswith(b"<?xml") for figure in drawn)


def test_no_two_methods_look_alike_even_without_colour():
    strokes = list(figures.STROKES.values())
    for aspect in ("colour", "line", "marker"):
        assert len({str(getattr(stroke, aspect)) for stroke in strokes}) == len(strokes)


def changed(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_other_settings_or_an_earlier_version_made_is_counted_and_never_put_together(tmp_path):
    names = ["new", "old", "other", "bare"]
    write_maps(tmp_path, names, ["mgmt"])
    (tmp_path / "scores").mkdir()
    for name in names:
        (tmp_path / "scores" / f"{name}.json").write_text(json.dumps(score(name, 0, ["mgmt"], np.random.default_rng(0))))
    other = Explain(methods=("occlusion",)).of_maps
    for folder, ending in ((tmp_path / "maps", "/map.json"), (tmp_path / "scores", ".json")):
        changed(Path(f"{folder / 'old'}{ending}"), schema=1)
        changed(Path(f"{folder / 'other'}{ending}"), settings=other)
    next((tmp_path / "maps" / "bare").glob("*.png")).unlink()
    shown, old_maps = run_files.maps(tmp_path / "maps", made_maps.SETTINGS, names)
    scores, old_scores = run_files.scores(tmp_path / "scores", made_maps.SETTINGS, names)
    assert [one.patient for one in shown] == ["new"]
    assert [one["patient"] for one in scores] == ["new", "bare"]
    assert (old_maps, old_scores) == (3, 2)
    groups, old_groups = run_files.groups(tmp_path / "mean_maps", made_maps.SETTINGS)
    assert ([one["method"] for one, _ in groups], old_groups) == (["gradient_attention"], 0)
    assert run_files.groups(tmp_path / "mean_maps", other) == ((), 2)
    stale = {"stale": {"maps": old_maps, "scores": old_scores, "mean maps": 0}}
    assert str(map_sentences.to_make_again(filled(stale))).startswith(
        "3 maps and 2 scores were made with other settings or an older version"
    )
    assert (
        map_sentences.to_make_again(filled({"stale": {"maps": 0, "scores": 0, "mean maps": 0}}))
        is map_sentences.to_make_again(filled({}))
        is None
    )


def test_maps_and_scores_come_in_the_order_of_the_cohort_table(tmp_path):
    names = ["P3", "a_b_P1", "P2"]
    write_maps(tmp_path, names, ["mgmt"])
    assert [one.patient for one in run_files.maps(tmp_path / "maps", made_maps.SETTINGS, names)[0]] == names
    folder = make_run(tmp_path / "run", patients=30, models=("vit",))
    people = pd.read_csv(folder / "cohort.csv", dtype=str, keep_default_na=False)
    people[::-1].to_csv(folder / "cohort.csv", index=False)
    write_scores(folder, ["mgmt"])
    told = [one["patient"] for one in run_folder.read_run(folder).scores]
    assert told == [visit for visit in map(visit_id, people.patient[::-1], people.session[::-1]) if visit in told]
    assert len(told) == 31  # one patient has two visits


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"schema": 3, "settings": made_maps.SETTINGS}), "\0"])
def test_a_damaged_file_is_named(tmp_path, content):
    write_maps(tmp_path, ["P1"], ["mgmt"])
    (tmp_path / "maps" / "P1" / "map.json").write_text(content)
    with pytest.raises(IntegrityError, match=r"P1.map\.json"):
        run_files.maps(tmp_path / "maps", made_maps.SETTINGS, [])


def test_maps_that_nobody_could_judge_are_not_said_to_fail(scored):
    few = measured(made(4))
    heads = [line.partition(": ") for line in report_files._map_verdicts(completed(MapEvaluation, few))]
    assert heads[0] == ("Maps of MGMT promoter methylation", ": ", "not judged: fewer than 5 patients could be scored")
    mixed = measured(made(shuffled=0.1, folds=0.1))  # gradient attention moves, but networks of true labels differ as much
    assert report_files._map_verdicts(completed(MapEvaluation, mixed))[0].endswith(
        "none of 2 passes its checks (1 not settled, 1 fails a check)"
    )


def seen(folder: Path) -> str:
    """The page of a run's report on MGMT alone, as text."""
    run = run_folder.read_run(folder)
    run = replace(run, study=run.study.model_copy(update={"endpoints": run.study.endpoints[:1]}))
    return report_files.write_report(run, folder / "report").page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("sketched")
def test_a_map_links_to_the_patient_s_page_and_maps_without_scores_are_not_vouched_for(tmp_path):
    folder = make_run(tmp_path / "linked", patients=30, models=("vit",))
    write_maps(folder, ["P001"], ["mgmt"])
    page = seen(folder)
    caption = page[page.index("<figcaption><b>P001") :]
    assert 'href="patients/P001.html"' in caption[: caption.index("</figcaption>")]
    assert "Controls:" not in page
    assert "reliability is not known" in page


def test_a_run_with_maps_of_an_earlier_version_says_how_to_make_them_anew(tmp_path):
    folder = make_run(tmp_path / "old", patients=30, models=("vit",))
    (folder / "maps" / "P001").mkdir(parents=True)
    (folder / "maps" / "P001" / "map.json").write_text(json.dumps({"patient": "P001", "peak": 12.3, "unit": "x"}))
    page = seen(folder)
    assert "1 map was made with other settings or an older version" in page
    assert "run <code>mri-vit explain</code> again." in page
    assert "12.3" not in page
    assert report_files.verdict_lines(read(folder / "report"))[-1].endswith("run `mri-vit explain` again")


def test_every_method_that_made_maps_is_told_with_its_settings_and_no_other():
    assert set(map_sentences.MADE_BY) == set(METHODS)
    made = [{"patient": "P1", "maps": [{"method": "rollout"}, {"method": "gradient_attention"}]}]

    endpoints = {"mgmt": sample(BinaryEndpoint)}
    found = filled({"maps": made, "map_settings": Explain().of_maps, "endpoints": endpoints})
    said = " ".join(map_sentences.map_methods(found, Facts()))
    for words in ("Maps of 1 patient were made", "fused over heads by their mean", "[@chefer]", of_kind.EXPLAINED_CLASS):
        assert words in said
    assert "occlusion" not in said
    assert "reliability of these maps was not measured" in said


def test_how_maps_were_judged_is_told_with_their_rules_and_verdicts(scored):
    said = " ".join(map_sentences.map_methods(filled({"map_scores": scored}), Facts()))
    assert "evaluated on 40 patients" in said
    assert "Where there was a tumour mask" in said
    assert all(escape(rule) in said for rule in scored["rules"])
    lines = map_sentences.map_result_lines(filled({"map_scores": scored}))
    assert len(lines) == len(ENDPOINTS) * len(METHODS_MADE)
    for (name, endpoint), line in zip(scored["endpoints"].items(), lines[::2], strict=True):
        assert line == f"**{name}**, maps by attention rollout: {escape(endpoint['methods']['rollout']['verdict'])}."
    assert map_sentences.map_methods(filled({}), Facts()) == map_sentences.map_result_lines(filled({})) == []
