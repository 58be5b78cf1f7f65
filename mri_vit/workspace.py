"""The folder of a run: claimed by one process at a time, and saying what it was made with."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mri_vit import study_file
from mri_vit.config import Study
from mri_vit.errors import FolderHeld, IntegrityError, OutOfResource, UsageError
from mri_vit.record import as_written, read_json
from mri_vit.volume import write_bytes

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
    "prepare.workers",
    "output",
}  # settings that may change between the stages of one run: no result depends on them


@contextlib.contextmanager
def claimed(study: Study) -> Iterator[Path]:
    """The study's output folder, made if need be and held until the end.

    Raises OutOfResource when it cannot be written, FolderHeld when another run holds it, UsageError when it holds a run
    with other settings or is the folder of the input, IntegrityError when it is a link to elsewhere.
    """
    run = study.output
    if run in (study.cohort.parent, study.prepared) or run in study.cohort.parents:
        raise UsageError(
            f"output {run} holds the input (cohort {study.cohort}, prepared {study.prepared}); choose a folder of its own"
        )
    if run.is_symlink():
        raise IntegrityError(f"output {run} is a link to {run.resolve()}; name the folder itself")
    if (run.exists() or run.is_symlink()) and not run.is_dir():
        raise UsageError(f"output {run} is no folder; choose another output")
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = FileLock(run / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        holder = (run / ".holder").read_text() if (run / ".holder").exists() else "an unknown process"
        raise FolderHeld(f"{run} is held by another run ({holder})") from None
    except OSError as error:
        raise OutOfResource(f"{run} cannot be written: {error.strerror}") from None
    try:  # the kernel frees the lock of a process that died, so a stale one cannot be
        (run / ".holder").write_text(f"process {os.getpid()} on {platform.node()} since {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        _describe(study, run)
        yield run
    finally:
        (run / ".holder").unlink(missing_ok=True)
        lock.release()


def _describe(study: Study, run: Path) -> None:
    file = run / "study.toml"
    settled = any((run / name).exists() for name in ("folds.json", "evaluation.json"))
    if file.exists() and settled:  # before, nothing depends on the settings
        before, now = _flat(study_file.load(file)), _flat(study)
        changed = [
            f"{key}: {before.get(key)} then, {now.get(key)} now"
            for key in sorted(before | now)
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise UsageError(
                f"{run} holds a run with other settings; choose another output or delete it:\n  " + "\n  ".join(changed)
            )
    write_bytes(study_file.dumps(study).encode(), file)
    if not (run / "predictions.csv").exists():  # afterwards no number changes any more
        _remember(environment(study), run / "environment.json")


def _remember(now: dict[str, Any], file: Path) -> None:
    """The first environment stays; one that a stopped run goes on in is added under "resumed" where it differs."""
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
    """The device that training would use, in words."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.machine()}, {os.cpu_count()} cores)"


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
