"""The checked command line of ``mpicoll.tune``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpicoll.cli.options import collective_names
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted
from mpicoll.measurement.worlds import Worlds, backend_names
from mpicoll.selection import tables
from mpicoll.text.names import swept_names

SIZES = tuple(4 << (2 * step) for step in range(12))


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    wanted: Wanted
    backends: tuple[str, ...]
    budget: float
    output: Path
    timeout: float
    interface: str | None
    resume: bool


def parse(given: dict[str, Any], makers: Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    names = collective_names(*given["collectives"])
    sizes = given["sizes"] or SIZES
    more = swept_names(given["algorithms"] or "")
    if "auto" in more:
        raise ArgumentError("auto is what this command decides: name other algorithms")
    return Options(
        Wanted(names, more, tuple(sorted(set(sizes)))), backend_names(given["backends"], makers),
        given["budget"], given["output"] or tables.default_path(), given["timeout"],
        given["interface"], given["resume"],
    )  # fmt: skip
