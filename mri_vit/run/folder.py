"""The folder of a run: claimed by one process at a time, with a record of what it was made with and where.

Paths in a run's records are relative to the run, so that a tree of studies can be copied; a run alone finds what it was made
from where it was then, which `origin.json` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.run.atomic import held, write_bytes
from mri_vit.run.integrity import as_written, read_json, read_json_or_empty
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

IMAGING = ("SimpleITK", "nibabel")
# One is there where Linux drives a GPU that torch can use; the last under Windows.
DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
# Flags by which torch's dispatch (aten/src/ATen/native/DispatchStub.cpp, by cpuinfo) chooses, the best first.
INSTRUCTIONS = {"AVX512": {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"}, "AVX2": {"avx2", "fma"}}
PACKAGES = ("mri-vit", "torch", "monai", "numpy", "scipy", *IMAGING, "scikit-learn", "lifelines", "lightning-fabric")
# Settings that may change between the stages of one run: no result depends on them.
FREE = {"explain", "report", "executor", "slurm", "prepare.workers", "train.workers", "output", "prepared"}

# Files of a run, none of which is without environment.json.
RECORDS = (files.STUDY, files.COHORT, files.EXCLUDED, files.FOLDS, files.PREDICTIONS, files.SURVIVAL)

# The folders of a run, as globs. Nothing else in it is looked at: another run may lie inside.
_FOLDS = (files.FOLD_GLOB, f"{files.FOLD_GLOB}/*", f"{files.FOLD_GLOB}/{files.SEED_GLOB}/*")
_MODELS = tuple(
    f"{kind}/*{deeper}" for kind in (files.COMPARATORS, files.CONTROLS) for deeper in ("", *(f"/{fold}" for fold in _FOLDS))
)
_INSPECT = (files.INSPECT, f"{files.COMPARATORS}/*/{files.INSPECT}")
_PAGES = (files.REPORT, f"{files.REPORT}/*", *_INSPECT, *(f"{page}/*" for page in _INSPECT), files.QC_FOLDER)
FOLDERS = (
    files.MAPS,
    f"{files.MAPS}/*",
    files.MEAN_MAPS,
    files.SCORES,
    files.COMPARATORS,
    files.CONTROLS,
    files.JOBS,
    f"{files.JOBS}/*",
    *(f"{files.COMPARATORS}/*/{name}" for name in (files.MAPS, f"{files.MAPS}/*", files.SCORES)),
    *_FOLDS,
    *_MODELS,
    *_PAGES,
)


@contextlib.contextmanager
def claimed(study: Study) -> Iterator[Path]:
    """The study's output folder, made if need be and held until the end.

    Raises OutOfResource when it cannot be written, FolderHeld when another run holds it, UsageError when it holds a run
    with other settings or is the folder of the input, or when prepared patients would lie among the scans; IntegrityError
    when it, or a folder in it, is a link to elsewhere.
    """
    run = study.output
    if run in (study.cohort.parent, study.prepared) or run in study.cohort.parents:
        raise UsageError(
            f"output {run} holds the input (cohort {study.cohort}, prepared {study.prepared}); choose a folder of its own"
        )
    if study.prepared in study.cohort.parents:
        raise UsageError(
            f"prepared {study.prepared} holds the cohort {study.cohort}, and its patients' folders may hold their scans; "
            'choose a folder of its own, such as prepared = "prepared"'
        )
    if not (run / files.ENVIRONMENT).exists() and (found := [name for name in RECORDS if (run / name).exists()]):
        raise UsageError(f"output {run} holds {found[0]}, which no run of ours wrote; it is left as it is: choose another output")
    with held(run, FOLDERS):
        _describe(study, run)
        yield run


def _describe(study: Study, run: Path) -> None:
    file = run / files.STUDY
    settled = any((run / name).exists() for name in (files.FOLDS, files.EVALUATION))
    if file.exists() and settled:  # before, nothing depends on the settings
        before, now = _flat(run_settings(run)), _flat(study)
        changed = [
            f"{key}: {before.get(key)} then, {now.get(key)} now"
            for key in sorted(before | now)
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise UsageError(
                f"{run} holds a run with other settings; choose another output or delete it:\n  " + "\n  ".join(changed)
            )
    if not (run / files.PREDICTIONS).exists():  # afterwards no number changes any more
        remember(environment(study), run / files.ENVIRONMENT)  # first: by it a folder is known as a run of ours
    if not has_origin(run):  # new, or of a version before 0.5 with absolute paths, which stay what they are
        write_origin(run)
    write_bytes(study_file_of(study, run), file)


def has_origin(run: Path) -> bool:
    """Whether the run says where it was made; one by a version before 0.5 does not, and has absolute paths."""
    return (run / files.ORIGIN).is_file()


def write_origin(run: Path) -> None:
    """Say that the paths in the run's records are relative to where it is now."""
    write_bytes(json.dumps({"folder": os.path.realpath(run)}).encode(), run / files.ORIGIN)


def find_path(run: Path, text: str) -> str:
    """The path that a record of the run means by `text`: as seen from here if that is there, else as seen from its origin."""
    here = os.path.abspath(os.path.join(os.path.realpath(run), text))  # no link behind the run is followed
    origin = read_json_or_empty(run / files.ORIGIN).get("folder")
    if not isinstance(origin, str) or os.path.exists(here):
        return here
    there = os.path.abspath(os.path.join(origin, text))
    return there if os.path.exists(there) else here


def run_settings(run: Path, overrides: dict[str, str] | None = None) -> Study:
    """The settings of a run, with every path as `find_path` finds it."""
    return study_file.load(run / files.STUDY, overrides, lambda text: find_path(run, text))


def study_file_of(study: Study, run: Path) -> bytes:
    """The study file of a run: its paths relative to it. Those that the present file has already are kept as they are spelled."""
    words: dict[str, str] = {}

    def remembered(text: str) -> str:
        if not os.path.isabs(text):
            words[find_path(run, text)] = text
        return text

    if (run / files.STUDY).exists() and (run / files.COHORT).exists():
        study_file.load(run / files.STUDY, place=remembered)
    relative = study_file.with_paths(study, lambda path: words.get(path) or files.path_from(os.path.realpath(run), path))
    return study_file.dumps(relative.model_copy(update={"output": Path()})).encode()


def settle(study: Study, run: Path) -> None:
    """Tie the run to where it is now: paths in its settings are then relative to here, as those in a table written here are."""
    (run / files.ORIGIN).unlink(missing_ok=True)
    write_bytes(study_file_of(study, run), run / files.STUDY)
    write_origin(run)


def remember(now: dict[str, Any], file: Path) -> None:
    """Write an environment. The first stays; one that stopped work goes on in is added under "resumed" where it differs."""
    first: dict[str, Any] = read_json(file, tuple(now)) if file.exists() else now
    known = [first, *first.get("resumed", [])]
    with as_written(file):
        met = any(all(now[key] == past[key] for key in ("versions", "git_commit", "device", "threads")) for past in known)
    if not met:
        first["resumed"] = [*known[1:], now]
    write_bytes(json.dumps(first, indent=1).encode(), file)


def _flat(study: Study) -> dict[str, str]:
    settings = study.model_dump(mode="json", exclude={"endpoints"})
    flat = {"endpoints": json.dumps(study.model_dump(mode="json")["endpoints"])}
    for key, value in settings.items():
        flat |= {f"{key}.{name}": str(v) for name, v in value.items()} if isinstance(value, dict) else {key: str(value)}
    return {key: value for key, value in flat.items() if key not in FREE and key.partition(".")[0] not in FREE}


def environment(study: Study) -> dict[str, Any]:
    """Versions, commit, device, threads and seed: what a number depends on beside the data."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "git_commit": _commit(),
        "device": device(),
        "threads": study.train.threads,
        "seed": study.seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device() -> str:
    """The device that training would use, and its name; of a processor also the instructions, on which last digits depend."""
    if any(Path(file).exists() for file in DRIVERS) or not (instructions := instructions_of(_cpuinfo("flags").split())):
        import torch  # here, because it takes a second and more, which a study that is refused need not wait for

        if torch.cuda.is_available():
            return f"GPU {torch.cuda.get_device_name()}"
        instructions = torch.backends.cpu.get_cpu_capability()
    return f"CPU {processor()} ({instructions}, {os.cpu_count()} cores)"


def instructions_of(flags: Collection[str]) -> str:
    """What torch calls the vector instructions that it uses with these flags of an x86 processor; "" where it has to be asked."""
    if os.environ.get("ATEN_CPU_CAPABILITY"):  # a user may tell torch to use fewer
        return ""
    return next((name for name, needed in INSTRUCTIONS.items() if needed.issubset(flags)), "")


def processor() -> str:
    """The processor's name, or at least its kind."""
    return _cpuinfo("model name") or platform.machine()


def _cpuinfo(key: str) -> str:
    """What Linux says of the first processor; "" where there is no such line, and of another kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def refuse_unfinished(run: Path) -> None:
    """Raise UsageError where a folder holds no finished run or evaluation."""
    if not run.is_dir():
        raise UsageError(f"{run}: no such folder; expected the folder of a finished run")
    evaluated = (run / files.EVALUATION).is_file()
    needed = (files.STUDY, files.ENVIRONMENT, files.COHORT, files.PREDICTIONS, *(() if evaluated else (files.FOLDS,)))
    if lacking := [name for name in needed if not (run / name).is_file()]:
        raise UsageError(
            f"{run}: no {lacking[0]}; a run can be compared once `mri-vit train`, or `mri-vit evaluate` on another cohort, is"
            " done"
        )


def _commit() -> str | None:
    """The commit of the checkout that this package lies in, marked when files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
