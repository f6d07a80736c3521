"""A real Slurm of emulated hosts: controller, a slurmd for each host, and munge, and nothing left.

Jobs run on the first two hosts. The partition ``all`` has one host more.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher import LIMIT

from mpicoll.hosts.emulation import Hosts
from mpicoll.hosts.emulation import missing as no_hosts

DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch")
NODES, CORES = 2, 2
ALL = NODES + 1
"""Nodes of the default partition, cores of each, and nodes of the partition ``all``."""
# A job's own processes share two cores with whatever else is tested.
_PATIENCE = 180.0

# Sbatch asks every two seconds whether its job ended, and ever more rarely unless jobs are soon
# forgotten: hence MinJobAge. MPICH calls its shared memory by the id of the job, and trips over
# what a killed one of the same id left: hence FirstJobId. Each node keeps what PMIx and its daemon
# write for itself: hence %n.
_CONF = """
ClusterName=mpicoll
SlurmctldHost={hosts.names[0]}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/spool.%n
TmpFS={state}/tmp.%n
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.%n.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MinJobAge=4
MessageTimeout=60
FirstJobId={first}
KillWait=2
GresTypes=gpu
"""
_NODE = "NodeName={name} NodeAddr={address} CPUs={cores} Gres=gpu:1"
_PARTITIONS = (
    "PartitionName=main Nodes=host[0-1] Default=YES MaxTime=INFINITE State=UP",
    "PartitionName=all Nodes=ALL MaxTime=INFINITE State=UP",
)
# A GPU to ask for: Slurm wants a device file, and none that two nodes share.
_GRES = tuple(
    f"NodeName=host{index} Name=gpu File=/dev/{device}"
    for index, device in enumerate(("null", "zero", "full"))
)


def search_path() -> str:
    """Return where commands are: this Python's own first, the daemons' last."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"


def missing() -> str | None:
    """Say why there can be no Slurm here, None where there can."""
    lacking = [name for name in DAEMONS if shutil.which(name, path=search_path()) is None]
    if lacking:
        return f"no {', '.join(lacking)}: as root, run .ci/packages"
    return no_hosts()


@dataclass(frozen=True)
class Cluster:
    """Slurm as it runs.

    Attributes:
        environment: what leads a command to it.
        state: the folder of its files and logs.
        hosts: its nodes; the controller is on the first one.
    """

    environment: dict[str, str]
    state: Path
    hosts: Hosts

    def command(self, *words: str | Path) -> list[str]:
        """Return the command that runs a command on the first node."""
        return self.hosts.entering(0, [str(word) for word in words])

    def run(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        timeout: float = LIMIT,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the first node, with these variables set."""
        return subprocess.run(
            self.command(*command), env={**self.environment, **variables}, cwd=cwd,
            capture_output=True, text=True, errors="replace", timeout=timeout,
        )  # fmt: skip

    def state_of(self, job: str) -> str:
        """Return a job's state: nothing once it is over, UNKNOWN where nobody answers in time."""
        done = self.run("squeue", "-h", "-j", job, "-o", "%T")
        if done.returncode == 0 or "Invalid job id" in done.stderr:
            return done.stdout.strip()
        assert "timed out" in done.stderr, done.stderr
        return "UNKNOWN"

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(
            f"== {each.name}\n{each.read_text(errors='replace')[-2000:]}"
            for each in self.state.glob("*.log")
        )


@contextmanager
def cluster(state: Path) -> Iterator[Cluster]:
    """Bring Slurm up in an empty folder, and take it down."""
    for parent in (state, *state.parents[:2]):
        parent.chmod(0o755)  # munge wants to be sure that nobody else writes there
    started: list[subprocess.Popen[bytes]] = []
    with Hosts(ALL, None) as hosts, (state / "daemons.log").open("w") as log:
        environment = _configure(state, hosts)

        def start(host: int, *command: str) -> None:
            started.append(
                subprocess.Popen(
                    hosts.entering(host, command), env=environment, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

        found = Cluster(environment, state, hosts)
        try:
            start(0, "munged", "--foreground", "--force", *_munge(state))
            wait_until((state / "munge.socket").exists, found)
            start(0, "slurmctld", "-D")
            for index, name in enumerate(hosts.names):
                start(index, "slurmd", "-D", "-N", name)
            wait_until(lambda: _idle(found) == ALL, found)
            yield found
            found.run("scancel", "--user=root", "--full")
        finally:
            _end(started)


def wait_until(
    condition: Callable[[], object], there: Cluster, patience: float = _PATIENCE
) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it never did; the daemons' logs say more.
    """
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience:g} s\n{there.logs()}")
        time.sleep(0.1)


def _munge(state: Path) -> Sequence[str]:
    key = state / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    return (f"--key-file={key}", f"--socket={state}/munge.socket", f"--pid-file={state}/munge.pid",
            f"--log-file={state}/munge.log", f"--seed-file={state}/munge.seed")  # fmt: skip


def _configure(state: Path, hosts: Hosts) -> dict[str, str]:
    """Write the configuration; return the environment that leads to it."""
    folders = (f"{kind}.{name}" for kind in ("spool", "tmp") for name in hosts.names)
    for name in ("ctld", *folders):
        (state / name).mkdir()
    addresses = [hosts.address(index) for index in range(ALL)]
    first = random.randrange(1000, 1_000_000)
    lines = [
        _CONF.format(hosts=hosts, address=addresses[0], state=state, first=first),
        *(_NODE.format(name=name, address=address, cores=CORES)
          for name, address in zip(hosts.names, addresses, strict=True)),
        *_PARTITIONS,
    ]  # fmt: skip
    conf = state / "slurm.conf"
    conf.write_text("\n".join((*lines, "")))
    # A network namespace has no control groups, whose version slurmd looks up otherwise.
    (state / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (state / "gres.conf").write_text("\n".join((*_GRES, "")))
    # A job or a launcher around the tests must not be taken for theirs.
    own = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_", "PMI_", "OMPI_COMM_"))
    }  # fmt: skip
    # As root, which the daemons need, Open MPI wants to be told twice. It sees as many cores as
    # ranks on each node, not that both nodes are the same cores: a rank that waits must yield.
    told = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1"}  # fmt: skip
    network = hosts.environment()
    return {**own, **told, **network, "SLURM_CONF": str(conf), "PATH": search_path()}


def _idle(there: Cluster) -> int:
    return there.run("sinfo", "-h", "-N", "-p", "all", "-o", "%T").stdout.split().count("idle")


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    for daemon in reversed(started):
        if daemon.poll() is None:
            os.killpg(daemon.pid, signal.SIGTERM)
    for daemon in reversed(started):
        try:
            daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
