"""Measure what the flight recorder costs: the same calls with and without it.

``mpirun -n 2 python -m tests.selftest.recorder`` makes sets of three groups of all ranks: two that
are not recorded, and one that is. The groups make the same allreduce in turn: by a plan, by a
method, and by the communicator of mpi4py programs. The first group is the reference. The second one
is the control: its ratio shows how far equal groups differ on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from statistics import median
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import SECONDS, SIZES, Whole, option
from mpicoll.cli.tables import print_table
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, Unavailable
from mpicoll.flight.directory import SWITCH
from mpicoll.measurement.ranks import Ranks, form_ranks
from mpicoll.measurement.worlds import ALL_BACKENDS, Worlds
from mpicoll.text.numbers import number
from mpicoll.text.sizes import size_text

REFERENCE, CONTROL, RECORDED = range(3)
WAYS = ("plan", "method", "communicator")
_SIZES = (8, 4096, 65536, 1 << 20)
_BLOCK_NS = 1_000_000
"""The length of one measurement of one group."""
_LEAST_ROUNDS = 3
_WARMUP = 40
"""Calls before the first measurement: a communicator leaves its first calls to MPI."""


@dataclass(frozen=True)
class Options:
    """The options of the command.

    Attributes:
        sizes: bytes of the arrays.
        sets: sets of three groups for each row.
        seconds: for all rows.
    """

    sizes: Sequence[int]
    sets: int
    seconds: float


class Calls(NamedTuple):
    """An allreduce on the three groups of one set, and the calls of a measurement."""

    functions: Sequence[Callable[[], object]]
    length: int


class Cost(NamedTuple):
    """One row of the table.

    Attributes:
        reference, recorded: nanoseconds a call.
        ratios: recorded / reference of each set of groups.
        controls: control / reference of each set.
    """

    way: str
    size: int
    reference: float
    recorded: float
    ratios: Sequence[float]
    controls: Sequence[float]


@contextmanager
def _switch(value: str) -> Iterator[None]:
    """Turn the recorder of new groups on or off."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = value
    try:
        yield
    finally:
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before


def _measure(function: Callable[[], object], count: int) -> int:
    """Return the nanoseconds of `count` calls."""
    start = perf_counter_ns()
    for _ in repeat(None, count):
        function()
    return perf_counter_ns() - start


# The recorder looks for a line of the user's, which it finds at once in a user's program.
_measure.__code__ = _measure.__code__.replace(co_filename="program.py")


def _new_group(everyone: Collectives, *, is_recorded: bool) -> Collectives:
    """Return a group of all ranks; collective.

    Raises:
        Unavailable: the recorder cannot write its files.
    """
    with _switch(str(int(is_recorded))):
        group = everyone.split(0)
    assert group is not None
    if is_recorded == (group.flight is None):
        raise Unavailable("the flight recorder cannot write its files: there is nothing to measure")
    return group


def _new_communicator() -> Any:
    """Return a communicator of all ranks, as programs of mpi4py have it."""
    from mpi4py import MPI

    from mpicoll.mpi.communicator import Comm

    return Comm(MPI.COMM_WORLD.Dup())


def _function(way: str, group: Collectives, size: int) -> Callable[[], object]:
    """Return an allreduce of a group; collective."""
    x: NDArray[np.float32] = np.ones(max(1, size // 4), np.float32)
    out = np.empty_like(x)
    if way == "plan":
        return group.plan("allreduce", x, out=out).run
    if way == "method":
        return partial(group.allreduce, x, out=out)
    return partial(_new_communicator().Allreduce, x, out)


def _calls(everyone: Collectives, way: str, size: int, *, reverse: bool) -> Calls:
    """Return the calls of one set of groups, made in the given order; collective."""
    functions: dict[int, Callable[[], object]] = {}
    for place in sorted(range(3), reverse=reverse):
        group = _new_group(everyone, is_recorded=place == RECORDED)
        functions[place] = _function(way, group, size)
        with _switch(str(int(place == RECORDED))):  # a communicator asks in its first call
            _measure(functions[place], _WARMUP)
    estimate = min(_measure(functions[REFERENCE], _WARMUP) for _ in range(5)) / _WARMUP
    count = max(4, round(_BLOCK_NS / max(estimate, 1)))
    return Calls([functions[place] for place in range(3)], everyone.exchange(count, int)[0])


def _round(sets: Sequence[Calls], turn: int) -> NDArray[np.float64]:
    """Return nanoseconds a call, by set and group; the groups take turns in being the first."""
    times = np.empty((len(sets), 3))
    for row, calls in zip(times, sets, strict=True):
        for place in np.roll(range(3), turn).tolist():
            _measure(calls.functions[place], calls.length // 16 + 1)
            row[place] = _measure(calls.functions[place], calls.length) / calls.length
    return times


def _cost(everyone: Collectives, way: str, size: int, options: Options, seconds: float) -> Cost:
    """Measure one row; collective. The time of a call is that of its slowest rank."""
    until = monotonic() + seconds
    sets = [_calls(everyone, way, size, reverse=bool(place % 2)) for place in range(options.sets)]
    rounds: list[NDArray[np.float64]] = []
    while everyone.exchange(len(rounds) < _LEAST_ROUNDS or monotonic() < until, bool)[0]:
        rounds.append(_round(sets, len(rounds)))
    rank_times = everyone.exchange([times.tolist() for times in rounds], list[list[list[float]]])
    times = np.max(rank_times, axis=0)  # by round, set and group
    ratios = np.median(times / times[:, :, :1], axis=0)
    reference, _, recorded = np.median(times, axis=(0, 1))
    return Cost(
        way, size, reference, recorded, ratios[:, RECORDED].tolist(), ratios[:, CONTROL].tolist()
    )


def _ratio_text(ratios: Sequence[float]) -> str:
    """Return the median of ratios, the least and the largest.

    >>> _ratio_text([1.01, 0.99, 1.0])
    '1.000 (0.990 .. 1.010)'
    """
    return f"{median(ratios):.3f} ({min(ratios):.3f} .. {max(ratios):.3f})"


def table_of(costs: Sequence[Cost]) -> Table:
    """Return the costs as a table."""
    table = Table()
    for name in ("call", "bytes", "ns", "recorded ns", "cost ns", "recorded", "control"):
        table.add_column(name, justify="left" if name == "call" else "right")
    for cost in costs:
        table.add_row(
            cost.way, size_text(cost.size), number(cost.reference), number(cost.recorded),
            f"{(median(cost.ratios) - 1) * cost.reference:.0f}", _ratio_text(cost.ratios),
            _ratio_text(cost.controls),
        )  # fmt: skip
    return table


def _check(ranks: Ranks) -> None:
    """Check that there is something to measure.

    Raises:
        ArgumentError: there is one rank.
    """
    if ranks.everyone.size == 1:
        raise ArgumentError("a group of one rank records nothing: start at least two, by mpirun")


@click.command("overhead", cls=RanksCommand, help=__doc__)
@option("--sizes", type=SIZES, metavar="8,4K,1M", help="Bytes of an array (default 8,4K,64K,1M).")
@option("--sets", type=Whole(), default=5, shown=True, help="Sets of three groups for each row.")
@option("--time", "seconds", type=SECONDS, default=60.0, shown=True, help="Seconds for all rows.")
@click.pass_obj
def main(makers: Worlds, /, sizes: Sequence[int] | None, sets: int, seconds: float) -> int:
    """Measure and print a table; return the exit status."""
    options = Options(sizes or _SIZES, sets, seconds)
    ranks = form_ranks(("mpi4py",), makers, 120.0)
    ranks.check_alike(options)
    _check(ranks)
    rows = [(way, size) for way in WAYS for size in options.sizes]
    costs = [_cost(ranks.everyone, *row, options, seconds / len(rows)) for row in rows]
    for remark in (*ranks.oversubscribed, *ranks.busy):
        ranks.log(f"warning: {remark}")
    if ranks.is_root:
        print_table(table_of(costs), 120)
    return 0


if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
