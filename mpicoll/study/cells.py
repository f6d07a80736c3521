"""The cells of a study: the measurements of a collective at one size, in every environment.

A contestant is an algorithm of a backend in an environment, with its time in each launch. If enough
launches have both contestants, the comparison uses the ratio of each launch, since samples of one
launch lie moments apart. Otherwise it uses all ratios of a launch of one to a launch of the other,
which ran in random order.

Every launch counts, also a disturbed one. Leaving launches out for each contestant would compare
the calm launches of one with the disturbed launches of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from mpicoll.compare.two_sample import can_differ, shift
from mpicoll.measurement.judgement import SIGNS, Decision, decide
from mpicoll.measurement.statistics import is_enough, median_interval, ratio_of, spread
from mpicoll.records.identity import PROJECTS, is_native, is_schedule
from mpicoll.report.figures import slug
from mpicoll.text.numbers import count_text

ENOUGH = 6
"""Smallest number of launches for a verdict."""


@dataclass(frozen=True)
class Panel:
    """The fields that the cells of a figure share: all but the size."""

    collective: str
    ranks: int
    nodes: int
    dtype: str
    op: str
    root: int | None
    call: str
    device: str
    in_place: bool
    allocated: bool

    def __str__(self) -> str:
        return " ".join([self.collective, *self._ranks(), *self._data(), *self._buffers()])

    @property
    def setting(self) -> str:
        """The text of the fields that collectives can share, such as ``on 4 ranks in place``."""
        return " ".join([*self._ranks(), *self._buffers()])

    @property
    def label(self) -> str:
        """The text of the other fields, for example ``allreduce float64 max``."""
        return " ".join([self.collective, *self._data()])

    @property
    def anchor(self) -> str:
        """The name of its figure on the page."""
        return "figure-" + slug(str(self)).lower()

    def _ranks(self) -> Iterator[str]:
        yield f"on {count_text(self.ranks, 'rank')}"
        if self.nodes > 1:
            yield f"of {self.nodes} nodes"

    def _data(self) -> Iterator[str]:
        yield from (name for name in (self.dtype, self.op) if name not in ("", "float32", "sum"))
        if self.root:
            yield f"root {self.root}"

    def _buffers(self) -> Iterator[str]:
        if self.in_place:
            yield "in place"
        if self.allocated:
            yield "allocated"
        if self.device != "cpu":
            yield "on GPUs"
        if self.call != "plan":
            yield f"by {self.call}"


@dataclass(frozen=True)
class Name:
    """A contestant: an algorithm of a backend in an environment ("" for runs of the benchmark).

    Its text is ``native of mpich`` for a library's own call, and ``mpicoll's ring in mpich`` for a
    schedule of this project, which is not an algorithm of MPICH.
    """

    environment: str
    backend: str
    algorithm: str

    def __str__(self) -> str:
        text = f"{self.project}'s {self.algorithm}" if self.is_ours else self.algorithm
        label = f"{text}{self._place}"
        return label if self.backend == "mpi4py" else f"{label} ({self.backend})"

    @property
    def project(self) -> str:
        """The package of this project that runs schedules on the backend."""
        return PROJECTS.get(self.backend, "mpicoll")

    @property
    def with_owner(self) -> str:
        """The algorithm alone; a schedule of this project is called ours."""
        return f"our {self.algorithm}" if self.is_ours else self.algorithm

    @property
    def _place(self) -> str:
        preposition = "in" if self.is_ours else "of"
        return f" {preposition} {self.environment}" if self.environment else ""

    @property
    def without_environment(self) -> str:
        """The text without the environment."""
        return str(replace(self, environment=""))

    @property
    def is_native(self) -> bool:
        """Whether it is the library's own call, by its choice or by one of its algorithms."""
        return is_native(self.algorithm)

    @property
    def is_ours(self) -> bool:
        """Whether a schedule of this project runs."""
        return is_schedule(self.algorithm)


@dataclass
class Contestant:
    """The measurements of one name in a cell.

    Attributes:
        times: the median of each launch, us, by the id of its run.
        counts: the number of samples of each launch.
        bounds: the interval of this median.
        within: the spread of the samples of each launch.
        samples: of each launch.
        to_native: ratio to the library's choice, from samples side by side, by launch.
        to_forced: ratio to the library's own algorithms by their names, by launch.
        to_other: ratio to contestants of other backends, by launch.
        ran: the algorithm and transport that ran, by launch.
        library: the library of its backend.
        way: the kind of call, if it is another one than that of the cell.
        is_disturbed: half of the launches or more were disturbed.
        is_contradicted: the plan and the method of this native call exclude each other.
    """

    name: Name
    way: str = ""
    is_disturbed: bool = False
    is_contradicted: bool = False
    times: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    within: dict[str, float] = field(default_factory=dict)
    samples: dict[str, Sequence[float]] = field(default_factory=dict)
    to_native: dict[str, float] = field(default_factory=dict)
    to_forced: dict[str, dict[str, float]] = field(default_factory=dict)
    to_other: dict[str, dict[str, float]] = field(default_factory=dict)
    ran: dict[str, str] = field(default_factory=dict)
    library: str = ""

    @property
    def us(self) -> float:
        """The median of the launches."""
        return median(self.times.values())

    @property
    def least_us(self) -> float:
        """The median; the shortest sample if disturbances can have made the median longer."""
        if not (self.is_contradicted or (self.is_disturbed and self.launches < ENOUGH)):
            return self.us
        return min([us for samples in self.samples.values() for us in samples] or [0.0])

    def us_of(self, runs: Iterable[str]) -> float:
        """Return the median of some of the launches."""
        return median(self.times[run] for run in runs)

    @property
    def launches(self) -> int:
        """The number of launches."""
        return len(self.times)

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds of the median over launches; for a single launch, those over its samples."""
        if self.launches == 1:
            return next(iter(self.bounds.values()))
        return median_interval(list(self.times.values()))[1:]

    @property
    def spread_within(self) -> float:
        """The spread of the samples of a launch, the median over launches."""
        return median(self.within.values())

    @property
    def spread_between(self) -> float:
        """The spread of the launches."""
        return spread(list(self.times.values()))

    @property
    def short(self) -> str:
        """The label without the environment."""
        return self.label.replace(str(self.name), self.name.without_environment, 1)

    @property
    def label(self) -> str:
        """The name, with the choice of a chooser, the library of torch's call, and another way."""
        return f"{self._label} by {self.way}" if self.way else self._label

    @property
    def _label(self) -> str:
        if self.name.backend == "torch" and self.name.is_native and self.library:
            place = f"torch in {self.name.environment}" if self.name.environment else "torch"
            return f"{self.name.algorithm} of {self.library.split()[-1]} ({place})"
        if self.name.algorithm.partition("@")[0] != "auto" or not self.ran:
            return str(self.name)
        choices = list(self.ran.values())
        return f"{self.name} ({max(dict.fromkeys(choices), key=choices.count)})"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one contestant is as another.

    Attributes:
        launches: number of launches behind the ratio.
        agreeing: number of these launches with the same direction as the ratio.
        is_paired: both contestants ran in the same launches.
        is_single: the ratio comes from the samples of one launch of each.
        is_enough: there are enough samples for a verdict.
        is_disturbed: one of the contestants is.
    """

    ratio: float
    low: float
    high: float
    launches: int
    agreeing: int
    is_paired: bool
    is_single: bool = False
    is_enough: bool = True
    is_disturbed: bool = False

    @property
    def decision(self) -> Decision:
        """What the ratio says."""
        return decide(
            self.low, self.high, has_enough=self.is_enough and not self.has_few,
            is_disturbed=self.is_disturbed,
        )  # fmt: skip

    @property
    def sign(self) -> str:
        """The sign of the decision; "" if one contestant is faster."""
        return "" if self.is_sure else SIGNS[self.decision]

    @property
    def is_sure(self) -> bool:
        """Whether one contestant is faster."""
        return self.decision in ("faster", "slower")

    @property
    def has_few(self) -> bool:
        """Whether there are several launches, but too few for a verdict."""
        return self.launches < ENOUGH and not self.is_single


@dataclass
class Cell:
    """All measurements of a collective at one size, for one panel.

    Attributes:
        missing: native calls without a time, of the environments and backends of the contestants.
            It does not contain libraries without such a call.
        other_ways: the native calls of the same case by the other kinds of call.
    """

    panel: Panel
    size: int
    contestants: dict[Name, Contestant] = field(default_factory=dict)
    missing: list[Name] = field(default_factory=list)
    other_ways: list[Contestant] = field(default_factory=list)

    def natives(self, environment: str | None = None) -> list[Contestant]:
        """Return the native calls, of all environments or of one."""
        return [
            contestant for name, contestant in self.contestants.items()
            if name.is_native and environment in (None, name.environment)
        ]  # fmt: skip

    def schedules(self) -> list[Contestant]:
        """Return the schedules of this project."""
        return [contestant for name, contestant in self.contestants.items() if name.is_ours]

    def strongest_native(self, environment: str | None = None) -> Contestant | None:
        """Return the fastest native over environments, algorithms and kinds of call.

        A disturbed one counts by its shortest sample. None without one, or if a library's own
        choice is missing, as that may be the fastest.
        """
        if any(environment in (None, name.environment) for name in self.missing):
            return None
        other_ways = [way for way in self.other_ways if environment in (None, way.name.environment)]
        natives = self.natives(environment)
        return fastest_of([*natives, *other_ways]) if natives else None

    def fastest_ours(self, environment: str | None = None) -> Contestant | None:
        """Return the fastest schedule, of all environments or of one; None without one."""
        return fastest_of(
            schedule for schedule in self.schedules()
            if environment in (None, schedule.name.environment)
        )  # fmt: skip

    def rivals(self) -> tuple[Contestant | None, Contestant | None]:
        """Return the fastest schedule and the strongest native call, if possible of one launch.

        The schedule is of the native call's environment, whose launches have both. Schedules of
        other environments count only if that environment has none.
        """
        native = self.strongest_native()
        schedule = self.fastest_ours(native.name.environment) if native else None
        return schedule or self.fastest_ours(), native


def fastest_of(contestants: Iterable[Contestant]) -> Contestant | None:
    """Return the fastest contestant, None without any; a disturbed one by its shortest sample."""
    return min(contestants, key=_least_us, default=None)


def _least_us(contestant: Contestant) -> float:
    return contestant.least_us


def unbeaten(times: Mapping[str, Contestant]) -> list[str]:
    """Return the names of the contestants that the fastest one does not surely beat, in order."""
    first, *slower = sorted(times, key=lambda name: times[name].us)
    best = times[first]
    return [
        first,
        *(name for name in slower if compare_contestants(best, times[name]).decision != "faster"),
    ]


def compare_contestants(
    contestant: Contestant, reference: Contestant, confidence: float = 0.95
) -> Ratio:
    """Return how many times as fast `contestant` is as `reference`.

    Launches are samples in random order, so an interval over enough of them contains their
    disturbances. The samples of a single disturbed launch share one disturbance.
    """
    ratio, sides = _compare(contestant, reference, confidence), (contestant, reference)
    is_robust = ratio.launches >= ENOUGH
    is_void = any(side.is_contradicted or (side.is_disturbed and not is_robust) for side in sides)
    return replace(ratio, is_disturbed=is_void)


def _compare(contestant: Contestant, reference: Contestant, confidence: float) -> Ratio:
    paired = _paired_ratios(contestant, reference)
    if len(paired) >= min(ENOUGH, contestant.launches, reference.launches) and len(paired) > 1:
        ratio = ratio_of(paired, confidence)
        assert ratio is not None
        agreeing = sum((value > 1) == (ratio.ratio > 1) for value in paired)
        # Too few for an interval: the extremes may still show that all are close.
        has_interval = is_enough(len(paired), confidence) or decide(*ratio[1:3]) == "tie"
        return Ratio(*ratio[:3], len(paired), agreeing, True, is_enough=has_interval)
    if contestant.launches == reference.launches == 1:
        # One launch of each: the ratio uses their samples.
        samples, reference_samples = (
            next(iter(side.samples.values())) for side in (contestant, reference)
        )
        if not (samples and reference_samples):
            return _of_intervals(contestant, reference)
        of_samples = _compare_unpaired(samples, reference_samples, confidence)
        return replace(of_samples, launches=1, agreeing=1, is_single=True)
    return _compare_unpaired(
        list(contestant.times.values()), list(reference.times.values()), confidence
    )


def _paired_ratios(contestant: Contestant, reference: Contestant) -> list[float]:
    """Return the ratio of each launch with both contestants, if possible from paired samples."""
    side_by_side: Mapping[str, float]
    if contestant.way != reference.way:
        side_by_side = {}
    elif reference.name.algorithm == "native" and _same_place(contestant.name, reference.name):
        side_by_side = contestant.to_native
    elif _same_place(contestant.name, reference.name):
        side_by_side = contestant.to_forced.get(reference.name.algorithm, {})
    else:
        side_by_side = contestant.to_other.get(
            f"{reference.name.backend} {reference.name.algorithm}", {}
        )
    return [
        side_by_side.get(run, us / contestant.times[run])
        for run, us in reference.times.items() if run in contestant.times
    ]  # fmt: skip


def _same_place(first: Name, second: Name) -> bool:
    return (first.environment, first.backend) == (second.environment, second.backend)


def _compare_unpaired(
    values: Sequence[float], reference_values: Sequence[float], confidence: float
) -> Ratio:
    estimate = shift(reference_values, values, 0.0, confidence)
    counts = len(values), len(reference_values)
    has_enough = all(map(is_enough, counts)) and can_differ(*counts, confidence)
    # Count the launches of the smaller side, each compared with the median of the other side.
    if len(values) <= len(reference_values):
        agreeing = sum((us < median(reference_values)) == (estimate.ratio > 1) for us in values)
    else:
        agreeing = sum((us > median(values)) == (estimate.ratio > 1) for us in reference_values)
    return Ratio(
        estimate.ratio, estimate.low, estimate.high,
        min(len(values), len(reference_values)), agreeing, False, is_enough=has_enough,
    )  # fmt: skip


def _of_intervals(contestant: Contestant, reference: Contestant) -> Ratio:
    """Return the ratio of two launches without samples, from their intervals."""
    (low, high), (reference_low, reference_high) = contestant.interval, reference.interval
    bounds = reference_low / high, reference_high / low
    counts = [*contestant.counts.values(), *reference.counts.values()]
    has_enough = all(map(is_enough, counts))
    return Ratio(
        reference.us / contestant.us, *bounds, 1, 1, False, is_single=True, is_enough=has_enough
    )
