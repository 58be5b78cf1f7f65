"""A model that leaves its run: predicts, explains and refuses as the run does, and holds nothing of a patient."""

from __future__ import annotations

import csv
import json
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from made.prediction import comparable
from whole_road import FILES, SHRUNKEN, finish, mri_vit, words

from mri_vit import load_run, read_cohort
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.finished import exported_model
from mri_vit.finished.export import model, model_card
from mri_vit.model import network
from mri_vit.model.weights import image_exposed, label_exposed
from mri_vit.settings import file as study_file

FOUR = ("t1", "t1ce", "t2", "flair")

pytestmark = [
    pytest.mark.long(45),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


@pytest.fixture(scope="module")
def road(finished: Path, tmp_path_factory: pytest.TempPathFactory, in_this_process: None) -> Path:
    """A run, the table of four patients whom it does not know, and its model."""
    home = shutil.copytree(finished, tmp_path_factory.mktemp("exported") / "finished")
    assert mri_vit("export", "model", home / "run", "-o", home / "model") == 0
    return home


@pytest.fixture(scope="module")
def predicted(road: Path) -> Path:
    """What the run and the model said of the four: `by-run` and `by-model`."""
    for of in ("run", "model"):
        assert mri_vit("predict", road / of, "--cohort", road / "others.csv", "-o", road / f"by-{of}", "--show-untrusted") == 0
    return road


def test_it_predicts_and_explains_as_its_run_to_the_last_digit(predicted: Path):
    ours, theirs = comparable(predicted / "by-model"), comparable(predicted / "by-run")
    assert sum(name.endswith(".nii.gz") for name in ours) > 4 * 4, "maps on each scan"
    assert sum(name.endswith("prediction.json") for name in ours) == 4
    assert [name for name in theirs if ours.get(name) != theirs[name]] == []
    assert set(ours) == set(theirs)


def test_in_python_too(predicted: Path):
    patients = read_cohort(predicted / "others.csv")
    by_run, by_model = (load_run(predicted / of).predict(patients, predicted / "by-run" / "prepared") for of in ("run", "model"))
    pd.testing.assert_frame_equal(by_run, by_model, check_exact=True)
    of_run = load_run(predicted / "run").explain(patients[0], predicted / "maps-run", predicted / "by-run" / "prepared")
    of_model = load_run(predicted / "model").explain(patients[0], predicted / "maps-model", predicted / "by-run" / "prepared")
    assert (of_run / "map.json").read_bytes() == (of_model / "map.json").read_bytes()


def row_of(road: Path, patient: int) -> dict[str, str]:
    with (road / "cohort.csv").open(newline="") as file:
        return list(csv.DictReader(file))[patient]


def test_it_refuses_a_patient_of_the_run_and_names_none(road: Path, tmp_path: Path, capsys):
    row = row_of(road, 0)
    table = tmp_path / "new.csv"
    table.write_text("patient,t1,t1ce,t2,flair\n" + ",".join(["somebody", *(row[c] for c in FOUR)]) + "\n")
    assert mri_vit("predict", road / "model", table, "-o", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert re.search(r"somebody has a scan of training patient \d+, whom", said)
    assert row["patient"] not in said
    sentences = {}
    for of in ("run", "model"):
        out = tmp_path / f"out-{of}"
        assert mri_vit("predict", road / of, table, "-o", out, "--allow-known") == 0
        known = json.loads((out / "somebody" / "prediction.json").read_text())["known"]
        sentences[of] = known["sentence"].replace(known["twin"], "X")
    assert sentences["run"] == sentences["model"]
    assert "1 of 2 networks saw this patient" in sentences["model"]


def test_an_equal_id_is_a_warning_and_a_real_patient_is_refused(road: Path, tmp_path: Path, capsys):
    called, other = row_of(road, 0)["patient"], read_cohort(road / "others.csv")[0]
    home = tmp_path / called
    home.mkdir()
    for channel, file in other.scans.items():
        shutil.copy(str(file), home / f"{channel}.nii.gz")
    assert mri_vit("predict", road / "model", home, "-o", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out" / called / "prediction.json").read_text())["known"]["same_id"]
    for file in home.iterdir():  # as another program saves it, without the mark of a made-up scan
        image = nib.Nifti1Image.load(file)
        nib.save(nib.Nifti1Image(np.asarray(image.dataobj), image.affine), file)
    assert mri_vit("predict", road / "model", home, "-o", tmp_path / "real") == 2
    assert "synthetic" in capsys.readouterr().err


@pytest.fixture(scope="module")
def marked(scans: Path, tmp_path_factory: pytest.TempPathFactory, in_this_process: None) -> Path:
    """The same with ids and days of survival that are found nowhere by chance."""
    home, table = tmp_path_factory.mktemp("marked"), tmp_path_factory.mktemp("table") / "cohort.csv"
    with scans.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        row |= {name: str(scans.parent / row[name]) for name in FILES}
        row |= {"patient": f"Q{7919 * (number + 3)}-x", "os_days": row["os_days"] and f"{row['os_days']}.{137 + 31 * number}"}
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    finish(table, home)
    assert mri_vit("export", "model", home / "run", "-o", home / "model") == 0
    return home


def traces(content: bytes, row: dict[str, str]) -> list[str]:
    """What of a patient's row is in a file: id, paths, and the days of survival as text or as a stored number."""
    found = [name for name in ("patient", *FILES) if row[name] and row[name].encode() in content]
    if days := row["os_days"]:
        forms = [days.encode(), struct.pack("<f", float(days)), struct.pack("<d", float(days))]
        forms += [repr(float(np.float32(days))).encode(), repr(float(days)).encode()]  # as JSON writes it
        found += ["os_days"] * any(form in content for form in forms)
    return found


def test_no_byte_of_any_file_is_an_id_a_label_or_a_path_of_a_patient(marked: Path):
    road, rows = marked, [row_of(marked, patient) for patient in range(12)]
    in_run = [
        trace for file in (road / "run").glob("*") if file.is_file() for row in rows for trace in traces(file.read_bytes(), row)
    ]
    assert {"patient", "os_days"} <= set(in_run), "the search finds what a run does hold"
    weights = (road / "run" / "fold-1" / "best.safetensors").read_bytes()
    assert any("patient" in traces(weights, row) for row in rows)
    for file in sorted((road / "model").rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            assert not [(file.name, row["patient"], trace) for row in rows for trace in traces(content, row)]
            assert str(road).encode() not in content
            assert file.suffix not in (".gz", ".zip", ".pt"), "nothing is packed that the search would not see"


def test_nor_is_one_where_the_runs_prepared_patients_are_gone(marked: Path, tmp_path: Path, capsys):
    (marked / "prepared").rename(tmp_path / "prepared")
    (marked / "run" / "reference.safetensors").unlink()
    try:
        assert mri_vit("export", "model", marked / "run", "-o", tmp_path / "model") == 0
    finally:
        (tmp_path / "prepared").rename(marked / "prepared")
    assert "is not prepared here" in capsys.readouterr().out, "the terminal of the run's owner says who"
    rows = [row_of(marked, patient) for patient in range(12)]
    for file in sorted(path for path in (tmp_path / "model").rglob("*") if path.is_file()):
        content = file.read_bytes()
        assert not [(file.name, row["patient"], trace) for row in rows for trace in traces(content, row)]
        assert str(marked).encode() not in content
    assert not (tmp_path / "model" / "reference.safetensors").exists()


def test_the_same_run_gives_the_same_bytes_in_a_few_megabytes(road: Path, tmp_path: Path):
    assert mri_vit("export", "model", road / "run", "-o", tmp_path / "again") == 0
    names = sorted(file.relative_to(road / "model") for file in (road / "model").rglob("*") if file.is_file())
    assert names == sorted(file.relative_to(tmp_path / "again") for file in (tmp_path / "again").rglob("*") if file.is_file())
    assert all((road / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in names)
    weights = sum(file.stat().st_size for file in (road / "run").glob("fold-*/best.safetensors"))
    assert sum((road / "model" / name).stat().st_size for name in names) < weights + 1_000_000


def test_a_changed_file_a_foreign_folder_and_an_unfinished_run_are_refused_by_name(road: Path, tmp_path: Path, capsys):
    changed = shutil.copytree(road / "model", tmp_path / "changed")
    with (changed / "model_card.md").open("a") as file:
        file.write("better than chance\n")
    assert mri_vit("predict", changed, road / "others.csv", "-o", tmp_path / "out") != 0
    assert "model_card.md" in capsys.readouterr().err
    (changed / "hashes.json").unlink()
    with pytest.raises(IntegrityError, match=r"no hashes\.json"):
        load_run(changed)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.docx").write_bytes(b"years of work")
    assert mri_vit("export", "model", road / "run", "-o", foreign) == 2
    assert (foreign / "thesis.docx").read_bytes() == b"years of work"
    (foreign / "model.json").write_text('{"modelTopology": {}}')  # a name that others use too
    assert mri_vit("export", "model", road / "run", "-o", foreign) == 2
    assert sorted(path.name for path in foreign.iterdir()) == ["model.json", "thesis.docx"]
    with_notes = shutil.copytree(road / "model", tmp_path / "with-notes")
    (with_notes / "notes.txt").write_text("mine")
    assert mri_vit("export", "model", road / "run", "-o", with_notes) == 2
    assert (with_notes / "notes.txt").read_text() == "mine"
    assert mri_vit("export", "model", road, "-o", tmp_path / "nothing") == 2
    assert not (tmp_path / "nothing").exists()
    other = shutil.copytree(road / "model", tmp_path / "other")
    (other / "model.json").write_text((other / "model.json").read_text().replace(exported_model.SCHEMA, "mri-vit model 9"))
    with pytest.raises(UsageError, match=r"found 'mri-vit model 9'.*export the model again"):
        load_run(other)


def test_networks_of_an_older_version_that_hold_days_of_death_are_refused(road: Path, tmp_path: Path, capsys):
    net = network.load(road / "run" / "fold-1" / "best.safetensors")
    survival = next(head for head in net.heads if head.cuts_days)
    assert all(day % 7 == 0 for day in survival.cuts_days)
    net.heads = [replace(survival, cuts_days=(100.0, 412.0))]
    with pytest.raises(UsageError, match=r"fold-1: the head of os holds days on which patients died"):
        model._refuse_days_of_patients(net, road / "run" / "fold-1")


def test_its_weights_start_no_other_network_for_they_do_not_say_which_patients_they_saw(road: Path, tmp_path: Path, capsys):
    weights = road / "model" / "fold-1" / "best.safetensors"
    for exposed in (label_exposed, image_exposed):
        assert exposed(road / "run" / "fold-1" / "best.safetensors") is not None
        with pytest.raises(UsageError, match="do not say which patients"):
            exposed(weights)
    assert mri_vit("features", road / "run" / "study.toml", "--weights", weights, "-o", tmp_path / "features") == 2
    study = (road / "study.toml").read_text().replace('output = "run"', 'output = "another"')
    (road / "another.toml").write_text(study)
    code = mri_vit("train", road / "another.toml", *words({**SHRUNKEN, "model.weights": weights}))
    assert code == 2
    assert "do not say which patients" in capsys.readouterr().err


def test_the_settings_keep_no_path_and_nothing_of_the_machine(road: Path):
    study = load_run(road / "run").study
    given = study.model_copy(
        update={
            "model": study.model.model_copy(update={"weights": Path("/home/somebody/vit.pth")}),
            "prepare": study.prepare.model_copy(update={"workers": 9, "tumour_command": ("/home/somebody/seg", "{folder}")}),
        }
    )
    text = study_file.dumps(model.portable(given))
    assert "somebody" not in text
    assert "/" not in re.sub(r"#.*", "", text)
    assert model.portable(given).prepare.workers == 1


def test_the_card_has_mitchells_sections_the_figures_of_the_report_and_what_is_left_to_the_author(road: Path):
    card = (road / "model" / model_card.FILE).read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*)$", card, re.MULTILINE)
    assert sections == [
        *("Model", "Intended use", "Factors", "Metrics", "Training and evaluation data", "Results"),
        *("Ethical considerations", "Caveats"),
    ]
    metrics = json.loads((road / "run" / "report" / "metrics.json").read_text())
    own = metrics["endpoints"]["os"]["models"]["vit"]
    value, low, high = (own["judged"][key] for key in ("value", "low", "high"))
    assert f"C {value:.3f} [{low:.3f}, {high:.3f}], {own['n']} patients" in card
    assert "12 of 12 patients are synthetic" in card
    assert card.count(model_card.AUTHOR) == 2
    assert "withheld" in card


REQUIRED = {  # by the schema of 2024-07-25, whose address stands in the metadata
    *("schema", "version", "monai_version", "pytorch_version", "numpy_version", "required_packages_version", "task"),
    *("description", "authors", "copyright", "network_data_format"),
}
TENSOR = {
    "type": "object",
    "required": ["type", "format", "num_channels", "spatial_shape", "dtype", "value_range"],
    "properties": {
        "num_channels": {"type": "integer"},
        "spatial_shape": {"type": "array", "items": {"type": ["string", "integer"]}},
        "value_range": {"type": "array", "items": {"type": "number"}},
        "is_patch_data": {"type": "boolean"},
        "channel_def": {"type": "object"},
    },
}
TENSORS = {"type": "object", "additionalProperties": TENSOR}


def test_it_is_a_monai_bundle_that_monai_verifies_and_runs_with_the_same_scores(predicted: Path, tmp_path: Path):
    pytest.importorskip("fire")
    schema = {
        "required": sorted(REQUIRED),
        "properties": {
            "eval_metrics": {"type": "object"},
            "references": {"type": "array", "items": {"type": "string"}},
            "network_data_format": {"required": ["inputs", "outputs"], "properties": {"inputs": TENSORS, "outputs": TENSORS}},
        },
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))  # which is not downloaded where it is there
    configs, bundle = predicted / "model" / "configs", [sys.executable, "-m", "monai.bundle"]
    checked = [*bundle, "verify_metadata", "--meta_file", configs / "metadata.json", "--filepath", tmp_path / "schema.json"]
    done = subprocess.run(checked, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "verified with no error" in done.stdout + done.stderr
    asked = {
        "bundle_root": predicted / "model",
        "scans": predicted / "others.csv",
        "output_dir": tmp_path / "out",
        "show_untrusted": True,
    }
    options = [str(word) for key, value in asked.items() for word in (f"--{key}", value)]
    done = subprocess.run(
        [*bundle, "run", "--config_file", configs / "inference.json", *options], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    by_run, by_monai = (pd.read_csv(folder / "predictions.csv") for folder in (predicted / "by-run", tmp_path / "out"))
    assert np.abs(by_run.score - by_monai.score).max() < 1e-5
    assert by_run.endpoint.tolist() == by_monai.endpoint.tolist()
