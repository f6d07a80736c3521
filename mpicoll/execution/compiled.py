"""Make the table by which the compiled loop (`program.c`) runs a program over shared memory.

Every instruction becomes a row of 64-bit integers over registers, so that a program runs on any
arrays of its signature. `Binding` in `mpicoll.execution.shared_memory` makes calls without
arguments of the same instructions, for what no compiled loop can do: arrays on a GPU, users'
operators, messages to other nodes, and systems without a compiler.
"""

from __future__ import annotations

import os
from array import array
from errno import ECANCELED
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mpicoll.backend import Array, WaitContext, Words
from mpicoll.errors import RankLost
from mpicoll.execution import extension
from mpicoll.memory.layout import LaidOut
from mpicoll.memory.notes import withdrawn
from mpicoll.memory.slots import Published
from mpicoll.memory.waiting import started_here, wait_advancing
from mpicoll.notation.elements import ReduceOp, itemsize
from mpicoll.programs import messages
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
from mpicoll.programs.messages import Combine, Kind, Move, Piece

if TYPE_CHECKING:
    from mpicoll.execution._compiled import Program

COPY, FOLD, DIVIDE, RAISE, AWAIT, FETCH, VERIFY = range(7)
CACHED, STREAMED, ADAPTIVE = range(3)
INPUT, OUTPUT = range(2)
_STREAMED = 16 << 20
"""From these bytes of copies on a run writes its results past the cache."""
_ADAPTIVE = 2 * 1024
"""From these bytes on a copy into a slot may be written past the cache."""
_LIGHT = 32 * 1024
"""Up to these bytes a run keeps Python's interpreter: less than it costs to give it back."""
_HEAVY = 4 << 20
"""From these bytes on a start leaves all copies to the progress thread: they take a millisecond."""


class Operand(NamedTuple):
    """A place in memory: `offset` bytes from a register, in one of `mask` + 1 slots."""

    register: int
    offset: int
    stride: int = 0
    mask: int = 0
    tiles: int = 1
    tile: int = 0


NOWHERE = Operand(INPUT, 0)
_COLUMNS, _EXTRA = 3 + 3 * len(NOWHERE), 2
_MOST_JOINED = 32
"""Folds that one row does at most: fewer than a program of C takes."""


def _numbered(place: Operand, where: Published, tile: int) -> Operand:
    """Return the place of a tile, whose slot and number follow from those of the run.

    Numbers count from 1: the tiles of a run, up to a whole number of windows.
    """
    return place._replace(mask=where.depth - 1, tiles=where.tiles, tile=tile + 1 - where.tiles)


class Waited(NamedTuple):
    """A word that a row waits for."""

    words: Words
    place: Operand
    behind: int
    context: WaitContext


class Table:
    """The rows and registers of one program."""

    def __init__(self, laid_out: LaidOut, dtype: str, op: ReduceOp, what: str) -> None:
        self.laid_out = laid_out
        layout, self.incoming, self.resources = laid_out
        memory = self.memory = layout.memory
        self.program, self.published = layout.program, layout.published
        self.dtype, self.op, self.what, self.width = dtype, op, what, itemsize(dtype)
        self.rows = array("q")
        self.registers: dict[object, int] = {messages.INPUT: INPUT, messages.OUTPUT: OUTPUT}
        self.addresses = [0, 0]
        self.waits: dict[int, Waited] = {}
        self.sources: dict[int, int] = {}
        self.unverified: set[int] = set()
        self.check = -1
        self.nbytes = self.moves = 0
        self.keep: list[object] = [self.resources]
        for name, buffer in layout.buffers.items():
            if name in (messages.INPUT, messages.OUTPUT):
                self.addresses[self.registers[name]] = memory.arrays.span(buffer)[0]
            else:
                self._buffer(name, buffer)

    # -- registers --------------------------------------------------------------------------

    def _register(self, key: object, address: int, owner: object) -> int:
        if key not in self.registers:
            self.registers[key] = len(self.addresses)
            self.addresses.append(address)
            self.keep.append(owner)
        return self.registers[key]

    def _buffer(self, key: object, buffer: Array) -> int:
        return self._register(key, self.memory.arrays.span(buffer)[0], buffer)

    def _segment(self, rank: int, segment: int) -> int:
        if (rank, segment) in self.registers:
            return self.registers[rank, segment]
        return self._register((rank, segment), *self.memory.address(rank, segment))

    def _operand(self, piece: Piece) -> Operand:
        if found := self.laid_out.slot_of(piece):
            return self._slot(*found, piece)
        return Operand(self.registers[piece.buffer], piece.start * self.width)

    def _slot(self, rank: int, where: Published, piece: Piece) -> Operand:
        assert where.data is not None
        segment, start, stride = where.data
        tile = piece.start // where.window if where.window else 0
        offset = start + (piece.start - tile * where.window) * self.width
        return _numbered(Operand(self._segment(rank, segment), offset, stride), where, tile)

    # -- rows -------------------------------------------------------------------------------

    def _row(
        self, code: int, target: Operand, left: Operand = NOWHERE, right: Operand = NOWHERE, *,
        count: int = 0, extra: int = 0,
    ) -> None:  # fmt: skip
        self.rows.extend((code, count, extra, *target, *left, *right))

    @property
    def length(self) -> int:
        """How many rows there are."""
        return len(self.rows) // _COLUMNS

    def copy_input(self, copy: Array) -> None:
        """Read a copy of the input, which the output overwrites."""
        start, stop = self.memory.arrays.span(copy)
        del self.registers[messages.INPUT]
        self.registers[messages.INPUT] = self._buffer("copy", copy)
        self._row(
            COPY, Operand(self.registers[messages.INPUT], 0), Operand(OUTPUT, 0), count=stop - start
        )

    def fill(self) -> None:
        """Make the rows of all instructions."""
        total = max(self.program.rounds, default=1)
        moves = (each for each in self.program.instructions if isinstance(each, Move))
        self.moves = sum(each.target.length for each in moves) * self.width
        for each, number in zip(self.program.instructions, self.program.rounds, strict=True):
            self._add(each, number, total)
        if self.check < 0:
            self.check = self.length
        self._join_folds()

    def _join_folds(self) -> None:
        """Let the first of the folds that stand together onto one target do all of them."""
        rows, width, many = self.rows, _COLUMNS, self.length
        position = 0
        while position < many:
            following = position + 1
            while following < many and self._continues(position, following):
                following += 1
            rows[position * width + _EXTRA] += following - position - 1
            position = following

    def _continues(self, first: int, other: int) -> bool:
        """Whether a row folds one operand more onto the target of a row before."""
        rows = (self.rows[each * _COLUMNS : (each + 1) * _COLUMNS] for each in (first, other))
        (code, count, _, *before), (code_too, count_too, _, *after) = rows
        target = before[: len(NOWHERE)]
        return (
            code == code_too == FOLD
            and count == count_too
            and other - first < _MOST_JOINED
            and after[: 2 * len(NOWHERE)] == target * 2
            and after[2 * len(NOWHERE) :] != target
        )

    def _add(self, each: Instruction, number: int, total: int) -> None:
        if isinstance(each, Move | Combine):
            self.unverified.update(e.buffer.number for e in each if e.buffer.is_remote)
        if isinstance(each, Move):
            self._move(each)
        elif isinstance(each, Combine):
            left, right = self._fetched("left", each.left), self._fetched("right", each.right)
            self._row(FOLD, self._operand(each.target), left, right, count=each.target.length)
            self.nbytes += 2 * each.target.length * self.width
        elif isinstance(each, Publish):
            self._publish(each)
        elif isinstance(each, Await):
            receipt, where = self.program.receipts[each.receipt], self.incoming[each.receipt]
            if each.tile and where.private is not None and not where.flags:
                return  # one flag announces all of it
            context = self._context(number, total, receipt.peer)
            self._wait(receipt.peer, where, self._flag(receipt.peer, where, each), 0, context)
        elif isinstance(each, Acknowledge):
            self._acknowledge(each)
        elif isinstance(each, WaitForSlot | WaitForReaders):
            where = self.published[each.publication]
            tile, behind = (each.tile, where.depth) if isinstance(each, WaitForSlot) else (0, 0)
            for reader, word in where.acknowledge.items():
                place = Operand(self._segment(self.memory.rank, where.segment), word)
                context = self._context(number, total, reader)
                place = _numbered(place, where, tile)
                self._wait(self.memory.rank, where, place, behind, context)
        else:
            assert not isinstance(each, Post | Complete), "messages are not compiled"

    def _context(self, number: int, total: int, peer: int) -> WaitContext:
        left = partial(self.memory.notes.why, peer, self.resources.number)
        return WaitContext(self.what, number, total, peer, left, self.resources.number)

    def _move(self, each: Move) -> None:
        target, count = self._operand(each.target), each.target.length * self.width
        where = self._private(each.source)
        if where is not None:
            self._fetch(target, where, each.source, count)
        elif count:
            how = self._how(each.target, count)
            self._row(COPY, target, self._operand(each.source), count=count, extra=how)
        self.nbytes += count

    def _how(self, target: Piece, count: int) -> int:
        """Return how a copy of so many bytes is written."""
        if target.buffer == messages.OUTPUT:
            return STREAMED if self.moves >= _STREAMED else CACHED
        is_slot = target.buffer.kind is Kind.SLOT
        return ADAPTIVE if is_slot and count >= _ADAPTIVE else CACHED

    def _publish(self, each: Publish) -> None:
        """Raise a flag; beside that of a zero-copy message stands its address in this run."""
        self._verify()
        where = self.published[each.publication]
        flag = self._flag(self.memory.rank, where, each)
        if not where.is_zero_copy:
            self._row(RAISE, flag)
            return
        piece = self.program.publications[each.publication].piece
        assert piece is not None
        self._row(RAISE, flag, self._operand(piece), count=1)

    def _verify(self) -> None:
        """Fail where a rank has left the call whose array was read since the last flag."""
        for receipt in sorted(self.unverified):
            where, peer = self.incoming[receipt], self.program.receipts[receipt].peer
            if where.is_zero_copy:
                self.sources[self.length] = peer
                self._row(VERIFY, Operand(self._segment(peer, where.segment), where.start))
        self.unverified.clear()

    def _private(self, piece: Piece) -> int | None:
        """Return the receipt whose message must be fetched, None for other memory."""
        if not piece.buffer.is_remote:
            return None
        receipt = piece.buffer.number
        return None if self.incoming[receipt].private is None else receipt

    def _fetch(self, target: Operand, receipt: int, piece: Piece, count: int) -> None:
        where, peer = self.incoming[receipt], self.program.receipts[receipt].peer
        assert where.private is not None
        process = where.private[0]
        assert isinstance(process, int), "GPU memory is not fetched"
        flag = Operand(self._segment(peer, where.segment), where.start)
        start = Operand(INPUT, piece.start * self.width)
        other = 0 if process == os.getpid() else process
        code, before, _, *operands = self.rows[-_COLUMNS:] or [AWAIT, 0, 0]
        ended = [*target._replace(offset=target.offset - before), *flag,
                 *start._replace(offset=start.offset - before)]  # fmt: skip
        if code == FETCH and operands == ended:
            self.rows[1 - _COLUMNS] += count  # each call of the system takes microseconds
            return
        self.sources[self.length] = peer
        self._row(FETCH, target, flag, start, count=count, extra=other)

    def _fetched(self, name: str, piece: Piece) -> Operand:
        """Return an operand; private memory of others is first read into a buffer of this rank."""
        where = self._private(piece)
        if where is None:
            return self._operand(piece)
        key = (name, piece.length)
        if key not in self.registers:
            self._buffer(key, self.memory.arrays.empty((piece.length,), self.dtype))
        target = Operand(self.registers[key], 0)
        self._fetch(target, where, piece, piece.length * self.width)
        return target

    def _flag(self, rank: int, where: Published, each: Publish | Await) -> Operand:
        offset = where.start + each.tile * where.flags
        place = Operand(self._segment(rank, where.segment), offset, where.stride)
        return _numbered(place, where, each.tile if where.window else 0)

    def _acknowledge(self, each: Acknowledge) -> None:
        receipt, where = self.program.receipts[each.receipt], self.incoming[each.receipt]
        word = where.acknowledge.get(self.memory.rank)
        if word is not None:
            self._verify()
            place = Operand(self._segment(receipt.peer, where.segment), word)
            # The last tile stands for those that are missing in the last window, too.
            last = not where.window or each.tile == where.last_tile
            self._row(RAISE, _numbered(place, where, where.tiles - 1 if last else each.tile))

    def _wait(
        self, rank: int, where: Published, place: Operand, behind: int, context: WaitContext
    ) -> None:
        # A slot of this run's own window is free when others have read what this run wrote there.
        if self.check < 0 and (not behind or where.window):
            self.check = self.length
        self.waits[self.length] = Waited(
            self.memory.words[rank][where.segment], place, behind, context
        )
        self._row(AWAIT, place, extra=behind)

    def _unread(self, peer: int, error: int) -> RankLost:
        """Return the error of a rank that could not read another rank's array."""
        if error == ECANCELED:
            return withdrawn(self.memory, self.resources.number, self.what, peer)
        text = f"{self.what}: reading memory of rank {peer}: {os.strerror(error)}"
        return RankLost(text, rank=peer)

    def divide(self, count: int, divisor: int) -> None:
        """Divide the output in the end."""
        self._row(DIVIDE, Operand(OUTPUT, 0), count=count, extra=divisor)

    def made(self) -> Program:
        """Return the program, compiled."""
        policy, waits, started = self.memory.wait_policy, self.waits, started_here()
        fail = self.resources.fail

        def awaited(position: int) -> tuple[Words, int, int, WaitContext]:
            words, place, behind, context = waits[position]
            number = program.sequence * place.tiles + place.tile
            index = (place.offset + (number & place.mask) * place.stride) // 8
            return words, index, number - behind, context

        def lost(position: int, happened: str) -> RankLost | None:
            found = waits.get(position)
            return found and policy.lost(found.context, happened)

        def look(position: int) -> bool:
            return policy.test(*awaited(position))

        def complete(position: int, error: int) -> None:
            if error:
                raise self._unread(self.sources[position], error)
            wait_advancing(policy, started, *awaited(position))

        def wait(position: int, error: int) -> None:
            run, is_open = program.sequence, True
            while is_open:
                try:
                    complete(position, error)
                    return
                except BaseException as raised:
                    # Code that ran in the wait may have completed this run, and begun another one.
                    is_open = program.sequence == run and program.position < program.length
                    if policy.defer(raised):
                        continue
                    if is_open:
                        fail(raised)
                    raise

        mailbox = self.memory.mailbox
        program: Program = extension._compiled.Program(
            self.rows, self.addresses, self.op.name, self.dtype, check=self.check,
            spins=extension.spins(self.memory), light=self.nbytes <= _LIGHT,
            heavy=self.nbytes >= _HEAVY, wait=wait, look=look, keep=self.keep,
            numbers=None if mailbox is None else mailbox.number, what=self.what,
        )  # fmt: skip
        self.resources.lost = lost
        return program
