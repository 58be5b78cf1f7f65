"""The report against a made-up run folder whose numbers are computed again here, by other means."""

from __future__ import annotations

import csv
import hashlib
import html
import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import concordance_index
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from mri_vit import predictions
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.report import html as report
from mri_vit.report import numbers

ODD_IDS = ["007", "1e5", "NA", "A_b.c-D"]  # legal, and each spoiled by a careless reader of tables
REASON = '<b>bold</b> & "quoted" <script>alert(1)</script>'
FOLDS = 3


def make_run(folder: Path, *, name: str = "made-up", repeats: int = 1, patients: int = 60, seed: int = 0) -> Path:
    """A run folder with a strong mgmt, an empty pten, an idh1 whose last fold is of one class, an unlabelled tertp, and os."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    ids = ODD_IDS + [f"P{i:03d}" for i in range(patients - len(ODD_IDS))]
    cohort = pd.DataFrame({"patient": ids})
    for channel in ("t1", "t1ce", "t2", "flair"):
        cohort[channel] = [f"{patient}/{channel}.nii.gz" for patient in ids]
    mgmt, pten = generator.random(patients) < 0.45, generator.random(patients) < 0.35
    home = {repeat: generator.permutation(patients) % FOLDS for repeat in range(repeats)}
    idh1 = (generator.random(patients) < 0.5) & (home[0] != FOLDS - 1)
    hazard = generator.normal(size=patients)
    died_days = 400 * generator.exponential(size=patients) * np.exp(-hazard) + 1
    censored_days = generator.uniform(100, 1500, patients)
    event = died_days <= censored_days
    os_days = np.minimum(died_days, censored_days).round()
    known = {key: generator.random(patients) > 0.15 for key in ("mgmt", "pten", "os")} | {"idh1": np.ones(patients, dtype=bool)}
    for key, values in (("mgmt", mgmt), ("pten", pten), ("idh1", idh1)):
        cohort[key] = [str(int(value)) if seen else "" for value, seen in zip(values, known[key], strict=True)]
    cohort["tertp"] = ""
    cohort["os_days"] = [f"{value:.0f}" if seen else "" for value, seen in zip(os_days, known["os"], strict=True)]
    cohort["os_event"] = [str(int(value)) if seen else "" for value, seen in zip(event, known["os"], strict=True)]
    excluded = [("X-1", "X-1/t1.nii.gz", REASON), ("X-1", "X-1/t2.nii.gz", "2 NaN voxels"), ("X-2", "", "found t1; need t1ce")]
    everybody = [*cohort.to_dict("records"), *({"patient": gone} for gone in ("X-1", "X-2"))]
    pd.DataFrame(everybody).fillna("").to_csv(folder / "cohort.csv", index=False)
    pd.DataFrame(excluded, columns=pd.Index(["patient", "file", "reason"])).to_csv(folder / "excluded.csv", index=False)
    rows = []
    for repeat in range(repeats):
        for i, patient in enumerate(ids):
            key = {"patient": patient, "model": "vit", "repeat": repeat, "fold": int(home[repeat][i])}
            for endpoint, truth, signal in (("mgmt", mgmt, 2.5), ("pten", pten, 0.0), ("idh1", idh1, 1.0)):
                score = 1 / (1 + math.exp(-(generator.normal() + signal * (truth[i] - 0.5))))
                rows.append({**key, "endpoint": endpoint, "score": score, "truth": int(truth[i]) if known[endpoint][i] else None})
            rows.append({**key, "endpoint": "tertp", "score": generator.random()})
            risk = hazard[i] + generator.normal(scale=0.7)
            seen = known["os"][i]
            outcome = {"time_days": os_days[i] if seen else None, "event": int(event[i]) if seen else None}
            rows.append({**key, "endpoint": "os", "score": risk, **outcome})
    predictions.save(pd.DataFrame(rows, columns=pd.Index(predictions.COLUMNS)), folder / "predictions.csv")
    split = [{"folds": [[ids[i] for i in np.flatnonzero(home[r] == k)] for k in range(FOLDS)]} for r in range(repeats)]
    (folder / "folds.json").write_text(json.dumps({"schema": 1, "seed": seed, "repeats": split}))
    endpoints = "".join(f'[[endpoints]]\nname = "{key}"\nkind = "binary"\n' for key in ("mgmt", "pten", "idh1", "tertp"))
    endpoints += '[[endpoints]]\nname = "os"\nkind = "survival"\ntime = "os_days"\nevent = "os_event"\n'
    paths = 'cohort = "cohort.csv"\nprepared = "prepared"\noutput = "."\n'
    train = f"[train]\nfolds = {FOLDS}\nrepeats = {repeats}\n"
    (folder / "study.toml").write_text(f'name = "{name}"\nseed = 7\n{paths}{train}{endpoints}')
    environment = {
        "versions": {"torch": "2.13.0", "mri-vit": "0.1.0", "monai": "1.5.2"},
        "git_commit": None,
        "device": "cpu",
        "threads": 2,
        "seed": 7,
        "started": "2026-01-01",
    }
    (folder / "environment.json").write_text(json.dumps(environment))
    for patient in ids[:2]:
        (folder / "maps" / patient).mkdir(parents=True)
        picture = Figure(figsize=(3, 2))
        picture.add_subplot().imshow(generator.random((8, 12)))
        picture.savefig(folder / "maps" / patient / "overlay.png")
        facts = {
            "patient": patient,
            "model": "vit",
            "repeat": 0,
            "fold": 1,
            "peak": 12.34,
            "unit": "times the uniform map",
            "note": "a <i>note</i>",
        }
        (folder / "maps" / patient / "map.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("runs") / "made-up")
    assert report.write(folder) == folder / "report" / "index.html"
    return folder


@pytest.fixture(scope="module")
def metrics(run) -> dict:
    return json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(run) -> str:
    return (run / "report" / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def words(page) -> str:
    """What a reader sees: the page without its style, tags and pictures."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(text))


def labelled(run: Path, endpoint: str) -> list[dict[str, str]]:
    with (run / "predictions.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["endpoint"] == endpoint]
    return [row for row in rows if row["truth"] or row["time_days"]]


def test_the_cohort_flow_adds_up(metrics):
    cohort = metrics["cohort"]
    assert (cohort["patients"], cohort["excluded"], cohort["predicted"], cohort["unpredicted"]) == (62, 2, 60, 0)


@pytest.mark.parametrize("endpoint", ["mgmt", "pten", "idh1"])
def test_auc_per_fold_and_pooled_are_those_of_another_library(run, metrics, endpoint):
    rows = labelled(run, endpoint)
    result = metrics["endpoints"][endpoint]["models"]["vit"]
    truth, score = [int(float(row["truth"])) for row in rows], [float(row["score"]) for row in rows]
    assert metrics["endpoints"][endpoint]["known"] == metrics["cohort"]["known"][endpoint] == len(rows)
    assert metrics["endpoints"][endpoint]["positive"] == sum(truth)
    assert result["auc"]["value"] == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    assert result["auc"]["low"] <= result["auc"]["value"] <= result["auc"]["high"]
    defined, pairs = [], []
    for fold in result["folds"]:
        here = [row for row in rows if int(row["fold"]) == fold["fold"]]
        positive = sum(int(float(row["truth"])) for row in here)
        assert (fold["n"], fold["positive"]) == (len(here), positive)
        if not 0 < positive < len(here):
            assert fold["auc"] is None
            continue
        value = roc_auc_score([int(float(row["truth"])) for row in here], [float(row["score"]) for row in here])
        assert fold["auc"] == pytest.approx(value, abs=1e-12)
        defined.append(value)
        pairs.append(positive * (len(here) - positive))
    assert result["fold_mean"] == pytest.approx(np.mean(defined))
    assert result["fold_variance"] == pytest.approx(np.var(defined, ddof=1))
    assert result["undefined_folds"] == FOLDS - len(defined)
    assert result["auc_within_folds"]["value"] == pytest.approx(np.average(defined, weights=pairs))


def test_a_fold_of_one_class_is_counted_and_shown_as_undefined(metrics, words):
    result = metrics["endpoints"]["idh1"]["models"]["vit"]
    assert result["undefined_folds"] == 1
    n = result["folds"][FOLDS - 1]["n"]
    assert f"undefined (n = {n})" in words
    assert "1 of 3 folds held one class only" in words


def test_concordance_is_that_of_another_library(run, metrics):
    rows = labelled(run, "os")
    time_days, event, risk = ([float(row[key]) for row in rows] for key in ("time_days", "event", "score"))
    result = metrics["endpoints"]["os"]["models"]["vit"]
    assert result["harrell_c"]["value"] == pytest.approx(concordance_index(time_days, -np.array(risk), event), abs=1e-12)
    assert result["harrell_c"]["low"] < result["harrell_c"]["value"] < result["harrell_c"]["high"]
    assert (result["n"], result["events"]) == (len(rows), sum(event))
    assert sum(group["n"] for group in result["groups"].values()) == len(rows)
    assert sum(group["events"] for group in result["groups"].values()) == sum(event)
    assert result["groups"]["high risk"]["median_days"] < result["groups"]["low risk"]["median_days"]
    table = pd.DataFrame(rows).astype({"fold": int, "time_days": float, "event": float, "score": float})
    high = table.score > table.groupby("fold").score.transform("median")
    tested = multivariate_logrank_test(table.time_days, high, table.event)
    assert result["logrank_p"] == pytest.approx(tested.p_value, rel=1e-9)


def test_what_is_planted_is_found_and_what_is_not_is_not(metrics):
    verdicts = {name: result["models"]["vit"]["verdict"] for name, result in metrics["endpoints"].items() if result["models"]}
    assert verdicts["mgmt"] == verdicts["os"] == "better than chance"
    assert verdicts["pten"] == "not distinguishable from chance"


def test_an_endpoint_without_labels_is_said_not_to_be_trained(metrics, words):
    assert metrics["endpoints"]["tertp"]["models"] == {}
    assert "TERT promoter mutation: no label known: not trained" in words


def test_every_number_measured_for_an_endpoint_stands_on_the_page(metrics, words):
    for endpoint in metrics["endpoints"].values():
        for result in endpoint["models"].values():
            measure, digits = ("auc", 4) if endpoint["kind"] == "binary" else ("harrell_c", 4)
            shown = [report.interval(result[measure], result["n"]), report.number(result[f"{measure}_within_folds"]["value"])]
            shown += [report.number(fold[measure], digits, fold["n"]) for fold in result["folds"]]
            shown.append(f"{report.number(result['fold_mean'], 4)} ± {report.number(result['fold_variance'], 4)}")
            if endpoint["kind"] == "binary":
                shown.append(f"standard error of {report.number(result['chance_error'])}")
                shown += [f"0.5 ± {report.number(fold['chance_error'])}" for fold in result["folds"] if fold["auc"] is not None]
                shown += [f"n = {fold['n']}, {fold['positive']} positive" for fold in result["folds"]]
            else:
                shown += [report.p_value(result["logrank_p"])]
                shown += [f"{group['n']} patients, {group['events']} died" for group in result["groups"].values()]
                shown += [f"median {report.number(group['median_days'], 0)} days" for group in result["groups"].values()]
            assert [text for text in shown if text not in words] == []
    cohort = metrics["cohort"]
    assert f"{cohort['patients']} patients in the table" in words
    assert f"{cohort['excluded']} excluded" in words
    assert f"{cohort['predicted']} predicted" in words


def test_every_decimal_on_the_page_stands_in_metrics_json(metrics, words):
    def leaves(value):
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from leaves(inner)
        else:
            yield value

    known = [float(value) for value in leaves(metrics) if isinstance(value, int | float)]
    known += [float(found) for value in leaves(metrics) if isinstance(value, str) for found in re.findall(r"\d+\.\d+", value)]
    for found in set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\w\.)", words)) - {"0.5"}:  # 0.5 is chance itself
        digits = len(found.split(".")[1])
        assert any(f"{value:.{digits}f}" == found for value in known), found


def test_the_page_asks_nothing_of_the_network_and_runs_no_script(page):
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page.lower()
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", page)
    assert not re.findall(r"url\(|@import", page)


def test_text_from_the_cohort_is_escaped(page, words):
    assert "<b>bold" not in page
    assert html.escape(REASON).replace("&quot;", "&#34;") in page
    assert REASON not in page
    assert "a &lt;i&gt;note&lt;/i&gt;" in page
    for patient in ODD_IDS[:2]:
        assert f"{patient} , vit, predicted in fold 2; peak 12.3 times the uniform map" in words


def test_the_page_says_at_the_top_and_at_the_foot_that_it_is_not_a_medical_device(words):
    assert words.count("Not a medical device") == 2
    assert words.index("Not a medical device") < words.index("Cohort")


def test_the_page_can_be_read_aloud(page):
    assert '<html lang="en">' in page
    assert all(re.search(r'alt="[^"]+"', tag) for tag in re.findall(r"<img[^>]*>", page))
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_fold_hash_is_that_of_the_file(run, metrics, words):
    digest = hashlib.sha256((run / "folds.json").read_bytes()).hexdigest()
    assert metrics["folds_sha256"] == digest
    assert digest in words


def test_figures_and_tables_lie_beside_the_page(run):
    names = {"forest", "roc_mgmt_vit", "roc_pten_vit", "roc_idh1_vit", "km_os_vit"}
    found = {path.name for path in (run / "report" / "figures").iterdir()}
    assert found == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    tables = {path.name for path in (run / "report" / "tables").iterdir()}
    assert {"excluded.csv", "results.csv", "folds.csv", "roc_mgmt_vit.csv"} <= tables


def test_a_second_report_is_the_same_to_the_byte(run):
    def contents():
        return {path.relative_to(run): path.read_bytes() for path in sorted((run / "report").rglob("*")) if path.is_file()}

    before = contents()
    report.write(run)
    assert contents() == before


def test_metrics_json_holds_no_nan(run):
    def refuse(constant):
        raise AssertionError(constant)

    json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_summary_has_a_row_for_every_endpoint(metrics):
    rows = report.summary(metrics)
    assert [row["endpoint"] for row in rows] == ["mgmt", "pten", "idh1", "tertp", "os"]
    assert all(list(row) == ["endpoint", "model", "known", "result [95 % interval]", "verdict"] for row in rows)
    assert rows[0]["result [95 % interval]"] == f"AUC {report.interval(metrics['endpoints']['mgmt']['models']['vit']['auc'], 0)}"
    assert rows[3]["verdict"] == "no label known: not trained"


def test_repeats_are_averaged_per_patient_and_each_is_shown(tmp_path):
    folder = make_run(tmp_path / "twice", repeats=2)
    report.write(folder)
    metrics = json.loads((folder / "report" / "metrics.json").read_text())
    table = pd.DataFrame(labelled(folder, "mgmt")).astype({"score": float, "truth": float})
    mean = table.groupby("patient")[["score", "truth"]].mean()
    result = metrics["endpoints"]["mgmt"]["models"]["vit"]
    assert result["n"] == len(mean)
    assert result["auc"]["value"] == pytest.approx(roc_auc_score(mean.truth, mean.score), abs=1e-12)
    assert len(result["folds"]) == 2 * FOLDS
    assert [repeat["repeat"] for repeat in result["repeats"]] == [0, 1]
    page = (folder / "report" / "index.html").read_text()
    assert "each patient's mean score over the repeats" in html.unescape(page)


def test_two_models_stand_side_by_side(tmp_path):
    folder = make_run(tmp_path / "two")
    table = predictions.load(folder / "predictions.csv")
    other = table.assign(model="net/10 <x>", score=table.score.rank(pct=True))
    predictions.save(pd.concat([table, other]), folder / "predictions.csv")
    page = report.write(folder).read_text()
    metrics = json.loads((folder / "report" / "metrics.json").read_text())
    mgmt = metrics["endpoints"]["mgmt"]["models"]
    # A rising map of all scores changes no order.
    assert mgmt["net/10 <x>"]["auc"] == pytest.approx(mgmt["vit"]["auc"])
    assert [row["model"] for row in report.summary(metrics)][:2] == ["net/10 <x>", "vit"]
    assert "net/10 &lt;x&gt;" in page
    assert (folder / "report" / "figures" / "roc_mgmt_net-10-x-.svg").is_file()


def test_the_demo_says_that_its_patients_are_made_up(tmp_path, words):
    folder = make_run(tmp_path / "demo", name="demo")
    assert "These patients are made up" in report.write(folder).read_text()
    assert "These patients are made up" not in words


def test_published_figures_stand_beside_the_endpoints_that_they_are_about(words):
    assert "0.5491" in words
    assert "Saeed et al. 2023, Medical Image Analysis, Table 4" in words
    assert "Kim et al. 2022" in words


def test_a_run_without_maps_and_exclusions_has_a_report(tmp_path):
    folder = make_run(tmp_path / "bare", patients=30)
    (folder / "excluded.csv").unlink()
    for path in sorted((folder / "maps").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    page = report.write(folder).read_text()
    assert "Attention maps" not in page
    assert "Excluded patients" not in page
    # are still in the frozen table.
    assert "and 2 neither excluded nor predicted" in page


def test_a_tiny_run_that_knows_nothing_has_a_report_of_undefined_figures(tmp_path):
    folder = make_run(tmp_path / "tiny", patients=9)
    table = predictions.load(folder / "predictions.csv")
    # One score for everybody, one class, and nobody died.
    table = table.assign(score=0.5, truth=table.truth * 0, event=table.event * 0)
    predictions.save(table, folder / "predictions.csv")
    page = report.write(folder).read_text()
    metrics = json.loads((folder / "report" / "metrics.json").read_text())
    assert metrics["endpoints"]["idh1"]["models"]["vit"]["auc"] == {"value": None, "low": None, "high": None}
    assert metrics["endpoints"]["os"]["models"]["vit"]["logrank_p"] is None
    assert "cannot be judged: too few patients" in page
    assert "undefined (n = 9)" in page
    assert "p undefined" in page
    assert tuple(report.summary(metrics)[2].values())[3:] == ("AUC undefined (n = 9)", "cannot be judged: too few patients")


def test_an_unfinished_run_is_refused_by_name(tmp_path):
    folder = make_run(tmp_path / "half")
    (folder / "predictions.csv").unlink()
    with pytest.raises(UsageError, match=r"no predictions\.csv"):
        report.write(folder)


def test_a_patient_predicted_outside_its_fold_is_refused(tmp_path):
    folder = make_run(tmp_path / "moved")
    folds = json.loads((folder / "folds.json").read_text())
    first, second = folds["repeats"][0]["folds"][:2]
    moved = first.pop()
    second.append(moved)
    (folder / "folds.json").write_text(json.dumps(folds))
    with pytest.raises(IntegrityError, match=re.escape(f"patient {moved} was predicted in fold 0")):
        report.write(folder)


@pytest.mark.parametrize(
    ("estimate", "enough", "expected"),
    [
        ((0.7, 0.6, 0.8), True, "better than chance"),
        ((0.3, 0.2, 0.4), True, "worse than chance"),
        ((0.6, 0.49, 0.7), True, "not distinguishable from chance"),
        ((1.0, 1.0, 1.0), False, "not distinguishable from chance"),
        ((1.0, 1.0, 1.0), True, "better than chance"),
        ((math.nan, math.nan, math.nan), False, "cannot be judged: too few patients"),
    ],
)
def test_the_verdict_follows_the_interval(estimate, enough, expected):
    assert numbers.verdict(dict(zip(("value", "low", "high"), estimate, strict=True)), enough) == expected


@pytest.mark.parametrize("longest_days", [3.0, 200.0, 1500.0, 40000.0])
def test_numbers_at_risk_have_room(longest_days):
    ticks = numbers.risk_ticks(longest_days)
    assert ticks[0] == 0
    assert ticks[-1] <= longest_days
    assert 1 <= len(ticks) <= numbers.MOST_TICKS
