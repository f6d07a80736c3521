"""Bind a program over shared memory: every instruction becomes a call without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any

from mpicoll.backend import (
    Array,
    Memory,
    Message,
    SharedMemory,
    Stage,
    Thunk,
    Transport,
    WaitContext,
)
from mpicoll.errors import RankLost
from mpicoll.execution.plan import Variant
from mpicoll.execution.runs import NO_MESSAGES, BoundRound
from mpicoll.memory import cma
from mpicoll.memory.layout import LaidOut
from mpicoll.memory.notes import withdrawn
from mpicoll.memory.segments import new_fence
from mpicoll.memory.slots import Published
from mpicoll.notation.elements import ReduceOp, itemsize
from mpicoll.programs.fusing import Fused, fuse
from mpicoll.programs.instructions import (
    Acknowledge,
    Await,
    Complete,
    Instruction,
    Post,
    Publish,
    WaitForReaders,
    WaitForSlot,
)
from mpicoll.programs.messages import Combine, Move, Piece, view


class Binding:
    """The rounds of one program, bound to the layouts of all ranks."""

    def __init__(self, laid_out: LaidOut, dtype: str, op: ReduceOp, what: str) -> None:
        self.laid_out = laid_out
        layout, self.incoming, self.resources = laid_out
        memory, program = layout.memory, layout.program
        self.memory, self.program, self.dtype, self.op = memory, program, dtype, op
        self.store = layout.store
        self.buffers, self.published = layout.buffers, layout.published
        self.what = what
        self.arrays, self.width = memory.arrays, itemsize(dtype)
        self.bounce: dict[str, Array] = {}
        self.unverified: set[int] = set()
        self.fence = new_fence()
        self.instructions: Sequence[Instruction | Fused] = program.instructions
        self.numbers: Sequence[int] = program.rounds
        self.on_gpu = layout.has_store
        if layout.has_store:
            self.instructions, self.numbers = fuse(program)

    def variants(self, transport: Transport, tag: int) -> list[Variant]:
        """Return the variants of the program: one for each slot of its deepest buffer."""
        self.resources.withdraw = _withdrawing(self.memory, self.published, self.fence)
        total = max(self.program.rounds, default=1)
        for each, number in zip(self.program.instructions, self.program.rounds, strict=True):
            if isinstance(each, Post):
                sends, receives = (
                    [Message(peer, piece and self._view(piece)) for peer, piece in transfers]
                    for transfers in each
                )
                stage = Stage(self.what, number, total, self.resources.number)
                self.resources.inter_node.append(transport.messages(sends, receives, tag, stage))
        count = max((each.depth for each in [*self.published, *self.incoming]), default=1)
        return [partial(self._rounds, sequence) for sequence in range(1, count + 1)]

    def _rounds(self, sequence: int) -> list[BoundRound]:
        """Return the rounds of the runs with this sequence number, modulo the depth."""
        bound: list[BoundRound] = []
        self.sequence, self.inter_node = sequence, iter(self.resources.inter_node)
        # The caller's own work comes first.
        self.pending = True
        total = max(self.numbers, default=1)
        actions: list[Thunk] = [partial(_count, self.resources.sequence)]
        steps = zip(self.instructions, self.numbers, strict=True)
        parts = (self._bound(each, number, total) for each, number in steps)
        for waits, group in groupby(chain.from_iterable(parts), lambda part: part[1] is not None):
            found = list(group)
            if not waits:
                actions += (thunk for thunk, _, _ in found)
                continue
            tests = tuple(test for _, test, _ in found if test is not None)
            waiting = tuple(thunk for thunk, _, _ in found)
            messages = NO_MESSAGES._replace(
                wait=waiting, test=partial(_all, tests), lost=partial(_lost, found)
            )
            bound.append(BoundRound(tuple(actions), messages))
            actions = []
        if actions:
            bound.append(BoundRound(tuple(actions), NO_MESSAGES))
        return bound

    def _bound(self, each: Instruction | Fused, number: int, total: int) -> list[Part]:
        """Return the thunks of one instruction, each with a test if it waits."""
        if isinstance(each, Complete):
            self.pending = True
            *rest, last = self.current.wait
            first = [(thunk, lambda: True, None) for thunk in rest]
            return [*first, (last, self.current.test, self.current.lost)]
        if isinstance(each, Await):
            return [self._await(each, number, total)]
        if not isinstance(each, WaitForSlot | WaitForReaders):
            return [(thunk, None, None) for thunk in self._local(each)]
        published = self.published[each.publication]
        behind = published.depth if isinstance(each, WaitForSlot) else 0
        return [
            self._wait(
                self.memory.words[self.memory.rank][published.segment], word // 8, -behind,
                self._context(number, total, reader), None,
            )
            for reader, word in published.acknowledge.items()
        ]  # fmt: skip

    def _local(
        self, each: Move | Combine | Fused | Publish | Acknowledge | Post
    ) -> Sequence[Thunk]:
        """Return the thunks of an instruction that does not wait."""
        if isinstance(each, Publish):
            return self._raise(each)
        if isinstance(each, Acknowledge):
            return self._acknowledge(each.receipt)
        self.pending = True
        if isinstance(each, Move | Combine | Fused):
            pieces = chain.from_iterable(each.combines if isinstance(each, Fused) else [each])
            self.unverified.update(e.buffer.number for e in pieces if e.buffer.is_remote)
        if isinstance(each, Move):
            return self._move(each)
        if isinstance(each, Combine):
            return self._combine(each)
        if isinstance(each, Fused):
            return self._fold(each)
        self.current = next(self.inter_node)
        return self.current.start

    def _view(self, piece: Piece) -> Array:
        found = self.laid_out.slot_of(piece)
        return self._slot(*found, piece) if found else view(self.buffers, piece)

    def _slot(self, rank: int, where: Published, piece: Piece) -> Array:
        data, start = where.data, piece.start * self.width
        if data is None:
            assert where.private is not None
            array, alive = self.store.foreign(where.private, start, self.dtype, piece.length)
            self.resources.opened.append(alive)
            return array
        start += data.start + (self.sequence % where.depth) * data.stride
        return self.store.array(rank, data.segment, start, self.dtype, piece.length)

    def _by_cma(self, piece: Piece) -> Any:
        """Return the location of a piece that must be read by CMA, None for other memory."""
        if not piece.buffer.is_remote or self.store.maps:
            return None
        return self.incoming[piece.buffer.number].private

    def _fetch(self, piece: Piece, where: Any, target: Array) -> Thunk:
        process, address = where
        start, stop = self.arrays.span(target)
        read = cma.reader(process, address + piece.start * self.width, start, stop - start)
        return partial(self._read, read, self.program.receipts[piece.buffer.number].peer)

    def _read(self, read: Thunk, peer: int) -> None:
        try:
            read()
        except RankLost as error:
            what = f"{self.what}: reading memory of rank {peer}: {error.reason}"
            raise RankLost(what, rank=peer) from None

    def _move(self, each: Move) -> list[Thunk]:
        target = self._view(each.target)
        where = self._by_cma(each.source)
        if where is not None:
            return [self._fetch(each.source, where, target)]
        return [self.arrays.copier(target, self._view(each.source))]

    def _combine(self, each: Combine) -> list[Thunk]:
        """Fold; operands in private memory of others are first read into a buffer of this rank."""
        thunks: list[Thunk] = []

        def operand(name: str, piece: Piece) -> Array:
            where = self._by_cma(piece)
            if where is None:
                return self._view(piece)
            fetched = self._bounced(name, piece.length)
            thunks.append(self._fetch(piece, where, fetched))
            return fetched

        left, right = operand("left", each.left), operand("right", each.right)
        return [*thunks, self.arrays.folder(self.op, left, right, self._view(each.target))]

    def reserve(self) -> None:
        """Take the memory for data that a run fetches and then folds."""
        for each in self.program.instructions:
            if isinstance(each, Combine):
                for name, piece in (("left", each.left), ("right", each.right)):
                    if self._by_cma(piece) is not None:
                        self._bounced(name, piece.length)

    def _bounced(self, name: str, length: int) -> Array:
        if name not in self.bounce or len(self.bounce[name]) < length:
            self.bounce[name] = self.arrays.empty((length,), self.dtype)
        return self.bounce[name][:length]

    def _fold(self, each: Fused) -> list[Thunk]:
        operands = [self._view(piece) for piece in each.operands]
        once = self.arrays.fuser(self.op, operands, each.steps, self._view(each.target))
        if once is not None:
            return [once]
        return [thunk for combine in each.combines for thunk in self._combine(combine)]

    # -- flags -------------------------------------------------------------------------------

    def _flag(self, where: Published, tile: int) -> int:
        slot = self.sequence % where.depth
        return (where.start + slot * where.stride + tile * where.flags) // 8

    def _raise(self, each: Publish) -> list[Thunk]:
        where = self.published[each.publication]
        words = self.memory.words[self.memory.rank][where.segment]
        return self._raised(words, self._flag(where, each.tile), where.length)

    def _raised(self, words: Memory, index: int, length: int) -> list[Thunk]:
        """Return the thunks that verify zero-copy reads, and then raise a flag."""
        fence, sequence = self._release(length), self.resources.sequence
        zero_copy = [each for each in sorted(self.unverified) if self.incoming[each].is_zero_copy]
        self.unverified.clear()
        if not zero_copy:
            return [_raising(words, index, sequence, fence)]
        verify = [self._verify(self.incoming[each], self.program.receipts[each].peer)
                  for each in zero_copy]  # fmt: skip
        return [fence or self.fence, *verify, _raising(words, index, sequence, None)]

    def _verify(self, where: Published, peer: int) -> Thunk:
        """Return a thunk that fails where a rank has left the call whose array was read."""
        memory, number, what = self.memory, self.resources.number, self.what
        words, index = memory.words[peer][where.segment], where.withdrawn // 8

        def verify() -> None:
            if words[index]:
                raise withdrawn(memory, number, what, peer)

        return verify

    def _release(self, length: int) -> Thunk | None:
        """Return the fence between work on elements and their flag.

        On a GPU it waits for all the work there, so that of several flags that nothing is done
        between the first alone needs it.
        """
        if self.on_gpu and not self.pending:
            return None
        self.pending = False
        return self.store.release(length * self.width)

    def _await(self, each: Await, number: int, total: int) -> Part:
        where, receipt = self.incoming[each.receipt], self.program.receipts[each.receipt]
        fence = self.store.acquire(receipt.length * self.width)
        context = self._context(number, total, receipt.peer)
        words = self.memory.words[receipt.peer][where.segment]
        return self._wait(words, self._flag(where, each.tile), 0, context, fence)

    def _context(self, number: int, total: int, peer: int) -> WaitContext:
        left = partial(self.memory.notes.why, peer, self.resources.number)
        return WaitContext(self.what, number, total, peer, left, self.resources.number)

    def _acknowledge(self, number: int) -> list[Thunk]:
        receipt, where = self.program.receipts[number], self.incoming[number]
        word = where.acknowledge.get(self.memory.rank)
        if word is None:
            return []
        words = self.memory.words[receipt.peer][where.segment]
        return self._raised(words, word // 8, receipt.length)

    def _wait(
        self, words: Memory, index: int, offset: int, context: WaitContext, fence: Thunk | None
    ) -> Part:
        """Wait for a word to reach the number of this run, plus `offset`."""
        sequence, policy = self.resources.sequence, self.memory.wait_policy
        slow = policy.wait

        def wait() -> None:
            if words[index] < sequence[0] + offset:
                slow(words, index, sequence[0] + offset, context)

        def wait_and_fence() -> None:
            wait()
            fence()  # type: ignore[misc]

        def test() -> bool:
            least = sequence[0] + offset
            return words[index] >= least or policy.test(words, index, least, context)

        return (wait_and_fence if fence else wait), test, lambda what: policy.lost(context, what)


Lost = Callable[[str], RankLost | None]
Part = tuple[Thunk, Callable[[], bool] | None, Lost | None]
"""A call of an instruction; with a test, it waits for something, and has an error for that."""


def _raising(words: Memory, index: int, sequence: list[int], fence: Thunk | None) -> Thunk:
    def raise_flag() -> None:
        words[index] = sequence[0]

    def fence_and_raise() -> None:
        fence()  # type: ignore[misc]
        words[index] = sequence[0]

    return fence_and_raise if fence else raise_flag


def _withdrawing(memory: SharedMemory, published: Sequence[Published], fence: Thunk) -> Thunk:
    """Return a thunk that withdraws the arrays that other ranks read in place."""
    places = [
        (memory.words[memory.rank][each.segment], each.withdrawn // 8)
        for each in published
        if each.is_zero_copy
    ]

    def withdraw() -> None:
        for words, index in places:
            words[index] = 1
        fence()

    return withdraw


def _count(sequence: list[int]) -> None:
    sequence[0] += 1


def _lost(parts: Sequence[Part], what: str) -> RankLost | None:
    """Return the error of a wait for the first part that is not complete."""
    waiting = (lost for _, test, lost in parts if test is not None and lost and not test())
    first = next(waiting, None)
    return first and first(what)


def _all(tests: Sequence[Callable[[], bool]]) -> bool:
    return all(test() for test in tests)
