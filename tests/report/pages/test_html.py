"""The report's page: a made-up run in; what a reader sees, follows, prints and downloads is checked against metrics.json."""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import math
import re
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from benchmarks.page import MOST_SCREENS, screens
from made.browser import driven, open_page, violations
from made.maps import write_maps, write_scores
from made.metrics import attributes, read
from made.report import leaves, read_metrics, seen
from made.run import ODD_IDS, REASON, make_run
from made.study import sketch

from mri_vit import style
from mri_vit.data import predictions
from mri_vit.report.pages import report_files
from mri_vit.report.reading import foreign_table
from mri_vit.report.reading import run as run_folder
from mri_vit.report.words import notation

pytestmark = pytest.mark.long(40)

CONTROLS = ("clinical", "volume", "shuffled")
BINARY_FIGURES = {"precision_recall", "calibration", "decision", "roc"}
FORMULA = '=HYPERLINK("x")'


def written(folder: Path, *endpoints: str) -> Path:
    """The report of a run folder, on these of its endpoints if any are named: a whole report takes seconds."""
    run = run_folder.read_run(folder)
    asked = tuple(e for e in run.study.endpoints if e.name in endpoints) or run.study.endpoints
    return report_files.write_report(
        replace(run, study=run.study.model_copy(update={"endpoints": asked})), folder / "report"
    ).page.parent


def interval(found: dict[str, Any], n: int) -> str:
    return notation.interval(attributes(found), n)


def results(metrics: dict[str, Any]):
    for name, endpoint in metrics["endpoints"].items():
        for model, result in endpoint["models"].items():
            yield name, endpoint["kind"], model, result


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("runs") / "made-up")
    excluded = pd.read_csv(folder / "excluded.csv", dtype=str, keep_default_na=False)
    excluded.loc[excluded.patient == "X-2", "reason"] = FORMULA
    excluded.to_csv(folder / "excluded.csv", index=False)
    write_maps(folder, ODD_IDS[:2], ["mgmt", "pten"])
    write_scores(folder, ["mgmt", "pten"])
    return folder


@pytest.fixture(scope="module")
def home(run) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        sketch(patch)
        return written(run)


@pytest.fixture(scope="module")
def metrics(home) -> dict[str, Any]:
    return read_metrics(home)


@pytest.fixture(scope="module")
def page(home) -> str:
    return (home / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def words(home) -> str:
    return seen(home)


def test_every_verdict_stands_on_the_first_screen_candidates_in_full(metrics, words):
    first = words[: words.index("Controls are baselines")]
    for _, _, model, result in results(metrics):
        assert result["verdict"] in (words if model in CONTROLS else first)
        if model in CONTROLS:
            symbol, judged = "AUC" if "auc" in result else "C", result["judged"]
            known = result["verdict_kind"] != "undefined"  # else no interval stands beside
            assert f"{symbol} {interval(judged, result['n']) if known else notation.number(judged['value'])}" in words
    assert "TERT promoter mutation no patient has a label" in first


def test_the_flow_of_patients_adds_up_and_counts_the_reasons(metrics, words):
    cohort = metrics["cohort"]
    assert cohort["patients"] == cohort["excluded"] + cohort["predicted"] + cohort["unpredicted"]
    for text in (f"{cohort['patients']} patients in the table", f"{cohort['predicted']} predicted, each by models"):
        assert text in words
    flow = words[words.index(f"{cohort['excluded']} excluded") : words.index(f"{cohort['predicted']} predicted, each")]
    assert all(f"{reason}: {count}" in flow for reason, count in cohort["excluded_reasons"].items())
    for endpoint in metrics["endpoints"].values():
        assert f"{endpoint['known']} with a known label" in words
        assert f"{cohort['predicted'] - endpoint['known']} unknown" in words


def test_every_number_measured_for_an_endpoint_stands_on_the_page(metrics, words):
    number = notation.number
    for name, kind, model, r in results(metrics):
        n, measure = r["n"], "auc" if kind == "binary" else "harrell_c"
        shown = [interval(r[measure], n), interval(r["judged"], n)]
        shown += [number(fold[measure], 4, fold["n"]) for fold in r["folds"]]
        shown += [f"{number(r['fold_mean'], 4)} ± {number(r['fold_variance'], 4)}"]
        shown += [notation.p_value(r["chance_test"]["p"]), notation.adjusted_p(r["chance_test"]["p_adjusted"])]
        if kind == "binary":
            shown += [
                interval(r["average_precision"], n),
                *(number(r["calibration"][key]) for key in ("slope", "intercept", "ece")),
            ]
            shown += [notation.interval(attributes(r["brier"]), n, 4)]
            lines = [r["calibration"][f"{key}_interval"] for key in ("slope", "intercept")]
            shown += [notation.ends(line["low"], line["high"], n) for line in lines]
            shown += [interval(r["calibration"][key], n) for key in ("observed_to_expected", "ici")]
            shown += [number(r["brier"][key], 4) for key in ("reliability", "resolution", "uncertainty", "within")]
            shown += [interval(r["operating_point"][key], n) for key in ("sensitivity", "specificity", "ppv", "npv")]
        else:
            shown += [interval(r["uno_c"], n), number(r["mean_auc"]), notation.p_value(r["logrank"]["p"]), r["cutoffs"]]
            shown += [interval(point, n) for point in r["auc_at"]] + [number(point["value"]) for point in r["brier_at"]]
            ratios = [r["hazard"][key] for key in ("per_sd", "high_vs_low")]
            shown += [notation.interval(attributes(ratio), n, 2) for ratio in ratios]
            shown += [notation.p_value(ratio["proportional_p"]) for ratio in ratios]
            shown += [notation.interval(attributes(r["restricted_mean"]["difference"]), n, 0)]
            shown += [interval(r["integrated_brier"], n)] if r["integrated_brier"] else []
            shown += [f"{group['n']} patients, {group['events']} died" for group in r["groups"].values()]
        for test in r["versus_controls"].values():
            shown += [notation.signed(attributes(test), n), notation.p_alone(test["p_adjusted"])]
        assert [text for text in shown if text not in words] == [], (name, model)
    for endpoint in metrics["endpoints"].values():
        assert len(endpoint["pairs"]) == math.comb(sum(model != "shuffled" for model in endpoint["models"]), 2)
        shown = [attributes(pair[key]) for pair in endpoint["pairs"] for key in ("score", "brier") if pair[key]]
        assert all(f"{notation.signed(one)} {notation.p_value(one.p)}" in words for one in shown)
    assert all(rule in words for rule in metrics["rules"])
    assert all(probe["sentence"] in words for probe in metrics["site_probe"]["models"].values())


def test_every_decimal_on_the_page_stands_in_metrics_json(metrics, words):
    known = [float(value) for value in leaves(metrics) if isinstance(value, int | float)]
    known += [float(found) for value in leaves(metrics) if isinstance(value, str) for found in re.findall(r"\d+\.\d+", value)]
    columns = " ".join(metrics["endpoints"]["os"]["added_value"]["analysis"]["both"])  # age, per 9.09 (SD)
    known += [float(found) for found in re.findall(r"\d+\.\d+", columns)]
    shown = set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\w\.)", words)) - {"0.5", f"{notation.SMALLEST_P:g}"}  # chance; "p <"
    assert len(shown) > 100
    for found in shown:
        digits = len(found.split(".")[1])
        assert any(f"{abs(value):.{digits}f}" == found for value in known), found


def test_a_fold_of_one_class_is_counted_and_shown_as_undefined(metrics, words):
    result = metrics["endpoints"]["idh1"]["models"]["vit"]
    assert result["undefined_folds"] == 1
    assert f"undefined (n = {result['folds'][-1]['n']})" in words
    assert "1 of 3 folds held one class only" in words


def test_the_page_asks_nothing_of_the_network_and_runs_no_script_but_its_own(page):
    assert not re.search(r"https?:", page)
    script, own = re.findall(r"script-src ([^;\"]*)", html.unescape(page)), re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert page.lower().count("<script") == len(own) == 1
    assert script == [style.source_hash(own[0])]
    assert not re.search(r"<[^>]*\son\w+=", page)
    assert "default-src &#39;none&#39;" in page
    assert all(source.startswith("data:image/") for source in re.findall(r"\ssrc=\"([^\"]*)", page))
    assert not re.findall(r"url\(|@import", page)


def test_the_page_breaks_no_rule_of_accessibility_wide_and_narrow(home, tmp_path):
    for size in ((1400, 900), (400, 800)):
        (tmp_path / str(size[0])).mkdir()
        assert violations(home / "index.html", tmp_path / str(size[0]), size) == []


def test_the_page_opens_within_twelve_screens(home):
    long = screens(home / "index.html")
    if long is None:
        pytest.skip("Chromium is not installed")
    assert 1 < long <= MOST_SCREENS


def test_a_click_sorts_the_patients_the_worst_first_and_a_link_opens_what_is_folded(home, metrics, tmp_path):
    script = """
    addEventListener("load", async () => {
      const heads = [...document.querySelectorAll(".sortable th button")];
      const error = heads.find((one) => one.textContent.trim() === "error");
      const column = Number(error.parentElement.dataset.column);
      const shown = () => [...document.querySelectorAll(".sortable tbody tr")].map((row) => row.cells[column].textContent.trim());
      error.click();
      const told = { worst: shown() };
      error.click();
      told.best = shown();
      const folded = [...document.querySelectorAll("section > details.part")].filter((one) => !one.open);
      told.folded = folded.map((one) => one.parentElement.id);
      location.hash = "#" + told.folded[0];
      await new Promise((go) => setTimeout(go, 200));
      told.opened = folded[0].open;
      told.wide = document.documentElement.scrollWidth - window.innerWidth;
      document.body.dataset.driven = JSON.stringify(told);
    });"""
    told = open_page(home, driven(home / "index.html", script), tmp_path, (400, 800), 10_000).told("driven")
    errors = [one["endpoints"]["mgmt"]["error"] for one in metrics["patients"] if "mgmt" in one["endpoints"]]
    known = sorted((error for error in errors if error is not None), reverse=True)
    assert told["worst"] == [f"{error:.2f}" for error in known] + [""] * (len(metrics["patients"]) - len(known))
    assert told["best"][: len(known)] == [f"{error:.2f}" for error in sorted(known)]
    others = [f"endpoint-{name}" for name in list(metrics["endpoints"])[1:]]
    assert set(others) <= set(told["folded"])  # one endpoint is open, the others are folded
    assert told["opened"]
    assert told["wide"] <= 0  # nothing is cut off beside the page; wide tables scroll in their box


def test_the_first_screen_has_a_card_for_each_endpoint_and_terms_lead_to_the_glossary(page, metrics):
    first = page[: page.index('id="verdicts"')]
    for card in metrics["cards"].values():
        assert html.escape(card["verdict"]) in first
        assert all(html.escape(card[tick]["words"]) in first for tick in ("beats_controls", "holds_in_sites"))
    assert first.count('<article class="card') == len(metrics["endpoints"])
    terms = set(re.findall(r'class="term" href="#([^"]*)"', page))
    assert "term-auc" in terms
    assert terms <= set(re.findall(r'id="(term-[^"]*)"', page))


def test_every_link_leads_to_something(page, home):
    targets = re.findall(r"href=\"([^\"]*)", page)
    identities = re.findall(r"\sid=\"([^\"]*)", page)
    assert len(identities) == len(set(identities))
    assert {"metrics.json", *report_files.TEXTS} <= set(targets)
    for target in targets:
        assert target[1:] in identities if target.startswith("#") else (home / target).is_file(), target


def test_text_from_the_cohort_is_escaped(page, words):
    assert "<b>bold" not in page
    assert REASON in words
    for patient in ODD_IDS[:2]:
        said = "gradient-weighted attention, explains mgmt = 1; peak 12.3 relative to a uniform map"
        assert f"{patient} , vit, predicted in fold 2: {said}. ▲ passes" in words


def test_the_page_says_at_the_top_and_at_the_foot_that_it_is_not_a_medical_device(words):
    assert words.count("Not a medical device") == 2
    assert words.index("Not a medical device") < words.index("Patients")


def test_the_page_can_be_read_aloud(page):
    assert '<html lang="en">' in page
    assert all(re.search(r'alt="[^"]+"', tag) for tag in re.findall(r"<img[^>]*>", page))
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_fold_hash_is_that_of_the_file(run, words):
    assert hashlib.sha256((run / "folds.json").read_bytes()).hexdigest() in words


def test_every_figure_is_on_the_page_and_beside_it_as_svg_and_png(home, page, metrics):
    expected = {"forest", "auc_time_os", "brier_time_os", "added_value_os"}
    expected |= {f"calibration_os_{at['days']}" for at in metrics["endpoints"]["os"]["models"]["vit"]["calibration_at"]}
    expected |= {f"decision_os_{at['days']}" for at in metrics["endpoints"]["os"]["models"]["vit"]["decision_at"]}
    expected |= {f"km_os_{model}" for model in ("vit", *CONTROLS)}
    for name in ("mgmt", "pten", "idh1"):
        expected |= {f"{kind}_{name}" for kind in ("precision_recall", "calibration", "decision")}
        expected |= {f"roc_{name}_{model}" for model in ("vit", *CONTROLS)}
    expected |= {f"map_{kind}_{name}" for kind in ("curves", "cascade", "agreement") for name in ("mgmt", "pten")}
    expected |= {"map_tumour"}
    assert {path.name for path in (home / "figures").iterdir()} == {
        f"{name}.{kind}" for name in expected for kind in ("svg", "png")
    }
    assert page.count("data:image/svg+xml") == len(expected)


def test_the_tables_hold_what_metrics_json_holds(home, metrics):
    def table(name: str) -> pd.DataFrame:
        return pd.read_csv(home / "tables" / f"{name}.csv")

    rows = table("results").set_index(["endpoint", "model"])
    for name, kind, model, result in results(metrics):
        measure = "auc" if kind == "binary" else "harrell_c"
        assert rows.loc[(name, model), f"{measure}.low"] == pytest.approx(result[measure]["low"])
        assert rows.loc[(name, model), "verdict"] == result["verdict"]
    assert len(table("folds")) == sum(len(result["folds"]) for *_, result in results(metrics))
    assert len(table("subgroups")) == sum(len(endpoint["subgroups"]) for endpoint in metrics["endpoints"].values())
    points = table("roc").query("endpoint == 'mgmt' and model == 'vit'")
    assert points.pooled.tolist() == pytest.approx(metrics["endpoints"]["mgmt"]["models"]["vit"]["roc"]["pooled"])
    assert {"calibration", "decision", "precision_recall", "survival_curves", "kaplan_meier"} <= {
        path.stem for path in (home / "tables").iterdir()
    }
    judged = table("map_scores").set_index(["endpoint", "method"])
    for name, endpoint in metrics["map_scores"]["endpoints"].items():
        for method, found in endpoint["methods"].items():
            assert judged.loc[(name, method), "deletion_gain.low"] == pytest.approx(found["deletion_gain"]["low"])
            assert judged.loc[(name, method), "verdict"] == found["verdict"]
    falls = table("map_curves").query("endpoint == 'mgmt' and curve == 'deletion' and method == 'random'")
    drawn = metrics["map_scores"]["endpoints"]["mgmt"]["curves"]["deletion"]["orders"]["random"]
    assert falls.value.tolist() == pytest.approx(drawn["value"])
    assert {"map_cascade", "map_agreement"} <= {path.stem for path in (home / "tables").iterdir()}


def test_kaplan_meier_curves_fall_and_end_where_the_groups_say(home, metrics):
    curves = pd.read_csv(home / "tables" / "kaplan_meier.csv")
    for model, group in itertools.product(("vit", *CONTROLS), ("low risk", "high risk")):
        curve = curves.query("model == @model and group == @group")
        assert curve.survival.is_monotonic_decreasing
        assert curve.low.le(curve.survival + 1e-12).all()
        assert curve.high.ge(curve.survival - 1e-12).all()
        told = metrics["endpoints"]["os"]["models"][model]["groups"][group]
        assert curve.censored.sum() == told["n"] - told["events"]


def test_a_spreadsheet_takes_no_reason_for_a_formula(home):
    reasons = pd.read_csv(home / "tables" / "excluded.csv").reason.tolist()
    assert f"'{FORMULA}" in reasons
    assert not any(str(reason).startswith(("=", "+", "-", "@")) for reason in reasons)


def test_the_texts_for_a_paper_lie_beside_the_page(home):
    for name in report_files.TEXTS:
        assert len((home / name).read_text(encoding="utf-8")) > 1000


def test_a_second_report_is_the_same_to_the_byte(run, tmp_path):
    found = run_folder.read_run(run)
    few = tuple(e for e in found.study.endpoints if e.name in ("mgmt", "os"))
    own = found.predictions[found.predictions.model == "vit"]
    found = replace(found, study=found.study.model_copy(update={"endpoints": few}), predictions=own)

    def contents(home: Path) -> dict[Path, bytes]:
        report_files.write_report(found, home)
        return {path.relative_to(home): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}

    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_metrics_json_holds_no_nan(home):
    def refuse(constant):
        raise AssertionError(constant)

    json.loads((home / "metrics.json").read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_terminals_table_fits_80_columns(home):
    rows = report_files.result_rows(read(home))
    assert [row.model for row in rows if row.endpoint == "mgmt"] == ["vit", *CONTROLS]
    assert [row.judged for row in rows if row.endpoint == "tertp"] == ["no result"]
    widths = [max(map(len, column)) for column in zip(report_files.RESULT_COLUMNS, *map(astuple, rows), strict=True)]
    assert sum(widths) + 2 * len(widths) <= 80


def test_the_terminals_sentences_are_the_candidates_verdicts(home, metrics):
    sentences = report_files.verdict_lines(read(home))
    assert f"MGMT promoter methylation, vit: {metrics['endpoints']['mgmt']['models']['vit']['verdict']}" in sentences
    assert "TERT promoter mutation: no patient has a label, so it is not trained" in sentences
    assert len(sentences) == 5 + 2
    mgmt = metrics["map_scores"]["endpoints"]["mgmt"]["methods"]["gradient_attention"]["verdict"]
    assert f"Maps of MGMT promoter methylation, gradient attention (best of 2): {mgmt}" in sentences
    assert sentences[-1].startswith("Maps of PTEN alteration: no finding")


def test_published_figures_stand_beside_what_chance_alone_gives(metrics, words):
    assert all(row["source"] in words for endpoint in metrics["endpoints"].values() for row in endpoint["published"])
    result = metrics["endpoints"]["mgmt"]["models"]["vit"]
    assert f"with a standard error of {notation.number(result['chance_error'])} over these {result['n']} patients" in words


def test_maps_are_believed_before_they_are_shown(metrics, words):
    scored = metrics["map_scores"]
    assert scored["patients"] == 60  # of whom one was scored at two visits
    networks = scored["endpoints"]["mgmt"]["methods"]["rollout"]["hit_randomised"]["n"]
    assert f"with randomised weights ({networks} networks)" in words
    part = words[words.index("Maps: what the model used") :]
    for endpoint in scored["endpoints"].values():
        for found in endpoint["methods"].values():
            assert notation.tied(found["checks"]) in part[: part.index("Which sequence does the score come from?")]
    assert all(rule in part for rule in scored["rules"])
    assert part.index("Are the maps reliable?") < part.index("Mean maps of the cohort") < part.index("radiologists look")


def test_no_word_of_the_tumour_is_said_for_an_endpoint_without_a_finding(metrics, page):
    part = page[page.index('<section id="maps">') : page.index('id="rules"')]
    claimed = part[part.index("<h4>MGMT") : part.index("<h4>PTEN")]
    empty = part[part.index("<h4>PTEN") :].split("</ul>")[0]
    assert re.search(r"on the tumour: 6\.\d× the share", html.unescape(claimed))
    assert "No finding: the prediction shows no evidence of beating chance" in empty
    figures = part[part.index("Figures for PTEN") : part.index("Rules of these verdicts")]
    for text in (empty, figures):
        assert "share" not in text
        assert "on the tumour" not in text
    assert "PTEN" not in part[part.index("Does the map lie on the tumour?") - 400 : part.index("Figures for MGMT")]
    told = [one for patient in metrics["maps"] for one in patient["maps"] if one["endpoint"] == "pten"]
    assert {one["kind"] for one in told} == {"none"}


@pytest.mark.usefixtures("sketched")
def test_two_candidates_stand_side_by_side_each_with_its_own_figures(tmp_path):
    folder = make_run(tmp_path / "two", patients=40, models=("vit", "clinical"))
    table = predictions.load(folder / "predictions.csv")
    vit = table[table.model == "vit"]
    others = [vit.assign(model=name) for name in ("net/10 <x>", "net-10 <x>")]
    predictions.save(pd.concat([table, *others]), folder / "predictions.csv")
    home = written(folder, "mgmt", "os")
    metrics = read_metrics(home)
    assert metrics["models"] == ["vit", "net-10 <x>", "net/10 <x>", "clinical"]
    assert len(list((home / "figures").glob("roc_mgmt_net-10*.svg"))) == 2
    page = (home / "index.html").read_text()
    assert "net/10 &lt;x&gt;" in page
    assert "<x>" not in page
    # A model without survival probabilities has no Brier score and no calibration, and the page says so with a dash.
    assert metrics["endpoints"]["os"]["models"]["net/10 <x>"]["curve"] is None


@pytest.mark.usefixtures("sketched")
def test_repeats_are_said_and_each_is_shown(tmp_path):
    home = written(make_run(tmp_path / "twice", patients=40, repeats=2, models=("vit", "clinical")), "mgmt", "os")
    words = seen(home)
    assert "each patient's mean score over the repeats" in words
    tested = read_metrics(home)["endpoints"]["mgmt"]["models"]["vit"]["versus_controls"]["clinical"]["nadeau_bengio"]
    assert f"t = {notation.number(tested['t'], 2)}, {notation.p_value(tested['p'])}, {tested['splits']} splits" in words
    assert "Nadeau and Bengio's corrected t-test, one-sided" in words


@pytest.mark.usefixtures("sketched")
def test_the_demo_says_that_its_patients_are_made_up(tmp_path, words):
    folder = make_run(tmp_path / "demo", name="demo", patients=30, models=("vit",))
    made = run_folder.read_run(folder)
    named = {
        name: getattr(made, name).assign(patient="demo-" + getattr(made, name).patient) for name in ("cohort", "predictions")
    }
    study = made.study.model_copy(update={"endpoints": made.study.endpoints[:1]})
    home = report_files.write_report(
        replace(made, study=study, survival=made.survival.iloc[:0], **named), folder / "report"
    ).page.parent
    assert "These patients are synthetic" in seen(home)
    assert "These patients are synthetic" not in words


@pytest.mark.usefixtures("sketched")
def test_another_cohort_is_reported_beside_the_runs_own(tmp_path, metrics):
    folder = make_run(tmp_path / "abroad", seed=3, internal=metrics)
    home = written(folder, "mgmt", "os")
    words, outside = seen(home), read_metrics(home)
    for name, kind, model, result in results(outside):
        inside = metrics["endpoints"][name]["models"][model]
        pair = " ".join(interval(each["judged"], each["n"]) for each in (inside, result))
        assert f"{model} {'AUC' if kind == 'binary' else 'C'} {pair}" in words
    assert "Nothing was refitted" in words
    assert "Fitted on this cohort's own labels: a description, not a test." in words
    recalibrated = outside["endpoints"]["mgmt"]["models"]["vit"]["recalibrated"]
    assert notation.number(recalibrated["brier"]) in words[words.index("recalibrated Fitted") :]
    assert "before any training" not in words
    assert "SHA-256" not in words


@pytest.mark.usefixtures("sketched")
def test_a_table_from_elsewhere_is_not_vouched_for(tmp_path):
    folder = make_run(tmp_path / "source", patients=40, models=("vit",))
    table = predictions.load(folder / "predictions.csv").query("session == '' and endpoint in ('mgmt', 'os')")
    table = table.assign(score=table.score.where(table.endpoint == "os", 10 * table.score))[["patient", "endpoint", "score"]]
    table.to_csv(tmp_path / "theirs.csv", index=False)
    people = pd.read_csv(folder / "cohort.csv", dtype=str, keep_default_na=False).drop_duplicates("patient")
    people.to_csv(tmp_path / "people.csv", index=False)
    found = foreign_table.run_from_tables(tmp_path / "theirs.csv", tmp_path / "people.csv", tmp_path / "out")
    home = report_files.write_report(found, tmp_path / "out").page.parent
    words = seen(home)
    for claim in (
        "never seen",
        "before any training",
        "SHA-256",
        "Settings and versions",
        "excluded",
        "Maps:",
        "validation patients",
    ):
        assert claim not in words, claim
    headings = re.findall(r"<h[23]>([^<]*)", (home / "index.html").read_text())
    assert "Folds" not in headings
    assert "Excluded patients" not in headings
    # Scores of 0 to 10 rank patients but are no probabilities.
    assert "not probabilities" in words
    assert not {"calibration_mgmt.svg", "decision_mgmt.svg"} & {path.name for path in (home / "figures").iterdir()}


@pytest.mark.usefixtures("sketched")
def test_a_tiny_run_that_knows_nothing_has_a_report_of_undefined_figures(tmp_path):
    folder = make_run(tmp_path / "tiny", patients=9, models=("vit",))
    table = predictions.load(folder / "predictions.csv")
    # One score for everybody, one class, and nobody died.
    table = table.assign(score=0.5, truth=table.truth * 0, event=table.event * 0)
    predictions.save(table, folder / "predictions.csv")
    (folder / "excluded.csv").unlink()
    home = written(folder)
    words, metrics = seen(home), read_metrics(home)
    assert metrics["endpoints"]["idh1"]["models"]["vit"]["auc"] == {"value": None, "low": None, "high": None}
    assert "cannot be judged: all patients have the same label (n = 9, 0 positive)" in words
    assert "undefined (n = 9)" in words
    assert "p undefined" in words
    assert "Excluded patients" not in words
    assert {row.judged for row in report_files.result_rows(read(home))} == {"not judged", "no result"}
