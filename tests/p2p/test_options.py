"""The command line of ``mpicoll.p2p``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.p2p.options import Options, parse


def parse_options(**flags: Any) -> Options:
    plain = dict.fromkeys(("backends", "transports", "sizes", "output", "plot", "interface")) | {
        "device": "cpu", "budget": 30.0, "layout": "table", "seed": 0, "timeout": 60.0,
        "dry": False, "threads": None, "preflight": False, "hostfile": None,
    }  # fmt: skip
    worlds: Any = {"mpi4py": None, "torch": None}
    return parse(plain | flags, worlds)


def test_sizes_are_sorted_and_unique() -> None:
    assert parse_options(sizes=(4096, 8, 4096)).sizes == (8, 4096)


@pytest.mark.parametrize(
    "flags", [{"sizes": (0, 8)}, {"transports": "smymetric"}, {"backends": "x"}], ids=str
)  # fmt: skip
def test_bad_flags_are_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        parse_options(**flags)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"hostfile": Path("hosts")}, "--preflight finds healthy: add it"),
        ({"preflight": True, "sizes": (8,)}, "does not take --sizes"),
        ({"preflight": True, "output": Path("a"), "dry": True}, "take --output, --dry-run"),
        ({"preflight": True, "layout": "csv"}, "does not take --format"),
        ({"preflight": True, "device": "cuda"}, "does not take --device"),
    ],
    ids=str,
)
def test_a_check_takes_no_flags_of_the_measurement(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        parse_options(**flags)
