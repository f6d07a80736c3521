"""The A/A test: measure native calls against themselves, under two names.

``mpirun -n 2 python -m tests.selftest.twins --delay 5`` measures each pair twice. The first
comparison counts how often equal calls get the verdict "tie". In the second one, one side is slower
by 5 % of its median, which the verdict should show. The command prints one line of JSON for each
comparison, and `tests.selftest.trust` reads these lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, cycle, islice
from typing import Any

import click

from mpicoll.cli.command import RanksCommand
from mpicoll.cli.options import SECONDS, Real, Whole, option
from mpicoll.measurement import cases, clock
from mpicoll.measurement.candidate import Call, Candidate, Runnable, Settings
from mpicoll.measurement.cases import Case, Group, Wanted
from mpicoll.measurement.description import describe_run, full_description
from mpicoll.measurement.measure import Bench
from mpicoll.measurement.ranks import form_ranks
from mpicoll.measurement.statistics import median_interval, speedup
from mpicoll.measurement.workbench import Workbench
from mpicoll.measurement.worlds import ALL_BACKENDS, Worlds
from mpicoll.records.lines import AARecord, RunRecord
from mpicoll.records.reading import encoded

_AGAIN = "native (again)"
_COLLECTIVES = ("broadcast", "allreduce", "allgather", "alltoall", "reduce_scatter")
_SIZES = (16384, 65536, 262144, 1048576)
"""Sizes whose calls take tens of microseconds: a few per cent of shorter calls cannot be waited."""


def _add_delay(plan: Runnable, wait: int) -> Call:
    """Return a call that polls the clock for `wait` nanoseconds before each run of a plan."""

    def run() -> None:
        until = clock.now() + wait
        while clock.now() < until:
            pass
        plan.run()

    return Call(plan, run, [plan])


class _AABench(Bench):
    """A benchmark whose candidates are one call under two names.

    Attributes:
        wait: nanoseconds by which the second one is slower.
    """

    wait = 0

    def _bind(self, candidates: list[Candidate], benches: dict[str, Workbench]) -> None:
        """Bind both candidates to the native call, in the same wrapper."""
        for candidate in candidates:
            native = Case(candidate.case.group, candidate.case.backend, "native")
            plan = benches[candidate.case.backend].bind(native)
            candidate.plan = _add_delay(
                plan, self.wait if candidate.case.algorithm == _AGAIN else 0
            )


@click.command("twins", cls=RanksCommand, help=__doc__)
@option("--comparisons", type=Whole(), default=200, shown=True, help="How many comparisons.")
@option(
    "--delay",
    type=Real(0, 1000),
    default=5.0,
    shown=True,
    help="Per cent by which one side is slower.",
)
@option(
    "--each", "seconds", type=SECONDS, default=2.0, shown=True, help="Seconds for a comparison."
)
@option("--backend", type=click.Choice([*ALL_BACKENDS]), default="mpi4py", shown=True)
@click.pass_obj
def main(makers: Worlds, /, comparisons: int, delay: float, seconds: float, backend: str) -> int:
    """Measure every comparison without and with a delay; rank 0 prints. Return the exit status."""
    ranks = form_ranks((backend,), makers, 120.0)
    wanted = Wanted(collectives=_COLLECTIVES, sizes=_SIZES)
    groups = list(cases.groups(wanted, ranks.everyone.size))
    settings = Settings(precision=0.015, min_samples=12, max_samples=2000)
    bench = _AABench(ranks.worlds, settings, ranks.watchdog, bool(ranks.oversubscribed))
    run = describe_run(settings.seed, ranks)
    full = full_description(run, ranks.processes, settings, bench.synchroniser.sync_error)
    compared = (
        _compare(bench, group, backend, delay, seconds)
        for group in islice(cycle(groups), comparisons)
    )
    for record in chain([RunRecord(run=full)], *compared):
        ranks.print(encoded(record))
    return 0


def _compare(
    bench: _AABench, group: Group, backend: str, delay: float, seconds: float
) -> Iterator[AARecord]:
    """Yield the comparison without a delay, then the one with it."""
    pair = [Case(group, backend, name) for name in ("native", _AGAIN)]
    bench.wait = 0
    for per_cent in (0.0, delay):
        first, second = bench.measure(pair, seconds)
        if not per_cent:
            usual = median_interval(list(first.samples.values())).value
            # Ranks agree on the samples, and so on the delay.
            bench.wait = round(usual * 1000 * delay / 100)
        ratio = speedup(first.samples, second.samples, bench.settings.confidence)
        verdict: Any = ratio._asdict() if ratio else {"verdict": "no verdict"}
        yield AARecord(
            case=str(group), backend=backend, ranks=bench.size, delay=per_cent, **verdict,
            samples=len(first.samples), late=len(first.late_samples),
            preempted=len(first.preempted),
        )  # fmt: skip


if __name__ == "__main__":
    main(obj=ALL_BACKENDS)
