"""The file of records that a run writes: each line is on the disk before the run goes on.

A run that is killed while it writes leaves a torn last line. Readers warn and leave it out, and a
run that resumes the file cuts it off when it adds a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.records import reading
from mpicoll.records.lines import Record
from mpicoll.records.reading import encoded
from mpicoll.text import lines
from mpicoll.text.lines import Lines

_OPENING = b'{"schema": '
check_ours = partial(lines.check_ours, opening=_OPENING)
"""Check that nothing but records is lost where they are written to a file anew."""


class Journal(Lines):
    """A file of records that one run writes, and nobody else meanwhile.

    Args:
        path: None writes nothing.
        resume: keep the records of the file, and return them as `records`.

    Raises:
        ArgumentError: the file cannot be written, another run writes it, or what is to be
            kept are no records.
    """

    def __init__(self, path: Path | None, *, resume: bool = False) -> None:
        self.records: list[Record] = []
        super().__init__(path, _OPENING, keep=resume)
        if resume and self.file is not None and not self.is_plain:
            self.close()
            raise ArgumentError(f"cannot write {path}: it is no regular file")

    def _read(self, content: bytes, path: Path) -> int:
        self.records = reading.parse(content, path)
        return super()._read(content, path)

    def write(self, records: Sequence[Record]) -> None:
        """Append records, as `append` does."""
        if records:
            self.append(map(encoded, records))
