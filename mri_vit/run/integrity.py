"""Integrity: files that this software wrote are read as they were written, and compared with the SHA-256 written with them.

A run's folder and each of its folds' has a `hashes.json` that names its files. It is written just before the table of
predictions whose presence says that the folder is done, so that a done folder has one.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mri_vit.errors import IntegrityError
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import SHUFFLED

if TYPE_CHECKING:
    from rich.console import Console


HASHES_SCHEMA = "mri-vit hashes 1"

# Globs of the folders of folds: of the run's own model, with the networks that its maps are compared with, and of all models.
OWN_FOLDS = (files.FOLD_GLOB,)
MAP_EVALUATION = (*OWN_FOLDS, f"{files.CONTROLS}/{SHUFFLED}/{files.FOLD_GLOB}")
ALL_FOLDS = (*OWN_FOLDS, f"{files.CONTROLS}/*/{files.FOLD_GLOB}", f"{files.COMPARATORS}/*/{files.FOLD_GLOB}")
INTERNAL_TABLES = (files.INTERNAL, files.INTERNAL_SURVIVAL)  # of an evaluation
TABLES = (  # what a report reads: no weights
    *(files.PREDICTIONS, files.SURVIVAL, files.NOTES, files.SITE_PROBE, files.NULLS, files.SEEDS, files.EVALUATION),
    *INTERNAL_TABLES,
)


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


def read_json_or_empty(file: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is none or the file is no JSON."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def as_written(path: Path, remedy: str = "") -> Iterator[None]:
    """Around what takes a file of ours apart: that it is not built as it was written is raised as an IntegrityError naming it."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration, csv.Error) as error:
        ending = f"; {remedy}" if remedy else ""
        what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split()) or type(error).__name__
        raise IntegrityError(f"{path}: damaged ({what}){ending}") from None


def sort_header(path: Path) -> None:
    """Put the header's keys in order, in place: safetensors writes its metadata in an order that changes from run to run.

    The format: the header's length in 8 bytes, the header as JSON padded with spaces, the arrays. Sorted, the header takes as
    many bytes as before, so that no array moves and none is read, however large the file is.

    Raises ValueError: the sorted header would be longer, because the file was not written by safetensors.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        # Spelled as safetensors (serde_json) spells it: no spaces, letters beyond ASCII as they are.
        ordered = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
        if len(ordered) != length:
            raise ValueError(f"{path}: a header of {length} bytes takes {len(ordered)} when it is sorted; expected as many")
        file.seek(8)
        file.write(ordered)


def sha256(path: Path) -> str:
    """Of a file's content: 12 ms for 21 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_changed_files(folder: Path, known: Mapping[str, str], remedy: str) -> None:
    """Raise IntegrityError naming the first file in `folder` that is gone or has another hash than the `known` one."""
    for name, expected in known.items():
        path = folder / name
        if not path.is_file():
            raise IntegrityError(f"{path}: it was written, but is not there; {remedy}")
        found = sha256(path)
        if found != expected:
            raise IntegrityError(f"{path}: it was changed after it was written (SHA-256 {found}, expected {expected}); {remedy}")


def write_hashed(folder: Path, names: Collection[str], last: Mapping[str, bytes]) -> None:
    """Write `last`, files by name, into `folder`, and before them the hashes of these and of the files `names` that are there."""
    found = {name: sha256(folder / name) for name in names if (folder / name).is_file()}
    found |= {name: hashlib.sha256(content).hexdigest() for name, content in last.items()}
    write_bytes(json.dumps({"schema": HASHES_SCHEMA, "files": found}, indent=1).encode(), folder / files.HASHES)
    for name, content in last.items():
        write_bytes(content, folder / name)


def verify_hashes(folder: Path, remedy: str, names: Collection[str] | None = None) -> bool:
    """Hold the files of a folder (or those of them in `names`) against its `hashes.json`; False where it has none.

    Versions before 0.5 wrote none, and their runs are taken as they are.

    Raises IntegrityError: a file is gone or was changed, or the hashes cannot be read.
    """
    file = folder / files.HASHES
    if not file.is_file():
        return False
    try:
        content = json.loads(file.read_bytes())
        known = {str(name): str(expected) for name, expected in content["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(f"{file}: damaged; {remedy}") from None
    refuse_changed_files(folder, {name: one for name, one in known.items() if names is None or name in names}, remedy)
    return True


def refuse_changed_run(
    run: Path, console: Console, folds: Iterable[str] = ALL_FOLDS, names: Collection[str] | None = None
) -> None:
    """Raise IntegrityError when a file of a run, or of its finished folds (globs), is gone or is not the one that was written.

    `names` are the files that the stage reads; None: all. A note says where a version before 0.5 left no hashes.
    """
    homes = [run, *sorted(home for pattern in folds for home in run.glob(pattern))]
    unknown = []
    for home in homes:
        if not (home / files.PREDICTIONS).is_file():  # not done yet
            continue
        remedy = f"delete {home} and run `mri-vit train` again, which makes it anew"
        if home == run:
            verb = "evaluate" if (run / files.EVALUATION).exists() else "train"
            remedy = f"delete {run / files.PREDICTIONS} and run `mri-vit {verb}` again, which puts it together from what is there"
        if not verify_hashes(home, remedy, names):
            unknown.append(home.name)
    if unknown:
        console.print(
            f"{run}: no {files.HASHES} of {', '.join(unknown)}; written by an older version, taken as it is",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
