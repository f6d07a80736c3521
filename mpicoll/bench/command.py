"""The command line of the benchmark.

Exit status 0: every result was right; 1: some were wrong, or the run failed; 2: bad usage or a
launch that does not form one group; 3: a case hung.
"""

from __future__ import annotations

from typing import Any

import click

from mpicoll.bench.layouts import LAYOUTS
from mpicoll.bench.session import Options, run
from mpicoll.bench.starting import start_ranks
from mpicoll.cli import options
from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import (
    OUTPUT_FILE,
    RANK_LIST,
    SECONDS,
    SIZE,
    SIZES,
    Real,
    Whole,
    collective_names,
    list_option,
    option,
    transport_names,
)
from mpicoll.errors import ArgumentError
from mpicoll.measurement.candidate import Settings
from mpicoll.measurement.cases import CALLS, CPU, CUDA, DEFAULT_SIZES, Wanted, dtypes, ops
from mpicoll.measurement.worlds import Worlds, backend_names
from mpicoll.text.names import split_names, swept_names
from mpicoll.text.sizes import LEAST_FACTOR, MOST_FACTOR, size_steps

_FORMATS = ("table", *LAYOUTS)
_BOTH_HALVES = "nccl"
"""The format with two times in each row: out of place and in place."""
_SMALLEST, _LARGEST = 64, 1 << 20
"""The default first and last size of -b and -e."""
_TIMINGS = {"together": "together", "loop": "loop", "0": "loop", "1": "together"}

_HELP = """Measure collectives: backends, algorithms and sizes side by side, and checked.

Without arguments: all collectives and backends, a few algorithms and sizes, in under a
minute. Without a launcher: a rank for each core, at least two.

COLLECTIVES are names in any spelling of the field: allreduce, all_reduce, bcast.

Sizes are total bytes as nccl-tests counts them; K, M and G are powers of 1024.
"""


@click.command("bench", cls=RanksCommand, help=_HELP)
@options.collectives
@list_option("--collectives", "--collective", "listed", metavar="A,B", help="Which collectives.")
@options.backends
@list_option(
    "--algorithms", "--algorithm", metavar="A,B|all",
    help="Names that --list prints, or all, auto, mpich_default, openmpi_default. A name can "
    "sweep parameters: 'knomial(radix=2:8)', 'chain(segments=1:64:*2)', 'bruck(radix=2|4)'. "
    "Native calls always run as the baseline.",
)  # fmt: skip
@list_option(
    "--transports", "--transport", metavar="A,B|all",
    help="Transports of schedules: point-to-point, symmetric (shared memory), cma (cross-memory "
    "attach). By default the fastest that reaches a rank.",
)  # fmt: skip
@option("-b", "--minbytes", type=SIZE, metavar="SIZE", help="Smallest size.")
@option("-e", "--maxbytes", type=SIZE, metavar="SIZE", help="Largest size.")
@option(
    "-f", "--stepfactor", type=Real(LEAST_FACTOR, MOST_FACTOR),
    help="Multiply sizes by this (default 2).",
)  # fmt: skip
@option("-i", "--stepbytes", type=SIZE, metavar="SIZE", help="Add this between sizes instead.")
@option("--sizes", type=SIZES, metavar="4,1K,1M", help="An explicit list of sizes.")
@option(
    "-n", "--iters", type=Whole(),
    help="Samples of each case. Short calls are repeated within a sample. Default: adaptive.",
)  # fmt: skip
@option(
    "-w", "--warmup-iters", type=Whole(0), default=2, shown=True,
    help="Calls before the first sample.",
)  # fmt: skip
@option(
    "-c", "--check", type=Whole(0), default=1, shown=True,
    help="Number of checks before timing; one more follows the timing. 0 checks nothing.",
)  # fmt: skip
@list_option("-o", "--op", default="sum", shown=True, metavar="A,B|all", help="Operators.")
@list_option("-d", "--datatype", default="float32", shown=True, metavar="A,B|all", help="dtypes.")
@option("-r", "--root", type=RANK_LIST, default="0", shown=True, metavar="0,1|all", help="Roots.")
@option(
    "--calls", type=click.Choice(CALLS), default="both", shown=True,
    help="plans; methods, as c.allreduce(x, out=y), on the same and on new arrays in every call; "
    "or both: plans, and beside them the methods of native and auto.",
)  # fmt: skip
@option(
    "-z", "--timing", "--blocking", type=click.Choice(list(_TIMINGS)), default="together",
    shown=True, help="Start samples at a common deadline, or when each rank gets there.",
)  # fmt: skip
@options.timeout
@option(
    "-J", "--output", type=OUTPUT_FILE, metavar="FILE",
    help="Write records to a new file as JSON lines, each as soon as it is measured.",
)  # fmt: skip
@option(
    "--resume", type=OUTPUT_FILE, metavar="FILE",
    help="Continue a file of records: measure only the missing cases.",
)  # fmt: skip
@option("--format", "layout", type=click.Choice(_FORMATS), default="table", shown=True)
@option(
    "--time", "budget", type=SECONDS, default=40.0, shown=True,
    help="Seconds for the whole run, start-up included.",
)  # fmt: skip
@option(
    "--precision", type=Real(0, 100, above=True), default=5.0, shown=True,
    help="Stop a case when the interval of its median is this narrow, in per cent.",
)  # fmt: skip
@option(
    "--in-place", is_flag=True,
    help="Input and output share memory; --format nccl measures both.",
)  # fmt: skip
@option(
    "--device", type=click.Choice([CPU, CUDA]), default=CPU, shown=True,
    help="Arrays on the host, or on each rank's GPU.",
)  # fmt: skip
@option(
    "--mem-limit", type=SIZE, metavar="SIZE",
    help="Memory limit of a rank. Larger cases are refused. Default: all free memory.",
)  # fmt: skip
@option(
    "--allocate", is_flag=True,
    help="Arrays from c.allocate(): in shared memory, or on GPUs in NCCL's registered windows.",
)  # fmt: skip
@options.interface
@options.threads
@options.ranks_per_node
@options.seed
@option("--list", "lists", is_flag=True, help="Print every algorithm, and why some are refused.")
@option("--dry-run", "dry", is_flag=True, help="Print the cases and their estimated time.")
@click.pass_obj
def main(makers: Worlds, /, **flags: Any) -> int:
    """Run the benchmark over these backends; return the exit status."""
    start_ranks()
    return run(parse(flags, makers), makers)


def parse(flags: dict[str, Any], makers: Worlds) -> Options:
    """Check the command line; the result is the same on every rank.

    Raises:
        ArgumentError: a value is impossible.
    """
    wanted = Wanted(
        collectives=collective_names(*flags["collectives"], flags["listed"] or ""),
        algorithms=swept_names(flags["algorithms"] or ""),
        sizes=_sizes(flags),
        dtypes=split_names(flags["datatype"]),
        ops=split_names(flags["op"]),
        roots=flags["root"],
        places=(False, True) if flags["layout"] == _BOTH_HALVES else (flags["in_place"],),
        transports=transport_names(flags["transports"]),
        allocate=flags["allocate"],
        device=flags["device"],
        calls=flags["calls"],
    )
    # These calls only check the names, so that errors come before anything starts.
    dtypes(wanted), ops(wanted)
    settings = Settings(
        budget=flags["budget"], samples=flags["iters"], warmup=flags["warmup_iters"],
        checks=flags["check"], timing=_TIMINGS[flags["timing"]], seed=flags["seed"],
        precision=flags["precision"] / 100,
    )  # fmt: skip
    if flags["output"] and flags["resume"]:
        raise ArgumentError("-J starts a new file and --resume continues one: give one of them")
    return Options(
        wanted, settings, backend_names(flags["backends"], makers, flags["threads"]),
        flags["layout"], flags["output"] or flags["resume"], bool(flags["resume"]),
        flags["timeout"], flags["lists"], flags["dry"], flags["interface"], flags["mem_limit"],
    )  # fmt: skip


def _sizes(flags: dict[str, Any]) -> tuple[int, ...]:
    is_given = [
        flags[key] is not None for key in ("minbytes", "maxbytes", "stepfactor", "stepbytes")
    ]
    if flags["sizes"] is not None:
        if any(is_given):
            raise ArgumentError("--sizes lists every size: leave out -b, -e, -f and -i")
        return tuple(flags["sizes"])
    if not any(is_given):
        return DEFAULT_SIZES
    if flags["stepfactor"] is not None and flags["stepbytes"] is not None:
        raise ArgumentError("-f multiplies and -i adds: give one of them")
    smallest, largest = flags["minbytes"], flags["maxbytes"]
    if smallest is None:
        smallest = _SMALLEST if largest is None else min(_SMALLEST, largest)
    if largest is None:
        largest = max(_LARGEST, smallest)
    return size_steps(smallest, largest, flags["stepfactor"], flags["stepbytes"])
