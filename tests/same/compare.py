"""Whether two commits give the same numbers: the same small study by both, every table, map and number compared.

    make same BASE=<commit>

Both read the same synthetic cohort with one thread and one seed; whatever differs is printed, and the exit code is then 1.
Keys of a study file that this tree calls otherwise are known to the package; where keys of the report, columns or folders have
other names, `renamed.toml` beside this file says which: `"old" = "new"`.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).parents[2]
STUDY = Path("tests/same/study.toml")
PATIENTS = 20
OTHERS = 6  # of another cohort, on whom the run predicts and is evaluated
SHOWN = 20  # differences printed; more say no more
RENAMED = Path(__file__).with_name("renamed.toml")
DURATION = re.compile(r"\b\d[\d.,:]*\s?(ms|s|seconds?|min|minutes?|h|hours?)\b")  # in words, which differs from run to run
UNEQUAL_ON_PURPOSE = ("versions", "environment", "command", "seconds", "commit", "git", "mri_vit")  # what says when and by whom


def main(base: str) -> int:
    """0 when the working tree and the commit `base` give the same numbers, else 1."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        archive = subprocess.run(["git", "archive", base], cwd=HERE, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder / "base", filter="data")
        cohorts = folder / "cohorts"
        make_cohorts(cohorts)
        for name, tree in (("before", folder / "base"), ("after", HERE)):
            run_study(tree, cohorts, folder / name)
        names = new_names()
        before = {renamed(key, names): value for key, value in facts(folder / "before")}
        after = dict(facts(folder / "after"))
        differ = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        for key in differ[:SHOWN]:
            print(f"{key}: {str(before.get(key))[:80]} before, {str(after.get(key))[:80]} after")
        print(f"{len(after):,} facts of {base[:12]} and of this tree: {len(differ):,} differ")
        return 1 if differ else 0


def make_cohorts(folder: Path) -> None:
    """Scans, `cohort.csv` and `others.csv`."""
    from mri_vit import synthetic

    table = synthetic.make(folder, seed=5, patients=PATIENTS)
    head, *rows = table.read_text().splitlines()
    table.write_text("\n".join([head, *rows[:-OTHERS], ""]))
    (folder / "others.csv").write_text("\n".join([head, *rows[-OTHERS:], ""]))


def run_study(tree: Path, cohorts: Path, folder: Path) -> None:
    """Take a tree's own study through the verbs, in `folder`."""
    shutil.copytree(cohorts, folder)
    text = (tree / STUDY).read_text()
    (folder / "study.toml").write_text(text)
    endpoints = "".join(re.findall(r"\[\[endpoints\]\][^\[]*", text))
    head = 'name = "external"\ncohort = "others.csv"\nprepared = "others"\noutput = "external"\n\n'
    (folder / "external.toml").write_text(head + endpoints)
    for verb in (
        ("run", "study.toml"),
        ("predict", "run", "--cohort", "others.csv", "--output", "new"),
        ("evaluate", "run", "--study", "external.toml"),
    ):
        call = [sys.executable, "-c", "from mri_vit.cli import main; main()", *verb]
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        environment |= {"MKL_CBWR": "COMPATIBLE"}  # else last digits depend on where arrays lie in memory
        ended = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
        if ended.returncode:
            raise SystemExit(f"{tree}: {' '.join(verb)} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")


def facts(folder: Path) -> Iterator[tuple[str, object]]:
    """What must be equal: tables by column, maps as bytes, numbers of JSON files one by one."""
    for file in folder.rglob("*.csv"):
        for column, cells in columns(file.read_text(encoding="utf-8")):
            if any(cells):  # an empty column, of endpoints that a study lacks, is no number
                yield f"{file.relative_to(folder)}: .{column}", cells
    for file in folder.rglob("folds.json"):
        yield str(file.relative_to(folder)), file.read_bytes()
    for file in folder.rglob("*.nii.gz"):
        if "maps" in str(file.relative_to(folder)):
            yield str(file.relative_to(folder)), gzip.decompress(file.read_bytes())
    for pattern in ("tokens.safetensors", "best.safetensors"):
        for file in folder.rglob(pattern):
            size = int.from_bytes(file.read_bytes()[:8], "little")  # of the header, which names versions
            yield str(file.relative_to(folder)), file.read_bytes()[8 + size :]
    for pattern in ("metrics.json", "map.json", "scores/*.json", "group.json"):
        for file in folder.rglob(pattern):
            for path, number in numbers(json.loads(file.read_text())):
                yield f"{file.relative_to(folder)}: {path}", number


def new_names() -> dict[str, str]:
    """What the base may call otherwise, and what this tree calls it."""
    from mri_vit.settings.file import RENAMED as KEYS

    keys = {f"{section}.{old}": f"{section}.{new}" for section, of in KEYS.items() for old, new in of.items()}
    return keys | (tomllib.loads(RENAMED.read_text(encoding="utf-8")) if RENAMED.exists() else {})


def renamed(key: str, names: Mapping[str, str]) -> str:
    """What the base calls so, by this tree's names: whole words of a path, `kept` in `.kept[0].name`, or `kept.name`."""
    for old, new in names.items():
        key = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, key)
    return key


def columns(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The columns of a CSV table without those of seconds, and without durations in their words."""
    for name, *cells in zip(*csv.reader(text.splitlines(keepends=True)), strict=True):
        if "seconds" not in name:
            yield name, tuple(DURATION.sub("(duration)", cell) for cell in cells)


def numbers(value: object, path: str = "") -> Iterator[tuple[str, float | bool | None]]:
    """The numbers of a JSON document with their places; times, which differ by nature, are left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not any(word in key for word in UNEQUAL_ON_PURPOSE):
                yield from numbers(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers(item, f"{path}[{index}]")
    elif not isinstance(value, str):
        yield path, value  # type: ignore[misc]


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main(sys.argv[1]))
