"""A library's own collectives, bound to arrays, and which call a rank is in."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from mpicoll.interfaces.arrays import Array, Thunk
from mpicoll.notation.contract import Collective
from mpicoll.notation.elements import ReduceOp

RunOn = Callable[[Array | None, Array | None], object]
"""Runs a call for an x and an out."""


class NativeCall(NamedTuple):
    """The checked arguments of a native collective.

    Attributes:
        x: the input array, None where this rank gives none; `out` likewise.
        counts: rows per rank, or per pair of ranks; None for equal ones.
        in_place: `x` and `out` share memory, each block at its own place.
        rank: of the caller in its group.
        apart: of `Calls.apart`, where a rank may leave the call in its middle.
        repeats: it is run many times on these arrays.
    """

    collective: Collective
    x: Array | None
    out: Array | None
    op: ReduceOp
    root: int
    counts: Sequence[Any] | None
    in_place: bool
    rank: int
    apart: Apart | None = None
    repeats: bool = False

    @property
    def array(self) -> Array | None:
        """One of its arrays, which lie on one device; None where this rank has none."""
        return self.out if self.x is None else self.x


class Native(NamedTuple):
    """A bound native collective: `run` blocks, `start` returns a request.

    Attributes:
        transport: how its arrays reach the library, for the record.
        averages: whether the library divides a mean itself.
        method: the library's own method as its users write it; None where `run` is that.
        run_on: runs it on arrays that are like its own, and keeps none of them; None where it must
            be bound to them.
    """

    run: Thunk
    start: Callable[[], Request]
    free: Thunk
    transport: str = "native"
    averages: bool = False
    method: Thunk | None = None
    run_on: RunOn | None = None


class Apart(Protocol):
    """Keeps the library's own calls of one plan from those of others.

    Attributes:
        left: a rank has left such a call in its middle.
    """

    left: bool

    def leave(self, error: BaseException, *unfinished: object) -> None:
        """State that this rank has left such a call by an error.

        Args:
            unfinished: what must exist though this rank no longer waits for it.
        """

    def free(self) -> None:
        """Release it, unless a rank has left such a call; collective."""


BEGUN, ENDED, PLAN = range(3)
"""The places of the numbers in `Calls.numbers`; ``stated_type.c`` has them, too."""


class Calls(Protocol):
    """States in which call of a method this rank is: `mpicoll.peers.calls`.

    A call sets `PLAN`, then `BEGUN`, and `ENDED` when it is complete.

    Attributes:
        numbers: how many calls this rank has begun, which of them it has completed last, and the
            number of the plan that serves the last one, each at its place.
        drop: takes the numbers of plans that no rank may run again, as messages of them that
            nobody has received may be under way.
        apart: takes a tag that no other plan has and the name of a collective, and returns what the
            library's own calls for it need so that a rank can leave them in their middle;
            collective.
    """

    numbers: array[int]
    drop: Callable[[set[int]], None]
    apart: Callable[[int, str], Apart]


class Request(Protocol):
    """An operation under way."""

    def wait(self) -> None:
        """Block until it is complete."""

    def test(self) -> bool:
        """Advance without blocking; whether it is complete."""
