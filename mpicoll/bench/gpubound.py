"""What a GPU's memory allows: how fast it copies, and what an allreduce needs at least.

``python -m mpicoll.bench.gpubound FILES`` reads records of the benchmark and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError
from mpicoll.interfaces import IPC, Array
from mpicoll.records import journal

_BYTES = 256 << 20
_SAMPLES, _COPIES = 5, 10


def copy_bandwidth(world: Collectives, like: Array, nbytes: int = _BYTES) -> float:
    """Return the GB/s that a copy within one GPU moves, read and written bytes counted.

    Rank 0 copies and the others wait, so that nobody shares the memory with it.
    """
    arrays = world.transport.arrays
    found = 0.0
    if world.rank == 0:
        x, y = (arrays.empty((nbytes,), "uint8", like) for _ in range(2))
        watch, copy = arrays.stopwatch(), arrays.copier(x, y)
        copy()
        taken = []
        for _ in range(_SAMPLES):
            watch.start()
            for _ in range(_COPIES):
                copy()
            watch.stop()
            taken.append(watch.nanoseconds() / _COPIES)
        found = 2 * nbytes / median(taken)
    return float(world.exchange(found)[0])


def least_us(nbytes: int, ranks: int, copy_gbps: float) -> float:
    """Return the least microseconds of an allreduce of ranks that share one GPU.

    Each input must be read once and each output written once, over one memory: 2 p m bytes.
    """
    return 2 * ranks * nbytes / copy_gbps / 1000


Row = dict[str, Any]


def rows(records: Iterable[Row]) -> list[Row]:
    """Return for each number of ranks and size the best of each way, and the bound."""
    best: dict[tuple[int, int], dict[str, Row]] = {}
    for each in records:
        if each["collective"] != "allreduce" or each["device"] != "cuda" or not each["time_us"]:
            continue
        if each["correct"] is False or each["algorithm"] == "auto":
            continue
        way = f"{each['backend']} {each['transport']}"
        found = best.setdefault((each["ranks"], each["bytes_total"]), {})
        if way not in found or _us(each) < _us(found[way]):
            found[way] = each
    return [_row(*key, found) for key, found in sorted(best.items())]


def _row(ranks: int, nbytes: int, found: dict[str, Row]) -> Row:
    some = next(iter(found.values()))
    copy = some["run"].get("gpu_copy_GBps")
    ours = [each for way, each in found.items() if way.endswith(f" {IPC}")]
    fastest = min(map(_us, ours)) if ours else None
    return {
        "ranks": ranks,
        "bytes": nbytes,
        "us": {way: _us(each) for way, each in sorted(found.items())},
        "ratio": {way: _us(each) / fastest for way, each in found.items()} if fastest else {},
        "bound": least_us(nbytes, ranks, copy) / fastest if copy and fastest else None,
    }


def _us(record: Row) -> float:
    return float(record["time_us"]["median"])


def show(found: Sequence[Row], console: Console) -> None:
    """Print microseconds by way, how many times ipc's, and ipc's share of the bound."""
    ways = sorted({way for each in found for way in each["us"]})
    table = Table(title="allreduce on GPUs: us (times the fastest ipc)")
    for name in ("ranks", "bytes", *ways, "ipc / bound"):
        table.add_column(name, justify="right")
    for each in found:
        cells = []
        for way in ways:
            us, ratio = each["us"].get(way), each["ratio"].get(way)
            cells.append(f"{us:.4g}" + (f" ({ratio:.3g}x)" if ratio else "") if us else "-")
        bound = f"{each['bound']:.0%}" if each["bound"] else "-"
        table.add_row(str(each["ranks"]), str(each["bytes"]), *cells, bound)
    console.print(table)


def main(paths: Sequence[str]) -> int:
    """Read files of records, print the comparison, and return the exit status."""
    try:
        found = rows(each for path in paths for each in journal.cases(journal.read(Path(path))))
    except (ArgumentError, KeyError) as error:
        print(f"Error: cannot read the records: {error}", file=sys.stderr)
        return 2
    if not found:
        print("Error: no allreduce on a GPU in these files", file=sys.stderr)
        return 2
    show(found, Console(width=None if sys.stdout.isatty() else 150))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
