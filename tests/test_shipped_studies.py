"""Every study file that ships goes to its end: a study through every verb, a template through its pipeline, two comparators each.

All are made small by `whole_road.SHRUNKEN`. What one costs and what it finds stands in the head of its file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ablation
import features
import learning_curve
import pytest
import segmentation
import table4
from whole_road import SHRUNKEN, every_verb, parted

from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Grid, Study
from mri_vit.studies import frozen_encoders, segmentation_encoders

CONFIGS = Path(__file__).parents[1] / "configs"
STUDIES = ("demo", "gbm", "survival", "vit_b16")
TEMPLATES = (
    "ablation", "features", "features_hard", "learning_curve", "segmentation", "segmentation_ucsf_pdgm", "table4_brats2021",
    "table4_demo",
)  # fmt: skip
COMPARATORS = 2  # of a template: each kind of comparator is fitted and judged alike

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


def test_every_study_file_is_in_this_test():
    assert sorted(file.stem for file in CONFIGS.glob("*.toml")) == sorted((*STUDIES, *TEMPLATES))


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_ships_goes_through_every_verb(scans: Path, tmp_path: Path, name: str):
    own, others = parted(scans, tmp_path)
    file = shrunken(name, tmp_path, cohort=own)
    every_verb(file, {}, others, tmp_path / "run", tmp_path / "prepared", ("pretrain",))


@pytest.mark.usefixtures("in_this_process")
def test_learning_curves_and_the_ablation_on_their_cohorts_go_to_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learning_curve, "SETTINGS", shrunken("learning_curve", tmp_path, ("vit-mae", "resnet10")))
    monkeypatch.setattr(learning_curve, "SIZES", (12, 24))
    monkeypatch.setattr(learning_curve, "UNLABELLED", 6)
    monkeypatch.setattr(sys, "argv", ["pipeline", "--seeds", "1"])
    learning_curve.main()
    assert "Recommended ViT" in (tmp_path / "runs" / "learning-curve" / "index.html").read_text()

    largest = tmp_path / "runs" / "learning-curve" / "cohort-{seed}" / "cohort-24.csv"
    monkeypatch.setattr(ablation, "SETTINGS", shrunken("ablation", tmp_path, (ablation.BEARING, ablation.COARSE), largest))
    monkeypatch.setattr(ablation, "LABELLED", 24)
    monkeypatch.setattr(ablation, "HALF", Grid(edge=24, spacing_mm=224 / 24, patch=8))
    monkeypatch.setattr(ablation, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    ablation.main()
    rows = [line for line in (tmp_path / "docs" / "ablation.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 1 + COMPARATORS + 1 + 2  # head, recommended, changes; head, two ways of training


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("name", "comparators"), [("features", ("mae", "resnet10", "resnet10-dino")), ("features_hard", ("dino", "resnet10"))]
)
def test_features_are_learned_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, comparators: tuple[str, ...]
):
    monkeypatch.setattr(features, "SIZES", (24,))
    monkeypatch.setattr(features, "UNLABELLED", 16)
    monkeypatch.setattr(frozen_encoders, "STARTS", 2)
    monkeypatch.setattr(frozen_encoders, "FEWER_STARTS", 1)
    features.main(shrunken(name, tmp_path, comparators), seed=1)
    assert list((tmp_path / "runs").rglob("features.html"))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("name", "comparators"), [("table4_demo", ("resnet10-t1ce", "efficientnet_b0-all")), ("table4_brats2021", None)]
)
def test_rows_of_table_4_are_fitted_and_stand_beside_the_published_ones(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, comparators: tuple[str, ...] | None
):
    whole = table4.with_comparators

    def cut(study: Study) -> Study:
        chosen = comparators or [comparator.name for comparator in (*study.comparators, *whole(study).comparators)][:COMPARATORS]
        return study.model_copy(
            update={"comparators": tuple(comparator for comparator in whole(study).comparators if comparator.name in chosen)}
        )

    monkeypatch.setattr(table4, "with_comparators", cut)
    monkeypatch.setattr(table4, "PATIENTS", 16)
    table4.main(shrunken(name, tmp_path, cohort=None if name == "table4_demo" else parted(scans, tmp_path)[0]))
    assert list((tmp_path / "runs").rglob("table4.*"))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", ["segmentation", "segmentation_ucsf_pdgm"])
def test_attention_is_held_against_tumours(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(segmentation, "PATIENTS", 16)
    monkeypatch.setattr(segmentation, "FEWEST", 2)
    monkeypatch.setattr(segmentation_encoders, "STARTS", 2)
    monkeypatch.setattr(segmentation_encoders, "HELD", 0.02)  # a place is as large as a tumour here
    segmentation.main(shrunken(name, tmp_path, cohort=None if name == "segmentation" else parted(scans, tmp_path)[0]))
    (page,) = (tmp_path / "runs").rglob("segmentation/index.html")
    assert "Jaccard index" in page.read_text()


def shrunken(name: str, folder: Path, comparators: tuple[str, ...] | None = None, cohort: Path | None = None) -> Path:
    """A copy of a study file that ships, small, with these comparators alone, in a folder like the one that it lies in."""
    home = folder / "configs"
    home.mkdir(exist_ok=True)
    file = home / f"{name}.toml"
    file.write_bytes((CONFIGS / f"{name}.toml").read_bytes())
    overrides = {key: str(value) for key, value in SHRUNKEN.items()} | ({"cohort": str(cohort)} if cohort else {})
    study = study_file.load(file, overrides)
    kept = tuple(_short(comparator) for comparator in study.comparators if comparators is None or comparator.name in comparators)
    file.write_text(study_file.dumps(study.model_copy(update={"comparators": kept})))
    return file


def _short(comparator: Comparator) -> Comparator:
    """A comparator's own keys, where they would make it long again."""
    keys = {key.partition(".")[2] for key in SHRUNKEN if key.startswith(("pretrain.", "train."))}
    return comparator.model_copy(
        update={
            section: {
                key: min(value, int(str(SHRUNKEN[f"{section}.{key}"])))
                if key in keys and f"{section}.{key}" in SHRUNKEN
                else value
                for key, value in getattr(comparator, section).items()
            }
            for section in ("pretrain", "train")
        }
    )
