"""The folder of a run: claimed by one process at a time, and saying what it was made with."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mri_vit.errors import FolderHeld, OutOfResource, UsageError
from mri_vit.run import files, origin
from mri_vit.run.atomic import write_bytes
from mri_vit.run.ownership import refuse_links
from mri_vit.run.parts import sweep_files
from mri_vit.run.record import as_written, read_json
from mri_vit.settings.schema import Study

PACKAGES = (
    "mri-vit",
    "torch",
    "monai",
    "numpy",
    "scipy",
    "SimpleITK",
    "nibabel",
    "scikit-learn",
    "lifelines",
    "lightning-fabric",
)
FREE = {
    "explain",
    "report",
    "executor",
    "slurm",
    "prepare.workers",
    "train.workers",
    "output",
    "prepared",
}  # settings that may change between the stages of one run: no result depends on them


# Files of a run, none of which is without environment.json.
RECORDS = (files.STUDY, files.COHORT, files.EXCLUDED, files.FOLDS, files.PREDICTIONS, files.SURVIVAL)

# The folders of a run, as globs. Nothing else in it is looked at: another run may lie inside.
_FOLDS = (files.FOLD_GLOB, f"{files.FOLD_GLOB}/*", f"{files.FOLD_GLOB}/{files.SEED_GLOB}/*")
_MODELS = tuple(
    f"{kind}/*{deeper}" for kind in (files.COMPARATORS, files.CONTROLS) for deeper in ("", *(f"/{fold}" for fold in _FOLDS))
)
_INSPECT = (files.INSPECT, f"{files.COMPARATORS}/*/{files.INSPECT}")
_PAGES = (files.REPORT, f"{files.REPORT}/*", *_INSPECT, *(f"{page}/*" for page in _INSPECT), files.LOOKED)
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
BUILT_ELSEWHERE = files.MAPS  # its folders are built in one of their own, so that no part file of a killed process is in them


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


@contextlib.contextmanager
def held(folder: Path, folders: Sequence[str]) -> Iterator[None]:
    """An output folder, made if need be and locked until the end; `folders` are globs of the folders that are written in it.

    Part files that a killed process left in them are swept. Raises as `claimed` does.
    """
    refuse_links(folder, folders)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"output {folder} is no folder; choose another output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        holder = (folder / ".holder").read_text() if (folder / ".holder").exists() else "an unknown process"
        raise FolderHeld(f"{folder} is held by another run ({holder})") from None
    except NotADirectoryError:
        raise UsageError(f"output {folder}: a file stands where a folder is expected; choose another output") from None
    except OSError as error:
        raise OutOfResource(f"{folder} cannot be written: {error.strerror}") from None
    try:  # the kernel frees the lock of a process that died, so a stale one cannot be
        holder = f"process {os.getpid()} on {platform.node()} since {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        write_bytes(holder.encode(), folder / ".holder")
        for path in (folder, *(path for pattern in folders for path in folder.glob(pattern))):
            if path.is_dir() and path.parent.name != BUILT_ELSEWHERE:
                sweep_files(path)
        yield
    finally:
        (folder / ".holder").unlink(missing_ok=True)
        lock.release()


def _describe(study: Study, run: Path) -> None:
    file = run / files.STUDY
    settled = any((run / name).exists() for name in (files.FOLDS, files.EVALUATION))
    if file.exists() and settled:  # before, nothing depends on the settings
        before, now = _flat(origin.settings(run)), _flat(study)
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
    if not origin.known(run):  # new, or of a version before 0.5 with absolute paths, which stay what they are
        origin.write(run)
    write_bytes(origin.written(study, run), file)


def settle(study: Study, run: Path) -> None:
    """Tie the run to where it is now: paths in its settings are then relative to here, as those in a table written here are."""
    (run / files.ORIGIN).unlink(missing_ok=True)
    write_bytes(origin.written(study, run), run / files.STUDY)
    origin.write(run)


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
    import torch

    if torch.cuda.is_available():
        return f"GPU {torch.cuda.get_device_name()}"
    return f"CPU {processor()} ({torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores)"


def processor() -> str:
    """The processor's name, or at least its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # another kernel
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


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
