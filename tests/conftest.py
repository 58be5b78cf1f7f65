"""What several tests share: where the reference data lie, and a tiny cohort that is prepared and trained in seconds."""

from __future__ import annotations

import gc
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings
from made.examples import EXAMPLES
from made.study import made_here, make_tiny, sketch, worked_here

from mri_vit import synthetic
from mri_vit.settings.schema import Study

SHARED = Path(__file__).parents[2] / "shared"  # reference data beside the checkout; tests that read it skip where it is absent
REPRODUCTIONS = "reproductions"  # tests of what the package does not ship: all of them are long, whatever each takes
MakeOnce = Callable[[str, Callable[[Path], None]], Path]

# Of each property a few examples at a landing, always the same ones; by night many, and others each time.
settings.register_profile("landing", max_examples=25, deadline=None, derandomize=True)  # deadline: a shared core may be slow
settings.register_profile("nightly", max_examples=EXAMPLES, deadline=None)
settings.load_profile("landing")

gc.disable()  # a third of the time in which tests are collected; on again with the first test


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seconds: dict[Path, int] = defaultdict(int)  # of each file that is marked as long as a whole
    for item in items:
        if Path(__file__).parent / REPRODUCTIONS in item.path.parents:
            item.add_marker("long")
        seconds[item.path] = max([seconds[item.path], *(mark.args[0] for mark in item.iter_markers("long") if mark.args)])
    # the longest first, so that no process works on a long one alone at the end
    items.sort(key=lambda item: -seconds[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()  # no collection looks at modules and tests again
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def a_cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a check measures of this machine is kept for all tests, and not in the user's own cache."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"))
        yield


@pytest.fixture
def oracles() -> Path:
    """Numbers that others published or worked out, small enough and free to be copied; `statistics.json` says where from."""
    return Path(__file__).parent / "oracles"


@pytest.fixture
def shared() -> Path:
    if not SHARED.exists():
        pytest.skip("the reference data (../shared) are not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """A folder that is made once for all processes of these tests: the first that asks makes it, the others wait and read it."""
    own = tmp_path_factory.getbasetemp()
    base = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name: str, make: Callable[[Path], None]) -> Path:
        home, made = base / name, base / f"{name}.made"
        with FileLock(base / f"{name}.lock"):
            if not made.exists():  # nor has another process left it half made
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir()
                make(home)
                made.touch()
        return home

    return folder


@pytest.fixture(scope="session")
def scans(made_once: MakeOnce) -> Path:
    """The table of a built-in cohort of sixteen, as files."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            made_here(patch)
            synthetic.make(folder, seed=5, patients=16)

    return made_once("scans", make) / "cohort.csv"


@pytest.fixture(scope="session")
def finished(made_once: MakeOnce, scans: Path) -> Path:
    """A folder with a finished run on twelve of the built-in patients, its report, and the table of four others.

    It is one for all tests, which read it; whoever changes a file there copies the folder first.
    """
    from whole_road import finish  # here, because it imports all that a study needs

    return made_once("finished", lambda folder: finish(scans, folder))


@pytest.fixture(scope="session")
def made_up(made_once: MakeOnce) -> Path:
    """A folder with the made-up run, `run`, and what is measured of it, `measured`; one for all tests, which read it."""
    from made.report import make_measured  # here, because it imports all that a report needs

    return made_once("made-up", make_measured)


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """Patients and comparators are worked on here and not in processes of their own, whose start takes longer than the work."""
    with pytest.MonkeyPatch.context() as patch:
        worked_here(patch)
        yield


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch(monkeypatch)


@pytest.fixture
def tiny(tmp_path: Path) -> Study:
    return make_tiny(tmp_path)
