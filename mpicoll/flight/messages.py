"""Have the time in MPI's messages added up, and in its other calls that wait for ranks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

_MPI = "mpi4py.MPI"
_WAITS = re.compile(
    r"[bsr]?send|m?(recv|probe)|sendrecv(_replace)?|wait(all|any|some)?"
    r"|(neighbor_)?(allgather|alltoall|gather|scatter)[vw]?|barrier|bcast|(all)?reduce"
    r"|reduce_scatter(_block)?|(ex)?scan|fence|(un)?lock(_all)?|flush(_all)?|complete",
    re.IGNORECASE,
)
"""Methods of mpi4py that wait for other ranks. Recorded calls have rows instead."""


def add_up(ring: Any) -> None:
    """Have a ring add up the time in these methods, where the program has imported mpi4py."""
    if module := sys.modules.get(_MPI):
        ring.time_messages([*_methods(module)])


def _methods(module: Any) -> Iterator[Any]:
    for kind in vars(module).values():
        for name, method in vars(kind).items() if isinstance(kind, type) else ():
            if _WAITS.fullmatch(name):
                yield getattr(method, "__func__", method)
