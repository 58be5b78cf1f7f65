"""Whether trainings ended with a flat validation loss: the rule on drawn curves, and on a run's folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mri_vit.errors import IntegrityError
from mri_vit.report.numbers.results import MIN_LOSS_FALL, Trainings, is_flat, trainings
from mri_vit.report.reading import run_files
from mri_vit.run import files

EPOCHS = np.arange(1.0, 101.0)


@pytest.mark.parametrize(
    ("val", "flat"),
    [
        (1 - 0.5 * EPOCHS / 100, False),  # still falling
        (np.exp(-EPOCHS / 10), True),
        (np.where(EPOCHS < 60, 1 - EPOCHS / 100, 0.4 + EPOCHS / 200), True),  # it rises at the end
        (np.ones(100), True),  # it never fell
        (np.where(EPOCHS < 90, 1.0, 0.5), False),  # learned at the very end
        (np.where(EPOCHS <= 80, 0.5, 0.5 - 0.9 * MIN_LOSS_FALL), True),
        (np.where(EPOCHS <= 80, 0.5, 0.5 - 1.1 * MIN_LOSS_FALL), False),
    ],
)
def test_a_loss_is_flat_where_the_last_fifth_brought_nothing(val: np.ndarray, flat: bool):
    assert is_flat(EPOCHS, val) == flat


def test_one_evaluation_at_the_end_shows_nothing():
    assert not is_flat(np.array([100.0]), np.array([0.3]))
    assert is_flat(np.array([50.0, 100.0]), np.array([0.3, 0.3]))


@given(st.lists(st.floats(0, 2), min_size=10, max_size=60), st.floats(0, 0.5))
def test_more_epochs_that_bring_nothing_make_a_loss_flat_and_a_lower_end_never_does(val: list[float], fall: float):
    values = np.array(val)
    longer = np.concatenate([values, np.full(len(val), values.max())])
    assert is_flat(np.arange(1.0, len(longer) + 1), longer)
    fallen = np.append(values, values.min() - MIN_LOSS_FALL - 1e-6 - fall)
    assert not is_flat(np.arange(1.0, len(fallen) + 1), fallen)


def write(folder: Path, val: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame({"epoch": EPOCHS[: len(val)].astype(int), "seconds": 1.0, "loss": 0.1, "tune": val, "tune_mgmt": val})
    table.to_csv(folder / files.HISTORY, index=False)


def test_every_fold_and_seed_of_a_model_counts_and_what_nobody_wrote_is_not_known(tmp_path: Path):
    falling, settled = 1 - EPOCHS / 200, np.exp(-EPOCHS / 10)
    write(tmp_path / "fold-1", settled)
    write(tmp_path / "fold-1" / "seed-2", falling)
    write(tmp_path / "fold-2", settled)
    write(tmp_path / "rivals" / "cnn" / "fold-2", falling)
    homes = {"vit": tmp_path, "cnn": tmp_path / "rivals" / "cnn", "old": tmp_path / "rivals" / "old"}
    found = run_files.histories(homes, {"vit": 2, "cnn": 1, "old": 1}, [(0, 0), (0, 1)])
    assert list(found) == run_files.HISTORY_COLUMNS
    assert trainings(found, "vit") == Trainings(3, 2)
    assert trainings(found, "cnn") == Trainings(1, 0)
    assert trainings(found, "old") == Trainings(None, None)
    assert trainings(run_files.histories({}, {}, []), "vit") == Trainings(None, None)


@pytest.mark.parametrize("content", [b"", b"epoch,loss\n1,2\n", b"epoch,tune\n1,many\n", b"\xff\xfe\x00"])
def test_a_damaged_history_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "fold-1").mkdir()
    (tmp_path / "fold-1" / files.HISTORY).write_bytes(content)
    with pytest.raises(IntegrityError, match=r"fold-1/history\.csv"):
        run_files.histories({"vit": tmp_path}, {"vit": 1}, [(0, 0)])
