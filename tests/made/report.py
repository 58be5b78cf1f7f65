"""A report that was made, as a test reads it."""

from __future__ import annotations

import html
import json
import pickle
import re
from pathlib import Path
from typing import Any

from made.run import make_run
from mri_vit.report import assembly
from mri_vit.report.reading.run import Run, read_run


def read_metrics(home: Path) -> dict[str, Any]:
    return json.loads((home / "metrics.json").read_text(encoding="utf-8"))


def measure(run: Run) -> dict[str, Any]:
    """What metrics.json would hold of a run, NaN where it is undefined."""
    return plain(assembly.metrics(run).model_dump())


def make_measured(folder: Path) -> None:
    """The made-up run as it is when nothing is asked for, and what `measure` gives of it."""
    (folder / "measured").write_bytes(pickle.dumps(measure(read_run(make_run(folder / "run")))))


def plain(value: Any) -> Any:
    """The same structure with lists for tuples and text for paths, as in a file."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, Path):
        return str(value)
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def seen(home: Path) -> str:
    """What a reader sees: the page without its style, tags and pictures."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", (home / "index.html").read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(text))


def leaves(value: Any):
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value
