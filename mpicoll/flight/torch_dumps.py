"""Read the dumps of torch's own flight recorder, of groups of gloo or NCCL.

torch writes a file for each rank, as a pickle or as JSON. The number at the end of its name is the
rank. Nothing is unpickled: `plain_pickle` reads plain data only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mpicoll.errors import ArgumentError
from mpicoll.flight import reader
from mpicoll.flight.directory import files
from mpicoll.flight.layout import Outcome, State
from mpicoll.flight.plain_pickle import plain_value
from mpicoll.flight.reader import MOST_FILES, Dump, Ending, Entry
from mpicoll.flight.records import Call, Group, Location, Process, checked
from mpicoll.text.files import content_of
from mpicoll.text.numbers import ranges

_NAME = re.compile(r".*?(\d{1,7})(?:\.json|\.pickle|\.pkl|\.pt)?")
_LIBRARY = re.compile(r"<frozen |.*/(?:site|dist)-packages/(?:torch/|typing_extensions\.py)")
_COLLECTIVES = {
    "allreducebarrier": "barrier", "barrier": "barrier", "allreduce": "allreduce",
    "allgather": "allgather", "reducescatter": "reduce_scatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "send": "send", "recv": "recv",
}  # fmt: skip
"""Names without underscores, as they begin. A longer one comes before its beginning."""
_SYNCHRONISING = ("barrier", "allreduce", "allgather", "reduce_scatter", "alltoall")
DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
_MOST_FRAMES, _MOST_BYTES = 256, 1 << 28
_Text = Annotated[str, msgspec.Meta(max_length=8192)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class _Configuration(msgspec.Struct):
    ranks: _Text = ""


class _Call(msgspec.Struct):
    """One call. Sizes, dtypes and frames are read with care where they are used."""

    profiling_name: _Text
    process_group: tuple[_Text, _Text]
    time_created_ns: _Count
    state: _Text = ""
    retired: bool = False
    is_p2p: bool = False
    collective_seq_id: _Count = 0
    p2p_seq_id: _Count = 0
    time_discovered_completed_ns: _Time = None
    input_sizes: Any = None
    output_sizes: Any = None
    input_dtypes: Any = None
    frames: Any = None


class _File(msgspec.Struct):
    version: _Text
    entries: Annotated[list[_Call], msgspec.Meta(max_length=1 << 20)]
    pg_config: dict[str, _Configuration] = {}


def read_all(directory: Path) -> tuple[list[Dump], list[str]]:
    """Return the flight files of a directory's newest job, or else the dumps of torch.

    The second value tells why some files cannot be read.

    Raises:
        ArgumentError: there are neither flight files nor dumps of torch.
    """
    is_of_torch = directory.is_dir() and not any(files(directory))
    contents, faults = _contents(directory) if is_of_torch else ({}, [])
    return (_dumps(contents), faults) if contents else reader.read_all(directory)


def _contents(directory: Path) -> tuple[dict[int, tuple[Path, _File]], list[str]]:
    """Return the files of a directory that are dumps of torch, by rank."""
    contents: dict[int, tuple[Path, _File]] = {}
    faults = []
    for path in sorted(directory.iterdir())[:MOST_FILES]:
        match = _NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        try:
            content = _content(path)
        except (ValueError, RecursionError, ArgumentError) as error:
            faults.append(f"{path.name}: no dump of torch's flight recorder: {error}")
            continue
        # A rank may have left both forms: the pickle has the lines of the program, too.
        if int(match[1]) not in contents or path.suffix != ".json":
            contents[int(match[1])] = path, content
    return contents, faults


def _content(path: Path) -> _File:
    data = content_of(path, _MOST_BYTES, is_of_user=False)
    if data.lstrip()[:1] == b"{":
        return msgspec.json.decode(data, type=_File)
    return msgspec.convert(plain_value(data), _File)


def _dumps(contents: dict[int, tuple[Path, _File]]) -> list[Dump]:
    """Return the dumps as the flight files of the ranks."""
    names = {
        call.process_group for _, content in contents.values() for call in content.entries
    }  # fmt: skip
    members = {name: _members(name[0], contents) for name in names}
    size = max([*contents, *(rank for ranks in members.values() for rank in ranks)]) + 1
    dumps = [
        _dump(path, content, rank, size, members) for rank, (path, content) in contents.items()
    ]
    return _with_ends(sorted(dumps, key=lambda dump: dump.rank))


def _members(name: str, contents: dict[int, tuple[Path, _File]]) -> list[int]:
    """Return the ranks of a group: those that torch states, else those that have made calls."""
    for _, content in contents.values():
        configuration = content.pg_config.get(name) or content.pg_config.get("")
        stated = re.findall(r"\d{1,7}", configuration.ranks) if configuration else []
        if stated and (name in content.pg_config or name == "0"):
            return [int(digits) for digits in stated]
    return sorted(
        rank for rank, (_, content) in contents.items()
        if any(call.process_group[0] == name for call in content.entries)
    )  # fmt: skip


def _dump(
    path: Path, content: _File, rank: int, size: int, members: dict[tuple[str, str], list[int]]
) -> Dump:
    groups = {}
    for name, ranks in members.items():
        if rank in ranks:
            text, title = ranges(ranks), name[1] if name[1] != "undefined" else f"group {name[0]}"
            number = ranks.index(rank)
            groups[name, False] = Group(f"torch {name[0]}", title, number, text)
            groups[name, True] = Group(
                f"torch {name[0]} messages", f"messages of {title}", number, text, True
            )
    entries = [
        _entry(number, call, groups.get((call.process_group, call.is_p2p)))
        for number, call in enumerate(content.entries, 1)
    ]
    return Dump(
        path=path, process=Process(0, rank, size, "", "", 0, 0), state=State.RUNNING, ended=0,
        is_alive=False, ending=Ending(), groups=[*groups.values()], entries=entries, samples=[],
        links=[], errors=[], stacks="", faults=[],
    )  # fmt: skip


def _entry(number: int, call: _Call, group: Group | None) -> Entry:
    completed = call.time_discovered_completed_ns
    has_ended = call.retired or bool(completed) or call.state == "completed"
    start = call.time_created_ns
    return Entry(
        number, call.p2p_seq_id if call.is_p2p else call.collective_seq_id, start,
        max(start, completed or 0) if has_ended else 0, group, _kind(call),
        _location(call.frames), 0, Outcome.COMPLETED if has_ended else Outcome.UNDER_WAY, "",
    )  # fmt: skip


def _kind(call: _Call) -> Call:
    library, _, name = call.profiling_name.rpartition(":")
    short = name.replace("_", "").lower()
    collective = next((_COLLECTIVES[known] for known in _COLLECTIVES if short.startswith(known)),
                      name or "a call")  # fmt: skip
    return Call(collective, "" if collective == "barrier" else _signature(call, collective),
                f"{library}'s own" if library else "")  # fmt: skip


def _signature(call: _Call, collective: str) -> str:
    """Return the arguments that must be alike on all ranks, as far as the dump tells them."""
    dtype = _first(call.input_dtypes)
    name = DTYPES.get(dtype, dtype) if isinstance(dtype, str) else ""
    # The input of a scatter is the root's alone; those of an alltoall may differ.
    shape = _first(call.output_sizes if collective == "scatter" else call.input_sizes)
    if not isinstance(shape, list) or collective == "alltoall" or not name:
        return name[:100]
    return f"{name[:100]} ({', '.join(str(part) for part in shape[:16] if type(part) is int)})"


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _location(frames: Any) -> Location | None:
    """Return the innermost line that is not torch's."""
    for frame in islice(frames if isinstance(frames, list) else (), _MOST_FRAMES):
        try:
            location = checked(
                Location,
                {"file": frame["filename"], "line": frame["line"], "function": frame["name"]},
            )
        except (KeyError, TypeError, IndexError, ValueError):
            continue
        if not _LIBRARY.match(location.file):
            return location
    return None


def _with_ends(dumps: list[Dump]) -> list[Dump]:
    """Return the dumps with the least time at which calls of gloo may have ended.

    gloo's dumps have no ends. No rank leaves a synchronising call before the last rank comes.
    """
    starts: dict[tuple[str, int], list[int]] = {}
    for _, entry in _synchronising(dumps):
        starts.setdefault(_key(entry), []).append(entry.start)
    ends: dict[tuple[int, int], int] = {}
    for dump, entry in _synchronising(dumps):
        if entry.outcome is Outcome.COMPLETED and entry.end == entry.start:
            ends[dump.rank, entry.number] = max(starts[_key(entry)]) + 1
    return [
        dump._replace(entries=[
            entry._replace(end=ends.get((dump.rank, entry.number), entry.end))
            for entry in dump.entries
        ])
        for dump in dumps
    ]  # fmt: skip


def _synchronising(dumps: Sequence[Dump]) -> Iterator[tuple[Dump, Entry]]:
    for dump in dumps:
        for entry in dump.entries:
            if entry.group is not None and entry.call.collective in _SYNCHRONISING:
                yield dump, entry


def _key(entry: Entry) -> tuple[str, int]:
    assert entry.group is not None
    return entry.group.id, entry.sequence
