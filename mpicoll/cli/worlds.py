"""How a command forms the group of each backend."""

from __future__ import annotations

import sys

from mpicoll.collectives import Collectives
from mpicoll.machine.launchers import is_first_process, mismatch


def mpi4py_world(interface: str | None) -> Collectives:
    """Form the group over MPI."""
    import mpi4py

    # A launcher of another MPI makes MPI_Init abort the process: speak before it.
    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    import mpicoll

    warning = mismatch(MPI.get_vendor()[0])
    if warning and is_first_process():
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    return mpicoll.world()


def torch_world(interface: str | None) -> Collectives:
    """Form the group over torch.distributed."""
    import torchcoll

    return torchcoll.world(interface=interface)


BOTH = {"mpi4py": mpi4py_world, "torch": torch_world}
TORCH = {"torch": torch_world}
