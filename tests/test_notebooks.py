"""The notebooks run from top to bottom, in a copy of the checkout that holds no run."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_three_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["inspect_the_vit", "look_at_one_patient", "read_a_report"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end_without_an_error(path: Path, tmp_path: Path):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "notebooks").mkdir()
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path / "notebooks")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_nothing_and_stores_no_output(path: Path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not any(line.startswith(("def ", "class ")) for cell in cells for line in cell.source.splitlines())
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_code_cell_follows_a_sentence_of_prose(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.cell_type for cell in cells] == ["markdown", "code"] * (len(cells) // 2)
