"""Records without nesting and lists, for the lines of one table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

from msgspec import to_builtins

from mpicoll.records.lines import CaseRecord, PairRecord

_LEFT_OUT = ("run", "kind", "samples_us", "visits_us", "first_wrong")
_RATIO = ("ratio", "low", "high", "verdict")
_TIMES = ("median", "low", "high", "mean", "min", "max", "p95", "p99")
_NESTED = {
    "time_us": _TIMES,
    "host_us": _TIMES,
    "speedup_vs_native": _RATIO,
    "speedup_vs_other": (*_RATIO, "against"),
    "speedup_vs_strongest": (*_RATIO, "against", "environment"),
}


def flat(record: CaseRecord | PairRecord) -> dict[str, Any]:
    """Return the fields of a record, with the names of nested ones joined by dots."""
    cells: dict[str, Any] = {}
    for name, value in to_builtins(record).items():
        if name in _NESTED:
            cells |= {f"{name}.{inner}": (value or {}).get(inner) for inner in _NESTED[name]}
        elif name not in _LEFT_OUT:
            cells[name] = value
    return cells


def write_csv(records: Sequence[CaseRecord | PairRecord], out: TextIO) -> None:
    """Print records of one kind as CSV with a header line."""
    rows = [flat(record) for record in records]
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
