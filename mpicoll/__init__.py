"""Collective communication on mpi4py: native calls and published algorithms side by side.

`world()` returns the `Collectives` of all ranks; `torchcoll.world()` returns the same
interface over torch.distributed. `threads(4)` runs a function on ranks of this process.
`Comm(MPI.COMM_WORLD)` is a communicator of mpi4py whose collectives are ours.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import mpicoll.threads
from mpicoll.cli import missing as _missing  # noqa: F401  first, to tell which library is missing
from mpicoll.errors import (
    ArgumentError,
    CollectiveError,
    Deadlock,
    Disagreement,
    LaunchError,
    RankLost,
    ScheduleError,
    Unavailable,
    UnknownName,
    Unsupported,
    WrongContents,
)
from mpicoll.machine import configuration as _configuration
from mpicoll.text import pictures as _pictures

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpicoll.collectives import Collectives
    from mpicoll.engine.plan import Plan
    from mpicoll.mpi.communicator import Comm
    from mpicoll.notation.elements import ReduceOp, user_op
    from mpicoll.threads.launch import threads
else:
    # The package of that name is imported above, so no later import replaces the function.
    del mpicoll.threads

__version__ = "0.2.0"

__all__ = [
    "ArgumentError", "CollectiveError", "Collectives", "Comm", "Deadlock", "Disagreement",
    "LaunchError", "Plan", "RankLost", "ReduceOp", "ScheduleError", "Unavailable",
    "UnknownName", "Unsupported", "WrongContents", "threads", "user_op", "world",
]  # fmt: skip


def world(comm: MPI.Intracomm | None = None) -> Collectives:
    """Return the collectives of `comm`, MPI's COMM_WORLD by default; collective over it.

    The communicator is duplicated, so its own messages are never disturbed. ``mpirun -n 4 python
    program.py`` starts four ranks; without a launcher there is one.

    >>> import mpicoll, numpy as np
    >>> with mpicoll.world() as c:  # on one rank
    ...     print(c.allreduce(np.ones(2)))
    [1. 1.]

    Args:
        comm: an intracommunicator of mpi4py.

    Raises:
        LaunchError: mpi4py finds no MPI library.
    """
    from mpicoll.mpi import launch

    return launch.world(comm)


_configuration.load()  # before any module reads a variable
_pictures.provide(lambda: import_module("mpicoll.explain.notebook"))

_MODULES = {
    "Collectives": "mpicoll.collectives",
    "Comm": "mpicoll.mpi.communicator",
    "Plan": "mpicoll.engine.plan",
    "ReduceOp": "mpicoll.notation.elements",
    "threads": "mpicoll.threads.launch",
    "user_op": "mpicoll.notation.elements",
}
"""The modules of the names that are loaded at their first use. Commands start quickly without."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
