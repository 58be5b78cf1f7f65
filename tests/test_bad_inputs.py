"""What a user may hand over by mistake: each gets a sentence and an exit code, none a traceback, and nothing hangs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from made.inputs import ended, nifti
from made.metrics import filled
from reproductions.ablation import variants
from reproductions.features import __main__ as features
from reproductions.ladder import __main__ as ladder
from reproductions.pretraining_size import __main__ as pretraining_size
from reproductions.rotation import __main__ as rotation
from reproductions.saeed2023_table4 import __main__ as table4
from reproductions.segmentation import __main__ as segmentation
from rich.console import Console

from mri_vit import study
from mri_vit.cli import exit_code
from mri_vit.data import cohort
from mri_vit.data.volume import read as read_volume
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.prepare.patient import fault_of
from mri_vit.report.pages import report_files
from mri_vit.run import folder as run_folder
from mri_vit.run import screen
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file

TABLE = "patient,t1,t1ce,t2,flair,mgmt\n"
STUDY = """
name = "bad"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
[model]
dim = 16
depth = 1
heads = 2
mlp = 16
[train]
folds = 2
[[endpoints]]
name = "mgmt"
kind = "binary"
"""


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A study of six patients, each of whom has four scans."""
    rows = []
    for index in range(6):
        names = [f"{index}{channel}.nii" for channel in "abcd"]
        for name in names:
            array = np.random.default_rng([index, ord(name[1])]).integers(0, 900, (5, 4, 3)).astype(np.int16)
            (tmp_path / name).write_bytes(nifti(array))
        rows.append(f"p{index},{','.join(names)},{index % 2}\n")
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "cohort.csv").write_text(TABLE + "".join(rows))
    (tmp_path / "s").touch()
    return tmp_path / "study.toml"


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("nope/[/b]/t1.nii.gz", "no such file"),
        ("a\0b.nii.gz", "NUL character"),
        ("a" * 5000, "File name too long"),
        ("b/" * 2500, "too long|no such file"),
        ("loop", "a link that leads back to itself"),
        ("fifo", r"a pipe \(FIFO\); expected a file"),
        ("folder", "a folder; expected a file"),
        ("/dev/zero", "a device"),
        ("series", "a folder of DICOM files.*dcm2niix"),
    ],
)
def test_a_scan_that_is_no_file_excludes_one_patient_and_says_what_it_is(asked: Path, capsys, cell: str, said: str):
    folder = asked.parent
    (folder / "loop").symlink_to("loop")
    pipe(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "series").mkdir()
    (folder / "series" / "I0001").write_bytes(bytes(128) + b"DICM")
    table = (folder / "cohort.csv").read_text()
    (folder / "cohort.csv").write_text(table.replace("1a.nii", cell))
    assert ended("check", asked) == 3
    found = " ".join(capsys.readouterr().out.split())
    assert found.count("- p1: t1: ") == 1
    assert re.search(said, found)
    patient = cohort.read(folder / "cohort.csv", ())[1]
    assert patient.scans["t1"]
    with pytest.raises(UnusablePatient):
        read_volume(patient.scans["t1"])
    assert fault_of(patient, study_file.load(asked))  # in a worker


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "long cell", "quotation mark", "empty", "lines", "NUL"])
def test_a_cohort_table_that_is_none_is_refused_at_once(asked: Path, capsys, kind: str):
    table = asked.parent / "cohort.csv"
    text = table.read_text()
    table.unlink()
    if kind == "pipe":
        pipe(table)
    elif kind == "folder":
        table.mkdir()
    elif kind == "loop":
        table.symlink_to(table.name)
    else:
        long = {"long cell": f'{text}"{"x" * 200_000}"', "quotation mark": text.replace("p1", '"p1') + "y" * 140_000}
        table.write_text(long.get(kind, {"empty": "", "lines": "\n\n", "NUL": "\0" * 99}.get(kind, "")))
    assert ended("check", asked) == 2
    said = capsys.readouterr().err
    assert "cohort.csv" in said
    assert "Traceback" not in said


def test_a_study_file_or_folder_of_the_wrong_kind_is_refused(asked: Path, capsys):
    folder = asked.parent
    (folder / "prepared").write_text("a file")
    assert ended("prepare", asked) == 2
    assert f"prepared {folder / 'prepared'}: not a folder" in capsys.readouterr().err
    assert ended("prepare", asked, "--output", folder / "s") == 2
    assert "is no folder" in capsys.readouterr().err
    assert ended("check", pipe(folder / "pipe.toml")) == 2
    assert ended("check", "a" * 5000) == 2
    assert ended("check", asked, "--model.weights", "[/b]/none.safetensors") == 2
    assert ended("report", "--predictions", pipe(folder / "p.csv"), "--cohort", folder / "cohort.csv", "-o", folder / "r") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_text_from_outside_is_printed_as_it_is(capsys):
    console = Console(width=80)
    screen.say(console, "[/b] :smile: [red]x \x1b[2J \udcff χ²\xa0=\xa03", screen.WARNING)
    with progress(console) as bar:
        bar.update(bar.add_task("[/red]", total=1, note="[/x]"), advance=1)
    said = capsys.readouterr().out
    assert "[/b] :smile: [red]x \\x1b[2J \\udcff χ²\xa0=\xa03" in said
    assert "[/red]" in said
    assert "[/x]" in said


def test_results_of_a_model_that_looks_like_markup_are_printed(monkeypatch, tmp_path, capsys):
    from mri_vit.report.pages import report_files
    from mri_vit.report.pages.report_files import Written

    monkeypatch.setattr(
        report_files, "result_rows", lambda metrics: [report_files.ResultRow("[/endpoint]", "[/red]", "1", "", "")]
    )
    monkeypatch.setattr(report_files, "verdict_lines", lambda metrics: ["[/x] is better"])
    report_files.print_results(Written(tmp_path / "index[b].html", filled({})), Console(width=80))
    said = capsys.readouterr().out
    assert all(word in said for word in ("[/endpoint]", "[/red]", "[/x] is better", "index[b].html"))


def test_a_column_of_endless_numbers_is_refused_with_its_patient(asked: Path, capsys):
    table = asked.parent / "cohort.csv"
    cells = ["lab", "1", "inf", "2", "3", "4", "5"]
    lines = table.read_text().splitlines()
    table.write_text("\n".join(f"{line},{cell}" for line, cell in zip(lines, cells, strict=True)))
    assert ended("check", asked) == 2
    assert "patient p1, column lab: 'inf'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300, "cohort.csv/run"])
@pytest.mark.parametrize("key", ["output", "prepared"])
def test_a_folder_that_no_system_can_make_is_a_usage_error(asked: Path, capsys, key: str, name: str):
    assert ended("prepare", asked, f"--{key}", name) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_name_with_nul_is_a_usage_error(asked: Path, capsys):
    asked.write_text(asked.read_text().replace('output = "run"', 'output = "o\\u0000p"'))
    assert ended("prepare", asked) == 2
    assert "NUL character" in capsys.readouterr().err


def test_files_that_no_run_of_ours_wrote_are_not_written_over(asked: Path, capsys):
    table = asked.parent.parent / "elsewhere.csv"
    table.write_bytes((asked.parent / "cohort.csv").read_bytes())
    mine = asked.read_bytes()
    assert ended("prepare", asked, "--output", ".", "--cohort", table) == 2
    assert "which no run of ours wrote" in capsys.readouterr().err
    assert asked.read_bytes() == mine
    assert not (asked.parent / ".lock").exists()


def test_excluded_rows_hold_no_control_character_and_no_endless_path(asked: Path):
    (asked.parent / "cohort.csv").write_text(TABLE + f"p0,{'a' * 5000},s,s,s,1\np1,\x1b[31m,s,s,s,0\n")
    assert ended("prepare", asked) == 3
    text = (asked.parent / "run" / "excluded.csv").read_text()
    assert "\x1b" not in text
    assert len(text) < 1000


def test_a_fault_of_ours_says_so_and_ends_with_1(capsys):
    def verb() -> None:
        raise ZeroDivisionError("[/b]")

    assert exit_code.of(verb) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "a bug in mri-vit" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "`script.py` needs FILE; `script.py --help` lists its arguments"),
        (["a.toml", "b.toml"], "unexpected b.toml; `script.py --help` lists the arguments of `script.py`"),
        (["a.toml", "--seeds", "1"], "unknown option --seeds; did you mean --seed?"),
        (["a.toml", "--seed", "x"], 'invalid value for --seed: unable to convert "x" into int'),
        (["a.toml"], "a.toml: seed 1"),
    ],
)
def test_a_script_is_told_in_one_line_what_was_wrong(words: list[str], told: str, monkeypatch, capsys):
    def main(file: Path, *, seed: int = 1) -> None:
        raise UsageError(f"{file}: seed {seed}")

    monkeypatch.setattr(sys, "argv", ["pipelines/script.py", *words])
    assert exit_code.of_script(main) == 2
    assert capsys.readouterr().err == f"mri-vit: {told}\n"


def test_a_script_that_is_interrupted_says_how_to_go_on(monkeypatch, capsys):
    def main() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["pipelines/script.py"])
    assert exit_code.of_script(main) == 130
    assert "interrupted; the same command continues" in capsys.readouterr().err


@pytest.mark.parametrize("script", [features, ladder, pretraining_size, rotation, segmentation, table4, variants])
def test_scripts_of_the_papers_figures_name_a_file_that_is_not_there(script: ModuleType, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"pipelines/{script.__name__}.py", str(tmp_path / "nosuch")])
    assert exit_code.of_script(script.main) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nosuch: no " in line


@pytest.mark.parametrize(
    ("script", "option", "value", "expected"),
    [
        (rotation, "--workers", "0", ">= 1"),
        (rotation, "--limit", "-1", ">= 1"),
        (variants, "--workers", "0", ">= 1"),
        (pretraining_size, "--workers", "0", ">= 1"),
        (pretraining_size, "--seed", "-1", ">= 0"),
        (features, "--starts", "0", ">= 2"),
        (features, "--starts", "1", ">= 2"),
        (features, "--seed", "-1", ">= 0"),
        (ladder, "--seeds", "-1", ">= 0"),
    ],
)
def test_a_number_that_a_script_cannot_take_is_refused_before_anything_is_read(
    script: ModuleType, option: str, value: str, expected: str, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", [f"pipelines/{script.__name__}.py", "nosuch.toml", option, value])
    assert exit_code.of_script(script.main) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf'mri-vit: invalid value "\(?{value},?\)?" for {option}\. Must be {expected}', line)


MAE = """
[explain]
patients = 0
scored = 0
[[comparators]]
name = "mae"
pretrain = { method = "mae" }
"""
CNN = '[explain]\npatients = 0\nscored = 0\n[[comparators]]\nname = "cnn"\nmodel = { architecture = "resnet10" }\n'


@pytest.mark.parametrize(
    ("script", "further", "said"),
    [
        (segmentation, CNN, "cnn: attention is of architecture vit, found resnet10"),
        (features, MAE, "found 0 patients without a label; pretraining needs 16 or more"),
        (pretraining_size, "", "the first of [[endpoints]] is the target"),
        (variants, "", "train.seeds is the number of runs"),
    ],
)
def test_a_study_that_a_script_cannot_make_is_refused_before_anybody_is_prepared(
    script: ModuleType, further: str, said: str, asked: Path, monkeypatch, capsys
):
    asked.write_text(asked.read_text() + further)
    monkeypatch.setattr(study, "prepare", lambda *_: pytest.fail("somebody was prepared"))
    monkeypatch.setattr(sys, "argv", [f"pipelines/{script.__name__}.py", str(asked)])
    assert exit_code.of_script(script.main) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_report_of_a_study_takes_output_as_every_verb_does(asked: Path, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(report_files, "report_run", lambda folder, console, pages: shown.append(folder))
    other = asked.parent / "other"
    assert ended("report", asked, "--output", other) == 2  # nothing is there to be reported
    assert not other.exists()
    with run_folder.claimed(study_file.load(asked, {"output": str(other)})):
        (other / "predictions.csv").write_text("")
    assert ended("report", asked, "--output", other) == 0
    assert shown == [other]
    assert ended("report", other, "--output", asked.parent / "else") == 2
    assert "its output is fixed" in capsys.readouterr().err
    assert ended("report", asked, "--predictions", "x.csv", "--output", "y") == 2
    assert "expected either a study file" in capsys.readouterr().err


MEASURED = """
import sys
from mri_vit import cli
try:
    cli.main(sys.argv[1:])
finally:
    heavy = {"torch", "sklearn", "SimpleITK", "monai", "lightning_fabric", "lifelines", "nilearn"} & set(sys.modules)
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))  # of this process alone
    print("HEAVY", sorted(heavy), peak)
"""


def measured(*arguments: object) -> tuple[str, int]:
    """Which slow packages a command imported, and its peak memory in kilobytes."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *(str(argument) for argument in arguments)], capture_output=True, text=True
    )
    return next(line for line in done.stdout.splitlines() if line.startswith("HEAVY")), done.returncode


@pytest.mark.parametrize("fault", ["table", "key", "labels", "weights"])
def test_a_usage_error_imports_nothing_slow(asked: Path, fault: str):
    table = asked.parent / "cohort.csv"
    extra = []
    if fault == "table":
        table.write_text("patient\np1\n")
    if fault == "key":
        extra = ["--train.epoch", "5"]
    if fault == "labels":
        table.write_text(table.read_text().replace(",1\n", ",0\n"))
    if fault == "weights":
        extra = ["--model.weights", "none.safetensors"]
    said, code = measured("check", asked, *extra)
    assert code == 2
    assert "HEAVY []" in said
