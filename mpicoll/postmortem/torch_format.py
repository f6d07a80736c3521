"""Write calls as torch's Flight Recorder does, for its analyser: ``torchfrtrace``.

It reads pickles alone (torch.distributed.flight_recorder.components.loader), so these are written,
of plain lists and dictionaries, where they are asked for; nothing here reads one.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump, Entry
from mpicoll.flight.records import members_of
from mpicoll.flight.torch_dumps import DTYPES
from mpicoll.text.files import make_folder, write_whole

VERSION = "2.10"
"""Of torch's format."""
_NAMES = {
    "allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce",
    "gather": "gather", "scatter": "scatter", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all", "barrier": "all_reduce_barrier",
}  # fmt: skip
_DTYPES = {name: of_torch for of_torch, name in DTYPES.items()}
_STATES = {
    Outcome.UNDER_WAY: "started", Outcome.COMPLETED: "completed", Outcome.RAISED: "started",
    Outcome.ISSUED: "scheduled",
}  # fmt: skip
_SIGNATURE = re.compile(r"(\w+)(?: \(([\d, ]*)\))?")
_NUMBER = re.compile(r"\d{1,18}")


def write(directory: Path, dumps: Sequence[Dump]) -> None:
    """Write a file ``rank_N`` for each rank.

    Raises:
        ArgumentError: they cannot be written.
    """
    make_folder(directory)
    for dump in dumps:
        data = pickle.dumps(as_torch(dump))
        write_whole(directory / f"rank_{dump.rank}", partial(Path.write_bytes, data=data))


def as_torch(dump: Dump) -> dict[str, Any]:
    """Return the dump that torch would have written; calls that it does not know are left out."""
    members = members_of({group.id: group for group in dump.groups})
    groups = {
        group.id: {"name": group.id, "desc": group.name, "ranks": str(members[group.id])}
        for group in dump.groups if group.id in members
    }  # fmt: skip
    numbers = {group.id: str(place) for place, group in enumerate(dump.groups)}
    entries = [
        _entry(entry, numbers[entry.group.id], len(members[entry.group.id]))
        for entry in dump.entries
        if entry.group and entry.group.id in members and entry.call.collective in _NAMES
    ]
    return {"version": VERSION, "pg_config": groups, "pg_status": {}, "entries": entries}


def _entry(entry: Entry, number: str, size: int) -> dict[str, Any]:
    assert entry.group is not None
    name = entry.call.collective
    match = _SIGNATURE.match(entry.call.signature)
    row = [int(digits) for digits in _NUMBER.findall(match[2] or "")] if match else []
    dtype = _DTYPES.get(match[1], match[1]) if match else ""
    rows = [size, *row]
    took = (entry.end - entry.start) / 1e6 if entry.end else None
    location = entry.location
    frames = (
        [{"name": location.function, "filename": location.file, "line": location.line}]
        if location
        else []
    )
    return {
        "record_id": entry.number, "pg_id": int(number), "collective_seq_id": entry.sequence,
        "p2p_seq_id": 0, "op_id": entry.sequence, "is_p2p": False, "retired": bool(entry.end),
        "process_group": (entry.group.id, entry.group.name),
        "profiling_name": f"gloo:{_NAMES[name]}", "state": _STATES[entry.outcome],
        "input_sizes": [rows if name in ("scatter", "reduce_scatter", "alltoall") else row],
        "output_sizes": [rows if name in ("gather", "allgather", "alltoall") else row],
        "input_dtypes": [dtype], "output_dtypes": [dtype], "timeout_ms": 0,
        "time_created_ns": entry.start, "time_discovered_started_ns": entry.start,
        "time_discovered_completed_ns": entry.end or None, "duration_ms": took, "frames": frames,
    }  # fmt: skip
