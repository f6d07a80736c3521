"""Bind a program of messages to its buffers: every step becomes a round of calls."""

from __future__ import annotations

from functools import partial

from mpicoll.backend import Array, Message, Stage, Thunk, Transport
from mpicoll.errors import RankLost
from mpicoll.execution.plan import Variant
from mpicoll.execution.runs import NO_MESSAGES, BoundRound
from mpicoll.memory.notes import GROUP
from mpicoll.notation.elements import ReduceOp
from mpicoll.programs.messages import (
    Buffer,
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

    def __init__(self, rounds: list[BoundRound], transport: Transport, operation: int) -> None:
        self.rounds, self.under_way, self.failed = rounds, False, False
        self.transport, self.operation = transport, operation

    def fail(self, error: BaseException) -> None:
        if not self.failed:
            self.failed = True
            self.transport.leave(self.operation, error)

    def lost(self, position: int, what: str) -> RankLost | None:
        """Return nothing, as rounds of calls have errors of their own."""
        return None

    def free(self) -> None:
        for each in self.rounds:
            each.messages.free()

    def deadline(self) -> float:
        return self.transport.deadline


def bind_messages(
    program: Program, buffers: dict[Buffer, Array], dtype: str, op: ReduceOp, transport: Transport,
    tag: int, what: str,
) -> tuple[MessageResources, list[Variant]]:  # fmt: skip
    """Bind a program to its flat input and output, and to scratch of its own.

    Args:
        what: the operation, for an error's text; `tag` is its number.
    """
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

    operation = GROUP - tag

    def bound(step: Step, number: int) -> BoundRound:
        during, after = overlappable(step)
        stage = Stage(what, number, len(program.steps), operation)
        return BoundRound(
            tuple(map(local, step.before)),
            transport.messages(messages(step.sends), messages(step.receives), tag, stage)
            if step.sends or step.receives
            else NO_MESSAGES,
            tuple(map(local, during)),
            tuple(map(local, after)),
        )

    rounds = [bound(step, number) for number, step in enumerate(program.steps, 1)]
    return MessageResources(rounds, transport, operation), [lambda: rounds]
