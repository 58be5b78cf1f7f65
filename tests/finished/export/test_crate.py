"""A run's provenance as an RO-Crate: valid, true to the run's files, and without a word of any patient."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made.run import make_run
from whole_road import mri_vit

from mri_vit.settings import file as study_file

ROOT = Path(__file__).parents[3]
VALIDATOR = ROOT / ".validator" / "bin" / "python"
# What the profile recommends and a run does not know, or what would name a person: who acted, authors, publisher; and no address
# of this software is known.
LEFT_OUT = {
    "The Action SHOULD have an agent that is a Person or Organization",
    "The Root Data Entity SHOULD have a link to a Contextual Entity representing the `author` of the RO-Crate",
    "The `publisher` property of a `Root Data Entity` SHOULD be an `Organization`",
    "The organization SHOULD have a URL.",
    "The Application SHOULD have a url",
    "The SoftwareApplication id SHOULD be an absolute URI",
}
GUESSED = ("excluded.csv", "qc.csv", "qc_decisions.csv", "notes.json")  # whose hash would confirm a guess of an id

pytestmark = [pytest.mark.long(20), pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")]  # notes on this machine


@pytest.fixture(scope="module")
def crate(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("crate") / "crate"
    assert mri_vit("export", "crate", finished / "run", "-o", target) == 0
    return target


def graph(crate: Path) -> dict[str, dict[str, Any]]:
    entities = json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    by_id = {entity["@id"]: entity for entity in entities}
    assert len(by_id) == len(entities)
    return by_id


def listed(found: Any) -> list[str]:
    return [one["@id"] for one in (found if isinstance(found, list) else [found])]


def test_the_validator_of_ro_crates_and_another_reader_take_it_as_a_process_run_crate(crate: Path):
    if not VALIDATOR.exists():
        pytest.skip("roc-validator is not installed; `make validator` does it")
    script = ROOT / "tests" / "made" / "roc_validator.py"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def found(of: Path) -> dict[str, Any]:
        done = subprocess.run([VALIDATOR, script, of], capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    result = found(crate)
    assert len(result["checks"]) > 90
    assert {check.rpartition("_")[0].partition("_")[0] for check in result["checks"]} >= {"ro-crate-1.1", "process-run-crate-0.5"}
    assert not result["skipped"]
    assert [issue for issue in result["issues"] if issue[0] == "REQUIRED"] == []
    assert {message for _, _, message in result["issues"]} == LEFT_OUT
    assert set(result["files"]) == {"study.toml", "environment.json", "results.json"}
    assert result["actions"]["#report"] == ["#run/report/metrics.json", "#run/report/index.html"]
    spoiled = Path(shutil.copytree(crate, crate.parent / "spoiled"))
    text = (spoiled / "ro-crate-metadata.json").read_text()
    (spoiled / "ro-crate-metadata.json").write_text(text.replace('"instrument"', '"unknown"'))
    assert [issue for issue in found(spoiled)["issues"] if issue[0] == "REQUIRED"], "the validator finds what is wrong"


def test_every_hash_and_size_is_the_files_and_every_reference_leads_to_an_entity(finished: Path, crate: Path):
    entities = graph(crate)
    checked = 0
    for entity in entities.values():
        if "sha256" in entity and not entity["@id"].endswith("/"):
            name = entity["@id"]
            file = finished / "run" / name.removeprefix("#run/") if name.startswith("#run/") else crate / name
            assert entity["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
            assert entity["contentSize"] == str(file.stat().st_size)
            checked += 1
        for value in entity.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict) and one["@id"] != "https://w3id.org/ro/crate/1.1":
                    assert one["@id"] in entities
    weights = {f"#run/{file.relative_to(finished / 'run')}" for file in (finished / "run").rglob("best.safetensors")}
    assert weights
    assert weights <= set(entities)
    assert checked >= len(weights) + 10
    assert not [name for name in GUESSED if f"#run/{name}" in entities]
    assert {file.name for file in crate.iterdir()} == {"study.toml", "environment.json", "results.json", "ro-crate-metadata.json"}


def test_each_action_says_what_it_made_of_what_with_which_software_when_and_on_what(finished: Path, crate: Path):
    entities = graph(crate)
    environment = json.loads((finished / "run" / "environment.json").read_text())
    assert (crate / "environment.json").read_bytes() == (finished / "run" / "environment.json").read_bytes()
    software = next(entity for entity in entities.values() if entity.get("name") == "mri_vit")
    assert software["softwareVersion"] == environment["versions"]["mri-vit"]
    assert str(environment["git_commit"]) in software.get("identifier", "None")
    versions = {entities[one]["name"]: entities[one]["softwareVersion"] for one in listed(software["softwareRequirements"])}
    assert versions == {name: version for name, version in environment["versions"].items() if name != "mri-vit"}
    fold = entities["#train/fold-1"]
    assert listed(fold["result"]) == ["#run/fold-1/best.safetensors"]
    assert "#run/folds.json" in listed(fold["object"])
    assert environment["device"] in fold["description"]
    began, ended = (datetime.fromisoformat(fold[key]).timestamp() for key in ("startTime", "endTime"))
    seconds = json.loads((finished / "run" / "fold-1" / "cost.json").read_text())["training_seconds"]
    assert began + seconds - 1 <= ended <= (finished / "run" / "predictions.csv").stat().st_mtime  # both in whole seconds
    assert entities["#prepare"]["startTime"] == environment["started"]
    assert all(listed(action["instrument"]) == [software["@id"]] for action in entities.values() if "instrument" in action)


def test_a_copy_of_a_run_made_without_its_times_has_no_times_of_copying_for_ends(finished: Path, tmp_path: Path):
    copied = Path(shutil.copytree(finished / "run", tmp_path / "run", copy_function=shutil.copyfile))
    for file in copied.rglob("*"):
        os.utime(file, (2e9, 2e9))
    assert mri_vit("export", "crate", copied, "-o", tmp_path / "crate") == 0
    actions = [entity for entity in graph(tmp_path / "crate").values() if entity["@type"] == "CreateAction"]
    assert [action["@id"] for action in actions if "endTime" in action] == ["#export"]
    assert all("startTime" in action for action in actions if action["@id"].startswith("#train/"))


def test_results_are_those_of_the_report_and_of_no_single_patient(finished: Path, crate: Path):
    found = json.loads((crate / "results.json").read_text())
    report = json.loads((finished / "run" / "report" / "metrics.json").read_text())
    assert set(found["endpoints"]) == set(report["endpoints"])
    for name, endpoint in found["endpoints"].items():
        for model, result in endpoint["models"].items():
            of_report = report["endpoints"][name]["models"][model]
            assert {key: result[key] for key in ("n", "judged", "verdict")} == {
                key: of_report[key] for key in ("n", "judged", "verdict")
            }
    assert set(found) == {"design", "patients", "folds", "repeats", "endpoints", "rules"}


def test_the_settings_are_the_runs_without_a_path(finished: Path, crate: Path):
    of_run, of_crate = (study_file.load(home / "study.toml") for home in (finished / "run", crate))
    same = {"cohort", "prepared", "output"}
    assert of_crate.model_dump(exclude=same) == of_run.model_dump(exclude=same)
    assert {getattr(of_crate, key).parent for key in same} == {crate}


def planted(folder: Path) -> tuple[Path, list[str]]:
    """A made-up run whose table, settings and reasons have words that occur nowhere else; the run, and all of them."""
    run = make_run(folder / "Zeppelin-Klinik" / "run")
    table = pd.read_csv(run / "cohort.csv", dtype=str, keep_default_na=False)
    renamed = {"North": "Planted-Hospital-N", "South": "Planted-Hospital-S", "West": "Planted-Hospital-W"}
    table["site"] = table.site.replace(renamed)
    table["physician"] = [f"Dr Planted {row}" for row in range(len(table))]
    table["t1"] = [f"/archive/Planted/{row}/t1.nii.gz" for row in range(len(table))]
    table.to_csv(run / "cohort.csv", index=False)
    machine = '[slurm]\npartition = "planted-queue"\noptions = {account = "planted-account"}\n'
    programs = '[prepare]\nbrain = "command"\nbrain_command = ["/home/planted/bin/hd-bet", "-i", "{input}", "-o", "{output}"]\n'
    text = (run / "study.toml").read_text()
    at = text.index("[")
    text = (
        re.sub(r'cohort = ".*"', 'cohort = "/archive/Planted/cohort-of-planted.csv"', text[:at]) + machine + programs + text[at:]
    )
    (run / "study.toml").write_text(text)
    (run / "environment.json").write_text(
        json.dumps(json.loads((run / "environment.json").read_text()) | {"started": "2026-01-01T00:00:00+00:00"})
    )
    with (run / "cohort.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ids = [row["patient"] for row in rows if len(row["patient"]) > 2]  # NA is a word as well
    days = [row["os_days"] for row in rows if len(row["os_days"]) > 3]
    cells = [row[column] for row in rows for column in ("site", "physician", "t1", "t1ce") if row[column]]
    return run, ["planted", "Zeppelin", "X-1", *ids, *days, *cells]


def test_no_byte_of_it_is_an_id_a_label_a_path_or_a_name(tmp_path: Path, finished: Path, crate: Path):
    run, hidden = planted(tmp_path)
    target = tmp_path / "crate"
    assert mri_vit("export", "crate", run, "-o", target) == 0
    assert len(hidden) > 200
    assert found_in(target, hidden) == []
    with (finished / "cohort.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = [row[column] for row in rows for column in ("patient", "t1", "t1ce", "t2", "flair", "tumour_mask")]
    days = [row["os_days"] for row in rows if len(row["os_days"]) > 2]
    assert found_in(crate, [*cells, *days, str(finished), *(cell.replace("-", "") for cell in cells)]) == []
    (target / "results.json").write_text(f'{{"patient": "{rows[0]["patient"]}"}}')
    assert found_in(target, cells), "the search finds an id"


def found_in(folder: Path, hidden: list[str]) -> list[str]:
    """Which of these a folder holds as words of their own, in any file, none of which is compressed."""
    content = b"\n".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert {file.suffix for file in folder.iterdir()} <= {".json", ".toml"}
    word = rb"(?<![0-9A-Za-z.])%b(?![0-9A-Za-z]|\.\d)"  # a hash has digits too, and letters beside them; 007 is no id in 0.007
    return [one for one in set(hidden) if re.search(word % re.escape(one.encode()), content, re.IGNORECASE)]


def test_the_software_is_cited_and_licensed_as_the_citation_file_says(crate: Path):
    citation = (ROOT / "CITATION.cff").read_text()
    software = next(entity for entity in graph(crate).values() if entity.get("name") == "mri_vit")
    for key in ("title", "version", "license"):
        found = re.search(rf'^{key}: "?(.*?)"?$', citation, re.MULTILINE)
        assert found
        assert found[1] in software["creditText"]
    (author,) = re.findall(r"^  - name: (.*)$", citation, re.MULTILINE)
    assert graph(crate)["#authors"]["name"] == author
    assert software["license"] == {"@id": "https://spdx.org/licenses/Apache-2.0"}
    assert "Not stated" in graph(crate)["#licence"]["name"]


def test_what_is_no_finished_run_or_was_changed_is_refused_and_leaves_nothing(
    finished: Path, crate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert mri_vit("export", "crate", finished / "run", "-o", crate) == 2
    assert "choose a new or an empty folder" in capsys.readouterr().err
    assert mri_vit("export", "crate", tmp_path, "-o", out) == 2
    spoiled = Path(shutil.copytree(finished / "run", tmp_path / "spoiled"))
    with (spoiled / "predictions.csv").open("a") as file:
        file.write("\n")
    assert mri_vit("export", "crate", spoiled, "-o", out) == 6
    assert "predictions.csv: it was changed" in capsys.readouterr().err
    assert not out.exists()
