"""Bind a program of messages to its buffers: every step becomes a round of calls."""

from __future__ import annotations

from functools import partial
from math import inf

from mpicoll.execution.plan import Variant
from mpicoll.execution.runs import NO_MESSAGES, BoundRound
from mpicoll.interfaces import Array, Message, Thunk, Transport
from mpicoll.notation.elements import ReduceOp
from mpicoll.programs.messages import (
    Combine,
    Move,
    Program,
    Step,
    Transfer,
    overlappable,
    view,
)


class MessageResources:
    """The resources of a plan of messages alone."""

    def __init__(self, rounds: list[BoundRound]) -> None:
        self.rounds, self.under_way, self.failed = rounds, False, False

    def fail(self, error: BaseException) -> None:
        self.failed = True

    def free(self) -> None:
        for each in self.rounds:
            each.messages.free()

    def deadline(self) -> float:
        """Wait as long as the library does."""
        return inf


def bind_messages(
    program: Program, buffers: dict[str, Array], dtype: str, op: ReduceOp, transport: Transport,
    tag: int,
) -> tuple[MessageResources, list[Variant]]:  # fmt: skip
    """Bind a program to its flat buffers ``input`` and ``output``, and to scratch of its own."""
    arrays = transport.arrays
    like = next(iter(buffers.values()), None)
    buffers |= {name: arrays.empty((n,), dtype, like) for name, n in program.scratch.items()}

    memory = partial(view, buffers)

    def local(action: Move | Combine) -> Thunk:
        if isinstance(action, Move):
            return arrays.copier(memory(action.target), memory(action.source))
        return arrays.folder(op, memory(action.left), memory(action.right), memory(action.target))

    def messages(transfers: list[Transfer]) -> list[Message]:
        return [Message(each.peer, each.piece and memory(each.piece)) for each in transfers]

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

    rounds = [*map(bound, program.steps)]
    return MessageResources(rounds), [lambda: rounds]
