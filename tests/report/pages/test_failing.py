"""Table 1, the follow-up and the worst patients on the page: what stands there is what metrics.json holds."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from made.maps import write_maps
from made.metrics import read
from made.report import seen
from made.run import make_run
from PIL import Image

from mri_vit.report import assembly
from mri_vit.report.pages import front_page, report_files
from mri_vit.report.reading import run as reading
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words import run_facts


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Metrics]:
    folder = make_run(tmp_path_factory.mktemp("runs") / "made", models=("vit",))
    run = reading.read_run(folder)
    asked = tuple(endpoint for endpoint in run.study.endpoints if endpoint.name in ("mgmt", "os"))
    run = replace(run, study=run.study.model_copy(update={"endpoints": asked}))
    worst = assembly.metrics(run).failures["mgmt"].patients
    write_maps(folder, worst[:1], ["mgmt"])
    sheet = folder / "prepared" / worst[1] / "qc.png"
    sheet.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (896, 600)).save(sheet)
    (sheet.parent / "patient.json").write_text((folder / "prepared" / "007" / "patient.json").read_text())
    run = replace(reading.read_run(folder), study=run.study)
    home = report_files.write_report(run, folder / "report").page.parent
    return home, read(home)


def cards(home: Path, endpoint: str) -> list[str]:
    """The cards of an endpoint, as HTML."""
    page = (home / "index.html").read_text(encoding="utf-8")
    section = page[page.index('<section id="failures">') :]
    names = {"mgmt": "MGMT promoter methylation", "os": "Overall survival"}
    part = section[section.index(f"<h3>{names[endpoint]}</h3>") :]
    return part[: part.index("</details>")].split('<div class="patient">')[1:]


@pytest.mark.parametrize("endpoint", ["mgmt", "os"])
def test_a_card_for_each_of_the_worst_with_its_error(made, endpoint):
    home, metrics = made
    people = {one.patient: one for one in metrics.patients}
    found = cards(home, endpoint)
    assert len(found) == len(metrics.failures[endpoint].patients)
    for card, name in zip(found, metrics.failures[endpoint].patients, strict=True):
        result = people[name].endpoints[endpoint]
        assert name in card
        assert f"error {result.error:.2f} ({result.wrong:.1f} of {result.pairs} pairs)" in card


def test_pictures_are_on_the_cards_of_those_who_have_them_and_small(made):
    home, _ = made
    first, second, *rest = cards(home, "mgmt")
    assert "No map was made" not in first
    assert all("No map was made" in card for card in (second, *rest))
    pictures = [re.findall(r'src="(data:image/webp[^"]*)"', card) for card in (first, second)]
    assert len(pictures[1]) == 1
    assert pictures[0]
    assert all(len(url) <= front_page.FAILURE_LARGEST for both in pictures for url in both)


def test_the_worst_are_folded_and_what_they_have_in_common_is_not(made):
    home, metrics = made
    page = (home / "index.html").read_text(encoding="utf-8")
    section = page[page.index('<section id="failures">') :]
    for found in metrics.failures.values():
        sentence = html.escape(found.sentence, quote=False).replace("'", "&#39;")
        assert section.index(sentence[:40]) < section.index("<details>", section.index(sentence[:40]))


def test_table_1_on_the_page_is_that_of_the_numbers(made):
    home, metrics = made
    text = seen(home)
    for head, n in run_facts.table1_heads(metrics.table1, metrics.design):
        assert f"{head} n = {n}" in text
    for line in run_facts.table1_lines(metrics.table1.rows, metrics.table1.splits):
        row = " ".join(filter(None, [f"… {line.head}" if line.below else line.head, *line.cells, line.difference]))
        assert row.replace(" %", "\N{NO-BREAK SPACE}%").replace("\N{NO-BREAK SPACE}", " ") in text.replace(
            "\N{NO-BREAK SPACE}", " "
        )
    os = metrics.endpoints["os"]
    assert os.kind == "survival"
    assert f"{os.follow_up.median_days:.0f} [{os.follow_up.low:.0f}, " in text


def test_table_1_is_a_file_with_every_cell(made):
    home, metrics = made
    found = pd.read_csv(home / "tables" / "table1.csv", keep_default_na=False)
    levels = sum(max(1, len(row.levels)) for row in metrics.table1.rows)
    assert len(found) == levels * len(metrics.table1.splits)
    assert len(pd.read_csv(home / "tables" / "patients.csv")) == len(metrics.patients)


def test_no_p_is_told_between_folds_and_why(made):
    _, metrics = made
    said = run_facts.table1_caption(metrics.table1)
    assert "STROBE" in said
    assert "Austin 2009" in said
