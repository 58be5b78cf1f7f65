"""The whole road on real files, and each fault on the way: named, with its exit code, and nothing lost."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from made.study import made_here
from whole_road import hurry, mri_vit

from mri_vit import synthetic
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.finished.trained_run import TrainedRun, exposed_patients
from mri_vit.model import network
from mri_vit.model.weights import image_exposed
from mri_vit.settings import file as study_file
from mri_vit.settings import schema
from mri_vit.settings.recipe import CONTROLS, SLICES

pytestmark = [
    pytest.mark.long(111),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]

STUDY = """
name = "road"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
[grid]
edge = 28
spacing_mm = 8.0
patch = 2
[prepare]
brain = "none"
bias = false
workers = 2
[model]
dim = 16
depth = 2
heads = 2
mlp = 32
tokens = "foreground"
[train]
folds = 2
epochs = 2
token_budget = 64
threads = 1
[explain]
patients = 2
scored = 3
[[endpoints]]
name = "mgmt"
kind = "binary"
[[endpoints]]
name = "os"
kind = "survival"
time = "os_days"
event = "os_event"
"""


def spoiled(source: Path, target: Path, how: str) -> None:
    """A copy of a scan with one thing wrong."""
    image = nib.Nifti1Image.from_filename(source)
    array = np.asanyarray(image.dataobj).astype(np.float32)
    made = nib.Nifti1Image(array, image.affine)
    if how == "nan":
        array[3, 3, :3] = np.nan
    if how == "frames":
        moved = np.array(image.affine)
        moved[0, 3] += 5
        made.set_sform(image.affine, 1)
        made.set_qform(moved, 1)
    made.header["descrip"] = b"SECRET^NAME"
    nib.save(made, target)
    if how == "cut":
        target.write_bytes(target.read_bytes()[:5000])


@pytest.fixture(scope="module")
def road(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study whose first patients have something wrong, run to its end."""
    folder = tmp_path_factory.mktemp("road with spaces 한글")
    with scans.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row |= {c: str(scans.parent / row[c]) for c in (*schema.CHANNELS, "tumour_mask")}
    for row, how in zip(rows, ("nan", "frames", "cut", "named", "named"), strict=False):
        spoiled(Path(row["t1ce"]), folder / f"{row['patient']}-{how}.nii.gz", how)
        row["t1ce"] = f"{row['patient']}-{how}.nii.gz"
    rows[3]["t1ce"] = ""
    with (folder / "cohort.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (folder / "study.toml").write_text(STUDY)
    assert mri_vit("run", folder / "study.toml") == 3
    return folder


@pytest.fixture(autouse=True)
def hurried(road: Path, in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that every test looks at is made as users make it; what follows it does not wait for pictures and starts."""
    hurry(monkeypatch)


def test_unusable_patients_are_listed_with_file_and_reason_and_the_others_go_on(road: Path):
    excluded = pd.read_csv(road / "run" / "excluded.csv", keep_default_na=False)
    assert list(excluded.patient) == ["demo-001", "demo-002", "demo-003", "demo-004"]
    reasons = list(excluded.reason)
    assert "3 of" in reasons[0]
    assert "NaN" in reasons[0]
    assert "sform and qform disagree by 5.00 mm" in reasons[1]
    assert "bytes" in reasons[2]
    assert reasons[3] == "found t1, t2, flair; need t1ce as well"
    assert list(excluded.file) == ["demo-001-nan.nii.gz", "demo-002-frames.nii.gz", "demo-003-cut.nii.gz", ""]
    assert predictions.load(road / "run" / "predictions.csv").patient.nunique() == 12
    assert sorted(p.name for p in (road / "prepared").iterdir()) == [f"demo-{i:03d}" for i in range(5, 17)]


def test_a_run_leaves_what_the_design_promises(road: Path):
    run = road / "run"
    for name in (
        "study.toml",
        "environment.json",
        "cohort.csv",
        "folds.json",
        "predictions.csv",
        "survival.csv",
        "report/index.html",
    ):
        assert (run / name).exists(), name
    for fold in ("fold-1", "fold-2"):
        left = {p.name for p in (run / fold).iterdir()}
        assert {"best.safetensors", "history.csv", "predictions.csv"} <= left
        assert "last" not in left  # the state of a training that is done
    maps = sorted((run / "maps").glob("*/map.json"))
    assert [path.parent.name for path in maps] == ["demo-005", "demo-006"]
    told = json.loads(maps[0].read_text())
    found = [(one["method"], one["endpoint"]) for one in told["maps"]]
    assert found == [("rollout", ""), ("cls_attention", ""), ("gradient_attention", "mgmt"), ("gradient_attention", "os")]
    named = {name for one in told["maps"] for name in (*one["files"].values(), one["overlay"])} | {
        told["brain"],
        told["mask"],
        "map.json",
    }
    sidecars = {name.replace(".nii.gz", ".json") for one in told["maps"] for name in one["files"].values()}
    assert {path.name for path in maps[0].parent.iterdir()} == named | sidecars
    assert [path.stem for path in sorted((run / "scores").iterdir())] == ["demo-005", "demo-006", "demo-007"]
    assert (run / "mean_maps" / "group.json").is_file()
    assert json.loads((run / "maps" / "dataset_description.json").read_text())["DatasetType"] == "derivative"
    metrics = json.loads((run / "report" / "metrics.json").read_text())
    assert metrics["cohort"]["excluded"] == 4
    assert json.loads((run / "environment.json").read_text())["versions"]["torch"]


def test_the_controls_stand_in_the_same_table_on_the_same_folds(road: Path):
    table = predictions.load(road / "run" / "predictions.csv")
    assert set(table.model) == {"vit", *CONTROLS} - {SLICES}  # the demo names no file of a 2D network
    homes = table[table.model != "shuffled"].groupby(["patient", "endpoint"]).fold.nunique()
    assert (homes == 1).all()
    truth = {m: table[(table.model == m) & (table.endpoint == "mgmt")].set_index("patient").truth for m in set(table.model)}
    pd.testing.assert_series_equal(truth["vit"], truth["clinical"])
    assert not truth["vit"].equals(truth["shuffled"])
    assert truth["vit"].sum() == truth["shuffled"].sum()
    notes = json.loads((road / "run" / "notes.json").read_text())
    assert notes["clinical_columns"] == "age, sex"
    probe = pd.read_csv(road / "run" / "site_probe.csv")
    assert sorted(probe.patient) == sorted(truth["vit"].index)


def test_explain_takes_a_moved_run_folder_skips_what_is_done_and_makes_anew_what_other_settings_ask_for(
    road: Path, tmp_path: Path
):
    run = tmp_path / "run"
    shutil.copytree(road / "run", run)
    written = {path: path.stat().st_mtime_ns for path in [*(run / "maps").glob("*/map.json"), *(run / "scores").iterdir()]}
    gone = run / "scores" / "demo-006.json"
    gone.unlink()
    shutil.rmtree(run / "mean_maps")
    assert mri_vit("explain", run, "--prepare.workers", "1") == 0
    assert gone.is_file()
    assert (run / "mean_maps" / "group.json").is_file()
    assert {path: path.stat().st_mtime_ns for path in written if path != gone} == {p: t for p, t in written.items() if p != gone}
    fewer = ("--explain.methods", '["rollout"]', "--explain.scored", "0")
    assert mri_vit("explain", run, "--prepare.workers", "1", *fewer) == 0
    told = json.loads((run / "maps" / "demo-005" / "map.json").read_text())
    assert [one["method"] for one in told["maps"]] == ["rollout"]
    assert not list((run / "maps" / "demo-005").glob("*gradient*"))


def test_a_patient_whose_tumour_mask_cannot_be_read_is_excluded_before_anything_is_trained(scans: Path, tmp_path: Path):
    (tmp_path / "mask.nii.gz").write_bytes(b"nothing")
    files = ",".join(str(scans.parent / "demo-009" / f"{c}.nii.gz") for c in schema.CHANNELS)
    (tmp_path / "cohort.csv").write_text(
        f"patient,t1,t1ce,t2,flair,tumour_mask,mgmt,os_days,os_event\nA,{files},mask.nii.gz,1,300,1\n"
    )
    (tmp_path / "study.toml").write_text(STUDY)
    assert mri_vit("prepare", tmp_path / "study.toml") == 3
    assert "mask.nii.gz" in (tmp_path / "run" / "excluded.csv").read_text()


def test_a_patient_is_inspected_with_the_network_that_had_not_seen_them(road: Path, tmp_path: Path, capsys):
    folds = json.loads((road / "run" / "folds.json").read_text())["repeats"][0]["folds"]
    patient = folds[1][0]
    assert mri_vit("inspect", road / "run", "--patient", patient, "-o", tmp_path / "inside") == 0
    page = (tmp_path / "inside" / "index.html").read_text()
    assert patient in page
    assert "fold 2" in page
    assert mri_vit("inspect", road / "run", "--patient", patient, "--fold", "1", "-o", tmp_path / "other") == 2
    assert f"{patient}: not a test patient of fold 1" in capsys.readouterr().err
    assert mri_vit("inspect", road / "run", "--fold", "3", "-o", tmp_path / "other") == 2


def test_a_map_lies_on_the_voxels_of_the_patients_own_t1ce(road: Path, scans: Path):
    name = "sub-demo005_space-T1ce_desc-rollout_map.nii.gz"
    heat = nib.Nifti1Image.from_filename(road / "run" / "maps" / "demo-005" / name)
    scan = nib.Nifti1Image.from_filename(scans.parent / "demo-005" / "t1ce.nii.gz")
    assert heat.shape == scan.shape
    np.testing.assert_allclose(np.array(heat.affine), np.array(scan.affine), atol=1e-4)
    inside, brain = heat.get_fdata() > 0, scan.get_fdata() > 0
    assert (inside & brain).sum() / inside.sum() > 0.9  # the map is on the head, not beside it
    assert (inside & brain).sum() / brain.sum() > 0.8


def test_a_second_run_does_nothing_again_and_ends_with_the_same_bytes(road: Path):
    run = road / "run"
    kept = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.glob("fold-*/*.*")}
    before = (run / "predictions.csv").read_bytes()
    assert mri_vit("run", road / "study.toml") == 3
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.glob("fold-*/*.*")} == kept
    assert (run / "predictions.csv").read_bytes() == before


def test_the_same_study_from_scratch_gives_the_same_predictions(road: Path):
    for verb, code in (("prepare", 3), ("train", 0)):  # who is excluded was told by the first
        assert mri_vit(verb, road / "study.toml", "--output", "again") == code
    assert (road / "again" / "predictions.csv").read_bytes() == (road / "run" / "predictions.csv").read_bytes()
    assert (road / "again" / "folds.json").read_bytes() == (road / "run" / "folds.json").read_bytes()
    shutil.rmtree(road / "again")


def test_another_setting_on_the_same_folder_is_refused_with_the_difference(road: Path, capsys):
    assert mri_vit("run", road / "study.toml", "--train.epochs", "3") == 2
    assert "train.epochs: 2 then, 3 now" in capsys.readouterr().err


def test_a_changed_table_on_the_same_folder_is_refused(road: Path, capsys):
    text = (road / "cohort.csv").read_text()
    try:
        (road / "cohort.csv").write_text(text.replace("demo-016", "demo-116"))
        assert mri_vit("run", road / "study.toml") == 2
        assert "cohort table has changed" in capsys.readouterr().err
    finally:
        (road / "cohort.csv").write_text(text)


def test_a_run_is_refused_while_another_holds_the_folder_and_a_stale_lock_is_taken_over(road: Path, capsys):
    lock = str(road / "run" / ".lock")
    code = f"from filelock import FileLock; held = FileLock({lock!r}); held.acquire(); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert mri_vit("report", road / "study.toml") == 5
        assert "held by another run" in capsys.readouterr().err
        process.kill()
    assert mri_vit("report", road / "study.toml") == 0


def test_new_patients_are_predicted_by_all_folds_models(road: Path, scans: Path):
    (road / "new.csv").write_text(
        "patient,t1,t1ce,t2,flair\n"
        + ",".join(["n1", *(str(scans.parent / "demo-004" / f"{c}.nii.gz") for c in schema.CHANNELS)])
        + "\n"
    )
    assert mri_vit("predict", road / "run", "--cohort", road / "new.csv", "--output", road / "new") == 0
    table = pd.read_csv(road / "new" / "predictions.csv")
    marks = ["withheld", "untrusted", "outside", "trusted", "synthetic"]
    assert list(table.columns) == ["patient", "endpoint", "score", "probability", "call", "models", *marks]
    assert list(table.endpoint) == ["mgmt", "os"]
    assert set(table.models) == {2}
    survival = pd.read_csv(road / "new" / "survival.csv")
    assert list(survival.horizon_days) == list(predictions.HORIZONS_DAYS)


def external(road: Path, table: Path, more: str = "") -> Path:
    """The study file of another cohort."""
    folder = road / "elsewhere"
    folder.mkdir(exist_ok=True)
    head = f'name = "elsewhere"\ncohort = "{table}"\nprepared = "prepared"\noutput = "run"\n{more}'
    (folder / "study.toml").write_text(head + STUDY[STUDY.index("[[endpoints]]") :])
    return folder / "study.toml"


def test_a_run_is_judged_on_another_cohort_without_refitting(road: Path, tmp_path_factory, capsys, monkeypatch):
    made_here(monkeypatch)
    table = synthetic.make(tmp_path_factory.mktemp("others"), seed=6, patients=8)
    weights = {p: p.read_bytes() for p in (road / "run").rglob("*") if p.is_file()}
    assert mri_vit("evaluate", road / "run", "--study", external(road, table)) == 0
    assert {p: p.read_bytes() for p in weights} == weights
    run = road / "elsewhere" / "run"
    found = predictions.load(run / "predictions.csv")
    assert set(found.model) == {"vit", "clinical", "volume", "intensity", "site"}
    assert found[(found.model == "vit") & (found.endpoint == "mgmt")].patient.nunique() == 8
    inside = predictions.load(road / "run" / "predictions.csv")
    past = inside[(inside.model == "vit") & (inside.endpoint == "os")].groupby("fold").threshold.first().mean()
    assert found[(found.model == "vit") & (found.endpoint == "os")].threshold.iloc[0] == pytest.approx(past)
    metrics = json.loads((run / "report" / "metrics.json").read_text())
    assert metrics["design"] == "external"
    own = {"model": "vit", "repeat": 0, "fold": 0}  # maps are of one network, whose references are the run's
    assert [{key: one[key] for key in own} for one in metrics["maps"]] == [own, own]
    assert metrics["map_scores"]["patients"] == 3
    scored = json.loads((run / "scores" / "demo-001.json").read_text())
    assert all(row[key] is not None for row in scored["rows"] for key in ("folds", "shuffled", "noise"))
    assert set(metrics["drift"]) == {"mgmt", "os"}
    inside_again = predictions.load(run / "internal.csv")
    assert sorted(inside_again.score) == sorted(inside[inside.model.isin(found.model)].score)
    assert not set(inside_again.patient) & set(inside.patient)
    made = {file: file.stat().st_mtime_ns for file in (run / "maps").rglob("*.nii.gz")}
    assert mri_vit("evaluate", road / "run", "--study", external(road, table)) == 0
    assert {file: file.stat().st_mtime_ns for file in (run / "maps").rglob("*.nii.gz")} == made  # what is done is skipped
    assert "nothing was fitted again" in (run / "report" / "index.html").read_text()
    settings = (run / "study.toml").read_bytes()
    assert metrics["settings"]["model"]["dim"] == 16  # the run's, which the other cohort's study file does not name
    assert mri_vit("report", road / "elsewhere" / "study.toml") == 2
    assert "model.dim: 16 then, 64 now" in capsys.readouterr().err
    assert (run / "study.toml").read_bytes() == settings
    for verb in ("explain", "inspect"):
        assert mri_vit(verb, run) == 2
        assert "another run's evaluation" in capsys.readouterr().err


def test_the_runs_own_patients_are_no_external_cohort_under_another_id_and_packed_anew(road: Path, scans: Path, tmp_path, capsys):
    files = []
    for channel in schema.CHANNELS:
        content = gzip.decompress((scans.parent / "demo-009" / f"{channel}.nii.gz").read_bytes())
        files.append(tmp_path / f"{channel}.nii.gz")
        files[-1].write_bytes(gzip.compress(content, 1))
    head = "patient,t1,t1ce,t2,flair,mgmt,os_days,os_event\n"
    (tmp_path / "cohort.csv").write_text(head + ",".join(["stranger", *map(str, files), "1", "5", "1"]) + "\n")
    study = external(road, tmp_path / "cohort.csv")
    assert mri_vit("evaluate", road / "run", "--study", study, "--output", tmp_path / "own", "--prepared", tmp_path / "prep") == 2
    assert "patient stranger has a scan of demo-009" in capsys.readouterr().err


def test_patients_whose_labels_the_runs_weights_knew_before_are_no_external_cohort(road: Path, scans: Path, tmp_path, capsys):
    shutil.copytree(road / "run", tmp_path / "run")
    weights = tmp_path / "run" / "fold-1" / "best.safetensors"
    begun = network.load(weights)
    begun.label_exposed += ("known-before",)  # as of a network trained on another hospital's labels
    begun.image_exposed += ("seen-before", "demo-009")  # whose scans it was pretrained on; the run's own do not count
    network.save(begun, weights)
    (weights.parent / "hashes.json").unlink()  # as of an older version, whose files are taken as they are
    row = ",".join(["known-before", *(str(scans.parent / "demo-009" / f"{c}.nii.gz") for c in schema.CHANNELS), "1", "5", "1"])
    (tmp_path / "cohort.csv").write_text("patient,t1,t1ce,t2,flair,mgmt,os_days,os_event\n" + row + "\n")
    study = external(road, tmp_path / "cohort.csv")
    assert mri_vit("evaluate", tmp_path / "run", "--study", study, "--output", tmp_path / "own") == 2
    assert "known-before would be no external test" in capsys.readouterr().err
    past = study_file.load(tmp_path / "run" / "study.toml")
    people = [Patient(name, {}, {}, {}) for name in ("seen-before", "demo-009", "stranger")]
    known = exposed_patients(TrainedRun(tmp_path / "run", past), people, image_exposed)
    assert set().union(*known.values()) == {"seen-before"}  # as the report then says


@pytest.mark.parametrize(
    ("more", "message"),
    [("[model]\ndim = 48\n", "[model] belongs to the run"), ("[grid]\nedge = 448\n", "[grid] belongs to the run")],
)
def test_an_evaluation_cannot_change_the_model_or_the_preparation(road: Path, scans: Path, capsys, more: str, message: str):
    assert mri_vit("evaluate", road / "run", "--study", external(road, scans, more), "--output", road / "own") == 2
    assert message in capsys.readouterr().err


def test_a_table_made_elsewhere_is_reported(road: Path, tmp_path):
    inside = predictions.load(road / "run" / "predictions.csv").query("model == 'vit' and endpoint == 'mgmt'")
    inside[["patient", "endpoint", "score"]].to_csv(tmp_path / "scores.csv", index=False)
    table = str(road / "cohort.csv")
    assert mri_vit("report", "--predictions", tmp_path / "scores.csv", "--cohort", table, "-o", tmp_path / "out") == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    expected = json.loads((road / "run" / "report" / "metrics.json").read_text())["endpoints"]["mgmt"]["models"]["vit"]
    assert metrics["endpoints"]["mgmt"]["models"]["model"]["auc"]["value"] == expected["auc"]["value"]
    assert (tmp_path / "out" / "index.html").exists()
    assert mri_vit("report", "--predictions", tmp_path / "scores.csv", "-o", tmp_path / "out") == 2
    inside.assign(patient="stranger" + inside.patient)[["patient", "endpoint", "score"]].to_csv(tmp_path / "s.csv", index=False)
    assert mri_vit("report", "--predictions", tmp_path / "s.csv", "--cohort", table, "-o", tmp_path / "out") == 2


def test_no_header_text_and_no_folder_of_a_scan_reaches_what_others_read(road: Path, scans: Path):
    outputs = [
        f for part in ("run/report", "run/maps", "run/fold-1", "prepared") for f in (road / part).rglob("*") if f.is_file()
    ]
    assert len(outputs) > 40
    for file in [*outputs, road / "run" / "excluded.csv", road / "run" / "predictions.csv"]:
        content = file.read_bytes()
        content = gzip.decompress(content) if file.suffix == ".gz" else content
        assert b"SECRET" not in content, file
        assert str(scans.parent.parent).encode() not in content, file


def faulty(folder: Path, table: str, study: str = STUDY) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "cohort.csv").write_text(table)
    (folder / "study.toml").write_text(study)
    return folder / "study.toml"


HEAD = "patient,t1,t1ce,t2,flair,mgmt,os_days,os_event\n"


@pytest.mark.parametrize(
    ("table", "study", "message"),
    [
        (
            HEAD + "a,1,2,3,4,1,5,1\n",
            STUDY.replace("epochs", "epoch"),
            "unknown key 'train.epoch'; the nearest known one is 'epochs'",
        ),
        (HEAD.replace("mgmt", "mgmt_status") + "a,1,2,3,4,1,5,1\n", STUDY, "no column 'mgmt'; the nearest one is 'mgmt_status'"),
        (HEAD + "a,1,2,3,4,yes,5,1\n", STUDY, "row 2, column mgmt: 'yes'"),
        (HEAD + "a,1,2,3,4,1,5,1\na,1,2,3,4,1,5,1\n", STUDY, "row 3: patient id 'a' repeats 'a' in row 2"),
        (HEAD + "../x,1,2,3,4,1,5,1\n", STUDY, "patient id '../x'"),
        (HEAD + "a,1,2,3,4,1,5,1\n", STUDY, "2 folds, but 1 patients with 1 and 0 with 0"),
    ],
)
def test_a_wrong_study_or_table_ends_a_run_with_2_before_anything_is_started(
    tmp_path, capsys, table: str, study: str, message: str
):
    assert mri_vit("run", faulty(tmp_path / "in", table, study)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "in" / "prepared").exists()


@pytest.mark.parametrize("anew", [False, True], ids=["the same files", "saved anew as floats, unpacked, under other names"])
def test_the_same_scans_under_two_ids_are_refused(scans: Path, tmp_path, capsys, anew: bool):
    own = [scans.parent / "demo-009" / f"{c}.nii.gz" for c in schema.CHANNELS]
    files, copies = ",".join(map(str, own)), own
    if anew:
        copies = [tmp_path / f"copy-{index}.nii" for index in range(len(own))]
        for file, copy in zip(own, copies, strict=True):
            scan = nib.Nifti1Image.from_filename(file)
            nib.save(nib.Nifti1Image(scan.get_fdata(dtype=np.float32), scan.affine), copy)
    other = ",".join(str(scans.parent / "demo-010" / f"{c}.nii.gz") for c in schema.CHANNELS)
    rows = [f"a,{files},1,5,1", f"b,{','.join(map(str, copies))},0,6,1", f"c,{other},1,5,1", f"d,{other},0,5,1"]
    assert mri_vit("prepare", faulty(tmp_path, HEAD + "\n".join(rows) + "\n")) == 2
    assert "patients a and b share a scan" in capsys.readouterr().err


def test_help_is_at_hand_without_heavy_imports():
    heavy = "{'torch', 'monai', 'nilearn', 'SimpleITK'}"
    code = f"import sys; from mri_vit import cli; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_names_the_libraries_and_the_device(capsys):
    assert mri_vit("--version") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("mri-vit ", "torch ", "monai ", "device "))
