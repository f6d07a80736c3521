"""Bind a program of messages to memory: rounds of calls without arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from mpicoll.interfaces import Array, Arrays, Message, Messages, Thunk, Transport
from mpicoll.notation.operators import ReduceOp
from mpicoll.programs.messages import Combine, Move, Piece, Program, Step, Transfer, overlappable


class BoundRound(NamedTuple):
    """One round, bound to memory and messages.

    Attributes:
        during: local work that may be done while the messages travel.
    """

    before: tuple[Thunk, ...]
    messages: Messages
    during: tuple[Thunk, ...] = ()
    after: tuple[Thunk, ...] = ()


NO_MESSAGES = Messages((), (), lambda: True, lambda: None)

Variant = Callable[[], list[BoundRound]]
"""Binds the rounds of a run; a program whose buffers have a depth of n has n variants."""


class Resources(Protocol):
    """The requests and memory of a plan, kept alive as long as the plan can run.

    Attributes:
        under_way: whether a started run is not complete.
    """

    under_way: bool

    def free(self) -> None:
        """Release the library's requests and the shared memory."""

    def deadline(self) -> float:
        """Return the seconds after which a rank that waits gives up."""


class MessageResources:
    """The resources of a plan of messages alone."""

    def __init__(self, rounds: list[BoundRound]) -> None:
        self.rounds, self.under_way = rounds, False

    def free(self) -> None:
        for each in self.rounds:
            each.messages.free()

    def deadline(self) -> float:
        """Wait as long as the library does."""
        return inf


def bind_messages(
    program: Program, buffers: dict[str, Array], op: ReduceOp, transport: Transport, tag: int
) -> list[BoundRound]:
    """Bind a program's steps to flat buffers ``input``, ``output``, ``scratch``, ``staging``."""
    arrays = transport.arrays

    def view(piece: Piece) -> Array:
        return buffers[piece.buffer][piece.start : piece.start + piece.length]

    def local(action: Move | Combine) -> Thunk:
        if isinstance(action, Move):
            return arrays.copier(view(action.target), view(action.source))
        return arrays.folder(op, view(action.left), view(action.right), view(action.target))

    def messages(transfers: list[Transfer]) -> list[Message]:
        return [Message(each.peer, each.piece and view(each.piece)) for each in transfers]

    def bound(step: Step) -> BoundRound:
        during, after = overlappable(step)
        return BoundRound(
            tuple(map(local, step.before)),
            transport.messages(messages(step.sends), messages(step.receives), tag)
            if step.sends or step.receives
            else NO_MESSAGES,
            tuple(map(local, during)),
            tuple(map(local, after)),
        )

    return [*map(bound, program.steps)]


def flat(rounds: Sequence[BoundRound]) -> Iterator[Thunk]:
    """Yield the calls of a blocking run."""
    for each in rounds:
        yield from (*each.before, *each.messages.start, *each.during)
        yield from (*each.messages.wait, *each.after)


def buffers_for(arrays: Arrays, x: Array | None, out: Array | None) -> dict[str, Array]:
    """Return the caller's arrays as the flat buffers ``input`` and ``output``."""
    given = {"input": x, "output": out}
    return {name: arrays.flat(array) for name, array in given.items() if array is not None}


def scratch_for(
    arrays: Arrays, needed: Mapping[str, int], dtype: str, x: Array | None, out: Array | None
) -> dict[str, Array]:
    """Allocate the buffers that a program needs of its own."""
    like = x if x is not None else out
    return {name: arrays.empty((count,), dtype, like) for name, count in needed.items()}
