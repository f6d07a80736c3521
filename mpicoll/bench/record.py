"""Make the record of each case of a group from its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mpicoll.measurement.candidate import Candidate
from mpicoll.measurement.judgement import contest, fastest
from mpicoll.measurement.measure import Bench
from mpicoll.measurement.statistics import Ratio, distribution, speedup
from mpicoll.records.description import Run
from mpicoll.records.lines import CaseRecord, FirstWrong, Speedup, SpeedupVsOther

Fields = dict[str, Any]
"""Some of the fields of a record."""


def case_records(bench: Bench, candidates: Sequence[Candidate], run: Run) -> list[CaseRecord]:
    """Return the records of a group, and mark the fastest of each kind of call."""
    records = [_record(bench, candidate, candidates, run) for candidate in candidates]
    mark_best(records)
    return records


def mark_best(group: Sequence[CaseRecord]) -> None:
    """Set in each record whether it is significantly the fastest of its kind of call.

    Native competes in all its ways.
    """
    for record in group:
        record.best = False
    for call in {record.call for record in group}:
        for record in fastest(contest(group, call)):
            record.best |= record.call == call


def _record(
    bench: Bench, candidate: Candidate, candidates: Sequence[Candidate], run: Run
) -> CaseRecord:
    case, group = candidate.case, candidate.case.group
    world, plan = bench.worlds[case.backend], candidate.plan
    return CaseRecord(
        run=run,
        **group.identity,
        algorithm=case.algorithm,
        call=case.call,
        executed=plan.algorithm if plan else None,
        backend=case.backend,
        library=world.library,
        transport=(plan.transport or None) if plan else None,
        executor=(plan.executor or None) if plan else None,
        note=(plan.note or None) if plan else None,
        ranks=bench.size,
        nodes=len(world.nodes),
        bytes_per_rank=group.bytes_per_rank,
        count=group.width,
        **_times(bench, candidate),
        **_speedups(candidate, candidates, bench.settings.confidence),
        **_correctness(candidate),
        message=candidate.message or _complaint(candidate),
    )


def _times(bench: Bench, candidate: Candidate) -> Fields:
    """Return the statistics of the samples and how they were taken."""
    samples = _samples(candidate)
    on_host = [us for block, us in candidate.host.items() if block in samples]
    times = distribution(list(samples.values()))
    visits, spoilt = candidate.visits, candidate.late_samples | candidate.preempted
    slowest = candidate.slowest.most_common(1)
    return {
        "samples": len(samples),
        "samples_us": list(samples.values()),
        "blocks": list(samples),
        "undisturbed": not (samples.keys() & spoilt.keys()),
        "calls_per_sample": candidate.calls,
        "timing": bench.settings.timing,
        "late_starts": len(candidate.late_samples),
        "late_share": round(len(candidate.late_samples) / visits, 4) if visits else None,
        "preempted": len(candidate.preempted),
        "worst_late_us": candidate.lateness / 1000,
        "sync_error_us": bench.synchroniser.sync_error / 1000,
        "slowest_rank": slowest[0][0] if slowest else None,
        "time_us": times,
        "host_us": distribution(on_host),
        **_bandwidths(candidate, times.median if times else None, bench.size),
    }


def _samples(candidate: Candidate) -> dict[int, float]:
    """Return the samples by block, rounded as in a record, from which the ratios must follow."""
    return {block: round(us, 4) for block, us in candidate.samples.items()}


def _bandwidths(candidate: Candidate, median: float | None, size: int) -> Fields:
    """Return GB/s; the bus bandwidth has no meaning on one rank or without data."""
    group = candidate.case.group
    if not median or not group.bytes_total:
        return {}
    algbw = group.bytes_total / median / 1000
    busbw = algbw * group.contract.busbw(size) if size > 1 else None
    return {"algbw_GBps": algbw, "busbw_GBps": busbw}


def _speedups(candidate: Candidate, candidates: Sequence[Candidate], confidence: float) -> Fields:
    case = candidate.case
    alike = [peer for peer in candidates if peer.case.call == case.call]
    native = _find_named(alike, case.backend, ("native",))
    rivals = [peer for peer in alike if peer.case.backend != case.backend]
    rival = None
    if rivals:
        rival = _find_named(alike, rivals[0].case.backend, (case.algorithm, "native"))
    vs_native, vs_rival = (
        _ratio(reference, candidate, confidence) for reference in (native, rival)
    )
    against = f"{rival.case.backend} {rival.case.algorithm}" if rival else ""
    return {
        "speedup_vs_native": vs_native and Speedup(*vs_native),
        "speedup_vs_other": vs_rival and SpeedupVsOther(*vs_rival, against=against),
    }


def _find_named(
    candidates: Sequence[Candidate], backend: str, names: Sequence[str]
) -> Candidate | None:
    """Return the first candidate of the backend with one of these names and with samples."""
    for name in names:
        for candidate in candidates:
            if (candidate.case.backend, candidate.case.algorithm) == (
                backend,
                name,
            ) and candidate.samples:
                return candidate
    return None


def _ratio(reference: Candidate | None, candidate: Candidate, confidence: float) -> Ratio | None:
    if reference is None or reference is candidate:
        return None
    return speedup(_samples(reference), _samples(candidate), confidence)


def _correctness(candidate: Candidate) -> Fields:
    """Return whether the results were right; None if nothing was checked."""
    first = asdict(candidate.wrong[0]) if candidate.wrong else None
    return {
        "correct": not candidate.wrong if candidate.checked else None,
        "wrong": sum(error.count for error in candidate.wrong),
        "first_wrong": first and FirstWrong(**{key: _plain(value) for key, value in first.items()}),
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and complex numbers become text."""
    if isinstance(value, int | str) or value is None:
        return value
    is_finite = isinstance(value, float) and value - value == 0
    return value if is_finite else str(value)


def _complaint(candidate: Candidate) -> str | None:
    if not candidate.wrong:
        return None
    return f"WRONG {candidate.case}: {candidate.wrong[0]}"
