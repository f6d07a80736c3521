"""A case with its samples: which candidates need more of them, and of how many calls each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mpicoll.backend import Thunk
from mpicoll.measurement.cases import BASELINES, Case
from mpicoll.measurement.checking import Wrong
from mpicoll.measurement.statistics import is_enough, median_interval, speedup

_LIKE = 1.5


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        samples: how many to take of each case; None is adaptive.
        precision: the half-width, as a share, that is enough of the interval of a median, and of
            that of its ratio to the native call.
        timing: ``together`` starts at a common deadline, ``loop`` when a rank gets there.
        min_samples, max_samples: bounds on the samples of an adaptive case.
    """

    budget: float = 40.0
    samples: int | None = None
    warmup: int = 2
    checks: int = 1
    timing: str = "together"
    seed: int = 0
    precision: float = 0.05
    confidence: float = 0.95
    min_samples: int = 6
    max_samples: int = 200


class Runnable(Protocol):
    """The protocol of a plan, or of a call like one, that a candidate runs.

    Attributes:
        executor: what runs it.
        note: the name of a library's default there, and how the schedule that ran differs.
        run: makes one call.
    """

    algorithm: str
    transport: str
    executor: str
    note: str
    run: Thunk

    def free(self) -> None:
        """Release its resources."""


class Call:
    """A call that runs the same program as a plan of the same name.

    Args:
        plan: may be freed already.
        held: the plans that `run` uses.
    """

    def __init__(self, plan: Runnable, run: Thunk, held: Sequence[Runnable] = ()) -> None:
        self.algorithm, self.transport = plan.algorithm, plan.transport
        self.executor, self.note = plan.executor, plan.note
        self.run, self.held = run, held

    def free(self) -> None:
        """Free the plans."""
        for plan in self.held:
            plan.free()


@dataclass
class Candidate:
    """A case, its plan, and its samples.

    Attributes:
        message: why it was refused; empty where it ran.
        samples: microseconds of the slowest rank, by block.
        late_samples: the samples with a late start; they count only if too few are punctual.
        preempted: the same for samples during which a rank lost its core.
        host: the same by the clocks of the ranks, where a GPU timed the samples.
    """

    case: Case
    plan: Runnable | None = None
    message: str = ""
    calls: int = 1
    estimate: float = 0.0
    samples: dict[int, float] = field(default_factory=dict)
    late_samples: dict[int, float] = field(default_factory=dict)
    preempted: dict[int, float] = field(default_factory=dict)
    host: dict[int, float] = field(default_factory=dict)
    slowest: Counter[int] = field(default_factory=Counter)
    lateness: int = 0
    checked: int = 0
    wrong: list[Wrong] = field(default_factory=list)

    @property
    def visits(self) -> int:
        """How many samples were taken, the spoilt ones included."""
        return len(self.samples | self.late_samples | self.preempted)

    @property
    def kind(self) -> tuple[str, str]:
        """The candidates that are compared with one native call: of one backend, called alike."""
        return self.case.backend, self.case.call

    @property
    def is_baseline(self) -> bool:
        """Whether others are compared with this one."""
        return self.case.algorithm in BASELINES


def active(running: Sequence[Candidate], settings: Settings) -> list[Candidate]:
    """Return the candidates that need samples, and the baselines that they are compared with."""
    natives = {candidate.kind: candidate for candidate in running if candidate.is_baseline}
    open_ = [
        candidate
        for candidate in running
        if not _is_done(candidate, natives.get(candidate.kind), settings)
    ]
    waiting = {candidate.kind for candidate in open_}
    return [
        candidate
        for candidate in running
        if candidate in open_ or (candidate.is_baseline and candidate.kind in waiting)
    ]


def _is_done(candidate: Candidate, native: Candidate | None, settings: Settings) -> bool:
    """Whether its median is known, and there are blocks enough for its ratio."""
    count, visits = len(candidate.samples), candidate.visits
    if settings.samples is not None:
        return count >= settings.samples or visits >= 2 * settings.samples
    if visits >= settings.max_samples:
        return True
    if count < settings.min_samples or not is_enough(count, settings.confidence):
        return False
    interval = median_interval(list(candidate.samples.values()), settings.confidence)
    return interval.half_width < settings.precision and _is_compared(candidate, native, settings)


def _is_compared(candidate: Candidate, native: Candidate | None, settings: Settings) -> bool:
    """Whether its ratio to the native call is known as well.

    Significance must not decide: to stop as soon as a difference is significant finds
    differences where there are none.
    """
    if native is None or native is candidate:
        return True
    ratio = speedup(native.samples, candidate.samples, settings.confidence)
    paired = len(candidate.samples.keys() & native.samples.keys())
    return bool(
        ratio
        and paired >= settings.min_samples
        and (ratio.high - ratio.low) / 2 / ratio.ratio < settings.precision
    )


def level(candidates: Sequence[Candidate]) -> None:
    """Let candidates of about the same speed repeat their calls equally often in a sample.

    The first call of a sample takes longer than the next ones: of two equals, the one that
    repeats more often would seem faster.
    """
    fastest: Candidate | None = None
    for candidate in sorted(candidates, key=lambda candidate: candidate.estimate):
        if fastest is None or candidate.estimate > fastest.estimate * _LIKE:
            fastest = candidate
        candidate.calls = fastest.calls
