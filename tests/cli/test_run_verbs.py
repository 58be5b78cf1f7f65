"""Verbs on a finished run: what each hands over."""

from pathlib import Path
from typing import Any

import pytest

from mri_vit.cli import run_verbs
from mri_vit.finished import evaluate


def test_the_study_file_of_another_cohort_sets_no_more_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    handed: list[Any] = []
    monkeypatch.setattr(evaluate, "evaluate", lambda *given: handed.extend(given) or [])
    (tmp_path / "other.toml").write_text('name = "o"\ncohort = "c.csv"\nprepared = "p"\noutput = "out"\n')
    assert run_verbs.evaluate(tmp_path / "run", study=tmp_path / "other.toml") == 0
    assert handed[2].isdisjoint({"grid", "prepare", "model", "train", "explain"})
