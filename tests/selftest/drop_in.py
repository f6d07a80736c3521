"""Random calls of a rank of chaos by mpi4py's own methods, on a communicator of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from mpicoll.collectives import Collectives
from mpicoll.machine.settings import DEADLINE

NAMES = ("allreduce", "reduce", "broadcast", "allgather")
"""The collectives that are called. MPI runs the others, and its calls do not notice a fault."""
_ALGORITHMS = "allreduce=one_shot,reduce=binomial,bcast=binomial,allgather=ring"
_LEVELS = ",".join(f"{name}=two_level" for name in ("allreduce", "reduce", "bcast", "allgather"))


@contextmanager
def _stated(variables: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            os.environ.pop(name)
            os.environ.update({} if text is None else {name: text})


class DropIn:
    """The communicator of a group.

    Args:
        c: of the same ranks.
        has_levels: there are several nodes with several ranks.

    Attributes:
        is_served: mpicoll runs the calls; the same on all ranks. If the ranks of a node share no
            memory, MPI runs the calls.
    """

    def __init__(self, c: Collectives, deadline: float, *, has_levels: bool) -> None:
        # mpi4py is there on ranks that have a group over MPI, and may be lacking on others.
        state: Any = import_module("mpicoll.mpi.communicator.state")
        transport: Any = c.transport
        self.comm: Any = import_module("mpicoll.mpi.communicator").Comm(transport.users_comm.Dup())
        variables = {DEADLINE: str(deadline)}
        if len(c.nodes) > 1:
            variables[state.FORCED] = _LEVELS if has_levels else _ALGORITHMS
        with _stated(variables):
            for name in NAMES:
                self.call(name, np.zeros(2, np.int64), 0)
        self.state: Any = state.find_state(self.comm)
        server = self.state.server
        plans = getattr(server, "plans", NAMES)  # a channel has none, and serves all calls
        self.is_served = server is not None and len(plans) == len(NAMES)

    def call(self, name: str, x: Any, root: int) -> Any:
        """Make a call, and return its result; None where this rank has none.

        Args:
            name: ours of the collective.
        """
        comm = self.comm
        if name == "broadcast":
            buffer = x.copy() if comm.rank == root else np.zeros_like(x)
            comm.Bcast(buffer, root)
            return buffer
        if name == "allgather":
            rows = np.empty((comm.size, x.size), x.dtype)
            comm.Allgather(x, rows)
            return rows
        total = np.empty_like(x)
        if name == "reduce":
            comm.Reduce(x, total if comm.rank == root else None, root=root)
        else:
            comm.Allreduce(x, total)
        return total

    def close(self) -> None:
        """Release its memory; MPI frees no communicator once a rank is lost."""
        self.state.close()
