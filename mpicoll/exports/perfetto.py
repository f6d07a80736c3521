"""The calls of a job as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

Each rank is a process, each of its threads a track. A call is a slice. Two slices inside it divide
its time: the rank waits for later ranks, then data moves. An arrow leads from the last rank that
came to each rank that waited for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from mpicoll.flight.layout import Outcome
from mpicoll.flight.reader import Dump, Entry, Sample
from mpicoll.text.files import write_whole
from mpicoll.verdict.clocks import align
from mpicoll.verdict.matching import MatchedCall, match
from mpicoll.verdict.waits import needed_ranks, waits

_ORDER = {"M": 0, "X": 1, "i": 2, "C": 3, "s": 4, "f": 5}
"""Events of the same time: a slice comes before the arrows that are bound to it."""
Event = dict[str, Any]


class Slot(NamedTuple):
    """The place of a call: its rank and its track."""

    rank: int
    track: int


def write(path: Path, dumps: Sequence[Dump]) -> None:
    """Write the calls of all ranks.

    Raises:
        ArgumentError: the file cannot be written.
    """
    text = json.dumps(trace(dumps), separators=(",", ":"))
    write_whole(path, lambda file: file.write_text(text, "utf-8"))


def trace(dumps: Sequence[Dump]) -> dict[str, Any]:
    """Return the trace as JSON values.

    Times are microseconds since the first call or sample, by the clock of the first rank's host.
    """
    alignment = align(dumps)
    files = _closed(alignment.dumps)
    begin = min(chain.from_iterable(map(_moments, files)), default=0)
    slots = {}
    events: list[Event] = []
    for dump in files:
        tracks = _tracks(dump.entries)
        slots.update({(dump.rank, number): Slot(dump.rank, tracks[number][0]) for number in tracks})
        events += [*_names(dump, tracks), *_counters(dump, begin)]
    events += _slices(files, slots, begin)
    numbers = count(1)
    for call in match(files):
        events += _parts(call, slots, begin)
        events += _arrows(call, slots, begin, numbers)
    events.sort(key=lambda event: (event.get("ts", -1), _ORDER[event["ph"]], -event.get("dur", 0)))
    return {
        "traceEvents": events, "displayTimeUnit": "ns",
        "otherData": {
            "begin_ns_since_epoch": begin, "clock_error_ns": alignment.error,
            "remarks": alignment.faults,
        },
    }  # fmt: skip


def _moments(dump: Dump) -> Iterator[int]:
    yield from (entry.start for entry in dump.entries)
    yield from (sample.at for sample in dump.samples)


def _closed(dumps: Iterable[Dump]) -> list[Dump]:
    """Return the files with ends for the calls that are under way: the last time of the job."""
    dumps = list(dumps)
    now = max((max(entry.start, entry.end) for dump in dumps for entry in dump.entries), default=0)
    return [
        dump._replace(
            entries=[entry if entry.end else entry._replace(end=now) for entry in dump.entries]
        )
        for dump in dumps
    ]


def _tracks(entries: Sequence[Entry]) -> dict[int, tuple[int, str]]:
    """Return the number and the name of the track of each call, by the number of the call.

    The slices of a track contain each other or are separate. Calls that overlap otherwise, as
    asynchronous ones, go to further tracks of their thread.
    """
    open_ends: dict[str, list[int]] = {}
    tracks, numbers = {}, dict[str, int]()
    for entry in sorted(entries, key=lambda entry: (entry.start, -entry.end)):
        for place in count(1):
            name = f"thread {entry.thread}" + (f", overlapping {place}" if place > 1 else "")
            ends = open_ends.setdefault(name, [])
            while ends and ends[-1] <= entry.start:
                ends.pop()
            if not ends or entry.end <= ends[-1]:
                break
        ends.append(entry.end)
        tracks[entry.number] = numbers.setdefault(name, len(numbers) + 1), name
    return tracks


def _names(dump: Dump, tracks: dict[int, tuple[int, str]]) -> Iterator[Event]:
    """Yield the names of a rank and of its tracks."""
    host = dump.process.host
    title = f"rank {dump.rank}" + (f" on {host}" if host else "")
    yield _metadata("process_name", dump.rank, 0, {"name": title})
    yield _metadata("process_sort_index", dump.rank, 0, {"sort_index": dump.rank})
    if dump.process.program:
        yield _metadata("process_labels", dump.rank, 0, {"labels": dump.process.program})
    for track, name in sorted({*tracks.values()}):
        yield _metadata("thread_name", dump.rank, track, {"name": name})
        yield _metadata("thread_sort_index", dump.rank, track, {"sort_index": track})


def _metadata(name: str, rank: int, track: int, arguments: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": track, "args": arguments}


def _slices(
    dumps: Sequence[Dump], slots: dict[tuple[int, int], Slot], begin: int
) -> Iterator[Event]:
    """Yield a slice for each call; an instant for a call of which only the issue is recorded."""
    for dump in dumps:
        for entry in dump.entries:
            event = _event(
                slots[dump.rank, entry.number], entry.call.collective, entry.start, begin
            )
            event |= {"cat": "call", "args": _arguments(entry)}
            if entry.outcome is Outcome.ISSUED:
                yield event | {"ph": "i", "s": "t"}
            else:
                yield event | {"ph": "X", "dur": (entry.end - entry.start) / 1e3}


def _event(slot: Slot, name: str, at: int, begin: int) -> Event:
    return {"name": name, "ts": (at - begin) / 1e3, "pid": slot.rank, "tid": slot.track}


def _arguments(entry: Entry) -> dict[str, Any]:
    location = entry.location
    texts = {
        "group": entry.group.name if entry.group else "", "arguments": entry.call.signature,
        "algorithm": entry.call.algorithm, "transport": entry.call.transport,
        "location": f"{location.file}:{location.line} in {location.function}" if location else "",
        "error": entry.error,
        "state": "under way" if entry.outcome is Outcome.UNDER_WAY else "",
    }  # fmt: skip
    return {"sequence": entry.sequence} | {name: text for name, text in texts.items() if text}


def _parts(call: MatchedCall, slots: dict[tuple[int, int], Slot], begin: int) -> Iterator[Event]:
    """Yield the slices inside the calls of ranks that wait."""
    for rank, wait in waits(call).items():
        entry = call.rows[rank]
        slot = slots[rank, entry.number]
        parts = (("wait", entry.start, wait), ("move", entry.start + wait,
                                               entry.end - entry.start - wait))  # fmt: skip
        for name, start, length in parts if wait else ():
            if length:
                yield _event(slot, name, start, begin) | {
                    "ph": "X", "cat": name, "dur": length / 1e3
                }  # fmt: skip


def _arrows(
    call: MatchedCall, slots: dict[tuple[int, int], Slot], begin: int, numbers: Iterator[int]
) -> Iterator[Event]:
    """Yield an arrow from the last rank that came to each rank that waited for it."""
    for rank, wait in waits(call).items():
        needed = [(call.rows[number].start, number) for number in needed_ranks(call, rank)
                  if number in call.rows]  # fmt: skip
        at, last = max(needed, default=(0, rank))
        if not wait or last == rank or at > call.rows[rank].end:
            continue
        number = next(numbers)
        for phase, end in (("s", last), ("f", rank)):
            slot = slots[end, call.rows[end].number]
            binding = {"bp": "e"} if phase == "f" else {}
            yield _event(slot, "last rank", at, begin) | binding | {
                "ph": phase, "cat": "arrival", "id": number,
            }  # fmt: skip


def _counters(dump: Dump, begin: int) -> Iterator[Event]:
    """Yield the shares of time in which each thread ran, and was ready without a core."""
    threads: dict[int, list[Sample]] = {}
    for sample in sorted(dump.samples, key=itemgetter(0)):
        threads.setdefault(sample.thread, []).append(sample)
    for thread, samples in threads.items():
        for first, second in pairwise(samples):
            length = second.at - first.at
            if length > 0:
                event = _event(Slot(dump.rank, 0), f"thread {thread}, %", first.at, begin)
                yield event | {"ph": "C", "cat": "thread", "args": {
                    "running": round(100 * (second.running - first.running) / length, 1),
                    "no core": round(100 * (second.queued - first.queued) / length, 1),
                }}  # fmt: skip
