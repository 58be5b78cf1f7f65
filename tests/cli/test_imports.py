"""What each verb imports: the libraries that take longest only once nothing is left to refuse, and none to show a status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made.inputs import nifti

# Of more than a quarter of a second each, measured by `python -X importtime`; pydicom and pandas are a tenth.
HEAVY = {
    *("torch", "lightning_fabric", "monai", "sklearn", "scipy.stats", "lifelines", "matplotlib"),
    *("SimpleITK", "nibabel", "nilearn", "deepbet"),
}
ALL_THAT_ENDS = """
import json, sys
from mri_vit import cli
heavy, usages = set(sys.argv[1].split()), json.loads(sys.argv[2])
for usage in usages:
    before = heavy & set(sys.modules)
    try:
        cli.main(usage)
    except SystemExit as end:
        print("ENDED", json.dumps([usage[0], end.code, sorted(heavy & set(sys.modules) - before)]))
"""
STUDY = """name = "s"
cohort = "{cohort}"
prepared = "prepared"
output = "output"
[[endpoints]]
name = "mgmt"
kind = "binary"
"""


def ended(usages: list[list[str]], here: Path) -> list[tuple[str, int, list[str]]]:
    """Of each command line the verb, the exit code, and what it imported of `HEAVY` that those before it had not."""
    done = subprocess.run(
        [sys.executable, "-c", ALL_THAT_ENDS, " ".join(HEAVY), json.dumps(usages)], capture_output=True, text=True, cwd=here
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert len(lines) == len(usages), done.stderr
    return [tuple(json.loads(line.removeprefix("ENDED "))) for line in lines]


def test_what_is_refused_imports_nothing_that_takes_long(tmp_path: Path, finished: Path):
    scans, empty, run = tmp_path / "scans", tmp_path / "empty", str(finished / "run")
    empty.mkdir()
    scans.mkdir()
    for name in ("t1", "t1ce", "flair"):
        (scans / f"P1_{name}.nii").write_bytes(nifti())
    (tmp_path / "two.csv").write_text("patient,t1,t1ce,t2,flair,mgmt\np1,a,b,c,d,1\np1,a,b,c,d,1\n")
    for name, cohort in (("study", "two.csv"), ("lost", "gone.csv")):
        (tmp_path / f"{name}.toml").write_text(STUDY.format(cohort=cohort))
    verbs = ("prepare", "qc", "pretrain", "train", "explain", "run")
    refused = [
        *([verb, study] for verb in verbs for study in ("nosuch.toml", "lost.toml", "study.toml")),
        *(
            ["check", "nosuch.toml"],
            ["status", "nosuch"],
            ["demo", "nosuch.toml"],
            ["settings", "nosuch.toml"],
            ["schema", "--of", "x"],
            ["frobnicate"],
        ),
        *(["predict", "nosuch", "scans", "-o", "out"], ["predict", run, "nosuch", "-o", "out"]),
        *(["predict", run, "scans", "-o", "out"], ["predict", run, "empty", "-o", "out"]),
        *(["evaluate", "nosuch", "--study", "study.toml"], ["evaluate", run, "--study", "lost.toml"]),
        *(["compare", "nosuch", run], ["compare", run, "scans"], ["report", "nosuch"], ["report", "study.toml"]),
        ["report", "--predictions", "nosuch.csv", "--cohort", "two.csv", "--output", "out"],
        *(["inspect", "nosuch"], ["inspect", run, "--fold", "9"], ["inspect", run, "--model", "nobody"]),
        *(["features", "nosuch", "--weights", "w", "-o", "out"], ["features", run, "--weights", "nosuch", "-o", "out"]),
        *(["import", "nosuch", "there", "-o", "out"], ["cohort", "nosuch.csv", "-o", "out"]),
        *(["export", kind, "nosuch", "-o", "out"] for kind in ("bids", "crate")),
        *(["tumour", "nosuch", "-o", "out"], ["tumour", "empty", "-o", "out"]),
    ]
    found = ended(refused, tmp_path)
    assert {code for _, code, _ in found} == {2}
    assert {(verb, *heavy) for verb, _, heavy in found if heavy} <= {("predict", "nibabel")}  # which looked for scans' headers


def test_the_status_of_a_run_imports_nothing_that_takes_long(finished: Path, tmp_path: Path):
    assert ended([["status", str(finished / "run")]], tmp_path) == [("status", 0, [])]


def test_a_check_on_a_machine_that_is_known_reads_headers_and_tests_folds_and_imports_no_network(finished: Path, tmp_path: Path):
    ended([["check", str(finished / "run")]], tmp_path)  # which measures this machine
    (verb, code, heavy), *_ = ended([["check", str(finished / "run")]], tmp_path)
    assert (verb, code) == ("check", 0)
    assert set(heavy) <= {"nibabel", "scipy.stats"}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("mri_vit.prepare.patient", {"nibabel", "SimpleITK"}),  # what a worker of each stage imports before its first job
        ("mri_vit.predictors.network", {"torch", "nibabel"}),
        ("mri_vit.importers.new_patients", set[str]()),
    ],
)
def test_a_worker_imports_what_its_jobs_need(module: str, allowed: set[str]):
    code = f"import sys, {module}; print(*({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= allowed
