"""Lower a schedule to instructions over shared memory.

Large steps run tile by tile (`mpicoll.lowering.tiling`), and memory is written again when its
readers have read it (`mpicoll.lowering.reuse`). On GPUs of their own, ranks learn of each tile of
what they read where it lies (`mpicoll.lowering.announcing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mpicoll.errors import ScheduleError
from mpicoll.lowering.announcing import announce
from mpicoll.lowering.instructions import (
    Await,
    Complete,
    Post,
    Publication,
    Publish,
    Reach,
    Receipt,
    SharedProgram,
    WaitForSlot,
)
from mpicoll.lowering.messages import (
    SCRATCH,
    STAGING,
    Buffer,
    Kind,
    Move,
    Piece,
    Placing,
    Step,
    Transfer,
    like,
    overlappable,
    overlaps,
)
from mpicoll.lowering.reuse import acknowledge, wait_for_readers
from mpicoll.lowering.tiling import Passes, conflicts, divide
from mpicoll.notation.schedule import Block, Copy, Fold, Receive, Round, Send


@contextmanager
def schedule_errors() -> Iterator[None]:
    """Raise ScheduleError where a schedule uses a block that its rank does not hold."""
    try:
        yield
    except KeyError as error:
        raise ScheduleError(f"block {error} is used by a rank that does not hold it") from error


def share(
    rounds: Sequence[Round], sizes: Mapping[Block, int], inputs: Sequence[Block],
    outputs: Sequence[Block], reach: Reach, *, in_place: bool = False,
) -> SharedProgram:  # fmt: skip
    """Lower a rank's schedule to instructions; the arguments are those of `messages.Placing`.

    Raises:
        ScheduleError: the rank uses a block that it does not hold.
    """
    with schedule_errors():
        return Lowering(rounds, sizes, inputs, outputs, reach, in_place=in_place).program()


def _used(program: SharedProgram, buffer: Buffer) -> int:
    """Return how many elements of a buffer a program uses: many blocks stay where they are read."""
    pieces = (
        piece for instruction in program.instructions
        for piece in (*program.reads(instruction), *program.writes(instruction))
    )  # fmt: skip
    return max((p.start + p.length for p in pieces if p.buffer == buffer), default=0)


class Lowering(Placing):
    """Turns one rank's schedule into instructions."""

    def __init__(
        self, rounds: Sequence[Round], sizes: Mapping[Block, int], inputs: Sequence[Block],
        outputs: Sequence[Block], reach: Reach, *, in_place: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(rounds, sizes, inputs, outputs, in_place)
        self.reach = reach
        self.shared_program = SharedProgram()
        self.round = 0
        self.received: Counter[int] = Counter()
        self.last_use = {
            block: index for index, ops in enumerate(self.rounds) for op in ops
            for block in (op.blocks if isinstance(op, Send | Receive) else (op.target, op.source))
        }  # fmt: skip
        self.last_use |= dict.fromkeys(self.results, len(self.rounds))

    def program(self) -> SharedProgram:
        program = self.shared_program
        for step in self.steps():
            self._emit(step)
        program.scratch = {name: _used(program, name) for name in (SCRATCH, STAGING)}
        acknowledge(program)
        wait_for_readers(program)
        if self.reach.announces:
            announce(program, self.reach.tile)
        return program

    def steps(self) -> Iterator[Step]:
        """Yield each round, and the copies of results to the output."""
        for index, ops in enumerate(self.rounds):
            self.round = index
            yield self._step(ops)
        last = Step()
        self._bring_home(self.results, last.actions_after)
        yield last

    # -- one round --------------------------------------------------------------------

    def _step(self, ops: Round) -> Step:
        step, self.staged = Step(), 0
        self.away: list[Block] = []
        receives = [op for op in ops if isinstance(op, Receive)]
        local = [op for op in ops if isinstance(op, Copy | Fold)]
        written = [block for op in receives for block in op.blocks]
        written += [op.target for op in local]
        self.busy = [self.home[block] for block in written]
        self._send([op for op in ops if isinstance(op, Send)], step)
        self._receive(receives, step)
        for op in local:
            if isinstance(op, Copy):
                self._write(op.target, self.place[op.source], step)
            else:
                self._fold([op.target], [self.place[op.source]], op.side, step)
        self._settle(step)
        return step

    def _send(self, ops: Sequence[Send], step: Step) -> None:
        intra_node = [op for op in ops if op.peer in self.reach.intra_node]
        for op in ops:
            if op not in intra_node:
                step.sends.append(Transfer(op.peer, self._outgoing(op.blocks, step)))
        published: dict[tuple[Block, ...], int] = {}
        for op in intra_node:
            if op.blocks not in published:
                published[op.blocks] = self._publish(op.blocks, step)
            number = published[op.blocks]
            self.shared_program.publications[number].readers.append(op.peer)
            self.shared_program.sent.setdefault(op.peer, []).append(number)

    def _publish(self, blocks: tuple[Block, ...], step: Step) -> int:
        number = len(self.shared_program.publications)
        step.published.append(number)
        runs = self._runs(self.place[block] for block in blocks)
        length = sum(run.length for run in runs)
        zero_copy = (
            len(runs) == 1
            and runs[0].buffer in self.reach.readable
            and length >= self.reach.min_zero_copy
            and not overlaps(runs[0], self.busy)
        )
        if runs and not zero_copy:
            whole = Piece(Buffer(Kind.SLOT, number), 0, length)
            step.copied += (Move(*pair) for pair in zip(like(whole, runs), runs, strict=True))
            runs = [whole]
        piece = runs[0] if runs else None
        self.shared_program.publications.append(
            Publication(piece, [], zero_copy, self._tiles(length))
        )
        return number

    def _tiles(self, length: int) -> int:
        return max(1, -(-length // self.reach.tile))

    def _receive(self, ops: Sequence[Receive], step: Step) -> None:
        busy = [transfer.piece for transfer in step.sends if transfer.piece]
        for op in ops:
            if op.peer in self.reach.intra_node:
                self._await(op, step)
            else:
                step.receives.append(Transfer(op.peer, self._incoming(op, busy, step)))

    def _await(self, op: Receive, step: Step) -> None:
        receipts = self.shared_program.receipts
        number = len(receipts)
        order = self.received[op.peer]
        self.received[op.peer] += 1
        homes = [self.home[block] for block in op.blocks]
        length = sum(home.length for home in homes)
        receipts.append(Receipt(op.peer, order, length, self._tiles(length)))
        step.awaited.append(number)
        parts = like(Piece(Buffer(Kind.RECEIPT, number), 0, length), homes)
        if op.side is None:
            # It is copied only when it is needed here: a fold reads it at its sender.
            self.place |= dict(zip(op.blocks, parts, strict=True))
            self.away += op.blocks
        else:
            self._fold(op.blocks, parts, op.side, step)

    def _settle(self, step: Step) -> None:
        """Copy the blocks of this round that were left at their senders and are used again."""
        away = [block for block in dict.fromkeys(self.away) if self.place[block].buffer.is_remote]
        for block in away:
            if self.last_use[block] <= self.round:
                del self.place[block]
        self._bring_home([block for block in away if block in self.place], step.actions_after)

    # -- instructions -----------------------------------------------------------------

    def _emit(self, step: Step) -> None:
        program, at = self.shared_program, len(self.shared_program.instructions)
        into, away = program.instructions, bool(step.sends or step.receives)
        into += step.moves_before
        eager = (number for number in step.published if not program.publications[number].zero_copy)
        into += map(WaitForSlot, eager)
        passes = Passes(1, [], step.actions_after, []) if away else self._passes(step)
        into += passes.prologue
        # A tile's flag is on its way while the next tile is written, where that may come first.
        ahead = int(
            passes.count > 1
            and not any(conflicts(move, passes.tile_actions) for move in step.copied)
        )
        for index in range(passes.count + ahead):
            if index < passes.count:
                self._publish_tile(step, passes, index)
            if index >= ahead:
                self._receive_tile(step, passes, index - ahead)
        into += passes.epilogue
        program.rounds += [self.round + 1] * (len(into) - at)

    def _publish_tile(self, step: Step, passes: Passes, index: int) -> None:
        program, into = self.shared_program, self.shared_program.instructions
        into += passes.part(step.copied, index)
        if step.sends or step.receives:
            into.append(Post(tuple(step.sends), tuple(step.receives)))
        for number in step.published:
            publication = program.publications[number]
            flags = passes.flags(1 if publication.zero_copy else publication.tiles, index)
            into += (Publish(number, flag) for flag in flags)

    def _receive_tile(self, step: Step, passes: Passes, index: int) -> None:
        program, into = self.shared_program, self.shared_program.instructions
        for number in step.awaited:
            flags = passes.flags(program.receipts[number].tiles, index)
            into += (Await(number, flag) for flag in flags)
        if step.sends or step.receives:
            during, later = overlappable(step)
            into += [*during, Complete(), *later]
        else:
            into += passes.part(passes.tile_actions, index)

    def _passes(self, step: Step) -> Passes:
        tiles = [self.shared_program.publications[number].tiles for number in step.published]
        tiles += [self.shared_program.receipts[number].tiles for number in step.awaited]
        count = max(tiles, default=1)
        return divide(self.shared_program, self.reach.tile, count, step.copied, step.actions_after)
