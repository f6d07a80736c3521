"""The file of records that a run writes: each line is on the disk before the run goes on.

A run that is killed while it writes leaves a last line without an end: readers leave it out, and a
run that resumes the file cuts it off.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.records import reading
from mpicoll.records.lines import Record
from mpicoll.records.reading import content_of, encoded
from mpicoll.text.files import lock

_OPENING = b'{"schema": '


def torn(content: bytes) -> int:
    r"""Return the length of a last line without an end.

    >>> torn(b'{"schema": 1}\n'), torn(b'{"schema": 1}\n{"sch')
    (0, 5)
    """
    return len(content) - (content.rfind(b"\n") + 1)


class Journal:
    """A file that one run writes, and nobody else meanwhile.

    Args:
        path: None writes nothing.
        resume: keep the records of the file, and return them as `found`.

    Raises:
        ArgumentError: the file cannot be written, another run writes it, or what is to be
            kept are no records.
    """

    def __init__(self, path: Path | None, *, resume: bool = False) -> None:
        self.path = path
        self.file: int | None = None
        self.found: list[Record] = []
        if path is None:
            return
        self.file = _opened(path, resume)
        self.is_plain = stat.S_ISREG(os.fstat(self.file).st_mode)
        if self.is_plain:
            try:
                self._begin(self.file, path, resume)
            except ArgumentError:
                self.close()
                raise

    def _begin(self, file: int, path: Path, resume: bool) -> None:
        lock(file, f"another run writes {path}: let it end first")
        if resume:
            self.found = _mended(file, path)
            return
        check_ours(path)
        os.ftruncate(file, 0)

    def write(self, records: Sequence[Record]) -> None:
        """Append records, each by one write, and have them on the disk before going on.

        Raises:
            OSError: as where the disk is full; it names the file.
        """
        if self.file is None or not records:
            return
        try:
            for each in records:
                _write(self.file, encoded(each).encode() + b"\n")
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


def check_ours(path: Path) -> None:
    """Check that nothing is lost where records are written to this file anew.

    Raises:
        ArgumentError: it has something else than records, or cannot be read.
    """
    if path.exists() and not _is_opening(content_of(path)[: len(_OPENING)]):
        raise ArgumentError(
            f"{path} is no file of records, and would be overwritten: give another name, or "
            "remove it first"
        )


def _opened(path: Path, resume: bool) -> int:
    """Open a file for appending, or to write anew a device or a pipe that somebody reads."""
    try:
        # Nobody watches over this yet: a pipe without a reader must not hold up the run.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
    except OSError as error:
        why = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
        raise ArgumentError(f"cannot write {path}: {why}") from None
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode) or (not resume and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))):
        os.set_blocking(file, True)
        return file
    os.close(file)
    raise ArgumentError(f"cannot write {path}: it is no regular file")


def _is_opening(begin: bytes) -> bool:
    """Whether a file, or a last line of it, that begins so may be a record; an empty one may."""
    return begin == _OPENING[: len(begin)]


def _mended(file: int, path: Path) -> list[Record]:
    """Cut off a torn last line, and return the records of the others."""
    content = path.read_bytes()
    found = reading.parse(content, path)
    excess = torn(content)
    # Keep files that are no records: a wrong path must not cost anybody a file.
    if not _is_opening(content[len(content) - excess :][: len(_OPENING)]):
        raise ArgumentError(f"{path} ends in something that is no record of the benchmark")
    os.ftruncate(file, len(content) - excess)
    return found


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]
