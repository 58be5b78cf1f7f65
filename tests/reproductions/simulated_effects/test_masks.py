"""What masks are worth: masks that are as wrong as asked for, and a page of whatever has run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproductions.simulated_effects import masks

from mri_vit.data.volume import Volume
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import VOLUME

FILE = Path(masks.__file__).with_name("masks.toml")


@pytest.mark.parametrize("dice", [0.9, 0.7, 0.5])
def test_a_mask_is_moved_until_it_has_the_dice_that_is_asked_for_and_keeps_its_volume(dice: float):
    affine = np.diag([2.0, -1.8, 2.2, 1.0])
    away = np.linalg.norm((np.moveaxis(np.indices((40, 40, 40)), 0, -1) - 20) * np.abs(np.diag(affine)[:3]), axis=-1)
    truth = Volume((away < 18).astype(np.uint8), affine)
    for seed in range(4):
        there, true = masks.moved(truth, dice, np.random.default_rng(seed)).array != 0, truth.array != 0
        assert 2 * (there & true).sum() / (there.sum() + true.sum()) == pytest.approx(dice, abs=0.02)
        assert there.sum() == pytest.approx(true.sum(), rel=0.03)


def test_kinds_of_masks_differ_in_masks_alone_and_true_and_found_ones_share_scans():
    read = study_file.load(FILE)
    true, found, wrong = (masks.with_masks(read, 2, kind) for kind in ("true", "found", "0.7"))
    assert (true.prepare.tumour, found.prepare.tumour, wrong.prepare.tumour) == ("given", "found", "given")
    assert len({one.cohort.parent for one in (true, found, wrong)}) == 1
    assert len({one.prepared for one in (true, found, wrong)}) == len({one.output for one in (true, found, wrong)}) == 3
    apart = {"cohort", "prepared", "output", "prepare"}
    assert true.model_dump(exclude=apart) == found.model_dump(exclude=apart) == wrong.model_dump(exclude=apart)
    assert true.model.pool == "cls"


def test_the_volume_of_found_masks_does_not_tell_an_effect_that_darkens_the_flair_that_they_are_found_in():
    rows = pd.read_csv(FILE.with_name("masks.csv"), dtype={"masks": str})
    seen = rows[(rows.masks == masks.FOUND) & (rows.model == VOLUME) & rows.cause.isin(["mismatch", "interaction"])]
    for cause, one in seen.groupby("cause"):
        error = float(np.sqrt((one.error**2).sum())) / len(one)
        assert abs(one.auc.mean() - 0.5) < 1.96 * error, cause


def test_the_page_has_a_row_for_each_kind_of_masks_that_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(masks, "HOME", tmp_path)
    rows = pd.DataFrame(
        {"seed": seed, "masks": kind, "patients": 190, "dice": dice, "missed": 0, "cause": cause, "model": model, "auc": auc}
        for seed in (1, 2)
        for kind, dice in {"true": 1.0, "found": 0.86, "0.7": 0.7}.items()
        for cause in (*masks.EFFECTS, "coin")
        for model, auc in {"vit": 0.5 + dice / 4 + seed / 100, "volume": 0.49}.items()
    )
    masks.write_page(rows)
    lines = (tmp_path / "masks.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")] == ["| masks", "| true", "| found", "| 0.7"]
    assert next(line for line in lines if line.startswith("| found")).endswith("| 0.730 |")
    assert any("found mask alone: texture 0.490" in line for line in lines)
    assert (tmp_path / "masks.svg").stat().st_size > 0
