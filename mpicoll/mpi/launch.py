"""From the processes that mpirun or srun started to one group: MPI joins them.

Its counterpart is `torchcoll.launch`.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, LaunchError
from mpicoll.machine.launchers import is_first_process, ranks_of_host
from mpicoll.machine.launches import mismatch
from mpicoll.machine.memory import too_small_to_start
from mpicoll.machine.variables import THREAD_LEVEL, THREAD_LEVELS, thread_level

if TYPE_CHECKING:
    from mpi4py import MPI


def world(comm: MPI.Intracomm | None = None) -> Collectives:
    """Return the collectives of `comm`, MPI's COMM_WORLD by default; collective over it."""
    mpi = _import_mpi()
    from mpicoll.mpi.transport import MpiTransport

    return Collectives(MpiTransport(comm if comm is not None else mpi.COMM_WORLD))


def world_with_warning() -> Collectives:
    """Return the collectives of all ranks, for a command; MPI starts at the thread level asked for.

    A launcher of another MPI, or a small /dev/shm, makes MPI_Init end the process: the warning
    comes before that.

    Raises:
        ArgumentError: the variable that states the level names none.
    """
    required_level = os.environ.get(THREAD_LEVEL, "multiple")
    if required_level not in THREAD_LEVELS:
        raise ArgumentError(
            f"{THREAD_LEVEL}={required_level!r} is none of {', '.join(THREAD_LEVELS)}"
        )
    mpi = _import_mpi(initialize=False)
    vendor = mpi.get_vendor()[0]
    ranks = ranks_of_host() if vendor == "MPICH" else None
    warning = mismatch(vendor) or (too_small_to_start(ranks) if ranks else None)
    if warning and is_first_process():
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if not mpi.Is_initialized():
        mpi.Init_thread(getattr(mpi, f"THREAD_{required_level.upper()}"))
    provided_level = thread_level()
    if provided_level != required_level and is_first_process():
        text = (
            f"warning: MPI runs at thread level {provided_level}, "
            f"and {required_level} was asked for"
        )
        print(text, file=sys.stderr, flush=True)
    return world()


def _import_mpi(*, initialize: bool = True) -> ModuleType:
    """Return the module `mpi4py.MPI`, which loads the MPI library.

    Raises:
        ModuleNotFoundError: mpi4py is not installed.
        LaunchError: there is no MPI library.
    """
    try:
        import mpi4py

        if not initialize:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise ModuleNotFoundError("mpicoll.world() needs mpi4py: pip install mpi4py") from None
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"mpi4py finds no MPI library ({str(error).splitlines()[0]}): "
            "pip install 'mpicoll[mpich]', or load the MPI of this system"
        ) from None
    return MPI
