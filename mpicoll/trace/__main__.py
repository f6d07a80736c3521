"""Tell where a program has spent its communication.

``MPICOLL_TRACE=trace.jsonl mpirun -n 4 python -m mpicoll.run program.py`` writes the file. Where
the mean of a kind of calls is far above its shortest, ranks waited for each other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
from rich.table import Table

from mpicoll.cli.command import Command
from mpicoll.cli.options import FILE, Whole, option
from mpicoll.cli.tables import print_table
from mpicoll.errors import ArgumentError, LaunchError, UnknownName
from mpicoll.notation.contract import Collective, collective
from mpicoll.text.sizes import bytes_text
from mpicoll.trace.reading import Kind, load


@click.command("trace", cls=Command, help=__doc__)
@click.argument("trace", type=FILE, metavar="FILE")
@option("--top", type=Whole(1, 1000), default=20, shown=True, help="Kinds of calls to show.")
@option(
    "--replay", type=Whole(0, 100), default=0, shown=True,
    help="Measure so many kinds again, under every algorithm, by mpicoll.bench.",
)  # fmt: skip
def main(trace: Path, top: int, replay: int) -> None:
    """Print a line per kind of call, the longest first."""
    whole, kinds = load(trace)
    table = Table(box=None, pad_edge=False)
    for name in ("call", "bytes", "ranks", "of", "algorithm", "transport"):
        table.add_column(name)
    for name in ("calls", "seconds", "share", "mean us", "least us"):
        table.add_column(name, justify="right")
    for each in kinds[:top]:
        table.add_row(
            each.call, bytes_text(each.bytes_per_rank), str(each.ranks), each.communicator,
            each.algorithm, each.transport, str(each.calls), f"{each.seconds:.3f}",
            f"{each.seconds / whole:.1%}", f"{each.mean_us:.1f}", f"{each.least_us:.1f}",
        )  # fmt: skip
    print_table(table, 120)
    spent = sum(each.seconds for each in kinds)
    print(f"{spent:.3f} s of {whole:.3f} s in collectives, {spent / whole:.1%}: means of all ranks")
    again = [each for each in kinds if each.ranks > 1 and _collective(each)]
    for each in again[:replay]:
        _replay(each)


def _collective(kind: Kind) -> Collective | None:
    """Return our collective of a call, None for calls of objects and others."""
    if kind.call.islower():
        return None
    try:
        return collective(kind.call)
    except UnknownName:
        return None


def _replay(kind: Kind) -> None:
    """Measure a kind of call under every algorithm."""
    what = _collective(kind)
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise LaunchError("there is no mpirun to measure with")
    assert what is not None
    command = [mpirun, "-n", str(kind.ranks), sys.executable, "-m", "mpicoll.bench", what.name,
               "--backends", "mpi4py", "--algorithms", "all",
               *(("--sizes", str(_total(what, kind))) if kind.bytes_per_rank else ())]  # fmt: skip
    print(f"\n{kind.call}, {bytes_text(kind.bytes_per_rank)}: {kind.algorithm}", flush=True)
    if subprocess.run(command, check=False).returncode:
        raise ArgumentError(f"{' '.join(command)} has failed")


def _total(what: Collective, kind: Kind) -> int:
    """Return the bytes by which the benchmark counts: those of all rows."""
    rows = what.unit == "rows"
    return kind.bytes_per_rank * (kind.ranks if rows else 1)


if __name__ == "__main__":
    main()
