"""Files that runs leave in ``/dev/shm`` when they are killed: MPICH's, and this project's.

Whether a file is in use only the kernel knows, as the processes may be in another container: it
grants a write lease to a process that alone has the file open, and holds off whoever opens it then.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from mpicoll.machine.memory import SHM
from mpicoll.memory.files import PREFIX
from mpicoll.text.opening import open_by_name
from mpicoll.text.sizes import rounded_size_text

PATTERNS = ("mpich_shm_*", f"{PREFIX}*")


class Leftover(NamedTuple):
    """A file that no process uses: the number of its owner, and the bytes of memory it takes."""

    path: Path
    owner: int
    nbytes: int


def summary(items: Sequence[Leftover]) -> str:
    """Return how many files there are, of whom, and how much memory they take.

    >>> summary([Leftover(Path("a"), 0, 4096), Leftover(Path("b"), 0, 4096)])
    '2 files of ended runs in /dev/shm (8K; 2 of root)'
    """
    owners = Counter(item.owner for item in items)
    of_whom = ", ".join(f"{count} of {_user_name(user)}" for user, count in owners.most_common())
    size = rounded_size_text(sum(item.nbytes for item in items))
    return f"{len(items)} files of ended runs in {SHM} ({size}; {of_whom})"


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def find() -> list[Leftover]:
    """Return the files that no process uses, of those that this user may open."""
    items = []
    for path in _candidates():
        with _unused(path) as held:
            if held is not None:
                items.append(Leftover(path, held.st_uid, 512 * held.st_blocks))
    return items


def remove_own() -> list[Leftover]:
    """Remove the files of this user that no process uses; return them."""
    removed = []
    for path in _candidates():
        with _unused(path) as held, suppress(FileNotFoundError):
            if held is None or held.st_uid != os.geteuid():
                continue
            if os.path.samestat(path.lstat(), held):
                path.unlink()
                removed.append(Leftover(path, held.st_uid, 512 * held.st_blocks))
    return removed


def _candidates() -> list[Path]:
    return sorted(path for pattern in PATTERNS for path in Path(SHM).glob(pattern))


@contextmanager
def _unused(path: Path) -> Iterator[os.stat_result | None]:
    """Hold a file that no other process has open or maps; give None where that is not so."""
    try:
        handle = open_by_name(path, any_owner=True)
    except OSError:
        yield None
        return
    # The kernel tells the holder of a lease that somebody waits for it.
    handler = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        held = os.fstat(handle)
        yield held if _is_leased(handle) else None
    finally:
        os.close(handle)
        signal.signal(signal.SIGIO, handler)


def _is_leased(handle: int) -> bool:
    try:
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True
