"""The JSON records of a run over pairs, in a documented form.

Every record has `schema` and `kind`, and shares `run`, `backend`, `library`, `transport`,
`device`, `ranks` and `nodes` with those of the benchmark. Times are microseconds of one message
(of one exchange where it goes both ways), bandwidths 10^9 bytes a second; what goes both ways
counts the bytes of both directions.

kind ``pair``: one number.
    `quantity`: ``latency``, ``one_way``, ``both_ways`` (see `lane`) or ``copy``, a rank's own
    memory; `source`, `target`: ranks, `source_host`, `target_host`; `source_gpu`, `target_gpu`:
    the GPUs of their buffers, null on the host; `link`: the class of the pair, `link_detail`;
    `bytes`; `visits_us`: the median of each visit; `samples`, `samples_us`, `calls_per_sample`,
    `time_us` as in the benchmark; `GBps`, null for a latency; `typical`: the median of its class,
    in us or GB/s; `outlier`: whether it lies far from that (see `outliers`); `correct`, null where
    nothing was checked; `message`: why there is no number, or what was wrong.

kind ``fit``: Hockney's model of a class of pairs, alpha + beta x bytes.
    `link`; `alpha_us`; `beta_ns_per_byte`; `GBps`: 1 / beta; `error`: the median of the relative
    errors of `points` points (a pair, a size), `worst_error`: their 95th percentile; `pairs`:
    ordered pairs of ranks; `sizes`: the smallest and the largest.

kind ``fan_out``: copies of one rank to several GPUs at once, each on a stream of its own.
    `source`: the rank; `peers`: how many GPUs; `bytes`: of each copy; `time_us`; `GBps` of all.

kind ``run`` describes the run, before them all, as in the benchmark.

Keys are only ever added within a schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from mpicoll.bench.record import Record
from mpicoll.collectives import Collectives
from mpicoll.interfaces import TRANSPORTS
from mpicoll.machine.links import SELF, Link
from mpicoll.measurement.hockney import fit
from mpicoll.measurement.ping_pong import BOTH_WAYS, LATENCY, ONE_WAY, Case, Findings, Found
from mpicoll.measurement.statistics import summary
from mpicoll.records.journal import SCHEMA


class Setting(NamedTuple):
    """What a run is about: where it runs, and what joins its ranks.

    Attributes:
        hosts, gpus: of each rank; without GPUs the latter are None.
    """

    run: Record
    worlds: Mapping[str, Collectives]
    device: str
    hosts: Sequence[str]
    gpus: Sequence[str | None]
    links: Mapping[tuple[int, int], Link]

    def common(self, backend: str, transport: str) -> Record:
        """Return what all records of a backend and transport share."""
        world = self.worlds[backend]
        return {
            "run": self.run, "backend": backend, "library": world.library,
            "transport": transport, "device": self.device, "ranks": world.size,
            "nodes": len(world.nodes),
        }  # fmt: skip


def pair_records(found: Findings, setting: Setting) -> list[Record]:
    """Return one record for each case, in the order of their names."""
    order = {name: index for index, name in enumerate((*setting.worlds, *TRANSPORTS, SELF))}
    cases = sorted(found, key=lambda case: (order[case.backend], order[case.transport], case))
    return [_pair(case, found[case], setting) for case in cases]


def _pair(case: Case, found: Found, setting: Setting) -> Record:
    ends = min(case.source, case.target), max(case.source, case.target)
    link = setting.links[ends] if ends[0] != ends[1] else Link(SELF)
    times = summary(found.samples) if found.samples else None
    return {
        "schema": SCHEMA,
        "kind": "pair",
        **setting.common(case.backend, case.transport),
        "quantity": case.quantity,
        "source": case.source,
        "target": case.target,
        "source_host": setting.hosts[case.source],
        "target_host": setting.hosts[case.target],
        "source_gpu": setting.gpus[case.source],
        "target_gpu": setting.gpus[case.target],
        "link": link.name,
        "link_detail": link.detail or None,
        "bytes": case.nbytes,
        "visits_us": [round(median(each), 4) for each in found.visits],
        "samples": len(found.samples),
        "samples_us": [round(us, 4) for us in found.samples],
        "calls_per_sample": found.calls,
        "time_us": times and {key: round(us, 4) for key, us in times.items()},
        "GBps": bandwidth(case.quantity, case.nbytes, times["median"] if times else None),
        "typical": None,
        "outlier": False,
        "correct": found.wrong is None if found.checked else None,
        "message": found.message or (str(found.wrong) if found.wrong else None),
    }


def bandwidth(quantity: str, nbytes: int, microseconds: float | None) -> float | None:
    """Return GB/s; both directions count where both are used.

    >>> bandwidth("one_way", 4000, 2.0), bandwidth("both_ways", 4000, 2.0)
    (2.0, 4.0)
    """
    if quantity == LATENCY or not microseconds:
        return None
    return nbytes * (2 if quantity == BOTH_WAYS else 1) / microseconds / 1000


def value(record: Record) -> float | None:
    """Return the number of a pair: microseconds for a latency, GB/s for the rest."""
    if record["time_us"] is None:
        return None
    chosen = record["time_us"]["median"] if record["quantity"] == LATENCY else record["GBps"]
    return float(chosen)


def fit_records(pairs: Sequence[Record], setting: Setting) -> list[Record]:
    """Return the model of each class of pairs over each backend and transport.

    A point is a pair's time of one message: half a round trip at the smallest size, its share
    of a window at the others.
    """
    classes: dict[tuple[str, str, str], list[Record]] = {}
    for each in pairs:
        if each["quantity"] in (LATENCY, ONE_WAY) and each["time_us"]:
            key = each["backend"], each["transport"], each["link"]
            classes.setdefault(key, []).append(each)
    return [
        record for (backend, transport, link), rows in classes.items()
        if (record := _fit(rows, link, setting.common(backend, transport)))
    ]  # fmt: skip


def _fit(rows: Sequence[Record], link: str, common: Record) -> Record | None:
    found = fit([(each["bytes"], each["time_us"]["median"]) for each in rows])
    if found is None:
        return None
    sizes = sorted({each["bytes"] for each in rows})
    ends = {(each["source"], each["target"]) for each in rows if each["quantity"] == ONE_WAY}
    return {
        "schema": SCHEMA,
        "kind": "fit",
        **common,
        "link": link,
        "alpha_us": found.alpha_us,
        "beta_ns_per_byte": found.beta_ns_per_byte,
        "GBps": found.GBps,
        "error": found.error,
        "worst_error": found.worst,
        "points": found.points,
        "pairs": len(ends),
        "sizes": [sizes[0], sizes[-1]],
    }
