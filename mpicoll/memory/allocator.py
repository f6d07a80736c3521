"""Allocate areas in the segments that a rank shares."""

from __future__ import annotations

from collections import deque

from mpicoll.interfaces import Area

LINE = 64
"""Bytes of a cache line: no two ranks write to the same one."""


class FirstFit:
    """First-fit allocation in segments, in whole cache lines."""

    def __init__(self) -> None:
        self.free: list[Area] = []
        self.segments = self.nbytes = 0
        # A finalizer may run in the middle of anything: it only leaves its area here.
        self.returned: deque[Area] = deque()

    def add(self, nbytes: int) -> None:
        """Take one more segment of `nbytes` into use."""
        self.free.append(Area(self.segments, 0, nbytes))
        self.segments += 1
        self.nbytes += nbytes

    @property
    def used(self) -> int:
        """The bytes that are not free."""
        self._collect()
        return self.nbytes - sum(each.length for each in self.free)

    def take(self, nbytes: int) -> Area | None:
        """Return an area of at least `nbytes`, None where there is no room."""
        self._collect()
        needed = whole_lines(nbytes)
        for index, (segment, start, length) in enumerate(self.free):
            if length >= needed:
                self.free[index] = Area(segment, start + needed, length - needed)
                return Area(segment, start, needed)
        return None

    def give(self, area: Area) -> None:
        self.returned.append(area)

    def _collect(self) -> None:
        """Merge returned areas with their neighbours."""
        if not self.returned:
            return
        while self.returned:
            self.free.append(self.returned.popleft())
        merged: list[Area] = []
        for area in sorted(self.free):
            last = merged[-1] if merged else None
            if last and last.segment == area.segment and last.start + last.length == area.start:
                merged[-1] = last._replace(length=last.length + area.length)
            elif area.length:
                merged.append(area)
        self.free = merged


def whole_lines(nbytes: int) -> int:
    """Round up to whole cache lines, at least one.

    >>> whole_lines(0), whole_lines(64), whole_lines(65)
    (64, 64, 128)
    """
    return max(1, -(-nbytes // LINE)) * LINE
