"""Tell other ranks that the program of this one ends: its process may wait for them in MPI's end.

Import it before the program registers functions of its own with `atexit`, which may make calls:
these run first.
"""

from __future__ import annotations

import atexit
import os
from typing import Protocol
from weakref import WeakSet


class Exits(Protocol):
    """What other ranks may wait for."""

    def exit(self) -> None:
        """Tell them."""


_all: WeakSet[Exits] = WeakSet()
# A forked child ends, and its parent goes on.
os.register_at_fork(after_in_child=_all.clear)


def at_exit(member: Exits) -> None:
    """Call the `exit` of an object when the program ends, where the object still exists."""
    _all.add(member)


@atexit.register
def _exit() -> None:
    for member in list(_all):
        member.exit()
