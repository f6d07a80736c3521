"""Choose a library's own algorithms from the records of launches that forced them.

An algorithm replaces the library's choice at a size if it is more than 3 % faster, and the interval
of the ratio over at least four launches of each is above 1. Between such a size and a measured size
without one, the library's choice stays. Two algorithms at neighbouring sizes meet half-way between
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isqrt
from statistics import geometric_mean, median
from typing import NamedTuple

from mpicoll.compare.two_sample import can_differ, shift
from mpicoll.errors import ArgumentError
from mpicoll.records.lines import CaseRecord, LaunchRecord, Record
from mpicoll.records.reading import only
from mpicoll.text.numbers import count_text, interval, number
from mpicoll.text.sizes import bytes_text

_MARGIN = 1.03
_NATIVE = "native"


class Range(NamedTuple):
    """The algorithm of a range of total bytes.

    Attributes:
        upto: the last size of the range; None: no upper bound.
        algorithm: the library's name, None for its own choice.
        variables: the variables that forced it.
    """

    upto: int | None
    algorithm: str | None
    variables: dict[str, str]


def starts(ranges: Iterable[Range]) -> Iterator[tuple[int, Range]]:
    """Yield ranges with the bytes at which they begin."""
    start = 0
    for part in ranges:
        yield start, part
        start = (part.upto or 0) + 1


class Choice(NamedTuple):
    """The algorithms of a collective for some ranks and nodes, in ascending ranges of bytes."""

    collective: str
    ranks: int
    nodes: int
    ranges: list[Range]

    @property
    def changes(self) -> bool:
        """Whether a range has another algorithm than the library's choice."""
        return any(part.algorithm is not None for part in self.ranges)


class _Group(NamedTuple):
    collective: str
    ranks: int
    nodes: int


Takes = Callable[[str, str, dict[str, str]], bool]
"""Decides whether a table can name an algorithm of a collective that these variables force."""
Times = dict[str, list[float]]


class Measurements(NamedTuple):
    """The times of a library's algorithms and of its own choice, us, one for each launch.

    Attributes:
        times: by collective with ranks and nodes, by total bytes, by algorithm.
        variables: the variables that forced an algorithm, by collective and algorithm.
    """

    times: dict[_Group, dict[int, Times]]
    variables: dict[tuple[str, str], dict[str, str]]


class UndecidedCase(NamedTuple):
    """An algorithm that may be faster than the library's choice, with too few launches to decide.

    Attributes:
        ratio, low, high: how many times as fast it is, with the interval.
        launches: of the side that has fewer.
        needed: the number of launches that may decide.
    """

    collective: str
    ranks: int
    nbytes: int
    algorithm: str
    ratio: float
    low: float
    high: float
    launches: int
    needed: int

    def __str__(self) -> str:
        shortage = f"; {MIN_LAUNCHES} are needed" if self.launches < MIN_LAUNCHES else ""
        bounds = f", {interval(self.low, self.high)}" if not shortage else ""
        return (
            f"{self.collective} of {bytes_text(self.nbytes)} on {count_text(self.ranks, 'rank')}: "
            f"{self.algorithm} {number(self.ratio)} times as fast{bounds} "
            f"({count_text(self.launches, 'launch')}{shortage})"
        )


MIN_LAUNCHES = next(count for count in range(1, 100) if can_differ(count, count))
"""Smallest number of launches of each side that can show a significant difference."""


def measurements(
    records: Iterable[Record], library: str, takes: Takes, environment: str | None = None,
    called: str = "",
) -> Measurements:  # fmt: skip
    """Return the times of a library, for every collective that was measured with its algorithms.

    Args:
        library: the prefix of its description in the records. "": any environment in which launches
            forced algorithms of the table.
        takes: decides whether the table can name an algorithm.
        called: the name of the library in messages.
        environment: one of the study; needed if several environments have this library.

    Raises:
        ArgumentError: nothing was measured, or several environments were.
    """
    records, called = list(records), called or library
    launches = {launch.run: launch for launch in only(LaunchRecord, records) if launch.run}
    cases = [case for case in only(CaseRecord, records) if _counts(case, library)]
    if not library:
        environments = {
            launch.environment for launch in launches.values() if _forces(launch, takes)
        }
        cases = [case for case in cases if case.environment in environments]
    cases = _of_one_environment(cases, called, environment)
    times: dict[_Group, dict[int, Times]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    variables: dict[tuple[str, str], dict[str, str]] = {}
    for case in cases:
        assert case.time_us is not None
        group = _Group(case.collective, case.ranks, case.nodes)
        if case.algorithm == _NATIVE:
            times[group][case.bytes_total][_NATIVE].append(case.time_us.median)
            continue
        launch = launches.get(case.run.id)
        forced = launch.forced.get(case.collective) if launch else None
        if forced is None or forced.obeyed is False or case.bytes_total in forced.refused:
            continue
        if takes(case.collective, forced.algorithm, forced.variables):
            times[group][case.bytes_total][forced.algorithm].append(case.time_us.median)
            variables[case.collective, forced.algorithm] = forced.variables
    if not variables:
        raise ArgumentError(
            f"no launch forced an algorithm of {called} that its table can name: run a study "
            "whose environments list algorithms"
        )
    if not any(
        _NATIVE in times_of_size for sizes in times.values() for times_of_size in sizes.values()
    ):
        raise ArgumentError(
            f"{called}'s own choice was not measured: there is no reference to compare with"
        )
    return Measurements(times, variables)


def choices(measured: Measurements, *, says_own: bool = True) -> list[Choice]:
    """Return the choices for a library, without collectives whose own choice stays at every size.

    Args:
        says_own: the table can leave a range of sizes to the library. If not, a collective gets an
            algorithm at all sizes or at none.
    """
    best = _best if says_own else _fastest
    all_choices = [
        Choice(*group, _ranges(group, sizes, measured.variables, best))
        for group, sizes in measured.times.items()
        if says_own or _is_worth_it(sizes.values())
    ]
    return sorted(choice for choice in all_choices if choice.changes)


def find_undecided(measured: Measurements) -> list[UndecidedCase]:
    """Return the algorithms that may be faster than the library's choice, the fastest first."""
    cases = [
        _undecided_case(group, nbytes, times)
        for group, sizes in measured.times.items()
        for nbytes, times in sizes.items()
    ]
    return sorted(filter(None, cases), key=lambda case: -case.ratio)


def _undecided_case(group: _Group, nbytes: int, times: Times) -> UndecidedCase | None:
    """Return the fastest algorithm of a size if it may be faster than the library's choice."""
    name = _fastest(times)
    if name is None or _NATIVE not in times:
        return None
    native, forced = times[_NATIVE], times[name]
    ratio = shift(native, forced)
    if ratio.ratio <= _MARGIN or _gain(times, name) != 1.0:
        return None
    launches = min(len(native), len(forced))
    needed = MIN_LAUNCHES if launches < MIN_LAUNCHES else 2 * launches
    bounds = ratio.ratio, ratio.low, ratio.high
    return UndecidedCase(group.collective, group.ranks, nbytes, name, *bounds, launches, needed)


def _forces(launch: LaunchRecord, takes: Takes) -> bool:
    return any(takes(name, how.algorithm, how.variables) for name, how in launch.forced.items())


def _counts(case: CaseRecord, library: str) -> bool:
    return (
        case.library.startswith(library)
        and case.call == "plan"
        and case.time_us is not None
        and case.correct is not False
        and (case.algorithm == _NATIVE or case.algorithm.startswith("native(algorithm="))
    )


def _of_one_environment(
    cases: Sequence[CaseRecord], library: str, wanted: str | None
) -> list[CaseRecord]:
    names = sorted({case.environment or "" for case in cases})
    if wanted is None and len(names) > 1:
        raise ArgumentError(
            f"{library} was measured in several environments: choose one of {', '.join(names)}"
        )
    selected = [case for case in cases if wanted is None or case.environment == wanted]
    if not selected:
        places = f" in {wanted!r}, but in {', '.join(names)}" if names else ""
        raise ArgumentError(f"no native calls of {library} were measured{places}")
    return selected


def _ranges(
    group: _Group, sizes: dict[int, Times], variables: dict[tuple[str, str], dict[str, str]],
    chosen: Callable[[Times], str | None],
) -> list[Range]:  # fmt: skip
    best = [(size, chosen(times)) for size, times in sorted(sizes.items())]
    ranges: list[Range] = []
    for index, (size, name) in enumerate(best):
        last = index + 1 == len(best)
        if not last and best[index + 1][1] == name:
            continue
        upto = None if last else _end((size, name), best[index + 1])
        ranges.append(Range(upto, name, variables.get((group.collective, name or ""), {})))
    return ranges


def _end(last: tuple[int, str | None], following: tuple[int, str | None]) -> int:
    """Return the end of a range between its last size and the first size of the next range."""
    (size, name), (next_size, next_name) = last, following
    if name is None:
        return next_size - 1
    return size if next_name is None else isqrt(size * next_size)


def _best(times: Times) -> str | None:
    """Return the algorithm to take, None for the library's choice."""
    name = _fastest(times)
    # Without the time of the library's own choice there is no reference.
    return name if name and _gain(times, name) > _MARGIN else None


def _gain(times: Times, name: str, *, likely: bool = False) -> float:
    """Return how many times as fast an algorithm is as the library's choice, 1 if not significant.

    Args:
        likely: return the ratio even if it is not significant.
    """
    if _NATIVE not in times:
        return 1.0
    native_times, times_of_name = times[_NATIVE], times[name]
    estimate = shift(native_times, times_of_name)
    is_sure = can_differ(len(native_times), len(times_of_name)) and (
        estimate.low > 1 or estimate.high < 1
    )
    return estimate.ratio if likely or is_sure else 1.0


def _fastest(times: Times) -> str | None:
    """Return the algorithm with the smallest median, None without any."""
    medians = {name: median(values) for name, values in times.items() if name != _NATIVE}
    return min(medians, key=medians.__getitem__, default=None)


def _is_worth_it(sizes: Iterable[Times]) -> bool:
    """Whether the fastest algorithms gain over all sizes together, and likely lose at none."""
    fastest = [(times, _fastest(times)) for times in sizes]
    gains = [_gain(times, name) for times, name in fastest if name]
    is_whole = len(gains) == len(fastest) and geometric_mean(gains) > _MARGIN
    return is_whole and all(
        name and _gain(times, name, likely=True) * _MARGIN > 1 for times, name in fastest
    )
