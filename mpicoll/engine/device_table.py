"""Make the table of a program whose arrays lie on a GPU: callbacks put its work on the stream."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, cycle
from typing import Any

from mpicoll.backend import Array, GpuStore, Thunk
from mpicoll.engine.compiled import Table
from mpicoll.lowering.fusing import Fused, fuse
from mpicoll.lowering.instructions import (
    Acknowledge,
    Complete,
    Instruction,
    Post,
    Publish,
)
from mpicoll.lowering.messages import OUTPUT, Combine, Move, Piece, view
from mpicoll.memory.slots import Published


class DeviceTable(Table):
    """The rows of one program over GPU memory."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.laid_out is not None:
            self.instructions, self.rounds = fuse(self.program)
        messages = *self.published, *self.incoming
        self.depth = max((message.depth for message in messages), default=1)
        # The caller's own work comes first.
        self.has_work = True

    @property
    def store(self) -> GpuStore:
        """The GPU memory of the ranks of this node."""
        assert self.laid_out is not None and self.laid_out.layout.gpu_store is not None
        return self.laid_out.layout.gpu_store

    def copy_input(self, copy: Array) -> None:
        self.call(self.arrays.copier(self.arrays.flat(copy), self.buffers[OUTPUT]))

    def divide(self, out: Array, divisor: int) -> None:
        self.call(self.arrays.divider(self.arrays.flat(out), divisor))

    def _add(self, instruction: Instruction | Fused, number: int, total: int) -> None:
        if isinstance(instruction, Move | Combine | Fused | Post | Complete):
            self.has_work = True
        if isinstance(instruction, Fused):
            self._fuse(instruction)
        else:
            super()._add(instruction, number, total)

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

    def _slot_view(self, rank: int, publication: Published, piece: Piece) -> Array:
        data, start = publication.data, piece.start * self.width
        if data is not None:
            start += data.start + self.sequence % publication.depth * data.stride
            return self.store.array(rank, data.segment, start, self.dtype, piece.length)
        assert publication.private is not None
        array, alive = self.store.foreign(publication.private, start, self.dtype, piece.length)
        self.resources.opened.append(alive)
        return array

    def _move(self, move: Move) -> None:
        self._call_in_turn(
            lambda: self.arrays.copier(self._view(move.target), self._view(move.source))
        )

    def _combine(self, combine: Combine) -> None:
        def bind() -> Thunk:
            target, lhs, rhs = map(self._view, combine)
            return self.arrays.folder(self.op, lhs, rhs, target)

        self._call_in_turn(bind)

    def _fuse(self, instruction: Fused) -> None:
        def bind() -> Thunk | None:
            operands = [self._view(piece) for piece in instruction.operands]
            return self.arrays.fuser(
                self.op, operands, instruction.steps, self._view(instruction.target)
            )

        pieces = chain.from_iterable(instruction.combines)
        self.unverified.update(p.buffer.number for p in pieces if p.buffer.is_remote)
        if not self._call_in_turn(bind):
            for combine in instruction.combines:
                self._combine(combine)

    # -- flags ------------------------------------------------------------------------------

    def _publish(self, instruction: Publish) -> None:
        self._wait_for_stream()
        super()._publish(instruction)

    def _acknowledge(self, instruction: Acknowledge) -> None:
        if self.shared.rank in self.incoming[instruction.receipt].acknowledge:
            self._wait_for_stream()
        super()._acknowledge(instruction)

    def _wait_for_stream(self) -> None:
        """Let the host wait for the work before a flag; of several flags the first alone waits."""
        if self.has_work:
            self.call(self.store.synchronize)
        self.has_work = False
