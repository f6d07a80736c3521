"""Notes in shared memory that say why this rank left an operation in its middle.

A rank that raises there never writes the words that the others wait for. These look for a note of
it once their wait gets long; a wait that ends soon costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mpicoll.backend import SharedMemory, Words
from mpicoll.c_extension import _compiled
from mpicoll.errors import RankLost
from mpicoll.machine.exits import at_exit
from mpicoll.memory.allocator import LINE

_CAPACITY = 16
"""Notes of each rank that are kept."""
_NOTE = 4 * LINE
GROUP = -1
_COUNT, _AWAITED_RANK, _EXITED = 0, 1, 2
_OPERATION, _LENGTH, _ROOT, _TEXT = 0, 1, 2, 3
LEFT = "which has left it: "
ENDED = "which has ended"
SILENT = "whose process does not answer: it is stopped, or its node is gone"
_QUOTED = f"{LEFT}{RankLost.__name__}: "
"""Before the text of another rank's error, which may quote that of a third one."""
_NOBODY = 0
"""Instead of a rank, which counts from 1 here."""


class Notes:
    """The notes of all ranks of a node.

    An operation is known to all of them by the same number: that of a plan in this memory, one
    below `GROUP` for a plan of messages, or `GROUP` for all further calls of the group.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        area = memory.allocator.take(LINE + _CAPACITY * _NOTE)
        assert area is not None and area.segment == 0, "all ranks take it first"
        self.first: int = area.start // 8
        memory.view(memory.rank, 0, area.start, area.length)[:] = bytes(area.length)
        at_exit(self)

    def leave(self, operation: int, error: BaseException) -> None:
        self.post(operation, described(error), getattr(error, "rank", None))

    def post(self, operation: int, text: str, root: int | None = None) -> None:
        """State a short text about an operation, and the rank that is missing there."""
        if not self.memory.words.get(self.memory.rank):
            return
        words = self._words(self.memory.rank)
        count = words[self.first + _COUNT]
        place = self._place(count)
        data = text.encode(errors="replace")[: _NOTE - 8 * _TEXT]
        words[place + _OPERATION] = 0
        self.memory.view(self.memory.rank, 0, 8 * (place + _TEXT), len(data))[:] = data
        words[place + _ROOT] = _NOBODY if root is None else root + 1
        words[place + _LENGTH], words[place + _OPERATION] = len(data), operation
        _compiled.fence()
        words[self.first + _COUNT] = count + 1

    def why(self, rank: int, operation: int) -> str:
        text = self.read(rank, operation)
        return text and f"{LEFT}{text}"

    def read(self, rank: int, operation: int) -> str:
        """Return a rank's last statement about an operation; empty where there is none."""
        return next((self._text(rank, place) for place in self._places(rank, operation)), "")

    def _text(self, rank: int, place: int) -> str:
        length = self.memory.words[rank][0][place + _LENGTH]
        data = bytes(self.memory.view(rank, 0, 8 * (place + _TEXT), length))
        return data.decode(errors="replace")

    def root(self, rank: int, operation: int) -> int | None:
        """Return the rank that was missing where one has left an operation for want of it."""
        roots = (self._rank(rank, place + _ROOT) for place in self._places(rank, operation))
        return next(roots, None)

    def last(self, rank: int) -> tuple[str, int] | None:
        """Return why a rank has left an operation last for want of another, and of which."""
        for place in self._places(rank):
            if (root := self._rank(rank, place + _ROOT)) is not None:
                return self._text(rank, place), root
        return None

    def _places(self, rank: int, operation: int | None = None) -> Iterator[int]:
        """Yield the places of a rank's notes on an operation, or of all, the last one first."""
        words = self._words(rank)
        count = words[self.first + _COUNT]
        _compiled.fence()
        for number in range(count - 1, max(-1, count - 1 - _CAPACITY), -1):
            place = self._place(number)
            if operation in (None, words[place + _OPERATION]):
                yield place

    def _words(self, rank: int) -> Words:
        """Return a rank's words, which are zeros where the memory has been released."""
        segments = self.memory.words.get(rank)
        return segments[0] if segments else Counter()

    def _rank(self, rank: int, place: int) -> int | None:
        """Return the rank that a word of another one names."""
        number = self._words(rank)[place]
        return None if number == _NOBODY else number - 1

    def wait_for(self, peer: int | None) -> None:
        words = self._words(self.memory.rank)
        words[self.first + _AWAITED_RANK] = _NOBODY if peer is None else peer + 1

    def waits_for(self, rank: int) -> int | None:
        """Return the rank that another waits for, None where it waits for nobody, or not long."""
        return self._rank(rank, self.first + _AWAITED_RANK)

    def has_exited(self, rank: int) -> bool:
        """Whether a rank's process has come to its end, instead of being killed."""
        return bool(self._words(rank)[self.first + _EXITED])

    def exit(self) -> None:
        """Tell the other ranks that this process comes to its end."""
        self._words(self.memory.rank)[self.first + _EXITED] = 1

    def _place(self, number: int) -> int:
        return self.first + (LINE + number % _CAPACITY * _NOTE) // 8


def withdrawn(memory: SharedMemory, operation: int, label: str, peer: int) -> RankLost:
    """Return the error of a rank that has read an array of a rank which has left the call.

    Args:
        operation: the number of the plan.
        label: the collective, for the text.
    """
    text = f"{label}: rank {peer} left the call while rank {memory.rank} read its array"
    reason = memory.notes.read(peer, operation)
    return RankLost(f"{text}: {reason}" if reason else text, rank=peer)


def described(error: BaseException) -> str:
    """Return an error's type and text; the first of a chain of RankLost, as notes are short."""
    text = error.reason.rpartition(_QUOTED)[2] if isinstance(error, RankLost) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
