"""Run collectives of several nodes by levels: within the nodes, and between their first ranks.

The ranks of a node share a channel, and MPI moves data between the first ranks of the nodes. MPI
runs short calls alone, and all other collectives. The collective, the operator and the bytes of a
call decide who runs it. MPI demands that these are equal on all ranks, so the ranks exchange
nothing before a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from mpicoll.engine.channels import open_units
from mpicoll.errors import Unavailable
from mpicoll.mpi.communicator.buffers import folds
from mpicoll.mpi.communicator.channels import OneNode
from mpicoll.mpi.communicator.reading import FOLDS, Reading
from mpicoll.mpi.exchange import exchange_items
from mpicoll.tuning import LEVELS_AFTER, LEVELS_FROM

if TYPE_CHECKING:
    from mpicoll.backend import Nodes
    from mpicoll.flight.groups import GroupFlight

_METHODS = "allreduce", "allgather", "reduce_scatter", "reduce_scatter_block"
"""The methods that levels run; after the first one the ranks of a node must follow each other."""


class Levels:
    """The long collectives of one communicator of several nodes.

    Args:
        nodes: the ranks of each node.
        open_channel: returns a channel of the ranks of a node, given these, what records its
            calls, and its memory.
        is_fixed: one order of folding is asked for, which levels do not have.
    """

    def __init__(
        self, comm: MPI.Intracomm, nodes: Nodes, open_channel: Callable[..., OneNode],
        flight: GroupFlight | None, *, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.comm, self.rank, self.size, self.nodes = comm, comm.rank, comm.size, nodes
        self.node: Sequence[int] = next(node for node in nodes if self.rank in node)
        self.open_channel, self.flight = open_channel, flight
        self.is_first = self.rank == self.node[0]
        self.calls = 0
        self.channel: OneNode | None = None
        self.across = MPI.COMM_NULL
        self.is_fixed, follow = is_fixed, [rank for node in nodes for rank in node]
        self.names = _METHODS if follow == [*range(self.size)] else _METHODS[:1]

    def limit(self, name: str) -> float:
        """Return the bytes of a result below which MPI runs a method, in small letters.

        They are 0 where the results of the ranks have different lengths.
        """
        if name not in self.names or (self.is_fixed and name in FOLDS):
            return inf
        rows = {"reduce_scatter": inf, "reduce_scatter_block": self.size}.get(name, 1)
        return LEVELS_FROM / rows

    def exchange_of(self, name: str) -> None:
        """Return None, as MPI moves objects."""

    def run(self, name: str, x: Any, out: Any, op: Any, *_: Any) -> bool | None:
        """Run a call; True where MPI is to run it.

        Args:
            name: of mpi4py's method, in small letters.
        """
        whole = out if x is MPI.IN_PLACE or name == "allgather" else x
        if self.limit(name) == inf or not _may_be_long(whole):
            return True
        if name == "reduce_scatter" and out[1] is None:
            return True  # the ranks would have to ask each other
        return Reading(self.rank, self.size).run(name, x, out, 0, partial(self._serve, name, op))

    def _serve(self, name: str, op: Any, x: Any, out: Any) -> bool | None:
        """Run a call on flat arrays; True where MPI is to run it, the same on all ranks."""
        out, counts = out if isinstance(out, list) else (out, None)
        whole = out if x is MPI.IN_PLACE or name == "allgather" else x
        if whole.nbytes < LEVELS_FROM or (name in FOLDS and not _is_folded(op, whole.dtype)):
            return True
        self.calls += 1
        if self.calls == LEVELS_AFTER + 1:
            self._open()
        if self.channel is None:
            return True
        if name == "allreduce":
            run: Callable[[], Any] = partial(self._allreduce, x, out, op)
        elif name == "allgather":
            run = partial(self._allgather, x, out)
        else:
            counts = counts or [whole.size // self.size] * self.size
            run = partial(self._reduce_scatter, whole, out[: counts[self.rank]], counts, op)
        if self.flight is not None:
            most = 1 << (out.nbytes - 1).bit_length() if out.nbytes else 0
            collective = "reduce_scatter" if name.startswith("reduce_scatter") else name
            place = self.flight.call(collective, "", "two_level", "slots and MPI", most)
            run = self.flight.log.recorded(place, run)
        try:
            run()
        except BaseException:
            self.channel.channel.leave()
            raise
        return None

    def _open(self) -> None:
        """Make the channels of all nodes, and the communicator of their first ranks; collective."""
        try:
            segment, units = open_units(partial(exchange_items, self.comm), self.rank, self.node)
        except Unavailable:
            return  # on all ranks
        self.channel = self.open_channel(self.node, None, units, segment)
        self.across = self.comm.Split(0 if self.is_first else MPI.UNDEFINED, self.rank)

    # -- the levels -------------------------------------------------------------------------

    def _allreduce(self, x: Any, out: Any, op: Any) -> None:
        self._reduce(x, out, op)
        if self.is_first:
            self.across.Allreduce(MPI.IN_PLACE, out, op)
        self._within("bcast", out, out)

    def _allgather(self, x: Any, out: Any) -> None:
        rows = out.reshape(self.size, -1)
        if self.is_first:
            self._within("gather", x, rows[self.node[0] : self.node[-1] + 1].reshape(-1))
            self.across.Allgatherv(MPI.IN_PLACE, [out, self._of_nodes([rows[0].size] * self.size)])
        else:
            self._within("gather", rows[self.rank] if x is MPI.IN_PLACE else x, None)
        self._within("bcast", out, out)

    def _reduce_scatter(self, x: Any, out: Any, counts: list[int], op: Any) -> None:
        whole = np.empty_like(x) if self.is_first else None
        self._reduce(x, whole, op)
        part = [counts[rank] for rank in self.node]
        if self.is_first:
            of_node = np.empty(sum(part), x.dtype)
            self.across.Reduce_scatter(whole, of_node, self._of_nodes(counts), op)
            self._within("scatterv", [of_node.view("u1"), [n * x.itemsize for n in part]], out)
        else:
            self._within("scatterv", None, out.view("u1"))

    def _of_nodes(self, counts: Sequence[int]) -> list[int]:
        """Return how many elements the ranks of each node have together."""
        return [sum(counts[rank] for rank in node) for node in self.nodes]

    def _reduce(self, x: Any, out: Any, op: Any) -> None:
        """Fold on the first rank of this node."""
        if x is MPI.IN_PLACE and not self.is_first:
            x = out
        self._within("reduce", x, out if self.is_first else None, op)

    def _within(self, name: str, x: Any, out: Any, op: Any = None) -> None:
        """Run a call among the ranks of this node, whose first one is the root."""
        assert self.channel is not None
        is_unread = self.channel.channel(name, x, out, op, 0, True)
        assert not is_unread

    def close(self) -> None:
        """Release the memory, and MPI's communicator."""
        if self.channel is not None:
            self.channel.close()
            del self.channel.channel  # which refers to it, too: no collector has to find them
            self.channel = None
        if self.across != MPI.COMM_NULL and not MPI.Is_finalized():
            self.across.Free()


def _is_folded(op: MPI.Op, dtype: np.dtype[Any]) -> bool:
    """Whether levels fold by an operator.

    MPI finds the extremes of floating-point numbers. It may treat NaN in another way, and a result
    must not depend on the number of the call.
    """
    return folds(op, dtype) and not (op in (MPI.MIN, MPI.MAX) and dtype.kind == "f")


def _may_be_long(whole: Any) -> bool:
    """Whether a call may be long enough for levels, as far as its array says at once."""
    memory = whole[0] if isinstance(whole, list | tuple) and whole else whole
    return getattr(memory, "nbytes", LEVELS_FROM) >= LEVELS_FROM
