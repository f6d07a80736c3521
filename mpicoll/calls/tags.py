"""The tags by which the messages of a group's plans never meet."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from mpicoll.errors import Unsupported

MOST_TAGS = 32767
"""The largest tag that every MPI library has (MPI-4.1, 9.1.2)."""


class Tags:
    """The tags of one group's plans, the same on every rank.

    Plans are made in one order on all ranks, but go at any time: a rank's garbage collector
    decides. So tags are given out in order, and when the last one is, the ranks exchange
    which are still held and begin again with the others.
    """

    def __init__(self, exchange: Callable[..., list[Any]], max_tag: int = MOST_TAGS) -> None:
        self.exchange, self.every = exchange, range(1, max_tag + 1)
        self.held: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()
        self.remaining: Iterator[int] = iter(self.every)

    def take(self) -> int:
        """Return a tag that no rank holds; collective.

        Raises:
            Unsupported: there is none.
        """
        tag = next(self.remaining, None)
        if tag is None:
            held = set().union(*self.exchange(set(self.held), set[int]))
            self.remaining = iter([number for number in self.every if number not in held])
            tag = next(self.remaining, None)
        if tag is None:
            raise Unsupported(
                f"{len(self.every)} plans of this group are in use: free some of them"
            )
        return tag

    def hold(self, tag: int, owner: object) -> None:
        """Keep a tag from others as long as its owner lives."""
        self.held[tag] = owner
