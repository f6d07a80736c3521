"""The key of a record: the case that was asked for, not its execution or result.

Two records are of the same case where these fields agree. How `auto`, or a schedule without a named
transport, was carried out is a finding: it may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from mpicoll.records.lines import CaseRecord

Key = tuple[Any, ...]
Group = TypeVar("Group", bound=Hashable)

PROJECTS = {"mpi4py": "mpicoll", "torch": "torchcoll"}
"""The package whose schedules run on a backend."""

FIELDS = (
    "collective", "backend", "algorithm", "device", "dtype", "op", "root", "in_place", "allocated",
    "ranks", "nodes", "bytes_total", "environment", "call",
)  # fmt: skip


def key(record: CaseRecord) -> Key:
    """Return the key of a record."""
    return tuple(getattr(record, name) for name in FIELDS)


def place(record: CaseRecord) -> Key:
    """Return the part of the key that competing cases share: not who runs, nor by which call."""
    names = (name for name in FIELDS if name not in ("backend", "algorithm", "call"))
    return tuple(getattr(record, name) for name in names)


def variant(record: CaseRecord) -> list[str]:
    """Return in words the part of a case beside collective, backend, algorithm, size and ranks."""
    parts = (
        " ".join(filter(None, (record.dtype, record.op))),
        f"root {record.root}" if record.root is not None else "",
        "in place" if record.in_place else "",
        "allocated" if record.allocated else "",
        "on GPU" if record.device == "cuda" else "",
        f"by {record.call}" if record.call != "plan" else "",
        f"in {record.environment}" if record.environment else "",
    )
    return [part for part in parts if part]


def is_native(algorithm: str) -> bool:
    """Whether an algorithm is the library's own call, by its choice or by a forced algorithm.

    >>> is_native("native(algorithm=ring)"), is_native("native:reduce+broadcast")
    (True, False)
    """
    return algorithm.partition("(")[0] in ("native", "native_persistent")


def is_schedule(algorithm: str) -> bool:
    """Whether an algorithm is a schedule of this project.

    >>> is_schedule("ring"), is_schedule("native:reduce+broadcast")
    (True, False)
    """
    return not algorithm.startswith("native")


def grouped(
    records: Iterable[CaseRecord], of: Callable[[CaseRecord], Group]
) -> list[tuple[Group, list[CaseRecord]]]:
    """Group records that need not be neighbours, in order of first appearance."""
    groups: dict[Group, list[CaseRecord]] = {}
    for record in records:
        groups.setdefault(of(record), []).append(record)
    return list(groups.items())
