"""Make the table of a program whose arrays lie on a GPU: callbacks put its work on the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, cycle
from typing import Any

from mpicoll.backend import Array, Store, Thunk
from mpicoll.execution.compiled import Table
from mpicoll.memory.slots import Published
from mpicoll.programs.fusing import Fused, fuse
from mpicoll.programs.instructions import (
    Acknowledge,
    Complete,
    Instruction,
    Post,
    Publish,
)
from mpicoll.programs.messages import OUTPUT, Combine, Move, Piece, view


class DeviceTable(Table):
    """The rows of one program over GPU memory."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.instructions: Sequence[Instruction | Fused] = self.program.instructions
        self.rounds: Sequence[int] = self.program.rounds
        if self.laid_out is not None:
            self.instructions, self.rounds = fuse(self.program)
        messages = *self.published, *self.incoming
        self.depth = max((message.depth for message in messages), default=1)
        # The caller's own work comes first.
        self.has_work = True

    @property
    def store(self) -> Store:
        """The GPU memory of the ranks of this node."""
        assert self.laid_out is not None
        return self.laid_out.layout.store

    def copy_input(self, copy: Array) -> None:
        self.call(self.arrays.copier(self.arrays.flat(copy), self.buffers[OUTPUT]))

    def divide(self, out: Array, divisor: int) -> None:
        self.call(self.arrays.divider(self.arrays.flat(out), divisor))

    def fill(self) -> None:
        total = max(self.rounds, default=1)
        for instruction, number in zip(self.instructions, self.rounds, strict=True):
            self._add(instruction, number, total)
        if self.check < 0:
            self.check = self.length

    def _add(self, each: Instruction | Fused, number: int, total: int) -> None:
        if isinstance(each, Move | Combine | Fused | Post | Complete):
            self.has_work = True
        if isinstance(each, Fused):
            self._fuse(each)
        else:
            super()._add(each, number, total)

    # -- work on the stream -----------------------------------------------------------------

    def _call_in_turn(self, bind: Callable[[], Thunk | None]) -> bool:
        """Let the runs take bound functions in turn, one for each slot; whether there are any."""
        functions: list[Thunk] = []
        for sequence in range(1, self.depth + 1):
            self.sequence = sequence
            function = bind()
            if function is None:
                return False
            functions.append(function)
        turns = cycle(functions)
        self.call(functions[0] if self.depth == 1 else lambda: next(turns)())
        return True

    def _view(self, piece: Piece) -> Array:
        place = self.laid_out.slot_of(piece) if self.laid_out else None
        return self._slot_view(*place, piece) if place else view(self.buffers, piece)

    def _slot_view(self, rank: int, where: Published, piece: Piece) -> Array:
        data, start = where.data, piece.start * self.width
        if data is not None:
            start += data.start + self.sequence % where.depth * data.stride
            return self.store.array(rank, data.segment, start, self.dtype, piece.length)
        assert where.private is not None
        array, alive = self.store.foreign(where.private, start, self.dtype, piece.length)
        self.resources.opened.append(alive)
        return array

    def _move(self, each: Move) -> None:
        self._call_in_turn(
            lambda: self.arrays.copier(self._view(each.target), self._view(each.source))
        )

    def _combine(self, each: Combine) -> None:
        def bind() -> Thunk:
            target, left, right = map(self._view, each)
            return self.arrays.folder(self.op, left, right, target)

        self._call_in_turn(bind)

    def _fuse(self, each: Fused) -> None:
        def bind() -> Thunk | None:
            operands = [self._view(piece) for piece in each.operands]
            return self.arrays.fuser(self.op, operands, each.steps, self._view(each.target))

        pieces = chain.from_iterable(each.combines)
        self.unverified.update(p.buffer.number for p in pieces if p.buffer.is_remote)
        if not self._call_in_turn(bind):
            for combine in each.combines:
                self._combine(combine)

    # -- flags ------------------------------------------------------------------------------

    def _publish(self, each: Publish) -> None:
        self._wait_for_stream()
        super()._publish(each)

    def _acknowledge(self, each: Acknowledge) -> None:
        if self.shared.rank in self.incoming[each.receipt].acknowledge:
            self._wait_for_stream()
        super()._acknowledge(each)

    def _wait_for_stream(self) -> None:
        """Let the host wait for the work before a flag; of several flags the first alone waits."""
        synchronize = self.store.release(0)
        if self.has_work and synchronize is not None:
            self.call(synchronize)
        self.has_work = False
