"""Record: a JSON object in a file that this software wrote. A path goes in, a dictionary with the needed keys comes out."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mri_vit.errors import IntegrityError


def read_json(path: Path, needed: Sequence[str] = (), remedy: str = "") -> dict[str, Any]:
    """A file that holds a JSON object with these keys. Raises IntegrityError naming it, and the remedy, where it does not."""
    ending = f"; {remedy}" if remedy else ""
    try:
        content = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise IntegrityError(f"{path}: no such file, although the run should have it{ending}") from None
    except IsADirectoryError:
        raise IntegrityError(f"{path}: a folder; expected a JSON file{ending}") from None
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8; or brackets by the thousand
        raise IntegrityError(f"{path}: damaged, not JSON ({error}){ending}") from None
    if not isinstance(content, dict):
        raise IntegrityError(f"{path}: holds {type(content).__name__}; expected a JSON object{ending}")
    if lacking := [key for key in needed if key not in content]:
        raise IntegrityError(f"{path}: damaged, no {lacking[0]!r}{ending}")
    return content


@contextmanager
def as_written(path: Path, remedy: str = "") -> Iterator[None]:
    """Around what takes a file of ours apart: that it is not built as it was written is raised as an IntegrityError naming it."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration, csv.Error) as error:
        ending = f"; {remedy}" if remedy else ""
        what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split()) or type(error).__name__
        raise IntegrityError(f"{path}: damaged ({what}){ending}") from None
