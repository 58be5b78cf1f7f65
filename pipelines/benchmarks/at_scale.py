"""What a cohort of thousands takes beside its scans: time, memory, files and pages of each verb, on made-up rows.

Usage: .venv/bin/python pipelines/benchmarks/at_scale.py [--patients 10000] [--maps 50] [--folder DIR]

Every patient has four tiny scans and tokens at the 14³ places of the full grid, each of 2³ voxels; the record of one patient that
was really prepared is everybody's. What a scan's size or the network's costs grows with the number of patients and is measured
elsewhere (docs/howto/hardware.md); here is what may grow faster. Prints a table; results are no findings.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from nibabel.nifti1 import Nifti1Image

from mri_vit import synthetic
from mri_vit.data import cohort, tokens
from mri_vit.prepare.patient import prepare_patient
from mri_vit.run import files
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

PATIENTS, MAPS, SITES = 10_000, 50, 8
SHAPE, MM = (22, 22, 22), 9.5  # of a scan
AFFINE = np.diag([MM, MM, MM, 1.0])
AFFINE[:3, 3] = -MM * 10.5  # the head in its middle
STUDY = """
name = "scale"
cohort = "scans/cohort.csv"
prepared = "prepared"
output = "run"
grid = { edge = 28, spacing_mm = 8.0, patch = 2 }
model = { dim = 16, depth = 1, heads = 2, mlp = 32, tokens = "foreground" }
train = { folds = 3, epochs = 1, batch = 64, token_budget = 64 }
explain = { patients = MAPS, scored = 0 }
endpoints = [
    { name = "mgmt", kind = "binary" },
    { name = "tertp", kind = "binary" },
    { name = "os", kind = "survival", time = "os_days", event = "os_event" },
]
"""
VERBS = ("check", "prepare", "train", "explain", "report", "status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=PATIENTS)
    parser.add_argument("--maps", type=int, default=MAPS)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        home = (given.folder or Path(folder)).absolute()
        home.mkdir(parents=True, exist_ok=True)
        (home / "study.toml").write_text(STUDY.replace("MAPS", str(given.maps)))
        make(study_file.load(home / "study.toml"), given.patients)
        print(f"{given.patients:,} patients, maps of {given.maps}\n")
        print("| verb | exit | seconds | memory, GB | files of the run | MB of the run |\n|---|---|---|---|---|---|")
        for verb in VERBS:
            print("| " + " | ".join(measured(verb, home)) + " |", flush=True)
        page = home / "run" / files.REPORT / files.PAGE
        print(f"\n{page.name}: {page.stat().st_size / 1e6:.1f} MB; prepared: {counted(home / 'prepared')}")


def measured(verb: str, home: Path) -> Iterator[str]:
    """A row: how a verb ended, its time, its memory at most, and what then lies in the run's folder."""
    words = [home / "run"] if verb == "status" else [home / "study.toml"]
    began = time.monotonic()
    with (home / f"{verb}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", "from mri_vit.cli import main; main()", verb, *words], stdout=log, stderr=log
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    yield verb
    yield str(process.returncode)
    yield f"{time.monotonic() - began:.0f}"
    yield f"{used.ru_maxrss / 1e6:.2f}"
    yield from counted(home / "run").split(" files, ")


def counted(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{len(sizes):,} files, {sum(sizes) / 1e6:,.0f}"


def make(study: Study, patients: int) -> None:
    """The cohort's table, scans and prepared patients."""
    scans, generator = study.cohort.parent, np.random.default_rng(0)
    table = synthetic.make(scans / "one", seed=1, patients=4)
    one = replace(cohort.read(table, study.endpoints)[0], tumour_mask=None)
    folder = prepare_patient(one, scans / "one" / "prepared", study.channels, study.grid, study.prepare)
    stored, record = tokens.load(folder / files.TOKENS), json.loads((folder / files.PATIENT).read_bytes())
    for number in range(patients):
        made(study, f"p{number:05d}", stored, record, (folder / files.QC).read_bytes(), generator)
    names = [f"p{number:05d}" for number in range(patients)]
    rows = pd.DataFrame({"patient": names, **{c: [f"{name}_{c}.nii" for name in names] for c in study.channels}})
    rows["age"] = generator.integers(30, 80, patients)
    rows["site"] = generator.integers(0, SITES, patients).astype(str)
    for endpoint in ("mgmt", "tertp"):
        rows[endpoint] = generator.integers(0, 2, patients)
    rows["os_days"] = np.ceil(400 * generator.exponential(size=patients)).astype(int)
    rows["os_event"] = (generator.random(patients) < 0.7).astype(int)
    rows.to_csv(study.cohort, index=False)


def made(study: Study, name: str, stored: tokens.Tokens, record: dict, picture: bytes, generator: np.random.Generator) -> None:
    """Four scans of noise, and the prepared patient of another's record."""
    inputs, told = {}, copy.deepcopy(record)
    for channel in study.channels:
        content = Nifti1Image(generator.integers(0, 1000, SHAPE).astype(np.int16), AFFINE).to_bytes()
        (study.cohort.parent / f"{name}_{channel}.nii").write_bytes(content)
        inputs[channel] = {"sha256": hashlib.sha256(content).hexdigest()}
        figures = told["steps"][0]["scans"][channel]
        figures |= {"shape": SHAPE, "spacing_mm": [MM] * 3, "voxels_sha256": inputs[channel]["sha256"]}
        figures["stored"] = {"shape": SHAPE, "affine": AFFINE.tolist()}
    folder = study.prepared / name
    folder.mkdir(parents=True)
    own = generator.normal(size=(len(stored.position), 1)) + stored.patches.astype(np.float32)
    tokens.save(replace(stored, patches=own.astype(np.float16)), folder / files.TOKENS)
    (folder / files.QC).write_bytes(picture)
    told |= {"patient": name, "inputs": inputs}
    told["files"] = {one: hashlib.sha256((folder / one).read_bytes()).hexdigest() for one in told["files"]}
    (folder / files.PATIENT).write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
