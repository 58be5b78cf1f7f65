"""The page shows how stable single predictions are, once per endpoint and folded, and each patient's page the own range."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from made.metrics import read
from made.report import seen
from made.run import make_run

from mri_vit.report.pages.report_files import write_report
from mri_vit.report.reading.run import read_run

pytestmark = pytest.mark.long(15)  # two reports
SECTION = "Stability and certainty of single predictions"


def written(folder: Path, repeats: int) -> Path:
    run = read_run(make_run(folder, repeats=repeats, patients=60, models=("vit", "clinical")))
    return write_report(run, folder / "report").page.parent


def test_each_endpoint_has_one_folded_section_with_its_sentences_plot_and_tables(tmp_path: Path):
    home = written(tmp_path / "thrice", 3)
    page, metrics = seen(home), read(home)
    judged = [name for name, endpoint in metrics.endpoints.items() if endpoint.models]
    assert page.count(SECTION) == len(judged)
    assert len(re.findall(rf'<details class="sub"><summary>{SECTION}', (home / "index.html").read_text())) == len(judged)
    results = dict(re.findall(r"^- \*\*(\w+)\*\*, (mean change of .*)$", (home / "methods.md").read_text(), re.M))
    for name in judged:
        sentence = metrics.instability[name]["vit"][0].sentences[0]
        assert " ".join(sentence.split()) in page  # which has spaces for spaces that do not break
        assert f"by another training (MAPE): vit {metrics.instability[name]['vit'][0].mape:.3f}" in results[name]
        assert (home / "figures" / f"instability_{name}_vit.svg").stat().st_size < 120_000
    assert " ".join(metrics.no_sets["os"].split()) in page
    assert {"mgmt.retrained.low", "mgmt.answer.classes", "os.retrained.called"} <= set(pd.read_csv(home / "tables/patients.csv"))
    assert len(pd.read_csv(home / "tables/instability.csv")) == len(judged)
    assert set(pd.read_csv(home / "tables/coverage.csv").of) == {"sites"}
    patient = (home / "patients" / "P001.html").read_text()
    assert "when the model is trained again" in patient
    assert "in 3 trainings" in patient


def test_of_one_training_a_sentence_names_what_would_show_it(tmp_path: Path):
    home = written(tmp_path / "once", 1)
    assert "set train.repeats or train.seeds to 3 or more" in seen(home)
    assert "when the model is trained again" not in (home / "patients" / "P001.html").read_text()
    assert not (home / "tables" / "instability.csv").exists()
