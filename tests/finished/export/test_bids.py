"""A run as a BIDS dataset: the BIDS validator finds no error in it, images lie where the scans lie, and no label is in it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nibabel.affines import apply_affine
from scipy.ndimage import map_coordinates
from whole_road import SHRUNKEN, mri_vit, words

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.finished.export import bids
from mri_vit.finished.export.bids import subject_labels
from mri_vit.finished.trained_run import open_run
from mri_vit.run.folder import run_settings

VALIDATOR = Path(sys.executable).with_name("bids-validator-deno")
SUFFIXES = {"t1": "T1w", "t1ce": "T1w", "t2": "T2w", "flair": "FLAIR"}
FOUND = 5  # the row of the patient whose mask is as if found
NEAR_MM = 0.1  # how near two affines place a voxel
# What only a cohort table knows, and no image or record: values that no other number of the dataset is.
PLANTED = {"os_days": "98761", "age": "61.4142", "sex": "planted-sex", "site": "planted-site"}

pytestmark = [pytest.mark.long(20), pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")]  # notes on this machine


@pytest.fixture(scope="module")
def home(finished: Path, tmp_path_factory: pytest.TempPathFactory, in_this_process: None) -> Path:
    """A copy of the run with odd labels and maps of two patients.

    One patient is a visit, two have ids of the same letters, and the mask of one is as if it had been found.
    """
    home = Path(shutil.copytree(finished, tmp_path_factory.mktemp("bids") / "finished"))
    settings = {**SHRUNKEN, "train.epochs": 1, "explain.patients": 2, "explain.scored": 0}
    assert mri_vit("explain", home / "study.toml", *words(settings)) == 0
    with (home / "run" / "cohort.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row |= {column: value for column, value in PLANTED.items() if row[column]}
    ids = [row["patient"] for row in rows]
    rename(home, rows, ids[0], "twin-1", "before.op")
    rename(home, rows, ids[2], "TWIN1", "")
    as_found(home, rows[FOUND])
    with (home / "run" / "cohort.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return home


def rename(home: Path, rows: list[dict[str, str]], old: str, patient: str, session: str) -> None:
    """Make a patient of the run another, in every record that an export reads."""
    new = f"{patient}_{session}" if session else patient
    for row in rows:
        row.setdefault("session", "")
        if row["patient"] == old:
            row |= {"patient": patient, "session": session}
    for place in (home / "prepared", home / "run" / "maps"):
        if (place / old).exists():
            (place / old).rename(place / new)
            for record in (*(place / new).glob("patient.json"), *(place / new).glob("map.json")):
                record.write_text(record.read_text().replace(f'"patient": "{old}"', f'"patient": "{new}"'))
    for name in ("folds.json", "prepared.json"):
        file = home / "run" / name
        file.write_text(file.read_text().replace(f'"{old}"', f'"{new}"'))
    (home / "run" / "folds.sha256").write_text(hashlib.sha256((home / "run" / "folds.json").read_bytes()).hexdigest())


def as_found(home: Path, row: dict[str, str]) -> None:
    """Take a patient's mask out of the table and put it where the finder leaves one."""
    folder = home / "prepared" / row["patient"]
    with (home / "cohort.csv").open(newline="") as file:
        masks = {one["patient"]: one["tumour_mask"] for one in csv.DictReader(file)}
    mask = Path(shutil.copyfile(masks[row["patient"]], folder / "tumour.nii.gz"))
    row["tumour_mask"] = ""
    record = json.loads((folder / "patient.json").read_text())
    record["files"]["tumour.nii.gz"] = hashlib.sha256(mask.read_bytes()).hexdigest()
    (folder / "patient.json").write_text(json.dumps(record))


@pytest.fixture(scope="module")
def dataset(home: Path) -> Path:
    assert mri_vit("export", "bids", home / "run", "-o", home / "bids", "--licence", "CC-BY-4.0") == 0
    return home / "bids"


def errors(dataset: Path) -> list[tuple[str, str]]:
    """What the BIDS validator, with the schema in its own package, calls an error: code and file."""
    done = subprocess.run([VALIDATOR, dataset, "--format", "json"], capture_output=True, text=True, timeout=300)
    issues = json.loads(done.stdout)["issues"]["issues"]
    return [(issue["code"], issue["location"]) for issue in issues if issue["severity"] == "error"]


def prepared(home: Path) -> Iterator[tuple[str, Path]]:
    """By `sub-` label, with the session, the folder of each prepared patient."""
    with (home / "run" / "cohort.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = subject_labels([row["patient"] for row in rows])
    for row in rows:
        visit = f"{row['patient']}_{row['session']}" if row["session"] else row["patient"]
        session = "_ses-" + "".join(filter(str.isalnum, row["session"])) if row["session"] else ""
        yield f"sub-{labels[row['patient']]}{session}", home / "prepared" / visit


def image(dataset: Path, prefix: str, entities: str) -> nib.Nifti1Image:
    return loaded(dataset / prefix.replace("_", "/") / "anat" / f"{prefix}_{entities}.nii.gz")


def loaded(file: str | Path) -> nib.Nifti1Image:
    found = nib.load(file)  # type: ignore[attr-defined]
    assert isinstance(found, nib.Nifti1Image)
    return found


def test_the_bids_validator_finds_no_error_and_overlooks_nothing_but_maps(dataset: Path, tmp_path: Path):
    assert errors(dataset) == []
    bare = shutil.copytree(dataset, tmp_path / "bare")
    (bare / ".bidsignore").write_text("")
    without = errors(bare)
    assert {code for code, _ in without} == {"NOT_INCLUDED"}
    maps = {f"/{file.relative_to(dataset)}" for file in dataset.rglob("*_map.*")}
    assert {file for _, file in without} == maps
    wrong = next(bare.rglob("*_mask.nii.gz"))
    wrong.rename(wrong.with_name(wrong.name.replace("_mask", "_space-again_mask")))
    assert len(errors(bare)) > len(without), "the validator itself refuses what is no name of BIDS"


def test_prepared_scans_have_the_numbers_of_the_tokens_on_the_grid_of_the_study(home: Path, dataset: Path):
    grid = run_settings(home / "run").grid
    for prefix, folder in prepared(home):
        volumes = tokens.to_volume(tokens.load(folder / "tokens.safetensors"))
        for volume, (sequence, suffix) in zip(volumes, SUFFIXES.items(), strict=True):
            contrast = "ce-gadolinium_" if sequence == "t1ce" else ""
            found = image(dataset, prefix, f"{contrast}space-grid_desc-preproc_{suffix}")
            assert np.array_equal(np.asanyarray(found.dataobj), volume.astype(np.float32))
            assert found.affine == pytest.approx(np.array(grid.affine), abs=1e-4)
            assert found.header.get_xyzt_units()[0] == "mm"
            assert b"synthetic" in bytes(found.header["descrip"]), "a made-up scan stays marked as made up"
        brain = np.asanyarray(image(dataset, prefix, "space-grid_desc-brain_mask").dataobj)
        assert np.array_equal(brain > 0, (volumes != 0).any(axis=0))


def test_left_is_left_a_scan_shows_where_it_lies_what_the_original_shows_there(home: Path, dataset: Path):
    with (home / "cohort.csv").open(newline="") as file:
        flair = [row["flair"] for row in csv.DictReader(file)]
    for (prefix, folder), original in zip(prepared(home), flair, strict=True):
        found, scan = image(dataset, prefix, "space-grid_desc-preproc_FLAIR"), loaded(original)
        inside = np.argwhere(np.asanyarray(image(dataset, prefix, "space-grid_desc-brain_mask").dataobj))
        from_grid = np.linalg.inv(json.loads((folder / "patient.json").read_text())["to_grid"]["flair"])
        points = apply_affine(found.affine, inside)
        values = np.asanyarray(found.dataobj)[tuple(inside.T)]

        def likeness(points: np.ndarray, scan=scan, values=values, from_grid=from_grid) -> float:
            at = apply_affine(np.linalg.inv(np.array(scan.affine)) @ from_grid, points)
            return float(np.corrcoef(map_coordinates(scan.get_fdata(), at.T, order=1), values)[0, 1])

        assert likeness(points) > 0.8
        assert likeness(points) > likeness(points * [-1, 1, 1]) + 0.2
        assert likeness(points) > max(likeness(points + shift) for shift in 7.0 * np.vstack([np.eye(3), -np.eye(3)]))


def test_tumour_masks_lie_in_the_tumour_and_maps_on_the_patients_own_scans_byte_for_byte(home: Path, dataset: Path):
    with (home / "cohort.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    mapped = 0
    for (prefix, folder), row in zip(prepared(home), rows, strict=True):
        anat = dataset / prefix.replace("_", "/") / "anat"
        scans = {space: loaded(row[space.lower()]) for space in ("T1", "T1ce", "T2", "FLAIR")}
        truth = loaded(row["tumour_mask"])
        drawn = image(dataset, prefix, "space-grid_label-tumour_mask")
        to_grid = np.array(json.loads((folder / "patient.json").read_text())["to_grid"]["t1ce"])
        middle = apply_affine(to_grid @ truth.affine, np.argwhere(truth.get_fdata() > 0)).mean(axis=0)
        found = apply_affine(drawn.affine, np.argwhere(drawn.get_fdata() > 0)).mean(axis=0)
        assert np.linalg.norm(found - middle) < 7.0, "a voxel of this grid"
        of_run = home / "run" / "maps" / folder.name
        for file in anat.glob("*_map.nii.gz"):
            mapped += 1
            entities = file.name.removeprefix(f"{prefix}_")
            (source,) = of_run.glob(f"*_{entities}")
            assert file.read_bytes() == source.read_bytes()
            space = entities.partition("_")[0].removeprefix("space-")
            if space in scans:
                shown = loaded(file)
                assert shown.shape == scans[space].shape
                corners = np.array([[0, 0, 0], shown.shape])
                assert np.abs(apply_affine(shown.affine, corners) - apply_affine(scans[space].affine, corners)).max() < NEAR_MM
    ((prefix, folder),) = [one for n, one in enumerate(prepared(home)) if n == FOUND]
    copies = list(dataset.rglob("*_space-T1ce_label-tumour_mask.nii.gz"))
    assert [copy.name for copy in copies] == [f"{prefix}_space-T1ce_label-tumour_mask.nii.gz"], "a given mask is the cohort's"
    assert copies[0].read_bytes() == (folder / "tumour.nii.gz").read_bytes()
    assert mapped == sum(1 for _ in (home / "run" / "maps").glob("*/*_map.nii.gz")) > 0


def test_every_image_has_a_sidecar_whose_sources_are_there(home: Path, dataset: Path):
    for file in dataset.rglob("*.nii.gz"):
        about = json.loads(file.with_name(file.name.replace(".nii.gz", ".json")).read_text())
        assert about["Description"]
        assert about["SpatialReference"]
        for source in about.get("Sources", ()):
            assert (dataset / source.removeprefix("bids::")).is_file()
        if "SourceSHA256" in about:
            assert about["SkullStripped"] is True
    with (home / "cohort.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    prefix, _ = next(prepared(home))
    of_t1 = dataset / prefix.replace("_", "/") / "anat" / f"{prefix}_space-grid_desc-preproc_T1w.json"
    assert json.loads(of_t1.read_text())["SourceSHA256"] == hashlib.sha256(Path(first["t1"]).read_bytes()).hexdigest()


def test_the_dataset_names_its_patients_and_holds_no_label_no_clinical_column_and_no_path(home: Path, dataset: Path):
    with (dataset / "participants.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    with (home / "run" / "cohort.csv").open(newline="") as file:
        cohort = list(csv.DictReader(file))
    assert [row["source_id"] for row in rows] == [row["patient"] for row in cohort]
    assert set(rows[0]) == {"participant_id", "source_id"}
    assert {row["participant_id"] for row in rows} == {folder.name for folder in dataset.glob("sub-*")}
    hidden = [*PLANTED.values(), str(home), "mgmt,", "os_days", *(os.path.dirname(row["t1"]) for row in cohort)]
    for file in filter(Path.is_file, dataset.rglob("*")):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        assert not [word for word in hidden if word.encode() in content], file
    description = json.loads((dataset / "dataset_description.json").read_text())
    assert description["License"] == "CC-BY-4.0"
    assert hashlib.sha256((home / "run" / "cohort.csv").read_bytes()).hexdigest() in str(description["SourceDatasets"])
    assert "12 of 12 patients are synthetic" in " ".join((dataset / "README").read_text().split())


def test_a_missing_sequence_has_no_file_and_another_sequence_its_own_name(home: Path, tmp_path: Path):
    run, channels = open_run(home / "run"), ("t1ce", "flair", "adc", "asl_cbf")
    prepare = run.study.prepare.model_copy(update={"needs": ("t1ce",)})
    study = run.study.model_copy(update={"channels": channels, "prepare": prepare, "prepared": tmp_path / "prepared"})
    brain = np.zeros((32, 32, 32), bool)
    brain[8:24, 8:24, 8:24] = True
    volume = np.random.default_rng(0).normal(size=(4, 32, 32, 32)).astype(np.float32)
    volume[1] = 0  # there is no FLAIR
    folder = study.prepared / "P_1"
    folder.mkdir(parents=True)
    tokens.save(tokens.from_volume(volume, brain, study.grid, "-", channels), folder / "tokens.safetensors")
    there = ("t1ce", "adc", "asl_cbf")
    record = {
        "config_sha256": "-",
        "inputs": {name: {"sha256": name} for name in there},
        "steps": [{"step": "read", "methods": "Scans were read.", "scans": {name: {"notes": []} for name in there}}],
        "to_grid": {"t1ce": np.eye(4).tolist()},
    }
    (folder / "patient.json").write_text(json.dumps(record))
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    bids.write_prepared(bids.Visit(Patient("P_1", {}, {}, {}), dataset, "sub-P1"), study)
    bids.write_head(dataset, replace(run, study=study), {"P_1": "P1"}, None)
    assert {str(file.relative_to(dataset / "sub-P1")) for file in dataset.rglob("*.nii.gz")} == {
        "anat/sub-P1_ce-gadolinium_space-grid_desc-preproc_T1w.nii.gz",
        "dwi/sub-P1_space-grid_desc-preproc_ADC.nii.gz",
        "anat/sub-P1_space-grid_desc-preproc_ASLCBF.nii.gz",
        "anat/sub-P1_space-grid_desc-brain_mask.nii.gz",
    }
    assert errors(dataset) == []


def test_ids_of_the_same_letters_and_digits_stay_two_patients():
    labels = subject_labels(["A-1", "A1", "a.1", "B_2", "B_2", "c"])
    assert labels["B_2"] == "B2"
    assert labels["c"] == "c"
    assert len({label.lower() for label in labels.values()}) == len(labels) == 5
    assert all(label.isalnum() for label in labels.values())
    assert labels == subject_labels(["c", "B_2", "a.1", "A1", "A-1"]), "whatever the order"


def test_what_cannot_be_exported_is_refused_in_words_and_leaves_nothing(
    home: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = sorted(dataset.rglob("*"))
    assert mri_vit("export", "bids", home / "run", "-o", dataset) == 2
    assert "choose a new or an empty folder" in capsys.readouterr().err
    assert sorted(dataset.rglob("*")) == before
    assert mri_vit("export", "bids", tmp_path, "-o", tmp_path / "out") == 2
    assert "a run whose training has ended" in capsys.readouterr().err
    spoiled = Path(shutil.copytree(home, tmp_path / "spoiled"))
    next((spoiled / "run" / "maps").glob("*/*_map.nii.gz")).unlink()
    assert mri_vit("export", "bids", spoiled / "run", "-o", tmp_path / "out") == 6
    assert "is not there" in capsys.readouterr().err
    (spoiled / "prepared" / "TWIN1" / "tokens.safetensors").write_bytes(b"other")
    assert mri_vit("export", "bids", spoiled / "run", "-o", tmp_path / "out") == 6
    assert "TWIN1" in capsys.readouterr().err
    shutil.rmtree(spoiled / "prepared" / "TWIN1")
    assert mri_vit("export", "bids", spoiled / "run", "-o", tmp_path / "out") == 2
    assert "TWIN1 is not prepared here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".building").exists()
