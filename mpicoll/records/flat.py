"""Records without nesting and lists, for the lines of one table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

from msgspec import Struct, to_builtins

from mpicoll.records.lines import (
    CaseRecord,
    PairRecord,
    Speedup,
    SpeedupVsOther,
    SpeedupVsStrongest,
    Times,
)

LEFT_OUT = ("run", "kind", "samples_us", "blocks", "visits_us", "first_wrong")
NESTED: dict[str, type[Struct]] = {
    "time_us": Times,
    "host_us": Times,
    "speedup_vs_native": Speedup,
    "speedup_vs_other": SpeedupVsOther,
    "speedup_vs_strongest": SpeedupVsStrongest,
}


def flat(record: CaseRecord | PairRecord) -> dict[str, Any]:
    """Return the fields of a record, with the names of nested ones joined by dots."""
    cells: dict[str, Any] = {}
    for name, value in to_builtins(record).items():
        if name in NESTED:
            inner = NESTED[name].__struct_fields__
            cells |= {f"{name}.{part}": (value or {}).get(part) for part in inner}
        elif name not in LEFT_OUT:
            cells[name] = value
    return cells


def write_csv(records: Sequence[CaseRecord | PairRecord], out: TextIO) -> None:
    """Print records of one kind as CSV with a header line."""
    write_rows([flat(record) for record in records], out)


def write_rows(rows: Sequence[dict[str, Any]], out: TextIO) -> None:
    """Print rows of the same names as CSV, with these as a header line."""
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
