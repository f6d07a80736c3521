"""``mpicoll.study RECORDS``: tables of the three forms of allreduce."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpicoll.cli.tables import print_table
from mpicoll.study.forms import load
from mpicoll.study.rendering import LEGEND, findings, markdown, rows, times_table
from mpicoll.text.files import write_whole

_WIDTH = 130
"""Columns of a table that is not printed on a terminal."""


def print_forms(files: Sequence[Path], table: Path | None, plain: bool) -> None:
    """Print tables and findings of the forms of allreduce in files of records.

    Args:
        table: write all times to this file.
        plain: tables for a README.
    """
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
