"""Contradictions within a record, which the schema of single values does not exclude."""

from __future__ import annotations

from collections.abc import Iterator

from mpicoll.records.description import Run
from mpicoll.records.flat import NESTED
from mpicoll.records.lines import (
    AARecord,
    CaseRecord,
    FanOutRecord,
    FitRecord,
    LaunchRecord,
    PairRecord,
    Record,
    RunRecord,
    Speedup,
    Times,
)


def contradictions(record: Record) -> Iterator[str]:
    """Yield the contradictions between values of a record, in words."""
    if isinstance(record, AARecord | LaunchRecord):
        return
    yield from _of_run(record.run)
    if not isinstance(record, RunRecord):
        yield from _of_ranks(record)
    if isinstance(record, CaseRecord | PairRecord):
        yield from _of_samples(record)
        for name in NESTED:
            value = getattr(record, name, None)
            if isinstance(value, Times | Speedup):
                yield from _of_interval(name, value)


def _of_run(run: Run) -> Iterator[str]:
    for name in ("cores", "binding"):
        count = len(getattr(run, name, ()))
        if count not in (0, len(run.hosts)):
            yield f"{count} ranks in run.{name} and {len(run.hosts)} in run.hosts"


def _of_ranks(record: CaseRecord | PairRecord | FitRecord | FanOutRecord) -> Iterator[str]:
    if record.nodes > record.ranks:
        yield f"nodes is {record.nodes} of {record.ranks} ranks"
    if len(record.run.hosts) not in (0, record.ranks):
        yield f"ranks is {record.ranks}, and run.hosts has {len(record.run.hosts)}"
    for name in ("root", "slowest_rank", "source", "target"):
        rank = getattr(record, name, None)
        if rank is not None and rank >= record.ranks:
            yield f"{name} is {rank} of {record.ranks} ranks"


def _of_samples(record: CaseRecord | PairRecord) -> Iterator[str]:
    count = len(record.samples_us)
    # Files that leave the samples themselves out keep their number.
    if count not in (0, record.samples):
        yield f"samples is {record.samples}, and samples_us has {count}"
    if count and record.time_us is None:
        yield "samples_us without time_us"
    if isinstance(record, CaseRecord) and len(record.blocks or ()) not in (0, count):
        yield f"samples_us has {count}, and blocks {len(record.blocks or ())}"
    if isinstance(record, PairRecord):
        if record.outlier and record.typical is None:
            yield "outlier without typical"
        if record.quantity != "latency" and record.time_us and record.GBps is None:
            yield "time_us without GBps"


def _of_interval(name: str, estimate: Times | Speedup) -> Iterator[str]:
    """Yield that an estimate is outside its interval."""
    value = estimate.median if isinstance(estimate, Times) else estimate.ratio
    if not estimate.low <= value <= estimate.high:
        yield f"{name} is {value}, outside of its interval {estimate.low} .. {estimate.high}"
