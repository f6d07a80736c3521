"""The file of records: lines of JSON, each on its way to the disk the moment it is written.

A line has a `kind`: ``run`` describes a run and comes before its records, ``case`` is the
record of a case (`record`). Readers leave out kinds that they do not know, and lines
without a kind are cases. Whoever is killed while writing leaves a last line without an end:
readers leave it out, and a run that resumes the file cuts it off.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpicoll.errors import ArgumentError
from mpicoll.records import reading
from mpicoll.records.lines import Record
from mpicoll.records.reading import encoded

Line = dict[str, Any]
SCHEMA = 1
RUN, CASE = "run", "case"
_OPENING = b'{"schema": '
_LOCK_WAIT = 5.0
"""Seconds that the ranks of a killed run may take to end and release the file."""


def read(path: Path) -> list[Line]:
    """Return every whole line of a file, whatever its kind.

    Raises:
        ArgumentError: the file cannot be read, or a line is no record.
    """
    try:
        return parse(path.read_bytes(), path)
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from None


def parse(content: bytes, path: Path) -> list[Line]:
    """Return the lines of a file's content; `path` is named where one is no record."""
    found = []
    for number, text in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
            schema = line["schema"]
        except (ValueError, KeyError, TypeError):
            raise ArgumentError(f"{path}, line {number}, is no record of the benchmark") from None
        if schema != SCHEMA:
            raise ArgumentError(
                f"{path}, line {number}, has schema {schema!r}: this reads {SCHEMA}"
            )
        found.append(line)
    return found


def cases(lines: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return the records of cases among lines."""
    return [dict(line) for line in lines if line.get("kind", CASE) == CASE]


def runs(lines: Iterable[Mapping[str, Any]]) -> dict[str, Line]:
    """Return the descriptions of the runs, by their id."""
    return {line["run"]["id"]: line["run"] for line in lines if line.get("kind") == RUN}


def run_line(run: Mapping[str, Any]) -> Line:
    """Return the line that describes a run."""
    return {"schema": SCHEMA, "kind": RUN, "run": dict(run)}


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
        self.file: int | None = None
        self.found: list[Record] = []
        if path is None:
            return
        how = os.O_RDWR if resume else os.O_WRONLY
        try:
            self.file = os.open(path, how | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
        self.is_plain = stat.S_ISREG(os.fstat(self.file).st_mode)
        if self.is_plain:
            self._begin(self.file, path, resume)

    def _begin(self, file: int, path: Path, resume: bool) -> None:
        try:
            _lock(file, path)
            if resume:
                self.found = _mended(file, path)
            else:
                os.ftruncate(file, 0)
        except ArgumentError:
            self.close()
            raise

    def write(self, records: Sequence[Record]) -> None:
        """Append records, each by one write, and have them on the disk before going on."""
        if self.file is None or not records:
            return
        for each in records:
            _write(self.file, encoded(each).encode() + b"\n")
        if self.is_plain:
            os.fsync(self.file)

    def close(self) -> None:
        """Close the file, which releases its lock."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


def _mended(file: int, path: Path) -> list[Record]:
    """Cut off a torn last line, and return the records of the others."""
    content = path.read_bytes()
    found = reading.parse(content, path)
    excess = torn(content)
    last = content[len(content) - excess :]
    # Keep files that are no records: a wrong path must not cost anybody a file.
    if last[: len(_OPENING)] != _OPENING[: len(last)]:
        raise ArgumentError(f"{path} ends in something that is no record of the benchmark")
    os.ftruncate(file, len(content) - excess)
    return found


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]


def _lock(file: int, path: Path) -> None:
    """Keep other runs out; a lock goes with its process, however that ends."""
    until = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise ArgumentError(f"another run writes {path}: let it end first") from None
            time.sleep(0.05)
        except OSError:
            return  # some file systems of clusters know no locks
