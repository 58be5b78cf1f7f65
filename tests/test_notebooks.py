"""The notebooks run from top to bottom, in a copy of the checkout that holds no run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.long(17)

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
QUICK = "read_a_report"  # the others train a network; half a minute each
LARGEST = 300_000  # bytes: pictures in few colours (pipelines/notebooks.py)


def test_there_are_three_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["inspect_the_vit", "look_at_one_patient", "read_a_report"]


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=[] if p.stem == QUICK else pytest.mark.slow) for p in NOTEBOOKS], ids=lambda path: path.stem
)
def test_a_notebook_runs_to_its_end_without_an_error(path: Path, tmp_path: Path):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "notebooks").mkdir()
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path / "notebooks")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_nothing(path: Path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not any(line.startswith(("def ", "class ")) for cell in cells for line in cell.source.splitlines())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_small_outputs_that_name_no_folder_of_a_machine(path: Path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))  # run once, from top to bottom
    assert path.stat().st_size < LARGEST
    kept = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in kept)
    assert {output.output_type for output in kept} <= {"stream", "display_data", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in kept)
    texts = [text for output in kept for kind, text in text_of(output).items() if not kind.startswith("image/")]
    assert not [text for text in texts if re.search(r"/(home|root|tmp|work|Users)/|\.venv", text)]


def text_of(output: nbformat.NotebookNode) -> dict[str, str]:
    """What an output shows, by MIME type."""
    return {"text/plain": output.text} if output.output_type == "stream" else dict(output.data)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_code_cell_follows_a_sentence_of_prose(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.cell_type for cell in cells] == ["markdown", "code"] * (len(cells) // 2)
