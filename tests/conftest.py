"""What several tests share: where the reference data lie, and a tiny cohort that is prepared and trained in seconds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from made.study import made_here, make_tiny

from mri_vit import style
from mri_vit.run import executors
from mri_vit.run.jobs import Workplace
from mri_vit.settings.schema import Study
from mri_vit.synthetic import cohort as synthetic

SHARED = Path(__file__).parents[2] / "shared"  # reference data beside the checkout; tests that read it skip where it is absent
LONG = (  # seconds that a file took on one core of an AMD EPYC, the longest first: those of `make long`
    "test_study.py",  # 111
    "explain/inspection/test_learned.py",  # 75
    "test_matrix.py",  # 75
    "report/pages/test_patients.py",  # 70
    "prepare/test_patient.py",  # 69
    "report/pages/test_html.py",  # 63
    "finished/test_predict.py",  # 59
    "report/verdicts/test_models.py",  # 33
    "metrics/test_added_value.py",  # 32
    "test_sequences.py",  # 32
    "train/test_devices.py",  # 27
    "train/test_supervised.py",  # 26
    "report/numbers/test_other_hospitals.py",  # 24
    "test_interface.py",  # 24
    "report/pages/test_map_comparators.py",  # 23
    "finished/test_comparison.py",  # 23
    "finished/test_predicted_patient.py",  # 22
    "importers/dicom/test_importer.py",  # 21
    "importers/dicom/test_enhancement.py",  # 20
    "report/numbers/test_added_value.py",  # 20
    "explain/inspection/test_inspect_network.py",  # 19
    "crossval/test_comparison.py",  # 18
    "test_notebooks.py",  # 17
    "report/numbers/test_everything.py",  # 17
    "test_real_patient.py",  # 16
    "finished/test_compare.py",  # 15
    "finished/test_evaluated_models.py",  # 15
    "importers/test_persons.py",  # 14
    "report/numbers/test_comparators.py",  # 13
    "crossval/test_permutation_null.py",  # 12
)
REPRODUCTIONS = "reproductions"  # tests of what the package does not ship: all of them are long, whatever each takes

gc.disable()  # a third of the time in which tests are collected; on again with the first test


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    assert all(file.exists() for file in place), "a file of LONG is not there"
    for item in items:
        if item.path in place or Path(__file__).parent / REPRODUCTIONS in item.path.parents:
            item.add_marker("long")
    # begun first, so that no process works on a long one alone at the end
    items.sort(key=lambda item: place.get(item.path, len(place)))


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

    def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Workplace) -> Iterator[tuple[str, Any]]:
        for name, arguments in jobs.items():
            yield name, function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "each", each)
        yield


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report's figures are files without a picture: drawing them takes most of its time, and only words are looked at."""
    monkeypatch.setattr(style, "to_bytes", lambda figure, kind: f"<svg><!-- {kind} --></svg>".encode())


@pytest.fixture
def tiny(tmp_path: Path) -> Study:
    return make_tiny(tmp_path)
