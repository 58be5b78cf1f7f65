"""The package as it is installed: what it imports is declared, its version is one, and its wheel runs in any folder."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from whole_road import SHRUNKEN, words

import mri_vit
from mri_vit.settings.file import demo_study_file

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # where the name on the index is not the module's
LOADED_BY_OTHERS = {"tensorboard"}  # declared and not imported: Fabric's logger writes with it


def plain(name: str) -> str:
    """The name of a distribution as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    """The names in a list of requirements."""
    return {plain(re.split(r"[^\w.-]", requirement)[0]) for requirement in requirements}


def imported() -> set[str]:
    """The distributions of all that the package imports, also within functions."""
    modules: set[str] = set()
    for file in (ROOT / "mri_vit").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    return {plain(DISTRIBUTIONS.get(name, name)) for name in modules - set(sys.stdlib_module_names) - {"mri_vit"}}


def test_what_is_imported_is_declared_and_the_other_way_round():
    core = declared(PROJECT["dependencies"])
    extras = declared([name for extra, names in PROJECT["optional-dependencies"].items() if extra != "test" for name in names])
    assert imported() - core - extras == set()
    assert core - imported() == LOADED_BY_OTHERS


def test_every_module_with_shapes_in_its_signatures_is_held_to_them(pytestconfig: pytest.Config):
    names = str(pytestconfig.getoption("--jaxtyping-packages")).split(",")[:-1]  # the last one is the checker
    typed = [file for file in (ROOT / "mri_vit").rglob("*.py") if "from jaxtyping import" in file.read_text()]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in typed]
    assert len(modules) > 50
    assert [one for one in modules if not any(f"{one}.".startswith(f"{name}.") for name in names)] == []


def test_every_file_that_states_the_version_states_the_same():
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation
    assert newest
    assert {PROJECT["version"], mri_vit.__version__, citation[1], newest[1]} == {mri_vit.__version__}


def test_the_demos_study_file_is_the_packages_own():
    assert (ROOT / "mri_vit/settings/demo.toml").read_text() == (ROOT / "configs/demo.toml").read_text()


def test_the_demo_takes_the_checkouts_study_file_or_writes_its_own_and_leaves_it_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = demo_study_file()
    assert written == Path("mri-vit-demo/configs/demo.toml")
    assert written.read_text() == (ROOT / "configs/demo.toml").read_text()
    written.write_text("mine")
    assert demo_study_file().read_text() == "mine"
    Path("configs").mkdir()
    Path("configs/demo.toml").touch()
    assert demo_study_file() == Path("configs/demo.toml")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what git knows of the checkout, so that nothing of an earlier build gets into it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return next(built.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: Path):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("mri_vit/")}
    known = subprocess.run(["git", "ls-files", "mri_vit"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert packed == {name for name in known if (ROOT / name).is_file()}
    assert {"mri_vit/py.typed", "mri_vit/settings/demo.toml"} <= packed


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_installed_wheel_makes_its_demo_checks_and_reports_it_in_any_folder(wheel: Path, tmp_path: Path):
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True)
    others = next(path for path in sys.path if path.endswith("site-packages"))  # its dependencies, but not the checkout
    (site / "dependencies.pth").write_text(f"{others}\n")
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

    def mri_vit(*arguments: str) -> str:
        call = [str(environment / "bin" / "python"), "-c", "import mri_vit.cli as it; print(it.__file__); it.main()", *arguments]
        done = subprocess.run(call, cwd=elsewhere, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(site))
        return done.stdout

    one = {
        "endpoints": '[{name = "mgmt", kind = "binary"}]',
        "train.laterality_endpoints": "[]",
        "report.expected_verdicts": "{}",
    }
    options = words({**SHRUNKEN, "controls.models": "[]", "explain.scored": 0, **one})
    assert "mri-vit-demo/configs/demo.toml" in mri_vit("demo", *options)
    study, run = "mri-vit-demo/configs/demo.toml", elsewhere / "mri-vit-demo" / "runs" / "demo"
    assert (run / "report" / "index.html").stat().st_size > 10_000
    assert "96 patients" in mri_vit("check", study, *options)
    (run / "report" / "index.html").unlink()
    mri_vit("report", study, *options)
    assert (run / "report" / "index.html").exists()
