"""Read files of records: one reader for all commands.

A torn last line is left out with a warning: its writer was interrupted. A last line that lacks only
its line break is a record as any other. Files may be compressed by gzip.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import msgspec

from mpicoll.errors import ArgumentError
from mpicoll.machine.variables import relevant_variables
from mpicoll.records import columns
from mpicoll.records.consistency import contradictions
from mpicoll.records.contents import plain_text, records_text
from mpicoll.records.description import FullRun, Run
from mpicoll.records.lines import (
    KINDS,
    SCHEMA,
    AARecord,
    LaunchRecord,
    Record,
    RunRecord,
)
from mpicoll.text.lines import split_lines
from mpicoll.text.masking import masked_arguments
from mpicoll.text.printable import printable

Kind = TypeVar("Kind", bound=Record)


def load(path: Path) -> list[Record]:
    """Return every record of a file, in its order; kinds that are not known are left out.

    A torn last line is left out, and a warning on standard error names it. The records of a table
    (`columns.FORMATS`) have no samples.

    Raises:
        ArgumentError: the file cannot be read, is no text in UTF-8, or a line is no record.
    """
    if path.suffix.lower() in columns.FORMATS:
        return columns.load(path)
    content = records_text(path)
    lines, torn = split_lines(content)
    if torn:
        _warn(f"{torn_line(path, len(lines) + 1)}; it is left out")
    return _parsed(lines, path)


def parse(content: bytes, path: Path) -> list[Record]:
    """Return the records in a file's content; an error names `path` and the line.

    Raises:
        ArgumentError: the content is no text in UTF-8, or a line is no record.
    """
    return _parsed(split_lines(plain_text(content, path))[0], path)


def _parsed(lines: Iterable[bytes], path: Path) -> list[Record]:
    records = (record_of(line, f"{path}, line {number}") for number, line in enumerate(lines, 1))
    return [record for record in records if record is not None]


def torn_line(path: Path, number: int) -> str:
    """Return that a file ends within this line."""
    return f"{path}, line {number}, has no end: its writer was interrupted"


@cache
def _warn(text: str) -> None:
    """Print a warning on standard error, once in a process that reads a file again."""
    print(printable(f"warning: {text}"), file=sys.stderr, flush=True)


def record_of(line: bytes | str, location: str) -> Record | None:
    """Return the record of a line, None where its kind is not known.

    Control characters are spelled out and credentials masked, as older files hold them.

    Raises:
        ArgumentError: it is no record, or one of another schema, or it lacks something, or a value
            is impossible or contradicts another.
    """
    try:
        fields = json.loads(line)
        schema = fields["schema"]
        fields = fields if _is_plain(line) else _printable(fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArgumentError(f"{location}, is no record of the benchmark") from None
    if schema != SCHEMA:
        raise ArgumentError(
            f"{location}, has schema {shorten(repr(schema), 40)}: this reads {SCHEMA}"
        )
    kind = KINDS.get(str(fields.get("kind", "case")))
    if kind is None:
        return None
    try:
        record = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{location}, is no whole record: {error}") from None
    for contradiction in contradictions(record):
        raise ArgumentError(f"{location}, is no whole record: {contradiction}")
    if isinstance(record, LaunchRecord):
        record.command = masked_arguments(record.command)
    elif not isinstance(record, AARecord):
        _mask(record.run)
    return record


def _is_plain(line: bytes | str) -> bool:
    """Whether a line of JSON has no character that `printable` changes, as nearly all lines."""
    text = line if isinstance(line, str) else line.decode("latin-1")
    return text.isascii() and text.isprintable() and "\\" not in text


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(name): _printable(item) for name, item in value.items()}
    return value


def _mask(run: Run) -> None:
    """Remove credentials, and the variables that older versions recorded beyond the list."""
    run.command = masked_arguments(run.command)
    if isinstance(run, FullRun):
        run.argv = masked_arguments(run.argv)
        run.environment = relevant_variables(run.environment)


def only(kind: type[Kind], records: Iterable[Record]) -> list[Kind]:
    """Return the records of one kind, as `only(CaseRecord, load(path))`."""
    return [record for record in records if isinstance(record, kind)]


def runs(records: Iterable[Record]) -> dict[str, FullRun]:
    """Return the full descriptions of the runs, by their id."""
    return {record.run.id: record.run for record in only(RunRecord, records)}


def full(run: Run) -> FullRun:
    """Return a run's description with defaults for all that its records do not repeat."""
    if isinstance(run, FullRun):
        return run
    return FullRun(**msgspec.structs.asdict(run))


def encoded(record: msgspec.Struct) -> str:
    """Return a record as the text of a line, without its end."""
    return json.dumps(msgspec.to_builtins(record))
