"""Notes in shared memory that say why this rank left an operation in its middle.

A rank that raises there never writes the words that the others wait for. These look for a note of
it once their wait gets long; a wait that ends soon costs nothing.
"""

from __future__ import annotations

from mpicoll.backend import SharedMemory
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
        if not (segments := self.memory.words.get(self.memory.rank)):
            return
        words, count = segments[0], segments[0][self.first]
        place = self._place(count)
        data = text.encode(errors="replace")[: _NOTE - 8 * _TEXT]
        words[place + _OPERATION] = 0
        self.memory.view(self.memory.rank, 0, 8 * (place + _TEXT), len(data))[:] = data
        words[place + _ROOT] = _NOBODY if root is None else root + 1
        words[place + _LENGTH], words[place + _OPERATION] = len(data), operation
        _compiled.fence()
        words[self.first] = count + 1

    def why(self, rank: int, operation: int) -> str:
        text = self.read(rank, operation)
        return text and f"{LEFT}{text}"

    def read(self, rank: int, operation: int) -> str:
        """Return a rank's last statement about an operation; empty where there is none."""
        place = self._find(rank, operation)
        if place is None:
            return ""
        length = self.memory.words[rank][0][place + _LENGTH]
        data = bytes(self.memory.view(rank, 0, 8 * (place + _TEXT), length))
        return data.decode(errors="replace")

    def root(self, rank: int, operation: int) -> int | None:
        """Return the rank that was missing where one has left an operation for want of it."""
        place = self._find(rank, operation)
        root = _NOBODY if place is None else self.memory.words[rank][0][place + _ROOT]
        return None if root == _NOBODY else root - 1

    def last(self, rank: int) -> tuple[str, int] | None:
        """Return why a rank has left an operation last for want of another, and of which."""
        segments = self.memory.words.get(rank)
        count = segments[0][self.first + _COUNT] if segments else 0
        for number in range(count - 1, max(-1, count - 1 - _CAPACITY), -1):
            place = self._place(number)
            if segments and segments[0][place + _ROOT] != _NOBODY:
                return self.read(rank, segments[0][place + _OPERATION]), segments[0][
                    place + _ROOT
                ] - 1
        return None

    def _find(self, rank: int, operation: int) -> int | None:
        """Return the place of a rank's note on an operation, None where there is none."""
        segments = self.memory.words.get(rank)
        count = segments[0][self.first + _COUNT] if segments else 0
        if not segments or not count:
            return None
        _compiled.fence()
        numbers = range(count - 1, max(-1, count - 1 - _CAPACITY), -1)
        places = map(self._place, numbers)
        return next(
            (place for place in places if segments[0][place + _OPERATION] == operation), None
        )

    def wait_for(self, peer: int | None) -> None:
        if segments := self.memory.words.get(self.memory.rank):
            segments[0][self.first + _AWAITED_RANK] = _NOBODY if peer is None else peer + 1

    def waits_for(self, rank: int) -> int | None:
        """Return the rank that another waits for, None where it waits for nobody, or not long."""
        segments = self.memory.words.get(rank)
        awaited = segments[0][self.first + _AWAITED_RANK] if segments else _NOBODY
        return None if awaited == _NOBODY else awaited - 1

    def has_exited(self, rank: int) -> bool:
        """Whether a rank's process has come to its end, instead of being killed."""
        segments = self.memory.words.get(rank)
        return bool(segments and segments[0][self.first + _EXITED])

    def exit(self) -> None:
        """Tell the other ranks that this process comes to its end."""
        if segments := self.memory.words.get(self.memory.rank):
            segments[0][self.first + _EXITED] = 1

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
