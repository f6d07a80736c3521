"""Shared programs bound to memory: every instruction becomes a call without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from mpicoll.interfaces import Array, Memory, Message, Messages, Thunk, Transport
from mpicoll.memory import cma as attach
from mpicoll.memory.slots import Layout, Private, Published, Resources, Table, view
from mpicoll.memory.waiting import WaitContext
from mpicoll.notation.contract import ReduceOp
from mpicoll.programs.fusing import Fused, fuse
from mpicoll.programs.messages import Combine, Move, Piece
from mpicoll.programs.shared_memory import (
    Acknowledge,
    Await,
    Complete,
    Instruction,
    Post,
    Publish,
    Reserve,
    SharedProgram,
    is_remote,
)
from mpicoll.runtime.arguments import itemsize
from mpicoll.runtime.plan import BoundRound, Turn

if TYPE_CHECKING:
    from mpicoll.memory.segments import SharedMemory


class Binding:
    """One program on its way to bound rounds."""

    def __init__(
        self, group: SharedMemory, program: SharedProgram, layout: Layout, tables: Sequence[Table],
        dtype: str, op: ReduceOp, what: str, resources: Resources,
    ) -> None:  # fmt: skip
        self.group, self.program, self.dtype, self.op = group, program, dtype, op
        self.store = layout.store
        self.buffers, self.published = layout.buffers, layout.published
        self.what, self.resources = what, resources
        self.arrays, self.width = group.arrays, itemsize(dtype)
        self.bounce: dict[str, Array] = {}
        self.instructions: Sequence[Instruction | Fused] = program.instructions
        self.numbers: Sequence[int] = program.rounds
        if layout.apart:
            self.instructions, self.numbers = fuse(program)
        self.incoming = [
            tables[each.peer].published[tables[each.peer].sent[group.rank][each.order]]
            for each in program.receipts
        ]

    def turns(self, far: Transport, tag: int) -> list[Turn]:
        """Return what binds the program, once for each turn that its cells can be in."""
        for each in self.program.instructions:
            if isinstance(each, Post):
                sends, receives = (
                    [Message(peer, piece and self._view(piece)) for peer, piece in transfers]
                    for transfers in each
                )
                self.resources.far.append(far.messages(sends, receives, tag))
        count = max((each.cells for each in [*self.published, *self.incoming]), default=1)
        return [partial(self._rounds, turn) for turn in range(1, count + 1)]

    def _rounds(self, turn: int) -> list[BoundRound]:
        """Group what is done and what is waited for into rounds, after counting the run."""
        bound: list[BoundRound] = []
        self.turn, self.far_messages = turn, iter(self.resources.far)
        total = max(self.numbers, default=1)
        actions: list[Thunk] = [partial(_count, self.resources.turn)]
        steps = zip(self.instructions, self.numbers, strict=True)
        parts = (self._bound(each, number, total) for each, number in steps)
        for waits, group in groupby(chain.from_iterable(parts), lambda part: part[1] is not None):
            found = list(group)
            if not waits:
                actions += (thunk for thunk, _ in found)
                continue
            tests = tuple(test for _, test in found if test is not None)
            messages = Messages((), tuple(thunk for thunk, _ in found), partial(_all, tests), _none)
            bound.append(BoundRound(tuple(actions), messages))
            actions = []
        if actions:
            bound.append(BoundRound(tuple(actions), Messages((), (), _true, _none)))
        return bound

    def _bound(self, each: Instruction | Fused, number: int, total: int) -> list[Part]:
        """Return the thunks of one instruction, each with a test if it waits."""
        if isinstance(each, Move):
            return [(thunk, None) for thunk in self._move(each)]
        if isinstance(each, Combine):
            return [(thunk, None) for thunk in self._combine(each)]
        if isinstance(each, Fused):
            return [(thunk, None) for thunk in self._fold(each)]
        if isinstance(each, Publish):
            return [(self._raise(each), None)]
        if isinstance(each, Acknowledge):
            return [(thunk, None) for thunk in self._acknowledge(each.receipt)]
        if isinstance(each, Post):
            self.current = next(self.far_messages)
            return [(thunk, None) for thunk in self.current.start]
        if isinstance(each, Complete):
            *rest, last = self.current.wait
            return [*((thunk, _true) for thunk in rest), (last, self.current.test)]
        if isinstance(each, Await):
            return [self._await(each, number, total)]
        behind = self.published[each.publication].cells if isinstance(each, Reserve) else 0
        published = self.published[each.publication]
        return [
            self._wait(
                self.group.words[self.group.rank][published.segment], word // 8, -behind,
                WaitContext(self.what, number, total, reader), None,
            )
            for reader, word in published.acknowledge.items()
        ]  # fmt: skip

    def _view(self, piece: Piece) -> Array:
        if piece.buffer.startswith("slot "):
            number = int(piece.buffer.removeprefix("slot "))
            return self._slot(self.group.rank, self.published[number], piece)
        if is_remote(piece):
            number = int(piece.buffer.removeprefix("from "))
            return self._slot(self.program.receipts[number].peer, self.incoming[number], piece)
        return view(self.buffers, piece)

    def _slot(self, rank: int, where: Published, piece: Piece) -> Array:
        data, start = where.data, piece.start * self.width
        if isinstance(data, Private):
            array, alive = self.store.foreign(data.where, start, self.dtype, piece.length)
            self.resources.opened.append(alive)
            return array
        start += data.start + (self.turn % where.cells) * data.stride
        return self.store.array(rank, data.segment, start, self.dtype, piece.length)

    def _attached(self, piece: Piece) -> Any:
        """Return where a piece lies, if that is memory which a call must fetch it from."""
        if not is_remote(piece) or self.store.maps:
            return None
        data = self.incoming[int(piece.buffer.removeprefix("from "))].data
        return data.where if isinstance(data, Private) else None

    def _fetch(self, piece: Piece, where: Any, target: Array) -> Thunk:
        process, address = where
        start, stop = self.arrays.span(target)
        return attach.reader(process, address + piece.start * self.width, start, stop - start)

    def _move(self, each: Move) -> list[Thunk]:
        target = self._view(each.target)
        where = self._attached(each.source)
        if where is not None:
            return [self._fetch(each.source, where, target)]
        return [self.arrays.copier(target, self._view(each.source))]

    def _combine(self, each: Combine) -> list[Thunk]:
        """Fold; what lies in private memory of others is first read into a buffer of ours."""
        thunks: list[Thunk] = []

        def operand(name: str, piece: Piece) -> Array:
            where = self._attached(piece)
            if where is None:
                return self._view(piece)
            if name not in self.bounce or len(self.bounce[name]) < piece.length:
                self.bounce[name] = self.arrays.empty((piece.length,), self.dtype)
            fetched = self.bounce[name][: piece.length]
            thunks.append(self._fetch(piece, where, fetched))
            return fetched

        left, right = operand("left", each.left), operand("right", each.right)
        return [*thunks, self.arrays.folder(self.op, left, right, self._view(each.target))]

    def _fold(self, each: Fused) -> list[Thunk]:
        operands = [self._view(piece) for piece in each.operands]
        once = self.arrays.fuser(self.op, operands, each.steps, self._view(each.target))
        if once is not None:
            return [once]
        return [thunk for combine in each.combines for thunk in self._combine(combine)]

    # -- flags -------------------------------------------------------------------------------

    def _flag(self, where: Published, tile: int) -> int:
        return (where.start + (self.turn % where.cells) * where.stride + tile * where.flags) // 8

    def _raise(self, each: Publish) -> Thunk:
        where = self.published[each.publication]
        words = self.group.words[self.group.rank][where.segment]
        nbytes = where.length * self.width
        fence = self.store.release(nbytes)
        return _raising(words, self._flag(where, each.tile), self.resources.turn, fence)

    def _await(self, each: Await, number: int, total: int) -> Part:
        where, receipt = self.incoming[each.receipt], self.program.receipts[each.receipt]
        fence = self.store.acquire(receipt.length * self.width)
        context = WaitContext(self.what, number, total, receipt.peer)
        words = self.group.words[receipt.peer][where.segment]
        return self._wait(words, self._flag(where, each.tile), 0, context, fence)

    def _acknowledge(self, number: int) -> list[Thunk]:
        receipt, where = self.program.receipts[number], self.incoming[number]
        word = where.acknowledge.get(self.group.rank)
        if word is None:
            return []
        words = self.group.words[receipt.peer][where.segment]
        fence = self.store.release(receipt.length * self.width)
        return [_raising(words, word // 8, self.resources.turn, fence)]

    def _wait(
        self, words: Memory, index: int, offset: int, context: WaitContext, fence: Thunk | None
    ) -> Part:
        """Wait for a word to reach the number of this run, plus `offset`."""
        turn, slow = self.resources.turn, self.group.wait_policy.wait

        def wait() -> None:
            if words[index] < turn[0] + offset:
                slow(words, index, turn[0] + offset, context)

        def wait_and_fence() -> None:
            wait()
            fence()  # type: ignore[misc]

        return (wait_and_fence if fence else wait), lambda: words[index] >= turn[0] + offset


Part = tuple[Thunk, Callable[[], bool] | None]
"""What an instruction does; with a test, it waits for something."""


def _raising(words: Memory, index: int, turn: list[int], fence: Thunk | None) -> Thunk:
    def raise_flag() -> None:
        words[index] = turn[0]

    def fence_and_raise() -> None:
        fence()  # type: ignore[misc]
        words[index] = turn[0]

    return fence_and_raise if fence else raise_flag


def _count(turn: list[int]) -> None:
    turn[0] += 1


def _all(tests: Sequence[Callable[[], bool]]) -> bool:
    return all(test() for test in tests)


def _true() -> bool:
    return True


def _none() -> None:
    return None
