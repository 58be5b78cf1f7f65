"""Every study file that ships goes to its end: a study through every verb, a template through its pipeline, two comparators each.

All are made small by `whole_road.SHRUNKEN`. What one costs and what it finds stands in the head of its file.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from reproductions.ablation import __main__ as ablation
from reproductions.ablation import variants
from reproductions.features import __main__ as features
from reproductions.features import encoders as frozen_encoders
from reproductions.ladder import __main__ as ladder
from reproductions.ladder import ladder_page
from reproductions.learning_curve import __main__ as learning_curve
from reproductions.pretraining_size import __main__ as pretraining_size
from reproductions.saeed2023_table4 import __main__ as table4
from reproductions.segmentation import __main__ as segmentation
from reproductions.segmentation import encoders as segmentation_encoders
from reproductions.simulated_effects import __main__ as benchmark
from reproductions.simulated_effects import causes, masks
from reproductions.simulated_effects import effects as synthetic_causes
from reproductions.simulated_effects.benchmark_pages import CONTROLS
from whole_road import SHRUNKEN, every_verb, parted

from mri_vit import synthetic
from mri_vit.predictors.network import Neural
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import RADIOMICS, Comparator
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

ROOT = Path(__file__).parents[1]
SHIPPED = {file.stem: file for kind in ("configs", "pipelines/reproductions/*") for file in ROOT.glob(f"{kind}/*.toml")}
STUDIES = ("comparator_maps", "comparator_maps_gbm", "demo", "gbm", "survival", "vit_b16")
TEMPLATES = (
    "ablation",
    "causes",
    "benchmark",
    "benchmark_1mm",
    "benchmark_384",
    "benchmark_around_tumours",
    "benchmark_convolutional",
    "benchmark_learning",
    "benchmark_parts",
    "benchmark_search",
    "benchmark_search_convolutional",
    "features",
    "features_hard",
    "features_upenn",
    "ladder",
    "ladder_brats2021",
    "learning_curve",
    "masks",
    "pretraining_size",
    "pretraining_size_upenn",
    "segmentation",
    "segmentation_ucsf_pdgm",
    "table4_brats2021",
    "table4_demo",
    "variants",
    "variants_gbm",
)
COMPARATORS = 2  # of a template: each kind of comparator is fitted and judged alike

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


def test_every_study_file_is_in_this_test():
    assert sorted(SHIPPED) == sorted((*STUDIES, *TEMPLATES))


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
    monkeypatch.setattr(learning_curve, "RUNS", tmp_path / "runs" / "learning-curve")
    learning_curve.main(seeds=(1,))
    assert "Recommended ViT" in (tmp_path / "runs" / "learning-curve" / "index.html").read_text()

    largest = tmp_path / "runs" / "learning-curve" / "cohort-{seed}" / "cohort-24.csv"
    monkeypatch.setattr(ablation, "SETTINGS", shrunken("ablation", tmp_path, (ablation.BEARING, ablation.COARSE), largest))
    monkeypatch.setattr(ablation, "LABELLED", 24)
    monkeypatch.setattr(ablation, "HALF", Grid(edge=24, spacing_mm=224 / 24, patch=8))
    monkeypatch.setattr(ablation, "PAGE", tmp_path / "README.md")
    ablation.main(seeds=(1,))
    rows = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 1 + COMPARATORS + 1 + 2  # head, recommended, changes; head, two ways of training


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("name", "comparators"),
    [
        ("features", ("mae", "resnet10", "resnet10-dino")),
        ("features_hard", ("dino", "resnet10")),
        ("features_upenn", ("mae", "resnet10-dino")),
    ],
)
def test_features_are_learned_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, comparators: tuple[str, ...]
):
    monkeypatch.setattr(features, "SIZES", (24,))
    monkeypatch.setattr(features, "UNLABELLED", 16)
    monkeypatch.setattr(frozen_encoders, "STARTS", 2)
    monkeypatch.setattr(frozen_encoders, "FEWER_STARTS", 1)
    table = None
    if name == "features_upenn":  # real patients are whoever stands in the table, and none is made up
        table = synthetic.make(tmp_path / "scans", 3, 24 + 16, 16)
        monkeypatch.setattr(features.synthetic, "make", lambda *_: pytest.fail("a cohort was made where one is given"))
    features.main(shrunken(name, tmp_path, comparators, table), seed=1)
    assert list((tmp_path / "runs").rglob("features.html"))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", ["ladder", "ladder_brats2021"])
def test_the_ladder_is_climbed_from_half_the_patients_to_all(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(ladder, "PATIENTS", 16)
    monkeypatch.setattr(ladder_page, "FEWEST", 8)
    file = shrunken(name, tmp_path, cohort=None if name == "ladder" else scans)
    ladder.main(file)
    (page,) = (tmp_path / "runs").rglob("index.html")
    text = page.read_text()
    assert ("are synthetic" in text) == (name == "ladder")
    assert all(called in text for called in ladder_page.called(study_file.load(file)).values())


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
@pytest.mark.parametrize("name", ["variants", "variants_gbm"])
def test_variants_are_trained_by_the_one_loop_and_found_done_when_started_again(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(variants, "PATIENTS", 16)
    file = shrunken(name, tmp_path, ("vit-small", "resnet10"), None if name == "variants" else parted(scans, tmp_path)[0])
    variants.main(file)
    (page,) = (tmp_path / "runs").rglob("index.html")
    text = page.read_text()
    assert "Axial attention" in text
    assert "3D ResNet-10" in text
    assert ("Known case" in text) == (name == "variants")
    page.unlink()
    monkeypatch.setattr(Neural, "fit", lambda *_: pytest.fail("a fold that is done was fitted again"))
    variants.main(file)
    assert page.read_text() == text


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", ["pretraining_size", "pretraining_size_upenn"])
def test_networks_are_pretrained_on_other_labels_and_go_on_where_they_were_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(pretraining_size, "TARGETS", 24)
    monkeypatch.setattr(pretraining_size, "OTHERS", 34)
    table = None
    if name == "pretraining_size_upenn":  # a table as the head of that file asks for
        table = synthetic.make(tmp_path / "scans", 3, 24 + 24)
        people = pd.read_csv(table, dtype=str)
        people["coin"] = [str(row % 2) for row in range(len(people))]
        people.loc[24:, "mgmt"] = None
        people.to_csv(table, index=False)
    file = shrunken(name, tmp_path, cohort=table)
    pretraining_size.main(file, seed=2)
    (page,) = (tmp_path / "runs").rglob("index.html")
    before = {one: one.read_bytes() for one in page.parent.iterdir() if one.is_file() and one.suffix in (".csv", ".svg", ".html")}
    scores = sorted(page.parent.glob("starts/*/scores.csv"))
    assert len(scores) == 2 * (1 + 2 * 3)  # two networks, from scratch and after two labels at three sizes
    scores[0].unlink()
    pretraining_size.main(file, seed=2)
    assert "ResNet-10" in page.read_text()
    assert all(one.read_bytes() == content for one, content in before.items() if one.suffix == ".csv")


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


@pytest.mark.usefixtures("in_this_process")
def test_what_tells_hidden_causes_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(causes, "LAGS", (1, 2))  # a tumour is few voxels across here
    file = shrunken("causes", tmp_path)
    study = study_file.load(file)
    file.write_text(study_file.dumps(study.model_copy(update={"grid": Grid(edge=56, spacing_mm=4.0, patch=4)})))
    causes.main(file, seed=1, patients=16)
    table = pd.read_csv(tmp_path / "runs" / "causes" / "1" / "causes.csv")
    assert list(table.name) == list(synthetic_causes.LABELS)
    assert table[table.name != "coin"].oracle.notna().all()


@pytest.mark.usefixtures("in_this_process")
def test_a_network_learns_from_true_found_and_wrong_masks_of_the_same_patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(masks, "HOME", tmp_path)
    masks.main(shrunken("masks", tmp_path), (1,), ("true", "found", "0.7"), 16)
    found = pd.read_csv(tmp_path / "masks.csv", dtype={"masks": str})
    assert list(found.masks.unique()) == ["true", "found", "0.7"]
    assert found.groupby("masks").dice.first()[["true", "0.7"]].tolist() == pytest.approx([1.0, 0.7], abs=0.02)
    assert "| found |" in (tmp_path / "masks.md").read_text()


@pytest.mark.usefixtures("in_this_process")
def test_a_benchmarks_files_share_cohorts_and_the_vision_transformers_folds_and_a_page_has_who_ran_on_all_of_its_data_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(benchmark, "HOME", tmp_path)
    monkeypatch.setattr(benchmark, "WIDTH_2D", 64)
    parts = ("unguided", "without-texture", "vit-max")
    asked = [("benchmark", None), ("benchmark_convolutional", ("dilated-max",)), ("benchmark_parts", parts)]
    asked += [("benchmark_around_tumours", None), ("benchmark_1mm", None)]
    first, convolutional, of_parts, around, at_1mm = (shrunken(name, tmp_path, comparators) for name, comparators in asked)
    benchmark.main(first, seeds=(1, 2), patients=32)
    benchmark.main(convolutional, of_parts, around, at_1mm, seeds=(1,), patients=32)
    page, worth = ((tmp_path / f"{name}.md").read_text() for name in ("benchmark", "benchmark_parts"))
    assert "| stem-max |" in (tmp_path / "benchmark_around_tumours.md").read_text()
    assert "| small |" in (tmp_path / "benchmark_1mm.md").read_text()
    shown = [
        "**Vision Transformer**",
        "stem-max |",
        *(name for one, name in CONTROLS.items() if one != RADIOMICS),
    ]
    assert all(f"| {name}" in page for name in shown)
    assert "data seeds 1, 2." in page.replace("\n", " ")
    assert "Not here, as not run on enough of these data seeds yet: `benchmark_convolutional.toml`." in page
    assert not any(f"| {name}" in page for name in ("dilated-max", CONTROLS[RADIOMICS], *parts))
    assert all(f"| {name}" in worth for name in ("**Vision Transformer**", *parts))
    assert "everybody here" not in worth
    runs = tmp_path / "runs" / "benchmark"
    costs = {(runs / f"{run}-1" / "fold-2" / "cost.json").read_bytes() for run in ("run", "convolutional", "parts")}
    assert len(costs) == 1  # its seconds are of one training
    benchmark.main(convolutional, seeds=(2,), patients=32)
    page = (tmp_path / "benchmark.md").read_text()
    assert all(f"| {name}" in page for name in (*shown, "dilated-max |", CONTROLS[RADIOMICS]))
    assert "Not here" not in page
    recipes = shrunken("benchmark_search", tmp_path, ("resnet10", "stem-max", "stem-max-faster"))
    benchmark.main(recipes, patients=32)
    benchmark.main(shrunken("benchmark_search_convolutional", tmp_path, ("dilated",)), patients=32)
    page = (tmp_path / "benchmark_search.md").read_text()
    assert all(f"| {name} | " in page for name in ("stem-max-faster", "dilated"))
    assert '- dilated: `model.architecture = "resnet10_dilated"`' in page


def shrunken(name: str, folder: Path, comparators: tuple[str, ...] | None = None, cohort: Path | None = None) -> Path:
    """A copy of a study file that ships, small, with these comparators alone, in a folder like the one that it lies in."""
    file = folder / SHIPPED[name].relative_to(ROOT)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(SHIPPED[name].read_bytes())
    overrides = {key: str(value) for key, value in SHRUNKEN.items()} | ({"cohort": str(cohort)} if cohort else {})
    study = study_file.load(file, overrides)
    kept = tuple(_short(comparator) for comparator in study.comparators if comparators is None or comparator.name in comparators)
    file.write_text(study_file.dumps(study.model_copy(update={"comparators": kept})))
    return file


def _short(comparator: Comparator) -> Comparator:
    """A comparator's own keys, where they would make it long again, and in single precision.

    In bfloat16 oneDNN's convolutions of a few voxels read memory that nobody has written, and give NaN where it holds one.
    """
    keys = {key.partition(".")[2] for key in SHRUNKEN if key.startswith(("pretrain.", "train."))}
    return comparator.model_copy(
        update={
            section: {
                key: min(value, int(str(SHRUNKEN[f"{section}.{key}"])))
                if key in keys and f"{section}.{key}" in SHRUNKEN
                else value
                for key, value in getattr(comparator, section).items()
                if key != "precision"
            }
            for section in ("pretrain", "train")
        }
    )
