"""What `mri-vit check` costs on a large cohort: seconds and peak memory of the command, on scans made for it.

.venv/bin/python pipelines/benchmarks/check.py --patients 10000

The scans are tiny, each with a header and voxels of its own (160 MB for 10,000 patients), for a check reads the ends of a file
alone. `--alike` gives all files one size, as uncompressed scans have, so that their content is sampled as well. Linux keeps in
memory what has just been written: a disk over a network adds its own answers, of which eight are awaited at a time.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import cyclopts
import nibabel as nib
import numpy as np

from mri_vit.settings.schema import CHANNELS

STUDY = """
name = "bench"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
[model]
dim = 64
depth = 2
heads = 4
mlp = 256
"""
TARGET_SECONDS, TARGET_MB = 30, 500
EDGE = 12  # voxels along each axis of a scan
MEASURED = """
import resource, sys
from mri_vit import cli
try:
    cli.main(sys.argv[1:])
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def main(*, patients: int = 10_000, alike: bool = False) -> None:
    """Make the cohort, check it in a process of its own, and print what that took beside the targets."""
    with TemporaryDirectory() as folder:
        study = make(Path(folder), patients, alike)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "check", str(study)],
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": "80"},
        )
        seconds = time.perf_counter() - began
    *said, used = done.stdout.splitlines()
    cpu_seconds, peak = map(float, used.split())
    print("\n".join(said), done.stderr, sep="\n")
    print(f"{patients} patients, {len(CHANNELS) * patients} scans: exit code {done.returncode}")
    print(f"{seconds:.1f} s (target {TARGET_SECONDS} s), {cpu_seconds:.1f} s of CPU; peak {peak / 1000:.0f} MB ({TARGET_MB} MB)")


def make(folder: Path, patients: int, alike: bool) -> Path:
    """A study file whose cohort has so many patients, with labels, ages and survival as of a hospital's table."""
    random = np.random.default_rng(0)
    ending = "nii" if alike else "nii.gz"
    rows = [",".join(["patient", *CHANNELS, "age", "sex", "site", "mgmt", "pten", "tertp", "os_days", "os_event"])]
    for index in range(patients):
        name = f"P{index:05d}"
        for channel in CHANNELS:
            content = scan(random)
            (folder / f"{name}_{channel}.{ending}").write_bytes(content if alike else gzip.compress(content, 1))
        files = [f"{name}_{channel}.{ending}" for channel in CHANNELS]
        clinical = [f"{random.normal(60, 10):.1f}", random.choice(["F", "M"]), random.choice(["A", "B", "C"])]
        labels = ["" if random.random() < 0.2 else str(random.integers(2)) for _ in range(3)]
        survival = [str(1 + round(450 * random.weibull(1.3))), str(random.integers(2))]
        rows.append(",".join([name, *files, *clinical, *labels, *survival]))
    (folder / "cohort.csv").write_text("\n".join(rows) + "\n")
    (folder / "study.toml").write_text(STUDY)
    return folder / "study.toml"


def scan(random: np.random.Generator) -> bytes:
    """A NIfTI file that lies where no other does."""
    affine = np.eye(4)
    affine[:3, 3] = random.normal(0, 50, 3)
    image = nib.Nifti1Image(random.integers(0, 1000, (EDGE, EDGE, EDGE), dtype=np.int16), affine)
    image.set_sform(affine, 1)
    image.set_qform(affine, 1)
    return image.to_bytes()


if __name__ == "__main__":
    cyclopts.run(main)
