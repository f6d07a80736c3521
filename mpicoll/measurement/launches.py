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

from mpicoll.measurement.judgement import are_disturbed
from mpicoll.measurement.statistics import ratio_of, spread, summary
from mpicoll.records.identity import Key, key
from mpicoll.records.lines import CaseRecord, Speedup, SpeedupVsOther, Times

_AnySpeedup = TypeVar("_AnySpeedup", bound=Speedup)


def summed_up(records: Iterable[CaseRecord]) -> list[CaseRecord]:
    """Return one record for each case that several launches measured, and the others unchanged.

    A case that was wrong in a launch is wrong. Disturbed launches count, too: leaving them out case
    by case would compare the calm launches of one case with the disturbed ones of another.
    """
    groups: dict[tuple[Key, str], list[CaseRecord]] = {}
    for record in records:
        # Without a launch a record stands for itself.
        run = record.run.id if record.launch is None else ""
        groups.setdefault((key(record), run), []).append(record)
    return [_summed_up(group) for group in groups.values()]


def _summed_up(records: Sequence[CaseRecord]) -> CaseRecord:
    if records[-1].launch is None:
        return records[-1]
    group = list({record.run.id: record for record in records}.values())
    bad = [record for record in group if record.correct is False]
    timed = [record for record in group if record.time_us is not None]
    if bad or not timed:
        return (bad or group)[-1]
    if len(timed) == 1:
        return timed[0]
    medians = [record.time_us.median for record in timed if record.time_us]
    middle = median(medians)
    bandwidth = timed[0].bytes_total / middle / 1000 if timed[0].bytes_total else None
    factors = [record.busbw_GBps / record.algbw_GBps for record in timed
               if record.busbw_GBps and record.algbw_GBps]  # fmt: skip
    return replace(
        timed[0],
        launch=None,
        launches=len(timed),
        samples=len(timed),
        samples_us=medians,
        blocks=UNSET,
        undisturbed=not are_disturbed(timed),
        time_us=Times(**summary(medians)),
        host_us=None,
        algbw_GBps=bandwidth,
        busbw_GBps=bandwidth * factors[0] if bandwidth and factors else None,
        spread_within=median(spread(record.samples_us) for record in timed),
        spread_between=spread(medians),
        speedup_vs_native=_over(timed, lambda record: record.speedup_vs_native),
        speedup_vs_other=_over(timed, lambda record: record.speedup_vs_other),
    )


def _over(
    group: Sequence[CaseRecord], of: Callable[[CaseRecord], _AnySpeedup | None]
) -> _AnySpeedup | None:
    """Return a ratio over launches; where launches compare with others, with the most frequent."""
    ratios = [ratio for ratio in map(of, group) if ratio is not None]
    if not ratios:
        return None
    rivals = [ratio.against if isinstance(ratio, SpeedupVsOther) else "" for ratio in ratios]
    usual = max(dict.fromkeys(rivals), key=rivals.count)
    matching = [ratio for ratio, rival in zip(ratios, rivals, strict=True) if rival == usual]
    ratio = ratio_of([match.ratio for match in matching])
    assert ratio is not None
    return type(matching[0])(**{**asdict(matching[0]), **ratio._asdict()})
