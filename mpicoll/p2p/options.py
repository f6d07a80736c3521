"""The checked command line of ``mpicoll.p2p``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpicoll.cli.options import transport_names
from mpicoll.errors import ArgumentError
from mpicoll.measurement.worlds import Worlds, backend_names

SIZES = (8, 65536, 1 << 20, 4 << 20)


@dataclass(frozen=True)
class Options:
    """The checked command line; empty `transports` mean all transports of the ranks."""

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
    preflight: bool = False
    hostfile: Path | None = None


def parse(flags: dict[str, Any], makers: Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    _check_preflight(flags)
    sizes = flags["sizes"] or SIZES
    if min(sizes) < 1:
        raise ArgumentError("a message has at least one byte: give --sizes from 1 on")
    checked = {
        "backends": backend_names(flags["backends"], makers, flags.pop("threads")),
        "transports": transport_names(flags["transports"]),
        "sizes": tuple(sorted(set(sizes))),
    }
    return Options(**flags | checked)


def _check_preflight(flags: dict[str, Any]) -> None:
    """Refuse options of one mode in the other.

    Raises:
        ArgumentError: there are some.
    """
    if not flags["preflight"]:
        if flags["hostfile"]:
            raise ArgumentError("--hostfile names the hosts that --preflight finds healthy: add it")
        return
    foreign = {
        "--sizes": flags["sizes"], "--transports": flags["transports"], "--plot": flags["plot"],
        "--output": flags["output"], "--format": flags["layout"] != "table",
        "--dry-run": flags["dry"], "--device": flags["device"] != "cpu",
    }  # fmt: skip
    if names := [name for name, value in foreign.items() if value]:
        raise ArgumentError(f"--preflight does not take {', '.join(names)}: leave that out")
