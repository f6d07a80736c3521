"""Look at a job: the files that its ranks have left, and the places in code of those that run."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path
from time import monotonic, sleep, time_ns

from mpicoll.errors import ArgumentError
from mpicoll.flight.diagnosis import Diagnosis, diagnose
from mpicoll.flight.layout import STACKS, State
from mpicoll.flight.reader import MOST_STACKS, Dump
from mpicoll.flight.torch_dumps import read_all
from mpicoll.machine.living import ask_for_stacks
from mpicoll.text.opening import open_by_name

_SECONDS = 2.0
"""How long to wait for stacks that were asked for: on a busy machine a rank may get no core."""


def look(
    directory: Path, *, threshold: float = 1.0, stacks: bool = False
) -> tuple[Diagnosis, list[Dump], list[str]]:
    """Return the state of a job, the files of its ranks, and why some cannot be read.

    If a call is stuck, the ranks of this host that run write their stacks. This does not stop them.

    Args:
        threshold: seconds after which a call that is under way counts as stuck while its rank runs.
        stacks: request the stacks although no call is stuck.

    Raises:
        ArgumentError: there is no flight file, or no right to read the directory.
    """
    check_access(directory)
    dumps, faults = read_all(directory)
    diagnosis = diagnose(dumps, time_ns(), threshold)
    running = [dump for dump in dumps if is_here(dump)] if stacks or diagnosis.is_stuck else []
    if running:
        _ask(running)
        dumps, faults = read_all(directory)
        again = diagnose(dumps, time_ns(), threshold)
        # Files are read one after the other: a call that some rank has left meanwhile goes on.
        earlier = {(call.group.id, call.sequence) for call in diagnosis.stuck}
        is_same = all((call.group.id, call.sequence) in earlier for call in again.stuck)
        if again.is_alive and diagnosis.stuck and not is_same:
            again = again._replace(stuck=[], waits_for=[])
        diagnosis = again
    return diagnosis, dumps, faults


def check_access(directory: Path) -> None:
    """Raise if this user may not read a directory.

    Raises:
        ArgumentError: the message names the owner.
    """
    try:
        mode = directory.stat().st_mode  # is_dir() holds back a PermissionError in Python 3.14
        if not stat.S_ISDIR(mode) or os.access(directory, os.R_OK | os.X_OK):
            return
        owner = owner_of(directory)
    except PermissionError:  # of a directory above
        owner = "somebody else"
    except OSError:  # as there is no such directory: its reader says so
        return
    raise ArgumentError(
        f"{directory} belongs to {owner}, and you may not read it: ask the owner or root to "
        "run this command"
    )


def owner_of(path: Path) -> str:
    """Return the name of the owner of a file, or the number where it has no name."""
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"
    except FileNotFoundError:
        return "nobody"


def new_stacks(dump: Dump) -> str:
    """Request the stacks of a rank of this host, and return them; empty if it writes none."""
    path = dump.path.with_suffix(STACKS)
    size = _size(path)
    if size is None:
        return ""
    _ask([dump])
    with suppress(OSError), FileIO(open_by_name(path)) as file:
        file.seek(size)
        return (file.read(MOST_STACKS) or b"").decode(errors="replace")
    return ""


def is_here(dump: Dump) -> bool:
    """Whether a process of this host still writes a file: another process may have its number."""
    if not dump.is_alive or dump.state is not State.RUNNING or dump.process.thread:
        return False
    with suppress(OSError):
        inode = str(dump.path.stat().st_ino)
        with open(f"/proc/{dump.process.pid}/maps", errors="replace") as file:
            return any(line.split()[4:5] == [inode] and dump.path.name in line for line in file)
    return False


def _ask(dumps: list[Dump]) -> None:
    """Have ranks write their stacks, and wait until they have, but not for long."""
    sizes = {}
    for dump in dumps:
        path = dump.path.with_suffix(STACKS)
        with suppress(OSError):  # the rank may end meanwhile
            sizes[path] = path.stat().st_size
            ask_for_stacks(dump.process.pid)
    until = monotonic() + _SECONDS
    while sizes and monotonic() < until:
        sleep(0.02)
        sizes = {path: size for path, size in sizes.items() if _size(path) == size}


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    return None
