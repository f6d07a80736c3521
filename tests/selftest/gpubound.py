"""Compare the fastest allreduces on a GPU with the bound that its memory's bandwidth sets.

``python -m tests.selftest.gpubound FILES`` reads records of the benchmark. Exit status: 0, or 2
for files without such records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from rich.table import Table
from rich.text import Text

from mpicoll.backend import IPC
from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE
from mpicoll.cli.tables import print_table
from mpicoll.errors import ArgumentError
from mpicoll.records.description import Run
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import load, only


def least_us(nbytes: int, ranks_per_gpu: int, copy_gbps: float) -> float:
    """Return the least microseconds of an allreduce by the memory of the GPU with the most ranks.

    Each of their inputs must be read once, and each output written once: 2 m bytes a rank. Ranks on
    several GPUs also need links, which this bound leaves out.
    """
    return 2 * ranks_per_gpu * nbytes / copy_gbps / 1000


class Row(NamedTuple):
    """The fastest allreduce of each backend and transport on one number of ranks and size.

    Attributes:
        us: by backend and transport; `ratio`: the same over the fastest by ipc.
        bound: the share of the fastest ipc's time that the memory's bandwidth explains.
    """

    ranks: int
    bytes: int
    us: dict[str, float]
    ratio: dict[str, float]
    bound: float | None


def rows(records: Iterable[CaseRecord]) -> list[Row]:
    """Return a row for each number of ranks and size."""
    best: dict[tuple[int, int], dict[str, tuple[float, Run]]] = {}
    for record in records:
        if record.collective != "allreduce" or record.device != "cuda" or not record.time_us:
            continue
        if record.correct is False or record.algorithm == "auto" or record.call != "plan":
            continue
        way = f"{record.backend} {record.transport}"
        by_way = best.setdefault((record.ranks, record.bytes_total), {})
        if way not in by_way or record.time_us.median < by_way[way][0]:
            by_way[way] = record.time_us.median, record.run
    return [_row(*key, case_by_way) for key, case_by_way in sorted(best.items())]


def _row(ranks: int, nbytes: int, by_way: dict[str, tuple[float, Run]]) -> Row:
    us = {way: median for way, (median, _) in sorted(by_way.items())}
    run = next(iter(by_way.values()))[1]
    places = zip(run.hosts, run.gpus, strict=False) if run.gpus else ()
    shared, copy = max(Counter(places).values(), default=ranks), run.gpu_copy_GBps
    fastest = min((time for way, time in us.items() if way.endswith(f" {IPC}")), default=None)
    if fastest is None:
        return Row(ranks, nbytes, us, {}, None)
    bound = least_us(nbytes, shared, copy) / fastest if copy else None
    return Row(ranks, nbytes, us, {way: time / fastest for way, time in us.items()}, bound)


def table_of(table_rows: Sequence[Row]) -> Table:
    """Return microseconds by backend and transport, as multiples of ipc's, and ipc's bound."""
    ways = sorted({way for table_row in table_rows for way in table_row.us})
    table = Table(title="allreduce on GPUs: us (times the fastest ipc)")
    for name in ("ranks", "bytes", *ways, "bound / ipc"):
        table.add_column(Text(name), justify="right")
    for row in table_rows:
        cells = [_cell(row.us.get(way), row.ratio.get(way)) for way in ways]
        bound = f"{row.bound:.0%}" if row.bound else "-"
        table.add_row(str(row.ranks), str(row.bytes), *cells, bound)
    return table


def _cell(us: float | None, ratio: float | None) -> str:
    if not us:
        return "-"
    return f"{us:.4g}" + (f" ({ratio:.3g}x)" if ratio else "")


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, required=True, type=FILE)
def main(files: Sequence[Path]) -> int:
    """Read files of records and print the comparison; return the exit status."""
    table_rows = rows(record for path in files for record in only(CaseRecord, load(path)))
    if not table_rows:
        raise ArgumentError("no allreduce on a GPU in these files")
    print_table(table_of(table_rows), 150)
    return 0


if __name__ == "__main__":
    main()
