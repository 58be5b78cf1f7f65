"""Runs the notebooks and keeps their outputs, small enough that a reader sees them without running anything.

.venv/bin/python pipelines/notebooks.py     (as `make pictures` does; about two minutes on two cores)
"""

import base64
import io
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
WIDEST = 680  # pixels of a stored picture
COLOURS = 48  # of its palette
LARGEST = 300_000  # bytes of a stored notebook
SECONDS = 300  # for a cell


def main() -> None:
    """Run every notebook in a copy of the checkout that holds no run, so that outputs do not depend on one."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "configs", Path(folder) / "configs")
            position = Path(folder) / "notebooks"
            position.mkdir()
            NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(position)}}).execute()
        notebook.metadata["language_info"] = {"name": "python"}
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]  # notes of the machine's own
                for output in cell.outputs:
                    shrink(output.get("data", {}))
        nbformat.write(notebook, path)
        size = path.stat().st_size
        print(f"{path.relative_to(ROOT)}: {size / 1000:.0f} kB")
        if size > LARGEST:
            sys.exit(f"{path}: {size} bytes; at most {LARGEST} are committed")


def shrink(data: dict[str, str]) -> None:
    """An output's picture with fewer pixels and colours."""
    if "image/png" not in data:
        return
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
    picture.thumbnail((WIDEST, WIDEST))
    out = io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    data["image/png"] = base64.b64encode(out.getvalue()).decode()


if __name__ == "__main__":
    main()
