"""What a command reads and makes once: the cohort's table, the folds, the report's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from made.prepared import add_records
from made.study import make_tiny
from rich.console import Console

from mri_vit import study as stages
from mri_vit.crossval import folds
from mri_vit.data import cohort, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.prepare.patient import Excluded
from mri_vit.report.figures import gallery
from mri_vit.report.pages import front_page, patient_pages, report_files
from mri_vit.report.schema.metrics import dumps
from mri_vit.run import integrity
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls, Explain

NOBODY = Explain(patients=0, scored=0)  # their scans are not there

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A tiny study whose patients are prepared already."""
    tiny = make_tiny(tmp_path)
    once = tiny.train.model_copy(update={"epochs": 1})
    study = tiny.model_copy(update={"train": once, "controls": Controls(models=()), "explain": NOBODY})
    add_records(study, [f"p{index:02d}" for index in range(24)])

    def prepare(study: Study, patients: Sequence[Patient], folder: Path, console: Console) -> Excluded:
        (folder / "excluded.csv").write_text("patient,file,reason\n")
        return []

    monkeypatch.setattr("mri_vit.qc.check.prepare_cohort", prepare)
    monkeypatch.setattr(front_page, "front_page", lambda *_: "")
    monkeypatch.setattr(patient_pages, "write_patient_pages", lambda *_: None)  # the prepared scans are made up
    monkeypatch.setattr(gallery, "report_figures", lambda *_: [])  # pictures take seconds
    return study


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """Arguments of every call of a module's function, which is called all the same."""

    def counted(module: Any, name: str) -> list[Any]:
        calls, original = [], getattr(module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            calls.append(arguments)
            return original(*arguments, **named)

        monkeypatch.setattr(module, name, call)
        return calls

    return counted


def test_a_run_reads_each_cohort_table_once_makes_folds_twice_and_parses_no_numbers_that_it_wrote(prepared: Study, count):
    read, made, loaded, parsed = count(cohort, "read"), count(folds, "make"), count(folds, "load"), count(integrity, "read_json")
    shown = count(report_files, "print_results")
    stages.run(prepared, Console(quiet=True))
    assert [call[0].parent.name for call in read] == [
        "in",
        prepared.output.name,
    ]  # the report reads the frozen copy for covariates
    assert (len(made), len(loaded)) == (2, 0)
    assert not [file for file, *_ in parsed if file.name == "metrics.json"]

    # and what was kept in memory is what a later command reads
    patients = cohort.read(prepared.cohort, prepared.endpoints)
    assert repr(run_cohort.included(prepared, prepared.output)) == repr(patients)
    splits = folds.make(patients, prepared.endpoints, prepared.train, prepared.seed)
    assert folds.load(prepared.output / "folds.json", patients) == splits
    assert dumps(shown[0][0].metrics) == (prepared.output / "report" / "metrics.json").read_text()
