"""Decide who wins: the one judgement behind stars, maps, headlines and verdicts.

A ratio of two cases that were sampled in the same blocks is the median of their ratios within each
block, with its interval (`speedup`). A ratio of other cases is that of their medians, bounded by
the ends of both intervals. A case is *beaten* where another correct case is surely faster. The
leaders are the cases that nobody beats. The fastest case is known only where all leaders ran the
same way.

A case with fewer samples than an interval needs neither leads nor beats: one sample is no
distribution. A *disturbed* case does not either: most of its samples were late or preempted, so
that its time is that of the disturbance. No winner is named where the strongest native is
disturbed, where a disturbed case may be the fastest, or where native contradicts itself.

Native has several ways: as a plan, as a method, and persistent. The strongest one is the yardstick.
A plan and a method make the same call of the library. Where their times are a factor apart that
neither their intervals nor the cost of a method in Python explain, one of them is wrong. A
persistent call may honestly run another algorithm, so it contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Literal, NamedTuple

from msgspec import UNSET

from mpicoll.measurement.statistics import FLOOR, is_enough, speedup
from mpicoll.records.identity import is_native, is_schedule
from mpicoll.records.lines import CaseRecord, Speedup, Times
from mpicoll.text.numbers import number

Decision = Literal["faster", "slower", "tie", "undecided", "disturbed"]

SIGNS: dict[Decision, str] = {
    "faster": "+", "slower": "-", "tie": "=", "undecided": "?", "disturbed": "~",
}  # fmt: skip
"""The sign of a decision in every table."""
MARGIN = 0.05
"""A tie is one where the ratio is known to be no more than this from 1."""
MOST_DISTURBED = 0.5
"""The largest share of disturbed samples with which the others are no selection."""
CONTRADICTION = 1.5
"""The factor between plan and method of one native call, beyond their intervals."""
_METHOD_US = 5.0
"""Microseconds that a method may take for its arguments in Python, beside the call itself."""
_WAYS = ("plan", "method")


def is_tie(low: float, high: float, margin: float = MARGIN) -> bool:
    """Whether a ratio with these bounds is surely no more than a margin from 1."""
    return low >= 1 / (1 + margin) and high <= 1 + margin


def decide(
    low: float, high: float, *, has_enough: bool = True, is_disturbed: bool = False
) -> Decision:
    """Return what the interval of a ratio says, and whether its samples can say it.

    >>> decide(1.2, 1.4), decide(0.98, 1.02), decide(0.8, 1.02)
    ('faster', 'tie', 'undecided')
    >>> decide(1.2, 1.4, has_enough=False), decide(1.2, 1.4, is_disturbed=True)
    ('undecided', 'disturbed')
    """
    if is_disturbed:
        return "disturbed"
    if not has_enough:
        return "undecided"
    if low > 1 + FLOOR:
        return "faster"
    if high < 1 / (1 + FLOOR):
        return "slower"
    return "tie" if is_tie(low, high) else "undecided"


def decision_of(ratio: Speedup, *, has_enough: bool = True, is_disturbed: bool = False) -> Decision:
    """Return the decision of a ratio that a record has, whose tie may be one of too few samples.

    >>> decision_of(Speedup(1.3, 1.2, 1.4, "faster")), decision_of(Speedup(1.3, 1.2, 1.4, "tie"))
    ('faster', 'undecided')
    """
    decision = decide(ratio.low, ratio.high, has_enough=has_enough, is_disturbed=is_disturbed)
    is_sure = decision in ("faster", "slower")
    return "undecided" if is_sure and ratio.verdict == "tie" else decision


# -- what a record can say ----------------------------------------------------------------


def has_enough(record: CaseRecord) -> bool:
    """Whether a record has samples enough for an interval of its median."""
    return record.time_us is not None and is_enough(record.samples)


def is_disturbed(record: CaseRecord) -> bool:
    """Whether most samples of a record were late or preempted, or such samples had to count.

    A few calm samples among many disturbed ones are a selection: longer calls are disturbed more.
    """
    if not record.undisturbed:
        return True
    if record.launches is not UNSET:
        return False  # disturbed launches are left out of the others
    return is_mostly(record.late_starts + record.preempted, record.samples) or (
        (record.late_share or 0) > MOST_DISTURBED
    )


def are_disturbed(launches: Sequence[CaseRecord]) -> bool:
    """Whether half of the launches of a case or more were disturbed."""
    return 2 * sum(map(is_disturbed, launches)) >= len(launches)


def is_mostly(disturbed: int, calm: int) -> bool:
    """Whether most of these samples are disturbed."""
    return disturbed > MOST_DISTURBED * (disturbed + calm)


def can_lead(record: CaseRecord) -> bool:
    """Whether a record may lead: samples enough, not disturbed, and no wrong result."""
    return _is_rival(record) and not is_disturbed(record)


def way(record: CaseRecord) -> tuple[str, str, str]:
    """Return what ran: `auto` is no rival of the algorithm that it chose."""
    return record.backend, record.executed or record.algorithm, str(record.transport)


# -- native, and its ways -----------------------------------------------------------------


def contest(group: Iterable[CaseRecord], call: str) -> list[CaseRecord]:
    """Return the cases that compete for one kind of call: its own, and native in all its ways."""
    return [record for record in group if record.call == call or is_native(record.algorithm)]


def strongest_native(group: Sequence[CaseRecord]) -> CaseRecord | None:
    """Return the fastest native call over backends, algorithms and ways, None without one.

    Calls with too few samples count only where there are no others.
    """
    natives = [record for record in group if is_native(record.algorithm) and _is_sound(record)]
    return min([*filter(has_enough, natives)] or natives, key=_median, default=None)


class Contradiction(NamedTuple):
    """Two ways of one native call whose times exclude each other."""

    slower: CaseRecord
    faster: CaseRecord

    @property
    def times(self) -> str:
        """Both times in words."""
        return " and ".join(f"{number(_median(record))} us as a {record.call}" for record in self)

    @property
    def plan(self) -> CaseRecord:
        """The record of the plan."""
        return self.slower if self.slower.call == "plan" else self.faster

    def __str__(self) -> str:
        return f"{self.slower.algorithm} on {self.slower.backend} takes {self.times}"


def contradictions(group: Iterable[CaseRecord]) -> list[Contradiction]:
    """Return the native calls of a group that take another time as a plan than as a method."""
    ways: dict[tuple[str, str], list[CaseRecord]] = {}
    for record in group:
        if record.call in _WAYS and is_native(record.algorithm) and _is_rival(record):
            ways.setdefault((record.backend, record.algorithm), []).append(record)
    return [
        Contradiction(slower, faster)
        for records in ways.values() for slower, faster in permutations(records, 2)
        if slower.call != faster.call
        and contradict(_times(slower)[1], _times(faster)[2], is_method=slower.call == "method")
    ]  # fmt: skip


def contradict(low: float, high: float, *, is_method: bool) -> bool:
    """Whether one call cannot take both times.

    Args:
        low: lower bound of the slower way, us.
        high: upper bound of the faster way, us.
        is_method: the slower way is the method, which may take longer than the plan.
    """
    return low - (_METHOD_US if is_method else 0.0) > CONTRADICTION * high


# -- judgements ---------------------------------------------------------------------------


class Judgement(NamedTuple):
    """How many times as fast a case is as its reference, and what that says."""

    ratio: float
    low: float
    high: float
    decision: Decision


def judge(
    reference: CaseRecord, record: CaseRecord, group: Sequence[CaseRecord] = ()
) -> Judgement | None:
    """Return how many times as fast a record is as a reference, None where one has no time.

    Args:
        group: the other cases of the same size, which can make a comparison void.
    """
    if reference.time_us is None or record.time_us is None:
        return None
    paired, common = None, 0
    if reference.run.id == record.run.id:
        first, second = _by_block(reference), _by_block(record)
        paired, common = speedup(first, second), len(first.keys() & second.keys())
    if paired:
        ratio, low, high = paired[:3]
    else:
        ratio = _median(reference) / _median(record)
        low = reference.time_us.low / record.time_us.high
        high = reference.time_us.high / record.time_us.low
    has_samples = (not paired or is_enough(common)) and all(map(has_enough, (reference, record)))
    sides = (reference, record)
    is_void = any(map(is_disturbed, sides)) or _is_open(min(sides, key=_median), group)
    return Judgement(
        ratio, low, high, decide(low, high, has_enough=has_samples, is_disturbed=is_void)
    )


def decide_speedup(
    record: CaseRecord, speedup: Speedup, reference: str, group: Sequence[CaseRecord]
) -> Decision:
    """Return the decision of a ratio in a record.

    Args:
        reference: the backend and the algorithm that the record is compared with.
        group: the cases of the size, with native in all its ways.
    """
    sides = [rival for rival in group if f"{rival.backend} {rival.algorithm}" == reference]
    alike = [record, *(rival for rival in sides if rival.call == record.call)]
    is_void = any(map(is_disturbed, alike)) or bool(contradictions(sides))
    return decision_of(speedup, has_enough=has_enough(record), is_disturbed=is_void)


class Match(NamedTuple):
    """The fastest schedule of a group, the strongest native call, and how they compare."""

    schedule: CaseRecord
    native: CaseRecord
    judgement: Judgement


def match(group: Sequence[CaseRecord]) -> Match | None:
    """Return the fastest schedule and the strongest native call, None without one of them."""
    schedules = [record for record in group if is_schedule(record.algorithm) and _is_sound(record)]
    able = [*filter(can_lead, schedules)] or [*filter(has_enough, schedules)] or schedules
    native = strongest_native(group)
    if not able or native is None:
        return None
    schedule = min(able, key=_median)
    judgement = judge(native, schedule, group)
    return Match(schedule, native, judgement) if judgement else None


class Lead(NamedTuple):
    """The cases of a group that nobody beats.

    Attributes:
        leaders: the shortest median first; empty if no case can lead.
        decision: ``faster`` if all leaders ran the same way, ``tie`` if several ways lead that are
            surely within 5 % of the first, ``undecided`` if several ways lead or no case has
            samples enough, or ``disturbed``.
    """

    leaders: list[CaseRecord]
    decision: Decision


def lead(group: Sequence[CaseRecord]) -> Lead:
    """Return the leaders of a group: the cases of one collective, variant and size."""
    if not any(map(_is_rival, group)):
        return Lead([], "undecided")
    able = sorted(filter(can_lead, group), key=_median)
    leaders = [record for record in able if not any(_beats(rival, record) for rival in able)]
    native = strongest_native(group)
    if not leaders or (native and is_disturbed(native)) or _is_open(leaders[0], group):
        return Lead([], "disturbed")
    rivals = [record for record in leaders if way(record) != way(leaders[0])]
    if not rivals:
        # A second record of the winning way may be no faster than native.
        return Lead(
            [record for record in leaders if native not in able or native in leaders
             or _beats(record, native)], "faster",
        )  # fmt: skip
    decisions = {judgement.decision for rival in rivals if (judgement := judge(rival, leaders[0]))}
    return Lead(leaders, "tie" if decisions == {"tie"} else "undecided")


def fastest(group: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Return the records of the way that is surely the fastest; none where several ways lead."""
    leading = lead(group)
    return leading.leaders if leading.decision == "faster" else []


def _is_open(first: CaseRecord, group: Sequence[CaseRecord]) -> bool:
    """Whether a disturbed case may be faster than the first one, or native contradicts itself."""
    return bool(contradictions(group)) or any(
        is_disturbed(rival) and way(rival) != way(first) and _shortest(rival) <= _times(first)[2]
        for rival in filter(_is_rival, group)
    )


def _beats(rival: CaseRecord, record: CaseRecord) -> bool:
    if way(rival) == way(record):
        return False
    judgement = judge(record, rival)
    return judgement is not None and judgement.decision == "faster"


def _is_sound(record: CaseRecord) -> bool:
    return record.time_us is not None and record.correct is not False


def _is_rival(record: CaseRecord) -> bool:
    return has_enough(record) and record.correct is not False


def _times(record: CaseRecord) -> tuple[float, float, float]:
    """Return the median of a record and its interval, us."""
    time: Times | None = record.time_us
    assert time is not None
    return time.median, time.low, time.high


def _median(record: CaseRecord) -> float:
    return _times(record)[0]


def _shortest(record: CaseRecord) -> float:
    """Return the shortest sample: a disturbance makes a call longer, never shorter."""
    return min(record.samples_us, default=0.0)


def _by_block(record: CaseRecord) -> dict[int, float]:
    """Return the samples by block; none where the record does not have the blocks."""
    return dict(zip(record.blocks or (), record.samples_us, strict=False))
