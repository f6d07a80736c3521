"""Records over launches: samples within a launch, and launches within a case.

Where ranks and arrays come to lie differs from launch to launch, and no interval of one launch
knows it. A launch is therefore one sample: its median, and its ratio to the native call, which was
taken side by side within the launch. Intervals and verdicts follow from the launches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import asdict, replace

from mpicoll.measurement.statistics import ratio_of, spread, summary
from mpicoll.records.identity import Key, key
from mpicoll.records.lines import CaseRecord, Speedup, SpeedupVsOther, Times

_Found = TypeVar("_Found", bound=Speedup)


MARGIN = 0.05
"""A tie is one where the ratio is known to be no more than this from 1."""


def is_undecided(found: Speedup) -> bool:
    """Whether a ratio is neither a difference nor known to be close to 1.

    >>> is_undecided(Speedup(1.0, 0.9, 1.2, "tie")), is_undecided(Speedup(1.0, 0.98, 1.02, "tie"))
    (True, False)
    """
    return found.verdict == "tie" and (found.low < 1 / (1 + MARGIN) or found.high > 1 + MARGIN)


def summed_up(records: Iterable[CaseRecord]) -> list[CaseRecord]:
    """Return one record for each case that several launches measured, and the others unchanged.

    A case that was wrong in a launch is wrong. Launches whose samples were disturbed are left out,
    unless they are the majority.
    """
    groups: dict[tuple[Key, str], list[CaseRecord]] = {}
    for each in records:
        # Without a launch a record stands for itself.
        own = each.run.id if each.launch is None else ""
        groups.setdefault((key(each), own), []).append(each)
    return [_summed_up(group) for group in groups.values()]


def _summed_up(given: Sequence[CaseRecord]) -> CaseRecord:
    if given[-1].launch is None:
        return given[-1]
    group = list({each.run.id: each for each in given}.values())
    bad = [each for each in group if each.correct is False]
    timed = [each for each in group if each.time_us is not None]
    if bad or not timed:
        return (bad or group)[-1]
    kept = undisturbed(timed)
    if len(kept) == 1:
        return kept[0]
    medians = [each.time_us.median for each in kept if each.time_us]
    middle = median(medians)
    bandwidth = kept[0].bytes_total / middle / 1000 if kept[0].bytes_total else None
    factors = [each.busbw_GBps / each.algbw_GBps for each in kept
               if each.busbw_GBps and each.algbw_GBps]  # fmt: skip
    return replace(
        kept[0],
        launch=None,
        launches=len(kept),
        samples=len(kept),
        samples_us=medians,
        blocks=UNSET,
        undisturbed=all(each.undisturbed for each in kept),
        time_us=Times(**summary(medians)),
        host_us=None,
        algbw_GBps=bandwidth,
        busbw_GBps=bandwidth * factors[0] if bandwidth and factors else None,
        spread_within=median(spread(each.samples_us) for each in kept),
        spread_between=spread(medians),
        speedup_vs_native=_over(kept, lambda each: each.speedup_vs_native),
        speedup_vs_other=_over(kept, lambda each: each.speedup_vs_other),
    )


def undisturbed(launches: Sequence[CaseRecord]) -> Sequence[CaseRecord]:
    """Return the launches of a case without the disturbed ones, if at least half are left."""
    calm = [each for each in launches if each.undisturbed]
    return calm if len(calm) * 2 >= len(launches) else launches


def _over(group: Sequence[CaseRecord], of: Callable[[CaseRecord], _Found | None]) -> _Found | None:
    """Return a ratio over launches; where launches compare with others, with the most frequent."""
    found = [each for each in map(of, group) if each is not None]
    if not found:
        return None
    rivals = [each.against if isinstance(each, SpeedupVsOther) else "" for each in found]
    usual = max(dict.fromkeys(rivals), key=rivals.count)
    same = [each for each, rival in zip(found, rivals, strict=True) if rival == usual]
    ratio = ratio_of([each.ratio for each in same])
    assert ratio is not None
    return type(same[0])(**{**asdict(same[0]), **ratio._asdict()})
