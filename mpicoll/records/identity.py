"""The key of a record: the case that was asked for, not what ran or came out.

Two records are of the same case where these fields agree. How `auto`, or a schedule without a named
transport, was carried out is a finding: it may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpicoll.records.lines import CaseRecord

Key = tuple[Any, ...]

FIELDS = (
    "collective", "backend", "algorithm", "device", "dtype", "op", "root", "in_place", "allocated",
    "ranks", "nodes", "bytes_total",
)  # fmt: skip
_BEFORE = {"device": "cpu", "allocated": False}
"""Defaults for the keys that older records lack."""


def key(record: CaseRecord | Mapping[str, Any]) -> Key:
    """Return the key of a record.

    Raises:
        KeyError: it is not the record of a case.
    """
    if isinstance(record, CaseRecord):
        return tuple(getattr(record, name) for name in FIELDS)
    full = {**_BEFORE, **record}
    return tuple(full[name] for name in FIELDS)
