"""The JSON record of a case: what a run says about itself, in a documented form.

Schema 1, a line of JSON each; `kind` says what a line is, and readers leave out kinds that they
do not know. Keys are only ever added within a schema.

kind ``run``: stands once before the records of a run, and describes it in full.
    `run`: all that stands in `run` of its records, and beside it: `argv`, the whole command
    line; `directory`; `git`: `commit` and `dirty` of the checkout that ran, null without one;
    `settings`, the flags of measuring; `stack`: `mpi` (library, standard, device, provider),
    `nccl`, `cuda_runtime`, `cuda_driver`; `machines`: processor, kernel, cores and ranks of
    each host; `binding` of each rank; `clock`: the bound on its error; `environment`: variables
    that matter, with secrets masked.

kind ``case``, also meant where a line has no kind: times are in microseconds.
    `run`: `id`, the same in all records of a run; `started`; `command`: the arguments; `seed`;
    `versions` and `libraries`; `transports` that there are; `hosts` and `cores` by rank;
    `quota`; `load` before it; `oversubscribed`: more ranks than cores.
    What identifies a case stands in `identity.FIELDS`; `bytes_total` is S as nccl-tests counts
    it, `bytes_per_rank` one vector or one row. `executed` and `transport`: what ran;
    `note`: where that is a library's default, what it is called there and how ours differs.
    `samples_us`: the times that count, in the order in which they were taken; `late_starts` and
    `preempted`: samples that were spoilt, as a rank came late or lost its core, and that
    count only where too few others do, and then `undisturbed` is false; `sync_error_us`: the
    bound on the clocks' error. `best`: the fastest correct one of its group so far.
    A case that was refused has `message` and null in place of what was not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mpicoll.measurement.measure import Bench, Candidate
from mpicoll.measurement.statistics import speedup, summary
from mpicoll.records.journal import CASE, SCHEMA

Record = dict[str, Any]


def records(bench: Bench, candidates: Sequence[Candidate], run: dict[str, Any]) -> list[Record]:
    """Return the records of a group, and mark the fastest correct one."""
    found = [_record(bench, each, candidates, run) for each in candidates]
    mark_best(found)
    return found


def mark_best(group: Sequence[Record]) -> None:
    """Say of each record whether it is the fastest correct one among these."""
    timed = [each for each in group if each["time_us"] and each["correct"] is not False]
    best = min(timed, key=lambda each: each["time_us"]["median"]) if timed else None
    for each in group:
        each["best"] = each is best


def _record(
    bench: Bench, candidate: Candidate, candidates: Sequence[Candidate], run: dict[str, Any]
) -> Record:
    case, group = candidate.case, candidate.case.group
    world, vector = bench.worlds[case.backend], case.group.what.unit != "none"
    return {
        "schema": SCHEMA,
        "kind": CASE,
        "run": run,
        "collective": group.what.name,
        "algorithm": case.algorithm,
        "executed": candidate.executed or None,
        "backend": case.backend,
        "library": world.library,
        "transport": candidate.transport or None,
        "note": candidate.note or None,
        "device": group.device,
        "dtype": group.dtype if vector else None,
        "op": group.op if group.what.reduces else None,
        "root": group.root if group.what.rooted else None,
        "in_place": group.in_place,
        "allocated": group.allocated,
        "ranks": bench.size,
        "nodes": len(world.nodes),
        "bytes_total": group.bytes_total,
        "bytes_per_rank": group.bytes_per_rank,
        "count": group.width,
        **_times(bench, candidate),
        **_speedups(candidate, candidates, bench.settings.confidence),
        **_correctness(candidate),
        "message": candidate.message or _complaint(candidate),
    }


def _times(bench: Bench, candidate: Candidate) -> Record:
    """Return the statistics of the samples and how they were taken."""
    taken = list(candidate.samples.values())
    times = {key: round(us, 4) for key, us in summary(taken).items()} if taken else None
    visits, spoilt = candidate.visits, candidate.late | candidate.preempted
    slowest = candidate.slowest.most_common(1)
    return {
        "samples": len(taken),
        "samples_us": [round(us, 4) for us in taken],
        "undisturbed": not (candidate.samples.keys() & spoilt.keys()),
        "calls_per_sample": candidate.calls,
        "timing": bench.settings.timing,
        "late_starts": len(candidate.late),
        "late_share": round(len(candidate.late) / visits, 4) if visits else None,
        "preempted": len(candidate.preempted),
        "worst_late_us": candidate.lateness / 1000,
        "sync_error_us": bench.meeting.sync_error / 1000,
        "slowest_rank": slowest[0][0] if slowest else None,
        "time_us": times,
        "host_us": _host_times(candidate),
        **_bandwidths(candidate, times["median"] if times else None, bench.size),
    }


def _host_times(candidate: Candidate) -> Record | None:
    """Return the same by the clocks of the ranks, where events of a GPU timed the samples."""
    taken = [us for block, us in candidate.host.items() if block in candidate.samples]
    return {key: round(us, 4) for key, us in summary(taken).items()} if taken else None


def _bandwidths(candidate: Candidate, median: float | None, size: int) -> Record:
    """Return GB/s; the bus bandwidth has no meaning on one rank or without data."""
    group = candidate.case.group
    if not median or not group.bytes_total:
        return {"algbw_GBps": None, "busbw_GBps": None}
    algbw = group.bytes_total / median / 1000
    busbw = algbw * group.what.busbw(size) if size > 1 else None
    return {"algbw_GBps": algbw, "busbw_GBps": busbw}


def _speedups(candidate: Candidate, candidates: Sequence[Candidate], confidence: float) -> Record:
    own = candidate.case.backend
    native = _named(candidates, own, ("native",))
    others = [each for each in candidates if each.case.backend != own]
    rival = None
    if others:
        rival = _named(candidates, others[0].case.backend, (candidate.case.algorithm, "native"))
    against = f"{rival.case.backend} {rival.case.algorithm}" if rival else None
    faster = _ratio(rival, candidate, confidence)
    return {
        "speedup_vs_native": _ratio(native, candidate, confidence),
        "speedup_vs_other": {**faster, "against": against} if faster else None,
    }


def _named(candidates: Sequence[Candidate], backend: str, names: Sequence[str]) -> Candidate | None:
    """Return the backend's first candidate of these names that has samples."""
    for name in names:
        for each in candidates:
            if (each.case.backend, each.case.algorithm) == (backend, name) and each.samples:
                return each
    return None


def _ratio(reference: Candidate | None, own: Candidate, confidence: float) -> Record | None:
    if reference is None or reference is own:
        return None
    found = speedup(reference.samples, own.samples, confidence)
    return found and found._asdict()


def _correctness(candidate: Candidate) -> Record:
    """Return whether the results were right; null where nothing was checked."""
    wrong = sum(each.count for each in candidate.wrong)
    first = asdict(candidate.wrong[0]) if candidate.wrong else None
    return {
        "correct": not candidate.wrong if candidate.checked else None,
        "wrong": wrong,
        "first_wrong": first and {key: _plain(value) for key, value in first.items()},
    }


def _plain(value: Any) -> Any:
    """Return what JSON can say: NaN and complex numbers as text."""
    if isinstance(value, int | str) or value is None:
        return value
    is_finite = isinstance(value, float) and value - value == 0
    return value if is_finite else str(value)


def _complaint(candidate: Candidate) -> str | None:
    if not candidate.wrong:
        return None
    return f"WRONG {candidate.case}: {candidate.wrong[0]}"
