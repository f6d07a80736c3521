"""Print which form of allreduce is fastest at which sizes, and why.

The forms are one call, reduce + broadcast, and reduce_scatter + allgather. FILES are records of
mpicoll.bench, of any backends and numbers of ranks; jobs/allreduce.sbatch makes them.

Exit status: 0, or 2 for bad usage or files.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, option
from mpicoll.cli.tables import print_table
from mpicoll.study.forms import load
from mpicoll.study.rendering import LEGEND, findings, markdown, rows, times_table
from mpicoll.text.files import write_whole

_WIDTH = 130
"""Columns of a table that is not printed on a terminal."""


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, required=True, type=FILE)
@option("--csv", "table", type=FILE, metavar="FILE", help="Write all times to this file.")
@option("--markdown", "plain", is_flag=True, help="Print tables for a README.")
def main(files: Sequence[Path], table: Path | None, plain: bool) -> None:
    """Print tables and findings."""
    found = load(files)
    if table is not None:
        _write(table, rows(found))
    for each in found:
        if plain:
            print(f"{each}\n\n{markdown(each)}\n")
        else:
            print_table(times_table(each), _WIDTH)
        for line in findings(each):
            print(f"- {line}")
        print()
    print(LEGEND)


def _write(path: Path, table: Sequence[Mapping[str, Any]]) -> None:
    def save(fresh: Path) -> None:
        with fresh.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)

    write_whole(path, save)


if __name__ == "__main__":
    main()
