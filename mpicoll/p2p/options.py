"""The checked command line of ``mpicoll.p2p``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError, UnknownName
from mpicoll.interfaces import TRANSPORTS
from mpicoll.measurement.worlds import Worlds, backend_names
from mpicoll.text.names import split_names, with_all

SIZES = (8, 65536, 1 << 20, 4 << 20)


@dataclass(frozen=True)
class Options:
    """The command line, checked; without `transports` all that there are are measured."""

    backends: tuple[str, ...]
    transports: tuple[str, ...]
    sizes: tuple[int, ...]
    device: str
    budget: float
    output: Path | None
    plot: Path | None
    layout: str
    dry: bool
    seed: int
    timeout: float
    interface: str | None


def parse(given: dict[str, Any], makers: Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    sizes = given["sizes"] or SIZES
    if min(sizes) < 1:
        raise ArgumentError("a message between two ranks has at least one byte: see --sizes")
    transports = with_all(split_names(given["transports"] or ""), TRANSPORTS)
    for name in transports:
        if name not in TRANSPORTS:
            raise UnknownName("transport", name, TRANSPORTS)
    checked = {
        "backends": backend_names(given["backends"], makers, given.pop("threads")),
        "transports": transports,
        "sizes": tuple(sorted(set(sizes))),
    }
    return Options(**given | checked)
