"""The checklists against made-up metrics: every item there once, filled from the run and from nothing else."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from made.metrics import filled
from markdown_it import MarkdownIt

from mri_vit.report.words import checklists, notation
from mri_vit.report.words.checklists import AUTHOR, FILLERS, LONG, Checklist, Item
from mri_vit.settings.schema import CHANNELS, Model, Train
from mri_vit.settings.sections import Controls, Explain, Grid, Prepare

LEFT = "<strong>for the author</strong>: "  # how an item begins that the run does not answer
ODD = "a|b <img src=x onerror=alert(1)> *c*\n\n| d | [e](https://e.org) \\| `f`"
NAMES = checklists.CHECKLISTS

AGE = {"known": 58, "missing": 1, "median": 62.0, "low": 55.0, "high": 70.0}
SEX = {"known": 59, "counts": [20, 39]}


def made_up(**changes: Any) -> dict[str, Any]:
    """The content of a metrics.json with one binary endpoint and the model alone."""
    vit = {
        "n": 51,
        "positive": 20,
        "judged": {"value": 0.711, "low": 0.65, "high": 0.764},
        "auc": {"value": 0.7431, "low": 0.6817, "high": 0.7952},
        "operating_point": {"sensitivity": {"value": 0.8022, "low": 0.7, "high": 0.9}, "n": 51},
        "verdict": "better than chance",
    }
    sections = {"grid": Grid(), "prepare": Prepare(), "model": Model(), "train": Train()}
    sections |= {"controls": Controls(), "explain": Explain()}
    settings: dict[str, Any] = {name: section.model_dump(mode="json") for name, section in sections.items()}
    settings["channels"] = list(CHANNELS)
    settings["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), Model().shape, strict=True))
    metrics = {
        "study": "made-up",
        "seed": 17,
        "cohort": {"patients": 62, "excluded": 2, "excluded_reasons": {"no t1 scan": 2}, "predicted": 59, "known": {"mgmt": 53}},
        "folds": 5,
        "repeats": 1,
        "folds_sha256": "ab" * 32,
        "endpoints": {"mgmt": {"kind": "binary", "known": 51, "positive": 20, "models": {"vit": vit}}},
        "maps": [{"patient": "P1"}],
        "patients": [{"patient": "P1"}, {"patient": "P2"}],
        "failures": {"mgmt": {"sentence": "The 10 worst are not told apart."}},
        "table1": {
            "splits": [{"name": "all", "kind": "all", "n": 59}, {"name": "fold 1", "kind": "fold", "n": 12}],
            "rows": [
                {"column": "age", "kind": "number", "cells": [AGE, {}]},
                {"column": "sex", "kind": "words", "levels": ["F", "M"], "cells": [SEX, SEX | {"counts": [4, 8], "known": 12}]},
            ],
        },
        "settings": settings,
        "environment": {
            "versions": {"torch": "2.13.0"},
            "git_commit": "c0ffee",
            "device": "CPU",
            "threads": 2,
            "seed": 17,
            "started": "",
        },
    }
    return copy.deepcopy(metrics | changes)


def answers(name: str, metrics: dict[str, Any]) -> dict[str, str]:
    """The last cell of every row, as text, by item number, after a Markdown reader has read the table."""
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(checklists.filled_checklist(name, filled(metrics)))
    items = page[: page.index("</table>")]  # below it stands the table of PROBAST+AI's ratings
    rows = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", items, re.DOTALL)[1:]]
    assert {len(row) for row in rows} == {4}
    return {row[0]: row[3] for row in rows}


@pytest.mark.parametrize("name", NAMES)
def test_every_item_has_a_number_of_its_own_and_a_filler_that_exists_or_none(name):
    items = checklists.read_checklist(name).items
    assert len({item.number for item in items}) == len(items)
    assert {item.fill for item in items} - {""} <= set(FILLERS)
    assert all(item.section and item.asks for item in items)
    assert all(item.fill for item in items if item.left)
    assert all(
        bool(item.fill) != bool(item.write) for item in items
    )  # answered from the run, or the author is told what to write


def test_what_the_author_is_told_is_a_sentence_of_its_own():
    for name in NAMES:
        told = [item.write for item in checklists.read_checklist(name).items if item.write]
        assert len(told) == len(set(told))
        assert all(len(text.split()) >= 6 and text.endswith(".") for text in told)


@pytest.mark.parametrize("name", NAMES)
def test_no_item_is_empty_for_any_design(name):
    for design in ("cross-validation", "external", "table"):
        for text in answers(name, made_up(design=design)).values():
            assert len(re.sub("<[^>]*>", "", text)) > len("for the author: ")


def test_stard_ai_has_its_40_items_in_48_parts_in_order():
    numbers = [item.number for item in checklists.read_checklist("stard_ai").items]
    parts = {15: "abcd", 16: "abc", 17: "ab", 26: "ab", 40: "ab"}  # Sounderajah et al. 2025, Table 2
    assert numbers == [f"{n}{part}" for n in range(1, 41) for part in parts.get(n, ("",))]


def test_no_filler_is_without_an_item():
    assert {item.fill for name in NAMES for item in checklists.read_checklist(name).items} - {""} == set(FILLERS)


def test_tripod_ai_has_its_27_items_in_52_parts_in_order():
    numbers = [item.number for item in checklists.read_checklist("tripod_ai").items]
    assert len(numbers) == 52
    main = [int(re.sub(r"[a-z]", "", number)) for number in numbers]
    assert sorted(set(main)) == list(range(1, 28))
    assert main == sorted(main)
    parts = {n: "".join(number[-1] for number in numbers if number[:-1] == str(n)) for n in range(1, 28)}
    expected = {3: "abc", 5: "ab", 6: "abc", 8: "abc", 9: "abc", 12: "abcdefg", 18: "abcdef", 20: "abc", 23: "ab", 27: "abc"}
    for n, letters in expected.items():  # Collins et al. 2024, Table 2
        assert parts[n] == letters


def test_claim_has_its_44_items_in_order():
    assert [item.number for item in checklists.read_checklist("claim").items] == [str(n) for n in range(1, 45)]


def test_probast_ai_has_its_16_questions_on_development_and_18_on_evaluation_in_order():
    numbers = [item.number for item in checklists.read_checklist("probast_ai").items]
    questions = {"D": (3, 4, 4, 5), "E": (3, 4, 4, 7)}  # by domain; Moons et al. 2025
    expected = [
        f"{part}{domain}.{number}"
        for part, counts in questions.items()
        for domain, count in enumerate(counts, 1)
        for number in range(1, count + 1)
    ]
    assert numbers == expected
    assert (sum(questions["D"]), sum(questions["E"])) == (16, 18)


def test_only_the_four_conditional_questions_of_probast_ai_begin_with_if():
    asked = {item.number: item.asks for item in checklists.read_checklist("probast_ai").items}
    assert {number for number, asks in asked.items() if asks.startswith("If ")} == {"D4.4", "E4.4", "E4.5", "E4.6"}


def test_future_ai_has_its_30_recommendations_in_order():
    numbers = [item.number for item in checklists.read_checklist("future_ai").items]
    counts = {"Fairness": 3, "Universality": 4, "Traceability": 6, "Usability": 5, "Robustness": 3, "Explainability": 2}
    counts["General"] = 7  # Lekadir et al. 2025
    assert numbers == [f"{principle} {n}" for principle, count in counts.items() for n in range(1, count + 1)]
    assert len(numbers) == 30


@pytest.mark.parametrize("name", NAMES)
def test_the_count_at_the_top_is_that_of_the_rows(name):
    for metrics in (
        made_up(),
        made_up(settings={}, environment={}, maps=[], design="table"),
        {"endpoints": {}, "design": "table"},
    ):
        rows = answers(name, metrics)
        answered = [text for text in rows.values() if not text.startswith(LEFT)]
        in_part = sum("<strong>for the author</strong>" in text for text in answered)
        expected = f"Of {len(rows)} items {len(answered) - in_part} are answered from the run and {in_part} in part"
        assert expected in checklists.filled_checklist(name, filled(metrics))
        assert len(rows) == len(checklists.read_checklist(name).items)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_filled_from_nothing(name):
    assert checklists.filled_checklist(name, filled({"design": "table"})).count(f"| {AUTHOR}: ") == len(
        checklists.read_checklist(name).items
    )


@pytest.mark.parametrize(
    ("name", "number", "figures"),
    [
        (
            "tripod_ai",
            "20a",
            ["62 patients in the table", "2 patients (no t1 scan (n = 2))", "59 patients predicted", "20 positive"],
        ),
        ("tripod_ai", "23a", ["mgmt, vit: AUC 0.711 [0.650, 0.764]"]),
        ("tripod_ai", "12a", ["5 folds", "seed 17", "ab" * 32, "20% of the others"]),
        ("tripod_ai", "18f", ["torch 2.13.0", "c0ffee"]),
        ("tripod_ai", "22", ["12 pre-norm blocks of width 768"]),
        ("claim", "35", ["62 patients in the table", "59 patients predicted"]),
        ("claim", "25", ["learning rate 0.0003", "at most 100 epochs"]),
        ("claim", "32", ["5 folds by patient"]),
        ("claim", "38", ["sensitivity 0.802 [0.700, 0.900]"]),
        ("claim", "31", ["Maps of 1 patient were made"]),
        ("tripod_ai", "20b", ["Of 59 patients: age, median 62 [55, 70] missing in 1; sex F 20 (34 %), M 39 (66 %)", "each fold"]),
        ("claim", "36", ["age, median 62 [55, 70]"]),
        ("stard_ai", "25", ["age, median 62 [55, 70]"]),
        ("claim", "39", ["mgmt: The 10 worst are not told apart."]),
        ("stard_ai", "23", ["mgmt: The 10 worst are not told apart."]),
        ("stard_ai", "15b", ["5 folds", "learning rate 0.0003"]),
        ("stard_ai", "30", ["sensitivity 0.802 [0.700, 0.900]"]),
        ("stard_ai", "40b", ["each of 2 patients"]),
        ("stard_ai", "19", ["Each of 59 predicted patients has a score"]),
    ],
)
def test_an_answer_holds_the_run_s_figures(name, number, figures):
    text = answers(name, made_up())[number]
    assert [figure for figure in figures if figure not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_other_figures_give_other_answers(name):
    metrics = made_up(seed=18, folds=7)
    metrics["cohort"] |= {"patients": 99, "predicted": 96}
    metrics["endpoints"]["mgmt"]["models"]["vit"]["judged"]["value"] = 0.5577
    before, after = answers(name, made_up()), answers(name, metrics)
    changed = {number for number in before if before[number] != after[number]}
    expected = {"tripod_ai": {"12a", "20a", "23a"}, "claim": {"19", "32", "35", "37"}, "stard_ai": {"15b", "19", "24", "31"}}
    expected |= {"probast_ai": {"D1.3", "E4.7"}, "future_ai": set()}
    assert changed >= expected[name]
    assert not {number for number in changed if before[number].startswith(LEFT)}


@pytest.mark.parametrize("name", NAMES)
def test_metrics_without_controls_claim_none(name):
    with_control, without = made_up(), made_up()
    models = with_control["endpoints"]["mgmt"]["models"]
    models["clinical"] = copy.deepcopy(models["vit"])
    assert "penalised" not in checklists.filled_checklist(name, filled(without))
    assert "Controls:" not in checklists.filled_checklist(name, filled(without))
    assert answers("claim", without)["30"].startswith(LEFT)
    assert "penalised logistic regression" in answers("claim", with_control)["30"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_from_elsewhere_claims_no_training(name):
    text = checklists.filled_checklist(name, filled(made_up(settings={}, environment={}, maps=[], design="table")))
    for words in ("AdamW", "Vision Transformer", "cross-validation", "Rigid", "test fold", "deep-learning", "Attention maps"):
        assert words not in text
    assert "AUC 0.711" in text or name == "future_ai"  # which asks for no figure


def test_an_external_evaluation_is_told_where_it_is_asked_for():
    assert answers("claim", made_up())["33"].startswith(LEFT)
    found = answers("claim", made_up(design="external"))
    assert "without refitting to another cohort" in found["33"]
    assert found["32"].startswith(LEFT)
    assert found["25"].startswith(LEFT)


def test_a_filled_item_says_what_it_leaves_to_the_author():
    item = Item("1", "Here", "What?", fill="sizes", left="the rest")
    text = checklists.checklist_table(Checklist("T", "S", (item,)), filled(made_up()))
    assert "| 1 | Here | What? | In the evaluation, mgmt: 51 patients, 20 positive. **for the author**: the rest |" in text
    assert "Of 1 items 0 are answered from the run and 1 in part" in text


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_and_reasons_break_no_table_and_bring_no_html(name):
    metrics = made_up(study=ODD)
    metrics["cohort"]["excluded_reasons"] = {ODD: 2}
    metrics["endpoints"] = {ODD: metrics["endpoints"]["mgmt"]}
    metrics["endpoints"][ODD]["models"] = {ODD: metrics["endpoints"][ODD]["models"]["vit"]}
    metrics["environment"]["versions"] = {ODD: ODD}
    metrics["settings"]["train"]["leave_out"] = ODD
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(checklists.filled_checklist(name, filled(metrics)))
    assert set(answers(name, metrics)) == set(answers(name, made_up()))
    for tag in ("<img", "<a ", "<em", "<code"):
        assert tag not in page
    assert "a|b &lt;img src=x onerror=alert(1)&gt; *c* | d | [e](https://e.org) \\| `f`" in page


def test_a_checklist_that_lost_an_item_is_refused(monkeypatch, tmp_path):
    (tmp_path / "items").mkdir()
    (tmp_path / "items" / "short.toml").write_text(
        'title = "T"\nsource = "S"\nitems = 2\n[[item]]\nnumber = "1"\nsection = "a"\nasks = "b"\n'
    )
    monkeypatch.setattr(notation, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"short\.toml: 1 items; expected 2"):
        checklists.read_checklist("short")


def test_subgroups_are_answered_by_their_columns():
    metrics = made_up()
    assert answers("tripod_ai", metrics)["14"].startswith(LEFT)
    metrics["endpoints"]["mgmt"]["subgroups"] = [{"column": "sex", "level": "f"}, {"column": "age|x", "level": "under 65"}]
    found = answers("tripod_ai", metrics)
    assert "within subgroups by age|x and sex" in found["14"]
    assert "within subgroups by age|x and sex" in found["23a"]


def test_follow_up_is_told_where_a_survival_endpoint_has_one():
    metrics = made_up()
    assert "Median follow-up" not in answers("tripod_ai", metrics)["20a"]
    follow_up = {"n": 50, "events": 30, "median_days": 933.0, "low": 606.0, "high": 1637.0}
    metrics["endpoints"]["os"] = {"kind": "survival", "known": 50, "events": 30, "follow_up": follow_up}
    assert "Median follow-up of os (reverse Kaplan-Meier): 933 days." in answers("tripod_ai", metrics)["20a"]
    assert "933 days" in answers("stard_ai", metrics)["24"]


def test_the_cohorts_are_compared_where_both_are_known():
    metrics = made_up(design="external")
    assert answers("tripod_ai", metrics)["20c"].startswith(LEFT)
    metrics["table1"]["splits"][1] = {"name": "development", "kind": "development", "n": 82}
    metrics["table1"]["rows"][0]["cells"][1] = AGE | {"difference": 0.314}
    for name, number in (("tripod_ai", "20c"), ("stard_ai", "29")):
        assert "Standardised differences from the cohort of development: age 0.31" in answers(name, metrics)[number]


def test_who_read_clinical_columns_is_named():
    metrics = made_up(models=["vit", "vit+clinical", "clinical"], notes={"clinical_columns": "age, sex"})
    assert "read by vit+clinical and clinical alone: age, sex." in answers("stard_ai", metrics)["17a"]
    assert "Clinical columns" not in answers("stard_ai", made_up(models=["vit"]))["17a"]


# PROBAST+AI and FUTURE-AI.


def run_with_everything(**changes: Any) -> dict[str, Any]:
    """A run with two endpoints, a permuted and a clinical control, masks of three sources, flags and sites."""
    metrics = made_up(**changes)
    vit = metrics["endpoints"]["mgmt"]["models"]["vit"]
    metrics["endpoints"]["mgmt"]["models"] |= {"shuffled": vit | {"judged": {"value": 0.512, "low": 0.4, "high": 0.62}}}
    metrics["endpoints"]["mgmt"]["models"] |= {"clinical": copy.deepcopy(vit)}
    metrics["endpoints"]["os"] = {"kind": "survival", "known": 50, "events": 31}
    metrics["tumours"] = {
        "P1": {"source": "given", "tumour_ml": 9.0},
        "P2": {"source": "found", "tumour_ml": 7.0},
        "P3": {"source": "none", "tumour_ml": None},
    }
    metrics["tumours"]["P2"]["confidence"] = 0.4
    metrics["patients"] = [{"patient": "P1", "findings": ["dark"]}, {"patient": "P2"}, {"patient": "P3"}]
    return metrics


def test_questions_on_development_are_answered_by_runs_that_trained_alone():
    for design in ("external", "table", "held-out"):
        rows = answers("probast_ai", run_with_everything(design=design))
        assert [number for number, text in rows.items() if number.startswith("D") and not text.startswith(LEFT)] == []
        assert [number for number, text in rows.items() if number.startswith("E") and not text.startswith(LEFT)]
    rows = answers("probast_ai", run_with_everything())
    silent = {"D1.1", "D1.2", "D3.3"}  # where data come from, which design, who saw what
    assert {number for number, text in rows.items() if number.startswith("D") and text.startswith(LEFT)} == silent | {"D3.4"}


def test_the_run_rates_nothing():
    for design in ("cross-validation", "external", "table", "held-out"):
        text = checklists.filled_checklist("probast_ai", filled(run_with_everything(design=design)))
        table, ratings = text.split("## Ratings")
        assert not re.search(r"(low|high|unclear) (risk|concern)|(probably )?(yes|no)\b[.,;] ", table, re.IGNORECASE)
        cells = [cell.strip() for row in ratings.splitlines() if row.startswith("| ") for cell in row.strip("| ").split("|")]
        assert not {"low", "high", "unclear", "yes", "no"} & {cell.lower() for cell in cells}
        assert sum(line.startswith("| ") for line in ratings.splitlines()) == 6  # heads, four domains and the whole


def test_what_is_answered_of_leakage_and_unseen_patients_is_true_of_each_design():
    found = {
        design: answers("probast_ai", run_with_everything(design=design))
        for design in ("cross-validation", "external", "held-out")
    }
    assert "had not seen the patient" in found["cross-validation"]["E4.1"]
    assert "None of them was trained on this cohort." in found["external"]["E4.1"]
    assert "It was declared" in found["held-out"]["E4.1"]
    assert answers("probast_ai", run_with_everything(design="table"))["E4.1"].startswith(LEFT)
    assert "mgmt on permuted labels: AUC 0.512 [0.400, 0.620]." in found["cross-validation"]["E4.5"]
    assert "refuses a cohort that holds a patient of the run" in found["external"]["E4.5"]
    assert found["held-out"]["E4.5"].startswith(LEFT)
    warned = run_with_everything(transductive="vit (9 patients)")
    warned["endpoints"]["mgmt"]["warnings"] = ["scores are in the order of the table"]
    leak = answers("probast_ai", warned)["E4.5"]
    assert "Pretraining saw scans of test patients: vit (9 patients)." in leak
    assert "Pretraining saw scans of test patients: vit (9 patients)." in answers("probast_ai", warned)["E4.6"]
    assert "Warning on mgmt: scores are in the order of the table." in leak


@pytest.mark.parametrize(("known", "events"), [(50, 31), (17, 17), (240, 3)])
def test_censored_patients_are_those_who_were_alive(known, events):
    metrics = run_with_everything()
    metrics["endpoints"]["os"] |= {"known": known, "events": events}
    of = "patient" if known - events == 1 else "patients"
    for design in ("cross-validation", "table"):
        text = answers("probast_ai", metrics | {"design": design})["E4.3"]
        text = answers("probast_ai", metrics)["D4.3"] if text.startswith("As answered under D4.3") else text
        assert f"os: {known - events} {of} of {known} alive when last seen" in text
        assert "weighted for" not in text  # no model was judged on it


def test_who_had_the_competing_event_is_not_counted_as_censored_or_alive():
    metrics = run_with_everything()
    metrics["endpoints"]["os"] |= {"known": 50, "events": 31, "others": 12}
    text = answers("probast_ai", metrics)["D4.3"]
    assert "os: 7 patients of 50 without either event when last seen (censored); 12 had the competing event" in text
    assert "alive" not in text
    result = {"n": 50, "events": 31, "others": 12, "uno_c": {"value": 0.6}, "auc_at": [{"days": 365, "value": 0.7}]}
    metrics["endpoints"]["os"]["models"] = {"vit": result}
    assert "weighted for in Wolbers's C and AUC at fixed times." in answers("probast_ai", metrics)["D4.3"]


def test_patients_without_a_label_are_answered_beside_what_was_done_about_them():
    compared = {"characteristics": [{"name": "age"}], "sentences": ["No evidence that the 9 without a label differ."]}
    for name, number in (("tripod_ai", "11"), ("claim", "12"), ("stard_ai", "20"), ("probast_ai", "E4.3")):
        for design, inputs in (("cross-validation", "is excluded"), ("table", "inputs where the scores were made is not known")):
            rows = answers(name, made_up(design=design, unlabelled={"mgmt": compared}))
            text = rows["D4.3"] if rows[number].startswith("As answered under D4.3") else rows[number]
            assert "mgmt: No evidence that the 9 without a label differ." in text
            assert inputs in text


def test_performance_is_answered_of_compared_models_with_calibration_and_net_benefit():
    metrics = run_with_everything()
    models = metrics["endpoints"]["mgmt"]["models"]
    figures = {"slope": 0.9, "observed_to_expected": {"value": 1.1, "low": 0.8, "high": 1.4}}
    for result in models.values():
        result |= {"calibration": figures, "net_benefit": [0.1]}
    difference = {"difference": 0.02, "low": -0.01, "high": 0.05, "p": 0.2}
    benefit = {"model": "vit", "days": None, "n": 51, "mean": {"better of both": difference}, "verdict_kind": "chance"}
    metrics["utility"] = {"least": 0.1, "most": 0.4, "endpoints": {"mgmt": [benefit]}, "left_out": {}}
    text = answers("probast_ai", metrics)["E4.7"]
    assert "Calibration: mgmt, vit: slope 0.90, O:E 1.10 [0.80, 1.40]." in text
    assert "vit +2.0 [−1.0, +5.0] (no evidence of a difference)" in text
    assert "clinical" not in text
    assert "from which risk on one would act" in text
    assert "vit +2.0 [−1.0, +5.0]" in answers("future_ai", metrics)["Usability 5"]


def test_clustering_by_hospital_is_answered_where_clusters_are_asked_for():
    clustered = {"value": 0.71, "low": 0.6, "high": 0.8, "sites": 6, "n": 51, "ratio": 1.2, "usual": {"low": 0.61, "high": 0.79}}
    found = {"column": "site", "known": 6, "clustered": clustered, "sentences": ["Allowing for clustering."]}
    rows = answers("tripod_ai", made_up(hospitals={"mgmt": {"vit": found}}))
    assert "jackknife of hospitals" in rows["12d"]
    assert "clustering by hospital: vit AUC 0.710 [0.600, 0.800]" in rows["23b"]


def test_only_measures_that_were_taken_are_named_as_weighted_for_censoring():
    metrics = run_with_everything()
    result = {"kind": "survival", "n": 50, "events": 31, "uno_c": {"value": 0.6}, "auc_at": [{"days": 365, "value": 0.7}]}
    metrics["endpoints"]["os"]["models"] = {"vit": {key: value for key, value in result.items() if key != "kind"}}
    assert "Censoring is weighted for in Uno's C and AUC at fixed times." in answers("probast_ai", metrics)["D4.3"]


def test_of_a_table_it_is_not_known_whether_its_patients_were_balanced():
    for design in ("table", "held-out"):
        assert answers("probast_ai", run_with_everything(design=design))["E4.4"].startswith(LEFT)
    for design in ("cross-validation", "external"):
        assert "No patient was left out" in answers("probast_ai", run_with_everything(design=design))["E4.4"]


def test_what_is_answered_of_preparation_counts_the_masks_of_this_run():
    text = answers("probast_ai", run_with_everything())
    assert "supplied with the scans (1 patient)" in text["D2.2"]
    assert "of those found 1 had a confidence below 0.7; 1 patient had none" in text["D2.2"]
    assert "Tumour masks of 1 visit were supplied." in text["D2.3"]
    assert "masks" not in answers("probast_ai", made_up())["D2.2"]
    assert "flagged 1 of 3 predicted patients" in answers("future_ai", run_with_everything())["Traceability 3"]


def test_measures_that_are_not_there_are_named():
    without = run_with_everything()
    assert "Not measured: calibration and net benefit." in answers("probast_ai", without)["E4.7"]
    with_both = copy.deepcopy(without)
    with_both["endpoints"]["mgmt"]["models"]["vit"] |= {"calibration": {"slope": 0.9}, "net_benefit": [0.1, 0.2]}
    text = answers("probast_ai", with_both)["E4.7"]
    assert "Calibration: mgmt, vit: slope 0.90" in text
    assert "Over which range of risks one would act, the study does not say" in text
    assert "Not measured" not in text
    assert answers("future_ai", without)["Usability 5"].startswith(LEFT)
    assert answers("future_ai", with_both)["Usability 5"].startswith("Clinical utility was measured by net benefit")


def test_sites_and_other_cohorts_answer_where_a_tool_was_tested():
    assert answers("future_ai", made_up())["Universality 3"].startswith(LEFT)
    sites = made_up()
    within = {"sites": 4, "value": 0.7, "least": 0.61, "most": 0.83}
    sites["endpoints"]["mgmt"]["models"]["vit"]["within_sites"] = within
    assert "mgmt, vit: 0.610 to 0.830 in 4 sites" in answers("future_ai", sites)["Universality 3"]
    left_out = made_up()
    left_out["settings"]["train"]["leave_out"] = "site"
    assert "Each value of site was a test fold of its own." in answers("future_ai", left_out)["Universality 3"]
    external = made_up(design="external", drift={"mgmt": {"vit": [{"sentence": "Probabilities run 5 points too high."}]}})
    external["new_hospital"] = {"mgmt": {"vit": {"sentence": "95 of 100 hospitals lie in 0.6 to 0.8."}}}
    found = answers("future_ai", external)
    assert "without refitting to another cohort" in found["Universality 3"]
    assert "95 of 100 hospitals lie in 0.6 to 0.8." in found["Universality 4"]
    assert "mgmt, vit: Probabilities run 5 points too high." in found["Traceability 4"]


@pytest.mark.parametrize("name", NAMES)
def test_a_long_answer_stands_once_and_later_items_lead_to_it(name):
    for design in ("cross-validation", "external", "table"):
        rows = answers(name, run_with_everything(design=design))
        numbers, facts = list(rows), {number: text.split(" <strong>")[0] for number, text in rows.items()}
        long = [text for text in facts.values() if len(text) > LONG and not text.startswith("<strong>")]
        assert len(long) == len(set(long))
        for number, text in facts.items():
            if found := re.match(r"As answered under (.*)\.$", text):
                assert numbers.index(found[1]) < numbers.index(number)
                assert not facts[found[1]].startswith(("As answered under", "<strong>"))
