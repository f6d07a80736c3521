"""Made-up samples of pairs of ranks, and the records of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mpicoll.machine.links import SELF, LinkClass
from mpicoll.measurement.ping_pong import (
    BOTH_WAYS,
    COPY,
    LATENCY,
    ONE_WAY,
    PairCase,
    PairFindings,
    PairSamples,
)
from mpicoll.p2p.outliers import mark
from mpicoll.p2p.record import Context, pair_records
from mpicoll.records.description import Run

SIZES = (8, 65536, 1 << 20)


def finding(us: float, visits: int = 4) -> PairSamples:
    """Return samples within 2 per cent of a time."""
    return PairSamples(1, [[us * (0.98 + 0.01 * n) for n in range(4)] for _ in range(visits)], True)


def context(size: int, given: dict[tuple[int, int], LinkClass], device: str = "cpu") -> Context:
    world: Any = SimpleNamespace(size=size, library="a library", nodes=(tuple(range(size)),))
    gpus = [str(rank) if device == "cuda" else None for rank in range(size)]
    return Context(Run(), {"mpi4py": world}, device, ["host"] * size, gpus, given)


def findings(size: int, time: Callable[[int, int, int], float], visits: int = 4) -> PairFindings:
    """Return all cases of `size` ranks, where n bytes from a to b take ``time(a, b, n)``."""
    found = {}
    for a in range(size):
        found[PairCase("mpi4py", SELF, COPY, a, a, SIZES[-1])] = finding(20.0, visits)
        for b in range(size):
            if a < b:
                found[PairCase("mpi4py", "symmetric", LATENCY, a, b, 8)] = finding(
                    time(a, b, 8), visits
                )
            for nbytes in SIZES[1:] if a != b else ():
                both = time(a, b, nbytes)
                found[PairCase("mpi4py", "symmetric", ONE_WAY, a, b, nbytes)] = finding(
                    both, visits
                )
                if a < b:
                    case = PairCase("mpi4py", "symmetric", BOTH_WAYS, a, b, nbytes)
                    found[case] = finding(2 * both, visits)
    return found


def alike(size: int, name: str = "same node") -> dict[tuple[int, int], LinkClass]:
    return {(a, b): LinkClass(name) for b in range(size) for a in range(b)}


def records(
    size: int, found: dict[PairCase, PairSamples], joined: Any = None, device: str = "cpu"
) -> Any:
    made = pair_records(found, context(size, joined or alike(size), device))
    mark(made)
    return made


def usual(a: int, b: int, nbytes: int) -> float:
    return 1 + nbytes / 1e4 + 0.03 * ((3 * a + b) % 3)
