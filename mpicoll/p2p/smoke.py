"""Run collectives on small arrays of whole numbers, and compare all results with the exact ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import Unavailable, Unsupported
from mpicoll.measurement.cases import CPU, Case, Group
from mpicoll.measurement.workbench import Workbench
from mpicoll.notation.contract import collective

CALLS = {
    "barrier": "dissemination",
    "broadcast": "binomial",
    "allreduce": "recursive_doubling",
    "allgather": "ring",
    "reduce_scatter": "ring",
    "alltoall": "pairwise",
}
"""The collectives, each with a schedule of this package that runs beside the library's call."""
_WIDTH, _DTYPE = 1024, "int64"


def wrong_results(
    group: Collectives, watchdog: Watchdog, names: Sequence[str] = tuple(CALLS)
) -> list[str]:
    """Return a line for each call with a wrong result on this rank; collective."""
    return [line for name in names for line in _wrongs(group, watchdog, name)]


def _wrongs(group: Collectives, watchdog: Watchdog, name: str) -> Iterator[str]:
    contract = collective(name)
    nbytes = _WIDTH * 8
    checked = Group(contract, _DTYPE, "sum", 0, False, False, CPU, _WIDTH, nbytes, nbytes)
    bench = Workbench(group, checked)
    for algorithm in ("native", CALLS[name]):
        watchdog.step(f"checking {name} by {algorithm} ({group.backend})")
        case = Case(checked, group.backend, algorithm)
        try:
            call = bench.bind(case)
        except (Unavailable, Unsupported):
            continue
        for check in (checks := bench.checks(case)):
            check.prepare()
        call.run()
        yield from (
            f"{name} by {algorithm}, {wrong}" for check in checks if (wrong := check.verify())
        )
        call.free()
