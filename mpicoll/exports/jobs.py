"""Files for other software about a job: the option and what it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from mpicoll.cli.options import OUTPUT_FILE, option
from mpicoll.errors import ArgumentError
from mpicoll.exports import perfetto, prometheus
from mpicoll.flight.reader import Dump
from mpicoll.text.printable import printable

_FORMATS: dict[str, Callable[[Path, Sequence[Dump]], None]] = {
    "perfetto": perfetto.write,
    "prometheus": prometheus.write,
}
export_option = option(
    "--export", "exports", type=(click.Choice(list(_FORMATS)), OUTPUT_FILE), multiple=True,
    metavar="FORMAT FILE",
    help="Write the calls of all ranks for other software: perfetto is a timeline for "
    "ui.perfetto.dev, prometheus a textfile for node_exporter. May be repeated.",
)  # fmt: skip
"""The option of a command that reads a job."""


def export(dumps: Sequence[Dump], exports: Sequence[tuple[str, Path]]) -> None:
    """Write the files that the option names.

    Raises:
        ArgumentError: there are no calls of one job, or a file cannot be written.
    """
    if exports and not dumps:
        raise ArgumentError("--export writes the calls of one job: name its DIR")
    for name, path in exports:
        _FORMATS[name](path, dumps)
        print(printable(f"wrote {path}"))
