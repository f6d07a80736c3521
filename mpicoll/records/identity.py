"""The key of a record: the case that was asked for, not its execution or result.

Two records are of the same case where these fields agree. How `auto`, or a schedule without a named
transport, was carried out is a finding: it may differ.
"""

from __future__ import annotations

from typing import Any

from mpicoll.records.lines import CaseRecord

Key = tuple[Any, ...]

FIELDS = (
    "collective", "backend", "algorithm", "device", "dtype", "op", "root", "in_place", "allocated",
    "ranks", "nodes", "bytes_total", "environment", "call",
)  # fmt: skip


def key(record: CaseRecord) -> Key:
    """Return the key of a record."""
    return tuple(getattr(record, name) for name in FIELDS)
