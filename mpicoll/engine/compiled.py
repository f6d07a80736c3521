"""Make the table by which the compiled loop (`program.c`) runs a program.

Every instruction becomes rows of 64-bit integers over registers, so that a program runs on any
arrays of its signature. Messages of a library and folds by a user's function become callbacks that
take addresses.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from errno import ECANCELED
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from mpicoll import tuning
from mpicoll.backend import (
    Array,
    Message,
    Poll,
    SharedMemory,
    Stage,
    Thunk,
    Transport,
    WaitContext,
)
from mpicoll.c_extension import _compiled
from mpicoll.engine import extension
from mpicoll.engine.row_waits import AwaitedWord, Operand, PolledMessages, RowWaits
from mpicoll.errors import RankLost
from mpicoll.lowering import messages
from mpicoll.lowering.instructions import (
    Acknowledge,
    Await,
    Instruction,
    Post,
    Publish,
    SharedProgram,
    WaitForReaders,
    WaitForSlot,
)
from mpicoll.lowering.messages import Buffer, Combine, Kind, Move, Piece, Transfer, view
from mpicoll.lowering.reuse import goes_on
from mpicoll.memory.addresses import array_at
from mpicoll.memory.layout import LaidOut
from mpicoll.memory.notes import withdrawn
from mpicoll.memory.slots import Published, SharedResources
from mpicoll.notation.elements import ReduceOp, itemsize

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program

COPY, FOLD, DIVIDE = _compiled.COPY, _compiled.FOLD, _compiled.DIVIDE
RAISE, AWAIT, FETCH = _compiled.RAISE, _compiled.AWAIT, _compiled.FETCH
VERIFY, CALL, POLL = _compiled.VERIFY, _compiled.CALL, _compiled.POLL
CACHED: int = _compiled.CACHED
STREAMED: int = _compiled.STREAMED
ADAPTIVE: int = _compiled.ADAPTIVE
INPUT, OUTPUT = _compiled.INPUT, _compiled.OUTPUT
NOWHERE = Operand(INPUT, 0)
_COLUMNS: int = _compiled.COLUMNS
_EXTRA = 2
_MOST_JOINED = 32
"""Folds that one row does at most: fewer than a program of C takes."""


Copied = tuple[Operand, Operand, int]
"""The target and the source of a copy, and its elements."""


def _numbered(place: Operand, publication: Published, tile: int) -> Operand:
    """Return the place of a tile, whose slot and number follow from those of the run.

    Numbers count from 1: the tiles of a run, up to a whole number of windows.
    """
    return place._replace(
        mask=publication.depth - 1, tiles=publication.tiles, tile=tile + 1 - publication.tiles
    )


class Table:
    """The rows, registers and callbacks of one program.

    Args:
        buffers: the flat arrays that the program names, but input and output where a run gives
            them.
        tag: of its messages.
        laid_out: its publications in the memory of all ranks; None for messages alone.
    """

    def __init__(
        self, transport: Transport, program: SharedProgram, buffers: dict[Buffer, Array],
        resources: SharedResources, dtype: str, op: ReduceOp, label: str, *, tag: int = 0,
        laid_out: LaidOut | None = None,
    ) -> None:  # fmt: skip
        self.transport, self.arrays, self.tag = transport, transport.arrays, tag
        self.program, self.buffers, self.resources = program, buffers, resources
        self.instructions: Sequence[Any] = program.instructions
        self.rounds: Sequence[int] = program.rounds
        self.laid_out, self.memory = laid_out, transport.shared
        self.published = laid_out.layout.published if laid_out else []
        self.incoming = laid_out.incoming if laid_out else []
        self.dtype, self.op, self.label, self.width = dtype, op, label, itemsize(dtype)
        self.rows = array("q")
        self.callbacks: list[Callable[..., object]] = []
        self.registers: dict[object, int] = {messages.INPUT: INPUT, messages.OUTPUT: OUTPUT}
        self.addresses = [0, 0]
        policy = None if self.memory is None else self.memory.wait_policy
        self.sources: dict[int, int] = {}
        # Not of `self`, which would live until a collection of garbage.
        unreadable = partial(_unreadable, self.memory, resources, label, self.sources)
        self.waits = RowWaits(resources, policy, unreadable)
        self.folds: tuple[int, int, Combine | None] = 0, 0, None
        self.unverified: set[int] = set()
        self.check = -1
        self.nbytes = self.moves = 0
        self.has_messages_under_way = False
        self.received: list[Copied] = []
        self.keep: list[object] = [self.resources]
        for name, buffer in buffers.items():
            if name in (messages.INPUT, messages.OUTPUT):
                self.addresses[self.registers[name]] = self.arrays.span(buffer)[0]
            else:
                self._buffer(name, buffer)

    @property
    def shared(self) -> SharedMemory:
        """The memory of a program with publications or receipts."""
        assert self.memory is not None
        return self.memory

    # -- registers --------------------------------------------------------------------------

    def _register(self, key: object, address: int, owner: object) -> int:
        if key not in self.registers:
            self.registers[key] = len(self.addresses)
            self.addresses.append(address)
            self.keep.append(owner)
        return self.registers[key]

    def _buffer(self, key: object, buffer: Array) -> int:
        return self._register(key, self.arrays.span(buffer)[0], buffer)

    def _segment(self, rank: int, segment: int) -> int:
        if (rank, segment) in self.registers:
            return self.registers[rank, segment]
        return self._register((rank, segment), *self.shared.address(rank, segment))

    def _operand(self, piece: Piece) -> Operand:
        if self.laid_out and (place := self.laid_out.slot_of(piece)):
            return self._slot(*place, piece)
        return Operand(self.registers[piece.buffer], piece.start * self.width)

    def _slot(self, rank: int, publication: Published, piece: Piece) -> Operand:
        assert publication.data is not None
        segment, start, stride = publication.data
        tile = piece.start // publication.window if publication.window else 0
        offset = start + (piece.start - tile * publication.window) * self.width
        return _numbered(Operand(self._segment(rank, segment), offset, stride), publication, tile)

    # -- rows -------------------------------------------------------------------------------

    def _row(
        self, code: int, target: Operand, lhs: Operand = NOWHERE, rhs: Operand = NOWHERE, *,
        count: int = 0, extra: int = 0,
    ) -> None:  # fmt: skip
        self.rows.extend((code, count, extra, *target, *lhs, *rhs))

    @property
    def length(self) -> int:
        """How many rows there are."""
        return len(self.rows) // _COLUMNS

    def copy_input(self, copy: Array) -> None:
        """Read a copy of the input, which the output overwrites."""
        start, stop = self.arrays.span(copy)
        del self.registers[messages.INPUT]
        self.registers[messages.INPUT] = self._buffer("copy", copy)
        self._row(
            COPY, Operand(self.registers[messages.INPUT], 0), Operand(OUTPUT, 0), count=stop - start
        )

    def fill(self) -> None:
        """Make the rows of all instructions."""
        total = max(self.rounds, default=1)
        moves = (move for move in self.program.instructions if isinstance(move, Move))
        self.moves = sum(move.target.length for move in moves) * self.width
        for instruction, number in zip(self.instructions, self.rounds, strict=True):
            self._add(instruction, number, total)
        if self.check < 0:
            self.check = self.length

    def _add(self, instruction: Instruction, number: int, total: int) -> None:
        if isinstance(instruction, Move | Combine):
            self.unverified.update(e.buffer.number for e in instruction if e.buffer.is_remote)
        if isinstance(instruction, Move):
            self._move(instruction)
        elif isinstance(instruction, Combine):
            self._combine(instruction)
        elif isinstance(instruction, Publish):
            self._publish(instruction)
        elif isinstance(instruction, Await):
            peer, publication = self._sender(instruction.receipt)
            if instruction.tile and publication.private is not None and not publication.flags:
                return  # one flag announces all of it
            context = self._context(number, total, peer)
            flag = self._flag(peer, publication, instruction)
            self._wait(peer, publication, flag, 0, context)
        elif isinstance(instruction, Acknowledge):
            self._acknowledge(instruction)
        elif isinstance(instruction, WaitForSlot | WaitForReaders):
            publication = self.published[instruction.publication]
            tile, behind = (
                (instruction.tile, publication.depth)
                if isinstance(instruction, WaitForSlot)
                else (0, 0)
            )
            for reader, word in publication.acknowledge.items():
                place = Operand(self._segment(self.shared.rank, publication.segment), word)
                context = self._context(number, total, reader)
                place = _numbered(place, publication, tile)
                self._wait(self.shared.rank, publication, place, behind, context)
        elif isinstance(instruction, Post):
            self._post(instruction, self._stage(number, total))
        else:
            self._complete()

    def _sender(self, receipt: int) -> tuple[int, Published]:
        """Return the sender of a message, and where it publishes that message."""
        return self.program.receipts[receipt].peer, self.incoming[receipt]

    def _stage(self, number: int, total: int) -> Stage:
        return Stage(self.label, number, total, self.resources.number)

    def _context(self, number: int, total: int, peer: int) -> WaitContext:
        reason = partial(self.shared.notes.why, peer, self.resources.number)
        return WaitContext(self._stage(number, total), peer, reason)

    # -- callbacks --------------------------------------------------------------------------

    def call(self, callback: Callable[..., object], *operands: Operand) -> None:
        """Call a function, with the addresses of operands."""
        places = *operands, *[NOWHERE] * (_compiled.OPERANDS - len(operands))
        self._row(CALL, *places, count=len(self.callbacks), extra=len(operands))
        self.callbacks.append(callback)

    def _post(self, post: Post, stage: Stage) -> None:
        if self.check < 0:
            self.check = self.length
        transfers = *post.receives, *post.sends
        pieces = [transfer.piece for transfer in transfers]
        # Messages between two ranks keep their order, so one round has one kind.
        has_arrays = all(
            piece is None or not self._is_given(piece) or self._is_copied(piece) for piece in pieces
        )
        bind = self._bound_message if has_arrays else self._unbound_message
        receives = [bind(transfer, self.received) for transfer in post.receives]
        sends = [bind(transfer, None) for transfer in post.sends]
        self.messages = self.transport.messages(sends, receives, self.tag, stage)
        self.resources.inter_node.append(self.messages)
        if not has_arrays:
            for take, piece in zip(self.messages.takes, pieces, strict=True):
                self.call(take, self._operand(piece) if piece else NOWHERE)
        for start in self.messages.starts:
            self.call(start)
        self.has_messages_under_way = True

    def _bound_message(self, transfer: Transfer, received: list[Copied] | None) -> Message:
        """Return a message from or to memory that the plan holds.

        Args:
            received: takes a copy to make once a message has come; None for a message that is sent.
        """
        piece = transfer.piece
        if piece is None or not self._is_given(piece):
            return Message(transfer.peer, piece and view(self.buffers, piece))
        memory = self.arrays.empty((piece.length,), self.dtype)
        place = Operand(self._buffer(("message", len(self.addresses)), memory), 0)
        if received is None:
            self._copy(place, self._operand(piece), piece.length)
        else:
            received.append((self._operand(piece), place, piece.length))
        return Message(transfer.peer, memory)

    def _copy(self, target: Operand, source: Operand, length: int) -> None:
        """Copy a small message between an array of the run and memory that the plan holds."""
        self._row(COPY, target, source, count=length * self.width, extra=CACHED)
        self.nbytes += length * self.width

    def _is_copied(self, piece: Piece) -> bool:
        """Whether a message is copied, as requests on memory of the plan start in less time."""
        return piece.length * self.width <= tuning.LIGHT_RUN

    def _unbound_message(self, transfer: Transfer, _received: list[Copied] | None) -> Message:
        nbytes = transfer.piece.length * self.width if transfer.piece else 0
        return Message(transfer.peer, None, nbytes, self.resources.buffers)

    def _complete(self) -> None:
        for end in self.messages.ends:
            if not isinstance(end, Poll):
                self.call(end)
                continue
            self.waits.rows[self.length] = PolledMessages(end, self.messages)
            self._row(POLL, NOWHERE, count=len(self.callbacks), extra=end.may_test)
            self.callbacks.append(end.test)
        self.has_messages_under_way = False
        for copied in self.received:
            self._copy(*copied)
        self.received.clear()

    def _combine(self, combine: Combine) -> None:
        target, length = self._operand(combine.target), combine.target.length
        operands = self._fetched("left", combine.left), self._fetched("right", combine.right)
        if self.op.function is not None:
            self.call(self._folder(combine, length), target, *operands)
            return
        # The first of the folds that stand together onto one target does all of them.
        first, last, previous = self.folds
        if (
            previous is not None
            and last == self.length - 1
            and self.length - first < _MOST_JOINED
            and goes_on(previous, combine)
            and combine.right != combine.target
        ):
            self.rows[first * _COLUMNS + _EXTRA] += 1
        else:
            first = self.length
        self.folds = first, self.length, combine
        self._row(FOLD, target, *operands, count=length)
        self.nbytes += 2 * length * self.width

    def _folder(self, combine: Combine, length: int) -> Callable[[int, int, int], None]:
        """Return a fold by a user's function, given the addresses of its target and operands."""
        arrays, op, dtype, buffers, keep = (
            self.arrays, self.op, self.dtype, self.resources.buffers, self.keep
        )  # fmt: skip

        def view_run(address: int) -> Array:
            # The function may keep its operands longer than the caller keeps the arrays.
            return array_at(arrays, address, dtype, length, (*buffers, keep))

        # The number of slots bounds the addresses of all other memory.
        view_fixed = cache(lambda address: array_at(arrays, address, dtype, length, keep))
        is_fixed = [not self._is_given(piece) for piece in combine]
        view_out, view_lhs, view_rhs = (view_fixed if fixed else view_run for fixed in is_fixed)

        def bind(*addresses: int) -> Thunk:
            out, lhs, rhs = addresses
            return arrays.folder(op, view_lhs(lhs), view_rhs(rhs), view_out(out))

        bound = cache(bind) if all(is_fixed) else bind
        return lambda *addresses: bound(*addresses)()

    def _is_given(self, piece: Piece) -> bool:
        """Whether a piece lies in an array that each run gives."""
        return (
            piece.buffer in (messages.INPUT, messages.OUTPUT) and piece.buffer not in self.buffers
        )

    # -- memory -----------------------------------------------------------------------------

    def _move(self, move: Move) -> None:
        target, count = self._operand(move.target), move.target.length * self.width
        receipt = self._private(move.source)
        if receipt is not None:
            self._fetch(target, receipt, move.source, count)
        elif count:
            how = self._how(move.target, count)
            self._row(COPY, target, self._operand(move.source), count=count, extra=how)
        self.nbytes += count

    def _how(self, target: Piece, count: int) -> int:
        """Return how a copy of so many bytes is written."""
        if target.buffer == messages.OUTPUT:
            return STREAMED if self.moves >= tuning.STREAMED_RESULTS else CACHED
        is_slot = target.buffer.kind is Kind.SLOT
        return ADAPTIVE if is_slot and count >= _compiled.ADAPTIVE_COPY else CACHED

    def _publish(self, instruction: Publish) -> None:
        """Raise a flag; beside that of a zero-copy message stands its address in this run."""
        self._verify()
        publication = self.published[instruction.publication]
        flag = self._flag(self.shared.rank, publication, instruction)
        if not publication.is_zero_copy:
            self._row(RAISE, flag)
            return
        piece = self.program.publications[instruction.publication].piece
        assert piece is not None
        self._row(RAISE, flag, self._operand(piece), count=1)

    def _verify(self) -> None:
        """Fail where a rank has left the call whose array was read since the last flag."""
        for receipt in sorted(self.unverified):
            peer, publication = self._sender(receipt)
            if publication.is_zero_copy:
                self.sources[self.length] = peer
                self._row(
                    VERIFY, Operand(self._segment(peer, publication.segment), publication.start)
                )
        self.unverified.clear()

    def _private(self, piece: Piece) -> int | None:
        """Return the receipt whose message must be fetched, None for other memory."""
        if not piece.buffer.is_remote:
            return None
        receipt = piece.buffer.number
        return None if self.incoming[receipt].private is None else receipt

    def _fetch(self, target: Operand, receipt: int, piece: Piece, count: int) -> None:
        peer, publication = self._sender(receipt)
        assert publication.private is not None
        process = publication.private[0]
        assert isinstance(process, int), "GPU memory is not fetched"
        flag = Operand(self._segment(peer, publication.segment), publication.start)
        start = Operand(INPUT, piece.start * self.width)
        remote_process = 0 if process == os.getpid() else process
        code, length, _, *operands = self.rows[-_COLUMNS:] or [AWAIT, 0, 0]
        ended = [*target._replace(offset=target.offset - length), *flag,
                 *start._replace(offset=start.offset - length)]  # fmt: skip
        if code == FETCH and operands == ended:
            self.rows[1 - _COLUMNS] += count  # each call of the system takes microseconds
            return
        self.sources[self.length] = peer
        self._row(FETCH, target, flag, start, count=count, extra=remote_process)

    def _fetched(self, name: str, piece: Piece) -> Operand:
        """Return an operand; private memory of others is first read into a buffer of this rank."""
        receipt = self._private(piece)
        if receipt is None:
            return self._operand(piece)
        key = (name, piece.length)
        if key not in self.registers:
            self._buffer(key, self.arrays.empty((piece.length,), self.dtype))
        target = Operand(self.registers[key], 0)
        self._fetch(target, receipt, piece, piece.length * self.width)
        return target

    def _flag(self, rank: int, publication: Published, instruction: Publish | Await) -> Operand:
        offset = publication.start + instruction.tile * publication.flags
        place = Operand(self._segment(rank, publication.segment), offset, publication.stride)
        return _numbered(place, publication, instruction.tile if publication.window else 0)

    def _acknowledge(self, instruction: Acknowledge) -> None:
        peer, publication = self._sender(instruction.receipt)
        word = publication.acknowledge.get(self.shared.rank)
        if word is not None:
            self._verify()
            place = Operand(self._segment(peer, publication.segment), word)
            # The last tile stands for those that are missing in the last window, too.
            last = not publication.window or instruction.tile == publication.last_tile
            self._row(
                RAISE,
                _numbered(place, publication, publication.tiles - 1 if last else instruction.tile),
            )

    def _wait(
        self, rank: int, publication: Published, place: Operand, behind: int, context: WaitContext
    ) -> None:
        # A slot of this run's own window is free when others have read what this run wrote there.
        if self.check < 0 and (not behind or publication.window):
            self.check = self.length
        words = self.shared.words[rank][publication.segment]
        self.waits.rows[self.length] = AwaitedWord(words, place, behind, context)
        self._row(AWAIT, place, count=self.has_messages_under_way, extra=behind)

    def divide(self, out: Array, divisor: int) -> None:
        """Divide the output in the end."""
        self._row(DIVIDE, Operand(OUTPUT, 0), count=prod(out.shape), extra=divisor)

    def compile_program(self) -> Program:
        """Return the program, compiled."""
        mailbox = None if self.memory is None else self.memory.mailbox
        program: Program = extension._compiled.Program(
            self.rows, self.addresses, self.op.name, self.dtype, check=self.check,
            light=self.nbytes <= tuning.LIGHT_RUN,
            heavy=self.nbytes >= tuning.HEAVY_RUN and not self.callbacks,
            waits=self.waits, keep=self.keep,
            numbers=None if mailbox is None else mailbox.number,
            callbacks=tuple(self.callbacks), arrays=self.resources.buffers,
        )  # fmt: skip
        return program


def _unreadable(
    memory: SharedMemory | None, resources: SharedResources, label: str, sources: dict[int, int],
    position: int, error: int,
) -> RankLost:  # fmt: skip
    """Return the error of a row that could not read another rank's array."""
    peer = sources[position]
    if error == ECANCELED:
        assert memory is not None
        return withdrawn(memory, resources.number, label, peer)
    return RankLost(f"{label}: reading memory of rank {peer}: {os.strerror(error)}", rank=peer)
