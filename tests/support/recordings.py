"""Flight files that ranks have written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mpicoll
from mpicoll.flight.reader import Dump, read_all


def recorded(place: Path, function: Any, size: int = 3) -> list[Dump]:
    """Return what ranks have recorded when all have run a function."""
    barrier = threading.Barrier(size)
    dumps: list[Dump] = []

    def run(c: mpicoll.Collectives) -> None:
        function(c)
        barrier.wait()
        if c.rank == 0:
            dumps.extend(read_all(place)[0])
        barrier.wait()

    mpicoll.threads(size)(run)
    return dumps
