"""Work on a cluster: what is lost is done again, who always dies is named, and a process that starts again finds its jobs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from made.jobs import refuse, square_of, visible

from mri_vit.cli import exit_code
from mri_vit.data.cohort import Patient
from mri_vit.errors import JobsLeft, Killed, OutOfResource, UsageError
from mri_vit.prepare.patient import faults_of
from mri_vit.run import atomic, executors, jobs
from mri_vit.run.jobs import Done, Lost, Task, Workplace
from mri_vit.settings import file as study_file
from mri_vit.settings.sections import Executor


class Pretended:
    """A cluster that does tasks when it is asked for their ends, as `lose` lets it."""

    most = 2

    def __init__(self, lose: Callable[[Task], bool] = lambda task: False) -> None:
        self.lose, self.tasks, self.dropped = lose, dict[str, Task](), list[str]()
        self.open: set[str] = set()

    def __enter__(self) -> Pretended:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, tasks: Sequence[Task]) -> list[str]:
        names = [f"{len(self.tasks) + number}" for number in range(len(tasks))]
        self.tasks |= dict(zip(names, tasks, strict=True))
        self.open |= set(names)
        return names

    def waiting(self, names: Sequence[str]) -> set[str]:
        return self.open & set(names)

    def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
        name = names[0]
        task = pickle.loads(pickle.dumps(self.tasks[name]))
        self.open.discard(name)
        return {name: Lost("its node went away") if self.lose(task) else task()}

    def drop(self, names: Sequence[str]) -> None:
        self.dropped += names

    def left(self, names: Sequence[str]) -> str:
        return f"{len(names)} jobs stay in the queue"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pretended], Pretended]:
    """Makes a pretended cluster the one that settings name."""

    def made(cluster: Pretended) -> Pretended:
        monkeypatch.setattr(executors, "_cluster", lambda at: cluster)
        return cluster

    return made


def at(home: Path, bundle: int = 1, retries: int = 2) -> Workplace:
    return Workplace(1, home, bundle, Executor(kind="slurm", retries=retries))


JOBS = {f"p{number}": (number,) for number in range(7)}


def test_patients_travel_in_bundles_and_results_come_by_patient(tmp_path, on):
    cluster = on(Pretended())
    assert dict(executors.each(square_of, JOBS, at(tmp_path / "jobs" / "s", bundle=3))) == {f"p{n}": n**2 for n in range(7)}
    assert [list(task.jobs) for task in cluster.tasks.values()] == [["p0", "p1", "p2"], ["p3", "p4", "p5"], ["p6"]]
    assert not (tmp_path / "jobs").exists(), "what was known of them is needed no more"


def test_a_bundle_that_is_lost_is_done_patient_by_patient_and_who_always_dies_is_named_after_the_retries(tmp_path, on):
    cluster, home = on(Pretended(lambda task: "p4" in task.jobs)), tmp_path / "jobs" / "s"
    found, working = {}, executors.each(square_of, JOBS, at(home, bundle=3, retries=2))
    with pytest.raises(Killed, match=r"p4: lost 3 times.*its node went away") as end:  # noqa: PT012 (it raises last)
        for name, result in working:
            found[name] = result
    assert found == {f"p{n}": n**2 for n in range(7) if n != 4}
    assert [list(task.jobs) for task in cluster.tasks.values()][3:] == [["p3"], ["p4"], ["p5"], ["p4"]]
    assert end.value.exit_code == 4
    page = jobs.read_ledger(home)
    assert page is not None
    assert list(page.failed) == ["p4"], "for those who ask how far the run is"


def test_what_a_job_raises_is_raised_as_it_is_and_what_has_not_begun_is_taken_back(tmp_path, on):
    cluster = on(Pretended())
    with pytest.raises(UsageError, match="0 is refused"):
        list(executors.each(refuse, JOBS, at(tmp_path / "s")))
    assert cluster.dropped == [f"{number}" for number in range(1, 7)]


def test_a_process_that_starts_again_waits_for_the_jobs_that_it_had_handed_in(tmp_path, on):
    cluster, home = on(Pretended()), tmp_path / "jobs" / "s"
    working = executors.each(square_of, JOBS, at(home, bundle=2))
    first = next(working)
    del working  # it dies
    assert len(cluster.tasks) == 4
    again = dict(executors.each(square_of, {name: JOBS[name] for name in JOBS if name != first[0]}, at(home, bundle=2)))
    assert again == {f"p{n}": n**2 for n in range(7) if f"p{n}" != first[0]}
    assert [list(task.jobs) for task in cluster.tasks.values()][4:] == [["p1"]], "its bundle had ended, the others were found"


def test_jobs_that_were_handed_in_with_other_settings_are_not_waited_for(tmp_path, on):
    cluster, home = on(Pretended()), tmp_path / "jobs" / "s"
    next(executors.each(square_of, JOBS, at(home)))
    other = {name: (number + 10,) for name, (number,) in JOBS.items()}
    assert dict(executors.each(square_of, other, at(home))) == {f"p{n}": (n + 10) ** 2 for n in range(7)}
    assert len(cluster.tasks) == 2 * len(JOBS)


def test_what_was_handed_in_is_known_again_in_another_process_and_with_other_settings_of_the_cluster(tiny):
    """Sets have another order in every process, and pickles of settings with them."""
    code = (
        "import sys; from pathlib import Path; from made.jobs import a_task; from mri_vit.settings import file;"
        " print(a_task(file.load(Path(sys.argv[1]), dict(word.split('=') for word in sys.argv[2:]))).digests()['p1'])"
    )
    study = tiny.cohort.parent / "study.toml"
    study.write_text(study_file.dumps(tiny))

    def digest(seed: str, *settings: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, "-c", code, str(study), *settings]
        return subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout

    first = digest("1")
    assert digest("2") == first
    assert digest("3", "slurm.time=7", "executor.retries=9") == first
    assert digest("1", "train.epochs=9") != first


def test_a_job_that_had_ended_before_is_done_again_rather_than_believed(tmp_path, on):
    """Its files say what is done; a scan may have been mended since."""
    cluster, home = on(Pretended()), tmp_path / "s"
    next(executors.each(square_of, JOBS, at(home, bundle=7)))
    assert dict(executors.each(square_of, JOBS, at(home, bundle=7))) == {f"p{n}": n**2 for n in range(7)}
    assert len(cluster.tasks) == 2


def test_whoever_stops_the_run_leaves_its_jobs_and_is_told_how_to_end_them(tmp_path, on, capsys):
    class Stopped(Pretended):
        def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
            raise KeyboardInterrupt

    cluster = on(Stopped())
    with pytest.raises(JobsLeft):
        list(executors.each(square_of, JOBS, at(tmp_path / "s")))
    assert cluster.dropped == []
    assert exit_code.of(lambda: list(executors.each(square_of, JOBS, at(tmp_path / "s")))) == 130
    assert "7 jobs stay in the queue" in capsys.readouterr().err


def test_a_job_of_slurm_is_lost_when_it_has_left_the_queue_without_a_result(tmp_path, monkeypatch):
    import submitit

    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 1))
    queue, said, now = executors.Queue(at(tmp_path)), ["7_0\n7_1\n"], [0.0]
    monkeypatch.setattr(executors, "_ask", lambda *command: said[0])
    monkeypatch.setattr(executors.time, "monotonic", lambda: now[0])
    assert queue.ended(["7_0", "7_1"]) == {}
    said[0] = "7_1\n"
    assert queue.ended(["7_0", "7_1"]) == {}, "its result may be on its way"
    now[0] = executors.LATE_S
    lost = queue.ended(["7_0", "7_1"])
    assert list(lost) == ["7_0"]
    assert isinstance(lost["7_0"], Lost)
    assert "7_0_0_log.out" in lost["7_0"].how
    assert "`scancel 7`" in queue.left(["7_0", "7_1"])


def test_while_squeue_does_not_answer_nothing_is_lost(tmp_path, monkeypatch):
    import submitit

    def silent(*command: str) -> str:
        raise OutOfResource("squeue: timed out")

    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 1))
    monkeypatch.setattr(executors, "LATE_S", 0.0)
    queue = executors.Queue(at(tmp_path))
    monkeypatch.setattr(executors, "_ask", silent)
    assert queue.ended(["7_0"]) == {}
    assert queue.ended(["7_0"]) == {}


def test_what_an_earlier_attempt_failed_at_is_not_said_of_the_next(tmp_path):
    home = tmp_path / "jobs" / "s"
    jobs.Ledger("local", failed={"p1": "killed"}).write(home)
    working = executors.each(square_of, JOBS, Workplace(1, home))
    next(working)
    assert jobs.read_ledger(home) is None
    assert len(list(working)) == len(JOBS) - 1
    assert not home.exists()


def test_patients_whom_a_cluster_lost_are_not_excluded(tiny, tmp_path, on):
    """A node without the disk loses hundreds, of whom none has a fault."""
    on(Pretended(lambda task: True))
    patient = Patient("p1", {}, {}, {})
    with pytest.raises(Killed, match="p1: lost"):
        list(faults_of({"p1": (patient, tiny)}, at(tmp_path / "s")))


def test_what_stops_a_job_from_outside_is_no_fault_of_its_own(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):  # submitit's handler could not put it back into the queue
        Task(subprocess.check_call, {"p1": (["false"],)}, tmp_path)()


def test_a_fault_says_in_which_job_it_was_raised_and_where(tmp_path):
    (fault, _) = Task(refuse, {"p1": (1,)}, tmp_path)()["p1"]
    assert fault is not None
    assert "in the job p1" in fault.__notes__[0]
    assert "made/jobs.py" in pickle.loads(pickle.dumps(fault)).__notes__[0]


def test_an_array_has_no_more_jobs_than_a_cluster_takes():
    assert executors.ARRAY_JOBS < 1000


def test_each_process_sees_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    found = dict(executors.each(visible, {f"p{number}": () for number in range(6)}, Workplace(2)))
    assert {seen for seen, _ in found.values()} == {"3", "5"}
    assert len(set(found.values())) == 2, "a process keeps its GPU"


def test_a_training_on_several_gpus_has_them_for_itself(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7,8")
    assert jobs.gpus(1) == ["3", "5", "6", "7", "8"]
    assert jobs.gpus(2) == ["3,5", "6,7"]
    assert jobs.gpus(6) == []


def test_a_queue_that_does_not_answer_hides_no_fault(tmp_path, on):
    class Silent(Pretended):
        def drop(self, names: Sequence[str]) -> None:
            raise OutOfResource("scancel: timed out")

    on(Silent())
    with pytest.raises(UsageError, match="0 is refused"):
        list(executors.each(refuse, JOBS, at(tmp_path / "s")))


def test_a_part_that_another_process_is_writing_is_left_alone(tmp_path):
    mine, alive = (f".x.{atomic._host()}-{pid}-00000000{atomic.FILE_ENDING}" for pid in (os.getpid(), os.getppid()))
    foreign = f".x.elsewhere-1-00000000{atomic.FILE_ENDING}"
    for name in (mine, alive, foreign):
        (tmp_path / name).touch()
    atomic.sweep_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive, foreign])
