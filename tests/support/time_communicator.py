"""Time mpi4py's blocking collectives over MPI and over ours, interleaved in one run.

``mpirun -n 2 python tests/support/time_communicator.py arrays|objects [CALL ...]`` prints, for each
call, the medians in us and mpi4py's divided by ours, with the quartiles of that ratio.
"""

from __future__ import annotations

import math
import operator
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll import Comm

Call = Callable[[Any], object]
BLOCKS, SECONDS = 7, 0.1
SIZES = 8, 512, 4 << 10, 32 << 10, 128 << 10, 1 << 20
WORLD = MPI.COMM_WORLD


def on_arrays(nbytes: int) -> dict[str, Call]:
    """Return the calls on so many bytes of float64 on each rank, by name; they take a communicator.

    Of uneven rows one has half as many elements more, and the last one as many less.
    """
    count, size, rank = nbytes // 8, WORLD.size, WORLD.rank
    is_root = rank == 0
    x, out = np.ones(count), np.empty(count)
    many, others = np.ones(count * size), np.empty(count * size)
    sent, got = (many, others) if is_root else (None, None)
    rows = [count] * size
    rows[0] += count // 2
    rows[-1] -= count // 2
    own, columns = np.ones(rows[rank]), np.empty(rows[rank] * size)
    return {
        "Bcast": lambda comm: comm.Bcast(x),
        "Gather": lambda comm: comm.Gather(x, got),
        "Scatter": lambda comm: comm.Scatter(sent, out),
        "Allgather": lambda comm: comm.Allgather(x, others),
        "Alltoall": lambda comm: comm.Alltoall(many, others),
        "Reduce": lambda comm: comm.Reduce(x, out),
        "Allreduce": lambda comm: comm.Allreduce(x, out),
        "Reduce_scatter_block": lambda comm: comm.Reduce_scatter_block(many, out),
        "Reduce_scatter": lambda comm: comm.Reduce_scatter(many, own, rows),
        "Scan": lambda comm: comm.Scan(x, out),
        "Exscan": lambda comm: comm.Exscan(x, out),
        "Gatherv": lambda comm: comm.Gatherv(own, (got, rows)),
        "Scatterv": lambda comm: comm.Scatterv((sent, rows), own),
        "Allgatherv": lambda comm: comm.Allgatherv(own, (others, rows)),
        "Alltoallv": lambda comm: comm.Alltoallv((many, rows), (columns, [rows[rank]] * size)),
    }


def arrays() -> Iterator[tuple[str, str, Call]]:
    """Yield the calls on arrays."""
    yield "Barrier", "", lambda comm: comm.Barrier()
    for nbytes in SIZES:
        for name, call in on_arrays(nbytes).items():
            yield name, str(nbytes), call


def merged(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    """Fold two objects as users do."""
    return {**left, **right}


ITEMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "number": (0.5, {"SUM": MPI.SUM, "max": max}),
    "text": ("text", {"SUM": MPI.SUM, "add": operator.add}),
    "pair": ((1, 0.5), {"SUM": MPI.SUM, "MAXLOC": MPI.MAXLOC, "min": min}),
    "list of 300": (list(range(300)), {"SUM": MPI.SUM, "add": operator.add}),
    "dictionary": ({"a": 1, "b": [2]}, {"merged": merged}),
    "instance": (Fraction(1, 3), {"add": operator.add}),
    **{
        f"array of {nbytes} B": (np.ones(nbytes // 8), {"SUM": MPI.SUM, "maximum": np.maximum})
        for nbytes in (8, 4 << 10, 64 << 10, 1 << 20)
    },
}
"""Objects, each with the operators of its reductions, ours and users'."""


def folding(name: str, item: Any, op: Any) -> Call:
    """Return a reduction of an object."""
    return lambda comm: getattr(comm, name)(item, op=op)


def of_object(item: Any, operators: dict[str, Any]) -> dict[str, Call]:
    """Return the calls of an object, by name."""
    whole = [item] * WORLD.size
    root, sent = (item, whole) if WORLD.rank == 0 else (None, None)
    return {
        "bcast": lambda comm: comm.bcast(root),
        "gather": lambda comm: comm.gather(item),
        "scatter": lambda comm: comm.scatter(sent),
        "allgather": lambda comm: comm.allgather(item),
        "alltoall": lambda comm: comm.alltoall(whole),
        **{
            f"{name} {word}": folding(name, item, op)
            for word, op in operators.items()
            for name in ("reduce", "allreduce", "scan", "exscan")
        },
    }


def objects() -> Iterator[tuple[str, str, Call]]:
    """Yield the calls of objects."""
    for kind, (item, operators) in ITEMS.items():
        for name, call in of_object(item, operators).items():
            yield name, kind, call


def sample(call: Call, comm: Any, times: int) -> float:
    """Return the seconds of a call, the mean of some, on the slowest rank."""
    WORLD.Barrier()
    begin = time.perf_counter()
    for _ in range(times):
        call(comm)
    return float(WORLD.allreduce((time.perf_counter() - begin) / times, MPI.MAX))


def compare(call: Call, comms: dict[str, Any]) -> dict[str, list[float]]:
    """Return the samples of each communicator, in blocks of which each has one of both."""
    order = random.Random(0)
    times, found = {}, {name: list[float]() for name in comms}
    for name, comm in comms.items():
        sample(call, comm, 3)
        times[name] = max(1, min(1000, int(SECONDS / BLOCKS / 2 / sample(call, comm, 5))))
    for _ in range(BLOCKS):
        for name in order.sample(list(comms), len(comms)):
            found[name].append(sample(call, comms[name], times[name]))
    return found


def main() -> None:
    comms = {"mpi4py": WORLD.Dup(), "ours": Comm(WORLD.Dup())}
    kinds = {"arrays": arrays, "objects": objects}
    chosen, *names = sys.argv[1:]
    first, ratios = WORLD.rank == 0, []
    if first:
        print(f"{'call':22}{'of':18}{'mpi4py us':>12}{'ours us':>12}{'ratio':>8}  quartiles")
    for name, of, call in kinds[chosen]():
        if names and name.split()[0] not in names:
            continue
        found = compare(call, comms)
        each = [a / b for a, b in zip(found["mpi4py"], found["ours"], strict=True)]
        low, ratio, high = statistics.quantiles(each, n=4)
        ratios.append(ratio)
        if first:
            medians = "".join(f"{1e6 * statistics.median(found[c]):12.2f}" for c in comms)
            print(f"{name:22}{of:18}{medians}{ratio:8.2f}  {low:.2f} to {high:.2f}", flush=True)
    if first:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.2f}, smallest {min(ratios):.2f}, {len(ratios)} cells")


if __name__ == "__main__":
    main()
