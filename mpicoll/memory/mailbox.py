"""Exchange small items between all ranks of one node, through shared memory."""

from __future__ import annotations

from typing import Any

from mpicoll.interfaces import SharedMemory, WaitContext
from mpicoll.memory.allocator import LINE
from mpicoll.text.encoding import decode, encode

CAPACITY = 16 * 1024
"""Bytes that a rank can give in one round."""
DEPTH = 2
"""Buffers of each rank: it writes one while the others still read the other."""


class Mailbox:
    """An allgather of bytes; made by all ranks of the node together."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        area = memory.allocator.take(DEPTH * (LINE + CAPACITY))
        assert area is not None, "it is the first"
        self.start = area.start
        self.sequence = 0
        mine = memory.view(memory.rank, 0, self.start, area.length)
        mine[:] = bytes(area.length)
        memory.exchange(None)

    def _round(self, data: bytes) -> list[bytes]:
        """Exchange at most `CAPACITY` bytes each."""
        self.sequence += 1
        memory = self.memory
        start = self.start + self.sequence % DEPTH * (LINE + CAPACITY)
        first, body = start // 8, start + LINE
        words = memory.words[memory.rank][0]
        memory.view(memory.rank, 0, body, len(data))[:] = data
        words[first + 1] = len(data)
        if fence := memory.release(len(data)):
            fence()
        words[first] = self.sequence
        found = []
        for rank in memory.intra_node:
            theirs = memory.words[rank][0]
            context = WaitContext("agreeing on a call", self.sequence, self.sequence, rank)
            memory.wait_policy.wait(theirs, first, self.sequence, context)
            if fence:
                fence()
            found.append(bytes(memory.view(rank, 0, body, theirs[first + 1])))
        return found

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's item, in rank order."""
        data = encode(item)
        head = self._round(len(data).to_bytes(8, "little") + data[: CAPACITY - 8])
        whole = [each[8:] for each in head]
        lengths = [int.from_bytes(each[:8], "little") for each in head]
        for start in range(CAPACITY - 8, max(lengths), CAPACITY):
            parts = self._round(data[start : start + CAPACITY])
            whole = [before + part for before, part in zip(whole, parts, strict=True)]
        return decode(whole, kind)

    def agree(self, digest: bytes) -> bool:
        """Whether all ranks gave the same few bytes."""
        return all(each == digest for each in self._round(digest))
