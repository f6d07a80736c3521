"""Which case a record is about: what was asked for, whatever ran or came out.

Two records are of the same case where these agree. How `auto`, or a schedule without a named
transport, was carried out is a finding: it may differ, and is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpicoll.measurement.cases import Case

Key = tuple[Any, ...]

FIELDS = (
    "collective", "backend", "algorithm", "device", "dtype", "op", "root", "in_place", "allocated",
    "ranks", "nodes", "bytes_total",
)  # fmt: skip
_BEFORE = {"device": "cpu", "allocated": False}
"""What records say that are older than a key."""


def key(record: Mapping[str, Any]) -> Key:
    """Return what identifies the case of a record.

    Raises:
        KeyError: it is not the record of a case.
    """
    full = {**_BEFORE, **record}
    return tuple(full[name] for name in FIELDS)


def key_of(case: Case, ranks: int, nodes: int) -> Key:
    """Return the same of a case that is to be measured."""
    group = case.group
    has_data = group.what.unit != "none"
    return (
        group.what.name, case.backend, case.algorithm, group.device,
        group.dtype if has_data else None, group.op if group.what.reduces else None,
        group.root if group.what.rooted else None, group.in_place, group.allocated, ranks, nodes,
        group.bytes_total,
    )  # fmt: skip
