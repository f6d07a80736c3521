"""Run the collectives for which ``MPICOLL_ALGORITHM`` names an algorithm, by methods of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.memory.notes import GROUP
from mpicoll.mpi.communicator.buffers import WrongLength, folds
from mpicoll.mpi.communicator.method_arguments import Call, read
from mpicoll.mpi.communicator.reading import FOLDS, Reading
from mpicoll.mpi.exchange import mpi_deadline
from mpicoll.mpi.transport import MpiTransport
from mpicoll.notation.contract import spelled

if TYPE_CHECKING:
    from mpicoll.mpi.communicator.channels import OneNode
    from mpicoll.mpi.communicator.levels import Levels


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
        is_mpi = self.is_fixed and collective.reduces
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

    def run(self, name: str, x: Any, out: Any, op: Any, root: Any, *rest: Any) -> bool | None:
        """Run a call; True where MPI is to run it.

        Args:
            name: of mpi4py's method, in small letters.

        Raises:
            CollectiveError: the algorithm cannot serve the call, or the ranks make different calls.
        """
        algorithm = self._algorithm(name)
        if algorithm is None:
            return self.server is None or self.server.run(name, x, out, op, root, *rest)
        if algorithm == "native":
            return True
        at = Reading(self.comm.rank, self.comm.size)
        try:
            call = self._read(at, name, x, out, op, root)
            if call is None or call.counts is not None:
                return True
            if name in FOLDS and call.x is not None and not folds(op, call.x.dtype):
                return True
            _compiled.postpone_handlers()
            at.pack()
            self.collectives._call(call.name, call.x, call.out, call.op, call.root, None, algorithm)
            at.unpack()
            return None
        finally:
            at.close()

    def _read(self, at: Reading, name: str, x: Any, out: Any, op: Any, root: Any) -> Call | None:
        """Return the call that the arguments describe, None where only MPI reads them."""
        try:
            return read(at, name, x, out, op, root)
        except WrongLength as error:  # the other ranks do not know of it
            refused = ArgumentError(f"{name}: {error}")
            self.collectives.transport.leave(GROUP, refused)
            raise refused from error
        except Exception:  # whatever is wrong, mpi4py's own method says it
            return None

    def renew(self) -> bool:
        """Whether the next communicator of these ranks may have it: methods have their own."""
        return False

    def close(self) -> None:
        """Release the plans, the shared memory, and MPI's communicators."""
        if "collectives" in vars(self):
            self.collectives.free()
        if self.server is not None:
            self.server.close()
