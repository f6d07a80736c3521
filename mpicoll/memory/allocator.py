"""Allocate areas in the segments that a rank shares."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

LINE = 64
"""Bytes of a cache line: no two ranks write to the same one."""


class Area(NamedTuple):
    """A part of one segment: bytes."""

    segment: int
    start: int
    length: int


class FirstFit:
    """First-fit allocation in segments, in whole cache lines.

    Args:
        reserve: is called with an area before it is taken, and raises where there is no memory.
        release: is called with a free area, whose memory may go back to the system.
    """

    def __init__(
        self, reserve: Callable[[Area], object] = lambda area: None,
        release: Callable[[Area], object] = lambda area: None,
    ) -> None:  # fmt: skip
        self.reserve, self.release = reserve, release
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
        return self.nbytes - sum(area.length for area in self.free)

    def take(self, nbytes: int) -> Area | None:
        """Return an area of at least `nbytes`, None where there is no room.

        Raises:
            Unavailable: there is room, but no memory behind it.
        """
        self._collect()
        needed = whole_lines(nbytes)
        for index, (segment, start, length) in enumerate(self.free):
            if length >= needed:
                area = Area(segment, start, needed)
                self.reserve(area)
                self.free[index] = Area(segment, start + needed, length - needed)
                return area
        return None

    def give(self, area: Area) -> None:
        """Take an area back; safe to call from a finalizer."""
        self.returned.append(area)

    def _collect(self) -> None:
        """Merge returned areas with their neighbours, and release their memory."""
        if not self.returned:
            return
        returned: list[Area] = []
        while self.returned:
            returned.append(self.returned.popleft())
        self.free += returned
        merged: list[Area] = []
        for area in sorted(self.free):
            last = merged[-1] if merged else None
            if last and last.segment == area.segment and last.start + last.length == area.start:
                merged[-1] = last._replace(length=last.length + area.length)
            elif area.length:
                merged.append(area)
        self.free = merged
        for area in returned:
            self.release(self._with_pages(area))

    def _with_pages(self, area: Area) -> Area:
        """Return a free area with what is free of its first and last page."""
        segment, first, last = area.segment, area.start, area.start + area.length
        start, stop = next(
            (free.start, free.start + free.length)
            for free in self.free
            if free.segment == segment and free.start <= first and last <= free.start + free.length
        )
        start, stop = max(start, first - mmap.PAGESIZE), min(stop, last + mmap.PAGESIZE)
        return Area(segment, start, stop - start)


def whole_lines(nbytes: int) -> int:
    """Round up to whole cache lines, at least one.

    >>> whole_lines(0), whole_lines(64), whole_lines(65)
    (64, 64, 128)
    """
    return max(1, -(-nbytes // LINE)) * LINE
