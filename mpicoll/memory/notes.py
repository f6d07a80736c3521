"""Notes in shared memory that say why this rank left an operation in its middle.

A rank that raises there never writes the words that the others wait for. These look for a note of
it once their wait gets long; a wait that ends soon costs nothing.
"""

from __future__ import annotations

from mpicoll.interfaces import SharedMemory
from mpicoll.memory.allocator import LINE

_MOST = 16
"""Notes of each rank that are kept."""
_NOTE = 4 * LINE
GROUP = -1
_OPERATION, _LENGTH, _TEXT = 0, 1, 2


class Notes:
    """The notes of all ranks of a node.

    An operation is known to all of them by the same number: that of a plan in this memory, or
    `GROUP` for all further calls of the group.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        area = memory.allocator.take(LINE + _MOST * _NOTE)
        assert area is not None and area.segment == 0, "all ranks take it first"
        self.first = area.start // 8
        memory.view(memory.rank, 0, area.start, area.length)[:] = bytes(area.length)

    def leave(self, operation: int, error: BaseException) -> None:
        """Tell the other ranks that this one has left an operation, and why."""
        if not (found := self.memory.words[self.memory.rank]):
            return
        words, count = found[0], found[0][self.first]
        place = self._place(count)
        text = described(error).encode(errors="replace")[: _NOTE - 8 * _TEXT]
        words[place + _OPERATION] = 0
        self.memory.view(self.memory.rank, 0, 8 * (place + _TEXT), len(text))[:] = text
        words[place + _LENGTH], words[place + _OPERATION] = len(text), operation
        if fence := self.memory.release(_NOTE):
            fence()
        words[self.first] = count + 1

    def why(self, rank: int, operation: int) -> str:
        """Return why a rank has left an operation; empty where it has not."""
        found = self.memory.words.get(rank)
        count = found[0][self.first] if found else 0
        if not found or not count:
            return ""
        if fence := self.memory.acquire(_NOTE):
            fence()
        for number in range(max(0, count - _MOST), count):
            place = self._place(number)
            if found[0][place + _OPERATION] == operation:
                length = found[0][place + _LENGTH]
                text = bytes(self.memory.view(rank, 0, 8 * (place + _TEXT), length))
                return f"which has left it: {text.decode(errors='replace')}"
        return ""

    def _place(self, number: int) -> int:
        return self.first + (LINE + number % _MOST * _NOTE) // 8


def described(error: BaseException) -> str:
    """Return an error's type and text."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
