"""The public interface: every example in its docstrings runs, importing it costs nothing, and nothing is printed."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mri_vit as package

pytestmark = [
    pytest.mark.long(8),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


@pytest.mark.parametrize("name", package.__all__)
@pytest.mark.usefixtures("in_this_process")
def test_the_examples_of_the_interface_run(name: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    known = {"run": finished / "run", "cohort": finished / "cohort.csv", "folder": tmp_path}
    documented = getattr(package, name)
    around = vars(sys.modules[documented.__module__]) | known
    found = [test for test in doctest.DocTestFinder().find(documented, name, globs=around) if test.examples]
    assert found or name == "FinishedRun"  # whose methods are in the example of load_run
    for test in found:
        failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=sys.stderr.write)
        assert not failed, capsys.readouterr().err


def test_importing_the_package_imports_nothing_that_is_slow():
    code = (
        "import sys, time; began = time.perf_counter(); import mri_vit; took = time.perf_counter() - began;"
        "slow = {'torch', 'numpy', 'pandas', 'pydantic', 'matplotlib'} & set(sys.modules); print(took, *slow)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(done) == 1, done
    assert package.__dir__() == sorted(package.__dir__())
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize(("name", "value"), [("GOMP_SPINCOUNT", "3000"), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")])
def test_importing_the_package_says_how_long_threads_wait_and_how_cublas_adds_up_unless_the_user_has(name: str, value: str):
    code = f"import os, mri_vit; print(os.environ[{name!r}])"
    unset = {key: set_to for key, set_to in os.environ.items() if key != name}
    for environment, after in ((unset, value), (unset | {name: "7"}, "7")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == [after]


def test_a_report_of_a_table_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [f"p{i},mgmt,{i / 20},{i % 2}" for i in range(20)]
    (tmp_path / "scores.csv").write_text("\n".join(["patient,endpoint,score,truth", *rows]))
    (tmp_path / "people.csv").write_text("\n".join(["patient,mgmt", *(f"p{i},{i % 2}" for i in range(20))]))
    page = package.write_report(tmp_path / "scores.csv", tmp_path / "people.csv", tmp_path / "report")
    assert page == tmp_path / "report" / "index.html"
    assert capsys.readouterr() == ("", "")
