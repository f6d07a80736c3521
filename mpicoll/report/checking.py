"""Print the JSON Schema of records, check files against it, or make one table of them.

``python -m mpicoll.report --schema`` prints the schema of one line. ``python -m mpicoll.report
FILES`` checks every line of these files and names those that are wrong. ``-o records.parquet``, or
``.arrow``, writes them as one table instead, a row for each case. All commands read such a table.
Exit status: 0 all lines are records, 1 some are not, 2 bad usage or files that cannot be read or
written.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, OUTPUT_FILE
from mpicoll.errors import ArgumentError
from mpicoll.records.columns import FORMATS, save
from mpicoll.records.contents import records_text
from mpicoll.records.lines import CaseRecord, json_schema
from mpicoll.records.reading import load, only, record_of, torn_line
from mpicoll.text.files import write_whole
from mpicoll.text.lines import split_lines
from mpicoll.text.numbers import count_text
from mpicoll.text.printable import printable

_MAX_COMPLAINTS = 10
"""So many wrong lines of a file are named."""
_NOUNS = {"fan_out": "fan-out", "twins": "A/A test"}


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, type=FILE)
@click.option("--schema", "shows", is_flag=True, help="Print the JSON Schema of a line.")
@click.option("-o", "--output", type=OUTPUT_FILE, help="Write the cases as .parquet or .arrow.")
def main(files: Sequence[Path], shows: bool, output: Path | None) -> int:
    """Print the schema, write a table or check the files; return the exit status."""
    if shows == bool(files) or (shows and output):
        raise click.UsageError("give files to check, or --schema")
    if output:
        return write_table(files, output)
    return print_schema() if shows else check(files)


def print_schema() -> int:
    """Print the JSON Schema of a line; return the exit status."""
    print(json.dumps(json_schema(), indent=2))
    return 0


def check(files: Sequence[Path]) -> int:
    """Print how many records of each kind files have, and each wrong line; return the status."""
    complaints = [list(_checked(path)) for path in files]
    for lines in complaints:
        more = [f"and {len(lines) - _MAX_COMPLAINTS} more lines of this file"] * (
            len(lines) > _MAX_COMPLAINTS
        )
        for text in [*lines[:_MAX_COMPLAINTS], *more]:
            print(f"Error: {printable(text)}", file=sys.stderr)
    return int(any(complaints))


def write_table(files: Sequence[Path], output: Path) -> int:
    """Write the records of all files as one table; return the exit status.

    Raises:
        ArgumentError: the name is not that of a table.
    """
    suffix = output.suffix.lower()
    if suffix not in FORMATS:
        raise ArgumentError(f"-o {output}: give the name of a table, {' or '.join(FORMATS)}")
    records = [record for path in files for record in load(path)]
    write_whole(output, lambda fresh: save(records, fresh, suffix))
    print(printable(f"{output}: {len(only(CaseRecord, records))} cases"))
    return 0


def _checked(path: Path) -> Iterator[str]:
    """Print how many records of each kind a file has; yield a complaint for each other line."""
    if path.suffix.lower() in FORMATS:
        try:
            _print_kinds(path, Counter(record.kind for record in load(path)))
        except ArgumentError as error:
            yield str(error)
        return
    lines, torn = split_lines(records_text(path))
    kinds: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        try:
            record = record_of(line, f"{path}, line {number}")
            kinds[record.kind if record else "line of another kind"] += 1
        except ArgumentError as error:
            yield str(error)
    if torn:
        yield torn_line(path, len(lines) + 1)
    _print_kinds(path, kinds)


def _print_kinds(path: Path, kinds: Counter[str]) -> None:
    counts = ", ".join(count_text(count, _NOUNS.get(kind, kind)) for kind, count in kinds.items())
    print(printable(f"{path}: {counts or 'no records'}"))
