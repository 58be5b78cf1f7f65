"""The wheelhouse: every wheel that an installation needs, for machines without a network or a compiler, and their hashes.

Run from the checkout: make wheelhouse     (or with another build of PyTorch: make wheelhouse TORCH='torch==2.13.0 --index-url …')

It is made for this Python and this kind of machine. One line installs it, with or without a network, and only what it holds:

    pip install -r wheelhouse/requirements.txt
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from packaging.utils import parse_wheel_filename

from mri_vit.cli import exit_code
from mri_vit.errors import UsageError
from mri_vit.run import atomic

ROOT = Path(__file__).parents[1]
EXTRAS = "brain,cluster,dicom,excel,onnx,radiomics,serve"  # all that a user needs; not those for documentation and tests
SOURCES = ("mri_vit", "pyproject.toml", "README.md", "LICENSE")  # what the package's wheel is built from
REQUIREMENTS = "requirements.txt"
HEAD = """# {count} wheels for Python {python} on {machine}: pip install -r {file}
--no-index
--find-links .
--require-hashes
"""


def build(torch: str = "torch==2.13.0", *, output: Path = ROOT / "wheelhouse", extras: str = EXTRAS) -> None:
    """Write the wheelhouse, in place of an earlier one.

    Parameters
    ----------
    torch
        What pip is to install for PyTorch, in one word, such as "torch==2.13.0 --index-url https://…"
    output
        Its folder.
    extras
        The package's extras, separated by commas.
    """

    def refuse(folder: Path) -> None:
        atomic.refuse_strangers(folder, lambda name: name.endswith(".whl") or name == REQUIREMENTS, "a wheelhouse")

    output = output.absolute()
    refuse(output)
    with atomic.complete(output, refuse) as folder, tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"  # a copy, because setuptools leaves files of its own beside what it builds
        for name in SOURCES:
            (shutil.copytree if (ROOT / name).is_dir() else _copy)(ROOT / name, source / name)
        pip("--no-deps", *shlex.split(torch), into=folder)
        (found,) = (parse_wheel_filename(wheel.name)[1] for wheel in folder.glob("torch-*.whl"))
        pinned = ["--constraint", str(ROOT / "constraints.txt"), f"torch=={found}"]
        pip("--find-links", str(folder), *pinned, f"{source}[{extras}]", into=folder)
        (folder / REQUIREMENTS).write_text(requirements(folder, f"{output.name}/{REQUIREMENTS}", extras))
    print(f"{output}: {sum(file.stat().st_size for file in output.iterdir()) / 1e6:,.0f} MB")
    print(f"pip install -r {output / REQUIREMENTS}")


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)


def pip(*words: str, into: Path) -> None:
    """Collect wheels; what is published as source alone is built here, so that no user needs to.

    Raises UsageError where pip cannot, which has then said why.
    """
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(into), *words]
    if code := subprocess.run(command).returncode:
        raise UsageError(f"pip ended with {code} on {' '.join(words)}; expected an index that has them, see the lines above")


def requirements(folder: Path, file: str, extras: str) -> str:
    """A requirements file of all wheels in a folder, each with its version and SHA-256."""
    wheels = sorted(folder.glob("*.whl"))
    head = HEAD.format(count=len(wheels), python=sysconfig.get_python_version(), machine=sysconfig.get_platform(), file=file)
    lines = [head]
    for wheel in wheels:
        name, version, *_ = parse_wheel_filename(wheel.name)
        chosen = f"[{extras}]" if name == "mri-vit" and extras else ""
        lines.append(f"{name}{chosen}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code.of_script(build))
