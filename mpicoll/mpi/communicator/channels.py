"""Serve the collectives of one communicator of one node by a channel.

The key of a call alone decides that: what MPI demands to be the same on all ranks. MPI runs
reductions by a user's operator, or of a datatype that its operator is not defined on. What one rank
alone knows, such as a derived datatype or gaps, is packed on that rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.c_extension import _compiled
from mpicoll.engine.channels import ALLGATHER, GroupChannel
from mpicoll.mpi.communicator.buffers import is_in_place, is_on_gpu, prepare_forms
from mpicoll.mpi.communicator.reading import FOLDS, Reading
from mpicoll.mpi.communicator.recording import mpi_calls

if TYPE_CHECKING:
    from mpicoll.flight.groups import GroupFlight


class OneNode(GroupChannel):
    """Our collectives on one communicator of one node, or on the ranks of a node of one.

    Args:
        node: the ranks of the node.
        units, processes, shares_cores, keep: as `GroupChannel` takes them.
        is_fixed: one order of folding is asked for.

    Attributes:
        channel: runs a call that is given as `mpicoll.mpi.communicator.classes` does.
    """

    def __init__(
        self, comm: MPI.Intracomm, node: Sequence[int], units: Sequence[int],
        processes: Sequence[int], deadline: float, flight: GroupFlight | None, *,
        shares_cores: bool, keep: object, is_fixed: bool,
    ) -> None:  # fmt: skip
        self._run_mpi, self.is_fixed = mpi_calls(comm), is_fixed
        super().__init__(
            prepare_forms(), node.index(comm.rank), units, processes, deadline, flight,
            shares_cores=shares_cores, keep=keep, slow=self._serve, library=self._run_mpi,
            ranks=node,
        )  # fmt: skip
        # Let MPI move its messages while a rank waits. In MPICH, COMM_SELF would move none.
        self.channel.progress = partial(MPI.Intracomm(comm).Iprobe, MPI.ANY_SOURCE, MPI.ANY_TAG)

    def limit(self, name: str) -> float:
        """Return the bytes of a result below which MPI runs a method: none."""
        return 0

    def run(self, *arguments: Any) -> None:
        """Run a call, or have MPI run it."""
        self.channel(*arguments)

    def exchange_of(self, name: str) -> Callable[..., Any] | None:
        """Return what moves the objects of a method; None where MPI runs it."""
        return None if self.is_fixed and name in FOLDS else self.channel.exchange

    def _serve(self, *arguments: Any) -> None:
        """Run a call whose arguments the channel does not read."""
        _compiled.uninterrupted(self._read, *arguments)

    def _read(self, name: str, x: Any, out: Any, op: Any, root: Any) -> None:
        def run(x: Any, out: Any) -> bool | None:
            return self.channel(name, x, out, op, root, True)  # type: ignore[no-any-return]

        _compiled.postpone_handlers()
        reading = Reading(self.rank, self.size)
        if is_on_gpu(x) or is_on_gpu(out):
            self.channel.skip()  # a rank with memory of the host would wait for this one
        elif self._has_counts(name, x, out) and not reading.run(name, x, out, root, run):
            return
        self._run_mpi(name, x, out, op, root)

    def _has_counts(self, name: str, x: Any, out: Any) -> bool:
        """Add the counts that a reduce_scatter lacks; whether there are all."""
        try:
            if name == "reduce_scatter" and out[1] is None:
                out[1] = self._all_counts(x, out[0])
        except Exception:  # whatever is wrong, mpi4py's own method says it
            return False
        return True

    def _all_counts(self, x: Any, out: Any) -> list[int]:
        """Return how many elements each rank gets from a reduce_scatter; collective.

        Raises:
            Unreadable: mpi4py refuses a buffer before it asks the other ranks.
        """
        from mpicoll.mpi.communicator.packing import check_block, entries  # rarely needed

        if not is_in_place(x):
            check_block(x, is_written=False)
        check_block(out, is_written=True)
        count = entries(out)
        items = self.channel.exchange(ALLGATHER, 0, count.to_bytes(8, "little"))
        return [count if item is None else int.from_bytes(item, "little") for item in items]
