"""Native calls against themselves, under two names: what is known, measured as if it were not.

``mpirun -n 2 python -m mpicoll.bench.twins --delay 5`` measures each pair twice: as it is, to
see how often a tie is called one, and with one side slower by 5 % of its median, to see how
often that is found. It writes a line of JSON for each comparison; `mpicoll.bench.trust` counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any, NoReturn, cast

import click

from mpicoll.bench import cli
from mpicoll.bench.trust import TWINS
from mpicoll.cli.watchdog import Watchdog
from mpicoll.cli.worlds import BOTH
from mpicoll.machine.processes import oversubscription, own_process
from mpicoll.measurement import cases, clock
from mpicoll.measurement.cases import Case, Group, Wanted
from mpicoll.measurement.description import describe, details
from mpicoll.measurement.measure import Bench, Candidate, Settings, Workbench
from mpicoll.measurement.statistics import median_interval, speedup
from mpicoll.records import journal
from mpicoll.runtime.plan import Plan

TWIN = "native (again)"
_COLLECTIVES = ("broadcast", "allreduce", "allgather", "alltoall", "reduce_scatter")
_SIZES = (16384, 65536, 262144, 1048576)
"""Calls of tens of microseconds and more: a few per cent of less could not be waited for."""

_PARAMETERS: list[click.Parameter] = [
    cli.option("--comparisons", type=click.IntRange(1), default=200, shown=True, help="How many."),
    cli.option("--delay", type=float, default=5.0, shown=True, help="Per cent, of one side."),
    cli.option("--each", type=float, default=2.0, shown=True, help="Seconds for a comparison."),
    cli.option("--backend", type=click.Choice([*BOTH]), default="mpi4py", shown=True),
]


@dataclass(frozen=True)
class Options:
    """The command line."""

    comparisons: int
    delay: float
    each: float
    backend: str


class _Slowed:
    """A plan that waits, busy, before each of its runs."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.wait = plan, 0
        self.algorithm, self.transport, self.free = plan.algorithm, plan.transport, plan.free

    def run(self) -> None:
        until = clock.now() + self.wait
        while clock.now() < until:
            pass
        self.plan.run()


class _Twins(Bench):
    """A benchmark whose candidates are one call under two names.

    Attributes:
        wait: nanoseconds by which the second one is slower.
    """

    wait = 0

    def _bind(self, candidates: list[Candidate], benches: dict[str, Workbench]) -> None:
        """Bind both to the native call, each wrapped alike."""
        for each in candidates:
            native = Case(each.case.group, each.case.backend, "native")
            slowed = _Slowed(benches[each.case.backend].plan(native))
            slowed.wait = self.wait if each.case.algorithm == TWIN else 0
            each.plan = cast(Plan, slowed)
            each.executed, each.transport = slowed.algorithm, slowed.transport


def main() -> NoReturn:
    """Run on every rank of a launch."""
    make: Callable[..., Any] = Options
    command = click.Command("twins", callback=make, params=_PARAMETERS, help=__doc__)
    cli.run_command(command, run)


def run(options: Options) -> int:
    """Measure every comparison as it is and with one side delayed; rank 0 prints."""
    watchdog = Watchdog(120.0)
    worlds, _ = cli.launch((options.backend,), None, BOTH, watchdog)
    everyone = next(iter(worlds.values()))
    processes = everyone.exchange(own_process())
    remarks = oversubscription(everyone.nodes, processes)
    wanted = Wanted(collectives=_COLLECTIVES, sizes=_SIZES)
    groups = list(cases.groups(wanted, everyone.size))
    settings = Settings(precision=0.015, least=12, most=2000)
    twins = _Twins(worlds, settings, watchdog, bool(remarks))
    described = describe(twins.settings.seed, worlds, processes, remarks)
    described |= details(processes, twins.settings, twins.meeting.sync_error)
    lines = chain(
        [journal.run_line(described)],
        *(compared(twins, group, options) for group in islice(cycle(groups), options.comparisons)),
    )
    for line in lines:
        if everyone.rank == 0:
            print(json.dumps(line), flush=True)
    return 0


def compared(twins: _Twins, group: Group, options: Options) -> Iterator[dict[str, Any]]:
    """Yield what a comparison without a delay says, then one with it."""
    pair = [Case(group, options.backend, name) for name in ("native", TWIN)]
    twins.wait = 0
    for delay in (0.0, options.delay):
        first, second = twins.measure(pair, options.each)
        if not delay:
            usual = median_interval(list(first.samples.values())).value
            # Ranks agree on the samples, and so on the delay.
            twins.wait = round(usual * 1000 * options.delay / 100)
        found = speedup(first.samples, second.samples, twins.settings.confidence)
        told = found._asdict() if found else {"verdict": "no verdict"}
        yield {
            "schema": journal.SCHEMA, "kind": TWINS, "case": str(group), "backend": options.backend,
            "ranks": twins.size, "delay": delay, **told, "samples": len(first.samples),
            "late": len(first.late), "preempted": len(first.preempted),
        }  # fmt: skip


if __name__ == "__main__":
    main()
