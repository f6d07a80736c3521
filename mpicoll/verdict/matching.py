"""Match the rows of all ranks: the rows with one group and one sequence number are one call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import Group, Location, members_of

SYNCHRONISING = frozenset(("allreduce", "allgather", "alltoall", "reduce_scatter", "barrier"))
"""Collectives that no rank leaves before the last rank has entered them."""
IN_MESSAGES = "messages"
"""What stands for a collective where ranks wait in messages."""
_ROOT = re.compile(r"\broot (\d{1,8})")
_AMOUNTS = re.compile(r"\b(?:sends|receives) (\d{1,18}) bytes")
_COUNTS = re.compile(r"\bcounts (\([\d, ()]*)")


class Place(NamedTuple):
    """A place in the program from which a group makes one kind of call.

    Attributes:
        group: its identity, the same on all ranks.
        location: None where the line is unknown.
    """

    group: str
    collective: str
    location: Location | None


class MatchedCall(NamedTuple):
    """One call with the rows of all ranks that have recorded it.

    Attributes:
        members: the ranks of the launch, in the order of the group.
        rows: by rank of the launch.
        root: the rank of the launch that is the root; None without one, or where it is unknown.
    """

    group: Group
    sequence: int
    place: Place
    members: tuple[int, ...]
    rows: dict[int, Entry]
    root: int | None

    @property
    def is_complete(self) -> bool:
        """Whether the rows of all ranks are here, and no call is under way or has raised."""
        return self.rows.keys() == {*self.members} and all(
            entry.outcome in (Outcome.COMPLETED, Outcome.ISSUED) for entry in self.rows.values()
        )

    @property
    def is_of_objects(self) -> bool:
        """Whether the call moves objects of Python, which are pickled before it, or in it."""
        return any(entry.call.signature.startswith("objects") for entry in self.rows.values())

    @property
    def is_synchronising(self) -> bool:
        """Whether no rank leaves the call before all ranks have entered it."""
        return self.place.collective in SYNCHRONISING


def match(dumps: Sequence[Dump]) -> list[MatchedCall]:
    """Return the collective calls of all groups, in the order in which their first rank came."""
    rows: dict[tuple[str, int], dict[int, Entry]] = {}
    groups: dict[str, Group] = {}
    for dump in dumps:
        for entry in dump.entries:
            if entry.group is not None and not entry.group.messages:
                groups.setdefault(entry.group.id, entry.group)
                rows.setdefault((entry.group.id, entry.sequence), {})[dump.rank] = entry
    members = {key: tuple(ranks) for key, ranks in members_of(groups).items()}
    calls = []
    for (key, sequence), entries in rows.items():
        if key in members:
            first = entries[min(entries)]
            place = Place(key, first.call.collective, first.location)
            root = root_of(entry.call.signature for entry in entries.values())
            is_member = root is not None and root < len(members[key])
            calls.append(MatchedCall(
                groups[key], sequence, place, members[key], entries,
                members[key][root] if root is not None and is_member else None,
            ))  # fmt: skip
    return sorted(calls, key=lambda call: min(entry.start for entry in call.rows.values()))


def root_of(signatures: Iterable[str]) -> int | None:
    """Return the root that a signature states, as a rank of the group.

    >>> root_of(["", "float32 (8), sum, root 2"]), root_of(["float32 (8)"])
    (2, None)
    """
    matches = filter(None, map(_ROOT.search, signatures))
    return next((int(match[1]) for match in matches), None)


def amounts_of(signature: str) -> list[int]:
    """Return how many bytes the rank of a signature sends, and receives; [] where it says nothing.

    >>> amounts_of("sends 192 bytes, receives 480 bytes"), amounts_of("float64 (8), sum")
    ([192, 480], [])
    """
    return [*map(int, _AMOUNTS.findall(signature))]


def counts_of(signature: str, size: int) -> list[int]:
    """Return how many rows each rank sends or receives, the larger one; [] where that is unknown.

    >>> counts_of("float32 (), counts (1, 2, 3)", 3)
    [1, 2, 3]
    >>> counts_of("int64 (), counts ((1, 2), (3, 4))", 2), counts_of("int64 (8)", 2)
    ([4, 7], [])
    """
    match = _COUNTS.search(signature)
    numbers = [int(digits) for digits in re.findall(r"\d{1,18}", match[1])] if match else []
    if len(numbers) == size:
        return numbers
    if len(numbers) == size * size:
        return [
            max(sum(numbers[rank * size : (rank + 1) * size]), sum(numbers[rank::size]))
            for rank in range(size)
        ]
    return []
