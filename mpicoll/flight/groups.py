"""Open the flight recorder of a rank with its first group of ranks, and end it with the process."""

from __future__ import annotations

import atexit
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoll.errors import RankLost
from mpicoll.flight import signals
from mpicoll.flight.directory import is_on, new_name, of_job
from mpicoll.flight.layout import STACKS
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.records import MESSAGES, Call, Group
from mpicoll.machine import launchers
from mpicoll.text.numbers import ranges

if TYPE_CHECKING:
    from mpicoll.flight.rows import Log

Exchange = Callable[..., list[Any]]
_lock = threading.Lock()
_of_process: list[Recorder] = []
_of_thread = threading.local()
_warned: list[str] = []
_local_peers: dict[int, None] = {}
_AGAIN = 5.0
"""Seconds between two times at which a rank has stacks written."""
_last_request = [-_AGAIN]
_LONGEST_NAME = 30
_NAME = struct.Struct("<9q")
"""The name of a job as numbers, filled up with spaces."""


class _Member(NamedTuple):
    """A rank's description of itself for a group.

    Attributes:
        job: names the directory of its job; a new one where it has none yet.
        rank: of the launch.
        id: for the group, where this is its first rank.
        process: of this rank, and the start of its host.
    """

    on: bool
    has_file: bool
    job: str
    rank: int
    id: str
    process: tuple[str, int]


class GroupFlight:
    """The calls of one group, as this rank records them.

    Attributes:
        log: writes their rows.
        messages: writes those of messages between two ranks.
    """

    def __init__(self, recorder: Recorder, log: Log, messages: Log) -> None:
        self.recorder, self.log, self.messages = recorder, log, messages

    def call(
        self, collective: str, signature: str, algorithm: str, transport: str, nbytes: int = 0
    ) -> int:
        """Return the place of a kind of call in the table."""
        return self.recorder.intern(Call(collective, signature, algorithm, transport, nbytes))


def join(
    exchange: Exchange, rank: int, size: int, *, writers: Any, name: str = "",
    threads: bool = False,
) -> GroupFlight | None:  # fmt: skip
    """Return the recorder of a group's calls, None where nothing is recorded; collective.

    A job whose files cannot be made runs without them, and says so once.

    Args:
        exchange: returns every rank's item, in rank order.
        writers: the extension module, whose types write rows.
        name: of the group; empty for one that has none, which its ranks then name.
        threads: ranks are threads of this process.
    """
    if size == 1:
        return None
    members = exchange(_member(rank, size, threads=threads), _Member)
    return _join(members, rank, name=name, threads=threads, writers=writers)


def standing(rank: int, size: int) -> tuple[int, ...]:
    """Return what this rank of a group says of itself for `join_known`: as numbers."""
    recorder = find()
    if recorder is not None:
        return is_on() | 2, recorder.place[0], *_numbers_of(recorder.job)
    job = new_name() if is_on() else ""
    return int(is_on()), _place(rank, size)[0], *_numbers_of(job)


@lru_cache(maxsize=2)
def _numbers_of(job: str) -> tuple[int, ...]:
    """Return the name of a job as numbers."""
    return _NAME.unpack(job.encode().ljust(_NAME.size))


def join_known(
    rank: int, standings: Sequence[Sequence[int]], processes: Sequence[tuple[str, int]],
    token: int, *, writers: Any, name: str,
) -> GroupFlight | None:  # fmt: skip
    """Return the same of a group whose ranks have told each other what `standing` returns.

    Args:
        processes: of the ranks, each with what names its host.
        token: names the group; the same on its ranks.
    """
    members = [
        _Member(
            bool(state & 1), bool(state & 2), _NAME.pack(*job).decode(errors="replace").strip(),
            number, f"{token:016x}", process,
        )
        for (state, number, *job), process in zip(standings, processes, strict=True)
    ]  # fmt: skip
    return _join(members, rank, name=name, threads=False, writers=writers)


def join_alone(
    rank: int, numbers: Sequence[int], *, writers: Any, name: str
) -> GroupFlight | None:  # fmt: skip
    """Return the same without a word of the other ranks, by what all of a launch know.

    None if the launch does not name itself. Groups of the same ranks and of one name are one group.
    """
    if not launchers.launch_identity() or not is_on():
        return None
    recorder = find()
    job = recorder.job if recorder else new_name()
    identity = f"alone {name} {ranges(numbers)}"
    members = [_Member(True, True, job, number, identity, ("", 0)) for number in numbers]
    return _join(members, rank, name=name, threads=False, writers=writers)


def _place(rank: int, size: int, *, threads: bool = False) -> tuple[int, int]:
    """Return rank and size of the launch, or of a group that is larger or of threads."""
    launch = None if threads else launchers.find_launch()
    return (launch.rank, launch.size) if launch and launch.size >= size else (rank, size)


def _member(rank: int, size: int, *, threads: bool) -> _Member:
    recorder = find(threads=threads)
    number = recorder.place[0] if recorder else _place(rank, size, threads=threads)[0]
    job = recorder.job if recorder else new_name(of_launch=not threads)
    return _Member(
        is_on(), recorder is not None, job, number, os.urandom(8).hex(),
        (os.uname().nodename, os.getpid()),
    )  # fmt: skip


def _join(
    everyone: Sequence[_Member], rank: int, *, name: str, threads: bool, writers: Any
) -> GroupFlight | None:
    """Return the recorder of a group, given what its ranks say of themselves."""
    member = everyone[rank]
    if not member.on:
        return None
    recorder = find(threads=threads)
    if recorder is None:
        job = next((peer.job for peer in everyone if peer.has_file), everyone[0].job)
        place = _place(rank, len(everyone), threads=threads)
        recorder = _open(job, place, threads=threads, writers=writers)
    if recorder is None:
        return None
    _local_peers.update(dict.fromkeys(
        peer.process[1] for peer in everyone
        if peer.process[0] == member.process[0] and peer.process[1]
    ))  # fmt: skip
    numbers = [description.rank for description in everyone]
    members, name = ranges(numbers), name or _name_of(numbers)
    group = Group(everyone[0].id, name, rank, members)
    messages = Group(f"{group.id}{MESSAGES}", f"messages of {name}", rank, members, True)
    logs = (
        recorder.writers.Log(recorder.ring, recorder.intern(item)) for item in (group, messages)
    )
    return GroupFlight(recorder, *logs)


def _name_of(numbers: list[int]) -> str:
    """Return the name of a group without one.

    >>> _name_of([0, 1, 2]), _name_of([*range(0, 80, 2)])
    ('ranks 0-2', '40 ranks from 0 to 78')
    """
    name = f"ranks {ranges(numbers)}"
    short = f"{len(numbers)} ranks from {min(numbers)} to {max(numbers)}"
    return name if len(name) <= _LONGEST_NAME else short


def find(*, threads: bool = False) -> Recorder | None:
    """Return the recorder of this rank, None where it has none."""
    if threads:
        recorder: Recorder | None = getattr(_of_thread, "recorder", None)
        return recorder
    return _of_process[-1] if _of_process else None


def _open(job: str, place: tuple[int, int], *, threads: bool, writers: Any) -> Recorder | None:
    with _lock:
        if (existing := find(threads=threads)) is not None:
            return existing  # of a group that another thread has joined meanwhile
        try:
            recorder = Recorder(job, place, thread=threads, writers=writers)
        except OSError as error:
            _warn(error)
            return None
        RankLost.found_in = str(recorder.directory)
        if threads:
            _of_thread.recorder = recorder
            return recorder
        signals.watch(writers, recorder.ending, recorder.beat, recorder.stacks)
        recorder.time_messages()
        RankLost.raised = staticmethod(ask_for_stacks)
        _of_process.append(recorder)
        return recorder


def _warn(error: OSError) -> None:
    """Say why nothing is recorded: one process for its host, as ranks there write to one place."""
    if not _warned and launchers.is_first_of_host():
        from mpicoll.text.printable import printable  # a program starts without

        place = "" if error.filename is None else f"{error.filename}: "
        why = printable(f"{place}{error.strerror or error}")
        text = f"{launchers.place()}calls are not recorded: {why}"
        _warned.append(text)
        print(f"warning: {text}", file=sys.stderr, flush=True)


def end_thread(error: BaseException | None) -> None:
    """End the recorder of a rank that is a thread."""
    recorder = find(threads=True)
    if recorder is not None:
        del _of_thread.recorder
        recorder.end(error)


def end_by(error: BaseException) -> None:
    """Say that this process ends by an error, which it does not raise."""
    for recorder in _of_process:
        recorder.end(error)


@atexit.register  # at import: functions that the program registers later may make calls
def _end_process() -> None:
    signals.unwatch()
    error = getattr(sys, "last_value", None)
    for recorder in _of_process:
        recorder.end(error)


def _forget() -> None:
    """Leave the files of the process that a child was forked from to that one."""
    signals.unwatch()
    for recorder in _of_process:
        recorder.close()
    _of_process.clear()
    if (thread_recorder := find(threads=True)) is not None:
        thread_recorder.close()
        del _of_thread.recorder


os.register_at_fork(after_in_child=_forget)


def ask_for_stacks() -> None:
    """Have all ranks of this host that this one shares a group with write their stacks."""
    if sys.is_finalizing():
        return  # nothing can be imported
    from mpicoll.machine import living  # a program starts without

    now = monotonic()
    if now - _last_request[0] < _AGAIN:
        return
    _last_request[0] = now
    signals.dump()
    recorder = find()
    for path in of_job(recorder.directory, recorder.job) if recorder else ():
        process = int(path.name.split(".")[2])
        # A rank without such a file has a handler of its own, or none.
        if process in _local_peers and path.with_suffix(STACKS).exists():
            living.ask_for_stacks(process)


def directory() -> Path | None:
    """Return where this process records, None where it does not."""
    recorder = find(threads=True) or find()
    return recorder.directory if recorder else None
