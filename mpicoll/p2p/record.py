"""Make the records of a run over pairs of ranks: their numbers, and a fit for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from mpicoll.backend import TRANSPORTS
from mpicoll.collectives import Collectives
from mpicoll.machine.links import SELF, LinkClass
from mpicoll.measurement.hockney import fit
from mpicoll.measurement.ping_pong import (
    BOTH_WAYS,
    LATENCY,
    ONE_WAY,
    PairCase,
    PairFindings,
    PairSamples,
)
from mpicoll.measurement.statistics import distribution
from mpicoll.records.description import Run
from mpicoll.records.lines import FitRecord, PairRecord


class Context(NamedTuple):
    """The ranks of a run, their places and the links between them.

    Attributes:
        hosts: of each rank.
        gpus: of each rank; None without GPUs.
    """

    run: Run
    worlds: Mapping[str, Collectives]
    device: str
    hosts: Sequence[str]
    gpus: Sequence[str | None]
    links: Mapping[tuple[int, int], LinkClass]

    def common(self, backend: str, transport: str) -> dict[str, Any]:
        """Return the fields that all records of a backend and transport share."""
        world = self.worlds[backend]
        return {
            "run": self.run, "backend": backend, "library": world.library,
            "transport": transport, "device": self.device, "ranks": world.size,
            "nodes": len(world.nodes),
        }  # fmt: skip


def pair_records(findings: PairFindings, context: Context) -> list[PairRecord]:
    """Return one record for each case, by backend and transport in their usual order."""
    order = {name: index for index, name in enumerate((*context.worlds, *TRANSPORTS, SELF))}
    cases = sorted(findings, key=lambda case: (order[case.backend], order[case.transport], case))
    return [_pair(case, findings[case], context) for case in cases]


def _pair(case: PairCase, samples: PairSamples, context: Context) -> PairRecord:
    ends = min(case.source, case.target), max(case.source, case.target)
    link = context.links[ends] if ends[0] != ends[1] else LinkClass(SELF)
    times = distribution(samples.samples)
    return PairRecord(
        **context.common(case.backend, case.transport),
        quantity=case.quantity,
        source=case.source,
        target=case.target,
        source_host=context.hosts[case.source],
        target_host=context.hosts[case.target],
        source_gpu=context.gpus[case.source],
        target_gpu=context.gpus[case.target],
        link=link.name,
        link_detail=link.detail or None,
        bytes=case.nbytes,
        visits_us=[round(median(visit), 4) for visit in samples.visits],
        samples=len(samples.samples),
        samples_us=[round(us, 4) for us in samples.samples],
        calls_per_sample=samples.calls,
        time_us=times,
        GBps=bandwidth(case.quantity, case.nbytes, times.median) if times else None,
        correct=samples.wrong is None if samples.checked else None,
        message=samples.message or (str(samples.wrong) if samples.wrong else None),
    )


def bandwidth(quantity: str, nbytes: int, microseconds: float) -> float | None:
    """Return GB/s, None for a latency; a quantity of both ways counts both directions.

    >>> bandwidth("one_way", 4000, 2.0), bandwidth("both_ways", 4000, 2.0)
    (2.0, 4.0)
    """
    if quantity == LATENCY or not microseconds:
        return None
    return nbytes * (2 if quantity == BOTH_WAYS else 1) / microseconds / 1000


def value(record: PairRecord) -> float | None:
    """Return the number of a record: microseconds for a latency, else GB/s."""
    if record.time_us is None:
        return None
    return record.time_us.median if record.quantity == LATENCY else record.GBps


def known_value(record: PairRecord) -> float:
    """Return the number of a measured record."""
    amount = value(record)
    assert amount is not None
    return amount


def fit_records(pairs: Sequence[PairRecord], context: Context) -> list[FitRecord]:
    """Return Hockney's model of each class of pairs over each backend and transport.

    A point is the time of one message of a pair: half a round trip at the smallest size, and the
    share of a window at the other sizes.
    """
    classes: dict[tuple[str, str, str], list[PairRecord]] = {}
    for pair in pairs:
        if pair.quantity in (LATENCY, ONE_WAY) and pair.time_us:
            classes.setdefault((pair.backend, pair.transport, pair.link), []).append(pair)
    return [
        record for (backend, transport, link), rows in classes.items()
        if (record := _fit(rows, link, context.common(backend, transport)))
    ]  # fmt: skip


def _fit(rows: Sequence[PairRecord], link: str, common: Mapping[str, Any]) -> FitRecord | None:
    model = fit([(row.bytes, row.time_us.median) for row in rows if row.time_us])
    if model is None:
        return None
    sizes = {row.bytes for row in rows}
    ends = {(row.source, row.target) for row in rows if row.quantity == ONE_WAY}
    return FitRecord(
        **common,
        link=link,
        alpha_us=model.alpha_us,
        beta_ns_per_byte=model.beta_ns_per_byte,
        GBps=model.GBps,
        error=model.error,
        worst_error=model.worst,
        points=model.points,
        pairs=len(ends),
        sizes=[min(sizes), max(sizes)],
    )
