"""A program with a planted cause of lost time, on mpi4py or torch: see `planted_causes.py`.

    mpirun -n 4 python -m mpicoll.run tests/support/planted_program.py CAUSES RANK STEPS
    torchrun --nproc-per-node 4 -m torchcoll.run tests/support/planted_program.py ...

Several causes are joined by commas. All ranks end by SIGKILL, so that their flight files stay.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

WORK = 0.002
"""Seconds of computing before each allreduce."""
HOG = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent: pass"
STOPPER = """
import os, signal, sys, time
parent = int(sys.argv[1])
while os.getppid() == parent:
    time.sleep(0.35)
    os.kill(parent, signal.SIGSTOP)
    time.sleep(0.05)
    os.kill(parent, signal.SIGCONT)
"""


class ByMPI:
    """The calls of mpi4py."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.double = MPI.DOUBLE

    def allreduce(self, values: Any) -> Any:
        result = np.empty_like(values)
        self.comm.Allreduce(values, result)
        return result

    def barrier(self) -> None:
        self.comm.Barrier()

    def allgather(self, values: Any, counts: list[int]) -> None:
        starts = [sum(counts[:rank]) for rank in range(self.size)]
        self.comm.Allgatherv(values, [np.empty(sum(counts)), counts, starts, self.double])


class ByTorch:
    """The calls of torch."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def allreduce(self, values: Any) -> Any:
        tensor = self.torch.from_numpy(values.copy())
        self.dist.all_reduce(tensor)
        return tensor.numpy()

    def barrier(self) -> None:
        self.dist.barrier()

    def allgather(self, values: Any, counts: list[int]) -> None:
        parts = [self.torch.empty(count, dtype=self.torch.float64) for count in counts]
        self.dist.all_gather(parts, self.torch.from_numpy(values))


def compute(seconds: float) -> None:
    """Compute for so many seconds of this thread's time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def start_beside(source: str, cores: set[int] | None = None) -> None:
    """Start a process beside this rank, which ends with it."""
    process = subprocess.Popen([sys.executable, "-c", source, str(os.getpid())])
    if cores:
        os.sched_setaffinity(process.pid, cores)


def share_core(is_victim: bool) -> None:
    """Give one rank a core of its own, and other busy processes on it; the others the rest."""
    cores = sorted(os.sched_getaffinity(0))
    victim, others = {cores[0]}, {*cores[1:]}
    os.sched_setaffinity(0, victim if is_victim else others or victim)
    for _ in range(3 if is_victim else 0):
        start_beside(HOG, victim)


def main(causes: dict[str, str], victim: int, steps: int) -> None:
    """Make the calls of all steps.

    Args:
        causes: the amounts of the planted causes, by their names.
    """
    calls: Any = ByTorch() if "TORCHELASTIC_RUN_ID" in os.environ else ByMPI()
    is_victim = calls.rank == victim
    values = np.ones(int(causes.get("link", 1000)))
    counts = [400 if rank == victim else 100 for rank in range(calls.size)]
    longer = float(causes.get("work", 0)) / 1000 if is_victim else 0.0
    if "core" in causes:
        share_core(is_victim)
    if "stop" in causes and is_victim:
        start_beside(STOPPER)
    for _ in range(steps):
        if "uneven" in causes:
            compute(WORK * counts[calls.rank] / 100)
            calls.allgather(np.ones(counts[calls.rank]), counts)
        else:
            compute(WORK)
            compute(longer)
        calls.allreduce(values)
        if "barrier" in causes:
            calls.barrier()
    time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    pairs = (cause.partition("-")[::2] for cause in sys.argv[1].split(","))
    main(dict(pairs), int(sys.argv[2]), int(sys.argv[3]))
