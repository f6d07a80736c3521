"""Choose the candidates, and from their times the fewest ranges of sizes that serve all sizes.

A candidate is *good enough* at a size if it is not significantly slower than the fastest. So
neighbouring sizes keep one algorithm unless another one is significantly faster. Each range has one
candidate that is good enough at all its sizes, preferably native. So a table does not alternate
between equal candidates, and no entry loses to native. A disturbed candidate neither beats another
nor is beaten, as its samples cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import Any

from mpicoll.backend import IPC
from mpicoll.collectives import Collectives
from mpicoll.measurement.candidate import Candidate
from mpicoll.measurement.cases import is_known
from mpicoll.measurement.judgement import is_mostly
from mpicoll.measurement.statistics import is_enough, speedup
from mpicoll.notation.contract import collective
from mpicoll.selection import auto
from mpicoll.text.names import with_all
from mpicoll.tuning import FETCHED_ROW

_MARGIN = 1.03
"""Largest ratio to the fastest that is good enough in any case."""
_RISK = 0.05
"""Probability of a wrong verdict about the candidates of one size."""
LEAST_SAMPLES = 16
"""Samples of which two may contradict such a verdict about twelve candidates."""


def candidates(
    world: Collectives, name: str, nbytes: int, more: Sequence[str], *, on_gpu: bool = False
) -> list[str]:
    """Return the candidates: native, schedules over each transport, and `more`.

    For arrays on GPUs, calls of other libraries (NCCL, torch's kernels) are candidates, too.
    """
    is_shared = world.transport.shared is not None and len(world.nodes) == 1
    natives = ["native"]
    if on_gpu:
        transports = [IPC]
        natives += (f"native:{native}" for native in world.transport.other_natives(name))
    else:
        transports = [
            transport for transport in world.transports if transport != world.transport.name
        ]
        transports = transports if nbytes >= FETCHED_ROW else transports[:1]
    usual = [f"{algorithm}@{way}" for algorithm in auto.CANDIDATES[name] for way in transports]
    known_names = world.algorithms(name)
    extra = (
        algorithm
        for algorithm in with_all(more, known_names)
        if is_known(collective(name), algorithm, known_names)
    )
    return [*dict.fromkeys([*natives, *(usual if is_shared else auto.between(name)), *extra])]


def ranges(by_size: dict[int, list[Candidate]]) -> list[dict[str, Any]]:
    """Return the fewest ranges of sizes that candidates good enough can serve."""
    sizes = sorted(by_size)
    good = [good_enough(by_size[size]) for size in sizes]
    decisions: list[dict[str, Any]] = []
    start = 0
    while start < len(sizes):
        common, stop = good[start], start + 1
        while stop < len(sizes) and (
            shared := {k: v for k, v in common.items() if k in good[stop]}
        ):
            common, stop = shared, stop + 1
        total = {
            candidate: sum(good[index][candidate] for index in range(start, stop))
            for candidate in common
        }
        name = "native" if "native" in total else min(total, key=total.__getitem__)
        upto = None if stop == len(sizes) else round(sqrt(sizes[stop - 1] * sizes[stop]))
        decisions.append({"upto": upto, "algorithm": name,
                      "ratio": _ratio(by_size[sizes[start]], name)})  # fmt: skip
        start = stop
    return decisions


def good_enough(measured: Sequence[Candidate]) -> dict[str, float]:
    """Return the candidates that are good enough, with their ratio to the fastest time.

    The others are significantly slower than the fastest, by `_MARGIN` at least. One wrong verdict
    about all of these candidates is as unlikely as `_RISK`.
    """
    times = _times(measured)
    calm = [candidate for candidate in measured if not is_disturbed(candidate)]
    fastest = min(calm or measured, key=lambda candidate: times[candidate.case.algorithm])
    confidence = 1 - _RISK / len(measured)
    best = times[fastest.case.algorithm]
    return {
        candidate.case.algorithm: times[candidate.case.algorithm] / best
        for candidate in measured
        if not _is_beaten(candidate, fastest, confidence)
    }


def _is_beaten(candidate: Candidate, fastest: Candidate, confidence: float) -> bool:
    """Whether a candidate is significantly slower, by the ratios within the same blocks."""
    if is_disturbed(candidate) or is_disturbed(fastest):
        return False
    blocks = candidate.samples.keys() & fastest.samples.keys()
    ratio = speedup(candidate.samples, fastest.samples, confidence)
    return ratio is not None and is_enough(len(blocks), confidence) and ratio.low > _MARGIN


def is_disturbed(candidate: Candidate) -> bool:
    """Whether most samples of a candidate were late or preempted, or such samples had to count."""
    spoilt = candidate.late_samples.keys() | candidate.preempted.keys()
    calm = candidate.samples.keys() - spoilt
    return calm != candidate.samples.keys() or is_mostly(len(spoilt), len(calm))


def _ratio(measured: Sequence[Candidate], name: str) -> float | None:
    """Return native's time over a candidate's, None if native did not run or is disturbed."""
    times = _times([candidate for candidate in measured if not is_disturbed(candidate)])
    if "native" not in times or name not in times:
        return None
    return round(times["native"] / times[name], 3)


def _times(measured: Sequence[Candidate]) -> dict[str, float]:
    return {candidate.case.algorithm: median(candidate.samples.values()) for candidate in measured}
