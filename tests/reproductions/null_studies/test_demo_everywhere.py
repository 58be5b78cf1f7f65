"""The demo elsewhere: a run has the settings that its row names, and verdicts hold on another processor and with another seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from reproductions.null_studies import demo_everywhere

from mri_vit.settings import file as study_file

ROOT = Path(__file__).parents[3]


def test_a_run_of_the_demo_elsewhere_trains_with_the_threads_and_the_seed_that_its_row_names(tmp_path):
    run = demo_everywhere.Run(threads=1, seed=3)
    study = study_file.load(ROOT / "configs" / "demo.toml", demo_everywhere.changes(run, tmp_path))
    assert (study.train.threads, study.seed) == (1, 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demos_verdicts_hold_on_another_instruction_set_and_with_another_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_everywhere, "TABLE", tmp_path / "table.csv")
    demo_everywhere.everywhere(demo_everywhere.SHORT, tmp_path, keep=True)
    table = demo_everywhere.known()
    assert len(table) == len(demo_everywhere.SHORT)
    for name, kind in demo_everywhere.PLANTED.items():
        assert set(table[name]) == {kind}, table
    assert not table.leaks.any()
