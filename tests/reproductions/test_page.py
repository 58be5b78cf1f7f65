"""A study's page: all that is given stands on it, nothing is fetched, and text is text."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from reproductions import html_page
from reproductions.html_page import Page, Picture, Section, Table

HOSTILE = "<script>alert(1)</script>"


def of(synthetic: str = "Nothing is said of real tumours.") -> Page:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], [0, 1])
    section = Section(
        "By size",
        ("A paragraph of 5 %.",),
        (Picture("curve", figure, "AUC over size", "Bars are 95 % intervals."),),
        (Table("AUC by size", ("model", "AUC"), ((HOSTILE, "0.700, p = 0.04"),), "Out of fold."),),
    )
    numbers = {"points": pd.DataFrame({"model": ["=1+1", "b"], "auc": [0.1 + 0.2, 0.5]})}
    return Page(
        "A paper, Table 1", "How many?", (f"Many, says {HOSTILE}.",), (section,), ("Made in one go.",), numbers, synthetic
    )


def test_the_page_holds_what_was_found_and_its_files_lie_beside_it(tmp_path: Path):
    text = html_page.write(of(), tmp_path).read_text()
    for said in (
        "A paper, Table 1",
        "How many?",
        "By size",
        "0.700, p\u00a0=\u00a00.04",
        "Out of fold.",
        "Made in one go.",
        "are synthetic",
    ):
        assert said in text
    assert sorted(file.name for file in tmp_path.iterdir()) == ["curve.png", "curve.svg", "index.html", "points.csv"]
    first = (tmp_path / "points.csv").read_text().splitlines()[1]
    assert float(first.split(",")[1]) == 0.1 + 0.2  # every digit
    assert first.startswith("'=")


def test_the_page_fetches_nothing_and_runs_nothing(tmp_path: Path):
    text = html_page.write(of(), tmp_path).read_text()
    assert "<script" not in text
    assert all(source.startswith("data:image/svg+xml") for source in re.findall(r'src="([^"]*)"', text))
    assert re.findall(r'href="([^"]*)"', text) == ["points.csv"]


def test_only_made_up_patients_are_called_so(tmp_path: Path):
    assert "are synthetic" not in html_page.write(of(synthetic=""), tmp_path).read_text()
