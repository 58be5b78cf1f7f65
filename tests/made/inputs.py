"""A desk with a tiny study on it, whose scans, table or settings a test spoils before it runs a verb."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from mri_vit import cli
from mri_vit.settings.schema import CHANNELS

STUDY = """name = "inputs"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
[grid]
edge = 8
spacing_mm = 10.0
patch = 2
[model]
dim = 16
depth = 1
heads = 2
mlp = 16
[train]
folds = 2
[[endpoints]]
name = "mgmt"
kind = "binary"
[[endpoints]]
name = "os"
kind = "survival"
time = "os_days"
event = "os_event"
"""
COLUMNS = ("patient", *CHANNELS, "age", "sex", "mgmt", "os_days", "os_event")
AFFINE = np.array([[-0.9, 0.05, 0.3, 80.0], [0.06, 0.88, 0.9, -100.0], [0.05, -0.1, 5.3, -40.0], [0, 0, 0, 1]])
_U, _, _V = np.linalg.svd(AFFINE[:3, :3] / np.linalg.norm(AFFINE[:3, :3], axis=0))
AFFINE[:3, :3] = (_U @ _V) * [0.9, 0.9, 5.5]  # oblique, thick slices, no skew
ARRAY = np.random.default_rng(0).integers(0, 900, (9, 8, 7)).astype(np.int16)


def nifti(array: np.ndarray = ARRAY, affine: np.ndarray = AFFINE, big_endian: bool = False) -> bytes:
    """A NIfTI file whose sform and qform are both set."""
    image = nib.Nifti1Image(array, affine, header=nib.Nifti1Header(endianness=">") if big_endian else None)
    image.set_sform(affine, 1)
    image.set_qform(affine, 1)
    return image.to_bytes()


def patched(offset: int, form: str, *values: float | bytes) -> bytes:
    """The same with some bytes of the header replaced."""
    content = bytearray(nifti())
    struct.pack_into(form, content, offset, *values)
    return bytes(content)


@dataclass
class Desk:
    """A folder with study.toml, cohort.csv and the scans of twelve patients."""

    folder: Path
    kept: object = None  # what must live as long as the desk

    @property
    def study(self) -> Path:
        return self.folder / "study.toml"

    @property
    def table(self) -> Path:
        return self.folder / "cohort.csv"

    def rows(self) -> list[dict[str, str]]:
        with self.table.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def write(self, rows: list[dict[str, str]]) -> None:
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.table.write_text(out.getvalue(), encoding="utf-8")

    def cells(self, row: int = 0, **cells: str) -> None:
        """Change cells of one patient; of all with a row of -1. A new column is empty for the others."""
        rows = self.rows()
        for name in cells:
            rows = [{**one, name: one.get(name, "")} for one in rows]
        for one in rows if row < 0 else [rows[row]]:
            one |= cells
        self.write(rows)

    def settings(self, old: str, new: str) -> None:
        text = self.study.read_text()
        assert old in text
        self.study.write_text(text.replace(old, new))

    def put(self, content: bytes, name: str = "bad.nii") -> str:
        """A file beside the table, whose name can stand in a cell."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)
        return name

    def files(self) -> dict[str, bytes]:
        """Every file of the desk's own by its place, its content and what it links to."""
        own = [path for path in self.folder.rglob("*") if path.is_file() and "run" not in path.relative_to(self.folder).parts]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in own}

    def excluded(self) -> str:
        """What a run says of whom it left out."""
        file = self.folder / "run" / "excluded.csv"
        return file.read_text() if file.exists() else ""


def sound(folder: Path) -> Path:
    """A study in which nothing is wrong."""
    random = np.random.default_rng(1)
    desk = Desk(folder)
    rows = []
    for index in range(12):
        for channel in CHANNELS:
            desk.put(
                gzip.compress(nifti(random.integers(0, 900, (9, 8, 7)).astype(np.int16)), 1), f"p{index:02}/{channel}.nii.gz"
            )
        files = [f"p{index:02}/{channel}.nii.gz" for channel in CHANNELS]
        labels = [str(40 + 7 * index % 30), "FM"[index % 2], str(index // 2 % 2), str(100 + 61 * index), str(int(index % 4 > 0))]
        rows.append(dict(zip(COLUMNS, [f"p{index:02}", *files, *labels], strict=True)))
    desk.write(rows)
    desk.study.write_text(STUDY)
    return folder


def copied(folder: Path, target: Path) -> Desk:
    return Desk(Path(shutil.copytree(folder, target)))


def ended(*arguments: object) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def checked(desk: Desk, capsys: pytest.CaptureFixture[str], *more: str) -> dict:
    """What `mri-vit check --json` prints of a desk."""
    ended("check", desk.study, "--json", *more)
    return json.loads(capsys.readouterr().out)


Make = Callable[[Desk], object]  # spoils a desk; what it gives back is run, or is the command line's arguments
