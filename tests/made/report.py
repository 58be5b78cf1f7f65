"""A report that was made, as a test reads it."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any


def read_metrics(home: Path) -> dict[str, Any]:
    return json.loads((home / "metrics.json").read_text(encoding="utf-8"))


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
