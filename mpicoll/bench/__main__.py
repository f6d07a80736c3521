"""Run the benchmark over mpi4py and torch.distributed in one job, launched by MPI."""

from __future__ import annotations

import sys

from mpicoll.bench import environment
from mpicoll.bench.cli import start
from mpicoll.collectives import Collectives


def _mpi4py(interface: str | None) -> Collectives:
    import mpi4py

    # A launcher of another MPI makes MPI_Init abort the process: speak before it.
    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    import mpicoll

    warning = environment.suspicion(MPI.get_vendor()[0])
    if warning and environment.is_first():
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    return mpicoll.world()


def _torch(interface: str | None) -> Collectives:
    import torchcoll

    return torchcoll.world(interface=interface)


if __name__ == "__main__":
    start({"mpi4py": _mpi4py, "torch": _torch})
