"""Exchange small items between all ranks of one node, through shared memory.

A rank writes to two buffers in turn. Each begins with a line: the number of the round, the length
of what follows, and the digest of the call where the round only compares calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mpicoll.backend import SharedMemory, Stage, WaitContext
from mpicoll.c_extension import _compiled
from mpicoll.errors import FREED, CollectiveError, RankLost
from mpicoll.memory.allocator import LINE
from mpicoll.memory.notes import GROUP, described
from mpicoll.memory.waiting import agreeing, started_here, wait_advancing
from mpicoll.text.encoding import decode_alike, encode_for

CAPACITY = 16 * 1024
"""Bytes that a rank can give in one round."""
DEPTH = 2
"""Buffers of each rank: it writes one while the others still read the other."""
_LENGTH, _DIGEST = _compiled.LINE_LENGTH, _compiled.LINE_DIGEST
LAST_STATED: int = _compiled.LAST_STATED
HAS_ENDED, UNDER_WAY = _compiled.HAS_ENDED, _compiled.UNDER_WAY
"""The numbers of a group that the compiled executor shares: the last round, whether the group has
ended, and the call that is under way: nothing, one that Python runs, a round here, or another."""
NO_CALL, PYTHON_CALL = _compiled.NO_CALL, _compiled.PYTHON_CALL
PYTHON_ROUND = _compiled.PYTHON_ROUND
_SIZE = 8
"""Bytes of an item's length."""


class Rounds:
    """What the ranks of a group do together, one round at a time.

    Attributes:
        number: the numbers of the group.
        ended: why no call of the group may begin any more; empty while it may.
        leave: tells the other ranks that this one has left the group, and why.
        complete: completes the call that is under way, so that a round may begin in code that runs
            while it waits; raises RuntimeError where that is impossible. A plan table sets it.
    """

    complete: Callable[[], object]

    def __init__(self, leave: Callable[[int, BaseException], None]) -> None:
        self.ended, self.leave = "", leave
        self.lost_by: int | None = None
        # The compiled executor counts on in the same place, and leaves a group that has ended.
        self.number = array("q", [0] * _compiled.GROUP_NUMBERS)
        self.number[UNDER_WAY] = NO_CALL

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Begin a round; no call of the group can begin until it ends.

        Raises:
            RuntimeError: a call of the group that cannot be completed first is under way.
        """
        outer = self.number[UNDER_WAY]
        if outer > PYTHON_CALL:
            self.complete()
        self.number[UNDER_WAY] = PYTHON_ROUND
        try:
            yield
        finally:
            self.number[UNDER_WAY] = outer

    def end(self, why: str) -> None:
        """Begin no call of the group any more."""
        self.ended = why

    def check(self) -> None:
        """Raise RankLost where the group has ended, and RuntimeError where it has been freed."""
        if self.ended == FREED:
            raise RuntimeError(FREED)
        if self.ended:
            raise RankLost(f"this group has ended, make a new one: {self.ended}", rank=self.lost_by)

    @contextmanager
    def poison_on_error(self) -> Iterator[None]:
        """Give the group up where this rank alone fails in steps that all ranks take here.

        What the ranks count together, as segments, plans and the calls of a library, would no
        longer be the same on all.
        """
        try:
            yield
        except BaseException as error:
            alike = isinstance(error, CollectiveError) and not isinstance(error, RankLost)
            if not alike and not self.ended:
                self.lost_by = getattr(error, "rank", None)
                self.end(described(error))
                self.leave(GROUP, error)
            raise


class Mailbox(Rounds):
    """An allgather of bytes; made by all ranks of the node together."""

    def __init__(self, memory: SharedMemory) -> None:
        super().__init__(lambda operation, error: memory.leave(operation, error))
        self.memory = memory
        area = memory.allocator.take(DEPTH * (LINE + CAPACITY))
        assert area is not None, "it is the first"
        self.start: int = area.start
        mine = memory.view(memory.rank, 0, self.start, area.length)
        mine[:] = bytes(area.length)
        memory.exchange(None)

    def end(self, why: str) -> None:
        """Begin no call of the group any more, from the compiled executor neither."""
        self.ended, self.number[HAS_ENDED] = why, 1

    def _first(self, number: int) -> int:
        return (self.start + number % DEPTH * (LINE + CAPACITY)) // 8

    def wait(self, rank: int, number: int, name: str | None = None) -> None:
        """Return when a rank has begun a round.

        Args:
            name: of the call that the ranks compare; by default the one that Python runs.

        Raises:
            RankLost: it has ended or left the group, or the deadline has passed.
        """
        self.check()
        reason = partial(self.memory.notes.why, rank, GROUP)
        context = WaitContext(Stage(f"{agreeing(name)} (round {number})"), rank, reason)
        first = self._first(number)
        policy, words = self.memory.wait_policy, self.memory.words[rank][0]
        wait_advancing(policy, started_here(), words, first, number, context)

    def _round(self, data: bytes) -> list[bytes]:
        """Give at most `CAPACITY` bytes, and return every rank's, in rank order.

        Raises:
            RankLost: a rank has left the others in the middle of a call.
            RuntimeError: a call of the group that cannot be completed first is under way.
        """
        with self.alone():
            self.check()
            self.number[LAST_STATED] += 1
            number, memory = self.number[LAST_STATED], self.memory
            first, words = self._first(number), memory.words[memory.rank][0]
            memory.view(memory.rank, 0, 8 * first + LINE, len(data))[:] = data
            words[first + _LENGTH], words[first + _DIGEST] = len(data), 0
            _compiled.fence()
            words[first] = number
            return [self._read(rank, number) for rank in memory.intra_node]

    def _read(self, rank: int, number: int) -> bytes:
        """Return the bytes of a rank in a round."""
        first, memory = self._first(number), self.memory
        self.wait(rank, number)
        _compiled.fence()
        length = memory.words[rank][0][first + _LENGTH]
        return bytes(memory.view(rank, 0, 8 * first + LINE, length))

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's item, in rank order.

        Raises:
            Disagreement: on all ranks, where one exchanges items of another type.
        """
        data = encode_for(kind, item)
        with self.poison_on_error():
            return decode_alike(self._gather(data), kind)

    def _gather(self, data: bytes) -> list[bytes]:
        first = len(data).to_bytes(_SIZE, "little") + data[: CAPACITY - _SIZE]
        head = self._round(first)
        while not all(head):
            # A rank compared calls meanwhile: it found no such call here, and asks now.
            head = self._round(first)
        whole = [item[_SIZE:] for item in head]
        lengths = [int.from_bytes(item[:_SIZE], "little") for item in head]
        for start in range(CAPACITY - _SIZE, max(lengths), CAPACITY):
            parts = self._round(data[start : start + CAPACITY])
            whole = [start_of_item + part for start_of_item, part in zip(whole, parts, strict=True)]
        return whole
