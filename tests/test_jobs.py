"""The batch scripts, on a real Slurm of one node that this test brings up."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpicoll.bench.journal import cases, read

JOBS = Path(__file__).parent.parent / "jobs"
DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch")

CONF = """
ClusterName=mpicoll
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/d
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/backfill
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def _missing() -> str | None:
    lacking = [name for name in DAEMONS if shutil.which(name, path=_path()) is None]
    if lacking:
        return f"no {', '.join(lacking)}: install Debian's slurmctld, slurmd, slurm-client, munge"
    return None if os.geteuid() == 0 else "Slurm's daemons need root here"


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"


def _free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A controller, a node of four declared CPUs, and the environment that leads to them."""
    reason = _missing()
    if reason:
        pytest.skip(reason)
    state = tmp_path_factory.mktemp("slurm")
    for parent in (state, *state.parents[:2]):
        parent.chmod(0o755)
    (state / "ctld").mkdir()
    (state / "d").mkdir()
    key = state / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = socket.gethostname().split(".")[0]
    conf = state / "slurm.conf"
    conf.write_text(CONF.format(host=host, state=state, ports=_free_ports()))
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": _path()}
    munge = ("munged", "--foreground", "--force", f"--key-file={key}",
             f"--socket={state}/munge.socket", f"--pid-file={state}/munge.pid",
             f"--log-file={state}/munge.log", f"--seed-file={state}/munge.seed")  # fmt: skip
    log = (state / "daemons.log").open("w")
    started = []
    try:
        for command in (munge, ("slurmctld", "-D"), ("slurmd", "-D", "-N", host)):
            daemon = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            started.append(daemon)
            time.sleep(1)
        _wait_until_idle(environment, state)
        yield environment
    finally:
        for daemon in reversed(started):
            os.killpg(daemon.pid, signal.SIGTERM)
            daemon.wait(timeout=20)
        log.close()


def _wait_until_idle(environment: dict[str, str], state: Path) -> None:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        told = subprocess.run(
            ("sinfo", "-h", "-o", "%T"), env=environment, capture_output=True, text=True
        )
        if told.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "\n".join(each.read_text()[-3000:] for each in state.glob("*.log"))
    pytest.fail(f"Slurm did not come up: {told.stdout} {told.stderr}\n{logs}")


@pytest.mark.parametrize("script", sorted(JOBS.glob("*.sbatch")), ids=lambda path: path.name)
def test_is_valid_bash(script: Path) -> None:
    subprocess.run(("bash", "-n", str(script)), check=True)


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_cpu_comparison_runs(slurm: dict[str, str], launcher: str, tmp_path: Path) -> None:
    """Options at sbatch override the script's, arguments reach the benchmark."""
    from mpi4py import MPI

    if launcher == "srun" and "MPICH" not in MPI.Get_library_version():
        pytest.skip("this srun offers pmi2, which Open MPI 5 does not speak")
    done = subprocess.run(
        ("sbatch", "--wait", "--ntasks-per-node=2", f"--output={tmp_path}/job.out",
         f"--chdir={tmp_path}", str(JOBS / "cpu.sbatch"),
         "--collectives", "allreduce", "-b", "1K", "-e", "1K", "--time", "10"),
        env={**slurm, "LAUNCHER": launcher, "PYTHONPATH": str(JOBS.parent)},
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    output = (tmp_path / "job.out").read_text()
    assert done.returncode == 0, f"{done.stderr}\n{output}"
    assert "Out of bounds values : 0 OK" in output
    records = cases(read(next(tmp_path.glob("mpicoll-cpu-*.jsonl"))))
    assert {record["ranks"] for record in records} == {2}
