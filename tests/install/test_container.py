"""The container: the steps of Dockerfile and apptainer.def, run in an empty Debian root, since no registry of images is needed.

They want `make roots` and root; elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from whole_road import SHRUNKEN, words

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
ROOT = Path(__file__).parents[2]
WHEELS = "/wheelhouse"  # where the wheels lie in the root: the index of PyTorch's own builds is not asked
CERTIFICATES = "/of-this-machine.crt"  # by which pip trusts an index behind a proxy, as it does here
# In namespaces of mounts and processes, so that nothing stays mounted and no process goes on.
ENTER = """set -eu
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mkdir -p "$1$2" && mount --bind -o ro "$3" "$1$2"
root=$1 user=$4; shift 4
exec chroot --userspec="$user" "$root" "$@"
"""
STUDY = {"endpoints": '[{name = "mgmt", kind = "binary"}]', "train.laterality_endpoints": "[]", "report.expected_verdicts": "{}"}
OPTIONS = words({**SHRUNKEN, "controls.models": "[]", "explain.scored": 0, **STUDY})


@dataclass
class Steps:
    """What a recipe says: base, arguments, files from the checkout, commands, and how the container starts."""

    base: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[str, str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "4711:4711"  # somebody the image does not know: Apptainer runs as its caller
    folder: str = "/data"
    entry: list[str] = field(default_factory=list)


def of_dockerfile(torch: str) -> Steps:
    """The steps of `Dockerfile`; an instruction that is not known here is an error."""
    steps = Steps()
    for line in re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines():
        if not line or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        match instruction:
            case "FROM":
                steps.base = rest
            case "ARG":
                steps.arguments |= {"TORCH": torch} if rest.startswith("TORCH=") else {}
            case "COPY":
                *sources, target = shlex.split(rest)
                steps.copies += [(name, target + Path(name).name if target.endswith("/") else target) for name in sources]
            case "RUN":
                steps.commands.append(rest)
            case "ENV":
                steps.environment |= dict([rest.split("=", 1)])
            case "USER":
                steps.user = rest
            case "WORKDIR":
                steps.folder = rest
            case "ENTRYPOINT":
                steps.entry = json.loads(rest)
            case _:
                raise AssertionError(line)
    return steps


def of_apptainer(torch: str) -> Steps:
    """The steps of `apptainer.def`; a section that is not known here is an error."""
    text = "\n".join(line for line in (ROOT / "apptainer.def").read_text().splitlines() if not line.startswith("#"))
    head, *parts = re.split(r"^%", text, flags=re.MULTILINE)
    sections = {name: body.strip() for name, _, body in (part.partition("\n") for part in parts)}
    assert set(sections) == {"arguments", "files", "post", "environment", "runscript"}
    assert "Bootstrap: docker" in head
    assert sections["arguments"].startswith("TORCH=")
    copies = [tuple(line.split()) for line in sections["files"].splitlines()]
    variables = [line.strip().removeprefix("export ").split("=", 1) for line in sections["environment"].splitlines()]
    return Steps(
        base=re.findall(r"^From: (\S+)$", head, re.MULTILINE)[0],
        copies=copies,  # pyright: ignore[reportArgumentType]
        commands=[sections["post"].replace("{{ TORCH }}", torch)],
        environment={**dict(variables), "HOME": "/tmp"},
        entry=["sh", "-c", sections["runscript"], "runscript"],
    )


RECIPES: dict[str, Callable[[str], Steps]] = {"Dockerfile": of_dockerfile, "apptainer.def": of_apptainer}


def test_both_recipes_say_the_same(tmp_path: Path):
    one, other = (read("torch") for read in RECIPES.values())
    assert (one.base, sorted(one.copies)) == (other.base, sorted(other.copies))
    assert [re.sub(r'"(\$TORCH|torch)"', "TORCH", line) for step in (one, other) for line in step.commands] == [
        "sh /source/container.sh TORCH"
    ] * 2
    assert one.entry == ["mri-vit"]
    assert 'exec mri-vit "$@"' in other.entry


@pytest.mark.parametrize("recipe", RECIPES)
def test_its_steps_in_an_empty_debian_end_in_a_demo_by_a_plain_user(recipe: str, wheelhouse: Path, tmp_path: Path):
    if os.geteuid() or not shutil.which("mmdebstrap"):
        pytest.skip("no empty Debian can be made here: that needs root, and `make roots`")
    version = next(wheelhouse.glob("torch-*.whl")).name.split("-")[1]
    steps, root = RECIPES[recipe](f"torch=={version} --no-index --find-links {WHEELS}"), tmp_path / "root"
    image, _, tag = steps.base.partition(":")
    assert (image, tag.endswith("-slim")) == ("debian", True)
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", tag.removesuffix("-slim"), str(root)], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    trusted = ssl.get_default_verify_paths().cafile
    if trusted:
        shutil.copy(trusted, root / CERTIFICATES.lstrip("/"))
    for source, target in steps.copies:
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)

    def inside(user: str, words: list[str], **more: str) -> str:
        path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PIP_CERT": CERTIFICATES} | more
        enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, "sh", str(root), WHEELS, str(wheelhouse), user]
        done = subprocess.run([*enter, *words], env=path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    for command in steps.commands:
        inside("root", ["sh", "-c", command], **steps.arguments)
    assert not (root / "source").exists()
    assert not [path for path in (root / "usr/bin").iterdir() if path.name in ("gcc", "cc", "make")]
    megabytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6
    assert megabytes < 2500  # measured: 2,166, of which PyTorch has 750 and SimpleITK 260
    print(f"{recipe}: {megabytes:.0f} MB")

    def started(*arguments: str) -> str:
        start = ["sh", "-c", f'cd {steps.folder} && exec "$@"', "sh", *steps.entry, *arguments]
        return inside(steps.user, start, **steps.environment)

    assert started("--version").startswith("mri-vit ")
    assert "report" in started("demo", *OPTIONS)
    written = root / steps.folder.lstrip("/") / "mri-vit-demo/runs/demo/report/index.html"
    assert written.stat().st_uid != 0
    shutil.rmtree(root)  # gigabytes, which pytest would keep
