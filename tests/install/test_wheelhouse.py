"""The wheelhouse: it installs without a network or a compiler, and nothing but what its hashes name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
APART = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",)))  # a network namespace that has no network
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
STUDY = """name = "s"
cohort = "{cohort}"
prepared = "prepared"
output = "run"
endpoints = [{{ name = "mgmt", kind = "binary" }}]
"""


def apart(*command: str | Path, here: Path) -> subprocess.CompletedProcess[str]:
    """A command without a network, a compiler and settings of pip's."""
    clean = {"PATH": str(here / "bin"), "HOME": str(here), "PIP_CONFIG_FILE": os.devnull, "LANG": "C.UTF-8"}
    unshare, *rest = APART
    words = [shutil.which(unshare) or unshare, *rest, *map(str, command)]
    return subprocess.run(words, cwd=here, env=clean, capture_output=True, text=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment that sees nothing of this one."""
    home = tmp_path_factory.mktemp("environment")
    if not shutil.which("unshare") or subprocess.run([*APART, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here (unshare --net)")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    return home


def test_it_installs_and_checks_a_study_without_a_network(wheelhouse: Path, environment: Path, scans: Path):
    python = environment / "bin" / "python"
    reached = apart(python, "-c", "import socket; socket.create_connection(('127.0.0.1', 9), 1)", here=environment)
    assert "Network is unreachable" in reached.stderr
    done = apart(python, *PIP, "-r", wheelhouse / "requirements.txt", here=environment)
    assert done.returncode == 0, done.stderr
    assert apart(python, "-m", "pip", "check", here=environment).returncode == 0
    said = apart("bin/mri-vit", "--version", here=environment).stdout
    assert said.startswith("mri-vit ")
    assert "torch " in said
    (environment / "study.toml").write_text(STUDY.format(cohort=scans))
    checked = apart("bin/mri-vit", "check", "study.toml", "--train.folds", "2", here=environment)
    assert checked.returncode == 0, checked.stderr
    assert "16 patients" in checked.stdout
    read = apart(python, "-c", "import deepbet, dcm2niix, pydicom, openpyxl, nyxus, submitit, distributed", here=environment)
    assert read.returncode == 0, read.stderr


def test_a_wheel_that_was_changed_is_refused(wheelhouse: Path, environment: Path, tmp_path: Path):
    spoiled = tmp_path / "wheelhouse"
    shutil.copytree(wheelhouse, spoiled, copy_function=os.link)
    wheel = next(spoiled.glob("einops-*.whl"))
    content = wheel.read_bytes()
    wheel.unlink()  # the link alone
    wheel.write_bytes(content + b"\0")
    done = apart(
        environment / "bin/python", *PIP, "--target", tmp_path / "t", "-r", spoiled / "requirements.txt", here=environment
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_everything_is_a_wheel_and_named_once(wheelhouse: Path):
    lines = [line for line in (wheelhouse / "requirements.txt").read_text().splitlines() if "--hash" in line]
    files = [path.name for path in wheelhouse.iterdir() if path.name != "requirements.txt"]
    assert all(name.endswith(".whl") for name in files)
    assert len(lines) == len(files) == len({line.partition("==")[0] for line in lines})
