"""Work in processes of its own: one that is killed is named, and everybody else is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made.jobs import refuse, square, started_with

from mri_vit.errors import Killed, MriVitError, UsageError
from mri_vit.prepare.patient import faults_of
from mri_vit.run import executors, jobs
from mri_vit.run.jobs import Workplace

WAYS = {"each starts anew": (), "all are copies of one": ("made.jobs", "mri_vit.run.executors")}  # modules imported before


@pytest.mark.parametrize("imported", WAYS.values(), ids=WAYS)
def test_one_who_is_killed_is_named_and_all_others_are_done_whoever_worked_beside(imported, tmp_path):
    jobs = {f"p{number}": (number, tmp_path) for number in range(1, 7)}
    found, working = {}, executors.each(square, jobs, Workplace(2, imported=imported))
    with pytest.raises(Killed, match=r"p3: its process was killed \(SIGKILL\)") as end:  # noqa: PT012 (it raises last)
        for patient, result in working:
            found[patient] = result
    assert found == {f"p{number}": number**2 for number in (1, 2, 4, 5, 6)}
    assert list(end.value.how) == ["p3"]
    assert end.value.exit_code == 4
    begun = {path.name: len(path.read_text()) for path in tmp_path.iterdir()}
    assert begun["begun-3"] == 2  # once among others, once alone
    assert sum(begun.values()) <= 6 + 2  # nobody else but the one beside was begun twice


def test_a_patient_on_whom_a_process_was_killed_is_excluded_with_the_signal(monkeypatch):
    def each(*arguments: object) -> Iterator[tuple[str, None]]:
        yield "p1", None
        raise Killed({"p2": "its process was killed (SIGKILL)"})

    monkeypatch.setattr(executors, "each", each)
    found = dict(faults_of({}, Workplace(2)))
    assert found == {"p1": None, "p2": {"file": "", "reason": "its process was killed (SIGKILL)"}}


def test_a_process_that_ends_itself_is_no_patients_fault():
    with pytest.raises(MriVitError, match=r"a process ended with exit code 9 .*\(for p1\)"):
        list(executors.each(os._exit, {"p1": (9,)}, Workplace(1)))


def test_what_the_function_raises_is_raised():
    with pytest.raises(UsageError, match="1 is refused"):
        list(executors.each(refuse, {"p1": (1,)}, Workplace(1)))


@pytest.mark.parametrize("imported", WAYS.values(), ids=WAYS)
def test_a_process_has_the_environment_of_the_time_when_it_started_and_sees_its_own_gpu(imported, monkeypatch):
    monkeypatch.setattr(jobs, "gpus", lambda devices: ["7"])
    for value in ("first", "second"):
        monkeypatch.setenv("SAID", value)
        ((_, (_, environment)),) = executors.each(started_with, {"p1": ()}, Workplace(1, imported=imported))
        assert (environment.pop("CUDA_VISIBLE_DEVICES"), environment["SAID"]) == ("7", value)
        assert environment.items() <= os.environ.items()


ASKS_ONE = """
from made.jobs import started_with
from mri_vit.run import files
from mri_vit.run.jobs import Workplace, run_in_processes
if __name__ == "__main__":
    ((_, (modules, _)),) = run_in_processes(started_with, {{"p1": ()}}, Workplace(1, imported={imported}))
    print(modules["mri_vit.run.files"] == files.__file__, "mri_vit.run.executors" in modules)
"""


@pytest.mark.parametrize("imported", WAYS.values(), ids=WAYS)
def test_a_process_runs_the_code_of_the_one_that_started_it_whatever_lies_in_the_current_folder(imported, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "script.py").write_text(ASKS_ONE.format(imported=imported))
    for name in ("mri_vit/__init__.py", "random.py"):  # another copy, and a name of the standard library's
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise ValueError('the wrong one')")
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
    command = [sys.executable, str(tmp_path / "there" / "script.py")]
    said = subprocess.check_output(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, text=True)
    assert said.split() == ["True", str(bool(imported))]


STARTS_ONE = """
from pathlib import Path
from made.jobs import say_and_wait
from mri_vit.run.jobs import Workplace, run_in_processes
if __name__ == "__main__":
    list(run_in_processes(say_and_wait, {{"p1": (Path.cwd(),)}}, Workplace(1, imported={imported})))
"""


@pytest.mark.parametrize("imported", WAYS.values(), ids=WAYS)
def test_no_process_outlives_the_one_that_started_it_however_that_was_killed(imported, tmp_path):
    (tmp_path / "script.py").write_text(STARTS_ONE.format(imported=imported))
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
    parent = subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path})
    try:
        eventually((tmp_path / "process").exists)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    started = map(int, (tmp_path / "process").read_text().split())
    for process in started:
        eventually(lambda process=process: not alive(process))


def eventually(true: Callable[[], bool]) -> None:
    """Wait until it is, for at most a minute."""
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it never was")


def alive(process: int) -> bool:
    """Whether it runs: not one that has ended and is not asked how."""
    status = Path(f"/proc/{process}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
