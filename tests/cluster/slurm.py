"""A SLURM of two machines on this one, of Debian's packages: apt install slurmctld slurmd slurm-client munge, as root.

python tests/cluster/slurm.py FOLDER starts it, prints the SLURM_CONF to export, and stops it at the end of standard input.

There is no accounting database, as on many small clusters: nothing tells how a job ended that left no result. The partition
`low` gives way to `high`: its jobs are put back into the queue.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

NODES = ("n1", "n2")
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
STARTS_S = 30.0  # until both machines are idle; two seconds here
CONFIGURATION = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
SlurmdTimeout=10
InactiveLimit=0
KillWait=2
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
"""


def lacking() -> list[str]:
    """The programs that are not there; a word where this user may not start them."""
    found = [name for name in NEEDED if not shutil.which(name, path=PATH)]
    return found or ([] if os.geteuid() == 0 else ["root"])


@contextmanager
def running(folder: Path) -> Iterator[dict[str, int]]:
    """The cluster, which lies in `folder`; SLURM_CONF is set meanwhile. Gives each machine's process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").mkdir(exist_ok=True)
    ports = free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=16000"
        for name, port in zip(NODES, ports[1:], strict=True)
    )
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(host=socket.gethostname(), folder=folder, ports=ports, nodes=nodes).lstrip()
    )
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    before, os.environ["SLURM_CONF"] = os.environ.get("SLURM_CONF"), str(folder / "slurm.conf")
    with ExitStack() as stack:
        stack.callback(_restore, before)
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        _started(stack, folder, ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files])
        _waited(lambda: (folder / "munge.socket").exists())
        _started(stack, folder, ["slurmctld", "-D", "-c"])
        machines = {name: start(stack, folder, name) for name in NODES}
        _waited(lambda: asked("sinfo", "--noheader", "--Node", "--partition=low", "--format=%t").split() == ["idle"] * len(NODES))
        try:
            yield machines
        finally:
            asked("scancel", "--user", "root")


def start(stack: ExitStack, folder: Path, name: str) -> int:
    """A machine's daemon, which the stack stops; its process."""
    (folder / f"spool-{name}").mkdir(exist_ok=True)
    return _started(stack, folder, ["slurmd", "-D", "-N", name])


def asked(*command: str) -> str:
    """What one of SLURM's commands prints."""
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout


def killed(machine: int, name: str) -> None:
    """A machine that loses its power: its daemon and all that it had started are gone at once."""
    jobs = [process for process in _processes() if _is_of(process, name)]
    steps = {_parent(process) for process in jobs}  # slurmstepd, which would report its job's end
    for process in (machine, *(step for step in steps if _name(step).startswith("slurmstepd")), *jobs):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _is_of(process: int, name: str) -> bool:
    """Whether a process belongs to a job on a machine of this cluster."""
    try:
        said = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return {f"SLURMD_NODENAME={name}".encode(), f"SLURM_CONF={os.environ['SLURM_CONF']}".encode()} <= set(said)


def _parent(process: int) -> int:
    return int(_status(process).get("PPid", 0))


def _name(process: int) -> str:
    return _status(process).get("Name", "")


def _status(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _started(stack: ExitStack, folder: Path, command: Sequence[str]) -> int:
    log = stack.enter_context((folder / "daemons.log").open("ab"))
    process = subprocess.Popen([shutil.which(command[0], path=PATH) or command[0], *command[1:]], stdout=log, stderr=log)
    stack.callback(_stopped, process)
    return process.pid


def _stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _waited(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + STARTS_S
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError("the cluster has not started; its folder has the logs")
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _restore(before: str | None) -> None:
    if before is None:
        del os.environ["SLURM_CONF"]
    else:
        os.environ["SLURM_CONF"] = before


if __name__ == "__main__":
    with running(Path(sys.argv[1]).absolute()):
        print(f"export SLURM_CONF={os.environ['SLURM_CONF']}", flush=True)
        sys.stdin.read()
