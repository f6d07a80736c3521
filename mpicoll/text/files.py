"""Read files whole, and write files that other processes may read or write at the same time."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.text.opening import open_by_name

MOST_BYTES = 2 << 30
"""Of a file that is read."""
_LOCK_WAIT = 5.0
"""Seconds to wait for a lock: the ranks of a killed run may take some to end and release it."""
_PIECE = 1 << 20
_unfinished: set[Path] = set()


def content_of(path: Path, limit: int = MOST_BYTES, *, is_of_user: bool = True) -> bytes:
    """Return the bytes of a regular file, or of a pipe that somebody writes.

    Args:
        is_of_user: the user names this file; see `open_by_name`.

    Raises:
        ArgumentError: it cannot be read, has more than `limit` bytes, or is something else, such as
            a device, or a pipe that would be waited for.
    """
    try:
        with FileIO(open_by_name(path, is_of_user=is_of_user)) as file:
            return _read(file, limit)
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from None


def _read(file: FileIO, limit: int) -> bytes:
    status = os.fstat(file.fileno())
    is_pipe = stat.S_ISFIFO(status.st_mode)
    piece = file.read(_PIECE)
    if is_pipe and piece == b"":
        raise OSError(errno.EPIPE, "nobody writes this pipe")
    # A regular file of the kernel's may wait, too; what it has by now is all of it.
    os.set_blocking(file.fileno(), is_pipe)
    pieces = [piece or b""]
    length = len(pieces[0])
    while max(length, status.st_size) <= limit and (piece := file.read(_PIECE)):
        pieces.append(piece)
        length += len(piece)
    if max(length, status.st_size) > limit:
        raise OSError(errno.EFBIG, f"it has more than {_size_text(limit)}")
    return b"".join(pieces)


def _size_text(count: int) -> str:
    return f"{count >> 30} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def write_whole(path: Path, save: Callable[[Path], object]) -> None:
    """Have `save` write a new file, then replace the one at `path` by it.

    Readers see the old file or the new one, also where the writer is killed. A symbolic link stays
    and its target is replaced; the permissions of a file that is replaced stay.

    Raises:
        ArgumentError: the file cannot be written.
    """
    target = writable(path)
    fresh = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}")
    with _named(path):
        _unfinished.add(fresh)
        try:
            fresh.touch(exist_ok=False)
            with suppress(FileNotFoundError):
                fresh.chmod(stat.S_IMODE(target.stat().st_mode))
            save(fresh)
            _flush(fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
            _unfinished.discard(fresh)


def remove_unfinished() -> None:
    """Remove the unfinished files of `write_whole`: this process ends before they are whole."""
    for path in list(_unfinished):
        with suppress(OSError):
            path.unlink()


def writable(path: Path) -> Path:
    """Return the file that `path` names, links followed, if `write_whole` may write it.

    Raises:
        ArgumentError: its folder is missing or cannot be written, or it is a folder, a device, a
            pipe, or a file that may not be written.
    """
    target = Path(os.path.realpath(path))
    with _named(path):
        if not target.parent.is_dir():
            raise ArgumentError(f"cannot write {path}: {target.parent} is not a folder")
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(target.stat().st_mode):
                raise ArgumentError(f"cannot write {path}: it is no regular file")
            _allow(target, os.W_OK)
        _allow(target.parent, os.W_OK | os.X_OK)
    return target


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where there is none.

    Raises:
        ArgumentError: it cannot be made.
    """
    with _named(path):
        path.mkdir(parents=True, exist_ok=True)


def _allow(path: Path, how: int) -> None:
    if not os.access(path, how):
        raise PermissionError(0, f"permission to write {path} denied")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other callers of this function from `path` while it is read, changed and written.

    The lock is a file beside it, ``.NAME.lock``, which is gone afterwards. On a file system without
    locks nobody is kept out.

    Raises:
        ArgumentError: no file can be made there, or another process keeps the lock for seconds.
    """
    target = Path(os.path.realpath(path))
    name = target.with_name(f".{target.name[:100]}.lock")
    with _named(path):
        file = _lock_file(name, f"another process writes {path}: let it end first")
    try:
        yield
    finally:
        # Removed while it is locked: whoever waits for this file finds that it is gone.
        name.unlink(missing_ok=True)
        os.close(file)


def _lock_file(name: Path, busy: str) -> int:
    """Return the locked file of this name, as it is while this process has the lock."""
    while True:
        file = open_by_name(name, os.O_RDWR | os.O_CREAT, 0o666, any_owner=True)
        try:
            lock(file, busy)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.lstat(name)):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def lock(file: int, busy: str, seconds: float | None = None) -> None:
    """Lock an open file; a lock goes with its process, however that ends.

    Raises:
        ArgumentError: another process keeps it locked for so many seconds, `_LOCK_WAIT` where none
            are given; `busy` is the message.
    """
    import fcntl  # a program starts quickly without these
    from random import uniform

    until = time.monotonic() + (_LOCK_WAIT if seconds is None else seconds)
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise ArgumentError(busy) from None
            time.sleep(uniform(0.001, 0.01))
        except OSError:
            return  # some file systems of clusters know no locks


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raise ArgumentError, with the path, for an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}") from None


def _flush(path: Path) -> None:
    """Have a file's content on the disk: a crash of the machine must not leave it empty."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
