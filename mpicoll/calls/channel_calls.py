"""Serve the methods of a group of one node by a channel, whatever the lengths of their arrays.

The channel runs ``auto`` on arrays of the host by an operator of ours. Nothing is made for a
length, so the first call of a length costs as much as later ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Array, Transport
from mpicoll.c_extension import _compiled
from mpicoll.calls.allocation import empty
from mpicoll.calls.arguments import Arguments, digest_of
from mpicoll.engine.channels import GroupChannel, forms_of, open_units
from mpicoll.errors import CollectiveError, Unavailable
from mpicoll.notation.elements import itemsize
from mpicoll.tuning import FIRST_SHARE_RANKS, SHARES_ABOVE

if TYPE_CHECKING:
    from mpicoll.calls.planner import Planner
    from mpicoll.flight.groups import GroupFlight

NUMBER = -1
"""What a rank says instead of the number of a plan where a channel is to run the call."""
SLOTS = "slots"
"""The transport of what a channel runs."""
_SCHEDULES = {
    "barrier": "dissemination(radix={})", "gather": "naive", "allgather": "direct",
    "scatter": "naive", "reduce_scatter": "direct", "alltoall": "naive",
}  # fmt: skip
"""The algorithm that a channel runs; ``one_shot`` for the other collectives."""
_ONE_ROW: int = _compiled.ONE_ROW
_NO_ARRAY: int = _compiled.NO_ARRAY


class ChannelCalls:
    """The calls that a channel serves, from the first one on that it can serve.

    Attributes:
        channel: runs them, once it is open.
    """

    def __init__(
        self, transport: Transport, planner: Planner, table: Any, flight: GroupFlight | None
    ) -> None:
        self.transport, self.planner, self.table, self.flight = transport, planner, table, flight
        shared = transport.shared
        may = shared is not None and shared.mailbox is not None and transport.backend != "threads"
        may = may and 1 < transport.size <= _compiled.MOST_MEMBERS
        self._is_closed = not may
        self.channel: GroupChannel | None = None

    def serves(self, arguments: Arguments) -> bool:
        """Whether the channel is to run a call, as far as this rank knows."""
        is_host = arguments.device == "host" or arguments.collective.unit == "none"
        return (
            not self._is_closed and arguments.algorithm == "auto" and is_host
            and arguments.op.function is None
            # `mpicoll.tune` may have measured another choice.
            and not (self.channel and self.planner.chooser.decided(arguments))
        )  # fmt: skip

    def ran(self, checked: Arguments | CollectiveError) -> tuple[str, str] | None:
        """Return the algorithm that the channel runs for a call, and its transport.

        None where it does not serve such calls.
        """
        if isinstance(checked, CollectiveError) or not self.serves(checked):
            return None
        name, size, shared = checked.collective.name, self.transport.size, self.transport.shared
        is_shared_out = size >= FIRST_SHARE_RANKS and checked.nbytes > SHARES_ABOVE
        has_cores = shared is not None and not shared.wait_policy.oversubscribed
        if is_shared_out and (name == "allreduce" or (name == "reduce" and has_cores)):
            return "two_shot", SLOTS
        return _SCHEDULES.get(name, "one_shot").format(size), SLOTS

    def digest(self, arguments: Arguments) -> int:
        """Return 64 bits, equal on ranks that make the same call, each by the channel."""
        row = arguments.row or ()
        digest: int = self.table.digest_with(_digest(arguments), row)
        return digest

    def open(self) -> None:
        """Open the channel; collective. Without the memory that it needs, it serves no calls."""
        transport, shared = self.transport, self.transport.shared
        assert shared is not None
        forms = forms_of(transport.arrays)
        self._is_closed = True
        if not all(transport.exchange(forms is not None, bool)):
            return
        try:
            segment, units = open_units(transport.exchange, transport.rank, range(transport.size))
        except Unavailable:
            return
        assert forms is not None
        self.channel = GroupChannel(
            forms, transport.rank, units,
            [shared.processes[rank] for rank in range(transport.size)],
            transport.deadline, self.flight, shares_cores=shared.wait_policy.oversubscribed,
            keep=segment, progress=self._look,
        )  # fmt: skip
        self.table.serve_by(self.channel.channel)
        self._is_closed = False

    def _look(self) -> None:
        """Let handlers of signals run in a long wait, which lasts as long as a user says."""
        if self.channel is not None:
            self.channel.channel.deadline = self.transport.deadline

    def run(self, arguments: Arguments, raw_arguments: tuple[Any, ...]) -> Array | None:
        """Run a call that all ranks make, and let the table serve such calls.

        Args:
            raw_arguments: the arguments as they came, from which the table recognises such calls;
                empty if it should not.
        """
        assert self.channel is not None
        out = arguments.out
        if arguments.has_output and out is None:
            out = empty(self.transport, arguments, arguments.shape("output"))
        width, name = prod(arguments.row or ()), arguments.collective.name
        rest = self._op(arguments), arguments.root, _counts(arguments, width), "auto", 0
        x, flat = self._flat(arguments, arguments.x), self._flat(arguments, out)
        run, is_barrier = self.channel.channel.run_next, arguments.collective.unit == "none"
        # A barrier is complete once the ranks have compared it.
        if not is_barrier and not run(name, x, flat, *rest):  # they overlap
            copy = self.transport.arrays.empty(tuple(x.shape), arguments.dtype or "")
            self.transport.arrays.copy(copy, x)
            is_run = run(name, copy, flat, *rest)
            assert is_run
        if raw_arguments:
            self._enter(arguments, raw_arguments)
        return out

    def _flat(self, arguments: Arguments, array: Array | None) -> Any:
        """Return a plain flat array in the memory of an array, whatever its class."""
        if array is None or arguments.dtype is None:
            return None
        arrays = self.transport.arrays
        start, stop = arrays.span(array)
        count = (stop - start) // itemsize(arguments.dtype)
        if not count:
            return arrays.empty((0,), arguments.dtype)
        return arrays.at(start, arguments.dtype, count, array)

    def _op(self, arguments: Arguments) -> str | None:
        assert self.channel is not None
        ops = self.channel.forms.ops
        return ops[ops.index(arguments.op.name)] if arguments.collective.reduces else None

    def _enter(self, arguments: Arguments, raw_arguments: tuple[Any, ...]) -> None:
        """Let the table serve such calls, of any length."""
        contract, rank, root = arguments.collective, arguments.rank, arguments.root
        takes_x = contract.has_input(rank, root) or contract.name == "broadcast"
        self.table.add_channel(
            raw_arguments, _digest(arguments), self._op(arguments), _counts(arguments, 1),
            arguments.has_output, partial(self.transport.arrays.empty, dtype=arguments.dtype or ""),
            _rows(arguments, "input") if takes_x else _NO_ARRAY,
            _rows(arguments, "output") if arguments.has_output else _NO_ARRAY,
            arguments.row or (),
        )  # fmt: skip

    @contextmanager
    def left_on_error(self) -> Iterator[None]:
        """Use the channel no more where this rank fails within this context; others find out."""
        try:
            yield
        except BaseException:
            if self.channel is not None:
                self.channel.channel.leave()
            self.close()
            raise

    def close(self) -> None:
        """Serve no more calls."""
        self._is_closed = True
        if self.channel is not None:
            self.table.serve_by(None)
            self.channel.close()
            self.channel = None


def _digest(arguments: Arguments) -> int:
    """Return 64 bits, equal where ranks make the same call but for the shapes of their arrays."""
    return digest_of(repr(("channel", *(arguments.signature | {"shape": None}).values())))


def _rows(arguments: Arguments, side: Any) -> int:
    """Return the length of the first axis of an array, `_ONE_ROW` where it is a row itself."""
    if arguments.collective.unit == "none":
        return _NO_ARRAY
    shape = arguments.shape(side)
    return _ONE_ROW if len(shape) == len(arguments.row or ()) else shape[0]


def _counts(arguments: Arguments, width: int) -> Any:
    """Return the counts of a call in elements, as a channel takes them.

    Args:
        width: elements of a row.
    """
    counts: Any = arguments.counts
    if counts is None:
        return None
    if arguments.collective.unit != "pairs":
        return tuple(count * width for count in counts)
    rank = arguments.rank
    return (
        tuple(count * width for count in counts[rank]), tuple(row[rank] * width for row in counts)
    )  # fmt: skip
