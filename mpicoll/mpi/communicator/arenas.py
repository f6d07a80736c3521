"""Memory for channels: arenas, which some ranks of a node map once, and units of them.

A channel needs one unit of each of its ranks. So a new communicator takes units of an arena that
its ranks have already, and its ranks tell each other which. A unit is used again when all ranks of
its channel have left it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from typing import Any

from mpicoll.c_extension import _compiled
from mpicoll.errors import Unavailable
from mpicoll.memory.files import Files, Segment

UNITS = 64
"""The units of a rank in an arena: so many communicators of a process are served at a time."""
MOST_ARENAS = 4
"""The newest arenas of a process, in which its new communicators can have units."""
OFFER = 3 * MOST_ARENAS
"""The numbers by which a rank offers a unit of each arena: the arena, its place there, the unit."""
_UNIT_BYTES: int = _compiled.UNIT_BYTES


class Arena:
    """Memory of some ranks of a node, with units for channels.

    Attributes:
        number: the same on its ranks, and another one for each arena.
        place: of this rank in it.
        free: units of this rank that nobody uses.
        reserved: units whose memory is sure, where it lies in a file system.
        closing: units that this rank has left, each with the number of ranks of its channel.
    """

    def __init__(self, segment: Segment, place: int) -> None:
        self.segment, self.number, self.place = segment, segment.number, place
        self._start = addressof(c_char.from_buffer(segment.mapped))
        self.free = list(range(UNITS))
        self.closing: list[tuple[int, int]] = []
        self.reserved: set[int] = set()

    def address(self, place: int, unit: int) -> int:
        """Return the address of a unit of the rank at a place."""
        return self._start + (place * UNITS + unit) * _UNIT_BYTES

    def take(self) -> int:
        """Return an empty unit of this rank, -1 where all are in use."""
        closing, self.closing = self.closing, []
        for unit, members in closing:
            if _compiled.unit_is_closed(self.address(self.place, unit), members):
                self.free.append(unit)
            else:
                self.closing.append((unit, members))
        if not self.free:
            return -1
        unit = self.free.pop()
        if self.segment.is_named and unit not in self.reserved:
            try:
                self.segment.reserve(unit * _UNIT_BYTES, _UNIT_BYTES)
            except Unavailable:
                self.free.append(unit)
                return -1
            self.reserved.add(unit)
        _compiled.clear_unit(self.address(self.place, unit))
        return unit


_arenas: list[Arena] = []
"""The arenas of this process, the newest last."""


def offer() -> list[int]:
    """Return the numbers by which this rank offers a unit in each of its arenas."""
    numbers = [number for arena in _arenas for number in (arena.number, arena.place, arena.take())]
    return numbers + [0] * (OFFER - len(numbers))


def choose(offers: Sequence[Sequence[int]], rank: int) -> tuple[Arena | None, int, list[int]]:
    """Return the newest arena that all ranks have, this rank's unit there, and all addresses.

    Without such an arena, None. Without a free unit on some rank, no addresses. The units of other
    arenas become free again, as `give_back` has it.

    Args:
        offers: of all ranks, as `offer` returns them.
    """
    tables = [
        {numbers[at]: (numbers[at + 1], numbers[at + 2]) for at in range(0, OFFER, 3)}
        for numbers in offers
    ]
    common = [number for number in tables[0] if number and all(number in table for table in tables)]
    newest = common[-1] if common else 0
    arena = next((arena for arena in _arenas if arena.number == newest), None)
    places = [table[newest] for table in tables] if arena else []
    has_units = arena is not None and min(unit for _, unit in places) >= 0
    give_back(offers[rank], arena if has_units else None)
    if arena is None or not has_units:
        return arena, -1, []
    return arena, places[rank][1], [arena.address(*place) for place in places]


def give_back(numbers: Sequence[int], chosen: Arena | None = None) -> None:
    """Take back what this rank has offered, but for its unit of one arena."""
    units = {numbers[at]: numbers[at + 2] for at in range(0, OFFER, 3)}
    for arena in _arenas:
        if arena is not chosen and units.get(arena.number, -1) >= 0:
            arena.free.append(units[arena.number])


def make(exchange: Callable[..., list[Any]], rank: int, size: int) -> None:
    """Map an arena for the ranks of a communicator, which share a node; collective.

    Raises:
        Unavailable: on all ranks, where one cannot map it.
    """
    segment = Files(exchange, rank, range(size)).map(UNITS * _UNIT_BYTES)
    _arenas.append(Arena(segment, rank))
    del _arenas[:-MOST_ARENAS]
