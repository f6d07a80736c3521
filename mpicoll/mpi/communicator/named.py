"""Run the collectives for which ``MPICOLL_ALGORITHM`` names an algorithm, by methods of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from mpicoll.collectives import Collectives
from mpicoll.mpi.communicator.buffers import OPS, folds
from mpicoll.mpi.communicator.reading import FOLDS, Reading
from mpicoll.mpi.exchange import mpi_deadline
from mpicoll.mpi.transport import MpiTransport
from mpicoll.notation.contract import spelled

if TYPE_CHECKING:
    from mpicoll.mpi.communicator.channels import OneNode
    from mpicoll.mpi.communicator.levels import Levels

_UNEVEN = "gatherv", "scatterv", "alltoallv"
"""Methods whose counts the ranks do not all know, which MPI runs."""
_EVEN = {"allgatherv": "allgather", "reduce_scatter": "reduce_scatter_block"}
"""Methods with counts for which another one does if all counts are equal."""


class Named:
    """The collectives of one communicator, for some of which a user names an algorithm.

    Args:
        algorithms: by our name of a collective; with ``native`` MPI runs it.
        server: runs all other collectives; None where MPI does.
        is_fixed: one order of folding is asked for, in which MPI's own calls are folded.
    """

    def __init__(
        self, comm: MPI.Intracomm, algorithms: Mapping[str, str],
        server: OneNode | Levels | None, *, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.comm, self.algorithms, self.is_fixed = comm, algorithms, is_fixed
        self.server = server

    def _algorithm(self, name: str) -> str | None:
        """Return the algorithm of a method of mpi4py; None where the user names none."""
        collective = spelled(name)
        if collective is None or collective.name not in self.algorithms:
            return None
        is_mpi = name in _UNEVEN or (self.is_fixed and collective.reduces)
        return "native" if is_mpi else self.algorithms[collective.name]

    def limit(self, name: str) -> float:
        """Return the bytes of a result below which MPI runs a method, in small letters."""
        algorithm = self._algorithm(name)
        if algorithm is None:
            return inf if self.server is None else self.server.limit(name)
        return inf if algorithm == "native" else 0

    def exchange_of(self, name: str) -> Callable[..., Any] | None:
        """Return what moves the objects of a method; None where MPI runs it."""
        is_named = self._algorithm(name) is not None
        return None if is_named or self.server is None else self.server.exchange_of(name)

    @cached_property
    def collectives(self) -> Collectives:
        """The methods on a group of the communicator's ranks; collective when first asked for."""
        transport = MpiTransport(self.comm, deadline=mpi_deadline())
        return Collectives(transport, name=self.comm.name or "a communicator")

    def run(self, name: str, x: Any, out: Any, op: Any, root: Any) -> bool | None:
        """Run a call; True where MPI is to run it.

        Args:
            name: of mpi4py's method, in small letters.

        Raises:
            CollectiveError: the algorithm cannot serve the call, or the ranks make different calls.
        """
        algorithm = self._algorithm(name)
        if algorithm is None:
            return self.server is None or self.server.run(name, x, out, op, root)
        if algorithm == "native":
            return True
        reading = Reading(self.comm.rank, self.comm.size)
        return reading.run(name, x, out, root, partial(self._run, name, op, root, algorithm))

    def _run(self, name: str, op: Any, root: int, algorithm: str, x: Any, out: Any) -> bool | None:
        """Run a call on flat arrays; True where MPI is to run it."""
        if isinstance(out, list):
            out, counts = out
            if len({*counts}) > 1:
                return True
            name = _EVEN[name]
        data = out if x is MPI.IN_PLACE else x
        if name in FOLDS and not folds(op, data.dtype):
            return True
        collective = spelled(name)
        assert collective is not None
        x, out = _rows(name, self.comm.rank, self.comm.size, root, x, out)
        op_name = OPS[op.handle][0] if name in FOLDS else "sum"
        self.collectives._call(collective.name, x, out, op_name, root, None, algorithm)
        return None

    def close(self) -> None:
        """Release the plans, the shared memory, and MPI's communicators."""
        if "collectives" in vars(self):
            self.collectives.free()
        if self.server is not None:
            self.server.close()


def _rows(name: str, rank: int, size: int, root: int, x: Any, out: Any) -> tuple[Any, Any]:
    """Return the flat arrays of a call as a method of `Collectives` takes them."""
    in_place, is_root = x is MPI.IN_PLACE, rank == root
    if name == "bcast":
        return x if is_root else None, x
    if name == "reduce_scatter_block":
        x, out = (out.copy(), out[: out.size // size]) if in_place else (x, out)
        return x.reshape(size, -1), out
    if name == "scatter" and is_root:
        x = x.reshape(size, -1)
        # The buffer may be longer.
        return x, np.empty_like(x[0]) if out is MPI.IN_PLACE else out[: x[0].size]
    if name in ("allgather", "alltoall") or (name == "gather" and is_root):
        out = out.reshape(size, -1)
        if name == "alltoall":
            return out.copy() if in_place else x.reshape(size, -1), out
        if in_place:
            return out[rank] if name == "allgather" else out[rank].copy(), out
    elif in_place:
        return out.copy() if name == "reduce" else out, out
    return x, out
