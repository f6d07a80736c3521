"""Run collectives on small arrays of whole numbers, and compare all results with the exact ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import Unavailable, Unsupported
from mpicoll.measurement.cases import CPU, Case, Group
from mpicoll.measurement.checking import Wrong
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
    group: Collectives, rank: int, watchdog: Watchdog, names: Sequence[str] = tuple(CALLS)
) -> list[str]:
    """Return a line for each call with a wrong result on this rank; collective.

    Args:
        rank: as the lines name it, which may not be that of the group.
    """
    return [
        f"{call}, {replace(wrong, rank=rank)}"
        for name in names for call, wrong in _wrongs(group, watchdog, name)
    ]  # fmt: skip


def _wrongs(
    group: Collectives, watchdog: Watchdog, name: str
) -> Iterator[tuple[str, Wrong]]:  # fmt: skip
    """Yield each call with a wrong result, and what is wrong."""
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
        wrongs = filter(None, (check.verify() for check in checks))
        yield from ((f"{name} by {algorithm}", wrong) for wrong in wrongs)
        call.free()
