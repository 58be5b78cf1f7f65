"""Comparators' maps in the report: judged by the rules of the own model's, beside it, and no trace of them without any."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made import maps as made_maps
from made.maps import write_maps, write_scores
from made.report import read_metrics, seen
from made.run import make_run
from made.study import sketch

from mri_vit.data.volume import Volume, write
from mri_vit.report import assembly
from mri_vit.report.pages import report_files
from mri_vit.report.pages.report_files import Written
from mri_vit.report.reading import run as run_folder
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.metrics import Metrics, dumps
from mri_vit.report.words import map_sentences
from mri_vit.report.words.run_facts import Facts
from mri_vit.settings.sections import MapMethod, VolumeMethod

pytestmark = pytest.mark.long(12)

AS_OF_A_CNN: dict[MapMethod, VolumeMethod] = {"rollout": "occlusion_by_air", "gradient_attention": "gradcam"}
SETTINGS = {"methods": ["gradcam", "occlusion_by_air"]}
COARSE = "It has 2 × 2 × 2 voxels of 96 × 112 × 96 mm."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose own model and its comparator resnet10 see the planted signals, with maps of both."""
    folder = make_run(tmp_path_factory.mktemp("made") / "run", patients=30, models=("vit", "resnet10", "clinical", "shuffled"))
    write_maps(folder, ["P001", "P002"], ["mgmt"])
    write_scores(folder, ["mgmt", "pten"])
    home = folder / "rivals" / "resnet10"
    home.mkdir(parents=True)
    for name in ("cohort.csv", "folds.json"):
        (home / name).write_text((folder / name).read_text())
    write_maps(home, ["P001", "P002"], ["mgmt"])
    write_scores(home, ["mgmt", "pten"], seed=1)
    for path in (*home.glob("maps/*/map.json"), *home.glob("scores/*.json")):
        path.write_text(as_of_a_cnn(path.read_text()))
    study = (folder / "study.toml").read_text()
    asked = (
        '\n[explain]\ncomparators = ["resnet10"]\n\n[[comparators]]\nname = "resnet10"\nmodel = { architecture = "resnet10" }\n'
    )
    (folder / "study.toml").write_text(study + asked)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it for a test that changes its files."""
    return shutil.copytree(made, tmp_path / "run")


def read_run(folder: Path) -> Run:
    """The run with the endpoints alone that have maps: each takes a second to measure."""
    run = run_folder.read_run(folder)
    mapped = tuple(endpoint for endpoint in run.study.endpoints if endpoint.name in ("mgmt", "pten"))
    return replace(run, study=run.study.model_copy(update={"endpoints": mapped}))


@pytest.fixture(scope="module")
def report(made: Path) -> Written:
    with pytest.MonkeyPatch.context() as patch:
        sketch(patch)
        return report_files.write_report(read_run(made), made / "report")


def as_of_a_cnn(text: str) -> str:
    """Made-up maps of a Vision Transformer as a convolutional network's, each for an endpoint."""
    for ours, theirs in AS_OF_A_CNN.items():
        text = text.replace(f'"{ours}"', f'"{theirs}"')
    content = json.loads(text) | {"settings": SETTINGS}
    for one in content.get("maps", []):
        one |= {"endpoint": "mgmt", "explains": "mgmt = 1", "note": COARSE if one["method"] == "gradcam" else "It is <b>air</b>."}
    return json.dumps(content)


def heads(page: str) -> list[str]:
    """Whose maps the rows of the comparators' table for MGMT are."""
    start = page.index('aria-label="Maps of the comparators for MGMT')
    return re.findall(r'<th scope="row">(\S+)<br>', page[start : page.index("</table>", start)])


def test_a_comparators_maps_are_judged_as_the_own_models_are(report: Written):
    home, metrics = report.page.parent, report.metrics
    text = (home / "metrics.json").read_text()
    assert dumps(Metrics.model_validate_json(text)) == text
    found = metrics.comparator_maps["resnet10"]
    assert list(metrics.comparator_maps) == ["resnet10"]
    assert found.notes["gradcam"] == COARSE
    assert found.scores
    assert metrics.map_scores
    for name in ("mgmt", "pten"):
        own, theirs = metrics.map_scores.endpoints[name], found.scores.endpoints[name]
        assert theirs.predicted == metrics.endpoints[name].models["resnet10"].verdict_kind
        assert list(theirs.methods) == ["gradcam", "occlusion_by_air"]
        for before, after in AS_OF_A_CNN.items():
            assert theirs.methods[after].energy_ratio.value == pytest.approx(own.methods[before].energy_ratio.value, rel=0.15)
            assert theirs.methods[after].randomised.value == pytest.approx(made_maps.AFTER_RANDOMISING[before], abs=0.05)
    assert found.scores.endpoints["mgmt"].methods["occlusion_by_air"].verdict_kind == "fails"  # planted: it stays as it was
    assert {entry.kind for one in found.maps for entry in one.maps if entry.method == "occlusion_by_air"} == {"fails"}
    table = pd.read_csv(home / "tables" / "comparator_map_scores.csv")
    assert table[["model", "endpoint", "method"]].to_numpy().tolist() == [
        ["resnet10", name, method] for name in ("mgmt", "pten") for method in SETTINGS["methods"]
    ]
    said = " ".join(map_sentences.map_methods(metrics, Facts()))
    assert "Maps of the comparator resnet10 were made by Grad-CAM [@gradcam]" in said
    assert "in the same way on 30 patients" in said


def test_the_page_sets_them_beside_the_own_model_and_says_how_coarse_they_are(report: Written):
    page = report.page.read_text(encoding="utf-8")
    assert heads(page) == ["vit", "resnet10", "resnet10"]
    assert f"<b>Grad-CAM of resnet10.</b> {COARSE}" in page
    assert "It is &lt;b&gt;air&lt;/b&gt;." in page  # a note comes from a file
    assert "whether its maps depend on the labels was not tested" in seen(report.page.parent)
    assert "One patient's maps by each network" not in page  # made-up maps have no brain to be drawn on


@pytest.mark.usefixtures("sketched")
def test_one_patients_maps_are_drawn_side_by_side_on_one_plane(run: Path):
    brain = np.zeros((12, 14, 10), np.float32)
    brain[2:10, 2:12, 2:8] = 5.0
    affine = np.diag([-8.0, 8.0, 8.0, 1.0])  # stored from right to left
    heat = np.where(brain > 0, 1.0, 0).astype(np.float32)
    heat[3, 5, 4] = 40.0
    for home in (run, run / "rivals" / "resnet10"):
        for path in home.glob("maps/P002/map.json"):
            record = json.loads(path.read_text()) | {"brain": "brain.nii.gz"}
            path.write_text(json.dumps(record))
            write(Volume(brain, affine), path.parent / "brain.nii.gz")
            for one in record["maps"]:
                write(Volume(heat, affine), path.parent / one["files"]["t1ce"])
    page = report_files.write_report(read_run(run), run / "report").page.read_text(encoding="utf-8")
    part = page[page.index('<div class="beside">') :]
    part = part[: part.index("</div>")]
    assert "Patient P002, MGMT" in page
    assert part.count("<img") == 3
    assert [one.partition("</b>")[0] for one in part.split("<figcaption><b>")[1:]] == ["vit", "resnet10", "resnet10"]
    pictures = [one.partition('"')[0] for one in part.split('src="')[1:]]
    assert len(set(pictures)) == 1  # the same plane of the same map


@pytest.mark.usefixtures("sketched")
def test_maps_by_other_settings_are_counted_and_left_out_and_a_run_without_any_has_no_key_for_them(run: Path):
    for path in (run / "rivals" / "resnet10").glob("*/*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": {"methods": ["gradcam"]}}))
    for path in (run / "rivals" / "resnet10").glob("maps/*/map.json"):
        path.unlink()
    written = report_files.write_report(read_run(run), run / "report")
    assert written.metrics.stale["scores"] == 31  # of visits
    found = read_metrics(run / "report")
    assert "comparator_maps" not in found
    assert "Maps of the comparators" not in written.page.read_text(encoding="utf-8")


def test_a_run_that_names_no_comparator_has_the_metrics_that_it_always_had(tmp_path: Path):
    found = assembly.metrics(run_folder.read_run(make_run(tmp_path / "run", patients=30, models=("vit",)))).model_dump(
        mode="json"
    )
    assert "comparator_maps" not in found
    assert sorted(found["settings"]["explain"]) == ["methods", "patients", "scored"]
