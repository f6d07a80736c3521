"""The messages and waits of a traced program, which MPI or gloo runs: no flight file has them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec

from mpicoll.flight.records import Process


class Messages(NamedTuple):
    """The calls of one method at one line.

    Attributes:
        call: the name of the method, such as ``Recv`` or ``Wait``.
        line: of the program, as ``solver.py:40``.
        calls: on the rank that has made most.
        seconds: a rank's time in them, the mean of all ranks.
    """

    call: str
    line: str
    calls: int
    seconds: float


class _Report(msgspec.Struct):
    """What a rank has written, as `mpicoll.run.recording` does.

    Attributes:
        places: file, line, method, calls, seconds, and calls that the library ran.
    """

    places: list[tuple[str, int, str, int, float, int]]


def messages_of(directory: Path, processes: Iterable[Process]) -> list[Messages]:
    """Return the messages of ranks that have ended, those that took longest first."""
    ranks = list(processes)
    totals: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for rank in ranks:
        path = directory / f"messages-{rank.host}-{rank.pid}.json"
        with suppress(OSError, msgspec.MsgspecError):
            report = msgspec.json.decode(path.read_bytes(), type=_Report)
            for file, line, name, calls, seconds, _ in report.places:
                place = name, f"{PurePath(file).name}:{line}"
                totals.setdefault(place, []).append((calls, seconds))
    rows = (
        Messages(
            *place, max(calls for calls, _ in parts),
            sum(seconds for _, seconds in parts) / len(ranks),
        )
        for place, parts in totals.items()
    )  # fmt: skip
    return sorted(rows, key=lambda row: -row.seconds)
