"""Small items between all ranks of one node, through shared memory."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from mpicoll.memory.allocator import LINE
from mpicoll.memory.waiting import WaitContext

if TYPE_CHECKING:
    from mpicoll.memory.segments import SharedMemory

_LETTER = 16 * 1024


class Mailbox:
    """An allgather of bytes, through two cells of each rank in turn."""

    def __init__(self, group: SharedMemory) -> None:
        self.group = group
        area = group.heap.take(2 * (LINE + _LETTER))
        assert area is not None, "it is the first"
        self.start = area.start
        self.turn = 0
        mine = group.view(group.rank, 0, self.start, area.length)
        mine[:] = bytes(area.length)
        group.exchange(None)

    def _round(self, data: bytes) -> list[bytes]:
        """Exchange at most `_LETTER` bytes each."""
        self.turn += 1
        group = self.group
        cell = self.start + self.turn % 2 * (LINE + _LETTER)
        first, body = cell // 8, cell + LINE
        words = group.words[group.rank][0]
        group.view(group.rank, 0, body, len(data))[:] = data
        words[first + 1] = len(data)
        if fence := group.release(len(data)):
            fence()
        words[first] = self.turn
        found = []
        for rank in group.near:
            theirs = group.words[rank][0]
            context = WaitContext("agreeing on a call", self.turn, self.turn, rank)
            group.wait_policy.wait(theirs, first, self.turn, context)
            if fence:
                fence()
            found.append(bytes(group.view(rank, 0, body, theirs[first + 1])))
        return found

    def exchange(self, item: Any) -> list[Any]:
        """Return every rank's item, in rank order."""
        data = pickle.dumps(item)
        head = self._round(len(data).to_bytes(8, "little") + data[: _LETTER - 8])
        whole = [each[8:] for each in head]
        lengths = [int.from_bytes(each[:8], "little") for each in head]
        for start in range(_LETTER - 8, max(lengths), _LETTER):
            parts = self._round(data[start : start + _LETTER])
            whole = [sofar + part for sofar, part in zip(whole, parts, strict=True)]
        return [pickle.loads(each) for each in whole]

    def agree(self, digest: bytes) -> bool:
        """Whether all ranks gave the same few bytes."""
        return all(each == digest for each in self._round(digest))
