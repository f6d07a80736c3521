"""Start the ranks of a benchmark that no launcher has started: one for each core."""

from __future__ import annotations

import os
import shlex
import sys

from mpicoll.machine.launchers import command_words, find_launch, own_module
from mpicoll.machine.launches import find_foreign, mpirun
from mpicoll.machine.nodes import own_cores

_OPEN_MPI = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
"""Open MPI otherwise starts no more ranks than there are cores without their second threads."""


def start_ranks() -> None:
    """Replace this process by a launcher with a rank for each core, at least two.

    Nothing happens if a launcher has started this process, or if there is none: one rank measures.
    """
    command = launch_command()
    if command is None:
        return
    print(f"# {shlex.join(command)}", file=sys.stderr, flush=True)
    os.execve(command[0], command, {**_OPEN_MPI, **os.environ})


def launch_command() -> list[str] | None:
    """Return the command that starts the ranks, None where this process is a rank already."""
    module = own_module()
    if module not in ("mpicoll.bench", "torchcoll.bench") or find_launch() or find_foreign():
        return None
    cores = own_cores()
    count = max(2, min(len(cores.allowed), int(cores.quota or len(cores.allowed))))
    first = sys.orig_argv.index("-m") + 1 if "-m" in sys.orig_argv else 1
    program = ["-m", module, *sys.orig_argv[first + len(command_words()) :]]
    if module == "torchcoll.bench":
        run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
        return [sys.executable, *run, *program]
    launcher = mpirun()
    return [launcher, "-n", str(count), sys.executable, *program] if launcher else None
