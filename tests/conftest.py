"""What several tests share: where the reference data lie, and a tiny cohort that is prepared and trained in seconds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from made.study import made_here, make_tiny

from mri_vit import style
from mri_vit.run import executor
from mri_vit.run.task import Where
from mri_vit.settings.schema import Study
from mri_vit.synthetic import cohort as synthetic

SHARED = Path(__file__).parents[2] / "shared"  # reference data beside the checkout; tests that read it skip where it is absent
LONGEST = (  # seconds that a file took alone on one core; begun first, so that no process works on one of them alone at the end
    "test_study.py",  # 66
    "report/pages/test_patients.py",  # 48
    "test_matrix.py",  # 46
    "report/pages/test_html.py",  # 41
    "prepare/test_patient.py",  # 32
    "studies/rotation/test_rotation.py",  # 28
    "train/test_devices.py",  # 23
    "prediction/test_stage.py",  # 23
    "test_sequences.py",  # 19
    "explain/inspection/test_learned.py",  # 19
)

gc.disable()  # a third of the time in which tests are collected; on again with the first test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))


def pytest_collection_finish() -> None:
    gc.freeze()  # no collection looks at modules and tests again
    gc.enable()


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
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of a built-in cohort of sixteen, as files."""
    with pytest.MonkeyPatch.context() as patch:
        made_here(patch)
        return synthetic.make(tmp_path_factory.mktemp("scans"), seed=5, patients=16)


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """Patients and comparators are worked on here and not in processes of their own, whose start takes longer than the work."""

    def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Where) -> Iterator[tuple[str, Any]]:
        for name, arguments in jobs.items():
            yield name, function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "each", each)
        yield


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report's figures are files without a picture: drawing them takes most of its time, and only words are looked at."""
    monkeypatch.setattr(style, "to_bytes", lambda figure, kind: f"<svg><!-- {kind} --></svg>".encode())


@pytest.fixture
def tiny(tmp_path: Path) -> Study:
    return make_tiny(tmp_path)
