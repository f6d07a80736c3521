"""Compare the fastest allreduces on a GPU with the bound that its memory's bandwidth sets.

``python -m mpicoll.selftest.gpubound FILES`` reads records of the benchmark. Exit status: 0, or 2
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
from mpicoll.selection.tables import OPEN


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
    for each in records:
        if each.collective != "allreduce" or each.device != "cuda" or not each.time_us:
            continue
        if each.correct is False or each.algorithm in OPEN or each.call != "plan":
            continue
        way = f"{each.backend} {each.transport}"
        found = best.setdefault((each.ranks, each.bytes_total), {})
        if way not in found or each.time_us.median < found[way][0]:
            found[way] = each.time_us.median, each.run
    return [_row(*key, found) for key, found in sorted(best.items())]


def _row(ranks: int, nbytes: int, found: dict[str, tuple[float, Run]]) -> Row:
    us = {way: median for way, (median, _) in sorted(found.items())}
    run = next(iter(found.values()))[1]
    places = zip(run.hosts, run.gpus, strict=False) if run.gpus else ()
    shared, copy = max(Counter(places).values(), default=ranks), run.gpu_copy_GBps
    fastest = min((each for way, each in us.items() if way.endswith(f" {IPC}")), default=None)
    if fastest is None:
        return Row(ranks, nbytes, us, {}, None)
    bound = least_us(nbytes, shared, copy) / fastest if copy else None
    return Row(ranks, nbytes, us, {way: each / fastest for way, each in us.items()}, bound)


def table_of(found: Sequence[Row]) -> Table:
    """Return microseconds by backend and transport, as multiples of ipc's, and ipc's bound."""
    ways = sorted({way for each in found for way in each.us})
    table = Table(title="allreduce on GPUs: us (times the fastest ipc)")
    for name in ("ranks", "bytes", *ways, "bound / ipc"):
        table.add_column(Text(name), justify="right")
    for each in found:
        cells = [_cell(each.us.get(way), each.ratio.get(way)) for way in ways]
        bound = f"{each.bound:.0%}" if each.bound else "-"
        table.add_row(str(each.ranks), str(each.bytes), *cells, bound)
    return table


def _cell(us: float | None, ratio: float | None) -> str:
    if not us:
        return "-"
    return f"{us:.4g}" + (f" ({ratio:.3g}x)" if ratio else "")


@click.command(cls=Command, help=__doc__)
@click.argument("files", nargs=-1, required=True, type=FILE)
def main(files: Sequence[Path]) -> int:
    """Read files of records and print the comparison; return the exit status."""
    found = rows(each for path in files for each in only(CaseRecord, load(path)))
    if not found:
        raise ArgumentError("no allreduce on a GPU in these files")
    print_table(table_of(found), 150)
    return 0


if __name__ == "__main__":
    main()
