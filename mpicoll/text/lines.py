"""Files of JSON lines that one run writes: each line is on the disk before the run goes on.

A run that is killed while it writes leaves a torn last line. A last line that lacks nothing but its
line break is whole. What begins otherwise than the lines that a run writes is somebody else's, and
stays as it is.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.text.files import content_of, lock


def torn(content: bytes) -> int:
    r"""Return the length of a last line that is not whole.

    >>> torn(b'{"schema": 1}\n'), torn(b'{"schema": 1}\n{"sch'), torn(b'{"schema": 1}')
    (0, 5, 0)
    """
    length = len(content) - (content.rfind(b"\n") + 1)
    return 0 if _is_object(content[len(content) - length :]) else length


def split_lines(content: bytes) -> tuple[list[bytes], bytes]:
    r"""Return the whole lines, and a torn last one.

    >>> split_lines(b'{"a": 1}\n{"b": 2}'), split_lines(b'{"a": 1}\n{"b"')
    (([b'{"a": 1}', b'{"b": 2}'], b''), ([b'{"a": 1}'], b'{"b"'))
    """
    end = len(content) - torn(content)
    lines = content[:end].split(b"\n")
    return lines if lines[-1] else lines[:-1], content[end:]


def _is_object(line: bytes) -> bool:
    """Whether a line is a whole JSON object: one that was cut lacks its last brace."""
    if not line.startswith(b"{") or not line.rstrip().endswith(b"}"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class Lines:
    """A file of lines that one run writes, and nobody else meanwhile.

    Args:
        path: None writes nothing.
        opening: how each line begins: what begins otherwise is somebody else's.
        keep: add to the lines that the file has.

    Raises:
        ArgumentError: the file cannot be written, another run writes it, or it is none of ours.
    """

    def __init__(self, path: Path | None, opening: bytes, *, keep: bool = False) -> None:
        self.path, self.opening = path, opening
        self.file: int | None = None
        self._whole: int | None = None  # the length without a torn line that is not yet cut off
        self._lacks_break = False  # whether a line break is missing behind the last whole line
        if path is None:
            return
        self.file = _opened(path)
        self.is_plain = stat.S_ISREG(os.fstat(self.file).st_mode)
        if self.is_plain:
            try:
                self._begin(self.file, path, keep)
            except ArgumentError:
                self.close()
                raise

    def _begin(self, file: int, path: Path, keep: bool) -> None:
        lock(file, f"another run writes {path}: let it end first")
        if not keep:
            check_ours(path, self.opening)
            os.ftruncate(file, 0)
            return
        content = content_of(path)
        self._whole = len(content) - self._read(content, path)
        self._lacks_break = content[: self._whole][-1:] not in (b"", b"\n")

    def _read(self, content: bytes, path: Path) -> int:
        """Check the lines that are kept, and return the length of a torn last one.

        Raises:
            ArgumentError: they are none of ours: a wrong path must not cost anybody a file.
        """
        excess = torn(content)
        if not is_opening(content[len(content) - excess :], self.opening):
            raise ArgumentError(f"{path} ends in something that is no record")
        if not is_opening(content, self.opening):
            raise ArgumentError(f"{path} has records of another kind: give another name")
        return excess

    def append(self, lines: Iterable[str]) -> None:
        """Append lines, each by one write, and have them on the disk before going on.

        A torn last line is cut off only now: a run that is refused leaves the file as it is.

        Raises:
            OSError: as where the disk is full; it names the file.
        """
        if self.file is None:
            return
        try:
            if self._whole is not None:
                os.ftruncate(self.file, self._whole)
                self._whole = None
            for line in lines:
                begin = b"\n" if self._lacks_break else b""
                _write(self.file, begin + line.encode() + b"\n")
                self._lacks_break = False
            if self.is_plain:
                os.fsync(self.file)
        except OSError as error:
            error.filename = self.path
            raise

    def close(self) -> None:
        """Close the file, which releases its lock."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


def check_ours(path: Path, opening: bytes) -> None:
    """Check that nothing is lost where lines are written to this file anew.

    Raises:
        ArgumentError: it has something else, or cannot be read.
    """
    if path.exists() and not is_opening(content_of(path), opening):
        raise ArgumentError(
            f"{path} is no file of records, and would be overwritten: give another name, or "
            "remove it first"
        )


def _opened(path: Path) -> int:
    """Open a file for appending, or to write anew a device or a pipe that somebody reads."""
    try:
        # Nobody watches over this yet: a pipe without a reader must not hold up the run.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
    except OSError as error:
        why = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
        raise ArgumentError(f"cannot write {path}: {why}") from None
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        os.set_blocking(file, True)
        return file
    os.close(file)
    raise ArgumentError(f"cannot write {path}: it is no regular file")


def is_opening(content: bytes, opening: bytes) -> bool:
    """Whether content that begins so may be lines of ours; an empty one may."""
    begin = content[: len(opening)]
    return begin == opening[: len(begin)]


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]
