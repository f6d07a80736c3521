"""Wait for what the rows of a program wait for: words of other ranks, and messages of a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mpicoll.backend import Messages, Poll, WaitContext, WaitPolicy, Words
from mpicoll.errors import RankLost
from mpicoll.memory.slots import SharedResources
from mpicoll.memory.waiting import Unadvanced, advance_others, started_here, wait_advancing

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program


class Operand(NamedTuple):
    """A place in memory: `offset` bytes from a register, in one of `mask` + 1 slots."""

    register: int
    offset: int
    stride: int = 0
    mask: int = 0
    tiles: int = 1
    tile: int = 0


class AwaitedWord(NamedTuple):
    """A word that an `AWAIT` waits for."""

    words: Words
    place: Operand
    behind: int
    context: WaitContext

    def target(self, sequence: int) -> tuple[Words, int, int, WaitContext]:
        """Return the arguments of a wait policy, in the run of this number."""
        place = self.place
        number = sequence * place.tiles + place.tile
        index = (place.offset + (number & place.mask) * place.stride) // 8
        return self.words, index, number - self.behind, self.context


class PolledMessages(NamedTuple):
    """The messages that a `POLL` waits for, and their round."""

    poll: Poll
    messages: Messages


class RowWaits:
    """The waits of one program: what its executor calls when a row does not complete by itself.

    Attributes:
        rows: what each row that waits is waiting for.
        unreadable: returns the error of a row that has failed, given its ``errno``.
    """

    def __init__(
        self, resources: SharedResources, policy: WaitPolicy | None,
        unreadable: Callable[[int, int], RankLost],
    ) -> None:  # fmt: skip
        self.resources, self.policy, self.unreadable = resources, policy, unreadable
        self.rows: dict[int, AwaitedWord | PolledMessages] = {}
        self.started = started_here()

    def wait(self, program: Program, position: int, error: int) -> None:
        """Complete a row.

        Args:
            error: the ``errno`` of a row that has failed; 0 where it waits.
        """
        sequence = program.sequence
        try:
            self._complete(program, position, error)
        except BaseException as raised:
            # Code that ran in the wait may have completed this run, and begun another one.
            if program.sequence == sequence and program.position < program.length:
                self.fail(program, position, raised)
            raise

    def _complete(self, program: Program, position: int, error: int) -> None:
        if error:
            raise self.unreadable(position, error)
        row = self.rows[position]
        if isinstance(row, AwaitedWord):
            assert self.policy is not None
            wait_advancing(self.policy, self.started, *row.target(program.sequence))
        elif self.started:
            deadline = self.resources.deadline()
            try:
                advance_others(self.started, row.poll.test, deadline, row.messages.look)
            except Unadvanced as unadvanced:
                reason = f"which did not come in {deadline:.3g} s"
                raise row.messages.lost(reason) or unadvanced from None
        else:
            row.poll.wait()

    def test(self, program: Program, position: int) -> None:
        """Raise where the word that a row waits for will never come."""
        row = self.rows.get(position)
        if isinstance(row, AwaitedWord):
            assert self.policy is not None
            self.policy.test(*row.target(program.sequence))

    def look(self, position: int) -> None:
        """Raise RankLost where a rank will not come, and a test does not say so."""
        row = self.rows.get(position)
        if isinstance(row, PolledMessages):
            row.messages.look()

    def fail(self, program: Program, position: int, error: BaseException) -> None:
        """Tell the other ranks that a callback has failed, or raise the error that says why."""
        row = self.rows.get(position)
        reason = row.messages.failed(error) if isinstance(row, PolledMessages) else error
        self.resources.fail(reason)
        if reason is not error:
            raise reason from error

    def lost(self, position: int, reason: str) -> RankLost | None:
        """Return the error of the wait in a row, given what happened as the end of a sentence."""
        row = self.rows.get(position)
        if isinstance(row, PolledMessages):
            return row.messages.lost(reason)
        return None if row is None or self.policy is None else self.policy.lost(row.context, reason)
